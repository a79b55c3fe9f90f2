//! The configuration of a gate: one TOML file, read whole, judged whole.
//!
//! ```toml
//! [front]
//! interface = "eth0"           # where packets come from; mode as for the router
//! steering = "software"        # who brings packets to their flow's worker; or "card"
//! fail_open = false            # true: the kernel has what no worker takes, and may forward it
//! rpf = "off"              # reverse path filtering, as for the router; of [back] too
//! [back]
//! interface = "eth1"           # towards the grantors
//! address4 = "10.9.0.1"        # where tunnels begin; without it the interface's own
//! address6 = "fd00:9::1"
//! mtu = 1500                   # what the path to the grantors carries, if less than the link
//!
//! [link]
//! bandwidth = "1gbit"          # of the protected network's link, in the words of tc(8)
//! [flow_table]
//! entries = 1048576            # flows, for each worker
//! state_file = "/var/lib/fingerpost/flows"   # over a restart; without it, they are forgotten
//! xdp_declined_flows = 65536                # declined ones that end in the kernel; 0: none
//! xdp_blocked_prefixes = 1048576     # blocked prefixes that do; 0: none
//! [admission]
//! threshold = 0.5                  # the share of the table from which on flows have to come twice
//! first_packet_entries = 4194304           # flows that came once, for each worker
//! enabled = true
//! address_validation = "syn-cookie"         # TCP has to answer a cookie; "second-packet": only to come twice
//! syn_cookie_rate = 100000             # answers to SYNs a second, at the most
//!
//! [[grantors]]
//! name = "site"
//! members = [{ address = "10.9.1.1", sender = 1, weight = 3 }, { address = "10.9.1.2", sender = 2 }]
//! hold_time = "700ms"              # who has said nothing for so long gets no flows; without it, all do
//!
//! [[policy]]                   # the longest prefix says
//! prefix = "192.0.2.0/24"
//! grantors = "site"
//! limit = "500mbit"            # on all that goes there: 5 % for requests, 95 % for what is granted
//! per_destination_limit = "50mbit"        # on each destination within
//! [[policy]]
//! prefix = "192.0.2.9/32"      # a hole in the protection has to be named as one
//! action = "back"              # "back", "front" or "drop"
//! exempt = true
//! [[policy]]
//! prefix = "0.0.0.0/0"
//! action = "front"
//!
//! [allow]                      # sources that pass before everything
//! prefixes = ["203.0.113.7"]
//! file = "allow.txt"           # a prefix or an address a line
//!
//! [block]                      # sources that are dropped, wherever they go, but for those allowed
//! prefixes = ["198.18.0.0/15"]
//! file = "block.txt"
//!
//! [[sender]]                   # who may decide by version 2 of the protocol
//! id = 1
//! keys = { 1 = "grantor.key" } # by number: files of 64 hexadecimal digits
//! prefixes = ["192.0.2.0/24"]  # destinations it may decide about; without it, all
//! max_expiry = 86400           # seconds; longer decisions are shortened
//! max_prefix_decisions = 16    # by prefix, in force at a time; more are refused
//!
//! [[program]]                  # what decisions may name: docs/guide/programs.md
//! number = 3
//! file = "web.o"
//!
//! [decisions]
//! sources = []                    # further addresses that senders speak from
//! v1_sources = ["10.9.1.1"]       # who may decide by version 1; without it, nobody
//! accept_programs = true   # senders may send programs, in the numbers that are free
//!
//! [tunnel]
//! clamp_mss = true             # hold TCP to what fits
//! udp_port = 6080              # in UDP to this port; without it, IP in IP
//! authentication = "on"        # or "off"; default: on for members with a sender
//! icmp_rate = 100                # ICMP errors a second, at the most
//!
//! [rules]
//! version = "2026-11-22"       # what this policy is called
//! candidate = "next.toml"      # a policy that decides of nothing: what it would do is counted
//!
//! [distribution]               # policies as signed bundles: distribution/config.rs
//! ```
//!
//! `[workers]`, `[punt]`, `[control]` and `[metrics]` are those of the router. The settings in
//! [`Fixed`] hold as long as the gate works; the rest can be read again (SIGHUP), and is
//! taken over whole or not at all. Grantor sets, policy, lists of sources, programs and rules can come
//! in a bundle's `gate.toml`, which then stand in the place of all of those in the file. A candidate
//! (`shadow.rs`) is a file of the same parts.
//!
//! Who is on both lists is allowed, however long the prefixes are. Lists may be long, hundreds of
//! thousands of lines: what sources are looked up in is made once, when they are read, and shared by
//! all policies that are made of them.

pub(crate) mod check;
mod text;

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use feed::netlink::AnyPrefix;
use fib::Choice;
use gate::decision::v2::keys::Keys;
use gate::gate::RuleId;
use gate::policy::sources::SourceLists;
use gate::policy::{Action, Address, Grantor, Policy, PolicyBuilder, PolicyError};
use gate::program::Programs;
use gate::tunnel::OVERHEAD;
use port::af_xdp::ModeChoice;
use port::af_xdp::steer::{Early, Source};
use wire::udp;

use crate::config::{self, ConfigError, Level, MAIN, Metrics, shape};
use crate::datapath::{PuntRates, SourceCheck};
use crate::distribution::{Bundle, DistributionConfig, read_bundle_in_force};
use crate::vantage::permits::Permit;

pub(crate) use check::check_bundle;

/// The port of a gate's worker that packets come in on.
pub const FRONT: usize = 0;
/// The port towards the grantors.
pub const BACK: usize = 1;
/// The most prefixes behind a gate that its steering program knows; those that are there take memory, and
/// no others.
const MOST_INSIDE: u32 = 1 << 20;

/// A configuration without contradictions.
#[derive(Clone, Debug)]
pub struct Config {
    /// The file it was read from.
    pub path: PathBuf,
    /// What holds as long as the gate works.
    pub fixed: Fixed,
    /// What becomes of packets, by destination.
    pub rules: Rules,
    /// Who may decide.
    pub trust: Trust,
    /// The flow programs that decisions may name.
    pub programs: Programs,
    /// The bundle that the rules and the programs are of, if they are.
    pub bundle: Option<Arc<Bundle>>,
}

/// A gate's file in a bundle.
pub(crate) const IN_BUNDLE: &str = "gate.toml";

/// What holds as long as the gate works.
#[derive(Clone, Debug, PartialEq)]
pub struct Fixed {
    /// The front interface.
    pub front: Side,
    /// The back interface.
    pub back: Side,
    /// Who brings packets to the worker whose flow they are of.
    pub steering: SteeredBy,
    /// Packets of the front interface that no worker takes are left to the kernel, which may
    /// forward them undecided; else they are dropped.
    pub fail_open: bool,
    /// Where tunnels over IPv4 begin, if it is said.
    pub address4: Option<u32>,
    /// Where tunnels over IPv6 begin, if it is said.
    pub address6: Option<u128>,
    /// The most bytes of a packet in a tunnel, outer header included.
    pub mtu: u16,
    /// The protected link, in bits a second.
    pub bits: u64,
    /// Places for requests that wait, for each worker.
    pub requests: usize,
    /// Places for granted packets that wait, for each worker.
    pub granted: usize,
    /// Flows that a worker remembers.
    pub entries: usize,
    /// Declined flows that are dropped before they reach a worker; 0: none.
    pub early: u32,
    /// Prefixes of blocked sources, of each family, that are; 0: none.
    pub early_prefixes: u32,
    /// From when on flows have to show themselves, and how many are remembered, if they have to.
    pub admission: Option<Admission>,
    /// Where flows are kept over a restart, if they are.
    pub keep: Option<PathBuf>,
    /// TCP is held to what fits.
    pub clamp_mss: bool,
    /// The UDP port that tunnels go to, if they have UDP.
    pub udp: Option<u16>,
    /// Tunnels to grantors whose secret is known are sealed.
    pub sealed: bool,
    /// ICMP errors a second at the most, of all workers.
    pub answers: u32,
    /// The core of each worker.
    pub cores: Vec<Option<usize>>,
    /// How long a worker may stall before it gets no more packets, if that is limited.
    pub stall: Option<Duration>,
    /// Where the control socket is.
    pub control: Option<PathBuf>,
    /// Where metrics are asked for.
    pub metrics: Option<Metrics>,
    /// The least severe lines that the log has.
    pub log: Option<Level>,
    /// How many packets a second the kernel is handed, by class.
    pub punts: PuntRates,
    /// How policies come as bundles, if they do.
    pub distribution: Option<DistributionConfig>,
}

/// From when on flows have to show themselves before they get an entry.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Admission {
    /// The share of the table, 0 to 1.
    pub threshold: f64,
    /// Flows that a worker remembers by their first packet.
    pub first_packet_entries: usize,
    /// Where TCP has to answer a cookie: SYNs that are answered in a second at the most, by all
    /// workers.
    pub syn_cookie_rate: Option<u32>,
}

/// Who brings packets to the worker whose flow they are of, where there are several.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SteeredBy {
    /// The workers, who hand each other what is not theirs: right on any interface.
    Software,
    /// The card, which was told to spread by source and destination address alone.
    Card,
}

/// An interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Side {
    /// Its name.
    pub name: String,
    /// Which ways of receiving may be used.
    pub mode: ModeChoice,
    /// Which sources its packets may have.
    pub sources: SourceCheck,
}

/// What becomes of packets, by destination.
#[derive(Clone, Debug, Default)]
pub struct Rules {
    /// What this policy is called.
    pub version: Option<String>,
    /// The grantor sets, by the numbers of [`Action::Grantors`].
    pub sets: Vec<Set>,
    /// The prefixes.
    pub rules: Vec<Rule>,
    /// Sources that pass before everything.
    pub allow: Arc<[AnyPrefix]>,
    /// Sources whose packets are dropped, but for those.
    pub block: Arc<[AnyPrefix]>,
    /// Both, as a gate looks them up.
    pub sources: Arc<SourceLists>,
    /// How many workers share the limits; 0 counts as one.
    pub workers: usize,
    /// The policy that is compared with this one, and decides of nothing.
    pub candidate: Option<Arc<Rules>>,
}

/// A grantor set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Set {
    /// Its name.
    pub name: String,
    /// Its grantors.
    pub members: Vec<Member>,
    /// How long one may say nothing before others get its flows, if that is looked at.
    pub hold_time: Option<Duration>,
}

/// A grantor of a set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Member {
    /// Where it is and what its share is.
    pub grantor: Grantor,
    /// The sender of decisions that it is, if that is said.
    pub sender: Option<u32>,
}

/// Grantors that are taken to be gone, by their set's name.
pub type Silent = BTreeSet<(String, Address)>;

/// What becomes of packets to a prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rule {
    /// The prefix.
    pub prefix: AnyPrefix,
    /// What becomes of them.
    pub action: Action,
    /// It is a hole in a protection, and meant.
    pub exempt: bool,
    /// The most that may go there, in bits a second.
    pub limit: Option<u64>,
    /// The most that may go to each destination within.
    pub per_destination_limit: Option<u64>,
    /// Where its packets are counted.
    pub counted: RuleId,
    /// Where it stands in the file.
    pub line: usize,
}

/// Who may decide.
#[derive(Clone, Debug, Default)]
pub struct Trust {
    /// The senders of version 2, with their keys.
    pub senders: Vec<(u32, Keys)>,
    /// The limits of each sender.
    pub permits: Vec<(u32, Permit)>,
    /// Where they speak from: the grantors of the policy, and whoever else is named.
    pub from: Vec<IpAddr>,
    /// Who may decide by version 1.
    pub v1_sources: Vec<IpAddr>,
    /// The sender at the end of each tunnel that is sealed.
    pub tunnels: Vec<(Address, u32)>,
    /// Senders may send flow programs, in the numbers that `[[program]]` leaves free.
    pub programs: bool,
}

impl Fixed {
    /// Returns the most bytes between an outer and an inner header.
    pub fn between(&self) -> u16 {
        match (self.sealed, self.udp) {
            (true, _) => udp::LEN as u16 + OVERHEAD as u16,
            (false, Some(_)) => udp::LEN as u16,
            (false, None) => 0,
        }
    }
}

impl Config {
    /// Reads a file, and the bundle in force if it names where those are kept. Names of key files
    /// in it are relative to where it is.
    ///
    /// # Errors
    ///
    /// [`ConfigError`], with everything that is wrong.
    pub fn load(path: impl AsRef<Path>) -> Result<Self, ConfigError> {
        let local = Self::local(path)?;
        let Some(settings) = &local.fixed.distribution else { return Ok(local) };
        match read_bundle_in_force(settings).map_err(|what| ConfigError::kept(&local.path, what))? {
            Some(bundle) => Self::load_over(&local.path, Some(&bundle)),
            None => Ok(local),
        }
    }

    /// Reads a file and no bundle.
    ///
    /// # Errors
    ///
    /// As [`load`](Self::load).
    pub fn local(path: impl AsRef<Path>) -> Result<Self, ConfigError> {
        Self::load_over(path.as_ref(), None)
    }

    /// Reads a file with a bundle over it.
    ///
    /// # Errors
    ///
    /// As [`load`](Self::load).
    pub fn load_over(path: &Path, bundle: Option<&Arc<Bundle>>) -> Result<Self, ConfigError> {
        let text = std::fs::read_to_string(path)
            .map_err(|source| ConfigError::Read { path: path.into(), source })?;
        Self::parse_over(&text, path, bundle)
    }

    /// Reads the text of a file whose name is `path`.
    ///
    /// # Errors
    ///
    /// As [`load`](Self::load).
    pub fn parse(text: &str, path: &Path) -> Result<Self, ConfigError> {
        Self::parse_over(text, path, None)
    }

    fn parse_over(
        text: &str,
        path: &Path,
        bundle: Option<&Arc<Bundle>>,
    ) -> Result<Self, ConfigError> {
        check::check(shape(text, path)?, text, path, bundle)
    }

    /// Returns the router that carries this gate.
    pub(crate) fn router(&self) -> config::Config {
        let interface = |side: &Side, early| config::Interface {
            name: side.name.clone(),
            mode: side.mode,
            queues: None,
            table: Some(MAIN),
            sources: side.sources,
            observe: false,
            guard: Some(early),
        };
        let Fixed { early, early_prefixes, fail_open, .. } = self.fixed;
        let front = Early {
            flows: early,
            prefixes: early_prefixes,
            inside: MOST_INSIDE,
            closed: !fail_open,
        };
        config::Config {
            path: self.path.clone(),
            interfaces: vec![
                interface(&self.fixed.front, front),
                interface(&self.fixed.back, Early::default()),
            ],
            next_hops: Vec::new(),
            files: Vec::new(),
            routes_v4: Vec::new(),
            routes_v6: Vec::new(),
            cores: self.fixed.cores.clone(),
            stall: self.fixed.stall,
            engine_v4: Choice::Auto,
            engine_v6: Choice::Auto,
            fpm: None,
            control: self.fixed.control.clone(),
            metrics: self.fixed.metrics.clone(),
            log: self.fixed.log,
            image: None,
            punts: self.fixed.punts,
        }
    }
}

impl Rules {
    /// Makes the policy, of this generation.
    ///
    /// # Errors
    ///
    /// [`PolicyError`].
    pub fn policy(&self, generation: u64) -> Result<Policy, PolicyError> {
        self.policy_without(generation, &Silent::new())
    }

    /// Makes the policy in which these grantors get no flows.
    ///
    /// # Errors
    ///
    /// [`PolicyError`].
    pub fn policy_without(&self, generation: u64, silent: &Silent) -> Result<Policy, PolicyError> {
        let mut draft = PolicyBuilder::new();
        for set in &self.sets {
            let each = set.members.iter().map(|&Member { grantor, .. }| {
                let gone = silent.contains(&(set.name.clone(), grantor.address));
                Grantor { weight: if gone { 0 } else { grantor.weight }, ..grantor }
            });
            draft.set(&each.collect::<Vec<_>>());
        }
        let share = |bits: Option<u64>| bits.map(|bits| (bits / self.workers.max(1) as u64).max(8));
        for rule in &self.rules {
            let &Rule { prefix, exempt, limit, per_destination_limit, .. } = rule;
            draft.set_rule(rule.counted);
            let action = match rule.own() {
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

    /// Returns the rule about a destination: the longest prefix.
    pub fn find(&self, address: IpAddr) -> Option<&Rule> {
        let length = |rule: &&Rule| length(rule.prefix, address);
        let matching = self.rules.iter().filter(|rule| length(rule).is_some());
        matching.max_by_key(length)
    }

    /// Returns whether a packet with these addresses on the front is forged: the source is behind
    /// the gate, or one of the two is a grantor.
    pub fn is_forged(&self, source: IpAddr, destination: IpAddr) -> bool {
        let of = |address| self.grantors().any(|grantor| ip(grantor) == address);
        let length = |rule: &&Rule| length(rule.prefix, source).filter(|_| rule.inside().is_some());
        let matching = self.rules.iter().filter(|rule| length(rule).is_some());
        of(source)
            || of(destination)
            || matching.max_by_key(length).is_some_and(|rule| rule.inside() == Some(true))
    }

    /// Returns the prefix by which a source passes, if it does: the longest.
    pub fn allowing(&self, address: IpAddr) -> Option<AnyPrefix> {
        longest(&self.allow, address)
    }

    /// Returns the prefix by which a source is blocked, if it is: the longest.
    pub fn blocking(&self, address: IpAddr) -> Option<AnyPrefix> {
        longest(&self.block, address).filter(|_| self.allowing(address).is_none())
    }

    /// Returns the set of a policy's number: those that prefixes have to themselves come after the others.
    pub fn set(&self, number: u16) -> Option<&Set> {
        let number = usize::from(number);
        let of_rule = || {
            let mut own = self.rules.iter().filter_map(Rule::own);
            self.sets.get(usize::from(own.nth(number - self.sets.len())?))
        };
        self.sets.get(number).or_else(of_rule)
    }

    /// Puts an action into words.
    pub fn words(&self, action: Action) -> String {
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

    /// Returns the prefixes that the rules state to be behind the gate, or not to be (`drops` false), and
    /// the ends of tunnels, which are behind it.
    pub(in crate::vantage) fn behind(&self) -> Vec<Source> {
        let rules = self.rules.iter().filter_map(|rule| {
            let (address, len) = match rule.prefix {
                AnyPrefix::V4(prefix) => (IpAddr::V4(prefix.addr().into()), prefix.len()),
                AnyPrefix::V6(prefix) => (IpAddr::V6(prefix.addr().into()), prefix.len()),
            };
            Some(Source { address, len: len as u8, drops: rule.inside()? })
        });
        let ends = self.grantors().map(|end| match end {
            Address::V4(end) => Source { address: IpAddr::V4(end.into()), len: 32, drops: true },
            Address::V6(end) => Source { address: IpAddr::V6(end.into()), len: 128, drops: true },
        });
        rules.chain(ends).collect()
    }

    /// Walks the addresses of all grantors.
    pub fn grantors(&self) -> impl Iterator<Item = Address> {
        self.sets.iter().flat_map(|set| set.members.iter().map(|member| member.grantor.address))
    }
}

impl Rule {
    /// Returns whether hosts of the prefix are behind the gate, where the rule states it.
    fn inside(&self) -> Option<bool> {
        match self.action {
            Action::Grantors(_) => Some(true),
            Action::Front => Some(false),
            _ => None,
        }
    }

    /// Returns the set whose grantors decide, if the policy has a copy of it for this rule alone.
    fn own(&self) -> Option<u16> {
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

/// Returns an address as the standard library has it.
pub(crate) fn ip(address: Address) -> IpAddr {
    match address {
        Address::V4(address) => IpAddr::V4(address.into()),
        Address::V6(address) => IpAddr::V6(address.into()),
    }
}

#[cfg(test)]
mod tests;
