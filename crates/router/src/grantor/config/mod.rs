//! The configuration of a grantor: one TOML file, read whole, judged whole.
//!
//! ```toml
//! interfaces = ["eth0", "eth1"]   # towards the gates and towards the servers; one will do
//!
//! [tunnel]
//! addresses = ["10.9.1.100"]      # where tunnels end: routed here, and no interface's own
//! gates = ["10.2.0.1"]            # where they may begin
//! udp_port = 6080                 # with UDP to this port too; without it, IP in IP only
//! interfaces = ["eth0"]           # where they may come in; without it, by the first interface only
//! authentication = "on"           # or "off"; on where decisions are of version 2
//!
//! [policy]                        # docs/guide/grantor.md
//! file = "policy.lua"
//! max_instructions = 100000           # a call may take so many
//! max_memory_mib = 64
//! fallback = "decline 10"         # or "grant KIB SECONDS", or "nothing"
//! fragments = "decline 600"       # judged together; what becomes of who sends no whole packets
//! candidate = "next.lua"          # asked beside it, heard by nobody
//! record_file = "requests.pcap"        # what asks, to try policies on
//! max_record_mib = 64
//!
//! [[list]]
//! name = "deny"
//! file = "deny.txt"
//!
//! [[program]]                     # sent to the gates, which verify it themselves
//! number = 3
//! file = "web.o"
//!
//! [decisions]
//! version = 2                     # 1 for the published gates
//! id = 1                          # this grantor's number
//! keys = { 1 = "grantor.key" }    # by number: files of 64 hexadecimal digits; the highest signs
//! ```
//!
//! `[workers]`, `[punt]`, `[control]` and `[metrics]` are those of the router, `[distribution]` is
//! described in `distribution/config.rs`. The policy, the candidate, the lists and the programs are
//! read again with
//! SIGHUP, and taken over if all of them are sound; the keys stay those of the start, and what
//! stands in [`Fixed`] cannot change. The same can come in a bundle's `grantor.toml`, `[policy]` with
//! `file` and `candidate`, all `[[list]]` and all `[[program]]`, in the place of those in the file.

mod check;
mod text;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use fib::{Choice, Publisher};
use gate::decision::v2::transfer::ProgramImage;
use gate::grantor::{Limits, Lists, PolicyResult};
use gate::policy::Address;
use port::af_xdp::ModeChoice;
use toml::Spanned;
use wire::tunnel::GUE;

use self::check::Checker;
use self::text::{File, Ruled, RuledPolicy};
use super::decide::Policies;
use super::post::Voice;
use super::record::Record;
use crate::config::{self, CONTROL, ConfigError, Level, MAIN, Metrics, Problem, place, shape};
use crate::datapath::{PuntRates, SourceCheck};
use crate::distribution::{self, Bundle, DistributionConfig, FileSource, read_bundle_in_force};

/// Room for recorded requests where nothing is said.
const RECORD_MIB: u64 = 64;

/// A configuration without contradictions.
#[derive(Clone, Debug)]
pub struct Config {
    /// The file it was read from.
    pub path: PathBuf,
    /// What holds as long as the grantor works.
    pub fixed: Fixed,
    /// The policy, and a candidate.
    pub policies: Policies,
    /// The lists.
    pub lists: Lists,
    /// How decisions are spoken.
    pub voice: Voice,
    /// The flow programs that gates are to have.
    pub programs: Vec<ProgramImage>,
    /// The bundle that the policies and the lists are of, if they are.
    pub bundle: Option<Arc<Bundle>>,
}

/// A grantor's file in a bundle.
pub(crate) const IN_BUNDLE: &str = "grantor.toml";

/// What holds as long as the grantor works.
#[derive(Clone, Debug, PartialEq)]
pub struct Fixed {
    /// The interfaces.
    pub interfaces: Vec<String>,
    /// Where tunnels end.
    pub ends: Vec<Address>,
    /// Where they may begin.
    pub gates: Vec<Address>,
    /// The UDP port at which their packets come, those that come in UDP.
    pub port: Option<u16>,
    /// The interfaces that tunnels may arrive on.
    pub tunnels: Vec<String>,
    /// They have to prove that a gate has sent them.
    pub sealed: bool,
    /// What the policies are held to.
    pub limits: Limits,
    /// Fragments are judged as the packets they are of, and this becomes of who leaves one
    /// incomplete.
    pub fragments: Option<PolicyResult>,
    /// Where requests are recorded, if they are.
    pub record: Option<Record>,
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
    /// The most punts a second, by class.
    pub punts: PuntRates,
    /// How policies come as bundles, if they do.
    pub distribution: Option<DistributionConfig>,
}

impl Fixed {
    /// Returns the UDP port at which packets of tunnels are taken: sealed ones always have one.
    pub fn udp_port(&self) -> Option<u16> {
        self.port.or(self.sealed.then_some(GUE))
    }

    /// Returns the numbers of the ports that tunnels may arrive on.
    pub(super) fn tunnel_ports(&self) -> Vec<usize> {
        let each = self.interfaces.iter().enumerate();
        each.filter(|(_, name)| self.tunnels.contains(name)).map(|(at, _)| at).collect()
    }
}

impl Config {
    /// Reads a file, and the bundle in force if it names where those are kept. Names of files in it
    /// are relative to where it is.
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
        Self::check(shape(&text, path)?, &text, path, bundle)
    }

    /// Loads the policies, as the policies' threads will, and runs them on made-up packets
    /// ([`gate::grantor::dry_run`]).
    ///
    /// # Errors
    ///
    /// What is wrong with one, as one line.
    pub fn try_policies(&self) -> Result<(), String> {
        try_policies(&self.policies, &self.lists, self.fixed.limits)
            .map_err(|(which, bad)| format!("the {which}: {bad}"))
    }

    fn check(
        file: File,
        text: &str,
        path: &Path,
        bundle: Option<&Arc<Bundle>>,
    ) -> Result<Self, ConfigError> {
        let mut c = Checker { text, problems: Vec::new() };
        let beside = path.parent().unwrap_or(Path::new(""));
        let names = file.interfaces.get_ref();
        let twice = names.iter().enumerate().any(|(at, name)| names[..at].contains(name));
        if names.is_empty() || twice || names.iter().any(|name| name.is_empty() || name.len() > 15)
        {
            let what = "one or several interfaces, each once, of 1 to 15 bytes";
            c.problem(&file.interfaces, "interfaces", what);
        }
        let ends = c.addresses(&file.tunnel.addresses, "tunnel.addresses");
        let gates = c.addresses(&file.tunnel.gates, "tunnel.gates");
        let port = file.tunnel.udp_port;
        if let Some(port) = port.as_ref().filter(|port| *port.get_ref() == 0) {
            c.problem(port, "tunnel.udp_port", "0 is no port; GUE has 6080");
        }
        let tunnels = match file.tunnel.interfaces {
            None => names.first().into_iter().cloned().collect(),
            Some(listed) => {
                if listed.get_ref().is_empty() {
                    c.problem(
                        &listed,
                        "tunnel.interfaces",
                        "empty: all tunnel packets would be dropped",
                    );
                }
                let strange = listed.get_ref().iter().find(|name| !names.contains(name));
                if let Some(strange) = strange {
                    let what = format!("{strange:?} is none of `interfaces`");
                    c.problem(&listed, "tunnel.interfaces", what);
                }
                listed.into_inner()
            }
        };
        let version = *file.decisions.version.get_ref();
        let sealed = match file.tunnel.authentication.as_ref().map(|at| (at, at.get_ref().as_str()))
        {
            None => version == 2,
            Some((_, "off")) => false,
            Some((at, "on")) => {
                if version == 1 {
                    let what = "version 1 of the protocol has no keys to prove anything with";
                    c.problem(at, "tunnel.authentication", what);
                }
                true
            }
            Some((at, other)) => {
                let what = format!("{other:?} is neither on nor off");
                c.problem(at, "tunnel.authentication", what);
                true
            }
        };
        let mib = file.policy.max_record_mib;
        if let Some(mib) = &mib
            && !(1..=1 << 20).contains(mib.get_ref())
        {
            c.problem(mib, "policy.max_record_mib", "out of range: from 1 to 1048576");
        }
        let most = mib.map_or(RECORD_MIB, Spanned::into_inner).saturating_mul(1 << 20);
        let record = file.policy.record_file.map(|path| Record { path: beside.join(path), most });
        let mut limits = Limits::default();
        if let Some(instructions) = file.policy.max_instructions {
            limits.instructions = instructions;
        }
        if let Some(mib) = &file.policy.max_memory_mib {
            if !(1..=65_536).contains(mib.get_ref()) {
                c.problem(mib, "policy.max_memory_mib", "out of range: from 1 to 65536");
            }
            limits.memory = mib.get_ref().saturating_mul(1 << 20);
        }
        if let Some(ruling) = c.ruling(file.policy.fallback.as_ref(), "policy.fallback") {
            limits.fallback = ruling;
        }
        let fragments = c.ruling(file.policy.fragments.as_ref(), "policy.fragments");
        let voice = c.voice(&file.decisions, beside);
        let metrics = Metrics::check(file.metrics, &mut |at, key, what| {
            c.problems.push(Problem { line: place(text, at).0, key, what });
        });
        let log = Level::check(file.log, &mut |at, key, what| {
            c.problems.push(Problem { line: place(text, at).0, key, what });
        });
        let distribution = file.distribution.map(|said| {
            DistributionConfig::check(said, beside, &mut |at, key, what| {
                let line = place(text, at).0;
                c.problems.push(Problem { line, key, what });
            })
        });
        let (policies, lists, programs) = match bundle {
            None => {
                let policy =
                    RuledPolicy { file: file.policy.file, candidate: file.policy.candidate };
                let ruled = Ruled { policy, list: file.list, program: file.program };
                let made = c.ruled(&ruled, version, FileSource::Disk(beside));
                c.end(path)?;
                made
            }
            Some(bundle) => {
                c.end(path)?;
                of_bundle(bundle, version)?
            }
        };
        let socket = file.control.socket.unwrap_or_else(|| CONTROL.into());
        let cores = file.workers.cores.filter(|cores| !cores.is_empty());
        let fixed = Fixed {
            interfaces: file.interfaces.into_inner(),
            ends,
            gates,
            port: port.map(Spanned::into_inner),
            tunnels,
            sealed,
            limits,
            fragments,
            record,
            stall: config::stall(file.workers.stall_timeout),
            cores: cores.map_or(vec![None], |cores| cores.into_iter().map(Some).collect()),
            control: (!socket.as_os_str().is_empty()).then_some(socket),
            metrics,
            log,
            punts: file.punt.rates(PuntRates::ROUTER),
            distribution,
        };
        let bundle = bundle.cloned();
        Ok(Self { path: path.into(), fixed, policies, lists, voice, programs, bundle })
    }

    /// Returns the router that carries this grantor.
    pub(crate) fn router(&self) -> config::Config {
        let interface = |name: &String| config::Interface {
            name: name.clone(),
            mode: ModeChoice::Auto,
            table: Some(MAIN),
            sources: SourceCheck::Off,
            observe: false,
            guard: None,
            queues: None,
        };
        config::Config {
            path: self.path.clone(),
            interfaces: self.fixed.interfaces.iter().map(interface).collect(),
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

/// Reads what a bundle has for grantors that speak a version of the protocol.
fn of_bundle(
    bundle: &Bundle,
    version: u8,
) -> Result<(Policies, Lists, Vec<ProgramImage>), ConfigError> {
    let (text, path) = distribution::role_file(bundle, IN_BUNDLE)?;
    let mut c = Checker { text, problems: Vec::new() };
    let ruled = c.ruled(&shape(text, &path)?, version, FileSource::Bundle(bundle));
    c.end(&path)?;
    Ok(ruled)
}

/// Loads policies; says which is not sound, and why.
fn try_policies(
    policies: &Policies,
    lists: &Lists,
    limits: Limits,
) -> Result<(), (&'static str, String)> {
    let lists = Publisher::new(lists.clone());
    let shadow = policies.shadow.as_ref();
    for (which, text) in [("policy", Some(&policies.policy)), ("candidate", shadow)] {
        if let Some(text) = text {
            let made = gate::grantor::dry_run(text, lists.reader(), limits);
            made.map_err(|bad| (which, bad.to_string()))?;
        }
    }
    Ok(())
}

/// Judges what a bundle has for grantors as far as that can be done without one: by the limits that
/// there are where nothing is said.
pub(crate) fn check_bundle(bundle: &Bundle) -> Result<(), ConfigError> {
    let (policies, lists, _) = of_bundle(bundle, 2)?;
    let (text, path) = distribution::role_file(bundle, IN_BUNDLE)?;
    let ruled: Ruled = shape(text, &path)?;
    let mut c = Checker { text, problems: Vec::new() };
    if let Err((which, bad)) = try_policies(&policies, &lists, Limits::default()) {
        match ruled.policy.candidate.as_ref().filter(|_| which == "candidate") {
            Some(candidate) => c.problem(candidate, "policy.candidate", bad),
            None => c.problem(&ruled.policy.file, "policy.file", bad),
        }
    }
    c.end(&path)
}

#[cfg(test)]
mod tests;
