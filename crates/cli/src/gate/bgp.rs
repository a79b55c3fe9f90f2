//! `fingerpost gate bgp-config -c FILE`: writes the configuration of a BGP speaker (BIRD or FRR) that
//! announces the protected prefixes of a gate.
//!
//! ```text
//!   [[policy]] with grantors ─► prefixes ─► announced to the upstream routers
//!                                            (several gates: these routers distribute the flows)
//! ```
//!
//! The speaker runs in the network namespace of the gate and reaches the upstream routers through the
//! kernel, which has the gate's own addresses. It announces only the protected prefixes, imports no
//! routes, and installs none in the kernel: the operator configures the routes of the gate. A
//! prefix inside another protected prefix is omitted, because it would attract no further traffic.
//! Exempt prefixes are attracted with the prefix around them, and bypass the grantors.
//!
//! Stopping the speaker withdraws the prefixes. To take a gate out of service, stop the speaker first
//! and then the gate.

use std::fmt::Write as _;
use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;

use anyhow::{bail, ensure};
use bundle::MemberConfig;
use feed::netlink::AnyPrefix;
use gate::policy::Action;
use gatekeeper::Config;

#[derive(clap::Args)]
pub(super) struct Args {
    /// Configuration file of the gate
    #[arg(short, long, value_name = "FILE", default_value = super::CONFIG)]
    config: PathBuf,
    /// BGP speaker to configure
    #[arg(long, value_enum, default_value = "bird")]
    speaker: Speaker,
    /// AS number of the gate
    #[arg(long, value_name = "AS")]
    local_as: u32,
    /// Upstream router: its address and AS number; may be repeated
    #[arg(long = "peer", value_name = "ADDRESS,AS", required = true, value_parser = parse_peer)]
    peers: Vec<Peer>,
    /// BGP identifier of the speaker, one of its IPv4 addresses
    #[arg(long, value_name = "ADDRESS")]
    router_id: Ipv4Addr,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Speaker {
    /// Write a configuration of BIRD 2
    Bird,
    /// Write a configuration of FRR's bgpd
    Frr,
}

/// An upstream router.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Peer {
    address: IpAddr,
    number: u32,
}

fn parse_peer(text: &str) -> Result<Peer, String> {
    let (address, number) =
        text.split_once(',').ok_or("not an address and an AS number, such as 192.0.2.1,64500")?;
    let address = address.parse().map_err(|_| format!("{address:?} is not an IP address"))?;
    let number = number.parse().map_err(|_| format!("{number:?} is not an AS number"))?;
    Ok(Peer { address, number })
}

/// The prefixes to announce, by family.
#[derive(Debug, Default, PartialEq, Eq)]
struct Announced {
    v4: Vec<String>,
    v6: Vec<String>,
}

/// Returns the configuration of the speaker.
pub(super) fn speaker_config(args: &Args) -> anyhow::Result<String> {
    let config = Config::load(&args.config)?;
    let protected = config.rules.rules.iter();
    let protected = protected.filter(|rule| matches!(rule.action, Action::Grantors(_)));
    let announced = announced(protected.map(|rule| rule.prefix));
    ensure!(
        args.local_as != 0 && args.peers.iter().all(|peer| peer.number != 0),
        "AS 0 is reserved (RFC 7607): set --local-as and --peer to other numbers"
    );
    for (family, prefixes, v6) in [("IPv4", &announced.v4, false), ("IPv6", &announced.v6, true)] {
        if !prefixes.is_empty() && args.peers.iter().all(|peer| peer.address.is_ipv6() != v6) {
            bail!(
                "{}: cannot announce {}: no --peer has an {family} address",
                args.config.display(),
                prefixes.join(", ")
            );
        }
    }
    if announced == Announced::default() {
        bail!("{}: no [[policy]] with grantors: nothing to announce", args.config.display());
    }
    Ok(match args.speaker {
        Speaker::Bird => bird(args, &announced),
        Speaker::Frr => frr(args, &announced),
    })
}

/// Returns the prefixes that are not inside another one.
fn announced(prefixes: impl Iterator<Item = AnyPrefix>) -> Announced {
    let (mut v4, mut v6) = (Vec::new(), Vec::new());
    for prefix in prefixes {
        match prefix {
            AnyPrefix::V4(prefix) => v4.push(prefix),
            AnyPrefix::V6(prefix) => v6.push(prefix),
        }
    }
    fn widest<A: fib::Addr>(mut all: Vec<fib::Prefix<A>>) -> Vec<String> {
        all.sort();
        all.dedup();
        let is_covered =
            |prefix: &fib::Prefix<A>| all.iter().any(|p| p != prefix && p.covers(*prefix));
        all.iter().filter(|prefix| !is_covered(prefix)).map(ToString::to_string).collect()
    }
    Announced { v4: widest(v4), v6: widest(v6) }
}

/// Returns the comment at the top of either file; `mark` begins a comment.
fn header_comment(args: &Args, mark: char) -> String {
    format!(
        "{mark} Written by `fingerpost gate bgp-config` from {}: announces the protected\n\
         {mark} prefixes of that gate, imports no routes, and installs none in the kernel.\n",
        args.config.display()
    )
}

fn bird(args: &Args, announced: &Announced) -> String {
    let mut out = header_comment(args, '#');
    let _ = writeln!(out, "router id {};\nprotocol device {{}}", args.router_id);
    for (family, prefixes) in [("ipv4", &announced.v4), ("ipv6", &announced.v6)] {
        if prefixes.is_empty() {
            continue;
        }
        let _ = writeln!(out, "protocol static protected_{family} {{\n    {family};");
        for prefix in prefixes {
            let _ = writeln!(out, "    route {prefix} unreachable;");
        }
        out.push_str("}\n");
    }
    for (at, Peer { address, number }) in args.peers.iter().enumerate() {
        let family = if address.is_ipv6() { "ipv6" } else { "ipv4" };
        let prefixes = if address.is_ipv6() { &announced.v6 } else { &announced.v4 };
        let export = if prefixes.is_empty() {
            "none".to_owned()
        } else {
            format!("where proto = \"protected_{family}\"")
        };
        let _ = writeln!(
            out,
            "protocol bgp upstream{} {{\n    local as {};\n    neighbor {address} as {number};\n    \
             {family} {{ import none; export {export}; next hop self; }};\n}}",
            at + 1,
            args.local_as
        );
    }
    out
}

fn frr(args: &Args, announced: &Announced) -> String {
    let mut out = header_comment(args, '!');
    for (number, prefix) in (1..).zip(&announced.v4) {
        let _ = writeln!(out, "ip prefix-list protected seq {} permit {prefix}", 5 * number);
    }
    for (number, prefix) in (1..).zip(&announced.v6) {
        let _ = writeln!(out, "ipv6 prefix-list protected seq {} permit {prefix}", 5 * number);
    }
    for (number, (family, prefixes)) in (1..).zip([("ip", &announced.v4), ("ipv6", &announced.v6)])
    {
        if !prefixes.is_empty() {
            let _ = writeln!(
                out,
                "route-map protected permit {}\n match {family} address prefix-list protected",
                10 * number
            );
        }
    }
    // The prefixes are not in the routing table of the speaker.
    let _ = writeln!(
        out,
        "route-map nothing deny 10\nrouter bgp {}\n bgp router-id {}\n no bgp network import-check\n \
         no bgp default ipv4-unicast",
        args.local_as, args.router_id
    );
    for Peer { address, number } in &args.peers {
        let _ = writeln!(out, " neighbor {address} remote-as {number}");
    }
    for (family, prefixes, v6) in [("ipv4", &announced.v4, false), ("ipv6", &announced.v6, true)] {
        let peers: Vec<_> = args.peers.iter().filter(|peer| peer.address.is_ipv6() == v6).collect();
        if peers.is_empty() {
            continue;
        }
        let _ = writeln!(out, " address-family {family} unicast");
        for prefix in prefixes {
            let _ = writeln!(out, "  network {prefix}");
        }
        for Peer { address, .. } in peers {
            let _ = writeln!(
                out,
                "  neighbor {address} activate\n  neighbor {address} route-map protected out\n  \
                 neighbor {address} route-map nothing in"
            );
        }
        let _ = writeln!(out, " exit-address-family");
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn announced_omits_prefixes_inside_another_one() {
        let each = ["192.0.2.0/24", "192.0.2.128/25", "198.51.100.0/24", "192.0.2.0/24"];
        let v4 = each.map(|text| AnyPrefix::V4(text.parse().unwrap()));
        let v6 = ["2001:db8::/32", "2001:db8:1::/48"];
        let v6 = v6.map(|text| AnyPrefix::V6(text.parse().unwrap()));
        let got = announced(v4.into_iter().chain(v6));
        assert_eq!(got.v4, ["192.0.2.0/24", "198.51.100.0/24"]);
        assert_eq!(got.v6, ["2001:db8::/32"]);
    }

    #[test]
    fn parse_peer_requires_an_address_and_a_number() {
        let good = Peer { address: "fd00::1".parse().unwrap(), number: 64500 };
        assert_eq!(parse_peer("fd00::1,64500"), Ok(good));
        for (bad, why) in [
            ("192.0.2.1", "not an address and an AS number, such as 192.0.2.1,64500"),
            ("here,1", "\"here\" is not an IP address"),
            ("192.0.2.1,AS1", "\"AS1\" is not an AS number"),
        ] {
            assert_eq!(parse_peer(bad), Err(why.to_owned()));
        }
    }
}
