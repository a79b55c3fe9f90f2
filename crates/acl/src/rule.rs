//! Rules: an action, and the conditions on a packet's fields under which it applies.
//!
//! A condition that is absent holds for every packet. A condition on a field that a packet does not
//! have, such as the ports of a later fragment, does not hold.

use std::fmt;

use crate::field::{Field, FragmentKind};
use crate::fields::{Fields, PacketFamily};
use crate::{AddressBits, Addresses, Ranges};

/// The action of a rule on a packet that it matches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// The packet passes; no further rule is examined.
    Permit,
    /// The packet is dropped.
    Deny,
    /// Nothing but its counter.
    Count,
    /// The packets beyond a rate are dropped.
    Police(Rate),
    /// A copy of one packet in `one_in`, chosen by chance, leaves by an interface.
    Mirror {
        /// The interface.
        interface: String,
        /// 1: a copy of every packet.
        one_in: u32,
    },
}

impl Action {
    /// Returns whether no further rule is examined.
    pub fn is_terminal(&self) -> bool {
        matches!(self, Self::Permit | Self::Deny)
    }
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Permit => f.write_str("permit"),
            Self::Deny => f.write_str("deny"),
            Self::Count => f.write_str("count"),
            Self::Police(rate) => write!(f, "police {rate}"),
            Self::Mirror { interface, one_in: 1 } => write!(f, "mirror {interface}"),
            Self::Mirror { interface, one_in } => write!(f, "sample {one_in} {interface}"),
        }
    }
}

/// The rate of a policer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rate {
    /// Bits of IP packets a second.
    Bits(u64),
    /// Packets a second.
    Packets(u64),
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Packets(rate) => write!(f, "{rate}pps"),
            Self::Bits(rate) => {
                let units = [(1_000_000_000, "gbit"), (1_000_000, "mbit"), (1_000, "kbit")];
                let unit = units.into_iter().find(|(unit, _)| rate > 0 && rate % unit == 0);
                let (unit, name) = unit.unwrap_or((1, "bit"));
                write!(f, "{}{name}", rate / unit)
            }
        }
    }
}

/// The TCP flags that a packet must have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TcpFlags {
    /// Those of `mask` that are set.
    pub set: u8,
    /// Those that are examined.
    pub mask: u8,
}

impl TcpFlags {
    /// Returns whether a header's flags are as required.
    pub fn matches(self, flags: u8) -> bool {
        flags & self.mask == self.set
    }
}

/// The fragments that a rule is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FragmentMatch {
    /// Packets that are not fragments.
    No,
    /// All fragments.
    Yes,
    /// First fragments, which have the ports.
    First,
    /// Fragments after the first.
    Later,
    /// Those of them with more behind them.
    Middle,
    /// Last fragments.
    Last,
}

impl FragmentMatch {
    /// Returns whether all of the packets are fragments after the first, which have no ports.
    pub fn is_later(self) -> bool {
        matches!(self, Self::Later | Self::Middle | Self::Last)
    }

    /// Returns whether a packet is of this kind.
    pub fn matches(self, kind: FragmentKind) -> bool {
        match self {
            Self::No => kind == FragmentKind::Whole,
            Self::Yes => kind != FragmentKind::Whole,
            Self::First => kind == FragmentKind::First,
            Self::Later => kind.is_later(),
            Self::Middle => kind == FragmentKind::Middle,
            Self::Last => kind == FragmentKind::Last,
        }
    }
}

/// The conditions of a rule on bits of the source and of the destination.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct BitConditions {
    pub(crate) source: Option<AddressBits>,
    pub(crate) destination: Option<AddressBits>,
}

impl BitConditions {
    /// Returns whether there is none.
    pub(crate) fn is_empty(self) -> bool {
        self.source.is_none() && self.destination.is_none()
    }

    /// Returns whether addresses fulfil them.
    pub(crate) fn hold<A: PacketFamily>(self, source: A, destination: A) -> bool {
        self.source.is_none_or(|bits| source.has_bits(bits))
            && self.destination.is_none_or(|bits| destination.has_bits(bits))
    }
}

/// One line of an access list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// Its action.
    pub action: Action,
    /// The differentiated services code point, 0 to 63, that a packet gets, unless the action drops it.
    pub set_dscp: Option<u8>,
    /// The name of the policer that the `police` rules of a list with this name share; without one a rule has its own.
    pub policer: Option<String>,
    /// The source's prefixes.
    pub from: Option<Addresses>,
    /// The destination's prefixes.
    pub to: Option<Addresses>,
    /// Bits of the source, which only IPv6 packets have.
    pub source_bits: Option<AddressBits>,
    /// Bits of the destination, which only IPv6 packets have.
    pub destination_bits: Option<AddressBits>,
    /// The protocols.
    pub protocols: Option<Ranges>,
    /// The source ports.
    pub source_ports: Option<Ranges>,
    /// The destination ports.
    pub destination_ports: Option<Ranges>,
    /// The ICMP types.
    pub icmp_types: Option<Ranges>,
    /// The ICMP codes.
    pub icmp_codes: Option<Ranges>,
    /// The TCP flags.
    pub flags: Option<TcpFlags>,
    /// The kind of fragment.
    pub fragment: Option<FragmentMatch>,
    /// The bit Don't Fragment, which only IPv4 packets have.
    pub dont_fragment: Option<bool>,
    /// The code points.
    pub dscp: Option<Ranges>,
    /// The lengths of the IP packet in bytes.
    pub lengths: Option<Ranges>,
    /// The flow labels, which only IPv6 packets have.
    pub flow_labels: Option<Ranges>,
}

impl Rule {
    /// Makes the rule that matches every packet.
    pub fn all(action: Action) -> Self {
        Self {
            action,
            set_dscp: None,
            policer: None,
            from: None,
            to: None,
            source_bits: None,
            destination_bits: None,
            protocols: None,
            source_ports: None,
            destination_ports: None,
            icmp_types: None,
            icmp_codes: None,
            flags: None,
            fragment: None,
            dont_fragment: None,
            dscp: None,
            lengths: None,
            flow_labels: None,
        }
    }

    /// Returns whether packets of a family can match: each list of addresses has one of it, and only IPv4 has
    /// the bit Don't Fragment, only IPv6 flow labels and conditions on bits of addresses.
    pub fn is_about<A: PacketFamily>(&self) -> bool {
        let is_of_other =
            if A::BITS > 32 { self.dont_fragment.is_some() } else { self.is_of_ipv6() };
        if is_of_other {
            return false;
        }
        let has = |addresses: &Addresses| !A::prefixes(addresses).is_empty();
        self.from.iter().chain(&self.to).all(has)
    }

    /// Returns whether a condition is one on packets of IPv6.
    pub(crate) fn is_of_ipv6(&self) -> bool {
        self.flow_labels.is_some() || !self.bits().is_empty()
    }

    /// Returns the conditions on bits of the source and of the destination.
    pub(crate) fn bits(&self) -> BitConditions {
        BitConditions { source: self.source_bits, destination: self.destination_bits }
    }

    /// Returns whether a packet fulfils all conditions. O(prefixes and ranges of the rule).
    pub fn matches<A: PacketFamily>(&self, packet: &Fields<A>) -> bool {
        let is_in = |addresses: &Option<Addresses>, address: A| {
            addresses.as_ref().is_none_or(|addresses| {
                A::prefixes(addresses).iter().any(|prefix| prefix.contains(address))
            })
        };
        is_in(&self.from, packet.src)
            && is_in(&self.to, packet.dst)
            && self.bits().hold(packet.src, packet.dst)
            && Field::ALL.into_iter().all(|field| self.allows(field, packet.value(field)))
    }

    /// Returns whether the rule has a condition on a field.
    pub(crate) fn constrains(&self, field: Field) -> bool {
        match field {
            Field::TcpFlags => self.flags.is_some(),
            Field::Fragment => self.fragment.is_some() || self.dont_fragment.is_some(),
            _ => self.ranges(field).is_some(),
        }
    }

    /// Returns whether the condition on a field allows a value; without the field it is
    /// [`Field::values`].
    pub(crate) fn allows(&self, field: Field, value: usize) -> bool {
        if !self.constrains(field) {
            return true;
        }
        if value >= field.values() {
            return false;
        }
        match field {
            Field::TcpFlags => self.flags.is_some_and(|flags| flags.matches(value as u8)),
            Field::Fragment => {
                let kinds = FragmentKind::ALL;
                let (bit, kind) = (value / kinds.len(), kinds[value % kinds.len()]);
                self.fragment.is_none_or(|fragment| fragment.matches(kind))
                    && self.dont_fragment.is_none_or(|is_set| bit == usize::from(is_set))
            }
            _ => self.ranges(field).is_some_and(|ranges| ranges.contains(value as u32)),
        }
    }

    /// Returns the condition on a field whose values are ordered.
    pub fn ranges(&self, field: Field) -> Option<&Ranges> {
        match field {
            Field::Protocol => self.protocols.as_ref(),
            Field::SourcePort => self.source_ports.as_ref(),
            Field::DestinationPort => self.destination_ports.as_ref(),
            Field::IcmpType => self.icmp_types.as_ref(),
            Field::IcmpCode => self.icmp_codes.as_ref(),
            Field::Dscp => self.dscp.as_ref(),
            Field::Length => self.lengths.as_ref(),
            Field::FlowLabel => self.flow_labels.as_ref(),
            Field::TcpFlags | Field::Fragment => None,
        }
    }
}
