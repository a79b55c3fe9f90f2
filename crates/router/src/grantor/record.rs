//! Requests in a file, to try other policies on (`fingerpost policy test --recorded`).
//!
//! ```text
//!   policies' threads ─ ring a worker ─► this thread ─► requests.pcap ─ half full ─► requests.pcap.old
//! ```
//!
//! A capture that tcpdump and Wireshark read: each packet in a tunnel's header with its gate
//! and the DSCP that it asked with. Two files of half the room each, so that the last requests are
//! always there. They are clients' packets: only the owner may read them. A disk that is too slow
//! costs records; no request waits for it. Packets are
//! written whole, so that the file can be read while it grows.

use std::fs::{File, Permissions};
use std::io::{self, BufWriter};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use gate::policy::Address;
use port::pcap::{Format, Writer, create};
use rtrb::{Consumer, Producer, RingBuffer};
use wire::ethernet;
use wire::tunnel::{Ends, Header};

use super::hook::Ask;
use crate::control::rights;

/// How long the thread sleeps when there is nothing to write.
const PAUSE: Duration = Duration::from_millis(20);
/// How long a packet may wait for others to be written with.
const FLUSH: Duration = Duration::from_secs(1);
/// Bytes that are written at once, at the most.
const BUFFER: usize = 1 << 20;
/// The bytes of a capture's header, and those before each packet.
const FILE_HEADER: u64 = 24;
const PACKET_HEADER: u64 = 16;

/// Where requests are recorded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// The capture.
    pub path: PathBuf,
    /// Bytes that it and the one before it may take.
    pub most: u64,
}

impl Record {
    /// Returns where the capture before the present one is.
    pub fn old(path: &Path) -> PathBuf {
        let mut name = path.as_os_str().to_owned();
        name.push(".old");
        name.into()
    }
}

/// The thread.
#[derive(Debug)]
pub(super) struct Recorder {
    rings: Sender<Consumer<Ask>>,
    stop: Arc<AtomicBool>,
    /// Why nothing is written any more.
    failed: Arc<Mutex<Option<String>>>,
    thread: Option<JoinHandle<()>>,
}

impl Recorder {
    /// Begins a capture.
    pub(super) fn start(record: &Record) -> io::Result<Self> {
        let mut tape = Tape::begin(record.clone()).map_err(|error| {
            io::Error::new(error.kind(), format!("{}: {error}", record.path.display()))
        })?;
        let (rings, come) = channel();
        let (stop, failed) = (Arc::new(AtomicBool::new(false)), Arc::new(Mutex::new(None)));
        let (ending, why) = (Arc::clone(&stop), Arc::clone(&failed));
        let thread = Builder::new().name("record".into()).spawn(move || {
            let _ = rights::keep(&[]);
            if let Err(error) = tape.work(&come, &ending) {
                let path = tape.record.path.display();
                let why = &mut *why.lock().unwrap_or_else(PoisonError::into_inner);
                *why = Some(format!("{path}: {error}"));
            }
        })?;
        Ok(Self { rings, stop, failed, thread: Some(thread) })
    }

    /// Makes a way for a worker's requests, so many at once.
    pub(super) fn taker(&self, places: usize) -> Producer<Ask> {
        let (taker, ring) = RingBuffer::new(places);
        // Without the thread it fills, and what comes then is not recorded.
        let _ = self.rings.send(ring);
        taker
    }

    /// Says why nothing is written any more, if that is so.
    pub(super) fn failed(&self) -> Option<String> {
        self.failed.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

struct Tape {
    record: Record,
    out: Writer<BufWriter<File>>,
    /// Bytes of the file, and those that are not written yet.
    len: u64,
    waiting: u64,
    since: Instant,
}

fn open(path: &Path) -> io::Result<Writer<BufWriter<File>>> {
    Writer::new(BufWriter::with_capacity(BUFFER, create(path)?), Format::Pcap)
}

impl Tape {
    /// Goes on after what an earlier run has left, which becomes the old one.
    fn begin(record: Record) -> io::Result<Self> {
        if record.path.exists() {
            let old = Record::old(&record.path);
            std::fs::rename(&record.path, &old)?;
            // An earlier version made it readable for all users.
            std::fs::set_permissions(&old, Permissions::from_mode(0o600))?;
        }
        let out = open(&record.path)?;
        Ok(Self { record, out, len: FILE_HEADER, waiting: FILE_HEADER, since: Instant::now() })
    }

    fn work(&mut self, come: &Receiver<Consumer<Ask>>, stop: &AtomicBool) -> io::Result<()> {
        let mut rings: Vec<Consumer<Ask>> = Vec::new();
        loop {
            let ending = stop.load(Ordering::Relaxed);
            rings.extend(come.try_iter());
            let mut some = false;
            for ring in &mut rings {
                while let Ok(ask) = ring.pop() {
                    self.take(&ask)?;
                    some = true;
                }
            }
            if self.waiting > 0 && (ending || self.since.elapsed() > FLUSH) {
                self.flush()?;
            }
            if ending {
                return Ok(());
            }
            if !some {
                std::thread::sleep(PAUSE);
            }
        }
    }

    fn take(&mut self, ask: &Ask) -> io::Result<()> {
        let Some(frame) = framed(ask) else { return Ok(()) };
        let bytes = PACKET_HEADER + frame.len() as u64;
        if self.len + bytes > self.record.most / 2 {
            self.flush()?;
            std::fs::rename(&self.record.path, Record::old(&self.record.path))?;
            self.out = open(&self.record.path)?;
            (self.len, self.waiting) = (FILE_HEADER, FILE_HEADER);
        }
        // Before it would do so by itself, in the middle of a packet.
        if self.waiting + bytes > BUFFER as u64 {
            self.flush()?;
        }
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        self.out.write(&frame, now.as_micros() as u64)?;
        self.len += bytes;
        self.waiting += bytes;
        Ok(())
    }

    fn flush(&mut self) -> io::Result<()> {
        (self.waiting, self.since) = (0, Instant::now());
        self.out.flush()
    }
}

/// Puts a request into its tunnel again.
fn framed(ask: &Ask) -> Option<Vec<u8>> {
    let (ends, kind) = match ask.gate {
        Address::V4(src) => (Ends::V4 { src, dst: 0 }, ethernet::IPV4),
        Address::V6(src) => (Ends::V6 { src, dst: 0, flow_label: 0 }, ethernet::IPV6),
    };
    let header = Header { ends, dscp: ask.dscp, hop_limit: 64, udp: None };
    let mut frame = vec![0; ethernet::LEN + header.len()];
    frame[12..14].copy_from_slice(&kind.to_be_bytes());
    frame.extend_from_slice(ask.packet());
    header.emit(frame.get_mut(ethernet::LEN..)?).ok()?;
    Some(frame)
}
