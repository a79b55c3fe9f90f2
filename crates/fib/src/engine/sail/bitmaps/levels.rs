//! Which levels have a bitmap, and where in the one array it lies.

use alloc::vec::Vec;
use core::fmt::Debug;

use super::super::pivot;
use super::Level;
use crate::Addr;

/// A set of levels, the last of which is the pivot.
pub trait Levels: Copy + Debug + Default + Send + Sync + 'static {
    /// Lists the lengths, shortest first, `pivot` at the end.
    fn lens(pivot: u32) -> impl Iterator<Item = u32>;
}

/// All lengths from 0 to the pivot: `SAIL_B`.
#[derive(Clone, Copy, Debug, Default)]
pub struct Every;

impl Levels for Every {
    fn lens(pivot: u32) -> impl Iterator<Item = u32> {
        0..=pivot
    }
}

/// A quarter of the pivot apart, 6, 12, 18 and 24 of IPv4: `SAIL_U`. So many bits
/// at once have 64 nodes, a word.
#[derive(Clone, Copy, Debug, Default)]
pub struct Quarters;

impl Levels for Quarters {
    fn lens(pivot: u32) -> impl Iterator<Item = u32> {
        (1..=4).map(move |quarter| pivot * quarter / 4)
    }
}

/// Lays the levels out, and says how many nodes they have in all.
///
/// A level begins at a multiple of 64, or of its own size if that is smaller, so
/// that no span of a power of two, up to 64, crosses a word.
pub(super) fn lay<A: Addr, S: Levels>() -> (Vec<Level>, usize) {
    let (mut levels, mut end, mut above) = (Vec::new(), 0usize, -1);
    for len in S::lens(pivot::<A>()) {
        let base = end.next_multiple_of(64.min(1 << len));
        levels.push(Level { len, above, base });
        end = base + (1 << len);
        above = len as i32;
    }
    levels.reverse();
    (levels, end)
}

#[cfg(test)]
mod tests {
    use super::{Every, Quarters, lay};
    use alloc::vec::Vec;

    /// Table 3.2: 4 MB and 2.03 MB.
    #[test]
    fn the_bitmaps_are_as_large_as_the_thesis_says() {
        let (every, nodes) = lay::<u32, Every>();
        assert!(every.iter().all(|level| level.len == 0 || level.base == 1 << level.len));
        assert_eq!((every.len(), nodes), (25, 1 << 25));
        let (four, nodes) = lay::<u32, Quarters>();
        assert_eq!(four.iter().map(|level| level.len).collect::<Vec<_>>(), [24, 18, 12, 6]);
        assert_eq!(nodes, (1 << 6) + (1 << 12) + (1 << 18) + (1 << 24));
        assert!(lay::<u8, Quarters>().0.windows(2).all(|pair| pair[0].len > pair[1].len));
    }
}
