//! Block lists, and the prefixes in them.

use serde::{Deserialize, Serialize};

/// A list, and the packets about which it has decided.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BlockList {
    /// Its file, folder, URL or other source.
    pub name: String,
    /// `pass` or `drop`.
    pub action: String,
    /// The destinations of the packets about which it decides; none: all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub to: Vec<String>,
    /// The IPv4 prefixes in force.
    pub v4: usize,
    /// The IPv6 prefixes in force.
    pub v6: usize,
    /// Those of both that end by themselves.
    pub expiring: usize,
    /// Why its present content is not in force.
    pub held: Option<String>,
    /// Why the source of the list does not answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// The packets.
    pub packets: u64,
    /// Their bytes, with Ethernet headers.
    pub bytes: u64,
}

/// A prefix in the lists.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BlockedPrefix {
    /// The prefix.
    pub prefix: String,
    /// `pass` or `drop`: the action of the first list with a line that covers the prefix, of those for all destinations;
    /// none without one.
    pub action: Option<String>,
    /// The lines that cover the prefix, those of the first list first.
    pub lines: Vec<BlockLine>,
    /// The number of lines within the prefix, for which other lists may decide.
    pub within: usize,
    /// The packets from the prefix about which lists have decided, since the first request for it.
    pub packets: u64,
    /// Their bytes, with Ethernet headers.
    pub bytes: u64,
    /// The milliseconds since that request.
    pub counted_ms: u64,
}

/// A line of a list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BlockLine {
    /// The name of the list.
    pub list: String,
    /// `pass` or `drop`.
    pub action: String,
    /// The destinations of the packets about which the list decides; none: all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub to: Vec<String>,
    /// The prefix of the line.
    pub prefix: String,
}
