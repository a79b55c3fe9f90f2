//! The structure of the file: its keys, and which of them are optional.
//!
//! This module checks only keys and types. Every value that may be invalid carries its offset in
//! the text, which the later check of the value reports.

use std::path::PathBuf;

use serde::Deserialize;
use toml::Spanned;

use super::access::{AccessListSection, PrefixListSection};
use super::block::BlockSection;
use super::egress_queue::EgressQueueSection;
use super::flowspec::FlowspecSection;
use super::{ControlSection, LogSection, MetricsSection, PuntSection, TimeSpan, WorkersSection};

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct File {
    pub(super) interface: Vec<Interface>,
    pub(super) nexthop: Vec<NextHop>,
    pub(super) routes: Vec<Spanned<Routes>>,
    pub(super) route: Vec<Route>,
    pub(super) prefix_list: Vec<PrefixListSection>,
    pub(super) access_list: Vec<AccessListSection>,
    pub(super) egress_queue: Vec<EgressQueueSection>,
    pub(super) block: Option<Spanned<BlockSection>>,
    pub(super) flowspec: Option<FlowspecSection>,
    pub(super) workers: WorkersSection,
    pub(super) fib: Fib,
    pub(super) control: ControlSection,
    pub(super) feed: Feed,
    pub(super) image: Option<Image>,
    pub(super) metrics: MetricsSection,
    pub(super) log: LogSection,
    pub(super) punt: PuntSection,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Interface {
    pub(super) name: Spanned<String>,
    pub(super) mode: Option<Spanned<String>>,
    pub(super) queues: Option<Spanned<u32>>,
    pub(super) channels: Option<Spanned<u32>>,
    pub(super) rss: Option<Spanned<String>>,
    pub(super) table: Option<Spanned<u32>>,
    pub(super) rpf: Option<Spanned<String>>,
    #[serde(default)]
    pub(super) observe: bool,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct NextHop {
    pub(super) name: Spanned<String>,
    pub(super) interface: Spanned<String>,
    pub(super) mac: Spanned<String>,
    pub(super) address: Option<Spanned<String>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Routes {
    pub(super) file: PathBuf,
    pub(super) nexthop: Option<Spanned<String>>,
    pub(super) nexthops: Option<Spanned<Vec<Spanned<String>>>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Route {
    pub(super) prefix: Spanned<String>,
    pub(super) nexthop: Spanned<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Fib {
    pub(super) engine: Option<Spanned<String>>,
    pub(super) engine_v6: Option<Spanned<String>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Image {
    pub(super) path: Spanned<PathBuf>,
    pub(super) interval: Option<Spanned<TimeSpan>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Feed {
    pub(super) fpm: Option<Spanned<String>>,
    pub(super) fpm_peers: Vec<Spanned<String>>,
    pub(super) fpm_users: Option<Vec<Spanned<String>>>,
}
