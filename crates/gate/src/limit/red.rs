//! RED: a queue that drops before it is full (Floyd, Jacobson, "Random early detection
//! gateways for congestion avoidance", IEEE/ACM Trans. Netw. 1(4), 1993).
//!
//! ```text
//!   average ← average + w·(length − average)               at each arrival
//!   average ← (1 − w)^m · average                          after m packets' time of idling
//!
//!   below `low`      queued
//!   low … high       dropped with probability p / (1 − count·p),
//!                    p = most · (average − low) / (high − low)
//!   above `high`     dropped; so is a packet that finds no room
//! ```
//!
//! `count` is the number of packets queued since the last drop: it spreads drops evenly, so that no
//! flow loses several in a row. A packet that is ECN-capable is not marked instead: the inner
//! header reaches the grantor unchanged.
//!
//! **Queues by destination.** Granted packets go to one of 2^k queues by a keyed hash of their
//! destination ([`RedQueues`]), and the queues take turns by deficit round robin (Shreedhar,
//! Varghese, SIGCOMM 1995), so that a destination whose grants exceed the link affects only those
//! that share its queue. The hash's seed changes every [`ROTATION`], which separates two
//! destinations that shared a queue. Waiting packets stay in their queue, so a destination's
//! packets may be out of order once, at a change.

use std::collections::VecDeque;

/// The lifetime of a seed, in nanoseconds: 10 s.
pub const ROTATION: u64 = 10_000_000_000;
/// The bytes that a queue may send in its turn: a frame of any usual size.
const QUANTUM: u32 = 2048;

/// The parameters of RED.
#[derive(Clone, Copy, Debug)]
pub struct RedParameters {
    /// The average, in packets, from which some packets are dropped.
    pub low: u32,
    /// The average from which all packets are dropped.
    pub high: u32,
    /// Maximum number of packets.
    pub places: usize,
    /// The probability just below `high`.
    pub most: f64,
    /// The weight of the newest length.
    pub weight: f64,
    /// The time a packet takes to leave, in nanoseconds, which idle time is measured in.
    pub packet_time: u64,
}

impl Default for RedParameters {
    /// The paper's suggestions (w 0.002, probability 1/50), `high` three times `low`, for full
    /// frames at 1 Gb/s.
    fn default() -> Self {
        Self { low: 32, high: 96, places: 256, most: 0.02, weight: 0.002, packet_time: 12_304 }
    }
}

/// A packet in a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueuedPacket<T> {
    /// The packet.
    pub packet: T,
    /// The length of its frame, framing included.
    pub bytes: u32,
}

/// One queue.
#[derive(Debug)]
pub struct RedQueue<T> {
    waiting: VecDeque<QueuedPacket<T>>,
    parameters: RedParameters,
    average: f64,
    /// Packets queued since the last drop; -1 while the average is low.
    count: i64,
    idle_since: Option<u64>,
}

impl<T> RedQueue<T> {
    /// Creates an empty queue; nothing is allocated later.
    pub fn new(parameters: RedParameters) -> Self {
        let waiting = VecDeque::with_capacity(parameters.places);
        Self { waiting, parameters, average: 0.0, count: -1, idle_since: Some(0) }
    }

    /// Enqueues a packet at `now`, or returns it to be dropped. `chance` is uniform in [0, 1).
    pub fn offer(
        &mut self,
        packet: QueuedPacket<T>,
        now: u64,
        chance: f64,
    ) -> Result<(), QueuedPacket<T>> {
        let RedParameters { low, high, places, most, weight, packet_time } = self.parameters;
        if let Some(since) = self.idle_since.take() {
            let missed = now.saturating_sub(since) as f64 / packet_time.max(1) as f64;
            self.average *= (1.0 - weight).powf(missed);
        }
        self.average += weight * (self.waiting.len() as f64 - self.average);
        let (low, high) = (f64::from(low), f64::from(high));
        let mut drop = self.waiting.len() >= places;
        if self.average >= high {
            drop = true;
        } else if self.average >= low {
            self.count += 1;
            let p = most * (self.average - low) / (high - low);
            let spread = 1.0 - self.count as f64 * p;
            drop |= spread <= 0.0 || chance < p / spread;
        } else {
            self.count = -1;
        }
        if drop {
            self.count = 0;
            self.idle_since = self.waiting.is_empty().then_some(now);
            return Err(packet);
        }
        self.waiting.push_back(packet);
        Ok(())
    }

    /// Dequeues the oldest packet, at `now`.
    pub fn next(&mut self, now: u64) -> Option<QueuedPacket<T>> {
        let packet = self.waiting.pop_front();
        if self.waiting.is_empty() && self.idle_since.is_none() {
            self.idle_since = Some(now);
        }
        packet
    }

    /// Returns the length in bytes of the oldest packet.
    pub fn first_bytes(&self) -> Option<u32> {
        self.waiting.front().map(|packet| packet.bytes)
    }

    /// Counts the queued packets.
    pub fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Returns whether the queue is empty.
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Returns RED's average queue length.
    pub fn average(&self) -> f64 {
        self.average
    }
}

/// RED queues that destinations are hashed to.
#[derive(Debug)]
pub struct RedQueues<T> {
    queues: Box<[RedQueue<T>]>,
    deficits: Box<[u32]>,
    /// A bit for each queue with packets.
    present: Box<[u64]>,
    /// The queue whose turn it is, and whether it has had its quantum.
    turn: usize,
    served: bool,
    len: usize,
    seed: u64,
    seeded_at: u64,
    random: u64,
}

impl<T> RedQueues<T> {
    /// Creates `count` queues, a power of two, at `now`; `seed` comes from a generator that cannot
    /// be guessed.
    ///
    /// # Panics
    ///
    /// If `count` is not a power of two.
    pub fn new(count: usize, parameters: RedParameters, seed: u64, now: u64) -> Self {
        assert!(count.is_power_of_two(), "a power of two of queues");
        Self {
            queues: (0..count).map(|_| RedQueue::new(parameters)).collect(),
            deficits: vec![0; count].into(),
            present: vec![0; count.div_ceil(64)].into(),
            turn: 0,
            served: false,
            len: 0,
            seed,
            seeded_at: now,
            random: seed | 1,
        }
    }

    /// Returns a number that senders cannot guess (xorshift64*, Vigna 2016).
    fn random(&mut self) -> u64 {
        self.random ^= self.random >> 12;
        self.random ^= self.random << 25;
        self.random ^= self.random >> 27;
        self.random.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// Returns the queue of a destination at `now`.
    pub fn queue_of(&mut self, destination: u128, now: u64) -> usize {
        if now.saturating_sub(self.seeded_at) >= ROTATION {
            self.seed = self.random();
            self.seeded_at = now;
        }
        let word = (destination >> 64) as u64 ^ (destination as u64).rotate_left(32);
        let product = u128::from(word ^ self.seed) * u128::from(self.seed | 1);
        let mixed = ((product >> 64) as u64 ^ product as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (mixed >> 40) as usize & (self.queues.len() - 1)
    }

    /// Enqueues a packet for a destination, or returns it to be dropped.
    pub fn offer(
        &mut self,
        destination: u128,
        packet: QueuedPacket<T>,
        now: u64,
    ) -> Result<(), QueuedPacket<T>> {
        let chance = (self.random() >> 11) as f64 / (1u64 << 53) as f64;
        let queue = self.queue_of(destination, now);
        self.queues[queue].offer(packet, now, chance)?;
        self.present[queue / 64] |= 1 << (queue % 64);
        self.len += 1;
        Ok(())
    }

    /// Returns the queue whose turn is next: the next with packets, which may be the same again.
    /// Those in between have no deficit: a queue runs empty in its own turn, which ends its
    /// deficit.
    fn following(&self) -> usize {
        let next = (self.turn + 1) & (self.queues.len() - 1);
        let words = self.present.len();
        let here = self.present[next / 64] & u64::MAX << (next % 64);
        if here != 0 {
            return next & !63 | here.trailing_zeros() as usize;
        }
        let others = (1..=words).map(|step| (next / 64 + step) % words);
        let found = others.map(|word| (word, self.present[word])).find(|(_, bits)| *bits != 0);
        found.map_or(next, |(word, bits)| 64 * word + bits.trailing_zeros() as usize)
    }

    /// Advances to the queue whose turn it is, and returns its number and the length of its first
    /// packet.
    fn up(&mut self) -> Option<(usize, u32)> {
        if self.len == 0 {
            return None;
        }
        loop {
            match self.queues[self.turn].first_bytes() {
                Some(bytes) if self.deficits[self.turn] >= bytes => {
                    return Some((self.turn, bytes));
                }
                Some(_) if !self.served => {
                    self.deficits[self.turn] += QUANTUM;
                    self.served = true;
                }
                waiting => {
                    if waiting.is_none() {
                        self.deficits[self.turn] = 0;
                    }
                    self.turn = self.following();
                    self.served = false;
                }
            }
        }
    }

    /// Dequeues the next packet, at `now`.
    pub fn next(&mut self, now: u64) -> Option<QueuedPacket<T>> {
        self.next_if(now, |_| true)
    }

    /// Dequeues the next packet, at `now`, if `may` allows its length.
    #[inline]
    pub fn next_if(&mut self, now: u64, may: impl FnOnce(u32) -> bool) -> Option<QueuedPacket<T>> {
        let (queue, bytes) = self.up()?;
        if !may(bytes) {
            return None;
        }
        self.deficits[queue] -= bytes;
        self.len -= 1;
        let packet = self.queues[queue].next(now);
        if self.queues[queue].is_empty() {
            self.present[queue / 64] &= !(1 << (queue % 64));
        }
        packet
    }

    /// Counts the queued packets.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns whether all queues are empty.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn waiting(packet: u32) -> QueuedPacket<u32> {
        QueuedPacket { packet, bytes: 1000 }
    }

    #[test]
    fn short_queue_drops_nothing_and_keeps_the_order() {
        let mut red = RedQueue::new(RedParameters::default());
        for packet in 0..10_000u32 {
            let now = u64::from(packet) * 12_304;
            assert_eq!(red.offer(waiting(packet), now, 0.0), Ok(()));
            if packet >= 20 {
                assert_eq!(red.next(now), Some(waiting(packet - 20)));
            }
        }
        assert!((19.0..21.0).contains(&red.average()), "{}", red.average());
    }

    /// The share dropped at a steady average is the one of the paper: with drops spread
    /// evenly, 2 / (1/p + 1) or twice p for small p.
    #[test]
    fn drop_share_between_low_and_high_equals_the_papers() {
        let mut rng = fastrand::Rng::with_seed(3);
        let mut red = RedQueue::new(RedParameters::default());
        // 64 packets wait always: half way, so p is 0.01.
        let (mut offered, mut dropped) = (0u32, 0u32);
        for packet in 0..400_000u32 {
            let queued = red.offer(waiting(packet), u64::from(packet), rng.f64()).is_ok();
            if red.len() > 64 {
                red.next(u64::from(packet));
            }
            if packet > 100_000 {
                offered += 1;
                dropped += u32::from(!queued);
            }
        }
        let share = f64::from(dropped) / f64::from(offered);
        assert!((0.018..0.022).contains(&share), "{share} at average {}", red.average());
    }

    #[test]
    fn average_above_high_drops_all_and_falls_while_idle() {
        let mut red = RedQueue::new(RedParameters { weight: 0.1, ..RedParameters::default() });
        let mut now = 0;
        while red.average() < 96.0 {
            now += 1;
            let _ = red.offer(waiting(0), now, 1.0);
        }
        let len = red.len();
        assert!(len < 256, "dropped by the average, not by a full queue");
        assert!(red.offer(waiting(1), now, 1.0).is_err());
        while red.next(now).is_some() {}
        assert!(red.offer(waiting(2), now + 12_304 * 100, 0.5).is_ok());
        assert!(red.average() < 1.0);
    }

    #[test]
    fn destination_in_excess_leaves_the_others_their_share() {
        let mut queues = RedQueues::new(64, RedParameters::default(), 0x1234_5678_9abc_def1, 0);
        // 15 destinations that do not share a queue with the greedy one.
        let greedy = 0;
        let queue = queues.queue_of(greedy, 0);
        let modest: Vec<u128> =
            (1..200).filter(|&d| queues.queue_of(d, 0) != queue).take(15).collect();
        let mut lost = 0;
        // The link sends a packet a microsecond; each of the modest asks for 1/20 of it,
        // the greedy for twice all of it.
        for now in 0..200_000u64 {
            for _ in 0..2 {
                let _ = queues.offer(greedy, waiting(0), now);
            }
            if now % 20 < 15 {
                let destination = modest[now as usize % 20];
                lost += u32::from(queues.offer(destination, waiting(1), now).is_err());
            }
            queues.next(now);
        }
        assert_eq!(lost, 0);
    }

    #[test]
    fn new_seed_separates_destinations_of_one_queue() {
        let mut queues: RedQueues<u32> = RedQueues::new(64, RedParameters::default(), 99, 0);
        let queue = queues.queue_of(0, 0);
        let met: Vec<u128> = (1..6400).filter(|&d| queues.queue_of(d, 1) == queue).collect();
        assert!((50..200).contains(&met.len()), "{} of 6399 in one of 64", met.len());
        let now = ROTATION;
        let queue = queues.queue_of(0, now);
        let still = met.iter().filter(|&&d| queues.queue_of(d, now) == queue).count();
        assert!(still < 12, "{still} of {} met again", met.len());
    }

    /// Deficit round robin as the paper has it: from queue to queue, each checked for packets.
    struct Walk {
        queues: Vec<VecDeque<QueuedPacket<u32>>>,
        deficits: Vec<u32>,
        turn: usize,
        served: bool,
    }

    impl Walk {
        fn next(&mut self) -> Option<QueuedPacket<u32>> {
            if self.queues.iter().all(VecDeque::is_empty) {
                return None;
            }
            loop {
                let (at, first) = (self.turn, self.queues[self.turn].front());
                match first.map(|packet| packet.bytes) {
                    Some(bytes) if self.deficits[at] >= bytes => {
                        self.deficits[at] -= bytes;
                        return self.queues[at].pop_front();
                    }
                    Some(_) if !self.served => {
                        self.deficits[at] += QUANTUM;
                        self.served = true;
                    }
                    waiting => {
                        if waiting.is_none() {
                            self.deficits[at] = 0;
                        }
                        self.turn = (at + 1) % self.queues.len();
                        self.served = false;
                    }
                }
            }
        }
    }

    #[test]
    fn turns_that_skip_empty_queues_equal_plain_round_robin() {
        let parameters = RedParameters { low: 1 << 20, high: 1 << 21, ..RedParameters::default() };
        for (count, destinations) in [(1, 3), (4, 9), (64, 1), (64, 20), (256, 5), (256, 400)] {
            let mut rng = fastrand::Rng::with_seed(count as u64 + destinations as u64);
            let mut queues = RedQueues::new(count, parameters, 99, 0);
            let mut walk = Walk {
                queues: vec![VecDeque::new(); count],
                deficits: vec![0; count],
                turn: 0,
                served: false,
            };
            for packet in 0..20_000 {
                // At intervals all queues run empty.
                if rng.u32(..100) < 49 {
                    let to = u128::from(rng.u32(..destinations));
                    let packet = QueuedPacket { packet, bytes: rng.u32(84..2049) };
                    let queue = queues.queue_of(to, 0);
                    if queues.offer(to, packet, 0).is_ok() {
                        walk.queues[queue].push_back(packet);
                    }
                } else {
                    assert_eq!(queues.next(0), walk.next(), "{count} queues, {destinations} to");
                }
            }
            assert_eq!(queues.len(), walk.queues.iter().map(VecDeque::len).sum::<usize>());
        }
    }
}
