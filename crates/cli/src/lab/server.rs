//! The lab's server: TCP connections that are answered, or swallowed and counted.
//!
//! The first byte of a connection says which: [`ECHO`] has what follows sent back, [`SINK`]
//! has it counted under the client's number. What is counted is what arrived, in order and
//! whole: goodput.

use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};

use super::topology::{SERVER, client};
use crate::namespace::Namespace;

/// What follows is sent back.
pub(super) const ECHO: u8 = b'E';
/// What follows is counted.
pub(super) const SINK: u8 = b'S';
/// How soon a thread sees that it is over.
const LOOK: Duration = Duration::from_millis(100);
/// How long a connection waits to be taken.
const PAUSE: Duration = Duration::from_millis(2);

/// The bytes of each client that sends all the time, by its number.
#[derive(Clone, Debug)]
pub(super) struct Counts(Arc<[AtomicU64]>);

impl Counts {
    /// Reads all of them.
    pub(super) fn read(&self) -> Vec<u64> {
        self.0.iter().map(|count| count.load(Ordering::Relaxed)).collect()
    }
}

/// A server at work; it ends when dropped.
#[derive(Debug)]
pub(super) struct Server {
    counts: Counts,
    over: Arc<AtomicBool>,
}

impl Server {
    /// Listens at `ports`, for clients 0 to `clients` that send all the time and for others.
    pub(super) fn start(namespace: &Namespace, ports: &[u16], clients: usize) -> Result<Self> {
        let counts = Counts((0..clients).map(|_| AtomicU64::new(0)).collect());
        let over = Arc::new(AtomicBool::new(false));
        let (ports, server) = (ports.to_vec(), Self { counts, over });
        let (counts, over) = (server.counts.clone(), Arc::clone(&server.over));
        namespace.run(move || {
            for port in ports {
                let at = SocketAddr::new(SERVER.into(), port);
                let listener =
                    TcpListener::bind(at).with_context(|| format!("cannot listen at {at}"))?;
                listener.set_nonblocking(true)?;
                let (counts, over) = (counts.clone(), Arc::clone(&over));
                let name = format!("serve {port}");
                thread::Builder::new()
                    .name(name)
                    .spawn(move || accept(&listener, &counts, &over))?;
            }
            Ok(())
        })?;
        Ok(server)
    }

    /// Returns the counts.
    pub(super) fn counts(&self) -> &Counts {
        &self.counts
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
    }
}

fn accept(listener: &TcpListener, counts: &Counts, over: &Arc<AtomicBool>) {
    while !over.load(Ordering::Relaxed) {
        let Ok((stream, from)) = listener.accept() else {
            thread::sleep(PAUSE);
            continue;
        };
        let (counts, over) = (counts.clone(), Arc::clone(over));
        let body = move || {
            // A connection that fails is the client's to notice.
            let _ = serve(stream, from, &counts, &over);
        };
        let _ = thread::Builder::new().name("served".into()).spawn(body);
    }
}

fn serve(
    mut stream: TcpStream,
    from: SocketAddr,
    counts: &Counts,
    over: &AtomicBool,
) -> std::io::Result<()> {
    // Of a socket that does not block, on some systems this one does not either.
    stream.set_nonblocking(false)?;
    stream.set_read_timeout(Some(LOOK))?;
    stream.set_nodelay(true)?;
    let IpAddr::V4(from) = from.ip() else { return Ok(()) };
    let number = u32::from(from).wrapping_sub(client(0).into()) as usize;
    let mut bytes = [0; 16 << 10];
    let mut what = None;
    while !over.load(Ordering::Relaxed) {
        let length = match stream.read(&mut bytes) {
            Ok(0) => break,
            Ok(length) => length,
            Err(error) if is_late(&error) => continue,
            Err(error) => return Err(error),
        };
        let mut got = &bytes[..length];
        if what.is_none() {
            what = got.first().copied();
            got = &got[1..];
        }
        match (what, counts.0.get(number)) {
            (Some(SINK), Some(count)) => {
                count.fetch_add(got.len() as u64, Ordering::Relaxed);
            }
            (Some(ECHO), _) => stream.write_all(got)?,
            _ => break,
        }
    }
    Ok(())
}

/// Says whether an error only means that nothing has come yet, or nothing has left.
pub(super) fn is_late(error: &std::io::Error) -> bool {
    use std::io::ErrorKind::{Interrupted, TimedOut, WouldBlock};
    matches!(error.kind(), WouldBlock | TimedOut | Interrupted)
}
