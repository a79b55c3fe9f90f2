//! The address: a host-order integer.
//!
//! [`Addr`] is a trait of a dozen small methods, through which the tables access an address.
//! The primitive integers implement it, so that a lookup generic over [`Addr`] compiles to
//! the same code as one written for a single family:
//!
//! | integer | family |
//! |---|---|
//! | `u32`  | IPv4 |
//! | `u128` | IPv6 |
//! | `u64`  | the upper half of IPv6; nearly every route has at most 64 bits |
//! | `u8`, `u16` | toy families, small enough to compare every address with an oracle |
//!
//! Network byte order exists only in the `wire` crate. Bits are numbered from the most
//! significant, as in a prefix length: bit 0 is the top bit.

use core::fmt::{self, Debug};
use core::hash::Hash;
use core::net::{Ipv4Addr, Ipv6Addr};

use crate::item::Item;

/// An address of one family, as a host-order integer.
///
/// Lengths (`len`, `at`, `width`) are in bits and at most [`BITS`](Self::BITS).
/// All methods are O(1) and none panics within those ranges.
pub trait Addr: Item + Ord + Hash + Debug + Default + Send + Sync + 'static {
    /// The width of the family in bits.
    const BITS: u32;
    /// The lowest address, all zeros.
    const MIN: Self;
    /// The highest address, all ones.
    const MAX: Self;

    /// Returns the `width` bits that begin at bit `at`, as an index.
    ///
    /// `at + width` is at most `BITS` and `width` at most 32; a width of 0 gives 0.
    fn bits(self, at: u32, width: u32) -> usize;

    /// Builds the address whose bits from `at` on, `width` of them, are `index`
    /// and whose other bits are zero: the inverse of [`bits`](Self::bits).
    fn from_bits(index: usize, at: u32, width: u32) -> Self;

    /// Shifts the first `len` bits out, `len` less than `BITS`: the bits left to resolve, from
    /// the top.
    fn tail(self, len: u32) -> Self;

    /// Clears all bits after the first `len`: the first address of a block.
    fn first(self, len: u32) -> Self;

    /// Sets all bits after the first `len`: the last address of a block.
    fn last(self, len: u32) -> Self;

    /// Returns the next address, `None` after the highest.
    fn succ(self) -> Option<Self>;

    /// Counts the leading bits in which two addresses agree, 0 to `BITS`.
    fn common(self, other: Self) -> u32;

    /// Widens to 128 bits, keeping the numeric value.
    fn to_u128(self) -> u128;

    /// Narrows from 128 bits, keeping the low `BITS` bits.
    fn from_u128(value: u128) -> Self;

    /// Parses the family's usual notation; `None` if `text` is not in it.
    fn parse(text: &str) -> Option<Self>;

    /// Writes the family's usual notation.
    fn show(self, f: &mut fmt::Formatter<'_>) -> fmt::Result;
}

/// Implements [`Addr`] for a primitive integer; the families differ only in their notation.
macro_rules! addr {
    ($int:ident, $parse:expr, $show:expr) => {
        impl Addr for $int {
            const BITS: u32 = $int::BITS;
            const MIN: Self = $int::MIN;
            const MAX: Self = $int::MAX;

            #[inline(always)]
            fn bits(self, at: u32, width: u32) -> usize {
                if width == 0 {
                    return 0;
                }
                ((self << at) >> (Self::BITS - width)) as usize
            }
            #[inline(always)]
            fn from_bits(index: usize, at: u32, width: u32) -> Self {
                if width == 0 {
                    return 0;
                }
                ((index as $int) << (Self::BITS - width)) >> at
            }
            #[inline(always)]
            fn tail(self, len: u32) -> Self {
                self << len
            }
            #[inline(always)]
            fn first(self, len: u32) -> Self {
                self & !$int::MAX.checked_shr(len).unwrap_or(0)
            }
            #[inline(always)]
            fn last(self, len: u32) -> Self {
                self | $int::MAX.checked_shr(len).unwrap_or(0)
            }
            #[inline(always)]
            fn succ(self) -> Option<Self> {
                self.checked_add(1)
            }
            #[inline(always)]
            fn common(self, other: Self) -> u32 {
                (self ^ other).leading_zeros()
            }
            #[inline(always)]
            fn to_u128(self) -> u128 {
                self as u128
            }
            #[inline(always)]
            fn from_u128(value: u128) -> Self {
                value as $int
            }
            fn parse(text: &str) -> Option<Self> {
                $parse(text)
            }
            fn show(self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                $show(self, f)
            }
        }
    };
}

addr!(u32, |text: &str| text.parse::<Ipv4Addr>().ok().map(u32::from), |addr: u32,
                                                                       f: &mut fmt::Formatter<
    '_,
>| fmt::Display::fmt(
    &Ipv4Addr::from(addr),
    f
));
addr!(
    u128,
    |text: &str| text.parse::<Ipv6Addr>().ok().map(u128::from),
    |addr: u128, f: &mut fmt::Formatter<'_>| fmt::Display::fmt(&Ipv6Addr::from(addr), f)
);
// The upper half is written as the IPv6 address it is the upper half of.
addr!(
    u64,
    |text: &str| {
        let whole = u128::from(text.parse::<Ipv6Addr>().ok()?);
        (whole as u64 == 0).then_some((whole >> 64) as u64)
    },
    |addr: u64, f: &mut fmt::Formatter<'_>| {
        fmt::Display::fmt(&Ipv6Addr::from(u128::from(addr) << 64), f)
    }
);
// The toys are plain hexadecimal.
addr!(
    u16,
    |text: &str| u16::from_str_radix(text, 16).ok(),
    |addr: u16, f: &mut fmt::Formatter<'_>| write!(f, "{addr:04x}")
);
addr!(
    u8,
    |text: &str| u8::from_str_radix(text, 16).ok(),
    |addr: u8, f: &mut fmt::Formatter<'_>| write!(f, "{addr:02x}")
);

#[cfg(test)]
mod tests {
    use super::Addr;

    fn battery<A: Addr>() {
        for len in 0..=A::BITS {
            assert_eq!(A::MIN.first(len), A::MIN);
            assert_eq!(A::MAX.last(len), A::MAX);
            assert_eq!(A::MAX.first(len).last(len), A::MAX);
            assert_eq!(A::MIN.common(A::MIN.last(len)), len);
        }
        assert_eq!(A::MAX.succ(), None);
        for width in 0..=A::BITS.min(16) {
            for at in 0..=A::BITS - width {
                let all = (1usize << width) - 1;
                assert_eq!(A::MAX.bits(at, width), all);
                assert_eq!(A::from_bits(all, at, width).bits(at, width), all);
                let only = A::from_bits(all, at, width);
                assert_eq!(only.common(A::MIN), if width == 0 { A::BITS } else { at });
            }
        }
    }

    #[test]
    fn every_family_satisfies_the_same_laws() {
        battery::<u8>();
        battery::<u16>();
        battery::<u32>();
        battery::<u64>();
        battery::<u128>();
    }
}
