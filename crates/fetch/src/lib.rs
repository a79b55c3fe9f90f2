//! The project's HTTP client: one file from one URL, repeatedly, by `http` or `https`.
//!
//! ```text
//!   Url ─► Client ─► connect ─► [TLS] ─► GET, If-None-Match, If-Modified-Since
//!            ▲                                 ├─ 304 ─► Fetched::NotModified
//!            └──────────── validators ◄────────┴─ 200 ─► Fetched::New(bytes)
//! ```
//!
//! Pollers use it: the agent that distributes bundles, and the feeds of block lists. Each calls
//! [`Client::get`] on a thread of its own, which the call blocks until the response is complete, the
//! time limit has passed or the thread's [`threads::Stop`] is set, within 100 ms of it.
//!
//! Limits: one request a connection; GET alone; HTTP/1.1; no redirects, cookies, proxies, compressed
//! bodies or credentials in URLs. A body has a limit of size, a response a limit of time. A complete
//! body is returned, or an error. Source: RFC 9110 (semantics) and RFC 9112 (messages).
//!
//! | module | content |
//! |---|---|
//! | `url` | [`Url`], checked when it is parsed |
//! | `client` | [`Client`]: headers, limits, the state of repeated requests |
//! | `exchange` | one request and its response |
//! | `tls` | the trusted roots, and the reasons of a refused certificate |
//! | `validators` | [`Validators`]: `ETag` and `Last-Modified` |
//! | `error` | [`FetchError`] and its causes |

#![forbid(unsafe_code)]

mod client;
mod error;
mod exchange;
mod tls;
mod url;
mod validators;

pub use client::{Client, Fetched};
pub use error::{FetchCause, FetchError, HeaderError};
pub use url::{Url, UrlError};
pub use validators::Validators;
