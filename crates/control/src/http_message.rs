//! The requests and responses of the HTTP server, and the trait of their handlers.

use std::borrow::Cow;

/// A request of a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HttpRequest {
    /// The path, not decoded.
    pub path: String,
    /// The query, without the question mark.
    pub query: String,
    /// The header `Accept`.
    pub accept: String,
}

/// A response of the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HttpResponse {
    /// The HTTP status.
    pub status: u16,
    /// The media type.
    pub kind: &'static str,
    /// The body.
    pub body: Cow<'static, str>,
}

impl HttpResponse {
    /// Makes a response of one line of text.
    pub fn text(status: u16, line: &str) -> Self {
        Self { status, kind: "text/plain; charset=utf-8", body: format!("{line}\n").into() }
    }
}

/// Answers requests.
pub trait RequestHandler: Send + Sync + 'static {
    /// Answers a request.
    fn handle(&self, request: &HttpRequest) -> HttpResponse;
}
