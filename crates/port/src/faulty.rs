//! The fault injector: makes any port unreliable, in a reproducible way.
//!
//! [`Faulty`] is between a port and the router and simulates bad cables, full queues and faulty
//! software: it loses, damages, truncates, repeats and reorders received packets, and rejects some
//! packets to be sent. Each fault has its own probability; the seed alone determines the faults, so
//! that a failing test fails again.
//!
//! ```text
//!   inner.receive ─► drop? ─► corrupt? ─► cut? ─► repeat? ─► hold back? ─► ready ─► caller
//!   caller ─► refuse the rest? ─► inner.transmit
//! ```
//!
//! The faults are counted ([`Faulty::injected`]), so that a test can check `received = inner
//! received − dropped + repeated` exactly. A packet held back is delivered after the next one, or
//! when nothing else was received, so that none stays forever. It needs no memory except the frames
//! that it holds, which [`Port::held`] returns.

use std::collections::VecDeque;
use std::os::fd::BorrowedFd;

use crate::{Arena, Frame, Port, PortStats};

/// The probability of each fault, from 0 (the default: never) to 1 (always).
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Faults {
    /// A received packet is lost.
    pub drop: f64,
    /// One byte of a received packet is changed.
    pub corrupt: f64,
    /// A received packet is truncated, down to nothing.
    pub truncate: f64,
    /// A received packet is delivered twice.
    pub duplicate: f64,
    /// A received packet is delivered after the next one.
    pub reorder: f64,
    /// A call to transmit takes only some of the frames, or none.
    pub refuse: f64,
}

/// The number of injected faults of each kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Injected {
    /// Packets lost.
    pub dropped: u64,
    /// Packets changed.
    pub corrupted: u64,
    /// Packets cut.
    pub truncated: u64,
    /// Packets repeated; not counted if no frame was free for the copy.
    pub duplicated: u64,
    /// Packets held back.
    pub reordered: u64,
    /// Calls to transmit that took fewer frames than they could.
    pub refused: u64,
}

/// A port with faults.
///
/// # Examples
///
/// ```
/// use fingerpost_port::faulty::{Faults, Faulty};
/// use fingerpost_port::{Arena, MemoryPort, Port};
///
/// let mut arena = Arena::new(64, 2048)?;
/// let (mut far, near) = MemoryPort::pair("far", "near");
/// let mut near = Faulty::new(near, Faults { drop: 0.5, ..Faults::default() }, 7);
/// (0..40).for_each(|n| assert!(far.send(&[n; 60])));
///
/// let mut frames = Vec::new();
/// while near.receive(&mut arena, 32, &mut frames) > 0 {}
/// assert_eq!(frames.len() as u64, 40 - near.injected().dropped);
/// # frames.drain(..).for_each(|frame| arena.free(frame));
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug)]
pub struct Faulty<P> {
    inner: P,
    faults: Faults,
    random: Random,
    injected: Injected,
    /// Received from the inner port, before the faults are injected.
    fresh: Vec<Frame>,
    /// Ready for the caller.
    ready: VecDeque<Frame>,
    /// Held back until another packet has passed.
    held_back: Option<Frame>,
    /// Waiting for the inner port.
    outgoing: Vec<Frame>,
    received: u64,
    received_bytes: u64,
}

impl<P: Port> Faulty<P> {
    /// Wraps a port.
    pub fn new(inner: P, faults: Faults, seed: u64) -> Self {
        Self {
            inner,
            faults,
            random: Random(seed),
            injected: Injected::default(),
            fresh: Vec::new(),
            ready: VecDeque::new(),
            held_back: None,
            outgoing: Vec::new(),
            received: 0,
            received_bytes: 0,
        }
    }

    /// Returns the number of injected faults of each kind.
    pub fn injected(&self) -> Injected {
        self.injected
    }

    /// Returns the inner port.
    pub fn inner(&mut self) -> &mut P {
        &mut self.inner
    }

    /// Injects random faults into one packet.
    fn inject(&mut self, arena: &mut Arena, mut frame: Frame) {
        let Faults { drop, corrupt, truncate, duplicate, reorder, .. } = self.faults;
        if self.random.chance(drop) {
            self.injected.dropped += 1;
            arena.free(frame);
            return;
        }
        if self.random.chance(corrupt) && frame.len() > 0 {
            self.injected.corrupted += 1;
            let (at, flip) = (self.random.below(frame.len()), 1 + self.random.below(255));
            arena.bytes_mut(&frame)[at] ^= flip as u8;
        }
        if self.random.chance(truncate) && frame.len() > 0 {
            self.injected.truncated += 1;
            let len = self.random.below(frame.len());
            arena.resize(&mut frame, len);
        }
        if self.random.chance(duplicate)
            && let Some(copy) = arena.alloc_for(frame.len())
        {
            arena.copy(&frame, 0..frame.len(), &copy, 0);
            self.injected.duplicated += 1;
            self.ready.push_back(copy);
        }
        if self.held_back.is_none() && self.random.chance(reorder) {
            self.injected.reordered += 1;
            self.held_back = Some(frame);
        } else {
            self.ready.push_back(frame);
            self.ready.extend(self.held_back.take());
        }
    }
}

impl<P: Port> Port for Faulty<P> {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn mac(&self) -> [u8; 6] {
        self.inner.mac()
    }

    fn mtu(&self) -> usize {
        self.inner.mtu()
    }

    fn receive(&mut self, arena: &mut Arena, room: usize, out: &mut Vec<Frame>) -> usize {
        let mut fresh = std::mem::take(&mut self.fresh);
        // Repeated if all received packets were lost: 0 would mean that none is available.
        while self.ready.is_empty() && room > 0 {
            if self.inner.receive(arena, room, &mut fresh) == 0 {
                self.ready.extend(self.held_back.take());
                break;
            }
            fresh.drain(..).for_each(|frame| self.inject(arena, frame));
        }
        self.fresh = fresh;
        let count = self.ready.len().min(room);
        for frame in self.ready.drain(..count) {
            self.received_bytes += frame.len() as u64;
            out.push(frame);
        }
        self.received += count as u64;
        count
    }

    fn transmit(&mut self, arena: &mut Arena, frames: &mut Vec<Frame>) -> usize {
        if frames.is_empty() || !self.random.chance(self.faults.refuse) {
            return self.inner.transmit(arena, frames);
        }
        self.injected.refused += 1;
        let some = self.random.below(frames.len());
        self.outgoing.extend(frames.drain(..some));
        let taken = self.inner.transmit(arena, &mut self.outgoing);
        frames.splice(..0, self.outgoing.drain(..));
        taken
    }

    fn punt(&mut self, arena: &Arena, frame: &Frame) -> bool {
        self.inner.punt(arena, frame)
    }

    fn flush(&mut self, arena: &mut Arena) {
        self.inner.flush(arena);
    }

    fn held(&self) -> usize {
        self.inner.held() + self.ready.len() + usize::from(self.held_back.is_some())
    }

    fn retire(&mut self) {
        self.inner.retire();
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.inner.descriptor()
    }

    /// Returns the inner port's counters, with the delivered packets in `received`, and the lost
    /// ones added to `rx_dropped`.
    fn stats(&self) -> PortStats {
        let inner = self.inner.stats();
        PortStats {
            received: self.received,
            received_bytes: self.received_bytes,
            rx_dropped: inner.rx_dropped + self.injected.dropped,
            ..inner
        }
    }

    fn mode(&self) -> &'static str {
        self.inner.mode()
    }
}

/// A pseudo-random generator: SplitMix64 (Steele, Lea and Flood, "Fast Splittable Pseudorandom
/// Number Generators", OOPSLA 2014).
#[derive(Debug)]
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Returns a number less than `bound`, which is not 0.
    fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }

    /// Returns true with this probability.
    fn chance(&mut self, chance: f64) -> bool {
        // An f64 represents 53 bits exactly.
        ((self.next() >> 11) as f64) < chance * (1_u64 << 53) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MemoryPort;

    /// Receives `count` numbered packets through the faults.
    fn through(faults: Faults, count: u8) -> (Vec<Vec<u8>>, Injected) {
        let mut arena = Arena::new(512, 2048).unwrap();
        let (mut far, near) = MemoryPort::pair("far", "near");
        let mut near = Faulty::new(near, faults, 1);
        (0..count).for_each(|n| assert!(far.send(&[n; 60])));
        let (mut frames, mut packets) = (Vec::new(), Vec::new());
        while near.receive(&mut arena, 5, &mut frames) > 0 || near.held() > 0 {
            for frame in frames.drain(..) {
                packets.push(arena.bytes(&frame).to_vec());
                arena.free(frame);
            }
            assert_eq!(arena.available() + near.held(), 512);
        }
        let stats = near.stats();
        assert_eq!(stats.received, packets.len() as u64);
        assert_eq!(stats.received_bytes, packets.iter().map(|p| p.len() as u64).sum::<u64>());
        assert_eq!(near.held(), 0);
        (packets, near.injected())
    }

    #[test]
    fn faulty_port_without_faults_is_transparent() {
        let (packets, injected) = through(Faults::default(), 100);
        assert_eq!(packets, (0..100).map(|n| vec![n; 60]).collect::<Vec<_>>());
        assert_eq!(injected, Injected::default());
    }

    #[test]
    fn each_fault_has_its_effect_and_count() {
        let never = Faults::default();
        let (packets, injected) = through(Faults { drop: 1.0, ..never }, 50);
        assert_eq!((packets.len(), injected.dropped), (0, 50));

        let (packets, injected) = through(Faults { corrupt: 1.0, ..never }, 50);
        assert_eq!(injected.corrupted, 50);
        for (n, packet) in (0..).zip(&packets) {
            assert_eq!(packet.iter().filter(|&&byte| byte != n).count(), 1, "one byte of {n}");
        }

        let (packets, injected) = through(Faults { truncate: 1.0, ..never }, 50);
        assert_eq!((packets.len(), injected.truncated), (50, 50));
        assert!(packets.iter().all(|packet| packet.len() < 60));

        let (packets, injected) = through(Faults { duplicate: 1.0, ..never }, 50);
        assert_eq!(injected.duplicated, 50);
        assert_eq!(packets, (0..50).flat_map(|n| [vec![n; 60], vec![n; 60]]).collect::<Vec<_>>());

        let (packets, injected) = through(Faults { reorder: 1.0, ..never }, 50);
        assert_eq!(injected.reordered, 25, "every other packet is held back");
        let order: Vec<u8> = packets.iter().map(|packet| packet[0]).collect();
        assert_eq!(order[..6], [1, 0, 3, 2, 5, 4]);
        assert_eq!(order.len(), 50);
    }

    #[test]
    fn lone_reordered_packet_is_delivered() {
        let mut arena = Arena::new(8, 2048).unwrap();
        let (mut far, near) = MemoryPort::pair("far", "near");
        let mut near = Faulty::new(near, Faults { reorder: 1.0, ..Faults::default() }, 1);
        assert!(far.send(&[9; 60]));
        let mut frames = Vec::new();
        assert_eq!(near.receive(&mut arena, 5, &mut frames), 1, "nothing else came");
        assert_eq!((near.held(), near.injected().reordered), (0, 1));
        assert_eq!(arena.bytes(&frames[0]), [9; 60]);
    }

    #[test]
    fn refused_frames_stay_in_order() {
        let mut arena = Arena::new(64, 2048).unwrap();
        let (mut far, near) = MemoryPort::pair("far", "near");
        let mut near = Faulty::new(near, Faults { refuse: 0.9, ..Faults::default() }, 3);
        let mut frames: Vec<Frame> =
            (0..60).map(|n| arena.copy_in(&[n; 60]).expect("64 are free")).collect();
        let mut turns = 0;
        while !frames.is_empty() {
            near.transmit(&mut arena, &mut frames);
            turns += 1;
        }
        assert!(turns > 1 && near.injected().refused >= turns - 1);
        let got: Vec<u8> = std::iter::from_fn(|| far.take()).map(|packet| packet[0]).collect();
        assert_eq!(got, (0..60).collect::<Vec<_>>());
        assert_eq!(arena.available(), 64);
    }
}
