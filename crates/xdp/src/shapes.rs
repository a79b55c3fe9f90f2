//! The array of shapes: what the upper seven bits of an entry mean, for programs.
//!
//! ```text
//!  63          32 31     24 23 22 21   16 15      8 7 6 5    0
//!  ┌─────────────┬─────────┬─────┬───────┬─────────┬───┬──────┐
//!  │ mask        │ words   │ 0   │ width │ last    │ 0 │shift │  width and shift have six bits each
//!  └─────────────┴─────────┴─────┴───────┴─────────┴───┴──────┘
//! ```
//!
//! An entry is a hop if the two highest bits are none; the lookup knows that without this array. The mask
//! takes a leaf out of its word ([`fib::engine::rank::ChunkShape`] has the others).

use std::io;

use fib::engine::rank::{ChunkShape, SHAPE_BITS};
use port::af_xdp::bpf::{Kind, Map};

/// Returns the mask of a leaf of 2^`width` bytes.
pub(crate) fn mask(width: u32) -> u32 {
    u32::MAX >> (32 - (8 << width))
}

/// Creates the array.
pub(crate) fn shapes() -> io::Result<Map> {
    let mut bytes = Vec::new();
    for upper in 0..1 << SHAPE_BITS {
        let packed = ChunkShape::of(upper).map_or(0, |ChunkShape { shift, last, width, words }| {
            // 8 bits of an address lead to no leaf above 255, though a window may have 264.
            let last = last.min(u8::MAX.into());
            u64::from(mask(width)) << 32 | u64::from(words << 24 | width << 16 | last << 8 | shift)
        });
        bytes.extend(packed.to_ne_bytes());
    }
    let map = Map::array(Kind::Array, "shapes", bytes.len(), 1)?;
    map.set(0, &bytes)?;
    Ok(map)
}
