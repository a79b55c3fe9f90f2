//! The lab's network: eight namespaces from the clients to the server.
//!
//! ```text
//!  clients ─1─┐                ┌─3─ gate-a ─5─┐
//!  198.18/16  ├─ router (BIRD) ┤    (BIRD)    ├─ site ═7═ grantor ─8─ server
//!  attackers 2┘   two ways by  └─4─ gate-b ─6─┘    │               192.0.2.7
//!                 ECMP              (BIRD)         └ the protected link: a token
//!                                                    bucket towards the grantor
//! ```
//!
//! Link *n* is 10.80.*n*.0/24, with `.1` at its end on the left; link 8 is the protected network.
//! The router has routes to the server by BGP only, from both gates, and distributes flows by pairs
//! of addresses. Clients use any address of 198.18.0.0/16 (RFC 2544). The router drops the replies
//! to forged sources by a blackhole default route.
//!
//! Without running gates the kernels forward everything: that is "the gate off". The network behind
//! the gates has an MTU for tunneled packets.
//!
//! Each namespace has its own `/tmp` in memory for the files of its processes.

use std::fs::OpenOptions;
use std::io::Write;
use std::net::Ipv4Addr;
use std::os::unix::fs::OpenOptionsExt;

use anyhow::{Context, Result};
use nix::mount::{MsFlags, mount};

use crate::namespace::{Mac, Namespace};

/// The server.
pub(super) const SERVER: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 7);
/// The prefix that the gates protect.
pub(super) const PROTECTED: &str = "192.0.2.0/24";
/// The address of the tunnel endpoint.
pub(super) const TUNNELS_END: Ipv4Addr = Ipv4Addr::new(10, 9, 1, 100);
/// The attackers' interface.
pub(super) const ATTACKER: &str = "attack";
/// The site's interface to the protected link.
const LINK: &str = "narrow";
/// The queue length of the protected link, in packets.
const QUEUE_LENGTH: usize = 100;
/// The MTU of links with tunneled packets.
const TUNNEL_MTU: u16 = 1600;

/// Returns the address of an end of link `number`, 1 or 2.
pub(super) fn address(number: u8, end: u8) -> Ipv4Addr {
    Ipv4Addr::new(10, 80, number, end)
}

/// Returns the MAC address of an end of a link.
pub(super) fn mac(number: u8, end: u8) -> [u8; 6] {
    [0x02, 0xfe, 0, 1, number, end]
}

/// Returns the address of client `number`.
pub(super) fn client(number: u16) -> Ipv4Addr {
    Ipv4Addr::from(u32::from(Ipv4Addr::new(198, 18, 0, 0)) + u32::from(number))
}

/// Returns whether the lab itself uses an address.
pub(super) fn is_own(address: u32) -> bool {
    let within = |net: [u8; 4], len: u32| (address ^ u32::from_be_bytes(net)) >> (32 - len) == 0;
    within([10, 80, 0, 0], 16) || within([198, 18, 0, 0], 16) || within([192, 0, 2, 0], 24)
}

/// The connected namespaces.
#[derive(Debug)]
pub(super) struct Topology {
    pub(super) clients: Namespace,
    pub(super) attackers: Namespace,
    pub(super) router: Namespace,
    pub(super) gates: [Namespace; 2],
    pub(super) site: Namespace,
    pub(super) grantor: Namespace,
    pub(super) server: Namespace,
}

/// The packet counters of the protected link.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub(super) struct LinkCount {
    /// Sent packets.
    pub(super) packets: u64,
    /// Packets that its full queue dropped.
    pub(super) dropped: u64,
}

impl Topology {
    /// Builds it, with a protected link of `bits` per second.
    pub(super) fn build(bits: u64) -> Result<Self> {
        let topology = Self {
            clients: Namespace::new("clients")?,
            attackers: Namespace::new("attackers")?,
            router: Namespace::new("router")?,
            gates: [Namespace::new("gate-a")?, Namespace::new("gate-b")?],
            site: Namespace::new("site")?,
            grantor: Namespace::new("grantor")?,
            server: Namespace::new("server")?,
        };
        let Self { clients, attackers, router, gates: [a, b], site, grantor, server } = &topology;
        for namespace in topology.all() {
            prepare(namespace)?;
        }
        join(1, (clients, "net"), (router, "clients"), 1500)?;
        join(2, (attackers, ATTACKER), (router, "attackers"), 1500)?;
        join(3, (router, "gate-a"), (a, "front"), 1500)?;
        join(4, (router, "gate-b"), (b, "front"), 1500)?;
        join(5, (a, "back"), (site, "gate-a"), TUNNEL_MTU)?;
        join(6, (b, "back"), (site, "gate-b"), TUNNEL_MTU)?;
        join(7, (site, LINK), (grantor, LINK), TUNNEL_MTU)?;
        join(8, (grantor, "inside"), (server, "net"), 1500)?;
        topology.add_routes()?;
        for namespace in [router, a, b, site, grantor] {
            namespace.write("/proc/sys/net/ipv4/ip_forward", "1")?;
        }
        // A veth leaves checksums to a network card, and AF_XDP sockets receive frames before one
        // would compute them.
        for (namespace, interface) in [(clients, "net"), (server, "net")] {
            namespace.run(move || Ok(port::af_xdp::compute_checksums(interface)?))?;
        }
        // RFC 5681: every kernel has it, and the result does not depend on the default of the machine.
        for namespace in [clients, server] {
            namespace.write("/proc/sys/net/ipv4/tcp_congestion_control", "reno")?;
        }
        site.tc(&format!(
            "qdisc add dev {LINK} root handle 1: tbf rate {bits}bit burst 10kb latency 50ms"
        ))
        .context("the protected link needs the kernel's token bucket (CONFIG_NET_SCH_TBF)")?;
        // The default queue counts bytes, so that the small packets of clients would find room where
        // the large ones of an attack do not.
        site.tc(&format!("qdisc add dev {LINK} parent 1:1 pfifo limit {QUEUE_LENGTH}"))?;
        Ok(topology)
    }

    fn all(&self) -> [&Namespace; 8] {
        let Self { clients, attackers, router, gates: [a, b], site, grantor, server } = self;
        [clients, attackers, router, a, b, site, grantor, server]
    }

    fn add_routes(&self) -> Result<()> {
        let at = address;
        let default = |namespace: &Namespace, via: Ipv4Addr| {
            namespace.ip(&format!("route add default via {via}")).map(drop)
        };
        // The clients' namespace has all addresses of the prefix.
        self.clients.ip("route add local 198.18.0.0/16 dev lo")?;
        default(&self.clients, at(1, 2))?;
        self.router.ip(&format!("route add 198.18.0.0/16 via {}", at(1, 1)))?;
        self.router.ip("route add blackhole default")?;
        for (gate, number) in self.gates.iter().zip(0..) {
            default(gate, at(3 + number, 1))?;
            // Acknowledgements of decisions go to the last one.
            for inside in [PROTECTED, &TUNNELS_END.to_string(), &at(7, 2).to_string()] {
                gate.ip(&format!("route add {inside} via {}", at(5 + number, 2)))?;
            }
        }
        for inside in [PROTECTED, &TUNNELS_END.to_string()] {
            self.site.ip(&format!("route add {inside} via {}", at(7, 2)))?;
        }
        self.route_by_both_gates()?;
        default(&self.grantor, at(7, 1))?;
        self.grantor.ip("addr add 192.0.2.1/24 dev inside")?;
        self.server.ip(&format!("addr add {SERVER}/24 dev net"))?;
        default(&self.server, Ipv4Addr::new(192, 0, 2, 1))
    }

    /// Takes the links of the first gate down.
    pub(super) fn disconnect_gate(&self) -> Result<()> {
        self.router.ip("link set gate-a down")?;
        self.site.ip("link set gate-a down").map(drop)
    }

    /// Sets the links of the first gate up again, with the neighbors that have gone with them. The site
    /// does not send to it.
    pub(super) fn connect_gate(&self) -> Result<()> {
        for (namespace, number) in [(&self.router, 3), (&self.site, 5)] {
            let end = if number == 3 { 2 } else { 1 };
            namespace.ip_batch(format!(
                "link set gate-a up\n\
                 neigh replace {} lladdr {} nud permanent dev gate-a\n",
                address(number, end),
                Mac(mac(number, end))
            ))?;
        }
        Ok(())
    }

    /// Lets the site send by both gates.
    pub(super) fn route_by_both_gates(&self) -> Result<()> {
        self.site.ip(&format!("route replace {}", site_default())).map(drop)
    }

    /// Reads the counters of the protected link.
    pub(super) fn link(&self) -> Result<LinkCount> {
        let text = self.site.tc(&format!("-s -j qdisc show dev {LINK}"))?;
        let read: serde_json::Value =
            serde_json::from_str(&text).context("reading the output of tc")?;
        let number = |name: &str| read[0][name].as_u64();
        let both = number("packets").zip(number("drops"));
        let (packets, dropped) = both.context("tc prints no counters of the protected link")?;
        Ok(LinkCount { packets, dropped })
    }
}

/// Returns the site's route to the clients, by both gates.
fn site_default() -> String {
    format!("default nexthop via {} nexthop via {}", address(5, 1), address(6, 1))
}

/// Mounts a `/tmp` in a namespace, and switches IPv6 and the reverse-path filter off.
fn prepare(namespace: &Namespace) -> Result<()> {
    namespace.run(|| {
        mount(Some("lab"), "/tmp", Some("tmpfs"), MsFlags::empty(), Some("mode=755"))
            .context("mount -t tmpfs /tmp")
    })?;
    for name in ["all", "default"] {
        namespace.write(format!("/proc/sys/net/ipv4/conf/{name}/rp_filter"), "0")?;
        namespace.write(format!("/proc/sys/net/ipv6/conf/{name}/disable_ipv6"), "1")?;
    }
    Ok(())
}

/// Connects two namespaces by link `number`, with addresses except on link 8.
fn join(
    number: u8,
    (left, near): (&Namespace, &'static str),
    (right, far): (&Namespace, &'static str),
    mtu: u16,
) -> Result<()> {
    left.connect((near, mac(number, 1)), right, (far, mac(number, 2)))?;
    for (namespace, name, end) in [(left, near, 1), (right, far, 2)] {
        let (own, other) = (address(number, end), address(number, 3 - end));
        let mut lines = format!("link set {name} mtu {mtu}\nlink set {name} up\n");
        if number != 8 {
            lines += &format!(
                "addr add {own}/24 dev {name}\n\
                 neigh replace {other} lladdr {} nud permanent dev {name}\n",
                Mac(mac(number, 3 - end))
            );
        }
        namespace.ip_batch(lines)?;
    }
    Ok(())
}

/// Writes a file with mode 0600 to the `/tmp` of a namespace.
pub(super) fn put(namespace: &Namespace, name: &'static str, text: String) -> Result<()> {
    namespace.run(move || {
        let path = format!("/tmp/{name}");
        let mut file = OpenOptions::new();
        file.write(true).create(true).truncate(true).mode(0o600);
        file.open(&path)
            .and_then(|mut file| file.write_all(text.as_bytes()))
            .with_context(|| format!("writing {path}"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_own_covers_the_prefixes_of_the_lab() {
        let own = [address(7, 2), SERVER, client(0), client(0xffff)];
        assert!(own.into_iter().all(|address| is_own(address.into())));
        let others = [[10, 81, 0, 0], [198, 19, 0, 0], [192, 0, 3, 0], [8, 8, 8, 8]];
        assert!(others.into_iter().all(|address| !is_own(u32::from_be_bytes(address))));
    }
}
