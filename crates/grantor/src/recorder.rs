//! The recorder: writes requests to a capture file, to test other policies with them
//! (`fingerpost policy test --recorded`).
//!
//! ```text
//!   deciders ─ a ring each ─► this thread ─► requests.pcap ─ half full ─► requests.pcap.old
//! ```
//!
//! tcpdump and Wireshark read the capture. Each packet has a tunnel header with its gate and the DSCP
//! of the request. There are two files of half the configured size each, so that the last requests are
//! always present. The packets are those of clients: only the owner may read the files. If the disk is
//! too slow, records are lost; no request waits for it. Packets are written whole, so that the file can
//! be read while it grows.

use std::fs::{File, Permissions};
use std::io::{self, BufWriter};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use gate::policy::Address;
use port::pcap::{CaptureFormat, CaptureWriter, create};
use rtrb::{Consumer, Producer, RingBuffer};
use threads::{Rights, Stop, Task};
use wire::ethernet;
use wire::tunnel::{Ends, Header};

use super::hook::RequestPacket;

/// How long the thread sleeps without records.
const PAUSE: Duration = Duration::from_millis(20);
/// How long a packet may stay in the buffer.
const FLUSH: Duration = Duration::from_secs(1);
/// The size of the buffer in bytes.
const BUFFER: usize = 1 << 20;
/// The lengths of a capture's file header and of a packet's header.
const FILE_HEADER: u64 = 24;
const PACKET_HEADER: u64 = 16;

/// The settings of the capture.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CaptureSettings {
    /// The path of the capture.
    pub path: PathBuf,
    /// The maximum size of both files together, in bytes.
    pub max_bytes: u64,
}

impl CaptureSettings {
    /// Returns the path of the previous capture.
    pub fn old_path(path: &Path) -> PathBuf {
        let mut name = path.as_os_str().to_owned();
        name.push(".old");
        name.into()
    }
}

/// The thread that writes the capture.
#[derive(Debug)]
pub(super) struct RequestRecorder {
    rings: Sender<Consumer<RequestPacket>>,
    /// The error that ended the recording.
    failed: Arc<Mutex<Option<String>>>,
    _thread: Task,
}

impl RequestRecorder {
    /// Starts a capture.
    pub(super) fn start(settings: &CaptureSettings) -> io::Result<Self> {
        let mut capture = CaptureFile::create(settings.clone()).map_err(|error| {
            io::Error::new(error.kind(), format!("{}: {error}", settings.path.display()))
        })?;
        let (rings, received_rings) = channel();
        let failed = Arc::new(Mutex::new(None));
        let thread_failed = Arc::clone(&failed);
        let thread = Task::start("recorder", Rights::None, move |stop| {
            if let Err(error) = capture.run(&received_rings, stop) {
                let path = capture.settings.path.display();
                let failed = &mut *thread_failed.lock().unwrap_or_else(PoisonError::into_inner);
                *failed = Some(format!("{path}: {error}"));
            }
        })?;
        Ok(Self { rings, failed, _thread: thread })
    }

    /// Makes a ring for a worker's requests with this capacity.
    pub(super) fn add_ring(&self, capacity: usize) -> Producer<RequestPacket> {
        let (producer, consumer) = RingBuffer::new(capacity);
        // If the thread has ended, the ring fills up and further requests are not recorded.
        let _ = self.rings.send(consumer);
        producer
    }

    /// Returns the error that ended the recording, if there was one.
    pub(super) fn failed(&self) -> Option<String> {
        self.failed.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// An open capture.
struct CaptureFile {
    settings: CaptureSettings,
    out: CaptureWriter<BufWriter<File>>,
    /// The length of the file, and the bytes of it that are still in the buffer.
    len: u64,
    buffered: u64,
    since: Instant,
}

fn open(path: &Path) -> io::Result<CaptureWriter<BufWriter<File>>> {
    CaptureWriter::new(BufWriter::with_capacity(BUFFER, create(path)?), CaptureFormat::Pcap)
}

impl CaptureFile {
    /// Creates a capture; the capture of an earlier run becomes the previous one.
    fn create(settings: CaptureSettings) -> io::Result<Self> {
        if settings.path.exists() {
            let old = CaptureSettings::old_path(&settings.path);
            std::fs::rename(&settings.path, &old)?;
            // An earlier version made it readable for all users.
            std::fs::set_permissions(&old, Permissions::from_mode(0o600))?;
        }
        let out = open(&settings.path)?;
        Ok(Self { settings, out, len: FILE_HEADER, buffered: FILE_HEADER, since: Instant::now() })
    }

    /// The loop of the thread.
    fn run(
        &mut self,
        received_rings: &Receiver<Consumer<RequestPacket>>,
        stop: &Stop,
    ) -> io::Result<()> {
        let mut rings: Vec<Consumer<RequestPacket>> = Vec::new();
        loop {
            let is_stopping = stop.is_set();
            rings.extend(received_rings.try_iter());
            let mut has_records = false;
            for ring in &mut rings {
                while let Ok(request) = ring.pop() {
                    self.write(&request)?;
                    has_records = true;
                }
            }
            if self.buffered > 0 && (is_stopping || self.since.elapsed() > FLUSH) {
                self.flush()?;
            }
            if is_stopping {
                return Ok(());
            }
            if !has_records {
                stop.wait(PAUSE);
            }
        }
    }

    fn write(&mut self, request: &RequestPacket) -> io::Result<()> {
        let Some(frame) = encapsulate(request) else { return Ok(()) };
        let bytes = PACKET_HEADER + frame.len() as u64;
        if self.len + bytes > self.settings.max_bytes / 2 {
            self.flush()?;
            std::fs::rename(&self.settings.path, CaptureSettings::old_path(&self.settings.path))?;
            self.out = open(&self.settings.path)?;
            (self.len, self.buffered) = (FILE_HEADER, FILE_HEADER);
        }
        // The writer would flush a full buffer in the middle of a packet.
        if self.buffered + bytes > BUFFER as u64 {
            self.flush()?;
        }
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        self.out.write(&frame, now.as_micros() as u64)?;
        self.len += bytes;
        self.buffered += bytes;
        Ok(())
    }

    fn flush(&mut self) -> io::Result<()> {
        (self.buffered, self.since) = (0, Instant::now());
        self.out.flush()
    }
}

/// Returns a request with a tunnel header and an Ethernet header.
fn encapsulate(request: &RequestPacket) -> Option<Vec<u8>> {
    let (ends, kind) = match request.gate {
        Address::V4(src) => (Ends::V4 { src, dst: 0 }, ethernet::IPV4),
        Address::V6(src) => (Ends::V6 { src, dst: 0, flow_label: 0 }, ethernet::IPV6),
    };
    let header = Header { ends, dscp: request.dscp, hop_limit: 64, udp: None };
    let mut frame = vec![0; ethernet::LEN + header.len()];
    frame[12..14].copy_from_slice(&kind.to_be_bytes());
    frame.extend_from_slice(request.packet());
    header.emit(frame.get_mut(ethernet::LEN..)?).ok()?;
    Some(frame)
}
