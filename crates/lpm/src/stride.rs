//! The arithmetic of a node, which resolves six bits of an address.
//!
//! A node at depth d holds the prefixes of lengths d + 1 to d + 6 that begin with its own d bits: a
//! complete binary tree of six levels. Its prefixes are numbered in pre-order, so that the order of
//! the numbers is the order of prefixes (by address, the shorter first):
//!
//! ```text
//!   bits      –  0*  00*  000*  …  000000  000001  00001*  …  1*  10*  …  111111
//!   position  0   1    2     3          6       7       8      64   65        126
//! ```
//!
//! Position 0 is the node's own prefix, which only the root uses: for a prefix of length 0. Of the
//! l bits `b`, written as a number `a` of six bits with zeros behind, the position is
//! `l + 2a - ones(a)`: the path from the top makes l steps, and a step to the right at level j
//! passes over a subtree of `2^(7-j) - 1` positions.
//!
//! Sets of positions are words of 128 bits. The prefixes that cover a path are at most seven
//! positions ([`path`]), in order of length, so that the highest one set is the longest match.
//!
//! Between the positions lie the children, the nodes at depth d + 6: child `a` comes directly after
//! the position of the six bits `a` ([`before_child`]).

use fib::Addr;

/// The bits that a node resolves.
pub(crate) const STRIDE: u32 = 6;

/// The most nodes on a path, for 128 bits: at depths 0, 6, …, 126.
pub(crate) const LEVELS: usize = 128_usize.div_ceil(STRIDE as usize);

/// The positions that cover each path of six bits.
const PATHS: [u128; 1 << STRIDE] = {
    let mut paths = [0; 1 << STRIDE];
    let mut at = 0;
    while at < paths.len() {
        let mut len = 0;
        while len <= STRIDE {
            let bits = at as u32 >> (STRIDE - len) << (STRIDE - len);
            paths[at] |= 1 << (len + 2 * bits - bits.count_ones());
            len += 1;
        }
        at += 1;
    }
    paths
};

/// Returns the depth of the node that holds prefixes of length `len`.
#[inline(always)]
pub(crate) fn depth_of(len: u32) -> u32 {
    len.saturating_sub(1) / STRIDE * STRIDE
}

/// Returns the six bits of `addr` that begin at bit `depth`; bits beyond the address are zero.
#[inline(always)]
pub(crate) fn chunk<A: Addr>(addr: A, depth: u32) -> u32 {
    addr.tail(depth).bits(0, STRIDE) as u32
}

/// Returns the position of the prefix of length `len` and these six `bits` in its node, whose
/// depth is `depth`. The bits behind its length are zero.
#[inline(always)]
pub(crate) fn position(bits: u32, len: u32, depth: u32) -> u32 {
    len - depth + 2 * bits - bits.count_ones()
}

/// Returns the positions of the node's prefixes that cover these six bits.
#[inline(always)]
pub(crate) fn path(bits: u32) -> u128 {
    PATHS[bits as usize]
}

/// Returns all positions from `position` on.
#[inline(always)]
pub(crate) fn from(position: u32) -> u128 {
    u128::MAX << position
}

/// Returns the last position before child `bits`: that of the prefix of six bits.
#[inline(always)]
pub(crate) fn before_child(bits: u32) -> u32 {
    STRIDE + 2 * bits - bits.count_ones()
}

/// Returns the positions below `position`.
#[inline(always)]
pub(crate) fn below(position: u32) -> u128 {
    (1 << position) - 1
}

/// Returns the bits and the length, beyond the node's depth, of each position: the inverse of
/// [`position`].
#[inline(always)]
pub(crate) fn prefix_at(position: u32) -> (u32, u32) {
    let (bits, len) = PREFIXES[position as usize];
    (bits.into(), len.into())
}

/// The bits and the length of each position.
const PREFIXES: [(u8, u8); 128] = {
    let mut prefixes = [(0, 0); 128];
    let mut len = 0;
    while len <= STRIDE {
        let mut top = 0;
        while top < 1 << len {
            let bits: u32 = top << (STRIDE - len);
            prefixes[(len + 2 * bits - bits.count_ones()) as usize] = (bits as u8, len as u8);
            top += 1;
        }
        len += 1;
    }
    prefixes
};

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;
    use fib::Prefix;

    #[test]
    fn positions_are_in_the_order_of_prefixes() {
        // A toy family whose root and its children hold all prefixes.
        let mut prefixes: Vec<Prefix<u8>> = Vec::new();
        for len in 0..=STRIDE {
            prefixes.extend((0..1_u32 << len).map(|top| {
                let addr = if len == 0 { 0 } else { (top << (8 - len)) as u8 };
                Prefix::new(addr, len).unwrap()
            }));
        }
        prefixes.sort();
        for (number, prefix) in (0..).zip(&prefixes) {
            let bits = chunk(prefix.addr(), 0);
            assert_eq!(position(bits, prefix.len(), 0), number);
            assert_eq!(prefix_at(number), (bits, prefix.len()));
            let covering = prefixes.iter().zip(0..).filter(|(other, _)| other.covers(*prefix));
            let covering = covering.fold(0, |set, (_, at)| set | 1_u128 << at);
            assert_eq!(path(bits) & !from(number + 1), covering, "{prefix}");
        }
        assert_eq!(prefixes.len(), 127);
    }

    #[test]
    fn child_comes_after_the_prefix_of_its_bits() {
        for bits in 0..64 {
            assert_eq!(prefix_at(before_child(bits)), (bits, 6));
        }
    }

    #[test]
    fn depth_is_that_of_the_node_whose_six_lengths_include_it() {
        assert_eq!([0, 1, 6, 7, 24, 25, 32, 128].map(depth_of), [0, 0, 0, 6, 18, 24, 30, 126]);
        assert_eq!(chunk(u32::MAX, 30), 0b11_0000, "bits beyond the address are zero");
    }
}
