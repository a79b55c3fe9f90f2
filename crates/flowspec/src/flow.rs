//! Flow specifications: the conditions on packets that a BGP update carries as its NLRI, and their order.
//!
//! ```text
//!   length: 1 octet, or 2 that begin with 0xf │ type │ value │ type │ value ...      types ascend
//! ```
//!
//! | type | value |
//! |---|---|
//! | 1, 2 | a prefix of the destination, of the source: its length, for IPv6 an offset, and its octets |
//! | 3 | operators: the protocol |
//! | 4, 5, 6 | either port, the destination port, the source port |
//! | 7, 8 | ICMP type, ICMP code |
//! | 9 | TCP flags, as bit masks |
//! | 10, 11 | the length of the packet, DSCP |
//! | 12 | fragments, as bit masks |
//! | 13 | the flow label of IPv6 |
//!
//! Source: RFC 8955, sections 4 and 5.1; RFC 8956, section 3.

use core::cmp::Ordering;
use core::fmt;
use std::net::{Ipv4Addr, Ipv6Addr};

use crate::octets::Octets;
use crate::operators::{self, Operator};

/// The address family of a flow specification.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum FlowFamily {
    /// IPv4: RFC 8955.
    V4,
    /// IPv6: RFC 8956.
    V6,
}

/// A prefix of a flow specification.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FlowPrefix {
    pub(crate) len: u8,
    /// The number of leading bits that are not compared; 0 for IPv4.
    pub(crate) offset: u8,
    /// The prefix's bits in the upper bits of this number, without those of the offset.
    pub(crate) bits: u128,
}

/// A condition of a flow specification.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Condition {
    Prefix(FlowPrefix),
    Operators(Vec<Operator>),
}

/// A condition with its type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Component {
    pub(crate) kind: u8,
    pub(crate) condition: Condition,
    /// Its octets, which decide the order.
    octets: Vec<u8>,
}

pub(crate) const DESTINATION: u8 = 1;
pub(crate) const SOURCE: u8 = 2;
pub(crate) const PROTOCOL: u8 = 3;
pub(crate) const PORT: u8 = 4;
pub(crate) const DESTINATION_PORT: u8 = 5;
pub(crate) const SOURCE_PORT: u8 = 6;
pub(crate) const ICMP_TYPE: u8 = 7;
pub(crate) const ICMP_CODE: u8 = 8;
pub(crate) const TCP_FLAGS: u8 = 9;
pub(crate) const LENGTH: u8 = 10;
pub(crate) const DSCP: u8 = 11;
pub(crate) const FRAGMENT: u8 = 12;
pub(crate) const FLOW_LABEL: u8 = 13;

const NAMES: [&str; 14] = [
    "",
    "to",
    "from",
    "protocol",
    "port",
    "dport",
    "sport",
    "icmptype",
    "icmpcode",
    "flags",
    "length",
    "dscp",
    "fragment",
    "flowlabel",
];

/// A flow specification. Its order is that in which routers apply them (RFC 8955, section 5.1), IPv4 before
/// IPv6.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlowSpec {
    /// Its address family.
    pub family: FlowFamily,
    pub(crate) components: Vec<Component>,
}

/// The result of reading one flow specification of an update.
pub(crate) enum ReadFlow {
    Flow(FlowSpec),
    /// It is malformed; the next one follows.
    Malformed,
    /// Its length is beyond the update's, and nothing follows.
    Truncated,
}

impl FlowSpec {
    /// Reads one from the NLRI of an update, and leaves `octets` behind it.
    pub(crate) fn read(octets: &mut Octets<'_>, family: FlowFamily) -> ReadFlow {
        let len = match octets.u8() {
            Some(first @ 0xf0..) => {
                octets.u8().map(|second| usize::from(first & 0xf) << 8 | usize::from(second))
            }
            first => first.map(usize::from),
        };
        let Some(mut rest) = len.and_then(|len| octets.take(len)).map(Octets) else {
            return ReadFlow::Truncated;
        };
        let mut components: Vec<Component> = Vec::new();
        while !rest.is_empty() {
            let Some(component) = Component::read(&mut rest, family) else {
                return ReadFlow::Malformed;
            };
            if components.last().is_some_and(|last| last.kind >= component.kind) {
                return ReadFlow::Malformed;
            }
            components.push(component);
        }
        match components.is_empty() {
            true => ReadFlow::Malformed,
            false => ReadFlow::Flow(Self { family, components }),
        }
    }

    /// Returns the condition of a type.
    pub(crate) fn condition(&self, kind: u8) -> Option<&Condition> {
        let has_kind = |component: &&Component| component.kind == kind;
        self.components.iter().find(has_kind).map(|component| &component.condition)
    }

    /// Returns the operators of a type.
    pub(crate) fn operators(&self, kind: u8) -> Option<&[Operator]> {
        match self.condition(kind) {
            Some(Condition::Operators(operators)) => Some(operators),
            _ => None,
        }
    }
}

impl Component {
    fn read(rest: &mut Octets<'_>, family: FlowFamily) -> Option<Self> {
        let whole = rest.0;
        let kind = rest.u8()?;
        let condition = match (kind, family) {
            (DESTINATION | SOURCE, _) => Condition::Prefix(FlowPrefix::read(rest, family)?),
            (PROTOCOL..=FRAGMENT, _) | (FLOW_LABEL, FlowFamily::V6) => {
                Condition::Operators(operators::read(rest)?)
            }
            _ => return None,
        };
        let octets = whole[1..whole.len() - rest.0.len()].to_vec();
        Some(Self { kind, condition, octets })
    }
}

impl FlowPrefix {
    /// The prefix of all addresses.
    pub(crate) const ALL: Self = Self { len: 0, offset: 0, bits: 0 };

    fn read(rest: &mut Octets<'_>, family: FlowFamily) -> Option<Self> {
        let len = rest.u8()?;
        let (offset, longest) = match family {
            FlowFamily::V4 => (0, 32),
            FlowFamily::V6 => (rest.u8()?, 128),
        };
        if len > longest || offset > len || offset == len && offset > 0 {
            return None;
        }
        let octets = rest.take(usize::from(len - offset).div_ceil(8))?;
        let mut padded = [0; 16];
        padded[..octets.len()].copy_from_slice(octets);
        // Bits behind the prefix have no meaning.
        let significant = u128::from(len - offset);
        let mask = u128::MAX.checked_shl(128 - significant as u32).unwrap_or(0);
        Some(Self { len, offset, bits: u128::from_be_bytes(padded) & mask })
    }

    fn cmp(self, other: Self) -> Ordering {
        let common = (self.len - self.offset).min(other.len - other.offset);
        let first = |prefix: Self| prefix.bits.checked_shr(128 - u32::from(common)).unwrap_or(0);
        let by_offset = self.offset.cmp(&other.offset);
        // The longer one of two that overlap is applied first.
        by_offset.then(first(self).cmp(&first(other))).then(other.len.cmp(&self.len))
    }

    fn text(self, family: FlowFamily) -> String {
        let Self { len, offset, bits } = self;
        match family {
            FlowFamily::V4 => format!("{}/{len}", Ipv4Addr::from((bits >> 96) as u32)),
            FlowFamily::V6 if offset == 0 => format!("{}/{len}", Ipv6Addr::from(bits)),
            FlowFamily::V6 => format!("{}/{offset}-{len}", Ipv6Addr::from(bits >> offset)),
        }
    }
}

impl Ord for FlowSpec {
    fn cmp(&self, other: &Self) -> Ordering {
        let by_family = self.family.cmp(&other.family);
        let mut pairs = self.components.iter().zip(&other.components);
        let by_component = pairs.find_map(|(a, b)| {
            let by_value = match (&a.condition, &b.condition) {
                (Condition::Prefix(a), Condition::Prefix(b)) => a.cmp(*b),
                _ => {
                    let common = a.octets.len().min(b.octets.len());
                    // The longer one of two that begin alike is applied first.
                    let by_octets = a.octets[..common].cmp(&b.octets[..common]);
                    by_octets.then(b.octets.len().cmp(&a.octets.len()))
                }
            };
            Some(a.kind.cmp(&b.kind).then(by_value)).filter(|order| order.is_ne())
        });
        // The one with further conditions is applied first.
        let by_count = other.components.len().cmp(&self.components.len());
        by_family.then(by_component.unwrap_or(by_count))
    }
}

impl PartialOrd for FlowSpec {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl fmt::Display for FlowSpec {
    /// Writes the conditions, such as `to 192.0.2.0/24 protocol =6 dport >=80&<=90`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, Component { kind, condition, .. }) in self.components.iter().enumerate() {
            let text = match condition {
                Condition::Prefix(prefix) => prefix.text(self.family),
                Condition::Operators(list) if matches!(*kind, TCP_FLAGS | FRAGMENT) => {
                    operators::mask_text(list)
                }
                Condition::Operators(list) => operators::numeric_text(list),
            };
            let space = if at == 0 { "" } else { " " };
            write!(f, "{space}{} {text}", NAMES[usize::from(*kind)])?;
        }
        Ok(())
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn flow(family: FlowFamily, octets: &[u8]) -> FlowSpec {
        let mut whole = vec![octets.len() as u8];
        whole.extend(octets);
        let mut rest = Octets(&whole);
        match FlowSpec::read(&mut rest, family) {
            ReadFlow::Flow(flow) if rest.is_empty() => flow,
            _ => panic!("{octets:?} is malformed"),
        }
    }

    /// The example of RFC 8955, section 4.3.3, and one with an offset of RFC 8956, section 3.8.
    #[test]
    fn examples_of_the_standards_are_read() {
        let text = |family, octets: &[u8]| flow(family, octets).to_string();
        let v4 =
            [1, 24, 192, 0, 2, 2, 24, 203, 0, 113, 4, 0x03, 0x89, 0x45, 0x8b, 0x91, 0x1f, 0x90];
        assert_eq!(
            text(FlowFamily::V4, &v4),
            "to 192.0.2.0/24 from 203.0.113.0/24 port >=137&<=139|=8080"
        );
        let v6 = [1, 32, 0, 0x20, 0x01, 0x0d, 0xb8, 3, 0x81, 6, 13, 0xa1, 0, 0, 0, 9];
        assert_eq!(text(FlowFamily::V6, &v6), "to 2001:db8::/32 protocol =6 flowlabel =9");
        assert_eq!(
            text(FlowFamily::V6, &[2, 104, 64, 0x12, 0x34, 0x56, 0x78, 0x9a]),
            "from ::1234:5678:9a00:0/64-104"
        );
        assert_eq!(text(FlowFamily::V4, &[1, 0]), "to 0.0.0.0/0");
        assert_eq!(text(FlowFamily::V4, &[1, 20, 10, 1, 0x1f]), "to 10.1.16.0/20");
        assert_eq!(
            text(FlowFamily::V4, &[9, 0x81, 2, 12, 0x80, 2]),
            "flags all 0x2 fragment any 0x2"
        );
    }

    #[test]
    fn malformed_flow_is_refused_and_the_next_one_read() {
        for bad in [
            &[][..],
            &[0],
            &[14, 0x81, 1],
            &[13, 0x81, 1],
            &[1, 33, 1, 2, 3, 4, 5],
            &[1, 24, 1, 2],
            &[3, 0x01, 6],
            &[5, 0x81, 1, 4, 0x81, 1],
            &[3, 0x81, 1, 3, 0x81, 1],
        ] {
            let mut octets = vec![bad.len() as u8];
            octets.extend(bad);
            octets.extend([3, 3, 0x81, 6]);
            let mut rest = Octets(&octets);
            assert!(
                matches!(FlowSpec::read(&mut rest, FlowFamily::V4), ReadFlow::Malformed),
                "{bad:?}"
            );
            let next = FlowSpec::read(&mut rest, FlowFamily::V4);
            assert!(
                matches!(next, ReadFlow::Flow(flow) if flow.to_string() == "protocol =6"),
                "{bad:?}"
            );
        }
        for truncated in [&[][..], &[4, 3, 0x81, 6], &[0xf0], &[0xf1, 0, 1, 0]] {
            let read = FlowSpec::read(&mut Octets(truncated), FlowFamily::V4);
            assert!(matches!(read, ReadFlow::Truncated), "{truncated:?}");
        }
        // 240 octets and more have a length of two octets.
        let mut long = vec![0xf0, 0xf3, 5];
        for _ in 0..120 {
            long.extend([0x01, 7]);
        }
        long.extend([0x81, 7]);
        let read = FlowSpec::read(&mut Octets(&long), FlowFamily::V4);
        assert!(
            matches!(read, ReadFlow::Flow(flow) if flow.to_string().starts_with("dport =7|=7"))
        );
    }

    #[test]
    fn order_is_that_of_section_5_1() {
        let ordered = [
            flow(FlowFamily::V4, &[1, 24, 10, 0, 0, 3, 0x81, 6]),
            flow(FlowFamily::V4, &[1, 24, 10, 0, 0, 3, 0x81, 17]),
            flow(FlowFamily::V4, &[1, 24, 10, 0, 0]),
            flow(FlowFamily::V4, &[1, 8, 10, 2, 24, 10, 0, 0]),
            flow(FlowFamily::V4, &[1, 8, 10]),
            flow(FlowFamily::V4, &[1, 24, 11, 0, 0]),
            flow(FlowFamily::V4, &[2, 32, 9, 0, 0, 0]),
            flow(FlowFamily::V4, &[3, 0x01, 6, 0x81, 17]),
            flow(FlowFamily::V4, &[3, 0x81, 6]),
            flow(FlowFamily::V4, &[12, 0x80, 2]),
            flow(FlowFamily::V6, &[1, 32, 0, 0x20, 1, 0xd, 0xb8]),
            flow(FlowFamily::V6, &[1, 104, 64, 0x12, 0x34, 0x56, 0x78, 0x9a]),
        ];
        for (i, a) in ordered.iter().enumerate() {
            for (k, b) in ordered.iter().enumerate() {
                assert_eq!(a.cmp(b), i.cmp(&k), "{a} and {b}");
            }
        }
    }
}
