//! Remaking: replacement of workers because a device has changed under them.
//!
//! An AF_XDP socket is of one device and its frames are of one size. Where a device was deleted
//! and another has taken its place, or where packets have become longer than frames, the
//! workers stop and others start:
//!
//! ```text
//!   states of the devices ─► one is not the one that sockets are on, or its MTU has grown?
//!      ─► workers stop, and leave their hooks ─► workers start, with those ─► sockets on
//!         every device that can be served
//! ```
//!
//! Meanwhile a router's packets are the kernel's, and those that come in at a gate's front are
//! dropped. The plane, the steering programs, the counters and the hooks with their flows
//! stay; packets that wait end, each with its counter. A device that cannot be served leaves
//! its place empty, and is tried again: at first after a second, then after twice as long each
//! time, up to [`LONGEST`].

use std::sync::Mutex;
use std::time::{Duration, Instant};

use port::af_xdp::Interface;

use super::{Daemon, readers};
use crate::devices::DeviceState;
use crate::start::{
    HookFactory, LARGEST_MTU, PortInfo, Readers, StartError, Started, Unserved, WorkerHook, start,
};
use crate::view::Seen;
use config::Config;

/// The delay before a device that could not be served is tried again, at first and at most.
const FIRST: Duration = Duration::from_secs(1);
const LONGEST: Duration = Duration::from_secs(30);

/// The state that decides when workers are replaced.
#[derive(Debug)]
pub(super) struct Remaking {
    /// The largest MTU, in bytes, whose packets fit the workers' frames.
    mtu: usize,
    /// The states that were last seen.
    seen: Vec<DeviceState>,
    /// Not before this moment, unless a state has changed.
    next: Instant,
    pause: Duration,
    news: Vec<String>,
}

impl Remaking {
    /// Makes it for workers whose frames take packets of this many bytes.
    pub(super) fn new(mtu: usize) -> Self {
        let (next, seen, news) = (Instant::now(), Vec::new(), Vec::new());
        Self { mtu, seen, next, pause: FIRST, news }
    }

    /// Notes that the workers have other frames.
    pub(super) fn set_mtu(&mut self, mtu: usize) {
        self.mtu = mtu;
    }

    /// Returns new lines for the operator.
    pub(super) fn take_news(&mut self) -> Vec<String> {
        std::mem::take(&mut self.news)
    }

    /// Returns whether workers have to be replaced now: `ports` are those that they have.
    fn is_due(&mut self, states: Vec<DeviceState>, ports: &[PortInfo]) -> bool {
        let now = Instant::now();
        if states != self.seen {
            for (at, state) in states.iter().enumerate() {
                let before = self.seen.get(at).and_then(|before| before.problem.as_ref());
                match (before, &state.problem) {
                    (before, Some(problem)) if before != Some(problem) => {
                        self.news.push(problem.clone());
                    }
                    (Some(_), None) => self.news.push(format!("{} works again", state.name)),
                    _ => {}
                }
            }
            self.seen = states;
            (self.next, self.pause) = (now, FIRST);
        }
        let moved = |state: &DeviceState| {
            let mut has = ports.iter().filter(|port| port.index == state.index);
            state.usable && has.next().is_none()
        };
        let grown = |state: &DeviceState| (self.mtu + 1..=LARGEST_MTU).contains(&state.mtu);
        let wanted = self.seen.iter().any(|state| moved(state) || grown(state));
        if !wanted || now < self.next {
            return false;
        }
        self.next = now + self.pause;
        self.pause = LONGEST.min(2 * self.pause);
        true
    }
}

impl Daemon {
    /// Replaces workers where a device has replaced another, or its packets have become too long
    /// for the frames.
    pub(super) fn follow_devices(&mut self) {
        let states = self.view.devices();
        if !self.remaking.is_due(states, &self.view.ports()) {
            return;
        }
        if let Err(error) = self.remake() {
            self.remaking.news.push(format!("cannot restart the workers: {error}"));
            // No worker forwards any more: the service must end, and reports that.
            self.control = None;
        }
    }

    /// Stops the workers and starts others on the devices that there are.
    fn remake(&mut self) -> Result<(), StartError> {
        let count = self.config.cores.len();
        let all = |count| {
            move |sync: &mut crate::kernel_sync::KernelSync| {
                (0..count).map(|_| readers(&sync.plane)).collect::<Vec<_>>()
            }
        };
        let Some(each) = self.handle.call(all(count)) else { return Ok(()) };
        let each = Mutex::new(each);
        let its = || -> Readers {
            let mut each = each.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            each.pop().unwrap_or_else(|| unreachable!("one for each worker"))
        };
        let interfaces = self.view.interfaces();
        self.remains = self.workers.suspend();
        let config = self.config.clone();
        let started = self.start_workers(&config, &interfaces, its, Unserved::Skip)?;
        let Started { workers, ports, wanted, stats, mtu } = started;
        self.workers = workers;
        self.remaking.mtu = mtu;
        let served: Vec<bool> = interfaces
            .iter()
            .map(|interface| ports.iter().any(|port| port.index == interface.index()))
            .collect();
        for port in ports.iter().filter(|port| port.index == 0) {
            let why = port.fallback.as_deref().unwrap_or_default();
            self.remaking.news.push(format!("{} is not served: {why}", port.name));
        }
        let (table, devices) = (self.view.table(), self.view.device_states());
        self.view.show(Seen { stats, ports, interfaces, table, devices });
        self.handle.call(move |sync| sync.set_workers(wanted, &served));
        Ok(())
    }

    /// Starts workers that go on with what those before them left.
    pub(super) fn start_workers(
        &mut self,
        config: &Config,
        interfaces: &[Interface],
        its: impl Fn() -> Readers,
        unserved: Unserved,
    ) -> Result<Started, StartError> {
        let Self { remains, host, view, hook_frames, .. } = self;
        let mut make = |number: usize, _: &[Interface]| {
            let remains = remains.get_mut(number)?;
            let hook = remains.hook.take()?;
            Some(WorkerHook { hook, handed: remains.handed.take() })
        };
        let hooks = hook_frames.map(|frames| HookFactory { frames, make: &mut make });
        start(config, interfaces, Some(host), its, view.counting(), hooks, unserved)
    }
}
