//! An attack as a gate reports it to its fleet.
//!
//! Counts are those of the gate's counters since the attack began. Rates are of the last second, or estimates
//! from samples of the last seconds for destinations; those need a page (`[metrics]`).

use std::collections::BTreeMap;
use std::net::IpAddr;

use serde::{Deserialize, Serialize};

/// An attack on the networks behind a gate.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct AttackReport {
    /// Its beginning, in seconds since 1970.
    pub began: f64,
    /// Its end; none while it lasts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended: Option<f64>,
    /// Packets a second that the gate receives.
    pub received_rate: u64,
    /// Packets a second of those that it drops.
    pub dropped_rate: u64,
    /// The highest rate of dropped packets.
    pub dropped_peak: u64,
    /// The dropped packets since the beginning, by reason.
    pub dropped: BTreeMap<String, u64>,
    /// The destinations with most packets.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub destinations: Vec<AttackedDestination>,
}

/// A destination of an attack, by samples: packets a second.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AttackedDestination {
    /// The address.
    pub destination: IpAddr,
    /// Packets for it.
    pub received_rate: f64,
    /// Packets of those that the gate drops.
    pub dropped_rate: f64,
}
