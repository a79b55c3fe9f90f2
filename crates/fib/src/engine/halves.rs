//! The upper half of the address in one table, longer routes in another.
//!
//! Nearly every IPv6 route is /64 or shorter, and a 64-bit shift is one
//! instruction where a 128-bit one is six. So the upper half has a table of its
//! own; a half under which a longer route begins or ends is marked there, and
//! only those addresses are looked up whole:
//!
//! ```text
//!   addr ──upper half──► upper table ──► hop + 1 ──► the answer
//!                                   └──► 0 = look below ──► lower table ──► hop
//! ```
//!
//! Both tables are DXR, the one over [`FamilyLayout::Upper`], the other over the family
//! itself, empty but for the marked halves. Hops in the upper table are stored one
//! higher, so that the mark costs no bit and 65,534 next hops still fit 16 bits.

use alloc::vec::Vec;

use super::dxr::{Dxr, DxrBuilder, Entry, Shape, estimate};
use super::{Builder, Chunks, Engine, Part, Step};
use crate::image::{BadImage, Loadable, PartReader, PartWriter, Storable};
use crate::runs::Run;
use crate::{Addr, FamilyLayout, Full, Hop, Prefix};

/// How many upper halves are looked up at once.
const GROUP: usize = 256;

/// The mark in the upper table: the answer depends on the lower half.
const BELOW: Hop = Hop(0);

/// A frozen table of two halves.
#[derive(Clone, Debug)]
pub struct Halves<A: FamilyLayout, E: Copy> {
    upper: Dxr<A::Upper, E>,
    lower: Dxr<A, E>,
}

impl<A: FamilyLayout, E: Entry> Halves<A, E> {
    /// Returns the shape of the upper table.
    pub fn shape(&self) -> Shape {
        self.upper.shape()
    }
}

impl<A: FamilyLayout, E: Entry> Engine<A> for Halves<A, E> {
    #[inline]
    fn lookup(&self, addr: A) -> Hop {
        match self.upper.lookup(addr.upper()) {
            BELOW => self.lower.lookup(addr),
            stored => Hop(stored.0 - 1),
        }
    }

    fn lookup_batch(&self, addrs: &[A], out: &mut [Hop]) {
        assert_eq!(addrs.len(), out.len(), "a batch has as many answers as addresses");
        let mut uppers = [A::Upper::MIN; GROUP];
        for (addrs, out) in addrs.chunks(GROUP).zip(out.chunks_mut(GROUP)) {
            for (upper, addr) in uppers.iter_mut().zip(addrs) {
                *upper = addr.upper();
            }
            self.upper.lookup_batch(&uppers[..addrs.len()], out);
            // A marked half is rare: one pass without a branch subtracts the offset of 1 from
            // all hops, and detects whether a second pass is needed.
            let mut marked = false;
            for out in out.iter_mut() {
                marked |= *out == BELOW;
                *out = Hop(out.0.wrapping_sub(1));
            }
            if marked {
                let below = |(out, _): &(&mut Hop, &A)| out.0 == BELOW.0.wrapping_sub(1);
                for (out, &addr) in out.iter_mut().zip(addrs).filter(below) {
                    *out = self.lower.lookup(addr);
                }
            }
        }
    }

    fn storable(&self) -> Option<&dyn Storable> {
        Some(self)
    }

    fn parts(&self) -> Vec<Part> {
        let below =
            self.lower.parts().into_iter().map(|part| Part { name: below(part.name), ..part });
        self.upper.parts().into_iter().chain(below).collect()
    }

    /// Those of the upper halves.
    fn chunks(&self) -> Option<Chunks> {
        Some(self.upper.count_chunks())
    }

    fn trace(&self, addr: A, steps: &mut Vec<Step>) -> Hop {
        let stored = self.upper.trace(addr.upper(), steps);
        if stored != BELOW {
            return Hop(stored.0 - 1);
        }
        let above = steps.len();
        let hop = self.lower.trace(addr, steps);
        for step in &mut steps[above..] {
            step.part = below(step.part);
        }
        hop
    }
}

/// Names a part of the lower table.
fn below(name: &'static str) -> &'static str {
    match name {
        "direct" => "lower direct",
        "entries" => "lower entries",
        "extension" => "lower extension",
        "short ranges" => "lower short ranges",
        "medium ranges" => "lower medium ranges",
        "long ranges" => "lower long ranges",
        "wide ranges" => "lower wide ranges",
        other => other,
    }
}

/// The builder of [`Halves`].
#[derive(Debug)]
pub struct HalvesBuilder<A: FamilyLayout, E: Entry> {
    upper: DxrBuilder<A::Upper, E>,
    lower: DxrBuilder<A, E>,
}

impl<A: FamilyLayout, E: Entry> HalvesBuilder<A, E> {
    /// Starts an empty table, the upper half in `shape`, its entries keeping
    /// `len_bits` for a chunk's length.
    pub(crate) fn with_len_bits(shape: Shape, len_bits: u32) -> Self {
        Self {
            upper: DxrBuilder::with_len_bits(shape, len_bits),
            lower: DxrBuilder::with_len_bits(lower_shape::<A>(shape), len_bits),
        }
    }
}

/// Returns the shape of the lower table, which holds little: that of the upper, where the
/// family takes it.
fn lower_shape<A: FamilyLayout>(upper: Shape) -> Shape {
    let plain = || Shape::new::<A>(A::MIN_K, 0);
    let lower = Shape::new::<A>(upper.direct(), upper.extension()).or_else(|_| plain());
    lower.unwrap_or_else(|_| unreachable!("every family takes its own least K"))
}

/// Estimates the bytes that lookups in a table of `runs`, which tile the space, could touch,
/// the upper half in `shape`: those of its two tables.
pub(crate) fn bytes<A: FamilyLayout>(shape: Shape, runs: &[Run<A>]) -> usize {
    let (upper, lower) = divide(Prefix::ALL, runs);
    estimate::bytes(shape, &upper) + estimate::bytes(lower_shape::<A>(shape), &lower)
}

/// In images each half is a table of its own. Any entry of the upper one may lead to the lower,
/// which has no route for an unmarked half.
impl<A: FamilyLayout, E: Entry> Storable for Halves<A, E> {
    fn save(&self, parts: &mut PartWriter<'_>) {
        self.upper.save(&mut parts.within("upper"));
        self.lower.save(&mut parts.within("lower"));
    }
}

impl<A: FamilyLayout, E: Entry> Loadable for Halves<A, E> {
    type Parameters = Shape;

    fn load(shape: Shape, stored: &PartReader<'_>) -> Result<Self, BadImage> {
        Ok(Self {
            upper: Dxr::load(shape, &stored.within("upper"))?,
            lower: Dxr::load(lower_shape::<A>(shape), &stored.within("lower"))?,
        })
    }
}

/// Divides runs between the halves: (runs of the upper table, runs of the lower).
///
/// A run that begins inside a half marks that half. In the lower table, the
/// addresses of unmarked halves go nowhere.
fn divide<A: FamilyLayout>(block: Prefix<A>, runs: &[Run<A>]) -> (Vec<Run<A::Upper>>, Vec<Run<A>>) {
    let half = A::Upper::BITS;
    let mut upper = Vec::with_capacity(runs.len());
    let mut lower = Vec::from([Run { start: block.addr(), hop: Hop::NONE }]);
    let mut marked = None;
    for (i, run) in runs.iter().enumerate() {
        let start = run.start.max(block.addr());
        let begin = start.first(half);
        let inside = begin != start;
        if inside {
            if marked != Some(begin) {
                // The half begins with the run before.
                push(&mut upper, start.upper(), BELOW);
                push(&mut lower, begin, runs[i - 1].hop);
                marked = Some(begin);
            }
            push(&mut lower, start, run.hop);
        }
        // The halves that lie wholly in the run, if any: up to the half in which
        // the next run begins, or to the end of the block.
        let first = if inside { start.upper().succ() } else { Some(start.upper()) };
        let Some(first) = first else { continue };
        let whole = match runs.get(i + 1) {
            Some(next) => first < next.start.upper(),
            None => first <= block.last().upper(),
        };
        if whole {
            push(&mut upper, first, Hop(run.hop.0 + 1));
            push(&mut lower, A::from_upper(first), Hop::NONE);
        }
    }
    (upper, lower)
}

/// Appends a run; a start given twice counts the second time, and a neighbor with
/// the same hop is merged.
fn push<A: Addr>(runs: &mut Vec<Run<A>>, start: A, hop: Hop) {
    if runs.last().is_some_and(|last| last.start == start) {
        runs.pop();
    }
    if runs.last().is_none_or(|last| last.hop != hop) {
        runs.push(Run { start, hop });
    }
}

impl<A: FamilyLayout, E: Entry> Builder<A> for HalvesBuilder<A, E> {
    type Engine = Halves<A, E>;

    fn block_len(&self) -> u32 {
        self.upper.block_len().min(self.lower.block_len())
    }

    fn share_len(&self) -> u32 {
        self.upper.share_len().min(self.lower.share_len())
    }

    fn patch(&mut self, block: Prefix<A>, runs: &[Run<A>]) -> Result<(), Full> {
        if runs.iter().any(|run| run.hop.0 == u32::MAX) {
            // One higher, it would be the mark.
            let seen = u64::from(u32::MAX);
            return Err(Full { what: Full::HOPS, limit: seen - 1, seen });
        }
        let (upper, lower) = divide(block, runs);
        let half = Prefix::truncate(block.addr().upper(), block.len());
        self.upper.patch(half, &upper)?;
        self.lower.patch(block, &lower)
    }

    fn absorb(&mut self, part: &Self, first: A, last: A) -> Result<(), Full> {
        self.upper.absorb(&part.upper, first.upper(), last.upper())?;
        self.lower.absorb(&part.lower, first, last)
    }

    fn freeze(&self) -> Halves<A, E> {
        Halves { upper: self.upper.freeze(), lower: self.lower.freeze() }
    }

    fn refresh(&self, idle: &mut Halves<A, E>) {
        self.upper.refresh(&mut idle.upper);
        self.lower.refresh(&mut idle.lower);
    }

    fn written(&self) -> u64 {
        self.upper.written() + self.lower.written()
    }

    fn holes(&self) -> usize {
        self.upper.holes() + self.lower.holes()
    }
}
