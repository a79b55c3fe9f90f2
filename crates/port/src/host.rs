//! The host's own stack, for packets that were taken and are the host's after all.
//!
//! The steering program leaves to Linux what it can tell from the packet alone. What
//! only the routes tell (a next hop behind an interface that is not the router's, a
//! neighbour on the link that nobody has resolved, a prohibited destination) is found
//! out when the packet is in user space. A [`Host`] gives it back: a TUN device, by
//! which Linux receives the packet as from a link, without its Ethernet header, and
//! routes it, resolves its neighbour or answers with the ICMP error that is due.
//!
//! ```text
//!   eth0 ─ AF_XDP ─► worker ─ Ethernet header off ─► TUN ─► Linux: forward, resolve, refuse
//! ```
//!
//! One device serves all workers: a write is a packet, and writes do not mix. It never
//! blocks; what the device's queue has no room for is refused, and counted by who
//! asked. The device goes with the value. Linux judges packets from it as from any
//! interface: where `rp_filter` is strict it would refuse them all, so it is turned
//! off for the device itself (`net.ipv4.conf.all.rp_filter` is the operator's; 0 or 2
//! there is what a router with asymmetric paths needs anyway, RFC 3704).
//!
//! Slow path: a system call a packet, about a microsecond.

use std::fmt;
use std::fs;
use std::io;
use std::sync::Arc;

use tun_rs::{DeviceBuilder, Layer, SyncDevice};

/// The length of an Ethernet header.
const ETHERNET: usize = 14;

/// A way back into the host's stack. Clones are the same device.
#[derive(Clone)]
pub struct Host {
    device: Arc<SyncDevice>,
    name: Arc<str>,
}

impl Host {
    /// Makes the TUN device `name` in the network namespace of the calling thread and
    /// brings it up. Packets of up to 65,535 bytes fit.
    ///
    /// # Errors
    ///
    /// The system's: `EPERM` without `CAP_NET_ADMIN`, `EBUSY` if the name is taken,
    /// `ENOENT` without `/dev/net/tun`.
    pub fn open(name: &str) -> io::Result<Self> {
        let builder = DeviceBuilder::new().name(name).layer(Layer::L3).mtu(u16::MAX);
        let device = builder.enable(false).build_sync()?;
        device.set_nonblocking(true)?;
        // Before it is up: no packet is judged by another value. A kernel without the
        // switch, or /proc of another namespace, leaves what the namespace has.
        let _ = fs::write(format!("/proc/sys/net/ipv4/conf/{name}/rp_filter"), "0");
        device.enabled(true)?;
        Ok(Self { device: Arc::new(device), name: name.into() })
    }

    /// Returns the device's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Gives the IP packet behind the Ethernet header of `frame` to the host, and says
    /// whether it took it. Does not block.
    pub fn give(&self, frame: &[u8]) -> bool {
        frame.get(ETHERNET..).is_some_and(|packet| self.device.send(packet).is_ok())
    }
}

impl fmt::Debug for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Host").field("name", &self.name).finish_non_exhaustive()
    }
}
