//! The configuration of a grantor: one TOML file, read whole, judged whole.
//!
//! ```toml
//! interfaces = ["eth0", "eth1"]   # towards the gates and towards the servers; one will do
//!
//! [tunnel]
//! addresses = ["10.9.1.100"]      # where tunnels end: routed here, and no interface's own
//! gates = ["10.2.0.1"]            # where they may begin
//! udp_port = 6080                 # with UDP to this port too; without it, IP in IP only
//!
//! [policy]                        # docs/guide/grantor.md
//! file = "policy.lua"
//! instructions = 100000           # a call may take so many
//! memory_mib = 64
//! fallback = "decline 10"         # or "grant KIB SECONDS", or "nothing"
//! fragments = "decline 600"       # judged together; what becomes of who sends no whole packets
//! candidate = "next.lua"          # asked beside it, heard by nobody
//! record = "requests.pcap"        # what asks, to try policies on
//! record_mib = 64
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
//! `[workers]`, `[control]` and `[metrics]` are those of the router, `[distribution]` is told of in
//! `distribution/config.rs`. The policy, the candidate, the lists and the programs are read again with
//! SIGHUP, and taken over if all of them are sound; the keys stay those of the start, and what
//! stands in [`Fixed`] cannot change. The same can come in a bundle's `grantor.toml`, `[policy]` with
//! `file` and `candidate`, all `[[list]]` and all `[[program]]`, in the place of those in the file.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use fib::{Choice, Publisher};
use gate::decision::Say;
use gate::decision::v2::courier::Parcel;
use gate::decision::v2::keys::Keys;
use gate::decision::v2::piece::MOST_OBJECT;
use gate::grantor::{Limits, List, Lists, Ruling};
use gate::policy::Address;
use gate::program::Program;
use gate::state::{Decision, Grant};
use port::af_xdp::ModeChoice;
use serde::Deserialize;
use toml::Spanned;

use super::decide::Policies;
use super::post::Voice;
use super::record::Record;
use crate::config::{self, CONTROL, ConfigError, MAIN, Problem, place, shape};
use crate::datapath::SourceCheck;
use crate::distribution::{self, Bundle, Folder, Settings, in_force};
use crate::vantage::config::check::secret;

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
    pub programs: Vec<Parcel>,
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
    /// What the policies are held to.
    pub limits: Limits,
    /// Fragments are judged as the packets they are of, and this becomes of who leaves one
    /// incomplete.
    pub fragments: Option<Ruling>,
    /// Where requests are recorded, if they are.
    pub record: Option<Record>,
    /// The core of each worker.
    pub cores: Vec<Option<usize>>,
    /// Where the control socket is.
    pub control: Option<PathBuf>,
    /// Where metrics are asked for.
    pub metrics: Option<SocketAddr>,
    /// How policies come as bundles, if they do.
    pub distribution: Option<Settings>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    interfaces: Spanned<Vec<String>>,
    tunnel: Tunnel,
    policy: Policy,
    #[serde(default)]
    list: Vec<Listed>,
    #[serde(default)]
    program: Vec<Sent>,
    decisions: Decisions,
    #[serde(default)]
    workers: Workers,
    #[serde(default)]
    control: Control,
    #[serde(default)]
    metrics: Metrics,
    distribution: Option<distribution::config::Text>,
}

/// What may come in a bundle in the place of what the file has.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Ruled {
    policy: RuledPolicy,
    #[serde(default)]
    list: Vec<Listed>,
    #[serde(default)]
    program: Vec<Sent>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RuledPolicy {
    file: Spanned<PathBuf>,
    candidate: Option<Spanned<PathBuf>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Tunnel {
    addresses: Vec<Spanned<String>>,
    gates: Vec<Spanned<String>>,
    udp_port: Option<Spanned<u16>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Policy {
    file: Spanned<PathBuf>,
    instructions: Option<u64>,
    memory_mib: Option<Spanned<usize>>,
    fallback: Option<Spanned<String>>,
    fragments: Option<Spanned<String>>,
    candidate: Option<Spanned<PathBuf>>,
    record: Option<PathBuf>,
    record_mib: Option<Spanned<u64>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Listed {
    name: Spanned<String>,
    file: Spanned<PathBuf>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Sent {
    number: Spanned<u8>,
    file: Spanned<PathBuf>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Decisions {
    version: Spanned<u8>,
    #[serde(default)]
    id: u32,
    #[serde(default)]
    keys: BTreeMap<String, Spanned<PathBuf>>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Workers {
    cores: Option<Vec<usize>>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Control {
    socket: Option<PathBuf>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Metrics {
    listen: Option<Spanned<String>>,
}

/// Reads a ruling in words.
fn ruling(text: &str) -> Option<Ruling> {
    let words: Vec<&str> = text.split_whitespace().collect();
    match words[..] {
        ["nothing"] => Some(Ruling::NOTHING),
        ["decline", seconds] => {
            let expire_s = seconds.parse().ok()?;
            let say = Some(Say::Decide(Decision::Decline { expire_s }));
            Some(Ruling { say, deliver: false })
        }
        ["grant", rate, seconds] => {
            let (rate_kib, expire_s): (u32, u32) = (rate.parse().ok()?, seconds.parse().ok()?);
            let next_renewal_ms = expire_s.saturating_mul(800);
            let grant = Grant { rate_kib, expire_s, next_renewal_ms, renewal_step_ms: 3_000 };
            Some(Ruling { say: Some(Say::Decide(Decision::Grant(grant))), deliver: true })
        }
        _ => None,
    }
}

struct Checker<'t> {
    text: &'t str,
    problems: Vec<Problem>,
}

impl Checker<'_> {
    fn problem<T>(&mut self, at: &Spanned<T>, key: &'static str, what: impl Into<String>) {
        let line = place(self.text, at.span().start).0;
        self.problems.push(Problem { line, key, what: what.into() });
    }

    fn addresses(&mut self, listed: &[Spanned<String>], key: &'static str) -> Vec<Address> {
        let mut read = Vec::new();
        for at in listed {
            match at.get_ref().parse() {
                Ok(IpAddr::V4(address)) => read.push(Address::V4(address.into())),
                Ok(IpAddr::V6(address)) => read.push(Address::V6(address.into())),
                Err(_) => {
                    self.problem(at, key, format!("{:?} is not an IP address", at.get_ref()));
                }
            }
        }
        read
    }

    /// Reads a ruling in words, if there is one.
    fn ruling(&mut self, said: Option<&Spanned<String>>, key: &'static str) -> Option<Ruling> {
        let said = said?;
        let ruling = ruling(said.get_ref());
        if ruling.is_none() {
            let what = "neither \"decline SECONDS\", \"grant KIB SECONDS\" nor \"nothing\"";
            self.problem(said, key, what);
        }
        ruling
    }

    /// Reads the text of a policy.
    fn script(&mut self, file: &Spanned<PathBuf>, key: &'static str, folder: Folder<'_>) -> String {
        let text = folder.text(file.get_ref());
        text.unwrap_or_else(|error| {
            self.problem(file, key, format!("{}: {error}", file.get_ref().display()));
            String::new()
        })
    }

    /// Reads the flow programs, and has the verifier look at them as gates will.
    fn programs(&mut self, listed: &[Sent], version: u8, folder: Folder<'_>) -> Vec<Parcel> {
        let mut parcels: Vec<Parcel> = Vec::new();
        for Sent { number, file } in listed {
            if parcels.iter().any(|it| it.number() == *number.get_ref()) {
                let what = format!("{} is there twice", number.get_ref());
                self.problem(number, "program.number", what);
            }
            if version == 1 {
                let what = "programs are sent by version 2 of the protocol only";
                self.problem(file, "program.file", what);
            }
            let (name, shown) = (file.get_ref(), file.get_ref().display());
            let read = folder.read(name).map_err(|error| error.to_string());
            let object = read.and_then(|object| match Program::load(&object) {
                Ok(_) if object.len() > MOST_OBJECT => Err(format!(
                    "{} bytes, where {MOST_OBJECT} are sent at the most: strip it (llvm-strip -g)",
                    object.len()
                )),
                Ok(_) => Ok(object),
                Err(refusal) => Err(refusal.to_string()),
            });
            match object {
                Ok(object) => {
                    let name = name.file_stem().unwrap_or_default().to_string_lossy();
                    parcels.push(Parcel::new(*number.get_ref(), &name, &object));
                }
                Err(what) => self.problem(file, "program.file", format!("{shown}: {what}")),
            }
        }
        parcels
    }

    /// Reads what may come in a bundle, whether it does or not.
    fn ruled(
        &mut self,
        said: &Ruled,
        version: u8,
        folder: Folder<'_>,
    ) -> (Policies, Lists, Vec<Parcel>) {
        let candidate = said.policy.candidate.as_ref();
        let policies = Policies {
            policy: self.script(&said.policy.file, "policy.file", folder),
            shadow: candidate.map(|at| self.script(at, "policy.candidate", folder)),
        };
        let mut lists = Lists::new();
        for Listed { name, file } in &said.list {
            let list = folder.text(file.get_ref()).map_err(|error| error.to_string());
            match list.and_then(|text| List::parse(&text).map_err(|bad| bad.to_string())) {
                Ok(list) => {
                    if lists.insert(name.get_ref().clone(), Arc::new(list)).is_some() {
                        let what = format!("{:?} is there twice", name.get_ref());
                        self.problem(name, "list.name", what);
                    }
                }
                Err(what) => {
                    let what = format!("{}: {what}", file.get_ref().display());
                    self.problem(file, "list.file", what);
                }
            }
        }
        let programs = self.programs(&said.program, version, folder);
        (policies, lists, programs)
    }

    /// Ends with an error, if there is a problem.
    fn end(&mut self, path: &Path) -> Result<(), ConfigError> {
        if self.problems.is_empty() {
            return Ok(());
        }
        let mut problems = std::mem::take(&mut self.problems);
        problems.sort_by_key(|problem| problem.line);
        Err(ConfigError::Sense { path: path.into(), problems })
    }

    fn voice(&mut self, said: &Decisions, beside: &Path) -> Voice {
        match said.version.get_ref() {
            1 => return Voice::V1,
            2 => {}
            other => {
                let what = format!("{other} is no version: 1 or 2");
                self.problem(&said.version, "decisions.version", what);
            }
        }
        if said.id == 0 || said.keys.is_empty() {
            let what = "version 2 needs an `id` that is not 0, and `keys`";
            self.problem(&said.version, "decisions", what);
        }
        let (mut keys, mut highest) = (Keys::default(), 0);
        for (name, file) in &said.keys {
            let number = name.parse::<u16>();
            match (number, secret(&beside.join(file.get_ref()))) {
                (Ok(number), Ok(secret)) => {
                    keys.add(number, &secret);
                    highest = highest.max(number);
                    keys.sign_with(highest);
                }
                (Err(_), _) => {
                    let what = format!("{name:?} is no number up to 65535");
                    self.problem(file, "decisions.keys", what);
                }
                (_, Err(what)) => self.problem(file, "decisions.keys", what),
            }
        }
        Voice::V2(said.id, keys)
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
        match in_force(settings).map_err(|what| ConfigError::kept(&local.path, what))? {
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

    /// Loads the policies, as the threads that are asked will.
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
        let mib = file.policy.record_mib;
        if let Some(mib) = &mib
            && !(1..=1 << 20).contains(mib.get_ref())
        {
            c.problem(mib, "policy.record_mib", "not within 1 and 1048576");
        }
        let most = mib.map_or(RECORD_MIB, Spanned::into_inner).saturating_mul(1 << 20);
        let record = file.policy.record.map(|path| Record { path: beside.join(path), most });
        let mut limits = Limits::default();
        if let Some(instructions) = file.policy.instructions {
            limits.instructions = instructions;
        }
        if let Some(mib) = &file.policy.memory_mib {
            if !(1..=65_536).contains(mib.get_ref()) {
                c.problem(mib, "policy.memory_mib", "not within 1 and 65536");
            }
            limits.memory = mib.get_ref().saturating_mul(1 << 20);
        }
        if let Some(ruling) = c.ruling(file.policy.fallback.as_ref(), "policy.fallback") {
            limits.fallback = ruling;
        }
        let fragments = c.ruling(file.policy.fragments.as_ref(), "policy.fragments");
        let voice = c.voice(&file.decisions, beside);
        let version = *file.decisions.version.get_ref();
        let metrics = file.metrics.listen.and_then(|at| {
            let read = at.get_ref().parse().ok();
            if read.is_none() {
                c.problem(&at, "metrics.listen", "not an address and port");
            }
            read
        });
        let distribution = file.distribution.map(|said| {
            Settings::check(said, beside, &mut |at, key, what| {
                let line = place(text, at).0;
                c.problems.push(Problem { line, key, what });
            })
        });
        let (policies, lists, programs) = match bundle {
            None => {
                let policy =
                    RuledPolicy { file: file.policy.file, candidate: file.policy.candidate };
                let ruled = Ruled { policy, list: file.list, program: file.program };
                let made = c.ruled(&ruled, version, Folder::Disk(beside));
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
            limits,
            fragments,
            record,
            cores: cores.map_or(vec![None], |cores| cores.into_iter().map(Some).collect()),
            control: (!socket.as_os_str().is_empty()).then_some(socket),
            metrics,
            distribution,
        };
        let bundle = bundle.cloned();
        Ok(Self { path: path.into(), fixed, policies, lists, voice, programs, bundle })
    }

    /// Returns the router that carries this grantor.
    pub(super) fn router(&self) -> config::Config {
        let interface = |name: &String| config::Interface {
            name: name.clone(),
            mode: ModeChoice::Auto,
            table: Some(MAIN),
            sources: SourceCheck::Off,
            observe: false,
            declined: 0,
        };
        config::Config {
            path: self.path.clone(),
            interfaces: self.fixed.interfaces.iter().map(interface).collect(),
            next_hops: Vec::new(),
            files: Vec::new(),
            routes_v4: Vec::new(),
            routes_v6: Vec::new(),
            cores: self.fixed.cores.clone(),
            engine_v4: Choice::Auto,
            engine_v6: Choice::Auto,
            fpm: None,
            control: self.fixed.control.clone(),
            metrics: self.fixed.metrics,
            image: None,
        }
    }
}

/// Reads what a bundle has for grantors that speak a version of the protocol.
fn of_bundle(bundle: &Bundle, version: u8) -> Result<(Policies, Lists, Vec<Parcel>), ConfigError> {
    let (text, path) = distribution::text(bundle, IN_BUNDLE)?;
    let mut c = Checker { text, problems: Vec::new() };
    let ruled = c.ruled(&shape(text, &path)?, version, Folder::Bundle(bundle));
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
            let made = gate::grantor::Grantor::new(text, lists.reader(), limits);
            made.map_err(|bad| (which, bad.to_string()))?;
        }
    }
    Ok(())
}

/// Judges what a bundle has for grantors as far as that can be done without one: by the limits that
/// there are where nothing is said.
pub(crate) fn survey(bundle: &Bundle) -> Result<(), ConfigError> {
    let (policies, lists, _) = of_bundle(bundle, 2)?;
    let (text, path) = distribution::text(bundle, IN_BUNDLE)?;
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
mod tests {
    use super::*;

    #[test]
    fn everything_that_is_wrong_is_named_with_its_line() {
        let folder =
            std::env::temp_dir().join(format!("fingerpost-grantor-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let path = folder.join("grantor.toml");
        std::fs::write(folder.join("policy.lua"), "function decide(p) end").unwrap();
        std::fs::write(folder.join("bad.txt"), "10.0.0.0/8\nnowhere\n").unwrap();
        let good = "interfaces = ['a', 'b']\n[tunnel]\naddresses = ['10.9.1.100']\n\
                    gates = ['10.2.0.1']\n[policy]\nfile = 'policy.lua'\nfallback = 'grant 5 10'\n\
                    [decisions]\nversion = 1\n[control]\nsocket = ''\n";
        std::fs::write(&path, good).unwrap();
        let config = Config::load(&path).unwrap();
        assert_eq!(config.fixed.ends, [Address::V4(0x0a09_0164)]);
        assert!(config.fixed.limits.fallback.deliver && config.fixed.control.is_none());
        assert_eq!(config.fixed.port, None);
        let with = |port| good.replace("[policy]", &format!("udp_port = {port}\n[policy]"));
        std::fs::write(&path, with(6080)).unwrap();
        assert_eq!(Config::load(&path).unwrap().fixed.port, Some(6080));
        std::fs::write(&path, with(0)).unwrap();
        let told = Config::load(&path).unwrap_err().to_string();
        assert!(told.contains("grantor.toml:5: tunnel.udp_port: 0 is no port"), "{told}");
        let bad = good
            .replace("'b'", "'a'")
            .replace("10.2.0.1", "10.2.0")
            .replace("policy.lua", "none.lua")
            .replace("grant 5 10", "grant 5")
            .replace("version = 1", "version = 3")
            + "[[list]]\nname = 'x'\nfile = 'bad.txt'\n[[program]]\nnumber = 3\nfile = 'bad.txt'\n\
               [[program]]\nnumber = 4\nfile = 'none.o'\n";
        std::fs::write(&path, bad).unwrap();
        let error = Config::load(&path).unwrap_err();
        std::fs::remove_dir_all(&folder).unwrap();
        let ConfigError::Sense { problems, .. } = error else { panic!("{error}") };
        let found: Vec<_> = problems.iter().map(|it| (it.line, it.key)).collect();
        let expect = [
            (1, "interfaces"),
            (4, "tunnel.gates"),
            (6, "policy.file"),
            (7, "policy.fallback"),
            (9, "decisions.version"),
            (9, "decisions"),
            (14, "list.file"),
            (17, "program.file"),
            (20, "program.file"),
        ];
        assert_eq!(found, expect);
        assert!(problems[6].what.contains("line 2: `nowhere`"), "{}", problems[6].what);
    }
}
