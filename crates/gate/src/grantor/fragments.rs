//! Fragments of requests, kept until their packet is complete.
//!
//! ```text
//!   packet ─┬─ no fragment ─────────────────────────────► Alone
//!           └─ fragment ─► (flow, protocol, id) ─┬─ all ─► Complete, the first fragment first: one decision
//!                                                ├─ else ► Waits
//!                                                └─ overlapping, too many, too late ─► Invalid: penalized
//! ```
//!
//! Only the first fragment has ports, so that a policy that reads ports cannot decide about the
//! others. Packets are not reassembled here, only decided together: the fragments stay as they
//! arrived, and all are delivered or none. A packet whose fragments do not arrive within
//! [`TIMEOUT`] costs an attacker little and a receiver memory; its flow gets what the operator has
//! configured for that.
//!
//! **No penalty without fault.** When a flow is granted, its next packets are no requests any more:
//! fragments of one packet can be on either side of that moment, and those that were requests stay
//! incomplete. So decided flows are remembered for a while, up to a maximum
//! ([`Fragments::record_decision`]); packets that request renewal are not to be offered at all,
//! because their other fragments do not request it.
//!
//! Overlapping fragments serve only attacks (RFC 5722, and RFC 8200, 4.5, forbid them): the packet
//! is invalid. The numbers of waiting packets, of
//! fragments of a packet and of fragments in all are bounded, so that fragments do not take all the
//! room of requests; a further packet makes the oldest one invalid.

use std::collections::{HashMap, VecDeque};

use wire::{ipv4, ipv6};

use crate::flow::Flow;

/// Maximum waiting time for the fragments of a packet, in nanoseconds.
pub(super) const TIMEOUT: u64 = 1_000_000_000;
/// Maximum number of decided flows that are remembered, and for how long.
const MAX_DECIDED: usize = 1024;
const DECISION_MEMORY: u64 = 2 * TIMEOUT;
/// Maximum number of incomplete packets.
pub(super) const MAX_PACKETS: usize = 64;
/// Maximum number of waiting fragments: half of a worker's places for requests.
const MAX_HELD: usize = 256;
/// Maximum number of fragments of a packet: 64 KiB in Ethernet frames is 45.
const MAX_FRAGMENTS: usize = 64;

/// The fields that all fragments of a packet share.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct FragmentKey {
    flow: Flow,
    protocol: u8,
    id: u32,
}

/// The position of a fragment, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct ByteRange {
    from: u32,
    to: u32,
    last: bool,
}

#[derive(Debug)]
struct PartialPacket<T> {
    since: u64,
    ranges: Vec<ByteRange>,
    fragments: Vec<T>,
}

/// The result of a packet that was offered.
#[derive(Debug, PartialEq, Eq)]
pub enum Reassembly<T> {
    /// It is no fragment.
    NotFragment(T),
    /// It is a fragment, and others are missing.
    Incomplete,
    /// It was the last missing fragment: all of them, the one with the ports first.
    Complete(Vec<T>),
    /// The packet cannot become complete: its flow and its fragments.
    Invalid(Flow, Vec<T>),
}

/// Incomplete packets.
#[derive(Debug)]
pub struct Fragments<T> {
    waiting: HashMap<FragmentKey, PartialPacket<T>>,
    /// Packets by arrival, including some that do not wait any more.
    order: VecDeque<(FragmentKey, u64)>,
    /// The number of waiting fragments.
    held: usize,
    /// Recently decided flows, the latest last.
    decided: VecDeque<(u64, Flow)>,
}

impl<T> Default for Fragments<T> {
    fn default() -> Self {
        Self { waiting: HashMap::new(), order: VecDeque::new(), held: 0, decided: VecDeque::new() }
    }
}

impl<T> Fragments<T> {
    /// Takes a packet, from its IP header on, and the value that represents it.
    pub fn offer(&mut self, now: u64, packet: &[u8], fragment: T) -> Reassembly<T> {
        let Some((key, range)) = range(packet) else { return Reassembly::NotFragment(fragment) };
        if !self.waiting.contains_key(&key) {
            self.order.push_back((key, now));
        }
        let known = self.waiting.entry(key).or_insert_with(|| PartialPacket {
            since: now,
            ranges: Vec::new(),
            fragments: Vec::new(),
        });
        known.ranges.push(range);
        known.fragments.push(fragment);
        self.held += 1;
        let status = known.status();
        if status == Status::Incomplete {
            return Reassembly::Incomplete;
        }
        let Some(mut known) = self.waiting.remove(&key) else { return Reassembly::Incomplete };
        self.held -= known.fragments.len();
        self.order.retain(|(waits, since)| *waits != key || *since != known.since);
        match status {
            Status::Complete => {
                let first = known.ranges.iter().position(|range| range.from == 0).unwrap_or(0);
                known.fragments.swap(0, first);
                Reassembly::Complete(known.fragments)
            }
            _ => Reassembly::Invalid(key.flow, known.fragments),
        }
    }

    /// Removes a packet that has waited for too long, or exceeds the maximum; to be called until
    /// there is none.
    pub fn expire_one(&mut self, now: u64) -> Option<(Flow, Vec<T>)> {
        let &(key, since) = self.order.front()?;
        if now < since + TIMEOUT && self.waiting.len() <= MAX_PACKETS && self.held <= MAX_HELD {
            return None;
        }
        self.order.pop_front();
        let known = self.waiting.remove(&key)?;
        self.held -= known.fragments.len();
        Some((key.flow, known.fragments))
    }

    /// Records that the policy has decided about a flow, at `now`.
    pub fn record_decision(&mut self, now: u64, flow: Flow) {
        if self.decided.len() == MAX_DECIDED {
            self.decided.pop_front();
        }
        self.decided.push_back((now, flow));
    }

    /// Returns whether a flow was decided recently, so that its fragments may have taken another
    /// path.
    pub fn was_decided(&self, now: u64, flow: &Flow) -> bool {
        let lately = self.decided.iter().rev().take_while(|(at, _)| now < at + DECISION_MEMORY);
        lately.into_iter().any(|(_, decided)| decided == flow)
    }

    /// Counts the incomplete packets.
    pub fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Returns whether no packet waits.
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Status {
    Incomplete,
    Complete,
    Invalid,
}

impl<T> PartialPacket<T> {
    /// Returns the status with the newest fragment.
    fn status(&self) -> Status {
        let Some((newest, others)) = self.ranges.split_last() else { return Status::Incomplete };
        let end = self.ranges.iter().find(|range| range.last).map(|range| range.to);
        let overlaps = others.iter().any(|r| r.from < newest.to && newest.from < r.to);
        let beyond = end.is_some_and(|end| self.ranges.iter().any(|range| range.to > end));
        let ends = self.ranges.iter().filter(|range| range.last).count();
        if overlaps || beyond || ends > 1 || self.ranges.len() > MAX_FRAGMENTS {
            return Status::Invalid;
        }
        // Without overlaps, as many bytes as there are to the end are all of them.
        let have: u32 = self.ranges.iter().map(|range| range.to - range.from).sum();
        if end == Some(have) { Status::Complete } else { Status::Incomplete }
    }
}

/// Parses the position of a fragment; `None` if the packet is not a fragment or its headers are
/// invalid, so that it is decided by itself.
fn range(packet: &[u8]) -> Option<(FragmentKey, ByteRange)> {
    let (key, units, more, len) = match packet.first()? >> 4 {
        4 => {
            let ip = ipv4::View::parse(packet).ok()?;
            if !ip.is_fragment() {
                return None;
            }
            let flow = Flow::v4(ip.src(), ip.dst());
            let more = ip.flags() & ipv4::MORE_FRAGMENTS != 0;
            let len = usize::from(ip.total_len()).checked_sub(ip.header_len())?;
            let key = FragmentKey { flow, protocol: ip.protocol(), id: ip.id().into() };
            (key, ip.fragment_offset(), more, len)
        }
        6 => {
            let ip = ipv6::View::parse(packet).ok()?;
            let upper = ip.upper().ok()?;
            let part = upper.fragment.filter(|part| part.offset > 0 || part.more)?;
            let flow = Flow::v6(ip.src(), ip.dst());
            // The next-header field of a later fragment may be that of another header.
            let key = FragmentKey { flow, protocol: 0, id: part.id };
            let end = ipv6::LEN + usize::from(ip.payload_len());
            (key, part.offset, part.more, end.checked_sub(upper.offset)?)
        }
        _ => return None,
    };
    let from = u32::from(units) * 8;
    Some((key, ByteRange { from, to: from + len as u32, last: !more }))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a fragment of an IPv4 packet.
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
    fn fragments_in_any_order_complete_their_packet() {
        let mut rng = fastrand::Rng::with_seed(3);
        let mut fragments = Fragments::default();
        assert_eq!(fragments.offer(0, &v4(1, 1, 0, 8, false), 9), Reassembly::NotFragment(9));
        for round in 0..2000_u16 {
            let count = rng.u16(2..9);
            let mut order: Vec<u16> = (0..count).collect();
            rng.shuffle(&mut order);
            let (left_out, doubled) = (rng.u8(..4) == 0, rng.u8(..4) == 0);
            let last = order.pop().unwrap();
            for &at in &order {
                let packet = v4(1, round, at * 16, 16, at + 1 < count);
                assert_eq!(fragments.offer(0, &packet, at), Reassembly::Incomplete);
            }
            if doubled {
                // Overlaps half of a present fragment.
                let packet = v4(1, round, order[0] * 16 + 8, 16, true);
                let Reassembly::Invalid(flow, mut all) = fragments.offer(0, &packet, 99) else {
                    panic!("an overlap was accepted")
                };
                all.sort_unstable();
                order.sort_unstable();
                order.push(99);
                assert_eq!((flow, all), (Flow::v4(1, 0), order));
            } else if !left_out {
                let packet = v4(1, round, last * 16, 16, last + 1 < count);
                let Reassembly::Complete(all) = fragments.offer(0, &packet, last) else {
                    panic!("all fragments are there")
                };
                assert_eq!((all[0], all.len()), (0, count.into()));
            }
            while let Some((_, all)) = fragments.expire_one(0) {
                assert!(all.len() < 9);
            }
            assert!(fragments.len() <= MAX_PACKETS && fragments.held <= MAX_HELD, "room is made");
        }
        let rest = fragments.len();
        assert!(fragments.expire_one(TIMEOUT - 1).is_none() && rest > 0);
        assert_eq!(std::iter::from_fn(|| fragments.expire_one(TIMEOUT)).count(), rest);
        assert!(fragments.is_empty() && fragments.order.is_empty() && fragments.held == 0);
    }

    #[test]
    fn decided_flow_is_remembered_for_a_while() {
        let mut fragments = Fragments::<()>::default();
        let flow = |src: u32| Flow::v4(src, 0);
        fragments.record_decision(5, flow(1));
        assert!(
            fragments.was_decided(4 + DECISION_MEMORY, &flow(1))
                && !fragments.was_decided(6, &flow(2))
        );
        assert!(!fragments.was_decided(5 + DECISION_MEMORY, &flow(1)));
        (0..MAX_DECIDED as u32).for_each(|src| fragments.record_decision(6, flow(100 + src)));
        assert!(!fragments.was_decided(6, &flow(1)) && fragments.was_decided(6, &flow(100)));
    }

    #[test]
    fn packets_are_distinguished_by_flow_and_id() {
        let mut fragments = Fragments::default();
        for (src, id) in [(1, 7), (2, 7), (1, 8)] {
            assert_eq!(
                fragments.offer(0, &v4(src, id, 0, 8, true), (src, id)),
                Reassembly::Incomplete
            );
        }
        let all = fragments.offer(5, &v4(2, 7, 8, 3, false), (0, 0));
        assert_eq!(all, Reassembly::Complete(vec![(2, 7), (0, 0)]));
        // A fragment beyond the last one, and a second last one.
        for (id, from, more) in [(7, 24, true), (8, 24, false)] {
            assert_eq!(
                fragments.offer(5, &v4(1, id, 16, 3, false), (3, id)),
                Reassembly::Incomplete
            );
            let broken = fragments.offer(5, &v4(1, id, from, 8, more), (4, id));
            let all = vec![(1, id), (3, id), (4, id)];
            assert_eq!(broken, Reassembly::Invalid(Flow::v4(1, 0), all));
        }
        assert!(fragments.is_empty());
    }
}
