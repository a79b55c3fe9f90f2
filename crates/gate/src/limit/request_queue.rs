//! The queue of requests by priority, at a few percent of the link (the thesis calls it the
//! solicitor).
//!
//! The request of highest priority leaves next, and of those the oldest; a full queue drops the youngest
//! of the lowest priority ([`qos::PriorityQueue`]).
//!
//! Published gates hand requests from the packet path to a core of their own through a ring: all of
//! a burst or, when the ring is congested, none of it, whatever its priority. Here each worker has
//! a queue of its own with its share of the rate: a secret hash spreads flows over workers, so each
//! has its part of every priority, and the hand-over of a batch ([`RequestQueue::offer_all`]) is a
//! call that preserves priorities.

use super::FRAMING;
use super::bucket::Bucket;
use qos::PriorityQueue;

/// A request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request<T> {
    /// The packet.
    pub packet: T,
    /// Its DSCP, at most 63.
    pub dscp: u8,
    /// The length of the frame that will leave, encapsulated, without [`FRAMING`].
    pub bytes: u32,
}

/// Waiting requests, and the rate at which they leave.
#[derive(Debug)]
pub struct RequestQueue<T> {
    waiting: PriorityQueue<Request<T>>,
    bucket: Bucket,
    counts: RequestCounters,
}

/// Counters of requests: offered = sent + dropped + waiting.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RequestCounters {
    /// Requests that were offered.
    pub offered: u64,
    /// Requests that have left.
    pub sent: u64,
    /// Requests that were dropped as the lowest.
    pub dropped: u64,
}

impl<T: Copy> RequestQueue<T> {
    /// Creates a queue for `places` waiting requests, at least 1, that leave at the bucket's rate.
    ///
    /// # Panics
    ///
    /// If `places` is 0 or beyond 2^31.
    pub fn new(places: usize, bucket: Bucket) -> Self {
        let waiting = PriorityQueue::new(places);
        Self { waiting, bucket, counts: RequestCounters::default() }
    }

    /// Enqueues a request, and returns the one that is dropped because the queue is full, which may
    /// be itself.
    #[inline(always)]
    pub fn offer(&mut self, request: Request<T>) -> Option<Request<T>> {
        self.counts.offered += 1;
        let dropped = self.waiting.offer(request, request.dscp);
        self.counts.dropped += u64::from(dropped.is_some());
        dropped
    }

    /// Enqueues a batch and calls `drop` with each dropped request.
    pub fn offer_all(
        &mut self,
        requests: impl IntoIterator<Item = Request<T>>,
        mut drop: impl FnMut(Request<T>),
    ) {
        for request in requests {
            if let Some(dropped) = self.offer(request) {
                drop(dropped);
            }
        }
    }

    /// Dequeues the next request, if the rate allows it at `now`.
    #[inline]
    pub fn next(&mut self, now: u64) -> Option<Request<T>> {
        let request = self.first()?;
        if !self.bucket.try_take(now, request.bytes.saturating_add(FRAMING)) {
            return None;
        }
        self.pop()
    }

    /// Dequeues the next request, regardless of the rate.
    #[inline]
    pub fn pop(&mut self) -> Option<Request<T>> {
        let request = self.waiting.pop()?;
        self.counts.sent += 1;
        Some(request)
    }

    /// Drops the request that a newcomer with this DSCP would displace from a full queue, and
    /// returns it: the youngest of the lowest class, if that is lower.
    pub fn displace(&mut self, dscp: u8) -> Option<Request<T>> {
        let dropped = self.waiting.displace(dscp)?;
        self.counts.dropped += 1;
        Some(dropped)
    }

    /// Returns the next request, which stays in the queue.
    pub fn first(&self) -> Option<Request<T>> {
        self.waiting.first().copied()
    }

    /// Returns when [`next`](Self::next) will return a request, if one waits.
    pub fn ready_at(&mut self, now: u64) -> Option<u64> {
        let bytes = self.first()?.bytes.saturating_add(FRAMING);
        Some(self.bucket.ready_at(now, bytes))
    }

    /// Counts the waiting requests.
    pub fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Returns whether no request waits.
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Returns the counters.
    pub fn counts(&self) -> RequestCounters {
        self.counts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    fn request(packet: u32, dscp: u8) -> Request<u32> {
        Request { packet, dscp, bytes: 100 }
    }

    /// Against a list that is searched: which request leaves, which is dropped, in what order.
    #[test]
    fn queue_equals_a_sorted_list() {
        let mut rng = fastrand::Rng::with_seed(1);
        for places in [1, 7, 64] {
            let mut queue = RequestQueue::new(places, Bucket::new(1 << 40, 1, 0));
            let mut model: Vec<Request<u32>> = Vec::new();
            let mut now = 0;
            for packet in 0..50_000 {
                if rng.u8(..5) < 3 {
                    let new = request(packet, rng.u8(3..12));
                    let mut dropped = None;
                    model.push(new);
                    if model.len() > places {
                        let lowest = model.iter().map(|request| request.dscp).min().unwrap();
                        let last = model.iter().rposition(|request| request.dscp == lowest);
                        dropped = Some(model.remove(last.unwrap()));
                    }
                    assert_eq!(queue.offer(new), dropped);
                } else {
                    let highest = model.iter().map(|request| request.dscp).max();
                    let first = model.iter().position(|request| Some(request.dscp) == highest);
                    now += SECOND;
                    assert_eq!(queue.next(now), first.map(|first| model.remove(first)));
                }
                assert_eq!(queue.len(), model.len());
            }
            let counts = queue.counts();
            assert_eq!(counts.offered, counts.sent + counts.dropped + queue.len() as u64);
        }
    }

    #[test]
    fn displaced_request_is_the_youngest_of_the_lowest_class() {
        let mut queue = RequestQueue::new(8, Bucket::new(1, 1, 0));
        assert_eq!((queue.displace(63), queue.pop()), (None, None));
        for (packet, dscp) in [(0, 41), (1, 30), (2, 30), (3, 43)] {
            assert_eq!(queue.offer(request(packet, dscp)), None);
        }
        assert_eq!(queue.displace(30), None);
        assert_eq!(queue.displace(31), Some(request(2, 30)));
        assert_eq!(queue.displace(63), Some(request(1, 30)));
        assert_eq!([queue.pop(), queue.pop()], [Some(request(3, 43)), Some(request(0, 41))]);
        let counts = queue.counts();
        assert_eq!((counts.offered, counts.sent, counts.dropped, queue.len()), (4, 2, 2, 0));
    }

    /// Twice the channel's rate, priorities mixed.
    #[test]
    fn overload_keeps_the_rate_and_every_high_priority() {
        const LINK: u64 = 1_000_000_000;
        let mut queue = RequestQueue::new(512, Bucket::share(LINK, 5, 0));
        let bytes = 100 + u64::from(FRAMING);
        let rate = LINK / 8 / 20;
        // Offers at twice the rate for ten seconds; a tenth has high priority.
        let gap = SECOND * bytes / (2 * rate);
        let (mut sent, mut high, mut high_sent) = (0, 0, 0);
        let mut now = 0;
        for packet in 0..(10 * SECOND / gap) as u32 {
            now += gap;
            let patient = packet % 10 == 3;
            high += u32::from(patient);
            let dropped = queue.offer(request(packet, if patient { 43 } else { 41 }));
            assert!(dropped.is_none_or(|dropped| dropped.dscp == 41));
            while let Some(request) = queue.next(now) {
                sent += bytes;
                high_sent += u32::from(request.dscp == 43);
            }
        }
        let share = sent as f64 / (rate * now / SECOND) as f64;
        assert!((0.98..=1.02).contains(&share), "{share}");
        // The last may still wait.
        assert!(high - high_sent <= 1, "{high_sent} of {high}");
    }

    #[test]
    fn ready_at_is_the_time_of_the_next_request() {
        let mut queue = RequestQueue::new(512, Bucket::new(1_000_000, 1, 0));
        assert_eq!(queue.ready_at(0), None);
        for packet in 0..200 {
            assert_eq!(queue.offer(request(packet, 41)), None);
        }
        while queue.next(5).is_some() {}
        let at = queue.ready_at(5).unwrap();
        assert_eq!(queue.next(at - 1), None);
        assert!(queue.next(at).is_some());
    }
}
