//! The `[distribution]` of a gate's or grantor's configuration.
//!
//! ```toml
//! [distribution]
//! source = "/srv/bundles"      # a bundle, a folder of them (*.bundle), or http://HOST[:PORT]/PATH
//! public_keys = ["d75a…511a"]  # who may sign: fingerpost bundle keygen
//! keep_dir = "/var/lib/fingerpost/bundles"
//! name = "gate-1"              # this member; the host's name unless said
//! poll_seconds = 60
//! canary_minutes = 60          # how long who is no canary waits, from when the bundle was packed
//! watch_seconds = 300          # how long a version is on trial
//! idle_watch_seconds = 3600    # how long at most, if it decides too few requests to be judged
//! failures_per_second = 0.5    # as many more than before are taken; of scripts and flow programs
//! granted_fraction = 0.5       # of what was granted before; 0: not looked at
//! grantors_lost = 0            # as many more may be silent than before
//! ```
//!
//! What is said here is the machine's own, and needs a restart to change.

use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Deserialize;
use toml::Spanned;

use super::key::PublicKey;

const POLL_SECONDS: u64 = 60;
const CANARY_MINUTES: u64 = 60;
const WATCH_SECONDS: u64 = 300;
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
    keep_dir: Spanned<PathBuf>,
    name: Option<Spanned<String>>,
    poll_seconds: Option<Spanned<u64>>,
    canary_minutes: Option<Spanned<u64>>,
    watch_seconds: Option<Spanned<u64>>,
    idle_watch_seconds: Option<Spanned<u64>>,
    failures_per_second: Option<Spanned<f64>>,
    granted_fraction: Option<Spanned<f64>>,
    grantors_lost: Option<u64>,
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

fn within(
    said: Option<Spanned<u64>>,
    key: &'static str,
    otherwise: u64,
    least: u64,
    most: u64,
    problem: Tell<'_>,
) -> u64 {
    let Some(said) = said else { return otherwise };
    if !(least..=most).contains(said.get_ref()) {
        problem(said.span().start, key, format!("not within {least} and {most}"));
    }
    said.into_inner()
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
        if !text.keep_dir.get_ref().is_absolute() {
            let what = "a folder of this name might be anywhere: begin it with /".to_owned();
            problem(text.keep_dir.span().start, "distribution.keep_dir", what);
        }
        let at = text.name.as_ref().map_or(0, |name| name.span().start);
        let name = text.name.map_or_else(host_name, Spanned::into_inner);
        if name.is_empty() || name.len() > 255 {
            let what = "a name has 1 to 255 bytes: say one".to_owned();
            problem(at, "distribution.name", what);
        }
        let poll = within(
            text.poll_seconds,
            "distribution.poll_seconds",
            POLL_SECONDS,
            1,
            86_400,
            problem,
        );
        let canary = within(
            text.canary_minutes,
            "distribution.canary_minutes",
            CANARY_MINUTES,
            0,
            1 << 20,
            problem,
        );
        let watch = within(
            text.watch_seconds,
            "distribution.watch_seconds",
            WATCH_SECONDS,
            1,
            86_400,
            problem,
        );
        let idle = within(
            text.idle_watch_seconds,
            "distribution.idle_watch_seconds",
            watch.saturating_mul(IDLE_TRIALS),
            watch.max(1),
            12 * 86_400,
            problem,
        );
        let failures = text.failures_per_second;
        if let Some(failures) = failures.as_ref().filter(|it| !(0.0..1e9).contains(it.get_ref())) {
            let what = "not a number from 0 on".to_owned();
            problem(failures.span().start, "distribution.failures_per_second", what);
        }
        let granted = text.granted_fraction;
        if let Some(granted) = granted.as_ref().filter(|it| !(0.0..=1.0).contains(it.get_ref())) {
            let what = "not a number from 0 to 1".to_owned();
            problem(granted.span().start, "distribution.granted_fraction", what);
        }
        Self {
            source,
            keys,
            keep: text.keep_dir.into_inner(),
            name,
            poll: Duration::from_secs(poll),
            canary: Duration::from_secs(60 * canary),
            watch: Duration::from_secs(watch),
            idle: Duration::from_secs(idle),
            limits: Limits {
                failures: failures.map_or(FAILURES, Spanned::into_inner),
                granted: granted.map_or(GRANTED_FRACTION, Spanned::into_inner),
                lost: text.grantors_lost.unwrap_or(0),
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
        let good = format!("source = 'in'\npublic_keys = ['{key}']\nkeep_dir = '/var/x'\n");
        let (settings, wrong) = read(&good);
        assert!(wrong.is_empty(), "{wrong:?}");
        assert_eq!(settings.source, Source::Path("/etc/x/in".into()));
        assert_eq!((settings.keys[0], settings.poll.as_secs()), (key, 60));
        assert!(!settings.name.is_empty());
        assert_eq!((settings.watch.as_secs(), settings.idle.as_secs()), (300, 3600));
        let (_, wrong) = read(
            "source = 'https://x/y'\npublic_keys = ['00']\nkeep_dir = 'x'\nname = ''\n\
             poll_seconds = 0\nwatch_seconds = 0\nidle_watch_seconds = 0\nfailures_per_second = -1.0\ngranted_fraction = 2.0\n",
        );
        let all = [
            "source",
            "public_keys",
            "keep_dir",
            "name",
            "poll_seconds",
            "watch_seconds",
            "idle_watch_seconds",
            "failures_per_second",
            "granted_fraction",
        ];
        assert_eq!(wrong, all.map(|key| format!("distribution.{key}")));
        assert!(read("source = ''\npublic_keys = []\nkeep_dir = '/'\n").1.len() == 2);
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
