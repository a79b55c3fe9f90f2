//! The log: lines on standard error, each with its severity.
//!
//! ```text
//!   log::warn! of any crate ─► level enabled? ─┬─ a terminal or file: fingerpost: warning: …
//!                                              ├─ the journal:        <4>…
//!                                              └─ as JSON:            {"time":…,"level":"warning",…}
//! ```
//!
//! The crates log with the macros of the `log` crate, never from the datapath (docs/decisions/0036).
//! The level is the first that is set of `--log-level`, `FINGERPOST_LOG` and `[log] level` of the
//! configuration, or else `info`. If standard error is the stream of the journal (`JOURNAL_STREAM`,
//! systemd.exec(5)), lines begin with their severity as in sd-daemon(3), which the journal removes
//! and filters by (`journalctl -p warning`). With `--log-format json`, or `FINGERPOST_LOG_FORMAT=json`, a
//! message is an object on a line, for programs that collect logs, also in the journal.

use std::env;
use std::io::Write;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::Context;
use clap::ValueEnum;
use config::Level;
use log::kv::{Key, Value, VisitSource};
use log::{Log, Metadata, Record};
use nix::sys::stat::fstat;

/// The environment variable of the level.
const VARIABLE: &str = "FINGERPOST_LOG";

/// The environment variable of the format.
const FORMAT_VARIABLE: &str = "FINGERPOST_LOG_FORMAT";

/// The format of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Format {
    /// Lines with their severity
    Text,
    /// An object on a line: time, level, module, message, fields
    Json,
}

/// The logger of the process, which writes to standard error.
struct StderrLogger {
    journal: AtomicBool,
    json: AtomicBool,
    /// Whether the command line or the environment sets the level, which the configuration then
    /// does not change.
    chosen: AtomicBool,
}

static LOGGER: StderrLogger = StderrLogger {
    journal: AtomicBool::new(false),
    json: AtomicBool::new(false),
    chosen: AtomicBool::new(false),
};

/// Installs the logger, with the level and the format of the command line, if there are any.
pub(crate) fn start(level: Option<Level>, format: Option<Format>) -> anyhow::Result<()> {
    let format = match (format, env::var(FORMAT_VARIABLE)) {
        (None, Ok(text)) => Format::from_str(&text, false)
            .map_err(|_| anyhow::anyhow!("{text:?} is unknown: text or json"))
            .context(FORMAT_VARIABLE)?,
        (format, _) => format.unwrap_or(Format::Text),
    };
    LOGGER.json.store(format == Format::Json, Ordering::Relaxed);
    let level = match (level, env::var(VARIABLE)) {
        (None, Ok(text)) => Some(text.parse().map_err(anyhow::Error::msg).context(VARIABLE)?),
        (level, _) => level,
    };
    let stream = env::var("JOURNAL_STREAM").ok();
    LOGGER.journal.store(is_journal(stream.as_deref()), Ordering::Relaxed);
    LOGGER.chosen.store(level.is_some(), Ordering::Relaxed);
    log::set_logger(&LOGGER).map_err(anyhow::Error::msg)?;
    log::set_max_level(level.unwrap_or(Level::Info).into());
    Ok(())
}

/// Applies the level of the configuration, unless the command line or the environment sets one.
pub(crate) fn configure(level: Option<Level>) {
    if let Some(level) = level.filter(|_| !LOGGER.chosen.load(Ordering::Relaxed)) {
        log::set_max_level(level.into());
    }
}

/// Logs the error that ends the program.
pub(crate) fn log_failure(error: &str) {
    if LOGGER.json.load(Ordering::Relaxed) {
        return write_json(log::Level::Error, "fingerpost", error, Fields::default());
    }
    let journal = LOGGER.journal.load(Ordering::Relaxed);
    write(if journal { "<3>" } else { "fingerpost: " }, error);
}

/// Returns whether standard error is the stream `DEVICE:INODE` of the journal.
fn is_journal(stream: Option<&str>) -> bool {
    let Some((device, inode)) = stream.and_then(|text| text.split_once(':')) else { return false };
    let Ok(about) = fstat(std::io::stderr()) else { return false };
    device.parse() == Ok(about.st_dev) && inode.parse() == Ok(about.st_ino)
}

/// Returns the prefix of a line.
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

/// Writes a message, with the prefix before each line; ignores errors.
fn write(prefix: &str, message: &str) {
    let mut text = String::with_capacity(prefix.len() + message.len() + 1);
    for line in message.lines() {
        text.push_str(prefix);
        // Text from outside must not move the cursor, nor imitate a log line.
        text.extend(line.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }));
        text.push('\n');
    }
    let _ = std::io::stderr().lock().write_all(text.as_bytes());
}

/// The fields of a message, by name.
#[derive(Default)]
struct Fields(serde_json::Map<String, serde_json::Value>);

impl<'kvs> VisitSource<'kvs> for Fields {
    fn visit_pair(&mut self, key: Key<'kvs>, value: Value<'kvs>) -> Result<(), log::kv::Error> {
        let number = value.to_u64().map(serde_json::Value::from);
        let value = number.unwrap_or_else(|| value.to_string().into());
        self.0.insert(key.to_string(), value);
        Ok(())
    }
}

/// Returns a message as an object, with its fields if it has some.
fn object(
    time: &str,
    level: log::Level,
    module: &str,
    message: &str,
    fields: Fields,
) -> serde_json::Value {
    let level = match level {
        log::Level::Error => "error",
        log::Level::Warn => "warning",
        log::Level::Info => "info",
        log::Level::Debug | log::Level::Trace => "debug",
    };
    let mut object =
        serde_json::json!({ "time": time, "level": level, "module": module, "message": message });
    if !fields.0.is_empty() {
        object["fields"] = fields.0.into();
    }
    object
}

/// Writes a message as an object on a line; ignores errors.
fn write_json(level: log::Level, module: &str, message: &str, fields: Fields) {
    let time = format!("{:.6}", jiff::Timestamp::now());
    let _ = writeln!(std::io::stderr().lock(), "{}", object(&time, level, module, message, fields));
}

impl Log for StderrLogger {
    fn enabled(&self, about: &Metadata<'_>) -> bool {
        // Lines of other crates are not for operators.
        about.target().starts_with("fingerpost") && about.level() <= log::max_level()
    }

    fn log(&self, record: &Record<'_>) {
        if self.enabled(record.metadata()) {
            if self.json.load(Ordering::Relaxed) {
                let message = record.args().to_string();
                let mut fields = Fields::default();
                // No visit fails.
                let _ = record.key_values().visit(&mut fields);
                return write_json(record.level(), record.target(), &message, fields);
            }
            let journal = self.journal.load(Ordering::Relaxed);
            write(prefix(record.level(), journal), &record.args().to_string());
        }
    }

    fn flush(&self) {}
}

/// Parses a level of the command line.
pub(crate) fn parse(text: &str) -> Result<Level, String> {
    text.parse()
}

#[cfg(test)]
mod tests {
    use log::kv::Source;

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
    fn object_is_one_line_whatever_the_message_has() {
        let object = |fields| {
            object(
                "2026-11-30T00:00:00Z",
                log::Level::Warn,
                "fingerpost_feed",
                "a\nb\u{1b}",
                fields,
            )
        };
        assert!(object(Fields::default()).get("fields").is_none());
        let mut fields = Fields::default();
        let pairs = [("interface", Value::from("e\n0")), ("times", Value::from(7u64))];
        pairs.visit(&mut fields).unwrap();
        let text = object(fields).to_string();
        assert!(!text.contains(char::is_control), "{text}");
        let read: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!((&read["level"], &read["message"]), (&"warning".into(), &"a\nb\u{1b}".into()));
        assert_eq!(read["fields"], serde_json::json!({ "interface": "e\n0", "times": 7 }));
    }

    #[test]
    fn configured_level_applies_unless_another_was_chosen() {
        configure(Some(Level::Warn));
        assert_eq!(log::max_level(), log::LevelFilter::Warn);
        configure(None);
        assert_eq!(log::max_level(), log::LevelFilter::Warn);
        LOGGER.chosen.store(true, Ordering::Relaxed);
        configure(Some(Level::Debug));
        assert_eq!(log::max_level(), log::LevelFilter::Warn);
    }
}
