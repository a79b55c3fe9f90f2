//! What a gate tells of itself, item by item: the shapes of the control socket's answers.
//!
//! As those of the router (`control/api.rs`): fields may be added, none changes its meaning.

use std::collections::BTreeMap;
use std::net::IpAddr;

use serde::{Deserialize, Serialize};

/// A gate.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct GateTold {
    /// The front interface.
    pub front: String,
    /// The back interface.
    pub back: String,
    /// The protected link's bits a second.
    pub bandwidth: u64,
    /// The generation of the policy: 1 at the start, one more with each reload.
    pub generation: u64,
    /// What the policy is called.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// Its prefixes.
    pub prefixes: u64,
    /// Prefixes of sources that pass before anything else is asked.
    #[serde(default)]
    pub allowed: u64,
    /// Prefixes of sources whose packets are dropped.
    #[serde(default)]
    pub blocked: u64,
    /// Its grantors.
    pub grantors: Vec<IpAddr>,
    /// Those of them that get no flows, because they say nothing.
    #[serde(default)]
    pub silent: Vec<IpAddr>,
    /// Reloads.
    pub reloads: u64,
    /// Reloads that came to nothing.
    pub reloads_refused: u64,
    /// Packets on the front interface, by the gate's verdict.
    pub packets: BTreeMap<String, u64>,
    /// Their bytes.
    pub bytes: BTreeMap<String, u64>,
    /// Both, by the rule of the policy that decided: they add up to what was received.
    #[serde(default)]
    pub policies: Vec<PolicyTold>,
    /// The flow table.
    pub table: BTreeMap<String, u64>,
    /// What leaves: the solicitor, the queues, ICMP errors.
    pub link: BTreeMap<String, u64>,
    /// What grantors have said, and what came of it.
    pub decisions: BTreeMap<String, u64>,
    /// What the candidate would do, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub candidate: Option<CandidateTold>,
}

/// What became of packets of which a rule of the policy decided.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PolicyTold {
    /// Its prefix; `others`, rules beyond those that are counted one by one; `gone`, rules that were
    /// there before a reload; `none`, packets without a route or of blocked sources, and all that the
    /// kernel dropped.
    pub policy: String,
    /// Its line in the file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub line: Option<usize>,
    /// What it says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub action: Option<String>,
    /// Packets: `request`, `granted`, `passed`, `dropped`.
    pub packets: BTreeMap<String, u64>,
    /// Their bytes.
    pub bytes: BTreeMap<String, u64>,
}

/// A candidate beside the policy, since either was read: what it says is compared, by samples of
/// packets, and has no effect.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CandidateTold {
    /// What it is called.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// Its prefixes.
    pub prefixes: u64,
    /// Packets that both were asked about.
    pub samples: u64,
    /// Packets that these stand for.
    pub packets: u64,
    /// Those of them that it decides otherwise, by both outcomes, the most first; beyond 256 pairs
    /// the rest is `others`.
    pub changes: Vec<DifferingTold>,
    /// Flows among them, the latest first, up to 64.
    pub flows: Vec<ChangedTold>,
}

/// Packets of which the policy says one thing and the candidate another.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DifferingTold {
    /// What the policy says: `no route`, `back`, `front`, `drop`, `allowed`, `grantors NAME`.
    pub policy: String,
    /// What the candidate says.
    pub candidate: String,
    /// Packets that were sampled.
    pub samples: u64,
    /// Packets that these stand for.
    pub packets: u64,
}

/// A flow of which they say different things.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ChangedTold {
    /// Where its packets come from.
    pub source: IpAddr,
    /// Where they go.
    pub destination: IpAddr,
    /// What the policy says.
    pub policy: OutcomeTold,
    /// What the candidate says.
    pub candidate: OutcomeTold,
    /// Packets that its samples stand for.
    pub packets: u64,
    /// Seconds since the last of these.
    pub ago: f64,
}

/// What rules say of a flow.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OutcomeTold {
    /// It, as in [`DifferingTold`].
    pub action: String,
    /// The prefix that decides: of the destination, or of the source where that is on a list.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rule: Option<String>,
    /// Its line in the file, where it is of the destination.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub line: Option<usize>,
}

/// A flow program at a gate: one that a gate has, or one that a grantor has for a gate.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProgramTold {
    /// The number that decisions name it by.
    pub number: u8,
    /// What its grantor calls it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The gate that it is about, where a grantor tells.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gate: Option<IpAddr>,
    /// `configuration`, the gate's own; or `grantor` and its number.
    pub origin: String,
    /// The SHA-256 of its object file.
    pub digest: String,
    /// `in_force`, `coming`, `judged` (by the verifier, at this moment), `refused`; at a grantor
    /// `asked` too, where the gate has not said yet.
    pub state: String,
    /// Why it is refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Of one that is coming: the bytes that are there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub received_bytes: Option<u64>,
    /// And those of the whole.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
    /// The version before it is kept, for the flows that began with that.
    #[serde(default)]
    pub previous_kept: bool,
}

/// Returns a digest in hexadecimal digits.
pub(crate) fn hexadecimal(digest: &[u8]) -> String {
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A flow. Times are seconds.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct FlowTold {
    /// Where its packets come from.
    pub source: IpAddr,
    /// Where they go.
    pub destination: IpAddr,
    /// `request`, `granted`, `declined`, `program`; `allowed` and `blocked` where its source is; `expired` where that is over and no packet came
    /// since; `unknown` where there is no entry.
    pub state: String,
    /// Until the state is over.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires: Option<f64>,
    /// The declined packets, by protocol and port, of a flow of which only some are declined. The
    /// others are requests.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub traffic: Option<String>,
    /// Of a flow that a program decides of: its number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub program: Option<u8>,
    /// Of a request: the priority of its last packet; the DSCP is 3 more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority: Option<u8>,
    /// Of a request: since its last packet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_request_ago: Option<f64>,
    /// Of a flow without an entry: since its first packet, if that is remembered. With the next one
    /// it gets an entry, or by `cookie_reset`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_seen_ago: Option<f64>,
    /// What TCP of a flow without an entry needs for one while the table fills up, beside coming:
    /// `syn-cookie`, to answer that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address_validation: Option<String>,
    /// Of a granted flow: the bytes left in this second.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub budget: Option<u64>,
    /// Of a granted flow: until its packets ask for renewal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub renewal: Option<f64>,
    /// The grantor set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grantors: Option<String>,
    /// Which sender decided, and by which number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sender: Option<u32>,
    /// The number of the decision.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub decision: Option<u64>,
    /// The generation of the policy in force.
    pub generation: u64,
    /// The flow's entry is by an older policy, until its next packet.
    #[serde(default)]
    pub stale: bool,
    /// What the policy is called.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// The prefix of the policy that decides of the destination.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rule: Option<String>,
    /// Its line in the file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub line: Option<usize>,
    /// What it says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub action: Option<String>,
    /// The most bits a second that may go to that prefix.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<u64>,
    /// The most that may go to each destination within.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub per_destination_limit: Option<u64>,
    /// The prefix by which its source passes before anything else is asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allowed: Option<String>,
    /// The prefix by which its source is blocked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub blocked: Option<String>,
    /// What the candidate says of it, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub candidate: Option<OutcomeTold>,
    /// Its packets are dropped in the kernel, before they reach a worker.
    #[serde(default)]
    pub xdp_dropped: bool,
    /// Why its last dropped packet was dropped, by the counter's name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dropped: Option<String>,
    /// Since that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_drop_ago: Option<f64>,
}

impl FlowTold {
    /// Tells of a flow of which nothing is known.
    pub(super) fn unknown(source: IpAddr, destination: IpAddr, generation: u64) -> Self {
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
