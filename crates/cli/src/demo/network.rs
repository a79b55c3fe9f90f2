//! The demonstration's own network: three namespaces connected by veth.
//!
//! ```text
//!   source namespace      router namespace                  sinks' namespace
//!  ┌────────────────┐    ┌─────────────────────────┐       ┌────────────────┐
//!  │         source ├────┤ in               out-a  ├───────┤ sink-a         │
//!  │   198.18.0.2   │    │ 198.18.0.1   198.18.1.1 │       │   198.18.1.2   │
//!  │                │    │                  out-b  ├───────┤ sink-b         │
//!  └────────────────┘    │              198.18.2.1 │       │   198.18.2.2   │
//!                        └─────────────────────────┘       └────────────────┘
//! ```
//!
//! and likewise 2001:2:0:0::/64 to 2001:2:0:2::/64: the blocks that RFC 2544 and RFC 5180 reserve
//! for benchmarks. Neighbors are static, and interfaces have no link-local addresses, so that the
//! kernels send hardly any packets of their own.

use anyhow::Result;

use crate::namespace::{Mac, Namespace};

/// The interface of the source.
pub(super) const SOURCE: &str = "source";
/// Its Ethernet address.
pub(super) const SOURCE_MAC: [u8; 6] = [0x02, 0xfe, 0, 0, 0, 0x02];
/// The router's interface towards the source.
pub(super) const INGRESS: &str = "in";
/// Its Ethernet address.
pub(super) const INGRESS_MAC: [u8; 6] = [0x02, 0xfe, 0, 0, 0, 0x01];

/// The MTU of all links.
pub(super) const MTU: u16 = 1500;

/// An exit of the router: a link and the sink at its end.
#[derive(Clone, Copy, Debug)]
pub(super) struct Exit {
    /// The router's interface.
    pub(super) egress: &'static str,
    /// The router's Ethernet address on it.
    pub(super) src_mac: [u8; 6],
    /// The sink's interface.
    pub(super) sink: &'static str,
    /// The sink's Ethernet address.
    pub(super) dst_mac: [u8; 6],
}

/// The two exits; the number of a sink is its index.
pub(super) const EXITS: [Exit; 2] = [
    Exit {
        egress: "out-a",
        src_mac: [0x02, 0xfe, 0, 0, 0x0a, 0x01],
        sink: "sink-a",
        dst_mac: [0x02, 0xfe, 0, 0, 0x0a, 0x02],
    },
    Exit {
        egress: "out-b",
        src_mac: [0x02, 0xfe, 0, 0, 0x0b, 0x01],
        sink: "sink-b",
        dst_mac: [0x02, 0xfe, 0, 0, 0x0b, 0x02],
    },
];

/// Returns the IPv4 address of the router (`host` 1) or the other end (2) on link
/// `net`: 0 towards the source, 1 and 2 towards the sinks.
pub(super) fn ipv4(net: usize, host: u8) -> u32 {
    0xc612_0000 | (net as u32) << 8 | u32::from(host)
}

/// Returns the IPv6 address likewise.
pub(super) fn ipv6(net: usize, host: u8) -> u128 {
    0x2001_0002_u128 << 96 | (net as u128) << 64 | u128::from(host)
}

/// Returns whether the demonstration uses an IPv4 address for its own links.
pub(super) fn is_own_ipv4(addr: u32) -> bool {
    addr >> 17 == 0xc612_0000 >> 17
}

/// Returns whether the demonstration uses an IPv6 address for its own links.
pub(super) fn is_own_ipv6(addr: u128) -> bool {
    addr >> 80 == 0x2001_0002_u128 << 16
}

/// The three connected namespaces.
#[derive(Debug)]
pub(super) struct Network {
    /// The namespace of the generator.
    pub(super) source: Namespace,
    /// The namespace of the router.
    pub(super) router: Namespace,
    /// The namespace of the checkers.
    pub(super) sinks: Namespace,
}

impl Network {
    /// Builds the network.
    pub(super) fn build() -> Result<Self> {
        let network = Self {
            source: Namespace::new("source")?,
            router: Namespace::new("router")?,
            sinks: Namespace::new("sinks")?,
        };
        network.connect(0, (INGRESS, INGRESS_MAC), &network.source, (SOURCE, SOURCE_MAC))?;
        for (net, exit) in (1..).zip(&EXITS) {
            let router_end = (exit.egress, exit.src_mac);
            network.connect(net, router_end, &network.sinks, (exit.sink, exit.dst_mac))?;
        }
        Ok(network)
    }

    fn connect(
        &self,
        net: usize,
        (near, near_mac): (&str, [u8; 6]),
        other: &Namespace,
        (far, far_mac): (&str, [u8; 6]),
    ) -> Result<()> {
        self.router.connect((near, near_mac), other, (far, far_mac))?;
        let ends = [(&self.router, near, 1, far_mac, 2), (other, far, 2, near_mac, 1)];
        for (namespace, name, host, peer_mac, peer) in ends {
            let (v4, v6) = (
                std::net::Ipv4Addr::from(ipv4(net, host)),
                std::net::Ipv6Addr::from(ipv6(net, host)),
            );
            let (p4, p6) = (
                std::net::Ipv4Addr::from(ipv4(net, peer)),
                std::net::Ipv6Addr::from(ipv6(net, peer)),
            );
            let peer_mac = Mac(peer_mac);
            namespace.ip_batch(format!(
                "link set {name} addrgenmode none\n\
                 link set {name} up\n\
                 addr add {v4}/24 dev {name}\n\
                 addr add {v6}/64 dev {name} nodad\n\
                 neigh replace {p4} lladdr {peer_mac} nud permanent dev {name}\n\
                 neigh replace {p6} lladdr {peer_mac} nud permanent dev {name}\n"
            ))?;
        }
        Ok(())
    }
}
