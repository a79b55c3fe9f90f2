//! Trunks: parses the frames of a port with VLAN devices, behind their tags.
//!
//! ```text
//!   frame     dst │ src │ 88a8:200 │ 8100:30 │ type │ packet
//!   ingress   port 0 has 88a8:200, port 0x8001 ─► that has 8100:30, port 0x8002 ─► 8 bytes of tags
//!   parsed    dst       ·          src'      │ type │ packet
//! ```
//!
//! No byte is moved: the rest of the packet path begins behind the tags, and what precedes the type
//! there is overwritten when the frame is staged. Until then the frame can be given back to the host as it
//! arrived. A tag that the port, or the VLAN device found so far, does not have ends this, and stays.

use port::{Arena, Frame};

use super::batch::{AHEAD, Batch};
use super::ingress::FrameIngress;
use super::parse::parse_behind;
use super::secondary_macs::readdress_frame;
use super::vlan::{MACS, MAX_TAGS, TAG, VlanTable};
use super::{Ingresses, Parsed, Verdict};

/// The port whose frames are parsed.
pub(super) struct Trunk<'w> {
    /// Its number.
    pub(super) port: u16,
    /// Its group.
    pub(super) group: u16,
    /// The VLAN devices directly over it.
    pub(super) vlans: &'w VlanTable,
    /// The settings of all ports.
    pub(super) ingresses: &'w Ingresses,
    /// The MAC address of ports whose settings have none.
    pub(super) mac: [u8; 6],
}

impl Trunk<'_> {
    /// Returns how a frame arrived, and its group.
    #[inline(always)]
    pub(super) fn ingress(&self, frame: &[u8]) -> (FrameIngress, u16) {
        let mut ingress = FrameIngress::untagged(self.port);
        let (mut group, mut vlans) = (self.group, self.vlans);
        let Some((_, mut rest)) = frame.split_first_chunk::<MACS>() else {
            return (ingress, group);
        };
        for _ in 0..MAX_TAGS {
            let Some((tag, inner)) = rest.split_first_chunk::<TAG>() else { break };
            let Some(device) = vlans.get(*tag) else { break };
            ingress = FrameIngress { port: device, tags: ingress.tags + TAG as u16 };
            let over;
            (group, over) = self.ingresses.stacked(device);
            let Some(over) = over else { break };
            (vlans, rest) = (over, inner);
        }
        (ingress, group)
    }

    /// Parses the frames of one group into the batch, which is empty apart from held packets, defers the
    /// others, and stores the ingress of each frame in `arrivals`, which is empty. Returns the number of
    /// the group's frames, and of their bytes.
    pub(super) fn parse(
        &self,
        arena: &mut Arena,
        frames: &[Frame],
        group: u16,
        batch: &mut Batch,
        arrivals: &mut Vec<FrameIngress>,
    ) -> (u64, u64) {
        let terms = self.ingresses.get(group.into());
        let mac = terms.mac.unwrap_or(self.mac);
        let (secondary, locals) = (&*terms.secondary_macs, &*terms.locals);
        let (mut count, mut bytes) = (0, 0);
        for frame in frames.iter().take(AHEAD) {
            arena.prefetch(frame);
        }
        for (at, frame) in frames.iter().enumerate() {
            if let Some(next) = frames.get(at + AHEAD) {
                arena.prefetch(next);
            }
            let (ingress, of) = self.ingress(arena.bytes(frame));
            arrivals.push(ingress);
            if of != group {
                batch.defer();
                continue;
            }
            if !secondary.is_empty() {
                readdress_frame(arena, frame, mac, secondary);
            }
            count += 1;
            bytes += frame.len() as u64;
            let frame = arena.bytes(frame);
            batch.push(match (frame.first_chunk(), frame.get(ingress.tags.into()..)) {
                (Some(&dst), Some(frame)) => parse_behind(frame, dst, mac, locals),
                _ => Parsed::Done(Verdict::Runt),
            });
        }
        (count, bytes)
    }
}
