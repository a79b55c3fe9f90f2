//! Text: a rule as one line, in the words of `ip rule`.
//!
//! ```text
//!   permit from 192.0.2.0/24,@partners to any ipproto tcp dport 22,80-90
//!   deny   ipproto tcp flags syn/syn,ack to 198.51.100.7
//!   police 10mbit ipproto icmp icmptype 8
//!   sample 1000 eth9 dscp ef length 0-128
//! ```
//!
//! | word | value |
//! |---|---|
//! | `permit`, `deny`, `count` | – |
//! | `police` | a rate: `1000pps`, `64kbit`, `10mbit`, `1gbit` |
//! | `mirror` | the interface that a copy of each packet leaves by |
//! | `sample` | a copy of one packet in so many, and the interface |
//! | `setdscp` | the code point that packets get |
//! | `policer` | the name of the policer that `police` rules of the list share |
//! | `from`, `to` | prefixes, addresses, and `@` with the name of a list of them; `any` |
//! | `srcbits`, `dstbits` | bits of the IPv6 source or destination: `::1200/::ff00`, a value and a mask |
//! | `ipproto` | protocols by number or name |
//! | `sport`, `dport` | ports, for TCP, UDP, UDP-Lite, SCTP and DCCP |
//! | `icmptype`, `icmpcode` | numbers, with `ipproto icmp` or `ipproto ipv6-icmp` |
//! | `flags` | the TCP flags that are set, and behind `/` those that are examined |
//! | `fragment` | `yes`, `no`, `first`, `later` (behind the first), `middle` or `last` |
//! | `df` | `yes` or `no`: the bit Don't Fragment of IPv4 |
//! | `dscp` | code points by number or name (RFC 2474, 2597, 3246, 5865, 8622) |
//! | `length` | bytes of the IP packet |
//! | `flowlabel` | flow labels of IPv6 (RFC 6437) |
//!
//! Several values of a word have commas between them, without spaces; two numbers with `-` are a range.

use std::fmt;

use wire::ports::WITH_PORTS;
use wire::tcp;

use crate::{Action, AddressBits, Addresses, FragmentMatch, Ranges, Rate, Rule, TcpFlags};

/// The error of a rule's text: what is wrong, and the remedy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuleError(pub String);

impl fmt::Display for RuleError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for RuleError {}

impl From<String> for RuleError {
    fn from(what: String) -> Self {
        Self(what)
    }
}

const PROTOCOLS: &[(&str, u8)] = &[
    ("icmp", 1),
    ("igmp", 2),
    ("ipip", 4),
    ("tcp", 6),
    ("udp", 17),
    ("dccp", 33),
    ("ipv6", 41),
    ("gre", 47),
    ("esp", 50),
    ("ah", 51),
    ("icmpv6", 58),
    ("ipv6-icmp", 58),
    ("ospf", 89),
    ("pim", 103),
    ("vrrp", 112),
    ("l2tp", 115),
    ("sctp", 132),
    ("udplite", 136),
];

const FLAGS: [(&str, u8); 8] = [
    ("fin", tcp::FIN),
    ("syn", tcp::SYN),
    ("rst", tcp::RST),
    ("psh", tcp::PSH),
    ("ack", tcp::ACK),
    ("urg", tcp::URG),
    ("ece", tcp::ECE),
    ("cwr", tcp::CWR),
];

const WORDS: &str = "from, to, srcbits, dstbits, ipproto, sport, dport, icmptype, icmpcode, flags, fragment, df, dscp, length, flowlabel, setdscp or policer";
const ACTIONS: &str = "permit, deny, count, police, mirror or sample";

impl Rule {
    /// Parses a rule; `list` returns the list of addresses with a name.
    ///
    /// # Errors
    ///
    /// [`RuleError`]: an unknown word, a bad value, or conditions that no packet fulfils.
    pub fn parse<'l>(
        text: &str,
        list: &dyn Fn(&str) -> Option<&'l Addresses>,
    ) -> Result<Self, RuleError> {
        let mut words = text.split_whitespace();
        let mut rule = Self::all(action(&mut words)?);
        let mut seen = Vec::new();
        while let Some(word) = words.next() {
            if seen.contains(&word) {
                return Err(RuleError(format!(
                    "{word:?} is a duplicate: separate values by commas"
                )));
            }
            seen.push(word);
            let mut value = || words.next().ok_or_else(|| format!("{word:?} has no value"));
            match word {
                "setdscp" => rule.set_dscp = Some(dscp(value()?)?),
                "policer" => rule.policer = Some(policer(value()?)?),
                "from" => rule.from = addresses(value()?, list)?,
                "to" => rule.to = addresses(value()?, list)?,
                "srcbits" => rule.source_bits = Some(AddressBits::parse(value()?)?),
                "dstbits" => rule.destination_bits = Some(AddressBits::parse(value()?)?),
                "ipproto" => rule.protocols = Some(Ranges::parse(value()?, 255, protocol)?),
                "sport" => rule.source_ports = Some(numbers(value()?, u16::MAX.into())?),
                "dport" => rule.destination_ports = Some(numbers(value()?, u16::MAX.into())?),
                "icmptype" => rule.icmp_types = Some(numbers(value()?, 255)?),
                "icmpcode" => rule.icmp_codes = Some(numbers(value()?, 255)?),
                "flags" => rule.flags = Some(flags(value()?)?),
                "fragment" => rule.fragment = Some(fragment(value()?)?),
                "df" => rule.dont_fragment = Some(yes_or_no(value()?)?),
                "dscp" => rule.dscp = Some(Ranges::parse(value()?, 63, code_point)?),
                "length" => rule.lengths = Some(numbers(value()?, u16::MAX.into())?),
                "flowlabel" => rule.flow_labels = Some(numbers(value()?, 0xf_ffff)?),
                _ => return Err(RuleError(format!("{word:?} is unknown: {WORDS}"))),
            }
        }
        rule.check()?;
        Ok(rule)
    }

    /// Refuses conditions that no packet fulfils.
    fn check(&self) -> Result<(), RuleError> {
        let is = |protocols: &[u8]| {
            self.protocols.as_ref().is_some_and(|ranges| {
                ranges.iter().all(|(first, last)| {
                    (first..=last).all(|number| protocols.iter().any(|p| u32::from(*p) == number))
                })
            })
        };
        let has_ports = self.source_ports.is_some() || self.destination_ports.is_some();
        if has_ports && self.protocols.is_some() && !is(&WITH_PORTS) {
            let what = "sport and dport need a protocol with ports: ipproto tcp, udp, udplite, sctp or dccp";
            return Err(RuleError(what.to_owned()));
        }
        if (self.icmp_types.is_some() || self.icmp_codes.is_some()) && !is(&[1]) && !is(&[58]) {
            let what = "icmptype and icmpcode need `ipproto icmp` or `ipproto ipv6-icmp`";
            return Err(RuleError(what.to_owned()));
        }
        if self.flags.is_some() && !is(&[tcp::PROTOCOL]) {
            return Err(RuleError("flags need `ipproto tcp`".to_owned()));
        }
        let needs_header = has_ports || self.icmp_types.is_some() || self.flags.is_some();
        if needs_header && self.fragment.is_some_and(FragmentMatch::is_later) {
            let what =
                "later fragments have no ports, ICMP type or TCP flags: remove that condition";
            return Err(RuleError(what.to_owned()));
        }
        if self.policer.is_some() && !matches!(self.action, Action::Police(_)) {
            return Err(RuleError("policer: only a `police` rule has one".to_owned()));
        }
        if self.action == Action::Deny && self.set_dscp.is_some() {
            return Err(RuleError("setdscp: the rule denies its packets".to_owned()));
        }
        if !self.is_about::<u32>() && !self.is_about::<u128>() {
            let what = match (self.dont_fragment.is_some(), self.is_of_ipv6()) {
                (true, true) => "df is of IPv4, and flowlabel, srcbits and dstbits are of IPv6",
                (true, false) => "df is a bit of IPv4: use IPv4 addresses",
                (false, true) => "flowlabel, srcbits and dstbits are of IPv6: use IPv6 addresses",
                (false, false) => "no packet has a source and a destination of different families",
            };
            return Err(RuleError(what.to_owned()));
        }
        Ok(())
    }
}

fn action<'w>(words: &mut impl Iterator<Item = &'w str>) -> Result<Action, RuleError> {
    let Some(word) = words.next() else {
        return Err(RuleError(format!("an empty rule: begin with {ACTIONS}")));
    };
    let mut value =
        |what: &str| words.next().ok_or_else(|| RuleError(format!("{word:?} has no {what}")));
    Ok(match word {
        "permit" => Action::Permit,
        "deny" => Action::Deny,
        "count" => Action::Count,
        "police" => Action::Police(rate(value("rate")?)?),
        "mirror" => Action::Mirror { interface: value("interface")?.to_owned(), one_in: 1 },
        "sample" => {
            let text = value("number of packets")?;
            let one_in =
                text.parse().ok().filter(|number| *number > 0).ok_or_else(|| {
                    RuleError(format!("{text:?} is not a number of packets above 0"))
                })?;
            Action::Mirror { interface: value("interface")?.to_owned(), one_in }
        }
        _ => return Err(RuleError(format!("{word:?} is not an action: {ACTIONS}"))),
    })
}

fn rate(text: &str) -> Result<Rate, String> {
    let digits = text.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let factor = match unit {
        "pps" | "bit" => 1,
        "kbit" => 1_000,
        "mbit" => 1_000_000,
        "gbit" => 1_000_000_000,
        _ => 0,
    };
    match number.parse::<u64>().ok().and_then(|number| number.checked_mul(factor)) {
        Some(rate) if rate > 0 && unit == "pps" => Ok(Rate::Packets(rate)),
        Some(rate) if rate > 0 => Ok(Rate::Bits(rate)),
        _ => {
            Err(format!("{text:?} is not a rate above 0 such as 1000pps, 64kbit, 10mbit or 1gbit"))
        }
    }
}

fn addresses<'l>(
    text: &str,
    list: &dyn Fn(&str) -> Option<&'l Addresses>,
) -> Result<Option<Addresses>, String> {
    if text == "any" {
        return Ok(None);
    }
    let mut addresses = Addresses::default();
    for part in text.split(',') {
        match part.strip_prefix('@') {
            Some(name) => {
                let list = list(name).ok_or_else(|| format!("there is no prefix list {name:?}"))?;
                addresses.add_list(name, list);
            }
            None => addresses.add(part)?,
        }
    }
    Ok(Some(addresses))
}

fn numbers(text: &str, most: u32) -> Result<Ranges, String> {
    Ranges::parse(text, most, |_| None)
}

fn protocol(name: &str) -> Option<u32> {
    PROTOCOLS.iter().find(|(known, _)| *known == name).map(|(_, number)| (*number).into())
}

fn code_point(name: &str) -> Option<u32> {
    let digit = |at: usize| {
        let digit = name.as_bytes().get(at)?;
        digit.is_ascii_digit().then(|| u32::from(digit - b'0'))
    };
    match (name.len(), name.get(..2)?) {
        (2, "ef") => Some(46),
        (2, "va") => Some(44),
        (2, "le") => Some(1),
        (3, "cs") => Some(8 * digit(2).filter(|class| *class < 8)?),
        (4, "af") => {
            let (class, drop) = (digit(2)?, digit(3)?);
            ((1..=4).contains(&class) && (1..=3).contains(&drop)).then_some(8 * class + 2 * drop)
        }
        _ => None,
    }
}

fn policer(text: &str) -> Result<String, String> {
    let is_word = |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '_' | '-');
    let is_valid = text.starts_with(|letter: char| letter.is_ascii_alphabetic())
        && text.chars().all(is_word)
        && text.len() <= 63;
    let what = || {
        format!(
            "policer: {text:?} is not a name: a letter, then letters, digits, `_` and `-`, at most 63"
        )
    };
    is_valid.then(|| text.to_owned()).ok_or_else(what)
}

fn dscp(text: &str) -> Result<u8, String> {
    let number = Ranges::parse(text, 63, code_point)?.number();
    let number = number.and_then(|number| u8::try_from(number).ok());
    number.ok_or_else(|| format!("setdscp: {text:?} is not one code point"))
}

fn flags(text: &str) -> Result<TcpFlags, String> {
    let (set, mask) = text.split_once('/').unwrap_or((text, text));
    let read = |text: &str| -> Result<u8, String> {
        if text == "none" {
            return Ok(0);
        }
        text.split(',').try_fold(0, |bits, name| {
            let known = FLAGS.iter().find(|(known, _)| *known == name);
            let (_, bit) = known.ok_or_else(|| {
                format!("{name:?} is no TCP flag: fin, syn, rst, psh, ack, urg, ece, cwr, or none")
            })?;
            Ok(bits | bit)
        })
    };
    let (set, mask) = (read(set)?, read(mask)?);
    if set & !mask != 0 {
        return Err(format!("{text:?} requires a flag that is not examined: name it behind the /"));
    }
    if mask == 0 {
        return Err(format!("{text:?} examines no flag: name them behind a /, as in none/syn,ack"));
    }
    Ok(TcpFlags { set, mask })
}

fn fragment(text: &str) -> Result<FragmentMatch, String> {
    match text {
        "yes" => Ok(FragmentMatch::Yes),
        "no" => Ok(FragmentMatch::No),
        "first" => Ok(FragmentMatch::First),
        "later" => Ok(FragmentMatch::Later),
        "middle" => Ok(FragmentMatch::Middle),
        "last" => Ok(FragmentMatch::Last),
        _ => Err(format!("{text:?} is unknown: yes, no, first, later, middle or last")),
    }
}

fn yes_or_no(text: &str) -> Result<bool, String> {
    match text {
        "yes" => Ok(true),
        "no" => Ok(false),
        _ => Err(format!("{text:?} is unknown: yes or no")),
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.action)?;
        if let Some(dscp) = self.set_dscp {
            write!(f, " setdscp {dscp}")?;
        }
        if let Some(policer) = &self.policer {
            write!(f, " policer {policer}")?;
        }
        for (word, addresses) in [("from", &self.from), ("to", &self.to)] {
            if let Some(addresses) = addresses {
                write!(f, " {word} {addresses}")?;
            }
        }
        for (word, bits) in [("srcbits", self.source_bits), ("dstbits", self.destination_bits)] {
            if let Some(bits) = bits {
                write!(f, " {word} {bits}")?;
            }
        }
        for (word, ranges) in [
            ("ipproto", &self.protocols),
            ("sport", &self.source_ports),
            ("dport", &self.destination_ports),
            ("icmptype", &self.icmp_types),
            ("icmpcode", &self.icmp_codes),
        ] {
            if let Some(ranges) = ranges {
                match ranges.number().filter(|_| word == "ipproto").and_then(protocol_name) {
                    Some(name) => write!(f, " {word} {name}")?,
                    None => write!(f, " {word} {ranges}")?,
                }
            }
        }
        if let Some(flags) = self.flags {
            write!(f, " flags {flags}")?;
        }
        if let Some(fragment) = self.fragment {
            let name = match fragment {
                FragmentMatch::Yes => "yes",
                FragmentMatch::No => "no",
                FragmentMatch::First => "first",
                FragmentMatch::Later => "later",
                FragmentMatch::Middle => "middle",
                FragmentMatch::Last => "last",
            };
            write!(f, " fragment {name}")?;
        }
        if let Some(is_set) = self.dont_fragment {
            write!(f, " df {}", if is_set { "yes" } else { "no" })?;
        }
        for (word, ranges) in
            [("dscp", &self.dscp), ("length", &self.lengths), ("flowlabel", &self.flow_labels)]
        {
            if let Some(ranges) = ranges {
                write!(f, " {word} {ranges}")?;
            }
        }
        Ok(())
    }
}

fn protocol_name(number: u32) -> Option<&'static str> {
    // The last of two names is the one of /etc/protocols.
    PROTOCOLS.iter().rev().find(|(_, known)| u32::from(*known) == number).map(|(name, _)| *name)
}

impl fmt::Display for TcpFlags {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let write = |f: &mut fmt::Formatter<'_>, bits: u8| {
            let names = FLAGS.iter().filter(|(_, bit)| bits & bit != 0).map(|(name, _)| *name);
            let names: Vec<_> = names.collect();
            f.write_str(if names.is_empty() { "none".to_owned() } else { names.join(",") }.as_str())
        };
        write(f, self.set)?;
        if self.set != self.mask {
            f.write_str("/")?;
            write(f, self.mask)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use crate::{Addresses, Rule};

    fn parse(text: &str) -> Result<String, String> {
        let mut bogons = Addresses::default();
        bogons.add("10.0.0.0/8").unwrap();
        bogons.add("fc00::/7").unwrap();
        let list = |name: &str| (name == "bogons").then_some(&bogons);
        Rule::parse(text, &list).map(|rule| rule.to_string()).map_err(|error| error.0)
    }

    #[test]
    fn rule_is_printed_as_it_was_parsed() {
        for text in [
            "permit",
            "deny from 192.0.2.0/24,@bogons to 2001:db8::/32,10.0.0.1",
            "count ipproto tcp sport 1024-65535 dport 22,80-90 flags syn/syn,ack fragment no",
            "count ipproto tcp flags none/fin,syn",
            "police 10mbit ipproto ipv6-icmp icmptype 128-129 icmpcode 0",
            "police 1000pps fragment later dscp 46,8 length 0-128",
            "deny fragment middle df no",
            "count fragment last df yes dscp 0",
            "permit from 2001:db8::/32 flowlabel 0,70000-1048575",
            "deny to 2001:db8::/32 srcbits ::12:0:0/::ff:0:0 dstbits ::1/::f ipproto udp",
            "police 1mbit setdscp 46 ipproto udp dport 5060",
            "police 1mbit policer voice-2 ipproto udp dport 5060",
            "mirror eth9 ipproto 4,41",
            "sample 1000 eth9 to 192.0.2.1",
        ] {
            assert_eq!(parse(text).as_deref(), Ok(text));
        }
        assert_eq!(parse(" deny  from any dscp ef,cs6,af41").unwrap(), "deny dscp 46,48,34");
        assert_eq!(parse("police 64000bit").unwrap(), "police 64kbit");
        assert_eq!(parse("permit ipproto 58").unwrap(), "permit ipproto ipv6-icmp");
    }

    #[test]
    fn bad_rule_is_refused_with_the_remedy() {
        for (text, part) in [
            ("", "an empty rule: begin with permit, deny"),
            ("drop from any", "\"drop\" is not an action: permit, deny"),
            ("deny src 10.0.0.1", "\"src\" is unknown: from, to, srcbits"),
            ("deny from", "\"from\" has no value"),
            ("deny from 10.0.0.1/8", "has host bits set; did you mean 10.0.0.0/8?"),
            ("deny from @x", "there is no prefix list \"x\""),
            ("deny from 10.0.0.1 to ::1", "a source and a destination of different families"),
            ("deny dport 65536", "65536 is out of range: at most 65535"),
            ("deny dport 90-80", "90-80 is empty: write 80-90"),
            ("deny dport 1 dport 2", "\"dport\" is a duplicate: separate values by commas"),
            ("deny ipproto gre dport 1", "sport and dport need a protocol with ports"),
            ("deny icmptype 8", "need `ipproto icmp`"),
            ("deny flags syn", "flags need `ipproto tcp`"),
            ("deny ipproto tcp flags syn/ack", "requires a flag that is not examined"),
            ("deny ipproto tcp flags none", "examines no flag"),
            ("deny ipproto tcp flags sin", "\"sin\" is no TCP flag"),
            ("deny ipproto 300", "300 is out of range: at most 255"),
            ("deny flowlabel 1048576", "out of range: at most 1048575"),
            ("deny to 192.0.2.1 flowlabel 1", "srcbits and dstbits are of IPv6: use"),
            ("deny df yes flowlabel 1", "df is of IPv4, and flowlabel"),
            ("deny srcbits ::1", "\"::1\" is not an IPv6 value and a mask"),
            ("deny dstbits ::3/::1", "\"::3/::1\" has bits beyond its mask"),
            ("deny dscp af44", "\"af44\" is not a number up to 63"),
            ("deny ipproto tcp dport 1 fragment later", "later fragments have no ports"),
            ("deny from 2001:db8::/32 df yes", "df is a bit of IPv4"),
            ("permit df maybe", "\"maybe\" is unknown: yes or no"),
            ("permit setdscp 1,2", "\"1,2\" is not one code point"),
            ("police 1mbit policer 2x", "\"2x\" is not a name"),
            ("police 1mbit policer a.b", "\"a.b\" is not a name"),
            ("permit policer web", "only a `police` rule has one"),
            ("permit setdscp 64", "64 is out of range: at most 63"),
            ("deny setdscp ef", "the rule denies its packets"),
            ("police 0pps", "\"0pps\" is not a rate above 0"),
            ("police 10", "is not a rate above 0 such as 1000pps"),
            ("police", "\"police\" has no rate"),
            ("sample 0 eth9", "\"0\" is not a number of packets above 0"),
        ] {
            let error = parse(text).unwrap_err();
            assert!(error.contains(part), "{text}: {error}");
        }
    }
}
