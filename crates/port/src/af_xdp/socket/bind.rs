//! Binding: from an interface's queue and an arena to a socket.
//!
//! The steps are in the kernel's order (net/xdp/xsk.c): open, register the memory or name a socket
//! that has, create the rings, map them, bind, steer packets to it, put frames into the fill ring.
//! The socket exists as a value as soon as its rings are mapped, so an error at any later step
//! undoes everything; the arena gives up frames only at the end.

#![expect(unsafe_code, reason = "socket(2) and bind(2)")]

use std::ffi::c_int;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use super::{RingSizes, Socket};
use crate::af_xdp::bpf::Mode;
use crate::af_xdp::counters::SocketCounters;
use crate::af_xdp::descriptor::{get, open, set};
use crate::af_xdp::error::{Error, NET_ADMIN, NET_RAW};
use crate::af_xdp::interface::{Interface, ModeChoice};
use crate::af_xdp::ring::{Consumer, Producer};
use crate::{Arena, HEADROOM, Port};

/// Bytes in front of an IP packet: an Ethernet header and two VLAN tags.
const LINK_HEADER: usize = 14 + 2 * 4;
/// Packets sent by one system call in copy mode, if the kernel has the option.
const BUDGET: u32 = 256;
/// The kernel's number without the option.
const OLD_BUDGET: u32 = 32;
/// `XDP_MAX_TX_SKB_BUDGET` of linux/if_xdp.h (6.17).
const XDP_MAX_TX_SKB_BUDGET: c_int = 9;
/// The map offsets of two rings; libc has the others as `off_t` too.
const FILL_AT: libc::off_t = libc::XDP_UMEM_PGOFF_FILL_RING as libc::off_t;
const COMPLETION_AT: libc::off_t = libc::XDP_UMEM_PGOFF_COMPLETION_RING as libc::off_t;
/// The socket's send buffer in bytes: more than a full ring of the kernel's `sk_buff`s.
const SEND_BUFFER: c_int = 8 << 20;
/// The option that sets it beyond the system's limit (asm-generic/socket.h).
const SO_SNDBUFFORCE: c_int = 32;
/// A queue is free only some time after its socket was closed: the kernel's work for it waits for a
/// lock that network namespaces hold during their removal.
const BUSY_RETRIES: u32 = 500;
const BUSY_PAUSE: Duration = Duration::from_millis(10);

/// Returns the largest MTU, in bytes, of an interface whose packets fit frames of `frame_size`
/// bytes, which is 2048 or 4096.
pub const fn largest_mtu(frame_size: usize) -> usize {
    frame_size - HEADROOM as usize - LINK_HEADER
}

impl Socket {
    /// Opens queue `queue` of the interface, with the arena's memory.
    ///
    /// The first socket of an arena registers its memory with the kernel, and
    /// with [`ModeChoice::Auto`] decides whether all of them are zero-copy.
    ///
    /// # Errors
    ///
    /// [`Error`]; the arena is then unchanged.
    pub fn bind(
        interface: &Interface,
        queue: u32,
        arena: &mut Arena,
        sizes: RingSizes,
    ) -> Result<Self, Error> {
        sizes.check()?;
        let name = &*interface.name();
        if queue >= interface.queues() {
            let (interface, queues) = (name.to_owned(), interface.queues());
            return Err(Error::NoQueue { interface, queue, queues });
        }
        let limit = largest_mtu(arena.frame_size());
        if interface.mtu() > limit && !interface.passes_long_frames() {
            return Err(Error::MtuTooLarge {
                interface: name.to_owned(),
                mtu: interface.mtu(),
                limit,
                limited_by: if arena.frame_size() == 2048 {
                    "a frame of 2048 bytes"
                } else {
                    "a frame of 4096 bytes"
                },
            });
        }
        let fd = Arc::new(open(name, &[NET_RAW])?);
        let shared = arena.umem().any();
        if shared.is_none() {
            register(&fd, arena, name)?;
        }
        let rings = |error| Error::system("make the rings", name, &[NET_RAW], error);
        make_rings(fd.as_fd(), sizes).map_err(rings)?;
        let libc::xdp_mmap_offsets { rx, tx, fr, cr } = ring_offsets(fd.as_fd()).map_err(rings)?;
        let ring = fd.as_fd();
        let receive =
            Consumer::new(ring, sizes.receive, rx, libc::XDP_PGOFF_RX_RING).map_err(rings)?;
        let watched = Arc::new(SocketCounters::new(Arc::clone(&fd), receive.depth()));
        let mut socket = Self {
            fill: Producer::new(ring, sizes.fill, fr, FILL_AT).map_err(rings)?,
            completion: Consumer::new(ring, sizes.completion, cr, COMPLETION_AT).map_err(rings)?,
            receive,
            transmit: Producer::new(ring, sizes.transmit, tx, libc::XDP_PGOFF_TX_RING)
                .map_err(rings)?,
            interface: interface.clone(),
            name: name.to_owned(),
            queue,
            sizes,
            tag: arena.tag(),
            frame_mask: !(arena.frame_size() as u64 - 1),
            zero_copy: false,
            busy_poll: false,
            budget: OLD_BUDGET,
            filling: 0,
            sending: 0,
            entered: false,
            partial: interface.has_partial_checksums(),
            turns: 0,
            watched,
            host: None,
            fd,
        };
        socket.bind_queue(shared.as_deref())?;
        interface
            .steering()
            .set_room(arena.room())
            .map_err(|error| Error::system("configure the steering program", name, &[], error))?;
        socket.tune();
        arena.umem().join(&socket.fd);
        socket.stock(arena);
        interface.add_socket(&socket.watched);
        Ok(socket)
    }

    /// Binds to the queue, waiting a little for one that was just freed.
    fn bind_queue(&mut self, shared: Option<&OwnedFd>) -> Result<(), Error> {
        let flags = match (shared, self.interface.choice(), self.interface.attached()) {
            // The mode is that of the shared socket.
            (Some(_), ..) => libc::XDP_SHARED_UMEM,
            (None, ModeChoice::ZeroCopy, _) => libc::XDP_USE_NEED_WAKEUP | libc::XDP_ZEROCOPY,
            // Without either flag the kernel tries zero-copy and falls back.
            (None, ModeChoice::Auto, Mode::Native) => libc::XDP_USE_NEED_WAKEUP,
            _ => libc::XDP_USE_NEED_WAKEUP | libc::XDP_COPY,
        };
        let address = libc::sockaddr_xdp {
            sxdp_family: libc::AF_XDP as u16,
            sxdp_flags: flags,
            sxdp_ifindex: self.interface.index(),
            sxdp_queue_id: self.queue,
            sxdp_shared_umem_fd: shared.map_or(0, |fd| fd.as_raw_fd() as u32),
        };
        let mut retries = 0;
        let error = loop {
            // SAFETY: the address is a live value of the length given.
            let answer = unsafe {
                libc::bind(
                    self.fd.as_raw_fd(),
                    (&raw const address).cast(),
                    size_of_val(&address) as libc::socklen_t,
                )
            };
            if answer == 0 {
                break None;
            }
            let error = io::Error::last_os_error();
            if error.raw_os_error() != Some(libc::EBUSY) || retries == BUSY_RETRIES {
                break Some(error);
            }
            retries += 1;
            thread::sleep(BUSY_PAUSE);
        };
        if let Some(error) = error {
            return Err(self.bind_error(shared.is_some(), error));
        }
        let mut options = libc::xdp_options { flags: 0 };
        get(self.fd.as_fd(), libc::SOL_XDP, libc::XDP_OPTIONS, &mut options)
            .map_err(|error| Error::system("ask for the mode", self.name(), &[], error))?;
        self.zero_copy = options.flags & libc::XDP_OPTIONS_ZEROCOPY != 0;
        let wanted = self.interface.choice();
        if wanted == ModeChoice::ZeroCopy && !self.zero_copy {
            return Err(Error::NoMode {
                interface: self.name().to_owned(),
                mode: "zero-copy",
                because: "it shares an arena with a socket in copy mode",
            });
        }
        Ok(())
    }

    fn bind_error(&self, shared: bool, error: io::Error) -> Error {
        let interface = self.name().to_owned();
        match error.raw_os_error() {
            Some(libc::EBUSY) => Error::QueueBusy { interface, queue: self.queue },
            Some(libc::EINVAL) => {
                Error::NoQueue { interface, queue: self.queue, queues: self.interface.queues() }
            }
            Some(libc::ENODEV) => Error::NoInterface { interface },
            Some(libc::ENETDOWN) => Error::System {
                doing: "bind, the interface is down (`ip link set … up`)",
                interface,
                source: error,
            },
            Some(libc::EOPNOTSUPP) => Error::NoMode {
                interface,
                mode: "zero-copy",
                because: if shared {
                    "the driver has none, but the sockets it shares an arena with are zero-copy (choose `copy` for all)"
                } else {
                    "the driver has none (choose `auto` or `copy`)"
                },
            },
            _ => Error::system("bind to the queue", &interface, &[NET_RAW, NET_ADMIN], error),
        }
    }

    /// Sets optional options for speed; without them the socket works too.
    fn tune(&mut self) {
        let budget = BUDGET.min(self.sizes.transmit);
        if set(self.fd.as_fd(), libc::SOL_XDP, XDP_MAX_TX_SKB_BUDGET, &budget).is_ok() {
            self.budget = budget;
        }
        let forced = set(self.fd.as_fd(), libc::SOL_SOCKET, SO_SNDBUFFORCE, &SEND_BUFFER).is_ok();
        if !forced {
            let _ = set(self.fd.as_fd(), libc::SOL_SOCKET, libc::SO_SNDBUF, &SEND_BUFFER);
        }
    }
}

/// Registers the arena's memory as the socket's UMEM.
fn register(fd: &OwnedFd, arena: &Arena, name: &str) -> Result<(), Error> {
    let registration = libc::xdp_umem_reg {
        addr: arena.base() as u64,
        len: arena.bytes_in_all() as u64,
        chunk_size: arena.frame_size() as u32,
        // In addition to the kernel's own headroom, which is `HEADROOM`.
        headroom: 0,
        flags: 0,
        tx_metadata_len: 0,
    };
    set(fd.as_fd(), libc::SOL_XDP, libc::XDP_UMEM_REG, &registration).map_err(|error| {
        match error.raw_os_error() {
            Some(libc::ENOBUFS | libc::ENOMEM) => {
                Error::MemoryLock { interface: name.to_owned(), bytes: arena.bytes_in_all() }
            }
            _ => Error::system("register the packet memory", name, &[NET_RAW], error),
        }
    })
}

/// Creates the four rings.
fn make_rings(fd: BorrowedFd<'_>, sizes: RingSizes) -> io::Result<()> {
    for (option, size) in [
        (libc::XDP_UMEM_FILL_RING, sizes.fill),
        (libc::XDP_UMEM_COMPLETION_RING, sizes.completion),
        (libc::XDP_RX_RING, sizes.receive),
        (libc::XDP_TX_RING, sizes.transmit),
    ] {
        set(fd, libc::SOL_XDP, option, &size)?;
    }
    Ok(())
}

/// Queries the offsets of each ring's parts in its mapping.
fn ring_offsets(fd: BorrowedFd<'_>) -> io::Result<libc::xdp_mmap_offsets> {
    // SAFETY: sixteen integers, for which zero is a value.
    let mut offsets: libc::xdp_mmap_offsets = unsafe { std::mem::zeroed() };
    let filled = get(fd, libc::SOL_XDP, libc::XDP_MMAP_OFFSETS, &mut offsets)?;
    // Before Linux 5.4 the answer is shorter and has another layout.
    if filled == size_of_val(&offsets) {
        Ok(offsets)
    } else {
        Err(io::ErrorKind::Unsupported.into())
    }
}
