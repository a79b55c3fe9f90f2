//! One request and its response, on a connection of its own.
//!
//! ```text
//!   TcpStream ─► [TlsStream] ─► GET ─► status ─┬─ 304, to a condition ─► NotModified
//!                                              ├─ 200 ─► body, at most max_bytes ─► Content
//!                                              └─ others ─► error
//! ```
//!
//! The client awaits this within its limit of time. Each header of the request is in
//! [`RequestPlan::headers`]; this module adds `Host`, `Connection: close` and
//! `Accept-Encoding: identity` (RFC 9110, 7.2, 7.6.1 and 12.5.3).
//!
//! Invariant: [`Response::Content`] is the complete body. One that is shorter than its
//! `Content-Length`, or whose last chunk is missing, is an error of `hyper` (RFC 9112, 8), as is, with
//! TLS, a close without `close_notify`. A body is never longer in memory than its limit and one read.
//!
//! Limit: without TLS, a body that ends with the connection and has no length cannot be checked.

use std::sync::Arc;

use http_body_util::{BodyExt, Empty};
use hyper::body::{Body, Bytes, Incoming};
use hyper::client::conn::http1;
use hyper::header::{
    ACCEPT_ENCODING, CONNECTION, CONTENT_ENCODING, HOST, HeaderMap, HeaderValue, USER_AGENT,
};
use hyper::{Request, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::ClientConfig;
use tokio_rustls::rustls::pki_types::ServerName;

use crate::error::FetchCause;
use crate::tls;
use crate::url::{Url, UrlError};
use crate::validators::Validators;

/// A request to send.
#[derive(Debug)]
pub(crate) struct RequestPlan {
    pub(crate) url: Url,
    /// The settings of TLS, for an `https` URL.
    pub(crate) tls: Option<Arc<ClientConfig>>,
    /// The caller's headers, and the conditions.
    pub(crate) headers: HeaderMap,
    /// Whether the headers contain a condition.
    pub(crate) is_conditional: bool,
    pub(crate) max_bytes: usize,
}

/// A response without an error.
#[derive(Debug)]
pub(crate) enum Response {
    NotModified,
    Content { bytes: Vec<u8>, validators: Validators },
}

/// Connects to the server and sends the request.
pub(crate) async fn exchange(plan: RequestPlan) -> Result<Response, FetchCause> {
    let host = plan.url.host();
    let stream = TcpStream::connect((host, plan.url.port())).await.map_err(FetchCause::Connect)?;
    let Some(config) = plan.tls.clone() else { return send(stream, plan).await };
    let name = ServerName::try_from(host.to_owned())
        .map_err(|_| FetchCause::Tls(format!("no certificate can name the host {host:?}")))?;
    let stream = TlsConnector::from(config).connect(name, stream).await;
    send(stream.map_err(|error| tls::handshake_cause(&error))?, plan).await
}

async fn send<S>(stream: S, plan: RequestPlan) -> Result<Response, FetchCause>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let handshake = http1::handshake(TokioIo::new(stream)).await;
    let (mut sender, connection) = handshake.map_err(FetchCause::Http)?;
    // The task ends with the response, or with the runtime.
    tokio::spawn(connection);
    let response = sender.send_request(build(&plan)?).await.map_err(FetchCause::Http)?;
    let status = response.status();
    if status == StatusCode::NOT_MODIFIED && plan.is_conditional {
        return Ok(Response::NotModified);
    }
    if status != StatusCode::OK {
        let key_header = plan.headers.iter().find(|(_, value)| value.is_sensitive());
        let key_header = key_header.map(|(name, _)| name.to_string());
        return Err(FetchCause::Status { code: status.as_u16(), key_header });
    }
    let encoding = response.headers().get(CONTENT_ENCODING);
    if encoding.is_some_and(|encoding| !encoding.as_bytes().eq_ignore_ascii_case(b"identity")) {
        return Err(FetchCause::Compressed);
    }
    let validators = Validators::from_response(response.headers());
    let bytes = read_body(response.into_body(), plan.max_bytes).await?;
    Ok(Response::Content { bytes, validators })
}

fn build(plan: &RequestPlan) -> Result<Request<Empty<Bytes>>, FetchCause> {
    // Both were checked when the URL was parsed.
    let path = plan.url.path().parse();
    let host = HeaderValue::from_str(&plan.url.authority());
    let (Ok(path), Ok(host)) = (path, host) else {
        return Err(FetchCause::Path(UrlError::Path(plan.url.path().to_owned())));
    };
    let mut request = Request::new(Empty::new());
    *request.uri_mut() = path;
    let headers = request.headers_mut();
    headers.insert(HOST, host);
    let agent = concat!("fingerpost/", env!("CARGO_PKG_VERSION"));
    headers.insert(USER_AGENT, HeaderValue::from_static(agent));
    headers.extend(plan.headers.clone());
    headers.insert(CONNECTION, HeaderValue::from_static("close"));
    headers.insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
    Ok(request)
}

async fn read_body(mut body: Incoming, max_bytes: usize) -> Result<Vec<u8>, FetchCause> {
    // The length that the server states, before its body arrives.
    if body.size_hint().lower() > max_bytes as u64 {
        return Err(FetchCause::TooLarge(max_bytes));
    }
    let mut bytes = Vec::new();
    while let Some(frame) = body.frame().await {
        let Ok(data) = frame.map_err(FetchCause::Http)?.into_data() else { continue };
        if data.len() > max_bytes - bytes.len() {
            return Err(FetchCause::TooLarge(max_bytes));
        }
        bytes.extend_from_slice(&data);
    }
    Ok(bytes)
}
