//! The source of a list.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use feed::AnyPrefix;
use fetch::{Url, UrlError};
use flowspec::FlowspecOptions;

use crate::ListError;
use crate::feed::FeedThread;
use crate::feed::crowdsec::{CrowdsecFeed, read_key};
use crate::feed::flowspec::FlowspecFeed;
use crate::feed::http::HttpFeed;
use crate::feed::routes::RoutesFeed;
use crate::place::Place;

/// The longest name of a file (`NAME_MAX`), less the letters around it in that of its validators, and around that one
/// while it is written.
const MAX_NAME: usize = 255 - 10;

/// The place where a list's prefixes come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// A file, or a folder whose files are one list.
    Path(PathBuf),
    /// A file that orders to ban and to lift a ban change.
    Bans(PathBuf),
    /// The sources that a gate's policy allows, which the gate sets again when its policy changes
    /// ([`BlockLists::set_allowed`](crate::BlockLists::set_allowed)).
    Policy(Arc<[AnyPrefix]>),
    /// A file at a URL, fetched once in an interval.
    Url(Url, Duration),
    /// The decisions of a CrowdSec engine.
    Crowdsec {
        /// The URL of its Local API.
        url: Url,
        /// The file with the key of this bouncer.
        key_file: PathBuf,
        /// The time between two requests.
        interval: Duration,
    },
    /// The prefixes of the routes in one of the kernel's tables.
    Table(u32),
    /// The sources that BGP flow specifications discard.
    Flowspec(FlowspecOptions),
}

impl Source {
    /// Reads the source of a list: a URL that is fetched once in `interval`, or a path, relative to `folder`.
    ///
    /// # Errors
    ///
    /// A URL that is none.
    pub fn parse(text: &str, folder: &Path, interval: Duration) -> Result<Self, UrlError> {
        match text.starts_with("http://") || text.starts_with("https://") {
            true => Ok(Self::Url(text.parse()?, interval)),
            false => Ok(Self::Path(folder.join(text))),
        }
    }

    /// Checks what the source needs before any list is read.
    ///
    /// # Errors
    ///
    /// A file of a key that cannot be read.
    pub(crate) fn check(&self) -> Result<(), ListError> {
        match self {
            Self::Crowdsec { key_file, .. } => read_key(key_file).map(drop).map_err(ListError::new),
            _ => Ok(()),
        }
    }

    /// Returns where the list is read from: its file, or that of its feed in the folder `cache`.
    ///
    /// # Errors
    ///
    /// A URL that is too long for the name of a file.
    pub(crate) fn place(&self, cache: &Path) -> Result<Place, ListError> {
        match self {
            Self::Path(path) | Self::Bans(path) => Ok(Place::File(path.clone())),
            Self::Policy(prefixes) => Ok(Place::memory(Arc::clone(prefixes))),
            _ => {
                let name = file_name(&self.to_string());
                if name.len() > MAX_NAME {
                    return Err(ListError::new(format!("{self}: the URL is too long")));
                }
                Ok(Place::File(cache.join(name)))
            }
        }
    }

    /// Returns whether the list comes from outside.
    pub(crate) fn is_feed(&self) -> bool {
        !matches!(self, Self::Path(_) | Self::Bans(_) | Self::Policy(_))
    }

    /// Returns whether the source states each prefix that leaves the list, so that many may leave it at once.
    pub(crate) fn withdraws(&self) -> bool {
        matches!(self, Self::Crowdsec { .. } | Self::Table(_) | Self::Flowspec(_) | Self::Policy(_))
    }

    /// Starts the thread that keeps `file` up to date, if the list comes from outside.
    ///
    /// # Errors
    ///
    /// A thread or a socket that the kernel refuses; a key that no header can have.
    pub(crate) fn start(&self, file: &Path) -> Result<Option<FeedThread>, ListError> {
        let (name, file) = (self.to_string(), file.to_owned());
        let failed = |error: String| ListError::new(format!("{self}: {error}"));
        let started = match self {
            Self::Path(_) | Self::Bans(_) | Self::Policy(_) => return Ok(None),
            Self::Url(url, interval) => {
                FeedThread::start(&name, HttpFeed::new(url.clone(), *interval, &file), file)
            }
            Self::Crowdsec { url, key_file, interval } => {
                let key = read_key(key_file).map_err(ListError::new)?;
                let feed = CrowdsecFeed::new(url.clone(), &key, *interval).map_err(failed)?;
                FeedThread::start(&name, feed, file)
            }
            Self::Table(table) => {
                let feed = RoutesFeed::new(*table).map_err(failed)?;
                FeedThread::start(&name, feed, file)
            }
            Self::Flowspec(options) => {
                let feed = FlowspecFeed::new(options.clone()).map_err(failed)?;
                FeedThread::start(&name, feed, file)
            }
        };
        started.map(Some).map_err(|error| failed(format!("starting its thread: {error}")))
    }
}

/// Returns `text` with what cannot be in the name of a file as `%` and two digits, and so any other text another name.
fn file_name(text: &str) -> String {
    let mut name = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' => name.push(byte.into()),
            _ => name.push_str(&format!("%{byte:02x}")),
        }
    }
    name
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Path(path) | Self::Bans(path) => path.display().fmt(f),
            Self::Policy(_) => f.write_str("[allow]"),
            Self::Url(url, _) => url.fmt(f),
            Self::Crowdsec { url, .. } => write!(f, "crowdsec {url}"),
            Self::Table(table) => write!(f, "table {table}"),
            Self::Flowspec(options) => write!(f, "flowspec {}", options.listen),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_of_a_feed_has_a_name_of_its_own() {
        let file = |text: &str| {
            let source = Source::Url(text.parse().unwrap(), Duration::from_secs(1));
            match source.place(Path::new("/cache")).unwrap() {
                Place::File(path) => path.display().to_string(),
                place => panic!("{place:?}"),
            }
        };
        let name = "/cache/https%3a%2f%2flists.example%2fa%2fb.netset";
        assert_eq!(file("https://lists.example/a/b.netset"), name);
        assert_ne!(file("http://lists.example/a_b"), file("http://lists.example/a/b"));
        let long = format!("http://lists.example/{}", "a".repeat(250));
        let source = Source::Url(long.parse().unwrap(), Duration::from_secs(1));
        assert!(source.place(Path::new("/")).unwrap_err().to_string().contains("too long"));
    }
}
