//! The host's own stack, for packets that were taken but belong to the host.
//!
//! The steering program leaves packets to Linux that it recognizes by the packet alone. Cases that
//! depend on the routes (a next hop behind an interface that is not the router's, a packet longer
//! than the next link's MTU, no route at all) are recognized when the packet is in user space. A
//! [`Host`] gives it back: Linux receives the frame as from the interface that it came in on,
//! and routes it, fragments it or answers with the ICMP error that is due.
//!
//! ```text
//!   eth0 ─ AF_XDP ─► worker ─ frame, number of eth0 ─► TAP ─ filter of eth0 ─► Linux, as from eth0
//!                                                          └ filter of eth1 ─► Linux, as from eth1
//! ```
//!
//! One TAP device serves all workers and interfaces: a write is a packet, and writes do not mix.
//! A frame is followed by the number of its interface; for each registered interface the TAP has
//! a filter that looks for it there and redirects to that interface's receive path (`tc.rs`).
//! The four bytes stay behind the packet, where the stack cuts them off as it does with a short
//! frame's padding. So policy rules by interface, VRFs, reverse path filters, redirects and the
//! firewall see the interface that the packet came in on (docs/decisions/0026). The destination
//! becomes the TAP's own MAC, which is what makes the kernel take a unicast frame for its own;
//! those to groups keep theirs.
//!
//! A redirected frame does not run through an XDP program again, in generic mode either.
//!
//! A write never blocks. The kernel handles the packet within it: some microseconds, in which
//! the worker does nothing else; the caller limits how many. The device, its filters with it,
//! goes with the value. It has no addresses and takes part in no protocol.

mod tc;

use std::fmt;
use std::fs::{self, File};
use std::io::{self, IoSlice, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError};

use nix::net::if_::if_indextoname;
use serde::{Deserialize, Serialize};
use tun_rs::{DeviceBuilder, Layer};

/// The length of an Ethernet header, and of an address in it.
const ETHERNET: usize = 14;
const ADDRESS: usize = 6;
/// The largest MTU of a TAP device.
const MTU: u16 = u16::MAX - ETHERNET as u16;

/// The entry into the host's stack. Clones refer to the same device.
#[derive(Clone)]
pub struct Host {
    device: Arc<File>,
    name: Arc<str>,
    mac: [u8; ADDRESS],
    index: u32,
    /// The filters: the number of an interface, and the place of its filter in the order.
    interfaces: Arc<Mutex<Vec<(u32, u16)>>>,
}

impl Host {
    /// Makes the TAP device `name` in the network namespace of the calling thread and brings
    /// it up.
    ///
    /// # Errors
    ///
    /// The system's: `EPERM` without `CAP_NET_ADMIN`, `EBUSY` if the name is taken, `ENOENT`
    /// without `/dev/net/tun`, or where the kernel has no `clsact` (`CONFIG_NET_SCH_INGRESS`).
    pub fn open(name: &str) -> io::Result<Self> {
        let builder = DeviceBuilder::new().name(name).layer(Layer::L2).mtu(MTU);
        let device = builder.enable(false).build_sync().map_err(without_device)?;
        device.set_nonblocking(true)?;
        // Set before it is up, so that it sends no packets of its own. A kernel without IPv6 has no
        // such setting.
        let _ = fs::write(format!("/proc/sys/net/ipv6/conf/{name}/disable_ipv6"), "1");
        let (mac, index) = (device.mac_address()?, device.if_index()?);
        tc::add_clsact(index).map_err(without_clsact)?;
        device.enabled(true)?;
        let device = Arc::new(File::from(device.as_fd().try_clone_to_owned()?));
        Ok(Self { device, name: name.into(), mac, index, interfaces: Arc::default() })
    }

    /// Describes the device for a successor process, with a copy of its descriptor: it exists until both have
    /// closed theirs.
    ///
    /// # Errors
    ///
    /// The system's, if no descriptor is left.
    pub fn hand_over(&self) -> io::Result<(HostHandover, OwnedFd)> {
        let interfaces = self.interfaces.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let handover = HostHandover {
            name: (*self.name).into(),
            mac: self.mac,
            index: self.index,
            interfaces,
        };
        Ok((handover, self.device.as_fd().try_clone_to_owned()?))
    }

    /// Shares the device of a predecessor, by its description and its descriptor.
    pub fn succeed(handover: HostHandover, device: OwnedFd) -> Self {
        let HostHandover { name, mac, index, interfaces } = handover;
        let (device, interfaces) = (Arc::new(File::from(device)), Arc::new(Mutex::new(interfaces)));
        Self { device, name: name.into(), mac, index, interfaces }
    }

    /// Returns the device's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Registers the interface with this number, so that packets can be [given](Self::give) as from
    /// it. Removes the filters of interfaces that no longer exist.
    ///
    /// # Errors
    ///
    /// The system's: `ENODEV` without such an interface, `EPERM` without `CAP_NET_ADMIN`,
    /// `ENOENT` where the kernel has no `cls_bpf` or `act_mirred`, `ENOSPC` beyond 65,535
    /// interfaces.
    pub fn register(&self, interface: u32) -> io::Result<()> {
        let mut interfaces = self.interfaces.lock().unwrap_or_else(PoisonError::into_inner);
        if interfaces.iter().any(|(known, _)| *known == interface) {
            return Ok(());
        }
        interfaces.retain(|&(gone, place)| {
            // A filter that cannot be removed redirects to nowhere, and the removal is tried again.
            if_indextoname(gone).is_ok() || tc::delete_redirect(self.index, place).is_err()
        });
        let free = (1..=u16::MAX).find(|free| interfaces.iter().all(|(_, place)| place != free));
        let place = free.ok_or_else(|| io::Error::from_raw_os_error(libc::ENOSPC))?;
        tc::add_redirect(self.index, place, interface)?;
        interfaces.push((interface, place));
        Ok(())
    }

    /// Gives a frame to the host as from a registered interface, and returns whether the host took
    /// it. Does not block or allocate.
    pub fn give(&self, interface: u32, frame: &[u8]) -> bool {
        let Some((destination, rest)) = frame.split_at_checked(ADDRESS) else { return false };
        if frame.len() <= ETHERNET {
            return false;
        }
        let group = destination.first().is_some_and(|first| first & 1 == 1);
        let destination = if group { destination } else { &self.mac };
        let number = interface.to_be_bytes();
        let parts = [IoSlice::new(destination), IoSlice::new(rest), IoSlice::new(&number)];
        (&*self.device).write_vectored(&parts).is_ok()
    }
}

/// The description of a TAP device that a process hands over.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct HostHandover {
    name: String,
    mac: [u8; ADDRESS],
    index: u32,
    /// The filters.
    interfaces: Vec<(u32, u16)>,
}

/// Adds the remedy to an error of the TAP device's creation.
fn without_device(error: io::Error) -> io::Error {
    let remedy = match error.raw_os_error() {
        Some(libc::ENOENT | libc::ENXIO | libc::ENODEV) => {
            "the kernel has no /dev/net/tun: load its module by `modprobe tun`"
        }
        Some(libc::EBUSY) => "another process of this network namespace has it: end that one",
        _ => return error,
    };
    io::Error::new(error.kind(), format!("{error}; {remedy}"))
}

/// Adds the remedy to an error of the TAP device's filters.
fn without_clsact(error: io::Error) -> io::Error {
    let remedy = "the kernel has no `clsact`: load its module by `modprobe sch_ingress`";
    match error.raw_os_error() {
        Some(libc::ENOENT) => io::Error::new(error.kind(), format!("{error}; {remedy}")),
        _ => error,
    }
}

impl fmt::Debug for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Host").field("name", &self.name).finish_non_exhaustive()
    }
}
