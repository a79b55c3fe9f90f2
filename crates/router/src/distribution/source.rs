//! Where bundles come from: a file, a folder of them, or a plain HTTP address.
//!
//! ```text
//!   path: size, time of change, number of the file ─┬─ as they were ─► nothing new
//!   http: If-None-Match, If-Modified-Since ──► 304 ─┘
//!                                             else ─► bytes, at most a bundle's
//! ```
//!
//! A server's tags tell seconds apart at best, so they are kept only of what had been there for two when
//! it was sent: what is replaced at once is never missed.
//!
//! Nothing here is trusted: a source can keep bundles back, and no more. Redirects are not
//! followed. A folder may hold [`MOST_IN_FOLDER`] bundles, whose names end with `.bundle`; each is
//! handed over and freed before the next is read, and the highest version counts. A path longer
//! than a bundle, or that is no file, is refused by its metadata, unread.

use std::fs::{self, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
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

use super::bundle::{BadBundle, MOST_BYTES};
use super::config::Source;

/// Bundles in a folder that are looked at.
const MOST_IN_FOLDER: usize = 64;
/// How long an answer may take, all of it.
const LONGEST: Duration = Duration::from_secs(60);
/// How long something has to have been there for its time to tell it from what comes after.
const LASTING: Duration = Duration::from_secs(2);
/// How often it is seen that nobody waits for it any more.
const LOOK: Duration = Duration::from_millis(100);

/// The bytes of what may be a bundle, or why they were not read.
pub(super) type Offered = Result<Vec<u8>, String>;

/// What was last seen of a file.
type Mark = (PathBuf, u64, i64, i64, u64);

/// Reads a source, again and again.
#[derive(Debug)]
pub(super) struct Poller {
    source: Source,
    marks: Vec<Mark>,
    /// `ETag` and `Last-Modified`, as they are sent back.
    tags: [Option<HeaderValue>; 2],
}

impl Poller {
    pub(super) fn new(source: Source) -> Self {
        Self { source, marks: Vec::new(), tags: [None, None] }
    }

    /// Hands over what is there, each with its name, if it is not what was there before; says
    /// whether it was handed over.
    ///
    /// # Errors
    ///
    /// What the system or the server says.
    pub(super) fn poll(
        &mut self,
        stop: &AtomicBool,
        hear: &mut dyn FnMut(String, Offered),
    ) -> Result<bool, String> {
        match self.source.clone() {
            Source::Path(path) => {
                let told = |error: io::Error| format!("{}: {error}", path.display());
                self.look(&path, hear).map_err(told)
            }
            Source::Http { host, port, path } => {
                let url = format!("http://{host}:{port}{path}");
                let got = self.fetch(&host, port, &path, stop);
                match got.map_err(|error| format!("{url}: {error}"))? {
                    Some(bytes) => hear(url, Ok(bytes)),
                    None => return Ok(false),
                }
                Ok(true)
            }
        }
    }

    /// Has what is there handed over the next time, also if it has not changed.
    pub(super) fn forget(&mut self) {
        self.marks.clear();
        self.tags = [None, None];
    }

    fn look(&mut self, path: &Path, hear: &mut dyn FnMut(String, Offered)) -> io::Result<bool> {
        let mut paths = Vec::new();
        if fs::metadata(path)?.is_dir() {
            for entry in fs::read_dir(path)? {
                let path = entry?.path();
                if path.extension().is_none_or(|extension| extension != "bundle") {
                    continue;
                }
                if paths.len() == MOST_IN_FOLDER {
                    let what = format!("more than {MOST_IN_FOLDER} bundles: remove old ones");
                    return Err(io::Error::other(what));
                }
                paths.push(path);
            }
            paths.sort();
        } else {
            paths.push(path.to_owned());
        }
        let mut marks: Vec<Mark> = Vec::new();
        for path in paths {
            let it = fs::metadata(&path)?;
            marks.push((path, it.len(), it.mtime(), it.mtime_nsec(), it.ino()));
        }
        if marks.is_empty() || marks == self.marks {
            return Ok(false);
        }
        for (path, ..) in &marks {
            hear(path.display().to_string(), read(path));
        }
        // What is written meanwhile has another time or size, and is read again.
        self.marks = marks;
        Ok(true)
    }

    fn fetch(
        &mut self,
        host: &str,
        port: u16,
        path: &str,
        stop: &AtomicBool,
    ) -> Result<Option<Vec<u8>>, String> {
        let built = runtime::Builder::new_current_thread().enable_io().enable_time().build();
        let runtime = built.map_err(|error| error.to_string())?;
        let tags = &self.tags;
        let got = runtime.block_on(async {
            let mut getting = pin!(get(host, port, path, tags));
            let begin = Instant::now();
            loop {
                if let Ok(got) = tokio::time::timeout(LOOK, getting.as_mut()).await {
                    return got;
                }
                if stop.load(Ordering::Relaxed) {
                    return Err("this member ends".to_owned());
                }
                if begin.elapsed() > LONGEST {
                    return Err(format!("no whole answer within {} s", LONGEST.as_secs()));
                }
            }
        });
        // A name that is still looked up holds nobody up.
        runtime.shutdown_background();
        Ok(got?.map(|(bytes, tags)| {
            self.tags = tags;
            bytes
        }))
    }
}

/// Reads a file that may be a bundle.
fn read(path: &Path) -> Offered {
    let failed = |error: io::Error| error.to_string();
    // Opening a pipe would wait for its other end.
    let mut options = OpenOptions::new();
    let options = options.read(true).custom_flags(OFlag::O_NONBLOCK.bits());
    let file = options.open(path).map_err(failed)?;
    let about = file.metadata().map_err(failed)?;
    if !about.is_file() {
        return Err("not a file".to_owned());
    }
    if about.len() > MOST_BYTES as u64 {
        return Err(BadBundle::TooLarge(about.len() as usize).to_string());
    }
    let mut bytes = Vec::with_capacity(about.len() as usize + 1);
    // It may grow while it is read: one byte more than may be shows that it is too large.
    file.take(MOST_BYTES as u64 + 1).read_to_end(&mut bytes).map_err(failed)?;
    Ok(bytes)
}

type Got = Option<(Vec<u8>, [Option<HeaderValue>; 2])>;

async fn get(
    host: &str,
    port: u16,
    path: &str,
    tags: &[Option<HeaderValue>; 2],
) -> Result<Got, String> {
    let said = |error: &dyn std::fmt::Display| error.to_string();
    let stream = TcpStream::connect((host, port)).await.map_err(|error| said(&error))?;
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.map_err(|e| said(&e))?;
    // Ends with the answer, or with the runtime.
    tokio::spawn(connection);
    let bracket = if host.contains(':') { format!("[{host}]") } else { host.to_owned() };
    let mut request = Request::get(path)
        .header(HOST, format!("{bracket}:{port}"))
        .header(CONNECTION, "close")
        .body(Empty::<Bytes>::new())
        .map_err(|error| said(&error))?;
    let names: [HeaderName; 2] = [IF_NONE_MATCH, IF_MODIFIED_SINCE];
    for (name, tag) in names.into_iter().zip(tags) {
        if let Some(tag) = tag {
            request.headers_mut().insert(name, tag.clone());
        }
    }
    let response = sender.send_request(request).await.map_err(|error| said(&error))?;
    let status = response.status();
    if status == StatusCode::NOT_MODIFIED {
        return Ok(None);
    }
    if status != StatusCode::OK {
        let hint = if status.is_redirection() { ": name the place where it leads" } else { "" };
        return Err(format!("the server answers {status}{hint}"));
    }
    let tags = match lasting(response.headers()) {
        true => [ETAG, LAST_MODIFIED].map(|name| response.headers().get(name).cloned()),
        false => [None, None],
    };
    let body = Limited::new(response.into_body(), MOST_BYTES).collect();
    let body = body.await.map_err(|error| said(&error))?;
    Ok(Some((body.to_bytes().to_vec(), tags)))
}

/// Says whether what was sent had been there for a while, or has a tag that says more than a time.
fn lasting(headers: &HeaderMap) -> bool {
    let time = |name: HeaderName| {
        let text = headers.get(name)?.to_str().ok()?;
        httpdate::parse_http_date(text).ok()
    };
    match (time(DATE), time(LAST_MODIFIED)) {
        (Some(now), Some(then)) => now.duration_since(then).is_ok_and(|age| age >= LASTING),
        (None, Some(_)) => false,
        (_, None) => true,
    }
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader, Write};
    use std::net::TcpListener;

    use super::*;

    fn all(poller: &mut Poller) -> Result<Vec<Vec<u8>>, String> {
        let mut heard = Vec::new();
        let new =
            poller.poll(&AtomicBool::new(false), &mut |_, bytes| heard.push(bytes.unwrap()))?;
        assert_eq!(new, !heard.is_empty());
        Ok(heard)
    }

    #[test]
    fn files_and_folders_are_read_when_they_change() {
        let folder = std::env::temp_dir().join(format!("fingerpost-source-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let file = folder.join("one.bundle");
        let mut one = Poller::new(Source::Path(file.clone()));
        assert!(all(&mut one).unwrap_err().contains("one.bundle: No such file"));
        let mut both = Poller::new(Source::Path(folder.clone()));
        assert!(all(&mut both).unwrap().is_empty());
        fs::write(&file, b"first").unwrap();
        fs::write(folder.join("notes.txt"), b"").unwrap();
        for poller in [&mut one, &mut both] {
            assert_eq!(all(poller).unwrap(), [b"first"]);
            assert!(all(poller).unwrap().is_empty(), "as it was");
            poller.forget();
            assert_eq!(all(poller).unwrap(), [b"first"]);
        }
        fs::write(folder.join("two.bundle"), b"second").unwrap();
        assert!(all(&mut one).unwrap().is_empty());
        assert_eq!(all(&mut both).unwrap(), [&b"first"[..], b"second"]);
        // As rsync does it: another file in its place, of the same size.
        fs::write(folder.join("new"), b"other").unwrap();
        fs::rename(folder.join("new"), &file).unwrap();
        assert_eq!(all(&mut one).unwrap(), [b"other"]);
        for at in 0..MOST_IN_FOLDER {
            fs::write(folder.join(format!("{at}.bundle")), b"x").unwrap();
        }
        assert!(all(&mut both).unwrap_err().contains("more than 64"));
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn path_too_long_or_no_file_is_refused_unread() {
        let folder = std::env::temp_dir().join(format!("fp-unread-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        // As long as any disk, and none of it written; and a pipe without a writer.
        fs::File::create(folder.join("long.bundle")).unwrap().set_len(1 << 40).unwrap();
        nix::unistd::mkfifo(&folder.join("pipe.bundle"), nix::sys::stat::Mode::S_IRUSR).unwrap();
        fs::write(folder.join("sound.bundle"), b"sound").unwrap();
        let mut poller = Poller::new(Source::Path(folder.clone()));
        let mut offered = Vec::new();
        poller.poll(&AtomicBool::new(false), &mut |_, bytes| offered.push(bytes)).unwrap();
        let large = BadBundle::TooLarge(1 << 40).to_string();
        assert_eq!(offered, [Err(large), Err("not a file".to_owned()), Ok(b"sound".to_vec())]);
        fs::remove_dir_all(&folder).unwrap();
    }

    /// Answers once with each of these, and returns the headers that were sent.
    fn serve(answers: Vec<Vec<u8>>) -> (u16, std::thread::JoinHandle<Vec<String>>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let serving = std::thread::spawn(move || {
            let mut asked = Vec::new();
            for answer in answers {
                let (mut stream, _) = listener.accept().unwrap();
                let lines = BufReader::new(&stream).lines().map(Result::unwrap);
                asked
                    .push(lines.take_while(|line| !line.is_empty()).collect::<Vec<_>>().join("\n"));
                let _ = stream.write_all(&answer);
            }
            asked
        });
        (port, serving)
    }

    #[test]
    fn http_is_asked_only_for_what_is_new() {
        let ok = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nETag: \"a\"\r\n\r\nfirst".to_vec();
        let same = b"HTTP/1.1 304 Not Modified\r\n\r\n".to_vec();
        let away = b"HTTP/1.1 302 Found\r\nLocation: /x\r\nContent-Length: 0\r\n\r\n".to_vec();
        let cut = b"HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\nfirst".to_vec();
        let large =
            format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", MOST_BYTES + 1).into_bytes();
        let (port, serving) = serve(vec![ok, same, away, cut, large, b"nonsense\r\n\r\n".to_vec()]);
        let source = Source::Http { host: "127.0.0.1".into(), port, path: "/all.bundle".into() };
        let mut poller = Poller::new(source);
        assert_eq!(all(&mut poller).unwrap(), [b"first"]);
        assert!(all(&mut poller).unwrap().is_empty());
        assert!(all(&mut poller).unwrap_err().contains("302 Found: name the place where it leads"));
        for _ in 0..3 {
            let error = all(&mut poller).unwrap_err();
            assert!(error.starts_with(&format!("http://127.0.0.1:{port}/all.bundle: ")), "{error}");
        }
        let asked = serving.join().unwrap();
        assert!(asked[0].starts_with("GET /all.bundle HTTP/1.1"), "{}", asked[0]);
        assert!(!asked[0].contains("if-none-match") && asked[1].contains("if-none-match: \"a\""));
        // A time that could be that of two files is none to ask by.
        let dated = |then: &str| {
            format!(
                "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nDate: Sun, 22 Nov 2026 12:00:05 GMT\r\n\
                 Last-Modified: Sun, 22 Nov 2026 12:00:{then} GMT\r\n\r\nx"
            )
        };
        let both =
            vec![dated("04").into_bytes(), dated("03").into_bytes(), dated("03").into_bytes()];
        let (port, serving) = serve(both);
        let source = Source::Http { host: "127.0.0.1".into(), port, path: "/x".into() };
        let mut poller = Poller::new(source);
        (0..3).for_each(|_| assert_eq!(all(&mut poller).unwrap(), [b"x"]));
        let asked = serving.join().unwrap();
        let by_time =
            |at: usize| asked[at].contains("if-modified-since: Sun, 22 Nov 2026 12:00:03");
        assert!(!asked[1].contains("if-modified-since") && by_time(2), "{asked:?}");
        // Nobody listens there any more.
        assert!(all(&mut poller).is_err());
    }
}
