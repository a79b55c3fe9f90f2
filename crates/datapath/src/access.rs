//! Access lists: the packets that a port's lists deny, by the direction in which they pass it.
//!
//! ```text
//!   frames ─► parse ─► lists of the ports they arrived on ─► lookup ─► lists of the ports they leave by
//!                       └ denied, beyond a rate: refused      └ the same
//!                       └ mirrored: a copy leaves by another port
//! ```
//!
//! Lists of received packets are examined before the lookup, so that a packet that they deny causes no
//! ICMP error and is not punted. Packets for this machine are not examined: the steering program passes
//! them to Linux, whose own filter decides (nftables). Lists of sent packets are examined once the port
//! is known, and before the packet is changed: also for a next hop without a MAC address, and for packets
//! that Linux forwards by that port; not for packets over its MTU, which get an ICMP error. ICMP errors and other
//! packets that this machine originates are in no list.
//!
//! Most packets match no rule of most lists, which their addresses show. On a port with such a list a batch is
//! parsed here, and the packets that a rule may match are gathered (`AccessStage::parse`).
//!
//! The control plane publishes the lists by port number. A list has counters for each worker, and
//! policers that all workers share (the crate `acl`).
//!
//! Limits: a packet that waits for a neighbor is not examined again if its route changes meanwhile. A copy
//! is lost without a count if no frame is free.

use std::sync::Arc;
use std::time::Instant;

use acl::{AccessList, Action, Classifier, InstalledList, Matcher, PacketFamily};
use fib::Reader;
use port::{Arena, Frame};
use wire::{ethernet, ipv4, ipv6};

use super::batch::{AHEAD, Kind, SIZE};
use super::ingress::FrameIngress;
use super::punt::may_fragment;
use super::refusals::Refusals;
use super::turn::Lane;
use super::{
    Adjacencies, Adjacency, Batch, FIRST_STACKED, Locals, Parsed, Verdict, flow_v4, flow_v6, parse,
};
use crate::capture::RuleIndex;
use crate::stats::WorkerStats;

/// No list, and no port.
const NONE: u16 = u16::MAX;

/// A list, and the ports that its copies leave by.
#[derive(Clone, Debug)]
pub struct AppliedList {
    list: Arc<InstalledList>,
    /// The port of each rule that makes copies; empty if no rule does.
    mirrors: Box<[u16]>,
}

impl AppliedList {
    /// Applies a list; `port` returns the number of an interface's port, which has a queue of its own.
    /// Rules whose interface is no port make no copies.
    pub fn new(list: Arc<InstalledList>, port: impl Fn(&str) -> Option<u16>) -> Self {
        let mirror = |action: &Action| match action {
            Action::Mirror { interface, .. } => port(interface).unwrap_or(NONE),
            _ => NONE,
        };
        let mirrors: Box<[_]> =
            list.list().rules().iter().map(|rule| mirror(&rule.action)).collect();
        let has_mirrors = mirrors.iter().any(|port| *port != NONE);
        Self { list, mirrors: if has_mirrors { mirrors } else { Box::default() } }
    }
}

/// A list of each port in one direction.
#[derive(Clone, Debug, Default)]
struct ListsByPort {
    by_port: Vec<u16>,
    stacked: Vec<u16>,
}

impl ListsByPort {
    /// Sorts pairs of a port and a list: the first list of each port, the second of each, and so on.
    fn layers(lists: impl IntoIterator<Item = (u16, u16)>) -> Vec<Self> {
        let mut layers: Vec<Self> = Vec::new();
        for (port, list) in lists {
            let free = layers.iter().position(|layer| layer.get(port) == NONE);
            let at = free.unwrap_or(layers.len());
            if at == layers.len() {
                layers.push(Self::default());
            }
            layers[at].set(port, list);
        }
        layers
    }

    fn set(&mut self, port: u16, list: u16) {
        let (slots, at) = match port.checked_sub(FIRST_STACKED) {
            None => (&mut self.by_port, port),
            Some(at) => (&mut self.stacked, at),
        };
        let at = usize::from(at);
        slots.resize(slots.len().max(at + 1), NONE);
        slots[at] = list;
    }

    #[inline]
    fn get(&self, port: u16) -> u16 {
        let list = match port.checked_sub(FIRST_STACKED) {
            None => self.by_port.get(usize::from(port)),
            Some(at) => self.stacked.get(usize::from(at)),
        };
        list.copied().unwrap_or(NONE)
    }
}

/// The lists of all ports.
#[derive(Clone, Debug, Default)]
pub struct AccessLists {
    lists: Vec<AppliedList>,
    inbound: Vec<ListsByPort>,
    outbound: Vec<ListsByPort>,
}

impl AccessLists {
    /// Makes the lists of ports: pairs of a port number and an index of `lists`, for packets that arrive
    /// on the port and for those that leave by it. Ports that are not named have none; one that is named
    /// several times has several, which examine a packet in this order until one refuses it.
    pub fn new(
        lists: Vec<AppliedList>,
        inbound: impl IntoIterator<Item = (u16, u16)>,
        outbound: impl IntoIterator<Item = (u16, u16)>,
    ) -> Self {
        let (inbound, outbound) = (ListsByPort::layers(inbound), ListsByPort::layers(outbound));
        Self { lists, inbound, outbound }
    }

    /// Returns the first list that examines what arrives on a port, if it permits what no rule ends.
    #[inline]
    fn first_permitting(&self, port: u16) -> Option<&InstalledList> {
        let list = &*self.lists.get(usize::from(self.inbound.first()?.get(port)))?.list;
        list.list().permits.then_some(list)
    }
}

/// The frames of a batch that are examined, and what happens to them.
pub(super) struct AccessBatch<'w> {
    pub(super) arena: &'w mut Arena,
    pub(super) lanes: &'w mut [Lane],
    pub(super) frames: &'w [Frame],
    /// The ingress of each frame; none if all arrived on `number`.
    pub(super) arrivals: &'w [FrameIngress],
    pub(super) number: u16,
    pub(super) batch: &'w Batch,
    pub(super) refusals: &'w mut Refusals,
    pub(super) stats: &'w WorkerStats,
}

impl AccessBatch<'_> {
    #[inline]
    fn ingress(&self, at: usize) -> FrameIngress {
        self.arrivals.get(at).copied().unwrap_or(FrameIngress::untagged(self.number))
    }

    /// Returns the bytes of the tags of the VLAN device that a frame arrived on.
    #[inline(always)]
    fn tags(&self, at: usize) -> usize {
        self.arrivals.get(at).map_or(0, |ingress| ingress.tags())
    }

    /// Returns a frame without its tags.
    #[inline]
    fn untagged(&self, at: usize) -> &[u8] {
        let frame = self.frames.get(at).map(|frame| self.arena.bytes(frame));
        frame.and_then(|frame| frame.get(self.tags(at)..)).unwrap_or_default()
    }

    /// Returns the IP packet of a frame.
    #[inline(always)]
    fn packet_of(&self, at: usize, frame: &Frame) -> &[u8] {
        self.arena.bytes(frame).get(self.tags(at) + ethernet::LEN..).unwrap_or_default()
    }

    /// Returns the IP packet of the frame at this index.
    #[inline]
    fn packet(&self, at: usize) -> &[u8] {
        self.frames.get(at).map(|frame| self.packet_of(at, frame)).unwrap_or_default()
    }
}

/// A worker's part of the access lists: all the memory that it uses.
pub(super) struct AccessStage {
    lists: Reader<AccessLists>,
    /// The number of the worker.
    worker: usize,
    /// The list of each frame.
    list_of: [u16; SIZE],
    matchers: Matchers,
    /// The address of the list that the batch is gathered for; 0 if it is not.
    gathered: usize,
    /// The time from which policers count.
    origin: Instant,
}

impl AccessStage {
    /// Allocates the memory of the worker with this number.
    pub(super) fn new(lists: Reader<AccessLists>, worker: usize) -> Self {
        let (list_of, origin) = ([NONE; SIZE], Instant::now());
        Self { lists, worker, list_of, matchers: Matchers::new(), gathered: 0, origin }
    }

    /// Parses the frames of a batch that arrived on one port, and gathers those that a rule of its first list may
    /// match, while their headers are in the first-level cache: frames that lie 2048 or 4096 bytes apart share a
    /// few of its sets. Returns their bytes; `None`, and parses nothing, if there is no list that permits what none of
    /// its rules ends.
    #[inline(never)]
    pub(super) fn parse(
        &mut self,
        arena: &Arena,
        frames: &[Frame],
        (port, mac, locals): (u16, [u8; 6], &Locals),
        batch: &mut Batch,
    ) -> Option<u64> {
        let Self { lists, matchers, gathered, .. } = self;
        let list = lists.current().first_permitting(port)?;
        *gathered = std::ptr::from_ref(list).addr();
        let rules = list.list();
        matchers.clear();
        for frame in frames.iter().take(AHEAD) {
            arena.prefetch(frame);
        }
        let mut bytes = 0;
        for (at, frame) in frames.iter().enumerate() {
            if let Some(next) = frames.get(at + AHEAD) {
                arena.prefetch(next);
            }
            bytes += frame.len() as u64;
            let frame = arena.bytes(frame);
            let parsed = parse(frame, mac, locals);
            batch.push(parsed);
            let packet = frame.get(ethernet::LEN..).unwrap_or_default();
            // Not by `push`: a second test of the kind costs some of what this saves.
            match parsed {
                Parsed::V4(_) => _ = matchers.v4.push(rules.v4(), at as u16, packet),
                Parsed::V6(_) => _ = matchers.v6.push(rules.v6(), at as u16, packet),
                Parsed::Done(verdict) => {
                    if has_kind(Kind::Done(verdict)) {
                        matchers.push_other(rules, at as u16, packet);
                    }
                }
            }
        }
        Some(bytes)
    }

    /// Releases lists that have been replaced.
    pub(super) fn idle(&mut self) {
        self.lists.idle();
    }

    /// Examines the frames of a batch, whose hops are known.
    ///
    /// Not a part of the worker's turn, which is slower with more code in it, also without lists.
    #[inline(never)]
    pub(super) fn examine(&mut self, mut batch: AccessBatch<'_>, adjacencies: &Adjacencies) {
        let Self { lists, list_of, worker, matchers, gathered, origin } = self;
        let lists = lists.current();
        let (worker, origin) = (*worker, *origin);
        let gathered = std::mem::take(gathered);
        let mut stage = Examination { lists, worker, matchers, gathered, origin, time: None };
        for layer in &lists.inbound {
            if batch.arrivals.is_empty() {
                // One list for all frames.
                stage.run(layer.get(batch.number), &mut batch, is_examined);
            } else if select_inbound(layer, list_of, &batch) {
                stage.run_each(list_of, &mut batch);
            }
            stage.gathered = 0;
        }
        for layer in &lists.outbound {
            if select_outbound(layer, list_of, &batch, adjacencies) {
                stage.run_each(list_of, &mut batch);
            }
        }
    }
}

/// Returns whether a list has refused a packet.
fn is_of_list(verdict: Verdict) -> bool {
    matches!(verdict, Verdict::AclDenied | Verdict::AclPoliced)
}

/// Stores the list of each frame by the port that it arrived on; returns whether there is one.
fn select_inbound(layer: &ListsByPort, list_of: &mut [u16; SIZE], batch: &AccessBatch<'_>) -> bool {
    let mut has_list = false;
    for ((at, (kind, _)), slot) in batch.batch.outcomes().enumerate().zip(list_of) {
        let is_examined = is_examined(batch, at, kind);
        *slot = if is_examined { layer.get(batch.ingress(at).port) } else { NONE };
        has_list |= *slot != NONE;
    }
    has_list
}

/// Returns whether the lists of received packets are about a frame.
#[inline(always)]
fn is_examined(batch: &AccessBatch<'_>, at: usize, kind: Kind) -> bool {
    // A list counts a packet that the reverse path filter refuses, not one that a list before refuses.
    let is_refused = !batch.refusals.is_empty() && batch.refusals.get(at).is_some_and(is_of_list);
    !is_refused && has_kind(kind)
}

/// Returns whether the lists of received packets are about frames of a kind.
#[inline(always)]
fn has_kind(kind: Kind) -> bool {
    match kind {
        Kind::V4 | Kind::V6 => true,
        // Their senders may get an ICMP error.
        Kind::Done(Verdict::TtlExpired | Verdict::SourceRoute | Verdict::LinkLocal) => true,
        Kind::Done(_) | Kind::Deferred => false,
    }
}

/// The packets of one list's batch, by family.
struct Matchers {
    v4: Matcher<u32>,
    v6: Matcher<u128>,
}

impl Matchers {
    fn new() -> Self {
        Self { v4: Matcher::new(SIZE), v6: Matcher::new(SIZE) }
    }

    fn clear(&mut self) {
        self.v4.clear();
        self.v6.clear();
    }

    /// Adds a packet, unless no rule of the list can match it. Returns whether one may.
    #[inline(always)]
    fn push(&mut self, list: &AccessList, number: u16, kind: Kind, packet: &[u8]) -> bool {
        match kind {
            Kind::V4 => self.v4.push(list.v4(), number, packet),
            Kind::V6 => self.v6.push(list.v6(), number, packet),
            _ => self.push_other(list, number, packet),
        }
    }

    /// Adds a packet whose verdict is decided, by its version.
    #[cold]
    fn push_other(&mut self, list: &AccessList, number: u16, packet: &[u8]) -> bool {
        if packet.first().is_some_and(|first| first >> 4 == 6) {
            self.v6.push(list.v6(), number, packet)
        } else {
            self.v4.push(list.v4(), number, packet)
        }
    }
}

/// Stores the list of each frame by the port that it leaves by; returns whether there is one.
fn select_outbound(
    layer: &ListsByPort,
    list_of: &mut [u16; SIZE],
    batch: &AccessBatch<'_>,
    adjacencies: &Adjacencies,
) -> bool {
    let mut has_list = false;
    for ((at, (kind, hop)), slot) in batch.batch.outcomes().enumerate().zip(list_of) {
        *slot = NONE;
        if batch.refusals.get(at).is_some() {
            continue;
        }
        let adjacency = match kind {
            Kind::V4 => adjacencies.resolve(hop, |hash| flow_v4(batch.untagged(at), hash)),
            Kind::V6 => adjacencies.resolve(hop, |hash| flow_v6(batch.untagged(at), hash)),
            Kind::Done(_) | Kind::Deferred => continue,
        };
        // As Linux, which answers before its filter.
        if is_too_big(batch.untagged(at), adjacency) {
            continue;
        }
        *slot = adjacency.exit().map_or(NONE, |port| layer.get(port));
        has_list |= *slot != NONE;
    }
    has_list
}

/// Returns whether a packet exceeds the MTU of its link, and is not to be fragmented.
fn is_too_big(frame: &[u8], adjacency: Adjacency) -> bool {
    let len = frame.len().saturating_sub(ethernet::LEN);
    adjacency.port().is_ok() && len > usize::from(adjacency.mtu()) && {
        let packet = frame.get(ethernet::LEN..).unwrap_or_default();
        let length = match packet.first().map(|first| first >> 4) {
            Some(6) => ipv6::View::parse(packet)
                .map_or(0, |packet| ipv6::LEN + usize::from(packet.payload_len())),
            _ => ipv4::View::parse(packet).map_or(0, |packet| packet.total_len().into()),
        };
        length > usize::from(adjacency.mtu()) && !may_fragment(frame)
    }
}

/// The examination of a batch.
struct Examination<'w> {
    lists: &'w AccessLists,
    worker: usize,
    matchers: &'w mut Matchers,
    /// The address of the list whose packets the matchers have; 0 if they have none.
    gathered: usize,
    origin: Instant,
    /// The time of policers, which read the clock at most once a batch.
    time: Option<u64>,
}

impl Examination<'_> {
    /// Examines each frame by its list.
    fn run_each(&mut self, list_of: &[u16; SIZE], batch: &mut AccessBatch<'_>) {
        let used = list_of.get(..batch.frames.len()).unwrap_or_default();
        for number in (0..self.lists.lists.len() as u16).filter(|number| used.contains(number)) {
            self.run(number, batch, |_, at, _| used.get(at) == Some(&number));
        }
    }

    /// Examines by one list the frames that `is_examined` selects by their index and their kind.
    #[inline]
    fn run(
        &mut self,
        number: u16,
        batch: &mut AccessBatch<'_>,
        is_examined: impl Fn(&AccessBatch<'_>, usize, Kind) -> bool,
    ) {
        let Self { lists, worker, matchers, gathered, origin, time } = self;
        let Some(applied) = lists.lists.get(usize::from(number)) else { return };
        let (list, worker) = (applied.list.list(), *worker);
        let mut now = || *time.get_or_insert_with(|| origin.elapsed().as_nanos() as u64);
        // A list that replaces another one, which a worker still uses, has another address.
        if *gathered != std::ptr::from_ref(&*applied.list).addr() {
            matchers.clear();
            let kinds = batch.batch.kinds().iter().zip(batch.frames);
            for (at, (&kind, frame)) in kinds.enumerate() {
                if let Some(next) = batch.frames.get(at + AHEAD) {
                    batch.arena.prefetch(next);
                }
                if !is_examined(batch, at, kind) {
                    continue;
                }
                let packet = batch.packet_of(at, frame);
                if !matchers.push(list, at as u16, kind, packet) && !list.permits {
                    let by = RuleIndex { list: number, rule: list.rules().len() as u32 };
                    batch.refusals.refuse_by(at, Verdict::AclDenied, by);
                }
            }
        }
        let applied = (number, applied);
        apply(&mut matchers.v4, list.v4(), applied, worker, batch, &mut now);
        apply(&mut matchers.v6, list.v6(), applied, worker, batch, &mut now);
    }
}

/// Applies the rules of a list, with its index, to the packets of one family.
fn apply<A: PacketFamily>(
    matcher: &mut Matcher<A>,
    classifier: &Classifier<A>,
    (list_number, applied): (u16, &AppliedList),
    worker: usize,
    batch: &mut AccessBatch<'_>,
    now: &mut impl FnMut() -> u64,
) {
    let AppliedList { list, mirrors } = applied;
    let by = |rule: usize| RuleIndex { list: list_number, rule: rule as u32 };
    let Some(counters) = list.counters(worker) else { return };
    let rules = list.list().rules();
    let permits = list.list().permits;
    let (mut unmatched, mut unmatched_bytes) = matcher.unmatched();
    if !matcher.numbers().is_empty() {
        matcher.classify(classifier, |number| batch.packet(number.into()));
    }
    for packet in 0..matcher.numbers().len() {
        let (number, length) = matcher.packet(packet);
        let at = usize::from(number);
        let mut from = 0;
        loop {
            let Some(rule) = matcher.first(classifier, packet, from) else {
                unmatched += 1;
                unmatched_bytes += u64::from(length);
                if !permits {
                    batch.refusals.refuse_by(at, Verdict::AclDenied, by(rules.len()));
                }
                break;
            };
            let index = rule as usize;
            let count = counters.count(index, length);
            let Some(rule) = rules.get(index) else { break };
            match &rule.action {
                Action::Permit | Action::Count => {}
                Action::Deny => {
                    batch.refusals.refuse_by(at, Verdict::AclDenied, by(index));
                    break;
                }
                Action::Police(_) => {
                    let policer = list.policer(index);
                    if policer.is_some_and(|policer| !policer.admit(now(), length)) {
                        counters.count_exceeded(index);
                        batch.refusals.refuse_by(at, Verdict::AclPoliced, by(index));
                        break;
                    }
                }
                Action::Mirror { one_in, .. } => {
                    let port = mirrors.get(index).copied().unwrap_or(NONE);
                    if port != NONE && is_sampled(count, *one_in) {
                        batch.mirror(at, port);
                    }
                }
            }
            let is_last = rule.action.is_terminal();
            if let Some(dscp) = rule.set_dscp {
                batch.set_dscp(at, dscp);
                if !is_last {
                    matcher.set_dscp(classifier, packet, dscp);
                }
            }
            if is_last {
                break;
            }
            from = index as u32 + 1;
        }
    }
    counters.count_batch(rules.len(), unmatched, unmatched_bytes);
    // The staged frames are copies only, and leave room for the batch.
    let has_mirrors = !mirrors.is_empty();
    for lane in batch.lanes.iter_mut().filter(|lane| has_mirrors && !lane.staged.is_empty()) {
        lane.send(batch.arena, batch.stats);
    }
}

impl AccessBatch<'_> {
    /// Sets the differentiated services code point of a frame's packet.
    fn set_dscp(&mut self, at: usize, dscp: u8) {
        let tags = self.tags(at);
        let Some(frame) = self.frames.get(at) else { return };
        let bytes = self.arena.bytes_mut(frame);
        let packet = bytes.get_mut(tags + ethernet::LEN..).unwrap_or_default();
        if packet.first().is_some_and(|first| first >> 4 == 6) {
            if let Ok(mut view) = ipv6::View::parse(packet) {
                view.set_traffic_class(dscp << 2 | view.traffic_class() & 3);
            }
        } else if let Ok(mut view) = ipv4::View::parse(packet) {
            view.set_tos(dscp << 2 | view.tos() & 3);
        }
    }

    /// Stages a copy of a frame on a port.
    #[cold]
    fn mirror(&mut self, at: usize, port: u16) {
        let Some(frame) = self.frames.get(at) else { return };
        let Some(lane) = self.lanes.get_mut(usize::from(port)) else { return };
        if lane.staged.len() >= SIZE {
            lane.send(self.arena, self.stats);
        }
        let Some(copy) = self.arena.alloc_for(frame.len()) else { return };
        self.arena.copy(frame, 0..frame.len(), &copy, 0);
        self.stats.originated();
        lane.stage(self.arena, copy, frame.len());
    }
}

/// Returns whether a rule's match with this number is one of those that are chosen: one in `one_in`, by
/// chance, so that traffic with a rhythm is chosen from evenly.
fn is_sampled(count: u64, one_in: u32) -> bool {
    // The finalizer of SplitMix64.
    let mut mixed = count.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    (mixed ^ mixed >> 31).is_multiple_of(one_in.max(1).into())
}
