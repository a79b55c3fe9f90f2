//! The socket: the port of one queue of one interface.
//!
//! A frame goes round through the four rings (`ring.rs`) like this; each arrow
//! is a place where its token is consumed or made anew:
//!
//! ```text
//!   Arena ──alloc──► fill ring ──► kernel ──► receive ring ──► Frame of the caller
//!     ▲                                                             │ transmit
//!     └──── free ◄── completion ring ◄── kernel ◄── transmit ring ◄─┘ (of any
//!                                                                      socket of
//!                                                                      the arena)
//! ```
//!
//! - The fill ring is topped up after every receive from what the arena has;
//!   when that is nothing, the kernel drops and counts (`fill_empty`), and
//!   the next receive tries again.
//! - Frames in the fill and receive rings together are never more than the
//!   receive ring's size, so that ring cannot overflow.
//! - `transmit` only writes descriptors; `flush` tells the kernel, with one
//!   system call where its budget allows, and collects what has left. In copy
//!   mode the packets are sent inside that call. The budget is 32 packets a
//!   call, 256 where `XDP_MAX_TX_SKB_BUDGET` is known (Linux 6.17).
//! - A call is made only when the ring's flag asks for it (`need_wakeup`).
//!
//! Limits: one buffer a packet (no `XDP_USE_SG`), so the MTU must fit a frame.
//! Dropping a socket loses the frames in its rings to the arena until the arena
//! itself goes: the kernel may still be reading them.

#![expect(unsafe_code, reason = "system calls, and frames handed to the kernel")]

use std::ffi::c_int;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use super::bpf::Mode;
use super::error::{Error, NET_ADMIN, NET_RAW};
use super::interface::{Interface, ModeChoice};
use super::ring::{Consumer, Producer};
use crate::{Arena, Frame, HEADROOM, Port, PortStats};

/// Bytes in front of an IP packet: an Ethernet header and two VLAN tags.
const LINK_HEADER: usize = 14 + 2 * 4;
/// Packets sent by one system call in copy mode, where the kernel lets us say.
const BUDGET: u32 = 256;
/// What it is where the kernel does not.
const OLD_BUDGET: u32 = 32;
/// `XDP_MAX_TX_SKB_BUDGET` of linux/if_xdp.h (6.17).
const XDP_MAX_TX_SKB_BUDGET: c_int = 9;
/// Where two of the rings are mapped from; libc has the others as `off_t` too.
const FILL_AT: libc::off_t = libc::XDP_UMEM_PGOFF_FILL_RING as libc::off_t;
const COMPLETION_AT: libc::off_t = libc::XDP_UMEM_PGOFF_COMPLETION_RING as libc::off_t;
/// Bytes of packets on their way out that the socket may have: a full ring of
/// the kernel's `sk_buff`s, and more.
const SEND_BUFFER: c_int = 8 << 20;
/// The option that sets it beyond the system's limit (asm-generic/socket.h).
const SO_SNDBUFFORCE: c_int = 32;
/// A queue is free again some time after its socket was closed, not at once.
const BUSY_RETRIES: u32 = 100;
const BUSY_PAUSE: Duration = Duration::from_millis(10);

/// Slots of the four rings, each a power of two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RingSizes {
    /// Free frames waiting for the kernel; no more than `receive` are kept there.
    pub fill: u32,
    /// Received packets waiting for us.
    pub receive: u32,
    /// Packets waiting to be sent.
    pub transmit: u32,
    /// Sent frames waiting to be collected.
    pub completion: u32,
}

impl Default for RingSizes {
    /// 2048 each.
    fn default() -> Self {
        Self::all(2048)
    }
}

impl RingSizes {
    /// Gives all four the same size.
    pub fn all(size: u32) -> Self {
        Self { fill: size, receive: size, transmit: size, completion: size }
    }

    /// Returns how many frames a socket with these rings holds at the most,
    /// for sizing the arena.
    pub fn frames(&self) -> u32 {
        self.stock() + self.transmit + self.completion
    }

    /// Frames kept for receiving.
    fn stock(&self) -> u32 {
        self.fill.min(self.receive)
    }

    fn check(&self) -> Result<(), Error> {
        for size in [self.fill, self.receive, self.transmit, self.completion] {
            if !size.is_power_of_two() || !(64..=1 << 20).contains(&size) {
                return Err(Error::BadRing { size });
            }
        }
        Ok(())
    }
}

/// A port on one queue of an interface.
pub struct Socket {
    // The rings are unmapped before the descriptor closes.
    fill: Producer<u64>,
    completion: Consumer<u64>,
    receive: Consumer<libc::xdp_desc>,
    transmit: Producer<libc::xdp_desc>,
    fd: Arc<OwnedFd>,
    interface: Interface,
    queue: u32,
    sizes: RingSizes,
    /// Identity of the arena whose memory this is.
    tag: u32,
    frame_mask: u64,
    zero_copy: bool,
    busy_poll: bool,
    budget: u32,
    /// Frames in the kernel's hands to receive into.
    filling: u32,
    /// Frames in the kernel's hands to send from.
    sending: u32,
    stats: PortStats,
}

impl Socket {
    /// Opens queue `queue` of the interface, with the arena's memory.
    ///
    /// The first socket of an arena registers its memory with the kernel, and
    /// with [`ModeChoice::Auto`] decides whether all of them are zero-copy.
    ///
    /// # Errors
    ///
    /// [`Error`]; the arena is then as it was.
    pub fn bind(
        interface: &Interface,
        queue: u32,
        arena: &mut Arena,
        sizes: RingSizes,
    ) -> Result<Self, Error> {
        sizes.check()?;
        let name = interface.name();
        if queue >= interface.queues() {
            let (interface, queues) = (name.to_owned(), interface.queues());
            return Err(Error::NoQueue { interface, queue, queues });
        }
        let limit = arena.room() - LINK_HEADER;
        if interface.mtu() > limit {
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
        // SAFETY: no pointer; it makes a descriptor.
        let fd = unsafe { libc::socket(libc::AF_XDP, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0) };
        if fd < 0 {
            let error = io::Error::last_os_error();
            return Err(Error::system("open an AF_XDP socket", name, &[NET_RAW], error));
        }
        // SAFETY: made just above, and nobody else knows it.
        let fd = Arc::new(unsafe { OwnedFd::from_raw_fd(fd) });

        let shared = arena.umem().any();
        if shared.is_none() {
            register(&fd, arena, name)?;
        }
        let rings = |error| Error::system("make the rings", name, &[NET_RAW], error);
        make_rings(fd.as_fd(), sizes).map_err(rings)?;
        let libc::xdp_mmap_offsets { rx, tx, fr, cr } = ring_offsets(fd.as_fd()).map_err(rings)?;
        let ring = fd.as_fd();
        let mut socket = Self {
            fill: Producer::new(ring, sizes.fill, fr, FILL_AT).map_err(rings)?,
            completion: Consumer::new(ring, sizes.completion, cr, COMPLETION_AT).map_err(rings)?,
            receive: Consumer::new(ring, sizes.receive, rx, libc::XDP_PGOFF_RX_RING)
                .map_err(rings)?,
            transmit: Producer::new(ring, sizes.transmit, tx, libc::XDP_PGOFF_TX_RING)
                .map_err(rings)?,
            interface: interface.clone(),
            queue,
            sizes,
            tag: arena.tag(),
            frame_mask: !(arena.frame_size() as u64 - 1),
            zero_copy: false,
            busy_poll: false,
            budget: OLD_BUDGET,
            filling: 0,
            sending: 0,
            stats: PortStats::default(),
            fd,
        };
        socket.bind_queue(shared.as_deref())?;
        socket.tune();
        arena.umem().join(&socket.fd);
        let map = interface.steering().sockets();
        map.set_fd(queue, socket.fd.as_fd())
            .map_err(|error| Error::system("steer to the socket", name, &[NET_ADMIN], error))?;
        socket.stock(arena);
        Ok(socket)
    }

    /// Lets receiving run the device's work in our own system call instead of
    /// an interrupt's: fewer switches where router and device share a CPU.
    ///
    /// # Errors
    ///
    /// The system's: `EPERM` without `CAP_NET_ADMIN`, `ENOPROTOOPT` before
    /// Linux 5.11.
    pub fn busy_poll(&mut self, microseconds: u32, budget: u32) -> io::Result<()> {
        // linux/asm-generic/socket.h.
        const SO_BUSY_POLL: c_int = 46;
        const SO_PREFER_BUSY_POLL: c_int = 69;
        const SO_BUSY_POLL_BUDGET: c_int = 70;
        for (option, value) in
            [(SO_PREFER_BUSY_POLL, 1), (SO_BUSY_POLL, microseconds), (SO_BUSY_POLL_BUDGET, budget)]
        {
            set(self.fd.as_fd(), libc::SOL_SOCKET, option, &value)?;
        }
        self.busy_poll = true;
        Ok(())
    }

    /// Returns the interface.
    pub fn interface(&self) -> &Interface {
        &self.interface
    }

    /// Returns the queue, from 0.
    pub fn queue(&self) -> u32 {
        self.queue
    }

    /// Binds to the queue, waiting a little for one that was just freed.
    fn bind_queue(&mut self, shared: Option<&OwnedFd>) -> Result<(), Error> {
        let flags = match (shared, self.interface.choice(), self.interface.attached()) {
            // The mode is that of the socket shared with.
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

    /// Sets what makes it faster; where the kernel refuses, it is as before.
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

    /// Tops up the fill ring.
    fn stock(&mut self, arena: &mut Arena) {
        let wanted = self.sizes.stock() - self.filling;
        let fit = self.fill.free(wanted).min(wanted).min(arena.available() as u32);
        for _ in 0..fit {
            let Some(Frame { at, .. }) = arena.alloc() else { break };
            // SAFETY: the token has just been taken apart, so nobody has the
            // frame any more; it is of this socket's memory, as `arena` is.
            unsafe { self.fill.push(u64::from(at - HEADROOM)) };
            self.filling += 1;
        }
        if fit > 0 {
            self.fill.publish();
            if self.fill.needs_wakeup() {
                self.wake_receive();
            }
        }
    }

    /// Frees the frames of packets that have left.
    fn collect(&mut self, arena: &mut Arena) {
        let waiting = self.completion.waiting();
        for _ in 0..waiting {
            let start = self.completion.pop() & self.frame_mask;
            // The token anew: the kernel names each frame it was given once.
            arena.free(Frame { at: start as u32 + HEADROOM, len: 0, tag: self.tag });
        }
        if waiting > 0 {
            self.completion.release();
            self.sending -= waiting;
        }
    }

    /// Has the kernel look at the fill ring, and in busy polling at the device.
    fn wake_receive(&self) {
        // SAFETY: no buffer: AF_XDP takes none, only the call itself matters.
        unsafe {
            libc::recvfrom(
                self.fd.as_raw_fd(),
                std::ptr::null_mut(),
                0,
                libc::MSG_DONTWAIT,
                std::ptr::null_mut(),
                std::ptr::null_mut(),
            )
        };
    }

    /// Has the kernel look at the transmit ring. Errors (`EAGAIN` at the end of
    /// its budget, `ENOBUFS`, `ENETDOWN`) mean that the rest stays in the ring,
    /// which `pending` shows.
    fn wake_transmit(&self) {
        // SAFETY: no buffer and no address, as AF_XDP wants it.
        unsafe {
            libc::sendto(
                self.fd.as_raw_fd(),
                std::ptr::null(),
                0,
                libc::MSG_DONTWAIT,
                std::ptr::null(),
                0,
            )
        };
    }

    fn check(&self, arena: &Arena) {
        assert!(arena.tag() == self.tag, "a socket was used with an arena it is not bound to");
    }
}

impl Port for Socket {
    fn name(&self) -> &str {
        self.interface.name()
    }

    fn mac(&self) -> [u8; 6] {
        self.interface.mac()
    }

    fn mtu(&self) -> usize {
        self.interface.mtu()
    }

    fn receive(&mut self, arena: &mut Arena, room: usize, out: &mut Vec<Frame>) -> usize {
        self.check(arena);
        let count = (self.receive.waiting() as usize).min(room);
        let mut bytes = 0;
        for _ in 0..count {
            let libc::xdp_desc { addr, len, .. } = self.receive.pop();
            bytes += u64::from(len);
            // The token anew: the kernel names each frame it was given once.
            out.push(Frame { at: addr as u32, len, tag: self.tag });
        }
        if count > 0 {
            self.receive.release();
            self.filling -= count as u32;
            self.stats.received += count as u64;
            self.stats.received_bytes += bytes;
        } else if self.busy_poll {
            self.wake_receive();
        }
        if self.filling < self.sizes.stock() {
            self.stock(arena);
        }
        count
    }

    fn transmit(&mut self, arena: &mut Arena, frames: &mut Vec<Frame>) -> usize {
        self.check(arena);
        let fit = (self.transmit.free(frames.len() as u32) as usize).min(frames.len());
        let mut written = 0;
        for frame in frames.drain(..fit) {
            assert!(frame.tag == self.tag, "a frame was given to an arena that it is not of");
            if frame.len == 0 {
                // The kernel skips such a descriptor and never completes it.
                self.stats.tx_invalid += 1;
                arena.free(frame);
                continue;
            }
            let Frame { at, len, .. } = frame;
            self.stats.transmitted_bytes += u64::from(len);
            // SAFETY: the token has just been taken apart, so nobody has the
            // frame any more; its tag says that it is of this socket's memory.
            unsafe { self.transmit.push(libc::xdp_desc { addr: u64::from(at), len, options: 0 }) };
            written += 1;
        }
        if written > 0 {
            self.transmit.publish();
            self.sending += written;
            self.stats.transmitted += u64::from(written);
        }
        fit
    }

    fn punt(&mut self, arena: &mut Arena, frame: Frame) -> bool {
        // What the host should have was left to it by the steering program.
        arena.free(frame);
        false
    }

    fn flush(&mut self, arena: &mut Arena) {
        self.check(arena);
        if self.sending == 0 {
            return;
        }
        self.collect(arena);
        let mut left = self.transmit.pending();
        while left > 0 && self.transmit.needs_wakeup() {
            self.wake_transmit();
            let now = self.transmit.pending();
            // No progress: the device or the completion ring is full.
            if now == left {
                break;
            }
            left = now;
        }
        self.collect(arena);
    }

    fn held(&self) -> usize {
        (self.filling + self.sending) as usize
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        Some(self.fd.as_fd())
    }

    fn stats(&self) -> PortStats {
        // SAFETY: six integers, for which zero is a value.
        let mut kernel: libc::xdp_statistics = unsafe { std::mem::zeroed() };
        // An older kernel fills in fewer; the others stay zero.
        let _ = get(self.fd.as_fd(), libc::SOL_XDP, libc::XDP_STATISTICS, &mut kernel);
        PortStats {
            passed: self.interface.counts().map_or(0, |counts| counts.passed()),
            rx_ring_full: kernel.rx_ring_full,
            fill_empty: kernel.rx_fill_ring_empty_descs,
            // The kernel counts a missing frame in both.
            rx_dropped: kernel.rx_dropped.saturating_sub(kernel.rx_fill_ring_empty_descs),
            tx_invalid: self.stats.tx_invalid + kernel.tx_invalid_descs,
            ..self.stats
        }
    }

    fn mode(&self) -> &'static str {
        match (self.interface.attached(), self.zero_copy) {
            (Mode::Generic, _) => "AF_XDP generic",
            (Mode::Native, true) => "AF_XDP zero-copy",
            (Mode::Native, false) => "AF_XDP copy",
        }
    }
}

/// Registers the arena's memory as the socket's UMEM.
fn register(fd: &OwnedFd, arena: &Arena, name: &str) -> Result<(), Error> {
    let registration = libc::xdp_umem_reg {
        addr: arena.base() as u64,
        len: arena.bytes_in_all() as u64,
        chunk_size: arena.frame_size() as u32,
        // On top of the kernel's own, which is what `HEADROOM` names.
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

/// Makes the four rings.
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

/// Asks where in each ring's mapping its parts are.
fn ring_offsets(fd: BorrowedFd<'_>) -> io::Result<libc::xdp_mmap_offsets> {
    // SAFETY: sixteen integers, for which zero is a value.
    let mut offsets: libc::xdp_mmap_offsets = unsafe { std::mem::zeroed() };
    let filled = get(fd, libc::SOL_XDP, libc::XDP_MMAP_OFFSETS, &mut offsets)?;
    // Before Linux 5.4 the answer is shorter and laid out otherwise.
    if filled == size_of_val(&offsets) {
        Ok(offsets)
    } else {
        Err(io::ErrorKind::Unsupported.into())
    }
}

/// Sets an option of a socket.
fn set<T: Copy>(fd: BorrowedFd<'_>, level: c_int, option: c_int, value: &T) -> io::Result<()> {
    // SAFETY:
    // - the kernel reads as many bytes as given, those of `value`; options
    //   here are integers and, for the UMEM, an address and a length, behind
    //   which the kernel looks only by the rules of `region.rs`.
    let answer = unsafe {
        libc::setsockopt(
            fd.as_raw_fd(),
            level,
            option,
            (&raw const *value).cast(),
            size_of::<T>() as libc::socklen_t,
        )
    };
    if answer == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Reads an option of a socket into a struct of plain integers, and returns
/// how many bytes of it the kernel has set.
fn get<T: Copy>(
    fd: BorrowedFd<'_>,
    level: c_int,
    option: c_int,
    value: &mut T,
) -> io::Result<usize> {
    let mut len = size_of::<T>() as libc::socklen_t;
    // SAFETY:
    // - the kernel writes at most `len` bytes, those of `value`, which is made
    //   of integers, and sets `len`.
    let answer = unsafe {
        libc::getsockopt(fd.as_raw_fd(), level, option, (&raw mut *value).cast(), &raw mut len)
    };
    if answer == 0 { Ok(len as usize) } else { Err(io::Error::last_os_error()) }
}
