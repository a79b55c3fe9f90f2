//! A sample of the packets that a gate has decided.
//!
//! A worker takes samples at random, a known number of packets apart on average. The page estimates
//! from them where packets go, and a candidate policy is compared with the policy in force by them.

use std::net::IpAddr;

use crate::gate::RuleOutcome;

/// A packet that represents others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PacketSample {
    /// The source address.
    pub source: IpAddr,
    /// The destination address.
    pub destination: IpAddr,
    /// The outcome by the gate.
    pub outcome: RuleOutcome,
    /// The length in bytes, Ethernet header included.
    pub bytes: u32,
    /// The number of packets that it represents.
    pub every: u32,
}
