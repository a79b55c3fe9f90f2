//! Reads an input as a file of routes, compressed or not, at once and in pieces.
//!
//! ```text
//! bytes ─┬────────────────────► read ┐
//!        ├─ a byte at a time ─► read │
//!        ├─ gzip, in two parts ► read ├─ the same routes, or the same error
//!        └─ bzip2 ────────────► read ┘
//! ```
//!
//! The first byte selects whether the input is read as a table or as updates, and the boundary of
//! the parts of the gzip file. A truncated compressed file gives an error, or with
//! [`Options::partial`] a beginning of the table; neither panics.

use std::io::{self, Read, Write};
use std::path::Path;

use bzip2::write::BzEncoder;
use feed::{Options, UpdateStream, read, read_updates};
use flate2::Compression;
use flate2::write::GzEncoder;

const WHOLE: Options =
    Options { partial: false, format: None, truncate_host_bits: false, origin: true };
const PARTIAL: Options = Options { partial: true, ..WHOLE };

/// The result of an input: routes or changes as text, or an error.
type Outcome = Result<Vec<String>, String>;

/// Returns a byte at a time.
struct Slow<'a>(&'a [u8]);

impl Read for Slow<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let most = into.len().min(1);
        self.0.read(&mut into[..most])
    }
}

fn outcome(reader: impl Read, as_updates: bool, options: &Options) -> Outcome {
    let name = Path::new("fuzz");
    if as_updates {
        let UpdateStream { events, .. } =
            read_updates(reader, name, options).map_err(|error| error.to_string())?;
        let words =
            |event: &feed::Event| format!("{} {:?} {:?}", event.time, event.peer, event.kind);
        return Ok(events.iter().map(words).collect());
    }
    let table = read(reader, name, options).map_err(|error| error.to_string())?;
    let label = |label| table.labels.get(label);
    let v4 = table.v4.iter().map(|(prefix, of)| format!("{prefix} {}", label(*of)));
    let v6 = table.v6.iter().map(|(prefix, of)| format!("{prefix} {}", label(*of)));
    Ok(v4.chain(v6).chain(table.report.warnings.iter().cloned()).collect())
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut packer = GzEncoder::new(Vec::new(), Compression::fast());
    packer.write_all(bytes).expect("memory takes everything");
    packer.finish().expect("memory takes everything")
}

fn bzip2(bytes: &[u8]) -> Vec<u8> {
    let mut packer = BzEncoder::new(Vec::new(), bzip2::Compression::fast());
    packer.write_all(bytes).expect("memory takes everything");
    packer.finish().expect("memory takes everything")
}

/// Returns whether the input itself looks like a compressed file.
fn is_packed(bytes: &[u8]) -> bool {
    bytes.starts_with(&[0x1f, 0x8b]) || bytes.starts_with(b"BZh")
}

/// Plays one input; returns whether it had routes or changes.
///
/// # Panics
///
/// If the outcome depends on the compression or on the reads.
pub fn mrt(input: &[u8]) -> bool {
    let Some((&mode, bytes)) = input.split_first() else { return false };
    let as_updates = mode & 1 == 1;
    let plain = outcome(bytes, as_updates, &WHOLE);
    assert_eq!(outcome(Slow(bytes), as_updates, &WHOLE), plain, "a byte at a time");
    let part = outcome(bytes, as_updates, &PARTIAL);
    match &plain {
        Ok(whole) => assert_eq!(part.as_ref(), Ok(whole), "a partial read of a complete file"),
        Err(_) => drop(part),
    }
    if is_packed(bytes) {
        return plain.is_ok_and(|words| !words.is_empty());
    }
    let (front, back) = bytes.split_at(bytes.len() * usize::from(mode) / 255);
    let parts = [gzip(front), gzip(back)].concat();
    let other = bzip2(bytes);
    for (packing, packed) in [("gzip", &parts), ("bzip2", &other)] {
        assert_eq!(outcome(&packed[..], as_updates, &WHOLE), plain, "{packing}");
        let cut = &packed[..packed.len() * usize::from(mode) / 256];
        let _ = outcome(cut, as_updates, &PARTIAL);
        let beginning = outcome(cut, as_updates, &WHOLE);
        if beginning.is_ok() {
            // It is cut where it is complete: at its beginning, or between the two parts.
            let complete = [&[][..], front].map(|bytes| outcome(bytes, as_updates, &WHOLE));
            assert!(complete.contains(&beginning), "a truncated {packing} file has more");
        }
    }
    plain.is_ok_and(|words| !words.is_empty())
}
