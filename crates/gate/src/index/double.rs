//! Double hashing (Knuth, vol. 3, 6.4, algorithm D).
//!
//! Each flow has a step of its own, odd so that it visits all of a power of two: flows do not queue
//! behind each other twice, and every try is a line of its own. The step is a permutation of the
//! hash, whose lower bits are the home. `probe.rs` has the layout.

use super::probe::{Probed, Sequence};
use crate::flow::permute;

/// The order of its tries.
#[derive(Debug)]
pub struct Steps;

impl Sequence for Steps {
    const NAME: &'static str = "double";

    #[inline(always)]
    fn offset(hash: u32, number: usize) -> usize {
        let step = permute(hash ^ 0x9e37_79b9) | 1;
        number.wrapping_mul(step as usize)
    }
}

/// The index.
pub type Double = Probed<Steps>;
