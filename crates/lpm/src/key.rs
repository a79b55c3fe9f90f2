//! The types that can be the key of a map: prefixes of one family, or of either.
//!
//! A map stores no keys. It takes the [`Prefix`] of a key, and makes a key of a prefix where it
//! returns one; both are a few instructions. So a key that differs from its prefix, as the text
//! `10.1.2.3/8` of an interface's address does, comes back as the prefix: `10.0.0.0/8`.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use fib::{Family, Prefix};

#[cfg(feature = "ipnet")]
mod ipnet;

/// A type of prefixes of one address family, the key of an [`LpmMap`](crate::LpmMap).
///
/// It is implemented for [`Prefix`] of this library, for pairs of an address and a length,
/// and with the feature `ipnet` for `ipnet::Ipv4Net` and `ipnet::Ipv6Net`. An implementation for
/// another type has to return the prefix that `from_prefix` got: a map finds a key by its prefix
/// alone.
///
/// # Examples
///
/// ```
/// use std::net::Ipv4Addr;
/// use fingerpost_lpm::PrefixKey;
/// let key = (Ipv4Addr::new(192, 0, 2, 77), 24);
/// assert_eq!(key.to_prefix().to_string(), "192.0.2.0/24");
/// let key = <(Ipv4Addr, u8)>::from_prefix(key.to_prefix());
/// assert_eq!(key, (Ipv4Addr::new(192, 0, 2, 0), 24));
/// ```
pub trait PrefixKey: Copy {
    /// The address as an integer in host order: `u32` for IPv4, `u128` for IPv6.
    type Bits: Family;
    /// The address as the caller has it.
    type Address: Copy;

    /// Returns the prefix, without the host bits that the key may have.
    fn to_prefix(&self) -> Prefix<Self::Bits>;

    /// Makes a key of a prefix.
    fn from_prefix(prefix: Prefix<Self::Bits>) -> Self;

    /// Returns an address as an integer.
    fn to_bits(address: Self::Address) -> Self::Bits;
}

impl<A: Family> PrefixKey for Prefix<A> {
    type Bits = A;
    type Address = A;

    #[inline]
    fn to_prefix(&self) -> Prefix<A> {
        *self
    }
    #[inline]
    fn from_prefix(prefix: Prefix<A>) -> Self {
        prefix
    }
    #[inline]
    fn to_bits(address: A) -> A {
        address
    }
}

/// An address and the length of its prefix; a length above 32 counts as 32.
impl PrefixKey for (Ipv4Addr, u8) {
    type Bits = u32;
    type Address = Ipv4Addr;

    #[inline]
    fn to_prefix(&self) -> Prefix<u32> {
        Prefix::truncate(self.0.into(), self.1.into())
    }
    #[inline]
    fn from_prefix(prefix: Prefix<u32>) -> Self {
        (prefix.addr().into(), prefix.len() as u8)
    }
    #[inline]
    fn to_bits(address: Ipv4Addr) -> u32 {
        address.into()
    }
}

/// An address and the length of its prefix; a length above 128 counts as 128.
impl PrefixKey for (Ipv6Addr, u8) {
    type Bits = u128;
    type Address = Ipv6Addr;

    #[inline]
    fn to_prefix(&self) -> Prefix<u128> {
        Prefix::truncate(self.0.into(), self.1.into())
    }
    #[inline]
    fn from_prefix(prefix: Prefix<u128>) -> Self {
        (prefix.addr().into(), prefix.len() as u8)
    }
    #[inline]
    fn to_bits(address: Ipv6Addr) -> u128 {
        address.into()
    }
}

/// A prefix of either address family.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum IpPrefix {
    /// A prefix of IPv4.
    V4(Prefix<u32>),
    /// A prefix of IPv6.
    V6(Prefix<u128>),
}

/// A type of prefixes of either family, the key of an [`IpLpmMap`](crate::IpLpmMap).
///
/// It is implemented for [`IpPrefix`], for `(IpAddr, u8)`, and with the feature `ipnet` for
/// `ipnet::IpNet`. An IPv4-mapped IPv6 address is one of IPv6.
pub trait IpPrefixKey: Copy {
    /// Returns the prefix, without the host bits that the key may have.
    fn to_ip_prefix(&self) -> IpPrefix;

    /// Makes a key of a prefix.
    fn from_ip_prefix(prefix: IpPrefix) -> Self;
}

impl IpPrefixKey for IpPrefix {
    #[inline]
    fn to_ip_prefix(&self) -> IpPrefix {
        *self
    }
    #[inline]
    fn from_ip_prefix(prefix: IpPrefix) -> Self {
        prefix
    }
}

/// An address and the length of its prefix; a length above the family's width counts as that width.
impl IpPrefixKey for (IpAddr, u8) {
    #[inline]
    fn to_ip_prefix(&self) -> IpPrefix {
        match self.0 {
            IpAddr::V4(addr) => IpPrefix::V4((addr, self.1).to_prefix()),
            IpAddr::V6(addr) => IpPrefix::V6((addr, self.1).to_prefix()),
        }
    }
    #[inline]
    fn from_ip_prefix(prefix: IpPrefix) -> Self {
        match prefix {
            IpPrefix::V4(prefix) => (IpAddr::V4(prefix.addr().into()), prefix.len() as u8),
            IpPrefix::V6(prefix) => (IpAddr::V6(prefix.addr().into()), prefix.len() as u8),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{IpPrefixKey, PrefixKey};
    use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

    #[test]
    fn pair_returns_without_host_bits_and_excess_length() {
        let v4 = (Ipv4Addr::new(10, 1, 2, 3), 8);
        assert_eq!(<(Ipv4Addr, u8)>::from_prefix(v4.to_prefix()), (Ipv4Addr::new(10, 0, 0, 0), 8));
        assert_eq!((Ipv4Addr::LOCALHOST, 200).to_prefix().len(), 32);
        assert_eq!((Ipv6Addr::LOCALHOST, 200).to_prefix().len(), 128);
        let all = (IpAddr::V6(Ipv6Addr::LOCALHOST), 0);
        assert_eq!(
            <(IpAddr, u8)>::from_ip_prefix(all.to_ip_prefix()),
            (IpAddr::V6(Ipv6Addr::UNSPECIFIED), 0)
        );
    }
}
