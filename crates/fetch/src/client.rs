//! The client of one URL, with the state of repeated requests.
//!
//! [`Client::get`] is conditional: it sends the [`Validators`] of the last response, and stores those
//! of a new one. [`Client::get_path`] asks the same server for another path, for example of an API,
//! with the same headers and limits; it is unconditional and leaves the validators as they are.
//!
//! A request runs on a runtime of its own, on the caller's thread. The client checks the caller's
//! [`Stop`] and the limit of time every [`CHECK_INTERVAL`]; it does not wait for a name lookup, which
//! cannot be interrupted.
//!
//! Invariants: validators change only with a complete body. The values of the caller's headers are
//! marked as sensitive, so that `Debug` does not show them.

use std::path::PathBuf;
use std::pin::pin;
use std::time::{Duration, Instant};

use hyper::header::{
    ACCEPT_ENCODING, CONNECTION, CONTENT_LENGTH, HOST, HeaderMap, HeaderName, HeaderValue,
    IF_MODIFIED_SINCE, IF_NONE_MATCH, TRANSFER_ENCODING, USER_AGENT,
};
use threads::Stop;
use tokio::runtime;

use crate::error::{FetchCause, FetchError, HeaderError};
use crate::exchange::{RequestPlan, Response, exchange};
use crate::tls::TrustedRoots;
use crate::url::Url;
use crate::validators::Validators;

/// Time limit of a response, with its body, unless the caller sets another.
const TIMEOUT: Duration = Duration::from_secs(60);
/// Interval of checks whether the caller stops.
const CHECK_INTERVAL: Duration = Duration::from_millis(100);
/// The headers that the client sets itself, or that its requests cannot have.
const RESERVED: [HeaderName; 7] = [
    ACCEPT_ENCODING,
    CONNECTION,
    CONTENT_LENGTH,
    HOST,
    IF_MODIFIED_SINCE,
    IF_NONE_MATCH,
    TRANSFER_ENCODING,
];

/// The result of a conditional request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fetched {
    /// The content is that of the last response.
    NotModified,
    /// The complete content.
    New(Vec<u8>),
}

/// A client of one URL.
#[derive(Debug)]
pub struct Client {
    url: Url,
    headers: HeaderMap,
    max_bytes: usize,
    timeout: Duration,
    validators: Validators,
    roots: TrustedRoots,
}

impl Client {
    /// Creates a client that accepts bodies of at most `max_bytes`, and responses that are complete
    /// within 60 s. It trusts the system's root certificates, and has no validators.
    pub fn new(url: Url, max_bytes: usize) -> Self {
        Self {
            url,
            headers: HeaderMap::new(),
            max_bytes,
            timeout: TIMEOUT,
            validators: Validators::default(),
            roots: TrustedRoots::default(),
        }
    }

    /// Sets the time limit of a response, from the name lookup to the end of its body.
    #[must_use]
    pub fn with_timeout(self, timeout: Duration) -> Self {
        Self { timeout, ..self }
    }

    /// Trusts the root certificates of a file in PEM, and not those of the system. The file is read
    /// by the first request to an `https` URL.
    #[must_use]
    pub fn with_root_file(self, file: PathBuf) -> Self {
        Self { roots: TrustedRoots::from_file(file), ..self }
    }

    /// Adds a header to all requests, for example `X-Api-Key`, or replaces it. Its value appears in
    /// no error and in no `Debug` output. `User-Agent` replaces the client's own.
    ///
    /// # Errors
    ///
    /// A name or a value that HTTP does not permit, or a header that the client sets itself.
    pub fn with_header(mut self, name: &str, value: &str) -> Result<Self, HeaderError> {
        let header = HeaderName::from_bytes(name.as_bytes())
            .map_err(|_| HeaderError::Name(name.to_owned()))?;
        if RESERVED.contains(&header) {
            return Err(HeaderError::Reserved(name.to_owned()));
        }
        let is_printable = value.bytes().all(|byte| byte == b' ' || byte.is_ascii_graphic());
        let valid = is_printable && !value.trim().is_empty();
        let parsed = HeaderValue::from_str(value).ok().filter(|_| valid);
        let mut value = parsed.ok_or_else(|| HeaderError::Value(name.to_owned()))?;
        // An agent's name is no key; errors name the first sensitive header.
        value.set_sensitive(header != USER_AGENT);
        self.headers.insert(header, value);
        Ok(self)
    }

    /// Returns the URL.
    pub fn url(&self) -> &Url {
        &self.url
    }

    /// Returns the validators of the last response. A caller may store them with its content, and
    /// with the URL.
    pub fn validators(&self) -> &Validators {
        &self.validators
    }

    /// Sets the validators of content that the caller has, which came from this URL: the next request
    /// does not transfer it again.
    pub fn set_validators(&mut self, validators: Validators) {
        self.validators = validators;
    }

    /// Makes the next request transfer the content even if it is unchanged, for example after the
    /// caller could not use it.
    pub fn reset(&mut self) {
        self.validators = Validators::default();
    }

    /// Fetches the content of the URL unless it is unchanged. Blocks the thread until the response
    /// is complete.
    ///
    /// # Errors
    ///
    /// The URL and the cause; the validators are unchanged then.
    pub fn get(&mut self, stop: &Stop) -> Result<Fetched, FetchError> {
        let mut headers = self.headers.clone();
        let is_conditional = self.validators.add_conditions(&mut headers);
        match self.request(self.url.clone(), headers, is_conditional, stop)? {
            Response::NotModified => Ok(Fetched::NotModified),
            Response::Content { bytes, validators } => {
                self.validators = validators;
                Ok(Fetched::New(bytes))
            }
        }
    }

    /// Fetches the content of another path, with its query, of the same server: unconditionally, and
    /// without a change of the validators. Blocks the thread until the response is complete.
    ///
    /// # Errors
    ///
    /// The URL and the cause.
    pub fn get_path(&mut self, path: &str, stop: &Stop) -> Result<Vec<u8>, FetchError> {
        let url = self.url.with_path(path).map_err(|error| FetchError {
            url: self.url.clone(),
            cause: FetchCause::Path(error),
        })?;
        match self.request(url.clone(), self.headers.clone(), false, stop)? {
            Response::Content { bytes, .. } => Ok(bytes),
            // `exchange` returns this for a conditional request alone.
            Response::NotModified => {
                Err(FetchError { url, cause: FetchCause::Status { code: 304, key_header: None } })
            }
        }
    }

    fn request(
        &mut self,
        url: Url,
        headers: HeaderMap,
        is_conditional: bool,
        stop: &Stop,
    ) -> Result<Response, FetchError> {
        let tls = match url.is_https() {
            true => self.roots.load().map(Some),
            false => Ok(None),
        };
        let max_bytes = self.max_bytes;
        let result = tls.and_then(|tls| {
            let plan = RequestPlan { url: url.clone(), tls, headers, is_conditional, max_bytes };
            run(plan, self.timeout, stop)
        });
        if matches!(result, Err(FetchCause::Tls(_))) {
            self.roots.unload();
        }
        result.map_err(|cause| FetchError { url, cause })
    }
}

/// Sends a request and waits for its response, at most for `timeout` and until `stop` is set.
fn run(plan: RequestPlan, timeout: Duration, stop: &Stop) -> Result<Response, FetchCause> {
    let built = runtime::Builder::new_current_thread().enable_io().enable_time().build();
    let runtime = built.map_err(FetchCause::Runtime)?;
    let result = runtime.block_on(async {
        let mut exchanging = pin!(exchange(plan));
        let begin = Instant::now();
        loop {
            let interval = CHECK_INTERVAL.min(timeout.saturating_sub(begin.elapsed()));
            if let Ok(result) = tokio::time::timeout(interval, exchanging.as_mut()).await {
                return result;
            }
            if stop.is_set() {
                return Err(FetchCause::Interrupted);
            }
            if begin.elapsed() >= timeout {
                return Err(FetchCause::Timeout(timeout));
            }
        }
    });
    // Does not wait for a name lookup that is still running.
    runtime.shutdown_background();
    result
}

#[cfg(test)]
mod tests;
