//! The agent with a member that does as it is told, step by step: what it has on the disk, what
//! the member was told, and what is shown.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use super::super::bundle::{Header, pack};
use super::super::config::Limits;
use super::super::key::SecretKey;
use super::super::share::Share;
use super::*;
use crate::control::asks;

/// Goes over to whatever is not named here.
#[derive(Default)]
struct Told {
    unsound: Vec<u64>,
    failing: Vec<u64>,
    /// What was gone over to; 0 for the local configuration.
    over: Vec<u64>,
}

#[derive(Default)]
struct Fake(Mutex<Told>);

impl Member for Fake {
    fn judge(&self, bundle: &Arc<Bundle>) -> Result<(), String> {
        let unsound = lock(&self.0).unsound.contains(&bundle.header().version);
        if unsound { Err("unsound".into()) } else { Ok(()) }
    }

    fn go_over(&self, bundle: Option<Arc<Bundle>>) -> Result<String, String> {
        let version = bundle.map_or(0, |bundle| bundle.header().version);
        let mut told = lock(&self.0);
        if told.failing.contains(&version) {
            return Err("no memory for it".into());
        }
        told.over.push(version);
        Ok(format!("over to {version}"))
    }

    fn sample(&self) -> Sample {
        Sample::default()
    }
}

struct Place {
    folder: PathBuf,
    key: SecretKey,
    fake: Arc<Fake>,
    working: Working,
}

impl Place {
    fn new(name: &str) -> Self {
        let name = format!("fingerpost-agent-{name}-{}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        fs::create_dir_all(&folder).unwrap();
        let key = SecretKey::of([5; 32]);
        let source = Source::Path(folder.join("source"));
        let settings = Settings {
            source: source.clone(),
            keys: vec![key.public()],
            keep: folder.join("keep"),
            name: "gate-1".into(),
            poll: Duration::from_secs(1),
            canary: Duration::from_secs(60),
            watch: Duration::from_secs(60),
            idle: Duration::from_secs(720),
            limits: Limits { failures: 0.5, granted: 0.5, lost: 0 },
        };
        let (events, asked) = asks::pair().unwrap();
        drop(asked);
        let (start, fake) = (Instant::now(), Arc::new(Fake::default()));
        let kept = Kept::open(&settings.keep).unwrap();
        let record = kept::record(&settings.keep).unwrap();
        let working = Working {
            machine: Machine::new(settings.clone(), record, now(start)),
            settings,
            kept,
            in_force: None,
            offered: None,
            poller: Poller::new(source),
            due: Duration::ZERO,
            member: fake.clone(),
            board: Arc::new(Board::new()),
            events,
            counts: COUNTS.map(|name| (name, 0)).into(),
            unreached: None,
            last_error: None,
            start,
            stop: Arc::default(),
        };
        Self { folder, key, fake, working }
    }

    /// Puts a version at the source, and has the agent look there.
    fn offer(&mut self, version: u64, share: Share, text: &str) {
        let header = Header { version, created: now(self.working.start).wall, canary: share };
        let files = BTreeMap::from([("gate.toml".to_owned(), text.as_bytes().to_vec())]);
        let bytes = pack(&header, &files, &self.key).unwrap();
        fib::image::replace_with_mode(&self.folder.join("source"), &bytes, 0o600).unwrap();
        self.working.poll();
        self.working.show();
    }

    /// Looks once at how things are.
    fn look(&mut self) {
        let sample = self.working.member.sample();
        if self.working.machine.look(now(self.working.start), sample) == Act::TakeOver {
            self.working.take_over();
        }
        self.working.show();
    }

    fn take(&mut self, version: u64) {
        self.offer(version, Share::ALL, "x");
        self.look();
        self.working.settle("");
        self.working.show();
    }

    fn told(&self) -> DistributionTold {
        self.working.board.told()
    }

    /// What the disk says is in force, and can be read.
    fn on_disk(&self) -> Option<u64> {
        let settings = &self.working.settings;
        let found = super::super::in_force(settings).unwrap();
        found.map(|bundle| bundle.header().version)
    }

    fn over(&self) -> Vec<u64> {
        lock(&self.fake.0).over.clone()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder);
    }
}

#[test]
fn what_is_taken_over_is_on_the_disk_and_what_is_not_leaves_no_trace_but_a_reason() {
    let mut place = Place::new("take");
    place.take(1);
    assert_eq!((place.on_disk(), place.over()), (Some(1), vec![1]));
    // Unsound here: the member was not bothered, and it is not asked again.
    lock(&place.fake.0).unsound = vec![2];
    place.take(2);
    assert_eq!((place.on_disk(), place.over()), (Some(1), vec![1]));
    assert_eq!(place.told().refused[&2], "unsound");
    // Sound, and then it does not work all the same.
    lock(&place.fake.0).failing = vec![3];
    place.take(3);
    assert_eq!((place.on_disk(), place.over()), (Some(1), vec![1]));
    let told = place.told();
    assert_eq!((told.version, told.state.as_str(), told.floor), (Some(1), "confirmed", 1));
    assert_eq!(told.refused[&3], "no memory for it");
    assert_eq!((told.counts["applied"], told.counts["bundles_refused"]), (1, 2));
    // By hand it is tried again.
    lock(&place.fake.0).failing.clear();
    place.working.carry_out(Wish::Forgive).unwrap();
    place.working.poll();
    place.look();
    assert_eq!((place.on_disk(), place.over()), (Some(3), vec![1, 3]));
    let said = place.working.board.said();
    assert!(said.iter().any(|it| it == "distribution: version 2 refused: unsound"), "{said:?}");
}

#[test]
fn going_back_ends_where_something_can_be_gone_back_to() {
    let mut place = Place::new("back");
    (1..=3).for_each(|version| place.take(version));
    assert_eq!(
        place.working.go_back("worse").unwrap(),
        "version 3 rolled back, version 2 is in force: over to 2"
    );
    assert_eq!((place.on_disk(), place.told().version), (Some(2), Some(3)), "not shown yet");
    // The one before is gone from the disk: the local configuration is what is left.
    fs::remove_file(place.folder.join("keep/1.bundle")).unwrap();
    let said = place.working.carry_out(Wish::GoBack).unwrap();
    assert!(
        said.starts_with("version 1 cannot be gone back to: ") && said.contains("local"),
        "{said}"
    );
    assert_eq!((place.on_disk(), place.over()), (None, vec![1, 2, 3, 2, 0]));
    let told = place.told();
    assert_eq!((told.state.as_str(), told.version, told.floor), ("rolled_back", None, 3));
    assert!(place.working.carry_out(Wish::GoBack).unwrap_err().contains("nothing to go back from"));
    // What went back does not come again, whatever the source has.
    place.working.poller.forget();
    place.working.poll();
    place.look();
    assert_eq!(place.on_disk(), None);
    place.take(4);
    assert_eq!(place.on_disk(), Some(4));
}

#[test]
fn what_is_known_by_a_version_does_not_change_under_it() {
    let mut place = Place::new("same");
    let none = Share::of(0).unwrap();
    place.offer(5, none, "first");
    assert_eq!(place.told().state, "waiting");
    place.offer(5, Share::ALL, "second");
    assert!(place.told().last_error.unwrap().contains("with other contents"));
    place.look();
    assert_eq!((place.on_disk(), place.told().state.as_str()), (None, "waiting"));
    // The same for all.
    place.offer(5, Share::ALL, "first");
    place.look();
    assert_eq!((place.on_disk(), place.told().last_error), (Some(5), None));
    place.offer(4, Share::ALL, "first");
    assert!(place.told().last_error.unwrap().contains("version 4 is lower than 5"));
}

#[test]
fn a_source_that_is_away_and_a_disk_that_is_full_are_no_fault_of_a_version() {
    let mut place = Place::new("away");
    place.working.poll();
    place.working.show();
    assert!(place.told().last_error.unwrap().contains("source: No such file"));
    place.take(1);
    assert_eq!(place.told().last_error, None);
    // There and as it was: that it was away is over.
    fs::rename(place.folder.join("source"), place.folder.join("x")).unwrap();
    place.working.poll();
    fs::rename(place.folder.join("x"), place.folder.join("source")).unwrap();
    assert!(place.working.unreached.is_some());
    place.working.poll();
    place.working.show();
    assert_eq!(place.told().last_error, None);
    // Where nothing can be kept nothing is gone over to.
    let (keep, aside) = (place.folder.join("keep"), place.folder.join("aside"));
    fs::rename(&keep, &aside).unwrap();
    place.offer(2, Share::ALL, "x");
    place.look();
    assert_eq!(place.over(), [1]);
    let told = place.told();
    assert!(told.refused.is_empty() && told.last_error.is_some(), "{told:?}");
    fs::rename(&aside, &keep).unwrap();
    place.working.poll();
    place.look();
    assert_eq!((place.over(), place.on_disk()), (vec![1, 2], Some(2)));
}
