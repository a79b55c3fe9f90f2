//! Replaces the workers when a device has been replaced or its MTU has grown, and when a worker has panicked.
//!
//! An AF_XDP socket belongs to one device, and its frames have one size. If another device has
//! replaced a deleted one, or if packets no longer fit the frames, the workers stop and new ones
//! start:
//!
//! ```text
//!   states of the devices ─► a device without our sockets, or with a larger MTU?
//!      ─► workers stop, and return their hooks ─► workers start with these hooks ─► sockets on
//!         every device that can be served
//! ```
//!
//! Meanwhile the kernel forwards a router's packets, and packets that arrive on a gate's front
//! interface are dropped. The plane, the steering programs, the counters and the hooks with their
//! flows are kept; packets that wait are dropped, each with its counter. A device that cannot be
//! served has a placeholder port, and is tried again: first after a second, then with twice the
//! delay each time, up to [`MAX_PAUSE`].
//!
//! A worker that panics is replaced in the same way, at most [`MAX_PANICS`] times in [`PANIC_INTERVAL`]: a packet that
//! arrives again and again may make each worker panic. After that the daemon ends, and the kernel gets the interfaces.

use std::collections::VecDeque;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use port::af_xdp::{self, Interface};

use super::{Daemon, readers};
use crate::devices::DeviceState;
use crate::start::{
    HookFactory, PortInfo, Readers, StartError, Started, Unserved, WorkerHook, start,
};
use crate::view::Seen;
use config::Config;

/// The first and the longest delay before a device that could not be served is tried again.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const MAX_PAUSE: Duration = Duration::from_secs(30);

/// The panics of workers after which the daemon continues, in this time.
const MAX_PANICS: usize = 3;
const PANIC_INTERVAL: Duration = Duration::from_secs(60);

/// The state that decides when workers are replaced.
#[derive(Debug)]
pub(super) struct Remaking {
    /// The largest MTU, in bytes, whose packets fit the workers' frames.
    mtu: usize,
    /// The states at the last check.
    seen: Vec<DeviceState>,
    /// The earliest time of the next replacement, unless a state changes before.
    next: Instant,
    pause: Duration,
    /// The times of the last panics of workers, the oldest first.
    panics: VecDeque<Instant>,
    notices: Vec<String>,
}

impl Remaking {
    /// Starts with workers whose frames hold packets of up to `mtu` bytes.
    pub(super) fn new(mtu: usize) -> Self {
        let (next, seen, notices) = (Instant::now(), Vec::new(), Vec::new());
        Self { mtu, seen, next, pause: FIRST_PAUSE, panics: VecDeque::new(), notices }
    }

    /// Records a panic, and returns whether the daemon continues.
    fn continues_after_panic(&mut self, now: Instant) -> bool {
        self.panics.push_back(now);
        if self.panics.len() <= MAX_PANICS {
            return true;
        }
        let before = self.panics.pop_front();
        before.is_none_or(|before| now.duration_since(before) > PANIC_INTERVAL)
    }

    /// Records the MTU of new workers.
    pub(super) fn set_mtu(&mut self, mtu: usize) {
        self.mtu = mtu;
    }

    /// Takes the new lines for the operator's log.
    pub(super) fn drain_notices(&mut self) -> Vec<String> {
        std::mem::take(&mut self.notices)
    }

    /// Returns whether workers have to be replaced now: `ports` are those that they have.
    fn is_due(&mut self, states: Vec<DeviceState>, ports: &[PortInfo]) -> bool {
        let now = Instant::now();
        if states != self.seen {
            for (at, state) in states.iter().enumerate() {
                let before = self.seen.get(at).and_then(|before| before.problem.as_ref());
                match (before, &state.problem) {
                    (before, Some(problem)) if before != Some(problem) => {
                        self.notices.push(problem.clone());
                    }
                    (Some(_), None) => self.notices.push(format!("{} works again", state.name)),
                    _ => {}
                }
            }
            self.seen = states;
            (self.next, self.pause) = (now, FIRST_PAUSE);
        }
        let moved = |state: &DeviceState| {
            let mut has = ports.iter().filter(|port| port.index == state.index);
            state.usable && has.next().is_none()
        };
        let grown =
            |state: &DeviceState| (self.mtu + 1..=af_xdp::longest_mtu()).contains(&state.mtu);
        let wanted = self.seen.iter().any(|state| moved(state) || grown(state));
        if !wanted || now < self.next {
            return false;
        }
        self.next = now + self.pause;
        self.pause = MAX_PAUSE.min(2 * self.pause);
        true
    }
}

impl Daemon {
    /// Replaces the workers if a device has replaced another, or if packets no longer fit the
    /// frames.
    pub(super) fn follow_devices(&mut self) {
        let states = self.view.devices();
        if !self.remaking.is_due(states, &self.view.ports()) {
            return;
        }
        if let Err(error) = self.remake() {
            self.remaking.notices.push(format!("cannot restart the workers: {error}"));
            // No worker forwards any more: the service must end, and reports that.
            self.control = None;
        }
    }

    /// Replaces the workers if one has panicked.
    pub(super) fn replace_panicked(&mut self) {
        let panicked = self.workers.panicked();
        if panicked.is_empty() {
            return;
        }
        let which: Vec<_> = panicked.iter().map(|number| format!("worker-{number}")).collect();
        let which = which.join(", ");
        log::error!("{which}: panicked, which is a bug; please report the message above");
        if !self.remaking.continues_after_panic(Instant::now()) {
            log::error!("{which}: {MAX_PANICS} panics in {} s before", PANIC_INTERVAL.as_secs());
            // The thread remains dead, so that the service ends.
            return;
        }
        if let Err(error) = self.remake() {
            log::error!("cannot restart the workers: {error}");
            self.control = None;
        }
    }

    /// Stops the workers and starts new ones on the existing devices.
    fn remake(&mut self) -> Result<(), StartError> {
        self.suspended = self.workers.suspend();
        let mtu = self.restart_workers()?;
        self.remaking.notices.push(format!("restarted the workers, for an MTU of at most {mtu}"));
        Ok(())
    }

    /// Starts workers on the existing devices, which continue with the state of the suspended ones; returns the
    /// largest MTU, in bytes, whose packets fit their frames.
    pub(super) fn restart_workers(&mut self) -> Result<usize, StartError> {
        let count = self.config.daemon.cores.len();
        let all = |count| {
            move |sync: &mut crate::kernel_sync::KernelSync| {
                (0..count).map(|_| readers(&sync.plane)).collect::<Vec<_>>()
            }
        };
        let each = self.handle.call(all(count)).ok_or(StartError::NoAnswer)?;
        let each = Mutex::new(each);
        let its = || -> Readers {
            let mut each = each.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            each.pop().unwrap_or_else(|| unreachable!("one for each worker"))
        };
        let interfaces = self.view.interfaces();
        let config = self.config.clone();
        let started = self.start_workers(&config, &interfaces, its, Unserved::Skip)?;
        let Started { workers, ports, wanted, counters, mtu } = started;
        self.workers = workers;
        self.remaking.mtu = mtu;
        let served: Vec<bool> = interfaces
            .iter()
            .map(|interface| ports.iter().any(|port| port.index == interface.index()))
            .collect();
        for port in ports.iter().filter(|port| port.index == 0) {
            let why = port.fallback.as_deref().unwrap_or_default();
            self.remaking.notices.push(format!("{} is not served: {why}", port.name));
        }
        let (table, devices) = (self.view.table(), self.view.device_states());
        self.view.show(Seen { counters, ports, interfaces, table, devices });
        self.handle.call(move |sync| sync.set_workers(wanted, &served));
        Ok(mtu)
    }

    /// Starts workers that continue with the state of the previous ones.
    pub(super) fn start_workers(
        &mut self,
        config: &Config,
        interfaces: &[Interface],
        its: impl Fn() -> Readers,
        unserved: Unserved,
    ) -> Result<Started, StartError> {
        let Self { suspended, host, view, hook_frames, .. } = self;
        let mut make = |number: usize, _: &[Interface]| {
            let suspended = suspended.get_mut(number)?;
            let hook = suspended.hook.take()?;
            Some(WorkerHook { hook, handed: suspended.handed.take() })
        };
        let hooks = hook_frames.map(|frames| HookFactory { frames, make: &mut make });
        start(config, interfaces, host.as_ref(), its, view.counters(), hooks, unserved)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_panics_than_the_limit_within_a_minute_end_the_daemon() {
        let mut remaking = Remaking::new(1500);
        let start = Instant::now();
        let mut panic_at =
            |seconds| remaking.continues_after_panic(start + Duration::from_secs(seconds));
        assert!([0, 1, 2].into_iter().all(&mut panic_at));
        assert!(panic_at(61), "the first was more than a minute ago");
        assert!(panic_at(62), "so was the second");
        assert!(!panic_at(62), "the fourth in a minute");
    }
}
