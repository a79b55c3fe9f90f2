//! The connection of a command: each call waits for the answer of the servers.

use std::fmt;
use std::io;
use std::time::Duration;

use async_nats::jetstream::{self, Context, kv, object_store, stream};
use futures_util::StreamExt as _;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::runtime::Runtime;
use tokio::time::timeout;

use crate::connection::{Access, SharedConnectionState, connect};
use crate::names::{BLOCKED, COMPLETE, CURRENT, CurrentVersion, Names, ROLLOUT, RolloutRecord};
use crate::object::{digest, is_not_found, read_object};
use crate::url::FleetUrl;

/// Time limit of a call, and of the connection.
const TIMEOUT: Duration = Duration::from_secs(10);
/// Time limit of a request: one that comes while the servers choose a leader gets no answer.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(2);
/// Most versions in the record of complete ones.
const MAX_COMPLETE: usize = 8;
/// Time limit of a bundle of 64 MiB.
const OBJECT_TIMEOUT: Duration = Duration::from_secs(300);
/// Requests that are on their way at the same time.
const REQUESTS: usize = 64;

/// The error of a call, with the URL of the fleet.
#[derive(Debug)]
pub struct BrokerError {
    url: FleetUrl,
    message: String,
}

impl fmt::Display for BrokerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.url, self.message)
    }
}

impl std::error::Error for BrokerError {}

/// A state as the servers store it: nothing of it is verified.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredState {
    /// The member, by the key.
    pub member: String,
    /// The signed state.
    pub bytes: Vec<u8>,
}

/// A connection to the fleet.
pub struct Broker {
    url: FleetUrl,
    names: Names,
    runtime: Runtime,
    context: Context,
}

impl fmt::Debug for Broker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Broker").field("url", &self.url).finish_non_exhaustive()
    }
}

/// Returns the stream of a key-value bucket (ADR-8). The client would create it only after a query whose
/// answer it cannot read from servers of version 2.9.
fn key_value_stream(bucket: &str, history: i64, replicas: usize) -> stream::Config {
    stream::Config {
        name: Names::stream_of(bucket),
        subjects: vec![format!("$KV.{bucket}.>")],
        max_messages_per_subject: history,
        discard: stream::DiscardPolicy::New,
        allow_rollup: true,
        deny_delete: true,
        allow_direct: true,
        num_replicas: replicas,
        ..Default::default()
    }
}

/// The error of an asynchronous call, as text.
fn text(error: impl fmt::Display) -> String {
    error.to_string()
}

impl Broker {
    /// Connects to one of the servers.
    ///
    /// # Errors
    ///
    /// The reason why no server of the URL accepts the connection.
    pub fn connect(url: FleetUrl, access: &Access) -> Result<Self, BrokerError> {
        let failed = |message| BrokerError { url: url.clone(), message };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|error: io::Error| failed(text(error)))?;
        let state = SharedConnectionState::default();
        let connected = runtime.block_on(async {
            let client = timeout(TIMEOUT, connect(&url, access, "command", false, &state)).await;
            let client = client
                .map_err(|_| format!("no connection within {} s", TIMEOUT.as_secs()))?
                .map_err(text)?;
            // It starts a task of the runtime.
            let mut context = jetstream::new(client);
            context.set_timeout(REQUEST_TIMEOUT);
            Ok(context)
        });
        let context = connected.map_err(|message: String| {
            failed(format!("{message}: is nats-server running there, with JetStream (-js)?"))
        })?;
        Ok(Self { names: Names::of(url.fleet()), url, runtime, context })
    }

    /// Waits for a call.
    fn wait<T>(&self, call: impl Future<Output = Result<T, String>>) -> Result<T, BrokerError> {
        self.wait_within(TIMEOUT, call)
    }

    fn wait_within<T>(
        &self,
        limit: Duration,
        call: impl Future<Output = Result<T, String>>,
    ) -> Result<T, BrokerError> {
        let done = self.runtime.block_on(async { timeout(limit, call).await });
        let done = done.unwrap_or_else(|_| Err(format!("no answer within {} s", limit.as_secs())));
        done.map_err(|message| BrokerError { url: self.url.clone(), message })
    }

    /// Waits for a time, in which the connection stays alive.
    pub fn sleep(&self, time: Duration) {
        // The timer belongs to the runtime: it is created within.
        self.runtime.block_on(async { tokio::time::sleep(time).await });
    }

    /// Returns the URL.
    pub fn url(&self) -> &FleetUrl {
        &self.url
    }

    /// Creates the buckets of the fleet, each on so many servers of a cluster, unless they exist.
    ///
    /// # Errors
    ///
    /// The servers' reason, for example fewer servers than `replicas`, or no JetStream.
    pub fn create(&self, replicas: usize) -> Result<(), BrokerError> {
        let Names { bundles, control, members } = &self.names;
        self.wait(async {
            let store = object_store::Config {
                bucket: bundles.clone(),
                num_replicas: replicas,
                ..Default::default()
            };
            self.context.create_object_store(store).await.map_err(text)?;
            for (bucket, history) in [(control, 64), (members, 1)] {
                let config = key_value_stream(bucket, history, replicas);
                self.context.create_stream(config).await.map_err(text)?;
            }
            Ok(())
        })
    }

    async fn control(&self) -> Result<kv::Store, String> {
        let bucket = self.context.get_key_value(&self.names.control).await;
        bucket.map_err(|error| {
            format!("{error}: is there this fleet? `fingerpost fleet create` creates one")
        })
    }

    fn record<T: DeserializeOwned>(&self, key: &str) -> Result<Option<T>, BrokerError> {
        self.wait(async {
            let entry = self.control().await?.get(key).await.map_err(text)?;
            let record = entry.map(|bytes| serde_json::from_slice(&bytes)).transpose();
            record.map_err(|error| format!("the record {key}: {error}"))
        })
    }

    fn put_record(&self, key: &str, record: &impl Serialize) -> Result<(), BrokerError> {
        self.wait(async {
            let bytes = serde_json::to_vec(record).map_err(text)?;
            self.control().await?.put(key, bytes.into()).await.map(drop).map_err(text)
        })
    }

    /// Returns the version that members are to have; none before the first one.
    ///
    /// # Errors
    ///
    /// The servers' reason, or that there is no such fleet.
    pub fn current(&self) -> Result<Option<CurrentVersion>, BrokerError> {
        self.record(CURRENT)
    }

    /// Returns the last rollout.
    ///
    /// # Errors
    ///
    /// As [`Broker::current`].
    pub fn rollout(&self) -> Result<Option<RolloutRecord>, BrokerError> {
        self.record(ROLLOUT)
    }

    /// Stores the state of the rollout.
    ///
    /// # Errors
    ///
    /// As [`Broker::current`].
    pub fn put_rollout(&self, record: &RolloutRecord) -> Result<(), BrokerError> {
        self.put_record(ROLLOUT, record)
    }

    /// Returns the last versions that all members had, in ascending order.
    ///
    /// # Errors
    ///
    /// As [`Broker::current`].
    pub fn complete_versions(&self) -> Result<Vec<u64>, BrokerError> {
        Ok(self.record(COMPLETE)?.unwrap_or_default())
    }

    /// Adds a version to those that all members had.
    ///
    /// # Errors
    ///
    /// As [`Broker::current`].
    pub fn add_complete_version(&self, version: u64) -> Result<(), BrokerError> {
        let mut versions = self.complete_versions()?;
        versions.retain(|known| *known != version);
        versions.push(version);
        versions.sort_unstable();
        versions.drain(..versions.len().saturating_sub(MAX_COMPLETE));
        self.put_record(COMPLETE, &versions)
    }

    /// Reads the signed list of blocked prefixes, with its revision; nothing of it is verified.
    ///
    /// # Errors
    ///
    /// As [`Broker::current`].
    pub fn blocks(&self) -> Result<Option<(Vec<u8>, u64)>, BrokerError> {
        self.wait(async {
            let entry = self.control().await?.entry(BLOCKED).await.map_err(text)?;
            Ok(entry.map(|entry| (entry.value.to_vec(), entry.revision)))
        })
    }

    /// Stores a signed list of blocked prefixes in place of that with the given revision; 0 is none.
    ///
    /// # Errors
    ///
    /// As [`Broker::current`], and that someone else has stored another list meanwhile.
    pub fn put_blocks(&self, signed: Vec<u8>, revision: u64) -> Result<(), BrokerError> {
        self.wait(async {
            let stored = self.control().await?.update(BLOCKED, signed.into(), revision).await;
            stored.map(drop).map_err(|error| {
                format!("{error}: someone else may have changed the blocks: repeat the command")
            })
        })
    }

    /// Stores a bundle and makes it the current one.
    ///
    /// # Errors
    ///
    /// As [`Broker::current`].
    pub fn put_bundle(&self, version: u64, bytes: &[u8]) -> Result<(), BrokerError> {
        self.wait_within(OBJECT_TIMEOUT, async {
            let store = self.context.get_object_store(&self.names.bundles).await.map_err(text)?;
            let name = version.to_string();
            store.put(name.as_str(), &mut &bytes[..]).await.map(drop).map_err(text)
        })?;
        self.put_record(CURRENT, &CurrentVersion { version, digest: digest(bytes) })
    }

    /// Reads a bundle of at most `max_bytes`.
    ///
    /// # Errors
    ///
    /// As [`Broker::current`], and that the version is not there.
    pub fn bundle(&self, version: u64, max_bytes: usize) -> Result<Vec<u8>, BrokerError> {
        self.wait_within(OBJECT_TIMEOUT, async {
            let stream = self.context.get_stream_no_info(self.names.bundle_stream()).await;
            let stream = stream.map_err(text)?;
            read_object(&stream, &self.names.bundles, &version.to_string(), max_bytes).await
        })
    }

    /// Lists the versions whose bundles are stored, in ascending order.
    ///
    /// # Errors
    ///
    /// As [`Broker::current`].
    pub fn versions(&self) -> Result<Vec<u64>, BrokerError> {
        self.wait(async {
            let store = self.context.get_object_store(&self.names.bundles).await.map_err(text)?;
            let mut list = store.list().await.map_err(text)?;
            let mut versions = Vec::new();
            while let Some(object) = list.next().await {
                versions.extend(object.map_err(text)?.name.parse::<u64>());
            }
            versions.sort_unstable();
            Ok(versions)
        })
    }

    /// Deletes the bundle of a version.
    ///
    /// # Errors
    ///
    /// As [`Broker::current`].
    pub fn delete_bundle(&self, version: u64) -> Result<(), BrokerError> {
        self.wait(async {
            let store = self.context.get_object_store(&self.names.bundles).await.map_err(text)?;
            store.delete(version.to_string()).await.map_err(text)
        })
    }

    /// Lists the members that have published a state, in order.
    ///
    /// # Errors
    ///
    /// As [`Broker::current`].
    pub fn member_names(&self) -> Result<Vec<String>, BrokerError> {
        self.wait(async {
            let stream = Names::stream_of(&self.names.members);
            let stream = self.context.get_stream(stream).await.map_err(text)?;
            let prefix = self.names.member("");
            let mut subjects =
                stream.info_with_subjects(format!("{prefix}>")).await.map_err(text)?;
            let mut names = Vec::new();
            while let Some(subject) = subjects.next().await {
                let (subject, _) = subject.map_err(text)?;
                names.extend(subject.strip_prefix(&prefix).map(str::to_owned));
            }
            names.sort_unstable();
            Ok(names)
        })
    }

    /// Reads the states of members, in their order; skips members without one. It makes no consumer, which
    /// could be placed on a server that has just failed.
    ///
    /// # Errors
    ///
    /// As [`Broker::current`].
    pub fn members<'n>(
        &self,
        names: impl Iterator<Item = &'n str>,
    ) -> Result<Vec<StoredState>, BrokerError> {
        self.wait(async {
            let stream = Names::stream_of(&self.names.members);
            let stream = &self.context.get_stream_no_info(stream).await.map_err(text)?;
            let read = |name: &'n str| async move {
                let message = stream.direct_get_last_for_subject(self.names.member(name)).await;
                match message {
                    // The mark of a removed member is empty.
                    Ok(message) if message.payload.is_empty() => Ok(None),
                    Ok(message) => {
                        let bytes = message.payload.to_vec();
                        Ok(Some(StoredState { member: name.to_owned(), bytes }))
                    }
                    Err(error) if is_not_found(&error) => Ok(None),
                    Err(error) => Err(text(error)),
                }
            };
            let mut states = futures_util::stream::iter(names.map(read)).buffered(REQUESTS);
            let mut all = Vec::new();
            while let Some(state) = states.next().await {
                all.extend(state?);
            }
            Ok(all)
        })
    }

    /// Removes a member that is gone.
    ///
    /// # Errors
    ///
    /// As [`Broker::current`].
    pub fn remove_member(&self, name: &str) -> Result<(), BrokerError> {
        self.wait(async {
            let store = self.context.get_key_value(&self.names.members).await.map_err(text)?;
            store.purge(name).await.map_err(text)
        })
    }
}
