//! Keys of the crate `ipnet`.

use core::net::{Ipv4Addr, Ipv6Addr};

use fib::Prefix;
use ipnet::{IpNet, Ipv4Net, Ipv6Net};

use super::{IpPrefix, IpPrefixKey, PrefixKey};

impl PrefixKey for Ipv4Net {
    type Bits = u32;
    type Address = Ipv4Addr;

    #[inline]
    fn to_prefix(&self) -> Prefix<u32> {
        Prefix::truncate(self.addr().into(), self.prefix_len().into())
    }
    #[inline]
    fn from_prefix(prefix: Prefix<u32>) -> Self {
        Self::new_assert(prefix.addr().into(), prefix.len() as u8)
    }
    #[inline]
    fn to_bits(address: Ipv4Addr) -> u32 {
        address.into()
    }
}

impl PrefixKey for Ipv6Net {
    type Bits = u128;
    type Address = Ipv6Addr;

    #[inline]
    fn to_prefix(&self) -> Prefix<u128> {
        Prefix::truncate(self.addr().into(), self.prefix_len().into())
    }
    #[inline]
    fn from_prefix(prefix: Prefix<u128>) -> Self {
        Self::new_assert(prefix.addr().into(), prefix.len() as u8)
    }
    #[inline]
    fn to_bits(address: Ipv6Addr) -> u128 {
        address.into()
    }
}

impl IpPrefixKey for IpNet {
    #[inline]
    fn to_ip_prefix(&self) -> IpPrefix {
        match self {
            Self::V4(net) => IpPrefix::V4(net.to_prefix()),
            Self::V6(net) => IpPrefix::V6(net.to_prefix()),
        }
    }
    #[inline]
    fn from_ip_prefix(prefix: IpPrefix) -> Self {
        match prefix {
            IpPrefix::V4(prefix) => Self::V4(Ipv4Net::from_prefix(prefix)),
            IpPrefix::V6(prefix) => Self::V6(Ipv6Net::from_prefix(prefix)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn net_with_host_bits_is_its_prefix() {
        let net: Ipv4Net = "10.1.2.3/8".parse().unwrap();
        assert_eq!(Ipv4Net::from_prefix(net.to_prefix()), net.trunc());
        let net: IpNet = "2001:db8::1/32".parse().unwrap();
        assert_eq!(IpNet::from_ip_prefix(net.to_ip_prefix()), net.trunc());
        for len in [0, 128] {
            let net = Ipv6Net::new(Ipv6Addr::LOCALHOST, len).unwrap();
            assert_eq!(Ipv6Net::from_prefix(net.to_prefix()), net.trunc());
        }
    }
}
