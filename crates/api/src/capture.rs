//! Captures: the conditions of one, and its packets.

use serde::{Deserialize, Serialize};

/// The packets that a capture wants.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CaptureConditions {
    /// Packets as they arrive, too.
    #[serde(default)]
    pub arrivals: bool,
    /// The verdicts of the packets that have ended, by name.
    pub verdicts: Vec<String>,
    /// Only packets that this interface received, or that leave by it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interface: Option<String>,
    /// The workers forward meanwhile what would be forwarded in the driver.
    #[serde(default)]
    pub no_driver: bool,
    /// One packet in so many, at random; at least 1.
    pub one_in: u32,
    /// The most bytes of a packet.
    pub snap: u16,
    /// A program of classic BPF (code, jump if true, jump if false, operand); an empty one accepts all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub filter: Vec<(u16, u8, u8, u32)>,
}

/// The direction of a captured packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CaptureDirection {
    /// The interface received it, and it is as it arrived.
    In,
    /// It leaves by the interface, and is as it leaves.
    Out,
}

/// A captured packet.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CapturedPacket {
    /// Nanoseconds since 1970.
    pub time_ns: u64,
    /// The worker; none of a packet that ends in the XDP program.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worker: Option<u32>,
    /// The interface.
    pub interface: String,
    /// The direction.
    pub direction: CaptureDirection,
    /// The verdict; none of a packet that arrives.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verdict: Option<String>,
    /// The rule of an access list that has refused it: the list's name, and the rule's number or `default`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rule: Option<String>,
    /// The length of the packet, in bytes, with its Ethernet header.
    pub length: u16,
    /// Its first bytes, in hexadecimal digits.
    pub data: String,
}

/// The state of a capture: sent before the first packet, and then at least ten times a second.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CaptureState {
    /// The packets so far that were overwritten before they were read. They are of all captures.
    pub lost: u64,
    /// The interfaces whose packets are forwarded in the driver, and are in no capture because the kernel lacks
    /// what copies need.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub in_driver: Vec<String>,
}
