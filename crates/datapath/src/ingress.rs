//! Ingress: the settings for packets, by the port that they arrive on.
//!
//! ```text
//!   port 0 ─► Ingress { table: 0, locals ─┐ }
//!   port 1 ─► Ingress { table: 0, locals ─┴─► the own addresses there }
//!   port 2 ─► Ingress { table: 1, locals ───► those of the other table }
//! ```
//!
//! All packets of a batch arrived on one port and are looked up in one table. With several tables
//! (VRFs), each port has the number of its table and the router's own addresses in that table: an
//! own address in one table may belong to any host in another. The reverse path filter is set for
//! each port as well (`source.rs`).
//!
//! Addresses change while workers run, so the settings are published like adjacencies: the control
//! plane has a `fib::Publisher<Ingresses>`, and every worker a reader, from which it takes them
//! once a batch. Ports with the same addresses share the list.

use std::sync::Arc;

use super::{FIRST_STACKED, IcmpLimits, Locals, OwnSources, VlanTable};

/// The reverse path filter of a port (RFC 3704): the sources that its packets may have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ReversePathFilter {
    /// Any source.
    #[default]
    Off,
    /// Sources that have a route.
    Loose,
    /// Sources whose route leaves by the port that the packet arrived on.
    Strict,
}

impl ReversePathFilter {
    /// All filters.
    pub const ALL: [Self; 3] = [Self::Off, Self::Loose, Self::Strict];

    /// Returns its name, as the configuration has it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Loose => "loose",
            Self::Strict => "strict",
        }
    }
}

/// The settings for packets of one port.
#[derive(Clone, Debug, Default)]
pub struct Ingress {
    /// The port's MAC address, if it may change; `None`: the address that the port had when the
    /// worker was made.
    pub mac: Option<[u8; 6]>,
    /// The MAC addresses of the MAC-VLAN devices over the port: frames to them are the port's, too.
    pub secondary_macs: Arc<[[u8; 6]]>,
    /// The number of the bond that the port is a member of: its packets are processed by the settings of
    /// the bond, as if they had arrived on that.
    pub member_of: Option<u16>,
    /// The VLAN devices directly over the port.
    pub vlans: Arc<VlanTable>,
    /// The priorities of its packets (`ingress-qos-map`), by that of their tag, below
    /// [`PRIORITIES`](super::PRIORITIES).
    pub priorities: [u8; 8],
    /// The number of the table that its packets are looked up in.
    pub table: usize,
    /// The router's own addresses in that table.
    pub locals: Arc<Locals>,
    /// The reverse path filter of IPv4 packets, and that of IPv6 packets.
    pub sources: [ReversePathFilter; 2],
    /// For IPv4 and for IPv6: this machine is no router to the port's packets (`forwarding.rs`).
    pub forwarding_off: [bool; 2],
    /// The host continues with other tables where this one has no route.
    pub further: bool,
    /// For IPv4 and for IPv6: the host would look the port's packets up in another table, so it
    /// forwards and answers none.
    pub isolated: [bool; 2],
    /// For IPv4 and for IPv6: the number of the table by which this machine's ICMP errors about its
    /// packets are sent; `None`: the host sends them.
    pub answers: [Option<usize>; 2],
    /// The source addresses of such errors. Without any for IPv4, those of the route to their destination
    /// are used.
    pub answer_sources: Arc<OwnSources>,
}

impl Ingress {
    /// Returns whether a reverse path filter checks packets of the port, for IPv4 and for IPv6.
    #[inline]
    pub(super) fn filtered(&self) -> [bool; 2] {
        self.sources.map(|filter| filter != ReversePathFilter::Off)
    }

    /// Returns whether packets of both are processed alike, apart from what depends on the packet:
    /// the port's number, the devices over it, the priority, and the source of ICMP errors.
    fn is_like(&self, other: &Self) -> bool {
        let Self { mac, secondary_macs, member_of: _, vlans: _, priorities: _, .. } = self;
        let Self { table, locals, sources, forwarding_off, further, isolated, answers, .. } = self;
        let Self { answer_sources: _, .. } = self;
        mac.is_some()
            && *mac == other.mac
            && *secondary_macs == other.secondary_macs
            && *table == other.table
            && Arc::ptr_eq(locals, &other.locals)
            && *sources == other.sources
            && *forwarding_off == other.forwarding_off
            && *further == other.further
            && *isolated == other.isolated
            && *answers == other.answers
    }
}

/// How a frame arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FrameIngress {
    /// The number of its port, which is a VLAN device's if the frame has its tags.
    pub(super) port: u16,
    /// The length of those tags in the low byte, the priority that Linux gives its packet on arrival
    /// (`vlan.rs`) in the high one. As two fields they made the list of a batch slower to fill.
    front: u16,
}

impl FrameIngress {
    /// Makes the ingress of a frame without the tags of a VLAN device.
    #[inline(always)]
    pub(super) fn untagged(port: u16) -> Self {
        Self::tagged(port, 0, 0)
    }

    /// Makes the ingress of a frame with this length of tags, whose packet has this priority.
    #[inline(always)]
    pub(super) fn tagged(port: u16, tags: usize, priority: u8) -> Self {
        Self { port, front: tags as u16 | u16::from(priority) << 8 }
    }

    /// Returns the length of the tags.
    #[inline(always)]
    pub(super) fn tags(self) -> usize {
        usize::from(self.front & 0xff)
    }

    /// Returns the priority of the packet.
    #[inline(always)]
    pub(super) fn priority(self) -> u8 {
        (self.front >> 8) as u8
    }

    /// Returns the ingress of the frame behind its tags.
    pub(super) fn behind_tags(self) -> Self {
        Self::tagged(self.port, 0, self.priority())
    }
}

/// The parts of the settings of a stacked device that the search for the tags of a frame needs.
#[derive(Clone, Copy, Debug)]
pub(super) struct DeviceSummary {
    /// The first of the ports with settings like those of the device.
    pub(super) group: u16,
    /// Whether VLAN devices are over it.
    pub(super) has_vlans: bool,
    /// Whether its packets have priorities.
    pub(super) has_priorities: bool,
}

/// The settings by the worker's port numbers.
#[derive(Clone, Debug, Default)]
pub struct Ingresses {
    by_port: Vec<Ingress>,
    /// The settings of stacked devices, from port number [`FIRST_STACKED`] on.
    stacked: Vec<Option<Ingress>>,
    /// A summary of each stacked device.
    devices: Vec<DeviceSummary>,
    /// The settings of ports beyond the end.
    others: Ingress,
    icmp_limits: Option<IcmpLimits>,
}

impl Ingresses {
    /// Makes the settings from those of each port, in the order of the port numbers. Ports beyond
    /// the end have table 0, no own addresses and no reverse path filter.
    pub fn new(by_port: impl IntoIterator<Item = Ingress>) -> Self {
        Self { by_port: by_port.into_iter().collect(), ..Self::default() }
    }

    /// Makes the same settings for all ports.
    pub fn alike(ingress: Ingress) -> Self {
        Self { others: ingress, ..Self::default() }
    }

    /// Adds the settings of stacked devices, by port number from [`FIRST_STACKED`] on; `None` for a number
    /// without a device.
    ///
    /// # Complexity
    ///
    /// O(devices × different settings).
    #[must_use]
    pub fn with_stacked(mut self, stacked: Vec<Option<Ingress>>) -> Self {
        let mut leaders: Vec<u16> = (0..self.by_port.len() as u16).collect();
        self.stacked = stacked;
        for (number, ingress) in (FIRST_STACKED..).zip(&self.stacked) {
            let leader = ingress.as_ref().and_then(|ingress| {
                leaders.iter().copied().find(|port| self.get((*port).into()).is_like(ingress))
            });
            if ingress.is_some() && leader.is_none() {
                leaders.push(number);
            }
            self.devices.push(DeviceSummary {
                group: leader.unwrap_or(number),
                has_vlans: ingress.as_ref().is_some_and(|ingress| !ingress.vlans.is_empty()),
                has_priorities: ingress
                    .as_ref()
                    .is_some_and(|ingress| ingress.priorities != [0; 8]),
            });
        }
        self
    }

    /// Sets the limits of each worker's ICMP errors; `None`: those that the worker began with.
    #[must_use]
    pub fn with_icmp_limits(self, icmp_limits: Option<IcmpLimits>) -> Self {
        Self { icmp_limits, ..self }
    }

    /// Returns the limits of each worker's ICMP errors.
    pub(super) fn icmp_limits(&self) -> Option<IcmpLimits> {
        self.icmp_limits
    }

    /// Returns the settings for packets of a port.
    #[inline]
    pub fn get(&self, port: usize) -> &Ingress {
        let ingress = match port.checked_sub(FIRST_STACKED.into()) {
            None => self.by_port.get(port),
            Some(at) => self.stacked.get(at).and_then(Option::as_ref),
        };
        ingress.unwrap_or(&self.others)
    }

    /// Returns whether there is a port with this number: any below [`FIRST_STACKED`].
    #[inline]
    pub fn has(&self, port: u16) -> bool {
        let at = port.checked_sub(FIRST_STACKED).map(usize::from);
        at.is_none_or(|at| self.stacked.get(at).is_some_and(Option::is_some))
    }

    /// Returns the port that stands for all ports whose packets are processed alike: `port` itself,
    /// or, for a stacked device, the first one with the same settings.
    #[inline]
    pub fn group(&self, port: u16) -> u16 {
        let at = port.checked_sub(FIRST_STACKED).map(usize::from);
        at.and_then(|at| self.devices.get(at)).map_or(port, |device| device.group)
    }

    /// Returns what the tags of a frame need of the stacked device with this port number.
    #[inline(always)]
    pub(super) fn device(&self, port: u16) -> DeviceSummary {
        let at = usize::from(port.wrapping_sub(FIRST_STACKED));
        let none = DeviceSummary { group: port, has_vlans: false, has_priorities: false };
        self.devices.get(at).copied().unwrap_or(none)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::{Ingress, Ingresses, Locals};

    #[test]
    fn each_port_has_its_own_and_those_beyond_have_none() {
        let own = |address: u32| Ingress {
            table: address as usize,
            locals: Arc::new(Locals::new([address], [])),
            ..Ingress::default()
        };
        let each = Ingresses::new([own(1), own(2)]);
        assert!(each.get(0).locals.holds_v4(1) && !each.get(0).locals.holds_v4(2));
        assert!(each.get(1).locals.holds_v4(2));
        assert_eq!([0, 1, 2].map(|port| each.get(port).table), [1, 2, 0]);
        assert!(each.get(2).locals.v4().is_empty());
        let alike = Ingresses::alike(own(3));
        assert!(alike.get(0).locals.holds_v4(3) && alike.get(900).locals.holds_v4(3));
    }
}
