//! Per-interface settings (`netconf`), of which some affect forwarding.
//!
//! `RTM_NEWNETCONF`, `struct netconfmsg` of one byte, the family, padded to four. The index is that of
//! an interface, -1 for all, or -2 for the default of new ones.

use super::error::Damage;
use super::message::Message;
use super::uapi::{
    AF_INET, AF_INET6, NETCONFA_FORWARDING, NETCONFA_IFINDEX, NETCONFA_IGNORE_ROUTES_WITH_LINKDOWN,
    NETCONFA_RP_FILTER,
};

/// The index of the settings for all interfaces.
pub(super) const ALL: i32 = -1;
/// The index of the settings that new interfaces get.
pub(super) const DEFAULT: i32 = -2;

/// A message about the settings of an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NetconfView {
    /// Whether it is for IPv6.
    pub v6: bool,
    /// The interface's index; -1: all, -2: new ones.
    pub index: i32,
    /// `ignore_routes_with_linkdown`, if the message has it: routes over the interface are unusable
    /// while it has no carrier.
    pub ignores_linkdown: Option<bool>,
    /// `rp_filter`, if the message has it; there is none for IPv6.
    pub rp_filter: Option<u32>,
    /// `forwarding`, if the message has it.
    pub forwarding: Option<bool>,
}

impl NetconfView {
    /// Reads a message; `None` if it is of another family than IPv4 and IPv6, or has no index.
    ///
    /// # Errors
    ///
    /// [`Damage`].
    pub fn parse(message: &Message<'_>) -> Result<Option<Self>, Damage> {
        let (head, attributes) = message.split::<4>()?;
        if !matches!(head[0], AF_INET | AF_INET6) {
            return Ok(None);
        }
        let mut view = Self {
            v6: head[0] == AF_INET6,
            index: 0,
            ignores_linkdown: None,
            rp_filter: None,
            forwarding: None,
        };
        for attribute in attributes {
            let attribute = attribute?;
            match attribute.kind {
                NETCONFA_IFINDEX => view.index = attribute.u32()?.cast_signed(),
                NETCONFA_IGNORE_ROUTES_WITH_LINKDOWN => {
                    view.ignores_linkdown = Some(attribute.u32()? != 0);
                }
                NETCONFA_FORWARDING => view.forwarding = Some(attribute.u32()? != 0),
                NETCONFA_RP_FILTER => view.rp_filter = Some(attribute.u32()?),
                _ => {}
            }
        }
        Ok((view.index != 0).then_some(view))
    }
}
