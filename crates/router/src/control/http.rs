//! A small HTTP server: pages that are made when somebody asks for them.
//!
//! ```text
//!   accept (at most MOST at once) ─► hyper, HTTP/1.1 ─► Pages::page ─► HttpResponse
//!        one thread, tokio's current-thread runtime       └ a blocking thread of tokio's
//! ```
//!
//! RFC 9110 and RFC 9112 are hyper's to keep. Only requests to this server are answered
//! (`allowed_hosts.rs`), only `GET` and `HEAD` are answered, and nothing that a client sends changes
//! anything. A connection may last [`LONGEST`], a client may take [`HEADERS`] for its headers.
//! Each client has a share (`clients.rs`): so many connections, of which its own oldest ends when
//! it opens another, and so many requests a second; beyond them it gets 429. Where there are
//! [`MOST`] connections and another comes, the client with most of them loses its oldest. So
//! clients that are slow or send nothing, however many connections they open, end their own and
//! keep no other client out. Pages are made on a thread apart, since they ask the control
//! thread, which may be in the middle of something; a page that nobody waits for any more is
//! not begun.
//!
//! Every reply says what a browser may make of it ([`FOR_BROWSERS`]): scripts, styles and data
//! from here and from nowhere else, in no frame, by the media type that is said, kept nowhere.
//!
//! There is no encryption and nobody is asked who they are: it is for the loopback
//! address, for a network of the operator's, or for behind a proxy
//! (`docs/decisions/0009-metrics-and-http.md`).

use std::borrow::Cow;
use std::convert::Infallible;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::{ACCEPT, ALLOW, CONTENT_TYPE, HeaderName, HeaderValue, RETRY_AFTER};
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::sync::oneshot;
use tokio::task::JoinSet;

use super::allowed_hosts::AllowedHosts;
use super::clients::{Client, Connections, Requests};
use super::rights;

/// Connections at once.
pub(super) const MOST: usize = 64;
/// How long a connection may last.
const LONGEST: Duration = Duration::from_secs(120);
/// How long a client may take for its headers.
const HEADERS: Duration = Duration::from_secs(10);
/// How long pages in the making are waited for at the end.
const END: Duration = Duration::from_secs(1);

/// What a browser may make of a page.
const FOR_BROWSERS: [(&str, &str); 5] = [
    (
        "content-security-policy",
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; \
         img-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    ),
    ("x-content-type-options", "nosniff"),
    ("referrer-policy", "no-referrer"),
    ("cross-origin-resource-policy", "same-origin"),
    ("cache-control", "no-store"),
];

/// What a client would like to have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct HttpRequest {
    /// The path, as it came.
    pub(crate) path: String,
    /// What stands behind the question mark.
    pub(crate) query: String,
    /// The media types it likes.
    pub(crate) accept: String,
}

/// What a page is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct HttpResponse {
    /// An HTTP status.
    pub(crate) status: u16,
    /// Its media type.
    pub(crate) kind: &'static str,
    /// What it says.
    pub(crate) body: Cow<'static, str>,
}

impl HttpResponse {
    /// Makes a short reply in words.
    pub(crate) fn text(status: u16, words: &str) -> Self {
        Self { status, kind: "text/plain; charset=utf-8", body: format!("{words}\n").into() }
    }
}

/// Who makes pages.
pub(crate) trait Pages: Send + Sync + 'static {
    /// Makes a page.
    fn page(&self, wish: &HttpRequest) -> HttpResponse;
}

/// The server; dropped, it is gone.
#[derive(Debug)]
pub(crate) struct Http {
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Http {
    /// Listens.
    ///
    /// # Errors
    ///
    /// The system's.
    pub(crate) fn start(
        listen: SocketAddr,
        hosts: AllowedHosts,
        pages: Arc<dyn Pages>,
    ) -> io::Result<Self> {
        let listener = TcpListener::bind(listen)?;
        listener.set_nonblocking(true)?;
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .max_blocking_threads(2)
            .build()?;
        let (stop, stopped) = oneshot::channel();
        let thread = Builder::new().name("http".into()).spawn(move || {
            // Nor do the threads that it starts need any.
            let _ = rights::keep(&[]);
            runtime.block_on(async {
                let serving = tokio::spawn(serve(listener, Arc::new(hosts), pages));
                // Either word is the end: it was said, or nobody is left to say it.
                let _ = stopped.await;
                serving.abort();
            });
            runtime.shutdown_timeout(END);
        })?;
        Ok(Self { stop: Some(stop), thread: Some(thread) })
    }
}

impl Drop for Http {
    fn drop(&mut self) {
        self.stop = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

async fn serve(listener: TcpListener, hosts: Arc<AllowedHosts>, pages: Arc<dyn Pages>) {
    let Ok(listener) = tokio::net::TcpListener::from_std(listener) else { return };
    let mut open = Connections::new(MOST);
    let requests = Arc::new(Mutex::new(Requests::default()));
    // Ends them all when this ends.
    let mut connections = JoinSet::new();
    loop {
        let Ok((stream, peer)) = listener.accept().await else {
            // Out of descriptors, as a rule: others may close some.
            tokio::time::sleep(Duration::from_millis(100)).await;
            continue;
        };
        let client = Client::of(peer.ip());
        open.make_room(client);
        while connections.try_join_next().is_some() {}
        let (hosts, pages) = (Arc::clone(&hosts), Arc::clone(&pages));
        let requests = Arc::clone(&requests);
        let connection = connections.spawn(async move {
            let service = service_fn(move |request| {
                let mut requests = requests.lock().unwrap_or_else(PoisonError::into_inner);
                let allowed = requests.admit(client, Instant::now());
                respond(Arc::clone(&hosts), Arc::clone(&pages), request, allowed)
            });
            let connection = hyper::server::conn::http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(HEADERS)
                .serve_connection(TokioIo::new(stream), service);
            // A client that is gone or wrong is no trouble of ours.
            let _ = tokio::time::timeout(LONGEST, connection).await;
        });
        open.add(client, connection);
    }
}

async fn respond(
    hosts: Arc<AllowedHosts>,
    pages: Arc<dyn Pages>,
    request: Request<Incoming>,
    allowed: bool,
) -> Result<Response<Full<Bytes>>, Infallible> {
    if !allowed {
        let mut response =
            response(HttpResponse::text(429, "more requests than one client may make"));
        response.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static("1"));
        return Ok(response);
    }
    if let Err(reply) = hosts.judge(&request) {
        return Ok(response(reply));
    }
    if !matches!(*request.method(), Method::GET | Method::HEAD) {
        let mut response = response(HttpResponse::text(405, "only GET and HEAD"));
        response.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
        return Ok(response);
    }
    let accept = request.headers().get(ACCEPT).and_then(|it| it.to_str().ok()).unwrap_or("");
    let wish = HttpRequest {
        path: request.uri().path().to_owned(),
        query: request.uri().query().unwrap_or("").to_owned(),
        accept: accept.to_owned(),
    };
    // Of a set, so that it is given up with the connection if it has not begun.
    let mut making = JoinSet::new();
    making.spawn_blocking(move || pages.page(&wish));
    let made = making.join_next().await.and_then(Result::ok);
    Ok(response(made.unwrap_or_else(|| HttpResponse::text(500, "the page was not made"))))
}

fn response(reply: HttpResponse) -> Response<Full<Bytes>> {
    let body = match reply.body {
        Cow::Borrowed(body) => Bytes::from_static(body.as_bytes()),
        Cow::Owned(body) => Bytes::from(body),
    };
    let mut response = Response::new(Full::new(body));
    *response.status_mut() =
        StatusCode::from_u16(reply.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(reply.kind));
    for (name, value) in FOR_BROWSERS {
        headers.insert(HeaderName::from_static(name), HeaderValue::from_static(value));
    }
    response
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::TcpStream;

    use super::*;

    struct Echo;

    impl Pages for Echo {
        fn page(&self, wish: &HttpRequest) -> HttpResponse {
            match wish.path.as_str() {
                "/" => HttpResponse::text(200, &wish.accept),
                path => HttpResponse::text(404, &format!("{path} {}", wish.query)),
            }
        }
    }

    fn free() -> SocketAddr {
        TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
    }

    fn say(to: SocketAddr, words: &str) -> String {
        let mut stream = TcpStream::connect(to).unwrap();
        stream.write_all(words.as_bytes()).unwrap();
        let mut heard = String::new();
        stream.read_to_string(&mut heard).unwrap();
        heard
    }

    #[test]
    fn pages_are_served_and_nothing_else_is_done() {
        let at = free();
        let server = Http::start(at, AllowedHosts::default(), Arc::new(Echo)).unwrap();
        let rest = "Host: localhost\r\nConnection: close\r\n";
        let heard = say(at, &format!("GET / HTTP/1.1\r\nAccept: text/x\r\n{rest}\r\n"));
        assert!(heard.starts_with("HTTP/1.1 200 OK\r\n") && heard.ends_with("\r\n\r\ntext/x\n"));
        let heard = say(at, &format!("GET /a?b HTTP/1.1\r\n{rest}\r\n"));
        assert!(heard.starts_with("HTTP/1.1 404 ") && heard.ends_with("/a b\n"), "{heard}");
        let heard = say(at, &format!("HEAD / HTTP/1.1\r\n{rest}\r\n"));
        assert!(heard.starts_with("HTTP/1.1 200 ") && heard.ends_with("\r\n\r\n"), "{heard}");
        let heard = say(at, &format!("POST / HTTP/1.1\r\nContent-Length: 0\r\n{rest}\r\n"));
        assert!(heard.starts_with("HTTP/1.1 405 "), "{heard}");
        assert!(say(at, "nonsense\r\n\r\n").starts_with("HTTP/1.1 400 "));
        // Many that say nothing, or begin and do not go on, keep nobody out.
        let mut idle: Vec<_> = (0..2 * MOST).map(|_| TcpStream::connect(at).unwrap()).collect();
        for slow in idle.iter_mut().step_by(2) {
            // Some of them are gone already.
            let _ = slow.write_all(b"GET / HTTP/1.1\r\nHost:");
        }
        let heard = say(at, &format!("GET / HTTP/1.1\r\nAccept: text/y\r\n{rest}\r\n"));
        assert!(heard.starts_with("HTTP/1.1 200 OK\r\n") && heard.ends_with("text/y\n"), "{heard}");
        for (name, value) in FOR_BROWSERS {
            assert!(heard.contains(&format!("\r\n{name}: {value}\r\n")), "{heard}");
        }
        // A client over its share gets the time to wait, in `Retry-After`.
        let many = "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n".repeat(1000);
        let last = format!("GET / HTTP/1.1\r\n{rest}\r\n");
        let heard = say(at, &format!("{many}{last}"));
        let (served, refused) =
            (heard.matches("HTTP/1.1 200 ").count(), heard.matches("HTTP/1.1 429 ").count());
        assert!(served > 0 && refused > 0 && served + refused == 1001, "{served}, {refused}");
        assert!(heard.contains("\r\nretry-after: 1\r\n"));
        // Nor do slow clients stop the end.
        drop(server);
        assert!(TcpListener::bind(at).is_ok());
    }
}
