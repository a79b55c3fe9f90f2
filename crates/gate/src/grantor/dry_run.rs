//! A dry run of a policy: finds errors before the first packet arrives.
//!
//! ```text
//!   text ─► compiled chunk: a global that nothing defines? (bytecode.rs)
//!     └──► loaded ─► made-up packets: SYN, ACK, UDP, ICMP, fragments ─► decide(p): an error?
//!                    of both families, by the ports the policy names,    over its limit?
//!                    from the prefixes of its lists                      no decision?
//! ```
//!
//! A policy that ends with an error for some packets gives them the fallback and increments a
//! counter, perhaps in an attack at night. A dry run is part of `grantor check`, of `bundle pack`
//! and of every load, so that a misspelt name, a comparison with `nil` for packets without ports,
//! an unknown key of a decision and a loop without an end are errors there, with the packet and the
//! line. It runs in a separate Lua state; the policy that is installed later shares no state with
//! it. Branches that depend on a policy's state are covered as far as two rounds of the same flows,
//! some seconds apart, reach them; the check of global names covers all branches.
//!
//! The number of packets is bounded ([`MAX_PACKETS`]), and so is a call; the first failure ends the run.

use std::collections::BTreeSet;

use fib::Reader;
use wire::{ipv4, ipv6};

use super::lists::{ListPrefix, Lists};
use super::{Grantor, Limits, Request, ScriptError, bytecode};

/// The most packets of a round.
const MAX_PACKETS: usize = 2_000;
/// Ports that are tried with every policy: a few services, a resolver's and a client's.
const PORTS: [u16; 7] = [0, 22, 25, 53, 80, 443, 50_000];
/// The most numbers of a policy that are tried as ports.
const MAX_PORTS: usize = 64;
/// The most prefixes of its lists that are tried as sources and destinations.
const MAX_PLACES: usize = 16;
/// The time between the rounds: a decision may have expired, or not.
const SECONDS: [u64; 2] = [10, 13];
/// The names that the policy's environment has beside Lua's own are those that are set there;
/// this one is set by Lua.
const ENVIRONMENT: &str = "_G";

const TCP: u8 = 6;
const UDP: u8 = 17;

/// A made-up packet, from its IP header on.
struct Made {
    /// Describes it to the operator.
    name: String,
    bytes: Vec<u8>,
}

/// Runs a policy on made-up packets of both families.
///
/// # Errors
///
/// A policy that cannot be loaded, as [`Grantor::new`]; a global name that nothing defines; the
/// first packet for which `decide` ends with an error, exceeds its limit of instructions or returns
/// an invalid decision.
pub fn dry_run(policy: &str, mut lists: Reader<Lists>, limits: Limits) -> Result<(), ScriptError> {
    let places = places(lists.current());
    lists.idle();
    let mut grantor = Grantor::new(policy, lists, limits)?;
    let chunk = grantor.script.compile(policy).map_err(|error| ScriptError(error.to_string()))?;
    // The linked compiler writes only chunks of a known format; for any other, only the run counts.
    let globals = bytecode::globals(&chunk).unwrap_or_default();
    undefined(&grantor, &globals)?;
    let ports: BTreeSet<u16> =
        PORTS.into_iter().chain(globals.numbers.into_iter().take(MAX_PORTS)).collect();
    let packets = packets(&ports, &places);
    for (round, seconds) in SECONDS.into_iter().enumerate() {
        for made in packets.iter().take(MAX_PACKETS) {
            // Requests first, of a flow's first packet; then renewals, some of them congested.
            let (dscp, congested) = [(41, false), (2, made.bytes.len() % 2 == 0)][round];
            let request = Request { packet: &made.bytes, dscp, congested };
            grantor.decide(seconds * 1_000_000_000, &[request], &mut Vec::new());
            let error = match grantor.counts() {
                counts if counts.over_time > 0 => format!(
                    "takes more than {} instructions: a loop without an end? (`[policy] \
                     instructions` is the limit)",
                    limits.instructions
                ),
                counts if counts.failed > 0 => grantor.last_error().unwrap_or_default(),
                counts if counts.unread > 0 => "cannot be read".to_owned(),
                _ => continue,
            };
            return Err(ScriptError(format!(
                "decide fails for a made-up packet, {}: {error}",
                made.name
            )));
        }
    }
    Ok(())
}

/// Refuses global names that neither the policy nor its environment defines.
fn undefined(grantor: &Grantor, globals: &bytecode::Globals) -> Result<(), ScriptError> {
    let unknown = globals.reads.iter().find_map(|read| {
        if read.name == ENVIRONMENT || globals.writes.contains(&read.name) {
            return None;
        }
        let field = read.field.as_deref();
        (!grantor.script.defines(&read.name, field)).then(|| match field {
            Some(field) if grantor.script.defines(&read.name, None) => {
                (read.line, format!("`{}` has no `{field}` in a policy", read.name))
            }
            _ => (read.line, format!("undefined global `{}`", read.name)),
        })
    });
    match unknown {
        Some((line, what)) => Err(ScriptError(format!("policy:{line}: {what}"))),
        None => Ok(()),
    }
}

/// Picks prefixes of all lists.
fn places(lists: &Lists) -> Vec<ListPrefix> {
    let each = MAX_PLACES.checked_div(lists.len()).unwrap_or(0).max(1);
    lists.values().flat_map(|list| list.samples().iter().take(each)).copied().collect()
}

/// Makes the packets: each transport by the ports, then TCP and UDP by the places.
fn packets(ports: &BTreeSet<u16>, places: &[ListPrefix]) -> Vec<Made> {
    let mut made = Vec::new();
    let ends = [
        End::V4(0xc633_6407, 0xc000_0207),
        End::V6(0x2001_0db8 << 96 | 7, 0x2001_0db8 << 96 | 0x207),
    ];
    for end in ends {
        for &port in ports {
            for (name, flags) in [("SYN", 0x02), ("ACK", 0x10), ("SYN+ACK", 0x12), ("RST", 0x04)] {
                made.push(end.packet(&format!("TCP {name}"), TCP, &tcp(port, flags), Some(port)));
            }
            made.push(end.packet("UDP", UDP, &udp(port), Some(port)));
        }
        let (icmp, echo) = if end.is_v6() { (58, 128) } else { (1, 8) };
        for kind in [echo, 3, 1] {
            let name = format!("ICMP of type {kind}");
            made.push(end.packet(&name, icmp, &[kind, 0, 0, 0, 0, 1, 0, 1], None));
        }
        made.push(end.packet("ICMP without a header", icmp, &[], None));
        made.push(end.packet("TCP cut short", TCP, &[0x0f, 0xa0], None));
        made.push(end.packet("protocol 47", 47, &[0; 4], None));
        for (name, offset, more) in [("first", 0, true), ("later", 185, false)] {
            for (transport, protocol, bytes) in [("TCP", TCP, tcp(80, 0x02)), ("UDP", UDP, udp(53))]
            {
                let name = format!("the {name} fragment of {transport}");
                made.push(end.fragment(&name, protocol, &bytes, offset, more));
            }
        }
    }
    for place in places {
        for reversed in [false, true] {
            let end = End::of(*place, reversed);
            for (name, flags) in [("SYN", 0x02), ("ACK", 0x10)] {
                made.push(end.packet(&format!("TCP {name}"), TCP, &tcp(443, flags), Some(443)));
            }
            made.push(end.packet("UDP", UDP, &udp(53), Some(53)));
        }
    }
    made
}

/// A TCP header from port 50000.
fn tcp(port: u16, flags: u8) -> Vec<u8> {
    let mut bytes = vec![0xc3, 0x50];
    bytes.extend(port.to_be_bytes());
    bytes.extend([0, 0, 0, 1, 0, 0, 0, 1, 0x50, flags, 0xff, 0xff, 0, 0, 0, 0]);
    bytes
}

/// A UDP header from port 50000, with a few bytes behind it.
fn udp(port: u16) -> Vec<u8> {
    let mut bytes = vec![0xc3, 0x50];
    bytes.extend(port.to_be_bytes());
    bytes.extend([0, 13, 0, 0, 1, 2, 3, 4, 5]);
    bytes
}

/// Source and destination.
#[derive(Clone, Copy)]
enum End {
    V4(u32, u32),
    V6(u128, u128),
}

impl End {
    /// From a place to a documentation address, or the other way.
    fn of(place: ListPrefix, reversed: bool) -> Self {
        match place {
            ListPrefix::V4(prefix) if reversed => Self::V4(0xc633_6407, prefix.last()),
            ListPrefix::V4(prefix) => Self::V4(prefix.last(), 0xc000_0207),
            ListPrefix::V6(prefix) if reversed => Self::V6(0x2001_0db8 << 96 | 7, prefix.last()),
            ListPrefix::V6(prefix) => Self::V6(prefix.last(), 0x2001_0db8 << 96 | 0x207),
        }
    }

    fn is_v6(self) -> bool {
        matches!(self, Self::V6(..))
    }

    fn packet(self, what: &str, protocol: u8, transport: &[u8], port: Option<u16>) -> Made {
        let family = if self.is_v6() { "IPv6" } else { "IPv4" };
        let name = match port {
            Some(port) => format!("{what} to port {port} over {family}"),
            None => format!("{what} over {family}"),
        };
        let bytes = match self {
            Self::V4(src, dst) => v4(src, dst, protocol, transport, 0, 0),
            Self::V6(src, dst) => v6(src, dst, protocol, transport),
        };
        Made { name, bytes }
    }

    fn fragment(self, what: &str, protocol: u8, transport: &[u8], offset: u16, more: bool) -> Made {
        match self {
            Self::V4(src, dst) => {
                let flags = if more { 1 } else { 0 };
                let bytes = v4(src, dst, protocol, transport, flags, offset);
                Made { name: format!("{what} over IPv4"), bytes }
            }
            Self::V6(src, dst) => {
                let place = (offset << 3 | u16::from(more)).to_be_bytes();
                let mut payload = vec![protocol, 0, place[0], place[1], 0, 0, 0, 1];
                payload.extend(transport);
                Made { name: format!("{what} over IPv6"), bytes: v6(src, dst, 44, &payload) }
            }
        }
    }
}

fn v4(src: u32, dst: u32, protocol: u8, transport: &[u8], flags: u8, offset: u16) -> Vec<u8> {
    let mut bytes = vec![0; 20];
    let header = ipv4::Header {
        total_len: (20 + transport.len()) as u16,
        flags,
        fragment_offset: offset,
        ttl: 57,
        protocol,
        src,
        dst,
        ..Default::default()
    };
    let room = header.emit(&mut bytes);
    debug_assert!(room.is_ok(), "20 bytes are room for a header without options");
    bytes.extend(transport);
    bytes
}

fn v6(src: u128, dst: u128, next_header: u8, payload: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0; ipv6::LEN];
    let header = ipv6::Header {
        payload_len: payload.len() as u16,
        next_header,
        hop_limit: 57,
        src,
        dst,
        ..Default::default()
    };
    let room = header.emit(&mut bytes);
    debug_assert!(room.is_ok(), "40 bytes are room for a header");
    bytes.extend(payload);
    bytes
}

#[cfg(test)]
mod tests {
    use fib::Publisher;

    use super::super::shipped::POLICIES;
    use super::super::tests::lists;
    use super::*;

    fn run(policy: &str) -> Result<(), String> {
        let lists = Publisher::new(lists(&[("known", "10.0.0.0/8 64496\n2001:db8:9::/48 word\n")]));
        dry_run(policy, lists.reader(), Limits::default()).map_err(|bad| bad.0)
    }

    fn refused(policy: &str, expected: &str) {
        let error = run(policy).expect_err(policy);
        assert!(error.contains(expected), "{error:?} does not contain {expected:?}");
    }

    #[test]
    fn shipped_policies_pass() {
        for policy in POLICIES {
            for text in ["", "10.0.0.0/8 443\n203.0.113.7 25\n2001:db8:9::/48 22\n"] {
                let texts: Vec<_> = policy.lists.iter().map(|name| (*name, text)).collect();
                let lists = Publisher::new(lists(&texts));
                let result = dry_run(policy.text, lists.reader(), Limits::default());
                assert_eq!(result, Ok(()), "{}", policy.name);
            }
        }
    }

    #[test]
    fn undefined_global_in_any_branch_is_refused_with_its_line() {
        let text = "local never = false\nfunction decide(p)\n  if never then\n    return grnat { rate \
                    = 5 }\n  end\n  return pass()\nend\n";
        refused(text, "policy:4: undefined global `grnat`");
        refused(
            "function decide(p)\n return math.flor(5)\nend",
            "`math` has no `flor` in a policy",
        );
        refused("function decide(p)\n return string.find('a', 'a')\nend", "no `find` in a policy");
        refused("x = load('return 5')\nfunction decide(p) end", "global");
        let own = "limit = 5\nlocal function double(n) return n * limit end\nfunction decide(p)\n  \
                   return decline(double(30))\nend\n";
        assert_eq!(run(own), Ok(()));
    }

    #[test]
    fn unknown_key_of_a_decision_is_refused() {
        let keys = [
            ("grant { rate = 5, expires = 30 }", "`grant` has no key `expires`"),
            ("grant { rte = 5 }", "`grant` has no key `rte`"),
            ("web { rate = 5, extra = 1 }", "`web` has no key `extra`"),
            ("tcp_services { rate = 5, ports = {} }", "`tcp_services` has no key `ports`"),
            ("run { program = 3, rate = 5 }", "`run` has no key `rate`"),
            ("decline { expire = 5, ports = 80 }", "`decline` has no key `ports`"),
            ("grant(5)", "`grant` takes a table"),
        ];
        for (decision, expected) in keys {
            refused(&format!("function decide(p) return {decision} end"), expected);
        }
        // A decision table that is used twice keeps its first kind.
        let twice = "local terms = { rate = 5 }\nfunction decide(p) return grant(terms) end";
        assert_eq!(run(twice), Ok(()));
    }

    #[test]
    fn endless_loop_is_refused_when_loading_and_when_deciding() {
        refused("while true do end", "exceeded its limit");
        refused("function decide(p) while true do end end", "a loop without an end?");
        let rare = "function decide(p)\n  if p.dst_port == 8443 then while true do end end\n  return \
                    pass()\nend";
        refused(rare, "TCP SYN to port 8443 over IPv4");
    }

    #[test]
    fn error_of_a_rare_packet_is_refused_with_the_packet() {
        let each = [
            ("if p.dst_port < 1024 then return pass() end", "over IPv4: "),
            ("if p.version == 6 then return { kind = 'no' } end return pass()", "over IPv6"),
            ("if p.fragment and p.src_port + 1 > 0 then end return pass()", "the later fragment"),
            (
                "if p.protocol == 1 then return p.dst_prt end return pass()",
                "a packet has no field `dst_prt`",
            ),
            ("if p.renewal then return 5 end return pass()", "neither a decision nor nil"),
            ("if p:src_in(known) == 64496 then return {} end return pass()", "TCP SYN"),
            ("if p:dst_in(known) == 'word' then return {} end return pass()", "over IPv6"),
        ];
        for (body, expected) in each {
            let text = format!("local known = list 'known'\nfunction decide(p) {body} end");
            refused(&text, expected);
        }
    }
}
