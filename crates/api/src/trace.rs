//! Traces: a packet, and each step that the router takes with it.

use serde::{Deserialize, Serialize};

use crate::{Answer, CapturedPacket};

/// A packet to trace.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TraceRequest {
    /// The interface that it arrives on.
    pub interface: String,
    /// The frame, from its Ethernet header on, in hexadecimal digits. On a VLAN device, without the
    /// device's tags.
    pub frame: String,
    /// The destination MAC becomes that of the interface.
    #[serde(default)]
    pub addressed: bool,
}

/// The steps of a packet. The router has not sent it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Trace {
    /// The interface that receives it.
    pub interface: String,
    /// The VLAN device or the bond that it arrives on, if it is another one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device: Option<String>,
    /// The frame as it arrives, with its tags, in hexadecimal digits.
    pub frame: String,
    /// The kernel's number of the routing table.
    pub table: u32,
    /// The result of parsing: `ipv4`, `ipv6`, or the verdict that ends the packet there.
    pub parse: String,
    /// The reverse path filter of the interface for its family, if there is one: `loose`, `strict`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rpf: Option<String>,
    /// The lookup of the source, if there is a filter.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<Answer>,
    /// The access lists that examine it, in order, as far as it gets.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub access_lists: Vec<TracedList>,
    /// The lookup of the destination, unless parsing ends the packet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub destination: Option<Answer>,
    /// The packet, or an ICMP error about it, waits for the MAC address of its next hop, which is not known.
    #[serde(default)]
    pub held: bool,
    /// The end of the packet, and the packets that the router originates because of it, such as ICMP
    /// errors.
    pub ends: Vec<CapturedPacket>,
}

/// An access list, and the rules of it that match a packet.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TracedList {
    /// Its name.
    pub name: String,
    /// `inbound` or `outbound`.
    pub direction: String,
    /// The rules that act on the packet, in order, with their numbers.
    pub rules: Vec<(usize, String)>,
    /// `permit` or `deny`.
    pub result: String,
}
