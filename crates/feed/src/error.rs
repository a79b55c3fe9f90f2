//! Errors in a file: the place, the error, and the remedy.
//!
//! Inside the crate, damage is a [`Fault`], which has the place but not the file; [`Error`] is a
//! fault with the file's name. With [`Options::partial`](crate::Options::partial) the same fault is
//! printed as a warning, so that both have the same text. [`WriteError`] is that of writing a table.

use core::fmt;
use std::io;
use std::path::PathBuf;

/// The reason why a file gave no routes.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// The file cannot be opened or its first bytes cannot be read.
    Open {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The content is in none of the known formats.
    Unrecognized {
        /// The file.
        path: PathBuf,
        /// The beginning of its content.
        text: String,
    },
    /// A line of a text file is wrong.
    Line {
        /// The file.
        path: PathBuf,
        /// The line, counted from 1.
        line: u64,
        /// The line itself, truncated if it is long.
        text: String,
        /// The error and the remedy.
        what: String,
    },
    /// The file is cut off or corrupt.
    Damage {
        /// The file.
        path: PathBuf,
        /// The offset of the record or line that is damaged, in bytes of the
        /// unpacked content.
        offset: u64,
        /// The record or line, counted from 1.
        record: u64,
        /// The error.
        what: String,
    },
    /// The file is complete, but not of the requested kind.
    Kind {
        /// The file.
        path: PathBuf,
        /// The kind of the file and the requested kind.
        what: String,
    },
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Self::Open { path, .. }
        | Self::Unrecognized { path, .. }
        | Self::Line { path, .. }
        | Self::Damage { path, .. }
        | Self::Kind { path, .. }) = self;
        write!(f, "{}: ", path.display())?;
        match self {
            Self::Open { source, .. } => write!(f, "cannot be read: {source}"),
            Self::Unrecognized { text, .. } => write!(
                f,
                "neither MRT, a MaxMind database nor a text table: it begins with {text:?}; \
                 if it is one of the formats that are read, name the format"
            ),
            Self::Line { line, text, what, .. } => show_line(f, *line, text, what),
            Self::Damage { offset, record, what, .. } => show_damage(f, *offset, *record, what),
            Self::Kind { what, .. } => f.write_str(what),
        }
    }
}

impl core::error::Error for Error {
    fn source(&self) -> Option<&(dyn core::error::Error + 'static)> {
        match self {
            Self::Open { source, .. } => Some(source),
            _ => None,
        }
    }
}

/// The reason why a table was not written.
#[derive(Debug)]
#[non_exhaustive]
pub enum WriteError {
    /// The writer's error.
    Io(io::Error),
    /// The format has no place for a route.
    Route {
        /// The prefix.
        prefix: String,
        /// The reason.
        what: String,
    },
    /// The format has no place for the table as a whole.
    Table(String),
}

impl WriteError {
    pub(crate) fn route(prefix: impl fmt::Display, what: String) -> Self {
        Self::Route { prefix: prefix.to_string(), what }
    }
}

impl From<io::Error> for WriteError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

impl fmt::Display for WriteError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(error) => error.fmt(f),
            Self::Route { prefix, what } => write!(f, "{prefix}: {what}"),
            Self::Table(what) => f.write_str(what),
        }
    }
}

impl core::error::Error for WriteError {
    fn source(&self) -> Option<&(dyn core::error::Error + 'static)> {
        match self {
            Self::Io(error) => Some(error),
            _ => None,
        }
    }
}

/// Damage, before the file's name is known.
#[derive(Debug)]
pub(crate) enum Fault {
    Unrecognized { text: String },
    Line { line: u64, text: String, what: String },
    Damage { offset: u64, record: u64, what: String },
}

impl Fault {
    pub(crate) fn in_line(line: u64, text: &[u8], what: impl Into<String>) -> Self {
        Self::Line { line, text: excerpt(text), what: what.into() }
    }

    pub(crate) fn at(self, path: PathBuf) -> Error {
        match self {
            Self::Unrecognized { text } => Error::Unrecognized { path, text },
            Self::Line { line, text, what } => Error::Line { path, line, text, what },
            Self::Damage { offset, record, what } => Error::Damage { path, offset, record, what },
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unrecognized { text } => write!(f, "unknown content: {text:?}"),
            Self::Line { line, text, what } => show_line(f, *line, text, what),
            Self::Damage { offset, record, what } => show_damage(f, *offset, *record, what),
        }
    }
}

fn show_line(f: &mut fmt::Formatter<'_>, line: u64, text: &str, what: &str) -> fmt::Result {
    write!(f, "line {line}: {text:?}: {what}")
}

fn show_damage(f: &mut fmt::Formatter<'_>, offset: u64, record: u64, what: &str) -> fmt::Result {
    write!(f, "damaged at byte {offset} (of the unpacked content), record {record}: {what}")
}

/// Returns a short printable excerpt of arbitrary bytes.
pub(crate) fn excerpt(bytes: &[u8]) -> String {
    const MAX_LEN: usize = 80;
    let cut = &bytes[..bytes.len().min(MAX_LEN)];
    let mut text = String::from_utf8_lossy(cut).into_owned();
    if bytes.len() > MAX_LEN {
        text.push('…');
    }
    text
}
