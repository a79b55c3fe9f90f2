//! The log: lines on standard error, each with how severe it is.
//!
//! ```text
//!   log::warn! of any crate ─► level high enough? ─┬─ a terminal or file: fingerpost: warning: …
//!                                                  └─ the journal:        <4>…
//! ```
//!
//! The crates write by the `log` crate's macros, never from the datapath
//! (docs/decisions/0036). The level is `--log-level`, or `FINGERPOST_LOG`, or `[log] level` of the
//! configuration, or `info`, the first that is there. Where standard error is the journal's stream
//! (`JOURNAL_STREAM`, systemd.exec(5)), lines begin with their severity as sd-daemon(3) has it,
//! which the journal takes off and filters by (`journalctl -p warning`).

use std::env;
use std::io::Write;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::Context;
use log::{Log, Metadata, Record};
use nix::sys::stat::fstat;
use router::config::Level;

/// Names the level where no command line does.
const VARIABLE: &str = "FINGERPOST_LOG";

/// Writes the lines.
struct Lines {
    journal: AtomicBool,
    /// The level is the command line's or the environment's: the configuration does not count.
    chosen: AtomicBool,
}

static LINES: Lines = Lines { journal: AtomicBool::new(false), chosen: AtomicBool::new(false) };

/// Begins to write the log, with this level if there is one.
pub(crate) fn start(level: Option<Level>) -> anyhow::Result<()> {
    let level = match (level, env::var(VARIABLE)) {
        (None, Ok(text)) => Some(text.parse().map_err(anyhow::Error::msg).context(VARIABLE)?),
        (level, _) => level,
    };
    let stream = env::var("JOURNAL_STREAM").ok();
    LINES.journal.store(is_journal(stream.as_deref()), Ordering::Relaxed);
    LINES.chosen.store(level.is_some(), Ordering::Relaxed);
    log::set_logger(&LINES).map_err(anyhow::Error::msg)?;
    log::set_max_level(level.unwrap_or(Level::Info).into());
    Ok(())
}

/// Applies a configuration's level, unless the command line or the environment names one.
pub(crate) fn configure(level: Option<Level>) {
    if let Some(level) = level.filter(|_| !LINES.chosen.load(Ordering::Relaxed)) {
        log::set_max_level(level.into());
    }
}

/// Writes why the program ends with a failure.
pub(crate) fn failure(error: &str) {
    let journal = LINES.journal.load(Ordering::Relaxed);
    write(if journal { "<3>" } else { "fingerpost: " }, error);
}

/// Returns whether standard error is the stream `DEVICE:INODE` that the journal has given us.
fn is_journal(stream: Option<&str>) -> bool {
    let Some((device, inode)) = stream.and_then(|text| text.split_once(':')) else { return false };
    let Ok(about) = fstat(std::io::stderr()) else { return false };
    device.parse() == Ok(about.st_dev) && inode.parse() == Ok(about.st_ino)
}

/// Returns what a line begins with.
fn prefix(level: log::Level, journal: bool) -> &'static str {
    match (journal, level) {
        (true, log::Level::Error) => "<3>",
        (true, log::Level::Warn) => "<4>",
        (true, log::Level::Info) => "<6>",
        (true, log::Level::Debug | log::Level::Trace) => "<7>",
        (false, log::Level::Error) => "fingerpost: error: ",
        (false, log::Level::Warn) => "fingerpost: warning: ",
        (false, log::Level::Info) => "fingerpost: ",
        (false, log::Level::Debug | log::Level::Trace) => "fingerpost: debug: ",
    }
}

/// Writes a message, all of its lines alike; one that cannot be written is no reason to stop.
fn write(prefix: &str, message: &str) {
    let mut text = String::with_capacity(prefix.len() + message.len() + 1);
    for line in message.lines() {
        text.push_str(prefix);
        // Foreign text must not move the cursor, nor look like a log line of its own.
        text.extend(line.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }));
        text.push('\n');
    }
    let _ = std::io::stderr().lock().write_all(text.as_bytes());
}

impl Log for Lines {
    fn enabled(&self, about: &Metadata<'_>) -> bool {
        // Other crates' lines are not for operators.
        about.target().starts_with("fingerpost") && about.level() <= log::max_level()
    }

    fn log(&self, record: &Record<'_>) {
        if self.enabled(record.metadata()) {
            let journal = self.journal.load(Ordering::Relaxed);
            write(prefix(record.level(), journal), &record.args().to_string());
        }
    }

    fn flush(&self) {}
}

/// Reads a level of the command line.
pub(crate) fn parse(text: &str) -> Result<Level, String> {
    text.parse()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn journal_is_recognized_by_device_and_inode() {
        let about = fstat(std::io::stderr()).unwrap();
        let stream = format!("{}:{}", about.st_dev, about.st_ino);
        assert!(is_journal(Some(&stream)));
        for other in [None, Some(""), Some("1"), Some("x:y"), Some("1:2")] {
            assert!(!is_journal(other), "{other:?}");
        }
        assert_eq!(prefix(log::Level::Warn, true), "<4>");
        assert_eq!(prefix(log::Level::Warn, false), "fingerpost: warning: ");
    }

    #[test]
    fn configured_level_counts_unless_another_was_chosen() {
        configure(Some(Level::Warn));
        assert_eq!(log::max_level(), log::LevelFilter::Warn);
        configure(None);
        assert_eq!(log::max_level(), log::LevelFilter::Warn);
        LINES.chosen.store(true, Ordering::Relaxed);
        configure(Some(Level::Debug));
        assert_eq!(log::max_level(), log::LevelFilter::Warn);
    }
}
