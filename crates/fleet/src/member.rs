//! The connection of a member: a thread that reads the current bundle and publishes the member's state.
//!
//! ```text
//!   subscription of the control bucket ──────┬─ `current` changed? ─► object ─ digest ─► the member takes it
//!   each connection, interval ─ direct gets ─┴─ `blocked` ─► the member takes it
//!   the member's state ─► acknowledged by the servers, or published again at the next connection
//! ```
//!
//! Any replica answers a direct get, also one that does not have the last message yet. So what the
//! subscription delivers is taken as it is; a record that is read counts if its sequence is above that of the
//! record read before; and an object with another digest than the record's is read again soon.
//!
//! A bundle that the member has taken is not kept here.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use async_nats::jetstream::context::PublishError;
use async_nats::jetstream::{self, Context};
use async_nats::{Client, Subscriber};
use futures_util::StreamExt as _;
use threads::{Rights, Stop, Task};
use tokio::time::timeout;

use crate::connection::{Access, SharedConnectionState, connect, lock};
use crate::names::{BLOCKED, CURRENT, CurrentVersion, Names};
use crate::object::{digest, is_not_found, read_object};
use crate::url::FleetUrl;

/// The interval at which the thread looks at its orders.
const TICK: Duration = Duration::from_millis(100);
/// Time limit of an answer of the servers.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);
/// Time limit of reading a bundle.
const OBJECT_TIMEOUT: Duration = Duration::from_secs(60);
/// The pause after an error of the servers, before the next attempt.
const RETRY: Duration = Duration::from_secs(1);
/// Longest wait for the thread to end.
const JOIN_TIMEOUT: Duration = Duration::from_secs(2);

/// The bytes of a possible bundle, or the reason why they were not read.
pub type ReadResult = Result<Vec<u8>, String>;

/// The data that the member and the thread exchange.
#[derive(Debug, Default)]
struct Shared {
    connection: SharedConnectionState,
    /// A bundle that the member has not taken yet, with its name.
    bundle: Mutex<Option<(String, Vec<u8>)>>,
    /// The signed list of blocked prefixes, if the member has not taken it yet.
    blocks: Mutex<Option<Vec<u8>>>,
    /// The error of the last read.
    error: Mutex<Option<String>>,
    /// The error of the last publication.
    publish_error: Mutex<Option<String>>,
    /// The member's state, if it is still to be published.
    state: Mutex<Option<Vec<u8>>>,
    /// The current bundle is to be read again.
    must_read: AtomicBool,
}

/// A member's connection; dropping it ends the thread.
#[derive(Debug)]
pub struct MemberConnection {
    url: FleetUrl,
    shared: Arc<Shared>,
    task: Option<Task>,
}

/// The parameters of the thread.
struct Session {
    url: FleetUrl,
    access: Access,
    names: Names,
    member: String,
    interval: Duration,
    max_bytes: usize,
    shared: Arc<Shared>,
    /// The version whose bundle was read last.
    read: Option<CurrentVersion>,
    /// The version whose bundle is to be read.
    wanted: Option<CurrentVersion>,
    /// The sequences of the records that were read last, in this connection: `current`, `blocked`.
    sequences: [u64; 2],
}

impl MemberConnection {
    /// Starts the thread of a member, which reads `current` again every `interval`, and bundles of at most
    /// `max_bytes`.
    ///
    /// # Errors
    ///
    /// The system's error for the thread or its runtime.
    pub fn start(
        url: FleetUrl,
        access: Access,
        member: &str,
        interval: Duration,
        max_bytes: usize,
    ) -> io::Result<Self> {
        let shared = Arc::new(Shared::default());
        lock(&shared.connection).error = Some("not connected yet".to_owned());
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let mut session = Session {
            names: Names::of(url.fleet()),
            url: url.clone(),
            access,
            member: member.to_owned(),
            interval,
            max_bytes,
            shared: Arc::clone(&shared),
            read: None,
            wanted: None,
            sequences: [0; 2],
        };
        let task = Task::start("fleet", Rights::None, move |stop| {
            runtime.block_on(session.run(stop));
            // A name lookup cannot be interrupted.
            runtime.shutdown_background();
        })?;
        Ok(Self { url, shared, task: Some(task) })
    }

    /// Returns the URL.
    pub fn url(&self) -> &FleetUrl {
        &self.url
    }

    /// Takes the current bundle, with its name, if it has changed since the last call.
    ///
    /// # Errors
    ///
    /// The reason why the member may not have the current version: no connection, no such fleet, an object
    /// that cannot be read.
    pub fn take_bundle(&self) -> Result<Option<(String, Vec<u8>)>, String> {
        if let Some(bundle) = lock(&self.shared.bundle).take() {
            return Ok(Some(bundle));
        }
        let error = lock(&self.shared.connection).error.clone();
        let error = error
            .or_else(|| lock(&self.shared.error).clone())
            .or_else(|| lock(&self.shared.publish_error).clone());
        error.map_or(Ok(None), |error| Err(format!("{}: {error}", self.url)))
    }

    /// Takes the signed list of blocked prefixes, if the servers have delivered one since the last call; it
    /// may be the same again.
    pub fn take_blocks(&self) -> Option<Vec<u8>> {
        lock(&self.shared.blocks).take()
    }

    /// Makes the thread read the current bundle again.
    pub fn read_again(&self) {
        self.shared.must_read.store(true, Ordering::Relaxed);
    }

    /// Publishes the member's state. A state that was not published yet is replaced.
    pub fn publish(&self, state: Vec<u8>) {
        *lock(&self.shared.state) = Some(state);
    }
}

impl Drop for MemberConnection {
    fn drop(&mut self) {
        if let Some(task) = self.task.take() {
            task.stop_within(JOIN_TIMEOUT);
        }
    }
}

impl Session {
    async fn run(&mut self, stop: &Stop) {
        while !stop.is_set() {
            if let Err(error) = self.connect_and_follow(stop).await {
                *lock(&self.shared.error) = Some(error);
            }
            // Wrong credentials, for example: a file may change.
            if !stop.is_set() {
                tokio::time::sleep(RETRY).await;
            }
        }
    }

    async fn connect_and_follow(&mut self, stop: &Stop) -> Result<(), String> {
        let connection = &self.shared.connection;
        let client = connect(&self.url, &self.access, &self.member, true, connection).await;
        let client = client.map_err(|error| error.to_string())?;
        let subscription = client.subscribe(self.names.control("*")).await;
        let mut subscription = subscription.map_err(|error| error.to_string())?;
        self.follow(&client, &mut subscription, stop).await;
        // The member's last state may still be in the client's buffer.
        let _ = timeout(RETRY, client.drain()).await;
        Ok(())
    }

    /// Follows the current version until the end.
    async fn follow(&mut self, client: &Client, subscription: &mut Subscriber, stop: &Stop) {
        let mut context = jetstream::new(client.clone());
        context.set_timeout(ANSWER_TIMEOUT);
        let (mut connections, mut next) = (0, Instant::now());
        while !stop.is_set() {
            match timeout(TICK, subscription.next()).await {
                Ok(Some(message)) => self.take_message(&message.subject, &message.payload),
                Ok(None) => return,
                Err(_) => {}
            }
            let count = {
                let connection = lock(&self.shared.connection);
                if !connection.is_connected {
                    continue;
                }
                connection.count
            };
            let must_read = self.shared.must_read.swap(false, Ordering::Relaxed);
            if must_read {
                self.read = None;
            }
            let mut done = Ok(());
            if must_read || count != connections || Instant::now() >= next {
                if must_read || count != connections {
                    // The fleet may have been created again, with sequences from 1.
                    self.sequences = [0; 2];
                }
                connections = count;
                done = self.read_control(&context).await;
                next = Instant::now() + if done.is_ok() { self.interval } else { RETRY };
                if done.is_ok() {
                    // An error that the server has reported before, if any, is over.
                    lock(&self.shared.connection).error = None;
                }
                *lock(&self.shared.error) = done.clone().err();
            }
            if done.is_ok() && self.wanted.is_some() && self.wanted != self.read {
                done = self.read_bundle(&context).await;
                if done.is_err() {
                    next = Instant::now() + RETRY;
                    tokio::time::sleep(RETRY / 4).await;
                }
                *lock(&self.shared.error) = done.err();
            }
            self.publish_state(&context).await;
        }
    }

    /// Takes a message of the subscription.
    fn take_message(&mut self, subject: &str, payload: &[u8]) {
        if subject == self.names.control(CURRENT) {
            self.wanted = serde_json::from_slice(payload).ok();
        } else if subject == self.names.control(BLOCKED) {
            *lock(&self.shared.blocks) = Some(payload.to_vec());
        }
    }

    /// Reads the current version and the list of blocked prefixes.
    async fn read_control(&mut self, context: &Context) -> Result<(), String> {
        let stream = context.get_stream_no_info(Names::stream_of(&self.names.control)).await;
        let stream = stream.map_err(|error| error.to_string())?;
        for (i, key) in [CURRENT, BLOCKED].into_iter().enumerate() {
            let subject = self.names.control(key);
            let message = match stream.direct_get_last_for_subject(subject.clone()).await {
                Ok(message) => message,
                // A fleet whose first version, or block, is still to come.
                Err(error) if is_not_found(&error) => continue,
                Err(error) => return Err(format!("reading the record {key}: {error}")),
            };
            if message.sequence > self.sequences[i] {
                self.sequences[i] = message.sequence;
                self.take_message(&subject, &message.payload);
            }
        }
        Ok(())
    }

    /// Reads the bundle of the current version.
    async fn read_bundle(&mut self, context: &Context) -> Result<(), String> {
        let Some(current) = self.wanted.clone() else { return Ok(()) };
        let stream = context.get_stream_no_info(self.names.bundle_stream()).await;
        let stream = stream.map_err(|error| error.to_string())?;
        let name = current.version.to_string();
        let read = read_object(&stream, &self.names.bundles, &name, self.max_bytes);
        let bytes = timeout(OBJECT_TIMEOUT, read).await.map_err(|_| {
            format!("object {name} was not read within {} s", OBJECT_TIMEOUT.as_secs())
        })??;
        if digest(&bytes) != current.digest {
            return Err(format!("object {name} does not have the digest of the current version"));
        }
        *lock(&self.shared.bundle) = Some((format!("{}: bundle {name}", self.url), bytes));
        self.read = Some(current);
        Ok(())
    }

    /// Publishes the member's state, if it is still to be published.
    async fn publish_state(&self, context: &Context) {
        let Some(state) = lock(&self.shared.state).take() else { return };
        let subject = self.names.member(&self.member);
        let published = async {
            context.publish(subject, state.clone().into()).await?.await?;
            Ok::<(), PublishError>(())
        };
        let failed = published.await.err();
        if failed.is_some() {
            // Unless there is a newer one.
            lock(&self.shared.state).get_or_insert(state);
        }
        *lock(&self.shared.publish_error) =
            failed.map(|error| format!("publishing this member's state: {error}"));
    }
}
