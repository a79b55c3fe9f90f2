//! The lab's server: returns or counts the data of TCP connections.
//!
//! The first byte of a connection selects the service: [`ECHO`] returns the data that follows;
//! [`SINK`] is returned itself, and counts what follows under the number of the client. The count is
//! goodput: data that TCP delivered.

use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};

use super::topology::{SERVER, client};
use crate::namespace::Namespace;

/// The server returns the data that follows.
pub(super) const ECHO: u8 = b'E';
/// The server counts the data that follows.
pub(super) const SINK: u8 = b'S';
/// The interval at which a thread looks at the stop flag.
const READ_TIMEOUT: Duration = Duration::from_millis(100);
/// The interval at which a listener looks for new connections.
const PAUSE: Duration = Duration::from_millis(2);

/// The received bytes of each stream, by the number of its client.
#[derive(Clone, Debug)]
pub(super) struct Counts(Arc<[AtomicU64]>);

impl Counts {
    /// Reads all of them.
    pub(super) fn read(&self) -> Vec<u64> {
        self.0.iter().map(|count| count.load(Ordering::Relaxed)).collect()
    }
}

/// A running server; it ends when dropped.
#[derive(Debug)]
pub(super) struct Server {
    counts: Counts,
    stop: Arc<AtomicBool>,
}

impl Server {
    /// Listens at `ports`; counts the data of clients 0 to `clients`.
    pub(super) fn start(namespace: &Namespace, ports: &[u16], clients: usize) -> Result<Self> {
        let counts = Counts((0..clients).map(|_| AtomicU64::new(0)).collect());
        let stop = Arc::new(AtomicBool::new(false));
        let (ports, server) = (ports.to_vec(), Self { counts, stop });
        let (counts, stop) = (server.counts.clone(), Arc::clone(&server.stop));
        namespace.run(move || {
            for port in ports {
                let at = SocketAddr::new(SERVER.into(), port);
                let listener =
                    TcpListener::bind(at).with_context(|| format!("cannot listen at {at}"))?;
                listener.set_nonblocking(true)?;
                let (counts, stop) = (counts.clone(), Arc::clone(&stop));
                let name = format!("serve {port}");
                thread::Builder::new()
                    .name(name)
                    .spawn(move || accept(&listener, &counts, &stop))?;
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
        self.stop.store(true, Ordering::Relaxed);
    }
}

fn accept(listener: &TcpListener, counts: &Counts, stop: &Arc<AtomicBool>) {
    while !stop.load(Ordering::Relaxed) {
        let Ok((stream, from)) = listener.accept() else {
            thread::sleep(PAUSE);
            continue;
        };
        let (counts, stop) = (counts.clone(), Arc::clone(stop));
        let body = move || {
            // The client notices a failed connection.
            let _ = serve(stream, from, &counts, &stop);
        };
        let _ = thread::Builder::new().name("connection".into()).spawn(body);
    }
}

fn serve(
    mut stream: TcpStream,
    from: SocketAddr,
    counts: &Counts,
    stop: &AtomicBool,
) -> std::io::Result<()> {
    // On some systems a connection inherits the non-blocking mode of its listener.
    stream.set_nonblocking(false)?;
    stream.set_read_timeout(Some(READ_TIMEOUT))?;
    stream.set_nodelay(true)?;
    let IpAddr::V4(from) = from.ip() else { return Ok(()) };
    let number = u32::from(from).wrapping_sub(client(0).into()) as usize;
    let mut bytes = [0; 16 << 10];
    let mut service = None;
    while !stop.load(Ordering::Relaxed) {
        let length = match stream.read(&mut bytes) {
            Ok(0) => break,
            Ok(length) => length,
            Err(error) if is_timeout(&error) => continue,
            Err(error) => return Err(error),
        };
        let mut data = &bytes[..length];
        if service.is_none() {
            service = data.first().copied();
            data = &data[1..];
            if service == Some(SINK) {
                stream.write_all(&[SINK])?;
            }
        }
        match (service, counts.0.get(number)) {
            (Some(SINK), Some(count)) => {
                count.fetch_add(data.len() as u64, Ordering::Relaxed);
            }
            (Some(ECHO), _) => stream.write_all(data)?,
            _ => break,
        }
    }
    Ok(())
}

/// Returns whether an error is a timeout: no data was received or sent yet.
pub(super) fn is_timeout(error: &std::io::Error) -> bool {
    use std::io::ErrorKind::{Interrupted, TimedOut, WouldBlock};
    matches!(error.kind(), WouldBlock | TimedOut | Interrupted)
}
