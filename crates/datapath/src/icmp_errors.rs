//! ICMP errors: answers to the senders of packets that the router cannot forward.
//!
//! ```text
//!   verdict ─► reason ─► limits ─► pending ─► lookup of the sender ─► headers written in place ─► staged
//!                          └ over: dropped        └ the host sends to it: punted, the host answers
//! ```
//!
//! A packet whose TTL expired, that is longer than the next link's MTU, or that has no route, no
//! neighbor or a route of type `unreachable` or `prohibit` ends as dropped, and its frame becomes an
//! originated packet: the quoted packet stays where it is, and the headers are written in front of it.
//! The worker sends the answers of a batch after the batch, by the table of this machine's own packets
//! ([`Ingress::answers`](super::Ingress)), from the address that the host would use (`own_source.rs`).
//!
//! The host answers in the router's place, within the rates of `[punt]`, if the packet has IPv4
//! options, which an answer repeats, or hop-by-hop options; if its sender is not behind a port, or the
//! source address is not known.
//!
//! **Limits** (RFC 1812, 4.3.2.8; RFC 4443, 2.4(f)) are those of Linux: `icmp_ratelimit` for each
//! destination, `icmp_msgs_per_sec` and `icmp_msgs_burst` for all together, both for the types of
//! `icmp_ratemask`. A worker has its share of the total. Too-big errors, which Linux does not limit by
//! default, have a total of their own. Each destination has a bucket (`icmp_buckets.rs`); IPv6 counts by
//! /64 network, with four times the rate. The clock is the worker's tick of 100 ms.

use std::hash::{BuildHasher, RandomState};

use fib::Hop;
use port::{Arena, Frame};
use wire::icmp_error::{self, FRONT_V4, FRONT_V6, Reason};
use wire::{ethernet, ipv4, ipv6};

use super::batch::{Kind, SIZE};
use super::hold::HELD;
use super::icmp_buckets::{Bucket, Destinations, Rate};
use super::ingress::FrameIngress;
use super::want::Key;
use super::{Adjacencies, IcmpLimits, Verdict, flow_v4, flow_v6};
use crate::stats::{IcmpCounter, WorkerStats};

/// The upper half of the keys of IPv4 destinations: of an IPv6 multicast address, to which no error goes.
const V4_NETWORKS: u64 = 0xff << 56;
/// The least MTU of an IPv6 link (RFC 8200, 5), which Packet Too Big states at least.
const LEAST_MTU_V6: u32 = 1280;

/// A packet whose sender gets an error.
#[derive(Debug)]
pub(super) struct Pending {
    pub(super) frame: Frame,
    pub(super) verdict: Verdict,
    pub(super) ingress: FrameIngress,
    /// The port with the queue that it arrived on.
    pub(super) lane: usize,
    pub(super) reason: Reason,
    /// Its source, which is the destination of the error.
    pub(super) to: Key,
}

/// The limits of a worker's ICMP errors, and the packets of the current batch whose senders get one.
pub(super) struct IcmpErrors {
    /// `None`: the router answers nothing.
    limits: Option<IcmpLimits>,
    total: Bucket,
    unmasked: Bucket,
    destinations: Destinations,
    pending: Vec<Pending>,
    /// The identification of the next error over IPv4.
    id: u16,
}

/// The next step for a packet that is not sent.
pub(super) enum Admission {
    /// No error is due, or the host sends it.
    Host,
    /// Its sender gets no error.
    Silent,
    /// Its sender gets an error.
    Answer { reason: Reason, to: Key },
}

impl IcmpErrors {
    /// Makes a responder that answers nothing.
    pub(super) fn off() -> Self {
        let (total, unmasked) = (Bucket::default(), Bucket::default());
        let (destinations, pending) = (Destinations::none(), Vec::new());
        Self { limits: None, total, unmasked, destinations, pending, id: 0 }
    }

    /// Makes a responder with these limits of one worker.
    pub(super) fn new(limits: IcmpLimits) -> Self {
        let pending = Vec::with_capacity(SIZE + HELD);
        let seed = RandomState::new().hash_one(0);
        let destinations = Destinations::new(seed);
        let (limits, total, unmasked) = (Some(limits), Bucket::full(0), Bucket::full(0));
        Self { limits, total, unmasked, destinations, pending, id: seed as u16 }
    }

    /// Replaces the limits, if the router answers.
    pub(super) fn set_limits(&mut self, limits: IcmpLimits) {
        if let Some(current) = &mut self.limits {
            *current = limits;
        }
    }

    /// Returns whether the router answers.
    pub(super) fn is_on(&self) -> bool {
        self.limits.is_some()
    }

    /// Takes the list of packets, which [`restore`](Self::restore) gives back empty.
    pub(super) fn take(&mut self) -> Vec<Pending> {
        std::mem::take(&mut self.pending)
    }

    /// Gives the empty list back.
    pub(super) fn restore(&mut self, list: Vec<Pending>) {
        self.pending = list;
    }

    /// Returns the number of packets whose senders get an error.
    pub(super) fn len(&self) -> usize {
        self.pending.len()
    }

    /// Adds a packet; returns it if there is no room.
    pub(super) fn push(&mut self, pending: Pending) -> Result<(), Frame> {
        if self.pending.len() == self.pending.capacity() {
            return Err(pending.frame);
        }
        self.pending.push(pending);
        Ok(())
    }

    /// Decides whether the sender of a packet gets an error, and charges it to the limits.
    /// `frame` has no tags.
    pub(super) fn admit(
        &mut self,
        frame: &[u8],
        verdict: Verdict,
        mtu: impl FnOnce() -> u32,
        now: u64,
        stats: &WorkerStats,
    ) -> Admission {
        let Some(limits) = self.limits else { return Admission::Host };
        let reason = match verdict {
            Verdict::TtlExpired => Reason::TimeExceeded,
            Verdict::TooBig => Reason::TooBig(mtu()),
            Verdict::NoRoute => Reason::NoRoute,
            Verdict::Unresolved => Reason::HostUnreachable,
            Verdict::UnreachableRoute => Reason::UnreachableRoute,
            Verdict::ProhibitRoute => Reason::Prohibited,
            _ => return Admission::Host,
        };
        let packet = frame.get(ethernet::LEN..).unwrap_or_default();
        let (to, kind) = if packet.first().is_some_and(|first| first >> 4 == 6) {
            let Ok(view) = ipv6::View::parse(packet) else { return Admission::Silent };
            if view.next_header() == ipv6::HOP_BY_HOP {
                return Admission::Host;
            }
            if !icmp_error::may_answer_v6(&view, reason) {
                return Admission::Silent;
            }
            (Key::V6(view.src()), reason.kind_v6())
        } else {
            let Ok(view) = ipv4::View::parse(packet) else { return Admission::Silent };
            if view.header_len() > ipv4::LEN {
                return Admission::Host;
            }
            if !icmp_error::may_answer_v4(&view) {
                return Admission::Silent;
            }
            (Key::V4(view.src()), reason.kind_v4())
        };
        if !self.charge(limits, to, kind, matches!(reason, Reason::TooBig(_)), now as u32) {
            stats.icmp(IcmpCounter::RateLimited);
            return Admission::Silent;
        }
        Admission::Answer { reason, to }
    }

    /// Takes an error of type `kind` to `to` from the buckets that it needs, if all allow it.
    fn charge(&mut self, limits: IcmpLimits, to: Key, kind: u8, too_big: bool, now: u32) -> bool {
        let (mask, interval, network) = match to {
            Key::V4(to) => (limits.mask_v4, limits.interval_v4, V4_NETWORKS | u64::from(to)),
            Key::V6(to) => (limits.mask_v6, limits.interval_v6.div_ceil(4), (to >> 64) as u64),
        };
        // Linux never limits Fragmentation Needed (RFC 1191).
        let masked = mask >> (kind & 31) & 1 == 1 && !(too_big && matches!(to, Key::V4(_)));
        if !masked {
            return self.unmasked.take(Rate::total(limits.unmasked_rate, 0), now);
        }
        let (rate, each) = (Rate::total(limits.rate, limits.burst), Rate::destination(interval));
        if interval == 0 {
            return self.total.take(rate, now);
        }
        let Some(bucket) = self.destinations.bucket(network, now) else { return false };
        let allowed = bucket.allows(each, now) && self.total.take(rate, now);
        if allowed {
            bucket.pay(each);
        }
        allowed
    }

    /// Turns the frame of a packet into the error about it, from `source` over a link with this MTU;
    /// returns whether its frame has room. If not, nothing is changed. If it has, `end` is called with
    /// the packet before.
    pub(super) fn write(
        &mut self,
        arena: &mut Arena,
        frame: &mut Frame,
        reason: Reason,
        source: Key,
        mtu: u16,
        end: impl FnOnce(&[u8]),
    ) -> bool {
        let packet = arena.bytes(frame).get(ethernet::LEN..).unwrap_or_default();
        let (front, len, kind) = match source {
            Key::V4(_) => (FRONT_V4, icmp_error::answer_len_v4(packet), ethernet::IPV4),
            Key::V6(_) => (FRONT_V6, icmp_error::answer_len_v6(packet), ethernet::IPV6),
        };
        let Ok(mut len) = len else { return false };
        if kind == ethernet::IPV4 {
            // The error itself is not to be fragmented here.
            len = len.min(usize::from(mtu).max(FRONT_V4 + ipv4::LEN));
        }
        if !arena.grow_front(frame, front) {
            return false;
        }
        end(arena.bytes(frame).get(front..).unwrap_or_default());
        // Shorter than the packet and the front, so that there is room.
        arena.resize(frame, ethernet::LEN + len);
        let bytes = arena.bytes_mut(frame);
        let Some((ether, answer)) = bytes.split_first_chunk_mut::<{ ethernet::LEN }>() else {
            return false;
        };
        ether[12..].copy_from_slice(&kind.to_be_bytes());
        let written = match source {
            Key::V4(source) => {
                self.id = self.id.wrapping_add(1);
                icmp_error::write_v4(reason, source, self.id, answer)
            }
            Key::V6(source) => icmp_error::write_v6(reason, source, answer),
        };
        written.is_ok()
    }
}

/// Returns the counter of errors for a reason.
pub(super) fn counter(reason: Reason) -> IcmpCounter {
    match reason {
        Reason::TooBig(_) => IcmpCounter::TooBig,
        Reason::TimeExceeded => IcmpCounter::TimeExceeded,
        Reason::NoRoute
        | Reason::HostUnreachable
        | Reason::UnreachableRoute
        | Reason::Prohibited => IcmpCounter::Unreachable,
    }
}

/// Returns the MTU that a too-big error about this packet states: that of its next hop's link.
pub(super) fn link_mtu(frame: &[u8], kind: Kind, hop: Hop, adjacencies: &Adjacencies) -> u32 {
    match kind {
        Kind::V6 => {
            let link = adjacencies.resolve(hop, |hash| flow_v6(frame, hash));
            u32::from(link.mtu()).max(LEAST_MTU_V6)
        }
        _ => adjacencies.resolve(hop, |hash| flow_v4(frame, hash)).mtu().into(),
    }
}

#[cfg(test)]
mod tests {
    use super::{IcmpErrors, IcmpLimits, Key};

    fn allowed(errors: &mut IcmpErrors, limits: IcmpLimits, to: Key, ticks: u32, each: u32) -> u32 {
        let mut count = 0;
        for now in 0..ticks {
            for _ in 0..each {
                count += u32::from(errors.charge(limits, to, 11, false, now));
            }
        }
        count
    }

    #[test]
    fn destination_gets_one_error_a_second_after_its_burst() {
        let limits = IcmpLimits::DEFAULT;
        let mut errors = IcmpErrors::new(limits);
        let to = Key::V4(0xc000_0201);
        assert_eq!(allowed(&mut errors, limits, to, 1, 100), 6);
        assert_eq!(allowed(&mut errors, limits, to, 101, 3), 10);
        // Another destination has its own bucket.
        assert!(errors.charge(limits, Key::V4(0xc000_0202), 11, false, 101));
    }

    #[test]
    fn total_is_limited_and_unmasked_types_are_not_part_of_it() {
        let limits = IcmpLimits { interval_v4: 0, ..IcmpLimits::DEFAULT };
        let mut errors = IcmpErrors::new(limits);
        let count = allowed(&mut errors, limits, Key::V4(1), 100, 1000);
        assert!((9_900..=10_300).contains(&count), "{count}");
        assert!(errors.charge(limits, Key::V4(1), 3, true, 99), "Fragmentation Needed");
        assert!(errors.charge(limits, Key::V6(1), 2, true, 99), "Packet Too Big");
        let none = IcmpLimits { rate: 0, ..limits };
        assert!(!IcmpErrors::new(none).charge(none, Key::V4(1), 11, false, 0));
    }
}
