//! Rules: a flow specification with its actions as lines of an access list.
//!
//! A rule of an access list is a conjunction; a flow specification becomes several where it needs a
//! disjunction:
//!
//! | component | rules |
//! |---|---|
//! | port | one for the source port, one for the destination port |
//! | TCP flags | one for each set of flags that a mask describes |
//! | fragment | one for each kind of fragment, and for packets with and without the bit Don't Fragment |
//!
//! Ports imply TCP or UDP, TCP flags imply TCP, and ICMP types and codes imply ICMP (RFC 8955, section 4.2.2).
//! A rate becomes a policer and a rule that permits what it leaves, with the DSCP of a marking; several rules share
//! the policer, whose name is made of a hash of the specification.
//!
//! A specification that access lists cannot express is refused as a whole, so that no packet is dropped that the
//! specification is not about: the bit Don't Fragment of IPv6, TCP
//! flags of the upper octet, and redirection.

use acl::{Action, AddressBits, Addresses, Field, FragmentMatch, Ranges, Rule, TcpFlags};
use fib::Prefix;

use crate::action::Actions;
use crate::flow::{
    Condition, DESTINATION, DESTINATION_PORT, DSCP, FLOW_LABEL, FRAGMENT, FlowFamily, FlowPrefix,
    FlowSpec, ICMP_CODE, ICMP_TYPE, LENGTH, PORT, PROTOCOL, SOURCE, SOURCE_PORT, TCP_FLAGS,
};
use crate::operators::{self, Operator};

const TCP: u32 = 6;
const UDP: u32 = 17;

/// A flag of TCP.
const FIN: u8 = 1;

/// Bits of the component for fragments.
const DONT_FRAGMENT: u64 = 1;
const IS_FRAGMENT: u64 = 2;
const FIRST_FRAGMENT: u64 = 4;
const LAST_FRAGMENT: u64 = 8;
const FRAGMENT_BITS: u64 = DONT_FRAGMENT | IS_FRAGMENT | FIRST_FRAGMENT | LAST_FRAGMENT;

/// Returns the rules of a flow specification: none, if no packet matches it.
///
/// # Errors
///
/// The condition or action that an access list does not have.
pub(crate) fn rules(flow: &FlowSpec, actions: &Actions) -> Result<Vec<Rule>, &'static str> {
    if let Some(action) = actions.unsupported {
        return Err(action);
    }
    let numbers =
        |kind, max| flow.operators(kind).map(|list| Ranges::new(operators::ranges(list, max)));
    let mut base = Rule::all(Action::Permit);
    base.to = addresses(flow, DESTINATION);
    base.from = addresses(flow, SOURCE);
    base.destination_bits = address_bits(flow, DESTINATION);
    base.source_bits = address_bits(flow, SOURCE);
    if base.to.is_none() && base.from.is_none() {
        // A rule without prefixes would be about both families.
        base.to = Some(prefix(FlowPrefix::ALL, flow.family));
    }
    base.protocols = protocols(flow);
    base.source_ports = numbers(SOURCE_PORT, u16::MAX.into());
    base.destination_ports = numbers(DESTINATION_PORT, u16::MAX.into());
    base.icmp_types = numbers(ICMP_TYPE, 255);
    base.icmp_codes = numbers(ICMP_CODE, 255);
    base.lengths = numbers(LENGTH, u16::MAX.into());
    base.dscp = numbers(DSCP, 63);
    base.flow_labels = numbers(FLOW_LABEL, 0xf_ffff);
    let mut matches = vec![base];
    if let Some(ports) = numbers(PORT, u16::MAX.into()) {
        expand(&mut matches, &[true, false], |rule, is_source| {
            let condition =
                if *is_source { &mut rule.source_ports } else { &mut rule.destination_ports };
            let before = condition.take();
            *condition = Some(before.map_or(ports.clone(), |before| before.intersection(&ports)));
        });
    }
    if let Some(flags) = flags(flow)? {
        expand(&mut matches, &flags, |rule, flags| rule.flags = Some(*flags));
    }
    if let Some(fragments) = fragments(flow)? {
        expand(&mut matches, &fragments, |rule, (fragment, dont_fragment)| {
            (rule.fragment, rule.dont_fragment) = (*fragment, *dont_fragment);
        });
    }
    matches.retain(is_possible);
    let actions = rule_actions(actions);
    let hash = (matches.len() > 1).then(|| feed::fnv1a(flow.to_string().bytes()));
    let expanded = matches.iter().flat_map(|rule| {
        (1..).zip(&actions).map(move |(number, (action, set_dscp))| {
            let is_policer = matches!(action, Action::Police(_));
            let policer =
                hash.filter(|_| is_policer).map(|hash| format!("flow-{hash:016x}-{number}"));
            Rule { action: action.clone(), set_dscp: *set_dscp, policer, ..rule.clone() }
        })
    });
    Ok(expanded.collect())
}

/// Replaces each rule by one for each alternative.
fn expand<T>(rules: &mut Vec<Rule>, alternatives: &[T], set: impl Fn(&mut Rule, &T)) {
    let expanded = rules.iter().flat_map(|rule| {
        alternatives.iter().map(|alternative| {
            let mut rule = rule.clone();
            set(&mut rule, alternative);
            rule
        })
    });
    *rules = expanded.collect();
}

/// Returns whether a packet can match.
fn is_possible(rule: &Rule) -> bool {
    let is_never = |field| rule.ranges(field).is_some_and(Ranges::is_empty);
    let header = [Field::SourcePort, Field::DestinationPort, Field::IcmpType, Field::IcmpCode];
    let has_header =
        rule.flags.is_some() || header.into_iter().any(|field| rule.ranges(field).is_some());
    let is_later = rule.fragment.is_some_and(FragmentMatch::is_later);
    !(Field::ALL.into_iter().any(is_never) || has_header && is_later)
}

fn addresses(flow: &FlowSpec, kind: u8) -> Option<Addresses> {
    match flow.condition(kind)? {
        Condition::Prefix(compared @ FlowPrefix { offset: 0, .. }) => {
            Some(prefix(*compared, flow.family))
        }
        _ => None,
    }
}

/// Returns the bits of a prefix with an offset.
fn address_bits(flow: &FlowSpec, kind: u8) -> Option<AddressBits> {
    match flow.condition(kind)? {
        Condition::Prefix(FlowPrefix { offset: 0, .. }) => None,
        Condition::Prefix(FlowPrefix { len, offset, bits }) => {
            // The ones behind the first `len` and the first `offset` bits.
            let shifted = |bits: u128, len: &u8| bits.checked_shr((*len).into()).unwrap_or(0);
            let mask = shifted(u128::MAX, offset) & !shifted(u128::MAX, len);
            Some(AddressBits::new(shifted(*bits, offset), mask))
        }
        _ => None,
    }
}

fn prefix(compared: FlowPrefix, family: FlowFamily) -> Addresses {
    let FlowPrefix { len, bits, .. } = compared;
    match family {
        FlowFamily::V4 => Addresses::from(Prefix::truncate((bits >> 96) as u32, len.into())),
        FlowFamily::V6 => Addresses::from(Prefix::truncate(bits, len.into())),
    }
}

/// Returns the protocols that the components allow; none, if they allow all.
fn protocols(flow: &FlowSpec) -> Option<Ranges> {
    let mut allowed =
        flow.operators(PROTOCOL).map(|list| Ranges::new(operators::ranges(list, 255)));
    let icmp = if flow.family == FlowFamily::V4 { 1 } else { 58 };
    let implied: [(&[u8], &[u32]); 3] = [
        (&[PORT, DESTINATION_PORT, SOURCE_PORT], &[TCP, UDP]),
        (&[TCP_FLAGS], &[TCP]),
        (&[ICMP_TYPE, ICMP_CODE], &[icmp]),
    ];
    for (kinds, numbers) in implied {
        if kinds.iter().any(|kind| flow.operators(*kind).is_some()) {
            let only = Ranges::new(numbers.iter().map(|number| (*number, *number)).collect());
            allowed = Some(allowed.map_or(only.clone(), |before| before.intersection(&only)));
        }
    }
    allowed
}

/// Returns the sets of TCP flags that match; a later fragment has none.
fn flags(flow: &FlowSpec) -> Result<Option<Vec<TcpFlags>>, &'static str> {
    let Some(list) = flow.operators(TCP_FLAGS) else { return Ok(None) };
    if list.iter().any(|operator| operator.value > 0xff) {
        return Err("TCP flags of the upper octet");
    }
    let matches: [bool; 256] =
        core::array::from_fn(|flags| operators::matches_bits(list, flags as u64));
    let mut is_covered = [false; 256];
    let mut found = Vec::new();
    for flags in 0..=255u8 {
        if !matches[usize::from(flags)] || is_covered[usize::from(flags)] {
            continue;
        }
        // The bits that are examined: as few as possible.
        let in_set = |mask: u8| {
            let has = move |other: &u8| other & mask == flags & mask;
            (0..=255u8).filter(has)
        };
        let mut mask = 0xff;
        for bit in 0..8 {
            let fewer = mask & !(1 << bit);
            if in_set(fewer).all(|other| matches[usize::from(other)]) {
                mask = fewer;
            }
        }
        in_set(mask).for_each(|other| is_covered[usize::from(other)] = true);
        match mask {
            // Any flags, but a header: with FIN, and without.
            0 => found.extend([0, FIN].map(|set| TcpFlags { set, mask: FIN })),
            _ => found.push(TcpFlags { set: flags & mask, mask }),
        }
    }
    Ok(Some(found))
}

/// The conditions of a rule on fragments: its kind, and the bit Don't Fragment.
type FragmentCondition = (Option<FragmentMatch>, Option<bool>);

/// Returns the conditions on fragments, one of which is to hold.
fn fragments(flow: &FlowSpec) -> Result<Option<Vec<FragmentCondition>>, &'static str> {
    let Some(list) = flow.operators(FRAGMENT) else { return Ok(None) };
    let is_any = |bits| list.iter().any(|operator| operator.value & bits != 0);
    if is_any(!FRAGMENT_BITS) {
        return Err("unknown fragment bits");
    }
    if flow.family == FlowFamily::V6 && is_any(DONT_FRAGMENT) {
        return Err("the fragment bit DF, which IPv6 does not have");
    }
    let [may, may_not] = [0, DONT_FRAGMENT].map(|bit| kinds(list, bit));
    let conditions = |kinds: Vec<Option<FragmentMatch>>, is_set: Option<bool>| {
        kinds.into_iter().map(move |kind| (kind, is_set))
    };
    Ok(Some(if may == may_not {
        conditions(may, None).collect()
    } else {
        conditions(may, Some(false)).chain(conditions(may_not, Some(true))).collect()
    }))
}

/// Returns the kinds of fragments that match with other bits; one that is none matches all packets.
fn kinds(list: &[Operator], others: u64) -> Vec<Option<FragmentMatch>> {
    let has = |bits| operators::matches_bits(list, bits | others);
    let [whole, first, middle, last] =
        [0, FIRST_FRAGMENT, IS_FRAGMENT, IS_FRAGMENT | LAST_FRAGMENT].map(has);
    if whole && first && middle && last {
        return vec![None];
    }
    if first && middle && last {
        return vec![Some(FragmentMatch::Yes)];
    }
    let later = middle && last;
    let kinds = [
        (whole, FragmentMatch::No),
        (first, FragmentMatch::First),
        (later, FragmentMatch::Later),
        (middle && !later, FragmentMatch::Middle),
        (last && !later, FragmentMatch::Last),
    ];
    kinds.into_iter().filter(|(is_one, _)| *is_one).map(|(_, kind)| Some(kind)).collect()
}

/// Returns the actions, each with the DSCP that packets get: the last one has it, since rules behind it would
/// compare the new one.
fn rule_actions(actions: &Actions) -> Vec<(Action, Option<u8>)> {
    let Actions { is_discard, rates, dscp, continues, unsupported: _ } = actions;
    if *is_discard {
        return vec![(Action::Deny, None)];
    }
    let mut all: Vec<_> = rates.iter().map(|rate| (Action::Police(*rate), None)).collect();
    match (*continues, all.is_empty()) {
        (false, _) => all.push((Action::Permit, None)),
        (true, true) => all.push((Action::Count, None)),
        (true, false) => {}
    }
    if let Some((_, set_dscp)) = all.last_mut() {
        *set_dscp = *dscp;
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flow::tests::flow;
    use crate::operators::Operator;

    fn text(flow: &FlowSpec, communities: &[[u8; 8]]) -> Result<Vec<String>, &'static str> {
        let rules = rules(flow, &Actions::new(communities))?;
        Ok(rules.iter().map(ToString::to_string).collect())
    }

    const DISCARD: [u8; 8] = [0x80, 6, 0, 0, 0, 0, 0, 0];

    #[test]
    fn flow_has_its_rules() {
        let cases: [(FlowFamily, &[u8], &[&str]); 14] = [
            (FlowFamily::V4, &[1, 24, 192, 0, 2], &["deny to 192.0.2.0/24"]),
            (FlowFamily::V4, &[3, 0x81, 17], &["deny to 0.0.0.0/0 ipproto udp"]),
            (FlowFamily::V6, &[3, 0x81, 17], &["deny to ::/0 ipproto udp"]),
            (
                FlowFamily::V6,
                &[2, 32, 0, 0x20, 1, 0xd, 0xb8, 7, 0x81, 128],
                &["deny from 2001:db8::/32 ipproto ipv6-icmp icmptype 128"],
            ),
            (
                FlowFamily::V4,
                &[4, 0x91, 0, 53],
                &[
                    "deny to 0.0.0.0/0 ipproto 6,17 sport 53",
                    "deny to 0.0.0.0/0 ipproto 6,17 dport 53",
                ],
            ),
            (
                FlowFamily::V4,
                &[3, 0x81, 17, 4, 0x81, 53, 5, 0x03, 10, 0xc5, 60],
                &[
                    "deny to 0.0.0.0/0 ipproto udp sport 53 dport 10-60",
                    "deny to 0.0.0.0/0 ipproto udp dport 53",
                ],
            ),
            (
                FlowFamily::V4,
                &[9, 0x00, 0x05, 0x80, 0x02],
                &[
                    "deny to 0.0.0.0/0 ipproto tcp flags fin",
                    "deny to 0.0.0.0/0 ipproto tcp flags syn",
                    "deny to 0.0.0.0/0 ipproto tcp flags rst",
                ],
            ),
            (
                FlowFamily::V4,
                &[9, 0x01, 0x02, 0xc2, 0x10],
                &["deny to 0.0.0.0/0 ipproto tcp flags syn/syn,ack"],
            ),
            (FlowFamily::V4, &[12, 0x80, 6], &["deny to 0.0.0.0/0 fragment yes"]),
            (FlowFamily::V6, &[13, 0x81, 9], &["deny to ::/0 flowlabel 9"]),
            (
                FlowFamily::V6,
                &[1, 48, 32, 1, 2, 2, 128, 120, 7],
                &["deny to ::/0 srcbits ::7/::ff dstbits 0:0:102::/0:0:ffff::"],
            ),
            (
                FlowFamily::V4,
                &[10, 0x13, 0x02, 0x58, 0xd5, 0x05, 0xdc, 11, 0x81, 46, 12, 0x82, 2],
                &[
                    "deny to 0.0.0.0/0 fragment no dscp 46 length 600-1500",
                    "deny to 0.0.0.0/0 fragment first dscp 46 length 600-1500",
                ],
            ),
            (
                FlowFamily::V4,
                &[9, 0x00, 0x02, 0x82, 0x02],
                &[
                    "deny to 0.0.0.0/0 ipproto tcp flags none/fin",
                    "deny to 0.0.0.0/0 ipproto tcp flags fin",
                ],
            ),
            // ICMP with ports.
            (FlowFamily::V4, &[3, 0x81, 1, 5, 0x81, 9], &[]),
        ];
        for (family, octets, expected) in cases {
            let flow = flow(family, octets);
            assert_eq!(
                text(&flow, &[DISCARD]),
                Ok(expected.iter().map(ToString::to_string).collect()),
                "{flow}"
            );
        }
        for impossible in [&[5, 0x81, 9, 12, 0x80, 2][..], &[5, 0x80, 9], &[11, 0x81, 64]] {
            assert_eq!(text(&flow(FlowFamily::V4, impossible), &[DISCARD]), Ok(vec![]));
        }
    }

    #[test]
    fn actions_are_those_of_rules() {
        let udp = flow(FlowFamily::V4, &[3, 0x81, 17]);
        let [a, b, c, d] = 125_000f32.to_be_bytes();
        let rate = [0x80, 6, 0, 0, a, b, c, d];
        let proceed = [0x80, 7, 0, 0, 0, 0, 0, 1];
        let with = |communities: &[[u8; 8]]| text(&udp, communities).expect("rules");
        assert_eq!(with(&[]), ["permit to 0.0.0.0/0 ipproto udp"]);
        assert_eq!(with(&[proceed]), ["count to 0.0.0.0/0 ipproto udp"]);
        assert_eq!(
            with(&[rate]),
            ["police 1mbit to 0.0.0.0/0 ipproto udp", "permit to 0.0.0.0/0 ipproto udp"]
        );
        assert_eq!(with(&[rate, proceed]), ["police 1mbit to 0.0.0.0/0 ipproto udp"]);
        // The rate is that of both rules together.
        let either = flow(FlowFamily::V4, &[4, 0x91, 0, 53]);
        let texts = text(&either, &[rate]).unwrap();
        let named = texts.iter().filter_map(|text| text.split(' ').nth(3)).collect::<Vec<_>>();
        assert_eq!((texts.len(), named.len()), (4, 4));
        assert!(texts[0].starts_with("police 1mbit policer flow-") && named[0] == named[2]);
        assert_eq!(
            (&*texts[1], &*texts[3]),
            (
                "permit to 0.0.0.0/0 ipproto 6,17 sport 53",
                "permit to 0.0.0.0/0 ipproto 6,17 dport 53",
            )
        );
        let mark = [0x80, 9, 0, 0, 0, 0, 0, 46];
        assert_eq!(with(&[mark]), ["permit setdscp 46 to 0.0.0.0/0 ipproto udp"]);
        assert_eq!(with(&[mark, DISCARD]), ["deny to 0.0.0.0/0 ipproto udp"]);
        assert_eq!(with(&[mark, proceed]), ["count setdscp 46 to 0.0.0.0/0 ipproto udp"]);
        assert_eq!(
            with(&[rate, mark]),
            ["police 1mbit to 0.0.0.0/0 ipproto udp", "permit setdscp 46 to 0.0.0.0/0 ipproto udp"]
        );
        assert_eq!(
            with(&[rate, mark, proceed]),
            ["police 1mbit setdscp 46 to 0.0.0.0/0 ipproto udp"]
        );
        assert_eq!(text(&udp, &[[0x80, 8, 0, 0, 0, 0, 0, 1]]), Err("redirection to a VRF"));
    }

    #[test]
    fn conditions_beyond_access_lists_are_refused() {
        for (family, octets, expected) in [
            (FlowFamily::V4, &[12, 0x80, 16][..], "unknown fragment bits"),
            (FlowFamily::V6, &[12, 0x80, 1], "the fragment bit DF, which IPv6 does not have"),
            (FlowFamily::V4, &[9, 0x91, 1, 0], "TCP flags of the upper octet"),
        ] {
            assert_eq!(text(&flow(family, octets), &[DISCARD]), Err(expected));
        }
    }

    /// A search of all sets of flags is the slow twin of the sets that are found.
    #[test]
    fn sets_of_flags_are_those_that_the_masks_match() {
        let mut state = 3u32;
        let mut random = || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 16) as u8
        };
        for _ in 0..200 {
            let mut octets = vec![9];
            for _ in 0..random() % 3 {
                octets.extend([random() & 0x43, random()]);
            }
            octets.extend([0x80 | random() & 0x43, random()]);
            let flow = flow(FlowFamily::V4, &octets);
            let sets = flags(&flow).expect("expressible").expect("flags");
            for value in 0..=255u8 {
                let expected = operators::matches_bits(
                    flow.operators(TCP_FLAGS).expect("flags"),
                    value.into(),
                );
                let matches = |set: &TcpFlags| set.matches(value);
                assert_eq!(sets.iter().any(matches), expected, "{flow}: {value:#x}");
            }
        }
    }

    /// Compares a flow specification with an IPv4 packet, component by component.
    fn matches(flow: &FlowSpec, packet: &[u8]) -> bool {
        let header = &packet[20..];
        let protocol = u64::from(packet[9]);
        let offset = u16::from_be_bytes([packet[6], packet[7]]);
        let (is_first, is_later) = (offset & 0x3fff == 0x2000, offset & 0x1fff != 0);
        let number = |at: usize| u16::from_be_bytes([header[at], header[at + 1]]).into();
        let has_ports = matches!(protocol, 6 | 17) && !is_later;
        let holds = |list: &[Operator], number: u64| {
            let is_in =
                |(first, last): &(u32, u32)| (u64::from(*first)..=(*last).into()).contains(&number);
            operators::ranges(list, u16::MAX.into()).iter().any(is_in)
        };
        flow.components.iter().all(|component| {
            let list = match &component.condition {
                Condition::Prefix(FlowPrefix { len, bits, .. }) => {
                    let at = if component.kind == DESTINATION { 16 } else { 12 };
                    let address = u32::from_be_bytes([0, 1, 2, 3].map(|i| packet[at + i]));
                    let mask = u32::MAX.checked_shl(32 - u32::from(*len)).unwrap_or(0);
                    return address & mask == (*bits >> 96) as u32 & mask;
                }
                Condition::Operators(list) => list,
            };
            match component.kind {
                PROTOCOL => holds(list, protocol),
                PORT => has_ports && (holds(list, number(0)) || holds(list, number(2))),
                SOURCE_PORT => has_ports && holds(list, number(0)),
                DESTINATION_PORT => has_ports && holds(list, number(2)),
                ICMP_TYPE => protocol == 1 && !is_later && holds(list, header[0].into()),
                ICMP_CODE => protocol == 1 && !is_later && holds(list, header[1].into()),
                TCP_FLAGS => {
                    protocol == 6 && !is_later && operators::matches_bits(list, header[13].into())
                }
                LENGTH => holds(list, packet.len() as u64),
                DSCP => holds(list, u64::from(packet[1] >> 2)),
                FRAGMENT => {
                    let has_more = packet[6] & 0x20 != 0;
                    let bits = u64::from(packet[6] & 0x40 != 0) * DONT_FRAGMENT
                        + u64::from(is_first) * FIRST_FRAGMENT
                        + u64::from(is_later) * IS_FRAGMENT
                        + u64::from(is_later && !has_more) * LAST_FRAGMENT;
                    operators::matches_bits(list, bits)
                }
                kind => panic!("{kind} of IPv4"),
            }
        })
    }

    #[test]
    fn rules_match_the_packets_that_the_flow_matches() {
        let mut state = 11u32;
        let mut random = |below: u32| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 8) % below
        };
        let values: [&[u8]; 13] = [
            &[],
            &[],
            &[],
            &[1, 6, 17, 47],
            &[9, 80, 81],
            &[9, 80, 81],
            &[9, 80],
            &[0, 3, 8],
            &[0, 1],
            &[1, 2, 16, 18],
            &[24, 40, 60],
            &[0, 10, 46],
            &[1, 2, 3, 4, 6, 8, 9, 10],
        ];
        let (mut found, mut several) = (0, 0);
        for _ in 0..3000 {
            let mut octets = Vec::new();
            for kind in [1u8, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12] {
                if random(5) > 0 {
                    continue;
                }
                octets.push(kind);
                if kind <= SOURCE {
                    octets.extend([7 + random(3) as u8, 10 + random(2) as u8, 0]);
                    let short = octets.len() - 3;
                    if octets[short] <= 8 {
                        octets.pop();
                    }
                    continue;
                }
                let count = 1 + random(3);
                for at in 0..count {
                    let end = if at + 1 == count { 0x80 } else { 0 };
                    let bits = if matches!(kind, TCP_FLAGS | FRAGMENT) { 3 } else { 7 };
                    let of = values[usize::from(kind)];
                    octets.extend([
                        end | (random(128) as u8 & (0x40 | bits)),
                        of[random(of.len() as u32) as usize],
                    ]);
                }
            }
            if octets.is_empty() {
                continue;
            }
            let flow = flow(FlowFamily::V4, &octets);
            let rules = rules(&flow, &Actions::new(&[DISCARD])).expect("expressible");
            several += usize::from(rules.len() > 1);
            for _ in 0..60 {
                let mut packet = vec![0u8; [24, 40, 60][random(3) as usize]];
                packet[0] = 0x45;
                packet[1] = [0, 10, 46][random(3) as usize] << 2;
                packet[3] = packet.len() as u8;
                packet[6] = [0, 0, 0x20, 0x20, 0x40, 0x60][random(6) as usize];
                packet[7] = [0, 0, 1][random(3) as usize];
                packet[9] = [1, 6, 17, 47][random(4) as usize];
                packet[12] = 10 + random(2) as u8;
                packet[16] = 10 + random(2) as u8;
                packet[20] = if packet[9] == 1 { [0, 3, 8][random(3) as usize] } else { 0 };
                packet[21] = [0, 1, 9, 80][random(4) as usize];
                packet[23] = [9, 80, 81][random(3) as usize];
                if packet.len() > 34 {
                    packet[33] = [1, 2, 16, 18][random(4) as usize];
                } else if packet[9] == 6 {
                    // Without flags.
                    continue;
                }
                let fields = <u32 as acl::PacketFamily>::fields(&packet).expect("a packet");
                let by_rules = rules.iter().any(|rule| rule.matches(&fields));
                assert_eq!(by_rules, matches(&flow, &packet), "{flow}: {packet:02x?}");
                found += usize::from(by_rules);
            }
        }
        assert!(found > 3000 && several > 100, "{found} matches, {several} of several rules");
    }
}
