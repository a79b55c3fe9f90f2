//! Fragments that ask, until all of their packet are there.
//!
//! ```text
//!   packet ─┬─ no fragment ─────────────────────────────► Alone
//!           └─ fragment ─► (flow, protocol, id) ─┬─ all ─► Whole, the first one first: decided of once
//!                                                ├─ else ► Waits
//!                                                └─ overlapping, too many, too late ─► Broken: punished
//! ```
//!
//! Only the first fragment has ports, so that a policy that looks at them cannot judge the
//! others. Put together here are not the packets but what is to become of them: the pieces stay as
//! they came, and all go on or none. A packet of which pieces do not come within [`PATIENCE`]
//! costs an attacker little and a receiver memory; its flow gets what the operator has set for that.
//!
//! **Who is not to blame.** When a flow is granted, what it sends next does not ask any more: pieces
//! of one packet can come on either side of that moment, and those that asked wait in vain. So
//! it is remembered for a while, and for so many flows, that they were decided of
//! ([`Fragments::decided`]); packets that ask for renewal are not to be offered at all, because the
//! other pieces do not ask.
//!
//! Overlapping pieces have no use but to deceive (RFC 5722, and RFC 8200, 4.5, forbid them): the packet
//! is broken. At most [`MOST`] packets wait, of [`PIECES`] pieces each and [`HELD`] in all, so that pieces do
//! not hold all the places that requests have; a further one breaks the oldest.

use std::collections::{HashMap, VecDeque};

use wire::{ipv4, ipv6};

use crate::flow::Flow;

/// How long the pieces of a packet are waited for, in nanoseconds.
pub(super) const PATIENCE: u64 = 1_000_000_000;
/// The most flows that are remembered to have been decided of, and for how long.
const DECIDED: usize = 1024;
const LATELY: u64 = 2 * PATIENCE;
/// The most packets that wait for pieces.
pub(super) const MOST: usize = 64;
/// The most pieces that wait: half of a worker's places for what asks.
const HELD: usize = 256;
/// The most pieces of a packet: 64 KiB in Ethernet frames is 45.
const PIECES: usize = 64;

/// What the pieces of a packet have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Name {
    flow: Flow,
    protocol: u8,
    id: u32,
}

/// Where a piece belongs, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Place {
    from: u32,
    to: u32,
    last: bool,
}

#[derive(Debug)]
struct Waiting<T> {
    since: u64,
    places: Vec<Place>,
    pieces: Vec<T>,
}

/// What became of a packet that was offered.
#[derive(Debug, PartialEq, Eq)]
pub enum Gathered<T> {
    /// It is no fragment.
    Alone(T),
    /// It is one, and others are missing.
    Waits,
    /// It was the last that was missing: all of them, the one with the ports first.
    Whole(Vec<T>),
    /// The packet cannot become whole: all that there is of it, and its flow.
    Broken(Flow, Vec<T>),
}

/// Pieces that wait for others.
#[derive(Debug)]
pub struct Fragments<T> {
    waiting: HashMap<Name, Waiting<T>>,
    /// In the order in which they began to wait, some that do no more among them.
    order: VecDeque<(Name, u64)>,
    /// How many pieces wait.
    held: usize,
    /// Who was decided of lately, the latest last.
    decided: VecDeque<(u64, Flow)>,
}

impl<T> Default for Fragments<T> {
    fn default() -> Self {
        Self { waiting: HashMap::new(), order: VecDeque::new(), held: 0, decided: VecDeque::new() }
    }
}

impl<T> Fragments<T> {
    /// Takes a packet, from its IP header on, and what is to be had back for it.
    pub fn offer(&mut self, now: u64, packet: &[u8], piece: T) -> Gathered<T> {
        let Some((name, place)) = place(packet) else { return Gathered::Alone(piece) };
        if !self.waiting.contains_key(&name) {
            self.order.push_back((name, now));
        }
        let known = self.waiting.entry(name).or_insert_with(|| Waiting {
            since: now,
            places: Vec::new(),
            pieces: Vec::new(),
        });
        known.places.push(place);
        known.pieces.push(piece);
        self.held += 1;
        let verdict = known.judge();
        if verdict == Verdict::Waits {
            return Gathered::Waits;
        }
        let Some(mut known) = self.waiting.remove(&name) else { return Gathered::Waits };
        self.held -= known.pieces.len();
        self.order.retain(|(waits, since)| *waits != name || *since != known.since);
        match verdict {
            Verdict::Whole => {
                let first = known.places.iter().position(|place| place.from == 0).unwrap_or(0);
                known.pieces.swap(0, first);
                Gathered::Whole(known.pieces)
            }
            _ => Gathered::Broken(name.flow, known.pieces),
        }
    }

    /// Gives up a packet that has waited for too long, or has to make room; to be called until
    /// there is none.
    pub fn give_up(&mut self, now: u64) -> Option<(Flow, Vec<T>)> {
        let &(name, since) = self.order.front()?;
        if now < since + PATIENCE && self.waiting.len() <= MOST && self.held <= HELD {
            return None;
        }
        self.order.pop_front();
        let known = self.waiting.remove(&name)?;
        self.held -= known.pieces.len();
        Some((name.flow, known.pieces))
    }

    /// Remembers that the policy has decided of a flow, at `now`.
    pub fn decided(&mut self, now: u64, flow: Flow) {
        if self.decided.len() == DECIDED {
            self.decided.pop_front();
        }
        self.decided.push_back((now, flow));
    }

    /// Says whether it has lately, so that pieces of this flow may have gone another way.
    pub fn was_decided(&self, now: u64, flow: &Flow) -> bool {
        let lately = self.decided.iter().rev().take_while(|(at, _)| now < at + LATELY);
        lately.into_iter().any(|(_, decided)| decided == flow)
    }

    /// Counts the packets that wait for pieces.
    pub fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Says whether none waits.
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    Waits,
    Whole,
    Broken,
}

impl<T> Waiting<T> {
    /// Judges the pieces with the newest among them.
    fn judge(&self) -> Verdict {
        let Some((newest, others)) = self.places.split_last() else { return Verdict::Waits };
        let end = self.places.iter().find(|place| place.last).map(|place| place.to);
        let overlaps = others.iter().any(|it| it.from < newest.to && newest.from < it.to);
        let beyond = end.is_some_and(|end| self.places.iter().any(|place| place.to > end));
        let ends = self.places.iter().filter(|place| place.last).count();
        if overlaps || beyond || ends > 1 || self.places.len() > PIECES {
            return Verdict::Broken;
        }
        // Without overlaps, as many bytes as there are to the end are all of them.
        let have: u32 = self.places.iter().map(|place| place.to - place.from).sum();
        if end == Some(have) { Verdict::Whole } else { Verdict::Waits }
    }
}

/// Reads where a fragment belongs; nothing if the packet is none, or is to be judged by itself
/// because its headers are wrong.
fn place(packet: &[u8]) -> Option<(Name, Place)> {
    let (name, units, more, len) = match packet.first()? >> 4 {
        4 => {
            let ip = ipv4::View::parse(packet).ok()?;
            if !ip.is_fragment() {
                return None;
            }
            let flow = Flow::v4(ip.src(), ip.dst());
            let more = ip.flags() & ipv4::MORE_FRAGMENTS != 0;
            let len = usize::from(ip.total_len()).checked_sub(ip.header_len())?;
            let name = Name { flow, protocol: ip.protocol(), id: ip.id().into() };
            (name, ip.fragment_offset(), more, len)
        }
        6 => {
            let ip = ipv6::View::parse(packet).ok()?;
            let upper = ip.upper().ok()?;
            let part = upper.fragment.filter(|part| part.offset > 0 || part.more)?;
            let flow = Flow::v6(ip.src(), ip.dst());
            // What a later fragment says of its protocol is another header's number.
            let name = Name { flow, protocol: 0, id: part.id };
            let end = ipv6::LEN + usize::from(ip.payload_len());
            (name, part.offset, part.more, end.checked_sub(upper.offset)?)
        }
        _ => return None,
    };
    let from = u32::from(units) * 8;
    Some((name, Place { from, to: from + len as u32, last: !more }))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A piece of an IPv4 packet.
    fn v4(src: u32, id: u16, from: u16, len: u16, more: bool) -> Vec<u8> {
        let mut bytes = vec![0; 20 + usize::from(len)];
        let header =
            ipv4::Header { total_len: 20 + len, protocol: 17, ttl: 9, src, ..Default::default() };
        header.emit(&mut bytes).unwrap();
        bytes[4..6].copy_from_slice(&id.to_be_bytes());
        bytes[6..8].copy_from_slice(&((from / 8) | (u16::from(more) << 13)).to_be_bytes());
        ipv4::View::parse(&mut bytes[..]).unwrap().fill_checksum();
        bytes
    }

    #[test]
    fn in_whatever_order_all_or_none_and_the_first_first() {
        let mut rng = fastrand::Rng::with_seed(3);
        let mut fragments = Fragments::default();
        assert_eq!(fragments.offer(0, &v4(1, 1, 0, 8, false), 9), Gathered::Alone(9));
        for round in 0..2000_u16 {
            let pieces = rng.u16(2..9);
            let mut order: Vec<u16> = (0..pieces).collect();
            rng.shuffle(&mut order);
            let (left_out, doubled) = (rng.u8(..4) == 0, rng.u8(..4) == 0);
            let last = order.pop().unwrap();
            for &at in &order {
                let packet = v4(1, round, at * 16, 16, at + 1 < pieces);
                assert_eq!(fragments.offer(0, &packet, at), Gathered::Waits);
            }
            if doubled {
                // Half of a piece that is there, at another place.
                let packet = v4(1, round, order[0] * 16 + 8, 16, true);
                let Gathered::Broken(flow, mut all) = fragments.offer(0, &packet, 99) else {
                    panic!("an overlap is no fault")
                };
                all.sort_unstable();
                order.sort_unstable();
                order.push(99);
                assert_eq!((flow, all), (Flow::v4(1, 0), order));
            } else if !left_out {
                let packet = v4(1, round, last * 16, 16, last + 1 < pieces);
                let Gathered::Whole(all) = fragments.offer(0, &packet, last) else {
                    panic!("it is all there")
                };
                assert_eq!((all[0], all.len()), (0, pieces.into()));
            }
            while let Some((_, all)) = fragments.give_up(0) {
                assert!(all.len() < 9);
            }
            assert!(fragments.len() <= MOST && fragments.held <= HELD, "room is made");
        }
        let rest = fragments.len();
        assert!(fragments.give_up(PATIENCE - 1).is_none() && rest > 0);
        assert_eq!(std::iter::from_fn(|| fragments.give_up(PATIENCE)).count(), rest);
        assert!(fragments.is_empty() && fragments.order.is_empty() && fragments.held == 0);
    }

    #[test]
    fn who_was_decided_of_is_known_for_a_while() {
        let mut fragments = Fragments::<()>::default();
        let flow = |src: u32| Flow::v4(src, 0);
        fragments.decided(5, flow(1));
        assert!(fragments.was_decided(4 + LATELY, &flow(1)) && !fragments.was_decided(6, &flow(2)));
        assert!(!fragments.was_decided(5 + LATELY, &flow(1)));
        (0..DECIDED as u32).for_each(|src| fragments.decided(6, flow(100 + src)));
        assert!(!fragments.was_decided(6, &flow(1)) && fragments.was_decided(6, &flow(100)));
    }

    #[test]
    fn packets_are_told_apart_by_flow_and_number() {
        let mut fragments = Fragments::default();
        for (src, id) in [(1, 7), (2, 7), (1, 8)] {
            assert_eq!(fragments.offer(0, &v4(src, id, 0, 8, true), (src, id)), Gathered::Waits);
        }
        let all = fragments.offer(5, &v4(2, 7, 8, 3, false), (0, 0));
        assert_eq!(all, Gathered::Whole(vec![(2, 7), (0, 0)]));
        // What goes on after its end, and what ends twice.
        for (id, from, more) in [(7, 24, true), (8, 24, false)] {
            assert_eq!(fragments.offer(5, &v4(1, id, 16, 3, false), (3, id)), Gathered::Waits);
            let broken = fragments.offer(5, &v4(1, id, from, 8, more), (4, id));
            let all = vec![(1, id), (3, id), (4, id)];
            assert_eq!(broken, Gathered::Broken(Flow::v4(1, 0), all));
        }
        assert!(fragments.is_empty());
    }
}
