//! What is asked and answered on the control socket.
//!
//! ```text
//!   client ─► {"show":"routes","within":"10.0.0.0/8"}\n
//!   router ─► {"item":{"route":{"prefix":"10.1.0.0/16",…}}}\n …   as many as there are
//!          ─► {"end":{"items":1234}}\n      or {"error":"…"}\n
//! ```
//!
//! A line a message, JSON, version 1 of the format: fields may be added, none changes
//! its meaning. An answer ends with `end` or `error`, so that one cut short is known
//! from one that is whole. Numbers are counts, bytes or seconds, as the name says.

use std::collections::BTreeMap;
use std::net::IpAddr;

use serde::{Deserialize, Serialize};

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
    /// The neighbours that can be used.
    Neighbours,
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
    /// A neighbour.
    Neighbour(Neighbour),
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
}

/// A route, as the router took it over.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Route {
    /// The prefix.
    pub prefix: String,
    /// `via`, `neighbour` (a host route of the router's own, for a neighbour on a link),
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
    /// neighbour), `host`, `drop blackhole` or `drop no_route`.
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
}

/// A neighbour that can be used.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Neighbour {
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
    /// How packets cross, such as `AF_XDP copy`.
    pub mode: String,
    /// What the steering program took, and what it left to the kernel by reason.
    pub steered: BTreeMap<String, u64>,
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
    /// Says whether they add up. Between batches they always do; a worker in the middle
    /// of one may be ahead with `received`.
    pub balanced: bool,
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
    pub resynchronisations: u64,
    /// Messages that made no sense.
    pub damaged: u64,
    /// Changes that the plane took over.
    pub changes: u64,
    /// Commits that published something.
    pub commits: u64,
    /// Times that the system refused what the control thread asked of it.
    pub troubles: u64,
    /// Its last words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_trouble: Option<String>,
}

/// A worker.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Worker {
    /// Its number.
    pub worker: u64,
    /// Its counters.
    pub counters: Counters,
}

/// Writes six bytes as people do.
pub fn mac(bytes: [u8; 6]) -> String {
    bytes.map(|byte| format!("{byte:02x}")).join(":")
}
