//! Errors of opening an interface or a socket, with the remedy.
//!
//! All of these occur before the first packet: while the steering program is attached, a socket is
//! created, or a queue is bound. An open port has no errors for receiving and sending, only
//! counters. Each error names the interface and ends with what the operator can do.

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
        /// The requested name.
        interface: String,
    },
    /// It has no Ethernet header (for example a tunnel).
    NotEthernet {
        /// The interface.
        interface: String,
    },
    /// A capability is missing.
    Permission {
        /// The operation.
        doing: &'static str,
        /// The interface.
        interface: String,
        /// The required capabilities that this process lacks.
        missing: Vec<&'static str>,
    },
    /// The memory must not be locked.
    MemoryLock {
        /// The interface.
        interface: String,
        /// Its size in bytes.
        bytes: usize,
    },
    /// The kernel has no AF_XDP.
    NoAfXdp,
    /// The interface has no such queue.
    NoQueue {
        /// The interface.
        interface: String,
        /// The requested queue, from 0.
        queue: u32,
        /// The number of its queues, as far as known.
        queues: u32,
    },
    /// The interface has too few queues.
    BadQueueCount {
        /// The interface.
        interface: String,
        /// The requested number.
        wanted: u32,
        /// The number of its queues.
        queues: u32,
    },
    /// The interface cannot have this number of channels.
    BadChannelCount {
        /// The interface.
        interface: String,
        /// The requested number.
        wanted: u32,
        /// The most that it can have; 0: its driver does not let the number be changed.
        most: u32,
    },
    /// The driver of the interface cannot set a part of its RSS.
    NoRss {
        /// The interface.
        interface: String,
        /// The part.
        part: &'static str,
    },
    /// Packets of this interface do not fit the frames of the arena.
    MtuTooLarge {
        /// The interface.
        interface: String,
        /// Its MTU in bytes.
        mtu: usize,
        /// The largest possible MTU.
        limit: usize,
        /// The cause of the limit.
        limited_by: &'static str,
    },
    /// Another XDP program is on the interface.
    OtherProgram {
        /// The interface.
        interface: String,
    },
    /// Another AF_XDP socket is bound to the queue, or one that was just closed still is after all
    /// retries.
    QueueBusy {
        /// The interface.
        interface: String,
        /// The queue, from 0.
        queue: u32,
    },
    /// The requested mode is not available.
    NoMode {
        /// The interface.
        interface: String,
        /// The mode.
        mode: &'static str,
        /// The reason.
        because: &'static str,
    },
    /// The kernel does not accept the size of a ring.
    BadRing {
        /// The size in slots.
        size: u32,
    },
    /// The kernel rejected the steering program.
    Program(LoadError),
    /// Another error of the system.
    System {
        /// The operation.
        doing: &'static str,
        /// The interface.
        interface: String,
        /// The system's error.
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
            Self::BadChannelCount { interface, wanted, most: 0 } => write!(
                f,
                "{interface}: cannot set {wanted} channels: its driver does not let the number be changed (see `ethtool -l {interface}`; remove `channels`)"
            ),
            Self::BadChannelCount { interface, wanted, most } => write!(
                f,
                "{interface}: cannot set {wanted} channels: it has between 1 and {most} (see `ethtool -l {interface}`)"
            ),
            Self::NoRss { interface, part } => write!(
                f,
                "{interface}: cannot set {part} of its RSS: its driver does not let that be changed (see `ethtool -x {interface}`; remove `rss`)"
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
                write!(f, "invalid ring size {size}: must be a power of two, at least 64")
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
    /// Returns the error of a failed call; a missing capability is distinguished from other causes.
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

/// A capability: its name and the bits (`linux/capability.h`), any of which suffices.
#[derive(Clone, Copy, Debug)]
pub(super) struct Capability(&'static str, u64);

/// Attaching programs, setting queue options.
pub(super) const NET_ADMIN: Capability = Capability("CAP_NET_ADMIN", 1 << 12);
/// Creating AF_XDP sockets.
pub(super) const NET_RAW: Capability = Capability("CAP_NET_RAW", 1 << 13);
/// Arithmetic on addresses within programs.
pub(super) const PERFMON: Capability = Capability("CAP_PERFMON", 1 << 38 | 1 << 21);
/// Creating maps and loading programs; CAP_SYS_ADMIN suffices too.
pub(super) const BPF: Capability = Capability("CAP_BPF", 1 << 39 | 1 << 21);

/// Returns the capabilities of `needs` that this thread lacks.
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
