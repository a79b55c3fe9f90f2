//! Secondary MAC addresses: those of the MAC-VLAN devices over a port.
//!
//! ```text
//!   frame to 00:00:5e:00:01:05 ─► readdressed to the port's own MAC ─► hook, parse, …
//! ```
//!
//! A virtual router (VRRP; RFC 9568, 7.3) has a MAC address of its own, which keepalived and FRR give to
//! a MAC-VLAN device over the port. Hosts send the packets to be forwarded to that address. Such a
//! frame gets the port's own address before the batch is parsed, so that the stages after this one
//! know one address a port, and the kernel accepts the frame on the port if it is punted.
//!
//! A port with secondary addresses sends no redirects: its hosts must not learn the address of one
//! router of the group (RFC 9568, 8.2.1), and the kernel, for which the packet arrives on another
//! interface than the one it leaves by, sends none either.

use port::{Arena, Frame};

use super::batch::AHEAD;

/// Sets the destination of frames to one of `secondary` to `mac`.
pub(super) fn readdress(arena: &mut Arena, frames: &[Frame], mac: [u8; 6], secondary: &[[u8; 6]]) {
    for frame in frames.iter().take(AHEAD) {
        arena.prefetch(frame);
    }
    for (at, frame) in frames.iter().enumerate() {
        if let Some(next) = frames.get(at + AHEAD) {
            arena.prefetch(next);
        }
        readdress_frame(arena, frame, mac, secondary);
    }
}

/// Sets the destination of a frame to `mac` if it is one of `secondary`.
#[inline(always)]
pub(super) fn readdress_frame(
    arena: &mut Arena,
    frame: &Frame,
    mac: [u8; 6],
    secondary: &[[u8; 6]],
) {
    if let Some(to) = arena.bytes_mut(frame).first_chunk_mut::<6>()
        && *to != mac
        && secondary.contains(to)
    {
        *to = mac;
    }
}
