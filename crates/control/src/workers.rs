//! Runs the workers: one thread a core, which polls until it is stopped.
//!
//! ```text
//!   thread ── pin ──► poll ─► frames? ──yes──► poll …
//!                               │ no
//!                               └► some turns more ─► yield ─► sleep until
//!                                                              a packet waits
//! ```
//!
//! A worker without packets polls again for some turns, then yields its core, and after
//! `SLEEP_AFTER` empty turns sleeps: a router without traffic should use little power, and where
//! a core is shared with the interface's softirq, that work must not starve. A port with a
//! descriptor wakes its worker; without one, the sleep is short. A sleeping worker holds no table.
//! While packets wait for a neighbor every sleep is short. Between turns the loop publishes the
//! counters of the ports, counts their losses as dropped, and advances the worker's clock.
//!
//! A worker that is stopped first lets its ports receive no more, and forwards the packets that
//! they had received: the kernel forwards from the next packet on.
//!
//! A turn that panics is a bug, and ends the worker: its ports are closed at once, so that the kernel receives the
//! packets of its queues (a gate's front interface drops them). The packets of that turn are counted as
//! `worker_panicked`, and the state of its hook is kept for the worker that replaces it.
//!
//! The start pins the thread and drops its capabilities, because a worker parses untrusted packets.
//! A core that does not exist or is not allowed is an error of the start.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::sync_channel;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sched::{CpuSet, sched_setaffinity};
use nix::unistd::Pid;
use port::PortStats;
use threads::Rights;

use datapath::stats::{Snapshot, WorkerStats};
use datapath::{Lookup, SuspendedState, TICK, Worker};

/// Empty turns after which the worker yields its core.
const YIELD_AFTER: u32 = 64;
/// Empty turns after which the worker sleeps.
const SLEEP_AFTER: u32 = 4096;
/// The sleep if a port has no descriptor: at a million packets a second, 50 arrive meanwhile.
const SLEEP_WITHOUT_WAKE: Duration = Duration::from_micros(50);
/// The longest sleep until a packet arrives, in milliseconds: it delays the end of the worker.
const SLEEP: u16 = 50;
/// The same while packets wait for a neighbor: it delays these packets.
const SLEEP_WHILE_HELD: u16 = 1;
/// The interval at which the ports' counters are published.
const REPORT: Duration = Duration::from_millis(200);
/// The longest time for emptying ports that receive no more.
const DRAIN_TIMEOUT: Duration = Duration::from_millis(250);
/// Turns between two reads of the clock.
const CLOCK_INTERVAL: u32 = 1024;

/// The published counters of a running worker and of its ports.
#[derive(Debug)]
struct PublishedCounters {
    stats: Arc<WorkerStats>,
    ports: Mutex<Vec<PortStats>>,
}

/// Read access to the counters of running workers.
#[derive(Clone, Debug, Default)]
pub struct WorkersView {
    workers: Vec<Arc<PublishedCounters>>,
}

impl WorkersView {
    /// Returns the counters of each worker.
    pub fn snapshots(&self) -> Vec<Snapshot> {
        self.workers.iter().map(|worker| worker.stats.snapshot()).collect()
    }
}

/// The end of a worker.
#[derive(Debug, Default)]
struct WorkerEnd {
    state: SuspendedState,
    panicked: bool,
}

/// The running workers. Dropping them stops them.
#[derive(Debug)]
pub struct Workers {
    stop: Arc<AtomicBool>,
    /// They stop in order to be replaced: their held packets are kept.
    suspends: Arc<AtomicBool>,
    view: WorkersView,
    threads: Vec<JoinHandle<WorkerEnd>>,
}

impl Workers {
    /// Starts a thread for each worker, pinned to its core where it has one.
    ///
    /// # Errors
    ///
    /// The system's error for the thread or the core; the workers started before are stopped.
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
            let counters = Arc::new(PublishedCounters { stats: Arc::clone(worker.stats()), ports });
            let (started, start) = sync_channel(1);
            let (stop, published) = (Arc::clone(&all.stop), Arc::clone(&counters));
            let suspends = Arc::clone(&all.suspends);
            let thread = Builder::new().name(format!("worker-{number}")).spawn(move || {
                let pinned = core.map_or(Ok(()), pin).and_then(|()| Rights::Worker.keep());
                let is_pinned = pinned.is_ok();
                // The starting thread waits for this result.
                let _ = started.send(pinned);
                if !is_pinned {
                    return WorkerEnd::default();
                }
                run(worker, &stop, &suspends, &published)
            })?;
            all.threads.push(thread);
            all.view.workers.push(counters);
            start.recv().unwrap_or_else(|_| Err(io::Error::other("the worker's thread died")))?;
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
        let read = |counters: &Arc<PublishedCounters>| {
            counters.ports.lock().unwrap_or_else(PoisonError::into_inner).clone()
        };
        self.view.workers.iter().map(read).collect()
    }

    /// Returns whether every worker's thread runs; one that does not has panicked.
    pub fn alive(&self) -> bool {
        self.threads.iter().all(|thread| !thread.is_finished())
    }

    /// Returns the numbers of the workers that have panicked.
    pub fn panicked(&self) -> Vec<usize> {
        let threads = self.threads.iter().enumerate();
        threads.filter(|(_, thread)| thread.is_finished()).map(|(number, _)| number).collect()
    }

    /// Stops all workers at the end of their turns and waits for them: their ports
    /// are closed when this returns. Returns whether all ended without a panic.
    pub fn stop(&mut self) -> bool {
        self.end().0
    }

    /// Stops all workers as [`stop`](Self::stop) does, to replace them, and returns the state that
    /// each leaves to its successor, also of workers that have panicked.
    pub fn suspend(&mut self) -> Vec<SuspendedState> {
        self.suspends.store(true, Ordering::Relaxed);
        self.end().1
    }

    fn end(&mut self) -> (bool, Vec<SuspendedState>) {
        self.stop.store(true, Ordering::Relaxed);
        // Join all threads, also if one has panicked.
        let failed = |_| WorkerEnd { panicked: true, ..WorkerEnd::default() };
        let ends = self.threads.drain(..).map(|thread| thread.join().unwrap_or_else(failed));
        let ends: Vec<_> = ends.collect();
        let well = ends.iter().all(|end| !end.panicked);
        (well, ends.into_iter().map(|end| end.state).collect())
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
        let message = format!("cannot pin a worker to core {core}: {}", error.desc());
        io::Error::new(io::Error::from(error).kind(), message)
    })
}

fn run<L: Lookup>(
    mut worker: Worker<L>,
    stop: &AtomicBool,
    suspends: &AtomicBool,
    published: &PublishedCounters,
) -> WorkerEnd {
    let mut ports = Vec::new();
    // After a panic the worker takes no further turn, and its packets are those that the panic left.
    let polled = catch_unwind(AssertUnwindSafe(|| {
        poll_until_stopped(&mut worker, stop, published, &mut ports);
        drain(&mut worker);
    }));
    if polled.is_err() {
        return WorkerEnd { state: abandon(worker, ports, published), panicked: true };
    }
    if suspends.load(Ordering::Relaxed) {
        report(&mut worker, &mut ports, published);
        return WorkerEnd { state: worker.suspend(), panicked: false };
    }
    worker.close();
    report(&mut worker, &mut ports, published);
    WorkerEnd::default()
}

/// Ends a worker that has panicked, and returns the state for the worker that replaces it: none if that panics, too.
fn abandon<L: Lookup>(
    mut worker: Worker<L>,
    mut ports: Vec<PortStats>,
    published: &PublishedCounters,
) -> SuspendedState {
    let state = catch_unwind(AssertUnwindSafe(|| {
        report(&mut worker, &mut ports, published);
        worker.abandon()
    }));
    published.stats.abandon();
    state.unwrap_or_default()
}

fn poll_until_stopped<L: Lookup>(
    worker: &mut Worker<L>,
    stop: &AtomicBool,
    published: &PublishedCounters,
    ports: &mut Vec<PortStats>,
) {
    let mut empty = 0;
    let mut turns = 0u32;
    let mut reported = Instant::now();
    let mut ticked = reported;
    while !stop.load(Ordering::Relaxed) {
        if worker.poll() > 0 {
            empty = 0;
        } else {
            empty = u32::min(empty + 1, SLEEP_AFTER);
            match empty {
                SLEEP_AFTER => sleep(worker),
                YIELD_AFTER.. => std::thread::yield_now(),
                _ => std::hint::spin_loop(),
            }
        }
        turns = turns.wrapping_add(1);
        if turns.is_multiple_of(CLOCK_INTERVAL) || empty == SLEEP_AFTER {
            let now = Instant::now();
            if now - ticked >= TICK {
                worker.tick();
                ticked = now;
            }
            if now - reported >= REPORT {
                report(worker, ports, published);
                reported = now;
            }
        }
    }
}

/// Lets the ports receive no more and forwards the packets that they have received: the kernel
/// receives the following ones, and no packet is lost between the two.
fn drain<L: Lookup>(worker: &mut Worker<L>) {
    // Ports without a descriptor (in memory) need no drain.
    if worker.ports().all(|port| port.descriptor().is_none()) {
        return;
    }
    worker.retire();
    let begin = Instant::now();
    // On a thread of its own, because the queues fill up meanwhile.
    let settling = Builder::new().name("settle".into()).spawn(port::af_xdp::synchronize_rcu);
    let settled = || settling.as_ref().map_or(true, JoinHandle::is_finished);
    loop {
        let is_settled = settled();
        if (worker.poll() == 0 && is_settled) || begin.elapsed() > DRAIN_TIMEOUT {
            break;
        }
    }
}

/// Sleeps until a port has a packet, or until a timeout.
fn sleep<L: Lookup>(worker: &Worker<L>) {
    let waits = |descriptor| PollFd::new(descriptor, PollFlags::POLLIN);
    let each: Option<Vec<_>> = worker.ports().map(|port| port.descriptor().map(waits)).collect();
    match each {
        Some(mut each) if !each.is_empty() => {
            // After an error the worker continues; if every call fails at once, it polls.
            let timeout = if worker.is_busy() { SLEEP_WHILE_HELD } else { SLEEP };
            let _ = poll(&mut each, PollTimeout::from(timeout));
            // The socket of a deleted interface is always ready with an error.
            let gone = |descriptor: &PollFd<'_>| {
                descriptor.revents().is_some_and(|events| events == PollFlags::POLLERR)
            };
            if each.iter().any(gone) {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
        _ => std::thread::sleep(SLEEP_WITHOUT_WAKE),
    }
}

/// Counts the ports' losses since the last call, and publishes the ports' counters.
fn report<L: Lookup>(
    worker: &mut Worker<L>,
    ports: &mut Vec<PortStats>,
    published: &PublishedCounters,
) {
    worker.count_losses(ports);
    let mut published = published.ports.lock().unwrap_or_else(PoisonError::into_inner);
    published.clone_from(ports);
}
