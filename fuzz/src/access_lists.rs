//! Plays rules of access lists and packets against them.
//!
//! ```text
//! input: lines of rules, a byte 0, and packets: a length of one byte, and so many bytes
//!
//!   line ─► Rule ─► text ─► Rule                      the same rule
//!   rules, packet ─┬─► classifier ─► numbers of rules ┐
//!                  └─► linear search of the rules ────┴─ equal, in order
//! ```
//!
//! A packet is tried as IPv4 and as IPv6: the matcher accepts it if its fields can be read.

use acl::{AccessList, Addresses, Classifier, Fields, Matcher, PacketFamily, Rule};

/// The most packets of an input.
const MOST_PACKETS: usize = 64;

/// Counts of the inputs' contents.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tally {
    /// Rules that were accepted.
    pub rules: usize,
    /// Lines that were refused.
    pub refused: usize,
    /// Packets that were classified.
    pub packets: usize,
    /// Rules that matched a packet.
    pub matches: usize,
}

/// Plays one input.
///
/// # Panics
///
/// If a rule differs when it is written and parsed again, or if the classifier and the linear search find
/// different rules.
pub fn access_lists(input: &[u8], tally: &mut Tally) {
    let end = input.iter().position(|byte| *byte == 0).unwrap_or(input.len());
    let (text, packets) = input.split_at(end);
    let Ok(text) = std::str::from_utf8(text) else { return };
    let mut named = Addresses::default();
    for prefix in ["10.1.0.0/16", "2001:db8:1::/48"] {
        named.add(prefix).unwrap_or_else(|error| panic!("{prefix}: {error}"));
    }
    let find = |name: &str| (name == "named").then_some(&named);
    let mut rules = Vec::new();
    for line in text.lines() {
        match Rule::parse(line, &find) {
            Ok(rule) => {
                let written = rule.to_string();
                let parsed = Rule::parse(&written, &find);
                assert_eq!(parsed.as_ref(), Ok(&rule), "{line:?} is written as {written:?}");
                rules.push(rule);
            }
            Err(error) => {
                assert!(!error.to_string().is_empty(), "{line:?} has an error without a text");
                tally.refused += 1;
            }
        }
    }
    tally.rules += rules.len();
    let Ok(list) = AccessList::build("fuzzed", false, rules) else { return };
    let packets = split(packets.get(1..).unwrap_or_default());
    compare(&list, list.v4(), &packets, tally);
    compare(&list, list.v6(), &packets, tally);
}

/// Divides bytes into packets.
fn split(mut bytes: &[u8]) -> Vec<&[u8]> {
    let mut packets = Vec::new();
    while let Some((&len, rest)) = bytes.split_first()
        && packets.len() < MOST_PACKETS
    {
        let (packet, rest) = rest.split_at(rest.len().min(len.into()));
        packets.push(packet);
        bytes = rest;
    }
    packets
}

/// Compares the classifier of one family with the linear search.
fn compare<A: PacketFamily>(
    list: &AccessList,
    classifier: &Classifier<A>,
    packets: &[&[u8]],
    tally: &mut Tally,
) {
    let mut matcher = Matcher::<A>::new(MOST_PACKETS);
    let valid: Vec<(&[u8], Fields<A>)> =
        packets.iter().filter_map(|packet| Some((*packet, A::fields(packet)?))).collect();
    for (number, (packet, _)) in (0..).zip(&valid) {
        if !matcher.push(classifier, number, packet) {
            let (_, fields) = &valid[usize::from(number)];
            assert_eq!(list.matches(fields).next(), None, "{fields:?}");
        }
    }
    let counted = matcher.unmatched().0 as usize + matcher.numbers().len();
    assert_eq!(counted, valid.len(), "each is counted or may be matched");
    matcher.classify(classifier, |number| valid[usize::from(number)].0);
    for at in 0..matcher.numbers().len() {
        let (_, fields) = &valid[usize::from(matcher.packet(at).0)];
        let slowly: Vec<usize> = list.matches(fields).collect();
        let mut quickly = Vec::new();
        let mut from = 0;
        while let Some(rule) = matcher.first(classifier, at, from) {
            quickly.push(rule as usize);
            let Rule { action, set_dscp, .. } = &list.rules()[rule as usize];
            if action.is_terminal() {
                break;
            }
            if let Some(dscp) = set_dscp {
                matcher.set_dscp(classifier, at, *dscp);
            }
            from = rule + 1;
        }
        assert_eq!(quickly, slowly, "{fields:?}");
        tally.matches += slowly.len();
    }
    tally.packets += valid.len();
}
