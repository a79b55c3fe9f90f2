//! Removes the tags of VLAN devices from received frames, before the frames are divided into batches.
//!
//! ```text
//!   88a8:200 8100:30 type ─► port 0 has 88a8:200, port 0x8001 ─► that has 8100:30, port 0x8002 ─► type
//! ```
//!
//! The MAC addresses move up and the frame begins 4 bytes later for each tag. A tag that the port, or the
//! VLAN device found so far, does not have ends this, and stays.

use port::{Arena, Frame};

use super::Ingresses;
use super::batch::AHEAD;
use super::secondary_macs::readdress_frame;
use super::vlan::{MACS, MAX_TAGS, TAG};

/// Removes the tags of VLAN devices from frames that port number `port` received, stores the port number
/// of each in `arrivals`, which is empty, and readdresses them as `secondary_macs.rs` does. Returns the
/// number of removed bytes, and the group of all frames if they belong to one.
pub(super) fn untag(
    arena: &mut Arena,
    frames: &mut [Frame],
    ingresses: &Ingresses,
    port: u16,
    own: [u8; 6],
    arrivals: &mut Vec<u16>,
) -> (usize, Option<u16>) {
    let (mut removed, mut group) = (0, None);
    let mut is_mixed = false;
    for frame in frames.iter().take(AHEAD) {
        arena.prefetch(frame);
    }
    for at in 0..frames.len() {
        if let Some(next) = frames.get(at + AHEAD) {
            arena.prefetch(next);
        }
        let Some(frame) = frames.get_mut(at) else { break };
        let (mut number, mut terms) = (port, ingresses.get(port.into()));
        for _ in 0..MAX_TAGS {
            let Some(head) = arena.bytes_mut(frame).first_chunk_mut::<{ MACS + TAG }>() else {
                break;
            };
            let [macs @ .., p0, p1, c0, c1] = *head;
            let Some(device) = terms.vlans.get([p0, p1], [c0, c1]) else { break };
            let (_, moved) = head.split_at_mut(TAG);
            moved.copy_from_slice(&macs);
            arena.shrink_front(frame, TAG);
            removed += TAG;
            (number, terms) = (device, ingresses.get(device.into()));
            if terms.vlans.is_empty() {
                break;
            }
        }
        if !terms.secondary_macs.is_empty() {
            readdress_frame(arena, frame, terms.mac.unwrap_or(own), &terms.secondary_macs);
        }
        arrivals.push(number);
        let belongs_to = ingresses.group(number);
        is_mixed |= *group.get_or_insert(belongs_to) != belongs_to;
    }
    (removed, group.filter(|_| !is_mixed))
}
