//! `fingerpost fleet rollout` and `rollback`.
//!
//! ```text
//!   for each stage: sign for its share ─► servers ─► wait ─┬─ all of them have confirmed it ─► next stage
//!                                            ▲             ├─ paused, silent servers ─► wait on
//!                                            └─────────────┴─ a member refuses it or rolls it back, or
//!                                                             the time is over ─► stopped
//! ```
//!
//! A stage is a share of the members or a label. Members outside the last signed stage never apply the version, so a rollout that stops
//! at any moment, with this command or without it, stays where it is. A member that is silent when a stage
//! begins is not waited for: it follows when it returns.

use std::collections::BTreeSet;
use std::fmt;
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::str::FromStr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context, bail, ensure};
use bundle::bundle::{BundleError, MAX_BUNDLE_BYTES, pack};
use bundle::key::SecretKey;
use bundle::state::MemberKeys;
use bundle::{Bundle, BundleHeader, CanaryShare, Label};
use fleet::{Broker, RolloutRecord, RolloutState};

use super::status::{Member, Members};
use super::{ServerArgs, number_of, print, read_members};
use crate::bundle::{open, secret};
use crate::bundle_check::check_bundle;
use crate::stop::{SIGINT, SIGTERM, flag_on_signals};

/// The interval at which the states are read.
const INTERVAL: Duration = Duration::from_secs(1);
/// Versions whose bundles stay on the servers.
const STORED_VERSIONS: usize = 8;

/// The arguments of `fleet rollout`.
#[derive(clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    servers: ServerArgs,
    /// Bundle that `bundle pack` has written, with a version above the current one
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Secret key that signs the stages: that of the bundle
    #[arg(long, value_name = "FILE")]
    key: PathBuf,
    /// Names and public keys of the members, a line each
    #[arg(long, value_name = "FILE")]
    members: PathBuf,
    /// Labels of members, or shares of them in ascending order; the last is all of them
    #[arg(long, value_name = "STAGES", value_delimiter = ',', default_value = "5%,25%,100%")]
    stages: Vec<Stage>,
    /// Longest time of a stage, in seconds: at least the trial time of the members
    #[arg(long, value_name = "SECONDS", default_value_t = 3600)]
    stage_timeout: u64,
}

/// The arguments of `fleet rollback`.
#[derive(clap::Args)]
pub(super) struct RollbackArgs {
    #[command(flatten)]
    servers: ServerArgs,
    /// Secret key that signs the bundle: that of the previous version
    #[arg(long, value_name = "FILE")]
    key: PathBuf,
    /// Version whose files the members are to have [default: the last complete one before the current one]
    #[arg(long, value_name = "N")]
    version: Option<u64>,
}

/// The members that a stage is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Share(CanaryShare),
    Label(Label),
}

impl fmt::Display for Stage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Share(share) => share.fmt(f),
            Self::Label(label) => write!(f, "label {label}"),
        }
    }
}

impl FromStr for Stage {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text.ends_with('%') {
            return text.parse().map(Self::Share).map_err(|error| format!("{error}"));
        }
        let label = text.parse().map(Self::Label);
        label.map_err(|_| format!("{text:?} is neither a share, such as 5%, nor a label"))
    }
}

impl Stage {
    /// Signs a bundle for the stage.
    fn sign(self, bundle: &Bundle, key: &SecretKey) -> Result<Vec<u8>, BundleError> {
        match self {
            Self::Share(CanaryShare::ALL) => bundle.release(CanaryShare::ALL, key),
            Self::Share(share) => bundle.sign_stage(share, None, key),
            Self::Label(label) => bundle.sign_stage(CanaryShare::NONE, Some(label), key),
        }
    }

    /// Returns whether a member is of the stage of a version. A member that has not reported has no labels.
    fn contains(self, member: &Member, version: u64) -> bool {
        match self {
            Self::Share(share) => share.contains(&member.name, version),
            Self::Label(label) => member
                .distribution()
                .is_some_and(|status| status.labels.iter().any(|own| own == label.as_str())),
        }
    }
}

/// Returns whether the shares of stages ascend, and the last one is all members.
fn are_valid(stages: &[Stage]) -> bool {
    let share = |stage: &Stage| match stage {
        Stage::Share(share) => Some(*share),
        Stage::Label(_) => None,
    };
    let shares: Vec<CanaryShare> = stages.iter().filter_map(share).collect();
    shares.windows(2).all(|pair| pair[0] < pair[1])
        && stages.last() == Some(&Stage::Share(CanaryShare::ALL))
}

/// The end of a stage.
#[derive(Debug, PartialEq, Eq)]
enum Outcome {
    Complete,
    Stopped(String),
}

/// A rollout in progress.
struct Rollout<'a> {
    broker: Broker,
    keys: MemberKeys,
    bundle: Bundle,
    key: SecretKey,
    timeout: Duration,
    stop: &'a AtomicBool,
}

/// Runs the stages.
pub(super) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    ensure!(
        are_valid(&args.stages),
        "--stages: the shares must ascend and end with 100%, such as 5%,25%,100% or edge,10%,100%"
    );
    let key = secret(&args.key)?;
    let bundle = open(&args.file, Some(&[key.public()]))?;
    check_bundle(&bundle)?;
    let keys = read_members(&args.members)?;
    ensure!(
        keys.names().next().is_some(),
        "{}: no members: add a line with a name and a public key for each",
        args.members.display()
    );
    let stop = flag_on_signals(&[SIGINT, SIGTERM])?;
    let broker = args.servers.connect()?;
    let version = bundle.header().version;
    if let Some(current) = broker.current()? {
        // The same version continues a rollout that has stopped.
        ensure!(
            current.version <= version,
            "{}: the current version is {}: pack a higher one",
            broker.url(),
            current.version
        );
        if let Some(last) = broker.rollout()?.filter(|last| last.version == version) {
            ensure!(
                last.state != RolloutState::Complete,
                "version {version} is rolled out already"
            );
        }
    }
    let timeout = Duration::from_secs(args.stage_timeout);
    let rollout = Rollout { broker, keys, bundle, key, timeout, stop: &stop };
    rollout.forget_old_versions();
    for stage in &args.stages {
        match rollout.run_stage(*stage)? {
            Outcome::Complete => {}
            Outcome::Stopped(reason) => {
                rollout.record(*stage, RolloutState::Stopped, Some(reason.clone()))?;
                bail!("version {version} stopped at stage {stage}: {reason}");
            }
        }
    }
    rollout.record(Stage::Share(CanaryShare::ALL), RolloutState::Complete, None)?;
    rollout.retry(|broker| Ok(broker.add_complete_version(version)?))?;
    print(&format!("version {version}: complete"))
}

impl Rollout<'_> {
    fn version(&self) -> u64 {
        self.bundle.header().version
    }

    fn record(
        &self,
        stage: Stage,
        state: RolloutState,
        reason: Option<String>,
    ) -> anyhow::Result<()> {
        let record =
            RolloutRecord { version: self.version(), stage: stage.to_string(), state, reason };
        self.retry(|broker| Ok(broker.put_rollout(&record)?))
    }

    /// Deletes the bundles of all but the last versions. An error is not one of the rollout.
    fn forget_old_versions(&self) {
        let Ok(versions) = self.broker.versions() else { return };
        for version in versions.iter().rev().skip(STORED_VERSIONS) {
            if let Err(error) = self.broker.delete_bundle(*version) {
                eprintln!("fingerpost: deleting version {version}: {error}");
            }
        }
    }

    /// Repeats a call while the servers choose a leader, or are away, for the time of a stage.
    fn retry<T>(&self, call: impl Fn(&Broker) -> anyhow::Result<T>) -> anyhow::Result<T> {
        let (begin, mut is_reported) = (Instant::now(), false);
        loop {
            let error = match call(&self.broker) {
                Ok(done) => return Ok(done),
                Err(error) => error,
            };
            if begin.elapsed() > self.timeout || self.stop.load(Ordering::Relaxed) {
                return Err(error);
            }
            if !is_reported {
                eprintln!("fingerpost: {error:#}: waiting for the servers");
                is_reported = true;
            }
            self.broker.sleep(INTERVAL);
        }
    }

    /// Runs a stage, until all of its members that are not silent have confirmed the version.
    fn run_stage(&self, stage: Stage) -> anyhow::Result<Outcome> {
        let version = self.version();
        if let Some(outcome) = self.wait_while_paused(stage)? {
            return Ok(outcome);
        }
        let before = self.retry(|broker| Members::read(broker, &self.keys))?;
        let (silent, expected): (Vec<&Member>, Vec<&Member>) = before
            .members
            .iter()
            .filter(|member| stage.contains(member, version))
            .partition(|member| member.is_silent());
        if let Stage::Label(label) = stage
            && silent.is_empty()
            && expected.is_empty()
        {
            return Ok(Outcome::Stopped(format!("no member reports label {label}")));
        }
        for member in silent {
            eprintln!("fingerpost: {} is silent: it follows when it returns", member.name);
        }
        let expected: BTreeSet<&str> = expected.iter().map(|member| member.name.as_str()).collect();
        self.record(stage, RolloutState::Running, None)?;
        let bytes = stage.sign(&self.bundle, &self.key)?;
        self.retry(|broker| Ok(broker.put_bundle(version, &bytes)?))?;
        writeln!(
            std::io::stdout(),
            "version {version}: stage {stage}, {} of {}",
            expected.len(),
            number_of(before.members.len(), "member", "members")
        )?;
        let begin = Instant::now();
        loop {
            self.broker.sleep(INTERVAL);
            if self.stop.load(Ordering::Relaxed) {
                return Ok(Outcome::Stopped("interrupted".to_owned()));
            }
            let now = self.retry(|broker| Members::read(broker, &self.keys))?;
            if let Some(reason) = find_failure(&now.members, version) {
                return Ok(Outcome::Stopped(reason));
            }
            let pending = find_pending(&now.members, &expected, version);
            if pending.is_empty() {
                return Ok(Outcome::Complete);
            }
            if begin.elapsed() > self.timeout {
                let shown = pending.iter().take(8).copied().collect::<Vec<_>>().join(", ");
                return Ok(Outcome::Stopped(format!(
                    "not confirmed within {} s by {}: {shown}",
                    self.timeout.as_secs(),
                    number_of(pending.len(), "member", "members")
                )));
            }
        }
    }

    /// Waits while an operator has paused the rollout of this version.
    fn wait_while_paused(&self, next: Stage) -> anyhow::Result<Option<Outcome>> {
        let mut is_reported = false;
        loop {
            let record = self.retry(|broker| Ok(broker.rollout()?))?;
            let is_paused = record.is_some_and(|record| {
                record.version == self.version() && record.state == RolloutState::Paused
            });
            if !is_paused {
                return Ok(None);
            }
            if self.stop.load(Ordering::Relaxed) {
                return Ok(Some(Outcome::Stopped("interrupted while paused".to_owned())));
            }
            if !is_reported {
                eprintln!(
                    "fingerpost: paused before stage {next}: `fingerpost fleet resume` continues"
                );
                is_reported = true;
            }
            self.broker.sleep(INTERVAL);
        }
    }
}

/// Returns the first member that has refused a version, with the reason.
fn find_failure(members: &[Member], version: u64) -> Option<String> {
    members.iter().find_map(|member| {
        let why = member.distribution()?.refused.get(&version)?;
        Some(format!("{}: {why}", member.name))
    })
}

/// Returns the expected members that have not confirmed a version.
fn find_pending<'m>(
    members: &'m [Member],
    expected: &BTreeSet<&str>,
    version: u64,
) -> Vec<&'m str> {
    let has_confirmed = |member: &Member| {
        member
            .distribution()
            .is_some_and(|status| status.version == Some(version) && status.state == "confirmed")
    };
    let pending = members
        .iter()
        .filter(|member| expected.contains(member.name.as_str()) && !has_confirmed(member));
    pending.map(|member| member.name.as_str()).collect()
}

/// Signs the files of an earlier version with a higher one.
pub(super) fn roll_back(args: &RollbackArgs) -> anyhow::Result<ExitCode> {
    let key = secret(&args.key)?;
    let broker = args.servers.connect()?;
    let current = broker.current()?.context("there is no version to roll back")?.version;
    let complete = broker.complete_versions()?;
    let earlier = args.version.or(complete.into_iter().rfind(|version| *version < current));
    let earlier =
        earlier.context("no earlier version is complete: set --version, or pack its files")?;
    let bytes = broker.bundle(earlier, MAX_BUNDLE_BYTES)?;
    let bundle = Bundle::open(bytes, Some(&[key.public()]))
        .with_context(|| format!("version {earlier} of {}", broker.url()))?;
    let created = SystemTime::UNIX_EPOCH.elapsed().context("the clock is before 1970")?.as_secs();
    let version = current + 1;
    let header = BundleHeader::new(version, created, CanaryShare::ALL);
    let files = bundle.files().map(|(name, content)| (name.to_owned(), content.to_vec()));
    let bytes = pack(&header, &files.collect(), &key)?;
    broker.put_bundle(version, &bytes)?;
    broker.put_rollout(&RolloutRecord {
        version,
        stage: CanaryShare::ALL.to_string(),
        state: RolloutState::Complete,
        reason: Some(format!("rollback of version {current} to the files of version {earlier}")),
    })?;
    broker.add_complete_version(version)?;
    print(&format!("version {version}: the files of version {earlier}, for all members"))
}

#[cfg(test)]
mod tests {
    use api::DistributionStatus;
    use bundle::state::MemberState;

    use super::*;

    fn member(name: &str, version: u64, state: &str, refused: &[u64]) -> Member {
        let distribution = DistributionStatus {
            name: name.to_owned(),
            version: Some(version),
            state: state.to_owned(),
            refused: refused.iter().map(|version| (*version, "worse".to_owned())).collect(),
            ..DistributionStatus::default()
        };
        let state = MemberState::now("site", distribution, None);
        Member { name: name.to_owned(), state: Some((state, Duration::ZERO)) }
    }

    #[test]
    fn stages_are_labels_and_ascending_shares() {
        let stages = |text: &str| -> Vec<Stage> {
            text.split(',').map(|stage| stage.parse().unwrap()).collect()
        };
        for (text, valid) in [
            ("100%", true),
            ("edge,5%,core,100%", true),
            ("5%,5%,100%", false),
            ("5%", false),
            ("100%,edge", false),
        ] {
            assert_eq!(are_valid(&stages(text)), valid, "{text}");
        }
        assert!("5 percent".parse::<Stage>().is_err() && "101%".parse::<Stage>().is_err());
        let mut labelled = member("a", 7, "confirmed", &[]);
        let (state, _) = labelled.state.as_mut().unwrap();
        state.distribution.labels = vec!["edge".to_owned()];
        let edge: Stage = "edge".parse().unwrap();
        assert!(edge.contains(&labelled, 7));
        assert!(!edge.contains(&member("b", 7, "confirmed", &[]), 7));
    }

    #[test]
    fn stage_is_complete_when_its_members_have_confirmed() {
        let members = [
            member("a", 7, "confirmed", &[]),
            member("b", 7, "trial", &[]),
            member("c", 6, "confirmed", &[]),
            Member { name: "d".to_owned(), state: None },
        ];
        let pending = |names: &[&str]| find_pending(&members, &names.iter().copied().collect(), 7);
        assert!(pending(&["a"]).is_empty());
        assert_eq!(pending(&["a", "b", "d"]), ["b", "d"]);
        assert_eq!(pending(&["c"]), ["c"]);
    }

    #[test]
    fn member_that_refuses_the_version_stops_the_rollout() {
        let members = [member("a", 6, "rolled_back", &[5]), member("b", 6, "rolled_back", &[7])];
        assert_eq!(find_failure(&members, 7).unwrap(), "b: worse");
        assert_eq!(find_failure(&members, 6), None);
    }
}
