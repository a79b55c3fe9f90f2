//! The handover: passes packets to the worker that their flow belongs to.
//!
//! A network card delivers a packet to a queue, and each queue belongs to one worker. If one worker
//! has to see all packets of a pair of addresses, and the card spreads packets by other fields or
//! cannot be configured, the worker that received the packet passes it on. Linux does the same
//! between CPUs: Receive Packet Steering.
//!
//! ```text
//!   queue 0 ─► worker 0 ─── HandoverSender ─► │ bytes │ ─► HandoverPort, a port of ─► worker 1
//!   queue 1 ─► worker 1 ─── HandoverSender ─► │ bytes │ ─► HandoverPort, a port of ─► worker 0
//! ```
//!
//! A ring of bytes (`ring.rs`) with one writer and one reader leads from each worker to each other,
//! so that no worker waits for another. A packet is copied in and out, because each worker has its
//! own arena. A full ring rejects the packet, and the sender decides what to do with it. A number
//! accompanies the packet, so that the receiver need not repeat the sender's classification. The
//! receiving end is a [`Port`] that transmits nothing; a wakeup (`wakeup.rs`) wakes a worker that
//! sleeps on its descriptor.
//!
//! Packets of one flow from one queue stay in order.

mod ring;
mod wakeup;

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use crate::{Arena, Frame, Port, PortStats};
use ring::{PopResult, Reader, Writer, ring};
use wakeup::Wakeup;

/// Default size of a ring in bytes: some thousand packets of usual length, or 689 of 1514 bytes.
pub const RING_BYTES: usize = 1 << 20;

/// A worker's sending ends towards the other workers.
#[derive(Debug)]
pub struct HandoverSender {
    /// By worker number; `None` for its own.
    to: Vec<Option<(Writer, Arc<Wakeup>)>>,
    /// The workers that were sent packets since the last wakeup.
    sent: Vec<bool>,
}

impl HandoverSender {
    /// Sends a copy of a packet to another worker, and returns whether there was room. A worker
    /// that is awake receives it at once; [`wake_receivers`](Self::wake_receivers) wakes the
    /// others.
    ///
    /// The receiver gets the number `mark` with the packet: [`Frame::mark`].
    ///
    /// There is never room for the sender itself, for a worker that does not exist, and for one
    /// that has ended.
    #[inline]
    pub fn send(&mut self, worker: usize, mark: u32, packet: &[u8]) -> bool {
        let Some(Some((writer, _))) = self.to.get_mut(worker) else { return false };
        let pushed = writer.push(mark, packet);
        self.sent[worker] |= pushed;
        pushed
    }

    /// Wakes the sleeping workers that were sent packets; to be called once a batch.
    #[inline]
    pub fn wake_receivers(&mut self) {
        for (sent, to) in self.sent.iter_mut().zip(&self.to) {
            if std::mem::take(sent)
                && let Some((_, wakeup)) = to
            {
                wakeup.wake();
            }
        }
    }
}

/// The port by which a worker receives packets from the others.
#[derive(Debug)]
pub struct HandoverPort {
    mac: [u8; 6],
    mtu: usize,
    from: Vec<Reader>,
    /// The ring that is read first; it rotates, so that no ring's packets wait forever.
    first: usize,
    wakeup: Arc<Wakeup>,
    stats: PortStats,
}

impl HandoverPort {
    /// Sets the port's address and MTU to those of the port that received its packets.
    #[must_use]
    pub fn with_link(self, mac: [u8; 6], mtu: usize) -> Self {
        Self { mac, mtu, ..self }
    }
}

/// Creates the ends for `workers` workers, with rings of at least `bytes` bytes; returns each
/// worker's ends, in order.
///
/// # Errors
///
/// The system's error: no descriptor is left.
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
        senders.push(HandoverSender { to, sent: vec![false; workers] });
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

    /// Transmits nothing: this port only receives.
    fn transmit(&mut self, _: &mut Arena, _: &mut Vec<Frame>) -> usize {
        0
    }

    fn punt(&mut self, _: &Arena, _: &Frame) -> bool {
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
