//! Decapsulation at a grantor: takes packets out of their tunnel and finds their class.
//!
//! ```text
//!   │ outer header │ UDP, perhaps │ inner packet …
//!         │                               DSCP 0, 1   delivered
//!         │                                    2       granted, requests renewal: policy
//!         └─ source: which gate               3 to 63  a request: policy
//! ```
//!
//! The decision for a packet goes to the gate with the outer source address. The caller checks
//! whether that gate may send requests. The inner ECN bits follow the outer ones by RFC 6040, where
//! the published grantors mark packets that do not support ECN. A mark that the inner packet
//! already had does not count as congestion after the gate: its sender may have written it.

use wire::tunnel::{CE, Outer, decapsulate_ecn, ecn_of};
use wire::{BadHeader, ipv4, ipv6};

use crate::policy::Address;
use crate::tunnel::TunnelError;

/// A packet out of its tunnel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DecapsulatedPacket {
    /// The gate that sent it.
    pub gate: Address,
    /// Its outer destination: an address of the grantor.
    pub to: Address,
    /// The outer DSCP.
    pub dscp: u8,
    /// Whether it met congestion on its path from the gate.
    pub congested: bool,
    /// Where the inner packet begins.
    pub offset: usize,
    /// Where it ends.
    pub end: usize,
}

impl DecapsulatedPacket {
    /// Returns whether a policy decides about it; otherwise it was granted and is delivered.
    pub fn requests_renewal(&self) -> bool {
        self.dscp >= 2
    }
}

/// The error of a packet that is not decapsulated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DecapsulationError {
    /// It is no packet with a packet in it.
    Header(BadHeader),
    /// It has no proof that a gate has sent it.
    Refused(TunnelError),
    /// It met congestion, and only a loss can signal this to its sender (RFC 6040, 4.2).
    Congested,
}

/// Decapsulates a packet, from its outer IP header on, and gives the inner one its ECN bits.
///
/// # Errors
///
/// [`DecapsulationError`].
pub fn decapsulate(packet: &mut [u8]) -> Result<DecapsulatedPacket, DecapsulationError> {
    decapsulate_with(packet, None)
}

/// The same, also for packets in UDP to this port.
///
/// # Errors
///
/// [`DecapsulationError`].
pub fn decapsulate_with(
    packet: &mut [u8],
    port: Option<u16>,
) -> Result<DecapsulatedPacket, DecapsulationError> {
    decapsulate_checked(packet, port, |_, outer| Ok(outer.dscp))
}

/// The same, for packets that pass a check, which returns the DSCP that counts. The check reads the
/// packet unchanged.
///
/// # Errors
///
/// [`DecapsulationError`].
pub fn decapsulate_checked(
    packet: &mut [u8],
    port: Option<u16>,
    check: impl FnOnce(&[u8], &Outer) -> Result<u8, TunnelError>,
) -> Result<DecapsulatedPacket, DecapsulationError> {
    let outer = Outer::parse_with(packet, port).map_err(DecapsulationError::Header)?;
    let dscp = check(packet, &outer).map_err(DecapsulationError::Refused)?;
    let (gate, to) = match packet[0] >> 4 {
        4 => {
            let ip = ipv4::View::parse(&packet[..]).map_err(DecapsulationError::Header)?;
            (Address::V4(ip.src()), Address::V4(ip.dst()))
        }
        _ => {
            let ip = ipv6::View::parse(&packet[..]).map_err(DecapsulationError::Header)?;
            (Address::V6(ip.src()), Address::V6(ip.dst()))
        }
    };
    let inner = &mut packet[outer.offset..outer.end];
    let marked = ecn_of(inner).map_err(DecapsulationError::Header)? == CE;
    if !decapsulate_ecn(inner, outer.ecn).map_err(DecapsulationError::Header)? {
        return Err(DecapsulationError::Congested);
    }
    let Outer { ecn, offset, end, .. } = outer;
    Ok(DecapsulatedPacket { gate, to, dscp, congested: ecn == CE && !marked, offset, end })
}
