//! The sampler: random samples of the packets that the gate has processed.
//!
//! ```text
//!   batch ── one in `every`, at random ──► PacketSample: addresses, outcome, number of packets
//!                                          that it represents ─► ring ─► controller
//! ```
//!
//! The dashboard estimates from the samples where packets go, and `candidate.rs` compares a candidate
//! policy with the policy in force.
//!
//! Samples are taken by count with random gaps (sFlow, RFC 3176, section 3.1.1), and not by time. Each
//! packet has the same chance, so that the expected sum over the samples of a destination is its number
//! of packets, and no sender can avoid the samples. Gaps have a geometric distribution, which has no
//! memory, so that a gap can be drawn again when `every` changes.
//!
//! `every` is set once a second such that the last second would have had [`TARGET`] samples. If a
//! second has far more ([`SURGE`]), `every` is multiplied by four at once, and again after each further
//! [`STEP`] samples: from silence to ten million packets a second that takes eight steps and five
//! thousand samples, which the ring holds. Below [`TARGET`] packets a second every packet is a sample.
//!
//! The cost is an addition and a comparison a batch; a store into the ring and a logarithm a sample, a
//! thousand times a second. Packets that the XDP program drops (declined flows, blocked sources) never
//! reach a worker and are not sampled.

use std::net::IpAddr;

use gate::flow::Pair;
use gate::gate::{Packet, Verdict as GateVerdict};
use gate::sample::PacketSample;
use rtrb::Producer;

/// Samples a second.
const TARGET: u64 = 1000;
/// Samples within a second after which `every` is raised.
const SURGE: u32 = TARGET as u32 + STEP;
/// Further samples after which it is raised again.
const STEP: u32 = 512;
const SECOND: u64 = 1_000_000_000;

/// Takes samples of a worker's packets.
#[derive(Debug)]
pub(super) struct Sampler {
    every: u32,
    /// Packets until the next sample.
    left: u32,
    /// Samples since `every` was changed or the second began.
    taken: u32,
    /// Packets of this second.
    packets: u64,
    /// The end of this second.
    ends_at: u64,
    rng: fastrand::Rng,
}

impl Sampler {
    pub(super) fn new(seed: u64) -> Self {
        let rng = fastrand::Rng::with_seed(seed);
        Self { every: 1, left: 0, taken: 0, packets: 0, ends_at: 0, rng }
    }

    /// Samples a batch that was processed at `now`.
    #[inline]
    pub(super) fn sample(
        &mut self,
        now: u64,
        packets: &[Packet],
        verdicts: &[GateVerdict],
        to: &mut Producer<PacketSample>,
    ) {
        if now >= self.ends_at {
            self.begin_second(now);
        }
        self.packets += packets.len() as u64;
        while let (Some(packet), Some(&verdict)) =
            (packets.get(self.left as usize), verdicts.get(self.left as usize))
        {
            self.take(packet, verdict, to);
            self.left = self.left.saturating_add(1).saturating_add(self.gap());
        }
        self.left = self.left.saturating_sub(packets.len() as u32);
    }

    #[cold]
    fn take(&mut self, packet: &Packet, verdict: GateVerdict, to: &mut Producer<PacketSample>) {
        let (source, destination) = match packet.flow.pair() {
            Pair::V4 { src, dst } => (IpAddr::V4(src.into()), IpAddr::V4(dst.into())),
            Pair::V6 { src, dst } => (IpAddr::V6(src.into()), IpAddr::V6(dst.into())),
        };
        let (outcome, every) = (verdict.outcome(), self.every);
        // A full ring, because no reader empties it in time, costs the sample.
        let _ = to.push(PacketSample { source, destination, outcome, bytes: packet.bytes, every });
        self.taken += 1;
        if self.taken >= SURGE {
            self.every = self.every.saturating_mul(4);
            self.taken -= STEP;
        }
    }

    #[cold]
    fn begin_second(&mut self, now: u64) {
        self.every = (self.packets / TARGET).clamp(1, u32::MAX.into()) as u32;
        (self.packets, self.taken, self.ends_at) = (0, 0, now + SECOND);
        self.left = self.gap();
    }

    /// Draws the number of packets before the next sample.
    fn gap(&mut self) -> u32 {
        if self.every == 1 {
            return 0;
        }
        let miss = (-1.0 / f64::from(self.every)).ln_1p();
        // The argument is within (0, 1], so that the logarithm is finite.
        ((1.0 - self.rng.f64()).ln() / miss) as u32
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use gate::flow::Flow;
    use gate::gate::RuleOutcome;
    use rtrb::{Consumer, RingBuffer};

    use super::*;

    const BATCH: usize = 64;

    /// A second of `rate` packets, one in ten of them to 10.0.0.9 and the rest to 10.0.0.1.
    fn second(sampler: &mut Sampler, at: u64, rate: usize, to: &mut Producer<PacketSample>) {
        for begin in (0..rate).step_by(BATCH) {
            let now = at * SECOND + SECOND * begin as u64 / rate as u64;
            let packet = |number: usize| {
                let dst = if number.is_multiple_of(10) { 0x0a00_0009 } else { 0x0a00_0001 };
                Packet { flow: Flow::v4(number as u32, dst), hash: 0, bytes: 100 }
            };
            let packets: Vec<_> = (begin..rate.min(begin + BATCH)).map(packet).collect();
            let verdicts = vec![GateVerdict::Back; packets.len()];
            sampler.sample(now, &packets, &verdicts, to);
        }
    }

    fn sums(from: &mut Consumer<PacketSample>) -> (usize, HashMap<String, u64>) {
        let (mut count, mut sums) = (0, HashMap::new());
        while let Ok(sample) = from.pop() {
            assert_eq!((sample.outcome, sample.bytes), (RuleOutcome::Passed, 100));
            *sums.entry(sample.destination.to_string()).or_default() += u64::from(sample.every);
            count += 1;
        }
        (count, sums)
    }

    #[test]
    fn sampler_takes_all_of_few_packets_and_estimates_many() {
        let (mut to, mut from) = RingBuffer::new(8192);
        let mut sampler = Sampler::new(5);
        second(&mut sampler, 0, 700, &mut to);
        let (count, all) = sums(&mut from);
        assert_eq!((count, all["10.0.0.9"], all["10.0.0.1"]), (700, 70, 630));
        let rate = 2_000_000;
        for at in 1..20 {
            second(&mut sampler, at, rate, &mut to);
            let (count, all) = sums(&mut from);
            assert!(count < 8192, "second {at}: {count} samples, more than the ring holds");
            // The second after a silent one begins with every packet; later seconds do not.
            if at > 1 {
                assert!((850..1150).contains(&count), "second {at}: {count}");
            }
            // Five standard deviations of some hundred samples.
            let share = all["10.0.0.9"] as f64 / rate as f64;
            assert!((0.05..0.15).contains(&share), "second {at}: {share}");
            let whole = all.values().sum::<u64>() as f64 / rate as f64;
            assert!((0.8..1.2).contains(&whole), "second {at}: {whole}");
        }
        // Back again: the first quiet second may have no sample, the next has all packets.
        second(&mut sampler, 20, 50, &mut to);
        sums(&mut from);
        second(&mut sampler, 21, 50, &mut to);
        assert_eq!(sums(&mut from).0, 50);
    }

    #[test]
    fn sampler_drops_samples_when_the_ring_is_full() {
        let (mut to, from) = RingBuffer::new(4);
        let mut sampler = Sampler::new(6);
        second(&mut sampler, 0, 5000, &mut to);
        assert_eq!(from.slots(), 4);
    }
}
