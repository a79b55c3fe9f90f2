//! The egress link to the protected network: operational packets, requests, granted packets.
//!
//! | class | DSCP | share of the link | queue |
//! |---|---|---|---|
//! | operational: ARP, ND, ICMP, BGP | 0 | 5 % in any case, more if nothing else waits | first in, first out |
//! | requests | 3 to 63 | at most 5 % | `request_queue.rs` |
//! | granted | 1, 2 | at most 95 % | `red.rs` |
//!
//! Nothing leaves faster than the link, so that packets wait here, where they are sorted, and not
//! in a queue of the network card. Order: operational packets within their share; requests and
//! granted packets within theirs, requests first; operational ones beyond it. A flood of granted
//! packets thus leaves a BGP session its 5 %, and requests theirs.
//!
//! The packets of the host itself are operational, too, but leave by the host's stack: the gate learns
//! their number and waits as long as they take ([`Link::charge_host`]).

use std::collections::VecDeque;

use super::FRAMING;
use super::bucket::{Bucket, MAX_BURST};
use super::red::{QueuedPacket, RedParameters, RedQueues};
use super::request_queue::{Request, RequestQueue};

/// The percentage of a link that requests may take.
pub const REQUESTS: u64 = 5;
/// The percentage that operational packets have in any case.
pub const RESERVE: u64 = 5;
/// The percentage that granted packets may take.
pub const GRANTED: u64 = 95;

/// The parameters of a link.
#[derive(Clone, Copy, Debug)]
pub struct LinkConfig {
    /// The link's rate in bits a second, or a worker's share of it.
    pub bits: u64,
    /// Maximum number of waiting requests.
    pub requests: usize,
    /// Queues for granted packets, a power of two.
    pub queues: usize,
    /// Maximum number of waiting operational packets.
    pub operational: usize,
    /// The RED parameters of granted packets.
    pub red: RedParameters,
    /// The first seed of the destination hash: from a generator that cannot be guessed.
    pub seed: u64,
}

/// A packet that leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DequeuedPacket<T> {
    /// An operational packet.
    Operational(T),
    /// A request with this DSCP.
    Request(T, u8),
    /// A granted packet.
    Granted(T),
}

/// The bytes that have left, framing included, by class.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkUsage {
    /// By operational packets.
    pub operational: u64,
    /// By requests.
    pub requests: u64,
    /// By granted packets.
    pub granted: u64,
}

/// A link.
#[derive(Debug)]
pub struct Link<T> {
    all: Bucket,
    reserve: Bucket,
    granted_rate: Bucket,
    operational: VecDeque<QueuedPacket<T>>,
    places: usize,
    requests: RequestQueue<T>,
    granted: RedQueues<T>,
    used: LinkUsage,
    /// The bytes of the host's own packets that the link has had no time for yet.
    owed: u64,
    /// The most of them: those of [`MAX_BURST`], or of one packet of 64 KiB, which a device cuts into segments.
    most_owed: u64,
}

impl<T: Copy> Link<T> {
    /// Creates a link at `now`; nothing is allocated later.
    ///
    /// # Panics
    ///
    /// If there are no places for requests, or `queues` is not a power of two.
    pub fn new(setup: &LinkConfig, now: u64) -> Self {
        let share = |percent| Bucket::share(setup.bits, percent, now);
        Self {
            all: Bucket::new(setup.bits / 8, MAX_BURST / 20, now),
            reserve: share(RESERVE),
            granted_rate: share(GRANTED),
            operational: VecDeque::with_capacity(setup.operational),
            places: setup.operational,
            requests: RequestQueue::new(setup.requests, share(REQUESTS)),
            granted: RedQueues::new(setup.queues, setup.red, setup.seed, now),
            used: LinkUsage::default(),
            owed: 0,
            most_owed: (setup.bits / 8 * (MAX_BURST / 1_000_000) / 1000).max(1 << 16),
        }
    }

    /// Charges the link for packets that the host itself has sent by it, as operational ones: its BGP sessions,
    /// ARP, ND, ICMP errors. They do not wait here, so the packets of this link wait for them; at most
    /// [`MAX_BURST`] or 64 KiB, so that a host that sends more than the link carries does not close it.
    pub fn charge_host(&mut self, packets: u64, bytes: u64) {
        let bytes = bytes.saturating_add(packets * u64::from(FRAMING));
        self.used.operational += bytes;
        self.reserve.take(u32::try_from(bytes).unwrap_or(u32::MAX));
        self.owed = self.owed.saturating_add(bytes).min(self.most_owed);
    }

    /// Enqueues an operational packet, or returns it to be dropped.
    pub fn enqueue_operational(&mut self, packet: T, bytes: u32) -> Option<T> {
        if self.operational.len() == self.places {
            return Some(packet);
        }
        self.operational.push_back(QueuedPacket { packet, bytes: bytes.saturating_add(FRAMING) });
        None
    }

    /// Enqueues a request; returns the one that is dropped for it, which may be itself.
    pub fn enqueue_request(&mut self, packet: T, dscp: u8, bytes: u32) -> Option<T> {
        self.requests.offer(Request { packet, dscp, bytes }).map(|dropped| dropped.packet)
    }

    /// Enqueues a granted packet, or returns it to be dropped.
    pub fn enqueue_granted(
        &mut self,
        packet: T,
        destination: u128,
        bytes: u32,
        now: u64,
    ) -> Option<T> {
        let packet = QueuedPacket { packet, bytes: bytes.saturating_add(FRAMING) };
        self.granted.offer(destination, packet, now).err().map(|dropped| dropped.packet)
    }

    /// Dequeues the packet that leaves at `now`, if one may.
    pub fn next(&mut self, now: u64) -> Option<DequeuedPacket<T>> {
        if self.owed > 0 {
            self.owed -= self.all.take_part(now, self.owed);
            if self.owed > 0 {
                return None;
            }
        }
        // Room for a full frame, whichever packet is next.
        if !self.all.allows(now, 1538) {
            return None;
        }
        let first = self.operational.front().map(|packet| packet.bytes);
        if first.is_some_and(|bytes| self.reserve.try_take(now, bytes)) {
            return self.next_operational();
        }
        if let Some(request) = self.requests.next(now) {
            let bytes = request.bytes.saturating_add(FRAMING);
            self.all.take(bytes);
            self.used.requests += u64::from(bytes);
            return Some(DequeuedPacket::Request(request.packet, request.dscp));
        }
        let rate = &mut self.granted_rate;
        if let Some(QueuedPacket { packet, bytes }) =
            self.granted.next_if(now, |bytes| rate.try_take(now, bytes))
        {
            self.all.take(bytes);
            self.used.granted += u64::from(bytes);
            return Some(DequeuedPacket::Granted(packet));
        }
        self.next_operational()
    }

    fn next_operational(&mut self) -> Option<DequeuedPacket<T>> {
        let QueuedPacket { packet, bytes } = self.operational.pop_front()?;
        self.all.take(bytes);
        self.used.operational += u64::from(bytes);
        Some(DequeuedPacket::Operational(packet))
    }

    /// Returns the queue of requests.
    pub fn requests(&self) -> &RequestQueue<T> {
        &self.requests
    }

    /// Returns the bytes that have left.
    pub fn used(&self) -> LinkUsage {
        self.used
    }

    /// Counts all waiting packets.
    pub fn waiting(&self) -> usize {
        self.operational.len() + self.requests.len() + self.granted.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;
    const BITS: u64 = 1_000_000_000;

    fn link() -> Link<u32> {
        let setup = LinkConfig {
            bits: BITS,
            requests: 512,
            queues: 64,
            operational: 128,
            red: RedParameters::default(),
            seed: 77,
        };
        Link::new(&setup, 0)
    }

    /// Floods the given classes for two seconds; returns their shares of the link.
    fn flood(operational: bool, requests: bool, granted: bool) -> [f64; 3] {
        let mut link = link();
        let mut bytes = [0u64; 3];
        let mut now = 0;
        while now < 2 * SECOND {
            now += 2_000;
            if operational {
                link.enqueue_operational(0, 1000);
            }
            if requests {
                link.enqueue_request(1, 41, 1000);
            }
            if granted {
                link.enqueue_granted(2, u128::from(now / 2_000 % 100), 1000, now);
            }
            while let Some(leaving) = link.next(now) {
                let class = match leaving {
                    DequeuedPacket::Operational(_) => 0,
                    DequeuedPacket::Request(..) => 1,
                    DequeuedPacket::Granted(_) => 2,
                };
                bytes[class] += 1000 + u64::from(FRAMING);
            }
        }
        let LinkUsage { operational, requests, granted } = link.used();
        assert_eq!([operational, requests, granted], bytes);
        bytes.map(|bytes| bytes as f64 * 8.0 / 2.0 / BITS as f64)
    }

    fn is_near(share: f64, percent: f64) -> bool {
        (share * 100.0 - percent).abs() < 1.5
    }

    #[test]
    fn each_class_has_its_share() {
        let [operational, requests, granted] = flood(true, true, true);
        assert!(is_near(operational, 5.0) && is_near(requests, 5.0) && is_near(granted, 90.0));
        let [_, requests, granted] = flood(false, true, true);
        assert!(is_near(requests, 5.0) && is_near(granted, 95.0), "{requests} {granted}");
        let [_, requests, _] = flood(false, true, false);
        assert!(is_near(requests, 5.0), "{requests}");
        let [_, _, granted] = flood(false, false, true);
        assert!(is_near(granted, 95.0), "{granted}");
        let [operational, ..] = flood(true, false, false);
        assert!(is_near(operational, 100.0), "{operational}");
    }

    /// Returns the shares of the host and of granted packets in a link that both fill: the host sends a packet
    /// of 1000 bytes, framing included, each `interval` nanoseconds.
    fn beside_the_host(interval: u64) -> [f64; 2] {
        let mut link = link();
        for now in (0..2 * SECOND).step_by(2_000) {
            if now % interval == 0 {
                link.charge_host(1, 1000 - u64::from(FRAMING));
            }
            link.enqueue_granted(2, u128::from(now / 2_000 % 100), 1000, now);
            while link.next(now).is_some() {}
        }
        let LinkUsage { operational, granted, .. } = link.used();
        [operational, granted].map(|bytes| bytes as f64 * 8.0 / 2.0 / BITS as f64)
    }

    #[test]
    fn packets_of_the_host_go_first() {
        // 8 µs each: 40 % of the link is one in 20 µs.
        let [host, granted] = beside_the_host(20_000);
        assert!(is_near(host, 40.0) && is_near(granted, 60.0), "{host} {granted}");
        // Less than what granted packets leave.
        let [host, granted] = beside_the_host(400_000);
        assert!(is_near(host, 2.0) && is_near(granted, 95.0), "{host} {granted}");
    }

    #[test]
    fn host_that_sends_more_than_the_link_does_not_close_it_afterwards() {
        let mut link = link();
        for now in (0..SECOND).step_by(2_000) {
            link.charge_host(1, 1000);
            assert!(link.next(now).is_none());
        }
        link.enqueue_granted(2, 7, 1000, SECOND);
        assert!(link.next(SECOND).is_none(), "the host's packets are owed");
        let mut later = (SECOND..2 * SECOND).step_by(2_000);
        let sent = later.find(|&now| link.next(now).is_some()).unwrap() - SECOND;
        assert!(sent.abs_diff(MAX_BURST) < MAX_BURST / 20, "{sent}");
    }

    #[test]
    fn all_packets_are_accounted_for() {
        let mut rng = fastrand::Rng::with_seed(5);
        let mut link = link();
        let (mut offered, mut ended) = (0usize, 0usize);
        for step in 0..100_000u64 {
            let now = step * 5_000;
            offered += 1;
            let packet = step as u32;
            let dropped = match rng.u8(..3) {
                0 => link.enqueue_operational(packet, rng.u32(60..1514)),
                1 => link.enqueue_request(packet, rng.u8(3..64), rng.u32(60..1514)),
                _ => link.enqueue_granted(packet, rng.u128(..9), rng.u32(60..1514), now),
            };
            ended += usize::from(dropped.is_some());
            ended += usize::from(link.next(now).is_some());
            assert_eq!(offered, ended + link.waiting());
        }
    }
}
