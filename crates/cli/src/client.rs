//! A question on the control socket of a running router, and its answer item by item.
//!
//! ```text
//!   Request, Order ─► line of JSON ─► control socket ─► lines ─► each item, as it comes ─► End
//! ```
//!
//! The socket is `--socket`, or the environment's `FINGERPOST_SOCKET`, or the router's default. A
//! router creates it when it forwards, so that a command with `--wait` can be started with the
//! router and gets its answer as soon as there is one.
//!
//! An answer that ends without its end is an error, whatever came before.

use std::io::{BufRead, BufReader, ErrorKind, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use router::config::CONTROL;
use router::control::api::{Item, Line};
use serde::Serialize;

/// How long the router may take to answer.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);
/// The longest `--wait`.
const LONGEST_WAIT: Duration = Duration::from_secs(3600);
/// The time between two attempts to connect.
const RETRY: Duration = Duration::from_millis(50);

/// Where the router is asked.
#[derive(Clone, clap::Args)]
pub(crate) struct At {
    /// Where the router listens (`[control] socket` of its configuration)
    #[arg(
        long,
        value_name = "PATH",
        env = "FINGERPOST_SOCKET",
        default_value = CONTROL,
        global = true
    )]
    pub(crate) socket: PathBuf,
    /// Wait so long for a router that is starting [default: 30s for `fib diff`, else 0s]
    #[arg(long, value_name = "TIME", value_parser = wait, global = true)]
    wait: Option<Duration>,
}

impl At {
    /// Waits `default` for a router that is starting, unless the command line sets another time.
    pub(crate) fn or_wait(&self, default: Duration) -> Self {
        Self { wait: self.wait.or(Some(default)), ..self.clone() }
    }

    /// Connects; tries again until the wait is over if there is no socket, or no listener.
    fn connect(&self) -> anyhow::Result<UnixStream> {
        let path = self.socket.display();
        let begin = Instant::now();
        let wait = self.wait.unwrap_or_default();
        let mut announced = false;
        loop {
            let error = match UnixStream::connect(&self.socket) {
                Ok(stream) => return Ok(stream),
                Err(error) => error,
            };
            let starting =
                matches!(error.kind(), ErrorKind::NotFound | ErrorKind::ConnectionRefused);
            if starting && begin.elapsed() < wait {
                if !announced {
                    let seconds = wait.as_secs_f64();
                    eprintln!("fingerpost: waiting up to {seconds} s for a router at {path}");
                    announced = true;
                }
                std::thread::sleep(RETRY);
                continue;
            }
            let advice = match error.kind() {
                ErrorKind::PermissionDenied => "run this as root or as the router's user",
                _ => "start `fingerpost run`, or name its socket by --socket or FINGERPOST_SOCKET",
            };
            return Err(error).with_context(|| format!("{path}: no router answers here; {advice}"));
        }
    }
}

/// Reads a time: seconds, `2s`, `0.5s` or `200ms`; at most `limit`.
pub(crate) fn time(text: &str, limit: Duration) -> Result<Duration, String> {
    let (number, unit) = match text.strip_suffix("ms") {
        Some(number) => (number, 1e-3),
        None => (text.strip_suffix('s').unwrap_or(text), 1.0),
    };
    let seconds: f64 = number.parse().map_err(|_| "not a time such as 2s or 200ms".to_owned())?;
    Duration::try_from_secs_f64(seconds * unit)
        .ok()
        .filter(|time| *time <= limit)
        .ok_or_else(|| format!("not between 0 and {} seconds", limit.as_secs()))
}

fn wait(text: &str) -> Result<Duration, String> {
    time(text, LONGEST_WAIT)
}

/// Asks, and hands every item to `hear`; returns how many there were. The router may take
/// `patience` from one item to the next, or as long as it likes.
pub(crate) fn ask(
    at: &At,
    request: &impl Serialize,
    patience: impl Into<Option<Duration>>,
    hear: &mut dyn FnMut(Item) -> anyhow::Result<()>,
) -> anyhow::Result<u64> {
    let path = at.socket.display();
    let stream = at.connect()?;
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
    use std::time::Duration;

    use super::{Array, time};

    #[test]
    fn time_with_each_unit_is_read_and_bounded() {
        let minute = |text: &str| time(text, Duration::from_secs(60));
        assert_eq!(minute("2s"), Ok(Duration::from_secs(2)));
        assert_eq!(minute("1.5"), Ok(Duration::from_millis(1500)));
        assert_eq!(minute("200ms"), Ok(Duration::from_millis(200)));
        for bad in ["", "s", "-1s", "61s", "nan", "1h"] {
            assert!(minute(bad).is_err(), "{bad}");
        }
    }

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
