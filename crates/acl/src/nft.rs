//! nft: access lists as a ruleset of the kernel's nftables.
//!
//! Linux forwards what the router does not: while it is stopped, and packets that are too long for it
//! or that it punts. The same lists protect that path as this ruleset, which `nft -f` loads. It is also
//! what the classifier is compared with.
//!
//! Lists of received packets are examined before routing, as by the router; packets for this machine
//! pass. Lists of sent packets are examined where the kernel forwards.
//!
//! Each rule has its number as the comment of all rules that it becomes here.
//!
//! Differences: nftables sends no copy of a packet as it arrived from here, so `mirror` and `sample`
//! only count; and the bursts of policers are those of nftables.

use std::collections::HashSet;
use std::fmt::Write;

use wire::ports::WITH_PORTS;

use crate::{AccessList, Action, Addresses, FragmentMatch, PacketFamily, Ranges, Rate, Rule};

/// A list with the interfaces whose packets it examines.
#[derive(Clone, Copy, Debug)]
pub struct AppliedList<'l> {
    /// The list.
    pub list: &'l AccessList,
    /// The interfaces that packets arrive on.
    pub inbound: &'l [String],
    /// The interfaces that packets leave by.
    pub outbound: &'l [String],
}

/// The name of the ruleset's table.
pub const TABLE: &str = "fingerpost_acl";

/// Returns the ruleset of the lists, which replaces an earlier one.
pub fn ruleset(lists: &[AppliedList<'_>]) -> String {
    let mut text =
        format!("table inet {TABLE}\ndelete table inet {TABLE}\ntable inet {TABLE} {{\n");
    for applied in lists {
        chain(&mut text, applied.list);
    }
    let hooks = [
        ("inbound", "prerouting priority raw", "iifname"),
        ("outbound", "forward priority filter", "oifname"),
    ];
    for (chain, hook, selector) in hooks {
        let is_inbound = chain == "inbound";
        let _ = writeln!(text, "\tchain {chain} {{\n\t\ttype filter hook {hook}; policy accept;");
        if is_inbound {
            text.push_str("\t\tfib daddr type { local, broadcast, anycast, multicast } accept\n");
        }
        for applied in lists {
            let names = if is_inbound { applied.inbound } else { applied.outbound };
            for name in names {
                let _ = writeln!(text, "\t\t{selector} {name:?} jump {}", applied.list.name);
            }
        }
        text.push_str("\t}\n");
    }
    text.push_str("}\n");
    text
}

fn chain(text: &mut String, list: &AccessList) {
    let lines: Vec<_> = list.rules().iter().map(lines).collect();
    let limits: Vec<_> = (1..)
        .zip(list.rules().iter().zip(&lines))
        .map(|(number, (rule, lines))| limit_name(list, number, rule, lines.len()))
        .collect();
    let mut declared = HashSet::new();
    for (rule, limit) in list.rules().iter().zip(&limits) {
        if let (Some(name), Action::Police(rate)) = (limit, &rule.action)
            && declared.insert(name)
        {
            let _ = writeln!(text, "\tlimit {name} {{ {} }}", rate_over(*rate));
        }
    }
    let _ = writeln!(text, "\tchain {} {{", list.name);
    for ((number, rule), (lines, limit)) in (1..).zip(list.rules()).zip(lines.iter().zip(&limits)) {
        let _ = writeln!(text, "\t\t# {rule}");
        let comment = format!("comment \"rule {number}\"");
        let action = action(&rule.action, limit.as_deref());
        for (ip, conditions) in lines {
            let set = rule.set_dscp.map(|dscp| format!("{ip} dscp set {dscp}"));
            let _ = match (set, &rule.action) {
                (None, _) => writeln!(text, "\t\t{conditions}{action} {comment}"),
                (Some(set), Action::Permit) => {
                    writeln!(text, "\t\t{conditions}counter {set} accept {comment}")
                }
                // A policer ends a rule for the packets that it does not drop.
                (Some(set), _) => {
                    writeln!(text, "\t\t{conditions}{action} {comment}\n\t\t{conditions}{set}")
                }
            };
        }
    }
    let _ = writeln!(
        text,
        "\t\tcounter {} comment \"default\"\n\t}}",
        if list.permits { "accept" } else { "drop" }
    );
}

/// Returns the conditions of a rule, each with its family's word: one of them holds for its packets.
fn lines(rule: &Rule) -> Vec<(&'static str, String)> {
    let mut lines = Vec::new();
    if rule.is_about::<u32>() {
        let fragments = fragments_v4(rule.fragment, needs_header(rule)).to_owned()
            + dont_fragment(rule.dont_fragment);
        lines.push(("ip", conditions::<u32>(rule, "ip", "ipv4", &fragments)));
    }
    if rule.is_about::<u128>() {
        for fragments in fragments_v6(rule.fragment, needs_header(rule)) {
            lines.push(("ip6", conditions::<u128>(rule, "ip6", "ipv6", fragments)));
        }
    }
    lines
}

/// Returns the name of a policer that several lines share, those of one rule or of several.
fn limit_name(list: &AccessList, number: usize, rule: &Rule, lines: usize) -> Option<String> {
    let (name, is_policer) = (&list.name, matches!(rule.action, Action::Police(_)));
    match &rule.policer {
        Some(policer) => Some(format!("{name}/{policer}")),
        None => (is_policer && lines > 1).then(|| format!("{name}/{number}")),
    }
}

fn action(action: &Action, limit: Option<&str>) -> String {
    match (action, limit) {
        (Action::Permit, _) => "counter accept".to_owned(),
        (Action::Deny, _) => "counter drop".to_owned(),
        (Action::Count | Action::Mirror { .. }, _) => "counter".to_owned(),
        (Action::Police(_), Some(limit)) => format!("counter limit name {limit:?} drop"),
        (Action::Police(rate), None) => format!("counter limit {} drop", rate_over(*rate)),
    }
}

/// Returns the excess of a rate.
fn rate_over(rate: Rate) -> String {
    match rate {
        Rate::Packets(rate) => {
            format!("rate over {rate}/second burst {} packets", (rate / 20).max(8))
        }
        Rate::Bits(rate) => {
            let bytes = (rate / 8).max(1);
            let burst = (bytes / 20).max(32 << 10);
            format!("rate over {bytes} bytes/second burst {burst} bytes")
        }
    }
}

fn conditions<A: PacketFamily>(rule: &Rule, ip: &str, family: &str, fragments: &str) -> String {
    let mut text = format!("meta nfproto {family} ");
    for (word, addresses) in [("saddr", &rule.from), ("daddr", &rule.to)] {
        if let Some(addresses) = addresses {
            let _ = write!(text, "{ip} {word} {} ", prefixes::<A>(addresses));
        }
    }
    for (word, bits) in [("saddr", rule.source_bits), ("daddr", rule.destination_bits)] {
        if let Some(bits) = bits {
            let _ = write!(text, "{ip} {word} {} ", bits.nft());
        }
    }
    if let Some(dscp) = &rule.dscp {
        let _ = write!(text, "{ip} dscp {} ", set(dscp));
    }
    if let Some(labels) = &rule.flow_labels {
        let _ = write!(text, "{ip} flowlabel {} ", set(labels));
    }
    text.push_str(fragments);
    if let Some(lengths) = &rule.lengths {
        let _ = write!(text, "meta length {} ", set(lengths));
    }
    let ports = [("sport", &rule.source_ports), ("dport", &rule.destination_ports)];
    let needs_protocol = ports.iter().any(|(_, ports)| ports.is_some());
    match &rule.protocols {
        Some(protocols) => {
            let _ = write!(text, "meta l4proto {} ", set(protocols));
        }
        None if needs_protocol => {
            let with_ports = WITH_PORTS.map(|number| number.to_string()).join(", ");
            let _ = write!(text, "meta l4proto {{ {with_ports} }} ");
        }
        None => {}
    }
    for (word, ports) in ports {
        if let Some(ports) = ports {
            let _ = write!(text, "th {word} {} ", set(ports));
        }
    }
    for (at, numbers) in [(0, &rule.icmp_types), (8, &rule.icmp_codes)] {
        if let Some(numbers) = numbers {
            let _ = write!(text, "@th,{at},8 {} ", set(numbers));
        }
    }
    if let Some(flags) = rule.flags {
        let _ = write!(text, "@th,104,8 & {:#04x} == {:#04x} ", flags.mask, flags.set);
    }
    text
}

fn prefixes<A: PacketFamily>(addresses: &Addresses) -> String {
    let mut sorted = A::prefixes(addresses).to_vec();
    sorted.sort_unstable_by_key(|prefix| (prefix.addr(), prefix.len()));
    // Intervals of a set must not overlap.
    let mut apart: Vec<fib::Prefix<A>> = Vec::new();
    for prefix in sorted {
        if !apart.last().is_some_and(|last| last.covers(prefix)) {
            apart.push(prefix);
        }
    }
    let texts: Vec<_> = apart.iter().map(ToString::to_string).collect();
    format!("{{ {} }}", texts.join(", "))
}

/// Returns ranges as a set whose intervals do not overlap.
fn set(ranges: &Ranges) -> String {
    let texts = ranges.merged().into_iter().map(|(first, last)| match first == last {
        true => first.to_string(),
        false => format!("{first}-{last}"),
    });
    format!("{{ {} }}", texts.collect::<Vec<_>>().join(", "))
}

/// Returns whether a rule is about the header of the upper protocol.
fn needs_header(rule: &Rule) -> bool {
    let Rule { source_ports, destination_ports, icmp_types, icmp_codes, flags, .. } = rule;
    let ranges = [source_ports, destination_ports, icmp_types, icmp_codes];
    flags.is_some() || ranges.iter().any(|ranges| ranges.is_some())
}

/// Returns the condition on fragments. Some kernels read the upper header of later fragments, too, where
/// there is only payload, unless a condition excludes them.
fn fragments_v4(kind: Option<FragmentMatch>, needs_header: bool) -> &'static str {
    match (kind, needs_header) {
        (None, false) => "",
        (None, true) => "ip frag-off & 0x1fff == 0 ",
        (Some(FragmentMatch::No), _) => "ip frag-off & 0x3fff == 0 ",
        (Some(FragmentMatch::Yes), false) => "ip frag-off & 0x3fff != 0 ",
        (Some(FragmentMatch::Yes), true) | (Some(FragmentMatch::First), _) => {
            "ip frag-off & 0x3fff == 0x2000 "
        }
        (Some(FragmentMatch::Later), _) => "ip frag-off & 0x1fff != 0 ",
        (Some(FragmentMatch::Middle), _) => "ip frag-off & 0x1fff != 0 ip frag-off & 0x2000 != 0 ",
        (Some(FragmentMatch::Last), _) => "ip frag-off & 0x1fff != 0 ip frag-off & 0x2000 == 0 ",
    }
}

/// Returns the condition on the bit Don't Fragment.
fn dont_fragment(is_set: Option<bool>) -> &'static str {
    match is_set {
        None => "",
        Some(false) => "ip frag-off & 0x4000 == 0 ",
        Some(true) => "ip frag-off & 0x4000 != 0 ",
    }
}

/// Returns the conditions on fragments, one of which is to hold.
fn fragments_v6(kind: Option<FragmentMatch>, needs_header: bool) -> &'static [&'static str] {
    match (kind, needs_header) {
        (None, false) => &[""],
        (None, true) => &["exthdr frag missing ", "frag frag-off == 0 "],
        (Some(FragmentMatch::No), _) => {
            &["exthdr frag missing ", "frag frag-off == 0 frag more-fragments 0 "]
        }
        (Some(FragmentMatch::Yes), false) => {
            &["frag frag-off != 0 ", "frag frag-off == 0 frag more-fragments 1 "]
        }
        (Some(FragmentMatch::Yes), true) | (Some(FragmentMatch::First), _) => {
            &["frag frag-off == 0 frag more-fragments 1 "]
        }
        (Some(FragmentMatch::Later), _) => &["frag frag-off != 0 "],
        (Some(FragmentMatch::Middle), _) => &["frag frag-off != 0 frag more-fragments 1 "],
        (Some(FragmentMatch::Last), _) => &["frag frag-off != 0 frag more-fragments 0 "],
    }
}
