//! A queue: three classes, and the order in which they leave.
//!
//! | class | packets | order | when it is full |
//! |---|---|---|---|
//! | [`Control`](TrafficClass::Control) | routing protocols (DSCP CS6 and CS7, RFC 4594) | first in, first out | drops the new one |
//! | [`Requests`](TrafficClass::Requests) | requests of gates | by priority | drops the lowest |
//! | [`Default`](TrafficClass::Default) | all others | first in, first out; CoDel | drops the new one |
//!
//! Control packets leave first, then requests, then the others, but the first two only as long as they
//! are within their share of the bytes that leave; beyond it they have what the others leave over. So a
//! flood with a borrowed DSCP takes its share, and no more. The shares need no rate: every byte that
//! leaves earns each class its share of a byte of credit, of which [`MOST_CREDIT`] bytes are kept.
//!
//! Source: Fu's thesis, figure 4.2, for requests between the vantage points and the network: a few percent
//! of the link, by the priority in their DSCP.

use std::collections::VecDeque;

use super::{Codel, CodelParameters, PriorityQueue};

/// The most bytes that a class may send at once before the others: some packets of any length.
pub const MOST_CREDIT: i64 = 32 << 10;
/// Of a queue's places, the control packets and the requests each have at most this part.
const PART: usize = 8;

/// The class of a packet in a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TrafficClass {
    /// Routing protocols.
    Control,
    /// Requests of gates to their grantors.
    Requests,
    /// All others.
    Default,
}

impl TrafficClass {
    /// All classes.
    pub const ALL: [Self; 3] = [Self::Control, Self::Requests, Self::Default];

    /// Returns the name that counters and metrics use.
    pub fn name(self) -> &'static str {
        match self {
            Self::Control => "control",
            Self::Requests => "requests",
            Self::Default => "default",
        }
    }
}

/// The parameters of a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EgressQueueParameters {
    /// The number of places for packets of the class `Default`, at least 8.
    pub places: usize,
    /// Of the class `Default`.
    pub codel: CodelParameters,
    /// The share of control packets, in percent.
    pub control_share: u8,
    /// The share of requests, in percent.
    pub request_share: u8,
}

impl Default for EgressQueueParameters {
    /// 1000 places, 10 % for control packets and 5 % for requests.
    fn default() -> Self {
        let codel = CodelParameters::default();
        Self { places: 1000, codel, control_share: 10, request_share: 5 }
    }
}

/// Returns the most packets that a queue with `places` places holds.
pub const fn frames_of(places: usize) -> usize {
    places + 2 * places.div_ceil(PART)
}

/// A packet that is offered to a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Offer<T> {
    /// The packet.
    pub item: T,
    /// Its bytes.
    pub bytes: u32,
    /// Its class.
    pub class: TrafficClass,
    /// Its DSCP, by which requests have their order.
    pub dscp: u8,
    /// Whether it is ECN-capable (RFC 3168): CoDel marks it, and does not drop it.
    pub is_ecn_capable: bool,
}

/// A packet that leaves a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Departure<T> {
    /// The packet.
    pub item: T,
    /// Its bytes.
    pub bytes: u32,
    /// Its class.
    pub class: TrafficClass,
    /// The time that it has waited, in nanoseconds.
    pub waited: u64,
    /// Whether it is to be marked as Congestion Experienced.
    pub is_marked: bool,
}

/// A waiting packet.
#[derive(Debug)]
struct Waiting<T> {
    offer: Offer<T>,
    since: u64,
}

/// A queue of three classes.
#[derive(Debug)]
pub struct EgressQueue<T> {
    control: VecDeque<Waiting<T>>,
    requests: PriorityQueue<Waiting<T>>,
    others: VecDeque<Waiting<T>>,
    codel: Codel,
    places: [usize; 3],
    /// In percent, of control packets and requests.
    shares: [i64; 2],
    /// In hundredths of a byte.
    credits: [i64; 2],
    /// The bytes that wait, by class.
    backlog: [u64; 3],
    /// The longest packet so far.
    longest: u32,
}

impl<T> EgressQueue<T> {
    /// Makes an empty queue and allocates all of its memory.
    pub fn new(parameters: EgressQueueParameters) -> Self {
        let EgressQueueParameters { places, codel, control_share, request_share } = parameters;
        let (others, part) = (places.max(PART), places.max(PART).div_ceil(PART));
        let shares = [control_share.into(), request_share.into()];
        Self {
            control: VecDeque::with_capacity(part),
            requests: PriorityQueue::new(part),
            others: VecDeque::with_capacity(others),
            codel: Codel::new(codel),
            places: [part, part, others],
            shares,
            // A class without a share has none from the start.
            credits: shares.map(|share: i64| 100 * MOST_CREDIT * share.signum()),
            backlog: [0; 3],
            longest: 0,
        }
    }

    /// Enqueues a packet that arrives at `now`, and returns the one that is dropped because its class
    /// is full.
    pub fn offer(&mut self, offer: Offer<T>, now: u64) -> Option<Offer<T>> {
        let (class, bytes, dscp) = (offer.class, offer.bytes, offer.dscp);
        self.longest = self.longest.max(bytes);
        let waiting = Waiting { offer, since: now };
        let dropped = match class {
            TrafficClass::Requests => self.requests.offer(waiting, dscp),
            TrafficClass::Control => push(&mut self.control, self.places[0], waiting),
            TrafficClass::Default => push(&mut self.others, self.places[2], waiting),
        };
        self.backlog[class as usize] += u64::from(bytes);
        if let Some(dropped) = &dropped {
            self.backlog[class as usize] -= u64::from(dropped.offer.bytes);
        }
        dropped.map(|dropped| dropped.offer)
    }

    /// Dequeues the packet that leaves next, at `now`, and calls `drop` with the packets that CoDel
    /// drops before it.
    pub fn next(&mut self, now: u64, mut drop: impl FnMut(T)) -> Option<Departure<T>> {
        let has_credit = self.credits.map(|credit| credit > 0);
        let mut departure = None;
        if has_credit[0] {
            departure = self.control.pop_front();
        }
        if departure.is_none() && has_credit[1] {
            departure = self.requests.pop();
        }
        let mut is_marked = false;
        while departure.is_none()
            && let Some(next) = self.others.pop_front()
        {
            let bytes = u64::from(next.offer.bytes);
            let rest = self.backlog[TrafficClass::Default as usize] - bytes;
            let is_last = rest <= u64::from(self.longest);
            let signals = self.codel.signals(now, now.saturating_sub(next.since), is_last);
            if signals && !next.offer.is_ecn_capable {
                self.backlog[TrafficClass::Default as usize] = rest;
                drop(next.offer.item);
                continue;
            }
            is_marked = signals;
            departure = Some(next);
        }
        let next =
            departure.or_else(|| self.control.pop_front()).or_else(|| self.requests.pop())?;
        let Offer { item, bytes, class, .. } = next.offer;
        self.backlog[class as usize] -= u64::from(bytes);
        let bytes_sent = i64::from(bytes);
        for (at, (credit, share)) in self.credits.iter_mut().zip(self.shares).enumerate() {
            let spent = if at == class as usize { 100 * bytes_sent } else { 0 };
            let most = 100 * MOST_CREDIT;
            *credit = (*credit + share * bytes_sent - spent).clamp(-most, most);
        }
        Some(Departure { item, bytes, class, waited: now.saturating_sub(next.since), is_marked })
    }

    /// Returns whether the next packet goes before others: a control packet or a request within its
    /// class's share.
    pub fn is_urgent(&self) -> bool {
        let [control, requests] = self.credits.map(|credit| credit > 0);
        control && !self.control.is_empty() || requests && !self.requests.is_empty()
    }

    /// Dequeues any packet, without CoDel: for the end of the queue.
    pub fn pop(&mut self) -> Option<T> {
        let next = self.control.pop_front().or_else(|| self.requests.pop());
        let Offer { item, bytes, class, .. } = next.or_else(|| self.others.pop_front())?.offer;
        self.backlog[class as usize] -= u64::from(bytes);
        Some(item)
    }

    /// Counts the waiting packets.
    pub fn len(&self) -> usize {
        self.control.len() + self.requests.len() + self.others.len()
    }

    /// Returns whether no packet waits.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the packets and the bytes of a class that wait.
    pub fn backlog(&self, class: TrafficClass) -> (u64, u64) {
        let packets = match class {
            TrafficClass::Control => self.control.len(),
            TrafficClass::Requests => self.requests.len(),
            TrafficClass::Default => self.others.len(),
        };
        (packets as u64, self.backlog[class as usize])
    }
}

/// Appends to a queue of so many places, or returns the packet.
fn push<T>(
    queue: &mut VecDeque<Waiting<T>>,
    places: usize,
    waiting: Waiting<T>,
) -> Option<Waiting<T>> {
    if queue.len() >= places {
        return Some(waiting);
    }
    queue.push_back(waiting);
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn parameters() -> EgressQueueParameters {
        let codel = CodelParameters::default();
        EgressQueueParameters { places: 64, codel, control_share: 10, request_share: 5 }
    }

    fn offer(item: u32, class: TrafficClass) -> Offer<u32> {
        Offer { item, bytes: 1000, class, dscp: 10, is_ecn_capable: false }
    }

    fn next(queue: &mut EgressQueue<u32>) -> Option<u32> {
        queue.next(0, |_| panic!("nothing has waited")).map(|departure| departure.item)
    }

    #[test]
    fn classes_leave_in_their_order() {
        let mut queue = EgressQueue::new(parameters());
        let offers = [TrafficClass::Default, TrafficClass::Requests, TrafficClass::Control];
        for (item, class) in (0..).zip(offers) {
            assert_eq!(queue.offer(offer(item, class), 0), None);
        }
        assert_eq!(queue.backlog(TrafficClass::Control), (1, 1000));
        let order = [next(&mut queue), next(&mut queue), next(&mut queue), next(&mut queue)];
        assert_eq!(order, [Some(2), Some(1), Some(0), None]);
        assert_eq!(TrafficClass::ALL.map(|class| queue.backlog(class)), [(0, 0); 3]);
    }

    #[test]
    fn full_class_leaves_the_places_of_the_others() {
        let mut queue = EgressQueue::new(parameters());
        let mut dropped = 0;
        for item in 0..100 {
            dropped += usize::from(queue.offer(offer(item, TrafficClass::Default), 0).is_some());
        }
        assert_eq!((dropped, queue.len()), (36, 64));
        for item in 0..8 {
            for class in [TrafficClass::Control, TrafficClass::Requests] {
                assert_eq!(queue.offer(offer(item, class), 0), None);
            }
        }
        assert_eq!(queue.len(), frames_of(64));
        let late = offer(9, TrafficClass::Control);
        assert_eq!(queue.offer(late, 0), Some(late));
        // A request of higher priority displaces the youngest.
        let urgent = Offer { dscp: 40, ..offer(9, TrafficClass::Requests) };
        assert_eq!(queue.offer(urgent, 0).unwrap().item, 7);
        assert_eq!(queue.backlog(TrafficClass::Requests), (8, 8000));
        assert_eq!(std::iter::from_fn(|| queue.pop()).count(), frames_of(64));
        assert!(queue.is_empty());
    }

    /// All three classes offer more than the link has: each has its share.
    #[test]
    fn flooded_classes_have_their_shares() {
        let mut queue = EgressQueue::new(parameters());
        let mut sent = [0u32; 3];
        for item in 0..100_000 {
            for class in TrafficClass::ALL {
                queue.offer(offer(item, class), 0);
            }
            let departure = queue.next(0, |_| panic!("nothing has waited")).unwrap();
            sent[departure.class as usize] += 1;
        }
        let shares = sent.map(|sent| f64::from(sent) / 1000.0);
        for (share, expected) in shares.into_iter().zip([10.0, 5.0, 85.0]) {
            assert!((share - expected).abs() < 0.2, "{shares:?}");
        }
    }

    #[test]
    fn class_without_a_share_leaves_after_the_others() {
        let mut queue =
            EgressQueue::new(EgressQueueParameters { control_share: 0, ..parameters() });
        for class in [TrafficClass::Control, TrafficClass::Default, TrafficClass::Default] {
            queue.offer(offer(class as u32, class), 0);
        }
        let order = [next(&mut queue), next(&mut queue), next(&mut queue)];
        assert_eq!(order, [Some(2), Some(2), Some(0)]);
    }

    #[test]
    fn class_beyond_its_share_has_what_is_left_over() {
        let mut queue = EgressQueue::new(parameters());
        for item in 0..10_000 {
            queue.offer(offer(item, TrafficClass::Control), 0);
            assert_eq!(next(&mut queue), Some(item));
        }
    }

    #[test]
    fn codel_drops_or_marks_the_default_class_only() {
        for is_ecn_capable in [false, true] {
            let mut queue = EgressQueue::new(parameters());
            let (mut dropped, mut marked, mut sent) = (0, 0, [0; 3]);
            // Twice what leaves, for two seconds.
            for ms in 0..2000 {
                for item in 0..2 {
                    let offer = Offer { is_ecn_capable, ..offer(item, TrafficClass::Default) };
                    queue.offer(offer, ms * MS);
                }
                if ms % 20 == 0 {
                    queue.offer(offer(9, TrafficClass::Control), ms * MS);
                }
                let departure = queue.next(ms * MS, |_| dropped += 1).unwrap();
                marked += u32::from(departure.is_marked);
                sent[departure.class as usize] += 1;
                assert!(!departure.is_marked || departure.class == TrafficClass::Default);
            }
            assert_eq!((dropped > 20, marked > 20), (!is_ecn_capable, is_ecn_capable));
            assert_eq!(sent[0], 100);
        }
    }
}
