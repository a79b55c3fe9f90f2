//! The replay: a port that receives the same packets repeatedly.
//!
//! It measures the datapath, so it must cost almost nothing itself: `receive` copies the packets of
//! a preset [`Pool`] into free frames, in order and repeatedly; `transmit` frees the frames and
//! passes each packet to a [`Sink`]. The pool is one array that is read in order, which the CPU
//! prefetches at any size.
//!
//! ```text
//!   Pool  │ packet │ packet │ ... │ packet │
//!   ends        ▲        ▲              ▲
//! ```

use crate::{Arena, Frame, Port, PortStats};

/// Packets to replay, one behind the other in one array.
#[derive(Clone, Debug, Default)]
pub struct Pool {
    bytes: Vec<u8>,
    /// The end of each packet; it begins at the end of the previous one.
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

    /// Returns the number of packets.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Returns whether there are none.
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

/// A function that a [`Sink`] calls with each packet.
pub type Inspect = Box<dyn FnMut(&[u8]) + Send>;

/// The destination of a [`Replay`].
#[derive(Default)]
pub enum Sink {
    /// None; packets are only counted.
    #[default]
    Count,
    /// A function that is called with each packet.
    Each(Inspect),
}

impl std::fmt::Debug for Sink {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Count => "Count",
            Self::Each(_) => "Each(..)",
        })
    }
}

/// A port that receives the packets of a [`Pool`] repeatedly and sends to a [`Sink`].
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
    /// Creates a port that replays `pool` without end; with an empty pool it receives nothing.
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
            // A packet longer than a frame is truncated.
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

    fn punt(&mut self, _: &Arena, _: &Frame) -> bool {
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
    fn replay_repeats_pool_and_shows_sent_packets() {
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
