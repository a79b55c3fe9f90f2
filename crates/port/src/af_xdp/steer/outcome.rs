//! The steering program's counters: the outcomes for packets.

use std::collections::BTreeMap;
use std::ops::{AddAssign, Index};

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// The outcome for a packet: taken, forwarded, dropped, or passed to the host for a reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum SteeringOutcome {
    /// Taken: to the socket.
    Taken,
    /// Forwarded: in the driver, to another device.
    Forwarded,
    /// Passed: shorter than an Ethernet header.
    Short,
    /// Passed: to a multicast or broadcast MAC (ARP requests, neighbor
    /// solicitations, routing protocols).
    Group,
    /// Passed: to another host's MAC.
    NotMine,
    /// Passed: has a VLAN tag; on an interface other than a gate's, also too many priority tags.
    Tagged,
    /// Passed: ARP.
    Arp,
    /// Passed: neither IPv4 nor IPv6.
    NotIp,
    /// Passed: the IP header is truncated, or its version or length is wrong.
    Unparsed,
    /// Passed: TTL or hop limit is 1 or 0.
    Expiring,
    /// Passed: to a multicast or the broadcast address.
    Multicast,
    /// Passed: to a link-local address.
    LinkLocal,
    /// Passed: to an address of the host.
    Local,
    /// Passed: for the router, but the interface is only observed.
    Observed,
    /// Passed: for the router, but longer than a frame of its memory.
    TooLong,
    /// Dropped: on a gate's interface, too many priority tags.
    Nested,
    /// Dropped: on a gate's front interface, to another host's MAC, and the gate does not fail
    /// open.
    Astray,
    /// Dropped: from a source that a gate blocks.
    Blocked,
    /// Dropped: of a flow that a gate has declined.
    Declined,
    /// Dropped: for the host, on a gate's front interface, with a source that is behind the gate.
    Forged,
    /// Dropped: on a gate's front interface, because no socket has the queue or its worker has
    /// stalled, and the gate does not fail open.
    Unserved,
    /// Passed: for the router, but the queue's worker has stalled.
    Stalled,
    /// Passed: for the router, but no socket has the queue.
    NoSocket,
}

impl SteeringOutcome {
    /// All outcomes, in the order of the counters.
    pub const ALL: [Self; 23] = [
        Self::Taken,
        Self::Forwarded,
        Self::Short,
        Self::Group,
        Self::NotMine,
        Self::Tagged,
        Self::Arp,
        Self::NotIp,
        Self::Unparsed,
        Self::Expiring,
        Self::Multicast,
        Self::LinkLocal,
        Self::Local,
        Self::Observed,
        Self::TooLong,
        Self::Nested,
        Self::Astray,
        Self::Blocked,
        Self::Declined,
        Self::Forged,
        Self::Unserved,
        Self::Stalled,
        Self::NoSocket,
    ];

    /// Returns the name of its counter.
    pub fn name(self) -> &'static str {
        match self {
            Self::Taken => "taken",
            Self::Forwarded => "forwarded",
            Self::Short => "short",
            Self::Group => "group_mac",
            Self::NotMine => "other_mac",
            Self::Tagged => "tagged",
            Self::Arp => "arp",
            Self::NotIp => "not_ip",
            Self::Unparsed => "unparsed",
            Self::Expiring => "expiring",
            Self::Multicast => "multicast",
            Self::LinkLocal => "link_local",
            Self::Local => "local",
            Self::Observed => "observed",
            Self::TooLong => "too_long",
            Self::Nested => "nested_tags",
            Self::Astray => "other_mac_dropped",
            Self::Blocked => "blocked",
            Self::Declined => "declined",
            Self::Forged => "forged",
            Self::Unserved => "unserved",
            Self::Stalled => "stalled",
            Self::NoSocket => "no_socket",
        }
    }

    /// Returns whether such packets are left to the host.
    pub const fn passes(self) -> bool {
        !matches!(self, Self::Taken | Self::Forwarded) && !self.drops()
    }

    /// Returns whether such packets are dropped.
    pub const fn drops(self) -> bool {
        matches!(
            self,
            Self::Nested
                | Self::Astray
                | Self::Blocked
                | Self::Declined
                | Self::Forged
                | Self::Unserved
        )
    }
}

/// One count for each [`SteeringOutcome`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SteeringCounters(pub(super) [u64; SteeringOutcome::ALL.len()]);

impl SteeringCounters {
    /// Returns the number of packets left to the host, for any reason.
    pub fn passed(&self) -> u64 {
        self.iter().filter(|(which, _)| which.passes()).map(|(_, count)| count).sum()
    }

    /// Returns each outcome with its count.
    pub fn iter(&self) -> impl Iterator<Item = (SteeringOutcome, u64)> + '_ {
        SteeringOutcome::ALL.into_iter().zip(self.0)
    }
}

/// By the names of the outcomes, so that versions with other outcomes can read them.
impl Serialize for SteeringCounters {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.iter().map(|(outcome, count)| (outcome.name(), count)))
    }
}

/// Refuses counts of an unknown outcome, which would be lost.
impl<'de> Deserialize<'de> for SteeringCounters {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut counters = Self::default();
        for (name, count) in BTreeMap::<String, u64>::deserialize(deserializer)? {
            let at = SteeringOutcome::ALL.into_iter().position(|outcome| outcome.name() == name);
            match at {
                Some(at) => counters.0[at] = count,
                None if count == 0 => {}
                None => return Err(D::Error::custom(format!("unknown outcome {name}"))),
            }
        }
        Ok(counters)
    }
}

impl AddAssign for SteeringCounters {
    fn add_assign(&mut self, others: Self) {
        self.0.iter_mut().zip(others.0).for_each(|(sum, more)| *sum += more);
    }
}

impl Index<SteeringOutcome> for SteeringCounters {
    type Output = u64;

    fn index(&self, which: SteeringOutcome) -> &u64 {
        &self.0[which as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outcome_has_one_counter_and_one_name() {
        let names: std::collections::HashSet<&str> =
            SteeringOutcome::ALL.map(SteeringOutcome::name).into_iter().collect();
        assert_eq!(names.len(), SteeringOutcome::ALL.len());
        for (n, which) in SteeringOutcome::ALL.into_iter().enumerate() {
            assert_eq!(which as usize, n, "{which:?}");
        }
        let counts = SteeringCounters(std::array::from_fn(|n| 1 << n));
        assert_eq!(counts[SteeringOutcome::Taken], 1);
        assert_eq!(counts[SteeringOutcome::Short], 4);
        let drops = SteeringOutcome::ALL.into_iter().filter(|which| which.drops());
        let dropped = drops.map(|which| 1 << which as u32).sum::<u64>();
        assert_eq!(counts.passed(), (1 << SteeringOutcome::ALL.len()) - 4 - dropped);
    }
}
