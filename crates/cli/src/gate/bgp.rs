//! `fingerpost gate bgp-config -c FILE`: what a BGP speaker beside the gate is to announce,
//! as an ordinary configuration of BIRD or FRR.
//!
//! ```text
//!   [[policy]] with grantors ─► prefixes ─► announced to the peers before the gate
//!                                            (several gates: the routers there share flows)
//! ```
//!
//! The speaker runs in the gate's network namespace and talks to the routers before it by
//! way of the kernel, which has the gate's own addresses. It announces the protected
//! prefixes and nothing else, learns nothing, and puts nothing into the kernel: the gate's
//! routes are the operator's. A prefix within another protected one is left out, since it
//! would attract nothing more; what the policy exempts is attracted with the prefix it is
//! in, and goes past the grantors.
//!
//! Stopping the speaker withdraws the prefixes, which is how a gate is taken out of service:
//! before it is stopped, and not with it.

use std::fmt::Write as _;
use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;

use anyhow::{bail, ensure};
use feed::netlink::AnyPrefix;
use gate::policy::Action;
use router::vantage::Config;

#[derive(clap::Args)]
pub(super) struct Args {
    /// The gate's configuration
    #[arg(short, long, value_name = "FILE", default_value = super::CONFIG)]
    config: PathBuf,
    /// The speaker's configuration that is written
    #[arg(long, value_enum, default_value = "bird")]
    speaker: Speaker,
    /// The gate's AS number
    #[arg(long, value_name = "AS")]
    local_as: u32,
    /// A router before the gate: its address and AS number; may be given several times
    #[arg(long = "peer", value_name = "ADDRESS,AS", required = true, value_parser = peer)]
    peers: Vec<Peer>,
    /// The speaker's identifier, an IPv4 address of its own
    #[arg(long, value_name = "ADDRESS")]
    router_id: Ipv4Addr,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Speaker {
    /// BIRD 2
    Bird,
    /// FRR's bgpd
    Frr,
}

/// A router that is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Peer {
    address: IpAddr,
    number: u32,
}

fn peer(text: &str) -> Result<Peer, String> {
    let (address, number) =
        text.split_once(',').ok_or("an address and an AS number, as 192.0.2.1,64500")?;
    let address = address.parse().map_err(|_| format!("{address:?} is no address"))?;
    let number = number.parse().map_err(|_| format!("{number:?} is no AS number"))?;
    Ok(Peer { address, number })
}

/// What is announced, by family.
#[derive(Debug, Default, PartialEq, Eq)]
struct Announced {
    v4: Vec<String>,
    v6: Vec<String>,
}

pub(super) fn text(args: &Args) -> anyhow::Result<String> {
    let config = Config::load(&args.config)?;
    let protected = config.rules.rules.iter();
    let protected = protected.filter(|rule| matches!(rule.action, Action::Grantors(_)));
    let announced = announced(protected.map(|rule| rule.prefix));
    ensure!(
        args.local_as != 0 && args.peers.iter().all(|peer| peer.number != 0),
        "AS 0 is nobody's (RFC 7607)"
    );
    for (family, prefixes, v6) in [("IPv4", &announced.v4, false), ("IPv6", &announced.v6, true)] {
        if !prefixes.is_empty() && args.peers.iter().all(|peer| peer.address.is_ipv6() != v6) {
            bail!(
                "{}: {} of {family} cannot be announced: no --peer has an address of {family}",
                args.config.display(),
                prefixes.join(", ")
            );
        }
    }
    if announced == Announced::default() {
        bail!("{}: nothing is protected, so there is nothing to announce", args.config.display());
    }
    Ok(match args.speaker {
        Speaker::Bird => bird(args, &announced),
        Speaker::Frr => frr(args, &announced),
    })
}

/// Leaves out what is within another prefix.
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
        let within = |one: &fib::Prefix<A>| all.iter().any(|it| it != one && it.covers(*one));
        all.iter().filter(|one| !within(one)).map(ToString::to_string).collect()
    }
    Announced { v4: widest(v4), v6: widest(v6) }
}

/// What stands at the head of either file, behind the speaker's mark for a comment.
fn head(args: &Args, mark: char) -> String {
    format!(
        "{mark} Written by `fingerpost gate bgp-config` from {}: announces what that gate\n\
         {mark} protects, learns nothing, and puts nothing into the kernel.\n",
        args.config.display()
    )
}

fn bird(args: &Args, announced: &Announced) -> String {
    let mut out = head(args, '#');
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
            "protocol bgp before{} {{\n    local as {};\n    neighbor {address} as {number};\n    \
             {family} {{ import none; export {export}; next hop self; }};\n}}",
            at + 1,
            args.local_as
        );
    }
    out
}

fn frr(args: &Args, announced: &Announced) -> String {
    let mut out = head(args, '!');
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
    // The prefixes are nobody's routes here.
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
    fn what_is_within_another_prefix_is_left_out() {
        let each = ["192.0.2.0/24", "192.0.2.128/25", "198.51.100.0/24", "192.0.2.0/24"];
        let v4 = each.map(|text| AnyPrefix::V4(text.parse().unwrap()));
        let v6 = ["2001:db8::/32", "2001:db8:1::/48"];
        let v6 = v6.map(|text| AnyPrefix::V6(text.parse().unwrap()));
        let got = announced(v4.into_iter().chain(v6));
        assert_eq!(got.v4, ["192.0.2.0/24", "198.51.100.0/24"]);
        assert_eq!(got.v6, ["2001:db8::/32"]);
    }

    #[test]
    fn a_peer_is_an_address_and_a_number() {
        let good = Peer { address: "fd00::1".parse().unwrap(), number: 64500 };
        assert_eq!(peer("fd00::1,64500"), Ok(good));
        for (bad, why) in [
            ("192.0.2.1", "an address and an AS number, as 192.0.2.1,64500"),
            ("here,1", "\"here\" is no address"),
            ("192.0.2.1,AS1", "\"AS1\" is no AS number"),
        ] {
            assert_eq!(peer(bad), Err(why.to_owned()));
        }
    }
}
