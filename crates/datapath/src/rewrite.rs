//! Rewrite: the changes to a packet before it leaves.
//!
//! ```text
//!   dst MAC | src MAC | kind |  … TTL-1 … checksum' …  | payload | padding
//!   └─ from the adjacency ─┘    └─── in the header ───┘            └ cut off
//! ```
//!
//! The MAC addresses become those of the next hop and of the port, and a tag that of the exit. If the exit's
//! tags have another length than those of the frame, both are written when the frame is staged (`turn.rs`).
//! The TTL or hop limit is decremented (RFC 1812, 5.3.1; RFC 8200, 3), and the IPv4 checksum is updated
//! by RFC 1624; nothing else in the packet changes. Bytes behind the packet, other than the padding of a short
//! frame, are cut off: they are not part of it and might exceed the MTU of the egress link.
//!
//! Nothing is written before all checks have passed: a packet that is dropped here is unchanged.

use wire::{ethernet, ipv4, ipv6};

use super::Verdict;
use super::exit::Exit;

/// The shortest frame that Ethernet carries, without its check sequence.
const SHORTEST: usize = 60;

/// The result of a rewrite: the exit, whose adjacency has a port, and the new length of the frame, at most
/// the old one; or a verdict.
pub(super) type Rewritten<'a> = Result<(&'a Exit, usize), Verdict>;

/// A task that the host has with a packet that could be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HostTask {
    /// To examine its IPv4 options or hop-by-hop options (RFC 791, 3.1; RFC 8200, 4.3).
    Options,
    /// To redirect its sender, if the packet leaves this port by the port that it arrived on.
    Redirect(u16),
}

/// Prepares an IPv4 packet that parse accepted, behind `tags` bytes of tags, for transmission, unless `host`
/// returns that the host has a task with it.
#[inline(always)]
pub(super) fn rewrite_v4<'a>(
    frame: &mut [u8],
    tags: usize,
    exit: &'a Exit,
    mut host: impl FnMut(HostTask) -> bool,
) -> Rewritten<'a> {
    let (front, packet) = frame.split_at_mut_checked(tags + ethernet::LEN).ok_or(Verdict::Runt)?;
    let len = ethernet::LEN + packet.len();
    let mut packet = ipv4::View::parse(packet).map_err(|_| Verdict::Truncated)?;
    if packet.header_len() > ipv4::LEN && host(HostTask::Options) {
        return Err(Verdict::Options);
    }
    let port = exit.adjacency().port()?;
    let total = packet.total_len();
    if total > exit.adjacency().mtu() {
        return Err(Verdict::TooBig);
    }
    if host(HostTask::Redirect(port)) {
        return Err(Verdict::Redirect);
    }
    packet.decrement_ttl();
    exit.write(front, tags);
    Ok((exit, trimmed(len, usize::from(total))))
}

/// Prepares an IPv6 packet like [`rewrite_v4`].
#[inline(always)]
pub(super) fn rewrite_v6<'a>(
    frame: &mut [u8],
    tags: usize,
    exit: &'a Exit,
    mut host: impl FnMut(HostTask) -> bool,
) -> Rewritten<'a> {
    let (front, packet) = frame.split_at_mut_checked(tags + ethernet::LEN).ok_or(Verdict::Runt)?;
    let len = ethernet::LEN + packet.len();
    let mut packet = ipv6::View::parse(packet).map_err(|_| Verdict::Truncated)?;
    if packet.next_header() == ipv6::HOP_BY_HOP && host(HostTask::Options) {
        return Err(Verdict::Options);
    }
    let port = exit.adjacency().port()?;
    let total = ipv6::LEN + usize::from(packet.payload_len());
    if total > usize::from(exit.adjacency().mtu()) {
        return Err(Verdict::TooBig);
    }
    if host(HostTask::Redirect(port)) {
        return Err(Verdict::Redirect);
    }
    packet.decrement_hop_limit();
    exit.write(front, tags);
    Ok((exit, trimmed(len, total)))
}

/// Prepares a packet of either family that this machine originates: it keeps its TTL.
#[inline]
pub(super) fn originate<'a>(frame: &mut [u8], exit: &'a Exit) -> Rewritten<'a> {
    exit.adjacency().port()?;
    let (front, packet) = frame.split_at_mut_checked(ethernet::LEN).ok_or(Verdict::Runt)?;
    let len = ethernet::LEN + packet.len();
    let total = if packet.first().is_some_and(|first| first >> 4 == 6) {
        let packet = ipv6::View::parse(packet).map_err(|_| Verdict::Truncated)?;
        ipv6::LEN + usize::from(packet.payload_len())
    } else {
        let packet = ipv4::View::parse(packet).map_err(|_| Verdict::Truncated)?;
        usize::from(packet.total_len())
    };
    if total > usize::from(exit.adjacency().mtu()) {
        return Err(Verdict::TooBig);
    }
    exit.write(front, 0);
    Ok((exit, trimmed(len, total)))
}

/// Decrements the TTL or hop limit of a packet, which is above 1.
pub(super) fn decrement_ttl(frame: &mut [u8]) {
    let packet = frame.get_mut(ethernet::LEN..).unwrap_or_default();
    if packet.first().is_some_and(|first| first >> 4 == 6) {
        if let Ok(mut packet) = ipv6::View::parse(packet) {
            packet.decrement_hop_limit();
        }
    } else if let Ok(mut packet) = ipv4::View::parse(packet) {
        packet.decrement_ttl();
    }
}

/// Returns the length of a frame of `len` bytes after the bytes behind its packet of `total` bytes
/// are cut off; a short frame keeps its padding.
#[inline(always)]
fn trimmed(len: usize, total: usize) -> usize {
    len.min((ethernet::LEN + total).max(SHORTEST))
}
