//! Validators of a response: `ETag` and `Last-Modified`, which make the next request conditional.
//!
//! A client sends them as `If-None-Match` and `If-Modified-Since`, and a server whose content is
//! unchanged responds 304 without a body (RFC 9110, 8.8 and 13.1).
//!
//! Invariant: validators are stored only if they identify the content. `Last-Modified` has a
//! resolution of a second, so they do only if the content was at least [`MIN_AGE`] old by the
//! server's own clock: a client never misses a quick replacement.
//!
//! They are strings, so that a caller can store them beside the file that they belong to. A value
//! that no header can hold, for example from a damaged file, is not sent.

use std::time::Duration;

use hyper::header::{
    DATE, ETAG, HeaderMap, HeaderName, HeaderValue, IF_MODIFIED_SINCE, IF_NONE_MATCH, LAST_MODIFIED,
};

/// Least age of content whose modification time identifies it.
const MIN_AGE: Duration = Duration::from_secs(2);

/// The validators of a response. The default has none: the next request is unconditional.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Validators {
    /// The value of `ETag`, with its quotes and the prefix `W/` if it has one.
    pub etag: Option<String>,
    /// The value of `Last-Modified`.
    pub last_modified: Option<String>,
}

impl Validators {
    /// Reads the validators of a response; none if they do not identify its content.
    pub(crate) fn from_response(headers: &HeaderMap) -> Self {
        if !are_reliable(headers) {
            return Self::default();
        }
        let text = |name| Some(headers.get(name)?.to_str().ok()?.to_owned());
        Self { etag: text(ETAG), last_modified: text(LAST_MODIFIED) }
    }

    /// Adds the conditions to a request; returns whether there are any.
    pub(crate) fn add_conditions(&self, headers: &mut HeaderMap) -> bool {
        let mut is_conditional = false;
        for (name, text) in [(IF_NONE_MATCH, &self.etag), (IF_MODIFIED_SINCE, &self.last_modified)]
        {
            let value = text.as_ref().and_then(|text| HeaderValue::from_str(text).ok());
            if let Some(value) = value {
                headers.insert(name, value);
                is_conditional = true;
            }
        }
        is_conditional
    }
}

/// Returns whether the content is old enough, or has an `ETag` alone.
fn are_reliable(headers: &HeaderMap) -> bool {
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
    use super::*;

    #[test]
    fn validators_are_stored_only_of_old_content() {
        let read = |date: Option<&'static str>, then: &'static str| {
            let mut headers = HeaderMap::new();
            headers.insert(ETAG, HeaderValue::from_static("\"a\""));
            headers.insert(LAST_MODIFIED, HeaderValue::from_static(then));
            if let Some(date) = date {
                headers.insert(DATE, HeaderValue::from_static(date));
            }
            Validators::from_response(&headers)
        };
        let at_05 = Some("Sun, 22 Nov 2026 12:00:05 GMT");
        let old = "Sun, 22 Nov 2026 12:00:03 GMT";
        let stored =
            Validators { etag: Some("\"a\"".to_owned()), last_modified: Some(old.to_owned()) };
        assert_eq!(read(at_05, old), stored);
        for then in ["Sun, 22 Nov 2026 12:00:04 GMT", "Sun, 22 Nov 2026 12:00:06 GMT"] {
            assert_eq!(read(at_05, then), Validators::default(), "{then}");
        }
        assert_eq!(read(None, old), Validators::default(), "no date");
    }

    #[test]
    fn value_that_no_header_can_hold_is_not_sent() {
        let mut headers = HeaderMap::new();
        let damaged = Validators { etag: Some("\"a\"\r\nX: y".to_owned()), last_modified: None };
        assert!(!damaged.add_conditions(&mut headers) && headers.is_empty());
        let valid = Validators { etag: None, last_modified: Some("x".to_owned()) };
        assert!(valid.add_conditions(&mut headers));
        assert_eq!(headers[IF_MODIFIED_SINCE], "x");
    }
}
