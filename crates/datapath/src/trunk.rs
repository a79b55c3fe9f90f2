//! Trunks: parses the frames of a port with VLAN devices, behind their tags.
//!
//! ```text
//!   frame     dst │ src │ 88a8:200 │ 8100:30 │ type │ packet
//!   ingress   port 0 has 88a8:200, port 0x8001 ─► that has 8100:30, port 0x8002 ─► 8 bytes of tags
//!   parsed    dst       ·          src'      │ type │ packet
//! ```
//!
//! No byte is moved: the rest of the packet path begins behind the tags, and what precedes the type
//! there is overwritten when the packet is rewritten. Until then the frame can be given back to the host as it
//! arrived. A tag that the port, or the VLAN device found so far, does not have ends this, and stays.

use port::{Arena, Frame};
use wire::vlan;

use super::Ingresses;
use super::batch::{AHEAD, Batch};
use super::ingress::{DeviceSummary, FrameIngress};
use super::parse::parse_tagged;
use super::secondary_macs::readdress_frame;
use super::vlan::{MACS, MAX_TAGS, TAG, VlanTable};

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
            let DeviceSummary { group: of, has_vlans, has_priorities } =
                self.ingresses.device(device);
            group = of;
            ingress = FrameIngress::tagged(device, ingress.tags() + TAG, 0);
            if has_vlans || has_priorities {
                let terms = self.ingresses.get(device.into());
                let priority = terms.priorities[usize::from(tag[2] >> 5)];
                ingress = FrameIngress::tagged(device, ingress.tags(), priority);
                (vlans, rest) = (&terms.vlans, inner);
            }
            if !has_vlans {
                break;
            }
        }
        (ingress, group)
    }

    /// Parses the frames of one group into the batch, which is empty apart from held packets, defers the
    /// others, and stores the ingress of each frame in `arrivals`, which is empty. Returns the number of
    /// the group's frames, that of their bytes, and that of the first frames with the same ingress, which are
    /// of the group.
    pub(super) fn parse(
        &self,
        arena: &mut Arena,
        frames: &[Frame],
        group: u16,
        batch: &mut Batch,
        arrivals: &mut Vec<FrameIngress>,
    ) -> (u64, u64, usize) {
        let terms = self.ingresses.get(group.into());
        let mac = terms.mac.unwrap_or(self.mac);
        let (secondary, locals) = (&*terms.secondary_macs, &*terms.locals);
        let (mut alike, mut bytes) = (0, 0);
        let first = frames.first().map(|frame| arena.bytes(frame));
        if secondary.is_empty()
            && let Some((ingress, pattern)) = first.and_then(|frame| self.pattern(frame, group))
        {
            let is_alike = move |frame: &[u8]| pattern.matches(frame);
            (alike, bytes) = match ingress.tags() {
                0 => batch.parse_while::<0>(arena, frames, is_alike, mac, locals),
                TAG => batch.parse_while::<TAG>(arena, frames, is_alike, mac, locals),
                _ => batch.parse_while::<{ MAX_TAGS * TAG }>(arena, frames, is_alike, mac, locals),
            };
            arrivals.resize(alike, ingress);
        } else {
            frames.iter().take(AHEAD).for_each(|frame| arena.prefetch(frame));
        }
        let mut count = alike as u64;
        for (at, frame) in frames.iter().enumerate().skip(alike) {
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
            parse_tagged(arena.bytes(frame), ingress.tags(), mac, locals, batch);
        }
        (count, bytes, alike)
    }

    /// Returns how a frame arrived, and the pattern of the frames that arrived alike; `None` if it is not of
    /// this group, or too short.
    fn pattern(&self, frame: &[u8], group: u16) -> Option<(FrameIngress, TagPattern)> {
        let (ingress, of) = self.ingress(frame);
        let DeviceSummary { has_vlans, has_priorities, .. } = self.ingresses.device(ingress.port);
        let is_last = ingress.port != self.port && !has_vlans;
        let mut pattern = TagPattern::of(frame, ingress.tags(), is_last)?;
        if has_priorities {
            pattern = pattern.with_priority(frame, ingress.tags())?;
        }
        (of == group).then_some((ingress, pattern))
    }
}

/// Returns the port or VLAN device that a frame arrives on which a port receives, by its number, and the bytes of the
/// tags before its packet.
pub fn arrival(ingresses: &Ingresses, port: u16, frame: &[u8]) -> (u16, usize) {
    let terms = ingresses.get(port.into());
    let mac = terms.mac.unwrap_or_default();
    let trunk = Trunk { port, group: ingresses.group(port), vlans: &terms.vlans, ingresses, mac };
    let (ingress, _) = trunk.ingress(frame);
    (ingress.port, ingress.tags())
}

/// The bytes that decide the ingress of a frame: type and VLAN identifier of its tags, and whatever ends
/// them where VLAN devices would have a further one, in the order of the frame. Frames with the same pattern
/// have the same ingress.
struct TagPattern {
    mask: u64,
    tags: u64,
}

impl TagPattern {
    /// The type of a tag.
    const TYPE: u32 = 0xffff_0000;
    /// The type of a tag, and its VLAN identifier: the priority, four bits between them, may differ.
    const TAG: u32 = 0xffff_0fff;
    /// The priority of a tag.
    const PRIORITY: u64 = 0xe000;

    /// Makes the pattern of a frame with this length of tags; `is_last`: no VLAN devices have a further
    /// tag. Returns `None` for a frame that is too short.
    fn of(frame: &[u8], tags: usize, is_last: bool) -> Option<Self> {
        let bytes = Self::bytes(frame)?;
        let behind = |tag: usize| match (u64::from_be(bytes) >> (48 - 32 * tag)) as u16 {
            _ if is_last => 0,
            kind if vlan::is_tag(kind) => Self::TAG,
            _ => Self::TYPE,
        };
        let [first, second] = match tags / TAG {
            0 => [behind(0), 0],
            1 => [Self::TAG, behind(1)],
            _ => [Self::TAG, Self::TAG],
        };
        let mask = (u64::from(first) << 32 | u64::from(second)).to_be();
        Some(Self { mask, tags: bytes & mask })
    }

    /// Adds the priority of the last of `tags` bytes of tags of the same frame.
    fn with_priority(self, frame: &[u8], tags: usize) -> Option<Self> {
        let last = tags / TAG;
        let priority = if last == 0 { 0 } else { Self::PRIORITY << (64 - 32 * last) };
        let mask = self.mask | priority.to_be();
        Some(Self { mask, tags: Self::bytes(frame)? & mask })
    }

    /// Returns whether a frame has these tags.
    #[inline(always)]
    fn matches(&self, frame: &[u8]) -> bool {
        Self::bytes(frame).is_some_and(|bytes| bytes & self.mask == self.tags)
    }

    /// Returns the bytes where a frame has tags.
    #[inline(always)]
    fn bytes(frame: &[u8]) -> Option<u64> {
        let (_, rest) = frame.split_first_chunk::<MACS>()?;
        rest.first_chunk().map(|bytes| u64::from_ne_bytes(*bytes))
    }
}
