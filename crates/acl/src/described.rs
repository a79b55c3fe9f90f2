//! Described packets: the fields of a packet that an operator describes in the words of a rule.
//!
//! ```text
//!   from 192.0.2.1 to 198.51.100.7 ipproto tcp dport 22 flags syn
//! ```
//!
//! Fields that are not named are those of a packet without them: no protocol, no ports, no fragment, DSCP
//! and flow label 0, the length of a header.

use wire::{ipv4, ipv6};

use crate::field::{Field, FragmentKind};
use crate::{Addresses, Fields, FragmentMatch, PacketFamily, Ranges, Rule, RuleError};

/// The fields of a described packet, by its family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DescribedPacket {
    /// An IPv4 packet.
    V4(Fields<u32>),
    /// An IPv6 packet.
    V6(Fields<u128>),
}

impl DescribedPacket {
    /// Parses a description.
    ///
    /// # Errors
    ///
    /// [`RuleError`]: an unknown word, a value that is not a single one, or no source or destination.
    pub fn parse(text: &str) -> Result<Self, RuleError> {
        let rule = Rule::parse(&format!("permit {text}"), &|_| None)?;
        match (rule.is_about::<u32>(), rule.is_about::<u128>()) {
            (true, false) => Ok(Self::V4(fields(&rule, ipv4::LEN)?)),
            (false, true) => Ok(Self::V6(fields(&rule, ipv6::LEN)?)),
            _ => {
                Err(RuleError("a packet has a source and a destination: from ADDR to ADDR".into()))
            }
        }
    }
}

fn fields<A: PacketFamily>(rule: &Rule, header: usize) -> Result<Fields<A>, RuleError> {
    let src = address(rule.from.as_ref(), "from")?;
    let dst = address(rule.to.as_ref(), "to")?;
    if !rule.bits().is_empty() {
        return Err(RuleError("a packet has whole addresses: from ADDR to ADDR".into()));
    }
    let number = |ranges: &Option<Ranges>, word: &str| match ranges {
        None => Ok(None),
        Some(ranges) => ranges.number().map(Some).ok_or_else(|| {
            RuleError(format!("{word}: a packet has one value, and {ranges} are several"))
        }),
    };
    let fragment = match rule.fragment {
        None | Some(FragmentMatch::No) => FragmentKind::Whole,
        Some(FragmentMatch::Yes | FragmentMatch::First) => FragmentKind::First,
        Some(FragmentMatch::Later | FragmentMatch::Last) => FragmentKind::Last,
        Some(FragmentMatch::Middle) => FragmentKind::Middle,
    };
    let length = number(&rule.lengths, "length")?.unwrap_or(header as u32) as u16;
    let dscp = number(&rule.dscp, "dscp")?.unwrap_or(0) as u8;
    let mut fields = Fields::new(src, dst, length, dscp);
    fields.set_fragment(fragment, rule.dont_fragment == Some(true));
    for (field, value) in [
        (Field::Protocol, number(&rule.protocols, "ipproto")?),
        (Field::SourcePort, number(&rule.source_ports, "sport")?),
        (Field::DestinationPort, number(&rule.destination_ports, "dport")?),
        (Field::IcmpType, number(&rule.icmp_types, "icmptype")?),
        (Field::IcmpCode, number(&rule.icmp_codes, "icmpcode")?),
        (Field::FlowLabel, number(&rule.flow_labels, "flowlabel")?),
        (Field::TcpFlags, rule.flags.map(|flags| flags.set.into())),
    ] {
        if let Some(value) = value {
            fields.set(field, value);
        }
    }
    Ok(fields)
}

/// Returns the single address of a condition.
fn address<A: PacketFamily>(addresses: Option<&Addresses>, word: &str) -> Result<A, RuleError> {
    let prefixes = addresses.map(A::prefixes).unwrap_or_default();
    match prefixes {
        [prefix] if prefix.len() == A::BITS => Ok(prefix.addr()),
        _ => Err(RuleError(format!("{word}: a packet has one address here"))),
    }
}

#[cfg(test)]
mod tests {
    use super::DescribedPacket;
    use crate::{AccessList, Rule};

    #[test]
    fn described_packet_meets_the_rules_of_the_packet() {
        let rules = ["deny ipproto tcp dport 22 flags syn/syn,ack", "deny from 2001:db8::/32"];
        let rules = rules.map(|text| Rule::parse(text, &|_| None).unwrap());
        let list = AccessList::build("list", true, rules.into()).unwrap();
        for (text, rule) in [
            ("from 192.0.2.1 to 192.0.2.2 ipproto tcp dport 22 flags syn", Some(0)),
            ("from 192.0.2.1 to 192.0.2.2 ipproto tcp dport 22 flags syn,ack", None),
            ("from 192.0.2.1 to 192.0.2.2 ipproto tcp dport 22", None),
            ("from 2001:db8::1 to 2001:db8:1::1", Some(1)),
        ] {
            let first = match DescribedPacket::parse(text).unwrap() {
                DescribedPacket::V4(fields) => list.matches(&fields).next(),
                DescribedPacket::V6(fields) => list.matches(&fields).next(),
            };
            assert_eq!(first, rule, "{text}");
        }
        for (text, part) in [
            ("from 192.0.2.1", "to: a packet has one address here"),
            ("", "a packet has a source and a destination"),
            ("from 192.0.2.0/24 to 192.0.2.1", "from: a packet has one address here"),
            ("from ::1 to ::2 ipproto tcp dport 1-2", "dport: a packet has one value, and 1-2"),
            ("from ::1 to ::2 proto tcp", "\"proto\" is unknown"),
            ("from ::1 to ::2 srcbits ::1/::1", "a packet has whole addresses"),
        ] {
            let error = DescribedPacket::parse(text).unwrap_err().to_string();
            assert!(error.contains(part), "{text}: {error}");
        }
    }
}
