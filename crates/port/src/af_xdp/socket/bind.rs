//! Binding: from an interface's queue and an arena to a socket.
//!
//! The steps are in the kernel's order (net/xdp/xsk.c): open, register the memory or name a socket
//! that has, create the rings, map them, bind, steer packets to it, put frames into the fill ring.
//! The socket exists as a value as soon as its rings are mapped, so an error at any later step
//! undoes everything; the arena gives up frames only at the end.
//!
//! The first socket of an arena tries several combinations of flags (`attempts`), each with a new socket,
//! since the kernel keeps some of a refused one.

#![expect(unsafe_code, reason = "socket(2) and bind(2)")]

use std::ffi::c_int;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use super::{Joiner, RingSizes, Socket};
use crate::af_xdp::bpf::Mode;
use crate::af_xdp::counters::SocketCounters;
use crate::af_xdp::descriptor::{get, open, set};
use crate::af_xdp::error::{Error, NET_ADMIN, NET_RAW};
use crate::af_xdp::interface::{Interface, ModeChoice};
use crate::af_xdp::ring::{Consumer, Producer};
use crate::af_xdp::steer::joins_buffers;
use crate::{Arena, HEADROOM, LONG_FRAME, Port};

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

/// Returns the largest MTU, in bytes, of an interface whose packets all reach its sockets: that
/// of long frames, if this kernel has packets of several buffers (Linux 6.6), else that of frames of 4096
/// bytes. A driver in zero-copy mode may have one buffer a packet only: a router then leaves longer ones to the host.
pub fn longest_mtu() -> usize {
    largest_mtu(if joins_buffers() { LONG_FRAME as usize } else { 4096 })
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
        let shared = arena.umem().any();
        let attempts = match &shared {
            Some((_, several)) => vec![Attempt { flags: libc::XDP_SHARED_UMEM, several: *several }],
            None => attempts(interface.choice(), interface.attached(), arena.has_long_frames()),
        };
        let shared = shared.as_ref().map(|(fd, _)| &**fd);
        let mut refused = None;
        for Attempt { flags, several } in attempts {
            let size = if several { LONG_FRAME as usize } else { arena.frame_size() };
            let (mtu, limit) = (interface.mtu(), largest_mtu(size));
            if mtu > limit && !interface.passes_long_frames() {
                let limited_by = match size {
                    2048 => "a frame of 2048 bytes",
                    4096 => "a frame of 4096 bytes",
                    _ => "a frame of 16,384 bytes",
                };
                let interface = name.to_owned();
                refused.get_or_insert(Error::MtuTooLarge { interface, mtu, limit, limited_by });
                continue;
            }
            let mut socket = Self::prepare(interface, queue, arena, sizes, shared.is_none())?;
            if let Err(error) = socket.bind_queue(flags, shared) {
                let may_be_flags = [libc::EOPNOTSUPP, libc::EINVAL];
                let ends = error.raw_os_error().is_none_or(|code| !may_be_flags.contains(&code));
                refused = Some(socket.bind_error(shared.is_some(), error));
                if ends {
                    break;
                }
                continue;
            }
            socket.determine_mode()?;
            let room = if several { arena.room() } else { arena.frame_room() };
            interface.steering().set_room(room).map_err(|error| {
                Error::system("configure the steering program", name, &[], error)
            })?;
            socket.tune();
            arena.umem().join(&socket.fd, several);
            socket.stock(arena);
            interface.add_socket(&socket.watched);
            return Ok(socket);
        }
        Err(refused.unwrap_or_else(|| unreachable!("there is at least one attempt")))
    }

    /// Opens a socket with its rings, and registers the arena's memory for it if it does not share.
    fn prepare(
        interface: &Interface,
        queue: u32,
        arena: &Arena,
        sizes: RingSizes,
        registers: bool,
    ) -> Result<Self, Error> {
        let name = &*interface.name();
        let fd = Arc::new(open(name, &[NET_RAW])?);
        if registers {
            register(&fd, arena, name)?;
        }
        let rings = |error| Error::system("make the rings", name, &[NET_RAW], error);
        make_rings(fd.as_fd(), sizes).map_err(rings)?;
        let libc::xdp_mmap_offsets { rx, tx, fr, cr } = ring_offsets(fd.as_fd()).map_err(rings)?;
        let ring = fd.as_fd();
        let receive =
            Consumer::new(ring, sizes.receive, rx, libc::XDP_PGOFF_RX_RING).map_err(rings)?;
        let watched = Arc::new(SocketCounters::new(Arc::clone(&fd), receive.depth()));
        Ok(Self {
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
            joiner: Joiner::default(),
            entered: false,
            partial: interface.has_partial_checksums(),
            turns: 0,
            watched,
            host: None,
            fd,
        })
    }

    /// Binds to the queue, waiting a little for one that was just freed.
    fn bind_queue(&self, flags: u16, shared: Option<&OwnedFd>) -> io::Result<()> {
        let address = libc::sockaddr_xdp {
            sxdp_family: libc::AF_XDP as u16,
            sxdp_flags: flags,
            sxdp_ifindex: self.interface.index(),
            sxdp_queue_id: self.queue,
            sxdp_shared_umem_fd: shared.map_or(0, |fd| fd.as_raw_fd() as u32),
        };
        let mut retries = 0;
        loop {
            // SAFETY: the address is a live value of the length given.
            let answer = unsafe {
                libc::bind(
                    self.fd.as_raw_fd(),
                    (&raw const address).cast(),
                    size_of_val(&address) as libc::socklen_t,
                )
            };
            if answer == 0 {
                return Ok(());
            }
            let error = io::Error::last_os_error();
            if error.raw_os_error() != Some(libc::EBUSY) || retries == BUSY_RETRIES {
                return Err(error);
            }
            retries += 1;
            thread::sleep(BUSY_PAUSE);
        }
    }

    /// Queries the mode of the bound socket.
    fn determine_mode(&mut self) -> Result<(), Error> {
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

/// The flags of one try to bind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Attempt {
    flags: u16,
    /// Whether packets may have several buffers.
    several: bool,
}

/// Returns the attempts of an arena's first socket, the preferred one first. Zero-copy mode with one buffer
/// a packet is preferred to copy mode with several: most packets have one.
fn attempts(choice: ModeChoice, attached: Mode, has_long_frames: bool) -> Vec<Attempt> {
    let modes: &[u16] = match (choice, attached) {
        (ModeChoice::ZeroCopy, _) => &[libc::XDP_ZEROCOPY],
        (ModeChoice::Auto, Mode::Native) if has_long_frames => {
            &[libc::XDP_ZEROCOPY, libc::XDP_COPY]
        }
        // Without either flag the kernel tries zero-copy and falls back.
        (ModeChoice::Auto, Mode::Native) => &[0],
        _ => &[libc::XDP_COPY],
    };
    let with = |mode: u16| {
        let flags = mode | libc::XDP_USE_NEED_WAKEUP;
        let several = Attempt { flags: flags | libc::XDP_USE_SG, several: true };
        let single = Attempt { flags, several: false };
        has_long_frames.then_some(several).into_iter().chain([single])
    };
    modes.iter().flat_map(|&mode| with(mode)).collect()
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attempts_prefer_zero_copy_and_then_several_buffers() {
        const ZC: u16 = libc::XDP_ZEROCOPY | libc::XDP_USE_NEED_WAKEUP;
        const COPY: u16 = libc::XDP_COPY | libc::XDP_USE_NEED_WAKEUP;
        let flags = |choice, attached, long| -> Vec<u16> {
            attempts(choice, attached, long).into_iter().map(|attempt| attempt.flags).collect()
        };
        const SG: u16 = libc::XDP_USE_SG;
        assert_eq!(flags(ModeChoice::Auto, Mode::Native, false), [libc::XDP_USE_NEED_WAKEUP]);
        assert_eq!(flags(ModeChoice::Auto, Mode::Native, true), [ZC | SG, ZC, COPY | SG, COPY]);
        assert_eq!(flags(ModeChoice::Auto, Mode::Generic, true), [COPY | SG, COPY]);
        assert_eq!(flags(ModeChoice::ZeroCopy, Mode::Native, true), [ZC | SG, ZC]);
        assert_eq!(flags(ModeChoice::Copy, Mode::Native, false), [COPY]);
        for attempt in attempts(ModeChoice::Auto, Mode::Native, true) {
            assert_eq!(attempt.several, attempt.flags & SG != 0);
        }
    }
}
