//! A prefix of either address family.
//!
//! Both families stand in one file and in one stream of netlink messages. [`AnyPrefix`] carries a
//! prefix from the parser to the code that is generic over the family.

use core::fmt;

use fib::Prefix;

/// A prefix of either family.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum AnyPrefix {
    /// An IPv4 prefix.
    V4(Prefix<u32>),
    /// An IPv6 prefix.
    V6(Prefix<u128>),
}

impl fmt::Display for AnyPrefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::V4(prefix) => prefix.fmt(f),
            Self::V6(prefix) => prefix.fmt(f),
        }
    }
}

/// Makes an IPv4 prefix from the fields of a message, in which the bits beyond the length have no
/// meaning (RFC 4271, 4.3).
pub(crate) fn prefix4(addr: u32, len: u32) -> AnyPrefix {
    AnyPrefix::V4(Prefix::truncate(addr, len))
}

/// Makes an IPv6 prefix in the same way.
pub(crate) fn prefix6(addr: u128, len: u32) -> AnyPrefix {
    AnyPrefix::V6(Prefix::truncate(addr, len))
}
