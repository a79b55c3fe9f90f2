//! The handover: packets from one worker to another, when their flow is the other's.
//!
//! A card brings a packet to a queue, and a queue is one worker's. Where a worker has to see
//! all packets of a pair of addresses and the card spreads by something else, or cannot be told
//! what by, the worker that got the packet hands it on: what Linux does as Receive Packet
//! Steering, between CPUs.
//!
//! ```text
//!   queue 0 ─► worker 0 ─── HandoverSender ─► │ bytes │ ─► HandoverPort, a port of ─► worker 1
//!   queue 1 ─► worker 1 ─── HandoverSender ─► │ bytes │ ─► HandoverPort, a port of ─► worker 0
//! ```
//!
//! From each worker to each other goes a ring of bytes (`ring.rs`) with one end each, so that
//! nobody waits for anybody. A packet is copied in and out, because arenas are a worker's own. A
//! ring without room refuses, and who gave decides what becomes of the packet. A number goes with
//! it, so that what the sender has found out is not found out again. The receiving end
//! is a [`Port`] like any other, that nothing can be sent by; who sleeps on its descriptor is
//! woken by a wakeup (`wakeup.rs`).
//!
//! Packets of one flow that came by one queue stay in order.

mod ring;
mod wakeup;

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use crate::{Arena, Frame, Port, PortStats};
use ring::{PopResult, Reader, Writer, ring};
use wakeup::Wakeup;

/// Bytes of a ring where nothing else is said: some thousand packets of usual length, or 689 of
/// 1514 bytes.
pub const RING_BYTES: usize = 1 << 20;

/// A worker's ends towards the others.
#[derive(Debug)]
pub struct HandoverSender {
    /// By the number of the worker; `None` for its own.
    to: Vec<Option<(Writer, Arc<Wakeup>)>>,
    /// Which of them were given something since the last ring.
    given: Vec<bool>,
}

impl HandoverSender {
    /// Gives a copy of a packet to another worker, and says whether there was room. What was
    /// given is seen at once by a worker that is awake; [`wake_receivers`](Self::wake_receivers) wakes the others.
    ///
    /// With it goes a number of the sender's, for whoever takes it: [`Frame::mark`].
    ///
    /// There is never room with itself, with a worker that there is none of, and with one that
    /// has ended.
    #[inline]
    pub fn send(&mut self, worker: usize, mark: u32, packet: &[u8]) -> bool {
        let Some(Some((writer, _))) = self.to.get_mut(worker) else { return false };
        let given = writer.push(mark, packet);
        self.given[worker] |= given;
        given
    }

    /// Wakes those who were given something and sleep: to be called once a batch.
    #[inline]
    pub fn wake_receivers(&mut self) {
        for (given, to) in self.given.iter_mut().zip(&self.to) {
            if std::mem::take(given)
                && let Some((_, wakeup)) = to
            {
                wakeup.wake();
            }
        }
    }
}

/// The port by which a worker receives what others give to it.
#[derive(Debug)]
pub struct HandoverPort {
    mac: [u8; 6],
    mtu: usize,
    from: Vec<Reader>,
    /// Who is asked first, in turns, so that nobody's packets wait for ever.
    first: usize,
    wakeup: Arc<Wakeup>,
    stats: PortStats,
}

impl HandoverPort {
    /// Gives the port the address and the MTU of the one that its packets came by.
    #[must_use]
    pub fn with_link(self, mac: [u8; 6], mtu: usize) -> Self {
        Self { mac, mtu, ..self }
    }
}

/// Makes the ends for so many workers, with rings of at least so many bytes: each worker's
/// own, in their order.
///
/// # Errors
///
/// The system's, which has no descriptor left.
///
/// # Examples
///
/// ```
/// use fingerpost_port::{Arena, Port, handover};
///
/// let mut ends = handover::channels(2, handover::RING_BYTES)?.into_iter();
/// let (Some((mut sender, _)), Some((_, mut handed))) = (ends.next(), ends.next()) else { panic!() };
/// assert!(sender.send(1, 9, &[7; 60]));
/// sender.wake_receivers();
///
/// let mut arena = Arena::new(16, 2048)?;
/// let mut frames = Vec::with_capacity(32);
/// assert_eq!(handed.receive(&mut arena, 32, &mut frames), 1);
/// assert_eq!((arena.bytes(&frames[0]), frames[0].mark()), (&[7; 60][..], 9));
/// # arena.free(frames.pop().expect("one was received"));
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn channels(workers: usize, bytes: usize) -> io::Result<Vec<(HandoverSender, HandoverPort)>> {
    let wakeups: Vec<Arc<Wakeup>> =
        (0..workers).map(|_| Wakeup::new().map(Arc::new)).collect::<io::Result<_>>()?;
    let mut senders: Vec<HandoverSender> = Vec::new();
    let mut readers: Vec<Vec<Reader>> = (0..workers).map(|_| Vec::new()).collect();
    for from in 0..workers {
        let mut to = Vec::new();
        for (at, (wakeup, readers)) in wakeups.iter().zip(&mut readers).enumerate() {
            to.push((at != from).then(|| {
                let (writer, reader) = ring(bytes);
                readers.push(reader);
                (writer, Arc::clone(wakeup))
            }));
        }
        senders.push(HandoverSender { to, given: vec![false; workers] });
    }
    let handed = readers.into_iter().zip(wakeups).map(|(from, wakeup)| HandoverPort {
        mac: [0; 6],
        mtu: 1500,
        from,
        first: 0,
        wakeup,
        stats: PortStats::default(),
    });
    Ok(senders.into_iter().zip(handed).collect())
}

impl Port for HandoverPort {
    fn name(&self) -> &'static str {
        "handed"
    }

    fn mac(&self) -> [u8; 6] {
        self.mac
    }

    fn mtu(&self) -> usize {
        self.mtu
    }

    fn receive(&mut self, arena: &mut Arena, room: usize, out: &mut Vec<Frame>) -> usize {
        self.wakeup.clear();
        let mut received = 0;
        self.first = (self.first + 1).checked_rem(self.from.len()).unwrap_or(0);
        let (before, from) = self.from.split_at_mut(self.first);
        for reader in from.iter_mut().chain(before) {
            while received < room {
                match reader.pop(arena) {
                    PopResult::Packet(frame) => {
                        self.stats.received_bytes += frame.len() as u64;
                        out.push(frame);
                        received += 1;
                    }
                    PopResult::TooLong => self.stats.rx_dropped += 1,
                    PopResult::Empty => break,
                }
            }
        }
        self.stats.received += received as u64;
        received
    }

    /// Takes nothing: no way leads here.
    fn transmit(&mut self, _: &mut Arena, _: &mut Vec<Frame>) -> usize {
        0
    }

    fn punt(&mut self, arena: &mut Arena, frame: Frame) -> bool {
        arena.free(frame);
        false
    }

    fn flush(&mut self, _: &mut Arena) {}

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.wakeup.prepare_sleep(|| self.from.iter().any(Reader::has_any));
        Some(self.wakeup.as_fd())
    }

    fn stats(&self) -> PortStats {
        self.stats
    }

    fn mode(&self) -> &'static str {
        "handover"
    }
}

#[cfg(test)]
mod tests;
