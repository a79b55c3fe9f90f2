//! Nexthop objects: nexthops that routes reference by number.
//!
//! `RTM_NEWNEXTHOP`, `struct nhmsg` of 8 bytes: family, scope, protocol, reserved,
//! flags (4). An object is one nexthop, a blackhole, or a weighted group of objects. Groups are of
//! two types, by hash threshold and resilient; the datapath selects the member of a flow, so both
//! are read alike.
//!
//! ```text
//! NHA_GROUP    0    4            5                 6          8
//!              ┌────┬────────────┬─────────────────┬──────────┐
//!              │ id │ weight - 1 │ its higher byte │ reserved │ next …
//!              └────┴────────────┴─────────────────┴──────────┘
//! ```
//!
//! The higher byte of the weight exists since Linux 6.12 and was 0 before.

use super::attribute::{Attribute, Bytes};
use super::error::Damage;
use super::message::Message;
use super::route::RouteNexthop;
use super::uapi::{
    NEXTHOP_GRP_TYPE_RES, NHA_BLACKHOLE, NHA_ENCAP, NHA_FDB, NHA_GATEWAY, NHA_GROUP,
    NHA_GROUP_TYPE, NHA_ID, NHA_OIF, RTNH_F_ONLINK,
};

/// A nexthop object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NexthopObject {
    /// One nexthop.
    Single(RouteNexthop),
    /// Packets are dropped.
    Blackhole,
    /// A weighted group of other objects.
    Group {
        /// Each member's number and weight, 1 and up.
        members: Vec<(u32, u16)>,
        /// Whether a member's removal moves only its own flows.
        resilient: bool,
    },
    /// An FDB nexthop of a bridge, which routes do not use.
    Bridge,
}

/// A message about a nexthop object.
#[derive(Clone, Copy, Debug)]
pub struct NexthopObjectView<'a> {
    /// Its number.
    pub id: u32,
    nexthop: RouteNexthop,
    blackhole: bool,
    bridge: bool,
    group: Option<Attribute<'a>>,
    resilient: bool,
}

impl<'a> NexthopObjectView<'a> {
    /// Reads a message.
    ///
    /// # Errors
    ///
    /// [`Damage`].
    pub fn parse(message: &Message<'a>) -> Result<Self, Damage> {
        let (head, attributes) = message.split::<8>()?;
        // The kernel removes dead ones. It marks those over a link without a carrier dead where
        // `ignore_routes_with_linkdown` is set.
        let flags = head.u32(4) as u8 & RTNH_F_ONLINK;
        let nexthop = RouteNexthop { flags, ..RouteNexthop::NONE };
        let (group, id) = (None, 0);
        let mut view =
            Self { id, nexthop, blackhole: false, bridge: false, group, resilient: false };
        for attribute in attributes {
            let attribute = attribute?;
            match attribute.kind {
                NHA_ID => view.id = attribute.u32()?,
                NHA_OIF => view.nexthop.interface = attribute.u32()?,
                NHA_GATEWAY => view.nexthop.gateway = Some(attribute.address()?),
                NHA_ENCAP => view.nexthop.encapsulated = true,
                NHA_BLACKHOLE => view.blackhole = true,
                NHA_FDB => view.bridge = true,
                NHA_GROUP_TYPE => view.resilient = attribute.u16()? == NEXTHOP_GRP_TYPE_RES,
                NHA_GROUP if attribute.value.len() % 8 != 0 => {
                    return Err(
                        attribute.damage("a group whose length is no multiple of a member's")
                    );
                }
                NHA_GROUP => view.group = Some(attribute),
                _ => {}
            }
        }
        if view.id == 0 {
            return Err(Damage { at: message.at, what: "a nexthop without a number" });
        }
        Ok(view)
    }

    /// Copies the view into an owned object.
    pub fn object(&self) -> NexthopObject {
        if self.bridge {
            return NexthopObject::Bridge;
        }
        if self.blackhole {
            return NexthopObject::Blackhole;
        }
        let Some(group) = self.group else { return NexthopObject::Single(self.nexthop) };
        let (members, _) = group.value.as_chunks::<8>();
        let members = members.iter().map(|member| {
            let weight = u16::from_le_bytes([member[4], member[5]]);
            (member.u32(0), weight.saturating_add(1))
        });
        NexthopObject::Group { members: members.collect(), resilient: self.resilient }
    }
}
