//! The items of access lists.

use serde::{Deserialize, Serialize};

/// An access list, with the counters of its rules.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct AccessList {
    /// Its name.
    pub name: String,
    /// The interfaces whose received packets it examines.
    pub inbound: Vec<AccessInterface>,
    /// The interfaces whose sent packets it examines.
    pub outbound: Vec<AccessInterface>,
    /// `permit` or `deny`: what happens to a packet that no rule ends.
    pub default: String,
    /// Packets that no rule has ended.
    pub default_packets: u64,
    /// Bytes of those packets.
    pub default_bytes: u64,
    /// The memory that packets are compared with, in bytes.
    pub memory_bytes: u64,
    /// Its rules, in order.
    pub rules: Vec<AccessRule>,
}

/// An interface that an access list names.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AccessInterface {
    /// Its name.
    pub name: String,
    /// Whether the router forwards its packets; otherwise the list has no effect there.
    pub is_port: bool,
}

/// A rule of an access list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AccessRule {
    /// Its number, from 1.
    pub number: u64,
    /// Its text.
    pub rule: String,
    /// Packets that it has acted on.
    pub packets: u64,
    /// Bytes of those packets, without their Ethernet headers.
    pub bytes: u64,
    /// Of the packets, those that a policer has dropped.
    #[serde(default)]
    pub exceeded: u64,
}
