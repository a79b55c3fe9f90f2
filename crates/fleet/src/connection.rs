//! The options of a connection, and the reason why there is none.
//!
//! The client of `async-nats` connects again by itself, with growing pauses, to any server of the URL or
//! of its cluster. [`ConnectionState`] follows its events.

use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_nats::{Client, ConnectOptions, Event};

use crate::url::FleetUrl;

/// Time limit of a connection attempt.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Longest pause between two attempts. With thousands of members it spreads their return.
const MAX_PAUSE: Duration = Duration::from_secs(2);
/// Interval of pings: two without an answer end a connection.
const PING_INTERVAL: Duration = Duration::from_secs(10);

/// The proof of identity that a server requires, and the certificates that the client trusts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Access {
    /// A NATS credentials file (JWT and NKey), as `nsc` writes it.
    pub credentials: Option<PathBuf>,
    /// Root certificates in PEM, in addition to those of the system.
    pub root_file: Option<PathBuf>,
}

/// Whether there is a connection.
#[derive(Debug, Default)]
pub(crate) struct ConnectionState {
    pub(crate) is_connected: bool,
    /// The number of connections so far.
    pub(crate) count: u64,
    /// The reason why there is none now, or the last error that the server has reported.
    pub(crate) error: Option<String>,
}

/// The state, shared with the client's events.
pub(crate) type SharedConnectionState = Arc<Mutex<ConnectionState>>;

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Connects. With `keeps_trying` it returns at once, and the client connects when a server is there.
pub(crate) async fn connect(
    url: &FleetUrl,
    access: &Access,
    name: &str,
    keeps_trying: bool,
    state: &SharedConnectionState,
) -> io::Result<Client> {
    let mut options = ConnectOptions::new();
    if let Some(file) = &access.credentials {
        let at_file =
            |error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", file.display()));
        options = options.credentials_file(file).await.map_err(at_file)?;
    }
    if let Some(file) = &access.root_file {
        options = options.add_root_certificates(file.clone());
    }
    let follower = Arc::clone(state);
    let mut options = options
        .name(format!("fingerpost {name}"))
        .require_tls(url.requires_tls())
        .connection_timeout(CONNECT_TIMEOUT)
        .ping_interval(PING_INTERVAL)
        .reconnect_delay_callback(|attempts| {
            Duration::from_millis(50 << attempts.min(6)).min(MAX_PAUSE)
        })
        .event_callback(move |event| {
            follow(&follower, &event);
            std::future::ready(())
        });
    if keeps_trying {
        options = options.retry_on_initial_connect();
    }
    options.connect(url.servers().collect::<Vec<_>>()).await.map_err(io::Error::other)
}

/// Records an event of the client.
fn follow(state: &SharedConnectionState, event: &Event) {
    let mut state = lock(state);
    match event {
        Event::Connected => {
            state.count += 1;
            state.is_connected = true;
            state.error = None;
        }
        Event::Disconnected | Event::Closed => {
            state.is_connected = false;
            state.error = Some("disconnected".to_owned());
        }
        Event::ClientError(error) if !state.is_connected => state.error = Some(error.to_string()),
        // A permission that is missing, for example. The connection remains.
        Event::ServerError(error) => state.error = Some(error.to_string()),
        _ => {}
    }
}
