//! The prefix: an address and the number of its significant leading bits.
//!
//! A [`Prefix`] is canonical by construction: the bits beyond its length are zero. Text with
//! host bits (`10.1.2.3/8`) is an error, because in an operator's file it is nearly always a
//! mistake; [`Prefix::truncate`] clears them on purpose. Prefixes are ordered as a walk of the
//! routing table is: by address, and the shorter first where addresses are equal, so that a
//! prefix comes before all that it covers.

use alloc::format;
use alloc::string::String;
use core::fmt;
use core::str::FromStr;

use crate::Addr;

/// A block of addresses: all that share the first `len` bits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Prefix<A> {
    addr: A,
    len: u8,
}

impl<A: Addr> Prefix<A> {
    /// The whole address space, the prefix of length 0.
    pub const ALL: Self = Self { addr: A::MIN, len: 0 };

    /// Makes a prefix.
    ///
    /// # Errors
    ///
    /// [`BadPrefix::Length`] if `len` exceeds the family's width,
    /// [`BadPrefix::HostBits`] if a bit beyond `len` is set.
    ///
    /// # Examples
    ///
    /// ```
    /// use fingerpost_fib::{BadPrefix, Prefix};
    /// assert!(Prefix::new(0x0a00_0000_u32, 8).is_ok());
    /// assert_eq!(Prefix::new(0x0a01_0000_u32, 8), Err(BadPrefix::HostBits));
    /// ```
    pub fn new(addr: A, len: u32) -> Result<Self, BadPrefix> {
        if len > A::BITS {
            return Err(BadPrefix::Length);
        }
        if addr.first(len) != addr {
            return Err(BadPrefix::HostBits);
        }
        Ok(Self { addr, len: len as u8 })
    }

    /// Makes the prefix of length `len` that holds `addr`, clearing the bits
    /// beyond it. A `len` above the family's width counts as that width.
    pub fn truncate(addr: A, len: u32) -> Self {
        let len = len.min(A::BITS);
        Self { addr: addr.first(len), len: len as u8 }
    }

    /// Returns the first address, which is also the prefix's own.
    #[inline]
    pub fn addr(self) -> A {
        self.addr
    }

    /// Returns the last address.
    #[inline]
    pub fn last(self) -> A {
        self.addr.last(self.len())
    }

    /// Returns the length in bits, 0 to `A::BITS`.
    #[inline]
    #[expect(clippy::len_without_is_empty, reason = "a prefix's length is not a count of items")]
    pub fn len(self) -> u32 {
        u32::from(self.len)
    }

    /// Returns whether `addr` lies in this block.
    #[inline]
    pub fn contains(self, addr: A) -> bool {
        addr.first(self.len()) == self.addr
    }

    /// Returns whether `other` lies in this block; every prefix covers itself.
    #[inline]
    pub fn covers(self, other: Self) -> bool {
        self.len <= other.len && self.contains(other.addr)
    }
}

impl<A: Addr> fmt::Display for Prefix<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.addr.show(f)?;
        write!(f, "/{}", self.len)
    }
}

impl<A: Addr> fmt::Debug for Prefix<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl<A: Addr> FromStr for Prefix<A> {
    type Err = BadPrefix;

    /// Parses `ADDRESS/LENGTH`; an address alone is a prefix of full length.
    fn from_str(text: &str) -> Result<Self, BadPrefix> {
        let (addr, len) = match text.split_once('/') {
            Some((addr, len)) => (addr, Some(len)),
            None => (text, None),
        };
        let addr = A::parse(addr).ok_or(BadPrefix::Address)?;
        let len = match len {
            None => A::BITS,
            // `parse` would accept a sign, which a length must not have.
            Some(len) if len.bytes().all(|b| b.is_ascii_digit()) => {
                len.parse().map_err(|_| BadPrefix::Length)?
            }
            Some(_) => return Err(BadPrefix::Length),
        };
        Self::new(addr, len)
    }
}

/// The error of text or numbers that are not a prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BadPrefix {
    /// The address is not in the family's notation.
    Address,
    /// The length is not a number from 0 to the family's width.
    Length,
    /// A bit beyond the length is set.
    HostBits,
}

impl fmt::Display for BadPrefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Address => "the address is not of this family",
            Self::Length => "the prefix length is not a number within the address's width",
            Self::HostBits => "the prefix has host bits set: bits beyond its length",
        })
    }
}

impl core::error::Error for BadPrefix {}

impl BadPrefix {
    /// Describes the error for the operator, with the `text` that was parsed as a prefix of `A`;
    /// for host bits, with the prefix that was probably meant.
    ///
    /// # Examples
    ///
    /// ```
    /// use fingerpost_fib::{BadPrefix, Prefix};
    /// let error = "10.0.0.1/8".parse::<Prefix<u32>>().unwrap_err();
    /// assert_eq!(
    ///     error.describe::<u32>("10.0.0.1/8"),
    ///     "prefix \"10.0.0.1/8\" has host bits set; did you mean 10.0.0.0/8?"
    /// );
    /// ```
    pub fn describe<A: Addr>(self, text: &str) -> String {
        match self {
            Self::Address => format!("{text:?} is not an address or prefix"),
            Self::Length => {
                format!("prefix {text:?} has no valid length (0 to {})", A::BITS)
            }
            Self::HostBits => {
                let (addr, len) = text.split_once('/').unwrap_or((text, ""));
                let meant = Prefix::truncate(
                    A::parse(addr).unwrap_or_default(),
                    len.parse().unwrap_or(A::BITS),
                );
                format!("prefix {text:?} has host bits set; did you mean {meant}?")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{BadPrefix, Prefix};
    use alloc::string::ToString;

    #[test]
    fn prefix_is_printed_as_it_was_parsed() {
        for text in ["0.0.0.0/0", "10.0.0.0/8", "192.0.2.1/32"] {
            assert_eq!(text.parse::<Prefix<u32>>().unwrap().to_string(), text);
        }
        for text in ["::/0", "2001:db8::/32", "2001:db8::1/128"] {
            assert_eq!(text.parse::<Prefix<u128>>().unwrap().to_string(), text);
        }
        assert_eq!("2001:db8::/32".parse::<Prefix<u64>>().unwrap().to_string(), "2001:db8::/32");
    }

    #[test]
    fn parse_error_names_the_part_that_is_wrong() {
        let bad = |text: &str| text.parse::<Prefix<u32>>().unwrap_err();
        assert_eq!(bad("10.1.2.3/8"), BadPrefix::HostBits);
        assert_eq!(bad("10.0.0.0/33"), BadPrefix::Length);
        assert_eq!(bad("10.0.0.0/+8"), BadPrefix::Length);
        assert_eq!(bad("10.0.0.0/"), BadPrefix::Length);
        assert_eq!(bad("10.0.0/8"), BadPrefix::Address);
        assert_eq!(bad("::/0"), BadPrefix::Address);
        assert_eq!(Prefix::truncate(0x0a01_0203_u32, 8).to_string(), "10.0.0.0/8");
    }

    #[test]
    fn host_bits_are_described_with_the_probable_prefix() {
        let describe =
            |text: &str| text.parse::<Prefix<u128>>().unwrap_err().describe::<u128>(text);
        assert_eq!(
            describe("2001:db8::1/32"),
            "prefix \"2001:db8::1/32\" has host bits set; did you mean 2001:db8::/32?"
        );
        assert_eq!(describe("::/129"), "prefix \"::/129\" has no valid length (0 to 128)");
        assert_eq!(describe("10.0.0.0/8"), "\"10.0.0.0/8\" is not an address or prefix");
    }

    #[test]
    fn prefix_sorts_before_all_that_it_covers() {
        let p = |text: &str| text.parse::<Prefix<u32>>().unwrap();
        assert!(p("10.0.0.0/8") < p("10.0.0.0/9"));
        assert!(p("10.0.0.0/9") < p("10.128.0.0/9"));
        assert!(p("10.0.0.0/8").covers(p("10.128.0.0/9")));
        assert!(!p("10.0.0.0/9").covers(p("10.0.0.0/8")));
    }
}
