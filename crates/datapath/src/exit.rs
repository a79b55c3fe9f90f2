//! Exits: adjacencies with what is the same for all of their frames below the packet.
//!
//! ```text
//!   adjacency ─► port 3                       ─► lane 3, no tag
//!   adjacency ─► port 0x8000, a VLAN device   ─► lane 0, its tag
//!   adjacency ─► port 0x8001, a bond of two   ─► by the packet's flow: the device decides
//! ```
//!
//! An adjacency has the number of the port that its packets leave on, which may be a stacked device
//! (`stacked.rs`). The port below and the tag of most devices depend on no packet; they are stored with the
//! adjacency whenever it or the devices change, and a packet costs one access to both.

use port::{Arena, Frame};

use super::vlan::{MACS, TAG};
use super::{Adjacency, FIRST_STACKED, StackedDevice};

/// An adjacency and the common part of its frames.
#[derive(Clone, Copy, Debug)]
pub(super) struct Exit {
    /// The MAC addresses and the tag, as in a frame; zeros in place of a tag that there is not. One copy
    /// writes both.
    front: [u8; MACS + TAG],
    /// [`Adjacency::number`] and [`Adjacency::mtu`].
    number: u16,
    mtu: u16,
    /// The number of the lane; [`Self::NO_LANE`] if a stacked device chooses it for each packet, or if
    /// there is none.
    lane: u16,
    /// The length of the tag: 0 without one.
    tags: u16,
}

impl Exit {
    /// More than a worker has.
    const NO_LANE: u16 = u16::MAX;

    /// The exit of a hop without a route.
    pub(super) const NONE: Self = Self::without_lane(Adjacency::NONE);

    /// Makes the exit of an adjacency without a lane.
    const fn without_lane(adjacency: Adjacency) -> Self {
        let [a, b, c, d, e, f, g, h, i, j, k, l] = adjacency.macs();
        let front = [a, b, c, d, e, f, g, h, i, j, k, l, 0, 0, 0, 0];
        let (number, mtu) = (adjacency.number(), adjacency.mtu());
        Self { front, number, mtu, lane: Self::NO_LANE, tags: 0 }
    }

    /// Makes the exit of an adjacency, among these stacked devices.
    pub(super) fn new(adjacency: Adjacency, stacked: &[Option<StackedDevice>]) -> Self {
        let none = Self::without_lane(adjacency);
        let Ok(port) = adjacency.port() else { return none };
        let Some(at) = port.checked_sub(FIRST_STACKED) else { return Self { lane: port, ..none } };
        let device = stacked.get(usize::from(at)).and_then(Option::as_ref);
        match device.and_then(StackedDevice::fixed) {
            Some((lane, None)) => Self { lane, ..none },
            Some((lane, Some(tag))) => {
                let mut exit = Self { lane, tags: TAG as u16, ..none };
                exit.front[MACS..].copy_from_slice(&tag);
                exit
            }
            None => none,
        }
    }

    /// Returns the adjacency.
    #[inline(always)]
    pub(super) fn adjacency(&self) -> Adjacency {
        let [macs @ .., _, _, _, _] = self.front;
        Adjacency::from_parts(macs, self.number, self.mtu)
    }

    /// Returns the number of the lane, or one that no worker has.
    #[inline(always)]
    pub(super) fn lane(&self) -> usize {
        self.lane.into()
    }

    /// Returns the length of the tag.
    #[inline(always)]
    pub(super) fn tags(&self) -> usize {
        self.tags.into()
    }

    /// Writes the MAC addresses and the tag to the front of a frame whose packet is behind `tags` bytes of
    /// tags, if the exit's tag has that length; otherwise [`replace_tags`](Self::replace_tags) does.
    #[inline(always)]
    pub(super) fn write(&self, front: &mut [u8], tags: usize) {
        if tags != self.tags() {
            return;
        }
        if tags == 0 {
            if let Some(macs) = front.first_chunk_mut() {
                *macs = self.adjacency().macs();
            }
        } else if let Some(front) = front.first_chunk_mut() {
            *front = self.front;
        }
    }

    /// Replaces the tags of a frame, which have another length than the exit's tag, and writes the MAC
    /// addresses.
    ///
    /// # Errors
    ///
    /// The frame, if it has no room for the tag.
    pub(super) fn replace_tags(
        &self,
        arena: &mut Arena,
        mut frame: Frame,
        tags: usize,
    ) -> Result<Frame, Frame> {
        if !move_front(arena, &mut frame, tags, self.tags()) {
            return Err(frame);
        }
        self.write(arena.bytes_mut(&frame), self.tags());
        Ok(frame)
    }
}

/// Moves the front of a frame whose packet is behind `tags` bytes, for `wanted` bytes instead. Returns
/// whether the frame has room for them.
pub(super) fn move_front(arena: &mut Arena, frame: &mut Frame, tags: usize, wanted: usize) -> bool {
    match wanted.checked_sub(tags) {
        Some(more) => arena.grow_front(frame, more),
        None => arena.shrink_front(frame, tags - wanted),
    }
}
