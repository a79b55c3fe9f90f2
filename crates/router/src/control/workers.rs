//! Workers: one thread a core, polling until told to stop.
//!
//! ```text
//!   thread ── pin ──► poll ─► frames? ──yes──► poll …
//!                               │ no
//!                               └► some turns more ─► yield ─► sleep until
//!                                                              a packet waits
//! ```
//!
//! A worker that finds nothing asks again for some turns, then gives its core to
//! whoever waits, and after long silence sleeps: a router without traffic should
//! not heat the room, and where a core is shared with the interface's own work,
//! that work must not starve. A port with a descriptor wakes its worker; where
//! one has none, the sleep is a short one. Sleeping, a worker holds no table.
//! While packets wait for a neighbor every sleep is short. The counters of the ports are
//! copied out from time to time, between turns, and what they have lost is counted as dropped; the
//! worker's clock ticks from here, too.
//!
//! A worker that is told to stop first lets its ports take no more, and forwards what they
//! had taken: the kernel forwards from the next packet on.
//!
//! Pinning is part of starting: a core that is not there, or not allowed, is an
//! error before the first packet. So is giving up the rights that a worker, who reads
//! what strangers send, does not need.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::sync_channel;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sched::{CpuSet, sched_setaffinity};
use nix::unistd::Pid;
use port::PortStats;

use super::rights;
use crate::datapath::{Lookup, Remains, TICK, Worker};
use crate::stats::{Snapshot, WorkerStats};

/// Empty turns before the core is yielded, and before the worker sleeps.
const EAGER: u32 = 64;
const PATIENT: u32 = 4096;
/// A sleep without anything to wake from: at a million packets a second, 50 wait.
const NAP: Duration = Duration::from_micros(50);
/// A sleep until a packet comes, in milliseconds: how late a stop may be seen.
const SLEEP: u16 = 50;
/// The same while packets wait for a neighbor: how late they may leave.
const DOZE: u16 = 1;
/// How often the ports' counters are copied out.
const REPORT: Duration = Duration::from_millis(200);
/// How long ports that take no more are emptied at the most.
const LONGEST: Duration = Duration::from_millis(250);
/// Turns between two looks at the clock.
const LOOK: u32 = 1024;

/// What a running worker shows: its counters and those of its ports.
#[derive(Debug)]
struct Shown {
    stats: Arc<WorkerStats>,
    ports: Mutex<Vec<PortStats>>,
}

/// The counters of running workers, for who is not to stop them.
#[derive(Clone, Debug, Default)]
pub struct WorkersView {
    shown: Vec<Arc<Shown>>,
}

impl WorkersView {
    /// Returns the counters of each worker.
    pub fn snapshots(&self) -> Vec<Snapshot> {
        self.shown.iter().map(|shown| shown.stats.snapshot()).collect()
    }
}

/// The running workers. Dropping them stops them.
#[derive(Debug)]
pub struct Workers {
    stop: Arc<AtomicBool>,
    /// They stop so that others replace them.
    suspends: Arc<AtomicBool>,
    view: WorkersView,
    threads: Vec<JoinHandle<Remains>>,
}

impl Workers {
    /// Starts a thread for each worker, pinned to its core where it has one.
    ///
    /// # Errors
    ///
    /// What the system says of the thread or the core; those that were started are
    /// stopped again.
    pub fn start<L: Lookup + 'static>(
        workers: Vec<(Worker<L>, Option<usize>)>,
    ) -> io::Result<Self> {
        let mut all = Self {
            stop: Arc::new(AtomicBool::new(false)),
            suspends: Arc::new(AtomicBool::new(false)),
            view: WorkersView::default(),
            threads: Vec::new(),
        };
        for (number, (worker, core)) in workers.into_iter().enumerate() {
            let ports = Mutex::new(worker.ports().map(|port| port.stats()).collect());
            let shown = Arc::new(Shown { stats: Arc::clone(worker.stats()), ports });
            let (tell, told) = sync_channel(1);
            let (stop, mine) = (Arc::clone(&all.stop), Arc::clone(&shown));
            let suspends = Arc::clone(&all.suspends);
            let thread = Builder::new().name(format!("worker-{number}")).spawn(move || {
                let pinned = core.map_or(Ok(()), pin).and_then(|()| rights::keep(&rights::WORKER));
                let go = pinned.is_ok();
                // The starter waits for this and for nothing after it.
                let _ = tell.send(pinned);
                if !go {
                    return Remains::default();
                }
                run(worker, &stop, &suspends, &mine)
            })?;
            all.threads.push(thread);
            all.view.shown.push(shown);
            told.recv().unwrap_or_else(|_| Err(io::Error::other("the worker's thread died")))?;
        }
        Ok(all)
    }

    /// Returns a view of the counters.
    pub fn view(&self) -> &WorkersView {
        &self.view
    }

    /// Returns the counters of each worker's ports, at most some hundred
    /// milliseconds old, and exact once the workers have stopped.
    pub fn port_stats(&self) -> Vec<Vec<PortStats>> {
        let read =
            |shown: &Arc<Shown>| shown.ports.lock().unwrap_or_else(PoisonError::into_inner).clone();
        self.view.shown.iter().map(read).collect()
    }

    /// Says whether every worker is at work; a thread that has died is a bug.
    pub fn alive(&self) -> bool {
        self.threads.iter().all(|thread| !thread.is_finished())
    }

    /// Stops all workers at the end of their turns and waits for them: their ports
    /// are closed when this returns. Says whether all ended as they should.
    pub fn stop(&mut self) -> bool {
        self.end().0
    }

    /// Stops all workers as [`stop`](Self::stop) does, so that others replace them, and returns the
    /// remains of each: none of one that has died.
    pub fn suspend(&mut self) -> Vec<Remains> {
        self.suspends.store(true, Ordering::Relaxed);
        self.end().1
    }

    fn end(&mut self) -> (bool, Vec<Remains>) {
        self.stop.store(true, Ordering::Relaxed);
        // Every one is waited for, whatever another's end was.
        let ends: Vec<_> = self.threads.drain(..).map(JoinHandle::join).collect();
        let well = ends.iter().all(Result::is_ok);
        (well, ends.into_iter().map(Result::unwrap_or_default).collect())
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        self.stop();
    }
}

fn pin(core: usize) -> io::Result<()> {
    let mut cpus = CpuSet::new();
    let set = cpus.set(core).and_then(|()| sched_setaffinity(Pid::from_raw(0), &cpus));
    set.map_err(|error| {
        let what = format!("a worker cannot be pinned to core {core}: {}", error.desc());
        io::Error::new(io::Error::from(error).kind(), what)
    })
}

fn run<L: Lookup>(
    mut worker: Worker<L>,
    stop: &AtomicBool,
    suspends: &AtomicBool,
    shown: &Shown,
) -> Remains {
    let mut empty = 0;
    let mut turns = 0u32;
    let mut reported = Instant::now();
    let mut ticked = reported;
    let mut ports = Vec::new();
    while !stop.load(Ordering::Relaxed) {
        if worker.poll() > 0 {
            empty = 0;
        } else {
            empty = u32::min(empty + 1, PATIENT);
            match empty {
                PATIENT => sleep(&worker),
                EAGER.. => std::thread::yield_now(),
                _ => std::hint::spin_loop(),
            }
        }
        turns = turns.wrapping_add(1);
        if turns.is_multiple_of(LOOK) || empty == PATIENT {
            let now = Instant::now();
            if now - ticked >= TICK {
                worker.tick();
                ticked = now;
            }
            if now - reported >= REPORT {
                report(&mut worker, &mut ports, shown);
                reported = now;
            }
        }
    }
    drain(&mut worker);
    if suspends.load(Ordering::Relaxed) {
        report(&mut worker, &mut ports, shown);
        return worker.suspend();
    }
    worker.close();
    report(&mut worker, &mut ports, shown);
    Remains::default()
}

/// Forwards what the ports have taken, and lets them take no more: what comes after it is
/// the kernel's, and no packet is lost between the two.
fn drain<L: Lookup>(worker: &mut Worker<L>) {
    // Ports of memory end when they like.
    if worker.ports().all(|port| port.descriptor().is_none()) {
        return;
    }
    worker.retire();
    let begin = Instant::now();
    // Beside, because the queues fill up meanwhile.
    let settling = Builder::new().name("settle".into()).spawn(port::af_xdp::settle);
    let settled = || settling.as_ref().map_or(true, JoinHandle::is_finished);
    loop {
        let over = settled();
        if (worker.poll() == 0 && over) || begin.elapsed() > LONGEST {
            break;
        }
    }
}

/// Sleeps until a port has a packet, or for a moment.
fn sleep<L: Lookup>(worker: &Worker<L>) {
    let waits = |descriptor| PollFd::new(descriptor, PollFlags::POLLIN);
    let each: Option<Vec<_>> = worker.ports().map(|port| port.descriptor().map(waits)).collect();
    match each {
        Some(mut each) if !each.is_empty() => {
            // Nothing is to be done about an error but to go on; should it come back
            // at once every time, this is a loop that polls.
            let timeout = if worker.is_busy() { DOZE } else { SLEEP };
            let _ = poll(&mut each, PollTimeout::from(timeout));
            // The socket of an interface that is gone is ready at once, and for ever.
            let gone = |descriptor: &PollFd<'_>| {
                descriptor.revents().is_some_and(|events| events == PollFlags::POLLERR)
            };
            if each.iter().any(gone) {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
        _ => std::thread::sleep(NAP),
    }
}

/// Counts what the ports have lost since the last time, and shows what they have counted.
fn report<L: Lookup>(worker: &mut Worker<L>, ports: &mut Vec<PortStats>, shown: &Shown) {
    worker.count_losses(ports);
    let mut shown = shown.ports.lock().unwrap_or_else(PoisonError::into_inner);
    shown.clone_from(ports);
}
