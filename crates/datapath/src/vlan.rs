//! VLAN devices: ports whose frames have tags on the wire (IEEE 802.1Q, 802.1ad).
//!
//! ```text
//!   port 0 ─ frame ─ tag 8100:5 ─► Ingresses: port 0 has VLAN 5 ─► port 0x8000, parsed behind the tag
//!   … rewrite ─► adjacency on port 0x8000 ─► Adjacencies: its tags, port 0 ─► tag written ─► port 0
//! ```
//!
//! A VLAN device is a stacked device (`stacked.rs`) with one tag, or with two if it is over another one
//! (QinQ). The worker parses a frame behind its tags (`trunk.rs`), and writes those of the exit with the
//! MAC addresses (`exit.rs`), so the stages in between know no tags. A frame that is not sent keeps the
//! tags, since the host receives it on the port below.
//!
//! **Batches.** Frames of different VLANs arrive together. A batch is looked up in one table, so the
//! frames are divided: those of devices whose settings are alike (`Ingresses::group`) stay one
//! batch, which is all of them if the devices have one VRF and one MAC. Each frame keeps its port
//! number, by which redirects, the reverse path filter and punts distinguish the devices.
//!
//! **Priority.** A tag has the priority that Linux would give it: `egress-qos-map` of the device, applied
//! to the packet's priority. That is the one of its TOS in IPv4. An IPv6 packet keeps the one that it
//! arrived with: by `ingress-qos-map` of the device that it arrived on, applied to the priority of its inner
//! tag, or 0. With `net.ipv4.ip_forward_update_priority` off, IPv4 packets keep it as well.
//!
//! A tag that no device has stays in its frame, which the host receives
//! ([`Verdict::Tagged`](super::Verdict)).

use wire::ethernet;

/// The most tags of a frame.
pub(super) const MAX_TAGS: usize = 2;
/// The length of a tag.
pub(super) const TAG: usize = wire::vlan::LEN;
/// The bytes before the tags: two MAC addresses.
pub(super) const MACS: usize = 12;
/// The number of VLAN identifiers.
const VLANS: usize = 4096;

/// The number of priorities of a packet (linux/pkt_sched.h, `TC_PRIO_MAX`) that VLAN devices know.
pub const PRIORITIES: usize = 16;

/// Returns the priority by which Linux forwards a packet, whose type follows `tags` bytes of tags in its frame,
/// and which arrived with a priority. An IPv4 packet has that of its TOS, unless it `keeps` the former.
pub(super) fn forwarding_priority(frame: &[u8], tags: usize, arrival: u8, keeps: bool) -> u8 {
    const IPV4: [u8; 2] = ethernet::IPV4.to_be_bytes();
    /// The priorities by bits 3 and 4 of the TOS.
    const BY_TOS: [u8; 4] = [0, 2, 6, 4];
    match frame.get(MACS + tags..) {
        // The TOS is the second byte after the type.
        Some(&[t0, t1, _, tos, ..]) if [t0, t1] == IPV4 && !keeps => {
            BY_TOS[usize::from(tos >> 3 & 3)]
        }
        _ => arrival,
    }
}

/// A tag that a VLAN device adds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VlanTag {
    /// The tag's type: 802.1Q or 802.1ad.
    pub protocol: u16,
    /// The VLAN identifier, 1 to 4094.
    pub id: u16,
    /// The priority of the tag, 0 to 7, by that of the packet.
    pub priorities: [u8; PRIORITIES],
}

impl VlanTag {
    /// Returns the tag's bytes with a priority.
    pub(super) fn bytes(&self, priority: u8) -> [u8; TAG] {
        let control = u16::from(priority & 7) << 13 | self.id & 0x0fff;
        let ([p0, p1], [c0, c1]) = (self.protocol.to_be_bytes(), control.to_be_bytes());
        [p0, p1, c0, c1]
    }
}

/// The VLAN devices directly over a port, by their tags.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VlanTable {
    /// The port numbers by VLAN identifier, 0 for none.
    customer: Option<Box<[u16; VLANS]>>,
    service: Option<Box<[u16; VLANS]>>,
}

impl VlanTable {
    /// Sets the port number of the device with this tag. Other types than those of 802.1Q and
    /// 802.1ad, and identifiers beyond 4095, are ignored.
    pub fn insert(&mut self, protocol: u16, id: u16, port: u16) {
        let table = match protocol {
            ethernet::VLAN => &mut self.customer,
            ethernet::SERVICE_VLAN => &mut self.service,
            _ => return,
        };
        let table = table.get_or_insert_with(|| Box::new([0; VLANS]));
        if let Some(slot) = table.get_mut(usize::from(id)) {
            *slot = port;
        }
    }

    /// Returns whether there is no device.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.customer.is_none() && self.service.is_none()
    }

    /// Returns the port number of the device with this tag.
    #[inline(always)]
    pub(super) fn get(&self, tag: [u8; TAG]) -> Option<u16> {
        // One load in place of four.
        let tag = u32::from_be_bytes(tag);
        let table = match (tag >> 16) as u16 {
            ethernet::VLAN => &self.customer,
            ethernet::SERVICE_VLAN => &self.service,
            _ => return None,
        };
        table.as_ref()?.get(tag as usize & 0x0fff).copied().filter(|port| *port != 0)
    }
}
