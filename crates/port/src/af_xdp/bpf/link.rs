//! Links: a program attached to an interface, for as long as the value lives.
//!
//! An XDP program could also be attached by netlink, and would then remain after the end of the
//! process. A link (Linux 5.9) is a descriptor: closing it detaches the program, and the kernel
//! closes it when the process ends in any way, `SIGKILL` included. So nothing remains.
//!
//! A drop does not rely on the closing alone. A process that another thread has just forked has a
//! copy of every descriptor until it executes its own program, and would leave the XDP program
//! attached until then.
//!
//! A process that takes over from another one gets a copy of its descriptor ([`Link::succeed`]). Both then
//! have the same attachment, and the drop of the copy leaves it to the predecessor until the successor
//! [owns](Link::own) it.
//!
//! A service manager may have a copy, too ([`Link::store`]): the program then stays attached when the process ends, and
//! the next process puts its own program in its place ([`StoredLink`]).

#![expect(unsafe_code, reason = "bpf(2)")]

use std::error::Error;
use std::fmt;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

use serde::{Deserialize, Serialize};

use super::Program;
use super::program::{ATTACH_EGRESS, ATTACH_XDP};
use super::sys::{self, Command, LinkInfo};

/// The type of links of XDP programs (`BPF_LINK_TYPE_XDP`).
const XDP_LINK: u32 = 6;

/// The place in the kernel at which the program runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[repr(u32)]
pub enum Mode {
    /// In the stack, after the packet has become an `sk_buff`: slow, works
    /// with every interface (`XDP_FLAGS_SKB_MODE`).
    Generic = 1 << 1,
    /// In the driver (`XDP_FLAGS_DRV_MODE`).
    Native = 1 << 2,
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Generic => "generic",
            Self::Native => "native",
        })
    }
}

/// The owner of a link, which detaches the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Owner {
    /// This process, at the drop.
    Process,
    /// The process that this one takes over from.
    Predecessor,
    /// This process before its end; at its end the service manager, which has a copy of the descriptor.
    ServiceManager,
}

/// The descriptor of a link; dropping it detaches the program if this process owns it.
#[derive(Debug)]
struct Attached {
    fd: OwnedFd,
    owner: Owner,
}

impl Attached {
    fn new(program: &Program, ifindex: u32, attach_type: u32, flags: u32) -> io::Result<Self> {
        let program_fd = program.as_fd().as_raw_fd() as u32;
        let mut attr = sys::LinkCreate { program_fd, target: ifindex, attach_type, flags };
        // SAFETY: the arm of this command, which holds no pointer; it makes a
        // descriptor.
        let fd = unsafe { sys::open(Command::LinkCreate, &mut attr) }?;
        Ok(Self { fd, owner: Owner::Process })
    }

    fn detach(&self) -> io::Result<()> {
        let mut attr = sys::LinkDetach { link_fd: self.fd.as_raw_fd() as u32 };
        // SAFETY: the arm of this command, which holds no pointer.
        unsafe { sys::bpf(Command::LinkDetach, &mut attr) }.map(drop)
    }

    fn info(&self) -> io::Result<LinkInfo> {
        let mut info = LinkInfo::default();
        // SAFETY: the struct of links, of plain numbers.
        unsafe { sys::object_info(&self.fd, &mut info) }?;
        Ok(info)
    }
}

impl Drop for Attached {
    fn drop(&mut self) {
        if self.owner == Owner::Process {
            // Linux before 5.10 has no such command; the descriptor is closed next in any case.
            let _ = self.detach();
        }
    }
}

/// A program for the packets that the host sends by an interface; dropping it detaches the program.
#[derive(Debug)]
pub struct EgressLink {
    _attached: Attached,
}

impl EgressLink {
    /// Attaches `program` ([`Program::load_egress`]) to the interface of index `ifindex` in the network
    /// namespace of the calling thread, behind the programs of others (tcx).
    ///
    /// # Errors
    ///
    /// Those of `bpf(2)`: `EINVAL` before Linux 6.6.
    pub fn attach(program: &Program, ifindex: u32) -> io::Result<Self> {
        let _attached = Attached::new(program, ifindex, ATTACH_EGRESS, 0)?;
        Ok(Self { _attached })
    }
}

/// A program attached to an interface; dropping it detaches the program.
#[derive(Debug)]
pub struct Link {
    attached: Attached,
    mode: Mode,
}

impl Link {
    /// Attaches `program` to the interface of index `ifindex` in the network
    /// namespace of the calling thread.
    ///
    /// # Errors
    ///
    /// [`AttachError`], by its remedy.
    pub fn attach(program: &Program, ifindex: u32, mode: Mode) -> Result<Self, AttachError> {
        let attached = Attached::new(program, ifindex, ATTACH_XDP, mode as u32)?;
        Ok(Self { attached, mode })
    }

    /// Shares the link of a predecessor, by a copy of its descriptor: the predecessor owns it, and its program
    /// stays.
    pub fn succeed(fd: OwnedFd, mode: Mode) -> Self {
        Self { attached: Attached { fd, owner: Owner::Predecessor }, mode }
    }

    /// Owns the link from now on: the drop of this value detaches the program.
    pub fn own(&mut self) {
        self.attached.owner = Owner::Process;
    }

    /// Returns a copy of the descriptor for a service manager: the drop of this value leaves the program attached from
    /// now on, for as long as the copy is open.
    ///
    /// # Errors
    ///
    /// The system's, if no descriptor is left; the drop detaches as before.
    pub fn store(&mut self) -> io::Result<OwnedFd> {
        let copy = self.attached.fd.try_clone()?;
        self.attached.owner = Owner::ServiceManager;
        Ok(copy)
    }

    /// Detaches the program, also if a service manager has a copy of the descriptor; that of a predecessor stays.
    pub fn detach(mut self) {
        if self.attached.owner == Owner::ServiceManager {
            self.attached.owner = Owner::Process;
        }
    }

    /// Returns the kernel's number of the link, which it does not use again.
    ///
    /// # Errors
    ///
    /// Those of `bpf(2)`.
    pub fn id(&self) -> io::Result<u32> {
        Ok(self.attached.info()?.id)
    }

    /// Puts `program` in the place of the present one: each frame passes through one of the two.
    ///
    /// # Errors
    ///
    /// Those of `bpf(2)`: `ENOLINK` if the interface has gone, `EINVAL` if the driver cannot run the
    /// program, such as one for a single buffer in place of one for several. The present one stays.
    pub fn replace(&self, program: &Program) -> io::Result<()> {
        let mut attr = sys::LinkUpdate {
            link_fd: self.attached.fd.as_raw_fd() as u32,
            new_program_fd: program.as_fd().as_raw_fd() as u32,
        };
        // SAFETY: the arm of this command, which holds no pointer.
        unsafe { sys::bpf(Command::LinkUpdate, &mut attr) }.map(drop)
    }

    /// Returns the place at which it runs.
    pub fn mode(&self) -> Mode {
        self.mode
    }
}

impl AsFd for Link {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.attached.fd.as_fd()
    }
}

/// A link of a process that has ended, kept by the service manager: its program is attached. Dropping the value leaves
/// that so.
#[derive(Debug)]
pub struct StoredLink(Link);

impl StoredLink {
    /// Takes the descriptor of this number, that the service manager has passed; `mode` is the place at which the
    /// program runs. The number itself stays open until the process ends.
    ///
    /// # Errors
    ///
    /// The system's: it is not open, or not the link of an XDP program.
    pub fn open(number: RawFd, mode: Mode) -> io::Result<Self> {
        // SAFETY: the call takes no pointer, and fails if the descriptor is not open.
        let copy = unsafe { libc::fcntl(number, libc::F_DUPFD_CLOEXEC, 3) };
        if copy < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the kernel has just made this descriptor for this call, so nothing else owns it.
        let fd = unsafe { OwnedFd::from_raw_fd(copy) };
        let attached = Attached { fd, owner: Owner::ServiceManager };
        match attached.info()?.link_type {
            XDP_LINK => Ok(Self(Link { attached, mode })),
            _ => Err(io::Error::new(io::ErrorKind::InvalidInput, "not the link of an XDP program")),
        }
    }

    /// Returns the index of the interface; 0 if that has gone.
    ///
    /// # Errors
    ///
    /// Those of `bpf(2)`.
    pub fn interface(&self) -> io::Result<u32> {
        Ok(self.0.attached.info()?.ifindex)
    }

    /// Puts `program` in place of the attached one.
    ///
    /// # Errors
    ///
    /// Those of [`Link::replace`]; nothing is attached any more.
    pub(in crate::af_xdp) fn adopt(self, program: &Program) -> io::Result<Link> {
        match self.0.replace(program) {
            Ok(()) => Ok(self.0),
            Err(error) => {
                self.detach();
                Err(error)
            }
        }
    }

    /// Returns the place at which the program runs.
    pub fn mode(&self) -> Mode {
        self.0.mode()
    }

    /// Detaches the program.
    pub fn detach(self) {
        self.0.detach();
    }
}

/// The reason why a program could not be attached.
#[derive(Debug)]
pub enum AttachError {
    /// `CAP_NET_ADMIN` or `CAP_BPF` is missing.
    Permission,
    /// There is no interface of this index in this namespace.
    NoInterface,
    /// Another XDP program is on the interface.
    Busy,
    /// The driver has no XDP of its own (native), or the kernel no links.
    Unsupported,
    /// The interface has too few receive queues for the transmit queues of its
    /// peer (veth).
    Queues,
    /// The MTU is too large for a frame to fit a page.
    Mtu,
    /// Another error.
    Other(io::Error),
}

impl From<io::Error> for AttachError {
    fn from(error: io::Error) -> Self {
        match error.raw_os_error() {
            Some(libc::EPERM | libc::EACCES) => Self::Permission,
            Some(libc::ENODEV) => Self::NoInterface,
            Some(libc::EBUSY | libc::EEXIST) => Self::Busy,
            Some(libc::EOPNOTSUPP) => Self::Unsupported,
            Some(libc::ENOSPC) => Self::Queues,
            Some(libc::ERANGE) => Self::Mtu,
            _ => Self::Other(error),
        }
    }
}

impl fmt::Display for AttachError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Permission => {
                f.write_str("no permission to attach an XDP program (CAP_NET_ADMIN and CAP_BPF)")
            }
            Self::NoInterface => f.write_str("no such interface in this network namespace"),
            Self::Busy => {
                f.write_str("another XDP program is attached to the interface; detach it first")
            }
            Self::Unsupported => f.write_str("the interface's driver has no native XDP"),
            Self::Queues => f.write_str(
                "the interface has fewer receive queues than its peer has transmit queues",
            ),
            Self::Mtu => f.write_str("the interface's MTU is too large for native XDP"),
            Self::Other(error) => write!(f, "the XDP program could not be attached: {error}"),
        }
    }
}

impl Error for AttachError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Other(error) => Some(error),
            _ => None,
        }
    }
}
