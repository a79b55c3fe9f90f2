//! A question on the control socket of a running router, and its answer item by item.
//!
//! ```text
//!   Request, Order ─► line of JSON ─► control socket ─► lines ─► each item, as it comes ─► End
//! ```
//!
//! An answer that ends without its end is an error, whatever came before.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, bail};
use router::config::CONTROL;
use router::control::api::{Item, Line};
use serde::Serialize;

/// How long the router may take to answer.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// Where the router is asked.
#[derive(clap::Args)]
pub(crate) struct At {
    /// Where the router listens (`[control] socket` of its configuration)
    #[arg(long, value_name = "PATH", default_value = CONTROL, global = true)]
    pub(crate) socket: PathBuf,
}

/// Asks, and hands every item to `hear`; returns how many there were. The router may take
/// `patience` from one item to the next, or as long as it likes.
pub(crate) fn ask(
    socket: &Path,
    request: &impl Serialize,
    patience: impl Into<Option<Duration>>,
    hear: &mut dyn FnMut(Item) -> anyhow::Result<()>,
) -> anyhow::Result<u64> {
    let path = socket.display();
    let stream = UnixStream::connect(socket).with_context(|| {
        format!("{path}: no router answers here (is `fingerpost run` at work, and are you root?)")
    })?;
    stream.set_read_timeout(patience.into())?;
    let mut question = serde_json::to_string(request)?;
    question.push('\n');
    (&stream).write_all(question.as_bytes()).with_context(|| format!("{path}: asking"))?;
    let mut count = 0;
    for line in BufReader::new(&stream).lines() {
        let line = line.with_context(|| format!("{path}: reading the answer"))?;
        match serde_json::from_str(&line).with_context(|| format!("{path}: an answer"))? {
            Line::Item(item) => {
                hear(*item)?;
                count += 1;
            }
            Line::End { items } if items == count => return Ok(count),
            Line::End { items } => bail!("{path}: {items} items were told and {count} came"),
            Line::Error(error) => bail!("{error}"),
        }
    }
    bail!("{path}: the router ended in the middle of its answer")
}

/// Writes items as one JSON array, as they come.
pub(crate) struct Array<W: Write> {
    out: W,
    begun: bool,
}

impl<W: Write> Array<W> {
    /// Begins.
    pub(crate) fn new(out: W) -> Self {
        Self { out, begun: false }
    }

    /// Writes one.
    pub(crate) fn item(&mut self, item: &impl Serialize) -> anyhow::Result<()> {
        self.out.write_all(if self.begun { b",\n" } else { b"[" })?;
        self.begun = true;
        Ok(serde_json::to_writer(&mut self.out, item)?)
    }

    /// Ends the array.
    pub(crate) fn end(mut self) -> std::io::Result<()> {
        self.out.write_all(if self.begun { b"]\n" } else { b"[]\n" })?;
        self.out.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::Array;

    #[test]
    fn an_array_is_valid_whatever_there_was() {
        for count in 0..3 {
            let mut bytes = Vec::new();
            let mut array = Array::new(&mut bytes);
            (0..count).for_each(|item| array.item(&item).unwrap());
            array.end().unwrap();
            let read: Vec<u32> = serde_json::from_slice(&bytes).unwrap();
            assert_eq!(read, (0..count).collect::<Vec<_>>());
        }
    }
}
