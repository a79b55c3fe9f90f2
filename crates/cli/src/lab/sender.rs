//! The attackers: one thread that sends an attack's packets by AF_XDP, at a rate.
//!
//! The rate is of bits of frames, as the protected link's token bucket counts them. What the
//! thread could not send in time because it had to wait for a core is made up for within
//! [`LAG`], and lost for good after that: what was really offered is counted.
//!
//! A flood of many machines comes evenly. One that comes in bursts leaves room in the protected
//! link's queue between them, and whoever sends then gets through as if nobody attacked. So the
//! thread sends a few packets at a time, some hundred thousand times in ten seconds, and goes
//! before all others that want its core.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow};
use port::af_xdp::{Interface, Locals, ModeChoice, RingSizes, Socket};
use port::{Arena, Frame, Port};

use super::attack::{Attack, LONGEST};
use super::topology::ATTACKER;
use crate::namespace::Namespace;
use crate::realtime::set_realtime_priority;

/// Frames at a time.
const BATCH: usize = 64;
/// Slots of each ring.
const RING: u32 = 1024;
/// How much later than it was due a packet is still sent.
const LAG: Duration = Duration::from_millis(20);

/// How long the thread sleeps when nothing is due: real-time threads do so to the microsecond.
const PAUSE: Duration = Duration::from_micros(20);

/// What was sent so far.
#[derive(Debug, Default)]
struct Sent {
    packets: AtomicU64,
    bytes: AtomicU64,
}

/// An attack at work; it ends when dropped.
#[derive(Debug)]
pub(super) struct Sender {
    sent: Arc<Sent>,
    over: Arc<AtomicBool>,
    begin: Instant,
    thread: Option<JoinHandle<Result<()>>>,
}

/// What an attack came to.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize)]
pub(super) struct Offered {
    /// Packets a second.
    pub(super) packets_a_second: f64,
    /// Bits of their frames a second.
    pub(super) bits_a_second: f64,
}

impl Sender {
    /// Begins to send.
    pub(super) fn start(namespace: &Namespace, attack: &Arc<Attack>, bits: u64) -> Result<Self> {
        let (sent, over) = (Arc::new(Sent::default()), Arc::new(AtomicBool::new(false)));
        let (count, stop, attack) = (Arc::clone(&sent), Arc::clone(&over), Arc::clone(attack));
        let thread = namespace.run(move || {
            let sizes = RingSizes::all(RING);
            let mut arena = Arena::new(sizes.frames() + BATCH as u32, 2048)?;
            let interface = Interface::open(ATTACKER, 1, &Locals::default(), ModeChoice::Auto)?;
            let port = Socket::bind(&interface, 0, &mut arena, sizes)?;
            let body = move || send(arena, port, &attack, bits, &count, &stop);
            Ok(thread::Builder::new().name("attack".into()).spawn(body)?)
        })?;
        Ok(Self { sent, over, begin: Instant::now(), thread: Some(thread) })
    }

    /// Ends it and returns what it came to.
    pub(super) fn end(mut self) -> Result<Offered> {
        let seconds = self.begin.elapsed().as_secs_f64();
        let each = |count: &AtomicU64| count.load(Ordering::Relaxed) as f64 / seconds;
        let packets_a_second = each(&self.sent.packets);
        let bits_a_second = each(&self.sent.bytes) * 8.0;
        self.over.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.join().map_err(|_| anyhow!("the attackers' thread died"))??;
        }
        Ok(Offered { packets_a_second, bits_a_second })
    }
}

impl Drop for Sender {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        // Whoever wanted to know has called `end`.
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

fn send(
    mut arena: Arena,
    mut port: Socket,
    attack: &Attack,
    bits: u64,
    sent: &Sent,
    over: &AtomicBool,
) -> Result<()> {
    let nanoseconds = |bytes: u64| Duration::from_nanos(bytes * 8_000_000_000 / bits.max(1));
    let mut frames: Vec<Frame> = Vec::with_capacity(BATCH);
    let mut number = 0;
    set_realtime_priority(nix::unistd::gettid())?;
    let mut due = Instant::now();
    while !over.load(Ordering::Relaxed) {
        let now = Instant::now();
        if due > now {
            thread::sleep(PAUSE);
            continue;
        }
        due = due.max(now - LAG);
        let mut bytes = 0;
        while frames.len() < BATCH && due <= now {
            let Some(mut frame) = arena.alloc() else { break };
            arena.resize(&mut frame, LONGEST);
            let length = attack.write(number, arena.bytes_mut(&frame))?;
            arena.resize(&mut frame, length);
            number += 1;
            bytes += length as u64;
            due += nanoseconds(length as u64);
            frames.push(frame);
        }
        let before = frames.len();
        port.transmit(&mut arena, &mut frames);
        // What found no place in the ring is not sent at all, and not counted.
        let mut left = 0;
        for frame in frames.drain(..) {
            left += 1;
            bytes -= frame.len() as u64;
            arena.free(frame);
        }
        port.flush(&mut arena);
        sent.packets.fetch_add((before - left) as u64, Ordering::Relaxed);
        sent.bytes.fetch_add(bytes, Ordering::Relaxed);
    }
    Ok(())
}
