//! The status of a gate and of its flows: the types of the control socket's replies.
//!
//! As in the router's replies (`lib.rs`), fields may be added and no field changes its meaning.

use std::collections::BTreeMap;
use std::net::IpAddr;

use serde::{Deserialize, Serialize};

/// The status of a gate.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct GateStatus {
    /// The front interface.
    pub front: String,
    /// The back interface.
    pub back: String,
    /// The bandwidth of the protected link, in bits a second.
    pub bandwidth: u64,
    /// The generation of the policy: 1 at the start, and one more with each reload.
    pub generation: u64,
    /// The version of the policy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// The number of its prefixes.
    pub prefixes: u64,
    /// The number of prefixes of allowed sources.
    #[serde(default)]
    pub allowed: u64,
    /// The number of prefixes of blocked sources.
    #[serde(default)]
    pub blocked: u64,
    /// The grantors.
    pub grantors: Vec<IpAddr>,
    /// The silent grantors, which get no flows.
    #[serde(default)]
    pub silent: Vec<IpAddr>,
    /// The number of reloads.
    pub reloads: u64,
    /// The number of refused reloads.
    pub reloads_refused: u64,
    /// Packets on the front interface, by the gate's verdict.
    pub packets: BTreeMap<String, u64>,
    /// Their bytes.
    pub bytes: BTreeMap<String, u64>,
    /// Packets and bytes by the rule that decided; they add up to what was received.
    #[serde(default)]
    pub policies: Vec<RuleTraffic>,
    /// The flow table.
    pub table: BTreeMap<String, u64>,
    /// The packets that leave: request queue, grant queues, ICMP errors.
    pub link: BTreeMap<String, u64>,
    /// The decisions of grantors, and their results.
    pub decisions: BTreeMap<String, u64>,
    /// The evaluation of the candidate, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub candidate: Option<CandidateStatus>,
}

/// The packets and bytes that a rule of the policy decided about.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RuleTraffic {
    /// The rule's prefix; `others`, the rules that are not counted one by one; `gone`, the rules that
    /// a reload removed; `none`, packets without a route or of blocked sources, and those that the XDP
    /// program dropped.
    pub policy: String,
    /// The rule's line in the file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub line: Option<usize>,
    /// The rule's action.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub action: Option<String>,
    /// Packets: `request`, `granted`, `passed`, `dropped`.
    pub packets: BTreeMap<String, u64>,
    /// Their bytes.
    pub bytes: BTreeMap<String, u64>,
}

/// The evaluation of a candidate policy since the policy or the candidate was read. The candidate is
/// compared by samples of packets and has no effect.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CandidateStatus {
    /// The version of the candidate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// The number of its prefixes.
    pub prefixes: u64,
    /// The number of sampled packets.
    pub samples: u64,
    /// The number of packets that these represent.
    pub packets: u64,
    /// The packets with another outcome, by both outcomes, the most first; beyond 256 pairs the rest
    /// is `others`.
    pub changes: Vec<OutcomeChange>,
    /// Flows among them, the latest first, at most 64.
    pub flows: Vec<ChangedFlow>,
}

/// The packets with one outcome by the policy and another by the candidate.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OutcomeChange {
    /// The outcome by the policy: `no route`, `back`, `front`, `drop`, `allowed`, `grantors NAME`.
    pub policy: String,
    /// The outcome by the candidate.
    pub candidate: String,
    /// The number of sampled packets.
    pub samples: u64,
    /// The number of packets that these represent.
    pub packets: u64,
}

/// A flow with another outcome by the candidate.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ChangedFlow {
    /// The source address.
    pub source: IpAddr,
    /// The destination address.
    pub destination: IpAddr,
    /// The outcome by the policy.
    pub policy: Outcome,
    /// The outcome by the candidate.
    pub candidate: Outcome,
    /// The number of packets that its samples represent.
    pub packets: u64,
    /// Seconds since the last sample.
    pub ago: f64,
}

/// The outcome of a policy for a flow.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Outcome {
    /// The action, as in [`OutcomeChange`].
    pub action: String,
    /// The prefix that decides: of the destination, or of the source if that is on a list.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rule: Option<String>,
    /// The line of that prefix in the file, for a destination.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub line: Option<usize>,
}

/// A flow program of a gate, as the gate or a grantor reports it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProgramInfo {
    /// The number by which decisions name it.
    pub number: u8,
    /// The name that its grantor gives it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The gate, if a grantor reports.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gate: Option<IpAddr>,
    /// `configuration`, or `grantor` and its number.
    pub origin: String,
    /// The SHA-256 of its object file.
    pub digest: String,
    /// `active`, `transferring`, `verifying` or `rejected`; at a grantor also `offered`, before the
    /// gate has answered.
    pub state: String,
    /// The reason of a rejection.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The bytes received so far, during a transfer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub received_bytes: Option<u64>,
    /// The size in bytes, during a transfer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
    /// The version before it is still used, by the flows that began with that.
    #[serde(default)]
    pub previous_kept: bool,
}

/// Returns a digest in hexadecimal digits.
pub fn hexadecimal(digest: &[u8]) -> String {
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Returns the bytes of hexadecimal digits; `None` if they are no such digits, or an odd number.
pub fn from_hexadecimal(digits: &str) -> Option<Vec<u8>> {
    let (pairs, []) = digits.as_bytes().as_chunks::<2>() else { return None };
    let digit = |byte: u8| char::from(byte).to_digit(16);
    pairs.iter().map(|[high, low]| Some((digit(*high)? << 4 | digit(*low)?) as u8)).collect()
}

/// The status of a flow. Times are in seconds.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct FlowStatus {
    /// The source address.
    pub source: IpAddr,
    /// The destination address.
    pub destination: IpAddr,
    /// `request`, `granted`, `declined`, `program`; `allowed` and `blocked` where its source is; `expired` where that is over and no packet came
    /// since; `unknown` where there is no entry.
    pub state: String,
    /// Time until the state expires.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires: Option<f64>,
    /// The declined packets, by protocol and port, if only some of the flow's packets are declined.
    /// The others are requests.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub traffic: Option<String>,
    /// The number of the flow's program, if it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub program: Option<u8>,
    /// The priority of a request's last packet; the DSCP is 3 more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority: Option<u8>,
    /// Time since a request's last packet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_request_ago: Option<f64>,
    /// Time since the first packet of a flow without an entry, if that is recorded. The flow gets an
    /// entry with its next packet, or by `cookie_reset`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_seen_ago: Option<f64>,
    /// The proof that a TCP flow without an entry needs to get one while the table fills up: `syn-cookie`, a
    /// valid answer to a cookie.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address_validation: Option<String>,
    /// The bytes that a granted flow has left in this second.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub budget: Option<u64>,
    /// Time until the packets of a granted flow request a renewal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub renewal: Option<f64>,
    /// The grantor set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grantors: Option<String>,
    /// The sender of the decision.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sender: Option<u32>,
    /// The number of the decision.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub decision: Option<u64>,
    /// The generation of the policy in force.
    pub generation: u64,
    /// The flow's entry is from an older policy, until its next packet.
    #[serde(default)]
    pub stale: bool,
    /// The version of the policy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// The prefix of the policy that the destination matches.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rule: Option<String>,
    /// The rule's line in the file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub line: Option<usize>,
    /// The rule's action.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub action: Option<String>,
    /// The limit of that prefix, in bits a second.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<u64>,
    /// The limit of each destination within the prefix, in bits a second.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub per_destination_limit: Option<u64>,
    /// The prefix by which the source is allowed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allowed: Option<String>,
    /// The prefix by which the source is blocked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub blocked: Option<String>,
    /// The outcome by the candidate, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub candidate: Option<Outcome>,
    /// The XDP program drops its packets before they reach a worker.
    #[serde(default)]
    pub xdp_dropped: bool,
    /// The verdict of its last dropped packet, by the counter's name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dropped: Option<String>,
    /// Time since that drop.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_drop_ago: Option<f64>,
}

impl FlowStatus {
    /// Makes the status of an unknown flow.
    pub fn unknown(source: IpAddr, destination: IpAddr, generation: u64) -> Self {
        Self {
            source,
            destination,
            state: "unknown".to_owned(),
            expires: None,
            traffic: None,
            program: None,
            priority: None,
            last_request_ago: None,
            first_seen_ago: None,
            address_validation: None,
            budget: None,
            renewal: None,
            grantors: None,
            sender: None,
            decision: None,
            generation,
            stale: false,
            version: None,
            rule: None,
            line: None,
            action: None,
            limit: None,
            per_destination_limit: None,
            allowed: None,
            blocked: None,
            candidate: None,
            xdp_dropped: false,
            dropped: None,
            last_drop_ago: None,
        }
    }
}
