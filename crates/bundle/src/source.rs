//! The source of bundles: a file, a folder, an HTTP URL or a fleet, which the agent polls.
//!
//! ```text
//!   path: size, modification time, inode ───────────┬─ unchanged ─► nothing new
//!   http, https: the conditional request of `fetch` ┤
//!   nats: what the thread of `fleet` has read ──────┘
//!                                           otherwise ─► bytes, at most those of a bundle
//! ```
//!
//! A source is not trusted: it can withhold bundles, and nothing else. The client follows no
//! redirects, and trusts the system's root certificates. A folder may hold [`MAX_FOLDER_BUNDLES`]
//! bundles, whose names end with `.bundle`; each is delivered and freed before the next is read, and
//! the caller uses the highest version. A path that is larger than a bundle, or not a regular file,
//! is refused unread, by its metadata.

use std::fs::{self, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use api::{AttackReport, DistributionStatus};
use fetch::{Client, Fetched};
use fleet::MemberConnection;
use nix::fcntl::OFlag;

use super::bundle::{BundleError, MAX_BUNDLE_BYTES};
use super::config::{BundleSource, DistributionConfig};
use super::key::SecretKey;
use super::state::{ATTACK_INTERVAL, MemberState, STATE_INTERVAL};
use threads::Stop;

/// Interval at which bundles of a fleet are taken from its thread: that of health samples.
const FLEET_INTERVAL: Duration = Duration::from_secs(1);
/// Most bundles in a folder.
const MAX_FOLDER_BUNDLES: usize = 64;

/// The bytes of a possible bundle, or the reason why they were not read.
pub(super) type ReadResult = Result<Vec<u8>, String>;

/// Path, size, modification time (seconds, nanoseconds) and inode of a file.
type FileStamp = (PathBuf, u64, i64, i64, u64);

/// The state of repeated polls of a source.
#[derive(Debug)]
pub(super) enum SourcePoller {
    /// A bundle, or a folder of bundles, with the stamps of the files that were delivered.
    Path { path: PathBuf, stamps: Vec<FileStamp> },
    /// An HTTP server.
    Http(Box<Client>),
    /// A fleet.
    Fleet(Box<FleetPoller>),
}

/// The connection to a fleet, and the state that was published last.
#[derive(Debug)]
pub(super) struct FleetPoller {
    connection: MemberConnection,
    key: SecretKey,
    published: Option<(Instant, DistributionStatus, Option<AttackReport>)>,
}

impl FleetPoller {
    /// Publishes the member's state if it has changed, or if the last one is old.
    fn publish(&mut self, mut status: DistributionStatus, attack: Option<AttackReport>) {
        // The counters and the remaining time change all the time, and say nothing about the rollout.
        status.counts.clear();
        status.remaining_seconds = None;
        if let Some((at, last, reported)) = &self.published {
            // The counts of an attack change all the time, too.
            let limit = if attack == *reported { STATE_INTERVAL } else { ATTACK_INTERVAL };
            if at.elapsed() < limit && *last == status {
                return;
            }
        }
        let state = MemberState::now(self.connection.url().fleet(), status.clone(), attack.clone());
        self.connection.publish(state.sign(&self.key));
        self.published = Some((Instant::now(), status, attack));
    }
}

impl SourcePoller {
    /// Creates the poller of a member's source.
    ///
    /// # Errors
    ///
    /// The system's error for the thread of a fleet.
    pub(super) fn new(config: &DistributionConfig) -> io::Result<Self> {
        Ok(match &config.source {
            BundleSource::Path(path) => Self::Path { path: path.clone(), stamps: Vec::new() },
            BundleSource::Http(url) => {
                Self::Http(Box::new(Client::new(url.clone(), MAX_BUNDLE_BYTES)))
            }
            BundleSource::Fleet(membership) => {
                let (url, access) = (membership.url.clone(), membership.access.clone());
                let interval = config.poll_interval;
                let connection =
                    MemberConnection::start(url, access, &config.name, interval, MAX_BUNDLE_BYTES)?;
                let key = membership.key.clone();
                Self::Fleet(Box::new(FleetPoller { connection, key, published: None }))
            }
        })
    }

    /// Returns the interval of polls. A fleet's thread has the configured interval, and what it has read
    /// is taken soon.
    pub(super) fn interval(&self, configured: Duration) -> Duration {
        if matches!(self, Self::Fleet(_)) { FLEET_INTERVAL } else { configured }
    }

    /// Publishes the member's state to its fleet, if it has one.
    pub(super) fn publish(
        &mut self,
        status: &DistributionStatus,
        attack: impl FnOnce() -> Option<AttackReport>,
    ) {
        if let Self::Fleet(poller) = self {
            poller.publish(status.clone(), attack());
        }
    }

    /// Delivers the contents of the source, each with its name, unless they are unchanged. Returns
    /// whether it delivered them.
    ///
    /// # Errors
    ///
    /// The path or URL, and the I/O error or the status of the server.
    pub(super) fn poll(
        &mut self,
        stop: &Stop,
        deliver: &mut dyn FnMut(String, ReadResult),
    ) -> Result<bool, String> {
        match self {
            Self::Path { path, stamps } => {
                let at_path = |error: io::Error| format!("{}: {error}", path.display());
                poll_path(path, stamps, deliver).map_err(at_path)
            }
            Self::Http(client) => match client.get(stop).map_err(|error| error.to_string())? {
                Fetched::NotModified => Ok(false),
                Fetched::New(bytes) => {
                    deliver(client.url().to_string(), Ok(bytes));
                    Ok(true)
                }
            },
            Self::Fleet(poller) => match poller.connection.take_bundle()? {
                None => Ok(false),
                Some((name, bytes)) => {
                    deliver(name, Ok(bytes));
                    Ok(true)
                }
            },
        }
    }

    /// Takes the signed list of a fleet's blocked prefixes, if there is one that was not taken yet.
    pub(super) fn take_blocks(&self) -> Option<Vec<u8>> {
        match self {
            Self::Fleet(poller) => poller.connection.take_blocks(),
            Self::Path { .. } | Self::Http(_) => None,
        }
    }

    /// Makes the next poll deliver the contents even if they are unchanged.
    pub(super) fn reset(&mut self) {
        match self {
            Self::Path { stamps, .. } => stamps.clear(),
            Self::Http(client) => client.reset(),
            Self::Fleet(poller) => poller.connection.read_again(),
        }
    }
}

fn poll_path(
    path: &Path,
    delivered: &mut Vec<FileStamp>,
    deliver: &mut dyn FnMut(String, ReadResult),
) -> io::Result<bool> {
    let mut paths = Vec::new();
    if fs::metadata(path)?.is_dir() {
        for entry in fs::read_dir(path)? {
            let path = entry?.path();
            if path.extension().is_none_or(|extension| extension != "bundle") {
                continue;
            }
            if paths.len() == MAX_FOLDER_BUNDLES {
                let what = format!("more than {MAX_FOLDER_BUNDLES} bundles: remove old ones");
                return Err(io::Error::other(what));
            }
            paths.push(path);
        }
        paths.sort();
    } else {
        paths.push(path.to_owned());
    }
    let mut stamps: Vec<FileStamp> = Vec::new();
    for path in paths {
        let meta = fs::metadata(&path)?;
        stamps.push((path, meta.len(), meta.mtime(), meta.mtime_nsec(), meta.ino()));
    }
    if stamps.is_empty() || stamps == *delivered {
        return Ok(false);
    }
    for (path, ..) in &stamps {
        deliver(path.display().to_string(), read(path));
    }
    // A file that is written meanwhile has another time or size, and is read at the next poll.
    *delivered = stamps;
    Ok(true)
}

/// Reads a regular file of at most the size of a bundle.
fn read(path: &Path) -> ReadResult {
    let failed = |error: io::Error| error.to_string();
    // Opening a pipe would wait for its other end.
    let mut options = OpenOptions::new();
    let options = options.read(true).custom_flags(OFlag::O_NONBLOCK.bits());
    let file = options.open(path).map_err(failed)?;
    let meta = file.metadata().map_err(failed)?;
    if !meta.is_file() {
        return Err("not a regular file".to_owned());
    }
    if meta.len() > MAX_BUNDLE_BYTES as u64 {
        return Err(BundleError::TooLarge(meta.len() as usize).to_string());
    }
    let mut bytes = Vec::with_capacity(meta.len() as usize + 1);
    // The file may grow meanwhile: one byte above the limit shows that it is too large.
    file.take(MAX_BUNDLE_BYTES as u64 + 1).read_to_end(&mut bytes).map_err(failed)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader, Write};
    use std::net::TcpListener;
    use std::thread;

    use super::*;

    fn poller(source: BundleSource) -> SourcePoller {
        SourcePoller::new(&DistributionConfig::for_tests(source)).unwrap()
    }

    fn all(poller: &mut SourcePoller) -> Result<Vec<Vec<u8>>, String> {
        let mut heard = Vec::new();
        let new = poller.poll(&Stop::default(), &mut |_, bytes| heard.push(bytes.unwrap()))?;
        assert_eq!(new, !heard.is_empty());
        Ok(heard)
    }

    #[test]
    fn changed_file_or_folder_is_delivered_once() {
        let folder = std::env::temp_dir().join(format!("fingerpost-source-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let file = folder.join("one.bundle");
        let mut one = poller(BundleSource::Path(file.clone()));
        assert!(all(&mut one).unwrap_err().contains("one.bundle: No such file"));
        let mut both = poller(BundleSource::Path(folder.clone()));
        assert!(all(&mut both).unwrap().is_empty());
        fs::write(&file, b"first").unwrap();
        fs::write(folder.join("notes.txt"), b"").unwrap();
        for poller in [&mut one, &mut both] {
            assert_eq!(all(poller).unwrap(), [b"first"]);
            assert!(all(poller).unwrap().is_empty(), "unchanged");
            poller.reset();
            assert_eq!(all(poller).unwrap(), [b"first"]);
        }
        fs::write(folder.join("two.bundle"), b"second").unwrap();
        assert!(all(&mut one).unwrap().is_empty());
        assert_eq!(all(&mut both).unwrap(), [&b"first"[..], b"second"]);
        // Replaced as rsync does it: another file of the same name and size.
        fs::write(folder.join("new"), b"other").unwrap();
        fs::rename(folder.join("new"), &file).unwrap();
        assert_eq!(all(&mut one).unwrap(), [b"other"]);
        for at in 0..MAX_FOLDER_BUNDLES {
            fs::write(folder.join(format!("{at}.bundle")), b"x").unwrap();
        }
        assert!(all(&mut both).unwrap_err().contains("more than 64"));
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn too_large_or_irregular_file_is_refused_unread() {
        let folder = std::env::temp_dir().join(format!("fp-unread-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        // A sparse file of 1 TiB, and a pipe without a writer.
        fs::File::create(folder.join("long.bundle")).unwrap().set_len(1 << 40).unwrap();
        nix::unistd::mkfifo(&folder.join("pipe.bundle"), nix::sys::stat::Mode::S_IRUSR).unwrap();
        fs::write(folder.join("valid.bundle"), b"valid").unwrap();
        let mut poller = poller(BundleSource::Path(folder.clone()));
        let mut offered = Vec::new();
        poller.poll(&Stop::default(), &mut |_, bytes| offered.push(bytes)).unwrap();
        let large = BundleError::TooLarge(1 << 40).to_string();
        assert_eq!(
            offered,
            [Err(large), Err("not a regular file".to_owned()), Ok(b"valid".to_vec())]
        );
        fs::remove_dir_all(&folder).unwrap();
    }

    /// Sends each response once, and returns the request headers.
    fn serve(responses: Vec<&'static str>) -> (u16, thread::JoinHandle<Vec<String>>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let serving = thread::spawn(move || {
            let mut requests = Vec::new();
            for response in responses {
                let (mut stream, _) = listener.accept().unwrap();
                let lines = BufReader::new(&stream).lines().map(Result::unwrap);
                requests
                    .push(lines.take_while(|line| !line.is_empty()).collect::<Vec<_>>().join("\n"));
                let _ = stream.write_all(response.as_bytes());
            }
            requests
        });
        (port, serving)
    }

    #[test]
    fn unchanged_bundle_of_a_server_is_delivered_once_until_a_reset() {
        let new = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nETag: \"a\"\r\n\r\nfirst";
        let same = "HTTP/1.1 304 Not Modified\r\n\r\n";
        let large = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", MAX_BUNDLE_BYTES + 1);
        let redirect = "HTTP/1.1 302 Found\r\nLocation: /x\r\nContent-Length: 0\r\n\r\n";
        let (port, serving) = serve(vec![new, same, new, large.leak(), redirect]);
        let url = format!("http://127.0.0.1:{port}/all.bundle");
        let mut poller = poller(BundleSource::Http(url.parse().unwrap()));
        assert_eq!(all(&mut poller).unwrap(), [b"first"]);
        assert!(all(&mut poller).unwrap().is_empty());
        poller.reset();
        assert_eq!(all(&mut poller).unwrap(), [b"first"]);
        for cause in ["larger than", "302 Found: set the URL that it redirects to"] {
            let error = all(&mut poller).unwrap_err();
            assert!(error.starts_with(&format!("{url}: ")) && error.contains(cause), "{error}");
        }
        let requests = serving.join().unwrap();
        assert!(requests[0].starts_with("GET /all.bundle HTTP/1.1"), "{}", requests[0]);
        let is_conditional = |i: usize| requests[i].contains("if-none-match: \"a\"");
        assert!(!is_conditional(0) && is_conditional(1) && !is_conditional(2), "{requests:?}");
    }
}
