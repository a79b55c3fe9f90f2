//! The `[distribution]` of a gate's or grantor's configuration.
//!
//! ```toml
//! [distribution]
//! source = "/srv/bundles"      # a bundle, a folder of them (*.bundle), or http://HOST[:PORT]/PATH
//! public_keys = ["d75a…511a"]  # the keys of the signers: fingerpost bundle keygen
//! store_dir = "/var/lib/fingerpost/bundles"
//! name = "gate-1"              # this member's name; default: the host's name
//! poll_interval = "60s"
//! canary_delay = "1h"          # wait of members that are no canary, from the time of packing
//! trial_time = "5m"            # trial of a version before it counts as good
//! max_trial_time = "1h"        # longest trial of a version that decides too few requests
//! max_failure_rate = 0.5       # more failures a second (scripts, flow programs) end the trial
//! min_granted_ratio = 0.5      # fewer grants, relative to before, end the trial; 0: any number
//! max_lost_grantors = 0        # more grantors silent than before end the trial
//! ```
//!
//! What is said here is the machine's own, and needs a restart to change.

use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Deserialize;
use toml::Spanned;

use super::key::PublicKey;
use crate::config::TimeSpan;

const POLL_SECONDS: u64 = 60;
const CANARY_SECONDS: u64 = 3600;
const MAX_CANARY_SECONDS: u64 = 60 << 20;
const TRIAL_SECONDS: u64 = 300;
const DAY: u64 = 86_400;
/// The longest trial of a version that decides too few requests, in trials.
const IDLE_TRIALS: u64 = 12;
const FAILURES: f64 = 0.5;
const GRANTED_FRACTION: f64 = 0.5;

/// How a member comes by bundles, and what it makes of them.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// Where they are.
    pub source: Source,
    /// Who may sign them.
    pub keys: Vec<PublicKey>,
    /// Where those that were taken over are kept.
    pub keep: PathBuf,
    /// What this member is called.
    pub name: String,
    /// How often the source is looked at.
    pub poll: Duration,
    /// How long a member that is no canary waits, from when a bundle was packed.
    pub canary: Duration,
    /// How long a version is on trial.
    pub watch: Duration,
    /// The longest time of a trial with too few requests.
    pub idle: Duration,
    /// What is too bad.
    pub limits: Limits,
}

/// What takes a version back.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Limits {
    /// Failures of scripts and flow programs a second, beyond those there were before.
    pub failures: f64,
    /// What is granted, as a part of what was.
    pub granted: f64,
    /// Grantors that are silent, beyond those that were before.
    pub lost: u64,
}

/// Where bundles are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// A file, or a folder.
    Path(PathBuf),
    /// By HTTP.
    Http {
        /// Its name or address.
        host: String,
        /// Its port.
        port: u16,
        /// What is asked for.
        path: String,
    },
}

/// The shape.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Text {
    source: Spanned<String>,
    public_keys: Spanned<Vec<Spanned<String>>>,
    store_dir: Spanned<PathBuf>,
    name: Option<Spanned<String>>,
    poll_interval: Option<Spanned<TimeSpan>>,
    canary_delay: Option<Spanned<TimeSpan>>,
    trial_time: Option<Spanned<TimeSpan>>,
    max_trial_time: Option<Spanned<TimeSpan>>,
    max_failure_rate: Option<Spanned<f64>>,
    min_granted_ratio: Option<Spanned<f64>>,
    max_lost_grantors: Option<u64>,
}

/// Takes a problem: where it begins in the text, the key, and what is wrong.
pub(crate) type Tell<'a> = &'a mut dyn FnMut(usize, &'static str, String);

/// Reads an address of HTTP.
fn http(url: &str) -> Option<Source> {
    let (authority, path) = url.split_at(url.find('/').unwrap_or(url.len()));
    let (host, port) = match authority.rsplit_once(':').filter(|(_, port)| !port.contains(']')) {
        Some((host, port)) => (host, port.parse().ok()?),
        None => (authority, 80),
    };
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let sound = |byte: u8| byte.is_ascii_graphic() && byte != b'@' && byte != b'#';
    if host.is_empty() || path.is_empty() || !url.bytes().all(sound) {
        return None;
    }
    Some(Source::Http { host: host.to_owned(), port, path: path.to_owned() })
}

impl Settings {
    /// Judges what was read; paths are relative to `beside`.
    pub(crate) fn check(text: Text, beside: &Path, problem: Tell<'_>) -> Self {
        let said = text.source.get_ref();
        let source = match said.split_once("://") {
            None if !said.is_empty() => Source::Path(beside.join(said)),
            Some(("http", url)) if http(url).is_some() => {
                http(url).unwrap_or(Source::Path(PathBuf::new()))
            }
            _ => {
                let what = format!(
                    "{said:?} is no file or folder and no http://HOST[:PORT]/PATH (https is not \
                     spoken: bundles are signed, so that http, rsync or a proxy will do)"
                );
                problem(text.source.span().start, "distribution.source", what);
                Source::Path(PathBuf::new())
            }
        };
        let mut keys = Vec::new();
        for key in text.public_keys.get_ref() {
            match PublicKey::parse(key.get_ref()) {
                Some(key) => keys.push(key),
                None => {
                    let what = "not the 64 hexadecimal digits of an Ed25519 key: fingerpost bundle keygen \
                                writes them";
                    problem(key.span().start, "distribution.public_keys", what.to_owned());
                }
            }
        }
        if text.public_keys.get_ref().is_empty() {
            let what = "there is none: nothing could be taken".to_owned();
            problem(text.public_keys.span().start, "distribution.public_keys", what);
        }
        if !text.store_dir.get_ref().is_absolute() {
            let what = "a folder of this name might be anywhere: begin it with /".to_owned();
            problem(text.store_dir.span().start, "distribution.store_dir", what);
        }
        let at = text.name.as_ref().map_or(0, |name| name.span().start);
        let name = text.name.map_or_else(host_name, Spanned::into_inner);
        if name.is_empty() || name.len() > 255 {
            let what = "a name has 1 to 255 bytes: say one".to_owned();
            problem(at, "distribution.name", what);
        }
        let mut within = |stated, key, default, least, most| {
            let range = TimeSpan::seconds(least)..=TimeSpan::seconds(most);
            TimeSpan::within(stated, TimeSpan::seconds(default), range, &mut |at, what| {
                problem(at, key, what);
            })
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
        if let Some(failures) = failures.as_ref().filter(|it| !(0.0..1e9).contains(it.get_ref())) {
            let what = "not a number from 0 on".to_owned();
            problem(failures.span().start, "distribution.max_failure_rate", what);
        }
        let granted = text.min_granted_ratio;
        if let Some(granted) = granted.as_ref().filter(|it| !(0.0..=1.0).contains(it.get_ref())) {
            let what = "not a number from 0 to 1".to_owned();
            problem(granted.span().start, "distribution.min_granted_ratio", what);
        }
        Self {
            source,
            keys,
            keep: text.store_dir.into_inner(),
            name,
            poll,
            canary,
            watch: trial,
            idle: max_trial,
            limits: Limits {
                failures: failures.map_or(FAILURES, Spanned::into_inner),
                granted: granted.map_or(GRANTED_FRACTION, Spanned::into_inner),
                lost: text.max_lost_grantors.unwrap_or(0),
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
    use super::*;

    fn read(text: &str) -> (Settings, Vec<&'static str>) {
        let mut wrong = Vec::new();
        let text = toml::from_str(text).unwrap();
        let settings = Settings::check(text, Path::new("/etc/x"), &mut |_, key, _| wrong.push(key));
        (settings, wrong)
    }

    #[test]
    fn everything_that_is_wrong_is_named() {
        let key = super::super::key::SecretKey::of([1; 32]).public();
        let good = format!("source = 'in'\npublic_keys = ['{key}']\nstore_dir = '/var/x'\n");
        let (settings, wrong) = read(&good);
        assert!(wrong.is_empty(), "{wrong:?}");
        assert_eq!(settings.source, Source::Path("/etc/x/in".into()));
        assert_eq!((settings.keys[0], settings.poll.as_secs()), (key, 60));
        assert!(!settings.name.is_empty());
        assert_eq!((settings.watch.as_secs(), settings.idle.as_secs()), (300, 3600));
        let (_, wrong) = read(
            "source = 'https://x/y'\npublic_keys = ['00']\nstore_dir = 'x'\nname = ''\n\
             poll_interval = '0s'\ntrial_time = '0s'\nmax_trial_time = '0s'\nmax_failure_rate = -1.0\nmin_granted_ratio = 2.0\n",
        );
        let all = [
            "source",
            "public_keys",
            "store_dir",
            "name",
            "poll_interval",
            "trial_time",
            "max_trial_time",
            "max_failure_rate",
            "min_granted_ratio",
        ];
        assert_eq!(wrong, all.map(|key| format!("distribution.{key}")));
        assert!(read("source = ''\npublic_keys = []\nstore_dir = '/'\n").1.len() == 2);
    }

    #[test]
    fn addresses_of_http_are_read() {
        let of = |host: &str, port, path: &str| {
            Some(Source::Http { host: host.into(), port, path: path.into() })
        };
        assert_eq!(http("host/all.bundle"), of("host", 80, "/all.bundle"));
        assert_eq!(http("10.0.0.1:8080/a/b?c"), of("10.0.0.1", 8080, "/a/b?c"));
        assert_eq!(http("[fd00::1]:81/x"), of("fd00::1", 81, "/x"));
        assert_eq!(http("[fd00::1]/x"), of("fd00::1", 80, "/x"));
        for bad in ["", "/x", "host", "host:x/y", "host:99999/y", "a b/c", "u@host/x", ":80/x"] {
            assert_eq!(http(bad), None, "{bad}");
        }
    }
}
