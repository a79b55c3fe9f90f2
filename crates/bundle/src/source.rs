//! The source of bundles: a file, a folder, or an HTTP URL, which the agent polls.
//!
//! ```text
//!   path: size, modification time, inode ───────────┬─ unchanged ─► nothing new
//!   http: If-None-Match, If-Modified-Since ──► 304 ─┘
//!                                           otherwise ─► bytes, at most those of a bundle
//! ```
//!
//! `Last-Modified` has a resolution of a second. So the poller stores the validators of a response
//! only if the content was at least [`MIN_AGE`] old: it never misses a quick replacement.
//!
//! A source is not trusted: it can withhold bundles, and nothing else. The poller follows no
//! redirects. A folder may hold [`MAX_FOLDER_BUNDLES`] bundles, whose names end with `.bundle`; each
//! is delivered and freed before the next is read, and the caller uses the highest version. A path
//! that is larger than a bundle, or not a regular file, is refused unread, by its metadata.

use std::fs::{self, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::time::{Duration, Instant};

use http_body_util::{BodyExt, Empty, Limited};
use hyper::body::Bytes;
use hyper::header::{
    CONNECTION, DATE, ETAG, HOST, HeaderMap, HeaderName, HeaderValue, IF_MODIFIED_SINCE,
    IF_NONE_MATCH, LAST_MODIFIED,
};
use hyper::{Request, StatusCode};
use hyper_util::rt::TokioIo;
use nix::fcntl::OFlag;
use tokio::net::TcpStream;
use tokio::runtime;

use super::bundle::{BundleError, MAX_BUNDLE_BYTES};
use super::config::BundleSource;
use threads::Stop;

/// Most bundles in a folder.
const MAX_FOLDER_BUNDLES: usize = 64;
/// Time limit of an HTTP response, with its body.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(60);
/// Least age of content whose modification time identifies it.
const MIN_AGE: Duration = Duration::from_secs(2);
/// Interval of checks whether the agent stops.
const STOP_CHECK_INTERVAL: Duration = Duration::from_millis(100);

/// The bytes of a possible bundle, or the reason why they were not read.
pub(super) type ReadResult = Result<Vec<u8>, String>;

/// Path, size, modification time (seconds, nanoseconds) and inode of a file.
type FileStamp = (PathBuf, u64, i64, i64, u64);

/// The state of repeated polls of a source.
#[derive(Debug)]
pub(super) struct SourcePoller {
    source: BundleSource,
    stamps: Vec<FileStamp>,
    /// `ETag` and `Last-Modified` of the last response (RFC 9110, 8.8).
    validators: [Option<HeaderValue>; 2],
}

impl SourcePoller {
    pub(super) fn new(source: BundleSource) -> Self {
        Self { source, stamps: Vec::new(), validators: [None, None] }
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
        match self.source.clone() {
            BundleSource::Path(path) => {
                let at_path = |error: io::Error| format!("{}: {error}", path.display());
                self.poll_path(&path, deliver).map_err(at_path)
            }
            BundleSource::Http { host, port, path } => {
                let url = format!("http://{host}:{port}{path}");
                let fetched = self.fetch(&host, port, &path, stop);
                match fetched.map_err(|error| format!("{url}: {error}"))? {
                    Some(bytes) => deliver(url, Ok(bytes)),
                    None => return Ok(false),
                }
                Ok(true)
            }
        }
    }

    /// Makes the next poll deliver the contents even if they are unchanged.
    pub(super) fn reset(&mut self) {
        self.stamps.clear();
        self.validators = [None, None];
    }

    fn poll_path(
        &mut self,
        path: &Path,
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
        if stamps.is_empty() || stamps == self.stamps {
            return Ok(false);
        }
        for (path, ..) in &stamps {
            deliver(path.display().to_string(), read(path));
        }
        // A file that is written meanwhile has another time or size, and is read at the next poll.
        self.stamps = stamps;
        Ok(true)
    }

    fn fetch(
        &mut self,
        host: &str,
        port: u16,
        path: &str,
        stop: &Stop,
    ) -> Result<Option<Vec<u8>>, String> {
        let built = runtime::Builder::new_current_thread().enable_io().enable_time().build();
        let runtime = built.map_err(|error| error.to_string())?;
        let validators = &self.validators;
        let fetched = runtime.block_on(async {
            let mut getting = pin!(get(host, port, path, validators));
            let begin = Instant::now();
            loop {
                if let Ok(fetched) =
                    tokio::time::timeout(STOP_CHECK_INTERVAL, getting.as_mut()).await
                {
                    return fetched;
                }
                if stop.is_set() {
                    return Err("interrupted: the process ends".to_owned());
                }
                if begin.elapsed() > RESPONSE_TIMEOUT {
                    return Err(format!(
                        "no complete response within {} s",
                        RESPONSE_TIMEOUT.as_secs()
                    ));
                }
            }
        });
        // Does not wait for a name lookup that is still running.
        runtime.shutdown_background();
        Ok(fetched?.map(|(bytes, validators)| {
            self.validators = validators;
            bytes
        }))
    }
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

type Fetched = Option<(Vec<u8>, [Option<HeaderValue>; 2])>;

async fn get(
    host: &str,
    port: u16,
    path: &str,
    validators: &[Option<HeaderValue>; 2],
) -> Result<Fetched, String> {
    let text = |error: &dyn std::fmt::Display| error.to_string();
    let stream = TcpStream::connect((host, port)).await.map_err(|error| text(&error))?;
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.map_err(|e| text(&e))?;
    // The task ends with the response, or with the runtime.
    tokio::spawn(connection);
    let bracket = if host.contains(':') { format!("[{host}]") } else { host.to_owned() };
    let mut request = Request::get(path)
        .header(HOST, format!("{bracket}:{port}"))
        .header(CONNECTION, "close")
        .body(Empty::<Bytes>::new())
        .map_err(|error| text(&error))?;
    let names: [HeaderName; 2] = [IF_NONE_MATCH, IF_MODIFIED_SINCE];
    for (name, tag) in names.into_iter().zip(validators) {
        if let Some(tag) = tag {
            request.headers_mut().insert(name, tag.clone());
        }
    }
    let response = sender.send_request(request).await.map_err(|error| text(&error))?;
    let status = response.status();
    if status == StatusCode::NOT_MODIFIED {
        return Ok(None);
    }
    if status != StatusCode::OK {
        let hint = if status.is_redirection() { ": set the URL that it redirects to" } else { "" };
        return Err(format!("the server responds {status}{hint}"));
    }
    let validators = match has_reliable_validators(response.headers()) {
        true => [ETAG, LAST_MODIFIED].map(|name| response.headers().get(name).cloned()),
        false => [None, None],
    };
    let body = Limited::new(response.into_body(), MAX_BUNDLE_BYTES).collect();
    let body = body.await.map_err(|error| text(&error))?;
    Ok(Some((body.to_bytes().to_vec(), validators)))
}

/// Returns whether the validators identify the content: it is old enough, or has an `ETag` alone.
fn has_reliable_validators(headers: &HeaderMap) -> bool {
    let time = |name: HeaderName| {
        let text = headers.get(name)?.to_str().ok()?;
        httpdate::parse_http_date(text).ok()
    };
    match (time(DATE), time(LAST_MODIFIED)) {
        (Some(now), Some(then)) => now.duration_since(then).is_ok_and(|age| age >= MIN_AGE),
        (None, Some(_)) => false,
        (_, None) => true,
    }
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader, Write};
    use std::net::TcpListener;

    use super::*;

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
        let mut one = SourcePoller::new(BundleSource::Path(file.clone()));
        assert!(all(&mut one).unwrap_err().contains("one.bundle: No such file"));
        let mut both = SourcePoller::new(BundleSource::Path(folder.clone()));
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
        let mut poller = SourcePoller::new(BundleSource::Path(folder.clone()));
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
    fn serve(answers: Vec<Vec<u8>>) -> (u16, std::thread::JoinHandle<Vec<String>>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let serving = std::thread::spawn(move || {
            let mut requests = Vec::new();
            for answer in answers {
                let (mut stream, _) = listener.accept().unwrap();
                let lines = BufReader::new(&stream).lines().map(Result::unwrap);
                requests
                    .push(lines.take_while(|line| !line.is_empty()).collect::<Vec<_>>().join("\n"));
                let _ = stream.write_all(&answer);
            }
            requests
        });
        (port, serving)
    }

    #[test]
    fn http_requests_are_conditional_after_a_response() {
        let ok = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nETag: \"a\"\r\n\r\nfirst".to_vec();
        let same = b"HTTP/1.1 304 Not Modified\r\n\r\n".to_vec();
        let away = b"HTTP/1.1 302 Found\r\nLocation: /x\r\nContent-Length: 0\r\n\r\n".to_vec();
        let cut = b"HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\nfirst".to_vec();
        let large = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", MAX_BUNDLE_BYTES + 1)
            .into_bytes();
        let (port, serving) = serve(vec![ok, same, away, cut, large, b"nonsense\r\n\r\n".to_vec()]);
        let source =
            BundleSource::Http { host: "127.0.0.1".into(), port, path: "/all.bundle".into() };
        let mut poller = SourcePoller::new(source);
        assert_eq!(all(&mut poller).unwrap(), [b"first"]);
        assert!(all(&mut poller).unwrap().is_empty());
        assert!(
            all(&mut poller).unwrap_err().contains("302 Found: set the URL that it redirects to")
        );
        for _ in 0..3 {
            let error = all(&mut poller).unwrap_err();
            assert!(error.starts_with(&format!("http://127.0.0.1:{port}/all.bundle: ")), "{error}");
        }
        let requests = serving.join().unwrap();
        assert!(requests[0].starts_with("GET /all.bundle HTTP/1.1"), "{}", requests[0]);
        assert!(
            !requests[0].contains("if-none-match") && requests[1].contains("if-none-match: \"a\"")
        );
        // A modification time that two versions could share is not a validator.
        let dated = |then: &str| {
            format!(
                "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nDate: Sun, 22 Nov 2026 12:00:05 GMT\r\n\
                 Last-Modified: Sun, 22 Nov 2026 12:00:{then} GMT\r\n\r\nx"
            )
        };
        let both =
            vec![dated("04").into_bytes(), dated("03").into_bytes(), dated("03").into_bytes()];
        let (port, serving) = serve(both);
        let source = BundleSource::Http { host: "127.0.0.1".into(), port, path: "/x".into() };
        let mut poller = SourcePoller::new(source);
        (0..3).for_each(|_| assert_eq!(all(&mut poller).unwrap(), [b"x"]));
        let requests = serving.join().unwrap();
        let by_time =
            |at: usize| requests[at].contains("if-modified-since: Sun, 22 Nov 2026 12:00:03");
        assert!(!requests[1].contains("if-modified-since") && by_time(2), "{requests:?}");
        // The server is closed.
        assert!(all(&mut poller).is_err());
    }
}
