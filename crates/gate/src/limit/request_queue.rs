//! The queue of requests by priority, at a few percent of the link (the thesis calls it the
//! solicitor).
//!
//! ```text
//!   class 63  ●─●─●            a list for each priority, oldest first
//!   class 62  (none)
//!   …                          present: a bit for each class that has any
//!   class  3  ●─●─●─●─●─●      out of the highest; dropped from the end of the lowest
//! ```
//!
//! Of the waiting requests, the one of highest priority leaves next, and of those the oldest. When
//! the queue is full, a newcomer is dropped unless a request with lower priority waits; then the
//! youngest of the lowest class is dropped in its favor. All operations take O(1): the highest and
//! the lowest class are the ends of 64 bits.
//!
//! Published gates hand requests from the packet path to a core of their own through a ring: all of
//! a burst or, when the ring is congested, none of it, whatever its priority. Here each worker has
//! a queue of its own with its share of the rate: a secret hash spreads flows over workers, so each
//! has its part of every priority, and the hand-over of a batch ([`RequestQueue::offer_all`]) is a
//! call that preserves priorities.

use super::FRAMING;
use super::bucket::Bucket;
use crate::priority::HIGHEST_DSCP;

/// The end of a list.
const NONE: u32 = u32::MAX;
const CLASSES: usize = HIGHEST_DSCP as usize + 1;

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

#[derive(Clone, Copy, Debug)]
struct Node<T> {
    request: Option<Request<T>>,
    older: u32,
    younger: u32,
}

/// Waiting requests, and the rate at which they leave.
#[derive(Debug)]
pub struct RequestQueue<T> {
    nodes: Box<[Node<T>]>,
    oldest: [u32; CLASSES],
    youngest: [u32; CLASSES],
    present: u64,
    /// The first unused node; they are linked by `younger`.
    free: u32,
    len: usize,
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
        assert!((1..=1 << 31).contains(&places), "a request queue has 1 to 2^31 places");
        let node = |at: usize| Node {
            request: None,
            older: NONE,
            younger: if at + 1 < places { at as u32 + 1 } else { NONE },
        };
        Self {
            nodes: (0..places).map(node).collect(),
            oldest: [NONE; CLASSES],
            youngest: [NONE; CLASSES],
            present: 0,
            free: 0,
            len: 0,
            bucket,
            counts: RequestCounters::default(),
        }
    }

    /// Enqueues a request, and returns the one that is dropped because the queue is full, which may
    /// be itself.
    #[inline(always)]
    pub fn offer(&mut self, request: Request<T>) -> Option<Request<T>> {
        self.counts.offered += 1;
        let class = usize::from(request.dscp.min(HIGHEST_DSCP));
        let mut dropped = None;
        if self.free == NONE {
            let lowest = self.present.trailing_zeros() as usize;
            self.counts.dropped += 1;
            if class <= lowest {
                return Some(request);
            }
            dropped = self.remove(self.youngest[lowest], lowest);
        }
        let at = self.free;
        let older = self.youngest[class];
        let node = &mut self.nodes[at as usize];
        self.free = node.younger;
        *node = Node { request: Some(request), older, younger: NONE };
        match older {
            NONE => self.oldest[class] = at,
            older => self.nodes[older as usize].younger = at,
        }
        self.youngest[class] = at;
        self.present |= 1 << class;
        self.len += 1;
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
        if self.present == 0 {
            return None;
        }
        self.counts.sent += 1;
        let highest = self.highest();
        self.remove(self.oldest[highest], highest)
    }

    /// Drops the request that a newcomer with this DSCP would displace from a full queue, and
    /// returns it: the youngest of the lowest class, if that is lower.
    pub fn displace(&mut self, dscp: u8) -> Option<Request<T>> {
        let lowest = self.present.trailing_zeros() as usize;
        if lowest >= usize::from(dscp.min(HIGHEST_DSCP)) {
            return None;
        }
        self.counts.dropped += 1;
        self.remove(self.youngest[lowest], lowest)
    }

    /// Returns the next request, which stays in the queue.
    pub fn first(&self) -> Option<Request<T>> {
        if self.present == 0 {
            return None;
        }
        self.nodes[self.oldest[self.highest()] as usize].request
    }

    /// Returns when [`next`](Self::next) will return a request, if one waits.
    pub fn ready_at(&mut self, now: u64) -> Option<u64> {
        let bytes = self.first()?.bytes.saturating_add(FRAMING);
        Some(self.bucket.ready_at(now, bytes))
    }

    #[inline(always)]
    fn highest(&self) -> usize {
        63 - self.present.leading_zeros() as usize
    }

    fn remove(&mut self, at: u32, class: usize) -> Option<Request<T>> {
        let node = &mut self.nodes[at as usize];
        let (request, older, younger) = (node.request.take(), node.older, node.younger);
        node.younger = self.free;
        match older {
            NONE => self.oldest[class] = younger,
            older => self.nodes[older as usize].younger = younger,
        }
        match younger {
            NONE => self.youngest[class] = older,
            younger => self.nodes[younger as usize].older = older,
        }
        if self.oldest[class] == NONE {
            self.present &= !(1 << class);
        }
        self.free = at;
        self.len -= 1;
        request
    }

    /// Counts the waiting requests.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns whether no request waits.
    pub fn is_empty(&self) -> bool {
        self.len == 0
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
