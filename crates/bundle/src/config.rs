//! The section `[distribution]` of the configuration of a gate or grantor.
//!
//! ```toml
//! [distribution]
//! source = "/srv/bundles"      # a bundle, a folder of them (*.bundle), http[s]://HOST[:PORT]/PATH,
//!                              # or a fleet: nats://HOST[:PORT][,HOST…]/FLEET
//! member_key = "member.key"    # with a fleet: the key that signs this member's state
//! nats_credentials = "x.creds" # with a fleet, if its servers require it
//! nats_roots = "roots.pem"     # with a fleet and TLS: further root certificates
//! public_keys = ["d75a…511a"]  # the keys of the signers: fingerpost bundle keygen
//! store_dir = "/var/lib/fingerpost/bundles"
//! name = "gate-1"              # this member's name; default: the host name
//! labels = ["edge"]            # for stages of a rollout
//! poll_interval = "60s"
//! canary_delay = "1h"          # delay of members that are no canary, from the time of packing
//! trial_time = "5m"            # trial of a version before it is confirmed
//! max_trial_time = "1h"        # longest trial of a version that decides too few requests
//! max_failure_rate = 0.5       # limit of additional failures a second (scripts, flow programs)
//! min_granted_ratio = 0.5      # least grants, relative to before; 0: any number
//! max_lost_grantors = 0        # limit of additional silent grantors
//! ```
//!
//! A bundle does not contain this section. Changes need a restart.

use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use fetch::{Url, UrlError};
use fleet::{Access, FleetUrl, FleetUrlError, is_member_name};
use serde::Deserialize;
use toml::Spanned;

use super::key::{PublicKey, SecretKey};
use super::label::{Label, ParseLabelError};
use config::{Checker, TimeSpan};

const POLL_SECONDS: u64 = 60;
const CANARY_SECONDS: u64 = 3600;
const MAX_CANARY_SECONDS: u64 = 60 << 20;
const TRIAL_SECONDS: u64 = 300;
const DAY: u64 = 86_400;
/// The default of `max_trial_time`, in trial times, and its upper bound, in longest trial times.
const IDLE_TRIALS: u64 = 12;
const FAILURES: f64 = 0.5;
const GRANTED_FRACTION: f64 = 0.5;

/// The settings of bundle distribution.
#[derive(Clone, Debug, PartialEq)]
pub struct DistributionConfig {
    /// The source of bundles.
    pub source: BundleSource,
    /// The keys of trusted signers.
    pub keys: Vec<PublicKey>,
    /// The folder of the bundle store.
    pub store_dir: PathBuf,
    /// This member's name, from which its canary versions follow.
    pub name: String,
    /// This member's labels.
    pub labels: Vec<Label>,
    /// Interval of polls of the source.
    pub poll_interval: Duration,
    /// Delay of members that are no canary, from the time at which a bundle was packed.
    pub canary_delay: Duration,
    /// Time of a trial.
    pub trial_time: Duration,
    /// Longest time of a trial with too few requests.
    pub max_trial_time: Duration,
    /// Limits that end a trial with a rollback.
    pub limits: TrialLimits,
}

/// Limits of a version on trial, relative to the time before it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TrialLimits {
    /// Additional failures of scripts and flow programs a second.
    pub max_failure_rate: f64,
    /// Grants as a ratio of those before, 0 to 1.
    pub min_granted_ratio: f64,
    /// Additional silent grantors.
    pub max_lost_grantors: u64,
}

/// The source of bundles.
#[derive(Clone, Debug, PartialEq)]
pub enum BundleSource {
    /// A bundle, or a folder of bundles.
    Path(PathBuf),
    /// The URL of a bundle.
    Http(Url),
    /// A fleet on NATS.
    Fleet(Box<FleetMembership>),
}

/// The membership of a fleet.
#[derive(Clone, Debug, PartialEq)]
pub struct FleetMembership {
    /// The servers and the name of the fleet.
    pub url: FleetUrl,
    /// The access to the servers.
    pub access: Access,
    /// The key that signs the member's state.
    pub key: SecretKey,
}

impl BundleSource {
    /// Parses a path, relative to `beside`, or a URL.
    fn parse(text: &str, beside: &Path) -> Result<Self, String> {
        if text.is_empty() {
            return Err("is empty: set a path or a URL".to_owned());
        }
        if !text.contains("://") {
            return Ok(Self::Path(beside.join(text)));
        }
        let url: Url = text.parse().map_err(|error: UrlError| error.to_string())?;
        match url.path() {
            "/" => Err(format!("{text:?} has no path: add that of the bundle")),
            _ => Ok(Self::Http(url)),
        }
    }
}

impl fmt::Display for BundleSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Path(path) => path.display().fmt(f),
            Self::Http(url) => url.fmt(f),
            Self::Fleet(membership) => membership.url.fmt(f),
        }
    }
}

/// The section as it is written in the file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DistributionSection {
    source: Spanned<String>,
    public_keys: Spanned<Vec<Spanned<String>>>,
    store_dir: Spanned<PathBuf>,
    member_key: Option<Spanned<PathBuf>>,
    nats_credentials: Option<Spanned<PathBuf>>,
    nats_roots: Option<Spanned<PathBuf>>,
    name: Option<Spanned<String>>,
    #[serde(default)]
    labels: Vec<Spanned<String>>,
    poll_interval: Option<Spanned<TimeSpan>>,
    canary_delay: Option<Spanned<TimeSpan>>,
    trial_time: Option<Spanned<TimeSpan>>,
    max_trial_time: Option<Spanned<TimeSpan>>,
    max_failure_rate: Option<Spanned<f64>>,
    min_granted_ratio: Option<Spanned<f64>>,
    max_lost_grantors: Option<u64>,
}

impl DistributionConfig {
    /// Checks a parsed section, and reports its problems. A relative source is relative to `beside`.
    pub fn check(text: DistributionSection, beside: &Path, c: &mut Checker<'_>) -> Self {
        let source = check_source(&text, beside, c).unwrap_or_else(|what| {
            c.problem(&text.source, "distribution.source", what);
            BundleSource::Path(PathBuf::new())
        });
        let mut keys = Vec::new();
        for key in text.public_keys.get_ref() {
            match PublicKey::parse(key.get_ref()) {
                Some(key) => keys.push(key),
                None => {
                    let what = "not the 64 hexadecimal digits of an Ed25519 key, as `fingerpost \
                                bundle keygen` prints them";
                    c.problem(key, "distribution.public_keys", what);
                }
            }
        }
        if text.public_keys.get_ref().is_empty() {
            let what = "no key: the member could accept no bundle";
            c.problem(&text.public_keys, "distribution.public_keys", what);
        }
        c.absolute_path(&text.store_dir, "distribution.store_dir");
        let line = text.name.as_ref().map_or(1, |name| c.line(name));
        let name = text.name.map_or_else(host_name, Spanned::into_inner);
        if name.is_empty() || name.len() > 255 {
            c.problem_at_line(line, "distribution.name", "must have 1 to 255 bytes: set a name");
        } else if matches!(source, BundleSource::Fleet(_)) && !is_member_name(&name) {
            let what = format!(
                "{name:?} is not valid in a fleet: set up to 128 letters, digits, -, _ and . that \
                 separate parts"
            );
            c.problem_at_line(line, "distribution.name", what);
        }
        let mut labels = Vec::new();
        for label in &text.labels {
            match label.get_ref().parse() {
                Ok(parsed) => labels.push(parsed),
                Err(ParseLabelError) => {
                    let what = format!("{:?} is {ParseLabelError}", label.get_ref());
                    c.problem(label, "distribution.labels", what);
                }
            }
        }
        let mut within = |stated, key, default, least, most| {
            let range = TimeSpan::seconds(least)..=TimeSpan::seconds(most);
            TimeSpan::within(c, stated, key, TimeSpan::seconds(default), range)
        };
        let poll = within(text.poll_interval, "distribution.poll_interval", POLL_SECONDS, 1, DAY);
        let canary = within(
            text.canary_delay,
            "distribution.canary_delay",
            CANARY_SECONDS,
            0,
            MAX_CANARY_SECONDS,
        );
        let trial = within(text.trial_time, "distribution.trial_time", TRIAL_SECONDS, 1, DAY);
        let least = trial.as_secs().max(1);
        let max_trial = within(
            text.max_trial_time,
            "distribution.max_trial_time",
            least.saturating_mul(IDLE_TRIALS),
            least,
            IDLE_TRIALS * DAY,
        );
        let failures = text.max_failure_rate;
        if let Some(failures) =
            failures.as_ref().filter(|rate| !(0.0..1e9).contains(rate.get_ref()))
        {
            let what = format!("{} is not a number from 0 to below 1000000000", failures.get_ref());
            c.problem(failures, "distribution.max_failure_rate", what);
        }
        let granted = text.min_granted_ratio;
        if let Some(granted) =
            granted.as_ref().filter(|ratio| !(0.0..=1.0).contains(ratio.get_ref()))
        {
            let what = format!("{} is not a number from 0 to 1", granted.get_ref());
            c.problem(granted, "distribution.min_granted_ratio", what);
        }
        Self {
            source,
            keys,
            store_dir: text.store_dir.into_inner(),
            name,
            labels,
            poll_interval: poll,
            canary_delay: canary,
            trial_time: trial,
            max_trial_time: max_trial,
            limits: TrialLimits {
                max_failure_rate: failures.map_or(FAILURES, Spanned::into_inner),
                min_granted_ratio: granted.map_or(GRANTED_FRACTION, Spanned::into_inner),
                max_lost_grantors: text.max_lost_grantors.unwrap_or(0),
            },
        }
    }
}

/// Checks the source, with the keys that belong to a fleet.
fn check_source(
    text: &DistributionSection,
    beside: &Path,
    c: &mut Checker<'_>,
) -> Result<BundleSource, String> {
    let source = text.source.get_ref();
    if !FleetUrl::has_scheme(source) {
        for (file, key) in [
            (&text.member_key, "distribution.member_key"),
            (&text.nats_credentials, "distribution.nats_credentials"),
            (&text.nats_roots, "distribution.nats_roots"),
        ] {
            if let Some(file) = file {
                c.problem(file, key, "is for a source nats://HOST/FLEET: remove it");
            }
        }
        return BundleSource::parse(source, beside);
    }
    let url: FleetUrl = source.parse().map_err(|error: FleetUrlError| error.to_string())?;
    let file =
        |file: &Option<Spanned<PathBuf>>| file.as_ref().map(|file| beside.join(file.get_ref()));
    let access =
        Access { credentials: file(&text.nats_credentials), root_file: file(&text.nats_roots) };
    let Some(member_key) = &text.member_key else {
        return Err(
            "needs member_key, which signs this member's state: create one by `fingerpost \
                    bundle keygen FILE`"
                .to_owned(),
        );
    };
    let key = SecretKey::load(&beside.join(member_key.get_ref())).unwrap_or_else(|what| {
        c.problem(member_key, "distribution.member_key", what);
        SecretKey::from_seed([0; 32])
    });
    Ok(BundleSource::Fleet(Box::new(FleetMembership { url, access, key })))
}

#[cfg(test)]
impl DistributionConfig {
    /// Returns the settings that the tests of other modules begin with.
    pub(super) fn for_tests(source: BundleSource) -> Self {
        Self {
            source,
            keys: Vec::new(),
            store_dir: PathBuf::new(),
            name: "gate-1".into(),
            labels: vec!["edge".parse().unwrap()],
            poll_interval: Duration::from_secs(1),
            canary_delay: Duration::from_secs(3600),
            trial_time: Duration::from_secs(30),
            max_trial_time: Duration::from_secs(360),
            limits: TrialLimits {
                max_failure_rate: 0.5,
                min_granted_ratio: 0.5,
                max_lost_grantors: 0,
            },
        }
    }
}

fn host_name() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname");
    name.map(|name| name.trim().to_owned()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use config::ConfigError;

    use super::*;

    fn read(text: &str) -> (DistributionConfig, Vec<&'static str>) {
        let mut c = Checker::new(text);
        let section = toml::from_str(text).unwrap();
        let config = DistributionConfig::check(section, Path::new("/etc/x"), &mut c);
        let wrong = match c.finish(Path::new("gate.toml")) {
            Err(ConfigError::Invalid { problems, .. }) => problems,
            _ => Vec::new(),
        };
        let wrong = wrong.iter().map(|problem| problem.key).collect();
        (config, wrong)
    }

    #[test]
    fn check_reports_every_problem() {
        let key = SecretKey::from_seed([1; 32]).public();
        let good = format!("source = 'in'\npublic_keys = ['{key}']\nstore_dir = '/var/x'\n");
        let (config, wrong) = read(&good);
        assert!(wrong.is_empty(), "{wrong:?}");
        assert_eq!(config.source, BundleSource::Path("/etc/x/in".into()));
        assert_eq!((config.keys[0], config.poll_interval.as_secs()), (key, 60));
        assert!(!config.name.is_empty());
        assert_eq!((config.trial_time.as_secs(), config.max_trial_time.as_secs()), (300, 3600));
        let (_, wrong) = read(
            "source = 'ftp://x/y'\npublic_keys = ['00']\nstore_dir = 'x'\nname = ''\n\
             poll_interval = '0s'\nlabels = ['a', 'b c']\ntrial_time = '0s'\nmax_trial_time = '0s'\nmax_failure_rate = -1.0\nmin_granted_ratio = 2.0\n",
        );
        let all = [
            "source",
            "public_keys",
            "store_dir",
            "name",
            "poll_interval",
            "labels",
            "trial_time",
            "max_trial_time",
            "max_failure_rate",
            "min_granted_ratio",
        ];
        assert_eq!(wrong, all.map(|key| format!("distribution.{key}")));
        assert!(read("source = ''\npublic_keys = []\nstore_dir = '/'\n").1.len() == 2);
    }

    #[test]
    fn fleet_needs_the_key_of_the_member() {
        let folder = std::env::temp_dir().join(format!("fp-member-key-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let (file, key) = (folder.join("member.key"), SecretKey::from_seed([3; 32]));
        fib::image::replace_with_mode(&file, key.to_hex().as_bytes(), 0o600).unwrap();
        let text = |source: &str, rest: &str| {
            format!(
                "source = '{source}'\npublic_keys = ['{}']\nstore_dir = '/x'\nname = 'a.b'\n{rest}",
                key.public()
            )
        };
        let member_key = format!("member_key = '{}'\n", file.display());
        let (config, wrong) = read(&text("nats://b:1,a/site", &member_key));
        assert!(wrong.is_empty(), "{wrong:?}");
        assert_eq!(config.source.to_string(), "nats://b:1,a:4222/site");
        let BundleSource::Fleet(membership) = config.source else { panic!("no fleet") };
        assert_eq!(membership.key, key);
        for (source, rest, wrong) in [
            ("nats://a/site", String::new(), "source"),
            ("nats://a", member_key.clone(), "source"),
            ("nats://a/b", "member_key = 'missing'\n".into(), "member_key"),
            ("/x", member_key.clone(), "member_key"),
            ("http://a/b", "nats_roots = 'x'\n".into(), "nats_roots"),
            ("in", "nats_credentials = 'x'\n".into(), "nats_credentials"),
        ] {
            let found = read(&text(source, &rest)).1;
            assert_eq!(found, [format!("distribution.{wrong}")], "{source} {rest}");
        }
        let spaced = text("nats://a/b", &member_key).replace("a.b", "a b");
        assert_eq!(read(&spaced).1, ["distribution.name"]);
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn source_is_a_path_or_the_url_of_a_file() {
        let parse = |text: &str| BundleSource::parse(text, Path::new("/etc/x"));
        assert_eq!(parse("in"), Ok(BundleSource::Path("/etc/x/in".into())));
        assert_eq!(parse("/in").unwrap().to_string(), "/in");
        for url in ["http://host/all.bundle", "https://[fd00::1]:81/a/b?c"] {
            assert_eq!(parse(url), Ok(BundleSource::Http(url.parse().unwrap())));
            assert_eq!(parse(url).unwrap().to_string(), url);
        }
        for bad in ["", "ftp://host/x", "http://host", "https://host:x/y", "http://u@host/x"] {
            assert!(parse(bad).is_err(), "{bad}");
        }
        let port = parse("http://host:99999/y").unwrap_err();
        assert!(port.contains("\"http://host:99999/y\" has no valid port"), "{port}");
    }
}
