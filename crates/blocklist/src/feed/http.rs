//! A list at a URL, fetched once in an interval if it has changed.
//!
//! `ETag` and `Last-Modified` of the last response (RFC 9110, 8.8) are in a file beside the list's: after a restart
//! only a change is transferred. That file is written after the list's, so that it never speaks of a content that is
//! not there. The content may be compressed, as that of any list.
//!
//! Limits: 128 MiB, 60 s for a response, no redirects (crate `fetch`).

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use fetch::{Client, Fetched, Url, Validators};
use threads::Stop;

use super::Feed;

/// The most bytes of a list.
const MAX_BYTES: usize = 128 << 20;

/// The time between two requests.
pub const DEFAULT_INTERVAL: Duration = Duration::from_secs(3600);

/// A list at a URL.
#[derive(Debug)]
pub struct HttpFeed {
    client: Client,
    interval: Duration,
    /// The file of the validators.
    beside: PathBuf,
}

impl HttpFeed {
    /// Creates a feed whose content is in `file`, or will be.
    pub fn new(url: Url, interval: Duration, file: &Path) -> Self {
        let name = file.file_name().unwrap_or_default().to_string_lossy();
        let beside = file.with_file_name(format!(".{name}.tag"));
        let mut client = Client::new(url, MAX_BYTES);
        if file.exists() {
            client.set_validators(read(&beside));
        }
        Self { client, interval, beside }
    }
}

impl Feed for HttpFeed {
    fn poll(&mut self, stop: &Stop) -> Result<Option<Vec<u8>>, String> {
        match self.client.get(stop).map_err(|error| error.cause.to_string())? {
            Fetched::NotModified => Ok(None),
            Fetched::New(bytes) => Ok(Some(bytes)),
        }
    }

    fn written(&mut self, result: Result<(), ()>) {
        match result {
            Ok(()) => {
                let Validators { etag, last_modified } = self.client.validators();
                let line = |text: &Option<String>| text.clone().unwrap_or_default();
                let text = format!("{}\n{}\n", line(etag), line(last_modified));
                // Without it the next start transfers the list once more.
                if let Err(error) = super::replace(&self.beside, text.as_bytes()) {
                    log::warn!("{}: {error}", self.client.url());
                }
            }
            Err(()) => self.client.reset(),
        }
    }

    fn interval(&self) -> Duration {
        self.interval
    }
}

/// Reads validators; none if there is no such file.
fn read(file: &Path) -> Validators {
    let text = fs::read_to_string(file).unwrap_or_default();
    let mut lines = text.lines().map(|line| (!line.is_empty()).then(|| line.to_owned()));
    Validators { etag: lines.next().flatten(), last_modified: lines.next().flatten() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::feed::scripted_server::serve;

    #[test]
    fn unchanged_list_is_not_transferred_again_after_a_restart() {
        let folder = std::env::temp_dir().join(format!("fingerpost-http-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let file = folder.join("list");
        let content = "HTTP/1.1 200 OK\r\nContent-Length: 10\r\nETag: \"a\"\r\n\r\n192.0.2.1\n";
        let unchanged = "HTTP/1.1 304 Not Modified\r\n\r\n";
        let (port, server) = serve(vec![content, content, unchanged, content]);
        let url: Url = format!("http://127.0.0.1:{port}/x").parse().unwrap();
        let new = || HttpFeed::new(url.clone(), Duration::from_secs(1), &file);
        let stop = Stop::default();

        let mut feed = new();
        assert_eq!(feed.poll(&stop).unwrap().unwrap(), b"192.0.2.1\n");
        // The disk is full: the content is fetched again.
        feed.written(Err(()));
        let bytes = feed.poll(&stop).unwrap().unwrap();
        super::super::replace(&file, &bytes).unwrap();
        feed.written(Ok(()));
        assert_eq!(new().poll(&stop).unwrap(), None);
        // The operator has removed the list.
        fs::remove_file(&file).unwrap();
        assert!(new().poll(&stop).unwrap().is_some());
        let conditional: Vec<bool> =
            server.join().unwrap().iter().map(|r| r.contains("if-none-match: \"a\"")).collect();
        assert_eq!(conditional, [false, false, true, false]);
        fs::remove_dir_all(folder).unwrap();
    }
}
