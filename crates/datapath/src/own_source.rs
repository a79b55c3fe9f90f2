//! Source addresses of this machine's own packets, as Linux chooses them.
//!
//! ```text
//!   IPv4: hop of the destination ─► OwnSources ─► by the next hop
//!   IPv6: ingress port           ─► OwnSources ─► by the destination (RFC 6724, 5)
//! ```
//!
//! An ICMP error has the address that the host would send it from. For IPv4 the next hop of the route to
//! its destination determines it, unless `icmp_errors_use_inbound_ifaddr` is set. For IPv6 the addresses of
//! the interface that received the packet are candidates, and rules 2, 6 and 8 of RFC 6724 compare each
//! with the destination. The control plane makes the list of candidates, in which the rules that do not
//! depend on the destination are applied already; the worker selects one of them.
//!
//! Limits: `ip addrlabel` and the preferences of sockets are not read: the policy table is that of
//! RFC 6724, 2.1.

/// A candidate: an address, and the length of its prefix on the link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Candidate<A> {
    /// The address.
    pub address: A,
    /// The length of its prefix.
    pub length: u8,
}

/// The source addresses of this machine's packets by one hop, or about packets of one port.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OwnSources {
    /// Those of IPv4, in the order of preference; for a port empty, unless the port determines them.
    pub v4: Vec<Candidate<u32>>,
    /// The candidates of IPv6, of a port only; of those that the rules find equal the first is used.
    pub v6: Vec<Candidate<u128>>,
}

impl OwnSources {
    /// Makes those of a hop.
    pub fn v4_only(v4: Vec<Candidate<u32>>) -> Self {
        Self { v4, v6: Vec::new() }
    }

    /// Returns the IPv4 address on the network of `near`, or otherwise the first one.
    pub fn v4(&self, near: u32) -> Option<u32> {
        let on_link = |candidate: &&Candidate<u32>| {
            let differs = near ^ candidate.address;
            differs.leading_zeros() >= u32::from(candidate.length)
        };
        let found = self.v4.iter().find(on_link).or(self.v4.first());
        found.map(|candidate| candidate.address)
    }

    /// Returns the IPv6 address for a packet to `to` (RFC 6724, 5).
    pub fn v6(&self, to: u128) -> Option<u128> {
        let rank = |candidate: &Candidate<u128>| {
            let Candidate { address, length } = *candidate;
            let common = (address ^ to).leading_zeros().min(length.into());
            (address == to, scope_rank(address, to), label(address) == label(to), common)
        };
        let mut best: Option<(&Candidate<u128>, _)> = None;
        for candidate in &self.v6 {
            let rank = rank(candidate);
            if best.is_none_or(|(_, before)| rank > before) {
                best = Some((candidate, rank));
            }
        }
        best.map(|(candidate, _)| candidate.address)
    }
}

/// Orders scopes by rule 2: the smallest that includes the destination's, then the largest below it.
fn scope_rank(address: u128, to: u128) -> i32 {
    let (own, wanted) = (scope(address), scope(to));
    if own >= wanted { 0x10 - own } else { own - 0x10 }
}

/// Returns the scope of a unicast address (RFC 6724, 3.1): link-local 2, site-local 5, global 14.
fn scope(address: u128) -> i32 {
    match address >> 118 {
        0x3fa => 2,
        0x3fb => 5,
        _ if address == 1 => 2,
        _ => 14,
    }
}

/// Returns the label of an address (RFC 6724, 2.1).
fn label(address: u128) -> u8 {
    const LABELS: [(u128, u32, u8); 9] = [
        (1, 128, 0),
        (0xffff << 32, 96, 4),
        (0, 96, 3),
        (0x2001 << 112, 32, 5),
        (0x2002 << 112, 16, 2),
        (0x3ffe << 112, 16, 12),
        (0xfec0 << 112, 10, 11),
        (0xfc << 120, 7, 13),
        (0, 0, 1),
    ];
    let holds =
        |(prefix, length, _): &&(u128, u32, u8)| (address ^ prefix).leading_zeros() >= *length;
    LABELS.iter().find(holds).map_or(1, |(.., label)| *label)
}

#[cfg(test)]
mod tests {
    use std::net::Ipv6Addr;

    use super::{Candidate, OwnSources};

    fn sources(list: &[&str]) -> OwnSources {
        let v6 = list.iter().map(|text| {
            let (address, length) = text.split_once('/').unwrap();
            let address = address.parse::<Ipv6Addr>().unwrap().into();
            Candidate { address, length: length.parse().unwrap() }
        });
        OwnSources { v4: Vec::new(), v6: v6.collect() }
    }

    /// Cases of RFC 6724, 10.1, and of two addresses that are equally near.
    #[test]
    fn ipv6_source_follows_scope_label_and_prefix() {
        for (to, list, want) in [
            ("2001:db8:1::1", &["2001:db8:3::1/64", "fe80::1/64"][..], "2001:db8:3::1"),
            ("fe80::1", &["2001:db8:2::1/64", "fe80::2/64"], "fe80::2"),
            ("2001:db8:1::1", &["2001:db8:3::1/64", "2001:db8:1::2/64"], "2001:db8:1::2"),
            (
                "2002:c633:6401::1",
                &["2001:db8:1::2/64", "2002:c633:6401::d5e3/64"],
                "2002:c633:6401::d5e3",
            ),
            ("2001:db8:9::1", &["fd00::1/64", "2001:db8:1::1/64"], "2001:db8:1::1"),
            ("fd00:5::1", &["2001:db8:1::1/64", "fd00::1/64"], "fd00::1"),
            ("2001:db8:9::1", &["2001:db8:1::1/64", "2001:db8:1::2/64"], "2001:db8:1::1"),
        ] {
            let to: Ipv6Addr = to.parse().unwrap();
            let found = sources(list).v6(to.into()).map(Ipv6Addr::from);
            assert_eq!(found, Some(want.parse().unwrap()), "{to}");
        }
        assert_eq!(OwnSources::default().v6(1), None);
    }

    #[test]
    fn ipv4_source_is_on_the_network_of_the_next_hop_or_the_first() {
        let of = |address, length| Candidate { address, length };
        let sources = OwnSources { v4: vec![of(0x0a00_0001, 24), of(0xc000_0201, 24)], v6: vec![] };
        assert_eq!(sources.v4(0xc000_0299), Some(0xc000_0201));
        assert_eq!(sources.v4(0x0808_0808), Some(0x0a00_0001));
        assert_eq!(OwnSources::default().v4(1), None);
    }
}
