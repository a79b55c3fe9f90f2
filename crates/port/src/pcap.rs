//! The port of capture files: packets out of one file, packets into another.
//!
//! It reproduces a case: a capture of tcpdump or Wireshark passes through the router, and the
//! result is a file that they can open.
//!
//! ```text
//!   in.pcap, in.pcapng ─ read ─► Pool ─ receive ─► router ─ transmit ─► out.pcap, out.pcapng
//! ```
//!
//! `pcap-parser` reads captures of any origin: both byte orders, micro- and nanoseconds, pcapng
//! sections with several interfaces. The whole file is read when it is opened, so that damage is an
//! error at that point (with its offset) and receiving never reads from a disk. Packets are
//! delivered once each, as fast as the caller receives them; the port does not store their times.
//! [`read_each`] returns the packets one by one, with their times.
//!
//! The writer is our own: two headers and sixteen or thirty-two bytes before each packet
//! (draft-ietf-opsawg-pcap, draft-ietf-opsawg-pcapng), for which a library would allocate a vector
//! each time.
//!
//! ```text
//!   pcap    │ seconds 4 │ microseconds 4 │ captured 4 │ original 4 │ packet │
//!   pcapng  │ type 4 = 6 │ total 4 │ interface 4 │ time, high 4 │ time, low 4 │
//!           │ captured 4 │ original 4 │ packet, padded to 4 │ total 4 │
//! ```
//!
//! Limits: Ethernet captures only; a capture has to fit in memory.

use std::error::Error as StdError;
use std::fmt;
use std::fs::{File, OpenOptions, Permissions};
use std::io::{self, BufRead, BufReader, BufWriter, Read, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use flate2::bufread::MultiGzDecoder;
use pcap_parser::traits::PcapNGPacketBlock;
use pcap_parser::{Block, Linktype, PcapBlockOwned, PcapError, create_reader};

use crate::memory::{Pool, Replay, Sink};
use crate::{Arena, Frame, Port, PortStats};

/// Size of the read buffer; it grows for a larger block.
const BUFFER: usize = 64 << 10;
/// The largest accepted block.
const MAX_BLOCK: usize = 4 << 20;

/// Creates an empty capture file that only its owner may read, with any umask and any earlier mode.
///
/// # Errors
///
/// The system's error.
pub fn create(path: &Path) -> io::Result<File> {
    let file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(path)?;
    // Not for a device, such as /dev/null.
    if file.metadata()?.is_file() {
        file.set_permissions(Permissions::from_mode(0o600))?;
    }
    Ok(file)
}

/// Opens a capture file, and decompresses it on the way if it is a gzip file.
///
/// # Errors
///
/// The system's error.
pub fn open(path: &Path) -> io::Result<Box<dyn Read + Send>> {
    let mut reader = BufReader::new(File::open(path)?);
    let is_gzip = reader.fill_buf()?.starts_with(&[0x1f, 0x8b]);
    Ok(if is_gzip { Box::new(MultiGzDecoder::new(reader)) } else { Box::new(reader) })
}

/// Reads the packets of a pcap or pcapng file, which may be compressed with gzip.
///
/// # Errors
///
/// [`CaptureError`] if it cannot be opened, is damaged or not an Ethernet capture.
pub fn read(path: &Path) -> Result<Pool, CaptureError> {
    let failed = |error| CaptureError {
        path: path.to_owned(),
        packet: 0,
        offset: 0,
        cause: Cause::Io(error),
    };
    read_from(path, open(path).map_err(failed)?)
}

/// Reads the packets of a capture from `reader`, for example a decompressor; errors call it `path`.
///
/// # Errors
///
/// [`CaptureError`] if it is damaged or not an Ethernet capture.
pub fn read_from(path: &Path, reader: impl Read + Send) -> Result<Pool, CaptureError> {
    let mut pool = Pool::new();
    read_each(path, reader, |_, packet| pool.push(packet))?;
    Ok(pool)
}

/// Calls `each` with each packet of a capture and its time since 1970; errors call the capture
/// `path`. Packets before an error have been passed on.
///
/// # Errors
///
/// As [`read_from`].
pub fn read_each(
    path: &Path,
    reader: impl Read + Send,
    each: impl FnMut(Duration, &[u8]),
) -> Result<(), CaptureError> {
    parse(reader, each).map_err(|(packet, offset, cause)| CaptureError {
        path: path.to_owned(),
        packet,
        offset,
        cause,
    })
}

/// The link type of an interface, and its time units: units a second, and seconds to add.
type Link = (Linktype, u64, i64);

fn parse(
    file: impl Read + Send,
    mut each: impl FnMut(Duration, &[u8]),
) -> Result<(), (usize, usize, Cause)> {
    let mut count = 0;
    let mut reader = create_reader(BUFFER, file).map_err(|error| (0, 0, Cause::from(error)))?;
    let mut links: Vec<Link> = Vec::new();
    let (mut offset, mut capacity) = (0, BUFFER);
    // Whether the numbers of the pcapng section are big-endian; `None`: a pcap file, or before the first section.
    let mut is_big_endian = None;
    loop {
        let failed = |cause| (count, offset, cause);
        if let Some(is_big_endian) = is_big_endian
            && is_short_block(reader.data(), is_big_endian)
        {
            return Err(failed(Cause::Damaged("a block is shorter than its own header")));
        }
        let length = match reader.next() {
            Ok((length, block)) => {
                if let PcapBlockOwned::NG(Block::SectionHeader(header)) = &block {
                    is_big_endian = Some(header.big_endian());
                }
                if let Some((time, packet)) = read_block(&block, &mut links).map_err(failed)? {
                    each(time, packet);
                    count += 1;
                }
                length
            }
            Err(PcapError::Eof) => return Ok(()),
            Err(PcapError::Incomplete(_)) => {
                reader.refill().map_err(|error| failed(Cause::from(error)))?;
                continue;
            }
            Err(PcapError::BufferTooSmall) if capacity < MAX_BLOCK => {
                capacity *= 2;
                if !reader.grow(capacity) {
                    return Err(failed(Cause::Damaged("a block is too large")));
                }
                continue;
            }
            Err(error) => return Err(failed(Cause::from(error))),
        };
        reader.consume(length);
        offset += length;
    }
}

/// Returns whether `data` begins with a block of pcapng whose length leaves no room for its type and its two
/// lengths, which `pcap-parser` 0.17 subtracts from it unchecked in blocks of type 0x80000001.
fn is_short_block(data: &[u8], is_big_endian: bool) -> bool {
    let Some(&[_, _, _, _, l0, l1, l2, l3]) = data.first_chunk() else { return false };
    let length = [l0, l1, l2, l3];
    let length =
        if is_big_endian { u32::from_be_bytes(length) } else { u32::from_le_bytes(length) };
    length < 12
}

/// Processes a block: a link type, or a packet.
fn read_block<'b>(
    block: &'b PcapBlockOwned<'_>,
    links: &mut Vec<Link>,
) -> Result<Option<(Duration, &'b [u8])>, Cause> {
    let (link, units, packet) = match block {
        PcapBlockOwned::LegacyHeader(header) => {
            let rate = if header.is_nanosecond_precision() { 1_000_000_000 } else { 1_000_000 };
            links.push((header.network, rate, 0));
            return Ok(None);
        }
        PcapBlockOwned::Legacy(packet) => {
            let rate = links.first().map_or(1, |link| link.1);
            let units = u64::from(packet.ts_sec) * rate + u64::from(packet.ts_usec);
            (links.first(), units, packet.data)
        }
        PcapBlockOwned::NG(Block::SectionHeader(_)) => {
            // Each section numbers its interfaces from 0.
            links.clear();
            return Ok(None);
        }
        PcapBlockOwned::NG(Block::InterfaceDescription(interface)) => {
            let rate = interface.ts_resolution().filter(|rate| *rate > 0);
            let rate = rate.ok_or(Cause::Damaged("an interface has an unknown time unit"))?;
            links.push((interface.linktype, rate, interface.ts_offset()));
            return Ok(None);
        }
        PcapBlockOwned::NG(Block::EnhancedPacket(packet)) => {
            let data = packet.data.get(..packet.caplen as usize);
            (
                links.get(packet.if_id as usize),
                u64::from(packet.ts_high) << 32 | u64::from(packet.ts_low),
                data.ok_or(Cause::Damaged("a packet is longer than its block"))?,
            )
        }
        PcapBlockOwned::NG(Block::SimplePacket(packet)) => (links.first(), 0, packet.packet_data()),
        // Names, statistics, secrets and unknown blocks have no packets.
        PcapBlockOwned::NG(_) => return Ok(None),
    };
    match link {
        Some(&(Linktype::ETHERNET, rate, offset)) => {
            let rest = u128::from(units % rate) * 1_000_000_000 / u128::from(rate);
            let seconds = (units / rate).saturating_add_signed(offset);
            Ok(Some((Duration::new(seconds, rest as u32), packet)))
        }
        Some(&(other, ..)) => Err(Cause::Link(other.0)),
        None => Err(Cause::Damaged("a packet of an undefined interface")),
    }
}

/// The reason why a capture could not be read.
#[derive(Debug)]
pub struct CaptureError {
    path: PathBuf,
    packet: usize,
    offset: usize,
    cause: Cause,
}

#[derive(Debug)]
enum Cause {
    Io(io::Error),
    Empty,
    NotACapture,
    Cut,
    Link(i32),
    Damaged(&'static str),
}

impl<I> From<PcapError<I>> for Cause {
    fn from(error: PcapError<I>) -> Self {
        match error {
            PcapError::Eof => Self::Empty,
            PcapError::HeaderNotRecognized => Self::NotACapture,
            PcapError::UnexpectedEof | PcapError::Incomplete(_) => Self::Cut,
            PcapError::ReadError => Self::Io(io::ErrorKind::Other.into()),
            PcapError::BufferTooSmall => Self::Damaged("a block is too large"),
            _ => Self::Damaged("a block is malformed"),
        }
    }
}

impl fmt::Display for CaptureError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.path.display())?;
        match &self.cause {
            Cause::Io(error) => return write!(f, "cannot be read: {error}"),
            Cause::Empty => return f.write_str("the file is empty"),
            Cause::NotACapture => {
                return f.write_str("neither a pcap nor a pcapng file");
            }
            Cause::Link(link) => {
                write!(f, "link type {link}, only Ethernet (1) can be replayed")?;
            }
            Cause::Cut => f.write_str("the file ends in the middle of a block")?,
            Cause::Damaged(what) => f.write_str(what)?,
        }
        write!(f, " (after {} packets, in the block at byte {})", self.packet, self.offset)
    }
}

impl StdError for CaptureError {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        match &self.cause {
            Cause::Io(error) => Some(error),
            _ => None,
        }
    }
}

/// The two kinds of capture file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CaptureFormat {
    /// The classic one, with microseconds.
    Pcap,
    /// Its successor, with one Ethernet interface.
    PcapNg,
}

impl CaptureFormat {
    /// Returns the format by the file's name: [`CaptureFormat::PcapNg`] for `.pcapng` or `.ntar`.
    pub fn of(path: &Path) -> Self {
        match path.extension().and_then(|extension| extension.to_str()) {
            Some("pcapng" | "ntar") => Self::PcapNg,
            _ => Self::Pcap,
        }
    }
}

/// Writes packets as a capture, in the little-endian form.
#[derive(Debug)]
pub struct CaptureWriter<W: Write> {
    out: W,
    format: CaptureFormat,
}

impl<W: Write> CaptureWriter<W> {
    /// Writes the header.
    ///
    /// # Errors
    ///
    /// The writer's error.
    pub fn new(mut out: W, format: CaptureFormat) -> io::Result<Self> {
        match format {
            CaptureFormat::Pcap => {
                write_words(&mut out, &[0xa1b2_c3d4, 2 | 4 << 16, 0, 0, 65_535, 1])?;
            }
            CaptureFormat::PcapNg => {
                // A section of unknown length, and its one interface, Ethernet
                // with microseconds and no limit to a packet.
                write_words(&mut out, &[0x0a0d_0d0a, 28, 0x1a2b_3c4d, 1, u32::MAX, u32::MAX, 28])?;
                write_words(&mut out, &[1, 20, 1, 0, 20])?;
            }
        }
        Ok(Self { out, format })
    }

    /// Writes a packet with its time since 1970 in microseconds.
    ///
    /// # Errors
    ///
    /// The writer's error.
    pub fn write(&mut self, packet: &[u8], micros: u64) -> io::Result<()> {
        let len = packet.len() as u32;
        match self.format {
            CaptureFormat::Pcap => {
                let (seconds, rest) = (micros / 1_000_000, micros % 1_000_000);
                write_words(&mut self.out, &[seconds as u32, rest as u32, len, len])?;
                self.out.write_all(packet)
            }
            CaptureFormat::PcapNg => {
                let padding = packet.len().next_multiple_of(4) - packet.len();
                let total = 32 + len + padding as u32;
                let (high, low) = ((micros >> 32) as u32, micros as u32);
                write_words(&mut self.out, &[6, total, 0, high, low, len, len])?;
                self.out.write_all(packet)?;
                self.out.write_all(&[0; 3][..padding])?;
                write_words(&mut self.out, &[total])
            }
        }
    }

    /// Writes out the buffer.
    ///
    /// # Errors
    ///
    /// The writer's error.
    pub fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }

    /// Writes out the buffer and returns the inner writer.
    ///
    /// # Errors
    ///
    /// The writer's error.
    pub fn finish(mut self) -> io::Result<W> {
        self.out.flush()?;
        Ok(self.out)
    }
}

fn write_words(out: &mut impl Write, words: &[u32]) -> io::Result<()> {
    words.iter().try_for_each(|word| out.write_all(&word.to_le_bytes()))
}

/// A port that receives from one capture file and sends to another.
#[derive(Debug)]
pub struct PcapPort {
    replay: Replay,
    writer: Option<CaptureWriter<BufWriter<File>>>,
    /// The first error of writing; nothing is written after it.
    failed: Option<io::Error>,
    stats: PortStats,
}

impl PcapPort {
    /// Opens both files; `None` to receive no packets, or to discard sent ones. The output's name
    /// determines its format.
    ///
    /// # Errors
    ///
    /// [`CaptureError`] for the input, as for [`read`], and for the output if it cannot be created.
    pub fn open(
        name: &str,
        input: Option<&Path>,
        output: Option<&Path>,
    ) -> Result<Self, CaptureError> {
        let pool = input.map_or_else(|| Ok(Pool::new()), read)?;
        let packets = pool.len() as u64;
        let writer = |path: &Path| {
            create(path)
                .and_then(|file| CaptureWriter::new(BufWriter::new(file), CaptureFormat::of(path)))
                .map_err(|error| CaptureError {
                    path: path.to_owned(),
                    packet: 0,
                    offset: 0,
                    cause: Cause::Io(error),
                })
        };
        Ok(Self {
            replay: Replay::new(name, pool, Sink::Count).with_limit(packets),
            writer: output.map(writer).transpose()?,
            failed: None,
            stats: PortStats::default(),
        })
    }

    /// Sets the port's hardware address.
    #[must_use]
    pub fn with_mac(self, mac: [u8; 6]) -> Self {
        Self { replay: self.replay.with_mac(mac), ..self }
    }

    /// Sets the port's MTU, the largest IP packet in bytes.
    #[must_use]
    pub fn with_mtu(self, mtu: usize) -> Self {
        Self { replay: self.replay.with_mtu(mtu), ..self }
    }

    /// Ends the output file.
    ///
    /// # Errors
    ///
    /// The first error of writing, now or before.
    pub fn finish(self) -> io::Result<()> {
        match (self.failed, self.writer) {
            (Some(error), _) => Err(error),
            (None, Some(writer)) => writer.finish().map(drop),
            (None, None) => Ok(()),
        }
    }
}

impl Port for PcapPort {
    fn name(&self) -> &str {
        self.replay.name()
    }

    fn mac(&self) -> [u8; 6] {
        self.replay.mac()
    }

    fn mtu(&self) -> usize {
        self.replay.mtu()
    }

    fn receive(&mut self, arena: &mut Arena, room: usize, out: &mut Vec<Frame>) -> usize {
        self.replay.receive(arena, room, out)
    }

    fn transmit(&mut self, arena: &mut Arena, frames: &mut Vec<Frame>) -> usize {
        let count = frames.len();
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |now| now.as_micros());
        for frame in frames.drain(..) {
            let packet = arena.bytes(&frame);
            if let (Some(writer), None) = (&mut self.writer, &self.failed) {
                self.failed = writer.write(packet, now as u64).err();
            }
            self.stats.tx_lost += u64::from(self.failed.is_some());
            self.stats.transmitted_bytes += packet.len() as u64;
            arena.free(frame);
        }
        self.stats.transmitted += count as u64;
        count
    }

    fn punt(&mut self, _: &Arena, _: &Frame) -> bool {
        false
    }

    fn flush(&mut self, _arena: &mut Arena) {}

    fn stats(&self) -> PortStats {
        let PortStats { received, received_bytes, .. } = self.replay.stats();
        PortStats { received, received_bytes, ..self.stats }
    }

    fn mode(&self) -> &'static str {
        "pcap"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packets() -> Vec<Vec<u8>> {
        (0..12_u8).map(|n| (0..14 + usize::from(n) * 37).map(|at| at as u8 ^ n).collect()).collect()
    }

    fn written(format: CaptureFormat) -> Vec<u8> {
        let mut writer = CaptureWriter::new(Vec::new(), format).unwrap();
        for (n, packet) in packets().iter().enumerate() {
            writer.write(packet, 1_800_000_000_000_000 + n as u64).unwrap();
        }
        writer.finish().unwrap()
    }

    /// Reads a test capture.
    fn parse(bytes: &[u8]) -> Result<Pool, (usize, usize, Cause)> {
        let mut pool = Pool::new();
        super::parse(bytes, |_, packet| pool.push(packet))?;
        Ok(pool)
    }

    #[test]
    fn written_capture_reads_back_with_timestamps() {
        for format in [CaptureFormat::Pcap, CaptureFormat::PcapNg] {
            let pool = parse(&written(format)[..]).unwrap();
            assert!(pool.iter().eq(packets()), "{format:?}");
            let mut micros = Vec::new();
            let each = |time: Duration, _: &[u8]| micros.push(time.as_micros() as u64);
            super::parse(&written(format)[..], each).unwrap();
            let expect: Vec<_> = (0..12).map(|n| 1_800_000_000_000_000 + n).collect();
            assert_eq!(micros, expect, "{format:?}");
        }
    }

    #[test]
    fn read_decompresses_a_gzip_file() {
        let path = std::env::temp_dir().join(format!("fingerpost-{}.pcap.gz", std::process::id()));
        let file = File::create(&path).unwrap();
        let mut encoder = flate2::write::GzEncoder::new(file, flate2::Compression::fast());
        encoder.write_all(&written(CaptureFormat::Pcap)).unwrap();
        encoder.finish().unwrap();
        let pool = read(&path);
        std::fs::remove_file(&path).unwrap();
        assert!(pool.unwrap().iter().eq(packets()));
    }

    #[test]
    fn truncated_capture_error_names_offset() {
        for (format, headers) in [(CaptureFormat::Pcap, 1), (CaptureFormat::PcapNg, 2)] {
            let whole = written(format);
            let (mut ends, mut packets_so_far) = (0, 0);
            for length in 0..whole.len() {
                match parse(&whole[..length]) {
                    // Only between two blocks.
                    Ok(pool) => {
                        assert!(pool.iter().eq(packets().into_iter().take(pool.len())));
                        assert!(pool.len() >= packets_so_far);
                        packets_so_far = pool.len();
                        ends += 1;
                    }
                    Err((packet, offset, cause)) => {
                        assert_eq!(packet, packets_so_far, "{format:?} cut to {length}: {cause:?}");
                        assert!(offset <= length, "{format:?} cut to {length}: {cause:?}");
                    }
                }
            }
            assert_eq!(ends, headers + packets().len() - 1, "{format:?}");
        }
    }

    #[test]
    fn damaged_capture_does_not_panic() {
        for format in [CaptureFormat::Pcap, CaptureFormat::PcapNg] {
            let whole = written(format);
            let mut refused = 0;
            for at in 0..400 {
                for bit in 0..8 {
                    let mut damaged = whole.clone();
                    damaged[at] ^= 1 << bit;
                    refused += u32::from(parse(&damaged[..]).is_err());
                }
            }
            assert!(refused > 0, "{format:?}: damage to a header is detected");
        }
    }

    #[test]
    fn block_shorter_than_its_header_is_refused() {
        let section = written(CaptureFormat::PcapNg)[..28].to_vec();
        for kind in [0_u32, 1, 6, 0x8000_0001, 0x7777] {
            for length in 0..12_u32 {
                let block = [kind.to_le_bytes(), length.to_le_bytes()].concat();
                let bytes = [&section[..], &block, &[0; 64]].concat();
                let Err((0, 28, Cause::Damaged(what))) = parse(&bytes) else {
                    panic!("{kind:#x}, {length} bytes");
                };
                assert!(what.contains("shorter"), "{what}");
            }
        }
    }

    #[test]
    fn non_ethernet_capture_is_refused() {
        let mut raw = written(CaptureFormat::Pcap);
        raw[20] = 101;
        assert!(matches!(parse(&raw[..]), Err((0, 24, Cause::Link(101)))));
        assert!(matches!(parse(&b""[..]), Err((0, 0, Cause::Empty))));
        assert!(matches!(parse(&[7; 300][..]), Err((0, 0, Cause::NotACapture))));
        let error = read(Path::new("/nonexistent/x.pcap")).unwrap_err();
        assert!(error.to_string().contains("/nonexistent/x.pcap"), "{error}");
    }

    #[test]
    fn second_section_has_its_own_interfaces() {
        let section = written(CaptureFormat::PcapNg);
        let pool = parse(&[&section[..], &section].concat()[..]).unwrap();
        assert!(pool.iter().eq(packets().into_iter().chain(packets())));
        // The second one's interface is raw IP: its number is the first one's.
        let mut raw = section.clone();
        raw[28 + 8] = 101;
        let error = parse(&[section, raw].concat()[..]).unwrap_err();
        assert!(matches!(error, (12, _, Cause::Link(101))), "{error:?}");
    }

    #[test]
    fn capture_file_is_readable_by_owner_only() {
        let path = std::env::temp_dir().join(format!("fp-pcap-mode-{}", std::process::id()));
        std::fs::write(&path, b"of a version before").unwrap();
        std::fs::set_permissions(&path, Permissions::from_mode(0o666)).unwrap();
        for _ in 0..2 {
            let file = create(&path).unwrap();
            let about = file.metadata().unwrap();
            assert_eq!((about.len(), about.permissions().mode() & 0o777), (0, 0o600));
            std::fs::remove_file(&path).unwrap();
        }
        let device = Path::new("/dev/null");
        let before = std::fs::metadata(device).unwrap().permissions();
        create(device).unwrap();
        assert_eq!(std::fs::metadata(device).unwrap().permissions(), before);
    }

    #[test]
    fn pcap_port_copies_a_file() {
        let folder = std::env::temp_dir().join(format!("fingerpost-pcap-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let (input, output) = (folder.join("in.pcap"), folder.join("out.pcapng"));
        std::fs::write(&input, written(CaptureFormat::Pcap)).unwrap();
        let mut arena = Arena::new(32, 2048).unwrap();
        let mut port = PcapPort::open("file", Some(&input), Some(&output)).unwrap();
        let mut frames = Vec::new();
        while port.receive(&mut arena, 16, &mut frames) > 0 {
            port.transmit(&mut arena, &mut frames);
        }
        let stats = port.stats();
        assert_eq!((stats.received, stats.transmitted), (12, 12));
        assert_eq!(stats.received_bytes, stats.transmitted_bytes);
        port.finish().unwrap();
        assert!(read(&output).unwrap().iter().eq(packets()));
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
