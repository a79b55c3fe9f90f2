//! Addresses of interfaces.
//!
//! `RTM_NEWADDR`, `struct ifaddrmsg` of 8 bytes: family, prefix length, flags, scope, index (4). With
//! a peer, as on a point-to-point link, `IFA_LOCAL` is the own address and `IFA_ADDRESS` that of the
//! other end; otherwise IPv6 sends `IFA_ADDRESS` alone.

use core::net::IpAddr;

use super::attribute::Bytes;
use super::error::Damage;
use super::message::Message;
use super::uapi::{
    AF_INET, AF_INET6, IFA_ADDRESS, IFA_F_DEPRECATED, IFA_F_SECONDARY, IFA_F_TENTATIVE, IFA_LOCAL,
};

/// A message about an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AddressView {
    /// The interface's index.
    pub index: u32,
    /// The own address.
    pub address: IpAddr,
    /// The length of its network prefix.
    pub length: u8,
    /// Whether it is a secondary address: not the first of its network on the interface.
    pub secondary: bool,
    /// `RT_SCOPE_…`.
    pub scope: u8,
    /// Whether its preferred lifetime has expired: new packets have another source.
    pub deprecated: bool,
    /// Whether duplicate address detection has not ended yet.
    pub tentative: bool,
}

impl AddressView {
    /// Reads a message; `None` if it is of another family than IPv4 and IPv6.
    ///
    /// # Errors
    ///
    /// [`Damage`].
    pub fn parse(message: &Message<'_>) -> Result<Option<Self>, Damage> {
        let (head, attributes) = message.split::<8>()?;
        if !matches!(head[0], AF_INET | AF_INET6) {
            return Ok(None);
        }
        let (mut local, mut other) = (None, None);
        for attribute in attributes {
            let attribute = attribute?;
            match attribute.kind {
                IFA_LOCAL => local = Some(attribute.address()?),
                IFA_ADDRESS => other = Some(attribute.address()?),
                _ => {}
            }
        }
        let Some(address) = local.or(other) else {
            return Err(Damage { at: message.at, what: "an address message without an address" });
        };
        if address.is_ipv4() != (head[0] == AF_INET) {
            return Err(Damage { at: message.at, what: "an address of another family" });
        }
        let has = |flag| head[2] & flag != 0;
        Ok(Some(Self {
            index: head.u32(4),
            address,
            length: head[1],
            secondary: has(IFA_F_SECONDARY),
            scope: head[3],
            deprecated: has(IFA_F_DEPRECATED),
            tentative: has(IFA_F_TENTATIVE),
        }))
    }
}
