//! The interface: a device taken over, for as long as the value lives.
//!
//! [`Interface::open`] looks the device up, loads the steering program for its
//! MAC and attaches it: in the driver where that works (native), else in the
//! stack (generic). It is done once a device; the sockets of its queues hold
//! the interface and it is given back when the last of them is dropped, or when
//! the process dies: the attachment is a link, which the kernel takes away with
//! its descriptor.
//!
//! Everything is looked up in the network namespace of the calling thread;
//! once open, sockets may be used from any.
//!
//! Limits: the MAC, the MTU and the number of queues are those at the time of
//! opening. A device whose MAC changes must be opened again.

#![expect(unsafe_code, reason = "ioctl(2) reads and writes through pointers")]

use std::ffi::{CString, c_char};
use std::io;
use std::mem;
use std::net::IpAddr;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::Arc;

use super::bpf::{AttachError, Link, Mode};
use super::error::{BPF, Error, NET_ADMIN, NET_RAW};
use super::socket;
use super::steer::{Counts, Early, Locals, Source, Steering, Written};

/// Which ways of receiving may be used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ModeChoice {
    /// The best there is: zero-copy, else copy, else generic.
    #[default]
    Auto,
    /// Only zero-copy: the device writes into the arena.
    ZeroCopy,
    /// Only copy: the driver runs the program, the kernel copies.
    Copy,
    /// Only generic: the stack runs the program, works with any device.
    Generic,
}

/// A device with the steering program on it. Clones are the same interface.
#[derive(Clone, Debug)]
pub struct Interface(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    name: String,
    index: u32,
    mac: [u8; 6],
    mtu: usize,
    queues: u32,
    choice: ModeChoice,
    /// Before `steering`: the program goes off the device first.
    link: Link,
    fallback: Option<AttachError>,
    steering: Steering,
}

impl Interface {
    /// Takes over the device `name` with the first `queues` of its receive
    /// queues; packets of the others stay with the host.
    ///
    /// # Errors
    ///
    /// [`Error`]; nothing is left on the device then.
    pub fn open(
        name: &str,
        queues: u32,
        locals: &Locals,
        choice: ModeChoice,
    ) -> Result<Self, Error> {
        Self::take_over(name, queues, locals, choice, None)
    }

    /// Does so for a gate, which may drop so much there.
    ///
    /// # Errors
    ///
    /// As [`open`](Self::open).
    pub fn open_guarding(
        name: &str,
        queues: u32,
        locals: &Locals,
        choice: ModeChoice,
        early: Early,
    ) -> Result<Self, Error> {
        Self::take_over(name, queues, locals, choice, Some(early))
    }

    fn take_over(
        name: &str,
        queues: u32,
        locals: &Locals,
        choice: ModeChoice,
        guards: Option<Early>,
    ) -> Result<Self, Error> {
        let device = Device::find(name)?;
        // Not every driver tells; bind is then the judge.
        let there = device.queues().unwrap_or(queues);
        if queues == 0 || queues > there {
            return Err(Error::BadQueueCount {
                interface: name.to_owned(),
                wanted: queues,
                queues: there,
            });
        }
        // First of all, so that nothing is attached where it would be in vain,
        // and all rights that are missing are told at once.
        drop(socket::open(name, &[NET_RAW, NET_ADMIN, BPF])?);
        let (mac, mtu, index) = (device.mac()?, device.mtu()?, device.index()?);
        let steering = match guards {
            Some(early) => Steering::guarding(mac, queues, locals, early),
            None => Steering::new(mac, queues, locals),
        };
        let steering = steering.map_err(|error| match error.cause.raw_os_error() {
            Some(libc::EPERM | libc::EACCES) if error.log.is_empty() => {
                Error::system("load the steering program", name, &[BPF, NET_ADMIN], error.cause)
            }
            _ => Error::Program(error),
        })?;
        let attach = |mode| Link::attach(steering.program(), index, mode);
        let (link, fallback) = match choice {
            ModeChoice::Generic => (attach(Mode::Generic), None),
            _ => match attach(Mode::Native) {
                Err(
                    why @ (AttachError::Unsupported
                    | AttachError::Queues
                    | AttachError::Mtu
                    | AttachError::Other(_)),
                ) if choice == ModeChoice::Auto => (attach(Mode::Generic), Some(why)),
                other => (other, None),
            },
        };
        let link = link.map_err(|error| attach_error(error, name, mtu))?;
        let name = name.to_owned();
        Ok(Self(Arc::new(Inner {
            name,
            index,
            mac,
            mtu,
            queues,
            choice,
            link,
            fallback,
            steering,
        })))
    }

    /// Returns its name.
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// Returns its index in its network namespace.
    pub fn index(&self) -> u32 {
        self.0.index
    }

    /// Returns its hardware address.
    pub fn mac(&self) -> [u8; 6] {
        self.0.mac
    }

    /// Returns the largest IP packet, in bytes.
    pub fn mtu(&self) -> usize {
        self.0.mtu
    }

    /// Returns how many of its queues were taken over.
    pub fn queues(&self) -> u32 {
        self.0.queues
    }

    /// Returns what was chosen when it was opened.
    pub fn choice(&self) -> ModeChoice {
        self.0.choice
    }

    /// Returns where in the kernel the steering program runs.
    pub fn attached(&self) -> Mode {
        self.0.link.mode()
    }

    /// Says why the program is not in the driver, where [`ModeChoice::Auto`]
    /// fell back to generic.
    pub fn fallback(&self) -> Option<&AttachError> {
        self.0.fallback.as_ref()
    }

    /// Replaces the host's own addresses.
    ///
    /// # Errors
    ///
    /// See [`Steering::set_locals`].
    pub fn set_locals(&self, locals: &Locals) -> io::Result<()> {
        self.0.steering.set_locals(locals)
    }

    /// Drops packets of a flow in the kernel until a moment, or no longer.
    ///
    /// # Errors
    ///
    /// See [`Steering::decline`].
    pub fn decline(&self, src: IpAddr, dst: IpAddr, until: Option<u64>) -> io::Result<()> {
        self.0.steering.decline(src, dst, until)
    }

    /// Counts the bytes of packets dropped so.
    ///
    /// # Errors
    ///
    /// See [`Steering::declined_bytes`].
    pub fn declined_bytes(&self) -> io::Result<u64> {
        self.0.steering.declined_bytes()
    }

    /// Drops packets of these sources in the kernel, and of no others.
    ///
    /// # Errors
    ///
    /// See [`Steering::set_blocked`].
    pub fn set_blocked(&self, list: &[Source]) -> io::Result<Written> {
        self.0.steering.set_blocked(list)
    }

    /// Says whether packets of a source are dropped so.
    ///
    /// # Errors
    ///
    /// See [`Steering::blocks`].
    pub fn blocks(&self, source: IpAddr) -> io::Result<bool> {
        self.0.steering.blocks(source)
    }

    /// Counts the bytes of packets dropped so.
    ///
    /// # Errors
    ///
    /// See [`Steering::blocked_bytes`].
    pub fn blocked_bytes(&self) -> io::Result<u64> {
        self.0.steering.blocked_bytes()
    }

    /// Leaves all packets to the host from now on and counts those that would have been
    /// taken, or takes them again. The sockets stay, and may send.
    ///
    /// # Errors
    ///
    /// Those of `bpf(2)`.
    pub fn observe(&self, only: bool) -> io::Result<()> {
        self.0.steering.observe(only)
    }

    /// Says whether all packets are left to the host.
    ///
    /// # Errors
    ///
    /// Those of `bpf(2)`.
    pub fn observes(&self) -> io::Result<bool> {
        self.0.steering.observes()
    }

    /// Reads what the steering program has counted.
    ///
    /// # Errors
    ///
    /// Those of `bpf(2)`.
    pub fn counts(&self) -> io::Result<Counts> {
        self.0.steering.counts()
    }

    pub(super) fn steering(&self) -> &Steering {
        &self.0.steering
    }
}

fn attach_error(error: AttachError, name: &str, mtu: usize) -> Error {
    let interface = name.to_owned();
    let native =
        |because| Error::NoMode { interface: name.to_owned(), mode: "native XDP", because };
    match error {
        AttachError::Permission => Error::system(
            "attach the steering program",
            name,
            &[NET_ADMIN, BPF],
            io::Error::from_raw_os_error(libc::EPERM),
        ),
        AttachError::NoInterface => Error::NoInterface { interface },
        AttachError::Busy => Error::OtherProgram { interface },
        AttachError::Unsupported => native("the driver has none (choose `auto` or `generic`)"),
        AttachError::Queues => native(
            "the interface has fewer receive queues than its peer has transmit queues (set them equal with `ethtool -L`, or choose `auto` or `generic`)",
        ),
        // A page, less the headroom and what the kernel keeps behind a packet.
        AttachError::Mtu => Error::MtuTooLarge {
            interface,
            mtu,
            limit: 3506,
            limited_by: "native XDP, one page a packet,",
        },
        AttachError::Other(source) => {
            Error::System { doing: "attach the steering program", interface, source }
        }
    }
}

/// `struct ethtool_channels` of linux/ethtool.h.
#[repr(C)]
#[derive(Default)]
struct Channels {
    command: u32,
    max: [u32; 4],
    rx: u32,
    tx: u32,
    other: u32,
    combined: u32,
}

/// `ETHTOOL_GCHANNELS`.
const GET_CHANNELS: u32 = 0x3c;

/// `struct ethtool_value` of linux/ethtool.h.
#[repr(C)]
struct Value {
    command: u32,
    data: u32,
}

/// `ETHTOOL_STXCSUM`.
const SET_TX_CHECKSUM: u32 = 0x17;

/// Has the host compute the checksums of what it sends over `name` itself, as
/// `ethtool -K NAME tx off` does.
///
/// A veth leaves them to a card that there is none of; what an AF_XDP socket at its other end
/// takes has not passed one, and would arrive with half a checksum.
///
/// # Errors
///
/// [`Error`]: there is no such interface, or the right to change it is missing.
pub fn compute_checksums(name: &str) -> Result<(), Error> {
    let device = Device::find(name)?;
    let mut value = Value { command: SET_TX_CHECKSUM, data: 0 };
    let mut ifreq = Device::empty();
    ifreq.ifr_ifru.ifru_data = (&raw mut value).cast();
    // The kernel reads one `struct ethtool_value` through the pointer, which is what it
    // points to.
    device.ask(libc::SIOCETHTOOL as libc::Ioctl, &mut ifreq)
}

/// A device by name, and a socket to ask about it.
struct Device {
    name: CString,
    socket: OwnedFd,
}

impl Device {
    fn find(name: &str) -> Result<Self, Error> {
        let missing = || Error::NoInterface { interface: name.to_owned() };
        if name.is_empty() || name.len() >= libc::IFNAMSIZ {
            return Err(missing());
        }
        let c_name = CString::new(name).map_err(|_| missing())?;
        // SAFETY: no pointer; it makes a descriptor.
        let fd = unsafe { libc::socket(libc::AF_INET, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0) };
        if fd < 0 {
            let error = io::Error::last_os_error();
            return Err(Error::system("ask about it", name, &[], error));
        }
        // SAFETY: made just above, and nobody else knows it.
        let socket = unsafe { OwnedFd::from_raw_fd(fd) };
        let device = Self { name: c_name, socket };
        device.index()?;
        Ok(device)
    }

    /// Asks one question about the device.
    fn ask(&self, request: libc::Ioctl, ifreq: &mut libc::ifreq) -> Result<(), Error> {
        for (to, from) in ifreq.ifr_name.iter_mut().zip(self.name.as_bytes_with_nul()) {
            *to = *from as c_char;
        }
        // SAFETY:
        // - all requests made here read the name from a `struct ifreq` and
        //   write their answer into the same; a pointer in it is the caller's
        //   care.
        let answer = unsafe { libc::ioctl(self.socket.as_raw_fd(), request, &raw mut *ifreq) };
        if answer == 0 {
            return Ok(());
        }
        let (error, name) = (io::Error::last_os_error(), self.name.to_string_lossy());
        Err(match error.raw_os_error() {
            Some(libc::ENODEV | libc::ENXIO) => Error::NoInterface { interface: name.into() },
            _ => Error::system("ask about it", &name, &[], error),
        })
    }

    fn empty() -> libc::ifreq {
        // SAFETY: a `struct ifreq` is an array of characters and a union of
        // plain integers and pointers; all of them may be zero.
        unsafe { mem::zeroed() }
    }

    fn index(&self) -> Result<u32, Error> {
        let mut ifreq = Self::empty();
        self.ask(libc::SIOCGIFINDEX as libc::Ioctl, &mut ifreq)?;
        // SAFETY: the arm that SIOCGIFINDEX writes.
        Ok(unsafe { ifreq.ifr_ifru.ifru_ifindex } as u32)
    }

    fn mtu(&self) -> Result<usize, Error> {
        let mut ifreq = Self::empty();
        self.ask(libc::SIOCGIFMTU as libc::Ioctl, &mut ifreq)?;
        // SAFETY: the arm that SIOCGIFMTU writes.
        Ok(unsafe { ifreq.ifr_ifru.ifru_mtu } as usize)
    }

    fn mac(&self) -> Result<[u8; 6], Error> {
        let mut ifreq = Self::empty();
        self.ask(libc::SIOCGIFHWADDR as libc::Ioctl, &mut ifreq)?;
        // SAFETY: the arm that SIOCGIFHWADDR writes.
        let address = unsafe { ifreq.ifr_ifru.ifru_hwaddr };
        if address.sa_family != libc::ARPHRD_ETHER {
            let interface = self.name.to_string_lossy().into_owned();
            return Err(Error::NotEthernet { interface });
        }
        Ok(std::array::from_fn(|byte| address.sa_data[byte] as u8))
    }

    /// Counts the receive queues, where the driver tells.
    fn queues(&self) -> Option<u32> {
        let mut channels = Channels { command: GET_CHANNELS, ..Channels::default() };
        let mut ifreq = Self::empty();
        ifreq.ifr_ifru.ifru_data = (&raw mut channels).cast();
        // The kernel writes one `struct ethtool_channels` through the pointer,
        // which is what it points to.
        self.ask(libc::SIOCETHTOOL as libc::Ioctl, &mut ifreq).ok()?;
        let queues = channels.rx + channels.combined;
        (queues > 0).then_some(queues)
    }
}
