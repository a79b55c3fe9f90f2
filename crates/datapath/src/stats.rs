//! Counters: each has one writer, and any thread may read it at any time.
//!
//! A worker has a [`WorkerStats`] of its own, aligned so that no two workers share
//! a cache line (128 bytes: adjacent lines are fetched in pairs). It is the only
//! writer, so adding is a relaxed load and a relaxed store, which compile to a
//! plain addition in memory: no lock prefix, no contention.
//!
//! A [`Snapshot`] is read counter by counter while the worker may continue, so its sums can be off
//! by the packets of the current batch; between batches it is exact, and [`Snapshot::balanced`]
//! holds.

use std::iter::Sum;
use std::ops::{Add, Sub};
use std::sync::atomic::{AtomicU64, Ordering};

use port::{Arena, Frame};

use crate::capture::{PacketRecorder, Point};
use crate::{Class, Sample, Verdict, VerdictMap};

/// A counter of ICMP errors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IcmpCounter {
    /// Time Exceeded, sent.
    TimeExceeded,
    /// Destination Unreachable, sent.
    Unreachable,
    /// Fragmentation Needed or Packet Too Big, sent.
    TooBig,
    /// Not sent: over a limit.
    RateLimited,
}

impl IcmpCounter {
    /// All of them.
    pub const ALL: [Self; ICMP_COUNTERS] =
        [Self::TimeExceeded, Self::Unreachable, Self::TooBig, Self::RateLimited];

    /// Returns the name that counters and metrics use.
    pub fn name(self) -> &'static str {
        match self {
            Self::TimeExceeded => "time_exceeded",
            Self::Unreachable => "unreachable",
            Self::TooBig => "too_big",
            Self::RateLimited => "rate_limited",
        }
    }
}

/// The number of counters of ICMP errors.
pub const ICMP_COUNTERS: usize = IcmpCounter::RateLimited as usize + 1;

/// The counters of one worker.
#[derive(Debug)]
#[repr(align(128))]
pub struct WorkerStats {
    verdicts: VerdictMap<AtomicU64>,
    received: AtomicU64,
    received_bytes: AtomicU64,
    sent_bytes: AtomicU64,
    held: AtomicU64,
    originated: AtomicU64,
    icmp: [AtomicU64; ICMP_COUNTERS],
    fragmented: AtomicU64,
    fragments: AtomicU64,
    lookups_v4: AtomicU64,
    lookups_v6: AtomicU64,
    batches: AtomicU64,
    polls: AtomicU64,
    panics: AtomicU64,
    sample: Sample,
    recorder: PacketRecorder,
}

impl Default for WorkerStats {
    fn default() -> Self {
        Self::new()
    }
}

#[inline(always)]
fn add(counter: &AtomicU64, n: u64) {
    counter.store(counter.load(Ordering::Relaxed).wrapping_add(n), Ordering::Relaxed);
}

impl WorkerStats {
    /// Makes counters of zero.
    pub fn new() -> Self {
        Self {
            verdicts: VerdictMap::default(),
            received: AtomicU64::new(0),
            received_bytes: AtomicU64::new(0),
            sent_bytes: AtomicU64::new(0),
            held: AtomicU64::new(0),
            originated: AtomicU64::new(0),
            icmp: [const { AtomicU64::new(0) }; ICMP_COUNTERS],
            fragmented: AtomicU64::new(0),
            fragments: AtomicU64::new(0),
            lookups_v4: AtomicU64::new(0),
            lookups_v6: AtomicU64::new(0),
            batches: AtomicU64::new(0),
            polls: AtomicU64::new(0),
            panics: AtomicU64::new(0),
            sample: Sample::new(),
            recorder: PacketRecorder::default(),
        }
    }

    /// Makes counters that continue those of another process.
    pub fn continuing(counts: &Snapshot) -> Self {
        let stats = Self::new();
        // Destructured, so that a new counter does not compile until it is added here.
        let Snapshot {
            verdicts,
            received,
            received_bytes,
            sent_bytes,
            held,
            originated,
            icmp,
            fragmented,
            fragments,
            lookups_v4,
            lookups_v6,
            batches,
            polls,
            panics,
        } = *counts;
        for (verdict, n) in verdicts.iter() {
            add(&stats.verdicts[verdict], *n);
        }
        for (counter, n) in stats.icmp.iter().zip(icmp) {
            add(counter, n);
        }
        for (counter, n) in [
            (&stats.received, received),
            (&stats.received_bytes, received_bytes),
            (&stats.sent_bytes, sent_bytes),
            (&stats.held, held),
            (&stats.originated, originated),
            (&stats.fragmented, fragmented),
            (&stats.fragments, fragments),
            (&stats.lookups_v4, lookups_v4),
            (&stats.lookups_v6, lookups_v6),
            (&stats.batches, batches),
            (&stats.polls, polls),
            (&stats.panics, panics),
        ] {
            add(counter, n);
        }
        stats
    }

    /// Returns the slot for a sampled destination.
    #[inline(always)]
    pub fn sample(&self) -> &Sample {
        &self.sample
    }

    /// Returns the recorder of packets.
    #[inline(always)]
    pub fn recorder(&self) -> &PacketRecorder {
        &self.recorder
    }

    /// Ends a packet that is not sent: counts and records it, and frees its frame.
    #[inline(always)]
    pub fn end(&self, arena: &mut Arena, frame: Frame, verdict: Verdict, point: Point) {
        self.count_end(verdict, point, arena.bytes(&frame));
        arena.free(frame);
    }

    /// Counts and records a packet that is not sent, and whose frame has another use.
    #[inline(always)]
    pub(crate) fn count_end(&self, verdict: Verdict, point: Point, packet: &[u8]) {
        self.recorder.end(verdict, point, packet);
        self.ended(verdict, 1);
    }

    /// Counts `n` packets that ended in `verdict`.
    #[inline(always)]
    pub(crate) fn ended(&self, verdict: Verdict, n: u64) {
        add(&self.verdicts[verdict], n);
    }

    /// Counts a batch of packets taken from a port, and their bytes.
    #[inline(always)]
    pub fn received(&self, packets: u64, bytes: u64) {
        add(&self.received, packets);
        add(&self.received_bytes, bytes);
        add(&self.batches, 1);
    }

    /// Returns the number of packets taken from ports so far.
    #[inline(always)]
    pub(crate) fn packets_received(&self) -> u64 {
        self.received.load(Ordering::Relaxed)
    }

    /// Counts packets that a port lost before the worker received them.
    pub(crate) fn lost(&self, verdict: Verdict, n: u64) {
        add(&self.received, n);
        self.ended(verdict, n);
    }

    /// Counts packets that were counted as sent as ended in `verdict` instead.
    pub(crate) fn unsent(&self, verdict: Verdict, n: u64) {
        add(&self.verdicts[Verdict::Sent], n.wrapping_neg());
        self.ended(verdict, n);
    }

    #[inline(always)]
    pub(crate) fn sent_bytes(&self, bytes: u64) {
        add(&self.sent_bytes, bytes);
    }

    /// Sets the number of packets that wait.
    #[inline(always)]
    pub(crate) fn holds(&self, packets: u64) {
        self.held.store(packets, Ordering::Relaxed);
    }

    /// Counts a packet that this machine originates.
    #[inline(always)]
    pub fn originated(&self) {
        add(&self.originated, 1);
    }

    /// Counts an ICMP error.
    pub(crate) fn icmp(&self, counter: IcmpCounter) {
        add(&self.icmp[counter as usize], 1);
    }

    /// Counts a packet that is sent as this many fragments.
    pub(crate) fn fragmented(&self, fragments: u64) {
        add(&self.fragmented, 1);
        add(&self.fragments, fragments);
    }

    #[inline(always)]
    pub(crate) fn looked_up(&self, v4: u64, v6: u64) {
        add(&self.lookups_v4, v4);
        add(&self.lookups_v6, v6);
    }

    #[inline(always)]
    pub(crate) fn polled(&self, is_idle: bool) {
        add(&self.polls, 1);
        self.recorder.begin_turn(is_idle);
    }

    /// Counts a panic of the worker, and ends the packets that it had received and not ended. Those that it had ended
    /// before it counted them as received are received now; it counts nothing more.
    pub fn abandon(&self) {
        add(&self.panics, 1);
        self.holds(0);
        let now = self.snapshot();
        let begun = now.received.wrapping_add(now.originated);
        let ended = now.sent().wrapping_add(now.punted()).wrapping_add(now.dropped());
        self.ended(Verdict::WorkerPanicked, begun.saturating_sub(ended));
        add(&self.received, ended.saturating_sub(begun));
    }

    /// Reads all counters.
    pub fn snapshot(&self) -> Snapshot {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Snapshot {
            verdicts: self.verdicts.each_ref(read),
            received: read(&self.received),
            received_bytes: read(&self.received_bytes),
            sent_bytes: read(&self.sent_bytes),
            held: read(&self.held),
            originated: read(&self.originated),
            icmp: self.icmp.each_ref().map(read),
            fragmented: read(&self.fragmented),
            fragments: read(&self.fragments),
            lookups_v4: read(&self.lookups_v4),
            lookups_v6: read(&self.lookups_v6),
            batches: read(&self.batches),
            polls: read(&self.polls),
            panics: read(&self.panics),
        }
    }
}

/// The counters at one moment. Snapshots of several workers can be added; the snapshots of one
/// worker at two moments can be subtracted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Snapshot {
    /// Packets by verdict.
    pub verdicts: VerdictMap<u64>,
    /// Frames taken from ports, and frames that ports have lost.
    pub received: u64,
    /// Bytes of the frames taken from ports, Ethernet header included.
    pub received_bytes: u64,
    /// Bytes of the frames sent, Ethernet header included.
    pub sent_bytes: u64,
    /// Packets that wait for a neighbor's MAC address. Between two moments: the difference, which
    /// may be negative (wrapping).
    pub held: u64,
    /// Packets that the workers originated, such as ICMP errors and fragments.
    pub originated: u64,
    /// ICMP errors of the router itself, by [`IcmpCounter`].
    pub icmp: [u64; ICMP_COUNTERS],
    /// Packets sent as fragments.
    pub fragmented: u64,
    /// The fragments of them, all but one of each packet originated.
    pub fragments: u64,
    /// IPv4 destinations looked up.
    pub lookups_v4: u64,
    /// IPv6 destinations looked up.
    pub lookups_v6: u64,
    /// Batches of at least one frame.
    pub batches: u64,
    /// Turns over all ports, with or without frames.
    pub polls: u64,
    /// Panics of the worker, each of which is a bug.
    pub panics: u64,
}

impl Default for Snapshot {
    /// Returns counters of zero.
    fn default() -> Self {
        Self {
            verdicts: VerdictMap::default(),
            received: 0,
            received_bytes: 0,
            sent_bytes: 0,
            held: 0,
            originated: 0,
            icmp: [0; ICMP_COUNTERS],
            fragmented: 0,
            fragments: 0,
            lookups_v4: 0,
            lookups_v6: 0,
            batches: 0,
            polls: 0,
            panics: 0,
        }
    }
}

impl Snapshot {
    /// Returns the counters besides those of verdicts and ICMP errors, by name; packets that wait are not among them.
    pub fn totals_mut(&mut self) -> [(&'static str, &mut u64); 11] {
        // Destructured, so that a new counter does not compile until it is added here.
        let Self {
            verdicts: _,
            icmp: _,
            held: _,
            received,
            received_bytes,
            sent_bytes,
            originated,
            fragmented,
            fragments,
            lookups_v4,
            lookups_v6,
            batches,
            polls,
            panics,
        } = self;
        [
            ("received", received),
            ("received_bytes", received_bytes),
            ("sent_bytes", sent_bytes),
            ("originated", originated),
            ("fragmented", fragmented),
            ("fragments", fragments),
            ("lookups_v4", lookups_v4),
            ("lookups_v6", lookups_v6),
            ("batches", batches),
            ("polls", polls),
            ("panics", panics),
        ]
    }

    /// Returns how many packets ended in `verdict`.
    pub fn count(&self, verdict: Verdict) -> u64 {
        self.verdicts[verdict]
    }

    /// Iterates over every verdict with its count.
    pub fn iter(&self) -> impl Iterator<Item = (Verdict, u64)> {
        self.verdicts.iter().map(|(verdict, &count)| (verdict, count))
    }

    fn class(&self, class: Class) -> u64 {
        self.iter().filter(|(verdict, _)| verdict.class() == class).map(|(_, count)| count).sum()
    }

    /// Returns how many packets were sent.
    pub fn sent(&self) -> u64 {
        self.class(Class::Sent)
    }

    /// Returns how many packets were punted.
    pub fn punted(&self) -> u64 {
        self.class(Class::Punted)
    }

    /// Returns how many packets were dropped.
    pub fn dropped(&self) -> u64 {
        self.class(Class::Dropped)
    }

    /// Returns whether received + originated = sent + punted + dropped + held.
    pub fn balanced(&self) -> bool {
        let ended = self.sent() + self.punted() + self.dropped();
        self.received.wrapping_add(self.originated) == ended.wrapping_add(self.held)
    }

    fn zip(self, other: Self, join: impl Fn(u64, u64) -> u64) -> Self {
        let mut verdicts = self.verdicts;
        for (verdict, count) in verdicts.iter_mut() {
            *count = join(*count, other.verdicts[verdict]);
        }
        let mut icmp = self.icmp;
        for (count, other) in icmp.iter_mut().zip(other.icmp) {
            *count = join(*count, other);
        }
        Self {
            verdicts,
            icmp,
            received: join(self.received, other.received),
            received_bytes: join(self.received_bytes, other.received_bytes),
            sent_bytes: join(self.sent_bytes, other.sent_bytes),
            held: join(self.held, other.held),
            originated: join(self.originated, other.originated),
            fragmented: join(self.fragmented, other.fragmented),
            fragments: join(self.fragments, other.fragments),
            lookups_v4: join(self.lookups_v4, other.lookups_v4),
            lookups_v6: join(self.lookups_v6, other.lookups_v6),
            batches: join(self.batches, other.batches),
            polls: join(self.polls, other.polls),
            panics: join(self.panics, other.panics),
        }
    }
}

impl Add for Snapshot {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        self.zip(other, u64::wrapping_add)
    }
}

/// The counts since `other`, an earlier snapshot of the same counters.
impl Sub for Snapshot {
    type Output = Self;

    fn sub(self, other: Self) -> Self {
        self.zip(other, u64::wrapping_sub)
    }
}

impl Sum for Snapshot {
    fn sum<I: Iterator<Item = Self>>(iter: I) -> Self {
        iter.fold(Self::default(), Add::add)
    }
}

#[cfg(test)]
mod tests {
    use super::{Snapshot, WorkerStats};
    use crate::Verdict;

    #[test]
    fn workers_add_up_and_moments_subtract() {
        let (first, second) = (WorkerStats::new(), WorkerStats::new());
        first.received(3, 300);
        first.ended(Verdict::Sent, 2);
        assert!(!first.snapshot().balanced());
        first.ended(Verdict::Arp, 1);
        assert!(first.snapshot().balanced());
        let before = second.snapshot();
        second.received(1, 64);
        second.ended(Verdict::NoRoute, 1);
        let all: Snapshot = [first.snapshot(), second.snapshot()].into_iter().sum();
        assert_eq!((all.received, all.sent(), all.punted(), all.dropped()), (4, 2, 1, 1));
        assert_eq!((all.received_bytes, all.batches), (364, 2));
        assert_eq!((second.snapshot() - before).count(Verdict::NoRoute), 1);
        assert_eq!(align_of::<WorkerStats>(), 128);

        // A held packet has not ended; in a difference it may have been received before.
        let before = second.snapshot();
        second.received(1, 64);
        second.holds(1);
        let waiting = second.snapshot();
        assert!(waiting.balanced() && (waiting - before).balanced());
        second.ended(Verdict::Unresolved, 1);
        assert!(!second.snapshot().balanced());
        second.holds(0);
        assert!(second.snapshot().balanced() && (second.snapshot() - waiting).balanced());
    }
}
