//! What is asked and answered on the control socket.
//!
//! ```text
//!   client ─► {"show":"routes","within":"10.0.0.0/8"}\n
//!   router ─► {"item":{"route":{"prefix":"10.1.0.0/16",…}}}\n …   as many as there are
//!          ─► {"end":{"items":1234}}\n      or {"error":"…"}\n
//!
//!   client ─► {"do":"promote","interface":"eth0"}\n      ─► {"item":{"done":"…"}}\n, end
//! ```
//!
//! A line a message, JSON, version 1 of the format: fields may be added, none changes
//! its meaning. An answer ends with `end` or `error`, so that one cut short is known
//! from one that is whole. Numbers are counts, bytes or seconds, as the name says.

use std::collections::BTreeMap;
use std::net::IpAddr;

use serde::{Deserialize, Serialize};

pub use crate::distribution::status::DistributionStatus;
pub use crate::grantor::status::{ChangedDecision, GateContact, GrantorStatus, PolicyComparison};
pub use crate::vantage::status::{
    CandidateStatus, ChangedFlow, FlowStatus, GateStatus, Outcome, OutcomeChange, ProgramInfo,
    RuleTraffic,
};

/// A line to the router.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Message {
    /// Something is to be told.
    Show(Request),
    /// Something is to be done.
    Do(Order),
}

/// What is to be done.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "snake_case")]
pub enum Order {
    /// Read the configuration again, and go over to it.
    Reload,
    /// Save an image of the tables.
    Save,
    /// Take the packets of an interface that was observed.
    Promote {
        /// The interface.
        interface: String,
    },
    /// Leave the packets of an interface to the kernel, and count them.
    Demote {
        /// The interface.
        interface: String,
    },
    /// Go back to the version of the bundles before.
    Rollback,
    /// Take versions again that were refused.
    Retry,
    /// Retract all decisions of a sender at a gate.
    Flush {
        /// The sender.
        sender: u32,
    },
}

/// What is asked.
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
    /// Where packets to an address go, as the workers' table says.
    Route {
        /// The address.
        address: IpAddr,
    },
    /// The neighbors that can be used.
    Neighbors,
    /// The ports.
    Interfaces,
    /// The next hops.
    NextHops,
    /// Every counter.
    Counters,
    /// The tables.
    Fib,
    /// Where the routes come from.
    Feeds,
    /// The workers.
    Workers,
    /// What the auditor has come to.
    Audit,
    /// A gate, its table and its link.
    Gate,
    /// A grantor: what its policy says, and its candidate would.
    Grantor,
    /// The flow programs of a gate, or those that a grantor has for its gates.
    Programs,
    /// Where the policies of a gate or grantor come from as bundles, and which are in force.
    Distribution,
    /// Flows of a gate.
    Flows {
        /// At most so many of a worker.
        most: u32,
    },
    /// What is known of a flow.
    Flow {
        /// Where its packets come from.
        src: IpAddr,
        /// Where they go.
        dst: IpAddr,
    },
    /// What happens, from now on until the client is gone.
    Monitor,
    /// What differs from the kernel: every route, and a sample of addresses.
    Diff {
        /// How many milliseconds what differs may take to agree.
        settle: u64,
        /// Addresses that are asked of the kernel, for each thousand routes.
        sample: u32,
        /// What the addresses are drawn by.
        seed: u64,
    },
}

/// One line of an answer.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Line {
    /// Something that was asked for.
    Item(Box<Item>),
    /// All has been said.
    End {
        /// How many items there were.
        items: u64,
    },
    /// Nothing more can be said.
    Error(String),
}

/// Something that was asked for.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Item {
    /// A route.
    Route(Route),
    /// Where packets to an address go.
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
    /// What was done.
    Done(String),
    /// What the auditor has come to.
    Audit(Audit),
    /// Something that has happened.
    Event(Event),
    /// Something that the router and the kernel do not agree on.
    Difference(Difference),
    /// What was compared: the last item of a comparison.
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
}

/// A route, as the router took it over.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Route {
    /// The prefix.
    pub prefix: String,
    /// `via`, `neighbor` (a host route of the router's own, for a neighbor on a link),
    /// `blackhole`, `unreachable`, `prohibit`, `throw`, `local`, `broadcast` or `multicast`.
    pub kind: String,
    /// The ways out.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub via: Vec<Via>,
    /// The next hop's index.
    pub hop: u32,
}

/// One way out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Via {
    /// The gateway; none where the destination is on the link.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gateway: Option<IpAddr>,
    /// The interface.
    pub dev: String,
    /// Its share.
    pub weight: u16,
}

/// Where packets to an address go.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Answer {
    /// The address.
    pub address: IpAddr,
    /// The longest route, as the routes say; none: there is no route.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub route: Option<Route>,
    /// What the workers' table says: must be the route's.
    pub hop: u32,
    /// What is done: `send`, `divide` (among several ways), `wait` (for its
    /// neighbor), `host`, `drop blackhole` or `drop no_route`.
    pub action: String,
    /// The port it leaves on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dev: Option<String>,
    /// The MAC it is sent to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mac: Option<String>,
    /// The engine that was asked.
    pub engine: String,
    /// What the lookup loaded: array, index and bytes of each load.
    pub loads: Vec<String>,
    /// Publications of the table so far.
    pub generation: u64,
    /// Who installed the route, as iproute2 names it; none where there is no route, or it
    /// is the router's own, for a neighbor on a link.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub protocol: Option<String>,
    /// The route's metric.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metric: Option<u32>,
    /// For how many seconds the route has been what it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub age: Option<u64>,
    /// Says that it may be older: only changes that were seen, and the latest of them, have
    /// an age.
    #[serde(default)]
    pub age_or_more: bool,
}

/// A neighbor that can be used.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Neighbor {
    /// Its address.
    pub address: IpAddr,
    /// The interface it is behind.
    pub dev: String,
    /// Its MAC.
    pub mac: String,
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
    /// The largest packet, in bytes.
    pub mtu: u16,
    /// Says whether packets can leave on it.
    pub up: bool,
    /// The kernel's table by which packets from it are forwarded.
    pub table: u32,
    /// What of the kernel's rules is not followed for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rules: Option<String>,
    /// How packets cross, such as `AF_XDP copy`.
    pub mode: String,
    /// The name that it was configured by, where it has been renamed since.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub configured: Option<String>,
    /// The reason that it does not work as a port at the moment.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
    /// Its packets are left to the kernel, and those counted as `observed` that would have
    /// been taken.
    #[serde(default)]
    pub observe: bool,
    /// What the steering program took, and what it left to the kernel by reason.
    pub steered: BTreeMap<String, u64>,
    /// Packets that workers took from it: `taken` of `steered` is the sum of this, the packets that
    /// wait in the rings, and those `lost` on the way in.
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
    /// Packets lost, by reason: `rx_ring_full`, `fill_empty`, `rx_dropped` and `undelivered` on the
    /// way in, `tx_invalid` (malformed) and `tx_dropped` (by the device, the kernel's own packets
    /// among them) on the way out.
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
    /// As a route's.
    pub kind: String,
    /// The ways out.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub via: Vec<Via>,
    /// How many routes it has.
    pub routes: u64,
    /// What is done with its packets, as an answer's.
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
    /// Packets that a gate made itself.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub originated: u64,
    /// Says whether they add up. Between batches they always do; a worker in the middle
    /// of one may be ahead with `received`.
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
    /// These bytes are those of all tables of the family.
    #[serde(default)]
    pub shared: bool,
    /// Publications so far.
    pub generation: u64,
    /// Why the last changes are not in it: a limit of the engine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub full: Option<String>,
}

/// Where the routes come from.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Feed {
    /// Its name.
    pub name: String,
    /// Messages read.
    pub messages: u64,
    /// Times that messages were lost for want of room.
    pub overruns: u64,
    /// Times that everything was read anew.
    pub resynchronizations: u64,
    /// Messages that made no sense.
    pub parse_errors: u64,
    /// Connections of peers that were refused.
    #[serde(default)]
    pub refused: u64,
    /// Changes that the plane took over.
    pub changes: u64,
    /// Commits that published something.
    pub commits: u64,
    /// Times that the system refused what the control thread asked of it.
    pub errors: u64,
    /// Its last words.
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

/// Something that has happened.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Event {
    /// When, in seconds since 1970.
    pub time: f64,
    /// What.
    #[serde(flatten)]
    pub kind: EventKind,
}

/// What has happened.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum EventKind {
    /// Whatever happens from now on is told.
    Started,
    /// A route was taken over, or given up.
    Route {
        /// `added`, `changed` or `removed`.
        change: String,
        /// The kernel's number of the table.
        table: u32,
        /// The prefix.
        prefix: String,
        /// As a route's; `none` where it was removed.
        kind: String,
        /// The ways out.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        via: Vec<Via>,
        /// The publication of the table that it is in.
        generation: u64,
    },
    /// A neighbor's MAC has become known, has changed, or is known no more.
    Neighbor {
        /// Its address.
        address: IpAddr,
        /// The interface it is behind.
        dev: String,
        /// Its MAC.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        mac: Option<String>,
    },
    /// An interface has changed.
    Interface {
        /// Its name.
        name: String,
        /// Says whether it is there at all.
        present: bool,
        /// Says whether it is up and has a carrier.
        up: bool,
        /// The largest packet, in bytes.
        mtu: u32,
        /// Its MAC.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        mac: Option<String>,
    },
    /// Something about a feed as a whole.
    Feed {
        /// Its name.
        feed: String,
        /// `overrun` (messages were lost) or `resynchronization` (everything was read anew).
        what: String,
        /// How often that has happened.
        total: u64,
    },
    /// A destination whose packets did not go where they should: `kernel` and `router` as in a
    /// comparison.
    Audit(Difference),
    /// A bundle of policies was taken over, or not.
    Distribution {
        /// Its version.
        version: u64,
        /// `applied`, `refused`, `confirmed` (its trial is over), `rolled_back`,
        /// `rollback_failed`.
        what: String,
        /// Why, or what came of it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<String>,
    },
    /// The client was too slow to be told of some.
    Lost {
        /// How many, at this place.
        lost: u64,
    },
}

/// What the auditor has come to: destinations of packets, held against the routes and the
/// kernel.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Audit {
    /// Destinations looked at.
    pub checks: u64,
    /// Those that did not go where they should, and did not settle.
    pub mismatches: u64,
    /// Times that the routes of one destination alone were read and published again for it.
    #[serde(default)]
    pub route_heals: u64,
    /// Times that everything was read anew for it.
    pub heals: u64,
    /// The last mismatch, in words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_mismatch: Option<String>,
}

/// Something that the router and the kernel do not agree on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Difference {
    /// `route`: the routes for a prefix. `address`: where packets to it go, by the kernel's
    /// own lookup and by the workers' table. `table`: where packets to the first address of
    /// a prefix go, by the routes and by the workers' table made of them.
    pub what: String,
    /// The kernel's number of the table.
    pub table: u32,
    /// The prefix or address.
    pub of: String,
    /// What the kernel says (of a `table`, the routes); none: it has no route.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kernel: Option<RouteView>,
    /// What the router says (of a `table` or an `address`, the workers' table).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub router: Option<RouteView>,
}

/// Where one side says that packets go.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RouteView {
    /// The prefix that it goes by; empty where that is not known.
    pub prefix: String,
    /// As a route's.
    pub kind: String,
    /// The ways out.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub via: Vec<Via>,
}

/// What a comparison came to.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Compared {
    /// Routes of the router's that were held against the kernel's.
    pub routes: u64,
    /// Addresses that the kernel was asked for.
    pub addresses: u64,
    /// Differences that did not settle.
    pub differences: u64,
    /// What the addresses were drawn by: the same draws them again.
    pub seed: u64,
    /// How long it took, in seconds.
    pub seconds: f64,
}

/// Writes six bytes as people do.
pub fn mac(bytes: [u8; 6]) -> String {
    bytes.map(|byte| format!("{byte:02x}")).join(":")
}
