//! The packets of a capture that end in steering programs: dropped there, or forwarded in the driver.
//!
//! ```text
//!   conditions ─► a session in the program of each interface ─► one ring ─► filter, cut ─► records
//! ```
//!
//! The programs select by occasion and interface, and sample; the filter runs here, since the kernel's
//! programs have no interpreter. So a capture with a filter has whole packets copied, as far as a copy reaches
//! ([`MAX_COPY`]), and `one_in` bounds the cost for the programs. An egress interface is also selected here.
//!
//! A packet ends with the verdict by which it counts ([`verdict_of`]), and a record states its port as those of workers do: a
//! dropped packet that of its device, a forwarded one that of the device by which it leaves.
//!
//! The ring is created on the control thread, which has `CAP_BPF`; the client's thread opens and closes the sessions by
//! the descriptors of maps. The programs of interfaces that a reload opens get the session, too.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use datapath::capture::{Conditions, Filter, Occasion, Point, Record};
use nix::time::{ClockId, clock_gettime};
use port::af_xdp::Interface;
use port::af_xdp::bpf::RingBuffer;
use port::af_xdp::steer::{
    COPY_SESSIONS, CopyConditions, CopyOccasion, MAX_COPY, PacketCopies, PacketCopy,
    SteeringOutcome,
};

use crate::handle::ControlHandle;
use crate::kernel_sync::KernelSync;
use crate::packet_names::PacketNames;
use crate::view::verdict_of;

/// The bytes of the ring of a capture.
const RING: u32 = 4 << 20;

/// The session of a capture in the programs of all interfaces. Dropping it closes the session.
pub(crate) struct DriverCopies {
    /// `None`: no program copies packets.
    ring: Option<RingBuffer>,
    own: u32,
    conditions: Conditions,
    open: Vec<OpenCopies>,
    /// The packets that sessions at closed interfaces have lost.
    lost_before: u64,
}

struct OpenCopies {
    copies: Arc<PacketCopies>,
    port: u16,
    slot: usize,
}

impl DriverCopies {
    /// Begins a session with this number at these interfaces.
    ///
    /// # Errors
    ///
    /// The reason, as a text.
    pub(crate) fn begin(
        control: &ControlHandle<KernelSync>,
        own: u32,
        conditions: &Conditions,
        interfaces: &[Interface],
    ) -> Result<Self, String> {
        let has_copies = interfaces.iter().any(|interface| interface.copies().is_some());
        let created =
            has_copies.then(|| control.call(|_| RingBuffer::new("fp_capture", RING))).flatten();
        let ring = created.transpose();
        let ring =
            ring.map_err(|error| format!("creating a ring for packets in the driver: {error}"))?;
        let conditions = conditions.clone();
        let mut all = Self { ring, own, conditions, open: Vec::new(), lost_before: 0 };
        all.follow(interfaces)?;
        Ok(all)
    }

    /// Opens the session at interfaces that do not have it, and closes it at those that have gone.
    ///
    /// # Errors
    ///
    /// The reason, as a text.
    pub(crate) fn follow(&mut self, interfaces: &[Interface]) -> Result<(), String> {
        let Some(ring) = &self.ring else { return Ok(()) };
        // In the order of the ports.
        let present: Vec<_> = (0..)
            .zip(interfaces)
            .filter_map(|(port, interface)| Some((interface.copies()?, port)))
            .collect();
        let is_open = |open: &OpenCopies, (copies, port): &(Arc<PacketCopies>, u16)| {
            Arc::ptr_eq(copies, &open.copies) && *port == open.port
        };
        let lost_before = &mut self.lost_before;
        self.open.retain(|open| {
            let stays = present.iter().any(|present| is_open(open, present));
            if !stays {
                *lost_before += close(open);
            }
            stays
        });
        for new in present {
            if self.open.iter().any(|open| is_open(open, &new)) {
                continue;
            }
            let (copies, port) = new;
            let opened = copies.open(ring, &wanted(&self.conditions, port));
            let slot = opened
                .map_err(|error| format!("opening a capture in the steering program: {error}"))?
                .ok_or_else(|| {
                    format!("{COPY_SESSIONS} captures are running: end one of them first")
                })?;
            self.open.push(OpenCopies { copies, port, slot });
        }
        Ok(())
    }

    /// Returns whether packets that end in the program of an interface are captured.
    pub(crate) fn has(&self, interface: &Interface) -> bool {
        self.ring.is_some() && interface.copies().is_some()
    }

    /// Returns the packets since the last call.
    pub(crate) fn take(&mut self, names: &PacketNames) -> Vec<Record> {
        let Some(ring) = &mut self.ring else { return Vec::new() };
        let (mut records, offset) = (Vec::new(), clock_offset());
        let (own, conditions) = (self.own, &self.conditions);
        ring.read(|record| {
            let copy = PacketCopy::read(record);
            records.extend(copy.and_then(|copy| to_record(copy, own, conditions, names, offset)));
        });
        records
    }

    /// Returns the number of packets that the ring had no room for.
    pub(crate) fn lost(&self) -> u64 {
        self.lost_before + self.open.iter().map(|open| open.copies.lost(open.slot)).sum::<u64>()
    }
}

impl Drop for DriverCopies {
    fn drop(&mut self) {
        self.open.iter().for_each(|open| _ = close(open));
    }
}

/// Closes a session at an interface, and returns the number of packets that it has lost.
fn close(OpenCopies { copies, slot, .. }: &OpenCopies) -> u64 {
    copies.close(*slot).unwrap_or_else(|error| {
        // Its words ask for no packet any more.
        log::warn!("closing a capture in the steering program: {error}");
        copies.lost(*slot)
    })
}

/// Returns the conditions for the program of the interface of a port.
fn wanted(conditions: &Conditions, port: u16) -> CopyConditions {
    let Conditions { arrivals, verdicts, port: only, one_in, snap, filter, .. } = conditions;
    let receives = only.is_none_or(|only| only == port);
    // Packets may leave by the wanted interface.
    let is_wanted = |outcome: SteeringOutcome| {
        verdict_of(outcome).is_some_and(|verdict| verdicts.contains(&verdict))
            && (receives || outcome == SteeringOutcome::Forwarded)
    };
    let ends = SteeringOutcome::ALL.into_iter().filter(|outcome| is_wanted(*outcome));
    let arrival = (*arrivals && receives).then_some(CopyOccasion::Arrival);
    CopyConditions {
        occasions: ends.map(CopyOccasion::End).chain(arrival).collect(),
        one_in: *one_in,
        snap: if *filter == Filter::default() { usize::from(*snap) } else { MAX_COPY },
        port,
    }
}

/// Returns the record of a copy, if the capture wants it; `offset` is the time since 1970 at the zero of the
/// monotonic clock.
fn to_record(
    copy: PacketCopy,
    session: u32,
    conditions: &Conditions,
    names: &PacketNames,
    offset: Duration,
) -> Option<Record> {
    let Conditions { port, snap, filter, .. } = conditions;
    let PacketCopy { time, occasion, port: ingress, egress, length, mut bytes } = copy;
    let (occasion, point) = match occasion {
        CopyOccasion::Arrival => (Occasion::Arrival, Point::Ingress(ingress)),
        CopyOccasion::End(outcome) => {
            let point = match outcome {
                SteeringOutcome::Forwarded => Point::Egress(names.port_of_link(egress)),
                _ => Point::Ingress(ingress),
            };
            (Occasion::End(verdict_of(outcome)?), point)
        }
    };
    let is_wanted = port.is_none_or(|port| port == point.port())
        && (*filter == Filter::default() || filter.accepts(&bytes));
    bytes.truncate(usize::from(*snap));
    let time = (offset + Duration::from_nanos(time)).as_nanos() as u64;
    let len = length.min(u32::from(u16::MAX)) as u16;
    is_wanted.then_some(Record { time, session, occasion, point, len, bytes })
}

/// Returns the time since 1970 at the zero of the monotonic clock.
fn clock_offset() -> Duration {
    let uptime = clock_gettime(ClockId::CLOCK_MONOTONIC).map_or(Duration::ZERO, Duration::from);
    SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default().saturating_sub(uptime)
}

#[cfg(test)]
mod tests {
    use datapath::Verdict;

    use super::*;

    const FORWARDED: CopyOccasion = CopyOccasion::End(SteeringOutcome::Forwarded);
    const BLOCKED: CopyOccasion = CopyOccasion::End(SteeringOutcome::Blocked);

    fn conditions(verdicts: &[Verdict], port: Option<u16>) -> Conditions {
        let verdicts = verdicts.to_vec();
        Conditions { arrivals: true, verdicts, port, ..Conditions::every_end(100) }
    }

    #[test]
    fn programs_copy_the_wanted_ends_alone() {
        let of = |verdicts: &[Verdict], only, port| wanted(&conditions(verdicts, only), port);
        let both = [Verdict::Sent, Verdict::Blocked, Verdict::NoRoute];
        let any = of(&both, None, 3);
        assert_eq!(any.occasions, [FORWARDED, BLOCKED, CopyOccasion::Arrival]);
        assert_eq!((any.one_in, any.snap, any.port), (1, 100, 3));
        assert_eq!(of(&both, Some(3), 3).occasions, any.occasions);
        assert_eq!(of(&both, Some(4), 3).occasions, [FORWARDED], "it may leave by the other port");
        assert_eq!(of(&[Verdict::NoRoute], None, 3).occasions, [CopyOccasion::Arrival]);
        // The kernel's packets have no verdict.
        let all = of(&Verdict::ALL, None, 3).occasions;
        assert!(
            all.iter().all(|occasion| !matches!(occasion, CopyOccasion::End(end) if end.passes()))
        );
        let filter = Filter::new(&[(6, 0, 0, 1)]).unwrap();
        let filtered = Conditions { filter, ..conditions(&both, None) };
        assert_eq!(wanted(&filtered, 3).snap, MAX_COPY, "the filter may read any byte");
    }

    #[test]
    fn copy_becomes_a_record_if_filter_and_port_accept_it() {
        let names = PacketNames::with_links(vec![(9, 2)]);
        let copy = |occasion| PacketCopy {
            time: 5,
            occasion,
            port: 1,
            egress: 9,
            length: 70_000,
            bytes: vec![7; 200],
        };
        let record = |copy: PacketCopy, conditions: &Conditions| {
            to_record(copy, 4, conditions, &names, Duration::from_nanos(1000))
        };
        let any = conditions(&Verdict::ALL, None);
        let sent = record(copy(FORWARDED), &any).unwrap();
        let (end, point) = (Occasion::End(Verdict::Sent), Point::Egress(2));
        let want = Record {
            time: 1005,
            session: 4,
            occasion: end,
            point,
            len: 65535,
            bytes: vec![7; 100],
        };
        assert_eq!(sent, want);
        let dropped = record(copy(BLOCKED), &any).unwrap();
        assert_eq!(
            (dropped.occasion, dropped.point),
            (Occasion::End(Verdict::Blocked), Point::Ingress(1))
        );
        let by_port = |port| conditions(&Verdict::ALL, Some(port));
        assert!(record(copy(FORWARDED), &by_port(2)).is_some());
        assert_eq!(record(copy(FORWARDED), &by_port(1)), None);
        assert!(record(copy(CopyOccasion::Arrival), &by_port(1)).is_some());
        // `greater 200`, beyond the bytes that are kept.
        for (least, accepts) in [(200, true), (201, false)] {
            let program = [(0x80, 0, 0, 0), (0x35, 0, 1, least), (6, 0, 0, 1), (6, 0, 0, 0)];
            let filter = Filter::new(&program).unwrap();
            let filtered = Conditions { filter, ..conditions(&Verdict::ALL, None) };
            assert_eq!(record(copy(BLOCKED), &filtered).is_some(), accepts, "{least}");
        }
    }
}
