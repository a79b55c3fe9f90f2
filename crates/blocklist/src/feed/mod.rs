//! Lists from outside this machine: a thread for each polls its source, and writes the file that the list is read
//! from.
//!
//! ```text
//!   poll ─┬─ changed ──► new file, renamed ─► read by the list within a tenth of a second
//!         ├─ unchanged ─► wait
//!         └─ error ────► logged once; the file stays ─► wait
//! ```
//!
//! The file is the state that outlives the process: after a start without the network, the list is that of the last
//! time. The list decides whether a shorter file is held (`list.rs`).

pub mod crowdsec;
pub mod flowspec;
pub mod http;
pub mod routes;
#[cfg(test)]
mod scripted_server;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use threads::{Rights, Stop, Task};

/// A source of a list's lines.
pub trait Feed: Send + 'static {
    /// Returns the content of a file of the list, or `None` if it is as it was at the last call. May take as long as the
    /// source takes, and returns soon after `stop` is set.
    ///
    /// # Errors
    ///
    /// A message with the cause and the remedy; the list stays as it was.
    fn poll(&mut self, stop: &Stop) -> Result<Option<Vec<u8>>, String>;

    /// Reports whether what [`poll`](Self::poll) has returned is in the file.
    fn written(&mut self, result: Result<(), ()>) {
        let _ = result;
    }

    /// Returns the time between two polls.
    fn interval(&self) -> Duration;
}

/// A running feed.
#[derive(Debug)]
pub struct FeedThread {
    error: Arc<Mutex<Option<String>>>,
    _thread: Task,
}

impl FeedThread {
    /// Starts a thread without capabilities that writes what `feed` returns to `file`.
    ///
    /// # Errors
    ///
    /// The system's error of the thread's creation.
    pub fn start(name: &str, feed: impl Feed, file: PathBuf) -> io::Result<Self> {
        let error = Arc::new(Mutex::new(None));
        let (shared, label) = (Arc::clone(&error), name.to_owned());
        let run = move |stop: &Stop| follow(feed, &label, &file, &shared, stop);
        Ok(Self { error, _thread: Task::start("block-feed", Rights::None, run)? })
    }

    /// Returns why the last poll failed, if it did.
    pub fn error(&self) -> Option<String> {
        self.error.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

fn follow(
    mut feed: impl Feed,
    name: &str,
    file: &Path,
    shared: &Mutex<Option<String>>,
    stop: &Stop,
) {
    while !stop.is_set() {
        let error = update(&mut feed, file, stop).err();
        if stop.is_set() {
            return;
        }
        let mut last = shared.lock().unwrap_or_else(PoisonError::into_inner);
        if error != *last {
            match &error {
                Some(error) => {
                    log::error!(list = name, reason = error.as_str(); "{name}: the list stays as it was: {error}");
                }
                None => log::info!(list = name; "{name}: the source of the list answers again"),
            }
            *last = error;
        }
        drop(last);
        stop.wait(feed.interval());
    }
}

fn update(feed: &mut impl Feed, file: &Path, stop: &Stop) -> Result<(), String> {
    if let Some(content) = feed.poll(stop)? {
        // A file that is written again is read again.
        let is_there = fs::read(file).is_ok_and(|present| present == content);
        let result = if is_there { Ok(()) } else { replace(file, &content) };
        feed.written(result.as_ref().map(drop).map_err(drop));
        return result;
    }
    Ok(())
}

/// Replaces a file as a whole: a reader sees the former content or the new one, also after a loss of power.
pub(crate) fn replace(file: &Path, content: &[u8]) -> Result<(), String> {
    let at = |error: io::Error| format!("writing {}: {error}", file.display());
    let new = file
        .with_file_name(format!(".{}.new", file.file_name().unwrap_or_default().to_string_lossy()));
    let write = || -> io::Result<()> {
        fs::write(&new, content)?;
        fs::File::open(&new)?.sync_all()?;
        fs::rename(&new, file)
    };
    write().map_err(at)
}
