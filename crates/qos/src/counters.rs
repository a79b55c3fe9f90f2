//! The counters of a queue, by class. The worker that owns the queue is the only writer; any thread may
//! read.

use std::ops::AddAssign;
use std::sync::atomic::{AtomicU64, Ordering};

use super::TrafficClass;

/// The number of classes.
const CLASSES: usize = TrafficClass::ALL.len();

/// The counters of one class; [`ClassCounts`] describes them.
#[derive(Debug, Default)]
struct ClassCounters {
    packets: AtomicU64,
    bytes: AtomicU64,
    full: AtomicU64,
    delayed: AtomicU64,
    marked: AtomicU64,
    waiting: AtomicU64,
    waiting_bytes: AtomicU64,
    delay: AtomicU64,
}

/// The counters of a queue.
#[derive(Debug, Default)]
pub struct QueueCounters([ClassCounters; CLASSES]);

/// The counters of one class at one moment. Those of several workers can be added.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClassCounts {
    /// Packets that have left.
    pub packets: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Packets dropped because the class was full.
    pub full: u64,
    /// Packets dropped by CoDel.
    pub delayed: u64,
    /// Packets marked by CoDel.
    pub marked: u64,
    /// Packets that wait.
    pub waiting: u64,
    /// Their bytes.
    pub waiting_bytes: u64,
    /// The time that the last packet to leave has waited, in nanoseconds; of several workers the
    /// longest.
    pub delay: u64,
}

/// The counters of a queue at one moment, by class.
pub type QueueCounts = [ClassCounts; CLASSES];

/// Adds to a counter that no other thread writes.
fn add(counter: &AtomicU64, n: u64) {
    counter.store(counter.load(Ordering::Relaxed).wrapping_add(n), Ordering::Relaxed);
}

impl QueueCounters {
    /// Makes counters that continue those of another process. No packet waits.
    pub fn continuing(counts: QueueCounts) -> Self {
        let of = |ClassCounts { packets, bytes, full, delayed, marked, .. }: ClassCounts| {
            let counter = AtomicU64::new;
            ClassCounters {
                packets: counter(packets),
                bytes: counter(bytes),
                full: counter(full),
                delayed: counter(delayed),
                marked: counter(marked),
                ..ClassCounters::default()
            }
        };
        Self(counts.map(of))
    }

    /// Counts a packet that leaves after it has `waited` nanoseconds.
    pub fn left(&self, class: TrafficClass, bytes: u32, waited: u64, is_marked: bool) {
        let counters = &self.0[class as usize];
        add(&counters.packets, 1);
        add(&counters.bytes, bytes.into());
        add(&counters.marked, is_marked.into());
        counters.delay.store(waited, Ordering::Relaxed);
    }

    /// Counts a packet that finds its class full.
    pub fn full(&self, class: TrafficClass) {
        add(&self.0[class as usize].full, 1);
    }

    /// Counts packets that CoDel drops.
    pub fn delayed(&self, packets: u64) {
        add(&self.0[TrafficClass::Default as usize].delayed, packets);
    }

    /// Sets what waits: packets and bytes.
    pub fn waits(&self, class: TrafficClass, (packets, bytes): (u64, u64)) {
        let counters = &self.0[class as usize];
        counters.waiting.store(packets, Ordering::Relaxed);
        counters.waiting_bytes.store(bytes, Ordering::Relaxed);
    }

    /// Reads the counters.
    pub fn snapshot(&self) -> QueueCounts {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        self.0.each_ref().map(|counters| {
            let waiting = read(&counters.waiting);
            ClassCounts {
                packets: read(&counters.packets),
                bytes: read(&counters.bytes),
                full: read(&counters.full),
                delayed: read(&counters.delayed),
                marked: read(&counters.marked),
                waiting,
                waiting_bytes: read(&counters.waiting_bytes),
                delay: if waiting == 0 { 0 } else { read(&counters.delay) },
            }
        })
    }
}

impl AddAssign for ClassCounts {
    fn add_assign(&mut self, other: Self) {
        let Self { packets, bytes, full, delayed, marked, waiting, waiting_bytes, delay } = other;
        self.packets += packets;
        self.bytes += bytes;
        self.full += full;
        self.delayed += delayed;
        self.marked += marked;
        self.waiting += waiting;
        self.waiting_bytes += waiting_bytes;
        self.delay = self.delay.max(delay);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_of_workers_add_up() {
        let (first, second) = (QueueCounters::default(), QueueCounters::default());
        first.left(TrafficClass::Control, 100, 7, false);
        first.waits(TrafficClass::Control, (2, 300));
        second.left(TrafficClass::Control, 50, 9, true);
        second.full(TrafficClass::Control);
        second.delayed(3);
        let mut sum = first.snapshot();
        for (sum, more) in sum.iter_mut().zip(second.snapshot()) {
            *sum += more;
        }
        let control = ClassCounts {
            packets: 2,
            bytes: 150,
            full: 1,
            delayed: 0,
            marked: 1,
            waiting: 2,
            waiting_bytes: 300,
            // Nothing waits at the second.
            delay: 7,
        };
        let default = ClassCounts { delayed: 3, ..ClassCounts::default() };
        assert_eq!(sum, [control, ClassCounts::default(), default]);
    }
}
