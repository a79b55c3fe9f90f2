//! The CPU of each part, and the load of the CPUs.
//!
//! The router, ours or the kernel, is alone on its core:
//!
//! ```text
//!            router's CPU                 the other CPU(s)
//!  ours      worker (polls its ports)     generator, its interface's softirq
//!            transmit system calls        (which fills the AF_XDP rings), sinks
//!  kernel    NAPI thread of `in`          generator, sinks
//! ```
//!
//! A veth receives in its NAPI. By default that is a softirq on the CPU of the sender: for the sinks,
//! the CPU of the router. So the NAPI of the sinks (and of the router, if it is the kernel) become
//! threads (`/sys/class/net/X/threaded`), which appear as kernel threads `napi/X-ID` and can be
//! pinned. Those of the sinks have real-time priority: they run for a few microseconds at a time, and
//! behind a generator that never sleeps their rings would overflow. The router, ours or the kernel,
//! also has real-time priority, so that it is alone on its core on a machine with other load.

use std::fs;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::unistd::Pid;

use crate::namespace::Namespace;
use crate::realtime::set_realtime_priority;

/// The CPUs of the parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Placement {
    /// The router's own.
    pub(super) router: usize,
    /// The generator's.
    pub(super) generator: usize,
    /// The sinks'.
    pub(super) sinks: usize,
}

impl Placement {
    /// Chooses among the CPUs that this process may use.
    pub(super) fn choose() -> Result<Self> {
        let allowed = sched_getaffinity(Pid::from_raw(0))?;
        let cpus: Vec<usize> =
            (0..CpuSet::count()).filter(|&cpu| allowed.is_set(cpu).unwrap_or(false)).collect();
        Self::among(&cpus).context("this process may use no CPU")
    }

    fn among(cpus: &[usize]) -> Option<Self> {
        let (&first, &last) = (cpus.first()?, cpus.last()?);
        let sinks = if cpus.len() > 2 { cpus[1] } else { first };
        Some(Self { router: last, generator: first, sinks })
    }

    /// Returns the scheduling of the router: real-time if it has its own CPU, so that no other program
    /// of the machine shares it.
    pub(super) fn router_urgency(&self) -> Urgency {
        if self.router_is_alone() { Urgency::RealTime } else { Urgency::Plain }
    }

    /// Returns whether the router has its own CPU.
    pub(super) fn router_is_alone(&self) -> bool {
        self.router != self.generator && self.router != self.sinks
    }
}

/// Binds the calling thread to one CPU.
pub(super) fn pin(cpu: usize) -> Result<()> {
    pin_task(Pid::from_raw(0), cpu).with_context(|| format!("cannot run on CPU {cpu}"))
}

fn pin_task(task: Pid, cpu: usize) -> Result<()> {
    let mut set = CpuSet::new();
    set.set(cpu)?;
    Ok(sched_setaffinity(task, &set)?)
}

/// The scheduling of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Urgency {
    /// The default.
    Plain,
    /// Before every thread without real-time priority.
    RealTime,
}

/// Makes the NAPI of `interface` a thread on `cpu`.
///
/// A veth has a NAPI only after XDP or GRO has been switched on.
pub(super) fn thread_napi(
    namespace: &Namespace,
    interface: &'static str,
    cpu: usize,
    urgency: Urgency,
) -> Result<()> {
    namespace.write(format!("/sys/class/net/{interface}/threaded"), "1")?;
    let prefix = format!("napi/{interface}-");
    let deadline = Instant::now() + Duration::from_secs(2);
    loop {
        let found = kernel_threads(&prefix)?;
        for &task in &found {
            pin_task(task, cpu).with_context(|| format!("cannot pin {prefix}*"))?;
            if urgency == Urgency::RealTime {
                set_realtime_priority(task)?;
            }
        }
        if !found.is_empty() {
            return Ok(());
        }
        if Instant::now() > deadline {
            bail!("the kernel created no thread {prefix}*");
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Returns the NAPI of `interface` to the softirqs.
pub(super) fn unthread_napi(namespace: &Namespace, interface: &'static str) -> Result<()> {
    namespace.write(format!("/sys/class/net/{interface}/threaded"), "0")
}

/// Finds kernel threads by the beginning of their names.
fn kernel_threads(prefix: &str) -> Result<Vec<Pid>> {
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc")? {
        let entry = entry?;
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else {
            continue;
        };
        // The process may have ended.
        let comm = fs::read_to_string(entry.path().join("comm")).unwrap_or_default();
        if comm.starts_with(prefix) {
            found.push(Pid::from_raw(pid));
        }
    }
    Ok(found)
}

/// Schedules the calling thread with `urgency`.
pub(super) fn schedule(urgency: Urgency) -> Result<()> {
    match urgency {
        Urgency::Plain => Ok(()),
        Urgency::RealTime => set_realtime_priority(nix::unistd::gettid()),
    }
}

/// The time of one CPU by use, in ticks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Ticks {
    user: u64,
    system: u64,
    softirq: u64,
    total: u64,
}

/// Returns the time of each CPU since boot.
pub(super) fn ticks() -> Result<Vec<(usize, Ticks)>> {
    Ok(parse_ticks(&fs::read_to_string("/proc/stat")?))
}

fn parse_ticks(text: &str) -> Vec<(usize, Ticks)> {
    text.lines()
        .filter_map(|line| {
            let (cpu, times) = line.strip_prefix("cpu")?.split_once(' ')?;
            // user nice system idle iowait irq softirq steal …
            let t: Vec<u64> = times.split_whitespace().filter_map(|n| n.parse().ok()).collect();
            let (user, system) = (t.first()? + t.get(1)?, t.get(2)? + t.get(5)?);
            let total = t.iter().take(8).sum();
            Some((cpu.parse().ok()?, Ticks { user, system, softirq: *t.get(6)?, total }))
        })
        .collect()
}

/// The shares of the time of one CPU by use.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize)]
pub(super) struct Share {
    /// Its number.
    pub(super) cpu: usize,
    /// Programs.
    pub(super) user: f64,
    /// System calls, kernel threads and interrupts.
    pub(super) system: f64,
    /// Softirqs: NAPI that is not in threads.
    pub(super) softirq: f64,
}

/// Compares two readings of [`ticks`].
pub(super) fn shares(before: &[(usize, Ticks)], after: &[(usize, Ticks)]) -> Vec<Share> {
    let both = before.iter().zip(after).filter(|(b, a)| b.0 == a.0);
    both.map(|(&(cpu, b), &(_, a))| {
        let total = (a.total - b.total).max(1) as f64;
        let part = |before: u64, after: u64| after.saturating_sub(before) as f64 / total;
        Share {
            cpu,
            user: part(b.user, a.user),
            system: part(b.system, a.system),
            softirq: part(b.softirq, a.softirq),
        }
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn router_is_alone_with_two_cpus() {
        let place = |cpus: &[usize]| Placement::among(cpus);
        assert_eq!(place(&[]), None);
        assert!(!place(&[3]).unwrap().router_is_alone());
        assert_eq!(place(&[0, 1]), Some(Placement { router: 1, generator: 0, sinks: 0 }));
        assert_eq!(place(&[2, 3, 5]), Some(Placement { router: 5, generator: 2, sinks: 3 }));
        assert!(place(&[0, 1]).unwrap().router_is_alone());
    }

    #[test]
    fn shares_are_relative_to_the_time_between() {
        let text = "cpu  9 9 9 9 9 9 9 9 9 9\n\
                    cpu0 10 0 10 70 0 0 10 0 0 0\n\
                    cpu1 0 0 0 0 0 0 0 0 0 0\nintr 5\n";
        let later = "cpu  9 9 9 9 9 9 9 9 9 9\n\
                     cpu0 20 10 30 100 0 10 30 0 0 0\n\
                     cpu1 0 0 0 0 0 0 0 0 0 0\nintr 5\n";
        let shares = shares(&parse_ticks(text), &parse_ticks(later));
        assert_eq!(shares.len(), 2);
        let Share { cpu, user, system, softirq } = shares[0];
        assert_eq!((cpu, user, system, softirq), (0, 0.2, 0.3, 0.2));
        assert_eq!(shares[1].user, 0.0);
    }
}
