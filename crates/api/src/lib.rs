//! The messages of the control socket: requests, orders and replies.
//!
//! ```text
//!   client ─► {"show":"routes","within":"10.0.0.0/8"}\n
//!   router ─► {"item":{"route":{"prefix":"10.1.0.0/16",…}}}\n …   as many as there are
//!          ─► {"end":{"items":1234}}\n      or {"error":"…"}\n
//!
//!   client ─► {"do":"promote","interface":"eth0"}\n      ─► {"item":{"done":"…"}}\n, end
//! ```
//!
//! A message is a line of JSON, version 1 of the format: fields may be added, none changes its
//! meaning. A reply ends with `end` or `error`, so that a client detects one that was cut short.
//! Numbers are counts, bytes or seconds, as the name says.

#![forbid(unsafe_code)]

use std::collections::BTreeMap;
use std::net::IpAddr;

use serde::{Deserialize, Serialize};

mod access;
mod attack;
mod block;
mod capture;
mod distribution;
mod egress_queue;
mod flowspec;
mod gate;
mod grantor;
mod trace;

pub use access::{AccessInterface, AccessList, AccessRule};
pub use attack::{AttackReport, AttackedDestination};
pub use block::{BlockLine, BlockList, BlockedPrefix};
pub use capture::{CaptureConditions, CaptureDirection, CaptureState, CapturedPacket};
pub use distribution::{DistributionStatus, FleetBlocksStatus};
pub use egress_queue::{EgressQueue, EgressQueueClass};
pub use flowspec::{Flowspec, FlowspecSession, RefusedFlow};
pub use gate::{
    CandidateStatus, ChangedFlow, FlowStatus, GateStatus, Outcome, OutcomeChange, ProgramInfo,
    RuleTraffic, from_hexadecimal, hexadecimal,
};
pub use grantor::{ChangedDecision, GateContact, GrantorStatus, PolicyComparison};
pub use trace::{Trace, TraceRequest, TracedList};

/// A line to the router.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Message {
    /// A request for information.
    Show(Request),
    /// An order.
    Do(Order),
}

/// An order: it changes the state of the process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "snake_case")]
pub enum Order {
    /// Read the configuration again and apply it.
    Reload,
    /// Save an image of the tables.
    Save,
    /// Start the program at the daemon's path, which takes over from the daemon.
    Upgrade {
        /// If the daemon runs that program, read the configuration again instead, and apply it.
        #[serde(default)]
        or_reload: bool,
    },
    /// Stop observing an interface: process its packets.
    Promote {
        /// The interface.
        interface: String,
    },
    /// Observe an interface: leave its packets to the kernel, and count them.
    Demote {
        /// The interface.
        interface: String,
    },
    /// Return to the previous version of the bundles.
    Rollback,
    /// Try versions again that were refused.
    Retry,
    /// Put a prefix into the list of bans.
    Ban {
        /// The prefix.
        prefix: String,
        /// The seconds until the ban ends; without, it does not end.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        seconds: Option<u64>,
    },
    /// Take a prefix out of the list of bans.
    Unban {
        /// The prefix.
        prefix: String,
    },
    /// Apply block lists however short they have become.
    ApplyLists,
    /// Retract all decisions of a sender at a gate.
    Flush {
        /// The sender.
        sender: u32,
    },
}

/// A request for information.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "show", rename_all = "snake_case")]
pub enum Request {
    /// The routes, by prefix.
    Routes {
        /// Only those inside this prefix.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        within: Option<String>,
        /// Only this family: 4 or 6.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        family: Option<u8>,
    },
    /// The lookup of an address in the workers' table.
    Route {
        /// The address.
        address: IpAddr,
    },
    /// The neighbors whose MAC is known.
    Neighbors,
    /// The ports.
    Interfaces,
    /// The next hops.
    NextHops,
    /// Every counter.
    Counters,
    /// The tables.
    Fib,
    /// The sources of the routes.
    Feeds,
    /// The workers.
    Workers,
    /// The access lists, with their counters.
    AccessLists {
        /// Only the list with this name.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        name: Option<String>,
    },
    /// The block lists, with their counters.
    BlockLists,
    /// A prefix in the block lists; begins to count its packets.
    Blocked {
        /// The prefix.
        prefix: String,
    },
    /// The queues of egress interfaces, with their counters.
    EgressQueues,
    /// The BGP flow specifications.
    Flowspec,
    /// The results of the auditor.
    Audit,
    /// A gate, its table and its link.
    Gate,
    /// A grantor: the decisions of its policy and of its candidate.
    Grantor,
    /// The flow programs of a gate, or those that a grantor has for its gates.
    Programs,
    /// The source of the bundles of a gate or grantor, and the version in force.
    Distribution,
    /// Flows of a gate.
    Flows {
        /// The most flows of each worker.
        most: u32,
    },
    /// The state of one flow.
    Flow {
        /// The source address.
        src: IpAddr,
        /// The destination address.
        dst: IpAddr,
    },
    /// Events, from now on until the client disconnects.
    Monitor,
    /// Packets that workers handle, from now on until the client disconnects.
    Capture(CaptureConditions),
    /// The last dropped packets of each verdict.
    LastDrops,
    /// The steps of a packet, which is not sent.
    Trace(TraceRequest),
    /// The differences from the kernel: of every route, and of a sample of addresses.
    Diff {
        /// The time that a difference has to disappear, in milliseconds.
        settle: u64,
        /// Addresses that the kernel is queried for, for each thousand routes.
        sample: u32,
        /// The seed of the sample.
        seed: u64,
    },
}

/// One line of a reply.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Line {
    /// An item.
    Item(Box<Item>),
    /// The end of a complete reply.
    End {
        /// The number of items.
        items: u64,
    },
    /// The end of a failed reply, with the reason.
    Error(String),
}

/// An item of a reply.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Item {
    /// A route.
    Route(Route),
    /// The result of a lookup.
    Answer(Answer),
    /// A neighbor.
    Neighbor(Neighbor),
    /// A port.
    Interface(Interface),
    /// A next hop.
    NextHop(NextHop),
    /// Counters of all workers.
    Counters(Counters),
    /// A table.
    Fib(Fib),
    /// A feed.
    Feed(Feed),
    /// A worker.
    Worker(Worker),
    /// An access list.
    AccessList(AccessList),
    /// A block list.
    BlockList(BlockList),
    /// A prefix in the block lists.
    BlockedPrefix(BlockedPrefix),
    /// The queue of an egress interface.
    EgressQueue(EgressQueue),
    /// The BGP flow specifications.
    Flowspec(Flowspec),
    /// The report of an order.
    Done(String),
    /// The results of the auditor.
    Audit(Audit),
    /// An event.
    Event(Event),
    /// A difference between the router and the kernel.
    Difference(Difference),
    /// The totals: the last item of a comparison.
    Compared(Compared),
    /// A gate.
    Gate(GateStatus),
    /// A grantor.
    Grantor(GrantorStatus),
    /// The bundles of a gate or grantor.
    Distribution(DistributionStatus),
    /// A flow of a gate.
    Flow(FlowStatus),
    /// A flow program.
    Program(ProgramInfo),
    /// A captured packet.
    Packet(CapturedPacket),
    /// The state of a capture.
    Capture(CaptureState),
    /// The steps of a packet.
    Trace(Box<Trace>),
}

/// A route of the router's.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Route {
    /// The prefix.
    pub prefix: String,
    /// `via`, `static` (a next hop of the configuration), `neighbor` (a host route of the router's
    /// own, for a neighbor on a link), `blackhole`, `unreachable`, `prohibit`, `throw`, `local`,
    /// `broadcast` or `multicast`.
    pub kind: String,
    /// The next hops.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub via: Vec<Via>,
    /// The hop's index.
    pub hop: u32,
}

/// One next hop of a route.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Via {
    /// Its name in the configuration; none for a route of the kernel.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The gateway; none where the destination is on the link.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gateway: Option<IpAddr>,
    /// The interface.
    pub dev: String,
    /// The weight.
    pub weight: u16,
}

/// The result of looking an address up.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Answer {
    /// The address.
    pub address: IpAddr,
    /// The longest route of the routing table; none if there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub route: Option<Route>,
    /// The hop in the workers' table, which must equal the route's.
    pub hop: u32,
    /// The action on its packets: `send`, `divide` (among several next hops), `wait` (for its
    /// neighbor), `host`, `drop blackhole` or `drop no_route`.
    pub action: String,
    /// The egress port.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dev: Option<String>,
    /// The destination MAC.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mac: Option<String>,
    /// The engine of the table.
    pub engine: String,
    /// The loads of the lookup: array, index and bytes of each.
    pub loads: Vec<String>,
    /// Publications of the table so far.
    pub generation: u64,
    /// The protocol that installed the route, as iproute2 names it; none where there is no route,
    /// or for the router's own host route to a neighbor on a link.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub protocol: Option<String>,
    /// The route's metric.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metric: Option<u32>,
    /// The time since the route last changed, in seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub age: Option<u64>,
    /// Whether the route may be older than `age`: only the latest changes since the start have an
    /// exact age.
    #[serde(default)]
    pub age_or_more: bool,
}

/// A neighbor whose MAC is known.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Neighbor {
    /// Its address.
    pub address: IpAddr,
    /// The interface of its link.
    pub dev: String,
    /// Its MAC.
    pub mac: String,
}

/// A bond of ports.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Bond {
    /// Its name.
    pub name: String,
    /// Its MAC.
    pub mac: String,
    /// The largest packet, in bytes.
    pub mtu: u16,
    /// Whether packets can leave on it.
    pub up: bool,
    /// The kernel's table by which packets from it are forwarded.
    pub table: u32,
    /// The ports by which its packets leave.
    pub members: Vec<String>,
}

/// A VLAN device over a port, or over another VLAN device over it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Vlan {
    /// Its name.
    pub name: String,
    /// Its tags, the outer one first, such as `802.1Q 100`; empty if it is left to Linux.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tags: Vec<String>,
    /// Its MAC.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mac: Option<String>,
    /// The largest packet, in bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mtu: Option<u16>,
    /// Whether packets can leave on it.
    pub up: bool,
    /// The kernel's table by which packets from it are forwarded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub table: Option<u32>,
    /// Its reverse path filter of IPv4 packets, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rpf_v4: Option<String>,
    /// Its reverse path filter of IPv6 packets, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rpf_v6: Option<String>,
    /// The families whose packets are dropped, because the kernel's forwarding is off for it: `IPv4`, `IPv6`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub forwarding_off: Vec<String>,
    /// The reason that it is left to Linux.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}

/// A port.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Interface {
    /// Its name.
    pub name: String,
    /// The kernel's index of it.
    pub index: u32,
    /// Its MAC.
    pub mac: String,
    /// The MACs of the MAC-VLAN devices over it, to which it receives packets, too.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub secondary_macs: Vec<String>,
    /// The bond that it is an active member of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bond: Option<Bond>,
    /// The VLAN devices over it, or over its bond.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub vlans: Vec<Vlan>,
    /// The largest packet, in bytes.
    pub mtu: u16,
    /// Whether packets can leave on it.
    pub up: bool,
    /// The kernel's table by which packets from it are forwarded.
    pub table: u32,
    /// Its reverse path filter of IPv4 packets (`loose`, `strict`), if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rpf_v4: Option<String>,
    /// Its reverse path filter of IPv6 packets, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rpf_v6: Option<String>,
    /// The families whose packets are dropped, because the kernel's forwarding is off for it: `IPv4`, `IPv6`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub forwarding_off: Vec<String>,
    /// A conflict with the kernel's policy rules, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rules: Option<String>,
    /// The receive mode, such as `AF_XDP copy`; `XDP, AF_XDP copy` where packets are forwarded in the driver.
    pub mode: String,
    /// The configured name, if the interface has been renamed since.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub configured: Option<String>,
    /// The reason that it does not work as a port at the moment.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
    /// Whether its packets are left to the kernel; the packets that the router would process are
    /// counted as `observed`.
    #[serde(default)]
    pub observe: bool,
    /// Packets redirected to workers (`taken`) and passed to the kernel by the steering program, by
    /// reason.
    pub steered: BTreeMap<String, u64>,
    /// Packets that workers received from it: `taken` of `steered` is the sum of this, the packets
    /// waiting in the rings, and those `lost` on receipt.
    #[serde(default)]
    pub received: u64,
    /// Bytes of them.
    #[serde(default)]
    pub received_bytes: u64,
    /// Packets handed to it for sending.
    #[serde(default)]
    pub transmitted: u64,
    /// Bytes of them.
    #[serde(default)]
    pub transmitted_bytes: u64,
    /// Packets lost, by reason: `rx_ring_full`, `fill_empty`, `rx_dropped` and `undelivered` on
    /// receipt, `tx_invalid` (malformed), `tx_refused` (received here and forwarded in the driver, and
    /// refused by the egress device) and `tx_dropped` (by the device, the kernel's own packets included) on transmission.
    #[serde(default)]
    pub lost: BTreeMap<String, u64>,
    /// Events of the rings that lose no packet by themselves: `fill_ring_empty`, `fill_invalid`,
    /// `tx_ring_empty`.
    #[serde(default)]
    pub rings: BTreeMap<String, u64>,
}

/// A next hop.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct NextHop {
    /// Its index.
    pub hop: u32,
    /// The kind, as of a [`Route`].
    pub kind: String,
    /// The next hops.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub via: Vec<Via>,
    /// The number of its routes.
    pub routes: u64,
    /// The action on its packets, as of an [`Answer`].
    pub action: String,
}

/// Counters; received = sent + punted + dropped.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Counters {
    /// Packets that the workers took from their ports.
    pub received: u64,
    /// Bytes of them.
    pub received_bytes: u64,
    /// Packets sent.
    pub sent: u64,
    /// Bytes of them.
    pub sent_bytes: u64,
    /// Handed to the kernel, by reason.
    pub punted: BTreeMap<String, u64>,
    /// Dropped, by reason.
    pub dropped: BTreeMap<String, u64>,
    /// ICMP errors of the router itself: sent, by type, and `rate_limited`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub icmp_errors: BTreeMap<String, u64>,
    /// Packets that the workers originated.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub originated: u64,
    /// Packets sent as fragments.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub fragmented: u64,
    /// The fragments of them; all but one of each packet count as originated.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub fragments: u64,
    /// Whether the counters add up. Between batches they always do; during a batch `received` may
    /// be ahead.
    pub balanced: bool,
}

fn is_zero(count: &u64) -> bool {
    *count == 0
}

/// A table.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Fib {
    /// The kernel's number of it.
    pub table: u32,
    /// `ipv4` or `ipv6`.
    pub family: String,
    /// Its routes.
    pub routes: u64,
    /// The engine.
    pub engine: String,
    /// Bytes that lookups may touch.
    pub bytes: u64,
    /// Whether `bytes` is the memory of all tables of the family together.
    #[serde(default)]
    pub shared: bool,
    /// Publications so far.
    pub generation: u64,
    /// The limit of the engine because of which it lacks the last changes, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub full: Option<String>,
}

/// A source of routes.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Feed {
    /// Its name.
    pub name: String,
    /// Messages read.
    pub messages: u64,
    /// Times that messages were lost because the socket's buffer was full.
    pub overruns: u64,
    /// Times that everything was read again.
    pub resynchronizations: u64,
    /// Messages that could not be parsed.
    pub parse_errors: u64,
    /// Connections of peers that were refused.
    #[serde(default)]
    pub refused: u64,
    /// Changes that the plane applied.
    pub changes: u64,
    /// Commits that published a table.
    pub commits: u64,
    /// Requests of the control thread that the system refused.
    pub errors: u64,
    /// The last error.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_error: Option<String>,
}

/// A worker.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Worker {
    /// Its number.
    pub worker: u64,
    /// Its counters.
    pub counters: Counters,
}

/// An event.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Event {
    /// The time, in seconds since 1970.
    pub time: f64,
    /// The kind of the event, with its data.
    #[serde(flatten)]
    pub kind: EventKind,
}

/// A kind of event.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum EventKind {
    /// The stream has started: all events from now on follow.
    Started,
    /// A route was added, changed or removed.
    Route {
        /// `added`, `changed` or `removed`.
        change: String,
        /// The kernel's number of the table.
        table: u32,
        /// The prefix.
        prefix: String,
        /// The kind, as of a [`Route`]; `none` for a removed route.
        kind: String,
        /// The next hops.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        via: Vec<Via>,
        /// The publication of the table that contains the change.
        generation: u64,
    },
    /// A neighbor's MAC was learned, has changed, or is no longer valid.
    Neighbor {
        /// Its address.
        address: IpAddr,
        /// The interface of its link.
        dev: String,
        /// Its MAC.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        mac: Option<String>,
    },
    /// An interface has changed.
    Interface {
        /// Its name.
        name: String,
        /// Whether it exists.
        present: bool,
        /// Whether it is up and has a carrier.
        up: bool,
        /// The largest packet, in bytes.
        mtu: u32,
        /// Its MAC.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        mac: Option<String>,
    },
    /// A feed lost messages or was read again.
    Feed {
        /// Its name.
        feed: String,
        /// `overrun` (messages were lost) or `resynchronization` (everything was read again).
        what: String,
        /// The total number of these events.
        total: u64,
    },
    /// A destination whose packets are forwarded differently by router and kernel.
    Audit(Difference),
    /// A bundle of policies was applied or refused.
    Distribution {
        /// Its version.
        version: u64,
        /// `applied`, `refused`, `confirmed` (its trial is over), `rolled_back`,
        /// `rollback_failed`.
        what: String,
        /// The reason or the result.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<String>,
    },
    /// Events were lost because the client reads too slowly.
    Lost {
        /// The number of events lost at this place of the stream.
        lost: u64,
    },
}

/// The results of the auditor, which compares destinations of packets with the routes and the
/// kernel.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Audit {
    /// Destinations compared.
    pub checks: u64,
    /// Destinations that differed, and still did so after the settling time.
    pub mismatches: u64,
    /// Mismatches healed by reading and publishing the routes of one destination again.
    #[serde(default)]
    pub route_heals: u64,
    /// Mismatches healed by reading all routes again.
    pub heals: u64,
    /// The last mismatch, as text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_mismatch: Option<String>,
}

/// A difference between the router and the kernel.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Difference {
    /// `route`: the routes for a prefix differ. `address`: the kernel's own lookup of an address
    /// differs from the workers' table. `table`: the routes differ from the workers' table at the
    /// first address of a prefix.
    pub what: String,
    /// The kernel's number of the table.
    pub table: u32,
    /// The prefix or address.
    pub of: String,
    /// The kernel's route (for `table`, the routes'); none if it has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kernel: Option<RouteView>,
    /// The router's route (for `table` and `address`, that of the workers' table).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub router: Option<RouteView>,
}

/// The route of one side of a comparison.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RouteView {
    /// Its prefix; empty where that is not known.
    pub prefix: String,
    /// The kind, as of a [`Route`].
    pub kind: String,
    /// The next hops.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub via: Vec<Via>,
}

/// The totals of a comparison.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Compared {
    /// Routes of the router that were compared with the kernel's.
    pub routes: u64,
    /// Addresses that the kernel was queried for.
    pub addresses: u64,
    /// Differences that remained after the settling time.
    pub differences: u64,
    /// The seed of the sample: the same seed draws the same addresses.
    pub seed: u64,
    /// The duration, in seconds.
    pub seconds: f64,
}

/// Formats a MAC address.
pub fn mac(bytes: [u8; 6]) -> String {
    bytes.map(|byte| format!("{byte:02x}")).join(":")
}
