//! The configuration of a gate: one TOML file, read and checked as a whole.
//!
//! ```toml
//! [front]
//! interface = "eth0"           # where packets come from; `mode` as for the router
//! steering = "software"        # how packets reach the worker of their flow; or "card"
//! rss = "addresses"            # RSS of the card while the gate runs; or "symmetric"; default: as it is
//! fail_open = false            # true: the kernel gets packets that no worker takes, and may forward them
//! rpf = "off"                  # reverse path filtering, as for the router; of [back] too
//! [back]
//! interface = "eth1"           # toward the grantors
//! address4 = "10.9.0.1"        # source of tunnels; default: the interface's address
//! address6 = "fd00:9::1"
//! mtu = 1500                   # MTU of the path to the grantors, if less than the link's
//!
//! [link]
//! bandwidth = "1gbit"          # of the protected network's link, with the units of tc(8)
//! [flow_table]
//! entries = 1048576            # flows of each worker
//! state_file = "/var/lib/fingerpost/flows"   # keeps flows across a restart; default: none
//! xdp_declined_flows = 65536   # declined flows that the XDP program drops; 0: none
//! xdp_blocked_prefixes = 1048576   # blocked prefixes that it drops; 0: none
//! [admission]
//! threshold = 0.5              # fill level of the table above which flows need a second packet
//! first_packet_entries = 4194304   # flows of each worker of which one packet was seen
//! enabled = true
//! address_validation = "syn-cookie"   # TCP has to answer a cookie; or "second-packet"
//! syn_cookie_rate = 100000     # maximum SYN cookies a second
//!
//! [[grantors]]
//! name = "site"
//! members = [{ address = "10.9.1.1", sender = 1, weight = 3 }, { address = "10.9.1.2", sender = 2 }]
//! hold_time = "700ms"          # a member silent for longer gets no flows; default: no limit
//!
//! [[policy]]                   # the longest prefix decides
//! prefix = "192.0.2.0/24"
//! grantors = "site"
//! limit = "500mbit"            # of the prefix: 5 % for requests, 95 % for granted packets
//! per_destination_limit = "50mbit"   # of each destination within
//! [[policy]]
//! prefix = "192.0.2.9/32"      # a hole in the protection needs `exempt = true`
//! action = "back"              # "back", "front" or "drop"
//! exempt = true
//! [[policy]]
//! prefix = "0.0.0.0/0"
//! action = "front"
//!
//! [allow]                      # sources that pass without a request
//! prefixes = ["203.0.113.7"]
//! file = "allow.txt"           # one prefix or address a line
//!
//! [block]                      # sources whose packets are dropped, except allowed ones
//! prefixes = ["198.18.0.0/15"]
//! file = "block.txt"
//! lists = ["https://lists.example/drop.txt"]  # in front of the gate, with the other keys of `config::BlockConfig`
//!
//! [[sender]]                   # a sender of decisions, by version 2 of the protocol
//! id = 1
//! keys = { 1 = "grantor.key" } # by number: files of 64 hexadecimal digits
//! prefixes = ["192.0.2.0/24"]  # destinations that it may decide about; default: all
//! max_expiry = 86400           # seconds; longer decisions are shortened
//! max_prefix_decisions = 16    # in force at a time; more are refused
//!
//! [[program]]                  # a flow program that decisions may name: docs/guide/programs.md
//! number = 3
//! file = "web.o"
//!
//! [decisions]
//! sources = []                 # further addresses from which senders send
//! v1_sources = ["10.9.1.1"]    # senders of version 1; default: none
//! accept_programs = true       # senders may send programs with free numbers
//!
//! [tunnel]
//! clamp_mss = true             # lower the MSS of TCP to what fits
//! udp_port = 6080              # in UDP to this port; default: IP in IP
//! authentication = "on"        # or "off"; default: on for members with a sender
//! icmp_rate = 100              # maximum ICMP errors a second
//!
//! [rules]
//! version = "2026-11-22"       # name of this policy
//! candidate = "next.toml"      # a policy that is only evaluated
//!
//! [distribution]               # policies as signed bundles: crate `bundle`
//! ```
//!
//! `[workers]`, `[punt]`, `[control]`, `[log]` and `[metrics]` are those of the router. The settings in
//! [`Fixed`] hold as long as the gate runs; a reload (SIGHUP) reads the others again and applies all
//! of them or none. Grantor sets, policy, lists of sources, programs and rules can come in a bundle's
//! `gate.toml`, which then replace all of those in the file. A candidate (`candidate.rs`) is a file of
//! the same parts.
//!
//! A source on both lists is allowed, whatever the lengths of the prefixes. Lists may have hundreds of
//! thousands of lines: their lookup table is built once, when they are read, and shared by all policies
//! that are built from them.

pub(crate) mod check;
mod reload;
mod text;

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use feed::netlink::AnyPrefix;
use gate::decision::v2::keys::Keys;
use gate::policy::sources::SourceLists;
use gate::policy::{Action, Address, Grantor, Policy, PolicyBuilder, PolicyError, RuleId};
use gate::program::Programs;
use gate::tunnel::OVERHEAD;
use port::af_xdp::steer::{EarlyDropConfig, SourcePrefix};
use port::af_xdp::{ModeChoice, QueueSetup, Rss};
use wire::udp;

use crate::sender_limits::SenderLimits;
use bundle::{Bundle, DistributionConfig, MemberConfig};
use config::{self, BlockConfig, ConfigError, DaemonConfig, MAIN, shape};
use datapath::ReversePathFilter;

pub use check::check_bundle;

/// The port of the front interface in a gate's worker.
pub const FRONT: usize = 0;
/// The port toward the grantors.
pub const BACK: usize = 1;
/// The rules of a policy that are counted one by one; the first ones.
pub(crate) const MAX_COUNTED_RULES: usize = 256;
/// The maximum number of prefixes behind a gate in its XDP program's map; memory is used only for those
/// that exist.
const MOST_INSIDE: u32 = 1 << 20;

/// A configuration without contradictions.
#[derive(Clone, Debug)]
pub struct Config {
    /// The file it was read from.
    pub path: PathBuf,
    /// The settings that hold as long as the gate runs.
    pub fixed: Fixed,
    /// The actions by destination.
    pub rules: Rules,
    /// The block lists in front of the gate, if there are any.
    pub block: Option<BlockConfig>,
    /// The senders of decisions.
    pub trust: Trust,
    /// The flow programs that decisions may name.
    pub programs: Programs,
    /// The bundle of the rules and the programs, if they come from one.
    pub bundle: Option<Arc<Bundle>>,
}

/// A gate's file in a bundle.
pub const IN_BUNDLE: &str = "gate.toml";

/// The settings that hold as long as the gate runs.
#[derive(Clone, Debug, PartialEq)]
pub struct Fixed {
    /// The front interface.
    pub front: Side,
    /// The back interface.
    pub back: Side,
    /// How packets reach the worker that owns their flow.
    pub steering: SteeredBy,
    /// The RSS that the front interface gets while the gate runs; `None`: as it is.
    pub rss: Option<Rss>,
    /// The kernel gets the packets of the front interface that no worker takes, and may forward them
    /// without a decision; otherwise they are dropped.
    pub fail_open: bool,
    /// The source address of tunnels over IPv4, if configured.
    pub address4: Option<u32>,
    /// The source address of tunnels over IPv6, if configured.
    pub address6: Option<u128>,
    /// The maximum length of an encapsulated packet, outer header included.
    pub mtu: u16,
    /// The bandwidth of the protected link, in bits a second.
    pub bits: u64,
    /// The length of the request queue of each worker.
    pub requests: usize,
    /// The length of the queue of granted packets of each worker.
    pub granted: usize,
    /// The entries of each worker's flow table.
    pub entries: usize,
    /// The maximum number of declined flows that the XDP program drops; 0: none.
    pub xdp_declined_flows: u32,
    /// The maximum number of blocked prefixes of each family that the XDP program drops; 0: none.
    pub xdp_blocked_prefixes: u32,
    /// There are block lists in front of the gate.
    pub has_block_lists: bool,
    /// The admission of flows to the table, if enabled.
    pub admission: Option<Admission>,
    /// The flow file, which keeps flows across a restart, if configured.
    pub keep: Option<PathBuf>,
    /// The MSS of TCP is lowered to what fits the tunnel.
    pub clamp_mss: bool,
    /// The UDP destination port of tunnels, if they use UDP.
    pub udp: Option<u16>,
    /// Tunnels to grantors with a known key are sealed.
    pub sealed: bool,
    /// The maximum number of ICMP errors a second, of all workers.
    pub icmp_rate: u32,
    /// The settings that all daemons have.
    pub daemon: DaemonConfig,
    /// The settings of the distribution of bundles, if configured.
    pub distribution: Option<DistributionConfig>,
}

/// The admission of flows to a table that fills up.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Admission {
    /// The fill level above which admission applies, from 0 to 1.
    pub threshold: f64,
    /// The number of flows that each worker records by their first packet.
    pub first_packet_entries: usize,
    /// The maximum number of SYN cookies a second, of all workers; `None` without SYN cookies.
    pub syn_cookie_rate: Option<u32>,
}

/// How packets reach the worker that owns their flow, with several workers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SteeredBy {
    /// The workers hand packets over: correct on any interface.
    Software,
    /// The card hashes source and destination address only, as configured by the operator.
    Card,
}

/// An interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Side {
    /// Its name.
    pub name: String,
    /// The receive modes that may be used.
    pub mode: ModeChoice,
    /// The reverse path filter.
    pub sources: ReversePathFilter,
}

/// A policy: actions by destination, and lists of sources.
#[derive(Clone, Debug, Default)]
pub struct Rules {
    /// The version of this policy.
    pub version: Option<String>,
    /// The grantor sets, by the numbers of [`Action::Grantors`].
    pub sets: Vec<Set>,
    /// The prefixes.
    pub rules: Vec<Rule>,
    /// The allowed sources.
    pub allow: Arc<[AnyPrefix]>,
    /// The blocked sources, except allowed ones.
    pub block: Arc<[AnyPrefix]>,
    /// The lookup table of both.
    pub sources: Arc<SourceLists>,
    /// The number of workers that share the limits; 0 counts as one.
    pub workers: usize,
    /// The candidate policy, which is only evaluated.
    pub candidate: Option<Arc<Rules>>,
}

/// A grantor set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Set {
    /// Its name.
    pub name: String,
    /// Its grantors.
    pub members: Vec<Member>,
    /// The silence after which a member's flows go to the others, if limited.
    pub hold_time: Option<Duration>,
}

/// A grantor of a set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Member {
    /// Its address and weight.
    pub grantor: Grantor,
    /// Its number as a sender of decisions, if configured.
    pub sender: Option<u32>,
}

/// Silent grantors, by their set's name.
pub type Silent = BTreeSet<(String, Address)>;

/// The action for packets to a prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rule {
    /// The prefix.
    pub prefix: AnyPrefix,
    /// The action.
    pub action: Action,
    /// The rule is an intended hole in a protected prefix.
    pub exempt: bool,
    /// The limit of the prefix, in bits a second.
    pub limit: Option<u64>,
    /// The limit of each destination within, in bits a second.
    pub per_destination_limit: Option<u64>,
    /// The line of the ledger that counts its packets.
    pub counted: RuleId,
    /// Its line in the file.
    pub line: usize,
}

/// The senders of decisions, and their rights.
#[derive(Clone, Debug, Default)]
pub struct Trust {
    /// The senders of version 2, with their keys.
    pub senders: Vec<(u32, Keys)>,
    /// The limits of each sender.
    pub limits: Vec<(u32, SenderLimits)>,
    /// The addresses from which they send: the grantors of the policy, and further ones.
    pub from: Vec<IpAddr>,
    /// The addresses of senders of version 1.
    pub v1_sources: Vec<IpAddr>,
    /// The sender at the end of each sealed tunnel.
    pub tunnels: Vec<(Address, u32)>,
    /// Senders may send flow programs with the numbers that no `[[program]]` has.
    pub programs: bool,
}

impl Fixed {
    /// Returns whether the XDP program looks up in tables, which takes `CAP_PERFMON`.
    pub fn looks_up_in_xdp(&self) -> bool {
        self.xdp_blocked_prefixes > 0 || self.has_block_lists
    }

    /// Returns the maximum number of bytes between the outer and the inner IP header.
    pub fn encapsulation_len(&self) -> u16 {
        match (self.sealed, self.udp) {
            (true, _) => udp::LEN as u16 + OVERHEAD as u16,
            (false, Some(_)) => udp::LEN as u16,
            (false, None) => 0,
        }
    }
}

impl MemberConfig for Config {
    fn parse_over(
        text: &str,
        path: &Path,
        bundle: Option<&Arc<Bundle>>,
    ) -> Result<Self, ConfigError> {
        check::check(shape(text, path)?, text, path, bundle)
    }

    fn distribution(&self) -> Option<&DistributionConfig> {
        self.fixed.distribution.as_ref()
    }
}

impl Config {
    /// Parses the text of a file whose name is `path`. Names of key files are relative to its folder.
    ///
    /// # Errors
    ///
    /// [`ConfigError`], with everything that is wrong.
    pub fn parse(text: &str, path: &Path) -> Result<Self, ConfigError> {
        Self::parse_over(text, path, None)
    }

    /// Returns the configuration of the gate's router.
    pub(crate) fn router(&self) -> config::Config {
        let interface = |side: &Side, filter, rss| config::Interface {
            name: side.name.clone(),
            mode: side.mode,
            queues: None,
            queue_setup: QueueSetup { channels: None, rss },
            table: Some(MAIN),
            sources: Some(side.sources),
            observe: false,
            follows_kernel: false,
            guard: Some(filter),
        };
        let Fixed { xdp_declined_flows, fail_open, .. } = self.fixed;
        let front = EarlyDropConfig {
            flows: xdp_declined_flows,
            protected: MOST_INSIDE,
            fail_closed: !fail_open,
        };
        let interfaces = vec![
            interface(&self.fixed.front, front, self.fixed.rss),
            interface(&self.fixed.back, EarlyDropConfig::default(), None),
        ];
        let router = config::Config::of_role(&self.path, interfaces, self.fixed.daemon.clone());
        config::Config { block: self.block.clone(), ..router }
    }
}

impl Rules {
    /// Builds the policy with this generation.
    ///
    /// # Errors
    ///
    /// [`PolicyError`].
    pub fn policy(&self, generation: u64) -> Result<Policy, PolicyError> {
        self.policy_without(generation, &Silent::new())
    }

    /// Builds the policy in which these grantors get no flows.
    ///
    /// # Errors
    ///
    /// [`PolicyError`].
    pub fn policy_without(&self, generation: u64, silent: &Silent) -> Result<Policy, PolicyError> {
        let mut draft = PolicyBuilder::new();
        for set in &self.sets {
            let each = set.members.iter().map(|&Member { grantor, .. }| {
                let is_silent = silent.contains(&(set.name.clone(), grantor.address));
                Grantor { weight: if is_silent { 0 } else { grantor.weight }, ..grantor }
            });
            draft.set(&each.collect::<Vec<_>>());
        }
        let share = |bits: Option<u64>| bits.map(|bits| (bits / self.workers.max(1) as u64).max(8));
        for rule in &self.rules {
            let &Rule { prefix, exempt, limit, per_destination_limit, .. } = rule;
            draft.set_rule(rule.counted);
            let action = match rule.own_set() {
                Some(set) => Action::Grantors(draft.set_with_limits(
                    set,
                    share(limit),
                    share(per_destination_limit),
                )),
                None => rule.action,
            };
            match (prefix, exempt) {
                (AnyPrefix::V4(prefix), false) => draft.v4(prefix, action),
                (AnyPrefix::V4(prefix), true) => draft.exempt_v4(prefix, action),
                (AnyPrefix::V6(prefix), false) => draft.v6(prefix, action),
                (AnyPrefix::V6(prefix), true) => draft.exempt_v6(prefix, action),
            }
        }
        draft.sources(Arc::clone(&self.sources));
        for rule in &self.rules {
            let Some(inside) = rule.inside() else { continue };
            match rule.prefix {
                AnyPrefix::V4(prefix) => draft.inside_v4(prefix, inside),
                AnyPrefix::V6(prefix) => draft.inside_v6(prefix, inside),
            }
        }
        self.grantors().for_each(|grantor| draft.tunnel_end(grantor));
        draft.build(generation)
    }

    /// Returns the rule for a destination: the one with the longest matching prefix.
    pub fn find(&self, address: IpAddr) -> Option<&Rule> {
        let length = |rule: &&Rule| length(rule.prefix, address);
        let matching = self.rules.iter().filter(|rule| length(rule).is_some());
        matching.max_by_key(length)
    }

    /// Returns whether a packet with these addresses on the front is forged: the source is behind
    /// the gate, or one of the two is a grantor.
    pub fn is_forged(&self, source: IpAddr, destination: IpAddr) -> bool {
        let is_grantor = |address| self.grantors().any(|grantor| IpAddr::from(grantor) == address);
        let length = |rule: &&Rule| length(rule.prefix, source).filter(|_| rule.inside().is_some());
        let matching = self.rules.iter().filter(|rule| length(rule).is_some());
        is_grantor(source)
            || is_grantor(destination)
            || matching.max_by_key(length).is_some_and(|rule| rule.inside() == Some(true))
    }

    /// Returns the longest prefix by which a source is allowed, if it is.
    pub fn allowing(&self, address: IpAddr) -> Option<AnyPrefix> {
        longest(&self.allow, address)
    }

    /// Returns the longest prefix by which a source is blocked, if it is.
    pub fn blocking(&self, address: IpAddr) -> Option<AnyPrefix> {
        longest(&self.block, address).filter(|_| self.allowing(address).is_none())
    }

    /// Returns the set with this number in the policy. The copies of sets for single rules have the
    /// numbers after the sets themselves.
    pub fn set(&self, number: u16) -> Option<&Set> {
        let number = usize::from(number);
        let of_rule = || {
            let mut own = self.rules.iter().filter_map(Rule::own_set);
            self.sets.get(usize::from(own.nth(number - self.sets.len())?))
        };
        self.sets.get(number).or_else(of_rule)
    }

    /// Returns the name of an action.
    pub fn action_name(&self, action: Action) -> String {
        match action {
            Action::Back => "back".to_owned(),
            Action::Front => "front".to_owned(),
            Action::Drop => "drop".to_owned(),
            Action::Forged => "forged".to_owned(),
            Action::Grantors(set) => match self.sets.get(usize::from(set)) {
                Some(set) => format!("grantors {}", set.name),
                None => format!("grantors {set}"),
            },
        }
    }

    /// Returns the prefixes that are behind the gate by the rules, those that are not (`drops` is false),
    /// and the ends of tunnels, which are behind it.
    pub(crate) fn behind(&self) -> Vec<SourcePrefix> {
        let rules = self.rules.iter().filter_map(|rule| {
            let (address, len) = match rule.prefix {
                AnyPrefix::V4(prefix) => (IpAddr::V4(prefix.addr().into()), prefix.len()),
                AnyPrefix::V6(prefix) => (IpAddr::V6(prefix.addr().into()), prefix.len()),
            };
            Some(SourcePrefix { address, len: len as u8, drops: rule.inside()? })
        });
        let ends = self.grantors().map(|end| match end {
            Address::V4(end) => {
                SourcePrefix { address: IpAddr::V4(end.into()), len: 32, drops: true }
            }
            Address::V6(end) => {
                SourcePrefix { address: IpAddr::V6(end.into()), len: 128, drops: true }
            }
        });
        rules.chain(ends).collect()
    }

    /// Iterates over the addresses of all grantors.
    pub fn grantors(&self) -> impl Iterator<Item = Address> {
        self.sets.iter().flat_map(|set| set.members.iter().map(|member| member.grantor.address))
    }
}

impl Rule {
    /// Returns whether hosts of the prefix are behind the gate, if the rule determines it.
    fn inside(&self) -> Option<bool> {
        match self.action {
            Action::Grantors(_) => Some(true),
            Action::Front => Some(false),
            _ => None,
        }
    }

    /// Returns the number of the set, if the policy has a copy of it for this rule alone.
    fn own_set(&self) -> Option<u16> {
        let own =
            self.limit.or(self.per_destination_limit).is_some() || self.counted != RuleId::OTHERS;
        match self.action {
            Action::Grantors(set) if own => Some(set),
            _ => None,
        }
    }
}

/// Returns the longest prefix that an address is within.
fn longest(all: &[AnyPrefix], address: IpAddr) -> Option<AnyPrefix> {
    let matching = all.iter().filter(|prefix| length(**prefix, address).is_some());
    matching.max_by_key(|prefix| length(**prefix, address)).copied()
}

/// Returns the length of a prefix that an address is within.
fn length(prefix: AnyPrefix, address: IpAddr) -> Option<u32> {
    match (prefix, address) {
        (AnyPrefix::V4(prefix), IpAddr::V4(address)) => {
            prefix.contains(address.into()).then_some(prefix.len())
        }
        (AnyPrefix::V6(prefix), IpAddr::V6(address)) => {
            prefix.contains(address.into()).then_some(prefix.len())
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests;
