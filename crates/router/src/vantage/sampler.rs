//! The sampler: now and then a packet that the gate has judged, for who wants to know where
//! packets go, and what another policy would make of them (`shadow.rs`).
//!
//! ```text
//!   batch ── one in `every`, at random ──► Sampled: its addresses, what became of it,
//!                                          how many packets it stands for ─► ring ─► panel
//! ```
//!
//! Counted, not timed, and by gaps that are drawn (sFlow, RFC 3176, section 3.1.1): each packet
//! has the same chance whatever its neighbors are, so that the sum of what samples of a
//! destination stand for is expected to be its number of packets, and nobody can send between
//! two samples. Gaps have no memory (geometric), so that one may be drawn anew when `every`
//! changes.
//!
//! `every` is such that a second has some [`TARGET`] samples: as many as the last second would
//! have had. Where a second has far more ([`SURGE`]), `every` is made four times what it is at
//! once, and again after each further [`STEP`]: from silence to ten million packets a second it
//! takes eight steps, five thousand samples, which the ring holds. With less than [`TARGET`] packets a second every one is a sample.
//!
//! It is not free, but cheap: a batch costs an addition and a comparison, a sample a store into
//! the ring and a logarithm, a thousand times a second. What does not reach a worker is not
//! seen: flows that are declined and sources that are blocked in the kernel.

use std::net::IpAddr;

use gate::flow::Pair;
use gate::gate::{Packet, RuleOutcome, Verdict as Judged};
use rtrb::Producer;

/// Samples of a second.
const TARGET: u64 = 1000;
/// Samples of a second before it has another `every`.
const SURGE: u32 = TARGET as u32 + STEP;
/// And before it has another after that.
const STEP: u32 = 512;
const SECOND: u64 = 1_000_000_000;

/// A packet, standing for others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sampled {
    /// Where it came from.
    pub source: IpAddr,
    /// Where it was going.
    pub destination: IpAddr,
    /// What became of it.
    pub became: RuleOutcome,
    /// Its bytes, Ethernet header included.
    pub bytes: u32,
    /// How many packets it stands for.
    pub every: u32,
}

/// Who takes samples.
#[derive(Debug)]
pub(super) struct Sampler {
    every: u32,
    /// Packets until the next sample.
    left: u32,
    /// Samples since `every` was changed, or the second began.
    taken: u32,
    /// Packets of this second.
    packets: u64,
    /// When it is over.
    over: u64,
    rng: fastrand::Rng,
}

impl Sampler {
    pub(super) fn new(seed: u64) -> Self {
        let rng = fastrand::Rng::with_seed(seed);
        Self { every: 1, left: 0, taken: 0, packets: 0, over: 0, rng }
    }

    /// Looks at a batch at `now`, and leaves samples of it.
    #[inline]
    pub(super) fn look(
        &mut self,
        now: u64,
        packets: &[Packet],
        judged: &[Judged],
        to: &mut Producer<Sampled>,
    ) {
        if now >= self.over {
            self.begin(now);
        }
        self.packets += packets.len() as u64;
        while let (Some(packet), Some(&judged)) =
            (packets.get(self.left as usize), judged.get(self.left as usize))
        {
            self.take(packet, judged, to);
            self.left = self.left.saturating_add(1).saturating_add(self.gap());
        }
        self.left = self.left.saturating_sub(packets.len() as u32);
    }

    #[cold]
    fn take(&mut self, packet: &Packet, judged: Judged, to: &mut Producer<Sampled>) {
        let (source, destination) = match packet.flow.pair() {
            Pair::V4 { src, dst } => (IpAddr::V4(src.into()), IpAddr::V4(dst.into())),
            Pair::V6 { src, dst } => (IpAddr::V6(src.into()), IpAddr::V6(dst.into())),
        };
        let (became, every) = (judged.outcome(), self.every);
        // Nobody reads, or not soon enough: then there is one less.
        let _ = to.push(Sampled { source, destination, became, bytes: packet.bytes, every });
        self.taken += 1;
        if self.taken >= SURGE {
            self.every = self.every.saturating_mul(4);
            self.taken -= STEP;
        }
    }

    #[cold]
    fn begin(&mut self, now: u64) {
        self.every = (self.packets / TARGET).clamp(1, u32::MAX.into()) as u32;
        (self.packets, self.taken, self.over) = (0, 0, now + SECOND);
        self.left = self.gap();
    }

    /// Draws how many packets are left out before the next sample.
    fn gap(&mut self) -> u32 {
        if self.every == 1 {
            return 0;
        }
        let miss = (-1.0 / f64::from(self.every)).ln_1p();
        // Within (0, 1], so that the logarithm is a number.
        ((1.0 - self.rng.f64()).ln() / miss) as u32
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use gate::flow::Flow;
    use rtrb::{Consumer, RingBuffer};

    use super::*;

    const BATCH: usize = 64;

    /// A second of `rate` packets, one in ten of them to 10.0.0.9 and the rest to 10.0.0.1.
    fn second(sampler: &mut Sampler, at: u64, rate: usize, to: &mut Producer<Sampled>) {
        for begin in (0..rate).step_by(BATCH) {
            let now = at * SECOND + SECOND * begin as u64 / rate as u64;
            let packet = |number: usize| {
                let dst = if number.is_multiple_of(10) { 0x0a00_0009 } else { 0x0a00_0001 };
                Packet { flow: Flow::v4(number as u32, dst), hash: 0, bytes: 100 }
            };
            let packets: Vec<_> = (begin..rate.min(begin + BATCH)).map(packet).collect();
            let judged = vec![Judged::Back; packets.len()];
            sampler.look(now, &packets, &judged, to);
        }
    }

    fn sums(from: &mut Consumer<Sampled>) -> (usize, HashMap<String, u64>) {
        let (mut count, mut sums) = (0, HashMap::new());
        while let Ok(it) = from.pop() {
            assert_eq!((it.became, it.bytes), (RuleOutcome::Passed, 100));
            *sums.entry(it.destination.to_string()).or_default() += u64::from(it.every);
            count += 1;
        }
        (count, sums)
    }

    #[test]
    fn few_packets_are_all_there_and_many_are_estimated() {
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
            // The second after a silent one begins with every packet; those after it do not.
            if at > 1 {
                assert!((850..1150).contains(&count), "second {at}: {count}");
            }
            // Five standard deviations of some hundred samples.
            let share = all["10.0.0.9"] as f64 / rate as f64;
            assert!((0.05..0.15).contains(&share), "second {at}: {share}");
            let whole = all.values().sum::<u64>() as f64 / rate as f64;
            assert!((0.8..1.2).contains(&whole), "second {at}: {whole}");
        }
        // And back: the first quiet second may have none, the next has all.
        second(&mut sampler, 20, 50, &mut to);
        sums(&mut from);
        second(&mut sampler, 21, 50, &mut to);
        assert_eq!(sums(&mut from).0, 50);
    }

    #[test]
    fn who_does_not_read_stops_nobody() {
        let (mut to, from) = RingBuffer::new(4);
        let mut sampler = Sampler::new(6);
        second(&mut sampler, 0, 5000, &mut to);
        assert_eq!(from.slots(), 4);
    }
}
