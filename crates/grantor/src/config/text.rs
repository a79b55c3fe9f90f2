//! The syntax of a grantor's file: its keys, and which of them are optional.
//!
//! Only types and keys are checked here. Every value that may be wrong carries its place in the text
//! for the check that follows. [`Ruled`] has the parts that a bundle may replace.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::Deserialize;
use toml::Spanned;

use bundle::config::DistributionSection;
use config::{ControlSection, LogSection, MetricsSection, PuntSection, WorkersSection};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct File {
    pub(super) interfaces: Spanned<Vec<String>>,
    pub(super) tunnel: Tunnel,
    pub(super) policy: Policy,
    #[serde(default)]
    pub(super) list: Vec<Listed>,
    #[serde(default)]
    pub(super) program: Vec<ProgramFile>,
    pub(super) decisions: Decisions,
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

/// The parts that a bundle may replace.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Ruled {
    pub(super) policy: RuledPolicy,
    #[serde(default)]
    pub(super) list: Vec<Listed>,
    #[serde(default)]
    pub(super) program: Vec<ProgramFile>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RuledPolicy {
    pub(super) file: Spanned<PathBuf>,
    pub(super) candidate: Option<Spanned<PathBuf>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Tunnel {
    pub(super) addresses: Vec<Spanned<String>>,
    pub(super) gates: Vec<Spanned<String>>,
    pub(super) udp_port: Option<Spanned<u16>>,
    pub(super) interfaces: Option<Spanned<Vec<String>>>,
    pub(super) authentication: Option<Spanned<String>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Policy {
    pub(super) file: Spanned<PathBuf>,
    pub(super) max_instructions: Option<u64>,
    pub(super) max_memory_mib: Option<Spanned<usize>>,
    pub(super) fallback: Option<Spanned<String>>,
    pub(super) fragments: Option<Spanned<String>>,
    pub(super) candidate: Option<Spanned<PathBuf>>,
    pub(super) record_file: Option<PathBuf>,
    pub(super) max_record_mib: Option<Spanned<u64>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Listed {
    pub(super) name: Spanned<String>,
    pub(super) file: Spanned<PathBuf>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ProgramFile {
    pub(super) number: Spanned<u8>,
    pub(super) file: Spanned<PathBuf>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Decisions {
    pub(super) version: Spanned<u8>,
    #[serde(default)]
    pub(super) id: u32,
    #[serde(default)]
    pub(super) keys: BTreeMap<String, Spanned<PathBuf>>,
    #[serde(default)]
    pub(super) share_grants: bool,
}
