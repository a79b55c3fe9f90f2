//! The table of flows: packets in, records of expired flows out.
//!
//! ```text
//!   arrival ─► packets, octets, flags, times, ingress interface ─┐
//!   end     ─► dropped packets and octets, status, egress ───────┴─► Flow ─► Record, and why it ended
//! ```
//!
//! A packet is counted on arrival, and once more where it is dropped; where it is sent, only the
//! interface is taken. A flow ends after [`Timeouts`], a second after a FIN or RST, if its packets begin
//! to arrive on another interface, or for room: in a full table a random flow gives way, so that a
//! flood of new flows cannot select the one that is lost. Every packet is in exactly one record.
//!
//! With biflows (RFC 5103) the packets of the other direction are in the same record; the first
//! packet determines which direction is which.

use std::time::Duration;

use datapath::{Class, Verdict};
use fastrand::Rng;
use indexmap::IndexMap;

use super::packet::{FlowKey, Observed};
use super::status::forwarding_status;

/// The flags FIN and RST (RFC 9293).
const FIN_OR_RST: u8 = 0x05;
/// The time after the last packet of a connection at which its flow ends.
const ENDED: Duration = Duration::from_secs(1);

/// The times after which a flow is exported.
#[derive(Clone, Copy, Debug)]
pub(super) struct Timeouts {
    /// Since its first packet; it continues in another record.
    pub(super) active: Duration,
    /// Since its last packet.
    pub(super) idle: Duration,
}

/// Why a record ends (`flowEndReason`, RFC 5102, 5.11.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum EndReason {
    Idle = 1,
    Active = 2,
    Detected = 3,
    Forced = 4,
    NoResources = 5,
}

/// The packets of a flow in one direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Direction {
    pub(super) packets: u64,
    pub(super) octets: u64,
    pub(super) dropped_packets: u64,
    pub(super) dropped_octets: u64,
    /// The flags of all packets.
    pub(super) tcp_flags: u8,
    /// The times of the first and the last packet, in nanoseconds since 1970; 0 without packets.
    pub(super) first: u64,
    pub(super) last: u64,
}

impl Direction {
    fn is_empty(&self) -> bool {
        self.packets == 0 && self.dropped_packets == 0
    }

    fn touch(&mut self, time: u64) {
        if self.is_empty() {
            self.first = time;
        }
        self.last = self.last.max(time);
    }
}

/// A flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Flow {
    pub(super) key: FlowKey,
    pub(super) forward: Direction,
    pub(super) reverse: Direction,
    /// The indexes of the interfaces that its packets arrive on and leave by; 0 while it is unknown.
    pub(super) ingress: u32,
    pub(super) egress: u32,
    pub(super) tos: u8,
    pub(super) vlan: u16,
    /// The forwarding status of the last dropped packet, or else of the last one; 0 is unknown.
    pub(super) status: u8,
}

impl Flow {
    fn new(observed: &Observed) -> Self {
        let Observed { key, tos, vlan, .. } = *observed;
        let (forward, reverse) = (Direction::default(), Direction::default());
        Self { key, forward, reverse, ingress: 0, egress: 0, tos, vlan, status: 0 }
    }

    fn is_empty(&self) -> bool {
        self.forward.is_empty() && self.reverse.is_empty()
    }

    /// Returns the time of the first packet; none without packets.
    fn first(&self) -> Option<u64> {
        let directions = [self.forward, self.reverse];
        directions.iter().filter(|one| !one.is_empty()).map(|one| one.first).min()
    }

    fn end_reason(&self, timeouts: Timeouts, now: u64) -> Option<EndReason> {
        let quiet =
            Duration::from_nanos(now.saturating_sub(self.forward.last.max(self.reverse.last)));
        let age = Duration::from_nanos(now.saturating_sub(self.first().unwrap_or(now)));
        let flags = self.forward.tcp_flags | self.reverse.tcp_flags;
        if flags & FIN_OR_RST != 0 && quiet >= ENDED {
            Some(EndReason::Detected)
        } else if quiet >= timeouts.idle {
            Some(EndReason::Idle)
        } else {
            (age >= timeouts.active).then_some(EndReason::Active)
        }
    }
}

/// A flow whose record is due.
pub(super) type Record = (Flow, EndReason);

/// The flows whose packets are counted.
pub(super) struct FlowTable {
    flows: IndexMap<FlowKey, Flow>,
    most: usize,
    is_biflow: bool,
    timeouts: Timeouts,
    rng: Rng,
    /// Records that do not wait for a timeout.
    due: Vec<Record>,
}

impl FlowTable {
    pub(super) fn new(most: usize, is_biflow: bool, timeouts: Timeouts) -> Self {
        let flows = IndexMap::new();
        Self { flows, most: most.max(1), is_biflow, timeouts, rng: Rng::new(), due: Vec::new() }
    }

    /// Returns the flow of a packet, and whether the packet is of its forward direction.
    fn find(&mut self, key: FlowKey) -> Option<(&mut Flow, bool)> {
        let is_forward = self.flows.contains_key(&key);
        let key = if is_forward || !self.is_biflow { key } else { key.reversed() };
        self.flows.get_mut(&key).map(|flow| (flow, is_forward))
    }

    fn find_or_add(&mut self, observed: &Observed) -> (&mut Flow, bool) {
        if self.find(observed.key).is_none() {
            if self.flows.len() >= self.most
                && let Some((_, flow)) = self.flows.swap_remove_index(self.rng.usize(..self.most))
            {
                self.end(flow, EndReason::NoResources);
            }
            self.flows.insert(observed.key, Flow::new(observed));
        }
        let key = observed.key;
        let is_forward = self.flows.contains_key(&key);
        let key = if is_forward { key } else { key.reversed() };
        (self.flows.entry(key).or_insert_with(|| Flow::new(observed)), is_forward)
    }

    fn end(&mut self, flow: Flow, reason: EndReason) {
        if !flow.is_empty() {
            self.due.push((flow, reason));
        }
    }

    /// Counts a packet that arrives on an interface.
    pub(super) fn count_arrival(&mut self, observed: &Observed, ingress: u32, time: u64) {
        if let Some((flow, true)) = self.find(observed.key)
            && flow.ingress != 0
            && flow.ingress != ingress
        {
            let moved = *flow;
            self.flows.swap_remove(&observed.key);
            self.end(moved, EndReason::Forced);
        }
        let (flow, is_forward) = self.find_or_add(observed);
        if is_forward {
            flow.ingress = ingress;
        }
        let direction = if is_forward { &mut flow.forward } else { &mut flow.reverse };
        direction.touch(time);
        direction.packets += 1;
        direction.octets += observed.octets;
        direction.tcp_flags |= observed.tcp_flags;
    }

    /// Takes the end of a packet: its verdict, and the interface that it leaves by if that is known.
    pub(super) fn count_end(
        &mut self,
        observed: &Observed,
        verdict: Verdict,
        egress: Option<u32>,
        time: u64,
    ) {
        let is_dropped = verdict.class() == Class::Dropped;
        // A packet of the router's own, or in a tunnel, has not arrived: it begins no flow.
        if !is_dropped && self.find(observed.key).is_none() {
            return;
        }
        let (flow, is_forward) = self.find_or_add(observed);
        let direction = if is_forward { &mut flow.forward } else { &mut flow.reverse };
        if is_dropped {
            direction.touch(time);
            direction.dropped_packets += 1;
            direction.dropped_octets += observed.octets;
        }
        if !is_forward {
            return;
        }
        flow.egress = egress.unwrap_or(flow.egress);
        if is_dropped || flow.forward.dropped_packets == 0 {
            flow.status = forwarding_status(verdict);
        }
    }

    /// Returns the records that are due at a time, at most `most` of them by timeouts.
    pub(super) fn expire(&mut self, now: u64, most: usize) -> Vec<Record> {
        let mut records = std::mem::take(&mut self.due);
        let (timeouts, most) = (self.timeouts, records.len() + most);
        self.flows.retain(|_, flow| {
            if records.len() >= most {
                return true;
            }
            let Some(reason) = flow.end_reason(timeouts, now) else { return true };
            if !flow.is_empty() {
                records.push((*flow, reason));
            }
            (flow.forward, flow.reverse) = (
                Direction { last: flow.forward.last, ..Direction::default() },
                Direction { last: flow.reverse.last, ..Direction::default() },
            );
            reason == EndReason::Active
        });
        records
    }

    /// Returns the records of all flows.
    pub(super) fn end_all(&mut self) -> Vec<Record> {
        for (_, flow) in std::mem::take(&mut self.flows) {
            self.end(flow, EndReason::Forced);
        }
        std::mem::take(&mut self.due)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;
    use std::net::IpAddr;

    use super::*;

    const SECOND: u64 = 1_000_000_000;
    const TIMEOUTS: Timeouts =
        Timeouts { active: Duration::from_secs(60), idle: Duration::from_secs(15) };

    fn address(last: u8) -> IpAddr {
        IpAddr::from([192, 0, 2, last])
    }

    fn packet(from: (u8, u16), to: (u8, u16), octets: u64) -> Observed {
        let (src, dst, protocol) = (address(from.0), address(to.0), 6);
        let key = FlowKey { src, dst, protocol, src_port: from.1, dst_port: to.1, icmp: 0 };
        Observed { key, octets, tos: 0, tcp_flags: 0, vlan: 0 }
    }

    fn table(most: usize, is_biflow: bool) -> FlowTable {
        FlowTable::new(most, is_biflow, TIMEOUTS)
    }

    #[test]
    fn flow_ends_after_the_idle_and_continues_after_the_active_timeout() {
        let mut table = table(10, false);
        let request = packet((1, 1000), (2, 80), 100);
        for second in 0..=70 {
            table.count_arrival(&request, 3, second * SECOND);
            table.count_end(&request, Verdict::Sent, Some(4), second * SECOND);
            let due = table.expire(second * SECOND, 10);
            let expected = (second == 60).then_some((61, 0, 60 * SECOND));
            let found = due.iter().map(|(flow, reason)| {
                assert_eq!(*reason, EndReason::Active);
                assert_eq!((flow.ingress, flow.egress, flow.status), (3, 4, 64));
                (flow.forward.packets, flow.forward.first, flow.forward.last)
            });
            assert_eq!(found.collect::<Vec<_>>(), Vec::from_iter(expected));
        }
        assert_eq!(table.expire(84 * SECOND, 10), []);
        let [(flow, EndReason::Idle)] = table.expire(85 * SECOND, 10)[..] else { panic!() };
        let forward = flow.forward;
        assert_eq!((forward.packets, forward.octets, forward.first), (10, 1000, 61 * SECOND));
        assert!(table.flows.is_empty());
    }

    #[test]
    fn drop_is_counted_with_its_reason_whether_the_arrival_was_sampled_or_not() {
        let mut table = table(10, false);
        let (known, unknown) = (packet((1, 1), (2, 80), 100), packet((3, 1), (2, 80), 60));
        table.count_arrival(&known, 3, SECOND);
        table.count_end(&known, Verdict::AclDenied, None, SECOND);
        table.count_end(&known, Verdict::Sent, Some(4), SECOND);
        table.count_end(&unknown, Verdict::TtlExpired, None, SECOND);
        table.count_end(&packet((4, 1), (2, 80), 60), Verdict::Sent, Some(4), SECOND);
        let records = table.end_all();
        let counts = records.iter().map(|(flow, _)| {
            let Direction { packets, dropped_packets, dropped_octets, .. } = flow.forward;
            (packets, dropped_packets, dropped_octets, flow.status)
        });
        assert_eq!(counts.collect::<Vec<_>>(), [(1, 1, 100, 129), (0, 1, 60, 137)]);
    }

    #[test]
    fn biflow_has_both_directions_and_begins_with_the_first_packet() {
        let (request, reply) = (packet((1, 1000), (2, 80), 100), packet((2, 80), (1, 1000), 900));
        for is_biflow in [false, true] {
            let mut table = table(10, is_biflow);
            table.count_arrival(&request, 3, SECOND);
            table.count_arrival(&reply, 4, 2 * SECOND);
            table.count_end(&reply, Verdict::NoRoute, None, 2 * SECOND);
            let records = table.end_all();
            assert_eq!(records.len(), if is_biflow { 1 } else { 2 });
            if is_biflow {
                let (flow, _) = records[0];
                assert_eq!((flow.key, flow.ingress, flow.status), (request.key, 3, 0));
                assert_eq!((flow.forward.octets, flow.forward.first), (100, SECOND));
                assert_eq!((flow.reverse.octets, flow.reverse.first), (900, 2 * SECOND));
                assert_eq!(flow.reverse.dropped_octets, 900);
            }
        }
    }

    #[test]
    fn flow_ends_if_its_packets_arrive_elsewhere_and_after_a_fin() {
        let mut table = table(10, false);
        let request = packet((1, 1000), (2, 80), 100);
        table.count_arrival(&request, 3, SECOND);
        table.count_arrival(&request, 5, SECOND);
        let [(flow, EndReason::Forced)] = table.expire(SECOND, 10)[..] else { panic!() };
        assert_eq!(flow.ingress, 3);
        table.count_arrival(&Observed { tcp_flags: 0x11, ..request }, 5, 2 * SECOND);
        assert_eq!(table.expire(2 * SECOND, 10), []);
        let [(flow, EndReason::Detected)] = table.expire(3 * SECOND, 10)[..] else { panic!() };
        assert_eq!((flow.ingress, flow.forward.packets), (5, 2));
    }

    /// Random packets in a small table: the sums over all records are those of the packets.
    #[test]
    fn each_packet_is_in_one_record() {
        let mut rng = Rng::with_seed(7);
        for is_biflow in [false, true] {
            let mut table = table(20, is_biflow);
            let mut expected = HashMap::<FlowKey, (u64, u64)>::new();
            let mut records = Vec::new();
            for step in 0..20_000 {
                let (a, b) = ((rng.u8(..6), rng.u16(..3)), (rng.u8(6..9), rng.u16(..3)));
                let (from, to) = if rng.bool() { (a, b) } else { (b, a) };
                let one = packet(from, to, rng.u64(40..1500));
                let time = step * SECOND / 10;
                table.count_arrival(&one, rng.u32(1..3), time);
                let sums = expected.entry(one.key).or_default();
                sums.0 += one.octets;
                if rng.bool() {
                    table.count_end(&one, Verdict::NoRoute, None, time);
                    sums.1 += one.octets;
                }
                assert!(table.flows.len() <= 20);
                records.extend(table.expire(time, 2));
            }
            records.extend(table.end_all());
            assert!(records.iter().any(|(_, reason)| *reason == EndReason::NoResources));
            for (flow, _) in records {
                for (key, sums) in [(flow.key, flow.forward), (flow.key.reversed(), flow.reverse)] {
                    let left = expected.entry(key).or_default();
                    left.0 -= sums.octets;
                    left.1 -= sums.dropped_octets;
                }
            }
            assert!(expected.values().all(|left| *left == (0, 0)));
        }
    }
}
