//! The honest clients: some with established connections, and new ones.
//!
//! ```text
//!   Streams      one connection each, which sends at a fixed rate until it fails
//!   NewClients   one after the other, each from an unused address: measures the time
//!                until it is connected and until it has an answer
//! ```
//!
//! All use the TCP of the kernel with its usual retransmission timers. The gates have no
//! configuration for them.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, TryRecvError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};
use serde::Serialize;
use socket2::{Domain, SockRef, Socket, Type};

use super::server::{ECHO, SINK, is_timeout};
use super::topology::{SERVER, client};
use crate::namespace::Namespace;

/// The time limit for a connection attempt.
pub(super) const TIMEOUT: Duration = Duration::from_secs(8);
/// The interval between two writes of a stream.
const INTERVAL: Duration = Duration::from_millis(20);
/// The largest delay that a stream catches up with.
const LAG: Duration = Duration::from_millis(200);
/// The send buffer of a stream, in bytes.
const BUFFER: usize = 16 << 10;
/// The data that a new client sends and the server returns.
const GREETING: [u8; 64] = [b'.'; 64];

fn connect(from: Ipv4Addr, port: u16) -> std::io::Result<TcpStream> {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
    socket.bind(&SocketAddr::new(from.into(), 0).into())?;
    socket.connect_timeout(&SocketAddr::new(SERVER.into(), port).into(), TIMEOUT)?;
    Ok(socket.into())
}

/// Connects and selects [`SINK`]. The server has to confirm it: after a flood its kernel uses SYN cookies, and
/// takes the first packet that arrives as the first one of the connection, so that a lost one would never
/// be sent again, or the connection would be reset.
fn open_stream(from: Ipv4Addr, port: u16) -> std::io::Result<TcpStream> {
    let mut stream = connect(from, port)?;
    stream.set_read_timeout(Some(TIMEOUT))?;
    stream.write_all(&[SINK])?;
    stream.read_exact(&mut [0])?;
    Ok(stream)
}

/// Clients that send all the time; they end when dropped.
#[derive(Debug)]
pub(super) struct Streams {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<std::io::Result<()>>>,
}

impl Streams {
    /// Connects clients 0 to `count` to `port`, each to send so many bytes a second.
    pub(super) fn start(
        namespace: &Namespace,
        count: usize,
        bytes_a_second: u64,
        port: u16,
    ) -> Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        let flag = Arc::clone(&stop);
        let threads = namespace.run(move || {
            let mut threads = Vec::new();
            for number in 0..count {
                let from = client(number as u16);
                let stream = open_stream(from, port)
                    .with_context(|| format!("{from} cannot connect before the attack"))?;
                stream.set_nodelay(true)?;
                stream.set_write_timeout(Some(INTERVAL))?;
                // A small buffer: data that could not be sent in time must not be sent later. Nor may a
                // closed connection deliver its rest in the next round, which would count it: its end
                // is a reset.
                let socket = SockRef::from(&stream);
                socket.set_send_buffer_size(BUFFER)?;
                socket.set_linger(Some(Duration::ZERO))?;
                let flag = Arc::clone(&flag);
                let body = move || send(stream, bytes_a_second, &flag);
                threads.push(thread::Builder::new().name(format!("stream {number}")).spawn(body)?);
            }
            Ok(threads)
        })?;
        Ok(Self { stop, threads })
    }

    /// Ends them; returns the addresses of those whose connections had failed, and the errors.
    pub(super) fn end(mut self) -> Vec<(Ipv4Addr, std::io::Error)> {
        self.join()
    }

    fn join(&mut self) -> Vec<(Ipv4Addr, std::io::Error)> {
        self.stop.store(true, Ordering::Relaxed);
        let results = self.threads.drain(..).zip(0..);
        let failed = results.filter_map(|(thread, number)| {
            // A thread that panicked has reported that.
            let error = thread.join().ok()?.err()?;
            Some((client(number), error))
        });
        failed.collect()
    }
}

impl Drop for Streams {
    fn drop(&mut self) {
        self.join();
    }
}

/// Sends at a rate, as far as the connection permits, until it fails.
fn send(mut stream: TcpStream, bytes_a_second: u64, stop: &AtomicBool) -> std::io::Result<()> {
    let each = (bytes_a_second * INTERVAL.as_millis() as u64 / 1000).max(1) as usize;
    let chunk = vec![0; each];
    let mut due = Instant::now();
    while !stop.load(Ordering::Relaxed) {
        match stream.write(&chunk) {
            Ok(_) => {}
            Err(error) if is_timeout(&error) => {}
            Err(error) => return Err(error),
        }
        due += INTERVAL;
        let now = Instant::now();
        if due > now {
            thread::sleep(due - now);
        } else if now - due > LAG {
            due = now;
        }
    }
    Ok(())
}

/// The times of a new client.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(super) struct NewClient {
    /// Its start, in seconds after the start of the first one.
    pub(super) start: f64,
    /// Seconds until it was connected; `None` if it was not.
    pub(super) connected: Option<f64>,
    /// Seconds until it had its answer; `None` if it had none.
    pub(super) answered: Option<f64>,
}

/// Clients that start one after the other.
#[derive(Debug)]
pub(super) struct NewClients {
    results: Receiver<NewClient>,
    finished: Vec<NewClient>,
}

impl NewClients {
    /// Starts `count` clients of `port`, the first now and each other one `gap` after the one
    /// before, with the addresses of clients `first` and up.
    pub(super) fn start(
        namespace: &Namespace,
        first: u16,
        count: u16,
        gap: Duration,
        port: u16,
        stop: &Arc<AtomicBool>,
    ) -> Result<Self> {
        let (sender, results) = mpsc::channel();
        let (begin, stop) = (Instant::now(), Arc::clone(stop));
        namespace.run(move || {
            let start_clients = move || {
                for number in 0..count {
                    let due = gap * u32::from(number);
                    thread::sleep(due.saturating_sub(begin.elapsed()));
                    if stop.load(Ordering::Relaxed) {
                        break;
                    }
                    let sender = sender.clone();
                    let body = move || {
                        let start = begin.elapsed().as_secs_f64();
                        let (connected, answered) = measure(client(first + number), port);
                        // Fails only if the receiver was dropped.
                        let _ = sender.send(NewClient { start, connected, answered });
                    };
                    // A client without a thread is missing in the count (see `results`).
                    let _ = thread::Builder::new().name("new client".into()).spawn(body);
                }
            };
            thread::Builder::new().name("new clients".into()).spawn(start_clients)?;
            Ok(())
        })?;
        Ok(Self { results, finished: Vec::new() })
    }

    /// Collects results, and returns whether all clients have finished.
    pub(super) fn have_finished(&mut self) -> bool {
        loop {
            match self.results.try_recv() {
                Ok(client) => self.finished.push(client),
                Err(TryRecvError::Empty) => return false,
                Err(TryRecvError::Disconnected) => return true,
            }
        }
    }

    /// Returns the results of all `count` clients, in the order of their starts.
    pub(super) fn results(mut self, count: u16) -> Result<Vec<NewClient>> {
        if self.finished.len() != usize::from(count) {
            return Err(anyhow!(
                "only {} of {count} new clients were started",
                self.finished.len()
            ));
        }
        self.finished.sort_by(|a, b| a.start.total_cmp(&b.start));
        Ok(self.finished)
    }
}

/// Connects and exchanges a greeting. Returns the seconds until the connection and the answer.
fn measure(from: Ipv4Addr, port: u16) -> (Option<f64>, Option<f64>) {
    let begin = Instant::now();
    let Ok(mut stream) = connect(from, port) else { return (None, None) };
    let connected = begin.elapsed();
    let answer = || -> std::io::Result<()> {
        let left = TIMEOUT.saturating_sub(connected).max(INTERVAL);
        stream.set_read_timeout(Some(left))?;
        // In one packet: see `open_stream`.
        stream.write_all(&[&[ECHO][..], &GREETING].concat())?;
        stream.read_exact(&mut [0; GREETING.len()])
    };
    let mut answer = answer;
    let answered = answer().is_ok().then(|| begin.elapsed().as_secs_f64());
    (Some(connected.as_secs_f64()), answered)
}
