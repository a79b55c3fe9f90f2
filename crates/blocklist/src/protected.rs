//! Contents of a list that are held: reported and not applied.
//!
//! A published list that is damaged, cut off or poisoned must not take a host off the network, nor open it. A
//! block list is held if it contains
//!
//! - the default route;
//! - an address of this host that no allow list contains, other than a loopback address;
//! - such a neighbor of a BGP session of this host (a TCP connection with port 179);
//!
//! unless it is for destinations that are none of this host's; an allow list without which a block list that is applied would contain such an address; and any list if it
//! has become less than half as long. An order applies a shorter list, after a look at it.

use std::fs;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use feed::AnyPrefix;
use fib::{Addr, Prefix};
use nix::ifaddrs::getifaddrs;
use xdp::Blocker;

use crate::ListError;

/// The port of BGP (RFC 4271).
const BGP: u16 = 179;
/// `TCP_ESTABLISHED` in /proc/net/tcp.
const ESTABLISHED: &str = "01";

/// Addresses that no block list may contain, and the reason.
#[derive(Clone, Debug, Default)]
pub(crate) struct Protected {
    v4: Vec<(u32, String)>,
    v6: Vec<(u128, String)>,
    /// The same addresses, also those that an allow list contains.
    all: Vec<IpAddr>,
}

impl Protected {
    /// Collects the addresses of this host, and of its BGP neighbors.
    ///
    /// # Errors
    ///
    /// Addresses that the kernel does not list.
    pub(crate) fn of_this_host() -> Result<Self, ListError> {
        let mut protected = Self::default();
        let failed = |error| ListError::new(format!("listing the addresses of this host: {error}"));
        for interface in getifaddrs().map_err(failed)? {
            let Some(address) = interface.address else { continue };
            let why = format!("an address of {}", interface.interface_name);
            if let Some(address) = address.as_sockaddr_in() {
                protected.add(IpAddr::V4(address.ip()), why);
            } else if let Some(address) = address.as_sockaddr_in6() {
                protected.add(IpAddr::V6(address.ip()), why);
            }
        }
        for path in ["/proc/self/net/tcp", "/proc/self/net/tcp6"] {
            // A kernel without IPv6 has no file for it.
            let text = match fs::read_to_string(path) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                text => text.map_err(|error| ListError::new(format!("reading {path}: {error}")))?,
            };
            for address in bgp_neighbors(&text) {
                protected.add(address, "a neighbor of a BGP session".into());
            }
        }
        Ok(protected)
    }

    /// Makes an address the only one.
    #[cfg(test)]
    pub(crate) fn of(address: IpAddr) -> Self {
        let mut protected = Self::default();
        protected.add(address, "an address of eth0".into());
        protected
    }

    fn add(&mut self, address: IpAddr, why: String) {
        self.all.push(address.to_canonical());
        match address.to_canonical() {
            // No packet from another host has it as its source; lists of bogons contain it.
            address if address.is_loopback() => {}
            IpAddr::V4(address) => self.v4.push((address.into(), why)),
            IpAddr::V6(address) => self.v6.push((address.into(), why)),
        }
    }

    /// Returns whether packets to these destinations may be for this host.
    pub(crate) fn is_within(&self, destinations: &[AnyPrefix]) -> bool {
        let contains = |prefix: &AnyPrefix, address: &IpAddr| match (prefix, address) {
            (AnyPrefix::V4(prefix), IpAddr::V4(addr)) => prefix.contains((*addr).into()),
            (AnyPrefix::V6(prefix), IpAddr::V6(addr)) => prefix.contains((*addr).into()),
            _ => false,
        };
        destinations.iter().any(|prefix| self.all.iter().any(|address| contains(prefix, address)))
    }

    /// Removes the addresses that an allow list contains: no block list decides about them.
    pub(crate) fn allow(&mut self, v4: &[Prefix<u32>], v6: &[Prefix<u128>]) {
        self.v4.retain(|(addr, _)| !v4.iter().any(|prefix| prefix.contains(*addr)));
        self.v6.retain(|(addr, _)| !v6.iter().any(|prefix| prefix.contains(*addr)));
    }

    /// Removes the addresses of which `is_covered` holds for the lists of `blocker` that contain it.
    pub(crate) fn retain_unless(&mut self, is_covered: impl Fn(u32) -> bool, blocker: &Blocker) {
        self.v4.retain(|(addr, _)| !is_covered(blocker.lists_of(*addr)));
        self.v6.retain(|(addr, _)| !is_covered(blocker.lists_of(*addr)));
    }

    /// Returns a protected address, and what it is, of which `is_uncovered` holds for the lists of `blocker` that
    /// contain it.
    pub(crate) fn uncovered(
        &self,
        is_uncovered: impl Fn(u32) -> bool,
        blocker: &Blocker,
    ) -> Option<String> {
        let v4 = self.v4.iter().find(|(addr, _)| is_uncovered(blocker.lists_of(*addr)));
        let v6 = || self.v6.iter().find(|(addr, _)| is_uncovered(blocker.lists_of(*addr)));
        v4.map(|(addr, why)| format!("{}, {why}", Ipv4Addr::from(*addr)))
            .or_else(|| v6().map(|(addr, why)| format!("{}, {why}", Ipv6Addr::from(*addr))))
    }

    /// Returns the reason to hold a block list with these prefixes.
    pub(crate) fn reason(&self, v4: &[Prefix<u32>], v6: &[Prefix<u128>]) -> Option<String> {
        let four = |addr: u32| Ipv4Addr::from(addr).to_string();
        let six = |addr: u128| Ipv6Addr::from(addr).to_string();
        reason(&self.v4, v4, four).or_else(|| reason(&self.v6, v6, six))
    }
}

fn reason<A: Addr>(
    protected: &[(A, String)],
    prefixes: &[Prefix<A>],
    text: impl Fn(A) -> String,
) -> Option<String> {
    if let Some(default) = prefixes.iter().find(|prefix| prefix.len() == 0) {
        return Some(format!("it contains {default}"));
    }
    protected.iter().find_map(|(addr, why)| {
        let prefix = prefixes.iter().find(|prefix| prefix.contains(*addr))?;
        Some(format!("{prefix} contains {}, {why}", text(*addr)))
    })
}

/// Returns the reason to hold a list that had `before` prefixes and now has `after`.
pub(crate) fn shrinks(before: usize, after: usize) -> Option<String> {
    (after < before.div_ceil(2)).then(|| {
        let advice = "`fingerpost apply-lists` applies it, or SIGHUP to `fingerpost block`";
        format!("it has {after} prefixes where it had {before}; {advice}")
    })
}

/// Finds the remote addresses of BGP sessions in the text of /proc/net/tcp or tcp6.
fn bgp_neighbors(text: &str) -> impl Iterator<Item = IpAddr> {
    text.lines().skip(1).filter_map(|line| {
        let mut fields = line.split_ascii_whitespace().skip(1);
        let (local, remote, state) = (fields.next()?, fields.next()?, fields.next()?);
        let port = |socket: &str| u16::from_str_radix(socket.rsplit_once(':')?.1, 16).ok();
        let is_bgp = state == ESTABLISHED && [local, remote].iter().any(|s| port(s) == Some(BGP));
        is_bgp.then(|| address(remote.rsplit_once(':')?.0)).flatten()
    })
}

/// Reads an address as these files have it: words of 32 bits in hexadecimal, in the machine's order.
fn address(text: &str) -> Option<IpAddr> {
    let mut bytes = Vec::with_capacity(16);
    for at in (0..text.len()).step_by(8) {
        bytes.extend(u32::from_str_radix(text.get(at..at + 8)?, 16).ok()?.to_ne_bytes());
    }
    match bytes[..] {
        [a, b, c, d] => Some(Ipv4Addr::new(a, b, c, d).into()),
        _ => <[u8; 16]>::try_from(bytes).ok().map(|bytes| Ipv6Addr::from(bytes).into()),
    }
}

#[cfg(test)]
mod tests {
    use super::{Protected, bgp_neighbors, shrinks};
    use std::net::IpAddr;

    #[cfg(target_endian = "little")]
    #[test]
    fn established_sessions_of_bgp_are_found() {
        let text = "  sl  local_address rem_address   st tx_queue rx_queue\n\
            0: 0100007F:00B3 0200000A:C000 01 00000000:00000000\n\
            1: 0100007F:C001 0300000A:00B3 01 00000000:00000000\n\
            2: 0100007F:C001 0400000A:00B3 06 00000000:00000000\n\
            3: 0100007F:0016 0500000A:C002 01 00000000:00000000\n\
            4: 00000000000000000000000001000000:C003 B80D0120000000000000000001000000:00B3 01 0:0\n";
        let wanted: Vec<IpAddr> =
            ["10.0.0.2", "10.0.0.3", "2001:db8::1"].map(|a| a.parse().unwrap()).into();
        assert_eq!(bgp_neighbors(text).collect::<Vec<_>>(), wanted);
    }

    #[test]
    fn list_with_a_protected_address_or_everything_is_held() {
        let mut protected = Protected::default();
        protected.add("192.0.2.1".parse().unwrap(), "an address of eth0".into());
        protected.add("::ffff:192.0.2.9".parse().unwrap(), "mapped".into());
        protected.add("2001:db8::1".parse().unwrap(), "an address of eth0".into());
        protected.add("127.0.0.1".parse().unwrap(), "an address of lo".into());
        assert_eq!(protected.v4.len() + protected.v6.len(), 3);
        let v4 = |text: &str| protected.reason(&[text.parse().unwrap()], &[]);
        let v6 = |text: &str| protected.reason(&[], &[text.parse().unwrap()]);
        assert_eq!(v4("192.0.2.2/32"), None);
        assert_eq!(v6("2001:db8:1::/48"), None);
        let contains = "192.0.2.0/29 contains 192.0.2.1, an address of eth0";
        assert_eq!(v4("192.0.2.0/29").as_deref(), Some(contains));
        assert_eq!(v4("192.0.2.8/29").as_deref(), Some("192.0.2.8/29 contains 192.0.2.9, mapped"));
        assert_eq!(v4("0.0.0.0/0").as_deref(), Some("it contains 0.0.0.0/0"));
        let contains = "2001:db8::/32 contains 2001:db8::1, an address of eth0";
        assert_eq!(v6("2001:db8::/32").as_deref(), Some(contains));
        assert_eq!(v6("::/0").as_deref(), Some("it contains ::/0"));
        protected.allow(&["192.0.2.0/30".parse().unwrap()], &["2001:db8::/64".parse().unwrap()]);
        let v4 = |text: &str| protected.reason(&[text.parse().unwrap()], &[]);
        assert_eq!(v4("192.0.2.0/29"), None);
        assert!(v4("192.0.2.0/24").is_some_and(|reason| reason.contains("192.0.2.9")));
        assert_eq!(protected.reason(&[], &["2001:db8::/32".parse().unwrap()]), None);
    }

    #[test]
    fn list_of_less_than_half_is_held() {
        assert_eq!(
            (shrinks(0, 0), shrinks(1, 1), shrinks(10, 5), shrinks(9, 5)),
            (None, None, None, None)
        );
        assert!(shrinks(10, 4).is_some() && shrinks(9, 4).is_some() && shrinks(1, 0).is_some());
    }
}
