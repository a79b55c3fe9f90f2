//! VLAN tags: one (IEEE 802.1Q) or two (802.1ad, "QinQ").
//!
//! ```text
//!   12        14        16        18        20
//!   +---------+---------+---------+---------+---------+----------
//!   | 0x88a8  |PCP D VID| 0x8100  |PCP D VID|  kind   | payload …
//!   +---------+---------+---------+---------+---------+----------
//!              3  1  12
//! ```
//!
//! A tag is four bytes before the EtherType: its own type and the tag control information
//! (priority, drop eligible, VLAN identifier). The view starts at byte 12 of a frame, at the type
//! of its first tag, and reads one or two tags: a third is [`BadHeader::Chain`]. Some equipment
//! writes 0x8100 for the outer tag too, so both types are accepted for either.

use crate::BadHeader;
use crate::ethernet::{SERVICE_VLAN, VLAN};
use crate::octets::{put, u16_at};

/// The length of one tag in bytes.
pub const LEN: usize = 4;
/// The most tags read.
pub const MAX_TAGS: usize = 2;

/// Returns whether an EtherType announces a tag.
#[inline]
pub fn is_tag(kind: u16) -> bool {
    kind == VLAN || kind == SERVICE_VLAN
}

/// A tag: its type and its fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tag {
    /// [`VLAN`] or [`SERVICE_VLAN`].
    pub kind: u16,
    /// The priority, 0 to 7.
    pub priority: u8,
    /// Whether the frame may be dropped first.
    pub drop_eligible: bool,
    /// The VLAN identifier, 0 to 4095.
    pub vid: u16,
}

impl Tag {
    fn read(bytes: &[u8], at: usize) -> Self {
        let control = u16_at(bytes, at + 2);
        Self {
            kind: u16_at(bytes, at),
            priority: (control >> 13) as u8,
            drop_eligible: control & 0x1000 != 0,
            vid: control & 0x0fff,
        }
    }

    fn control(self) -> u16 {
        u16::from(self.priority) << 13 | u16::from(self.drop_eligible) << 12 | self.vid
    }
}

/// A view over the tags of a frame, from its byte 12 on.
#[derive(Clone, Copy, Debug)]
pub struct View<T> {
    bytes: T,
    count: usize,
}

impl<T: AsRef<[u8]>> View<T> {
    /// Parses `bytes`, which begin with the frame's EtherType, as tags.
    ///
    /// # Errors
    ///
    /// [`BadHeader::Kind`] if there is no tag, [`BadHeader::Truncated`] if the bytes end within one
    /// or before the EtherType after it, [`BadHeader::Chain`] if there are more than two.
    pub fn parse(bytes: T) -> Result<Self, BadHeader> {
        let shown = bytes.as_ref();
        let mut count = 0;
        loop {
            let at = count * LEN;
            if shown.len() < at + 2 {
                return Err(BadHeader::Truncated);
            }
            if !is_tag(u16_at(shown, at)) {
                break;
            }
            if count == MAX_TAGS {
                return Err(BadHeader::Chain);
            }
            count += 1;
        }
        if count == 0 {
            return Err(BadHeader::Kind);
        }
        Ok(Self { bytes, count })
    }

    /// Returns the number of tags, 1 or 2.
    pub fn count(&self) -> usize {
        self.count
    }

    /// Returns the outer tag, or the only one.
    pub fn outer(&self) -> Tag {
        Tag::read(self.bytes.as_ref(), 0)
    }

    /// Returns the inner of two tags.
    pub fn inner(&self) -> Option<Tag> {
        (self.count == 2).then(|| Tag::read(self.bytes.as_ref(), LEN))
    }

    /// Returns the EtherType after the tags.
    pub fn kind(&self) -> u16 {
        u16_at(self.bytes.as_ref(), self.count * LEN)
    }

    /// Returns the payload after the tags and the EtherType.
    pub fn payload(&self) -> &[u8] {
        &self.bytes.as_ref()[self.count * LEN + 2..]
    }

    /// Reads all fields.
    pub fn header(&self) -> Header {
        Header { outer: self.outer(), inner: self.inner(), kind: self.kind() }
    }
}

impl<T: AsRef<[u8]> + AsMut<[u8]>> View<T> {
    /// Sets the VLAN identifier of the outer tag, 12 bits.
    pub fn set_vid(&mut self, vid: u16) {
        let control = u16_at(self.bytes.as_ref(), 2) & 0xf000 | vid & 0x0fff;
        put(self.bytes.as_mut(), 2, control.to_be_bytes());
    }
}

/// The tags and the EtherType after them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// The outer tag, or the only one.
    pub outer: Tag,
    /// The inner of two tags.
    pub inner: Option<Tag>,
    /// The EtherType of the payload.
    pub kind: u16,
}

impl Header {
    /// Writes the tags and the EtherType, from byte 12 of a frame on, and returns
    /// their length: 6 or 10.
    ///
    /// # Errors
    ///
    /// [`BadHeader::Truncated`] if there is no room, [`BadHeader::Kind`] if a tag's
    /// type is not a tag's, or the payload's is, [`BadHeader::Length`] if a priority
    /// or identifier is too large for its field.
    pub fn emit(&self, bytes: &mut [u8]) -> Result<usize, BadHeader> {
        let tags = [Some(self.outer), self.inner];
        let count = tags.iter().flatten().count();
        if bytes.len() < count * LEN + 2 {
            return Err(BadHeader::Truncated);
        }
        if is_tag(self.kind) {
            return Err(BadHeader::Kind);
        }
        for (at, tag) in tags.into_iter().flatten().enumerate() {
            if !is_tag(tag.kind) {
                return Err(BadHeader::Kind);
            }
            if tag.priority > 7 || tag.vid > 0x0fff {
                return Err(BadHeader::Length);
            }
            put(bytes, at * LEN, tag.kind.to_be_bytes());
            put(bytes, at * LEN + 2, tag.control().to_be_bytes());
        }
        put(bytes, count * LEN, self.kind.to_be_bytes());
        Ok(count * LEN + 2)
    }
}
