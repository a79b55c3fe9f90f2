//! Rights: what each thread may do, and nothing that it need not (capabilities(7)).
//!
//! ```text
//!   process   NET_ADMIN  links, neighbors, interfaces taken over
//!             NET_RAW    AF_XDP sockets
//!             BPF        the steering program and its maps
//!             IPC_LOCK   packet memory beyond RLIMIT_MEMLOCK
//!   workers, and who takes bundles over
//!             BPF        the steering program's counters and maps, before Linux 5.19
//!   clients of the control socket, metrics and page, the watch, the auditor: none
//! ```
//!
//! A thread that gives a right up cannot have it back, nor can those it starts. So the
//! process restricts itself while it has one thread. The rest of root's rights is gone
//! from then on, and what is started from here has none either (`no_new_privs`).

use std::io;

use caps::{CapSet, Capability, CapsHashSet};

/// What a router needs.
pub const ROUTER: [Capability; 4] = [
    Capability::CAP_NET_ADMIN,
    Capability::CAP_NET_RAW,
    Capability::CAP_BPF,
    Capability::CAP_IPC_LOCK,
];
/// What a worker needs.
pub(crate) const WORKER: [Capability; 1] = [Capability::CAP_BPF];

/// Gives up what the calling thread may do beyond `rights`.
///
/// # Errors
///
/// The system's.
pub fn keep(rights: &[Capability]) -> io::Result<()> {
    let wanted: CapsHashSet = rights.iter().copied().collect();
    let has = caps::read(None, CapSet::Permitted).map_err(io::Error::other)?;
    let kept = has.intersection(&wanted).copied().collect();
    caps::clear(None, CapSet::Inheritable).map_err(io::Error::other)?;
    caps::set(None, CapSet::Effective, &kept).map_err(io::Error::other)?;
    caps::set(None, CapSet::Permitted, &kept).map_err(io::Error::other)
}

/// Gives up what the process may do beyond what a router needs. To be called before there
/// are threads.
///
/// # Errors
///
/// The system's.
pub fn restrict() -> io::Result<()> {
    // The bounding set takes a right of its own to change; who lacks it cannot gain by
    // what is in there, as nothing started from here gains anything.
    for right in caps::all().difference(&ROUTER.into_iter().collect()) {
        let _ = caps::drop(None, CapSet::Bounding, *right);
    }
    nix::sys::prctl::set_no_new_privs()?;
    keep(&ROUTER)
}

#[cfg(test)]
mod tests {
    use super::{CapSet, WORKER, keep};

    #[test]
    fn what_is_given_up_is_gone_and_the_other_threads_keep_theirs() {
        let before = caps::read(None, CapSet::Permitted).unwrap();
        std::thread::spawn(|| {
            keep(&WORKER).unwrap();
            for set in [CapSet::Effective, CapSet::Permitted] {
                let has = caps::read(None, set).unwrap();
                assert!(has.iter().all(|right| WORKER.contains(right)), "{has:?}");
            }
            keep(&[]).unwrap();
            assert!(caps::read(None, CapSet::Permitted).unwrap().is_empty());
        })
        .join()
        .unwrap();
        assert_eq!(caps::read(None, CapSet::Permitted).unwrap(), before);
    }
}
