//! The classifier against its slow twin: random lists, random packets, damaged ones too.

use acl::{AccessList, Addresses, Matcher, PacketFamily, Rule};
use fastrand::Rng;
use fingerpost_acl as acl;

/// Few values, so that rules overlap and packets meet their borders.
fn address(rng: &mut Rng, is_v6: bool) -> String {
    let low = rng.u8(..4);
    match is_v6 {
        false => format!("10.{}.{}.{low}", rng.u8(..3), rng.u8(..3)),
        true => format!("2001:db8:{}::{low}", rng.u8(..3)),
    }
}

fn prefix(rng: &mut Rng, is_v6: bool) -> String {
    if is_v6 {
        let len = [0, 16, 32, 47, 48, 64, 127, 128][rng.usize(..8)];
        let address: std::net::Ipv6Addr = address(rng, true).parse().unwrap();
        fib::Prefix::truncate(u128::from(address), len).to_string()
    } else {
        let len = [0, 8, 15, 16, 24, 31, 32][rng.usize(..7)];
        let address: std::net::Ipv4Addr = address(rng, false).parse().unwrap();
        fib::Prefix::truncate(u32::from(address), len).to_string()
    }
}

fn prefixes(rng: &mut Rng) -> String {
    let (is_v6, is_mixed) = (rng.bool(), rng.u8(..8) == 0);
    let each = (0..rng.usize(1..4)).map(|_| {
        let is_v6 = if is_mixed { rng.bool() } else { is_v6 };
        prefix(rng, is_v6)
    });
    each.collect::<Vec<_>>().join(",")
}

fn ranges(rng: &mut Rng, most: u32) -> String {
    let values = [0, 1, 7, 8, 22, 53, 80, most / 2, most - 1, most];
    let value = |rng: &mut Rng| values[rng.usize(..values.len())].min(most);
    let each = (0..rng.usize(1..4)).map(|_| {
        let (a, b) = (value(rng), value(rng));
        if rng.bool() { a.to_string() } else { format!("{}-{}", a.min(b), a.max(b)) }
    });
    each.collect::<Vec<_>>().join(",")
}

/// Writes a random rule; some are refused.
fn rule(rng: &mut Rng) -> String {
    let mut text = match rng.u8(..6) {
        0 => "count".to_owned(),
        1 => "police 10mbit".to_owned(),
        2 => "mirror eth9".to_owned(),
        3 => "permit".to_owned(),
        _ => "deny".to_owned(),
    };
    let add = |text: &mut String, rng: &mut Rng, part: &dyn Fn(&mut Rng) -> String| {
        if rng.u8(..3) == 0 {
            text.push(' ');
            text.push_str(&part(rng));
        }
    };
    if !text.starts_with("deny") {
        add(&mut text, rng, &|rng| format!("setdscp {}", [0, 1, 46, 63][rng.usize(..4)]));
    }
    if text.starts_with("police") {
        add(&mut text, rng, &|rng| format!("policer {}", ["a", "b-2"][rng.usize(..2)]));
    }
    add(&mut text, rng, &|rng| format!("from {}", prefixes(rng)));
    add(&mut text, rng, &|rng| format!("to {}", prefixes(rng)));
    match rng.u8(..6) {
        0 => {
            text.push_str(" ipproto tcp");
            add(&mut text, rng, &|rng| {
                let flags = ["syn/syn,ack", "none/fin,syn", "ack", "fin,psh,urg"];
                format!("flags {}", flags[rng.usize(..flags.len())])
            });
            add(&mut text, rng, &|rng| format!("dport {}", ranges(rng, 65_535)));
        }
        1 => {
            text.push_str(" ipproto udp,17,sctp");
            add(&mut text, rng, &|rng| format!("sport {}", ranges(rng, 65_535)));
        }
        2 => {
            text.push_str(if rng.bool() { " ipproto icmp" } else { " ipproto ipv6-icmp" });
            add(&mut text, rng, &|rng| format!("icmptype {}", ranges(rng, 255)));
            add(&mut text, rng, &|rng| format!("icmpcode {}", ranges(rng, 255)));
        }
        3 => {
            add(&mut text, rng, &|rng| format!("sport {}", ranges(rng, 65_535)));
            add(&mut text, rng, &|rng| format!("dport {}", ranges(rng, 65_535)));
        }
        4 => add(&mut text, rng, &|rng| format!("ipproto {}", ranges(rng, 255))),
        _ => {}
    }
    add(&mut text, rng, &|rng| {
        let kinds = ["yes", "no", "first", "later", "middle", "last"];
        format!("fragment {}", kinds[rng.usize(..kinds.len())])
    });
    add(&mut text, rng, &|rng| format!("df {}", ["yes", "no"][rng.usize(..2)]));
    add(&mut text, rng, &|rng| format!("dscp {}", ranges(rng, 63)));
    add(&mut text, rng, &|rng| format!("length {}", ranges(rng, 200)));
    if rng.u8(..4) == 0 {
        add(&mut text, rng, &|rng| format!("flowlabel {}", ranges(rng, 0xf_ffff)));
        let bits = ["::1/::1", "::/::1", "2001::/ffff::", "::1:0:0:0:0/::f:0:0:0:0"];
        add(&mut text, rng, &|rng| format!("srcbits {}", bits[rng.usize(..4)]));
        add(&mut text, rng, &|rng| format!("dstbits {}", bits[rng.usize(..4)]));
    }
    text
}

/// Makes a list of random rules; `accepts` chooses among them.
fn list(rng: &mut Rng, rules: usize, accepts: fn(&Rule) -> bool) -> AccessList {
    let mut parsed = Vec::new();
    let mut named = Addresses::default();
    named.add("10.1.0.0/16").unwrap();
    named.add("2001:db8:1::/48").unwrap();
    while parsed.len() < rules {
        let text = rule(rng).replace("10.1.0.0/16", "@named");
        if let Ok(rule) = Rule::parse(&text, &|_| Some(&named)) {
            let same = Rule::parse(&rule.to_string(), &|_| Some(&named)).unwrap();
            assert_eq!(rule, same, "{text}");
            parsed.extend(Some(rule).filter(accepts));
        }
    }
    AccessList::build("random", rng.bool(), parsed).unwrap()
}

fn port(rng: &mut Rng) -> [u8; 2] {
    [0_u16, 1, 7, 8, 22, 53, 80, 32_767, 65_534, 65_535][rng.usize(..10)].to_be_bytes()
}

/// Makes a packet whose payload may be cut; its header is valid for the classifier in most cases.
fn packet(rng: &mut Rng, is_v6: bool) -> Vec<u8> {
    let protocol = [1, 6, 17, 47, 58, 132, rng.u8(..)][rng.usize(..7)];
    let mut payload: Vec<u8> = (0..rng.usize(..60)).map(|_| rng.u8(..)).collect();
    if payload.len() >= 4 && rng.u8(..4) > 0 {
        payload[..2].copy_from_slice(&port(rng));
        payload[2..4].copy_from_slice(&port(rng));
    }
    let mut bytes = Vec::new();
    if is_v6 {
        let mut next = protocol;
        // Extension headers, from the last to the first.
        for _ in 0..rng.usize(..3) {
            let kind = [0, 60, 43, 44, 51][rng.usize(..5)];
            let mut header = vec![next, 0, 0, rng.u8(..4) & 1, 0, 0, 0, 7];
            if kind == 44 && rng.bool() {
                header[2] = 1;
            }
            if kind == 51 {
                header[1] = 1;
                header.extend([0; 4]);
            }
            header.extend(payload);
            (payload, next) = (header, kind);
        }
        let dscp = rng.u8(..64) & [63, 0, 1][rng.usize(..3)];
        let label = [0, 1, 0x7fff, 0xf_ffff, rng.u32(..1 << 20)][rng.usize(..5)].to_be_bytes();
        bytes.extend([0x60 | dscp >> 2, dscp << 6 | label[1], label[2], label[3]]);
        bytes.extend((payload.len() as u16).to_be_bytes());
        bytes.extend([next, 64]);
        for _ in 0..2 {
            let address: std::net::Ipv6Addr = address(rng, true).parse().unwrap();
            bytes.extend(address.octets());
        }
    } else {
        let options = 4 * rng.usize(..3);
        let fragment: u16 = [0, 0, 0x4000, 0x2000, 0x2001, 0x0010][rng.usize(..6)];
        let total = (20 + options + payload.len()) as u16;
        bytes.extend([0x45 + options as u8 / 4, rng.u8(..)]);
        bytes.extend(total.to_be_bytes());
        bytes.extend([0, 1]);
        bytes.extend(fragment.to_be_bytes());
        bytes.extend([64, protocol, 0, 0]);
        for _ in 0..2 {
            let address: std::net::Ipv4Addr = address(rng, false).parse().unwrap();
            bytes.extend(address.octets());
        }
        bytes.resize(20 + options, 1);
    }
    bytes.extend(payload);
    bytes.extend(vec![0; rng.usize(..3)]);
    bytes
}

/// Returns the rules that act on packet `at`, by the classifier.
fn quickly<A: PacketFamily>(
    list: &AccessList,
    classifier: &acl::Classifier<A>,
    matcher: &mut Matcher<A>,
    at: usize,
) -> Vec<usize> {
    let (mut found, mut from) = (Vec::new(), 0);
    while let Some(rule) = matcher.first(classifier, at, from) {
        found.push(rule as usize);
        let Rule { action, set_dscp, .. } = &list.rules()[rule as usize];
        if action.is_terminal() {
            break;
        }
        if let Some(dscp) = set_dscp {
            matcher.set_dscp(classifier, at, *dscp);
        }
        from = rule + 1;
    }
    found
}

/// Matches of rules, and packets that the address filter let no rule see.
#[derive(Default)]
struct Compared {
    matched: usize,
    filtered: usize,
}

fn compare<A: PacketFamily>(
    rng: &mut Rng,
    list: &AccessList,
    classifier: &acl::Classifier<A>,
    batches: usize,
) -> Compared {
    let mut matcher = Matcher::<A>::new(256);
    let mut compared = Compared::default();
    for _ in 0..batches {
        matcher.clear();
        let packets: Vec<_> = (0..rng.usize(1..=256)).map(|_| packet(rng, A::BITS > 32)).collect();
        let fields: Vec<_> = packets.iter().map(|packet| A::fields(packet).unwrap()).collect();
        let each = (0..packets.len() as u16).zip(&packets);
        let filtered: Vec<u16> = each
            .filter_map(|(number, packet)| {
                (!matcher.push(classifier, number, packet)).then_some(number)
            })
            .collect();
        let (count, bytes) = matcher.unmatched();
        assert_eq!(count, filtered.len() as u64);
        let lengths = filtered.iter().map(|&number| u64::from(fields[usize::from(number)].length));
        assert_eq!(bytes, lengths.sum::<u64>());
        assert_eq!(matcher.numbers().len() + filtered.len(), packets.len());
        for number in filtered {
            let fields = &fields[usize::from(number)];
            assert_eq!(list.matches(fields).next(), None, "{fields:?}");
            compared.filtered += 1;
        }
        matcher.classify(classifier, |number| &packets[usize::from(number)]);
        for at in 0..matcher.numbers().len() {
            let (number, length) = matcher.packet(at);
            let (packet, fields) = (&packets[usize::from(number)], &fields[usize::from(number)]);
            let slowly: Vec<_> = list.matches(fields).collect();
            let quickly = quickly(list, classifier, &mut matcher, at);
            assert_eq!(quickly, slowly, "{fields:?} of {packet:02x?}");
            assert_eq!(length, fields.length);
            compared.matched += slowly.len();
        }
    }
    compared
}

#[test]
fn classifier_gives_the_rules_of_a_linear_search_in_their_order() {
    let rounds = if cfg!(debug_assertions) { 20 } else { 200 };
    for seed in 0..rounds {
        let mut rng = Rng::with_seed(seed);
        let rules = [0, 1, 3, 10, 64, 65, 300, 1000][seed as usize % 8];
        let list = list(&mut rng, rules, |_| true);
        let v4 = compare(&mut rng, &list, list.v4(), 4);
        let v6 = compare(&mut rng, &list, list.v6(), 4);
        let matched = v4.matched + v6.matched;
        assert!(matched > 0 || rules < 3, "seed {seed}: no packet matched {rules} rules");
    }
}

/// Lists whose rules all have addresses have an address filter.
#[test]
fn filtered_packets_match_no_rule() {
    let is_addressed = |rule: &Rule| rule.from.is_some() || rule.to.is_some();
    let (mut matched, mut filtered) = (0, 0);
    let rounds = if cfg!(debug_assertions) { 20 } else { 200 };
    for seed in 0..rounds {
        let mut rng = Rng::with_seed(seed);
        let rules = [1, 2, 3, 5, 10, 65][seed as usize % 6];
        let list = list(&mut rng, rules, is_addressed);
        for each in [compare(&mut rng, &list, list.v4(), 4), compare(&mut rng, &list, list.v6(), 4)]
        {
            matched += each.matched;
            filtered += each.filtered;
        }
    }
    assert!(matched > 1000 && filtered > 1000, "{matched} matches, {filtered} filtered");
}

#[test]
fn classifier_of_ten_thousand_rules_gives_those_of_a_linear_search() {
    let mut rng = Rng::with_seed(7);
    let list = list(&mut rng, 10_000, |_| true);
    let v4 = compare(&mut rng, &list, list.v4(), 1);
    let v6 = compare(&mut rng, &list, list.v6(), 1);
    assert!(v4.matched + v6.matched > 100);
}
