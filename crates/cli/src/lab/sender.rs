//! The attackers: one thread that sends the packets of an attack by AF_XDP, at a rate.
//!
//! The rate counts the bits of frames, as the token bucket of the protected link does. After a wait
//! for a core, the thread catches up on at most [`LAG`]; it counts the packets that it really sent.
//!
//! A flood from many machines arrives evenly. A flood in bursts would leave room in the queue of the
//! protected link between two bursts, and clients that send then would not notice the attack. So the
//! thread sends a few packets at a time, some hundred thousand times in ten seconds, with real-time
//! priority.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use port::af_xdp::{Interface, Locals, ModeChoice, RingSizes, Socket};
use port::{Arena, Frame, Port};
use threads::{Rights, Stop, Task};

use super::attack::{Attack, MAX_FRAME};
use super::topology::ATTACKER;
use crate::namespace::Namespace;
use crate::realtime::set_realtime_priority;

/// The most frames per system call.
const BATCH: usize = 64;
/// Slots of each ring.
const RING: u32 = 1024;
/// The largest delay that the sender catches up with.
const LAG: Duration = Duration::from_millis(20);

/// The sleep of the thread while no packet is due; precise for a real-time thread.
const PAUSE: Duration = Duration::from_micros(20);

/// Counters of sent packets.
#[derive(Debug, Default)]
struct Sent {
    packets: AtomicU64,
    bytes: AtomicU64,
}

/// A running attack; it ends when dropped.
#[derive(Debug)]
pub(super) struct Sender {
    sent: Arc<Sent>,
    begin: Instant,
    thread: Task<Result<()>>,
}

/// The rate of an attack, as sent.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize)]
pub(super) struct Offered {
    /// Packets per second.
    pub(super) packets_per_second: f64,
    /// Bits of their frames per second.
    pub(super) bits_per_second: f64,
}

impl Sender {
    /// Starts to send.
    pub(super) fn start(namespace: &Namespace, attack: &Arc<Attack>, bits: u64) -> Result<Self> {
        let sent = Arc::new(Sent::default());
        let (count, attack) = (Arc::clone(&sent), Arc::clone(attack));
        let thread = namespace.run(move || {
            let sizes = RingSizes::all(RING);
            let mut arena = Arena::new(sizes.frames() + BATCH as u32, 2048)?;
            let interface = Interface::open(ATTACKER, 1, &Locals::default(), ModeChoice::Auto)?;
            let port = Socket::bind(&interface, 0, &mut arena, sizes)?;
            let run = move |stop: &Stop| send(arena, port, &attack, bits, &count, stop);
            Ok(Task::start("attack", Rights::Inherited, run)?)
        })?;
        Ok(Self { sent, begin: Instant::now(), thread })
    }

    /// Ends it and returns its rate.
    pub(super) fn end(self) -> Result<Offered> {
        let seconds = self.begin.elapsed().as_secs_f64();
        let rate = |count: &AtomicU64| count.load(Ordering::Relaxed) as f64 / seconds;
        let packets_per_second = rate(&self.sent.packets);
        let bits_per_second = rate(&self.sent.bytes) * 8.0;
        self.thread.stop().context("the attackers")??;
        Ok(Offered { packets_per_second, bits_per_second })
    }
}

fn send(
    mut arena: Arena,
    mut port: Socket,
    attack: &Attack,
    bits: u64,
    sent: &Sent,
    stop: &Stop,
) -> Result<()> {
    let nanoseconds = |bytes: u64| Duration::from_nanos(bytes * 8_000_000_000 / bits.max(1));
    let mut frames: Vec<Frame> = Vec::with_capacity(BATCH);
    let mut number = 0;
    set_realtime_priority(nix::unistd::gettid())?;
    let mut due = Instant::now();
    while !stop.is_set() {
        let now = Instant::now();
        if due > now {
            thread::sleep(PAUSE);
            continue;
        }
        due = due.max(now - LAG);
        let mut bytes = 0;
        while frames.len() < BATCH && due <= now {
            let Some(mut frame) = arena.alloc() else { break };
            arena.resize(&mut frame, MAX_FRAME);
            let length = attack.write(number, arena.bytes_mut(&frame))?;
            arena.resize(&mut frame, length);
            number += 1;
            bytes += length as u64;
            due += nanoseconds(length as u64);
            frames.push(frame);
        }
        let before = frames.len();
        port.transmit(&mut arena, &mut frames);
        // Frames that the full ring did not take are dropped and not counted.
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
