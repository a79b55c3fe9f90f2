//! Reads packet captures, compressed or not, for replay and statistics.

use std::fs::File;
use std::io::{BufReader, Read, Seek};
use std::path::Path;

use anyhow::Context;
use flate2::read::MultiGzDecoder;
use port::memory::Pool;

/// Reads a capture, and decompresses it if it is a gzip file.
pub(crate) fn read(path: &Path) -> anyhow::Result<Pool> {
    let reading = || format!("reading {}", path.display());
    let mut file = File::open(path).with_context(reading)?;
    let mut head = [0; 2];
    let compressed = file.read(&mut head).with_context(reading)? == 2 && head == [0x1f, 0x8b];
    file.rewind().with_context(reading)?;
    if compressed {
        return Ok(port::pcap::read_from(path, MultiGzDecoder::new(BufReader::new(file)))?);
    }
    Ok(port::pcap::read_from(path, file)?)
}
