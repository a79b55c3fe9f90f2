//! Errors of requests: the URL, the cause, and the remedy where the client can know it.
//!
//! ```text
//!   https://lists.example/drop.txt: the server responds 401 Unauthorized: check the key in x-api-key
//!   URL                             cause                                 remedy
//! ```
//!
//! Invariant: no message and no `Debug` output has the value of a caller's header, which may be a key.
//! Nor has one a text of the server's, except for the names in its certificate.

use std::error::Error;
use std::fmt;
use std::io;
use std::time::Duration;

use hyper::StatusCode;

use crate::url::{Url, UrlError};

/// A request failed.
#[derive(Debug)]
pub struct FetchError {
    /// The URL of the request.
    pub url: Url,
    /// The reason.
    pub cause: FetchCause,
}

/// The reason why a request failed.
#[derive(Debug)]
pub enum FetchCause {
    /// The path that replaces that of the URL is invalid.
    Path(UrlError),
    /// The runtime of the request was not created.
    Runtime(io::Error),
    /// The host has no address, or refuses the connection.
    Connect(io::Error),
    /// There are no trusted roots, or they cannot be read: the reason.
    Roots(String),
    /// TLS failed, or the certificate was refused: the reason.
    Tls(String),
    /// The response is not HTTP, or ended before it was complete.
    Http(hyper::Error),
    /// The server responded with another status than 200.
    Status {
        /// The status.
        code: u16,
        /// The name of the first header that the caller has added.
        key_header: Option<String>,
    },
    /// The server compressed the body, which the request forbids.
    Compressed,
    /// The body is larger than the limit, in bytes.
    TooLarge(usize),
    /// The response was not complete in time.
    Timeout(Duration),
    /// The thread has to end.
    Interrupted,
}

impl fmt::Display for FetchError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.url, self.cause)
    }
}

impl Error for FetchError {}

impl fmt::Display for FetchCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Path(error) => error.fmt(f),
            Self::Runtime(error) => write!(f, "starting the client: {error}"),
            Self::Connect(error) => write!(f, "connecting to the server: {error}"),
            Self::Roots(reason) | Self::Tls(reason) => f.write_str(reason),
            Self::Http(error) => write_chain(f, error),
            Self::Status { code, key_header } => write_status(f, *code, key_header.as_deref()),
            Self::Compressed => f.write_str(
                "the server compressed the body, which the request forbids: turn its compression \
                 off for this file",
            ),
            Self::TooLarge(limit) => write!(f, "the body is larger than {limit} bytes"),
            Self::Timeout(limit) => {
                write!(f, "no complete response within {} s", limit.as_secs_f64())
            }
            Self::Interrupted => f.write_str("interrupted: the process ends"),
        }
    }
}

/// Writes an error with its sources, which state the reason.
fn write_chain(f: &mut fmt::Formatter<'_>, error: &dyn Error) -> fmt::Result {
    write!(f, "{error}")?;
    let mut source = error.source();
    while let Some(error) = source {
        write!(f, ": {error}")?;
        source = error.source();
    }
    Ok(())
}

/// Writes a status with its standard phrase; that of the server is not shown.
fn write_status(f: &mut fmt::Formatter<'_>, code: u16, key_header: Option<&str>) -> fmt::Result {
    f.write_str("the server responds ")?;
    let Ok(status) = StatusCode::from_u16(code) else { return write!(f, "{code}") };
    match status.canonical_reason() {
        Some(reason) => write!(f, "{code} {reason}")?,
        None => write!(f, "{code}")?,
    }
    match (status, key_header) {
        (StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN, Some(name)) => {
            write!(f, ": check the key in {name}")
        }
        (StatusCode::UNAUTHORIZED, None) => f.write_str(": it requires a key, and none is set"),
        (StatusCode::FORBIDDEN, None) => {
            f.write_str(": check the rights of the file, or whether the server requires a key")
        }
        (StatusCode::NOT_FOUND, _) => f.write_str(": check the path of the URL"),
        (StatusCode::TOO_MANY_REQUESTS, _) => f.write_str(": send requests less often"),
        _ if status.is_redirection() && status != StatusCode::NOT_MODIFIED => {
            f.write_str(": set the URL that it redirects to")
        }
        _ => Ok(()),
    }
}

/// A caller's header cannot be sent. The message has its name, and never its value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HeaderError {
    /// The text is no name of a header.
    Name(String),
    /// The client sets the header of this name itself.
    Reserved(String),
    /// The value of the header of this name is empty or has characters other than printable ASCII.
    Value(String),
}

impl fmt::Display for HeaderError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(name) => write!(f, "{name:?} is not the name of an HTTP header"),
            Self::Reserved(name) => write!(f, "the client sets the header {name} itself"),
            Self::Value(name) => write!(
                f,
                "the value of the header {name} is empty or has characters other than printable \
                 ASCII: check for a line break at its end"
            ),
        }
    }
}

impl Error for HeaderError {}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(code: u16, key_header: Option<&str>) -> String {
        FetchCause::Status { code, key_header: key_header.map(str::to_owned) }.to_string()
    }

    #[test]
    fn status_has_its_remedy() {
        assert_eq!(
            status(401, Some("x-api-key")),
            "the server responds 401 Unauthorized: check the key in x-api-key"
        );
        assert!(status(403, Some("x-api-key")).ends_with("check the key in x-api-key"));
        assert!(status(401, None).ends_with("it requires a key, and none is set"));
        assert!(status(302, None).ends_with("302 Found: set the URL that it redirects to"));
        assert_eq!(status(500, None), "the server responds 500 Internal Server Error");
        assert_eq!(status(599, None), "the server responds 599");
    }
}
