//! Limits connections and requests of each client of the HTTP server.
//!
//! A client is an IPv4 address, or the /64 of an IPv6 address, because one host may use all of it.
//! It may hold [`CONNECTIONS`] and send [`RATE`] requests a second, [`BURST`] at once. All clients
//! behind a proxy count as one: the limits are far above the needs of a browser with some pages.
//!
//! Each of [`MAX_CLIENTS`] clients has a token bucket for its requests, which is removed when it is
//! full again. Where more clients send requests within seconds, the others share one bucket.

use std::collections::{HashMap, VecDeque};
use std::net::{IpAddr, Ipv6Addr};
use std::time::Instant;

use tokio::task::AbortHandle;

/// Connections of a client at once.
const CONNECTIONS: usize = 8;
/// Requests of a client in a second.
const RATE: f64 = 50.0;
/// Requests of a client at once.
const BURST: f64 = 200.0;
/// The most clients whose requests are counted separately.
const MAX_CLIENTS: usize = 4096;

/// A client, by its address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Client(IpAddr);

impl Client {
    /// Returns the client with an address.
    pub(super) fn of(address: IpAddr) -> Self {
        match address.to_canonical() {
            IpAddr::V6(v6) => Self(Ipv6Addr::from_bits(v6.to_bits() >> 64 << 64).into()),
            v4 => Self(v4),
        }
    }
}

/// The open connections, the oldest first.
#[derive(Debug)]
pub(super) struct Connections {
    most: usize,
    open: VecDeque<(Client, AbortHandle)>,
}

impl Connections {
    pub(super) fn new(most: usize) -> Self {
        Self { most, open: VecDeque::with_capacity(most) }
    }

    /// Closes a connection if a new one of `client` exceeds a limit: the client's oldest, or the
    /// oldest of the client with the most.
    pub(super) fn make_room(&mut self, client: Client) {
        self.open.retain(|(_, connection)| !connection.is_finished());
        let mut counts = HashMap::<Client, usize>::new();
        for (client, _) in &self.open {
            *counts.entry(*client).or_default() += 1;
        }
        let full = self.open.len() >= self.most;
        let loser = if counts.get(&client).is_some_and(|count| *count >= CONNECTIONS) {
            Some(client)
        } else if full {
            counts.into_iter().max_by_key(|(_, count)| *count).map(|(client, _)| client)
        } else {
            None
        };
        let oldest = self.open.iter().position(|(client, _)| Some(*client) == loser);
        if let Some((_, connection)) = oldest.and_then(|at| self.open.remove(at)) {
            connection.abort();
        }
    }

    pub(super) fn add(&mut self, client: Client, connection: AbortHandle) {
        self.open.push_back((client, connection));
    }
}

/// A token bucket: the tokens at a time.
#[derive(Clone, Copy, Debug)]
struct TokenBucket {
    tokens: f64,
    at: Instant,
}

impl TokenBucket {
    fn full(at: Instant) -> Self {
        Self { tokens: BURST, at }
    }

    fn fill(&mut self, now: Instant) {
        let passed = now.saturating_duration_since(self.at).as_secs_f64();
        (self.tokens, self.at) = ((self.tokens + passed * RATE).min(BURST), now);
    }

    fn take(&mut self, now: Instant) -> bool {
        self.fill(now);
        let has_token = self.tokens >= 1.0;
        self.tokens -= f64::from(u8::from(has_token));
        has_token
    }
}

/// Limits the requests of all clients.
#[derive(Debug, Default)]
pub(super) struct RequestLimiter {
    clients: HashMap<Client, TokenBucket>,
    /// The shared bucket of clients beyond [`MAX_CLIENTS`].
    shared: Option<TokenBucket>,
}

impl RequestLimiter {
    /// Counts a request of a client; returns whether it is within the limit.
    pub(super) fn admit(&mut self, client: Client, now: Instant) -> bool {
        if !self.clients.contains_key(&client) && self.clients.len() >= MAX_CLIENTS {
            self.clients.retain(|_, bucket| {
                bucket.fill(now);
                bucket.tokens < BURST
            });
        }
        let full = self.clients.len() >= MAX_CLIENTS && !self.clients.contains_key(&client);
        let bucket = match full {
            true => self.shared.get_or_insert_with(|| TokenBucket::full(now)),
            false => self.clients.entry(client).or_insert_with(|| TokenBucket::full(now)),
        };
        bucket.take(now)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn v4(number: u32) -> Client {
        Client::of(IpAddr::V4(number.into()))
    }

    #[test]
    fn client_is_an_ipv4_address_or_an_ipv6_64() {
        let of = |text: &str| Client::of(text.parse().unwrap());
        assert_eq!(of("::ffff:192.0.2.1"), of("192.0.2.1"));
        assert_eq!(of("2001:db8::1"), of("2001:db8::2:0:0:1"));
        assert_ne!(of("2001:db8:0:1::1"), of("2001:db8::1"));
        assert_ne!(of("192.0.2.1"), of("192.0.2.2"));
    }

    #[tokio::test(flavor = "current_thread")]
    async fn client_with_most_connections_loses_its_oldest() {
        let mut connections = Connections::new(20);
        let mut open = Vec::new();
        let mut connect = |connections: &mut Connections, client| {
            connections.make_room(client);
            let task = tokio::spawn(std::future::pending::<()>());
            connections.add(client, task.abort_handle());
            open.push((client, task));
        };
        connect(&mut connections, v4(1));
        for _ in 0..1000 {
            connect(&mut connections, v4(2));
        }
        assert_eq!(connections.open.len(), 1 + CONNECTIONS, "each client has its own limit");
        for other in 3..14 {
            connect(&mut connections, v4(other));
        }
        assert_eq!(connections.open.len(), 20);
        // All connections are in use: the client with the most loses one.
        for other in 14..20 {
            connect(&mut connections, v4(other));
        }
        assert_eq!(connections.open.len(), 20);
        let has = |client| connections.open.iter().filter(|(owner, _)| *owner == client).count();
        assert_eq!((has(v4(2)), has(v4(1))), (2, 1));
        tokio::task::yield_now().await;
        let first = open.iter().find(|(client, _)| *client == v4(1)).unwrap();
        assert!(!first.1.is_finished(), "a client with one connection keeps it");
    }

    #[test]
    fn requests_beyond_a_clients_limit_are_refused_and_no_others() {
        let (mut requests, begin) = (RequestLimiter::default(), Instant::now());
        let admitted = |requests: &mut RequestLimiter, client, now| {
            (0..1000).filter(|_| requests.admit(client, now)).count()
        };
        assert_eq!(admitted(&mut requests, v4(1), begin), BURST as usize);
        assert_eq!(admitted(&mut requests, v4(2), begin), BURST as usize);
        let later = begin + Duration::from_secs(1);
        assert_eq!(admitted(&mut requests, v4(1), later), RATE as usize);
        // The number of buckets is bounded, however many clients there are.
        for client in 0..3 * MAX_CLIENTS as u32 {
            requests.admit(v4(client), later);
        }
        assert_eq!(requests.clients.len(), MAX_CLIENTS);
        assert!(
            !requests.admit(v4(u32::MAX), later),
            "the other clients share a bucket, which is empty"
        );
        let much_later = later + Duration::from_secs(60);
        assert!(requests.admit(v4(u32::MAX), much_later));
        assert_eq!(requests.clients.len(), 1, "buckets that are full again are removed");
    }
}
