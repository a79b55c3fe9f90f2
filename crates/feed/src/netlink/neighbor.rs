//! Neighbors: the MAC behind an address on a link.
//!
//! `RTM_NEWNEIGH`, `struct ndmsg` of 12 bytes: family, pad (3), index (4), state (2),
//! flags, type. The states are those of RFC 4861, section 7.3.2, for ARP too. Entries
//! of bridges, which have their own family, and of proxies are skipped.
//!
//! A resolution is requested by marking the entry as used (`NTF_USE`): the kernel creates it if
//! necessary, and does ARP or ND by its own rules.

use core::net::IpAddr;

use super::attribute::Bytes;
use super::error::Damage;
use super::message::Message;
use super::uapi::{
    AF_INET, AF_INET6, NDA_DST, NDA_LLADDR, NLM_F_CREATE, NLM_F_REPLACE, NLM_F_REQUEST, NTF_PROXY,
    NTF_USE, NUD_DELAY, NUD_NOARP, NUD_PERMANENT, NUD_PROBE, NUD_REACHABLE, NUD_STALE,
    RTM_NEWNEIGH,
};

/// The states in which the MAC is usable. A stale one is: the kernel verifies it when it is used.
const USABLE: u16 = NUD_REACHABLE | NUD_STALE | NUD_DELAY | NUD_PROBE | NUD_NOARP | NUD_PERMANENT;

/// A neighbor, as the kernel last described it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Neighbor {
    /// Its MAC, if it may be used.
    pub mac: Option<[u8; 6]>,
    /// `NUD_…`: 1 incomplete, 2 reachable, 4 stale, 8 delay, 16 probe, 32 failed,
    /// 64 no ARP, 128 permanent.
    pub state: u16,
}

impl Neighbor {
    /// Returns whether the kernel should be notified of its use: it is stale, unresolved or failed.
    pub fn wants_use(&self) -> bool {
        self.state & (NUD_REACHABLE | NUD_NOARP | NUD_PERMANENT | NUD_DELAY | NUD_PROBE) == 0
    }
}

/// A message about a neighbor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NeighborView {
    /// The interface's index.
    pub index: u32,
    /// The neighbor's address.
    pub address: IpAddr,
    /// Its state and MAC.
    pub neighbor: Neighbor,
}

impl NeighborView {
    /// Reads a message; `None` if it is not about a neighbor of IPv4 or IPv6.
    ///
    /// # Errors
    ///
    /// [`Damage`].
    pub fn parse(message: &Message<'_>) -> Result<Option<Self>, Damage> {
        let (head, attributes) = message.split::<12>()?;
        let (family, flags) = (head[0], head[10]);
        if !matches!(family, AF_INET | AF_INET6) || flags & NTF_PROXY != 0 {
            return Ok(None);
        }
        let (mut address, mut mac) = (None, None);
        for attribute in attributes {
            let attribute = attribute?;
            match attribute.kind {
                NDA_DST => address = Some(attribute.address()?),
                NDA_LLADDR => mac = attribute.value.try_into().ok(),
                _ => {}
            }
        }
        let Some(address) = address else {
            return Err(Damage { at: message.at, what: "a neighbor without an address" });
        };
        if address.is_ipv4() != (family == AF_INET) {
            return Err(Damage { at: message.at, what: "a neighbor of another family" });
        }
        let state = head.u16(8);
        let mac = mac.filter(|_| state & USABLE != 0);
        Ok(Some(Self { index: head.u32(4), address, neighbor: Neighbor { mac, state } }))
    }
}

/// Writes the request that the kernel resolve `address` on the interface `index`.
pub(crate) fn resolve(index: u32, address: IpAddr, sequence: u32) -> Vec<u8> {
    let (family, octets) = match address {
        IpAddr::V4(v4) => (AF_INET, v4.octets().to_vec()),
        IpAddr::V6(v6) => (AF_INET6, v6.octets().to_vec()),
    };
    let length = 16 + 12 + 4 + octets.len();
    let flags = NLM_F_REQUEST | NLM_F_CREATE | NLM_F_REPLACE;
    let mut bytes = Vec::with_capacity(length);
    bytes.extend((length as u32).to_ne_bytes());
    bytes.extend(RTM_NEWNEIGH.to_ne_bytes());
    bytes.extend(flags.to_ne_bytes());
    bytes.extend(sequence.to_ne_bytes());
    bytes.extend([0; 4]);
    bytes.extend([family, 0, 0, 0]);
    bytes.extend(index.to_ne_bytes());
    // No state: the entry keeps its own.
    bytes.extend([0, 0, NTF_USE, 0]);
    bytes.extend((4 + octets.len() as u16).to_ne_bytes());
    bytes.extend(NDA_DST.to_ne_bytes());
    bytes.extend(octets);
    bytes
}
