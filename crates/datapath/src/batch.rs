//! The batch: the lookup keys of the frames that a worker handles together, and their hops.
//!
//! ```text
//!   frames  │ f0 │ f1 │ f2 │ f3 │ …        as received, at most SIZE
//!   kinds   │ V4 │ V6 │ Arp│ V4 │ …        the result of parse for each
//!   keys4   │ dst0 │ dst3 │ …              the IPv4 ones, packed in order
//!   hops4   │ hop0 │ hop3 │ …
//!   keys6   │ dst1 │ …                     the IPv6 ones
//!   hops6   │ hop1 │ …
//! ```
//!
//! Packets that wait for a neighbor (`hold.rs`) are looked up again with each batch of their port;
//! their destinations precede those of the frames. If the port has a reverse path filter, the
//! sources follow the last destination of each family, in the same order. All keys are one lookup
//! batch, and so of one table: a reader that took its table a second time would release the first
//! one, whose hops are still in use.
//!
//! The keys of each family are packed, so that mixed traffic makes one lookup batch a family. A
//! second pass over `kinds` in order meets the hops of each family in the order of its keys, so no
//! index is stored. All arrays have a fixed size and are allocated once; a push is a store and an
//! addition.

use std::net::IpAddr;

use fib::Hop;
use port::{Arena, Frame};
use wire::ethernet;

use super::hold::HELD;
use super::parse::{ParseSink, parse_tagged, source_v4, source_v6};
use super::want::{Key, WantSender};
use super::{Locals, Lookup, Parsed, Verdict};

/// The maximum number of frames in a batch. Larger ones amortize more and leave the L1 cache: 256
/// headers are 16 KiB.
pub const SIZE: usize = 256;

/// The distance by which the headers of received frames are prefetched, in frames.
pub(super) const AHEAD: usize = 8;

/// Batches of fewer packets than this always mark the hops that they use. Larger ones, in which the
/// cost of each packet matters, do so in one of `MARKING` ticks, which is once a second.
pub(super) const FEW: usize = 32;
pub(super) const MARKING: u64 = 10;

/// The capacity for keys of a family: a destination and a source a frame, and the held packets.
const ROOM: usize = 2 * SIZE + HELD;

/// The kind of a frame in the batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// An IPv4 packet; its hop is the next one of its family.
    V4,
    /// An IPv6 packet.
    V6,
    /// Decided before the lookup.
    Done(Verdict),
    /// Not of this batch: the frame is in a later one of the same turn.
    Deferred,
}

/// The source of a frame, and its hop.
#[derive(Clone, Copy, Debug)]
pub(super) enum Source {
    /// That of an IPv4 packet.
    V4(u32, Hop),
    /// That of an IPv6 packet.
    V6(u128, Hop),
}

/// The family whose keys have the source of a frame.
#[derive(Clone, Copy, Debug)]
enum SourceFamily {
    None,
    V4,
    V6,
}

/// The keys of one family, and their hops.
#[derive(Debug)]
struct Keys<A> {
    keys: [A; ROOM],
    hops: [Hop; ROOM],
    count: usize,
    /// The index of the first frame's key; the keys before it are those of held packets.
    frames: usize,
    /// The index of the first source.
    sources: usize,
}

impl<A: Copy + Default> Keys<A> {
    fn new() -> Self {
        let (keys, hops) = ([A::default(); ROOM], [Hop::NONE; ROOM]);
        Self { keys, hops, count: 0, frames: 0, sources: 0 }
    }

    fn clear(&mut self) {
        self.count = 0;
        self.frames = 0;
        self.sources = 0;
    }

    #[inline(always)]
    fn push(&mut self, key: A) {
        if let Some(slot) = self.keys.get_mut(self.count) {
            *slot = key;
            self.count += 1;
        }
    }

    fn destinations(&self) -> impl Iterator<Item = &Hop> {
        self.hops.get(self.frames..self.sources).unwrap_or_default().iter()
    }

    fn waiting(&self) -> impl Iterator<Item = Hop> {
        self.hops.iter().take(self.frames).copied()
    }

    fn sources(&self) -> impl Iterator<Item = (A, Hop)> {
        let each = self.keys.iter().zip(&self.hops).take(self.count);
        each.skip(self.sources).map(|(&key, &hop)| (key, hop))
    }
}

/// The fixed arrays of one batch.
#[derive(Debug)]
pub struct Batch {
    kinds: [Kind; SIZE],
    /// Those of the frames, once sources have been added.
    families: [SourceFamily; SIZE],
    count: usize,
    v4: Keys<u32>,
    v6: Keys<u128>,
}

impl Default for Batch {
    fn default() -> Self {
        Self::new()
    }
}

impl ParseSink for Batch {
    #[inline(always)]
    fn put_v4(&mut self, dst: u32) {
        if self.put(Kind::V4) {
            self.v4.push(dst);
        }
    }

    #[inline(always)]
    fn put_v6(&mut self, dst: u128) {
        if self.put(Kind::V6) {
            self.v6.push(dst);
        }
    }

    #[inline(always)]
    fn put_done(&mut self, verdict: Verdict) {
        self.put(Kind::Done(verdict));
    }
}

impl Batch {
    /// Makes an empty batch.
    pub fn new() -> Self {
        let kinds = [Kind::Done(Verdict::Runt); SIZE];
        let families = [SourceFamily::None; SIZE];
        Self { kinds, families, count: 0, v4: Keys::new(), v6: Keys::new() }
    }

    /// Empties the batch.
    #[inline]
    pub fn clear(&mut self) {
        self.count = 0;
        self.v4.clear();
        self.v6.clear();
    }

    /// Marks the hops of the frames' destinations as used.
    pub(super) fn mark(&self, wants: &WantSender) {
        let hops = self.v4.destinations().chain(self.v6.destinations());
        hops.for_each(|&hop| wants.mark(hop));
    }

    /// Adds the destination of a held packet; held packets precede the frames. There is room for
    /// [`HELD`].
    #[inline]
    pub(super) fn wait(&mut self, key: Key) {
        match key {
            Key::V4(key) => {
                self.v4.push(key);
                self.v4.frames = self.v4.count;
            }
            Key::V6(key) => {
                self.v6.push(key);
                self.v6.frames = self.v6.count;
            }
        }
    }

    /// Parses frames behind `TAGS` bytes of tags and appends their results, up to a frame that is not alike.
    /// Returns their number, and that of their bytes.
    ///
    /// Not inlined: among other loops this one keeps less of its state in registers.
    #[inline(never)]
    pub(super) fn parse_while<const TAGS: usize>(
        &mut self,
        arena: &Arena,
        frames: &[Frame],
        is_alike: impl Fn(&[u8]) -> bool,
        mac: [u8; 6],
        locals: &Locals,
    ) -> (usize, u64) {
        frames.iter().take(AHEAD).for_each(|frame| arena.prefetch(frame));
        let (mut count, mut bytes) = (0, 0);
        for frame in frames {
            if let Some(next) = frames.get(count + AHEAD) {
                arena.prefetch(next);
            }
            let frame = arena.bytes(frame);
            if !is_alike(frame) {
                break;
            }
            count += 1;
            bytes += frame.len() as u64;
            parse_tagged(frame, TAGS, mac, locals, self);
        }
        (count, bytes)
    }

    /// Appends the parse result of a frame. A full batch ignores it; the worker receives no more
    /// than [`SIZE`] frames.
    #[inline(always)]
    pub fn push(&mut self, parsed: Parsed) {
        match parsed {
            Parsed::V4(key) => self.put_v4(key),
            Parsed::V6(key) => self.put_v6(key),
            Parsed::Done(verdict) => self.put_done(verdict),
        }
    }

    /// Appends the kind of a frame, and returns whether there was room.
    #[inline(always)]
    fn put(&mut self, kind: Kind) -> bool {
        let Some(slot) = self.kinds.get_mut(self.count) else { return false };
        *slot = kind;
        self.count += 1;
        true
    }

    /// Appends a frame that is in a later batch.
    #[inline(always)]
    pub(super) fn defer(&mut self) {
        self.put(Kind::Deferred);
    }

    /// Ends the list of frames: keys that are added from now on are sources.
    #[inline]
    pub fn seal(&mut self) {
        self.v4.sources = self.v4.count;
        self.v6.sources = self.v6.count;
    }

    /// Appends the sources of the packets of the `filtered` families, IPv4 and IPv6, that are to be
    /// forwarded, and of those whose TTL is used up: Linux answers none whose source it refuses.
    /// `frames` are the frames that were pushed, in order.
    pub fn add_sources<'f>(&mut self, frames: impl Iterator<Item = &'f [u8]>, filtered: [bool; 2]) {
        let Self { kinds, families, count, v4, v6 } = self;
        let of_v4 = if filtered[0] { SourceFamily::V4 } else { SourceFamily::None };
        let of_v6 = if filtered[1] { SourceFamily::V6 } else { SourceFamily::None };
        for ((kind, family), frame) in kinds.iter().zip(families).take(*count).zip(frames) {
            *family = match kind {
                Kind::V4 => of_v4,
                Kind::V6 => of_v6,
                // The first byte of the IP header has the version.
                Kind::Done(Verdict::TtlExpired) => match frame.get(ethernet::LEN) {
                    Some(first) if first >> 4 == 4 => of_v4,
                    _ => of_v6,
                },
                Kind::Done(_) | Kind::Deferred => SourceFamily::None,
            };
            match family {
                SourceFamily::V4 => v4.push(source_v4(frame)),
                SourceFamily::V6 => v6.push(source_v6(frame)),
                SourceFamily::None => {}
            }
        }
    }

    /// Looks up all keys in one table, one batch a family, and returns the number of the frames'
    /// destinations in each family: IPv4, IPv6.
    #[inline]
    pub fn lookup(&mut self, tables: &mut impl Lookup, table: usize) -> (usize, usize) {
        let (v4, v6) = (self.v4.count, self.v6.count);
        if v4 > 0 {
            tables.lookup_v4(table, &self.v4.keys[..v4], &mut self.v4.hops[..v4]);
        }
        if v6 > 0 {
            tables.lookup_v6(table, &self.v6.keys[..v6], &mut self.v6.hops[..v6]);
        }
        (self.v4.sources - self.v4.frames, self.v6.sources - self.v6.frames)
    }

    /// Returns one of the frames' destinations, that at index `at` modulo their number, or `None`
    /// if there are none.
    pub(super) fn destination(&self, at: u64) -> Option<IpAddr> {
        let v4 = self.v4.keys.get(self.v4.frames..self.v4.sources).unwrap_or_default();
        let v6 = self.v6.keys.get(self.v6.frames..self.v6.sources).unwrap_or_default();
        let at = (at % (v4.len() + v6.len()).max(1) as u64) as usize;
        match v4.get(at) {
            Some(&key) => Some(IpAddr::V4(key.into())),
            None => v6.get(at - v4.len()).map(|&key| IpAddr::V6(key.into())),
        }
    }

    /// Iterates over the hops of the held IPv4 packets, in order.
    pub(super) fn waiting_v4(&self) -> impl Iterator<Item = Hop> {
        self.v4.waiting()
    }

    /// Iterates over the hops of the held IPv6 packets, in order.
    pub(super) fn waiting_v6(&self) -> impl Iterator<Item = Hop> {
        self.v6.waiting()
    }

    /// Iterates over the sources of the frames in order, once they have been added and looked up;
    /// `None` for a frame whose source is not checked.
    #[inline]
    pub(super) fn sources(&self) -> impl Iterator<Item = Option<Source>> {
        let (mut v4, mut v6) = (self.v4.sources(), self.v6.sources());
        self.families.iter().take(self.count).map(move |family| match family {
            SourceFamily::V4 => v4.next().map(|(from, hop)| Source::V4(from, hop)),
            SourceFamily::V6 => v6.next().map(|(from, hop)| Source::V6(from, hop)),
            SourceFamily::None => None,
        })
    }

    /// Returns the frames' kinds in order.
    #[inline(always)]
    pub(super) fn kinds(&self) -> &[Kind] {
        self.kinds.get(..self.count).unwrap_or_default()
    }

    /// Iterates over the frames' kinds in order, with the hop of those that have one.
    #[inline(always)]
    pub fn outcomes(&self) -> impl Iterator<Item = (Kind, Hop)> {
        let mut v4 = self.v4.destinations();
        let mut v6 = self.v6.destinations();
        self.kinds().iter().map(move |&kind| {
            let hop = match kind {
                Kind::V4 => v4.next(),
                Kind::V6 => v6.next(),
                Kind::Done(_) | Kind::Deferred => None,
            };
            (kind, hop.copied().unwrap_or(Hop::NONE))
        })
    }
}
