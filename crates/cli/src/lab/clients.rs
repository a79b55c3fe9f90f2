//! The honest clients: some that have been connected all along, and new ones.
//!
//! ```text
//!   Streams     one connection each, so many bytes a second, as long as it lives
//!   Newcomers   one after the other, each from an address that nobody has used:
//!               how long until it is connected, and until it is answered
//! ```
//!
//! They are ordinary TCP of the kernel's with its own ideas of when a SYN is sent again;
//! nothing of them is known to the gates.

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

use super::server::{ECHO, SINK, is_late};
use super::topology::{SERVER, client};
use crate::namespace::Namespace;

/// How long a connection may take; what takes longer has failed.
pub(super) const PATIENCE: Duration = Duration::from_secs(8);
/// How often a stream sends.
const BEAT: Duration = Duration::from_millis(20);
/// How much later than it was due a beat is still made up for.
const LAG: Duration = Duration::from_millis(200);
/// What a stream's connection keeps until it is acknowledged, in bytes.
const BUFFER: usize = 16 << 10;
/// What a newcomer says.
const GREETING: [u8; 64] = [b'.'; 64];

fn connect(from: Ipv4Addr, port: u16) -> std::io::Result<TcpStream> {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
    socket.bind(&SocketAddr::new(from.into(), 0).into())?;
    socket.connect_timeout(&SocketAddr::new(SERVER.into(), port).into(), PATIENCE)?;
    Ok(socket.into())
}

/// Clients that send all the time; they end when dropped.
#[derive(Debug)]
pub(super) struct Streams {
    over: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Streams {
    /// Connects clients 0 to `count` to `port`, each to send so many bytes a second.
    pub(super) fn start(
        namespace: &Namespace,
        count: usize,
        bytes_a_second: u64,
        port: u16,
    ) -> Result<Self> {
        let over = Arc::new(AtomicBool::new(false));
        let flag = Arc::clone(&over);
        let threads = namespace.run(move || {
            let mut threads = Vec::new();
            for number in 0..count {
                let from = client(number as u16);
                let stream = connect(from, port)
                    .with_context(|| format!("{from} cannot connect while nobody attacks"))?;
                stream.set_nodelay(true)?;
                stream.set_write_timeout(Some(BEAT))?;
                // What a stream could not send is not kept for better times.
                SockRef::from(&stream).set_send_buffer_size(BUFFER)?;
                let flag = Arc::clone(&flag);
                let body = move || send(stream, bytes_a_second, &flag);
                threads.push(thread::Builder::new().name(format!("stream {number}")).spawn(body)?);
            }
            Ok(threads)
        })?;
        Ok(Self { over, threads })
    }
}

impl Drop for Streams {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            // It only sends.
            let _ = thread.join();
        }
    }
}

/// Sends at a rate, as far as the connection takes it.
fn send(mut stream: TcpStream, bytes_a_second: u64, over: &AtomicBool) {
    let each = (bytes_a_second * BEAT.as_millis() as u64 / 1000).max(1) as usize;
    let chunk = vec![0; each];
    let (mut due, mut first) = (Instant::now(), true);
    while !over.load(Ordering::Relaxed) {
        let what: &[u8] = if first { &[SINK] } else { &chunk };
        match stream.write(what) {
            Ok(length) => first &= length == 0,
            Err(error) if is_late(&error) => {}
            // The connection is gone, which the server's count shows.
            Err(_) => return,
        }
        due += BEAT;
        let now = Instant::now();
        if due > now {
            thread::sleep(due - now);
        } else if now - due > LAG {
            due = now;
        }
    }
}

/// What a new client met with.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(super) struct Newcomer {
    /// When it began, in seconds from the first one.
    pub(super) begun: f64,
    /// Seconds until it was connected, if it was.
    pub(super) connected: Option<f64>,
    /// Seconds until it had its answer, if it had.
    pub(super) answered: Option<f64>,
}

/// Clients that come one after the other.
#[derive(Debug)]
pub(super) struct Newcomers {
    come: Receiver<Newcomer>,
    met: Vec<Newcomer>,
}

impl Newcomers {
    /// Has `count` of them come to `port`, the first now and each `gap` after the one before,
    /// from the addresses of clients `first` and up.
    pub(super) fn start(
        namespace: &Namespace,
        first: u16,
        count: u16,
        gap: Duration,
        port: u16,
        stop: &Arc<AtomicBool>,
    ) -> Result<Self> {
        let (tell, come) = mpsc::channel();
        let (begin, stop) = (Instant::now(), Arc::clone(stop));
        namespace.run(move || {
            let usher = move || {
                for number in 0..count {
                    let due = gap * u32::from(number);
                    thread::sleep(due.saturating_sub(begin.elapsed()));
                    if stop.load(Ordering::Relaxed) {
                        break;
                    }
                    let tell = tell.clone();
                    let body = move || {
                        let begun = begin.elapsed().as_secs_f64();
                        let (connected, answered) = meet(client(first + number), port);
                        // Nobody may be waiting any more.
                        let _ = tell.send(Newcomer { begun, connected, answered });
                    };
                    // One that has no thread is missing in the count.
                    let _ = thread::Builder::new().name("newcomer".into()).spawn(body);
                }
            };
            thread::Builder::new().name("newcomers".into()).spawn(usher)?;
            Ok(())
        })?;
        Ok(Self { come, met: Vec::new() })
    }

    /// Says whether all of them have been told of.
    pub(super) fn over(&mut self) -> bool {
        loop {
            match self.come.try_recv() {
                Ok(newcomer) => self.met.push(newcomer),
                Err(TryRecvError::Empty) => return false,
                Err(TryRecvError::Disconnected) => return true,
            }
        }
    }

    /// Returns what `count` of them met with, in the order in which they came.
    pub(super) fn met(mut self, count: u16) -> Result<Vec<Newcomer>> {
        if self.met.len() != usize::from(count) {
            return Err(anyhow!("{} of {count} new clients came", self.met.len()));
        }
        self.met.sort_by(|one, two| one.begun.total_cmp(&two.begun));
        Ok(self.met)
    }
}

/// Connects, and has a greeting sent back: the seconds until each.
fn meet(from: Ipv4Addr, port: u16) -> (Option<f64>, Option<f64>) {
    let begin = Instant::now();
    let Ok(mut stream) = connect(from, port) else { return (None, None) };
    let connected = begin.elapsed();
    let answer = || -> std::io::Result<()> {
        let left = PATIENCE.saturating_sub(connected).max(BEAT);
        stream.set_read_timeout(Some(left))?;
        stream.write_all(&[ECHO])?;
        stream.write_all(&GREETING)?;
        stream.read_exact(&mut [0; GREETING.len()])
    };
    let mut answer = answer;
    let answered = answer().is_ok().then(|| begin.elapsed().as_secs_f64());
    (Some(connected.as_secs_f64()), answered)
}
