//! Drops the capabilities that a thread does not need (capabilities(7)).
//!
//! ```text
//!   process   NET_ADMIN  links, neighbors, opened interfaces
//!             NET_RAW    AF_XDP sockets
//!             BPF        the steering program and its maps
//!             IPC_LOCK   packet memory beyond RLIMIT_MEMLOCK
//!             PERFMON    programs that look up in tables: forwarding in the driver, a gate's block list
//!   workers, and the thread that applies bundles
//!             BPF        the steering program's counters and maps, before Linux 5.19
//!   clients of the control socket, metrics and page, recorders, the auditor, the watchdog, policies,
//!   the verifier of programs, the sender of decisions: none
//! ```
//!
//! A thread cannot regain a capability that it has dropped, nor can the threads that it starts. The
//! process therefore restricts itself while it has one thread. From then on it lacks all other
//! capabilities of root, and its children gain none (`no_new_privs`).

use std::io;

use caps::{CapSet, Capability, CapsHashSet};

/// The capabilities of a router.
const ROUTER: [Capability; 4] = [
    Capability::CAP_NET_ADMIN,
    Capability::CAP_NET_RAW,
    Capability::CAP_BPF,
    Capability::CAP_IPC_LOCK,
];
/// The further one for forwarding in the driver and for block lists: programs that calculate addresses.
const IN_DRIVER: Capability = Capability::CAP_PERFMON;
/// The capabilities of a worker.
const WORKER: [Capability; 1] = [Capability::CAP_BPF];

/// The capabilities of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rights {
    /// Those of the thread that starts it: those of a router, once the process is [restricted](restrict).
    Inherited,
    /// The steering program's maps.
    Worker,
    /// None.
    None,
}

impl Rights {
    /// Drops all other capabilities of the calling thread.
    ///
    /// # Errors
    ///
    /// The system's error.
    pub fn keep(self) -> io::Result<()> {
        match self {
            Self::Inherited => Ok(()),
            Self::Worker => keep(&WORKER),
            Self::None => keep(&[]),
        }
    }
}

/// Drops all capabilities of the calling thread except `rights`.
///
/// # Errors
///
/// The system's error.
fn keep(rights: &[Capability]) -> io::Result<()> {
    let wanted: CapsHashSet = rights.iter().copied().collect();
    let has = caps::read(None, CapSet::Permitted).map_err(io::Error::other)?;
    let retained = has.intersection(&wanted).copied().collect();
    caps::clear(None, CapSet::Inheritable).map_err(io::Error::other)?;
    caps::set(None, CapSet::Effective, &retained).map_err(io::Error::other)?;
    caps::set(None, CapSet::Permitted, &retained).map_err(io::Error::other)
}

/// Returns the capabilities of a router, whose program may look up in tables in the driver.
fn of_router(in_driver: bool) -> impl Iterator<Item = Capability> {
    ROUTER.into_iter().chain(in_driver.then_some(IN_DRIVER))
}

/// Returns the names of the capabilities that a start needs and that the calling thread lacks:
/// those of a router, which may forward in the driver, but `CAP_IPC_LOCK`, because RLIMIT_MEMLOCK may suffice.
pub fn missing(in_driver: bool) -> Vec<String> {
    // If the system cannot report them, the start reports what it lacks.
    let Ok(has) = caps::read(None, CapSet::Effective) else { return Vec::new() };
    let missing = of_router(in_driver)
        .filter(|right| !has.contains(right) && *right != Capability::CAP_IPC_LOCK);
    missing.map(|right| right.to_string()).collect()
}

/// Drops all capabilities of the process except those of a router, whose program may look up in tables in the
/// driver. Must be called before the process starts threads.
///
/// # Errors
///
/// The system's error.
pub fn restrict(in_driver: bool) -> io::Result<()> {
    let rights: Vec<_> = of_router(in_driver).collect();
    // To change the bounding set takes CAP_SETPCAP. Without it the set does no harm, because
    // `no_new_privs` keeps children from gaining capabilities.
    for right in caps::all().difference(&rights.iter().copied().collect()) {
        let _ = caps::drop(None, CapSet::Bounding, *right);
    }
    nix::sys::prctl::set_no_new_privs()?;
    keep(&rights)
}

/// Calls `spawn` so that a child that it starts on the calling thread gets the thread's capabilities, which a child
/// of a user other than root would lack.
///
/// # Errors
///
/// The system's error.
pub fn pass_to_child<T>(spawn: impl FnOnce() -> T) -> io::Result<T> {
    let has = caps::read(None, CapSet::Permitted).map_err(io::Error::other)?;
    caps::set(None, CapSet::Inheritable, &has).map_err(io::Error::other)?;
    let passed = caps::set(None, CapSet::Ambient, &has).map_err(io::Error::other);
    let result = passed.map(|()| spawn());
    // Ambient capabilities are inheritable ones.
    caps::clear(None, CapSet::Inheritable).map_err(io::Error::other)?;
    result
}

#[cfg(test)]
mod tests {
    use super::{CapSet, Rights, WORKER, pass_to_child};

    #[test]
    fn dropped_capabilities_are_gone_and_other_threads_keep_theirs() {
        let before = caps::read(None, CapSet::Permitted).unwrap();
        std::thread::spawn(|| {
            Rights::Worker.keep().unwrap();
            for set in [CapSet::Effective, CapSet::Permitted] {
                let has = caps::read(None, set).unwrap();
                assert!(has.iter().all(|right| WORKER.contains(right)), "{has:?}");
            }
            Rights::None.keep().unwrap();
            assert!(caps::read(None, CapSet::Permitted).unwrap().is_empty());
        })
        .join()
        .unwrap();
        assert_eq!(caps::read(None, CapSet::Permitted).unwrap(), before);
    }
    #[test]
    fn child_has_the_capabilities_of_its_thread_and_the_thread_passes_none_later() {
        let has = caps::read(None, CapSet::Permitted).unwrap();
        let effective = || {
            let status =
                std::process::Command::new("cat").arg("/proc/self/status").output().unwrap();
            let status = String::from_utf8(status.stdout).unwrap();
            let line = status.lines().find(|line| line.starts_with("CapAmb:")).unwrap().to_owned();
            u64::from_str_radix(line.split_whitespace().nth(1).unwrap(), 16).unwrap()
        };
        let bits = has.iter().map(|right| right.bitmask()).sum::<u64>();
        assert_eq!(pass_to_child(effective).unwrap(), bits);
        assert_eq!(effective(), 0);
        assert_eq!(caps::read(None, CapSet::Permitted).unwrap(), has);
    }
}
