//! The configuration of a grantor: one TOML file, read and checked as a whole.
//!
//! ```toml
//! interfaces = ["eth0", "eth1"]   # toward the gates and the servers; one may serve both
//!
//! [tunnel]
//! addresses = ["10.9.1.100"]      # ends of tunnels: routed to this host, but not an interface's address
//! gates = ["10.2.0.1"]            # sources of tunnels
//! udp_port = 6080                 # UDP to this port is accepted too; default: IP in IP only
//! interfaces = ["eth0"]           # where tunnels may arrive; default: the first interface
//! authentication = "on"           # or "off"; default: on with version 2 of the protocol
//!
//! [policy]                        # docs/guide/grantor.md
//! file = "policy.lua"
//! max_instructions = 100000       # of a call
//! max_memory_mib = 64
//! fallback = "decline 10"         # or "grant KIB SECONDS", or "nothing"
//! fragments = "decline 600"       # decided together; decision about flows with incomplete packets
//! candidate = "next.lua"          # a policy that is only evaluated
//! record_file = "requests.pcap"   # records requests, to test policies with
//! max_record_mib = 64
//!
//! [[list]]
//! name = "deny"
//! file = "deny.txt"
//!
//! [[program]]                     # sent to the gates, which verify it too
//! number = 3
//! file = "web.o"
//!
//! [decisions]
//! version = 2                     # 1 for gates of the published prototype
//! id = 1                          # this grantor's number
//! keys = { 1 = "grantor.key" }    # by number: files of 64 hexadecimal digits; the highest number signs
//! share_grants = false            # true: a flow's grant goes to all gates, so that it can move to another one
//! ```
//!
//! `[workers]`, `[punt]`, `[control]`, `[log]` and `[metrics]` are those of the router; `[distribution]` is
//! described in `crates/bundle/src/config.rs`. A reload (SIGHUP) reads the policy, the candidate, the lists
//! and the programs again, and applies them if all of them are valid. The settings in [`Fixed`], the
//! keys of `[decisions]` among them, cannot change: a reload that would change one is refused. A bundle's `grantor.toml` can replace the same parts:
//! `[policy]` with `file` and `candidate`, all `[[list]]` and all `[[program]]`.

mod check;
mod reload;
mod text;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use fib::Publisher;
use gate::decision::v2::transfer::ProgramImage;
use gate::grantor::{Limits, Lists, PolicyResult};
use gate::policy::Address;
use port::af_xdp::{ModeChoice, QueueSetup};
use wire::tunnel::GUE;

use self::check::{ON_OFF, check_ruled, protocol_version, ruling};
use self::text::{File, Ruled, RuledPolicy};
use super::decider::Policies;
use super::decision_sender::ProtocolVersion;
use super::recorder::CaptureSettings;
use bundle::{Bundle, DistributionConfig, FileSource, MemberConfig};
use config::{self, Checker, ConfigError, DaemonConfig, DaemonSections, MAIN, shape};
use datapath::{PuntRates, ReversePathFilter};

/// The default size of the capture of requests.
const RECORD_MIB: u64 = 64;

/// A configuration without contradictions.
#[derive(Clone, Debug)]
pub struct Config {
    /// The file it was read from.
    pub path: PathBuf,
    /// The settings that hold as long as the grantor runs.
    pub fixed: Fixed,
    /// The policy, and a candidate.
    pub policies: Policies,
    /// The lists.
    pub lists: Lists,
    /// The flow programs for the gates.
    pub programs: Vec<ProgramImage>,
    /// The bundle of the policies and the lists, if they come from one.
    pub bundle: Option<Arc<Bundle>>,
}

/// A grantor's file in a bundle.
pub const IN_BUNDLE: &str = "grantor.toml";

/// The settings that hold as long as the grantor runs.
#[derive(Clone, Debug, PartialEq)]
pub struct Fixed {
    /// The interfaces.
    pub interfaces: Vec<String>,
    /// The ends of tunnels.
    pub ends: Vec<Address>,
    /// The addresses of the gates, where tunnels begin.
    pub gates: Vec<Address>,
    /// The UDP port of tunnels over UDP, if accepted.
    pub port: Option<u16>,
    /// The interfaces that tunnels may arrive on.
    pub tunnels: Vec<String>,
    /// The packets of tunnels have to be sealed.
    pub sealed: bool,
    /// The limits of the policies.
    pub limits: Limits,
    /// Fragments are decided together, and this is the decision about a flow with an incomplete packet.
    pub fragments: Option<PolicyResult>,
    /// The capture of requests, if configured.
    pub record: Option<CaptureSettings>,
    /// The version of the decision protocol, with this grantor's number and keys.
    pub protocol: ProtocolVersion,
    /// Grants, and what ends them, go to all gates.
    pub share_grants: bool,
    /// The settings that all daemons have.
    pub daemon: DaemonConfig,
    /// The settings of the distribution of bundles, if configured.
    pub distribution: Option<DistributionConfig>,
}

impl Fixed {
    /// Returns the UDP port at which tunnel packets are accepted: sealed ones always use UDP.
    pub fn udp_port(&self) -> Option<u16> {
        self.port.or(self.sealed.then_some(GUE))
    }

    /// Returns the indexes of the ports on which tunnels may arrive.
    pub(super) fn tunnel_ports(&self) -> Vec<usize> {
        let each = self.interfaces.iter().enumerate();
        each.filter(|(_, name)| self.tunnels.contains(name)).map(|(at, _)| at).collect()
    }
}

impl MemberConfig for Config {
    fn parse_over(
        text: &str,
        path: &Path,
        bundle: Option<&Arc<Bundle>>,
    ) -> Result<Self, ConfigError> {
        Self::check(shape(text, path)?, text, path, bundle)
    }

    fn distribution(&self) -> Option<&DistributionConfig> {
        self.fixed.distribution.as_ref()
    }
}

impl Config {
    /// Loads the policies as the deciders do, and runs them on generated packets
    /// ([`gate::grantor::dry_run`]).
    ///
    /// # Errors
    ///
    /// The first problem, as one line.
    pub fn try_policies(&self) -> Result<(), String> {
        try_policies(&self.policies, &self.lists, self.fixed.limits)
            .map_err(|(which, error)| format!("the {which}: {error}"))
    }

    fn check(
        file: File,
        text: &str,
        path: &Path,
        bundle: Option<&Arc<Bundle>>,
    ) -> Result<Self, ConfigError> {
        let mut c = Checker::new(text);
        let folder = path.parent().unwrap_or(Path::new(""));
        let names = file.interfaces.get_ref();
        let has_duplicate = names.iter().enumerate().any(|(at, name)| names[..at].contains(name));
        if names.is_empty()
            || has_duplicate
            || names.iter().any(|name| name.is_empty() || name.len() > 15)
        {
            let what = "name at least one interface, each once, with 1 to 15 bytes";
            c.problem(&file.interfaces, "interfaces", what);
        }
        let mut addresses = |listed: &[_], key| -> Vec<Address> {
            c.addresses(listed, key).into_iter().map(Address::from).collect()
        };
        let ends = addresses(&file.tunnel.addresses, "tunnel.addresses");
        let gates = addresses(&file.tunnel.gates, "tunnel.gates");
        let port = c.tunnel_port(file.tunnel.udp_port);
        let tunnels = match file.tunnel.interfaces {
            None => names.first().into_iter().cloned().collect(),
            Some(listed) => {
                if listed.get_ref().is_empty() {
                    c.problem(
                        &listed,
                        "tunnel.interfaces",
                        "the list is empty: all tunnel packets would be dropped; name an interface",
                    );
                }
                let unknown = listed.get_ref().iter().find(|name| !names.contains(name));
                if let Some(unknown) = unknown {
                    let what = format!("{unknown:?} is not in `interfaces`: add it there");
                    c.problem(&listed, "tunnel.interfaces", what);
                }
                listed.into_inner()
            }
        };
        let version = *file.decisions.version.get_ref();
        let authentication = file.tunnel.authentication.as_ref();
        let stated = c.choice(authentication, "tunnel.authentication", &ON_OFF);
        if let Some(at) = authentication.filter(|_| version == 1 && stated == Some(true)) {
            let what = "version 1 of the protocol has no keys: use version 2, or \"off\"";
            c.problem(at, "tunnel.authentication", what);
        }
        let sealed = stated.unwrap_or(version == 2);
        let mib = file.policy.max_record_mib;
        let mib = c.number(mib, "policy.max_record_mib", RECORD_MIB, (1, 1 << 20));
        let max_bytes = mib << 20;
        let record = file
            .policy
            .record_file
            .map(|path| CaptureSettings { path: folder.join(path), max_bytes });
        let mut limits = Limits::default();
        if let Some(instructions) = file.policy.max_instructions {
            limits.instructions = instructions;
        }
        let mib = file.policy.max_memory_mib;
        let mib = c.number(mib, "policy.max_memory_mib", limits.memory >> 20, (1, 65_536));
        limits.memory = mib << 20;
        if let Some(ruling) = ruling(&mut c, file.policy.fallback.as_ref(), "policy.fallback") {
            limits.fallback = ruling;
        }
        let fragments = ruling(&mut c, file.policy.fragments.as_ref(), "policy.fragments");
        let protocol = protocol_version(&mut c, &file.decisions, folder);
        let share_grants = file.decisions.share_grants;
        if share_grants && version == 1 {
            let what =
                "version 1 of the protocol cannot retract a grant from other gates: use version 2";
            c.problem(&file.decisions.version, "decisions.share_grants", what);
        }
        let sections = DaemonSections {
            workers: file.workers,
            control: file.control,
            metrics: file.metrics,
            log: file.log,
            punt: file.punt,
        };
        let daemon = sections.check(&mut c, PuntRates::ROUTER);
        let distribution = file.distribution;
        let distribution =
            distribution.map(|section| DistributionConfig::check(section, folder, &mut c));
        let (policies, lists, programs) = match bundle {
            None => {
                let policy =
                    RuledPolicy { file: file.policy.file, candidate: file.policy.candidate };
                let ruled = Ruled { policy, list: file.list, program: file.program };
                let checked = check_ruled(&mut c, &ruled, version, FileSource::Disk(folder));
                c.finish(path)?;
                checked
            }
            Some(bundle) => {
                c.finish(path)?;
                policies_of_bundle(bundle, version)?
            }
        };
        let fixed = Fixed {
            interfaces: file.interfaces.into_inner(),
            ends,
            gates,
            port,
            tunnels,
            sealed,
            limits,
            fragments,
            record,
            protocol,
            share_grants,
            daemon,
            distribution,
        };
        let bundle = bundle.cloned();
        Ok(Self { path: path.into(), fixed, policies, lists, programs, bundle })
    }

    /// Returns the configuration of the grantor's router.
    pub(crate) fn router(&self) -> config::Config {
        let interface = |name: &String| config::Interface {
            name: name.clone(),
            mode: ModeChoice::Auto,
            table: Some(MAIN),
            sources: Some(ReversePathFilter::Off),
            observe: false,
            follows_kernel: false,
            guard: None,
            queues: None,
            queue_setup: QueueSetup::default(),
        };
        let interfaces = self.fixed.interfaces.iter().map(interface).collect();
        config::Config::of_role(&self.path, interfaces, self.fixed.daemon.clone())
    }
}

/// Reads a bundle's file for grantors with this version of the protocol.
fn policies_of_bundle(
    bundle: &Bundle,
    version: u8,
) -> Result<(Policies, Lists, Vec<ProgramImage>), ConfigError> {
    let (text, path) = bundle::role_file(bundle, IN_BUNDLE)?;
    let mut c = Checker::new(text);
    let ruled = check_ruled(&mut c, &shape(text, &path)?, version, FileSource::Bundle(bundle));
    c.finish(&path)?;
    Ok(ruled)
}

/// Loads policies; returns which one has an error, and the error.
fn try_policies(
    policies: &Policies,
    lists: &Lists,
    limits: Limits,
) -> Result<(), (&'static str, String)> {
    let lists = Publisher::new(lists.clone());
    let candidate = policies.candidate.as_ref();
    for (which, text) in [("policy", Some(&policies.policy)), ("candidate", candidate)] {
        if let Some(text) = text {
            let result = gate::grantor::dry_run(text, lists.reader(), limits);
            result.map_err(|error| (which, error.to_string()))?;
        }
    }
    Ok(())
}

/// Checks a bundle's file for grantors without a grantor: with the default limits.
pub fn check_bundle(bundle: &Bundle) -> Result<(), ConfigError> {
    let (policies, lists, _) = policies_of_bundle(bundle, 2)?;
    let (text, path) = bundle::role_file(bundle, IN_BUNDLE)?;
    let ruled: Ruled = shape(text, &path)?;
    let mut c = Checker::new(text);
    if let Err((which, error)) = try_policies(&policies, &lists, Limits::default()) {
        match ruled.policy.candidate.as_ref().filter(|_| which == "candidate") {
            Some(candidate) => c.problem(candidate, "policy.candidate", error),
            None => c.problem(&ruled.policy.file, "policy.file", error),
        }
    }
    c.finish(&path)
}

#[cfg(test)]
mod tests;
