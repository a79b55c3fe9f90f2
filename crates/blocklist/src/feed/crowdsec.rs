//! A list of the bans of a CrowdSec engine, by the decision stream of its Local API.
//!
//! ```text
//!             ┌──────────────── error, or an hour later ────────────────┐
//!             ▼                                                         │
//!   full pull: startup=true ──► delta pull: startup=false ──► delta pull … every interval
//!        │ the whole set            │ new and ended decisions since the last pull
//!        ▼                          ▼
//!   Decisions, by their ids ─► the latest end of each prefix ─► text of the list, if it differs
//! ```
//!
//! The engine remembers for each key when it was last used, and a delta pull returns the decisions
//! that were created or have ended since then. A response that is lost is lost for good, and so the
//! pull after any error is a full one, as is the first. So each process needs a key of its own: of
//! two that share one, each receives a part of the changes until its next full pull. (Engines from
//! 1.6.4 distinguish hosts that share a key.)
//!
//! The pulls have `dedup=false`. Without it the engine hides a decision while a longer one names
//! the same value, even if that is simulated and so not reported either; and the deletion of the
//! longer one is not reported then. With it each decision is reported when it is created and when
//! it ends, and the ids in `deleted` are those in `new`, so that the end of a decision removes only
//! that one. Engines before 1.4.2 do not know the parameter; there a full pull reports what was
//! hidden.
//!
//! An end that no delta reports is that of a decision that the engine erases: with its alert
//! (`cscli alerts delete`), or when the community list replaces one of its decisions by another of
//! the same value. Until its own end it stays in force here, or until the next full pull, an hour
//! at most.
//!
//! The end of a decision is computed once, when it arrives: that it has `3h59m51.3s` left is true
//! only then. So time alone changes no text. A line past its end has no effect in the list, and is
//! removed when another changes.
//!
//! Decisions of another type than `ban`, and of other scopes than `Ip` and `Range`, are not
//! applied; one warning a kind counts them. The engine leaves simulated decisions out.
//!
//! Limits: 256 MiB and 60 s a response (crate `fetch`), which are some 1.5 million decisions. An
//! engine that sends its responses in chunks (1.7.8, earlier ones on request) and fails to read its
//! database on the way ends the response as if it were complete; the next full pull repairs the
//! list.
//!
//! Source: `pkg/models/localapi_swagger.yaml`, `pkg/apiserver/controllers/v1/decisions.go` and
//! `pkg/database/decisions.go` of CrowdSec 1.4.6 and 1.7.8, and the responses of Debian's 1.4.6.

mod decisions;
mod duration;
mod pull;
#[cfg(test)]
mod tests;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::{Duration, Instant};

use fetch::{Client, FetchCause, Url};
use jiff::Timestamp;
use threads::Stop;

use self::decisions::Decisions;
use self::pull::Pull;
use super::Feed;

/// The time between two pulls of CrowdSec's own bouncers.
pub const DEFAULT_INTERVAL: Duration = Duration::from_secs(10);
/// The most bytes of a response.
const MAX_BYTES: usize = 256 << 20;
/// The time after which the whole set is pulled again.
const FULL_PULL_INTERVAL: Duration = Duration::from_secs(3600);
/// The path of the stream. The scopes that no list can have are requested in order to count them.
const STREAM: &str = "/v1/decisions/stream";
const PARAMETERS: &str = "scopes=ip,range,country,as&dedup=false";

/// The bans of a CrowdSec engine.
#[derive(Debug)]
pub struct CrowdsecFeed {
    client: Client,
    /// The path of the stream at the server.
    path: String,
    interval: Duration,
    full_interval: Duration,
    decisions: Decisions,
    /// The time of the last full pull; `None` if the next pull has to be one.
    last_full: Option<Instant>,
    /// The text that was returned last, unless it was not written.
    text: Option<Vec<u8>>,
}

impl CrowdsecFeed {
    /// Creates a feed of the engine at `url`, with the key of a bouncer.
    ///
    /// # Errors
    ///
    /// A URL with a query, a key that no header can hold, or an interval of zero.
    pub fn new(url: Url, key: &str, interval: Duration) -> Result<Self, String> {
        if url.path().contains('?') {
            return Err(format!(
                "{url}: the URL of CrowdSec's Local API has no query: remove the part from \"?\""
            ));
        }
        if interval.is_zero() {
            return Err(format!("{url}: the time between two polls is zero: set at least 1 s"));
        }
        let path = format!("{}{STREAM}", url.path().trim_end_matches('/'));
        let client = Client::new(url, MAX_BYTES).with_header("X-Api-Key", key);
        let client = client.map_err(|error| format!("the key of CrowdSec: {error}"))?;
        Ok(Self {
            client,
            path,
            interval,
            full_interval: FULL_PULL_INTERVAL,
            decisions: Decisions::default(),
            last_full: None,
            text: None,
        })
    }

    /// Pulls the whole set, or the changes; returns whether the decisions may have changed.
    fn pull(&mut self, stop: &Stop) -> Result<bool, String> {
        let full = self.last_full.take().filter(|at| at.elapsed() < self.full_interval);
        let is_full = full.is_none();
        let path = format!("{}?startup={is_full}&{PARAMETERS}", self.path);
        // An error is the same text at each poll, so that it is logged once: without the query.
        let at = |cause: String| format!("{STREAM}: {cause}");
        let body = self.client.get_path(&path, stop).map_err(|error| at(describe(&error.cause)))?;
        let pull = Pull::parse(&body).map_err(at)?;
        let changed = self.decisions.apply(&pull, is_full, Timestamp::now());
        for warning in self.decisions.take_warnings() {
            log::warn!("crowdsec {}: {warning}", self.client.url());
        }
        // Until here any error makes the next pull a full one.
        self.last_full = full.or_else(|| Some(Instant::now()));
        Ok(changed)
    }
}

impl Feed for CrowdsecFeed {
    fn poll(&mut self, stop: &Stop) -> Result<Option<Vec<u8>>, String> {
        if !self.pull(stop)? && self.text.is_some() {
            return Ok(None);
        }
        let text = self.decisions.render(Timestamp::now());
        if self.text.as_ref() == Some(&text) {
            return Ok(None);
        }
        self.text = Some(text.clone());
        Ok(Some(text))
    }

    fn written(&mut self, result: Result<(), ()>) {
        if result.is_err() {
            self.text = None;
        }
    }

    fn interval(&self) -> Duration {
        self.interval
    }
}

/// Describes why a pull failed, with the remedy for what an operator can have set wrong.
fn describe(cause: &FetchCause) -> String {
    match cause {
        FetchCause::Status { code: 401 | 403, .. } => format!(
            "{cause}, which comes from the file of --crowdsec-key, or of `crowdsec_key` in [block]: \
             `cscli bouncers add NAME -o raw` creates one"
        ),
        FetchCause::Status { code: 404, .. } => {
            format!("{cause}: it is that of CrowdSec's Local API, without \"/v1\"")
        }
        _ => cause.to_string(),
    }
}

/// Reads the key of a bouncer from a file. Logs a warning if users outside the file's group may
/// read it.
///
/// # Errors
///
/// The file cannot be read, or holds no key or more than one word.
pub fn read_key(path: &Path) -> Result<String, String> {
    let shown = path.display();
    let reading = |error| format!("reading CrowdSec's key from {shown}: {error}");
    let mode = fs::metadata(path).map_err(reading)?.permissions().mode();
    let text = fs::read_to_string(path).map_err(reading)?;
    let mut words = text.split_whitespace();
    let remedy = "`cscli bouncers add NAME -o raw` prints one";
    let Some(key) = words.next() else {
        return Err(format!("{shown}: there is no key of CrowdSec in the file: {remedy}"));
    };
    if words.next().is_some() {
        return Err(format!("{shown}: the file has more than the key of CrowdSec: {remedy}"));
    }
    if mode & 0o007 != 0 {
        log::warn!("{shown}: all users may read the key of CrowdSec: chmod o= {shown}");
    }
    Ok(key.to_owned())
}
