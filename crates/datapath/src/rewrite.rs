//! Rewrite: the changes to a packet before it leaves.
//!
//! ```text
//!   dst MAC | src MAC | kind |  … TTL-1 … checksum' …  | payload | padding
//!   └─ from the adjacency ─┘    └─── in the header ───┘            └ cut off
//! ```
//!
//! The MAC addresses become those of the next hop and of the port. The TTL or hop limit is
//! decremented (RFC 1812, 5.3.1; RFC 8200, 3), and the IPv4 checksum is updated by RFC 1624;
//! nothing else in the packet changes. Bytes behind the packet, other than the padding of a short
//! frame, are cut off: they are not part of it and might exceed the MTU of the egress link.
//!
//! Nothing is written before all checks have passed: a packet that is dropped here is unchanged.

use wire::{ethernet, ipv4, ipv6};

use super::{Adjacency, Verdict};

/// The shortest frame that Ethernet carries, without its check sequence.
const SHORTEST: usize = 60;

/// The result of a rewrite: the egress port and the new length of the frame, at most the old one;
/// or a verdict.
pub type Rewritten = Result<(u16, usize), Verdict>;

/// Prepares an IPv4 packet that parse accepted for transmission.
#[inline(always)]
pub fn rewrite_v4(frame: &mut [u8], adjacency: &Adjacency) -> Rewritten {
    let port = adjacency.port()?;
    let len = frame.len();
    let (ether, packet) =
        frame.split_first_chunk_mut::<{ ethernet::LEN }>().ok_or(Verdict::Runt)?;
    let mut packet = ipv4::View::parse(packet).map_err(|_| Verdict::Truncated)?;
    let total = packet.total_len();
    if total > adjacency.mtu() {
        return Err(Verdict::TooBig);
    }
    packet.decrement_ttl();
    address(ether, adjacency);
    Ok((port, trimmed(len, usize::from(total))))
}

/// Prepares an IPv6 packet that parse accepted for transmission.
#[inline(always)]
pub fn rewrite_v6(frame: &mut [u8], adjacency: &Adjacency) -> Rewritten {
    let port = adjacency.port()?;
    let len = frame.len();
    let (ether, packet) =
        frame.split_first_chunk_mut::<{ ethernet::LEN }>().ok_or(Verdict::Runt)?;
    let mut packet = ipv6::View::parse(packet).map_err(|_| Verdict::Truncated)?;
    let total = ipv6::LEN + usize::from(packet.payload_len());
    if total > usize::from(adjacency.mtu()) {
        return Err(Verdict::TooBig);
    }
    packet.decrement_hop_limit();
    address(ether, adjacency);
    Ok((port, trimmed(len, total)))
}

/// Reverts the rewrite of a packet that the port with address `mac` received, so that the host can
/// forward it; the sender's MAC address is lost.
#[cold]
pub(super) fn restore(frame: &mut [u8], mac: [u8; 6]) -> Verdict {
    let Some((ether, packet)) = frame.split_first_chunk_mut::<{ ethernet::LEN }>() else {
        return Verdict::Runt;
    };
    ether[..6].copy_from_slice(&mac);
    if let Ok(mut packet) = ipv4::View::parse(&mut *packet) {
        packet.set_ttl(packet.ttl().saturating_add(1));
    } else if let Ok(mut packet) = ipv6::View::parse(packet) {
        packet.set_hop_limit(packet.hop_limit().saturating_add(1));
    }
    Verdict::Redirect
}

/// Prepares a packet of either family that this machine originates: it keeps its TTL.
#[inline]
pub fn originate(frame: &mut [u8], adjacency: &Adjacency) -> Rewritten {
    let port = adjacency.port()?;
    let len = frame.len();
    let (ether, packet) =
        frame.split_first_chunk_mut::<{ ethernet::LEN }>().ok_or(Verdict::Runt)?;
    let total = if packet.first().is_some_and(|first| first >> 4 == 6) {
        let packet = ipv6::View::parse(packet).map_err(|_| Verdict::Truncated)?;
        ipv6::LEN + usize::from(packet.payload_len())
    } else {
        let packet = ipv4::View::parse(packet).map_err(|_| Verdict::Truncated)?;
        usize::from(packet.total_len())
    };
    if total > usize::from(adjacency.mtu()) {
        return Err(Verdict::TooBig);
    }
    address(ether, adjacency);
    Ok((port, trimmed(len, total)))
}

#[inline(always)]
fn address(ether: &mut [u8; ethernet::LEN], adjacency: &Adjacency) {
    ether[..12].copy_from_slice(&adjacency.macs());
}

/// Returns the length of a frame of `len` bytes after the bytes behind its packet of `total` bytes
/// are cut off; a short frame keeps its padding.
#[inline(always)]
fn trimmed(len: usize, total: usize) -> usize {
    len.min((ethernet::LEN + total).max(SHORTEST))
}
