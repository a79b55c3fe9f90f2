//! ICMP errors for packets that are too long: Packet Too Big, Fragmentation Needed.
//!
//! ```text
//!   packet, MTU ─► budgets ─► a new frame ─► queued ─► leaves with the next turn
//! ```
//!
//! An encapsulated packet is longer than the packet itself, so that packets exist that fit the front
//! link and not the tunnel. Their senders get the MTU that fits (RFC 1191, RFC 8201): a path never
//! drops packets silently. An IPv4 packet that may be fragmented is answered too, because the gate
//! fragments nothing.
//!
//! The rate is limited (RFC 4443, 2.4(f)), and answers beyond it are counted. Some packets never get
//! an answer (`wire/src/icmp_error.rs`), nor do later fragments of IPv6: the first one gets it.
//!
//! **Budgets.** Any host can send packets that are too long, with any source address, and must not use
//! up the answers of others. So each answer is charged to three budgets, and needs all of them:
//!
//! ```text
//!   the tunnel        half for any packet, half for granted ones; these may use both
//!   source prefix     a tenth: /24 and /48, by keyed hash in one of 1024 slots
//!   destination       half: the address, by keyed hash in one of 1024 slots
//! ```
//!
//! A granted flow needs its answer most, and with most policies forged sources are requests: granted
//! packets have source and destination budgets of their own, in slots of their own. Budgets that
//! share a slot are one; an attacker that does not know the key cannot choose which.

use std::collections::VecDeque;

use gate::flow::{Flow, Key as HashKey};
use gate::limit::bucket::{Bucket, MAX_BURST};
use port::{Arena, Frame};
use wire::icmp_error::{MAX_ANSWER_V6, Reason, emit_v4, emit_v6};
use wire::{ethernet, ipv4, ipv6};

use datapath::{Disposition, EgressPacket, Key};

/// The maximum number of queued answers: as many as a part of the packets that a turn sends.
const CAPACITY: usize = 64;
/// The bytes that an answer takes from a bucket; all answers cost the same.
const PRICE: u32 = 1000;
/// The number of slots for source prefixes, and for destinations: these many for granted packets,
/// and these many for others.
const SLOTS: usize = 1024;
/// The divisors of the rate for one source prefix and for one destination.
const SOURCE_SHARE: u64 = 10;
const DESTINATION_SHARE: u64 = 2;

/// Answers packets that are too long.
#[derive(Debug)]
pub(super) struct IcmpErrorResponder {
    /// The source addresses of answers.
    from4: Option<u32>,
    from6: Option<u128>,
    /// The budgets for any packet, and for granted packets only.
    rates: [Bucket; 2],
    /// The budgets by source prefix and by destination.
    by_source: Box<[Bucket]>,
    by_destination: Box<[Bucket]>,
    key: HashKey,
    ready: VecDeque<(Frame, Key)>,
    scratch: Box<[u8; MAX_ANSWER_V6]>,
    pub(super) sent: u64,
    /// Packets without an answer: beyond a budget, or without a source address or a free frame.
    pub(super) rate_limited: u64,
}

impl IcmpErrorResponder {
    /// Makes a responder with these source addresses and at most `rate` answers a second. `key`
    /// chooses the slots.
    pub(super) fn new(
        from4: Option<u32>,
        from6: Option<u128>,
        rate: u32,
        key: HashKey,
        now: u64,
    ) -> Self {
        let bucket =
            |part: u64| Bucket::new(u64::from(rate) * u64::from(PRICE) / part, MAX_BURST, now);
        let rates = [bucket(2), bucket(2)];
        let by_source = vec![bucket(SOURCE_SHARE); 2 * SLOTS].into();
        let by_destination = vec![bucket(DESTINATION_SHARE); 2 * SLOTS].into();
        let scratch = Box::new([0; MAX_ANSWER_V6]);
        let ready = VecDeque::with_capacity(CAPACITY);
        let (sent, rate_limited) = (0, 0);
        Self {
            from4,
            from6,
            rates,
            by_source,
            by_destination,
            key,
            ready,
            scratch,
            sent,
            rate_limited,
        }
    }

    /// Queues an answer to a packet that is longer than `mtu`; returns whether it did. `granted` says
    /// whether the packet's flow is granted.
    pub(super) fn report_too_big(
        &mut self,
        arena: &mut Arena,
        frame: &Frame,
        mtu: u32,
        granted: bool,
        now: u64,
    ) -> bool {
        let packet = arena.bytes(frame).get(ethernet::LEN..).unwrap_or_default();
        let budget = self.budget(packet, granted, now);
        let answered = budget
            .filter(|_| self.ready.len() < CAPACITY && self.enqueue(arena, frame, mtu).is_some());
        match answered {
            Some([rate, source, destination]) => {
                self.rates[rate].take(PRICE);
                self.by_source[source].take(PRICE);
                self.by_destination[destination].take(PRICE);
                self.sent += 1;
            }
            None => self.rate_limited += 1,
        }
        answered.is_some()
    }

    /// Returns the budgets that an answer is charged to, if none of them is exhausted.
    fn budget(&mut self, packet: &[u8], granted: bool, now: u64) -> Option<[usize; 3]> {
        // IPv4 addresses use a part of the address space that no IPv6 source has.
        let (source, destination) = if packet.first()? >> 4 == 6 {
            let ip = ipv6::View::parse(packet).ok()?;
            (ip.src() >> 80 << 80, ip.dst())
        } else {
            let ip = ipv4::View::parse(packet).ok()?;
            ((ip.src() >> 8 << 8).into(), ip.dst().into())
        };
        let of = |kind: u128, address| {
            let slot = self.key.hash(&Flow::v6(kind, address)) as usize % SLOTS;
            usize::from(granted) * SLOTS + slot
        };
        let (source, destination) = (of(0, source), of(1, destination));
        let rate = [1, 0].into_iter().filter(|&rate| granted || rate == 0);
        let rate = rate.into_iter().find(|&rate| self.rates[rate].allows(now, PRICE))?;
        let allowed = self.by_source[source].allows(now, PRICE)
            && self.by_destination[destination].allows(now, PRICE);
        allowed.then_some([rate, source, destination])
    }

    fn enqueue(&mut self, arena: &mut Arena, frame: &Frame, mtu: u32) -> Option<()> {
        let packet = arena.bytes(frame).get(ethernet::LEN..)?;
        let out = &mut self.scratch[..];
        let reason = Reason::TooBig(mtu);
        let (len, key, kind) = if packet.first()? >> 4 == 6 {
            let view = ipv6::View::parse(packet).ok()?;
            if view.upper().ok()?.fragment.is_some_and(|fragment| fragment.offset > 0) {
                return None;
            }
            let to = view.src();
            let len = emit_v6(reason, packet, self.from6?, out).ok()??;
            (len, Key::V6(to), ethernet::IPV6)
        } else {
            let to = ipv4::View::parse(packet).ok()?.src();
            let len = emit_v4(reason, packet, self.from4?, self.sent as u16, out).ok()??;
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

    /// Removes and returns the next answer.
    pub(super) fn next(&mut self) -> Option<EgressPacket> {
        let (frame, key) = self.ready.pop_front()?;
        Some(EgressPacket { frame, key, disposition: Disposition::Originate })
    }

    /// Returns the number of queued answers.
    pub(super) fn len(&self) -> usize {
        self.ready.len()
    }
}
