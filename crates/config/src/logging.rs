//! The `[log]` section of the configuration of a router, gate or grantor.
//!
//! ```toml
//! [log]
//! level = "info"    # error, warn, info or debug: the least severe lines that are written
//! ```
//!
//! `--log-level` and `FINGERPOST_LOG` override it. It is read at the start, and not by a reload.

use core::str::FromStr;

use serde::Deserialize;
use toml::Spanned;

use super::checker::Checker;

/// The severity of a line of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    /// The program cannot do its work.
    Error,
    /// A problem, with which the program continues.
    Warn,
    /// Events that an operator may look up in the log later.
    Info,
    /// Details that help to find a fault of the program.
    Debug,
}

impl FromStr for Level {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "error" => Ok(Self::Error),
            "warn" => Ok(Self::Warn),
            "info" => Ok(Self::Info),
            "debug" => Ok(Self::Debug),
            _ => Err(format!("{text:?} is no level: error, warn, info or debug")),
        }
    }
}

impl From<Level> for log::LevelFilter {
    fn from(level: Level) -> Self {
        match level {
            Level::Error => Self::Error,
            Level::Warn => Self::Warn,
            Level::Info => Self::Info,
            Level::Debug => Self::Debug,
        }
    }
}

/// The section as it is written in the file.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct LogSection {
    level: Option<Spanned<String>>,
}

impl Level {
    /// Checks the level; `None` where the file sets no level.
    pub(super) fn check(text: LogSection, c: &mut Checker<'_>) -> Option<Self> {
        let level = text.level?;
        let parsed = level.get_ref().parse();
        parsed.map_err(|what: String| c.problem(&level, "log.level", what)).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn level_is_one_of_four_or_a_problem() {
        let check = |text: &str| {
            let mut c = Checker::new(text);
            let level = Level::check(toml::from_str(text).unwrap(), &mut c);
            c.finish("f.toml".as_ref()).map(|()| level).map_err(|error| error.to_string())
        };
        assert_eq!(check(""), Ok(None));
        assert_eq!(check("level = \"debug\""), Ok(Some(Level::Debug)));
        let what =
            "f.toml:1: log.level: \"verbose\" is no level: error, warn, info or debug".to_owned();
        assert_eq!(check("level = \"verbose\""), Err(what));
        assert_eq!(log::LevelFilter::from(Level::Warn), log::LevelFilter::Warn);
    }
}
