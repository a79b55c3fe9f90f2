//! The members of a fleet: so many agents in one process, each with its own connection to NATS.
//!
//! ```text
//!   member n: bundle::Agent (source, trial, store on disk) ─ fleet::MemberConnection ─► servers
//!             its member has no packets: it counts 100 requests a second, and failures while the
//!             version in force has a file `fails`
//! ```
//!
//! Everything but the packets is that of a gate. The process writes the numbers of members at each version
//! and with each blocked prefix to files, from outside the fleet, so that a rollout can be timed and an outage observed.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow};
use api::{AttackReport, AttackedDestination};
use bundle::blocks::BlockChange;
use bundle::config::{BundleSource, FleetMembership, TrialLimits};
use bundle::key::{PublicKey, SecretKey};
use bundle::{
    Agent, AgentStatus, Bundle, DistributionConfig, DistributionMember, HealthSample, Startup,
};
use fleet::{Access, FleetUrl};

/// Members with the label `edge`: the first ones.
const EDGE: u32 = 4;
/// Requests that a member decides in a second.
const REQUESTS: f64 = 100.0;
/// The interval of the report.
const INTERVAL: Duration = Duration::from_millis(100);

/// The arguments of `fleet`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Servers and name of the fleet
    #[arg(value_name = "URL")]
    url: FleetUrl,
    /// Number of members, with the names m0, m1 and so on
    #[arg(long, value_name = "N", default_value_t = 1000)]
    members: u32,
    /// Public key of the signer of bundles: a file
    #[arg(long, value_name = "FILE")]
    public: PathBuf,
    /// Folder of the members' stores, of `members`, the list of their keys, and of `versions.json` and
    /// `blocked.json`, the numbers of members at each version and with each blocked prefix
    #[arg(long, value_name = "DIR")]
    folder: PathBuf,
    /// Members whose states are signed with another key than that of the list
    #[arg(long, value_name = "N", default_value_t = 0)]
    forged: u32,
    /// Members that report an attack: mN drops 1000 + N packets a second of 2000 + N, for 192.0.2.(N mod 4)
    #[arg(long, value_name = "N", default_value_t = 0)]
    attacked: u32,
    /// Time of a trial, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 1)]
    trial: u64,
}

/// A gate without packets.
#[derive(Debug)]
struct Member {
    start: Instant,
    attack: Option<AttackReport>,
    blocked: Mutex<BTreeSet<String>>,
    version: AtomicU64,
    fails: AtomicBool,
    failures: AtomicU64,
}

impl DistributionMember for Member {
    fn validate(&self, _: &Arc<Bundle>) -> Result<(), String> {
        Ok(())
    }

    fn apply(&self, bundle: Option<Arc<Bundle>>) -> Result<String, String> {
        let fails = bundle.as_ref().is_some_and(|bundle| bundle.file("fails").is_some());
        self.fails.store(fails, Ordering::Relaxed);
        self.version.store(bundle.map_or(0, |bundle| bundle.header().version), Ordering::Relaxed);
        Ok(String::new())
    }

    fn sample(&self) -> HealthSample {
        let decided = (self.start.elapsed().as_secs_f64() * REQUESTS) as u64;
        if self.fails.load(Ordering::Relaxed) {
            self.failures.fetch_add(REQUESTS as u64, Ordering::Relaxed);
        }
        let failures = self.failures.load(Ordering::Relaxed);
        HealthSample { failures, decided, granted: decided, silent_grantors: 0 }
    }

    fn attack(&self) -> Option<AttackReport> {
        self.attack.clone()
    }

    /// A prefix within 10.0.0.0/8 is refused, as one with an address of the gate would be.
    fn change_block(&self, change: BlockChange) -> Option<Result<String, String>> {
        let mut blocked = self.blocked.lock().unwrap_or_else(PoisonError::into_inner);
        match change {
            BlockChange::Block(prefix, _) if prefix.starts_with("10.") => {
                return Some(Err("it has an address of this gate".to_owned()));
            }
            BlockChange::Block(prefix, _) => blocked.insert(prefix),
            BlockChange::Unblock(prefix) => blocked.remove(&prefix),
        };
        Some(Ok(String::new()))
    }
}

/// The attack that a member reports.
fn attack(number: u32) -> AttackReport {
    let (received_rate, dropped_rate) = (2000 + u64::from(number), 1000 + u64::from(number));
    let destination = AttackedDestination {
        destination: [192, 0, 2, (number % 4) as u8].into(),
        received_rate: received_rate as f64,
        dropped_rate: dropped_rate as f64,
    };
    AttackReport {
        began: 1_800_000_000.0,
        ended: None,
        received_rate,
        dropped_rate,
        dropped_peak: dropped_rate,
        dropped: [("declined".to_owned(), dropped_rate)].into(),
        destinations: vec![destination],
    }
}

/// The key of a member, from its number: this fleet protects nothing.
fn member_key(number: u32, forged: bool) -> SecretKey {
    let mut seed = [u8::from(forged); 32];
    seed[..4].copy_from_slice(&number.to_be_bytes());
    SecretKey::from_seed(seed)
}

fn config(args: &Args, public: PublicKey, number: u32) -> DistributionConfig {
    let key = member_key(number, number < args.forged);
    let membership = FleetMembership { url: args.url.clone(), access: Access::default(), key };
    DistributionConfig {
        source: BundleSource::Fleet(Box::new(membership)),
        keys: vec![public],
        store_dir: args.folder.join(format!("m{number}")),
        name: format!("m{number}"),
        labels: if number < EDGE { "edge".parse().into_iter().collect() } else { Vec::new() },
        poll_interval: Duration::from_secs(60),
        canary_delay: Duration::from_secs(3600),
        trial_time: Duration::from_secs(args.trial),
        max_trial_time: Duration::from_secs(args.trial * 12),
        limits: TrialLimits { max_failure_rate: 0.5, min_granted_ratio: 0.5, max_lost_grantors: 0 },
    }
}

/// Runs the members until a signal ends the process, as a power cut ends gates.
pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let text = fs::read_to_string(&args.public)
        .with_context(|| format!("reading {}", args.public.display()))?;
    let public = PublicKey::parse(&text)
        .with_context(|| format!("{}: not a public key", args.public.display()))?;
    fs::create_dir_all(&args.folder)
        .with_context(|| format!("creating {}", args.folder.display()))?;
    let line = |number| format!("m{number} {}\n", member_key(number, false).public());
    let list: String = (0..args.members).map(line).collect();
    write(&args.folder.join("members"), &list)?;
    let mut running = Vec::new();
    for number in 0..args.members {
        let attack = (number < args.attacked).then(|| attack(number));
        let member = start(&config(args, public, number), attack);
        running.push(member.map_err(|error| anyhow!(error))?);
    }
    writeln!(std::io::stdout(), "ready").context("writing to standard output")?;
    loop {
        let (mut versions, mut blocked) = (BTreeMap::<u64, u32>::new(), BTreeMap::new());
        for (member, _) in &running {
            for prefix in member.blocked.lock().unwrap_or_else(PoisonError::into_inner).iter() {
                *blocked.entry(prefix.clone()).or_insert(0) += 1;
            }
            *versions.entry(member.version.load(Ordering::Relaxed)).or_default() += 1;
        }
        write(&args.folder.join("versions.json"), &serde_json::to_string(&versions)?)?;
        write(&args.folder.join("blocked.json"), &serde_json::to_string(&blocked)?)?;
        std::thread::sleep(INTERVAL);
    }
}

/// Replaces a file, so that a reader has the old or the new one.
fn write(path: &Path, text: &str) -> anyhow::Result<()> {
    fib::image::replace_with_mode(path, text.as_bytes(), 0o600)
        .with_context(|| format!("writing {}", path.display()))
}

/// Starts a member with the version that its store has.
fn start(
    config: &DistributionConfig,
    attack: Option<AttackReport>,
) -> Result<(Arc<Member>, Agent), String> {
    let (startup, loaded) = Startup::open(Some(config), |bundle| Ok(Arc::clone(bundle)))?;
    let member = Member {
        start: Instant::now(),
        attack,
        blocked: Mutex::default(),
        version: AtomicU64::new(0),
        fails: AtomicBool::new(false),
        failures: AtomicU64::new(0),
    };
    member.apply(loaded)?;
    let member = Arc::new(member);
    let status = Arc::new(AgentStatus::default());
    let startup = startup.ok_or("no configuration")?;
    let agent = startup.start_agent(Arc::<Member>::clone(&member), &status, |_| {});
    Ok((member, agent.map_err(|error| error.to_string())?))
}
