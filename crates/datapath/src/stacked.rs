//! Stacked devices: VLAN devices and bonds, which are ports without queues over the ports that have some.
//!
//! ```text
//!   adjacency ─► port 0x8000, a VLAN device ─► its tag, port 0
//!   adjacency ─► port 0x8001, a bond        ─► port 1 or 2, by the packet's flow
//!   adjacency ─► port 0x8002, a VLAN device over the bond ─► its tag, port 1 or 2
//! ```
//!
//! A stacked device has a port number of its own, from [`FIRST_STACKED`] on, by which it has settings
//! (`Ingresses`) and is the exit of adjacencies. The ports below receive and send its frames: a frame
//! arrives on a VLAN device if it has the tags of that (`vlan.rs`), and on a bond if a member received it
//! (`Ingress::member_of`).

use super::vlan::{MACS, MAX_TAGS, PRIORITIES, TAG, VlanTag};

/// The port number of the first stacked device; ports below it have queues.
pub const FIRST_STACKED: u16 = 0x8000;

/// The most stacked devices of a worker.
pub const MOST_STACKED: usize = 0x7000;

/// The most members of a bond.
pub const MOST_MEMBERS: usize = 16;

/// A stacked device as an exit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StackedDevice {
    /// The numbers of the ports below, which have the queues: several are the members of a bond.
    ports: [u16; MOST_MEMBERS],
    /// The number of ports below.
    count: usize,
    /// The number of its egress queue; 0: that of the port below.
    queue: u16,
    /// The length of its tags.
    len: usize,
    /// Its tags, the outer one first, by the priority of a packet.
    tags: [[u8; MAX_TAGS * TAG]; PRIORITIES],
}

impl StackedDevice {
    /// Makes the exit of a device with these tags, the outer one first, over these ports. Tags beyond the
    /// second, and ports beyond the first [`MOST_MEMBERS`], are ignored.
    pub fn new(ports: &[u16], tags: &[VlanTag]) -> Self {
        let mut device = Self {
            ports: [u16::MAX; MOST_MEMBERS],
            count: ports.len().min(MOST_MEMBERS),
            queue: 0,
            len: tags.len().min(MAX_TAGS) * TAG,
            tags: Default::default(),
        };
        for (to, port) in device.ports.iter_mut().zip(ports) {
            *to = *port;
        }
        for (priority, bytes) in device.tags.iter_mut().enumerate() {
            for (tag, to) in tags.iter().zip(bytes.chunks_exact_mut(TAG)) {
                to.copy_from_slice(&tag.bytes(tag.priorities[priority]));
            }
        }
        device
    }

    /// Sets the number of its egress queue, from 1, which the ports below must have
    /// ([`PortQueue`](super::PortQueue)); without such a queue its packets are in that of the port.
    #[must_use]
    pub fn with_queue(mut self, number: u16) -> Self {
        self.queue = number;
        self
    }

    /// Returns the number of its egress queue; 0: none.
    #[inline(always)]
    pub(super) fn queue(&self) -> u16 {
        self.queue
    }

    /// Returns the number of the port by which a packet leaves: with several, that of its flow, by the high
    /// bits of the hash, since groups use the low ones. Without any, it is no port.
    #[inline(always)]
    pub(super) fn port(&self, flow: impl FnOnce() -> u64) -> u16 {
        let scaled = |flow: u64| (u128::from(flow) * self.count as u128) >> 64;
        let at = if self.count > 1 { scaled(flow()) as usize } else { 0 };
        self.ports.get(at).copied().unwrap_or(u16::MAX)
    }

    /// Returns the port and the tag of all packets that leave by the device, or `None` if they depend on the
    /// packet or on a queue, or if there are two tags.
    pub(super) fn fixed(&self) -> Option<(u16, Option<[u8; TAG]>)> {
        let is_fixed = self.count == 1 && self.queue == 0 && self.len <= TAG;
        let [first, rest @ ..] = &self.tags;
        let &[p0, p1, c0, c1, ..] = first;
        (is_fixed && rest.iter().all(|tags| tags == first))
            .then_some((self.ports[0], (self.len > 0).then_some([p0, p1, c0, c1])))
    }

    /// Returns the length of its tags.
    #[inline(always)]
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Writes the MAC addresses, and the tags for a packet of this priority, to a frame that has room for both
    /// before its type.
    pub(super) fn write(&self, frame: &mut [u8], macs: [u8; MACS], priority: u8) {
        let tags = self.tags.get(usize::from(priority));
        let Some((&tags, (first, rest))) = tags.zip(frame.split_first_chunk_mut()) else { return };
        *first = macs;
        // Copies of a variable length cost more.
        if self.len == TAG {
            if let Some(rest) = rest.first_chunk_mut::<TAG>() {
                rest.copy_from_slice(&tags[..TAG]);
            }
        } else if self.len > 0
            && let Some(rest) = rest.first_chunk_mut()
        {
            *rest = tags;
        }
    }
}
