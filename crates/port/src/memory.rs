//! Ports in memory: a pair joined by two rings, and a generator that replays.
//!
//! **[`MemoryPort`]**: what one of a pair transmits the other receives, as
//! over a cable. Each direction is a ring of slots that copies the bytes, so
//! that the two ends may work on different arenas, in different threads, and
//! so that the packet a test looks at is the one that was sent and not a frame
//! that has been reused since. The lock is taken once a batch.
//!
//! ```text
//!   near.transmit ─► │ slot │ slot │ ... │ ─► far.receive
//!   near.receive  ◄─ │ ... │ slot │ slot │ ◄─ far.transmit
//!   near.punt     ─► │ slot │ ... │ ─► near.host().take()
//! ```
//!
//! A full ring refuses: `transmit` leaves the rest with the caller, as a
//! transmit ring of hardware does. The router's own stack is a third ring,
//! which a test empties through [`Host`].
//!
//! **[`Replay`]**: for measuring the datapath, so it must cost next to
//! nothing itself: `receive` copies the packets of a preset [`Pool`] into free
//! frames, one after the other and round again, `transmit` gives the frames
//! back and shows each packet to a [`Sink`]. The pool is one array read in
//! order, which the CPU prefetches however large it is.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::{Arena, Frame, Port, PortStats};

/// Slots of a ring where nothing else is said.
const SLOTS: usize = 1024;

/// Bytes of a slot: as many as fit in the largest frame.
const SLOT: usize = 4096;

/// A bounded queue of packets, copied in and out.
#[derive(Debug)]
struct Ring {
    /// `lengths.len()` slots of [`SLOT`] bytes.
    bytes: Vec<u8>,
    lengths: Vec<usize>,
    /// Packets ever taken and ever put; their difference is in the ring.
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

    /// Appends a packet and says whether there was a slot.
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

    /// Takes the oldest packet away.
    fn pop(&mut self) {
        debug_assert!(self.len() > 0, "a packet is looked at before it is taken away");
        self.taken += 1;
    }
}

/// A ring that two ends share.
#[derive(Clone, Debug)]
struct Wire(Arc<Mutex<Ring>>);

impl Wire {
    fn new(slots: usize) -> Self {
        Self(Arc::new(Mutex::new(Ring::new(slots))))
    }

    /// A ring is whole after every step, so one whose other user panicked is
    /// as good as any.
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
    incoming: Wire,
    outgoing: Wire,
    host: Wire,
    stats: PortStats,
}

impl MemoryPort {
    /// Makes the two ends of a cable, with rings of 1024 packets, the MACs
    /// `02:00:00:00:00:01` and `02:00:00:00:00:02` and an MTU of 1500.
    pub fn pair(first: &str, second: &str) -> (Self, Self) {
        Self::pair_with(first, second, SLOTS)
    }

    /// The same with room for `slots` packets each way, rounded up to a power
    /// of two.
    pub fn pair_with(first: &str, second: &str, slots: usize) -> (Self, Self) {
        let (there, back) = (Wire::new(slots), Wire::new(slots));
        let end = |name: &str, mac, incoming: &Wire, outgoing: &Wire| Self {
            name: name.to_owned(),
            mac: [2, 0, 0, 0, 0, mac],
            mtu: 1500,
            incoming: incoming.clone(),
            outgoing: outgoing.clone(),
            host: Wire::new(slots),
            stats: PortStats::default(),
        };
        (end(first, 1, &back, &there), end(second, 2, &there, &back))
    }

    /// Gives the port another hardware address.
    #[must_use]
    pub fn with_mac(self, mac: [u8; 6]) -> Self {
        Self { mac, ..self }
    }

    /// Gives the port another MTU, in bytes of IP packet.
    #[must_use]
    pub fn with_mtu(self, mtu: usize) -> Self {
        Self { mtu, ..self }
    }

    /// Puts a packet where the other end will receive it, and says whether
    /// there was room: what a test sends by hand.
    pub fn send(&mut self, packet: &[u8]) -> bool {
        let sent = self.outgoing.lock().push(packet);
        if sent {
            self.stats.transmitted += 1;
            self.stats.transmitted_bytes += packet.len() as u64;
        }
        sent
    }

    /// Takes the oldest packet that the other end has sent: what a test looks
    /// at.
    pub fn take(&mut self) -> Option<Vec<u8>> {
        let mut incoming = self.incoming.lock();
        let packet = incoming.first()?.to_vec();
        incoming.pop();
        self.stats.received += 1;
        self.stats.received_bytes += packet.len() as u64;
        Some(packet)
    }

    /// Returns the stand-in of the host's stack, where punted packets are.
    pub fn host(&self) -> Host {
        Host(self.host.clone())
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
                // Longer than any frame here: lost, as on a real interface.
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

    fn punt(&mut self, arena: &mut Arena, frame: Frame) -> bool {
        let taken = self.host.lock().push(arena.bytes(&frame));
        arena.free(frame);
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

/// The stand-in of the host's stack behind a [`MemoryPort`]: the packets that
/// were punted, in order.
#[derive(Clone, Debug)]
pub struct Host(Wire);

impl Host {
    /// Takes the oldest punted packet.
    pub fn take(&self) -> Option<Vec<u8>> {
        let mut ring = self.0.lock();
        let packet = ring.first()?.to_vec();
        ring.pop();
        Some(packet)
    }

    /// Returns how many are waiting.
    pub fn waiting(&self) -> usize {
        self.0.lock().len()
    }
}

/// Packets to replay, one behind the other in one array.
#[derive(Clone, Debug, Default)]
pub struct Pool {
    bytes: Vec<u8>,
    /// Where each packet ends; it begins where the one before it ends.
    ends: Vec<usize>,
}

impl Pool {
    /// Makes an empty pool.
    pub fn new() -> Self {
        Self::default()
    }

    /// Appends a packet.
    pub fn push(&mut self, packet: &[u8]) {
        self.bytes.extend_from_slice(packet);
        self.ends.push(self.bytes.len());
    }

    /// Returns the packets in order.
    pub fn iter(&self) -> impl Iterator<Item = &[u8]> {
        let begins = std::iter::once(0).chain(self.ends.iter().copied());
        begins.zip(&self.ends).map(|(begin, &end)| &self.bytes[begin..end])
    }

    /// Returns how many packets there are.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Says whether there are none.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }
}

impl<T: AsRef<[u8]>> FromIterator<T> for Pool {
    fn from_iter<I: IntoIterator<Item = T>>(packets: I) -> Self {
        let mut pool = Self::new();
        packets.into_iter().for_each(|packet| pool.push(packet.as_ref()));
        pool
    }
}

/// A function that a [`Sink`] shows each packet to.
pub type Look = Box<dyn FnMut(&[u8]) + Send>;

/// Where a [`Replay`] sends to.
#[derive(Default)]
pub enum Sink {
    /// Nowhere; packets are only counted.
    #[default]
    Count,
    /// To a function that looks at each.
    Each(Look),
}

impl std::fmt::Debug for Sink {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Count => "Count",
            Self::Each(_) => "Each(..)",
        })
    }
}

/// A port that receives the packets of a [`Pool`] over and over and sends to a
/// [`Sink`].
///
/// # Examples
///
/// ```
/// use fingerpost_port::memory::{Pool, Replay, Sink};
/// use fingerpost_port::{Arena, Port};
///
/// let mut arena = Arena::new(256, 2048)?;
/// let pool: Pool = [[1_u8; 64], [2; 64]].into_iter().collect();
/// let mut port = Replay::new("gen", pool, Sink::Count).with_limit(3);
///
/// let mut frames = Vec::with_capacity(64);
/// assert_eq!(port.receive(&mut arena, 64, &mut frames), 3);
/// assert_eq!(arena.bytes(&frames[2]), [1; 64]);
/// assert_eq!(port.transmit(&mut arena, &mut frames), 3);
/// assert_eq!(arena.available(), 256);
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug)]
pub struct Replay {
    name: String,
    mac: [u8; 6],
    mtu: usize,
    pool: Pool,
    /// The next packet, and where it begins.
    next: usize,
    begin: usize,
    left: u64,
    sink: Sink,
    stats: PortStats,
}

impl Replay {
    /// Makes a port that replays `pool` without end. An empty pool receives
    /// nothing.
    pub fn new(name: &str, pool: Pool, sink: Sink) -> Self {
        Self {
            name: name.to_owned(),
            mac: [2, 0, 0, 0, 0, 1],
            mtu: 1500,
            pool,
            next: 0,
            begin: 0,
            left: u64::MAX,
            sink,
            stats: PortStats::default(),
        }
    }

    /// Ends the replay after `packets` packets.
    #[must_use]
    pub fn with_limit(self, packets: u64) -> Self {
        Self { left: packets, ..self }
    }

    /// Gives the port another hardware address.
    #[must_use]
    pub fn with_mac(self, mac: [u8; 6]) -> Self {
        Self { mac, ..self }
    }

    /// Gives the port another MTU, in bytes of IP packet.
    #[must_use]
    pub fn with_mtu(self, mtu: usize) -> Self {
        Self { mtu, ..self }
    }
}

impl Port for Replay {
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
        if self.pool.is_empty() {
            return 0;
        }
        let wanted = (room as u64).min(self.left) as usize;
        let room = arena.room();
        let mut received = 0;
        while received < wanted {
            let end = self.pool.ends[self.next];
            let packet = &self.pool.bytes[self.begin..end];
            // A packet longer than any frame is cut to it.
            let packet = &packet[..packet.len().min(room)];
            let Some(frame) = arena.copy_in(packet) else { break };
            self.stats.received_bytes += packet.len() as u64;
            out.push(frame);
            received += 1;
            (self.next, self.begin) =
                if self.next + 1 == self.pool.len() { (0, 0) } else { (self.next + 1, end) };
        }
        self.left -= received as u64;
        self.stats.received += received as u64;
        received
    }

    fn transmit(&mut self, arena: &mut Arena, frames: &mut Vec<Frame>) -> usize {
        let count = frames.len();
        for frame in frames.drain(..) {
            self.stats.transmitted_bytes += frame.len() as u64;
            if let Sink::Each(look) = &mut self.sink {
                look(arena.bytes(&frame));
            }
            arena.free(frame);
        }
        self.stats.transmitted += count as u64;
        count
    }

    fn punt(&mut self, arena: &mut Arena, frame: Frame) -> bool {
        arena.free(frame);
        self.stats.punted += 1;
        true
    }

    fn flush(&mut self, _arena: &mut Arena) {}

    fn stats(&self) -> PortStats {
        self.stats
    }

    fn mode(&self) -> &'static str {
        "replay"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_cross_in_order_and_whole() {
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
    fn a_full_ring_refuses_and_the_rest_stays() {
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
    fn a_dry_arena_leaves_packets_in_the_ring() {
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
    fn what_fits_no_frame_is_lost_and_counted() {
        let mut arena = Arena::new(4, 2048).unwrap();
        let (mut far, mut near) = MemoryPort::pair("far", "near");
        assert!(!far.send(&[0; 4097]), "longer than any slot");
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
        assert!(near.punt(&mut arena, frame));
        assert_eq!((host.waiting(), near.stats().punted, arena.available()), (1, 1, 4));
        assert_eq!(host.take(), Some(vec![5; 20]));
        assert_eq!(host.take(), None);
    }

    #[test]
    fn a_replay_goes_round_and_shows_what_it_is_sent() {
        let mut arena = Arena::new(8, 2048).unwrap();
        let pool: Pool = [&[1_u8; 60][..], &[2; 90], &[3; 61]].into_iter().collect();
        assert_eq!(pool.iter().map(<[u8]>::len).collect::<Vec<_>>(), [60, 90, 61]);
        let (sent, seen) = std::sync::mpsc::channel();
        let look = move |packet: &[u8]| sent.send(packet[0]).expect("the test listens");
        let mut port = Replay::new("gen", pool, Sink::Each(Box::new(look))).with_limit(20);
        let mut frames = Vec::new();
        let mut turns = 0;
        while port.receive(&mut arena, 16, &mut frames) > 0 {
            assert!(frames.len() <= 8);
            port.transmit(&mut arena, &mut frames);
            turns += 1;
        }
        assert_eq!(turns, 3, "eight frames at a time, then four");
        let seen: Vec<u8> = seen.try_iter().collect();
        assert!(seen.into_iter().eq([1, 2, 3].into_iter().cycle().take(20)));
        let stats = port.stats();
        assert_eq!((stats.received, stats.transmitted), (20, 20));
        assert_eq!(stats.received_bytes, stats.transmitted_bytes);
        let mut empty = Replay::new("gen", Pool::new(), Sink::Count);
        assert_eq!(empty.receive(&mut arena, 16, &mut frames), 0);
    }
}
