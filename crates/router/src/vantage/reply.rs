//! Answers to packets that are too big: Packet Too Big, Fragmentation Needed.
//!
//! ```text
//!   packet, MTU ─► rate ─► a frame of its own ─► waits ─► leaves with the next turn
//! ```
//!
//! A tunnel's packets are longer than what enters it, so there are packets that fit
//! the front link and not the tunnel. Their sender is told what fits, as RFC 1191 and RFC
//! 8201 have it, and never left alone with a path that swallows packets. An IPv4 packet
//! that may be fragmented is answered as well: this machine fragments nothing.
//!
//! So many a second at the most (RFC 4443, 2.4(f)); what is beyond that is counted. Some
//! packets are never answered (`wire/src/icmp_error.rs`).
//!
//! **Budgets.** Any host can send packets that are too long, with any source address, and must not
//! use up the answers that others need. So each answer is charged to three budgets, and needs all
//! of them:
//!
//! ```text
//!   the tunnel        half for any packet, half for granted ones; these may take of both
//!   source prefix     a tenth: /24 and /48, by keyed hash in one of 1024 places
//!   destination       half: the address, by keyed hash in one of 1024 places
//! ```
//!
//! A granted flow needs its answer most, and forged sources are requests with most policies:
//! granted packets have budgets of their own by source and destination too. Budgets that share a
//! place are one; an attacker that does not know the key cannot choose which.

use std::collections::VecDeque;

use gate::flow::{Flow, Key as HashKey};
use gate::limit::bucket::{Bucket, DEEPEST};
use port::{Arena, Frame};
use wire::icmp_error::{LONGEST_V6, Reason, emit_v4, emit_v6};
use wire::{ethernet, ipv4, ipv6};

use crate::datapath::{Disposition, EgressPacket, Key};

/// Answers that wait at the most; a turn makes at most one for each packet that left.
const MOST: usize = 64;
/// What an answer takes of a bucket: it counts bytes, and these are all the same.
const PRICE: u32 = 1000;
/// Budgets of source prefixes, and of destinations.
const PLACES: usize = 1024;
/// A source prefix may have one answer in so many, a destination one in so many.
const OF_SOURCE: u64 = 10;
const OF_DESTINATION: u64 = 2;

/// Who answers.
#[derive(Debug)]
pub(super) struct Replies {
    /// From these addresses.
    from4: Option<u32>,
    from6: Option<u128>,
    /// For any packet, and for granted ones only.
    rates: [Bucket; 2],
    /// By source prefix, and by destination.
    by_source: Box<[Bucket]>,
    by_destination: Box<[Bucket]>,
    key: HashKey,
    ready: VecDeque<(Frame, Key)>,
    scratch: Box<[u8; LONGEST_V6]>,
    pub(super) sent: u64,
    /// Those beyond a budget, and those without an address or a frame to answer by.
    pub(super) spared: u64,
}

impl Replies {
    /// Answers from these addresses, at most so many times a second.
    pub(super) fn new(from4: Option<u32>, from6: Option<u128>, rate: u32, now: u64) -> Self {
        let bucket =
            |part: u64| Bucket::new(u64::from(rate) * u64::from(PRICE) / part, DEEPEST, now);
        let rates = [bucket(2), bucket(2)];
        let by_source = vec![bucket(OF_SOURCE); PLACES].into();
        let by_destination = vec![bucket(OF_DESTINATION); PLACES].into();
        let key = HashKey::random();
        let scratch = Box::new([0; LONGEST_V6]);
        let ready = VecDeque::with_capacity(MOST);
        let (sent, spared) = (0, 0);
        Self { from4, from6, rates, by_source, by_destination, key, ready, scratch, sent, spared }
    }

    /// Answers a packet, of a granted flow or not, that is longer than `mtu`; returns whether it
    /// did.
    pub(super) fn too_big(
        &mut self,
        arena: &mut Arena,
        frame: &Frame,
        mtu: u32,
        granted: bool,
        now: u64,
    ) -> bool {
        let packet = arena.bytes(frame).get(ethernet::LEN..).unwrap_or_default();
        let budget = self.budget(packet, granted, now);
        let answered =
            budget.filter(|_| self.ready.len() < MOST && self.answer(arena, frame, mtu).is_some());
        match answered {
            Some([rate, source, destination]) => {
                self.rates[rate].take(PRICE);
                self.by_source[source].take(PRICE);
                self.by_destination[destination].take(PRICE);
                self.sent += 1;
            }
            None => self.spared += 1,
        }
        answered.is_some()
    }

    /// Returns the budgets that an answer to a packet is to be charged to, if all have it.
    fn budget(&mut self, packet: &[u8], granted: bool, now: u64) -> Option<[usize; 3]> {
        // IPv4 addresses are where no IPv6 source is.
        let (source, destination) = if packet.first()? >> 4 == 6 {
            let ip = ipv6::View::parse(packet).ok()?;
            (ip.src() >> 80 << 80, ip.dst())
        } else {
            let ip = ipv4::View::parse(packet).ok()?;
            ((ip.src() >> 8 << 8).into(), ip.dst().into())
        };
        let of = |kind: u128, address| {
            self.key.hash(&Flow::v6(kind << 1 | u128::from(granted), address)) as usize % PLACES
        };
        let (source, destination) = (of(0, source), of(1, destination));
        let rate = [1, 0].into_iter().filter(|&rate| granted || rate == 0);
        let rate = rate.into_iter().find(|&rate| self.rates[rate].allows(now, PRICE))?;
        let allowed = self.by_source[source].allows(now, PRICE)
            && self.by_destination[destination].allows(now, PRICE);
        allowed.then_some([rate, source, destination])
    }

    fn answer(&mut self, arena: &mut Arena, frame: &Frame, mtu: u32) -> Option<()> {
        let packet = arena.bytes(frame).get(ethernet::LEN..)?;
        let out = &mut self.scratch[..];
        let reason = Reason::TooBig(mtu);
        let (len, key, kind) = if packet.first()? >> 4 == 6 {
            let to = ipv6::View::parse(packet).ok()?.src();
            let len = emit_v6(reason, packet, self.from6?, out).ok()??;
            (len, Key::V6(to), ethernet::IPV6)
        } else {
            let to = ipv4::View::parse(packet).ok()?.src();
            let len = emit_v4(reason, packet, self.from4?, out).ok()??;
            (len, Key::V4(to), ethernet::IPV4)
        };
        let mut answer = arena.alloc()?;
        if !arena.resize(&mut answer, ethernet::LEN + len) {
            arena.free(answer);
            return None;
        }
        let (ether, packet) = arena.bytes_mut(&answer).split_at_mut(ethernet::LEN);
        ether[12..].copy_from_slice(&kind.to_be_bytes());
        packet.copy_from_slice(&self.scratch[..len]);
        self.ready.push_back((answer, key));
        Some(())
    }

    /// Returns the answer that leaves next.
    pub(super) fn next(&mut self) -> Option<EgressPacket> {
        let (frame, key) = self.ready.pop_front()?;
        Some(EgressPacket { frame, key, disposition: Disposition::Originate })
    }

    /// Counts the answers that wait.
    pub(super) fn len(&self) -> usize {
        self.ready.len()
    }
}
