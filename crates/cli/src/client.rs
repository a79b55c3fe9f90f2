//! The client of the control socket: sends a request to a running router, receives items.
//!
//! ```text
//!   Request, Order ─► line of JSON ─► control socket ─► lines ─► each item, as it comes ─► End
//! ```
//!
//! The path of the socket is `--socket`, or the environment variable `FINGERPOST_SOCKET`, or the
//! default of the router. A router creates the socket once it forwards. So a command with `--wait`
//! can start together with the router, and receives its response once the router is ready.
//!
//! A response without its final line is an error, whatever items preceded.

use std::io::{BufRead, BufReader, ErrorKind, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use api::{Item, Line};
use config::CONTROL;
use serde::Serialize;

/// Time limit of the router for each item of a response.
pub(crate) const RESPONSE_TIMEOUT: Duration = Duration::from_secs(30);
/// The longest `--wait`.
const MAX_WAIT: Duration = Duration::from_secs(3600);
/// Interval of connection attempts.
const RETRY_INTERVAL: Duration = Duration::from_millis(50);

/// The control socket, and the time to wait for it.
#[derive(Clone, clap::Args)]
pub(crate) struct SocketArgs {
    /// Path of the control socket (`[control] socket` of the configuration)
    #[arg(
        long,
        value_name = "PATH",
        env = "FINGERPOST_SOCKET",
        default_value = CONTROL,
        global = true
    )]
    pub(crate) socket: PathBuf,
    /// Time to wait for a router that is starting, at most 3600s [default: 30s for `fib diff`, else 0s]
    #[arg(long, value_name = "TIME", value_parser = parse_wait, global = true)]
    wait: Option<Duration>,
}

impl SocketArgs {
    /// Waits `default` for a router that is starting, unless the command line sets another time.
    pub(crate) fn with_default_wait(&self, default: Duration) -> Self {
        Self { wait: self.wait.or(Some(default)), ..self.clone() }
    }

    /// Connects; retries until the wait is over if there is no socket or no listener.
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
                std::thread::sleep(RETRY_INTERVAL);
                continue;
            }
            let advice = match error.kind() {
                ErrorKind::PermissionDenied => "run this as root or as the router's user",
                _ => {
                    "start `fingerpost run`, or name its socket with --socket or FINGERPOST_SOCKET"
                }
            };
            return Err(error).with_context(|| format!("{path}: no router answers here; {advice}"));
        }
    }
}

/// Parses a time of at most `limit`: seconds, `2s`, `0.5s` or `200ms`.
pub(crate) fn parse_time(text: &str, limit: Duration) -> Result<Duration, String> {
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

fn parse_wait(text: &str) -> Result<Duration, String> {
    parse_time(text, MAX_WAIT)
}

/// Sends a request, and calls `handle` with each item of the response. Returns the number of items.
/// The router may take `timeout` for each item, or unlimited time.
pub(crate) fn send(
    socket: &SocketArgs,
    request: &impl Serialize,
    timeout: impl Into<Option<Duration>>,
    handle: &mut dyn FnMut(Item) -> anyhow::Result<()>,
) -> anyhow::Result<u64> {
    let path = socket.socket.display();
    let stream = socket.connect()?;
    stream.set_read_timeout(timeout.into())?;
    let mut text = serde_json::to_string(request)?;
    text.push('\n');
    (&stream).write_all(text.as_bytes()).with_context(|| format!("{path}: sending the request"))?;
    let mut count = 0;
    for line in BufReader::new(&stream).lines() {
        let line = line.with_context(|| format!("{path}: reading the response"))?;
        match serde_json::from_str(&line)
            .with_context(|| format!("{path}: parsing the response"))?
        {
            Line::Item(item) => {
                handle(*item)?;
                count += 1;
            }
            Line::End { items } if items == count => return Ok(count),
            Line::End { items } => bail!("{path}: received {count} of {items} items"),
            Line::Error(error) => bail!("{error}"),
        }
    }
    bail!("{path}: the router closed the connection before the end of its response")
}

/// A writer of one JSON array, item by item.
pub(crate) struct JsonArray<W: Write> {
    out: W,
    has_items: bool,
}

impl<W: Write> JsonArray<W> {
    /// Creates an empty array.
    pub(crate) fn new(out: W) -> Self {
        Self { out, has_items: false }
    }

    /// Writes an item.
    pub(crate) fn push(&mut self, item: &impl Serialize) -> anyhow::Result<()> {
        self.out.write_all(if self.has_items { b",\n" } else { b"[" })?;
        self.has_items = true;
        Ok(serde_json::to_writer(&mut self.out, item)?)
    }

    /// Ends the array.
    pub(crate) fn end(mut self) -> std::io::Result<()> {
        self.out.write_all(if self.has_items { b"]\n" } else { b"[]\n" })?;
        self.out.flush()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{JsonArray, parse_time};

    #[test]
    fn parse_time_accepts_units_and_checks_the_limit() {
        let minute = |text: &str| parse_time(text, Duration::from_secs(60));
        assert_eq!(minute("2s"), Ok(Duration::from_secs(2)));
        assert_eq!(minute("1.5"), Ok(Duration::from_millis(1500)));
        assert_eq!(minute("200ms"), Ok(Duration::from_millis(200)));
        for bad in ["", "s", "-1s", "61s", "nan", "1h"] {
            assert!(minute(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn json_array_is_valid_with_any_number_of_items() {
        for count in 0..3 {
            let mut bytes = Vec::new();
            let mut array = JsonArray::new(&mut bytes);
            (0..count).for_each(|item| array.push(&item).unwrap());
            array.end().unwrap();
            let read: Vec<u32> = serde_json::from_slice(&bytes).unwrap();
            assert_eq!(read, (0..count).collect::<Vec<_>>());
        }
    }
}
