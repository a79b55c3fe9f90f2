//! The cable: two ports joined by two rings.
//!
//! Each end receives the packets that the other transmits. Each direction is a ring of slots that
//! copies the bytes, so that the two ends may use different arenas in different threads, and a test
//! reads the packet as it was sent and not a reused frame. The lock is taken once a batch.
//!
//! ```text
//!   near.transmit ─► │ slot │ slot │ ... │ ─► far.receive
//!   near.receive  ◄─ │ ... │ slot │ slot │ ◄─ far.transmit
//!   near.punt     ─► │ slot │ ... │ ─► near.host().take()
//! ```
//!
//! A full ring accepts nothing: `transmit` leaves the rest with the caller, as a hardware transmit
//! ring does. The host's stack is a third ring, which a test empties through [`PuntedPackets`].

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::{Arena, Frame, LONG_FRAME, Port, PortStats};

/// Default number of slots of a ring.
const SLOTS: usize = 1024;

/// Size of a slot: that of the largest frame.
const SLOT: usize = LONG_FRAME as usize;

/// A bounded queue of packets, copied in and out.
#[derive(Debug)]
struct Ring {
    /// `lengths.len()` slots of [`SLOT`] bytes.
    bytes: Vec<u8>,
    lengths: Vec<usize>,
    /// Total packets taken and put; their difference is in the ring.
    taken: usize,
    put: usize,
}

impl Ring {
    fn new(slots: usize) -> Self {
        let slots = slots.next_power_of_two();
        Self { bytes: vec![0; slots * SLOT], lengths: vec![0; slots], taken: 0, put: 0 }
    }

    fn len(&self) -> usize {
        self.put - self.taken
    }

    /// Appends a packet and returns whether there was a free slot.
    fn push(&mut self, packet: &[u8]) -> bool {
        if self.len() == self.lengths.len() || packet.len() > SLOT {
            return false;
        }
        let slot = self.put & (self.lengths.len() - 1);
        self.bytes[slot * SLOT..][..packet.len()].copy_from_slice(packet);
        self.lengths[slot] = packet.len();
        self.put += 1;
        true
    }

    /// Returns the oldest packet.
    fn first(&self) -> Option<&[u8]> {
        let slot = self.taken & (self.lengths.len() - 1);
        (self.len() > 0).then(|| &self.bytes[slot * SLOT..][..self.lengths[slot]])
    }

    /// Removes the oldest packet.
    fn pop(&mut self) {
        debug_assert!(self.len() > 0, "a packet is read before it is removed");
        self.taken += 1;
    }
}

/// A ring that two ends share.
#[derive(Clone, Debug)]
struct SharedRing(Arc<Mutex<Ring>>);

impl SharedRing {
    fn new(slots: usize) -> Self {
        Self(Arc::new(Mutex::new(Ring::new(slots))))
    }

    /// A ring is consistent after every step, so a panic of its other user does no harm.
    fn lock(&self) -> MutexGuard<'_, Ring> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One end of a cable in memory.
///
/// # Examples
///
/// See the [crate](crate#examples).
#[derive(Debug)]
pub struct MemoryPort {
    name: String,
    mac: [u8; 6],
    mtu: usize,
    incoming: SharedRing,
    outgoing: SharedRing,
    host: SharedRing,
    stats: PortStats,
}

impl MemoryPort {
    /// Creates the two ends of a cable, with rings of 1024 packets, the MACs `02:00:00:00:00:01`
    /// and `02:00:00:00:00:02` and an MTU of 1500.
    pub fn pair(first: &str, second: &str) -> (Self, Self) {
        Self::pair_with(first, second, SLOTS)
    }

    /// The same with room for `slots` packets each way, rounded up to a power
    /// of two.
    pub fn pair_with(first: &str, second: &str, slots: usize) -> (Self, Self) {
        let (there, back) = (SharedRing::new(slots), SharedRing::new(slots));
        let end = |name: &str, mac, incoming: &SharedRing, outgoing: &SharedRing| Self {
            name: name.to_owned(),
            mac: [2, 0, 0, 0, 0, mac],
            mtu: 1500,
            incoming: incoming.clone(),
            outgoing: outgoing.clone(),
            host: SharedRing::new(slots),
            stats: PortStats::default(),
        };
        (end(first, 1, &back, &there), end(second, 2, &there, &back))
    }

    /// Sets the port's hardware address.
    #[must_use]
    pub fn with_mac(self, mac: [u8; 6]) -> Self {
        Self { mac, ..self }
    }

    /// Sets the port's MTU, the largest IP packet in bytes.
    #[must_use]
    pub fn with_mtu(self, mtu: usize) -> Self {
        Self { mtu, ..self }
    }

    /// Sends a packet of a test to the other end, and returns whether there was room.
    pub fn send(&mut self, packet: &[u8]) -> bool {
        let sent = self.outgoing.lock().push(packet);
        if sent {
            self.stats.transmitted += 1;
            self.stats.transmitted_bytes += packet.len() as u64;
        }
        sent
    }

    /// Takes the oldest packet that the other end has sent, for a test to check.
    pub fn take(&mut self) -> Option<Vec<u8>> {
        let mut incoming = self.incoming.lock();
        let packet = incoming.first()?.to_vec();
        incoming.pop();
        self.stats.received += 1;
        self.stats.received_bytes += packet.len() as u64;
        Some(packet)
    }

    /// Returns the replacement of the host's stack, which has the punted packets.
    pub fn host(&self) -> PuntedPackets {
        PuntedPackets(self.host.clone())
    }
}

impl Port for MemoryPort {
    fn name(&self) -> &str {
        &self.name
    }

    fn mac(&self) -> [u8; 6] {
        self.mac
    }

    fn mtu(&self) -> usize {
        self.mtu
    }

    fn receive(&mut self, arena: &mut Arena, room: usize, out: &mut Vec<Frame>) -> usize {
        let mut incoming = self.incoming.lock();
        let mut received = 0;
        while received < room {
            let Some(packet) = incoming.first() else { break };
            if packet.len() > arena.room() {
                // Longer than a frame: lost, as on a real interface.
                incoming.pop();
                self.stats.rx_dropped += 1;
                continue;
            }
            // No free frame: the packet waits in the ring.
            let Some(frame) = arena.copy_in(packet) else { break };
            self.stats.received_bytes += packet.len() as u64;
            out.push(frame);
            incoming.pop();
            received += 1;
        }
        self.stats.received += received as u64;
        received
    }

    fn transmit(&mut self, arena: &mut Arena, frames: &mut Vec<Frame>) -> usize {
        let mut outgoing = self.outgoing.lock();
        let mut bytes = 0;
        let fit = frames
            .iter()
            .take_while(|frame| {
                let packet = arena.bytes(frame);
                let put = outgoing.push(packet);
                bytes += if put { packet.len() as u64 } else { 0 };
                put
            })
            .count();
        drop(outgoing);
        frames.drain(..fit).for_each(|frame| arena.free(frame));
        self.stats.transmitted += fit as u64;
        self.stats.transmitted_bytes += bytes;
        fit
    }

    fn punt(&mut self, arena: &Arena, frame: &Frame) -> bool {
        let taken = self.host.lock().push(arena.bytes(frame));
        self.stats.punted += u64::from(taken);
        taken
    }

    fn flush(&mut self, _arena: &mut Arena) {}

    fn stats(&self) -> PortStats {
        self.stats
    }

    fn mode(&self) -> &'static str {
        "memory"
    }
}

/// The replacement of the host's stack behind a [`MemoryPort`]: the punted packets, in order.
#[derive(Clone, Debug)]
pub struct PuntedPackets(SharedRing);

impl PuntedPackets {
    /// Takes the oldest punted packet.
    pub fn take(&self) -> Option<Vec<u8>> {
        let mut ring = self.0.lock();
        let packet = ring.first()?.to_vec();
        ring.pop();
        Some(packet)
    }

    /// Returns the number of waiting packets.
    pub fn waiting(&self) -> usize {
        self.0.lock().len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_cross_cable_in_order() {
        let mut arena = Arena::new(64, 4096).unwrap();
        let (mut far, mut near) = MemoryPort::pair("far", "near");
        let packets: Vec<Vec<u8>> = (0..60).map(|n| vec![n; usize::from(n) * 64]).collect();
        let mut frames: Vec<Frame> =
            packets.iter().map(|packet| arena.copy_in(packet).unwrap()).collect();
        assert_eq!(far.transmit(&mut arena, &mut frames), 60);
        assert_eq!(arena.available(), 64);
        assert_eq!(near.receive(&mut arena, 7, &mut frames), 7, "no more than the room");
        assert_eq!(near.receive(&mut arena, 100, &mut frames), 53);
        for (frame, packet) in frames.iter().zip(&packets) {
            assert_eq!(arena.bytes(frame), packet);
        }
        assert_eq!(near.stats().received_bytes, far.stats().transmitted_bytes);
        assert!(far.take().is_none(), "nothing comes back by itself");
    }

    #[test]
    fn full_ring_leaves_remaining_frames_with_caller() {
        let mut arena = Arena::new(64, 2048).unwrap();
        let (mut far, mut near) = MemoryPort::pair_with("far", "near", 16);
        let mut frames: Vec<Frame> = (0..20).map(|n| arena.copy_in(&[n]).unwrap()).collect();
        assert_eq!(far.transmit(&mut arena, &mut frames), 16);
        let left: Vec<u8> = frames.iter().map(|frame| arena.bytes(frame)[0]).collect();
        assert_eq!(left, [16, 17, 18, 19]);
        assert_eq!(near.take(), Some(vec![0]));
        assert_eq!(far.transmit(&mut arena, &mut frames), 1);
        assert_eq!(far.stats().transmitted, 17);
    }

    #[test]
    fn empty_arena_leaves_packets_in_ring() {
        let mut arena = Arena::new(4, 2048).unwrap();
        let (mut far, mut near) = MemoryPort::pair("far", "near");
        (0..10).for_each(|n| assert!(far.send(&[n; 60])));
        let mut frames = Vec::new();
        assert_eq!(near.receive(&mut arena, 10, &mut frames), 4);
        assert_eq!(near.receive(&mut arena, 10, &mut frames), 0);
        arena.free(frames.remove(0));
        assert_eq!(near.receive(&mut arena, 10, &mut frames), 1);
        assert_eq!(arena.bytes(&frames[3]), [4; 60]);
    }

    #[test]
    fn packet_longer_than_frame_is_dropped_and_counted() {
        let mut arena = Arena::new(4, 2048).unwrap();
        let (mut far, mut near) = MemoryPort::pair("far", "near");
        assert!(!far.send(&[0; SLOT + 1]), "longer than any slot");
        assert!(far.send(&[0; 4000]) && far.send(&[1; 60]));
        let mut frames = Vec::new();
        assert_eq!(near.receive(&mut arena, 10, &mut frames), 1);
        assert_eq!(arena.bytes(&frames[0]), [1; 60]);
        assert_eq!((near.stats().rx_dropped, near.stats().received), (1, 1));
    }

    #[test]
    fn punted_packets_reach_the_host() {
        let mut arena = Arena::new(4, 2048).unwrap();
        let (_far, mut near) = MemoryPort::pair("far", "near");
        let host = near.host();
        let frame = arena.copy_in(&[5; 20]).unwrap();
        assert!(near.punt(&arena, &frame));
        arena.free(frame);
        assert_eq!((host.waiting(), near.stats().punted, arena.available()), (1, 1, 4));
        assert_eq!(host.take(), Some(vec![5; 20]));
        assert_eq!(host.take(), None);
    }
}
