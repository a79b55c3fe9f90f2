//! Links: the interfaces as the kernel describes them.
//!
//! `RTM_NEWLINK`, `struct ifinfomsg` of 16 bytes: family, pad, type (2), index (4),
//! flags (4), change (4). Link messages of other families (AF_BRIDGE, AF_INET6) carry only that
//! family's attributes; the mirror skips them.

use super::attribute::{Attribute, Bytes};
use super::error::Damage;
use super::message::Message;
use super::uapi::{
    IFF_LOOPBACK, IFF_LOWER_UP, IFF_RUNNING, IFF_UP, IFLA_ADDRESS, IFLA_BOND_MODE,
    IFLA_BOND_SLAVE_MII_STATUS, IFLA_BOND_SLAVE_STATE, IFLA_IFNAME, IFLA_INFO_DATA, IFLA_INFO_KIND,
    IFLA_INFO_SLAVE_DATA, IFLA_INFO_SLAVE_KIND, IFLA_LINK, IFLA_LINK_NETNSID, IFLA_LINKINFO,
    IFLA_MACVLAN_MODE, IFLA_MASTER, IFLA_MTU, IFLA_QDISC, IFLA_VLAN_EGRESS_QOS, IFLA_VLAN_ID,
    IFLA_VLAN_INGRESS_QOS, IFLA_VLAN_PROTOCOL, IFLA_VLAN_QOS_MAPPING, IFLA_VRF_TABLE, IFLA_XDP,
    IFLA_XDP_ATTACHED,
};

/// The tag of a VLAN device.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Vlan {
    /// The tag's type: 0x8100 (802.1Q) or 0x88a8 (802.1ad).
    pub protocol: u16,
    /// The VLAN identifier, 0 to 4095.
    pub id: u16,
    /// The priorities of the tags that it sends, by the packets' (`egress-qos-map`): pairs of a packet's
    /// priority and that of its tag; 0 for others.
    pub egress_priorities: Vec<(u32, u32)>,
    /// The priorities that packets get by that of their tag (`ingress-qos-map`), in the order of the tag's.
    pub ingress_priorities: [u32; 8],
}

/// An interface, as the kernel last described it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Link {
    /// Its name, which may change; the index does not.
    pub name: String,
    /// Whether it is administratively up (`IFF_UP`).
    pub up: bool,
    /// Whether it is operational (`IFF_RUNNING`).
    pub running: bool,
    /// Whether there is a carrier (`IFF_LOWER_UP`).
    pub carrier: bool,
    /// Whether it is the loopback interface.
    pub loopback: bool,
    /// Its MAC, if it has one of six bytes.
    pub mac: Option<[u8; 6]>,
    /// The largest packet, in bytes.
    pub mtu: u32,
    /// The queueing discipline of packets that Linux sends (`noqueue`, `fq_codel` …; tc(8)).
    pub qdisc: String,
    /// The index of the bridge, bond or VRF it belongs to.
    pub master: Option<u32>,
    /// The kind of virtual interface (`veth`, `vrf` …); empty for hardware.
    pub kind: String,
    /// The kind of its master (`bond`, `bridge`, `vrf` …); empty without one.
    pub member_of: String,
    /// The table of a VRF.
    pub table: Option<u32>,
    /// The index of the interface below a VLAN or MAC-VLAN device, if it is in the same network
    /// namespace.
    pub lower: Option<u32>,
    /// The mode of a MAC-VLAN device (linux/if_link.h, `MACVLAN_MODE_…`).
    pub macvlan_mode: Option<u32>,
    /// The tag of a VLAN device.
    pub vlan: Option<Vlan>,
    /// The mode of a bond (linux/if_bonding.h, `BOND_MODE_…`).
    pub bond_mode: Option<u8>,
    /// Whether it is an active member of a bond, by which packets of the bond leave and arrive.
    pub is_active_member: bool,
    /// Whether an XDP program is attached.
    pub xdp: bool,
}

/// States of a member of a bond, and of its link (linux/if_bonding.h).
const BOND_STATE_ACTIVE: u8 = 0;
const BOND_STATE_BACKUP: u8 = 1;
const BOND_LINK_UP: u8 = 0;
const BOND_LINK_FAIL: u8 = 1;
const BOND_LINK_DOWN: u8 = 2;

/// A message about a link.
#[derive(Clone, Copy, Debug)]
pub struct LinkView<'a> {
    /// The family of the sender; 0 is the link itself.
    pub family: u8,
    /// The interface's index.
    pub index: u32,
    /// `IFF_…`.
    pub flags: u32,
    /// The interface's name.
    pub name: &'a [u8],
    /// Its hardware address, of any length.
    pub hardware: &'a [u8],
    /// The largest packet, in bytes.
    pub mtu: u32,
    /// The queueing discipline of packets that Linux sends.
    pub qdisc: &'a [u8],
    /// The index of the bridge, bond or VRF it belongs to.
    pub master: Option<u32>,
    /// The kind of virtual interface.
    pub kind: &'a [u8],
    /// The kind of its master.
    pub member_of: &'a [u8],
    /// The table of a VRF.
    pub table: Option<u32>,
    /// The index of the interface below it, in the namespace of `lower_namespace`.
    pub lower: Option<u32>,
    /// The number of the network namespace of the interface below it; `None` is its own.
    pub lower_namespace: Option<u32>,
    /// The mode of a MAC-VLAN device (linux/if_link.h, `MACVLAN_MODE_…`).
    pub macvlan_mode: Option<u32>,
    /// The attributes of a VLAN device.
    pub vlan: Option<Attribute<'a>>,
    /// The mode of a bond (linux/if_bonding.h, `BOND_MODE_…`).
    pub bond_mode: Option<u8>,
    /// The state and the MII status of a member of a bond (linux/if_bonding.h, `BOND_STATE_…`,
    /// `BOND_LINK_…`).
    pub bond_member: Option<(u8, u8)>,
    /// Whether an XDP program is attached.
    pub xdp: bool,
}

impl<'a> LinkView<'a> {
    /// Reads a message.
    ///
    /// # Errors
    ///
    /// [`Damage`].
    pub fn parse(message: &Message<'a>) -> Result<Self, Damage> {
        let (head, attributes) = message.split::<16>()?;
        let mut view = Self {
            family: head[0],
            index: head.u32(4),
            flags: head.u32(8),
            name: &[],
            hardware: &[],
            mtu: 0,
            qdisc: &[],
            master: None,
            kind: &[],
            member_of: &[],
            table: None,
            lower: None,
            lower_namespace: None,
            macvlan_mode: None,
            vlan: None,
            bond_mode: None,
            bond_member: None,
            xdp: false,
        };
        for attribute in attributes {
            let attribute = attribute?;
            match attribute.kind {
                IFLA_IFNAME => view.name = attribute.text(),
                IFLA_ADDRESS => view.hardware = attribute.value,
                IFLA_MTU => view.mtu = attribute.u32()?,
                IFLA_QDISC => view.qdisc = attribute.text(),
                IFLA_MASTER => view.master = Some(attribute.u32()?),
                IFLA_LINK => view.lower = Some(attribute.u32()?),
                IFLA_LINK_NETNSID => view.lower_namespace = Some(attribute.u32()?),
                IFLA_LINKINFO => view.info(&attribute)?,
                IFLA_XDP => {
                    for attribute in attribute.nested() {
                        let attribute = attribute?;
                        // 0 means no program; other values are the mode (linux/if_link.h,
                        // XDP_ATTACHED_…).
                        if attribute.kind == IFLA_XDP_ATTACHED {
                            view.xdp = attribute.value.first().is_some_and(|mode| *mode != 0);
                        }
                    }
                }
                _ => {}
            }
        }
        Ok(view)
    }

    fn info(&mut self, info: &Attribute<'a>) -> Result<(), Damage> {
        for attribute in info.nested() {
            let attribute = attribute?;
            match attribute.kind {
                IFLA_INFO_KIND => self.kind = attribute.text(),
                IFLA_INFO_SLAVE_KIND => self.member_of = attribute.text(),
                // The kind comes first; it determines the meaning of the data.
                IFLA_INFO_DATA if self.kind == b"vrf" => {
                    for data in attribute.nested() {
                        let data = data?;
                        if data.kind == IFLA_VRF_TABLE {
                            self.table = Some(data.u32()?);
                        }
                    }
                }
                IFLA_INFO_DATA if self.kind == b"macvlan" => {
                    for data in attribute.nested() {
                        let data = data?;
                        if data.kind == IFLA_MACVLAN_MODE {
                            self.macvlan_mode = Some(data.u32()?);
                        }
                    }
                }
                IFLA_INFO_DATA if self.kind == b"bond" => {
                    for data in attribute.nested() {
                        let data = data?;
                        if data.kind == IFLA_BOND_MODE {
                            self.bond_mode = data.value.first().copied();
                        }
                    }
                }
                IFLA_INFO_SLAVE_DATA if self.member_of == b"bond" => {
                    let (mut state, mut status) = (BOND_STATE_BACKUP, BOND_LINK_DOWN);
                    for data in attribute.nested() {
                        let data = data?;
                        match (data.kind, data.value.first()) {
                            (IFLA_BOND_SLAVE_STATE, Some(&value)) => state = value,
                            (IFLA_BOND_SLAVE_MII_STATUS, Some(&value)) => status = value,
                            _ => {}
                        }
                    }
                    self.bond_member = Some((state, status));
                }
                IFLA_INFO_DATA if self.kind == b"vlan" => {
                    read_vlan(&attribute)?;
                    self.vlan = Some(attribute);
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Copies the view into an owned link.
    pub fn link(&self) -> Link {
        let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
        Link {
            name: text(self.name),
            up: self.flags & IFF_UP != 0,
            running: self.flags & IFF_RUNNING != 0,
            carrier: self.flags & IFF_LOWER_UP != 0,
            loopback: self.flags & IFF_LOOPBACK != 0,
            mac: self.hardware.try_into().ok(),
            mtu: self.mtu,
            qdisc: text(self.qdisc),
            master: self.master.filter(|&master| master != 0),
            kind: text(self.kind),
            member_of: text(self.member_of),
            table: self.table,
            lower: self.lower.filter(|_| self.lower_namespace.is_none()),
            macvlan_mode: self.macvlan_mode,
            vlan: self.vlan.and_then(|data| read_vlan(&data).ok()),
            bond_mode: self.bond_mode,
            // A link that fails is in use until its delay (downdelay) is over.
            is_active_member: matches!(
                self.bond_member,
                Some((BOND_STATE_ACTIVE, BOND_LINK_UP | BOND_LINK_FAIL))
            ),
            xdp: self.xdp,
        }
    }
}

/// Reads one priority of a VLAN device and the one that it becomes (struct ifla_vlan_qos_mapping).
fn read_priority(mapping: &Attribute<'_>) -> Option<(u32, u32)> {
    let (from, to) = mapping.value.split_first_chunk::<4>()?;
    let is_mapping = mapping.kind == IFLA_VLAN_QOS_MAPPING;
    let pair = (u32::from_ne_bytes(*from), u32::from_ne_bytes(*to.first_chunk::<4>()?));
    is_mapping.then_some(pair)
}

/// Reads the attributes of a VLAN device. Kernels without a protocol attribute (before 3.10) know
/// 802.1Q alone.
fn read_vlan(data: &Attribute<'_>) -> Result<Vlan, Damage> {
    let mut vlan = Vlan { protocol: 0x8100, ..Vlan::default() };
    for attribute in data.nested() {
        let attribute = attribute?;
        match attribute.kind {
            IFLA_VLAN_ID => vlan.id = attribute.u16()?,
            IFLA_VLAN_PROTOCOL => vlan.protocol = u16::from_be(attribute.u16()?),
            IFLA_VLAN_EGRESS_QOS => {
                for mapping in attribute.nested() {
                    vlan.egress_priorities.extend(read_priority(&mapping?));
                }
            }
            IFLA_VLAN_INGRESS_QOS => {
                for mapping in attribute.nested() {
                    if let Some((from, to)) = read_priority(&mapping?)
                        && let Some(priority) = vlan.ingress_priorities.get_mut(from as usize)
                    {
                        *priority = to;
                    }
                }
            }
            _ => {}
        }
    }
    Ok(vlan)
}
