//! The HTTP server of the metrics and the web page.
//!
//! ```text
//!   accept (MAX_CONNECTIONS) ─► hyper, HTTP/1.1 ─► RequestHandler::handle ─► HttpResponse
//!        one thread, tokio's current-thread runtime    └ a blocking thread of tokio's
//! ```
//!
//! hyper implements RFC 9110 and RFC 9112. The server answers only `GET` and `HEAD`, only requests
//! with an allowed `Host` (`allowed_hosts.rs`), and no request changes any state. A connection may
//! last 120 seconds, and a client has 10 seconds for its headers.
//! Each client has a limit of connections and of requests a second (`clients.rs`): a further
//! connection closes the client's oldest, a further request gets 429. When all
//! 64 connections are in use, a new connection closes the oldest of the client with the most.
//! Slow or silent clients, however many connections they open, therefore close their own and keep
//! no other client out. Handlers run on a thread of their own, because they call the control
//! thread, which may be busy; a handler whose client has disconnected is not started.
//!
//! Every response restricts the browser (`SECURITY_HEADERS`): scripts, styles and data from this
//! server only, no frames, no guessing of media types, no caching.
//!
//! There is no encryption and no authentication: the server is meant for the loopback address, a
//! network of the operator, or a place behind a proxy (`docs/decisions/0009-metrics-and-http.md`).

use std::borrow::Cow;
use std::convert::Infallible;
use std::io;
use std::net::TcpListener;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::{ACCEPT, ALLOW, CONTENT_TYPE, HeaderName, HeaderValue, RETRY_AFTER};
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use threads::{Rights, Task};
use tokio::sync::oneshot;
use tokio::task::JoinSet;

use super::allowed_hosts::AllowedHosts;
use super::clients::{Client, Connections, RequestLimiter};
use super::http_message::{HttpRequest, HttpResponse, RequestHandler};

/// The most connections at once.
pub(super) const MAX_CONNECTIONS: usize = 64;
/// The longest duration of a connection.
const CONNECTION_LIFETIME: Duration = Duration::from_secs(120);
/// The time that a client has to send its headers.
const HEADER_TIMEOUT: Duration = Duration::from_secs(10);
/// The time that running handlers have at the end.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(1);

/// Headers that restrict the browser.
const SECURITY_HEADERS: [(&str, &str); 5] = [
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

/// The running server. Dropping it stops it.
#[derive(Debug)]
pub struct Http {
    // Dropped first: this ends the thread, which is then joined.
    _stop: oneshot::Sender<()>,
    _thread: Task,
    listener: TcpListener,
}

impl Http {
    /// Starts to serve the clients of a listener.
    ///
    /// # Errors
    ///
    /// The system's error.
    pub fn start(
        listener: TcpListener,
        hosts: AllowedHosts,
        handler: Arc<dyn RequestHandler>,
    ) -> io::Result<Self> {
        listener.set_nonblocking(true)?;
        let served = listener.try_clone()?;
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .max_blocking_threads(2)
            .build()?;
        let (stop, stopped) = oneshot::channel();
        // Neither this thread nor those that it starts need a capability.
        let thread = Task::start("http", Rights::None, move |_| {
            runtime.block_on(async {
                let serving = tokio::spawn(serve(served, Arc::new(hosts), handler));
                // The sender is dropped to stop the server.
                let _ = stopped.await;
                serving.abort();
            });
            runtime.shutdown_timeout(SHUTDOWN_TIMEOUT);
        })?;
        Ok(Self { _stop: stop, _thread: thread, listener })
    }

    /// Returns the listener.
    pub fn listener(&self) -> &TcpListener {
        &self.listener
    }
}

async fn serve(listener: TcpListener, hosts: Arc<AllowedHosts>, handler: Arc<dyn RequestHandler>) {
    let Ok(listener) = tokio::net::TcpListener::from_std(listener) else { return };
    let mut open = Connections::new(MAX_CONNECTIONS);
    let requests = Arc::new(Mutex::new(RequestLimiter::default()));
    // Dropping the set ends all connections.
    let mut connections = JoinSet::new();
    loop {
        let Ok((stream, peer)) = listener.accept().await else {
            // Usually no descriptor is left: wait until other connections close.
            tokio::time::sleep(Duration::from_millis(100)).await;
            continue;
        };
        let client = Client::of(peer.ip());
        open.make_room(client);
        while connections.try_join_next().is_some() {}
        let (hosts, handler) = (Arc::clone(&hosts), Arc::clone(&handler));
        let requests = Arc::clone(&requests);
        let connection = connections.spawn(async move {
            let service = service_fn(move |request| {
                let mut requests = requests.lock().unwrap_or_else(PoisonError::into_inner);
                let allowed = requests.admit(client, Instant::now());
                respond(Arc::clone(&hosts), Arc::clone(&handler), request, allowed)
            });
            let connection = hyper::server::conn::http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(HEADER_TIMEOUT)
                .serve_connection(TokioIo::new(stream), service);
            // A client that disconnects or sends nonsense is not an error of the server.
            let _ = tokio::time::timeout(CONNECTION_LIFETIME, connection).await;
        });
        open.add(client, connection);
    }
}

async fn respond(
    hosts: Arc<AllowedHosts>,
    handler: Arc<dyn RequestHandler>,
    request: Request<Incoming>,
    allowed: bool,
) -> Result<Response<Full<Bytes>>, Infallible> {
    if !allowed {
        let mut response =
            response(HttpResponse::text(429, "too many requests from this client: wait a second"));
        response.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static("1"));
        return Ok(response);
    }
    if let Err(reply) = hosts.check(&request) {
        return Ok(response(reply));
    }
    if !matches!(*request.method(), Method::GET | Method::HEAD) {
        let mut response = response(HttpResponse::text(405, "only GET and HEAD are supported"));
        response.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
        return Ok(response);
    }
    let accept = request.headers().get(ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or("");
    let request = HttpRequest {
        path: request.uri().path().to_owned(),
        query: request.uri().query().unwrap_or("").to_owned(),
        accept: accept.to_owned(),
    };
    // A set, so that a handler that has not started is canceled with the connection.
    let mut handlers = JoinSet::new();
    handlers.spawn_blocking(move || handler.handle(&request));
    let reply = handlers.join_next().await.and_then(Result::ok);
    let failed = || HttpResponse::text(500, "the request handler failed: see the log");
    Ok(response(reply.unwrap_or_else(failed)))
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
    for (name, value) in SECURITY_HEADERS {
        headers.insert(HeaderName::from_static(name), HeaderValue::from_static(value));
    }
    response
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{SocketAddr, TcpStream};

    use super::*;

    struct Echo;

    impl RequestHandler for Echo {
        fn handle(&self, request: &HttpRequest) -> HttpResponse {
            match request.path.as_str() {
                "/" => HttpResponse::text(200, &request.accept),
                path => HttpResponse::text(404, &format!("{path} {}", request.query)),
            }
        }
    }

    fn exchange(to: SocketAddr, request: &str) -> String {
        let mut stream = TcpStream::connect(to).unwrap();
        stream.write_all(request.as_bytes()).unwrap();
        let mut response = String::new();
        stream.read_to_string(&mut response).unwrap();
        response
    }

    #[test]
    fn get_and_head_are_served_and_slow_or_greedy_clients_keep_no_other_out() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let at = listener.local_addr().unwrap();
        let server = Http::start(listener, AllowedHosts::default(), Arc::new(Echo)).unwrap();
        let rest = "Host: localhost\r\nConnection: close\r\n";
        let reply = exchange(at, &format!("GET / HTTP/1.1\r\nAccept: text/x\r\n{rest}\r\n"));
        assert!(reply.starts_with("HTTP/1.1 200 OK\r\n") && reply.ends_with("\r\n\r\ntext/x\n"));
        let reply = exchange(at, &format!("GET /a?b HTTP/1.1\r\n{rest}\r\n"));
        assert!(reply.starts_with("HTTP/1.1 404 ") && reply.ends_with("/a b\n"), "{reply}");
        let reply = exchange(at, &format!("HEAD / HTTP/1.1\r\n{rest}\r\n"));
        assert!(reply.starts_with("HTTP/1.1 200 ") && reply.ends_with("\r\n\r\n"), "{reply}");
        let reply = exchange(at, &format!("POST / HTTP/1.1\r\nContent-Length: 0\r\n{rest}\r\n"));
        assert!(reply.starts_with("HTTP/1.1 405 "), "{reply}");
        assert!(exchange(at, "nonsense\r\n\r\n").starts_with("HTTP/1.1 400 "));
        // Many silent or slow connections keep no other client out.
        let mut idle: Vec<_> =
            (0..2 * MAX_CONNECTIONS).map(|_| TcpStream::connect(at).unwrap()).collect();
        for slow in idle.iter_mut().step_by(2) {
            // The server has closed some of them already.
            let _ = slow.write_all(b"GET / HTTP/1.1\r\nHost:");
        }
        let reply = exchange(at, &format!("GET / HTTP/1.1\r\nAccept: text/y\r\n{rest}\r\n"));
        assert!(reply.starts_with("HTTP/1.1 200 OK\r\n") && reply.ends_with("text/y\n"), "{reply}");
        for (name, value) in SECURITY_HEADERS {
            assert!(reply.contains(&format!("\r\n{name}: {value}\r\n")), "{reply}");
        }
        // A client over its share gets the time to wait, in `Retry-After`.
        let many = "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n".repeat(1000);
        let last = format!("GET / HTTP/1.1\r\n{rest}\r\n");
        let reply = exchange(at, &format!("{many}{last}"));
        let (served, refused) =
            (reply.matches("HTTP/1.1 200 ").count(), reply.matches("HTTP/1.1 429 ").count());
        assert!(served > 0 && refused > 0 && served + refused == 1001, "{served}, {refused}");
        assert!(reply.contains("\r\nretry-after: 1\r\n"));
        // Slow clients do not delay the end.
        drop(server);
        assert!(TcpListener::bind(at).is_ok());
    }
}
