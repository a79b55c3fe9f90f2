//! What can go wrong on the way to a socket, and what to do about it.
//!
//! All of these come before the first packet: attaching the steering program,
//! making a socket, binding it to a queue. Once a port exists, receiving and
//! sending have no errors, only counters. Each error names the interface and
//! ends with what the person who reads it can do.

use std::error::Error as StdError;
use std::fmt;
use std::fs;
use std::io;

use super::bpf::LoadError;

/// The reason why an interface or a queue could not be opened.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// No interface has this name in this network namespace.
    NoInterface {
        /// The name that was asked for.
        interface: String,
    },
    /// It has no Ethernet header (a tunnel, say).
    NotEthernet {
        /// The interface.
        interface: String,
    },
    /// A right is missing.
    Permission {
        /// What was being done.
        doing: &'static str,
        /// The interface.
        interface: String,
        /// Which of the capabilities that it takes this process has not got.
        missing: Vec<&'static str>,
    },
    /// The memory may not be locked.
    MemoryLock {
        /// The interface.
        interface: String,
        /// How much, in bytes.
        bytes: usize,
    },
    /// The kernel has no AF_XDP.
    NoAfXdp,
    /// The interface has no such queue.
    NoQueue {
        /// The interface.
        interface: String,
        /// The queue that was asked for, from 0.
        queue: u32,
        /// How many it has, as far as known.
        queues: u32,
    },
    /// The interface has no queue to begin with.
    BadQueueCount {
        /// The interface.
        interface: String,
        /// How many were asked for.
        wanted: u32,
        /// How many it has.
        queues: u32,
    },
    /// Packets of this interface do not fit the frames of the arena.
    MtuTooLarge {
        /// The interface.
        interface: String,
        /// Its MTU in bytes.
        mtu: usize,
        /// The largest that works.
        limit: usize,
        /// What sets the limit.
        limited_by: &'static str,
    },
    /// Another XDP program is on the interface.
    OtherProgram {
        /// The interface.
        interface: String,
    },
    /// Another AF_XDP socket has the queue, or one that was just closed still
    /// does after all retries.
    QueueBusy {
        /// The interface.
        interface: String,
        /// The queue, from 0.
        queue: u32,
    },
    /// The mode that was asked for is not to be had here.
    NoMode {
        /// The interface.
        interface: String,
        /// The mode.
        mode: &'static str,
        /// What stands in its way.
        because: &'static str,
    },
    /// A ring's size is not one the kernel takes.
    BadRing {
        /// The size in slots.
        size: u32,
    },
    /// The kernel did not take the steering program.
    Program(LoadError),
    /// Anything else that the system said.
    System {
        /// What was being done.
        doing: &'static str,
        /// The interface.
        interface: String,
        /// The system's answer.
        source: io::Error,
    },
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoInterface { interface } => write!(
                f,
                "{interface}: no such interface in this network namespace (see `ip link`)"
            ),
            Self::NotEthernet { interface } => {
                write!(f, "{interface}: not an Ethernet interface; only those can be ports")
            }
            Self::Permission { doing, interface, missing } => {
                write!(f, "{interface}: no permission to {doing}: ")?;
                if missing.is_empty() {
                    f.write_str("the kernel refuses although the capabilities are there (a container or security module?)")
                } else {
                    write!(f, "missing {}; run as root or grant them", missing.join(", "))
                }
            }
            Self::MemoryLock { interface, bytes } => write!(
                f,
                "{interface}: {} KiB for packets may not be locked in memory: grant CAP_IPC_LOCK, raise `ulimit -l`, or use fewer frames",
                bytes / 1024
            ),
            Self::NoAfXdp => f.write_str(
                "this kernel has no AF_XDP: it needs Linux 5.9 or later with CONFIG_XDP_SOCKETS",
            ),
            Self::NoQueue { interface, queue, queues } => write!(
                f,
                "{interface}: no queue {queue}, it has {queues} (change with `ethtool -L {interface} combined N`)"
            ),
            Self::BadQueueCount { interface, wanted, queues } => write!(
                f,
                "{interface}: {wanted} queues wanted, it has {queues} (use between 1 and that, or change with `ethtool -L {interface} combined N`)"
            ),
            Self::MtuTooLarge { interface, mtu, limit, limited_by } => write!(
                f,
                "{interface}: MTU {mtu} is too large: {limited_by} allows {limit} (lower it with `ip link set {interface} mtu {limit}`, on both ends of a veth)"
            ),
            Self::OtherProgram { interface } => write!(
                f,
                "{interface}: another XDP program is attached (see `ip link show {interface}`; `ip link set {interface} xdp off` removes one that no process holds)"
            ),
            Self::QueueBusy { interface, queue } => write!(
                f,
                "{interface}: another AF_XDP socket is bound to queue {queue} (is another router running?)"
            ),
            Self::NoMode { interface, mode, because } => {
                write!(f, "{interface}: {mode} is not possible: {because}")
            }
            Self::BadRing { size } => {
                write!(f, "a ring of {size} slots: it takes a power of two of at least 64")
            }
            Self::Program(error) => write!(f, "the steering program: {error}"),
            Self::System { doing, interface, source } => {
                write!(f, "{interface}: cannot {doing}: {source}")
            }
        }
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        match self {
            Self::Program(error) => Some(error),
            Self::System { source, .. } => Some(source),
            _ => None,
        }
    }
}

impl Error {
    /// Makes the error for a call that failed, telling the missing right from
    /// everything else.
    pub(super) fn system(
        doing: &'static str,
        interface: &str,
        needs: &[Capability],
        source: io::Error,
    ) -> Self {
        let interface = interface.to_owned();
        match source.raw_os_error() {
            Some(libc::EPERM | libc::EACCES) => {
                Self::Permission { doing, interface, missing: missing(needs) }
            }
            Some(libc::EAFNOSUPPORT) => Self::NoAfXdp,
            _ => Self::System { doing, interface, source },
        }
    }
}

/// A capability: its name and the bits (`linux/capability.h`) any of which will
/// do.
#[derive(Clone, Copy, Debug)]
pub(super) struct Capability(&'static str, u64);

/// Attaching programs, setting queue options.
pub(super) const NET_ADMIN: Capability = Capability("CAP_NET_ADMIN", 1 << 12);
/// Making AF_XDP sockets.
pub(super) const NET_RAW: Capability = Capability("CAP_NET_RAW", 1 << 13);
/// Making maps and loading programs, for which CAP_SYS_ADMIN serves too.
pub(super) const BPF: Capability = Capability("CAP_BPF", 1 << 39 | 1 << 21);

/// Returns those of `needs` that this thread has not got.
fn missing(needs: &[Capability]) -> Vec<&'static str> {
    let status = fs::read_to_string("/proc/thread-self/status").unwrap_or_default();
    let have = effective(&status).unwrap_or(0);
    needs.iter().filter(|need| have & need.1 == 0).map(|need| need.0).collect()
}

/// Reads the effective capabilities from a `/proc/…/status`.
fn effective(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix("CapEff:"))?;
    u64::from_str_radix(line.trim(), 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn effective_capabilities_are_read_from_status() {
        let status = "Name:\tx\nCapPrm:\t0000000000000000\nCapEff:\t000001fffeffffff\n";
        let have = effective(status).expect("the line is there");
        assert_ne!(have & BPF.1, 0);
        assert_eq!(have & (1 << 24), 0, "CAP_SYS_RESOURCE is the one that is not in it");
        assert_eq!(effective("Name:\tx\n"), None);
    }

    #[test]
    fn error_names_operation_interface_and_remedy() {
        let error = Error::system("attach", "eth7", &[], io::Error::from_raw_os_error(libc::EPERM));
        assert!(error.to_string().contains("eth7"), "{error}");
        let error = Error::MtuTooLarge {
            interface: "eth7".into(),
            mtu: 9000,
            limit: 1770,
            limited_by: "a frame of 2048 bytes",
        };
        let text = error.to_string();
        assert!(text.contains("9000") && text.contains("mtu 1770"), "{text}");
        let none = io::Error::from_raw_os_error(libc::EAFNOSUPPORT);
        assert!(matches!(Error::system("open", "eth7", &[], none), Error::NoAfXdp));
    }
}
