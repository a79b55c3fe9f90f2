//! The items of egress queues.

use serde::{Deserialize, Serialize};

/// The queue of an egress interface, summed over the workers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EgressQueue {
    /// The interface.
    pub interface: String,
    /// The interfaces that its frames leave by, if it is a device over them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub over: Vec<String>,
    /// The device whose bandwidth it shares.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub within: Option<String>,
    /// Its part of a full link, in proportion to the weights of the other queues of the link.
    #[serde(default = "default_weight")]
    pub weight: u32,
    /// Whether the router forwards its packets; otherwise the queue has no effect.
    pub is_port: bool,
    /// The bits a second of its link; none: as fast as the port takes packets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bandwidth: Option<u64>,
    /// Its classes, in the order in which they leave.
    pub classes: Vec<EgressQueueClass>,
    /// The packets that the host itself has sent by the interface since its queue was made, which take a part of
    /// the bandwidth; `None`: they are not counted (before Linux 6.6), or there is no bandwidth of a port.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host_packets: Option<u64>,
    /// Their bytes, Ethernet header included.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host_bytes: Option<u64>,
}

fn default_weight() -> u32 {
    1
}

/// A class of packets in a queue.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EgressQueueClass {
    /// `control`, `requests` or `default`.
    pub class: String,
    /// Packets that have left.
    pub packets: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Packets dropped because the class was full.
    pub dropped_full: u64,
    /// Packets dropped because packets had waited for too long.
    pub dropped_delay: u64,
    /// Packets marked as Congestion Experienced instead.
    pub marked: u64,
    /// Packets that wait now.
    pub waiting: u64,
    /// Their bytes.
    pub waiting_bytes: u64,
    /// The time that the last packet to leave has waited, in microseconds; 0 if none waits.
    pub delay_microseconds: u64,
}
