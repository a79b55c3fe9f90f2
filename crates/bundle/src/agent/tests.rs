//! Runs the agent step by step with a scripted member; checks the store, the calls of the member
//! and the published status.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use super::super::bundle::{BundleHeader, pack};
use super::super::config::BundleSource;
use super::super::key::SecretKey;
use super::super::share::CanaryShare;
use super::*;

/// The script of a member and the versions that it applied.
#[derive(Default)]
struct Script {
    /// Versions that fail validation.
    invalid: Vec<u64>,
    /// Versions that fail when they are applied.
    failing: Vec<u64>,
    /// Applied versions in order; 0 for the local configuration.
    applied: Vec<u64>,
}

#[derive(Default)]
struct ScriptedMember(Mutex<Script>);

impl DistributionMember for ScriptedMember {
    fn validate(&self, bundle: &Arc<Bundle>) -> Result<(), String> {
        let invalid = lock(&self.0).invalid.contains(&bundle.header().version);
        if invalid { Err("invalid".into()) } else { Ok(()) }
    }

    fn apply(&self, bundle: Option<Arc<Bundle>>) -> Result<String, String> {
        let version = bundle.map_or(0, |bundle| bundle.header().version);
        let mut script = lock(&self.0);
        if script.failing.contains(&version) {
            return Err("out of memory".into());
        }
        script.applied.push(version);
        Ok(format!("applied {version}"))
    }

    fn sample(&self) -> HealthSample {
        HealthSample::default()
    }
}

struct Fixture {
    folder: PathBuf,
    key: SecretKey,
    member: Arc<ScriptedMember>,
    agent: AgentLoop,
}

impl Fixture {
    fn new(name: &str) -> Self {
        let name = format!("fingerpost-agent-{name}-{}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        fs::create_dir_all(&folder).unwrap();
        let key = SecretKey::from_seed([5; 32]);
        let source = BundleSource::Path(folder.join("source"));
        let config = DistributionConfig {
            keys: vec![key.public()],
            store_dir: folder.join("keep"),
            canary_delay: Duration::from_secs(60),
            ..DistributionConfig::for_tests(source)
        };
        let (start, member) = (Instant::now(), Arc::new(ScriptedMember::default()));
        let store = BundleStore::open(&config.store_dir).unwrap();
        let record = store::read_record(&config.store_dir).unwrap();
        let poller = SourcePoller::new(&config).unwrap();
        let agent = AgentLoop {
            rollout: Rollout::new(config.clone(), record, now(start)),
            config,
            store,
            in_force: None,
            offered: None,
            poller,
            next_poll: Duration::ZERO,
            member: member.clone(),
            status: Arc::new(AgentStatus::default()),
            publish: Box::new(|_| {}),
            counts: COUNTS.map(|name| (name, 0)).into(),
            poll_error: None,
            last_error: None,
            blocks: None,
            start,
        };
        Self { folder, key, member, agent }
    }

    /// Writes a version to the source and polls it.
    fn offer(&mut self, version: u64, share: CanaryShare, text: &str) {
        let header = BundleHeader::new(version, now(self.agent.start).wall, share);
        let files = BTreeMap::from([("gate.toml".to_owned(), text.as_bytes().to_vec())]);
        let bytes = pack(&header, &files, &self.key).unwrap();
        fib::image::replace_with_mode(&self.folder.join("source"), &bytes, 0o600).unwrap();
        self.agent.poll(&Stop::default());
        self.agent.publish_status();
    }

    /// Executes one step of the rollout.
    fn step(&mut self) {
        let sample = self.agent.member.sample();
        if self.agent.rollout.step(now(self.agent.start), sample) == Action::Apply {
            self.agent.apply();
        }
        self.agent.publish_status();
    }

    /// Offers a version, applies and confirms it.
    fn complete(&mut self, version: u64) {
        self.offer(version, CanaryShare::ALL, "x");
        self.step();
        self.agent.confirm("");
        self.agent.publish_status();
    }

    fn status(&self) -> DistributionStatus {
        self.agent.status.status()
    }

    /// Returns the version in force according to the store.
    fn stored(&self) -> Option<u64> {
        let bundle = super::super::startup::read_bundle_in_force(&self.agent.config).unwrap();
        bundle.map(|bundle| bundle.header().version)
    }

    fn applied(&self) -> Vec<u64> {
        lock(&self.member.0).applied.clone()
    }
}

impl Drop for Fixture {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder);
    }
}

#[test]
fn applied_version_is_stored_and_refused_version_leaves_only_its_reason() {
    let mut fixture = Fixture::new("take");
    fixture.complete(1);
    assert_eq!((fixture.stored(), fixture.applied()), (Some(1), vec![1]));
    // Not valid here: the agent refuses it without a call of `apply`.
    lock(&fixture.member.0).invalid = vec![2];
    fixture.complete(2);
    assert_eq!((fixture.stored(), fixture.applied()), (Some(1), vec![1]));
    assert_eq!(fixture.status().refused[&2], "invalid");
    // Valid, but it fails when it is applied.
    lock(&fixture.member.0).failing = vec![3];
    fixture.complete(3);
    assert_eq!((fixture.stored(), fixture.applied()), (Some(1), vec![1]));
    let status = fixture.status();
    assert_eq!((status.version, status.state.as_str(), status.floor), (Some(1), "confirmed", 1));
    assert_eq!(status.refused[&3], "out of memory");
    assert_eq!((status.counts["applied"], status.counts["bundles_refused"]), (1, 2));
    // The operator retries it.
    lock(&fixture.member.0).failing.clear();
    fixture.agent.execute(Command::Retry).unwrap();
    fixture.agent.poll(&Stop::default());
    fixture.step();
    assert_eq!((fixture.stored(), fixture.applied()), (Some(3), vec![1, 3]));
    let messages = fixture.agent.status.drain_messages();
    assert!(
        messages.iter().any(|m| m == "distribution: version 2 refused: invalid"),
        "{messages:?}"
    );
}

#[test]
fn rollback_skips_a_missing_version_and_ends_at_the_local_configuration() {
    let mut fixture = Fixture::new("back");
    (1..=3).for_each(|version| fixture.complete(version));
    assert_eq!(
        fixture.agent.roll_back("worse").unwrap(),
        "version 3 rolled back, version 2 is in force: applied 2"
    );
    assert_eq!(
        (fixture.stored(), fixture.status().version),
        (Some(2), Some(3)),
        "not published yet"
    );
    // Version 1 is missing in the store: the local configuration remains.
    fs::remove_file(fixture.folder.join("keep/1.bundle")).unwrap();
    let message = fixture.agent.execute(Command::Rollback).unwrap();
    assert!(
        message.starts_with("cannot roll back to version 1: ") && message.contains("local"),
        "{message}"
    );
    assert_eq!((fixture.stored(), fixture.applied()), (None, vec![1, 2, 3, 2, 0]));
    let status = fixture.status();
    assert_eq!((status.state.as_str(), status.version, status.floor), ("rolled_back", None, 3));
    let error = fixture.agent.execute(Command::Rollback).unwrap_err();
    assert!(error.contains("nothing to roll back"), "{error}");
    // The source still has version 3, which stays refused.
    fixture.agent.poller.reset();
    fixture.agent.poll(&Stop::default());
    fixture.step();
    assert_eq!(fixture.stored(), None);
    fixture.complete(4);
    assert_eq!(fixture.stored(), Some(4));
}

#[test]
fn known_version_with_other_contents_is_refused() {
    let mut fixture = Fixture::new("same");
    let none = CanaryShare::from_hundredths(0).unwrap();
    fixture.offer(5, none, "first");
    assert_eq!(fixture.status().state, "waiting");
    fixture.offer(5, CanaryShare::ALL, "second");
    assert!(fixture.status().last_error.unwrap().contains("has other contents"));
    fixture.step();
    assert_eq!((fixture.stored(), fixture.status().state.as_str()), (None, "waiting"));
    // The same contents, released for all members.
    fixture.offer(5, CanaryShare::ALL, "first");
    fixture.step();
    assert_eq!((fixture.stored(), fixture.status().last_error), (Some(5), None));
    fixture.offer(4, CanaryShare::ALL, "first");
    assert!(fixture.status().last_error.unwrap().contains("version 4 is lower than 5"));
}

#[test]
fn unreachable_source_or_store_does_not_refuse_a_version() {
    let mut fixture = Fixture::new("away");
    fixture.agent.poll(&Stop::default());
    fixture.agent.publish_status();
    assert!(fixture.status().last_error.unwrap().contains("source: No such file"));
    fixture.complete(1);
    assert_eq!(fixture.status().last_error, None);
    // The source returns unchanged: the error of the poll ends.
    fs::rename(fixture.folder.join("source"), fixture.folder.join("x")).unwrap();
    fixture.agent.poll(&Stop::default());
    fs::rename(fixture.folder.join("x"), fixture.folder.join("source")).unwrap();
    assert!(fixture.agent.poll_error.is_some());
    fixture.agent.poll(&Stop::default());
    fixture.agent.publish_status();
    assert_eq!(fixture.status().last_error, None);
    // Without a store no version is applied.
    let (store_dir, aside) = (fixture.folder.join("keep"), fixture.folder.join("aside"));
    fs::rename(&store_dir, &aside).unwrap();
    fixture.offer(2, CanaryShare::ALL, "x");
    fixture.step();
    assert_eq!(fixture.applied(), [1]);
    let status = fixture.status();
    assert!(status.refused.is_empty() && status.last_error.is_some(), "{status:?}");
    fs::rename(&aside, &store_dir).unwrap();
    fixture.agent.poll(&Stop::default());
    fixture.step();
    assert_eq!((fixture.applied(), fixture.stored()), (vec![1, 2], Some(2)));
}
