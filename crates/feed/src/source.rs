//! The decompressed bytes of a file, with their offsets.
//!
//! A [`Source`] is a window that moves over the unpacked content:
//!
//! ```text
//!      consumed            window (peek)              not yet read
//! ├───────────────┼───────────────────────────────┼──────────────────►
//!               offset
//! ```
//!
//! A reader requests at least a number of bytes, reads them in place, and consumes those that it
//! has parsed. When the compressed data is damaged (a truncated file, a wrong checksum) the window
//! ends there as at the end of the file, and [`Source::broken`] returns the reason: the bytes
//! before are valid.
//!
//! zlib-rs decompresses gzip and libbz2-rs bzip2, both in Rust without C.

use std::io::{self, BufRead, BufReader, Read};

use bzip2::bufread::MultiBzDecoder;
use flate2::bufread::MultiGzDecoder;

use crate::Compression;

/// Fills the buffer of each read unless the content ends: where a decoder finds damage, and how much it returns
/// before, depends on the amount that it gets at once.
struct WholeReads<R> {
    reader: R,
    /// An error behind bytes that were returned.
    failed: Option<io::Error>,
}

impl<R: Read> Read for WholeReads<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        if let Some(error) = self.failed.take() {
            return Err(error);
        }
        let mut had = 0;
        while had < into.len() {
            match self.reader.read(&mut into[had..]) {
                Ok(0) => break,
                Ok(n) => had += n,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) if had > 0 => {
                    self.failed = Some(e);
                    break;
                }
                Err(e) => return Err(e),
            }
        }
        Ok(had)
    }
}

/// The size of a read. The window grows only for a line or record that is longer.
const STEP: usize = 256 * 1024;

/// A window over the unpacked bytes of a file.
pub(crate) struct Source<'r> {
    reader: Box<dyn Read + 'r>,
    compression: Compression,
    buffer: Vec<u8>,
    begin: usize,
    end: usize,
    offset: u64,
    finished: bool,
    broken: Option<String>,
}

impl<'r> Source<'r> {
    /// Reads the first bytes of `reader` and sets up their decoder.
    pub(crate) fn new(reader: impl Read + 'r) -> io::Result<Self> {
        let mut reader = BufReader::with_capacity(64 * 1024, WholeReads { reader, failed: None });
        // A BufReader reads once; a pipe may return a single byte.
        let mut head = [0u8; 4];
        let mut had = 0;
        while had < head.len() {
            match reader.read(&mut head[had..]) {
                Ok(0) => break,
                Ok(n) => had += n,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
        let compression = match head[..had] {
            [0x1f, 0x8b, ..] => Compression::Gzip,
            [b'B', b'Z', b'h', b'1'..=b'9'] => Compression::Bzip2,
            _ => Compression::None,
        };
        let whole = io::Cursor::new(head).take(had as u64).chain(reader);
        let reader: Box<dyn Read + 'r> = match compression {
            Compression::None => Box::new(whole),
            Compression::Gzip => Box::new(MultiGzDecoder::new(whole)),
            Compression::Bzip2 => Box::new(MultiBzDecoder::new(whole)),
        };
        Ok(Self {
            reader,
            compression,
            buffer: vec![0; STEP],
            begin: 0,
            end: 0,
            offset: 0,
            finished: false,
            broken: None,
        })
    }

    /// Returns the compression of the content.
    pub(crate) fn compression(&self) -> Compression {
        self.compression
    }

    /// Returns the offset of the window's first byte in the unpacked content.
    pub(crate) fn offset(&self) -> u64 {
        self.offset
    }

    /// Returns the reason why the content ends early, once the window has reached its end.
    pub(crate) fn broken(&self) -> Option<&str> {
        self.broken.as_deref()
    }

    /// Returns the window, of at least `want` bytes unless the content ends.
    pub(crate) fn peek(&mut self, want: usize) -> &[u8] {
        while self.end - self.begin < want && self.fill() {}
        &self.buffer[self.begin..self.end]
    }

    /// Returns the current window.
    pub(crate) fn window(&self) -> &[u8] {
        &self.buffer[self.begin..self.end]
    }

    /// Moves the window's beginning by `count` bytes of it.
    pub(crate) fn consume(&mut self, count: usize) {
        debug_assert!(count <= self.end - self.begin, "only what was seen can be consumed");
        self.begin += count;
        self.offset += count as u64;
    }

    /// Reads more behind the window; false at the end of the content.
    pub(crate) fn fill(&mut self) -> bool {
        if self.finished {
            return false;
        }
        if self.buffer.len() - self.end < STEP / 4 {
            self.buffer.copy_within(self.begin..self.end, 0);
            self.end -= self.begin;
            self.begin = 0;
            if self.buffer.len() - self.end < STEP / 4 {
                self.buffer.resize(self.buffer.len() * 2, 0);
            }
        }
        loop {
            match self.reader.read(&mut self.buffer[self.end..]) {
                Ok(0) => self.finished = true,
                Ok(n) => self.end += n,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
                Err(e) => {
                    self.finished = true;
                    self.broken = Some(self.explain(&e));
                }
            }
            return !self.finished;
        }
    }

    fn explain(&self, error: &io::Error) -> String {
        match (self.compression, error.kind()) {
            (Compression::None, _) => format!("reading failed: {error}"),
            (packing, io::ErrorKind::UnexpectedEof) => {
                format!("the {packing} data is cut off here")
            }
            (packing, _) => format!("the {packing} data is corrupt here: {error}"),
        }
    }
}

/// States the bound: the decoders need a buffered reader, and a chain of a cursor and a buffered
/// reader is one.
const _: fn() = || {
    fn buffered<R: BufRead>() {}
    buffered::<io::Chain<io::Take<io::Cursor<[u8; 4]>>, BufReader<io::Empty>>>();
};

#[cfg(test)]
mod tests {
    use super::Source;
    use crate::Compression;
    use std::io::{self, Read, Write};

    fn gzip(bytes: &[u8]) -> Vec<u8> {
        let mut packer = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        packer.write_all(bytes).unwrap();
        packer.finish().unwrap()
    }

    fn bzip2(bytes: &[u8]) -> Vec<u8> {
        let mut packer = bzip2::write::BzEncoder::new(Vec::new(), bzip2::Compression::fast());
        packer.write_all(bytes).unwrap();
        packer.finish().unwrap()
    }

    /// Returns one byte at a time, with an interruption before each.
    struct Trickle<'b>(&'b [u8], bool);

    impl Read for Trickle<'_> {
        fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
            self.1 = !self.1;
            if self.1 {
                return Err(io::ErrorKind::Interrupted.into());
            }
            let [first, rest @ ..] = self.0 else { return Ok(0) };
            out[0] = *first;
            self.0 = rest;
            Ok(1)
        }
    }

    fn drain(source: &mut Source<'_>) -> Vec<u8> {
        let mut all = Vec::new();
        loop {
            let piece = source.peek(1).to_vec();
            if piece.is_empty() {
                return all;
            }
            source.consume(piece.len());
            all.extend(piece);
            assert_eq!(source.offset(), all.len() as u64);
        }
    }

    #[test]
    fn compressed_and_plain_content_are_equal() {
        let plain: Vec<u8> =
            (0..700_000u32).flat_map(|n| n.wrapping_mul(n).to_be_bytes()).collect();
        // Two members, as `cat a.gz b.gz` writes them, are one file.
        let (head, tail) = plain.split_at(1_000_003);
        let gz = [gzip(head), gzip(tail)].concat();
        let bz = [bzip2(head), bzip2(tail)].concat();
        for (bytes, packing) in
            [(&plain, Compression::None), (&gz, Compression::Gzip), (&bz, Compression::Bzip2)]
        {
            let mut source = Source::new(&bytes[..]).unwrap();
            assert_eq!(source.compression(), packing);
            assert!(drain(&mut source) == plain, "{packing}");
            assert_eq!(source.broken(), None);
        }
    }

    #[test]
    fn bytewise_reader_yields_same_content() {
        for bytes in [b"abc".to_vec(), Vec::new(), gzip(b"abcdefgh"), bzip2(b"x")] {
            let mut slow = Source::new(Trickle(&bytes, false)).unwrap();
            let mut fast = Source::new(&bytes[..]).unwrap();
            assert_eq!(slow.compression(), fast.compression());
            assert_eq!(drain(&mut slow), drain(&mut fast));
        }
    }

    #[test]
    fn truncated_archive_yields_prefix_and_reports_cut() {
        let plain: Vec<u8> =
            (0..300_000u32).flat_map(|n| n.wrapping_mul(n).to_be_bytes()).collect();
        for packed in [gzip(&plain), bzip2(&plain)] {
            let mut source = Source::new(&packed[..packed.len() / 2]).unwrap();
            let got = drain(&mut source);
            assert!(!got.is_empty() && got.len() < plain.len() && plain.starts_with(&got));
            assert!(source.broken().unwrap().contains("cut off"), "{:?}", source.broken());
        }
    }

    #[test]
    fn flipped_bit_is_reported() {
        let plain: Vec<u8> =
            (0..300_000u32).flat_map(|n| n.wrapping_mul(n).to_be_bytes()).collect();
        for mut packed in [gzip(&plain), bzip2(&plain)] {
            let middle = packed.len() / 2;
            packed[middle] ^= 0x10;
            let mut source = Source::new(&packed[..]).unwrap();
            drain(&mut source);
            assert!(source.broken().is_some());
        }
    }
}
