//! The syntax of a gate's file: its keys, and which of them are optional.
//!
//! Only types and keys are checked here. Every value that may be wrong carries its place in the text
//! for the check that follows.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::Deserialize;
use toml::Spanned;

use bundle::config::DistributionSection;
use config::{
    BlockSection, ControlSection, LogSection, MetricsSection, PuntSection, TimeSpan, WorkersSection,
};

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct File {
    pub(super) front: Front,
    pub(super) back: Back,
    pub(super) link: Link,
    #[serde(default)]
    pub(super) flow_table: FlowTable,
    #[serde(default)]
    pub(super) admission: Admission,
    #[serde(default)]
    pub(super) allow: Sources,
    pub(super) block: Option<Spanned<BlockSection>>,
    #[serde(default)]
    pub(super) grantors: Vec<Grantors>,
    #[serde(default)]
    pub(super) policy: Vec<Policy>,
    #[serde(default)]
    pub(super) sender: Vec<Sender>,
    #[serde(default)]
    pub(super) program: Vec<Program>,
    #[serde(default)]
    pub(super) decisions: Decisions,
    #[serde(default)]
    pub(super) tunnel: Tunnel,
    #[serde(default)]
    pub(super) rules: Rules,
    #[serde(default)]
    pub(super) workers: WorkersSection,
    #[serde(default)]
    pub(super) control: ControlSection,
    #[serde(default)]
    pub(super) metrics: MetricsSection,
    #[serde(default)]
    pub(super) log: LogSection,
    #[serde(default)]
    pub(super) punt: PuntSection,
    pub(super) distribution: Option<DistributionSection>,
}

/// The parts that a bundle (crate `bundle`) may replace.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Ruled {
    pub(super) grantors: Vec<Grantors>,
    pub(super) policy: Vec<Policy>,
    pub(super) allow: Sources,
    pub(super) block: Sources,
    pub(super) program: Vec<Program>,
    pub(super) rules: Rules,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Front {
    pub(super) interface: Spanned<String>,
    pub(super) mode: Option<Spanned<String>>,
    pub(super) steering: Option<Spanned<String>>,
    pub(super) rss: Option<Spanned<String>>,
    #[serde(default)]
    pub(super) fail_open: bool,
    pub(super) rpf: Option<Spanned<String>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Back {
    pub(super) interface: Spanned<String>,
    pub(super) mode: Option<Spanned<String>>,
    pub(super) address4: Option<Spanned<String>>,
    pub(super) address6: Option<Spanned<String>>,
    pub(super) mtu: Option<Spanned<u16>>,
    pub(super) rpf: Option<Spanned<String>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Link {
    pub(super) bandwidth: Spanned<String>,
    pub(super) request_queue: Option<Spanned<usize>>,
    pub(super) granted_queue: Option<Spanned<usize>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct FlowTable {
    pub(super) entries: Option<Spanned<usize>>,
    pub(super) state_file: Option<Spanned<PathBuf>>,
    pub(super) xdp_declined_flows: Option<Spanned<u32>>,
    pub(super) xdp_blocked_prefixes: Option<Spanned<u32>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Admission {
    pub(super) threshold: Option<Spanned<f64>>,
    pub(super) first_packet_entries: Option<Spanned<usize>>,
    pub(super) enabled: Option<bool>,
    pub(super) address_validation: Option<Spanned<String>>,
    pub(super) syn_cookie_rate: Option<Spanned<u32>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Sources {
    pub(super) prefixes: Vec<Spanned<String>>,
    pub(super) file: Option<Spanned<PathBuf>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Grantors {
    pub(super) name: Spanned<String>,
    pub(super) members: Spanned<Vec<Member>>,
    pub(super) hold_time: Option<Spanned<TimeSpan>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Member {
    pub(super) address: Spanned<String>,
    pub(super) weight: Option<u32>,
    pub(super) sender: Option<Spanned<u32>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Policy {
    pub(super) prefix: Spanned<String>,
    pub(super) grantors: Option<Spanned<String>>,
    pub(super) action: Option<Spanned<String>>,
    #[serde(default)]
    pub(super) exempt: bool,
    pub(super) limit: Option<Spanned<String>>,
    pub(super) per_destination_limit: Option<Spanned<String>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Sender {
    pub(super) id: Spanned<u32>,
    pub(super) keys: Spanned<BTreeMap<String, Spanned<PathBuf>>>,
    #[serde(default)]
    pub(super) prefixes: Vec<Spanned<String>>,
    pub(super) max_expiry: Option<Spanned<u32>>,
    pub(super) max_prefix_decisions: Option<Spanned<usize>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Program {
    pub(super) number: Spanned<u8>,
    pub(super) file: Spanned<PathBuf>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Decisions {
    pub(super) sources: Vec<Spanned<String>>,
    pub(super) v1_sources: Vec<Spanned<String>>,
    pub(super) accept_programs: bool,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Tunnel {
    pub(super) clamp_mss: bool,
    pub(super) icmp_rate: Option<u32>,
    pub(super) udp_port: Option<Spanned<u16>>,
    pub(super) authentication: Option<Spanned<String>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Rules {
    pub(super) version: Option<String>,
    pub(super) candidate: Option<Spanned<PathBuf>>,
}
