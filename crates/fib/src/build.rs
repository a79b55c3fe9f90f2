//! The full build: one or several threads sweep the whole space and lay it out.
//!
//! ```text
//!            ┌ share 0: sweep ─► runs ─► builder 0 ┐
//!   Rib  ────┤ share 1: sweep ─► runs ─► builder 1 ├─ absorb ─► one builder
//!            └ share 2: …                          ┘
//! ```
//!
//! With several threads the space is divided into shares of about equally many routes, at
//! boundaries of the engine's first stage. Each thread builds its share as a table of its own,
//! and the first builder absorbs the others. Absorbing shares chunks by content again, so that
//! the table has the same size as one that a single thread builds, in another order.

use alloc::vec::Vec;
#[cfg(feature = "std")]
use core::ops::Range;

use crate::engine::Builder;
use crate::runs::sweep_block;
use crate::{Addr, Full, Prefix, Rib};

/// Builds all of `rib` with builders from `make`.
pub(crate) fn build<A: Addr, B: Builder<A>>(
    rib: &Rib<A>,
    make: impl Fn() -> B + Sync,
    threads: usize,
) -> Result<B, Full> {
    #[cfg(feature = "std")]
    if threads > 1 && rib.len() > 10_000 {
        return build_shared(rib, &make, threads);
    }
    let _ = threads;
    let mut builder = make();
    let mut runs = Vec::with_capacity(rib.len());
    sweep_block(rib, Prefix::ALL, &mut runs);
    builder.patch(Prefix::ALL, &runs)?;
    Ok(builder)
}

#[cfg(feature = "std")]
fn build_shared<A: Addr, B: Builder<A>>(
    rib: &Rib<A>,
    make: &(impl Fn() -> B + Sync),
    threads: usize,
) -> Result<B, Full> {
    let len = make().share_len();
    let shares = shares(rib, len, threads);
    let work = |blocks: Range<usize>| {
        let mut part = make();
        let mut runs = Vec::new();
        for block in prefixes(blocks, len) {
            runs.clear();
            sweep_block(rib, block, &mut runs);
            part.patch(block, &runs)?;
        }
        Ok(part)
    };
    let mut parts: Vec<Result<B, Full>> = std::thread::scope(|scope| {
        let spawn = |blocks: &Range<usize>| {
            let blocks = blocks.clone();
            scope.spawn(|| work(blocks))
        };
        let running: Vec<_> = shares.iter().map(spawn).collect();
        running
            .into_iter()
            .map(|thread| thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
            .collect()
    });
    // The first builder holds its own share; it takes over those of the others.
    let mut builder = parts.remove(0)?;
    for (part, blocks) in parts.into_iter().zip(&shares[1..]) {
        let first = A::from_bits(blocks.start, 0, len);
        let last = A::from_bits(blocks.end - 1, 0, len).last(len);
        builder.absorb(&part?, first, last)?;
    }
    Ok(builder)
}

/// Covers a range of blocks of `len` bits with the fewest prefixes.
#[cfg(feature = "std")]
fn prefixes<A: Addr>(blocks: Range<usize>, len: u32) -> impl Iterator<Item = Prefix<A>> {
    let mut start = blocks.start;
    core::iter::from_fn(move || {
        let left = blocks.end.checked_sub(start).filter(|&left| left > 0)?;
        let width = start.trailing_zeros().min(left.ilog2()).min(len);
        let prefix = Prefix::truncate(A::from_bits(start, 0, len), len - width);
        start += 1 << width;
        Some(prefix)
    })
}

/// Divides the blocks of `len` bits into ranges of about equally many routes.
#[cfg(feature = "std")]
fn shares<A: Addr>(rib: &Rib<A>, len: u32, threads: usize) -> Vec<Range<usize>> {
    let blocks = 1usize << len;
    let each = rib.len().div_ceil(threads);
    let mut shares = Vec::with_capacity(threads);
    let (mut start, mut count) = (0, 0);
    let mut before = 0;
    for (prefix, _) in rib {
        let index = prefix.addr().bits(0, len);
        if count >= each && index > before {
            shares.push(start..index);
            (start, count) = (index, 0);
        }
        before = index;
        count += 1;
    }
    shares.push(start..blocks);
    shares
}

#[cfg(all(test, feature = "std"))]
mod tests {
    use super::prefixes;
    use crate::Prefix;
    use alloc::vec::Vec;

    #[test]
    fn prefixes_tile_any_range_of_blocks() {
        for start in 0..32usize {
            for end in start..=32 {
                let tiles: Vec<Prefix<u8>> = prefixes(start..end, 5).collect();
                let mut next = start << 3;
                for tile in &tiles {
                    assert_eq!(usize::from(tile.addr()), next);
                    next = usize::from(tile.last()) + 1;
                }
                assert_eq!(next, end << 3);
                assert!(tiles.len() <= 9, "{start}..{end}: {tiles:?}");
            }
        }
    }
}
