//! Quadratic probing by triangular numbers (Knuth, vol. 3, 6.4, exercise 20).
//!
//! The tries of a flow are 0, 1, 3, 6, 10, … slots from its home, which visits all of a
//! power of two. The first four tries are mostly in two lines, the later ones far apart:
//! flows of neighboring homes do not queue behind each other, those of one home do.
//! How it is kept is `probe.rs`.

use super::probe::{Probed, Sequence};

/// The order of its tries.
#[derive(Debug)]
pub struct Steps;

impl Sequence for Steps {
    const NAME: &'static str = "quadratic";

    #[inline(always)]
    fn offset(_hash: u32, number: usize) -> usize {
        number * (number + 1) / 2
    }
}

/// The index.
pub type Quadratic = Probed<Steps>;
