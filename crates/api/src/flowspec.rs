//! The item of BGP flow specifications.

use std::net::SocketAddr;

use serde::{Deserialize, Serialize};

/// The BGP flow specifications that a router has received; the access list `flowspec` has their rules.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Flowspec {
    /// The address that it listens on.
    pub listen: SocketAddr,
    /// The sessions.
    pub sessions: Vec<FlowspecSession>,
    /// Flow specifications, those with rules and those without.
    pub flows: u64,
    /// The rules of the access list.
    pub rules: u64,
    /// Flow specifications without rules.
    pub refused_flows: u64,
    /// Those, the first thousand.
    pub refused: Vec<RefusedFlow>,
    /// Malformed flow specifications, which were skipped.
    pub malformed: u64,
    /// Connections that were refused.
    pub refused_connections: u64,
    /// The last of them, and the reason.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_refused: Option<String>,
    /// The last session that ended, and the reason.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_end: Option<String>,
}

/// A BGP session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FlowspecSession {
    /// The peer's address.
    pub peer: SocketAddr,
    /// Whether updates are received.
    pub established: bool,
    /// The number of its flow specifications.
    pub flows: u64,
    /// The time since the connection, in seconds.
    pub seconds: u64,
}

/// A flow specification that has no rules.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RefusedFlow {
    /// Its conditions.
    pub flow: String,
    /// The condition or action that the router does not have.
    pub reason: String,
}
