//! Where a packet goes next, as the tables see it: a small dense index.

/// A small dense index that stands for a next hop.
///
/// The tables hold nothing but these; what an index means (an interface, a MAC,
/// a label) is kept elsewhere. Small ones cost less: many engines store the
/// first 255 in one byte.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(transparent)]
pub struct Hop(pub u32);

impl Hop {
    /// No route: what a lookup gives where nothing matches. Its index is 0, so
    /// that zeroed memory routes nowhere.
    pub const NONE: Self = Self(0);

    /// Says whether there is a route.
    #[inline]
    pub fn is_some(self) -> bool {
        self != Self::NONE
    }
}
