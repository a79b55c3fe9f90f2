//! `fingerpost capture`: prints packets that a running router handles, or writes them for Wireshark.
//!
//! ```text
//!   filter ─► tcpdump -ddd ─► program ─┐
//!   verdicts, interface, sampling ─────┴─► control socket ─► packets ─┬─► a line each
//!                                                                     ├─► JSON, an object a line
//!                                                                     └─► pcapng, file or stdout
//! ```
//!
//! Each packet is there once, where it ends, with its verdict; with `--arrivals` also as it arrives.
//! The filter is that of tcpdump, which compiles it here (`filter.rs`); the workers run it, and the daemon for packets
//! of XDP programs. The
//! router never waits for a slow reader: at the end the number of missed packets is printed.
//!
//! `--last-drops` prints the dropped packets that each worker has kept, and needs no capture to have run.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::Ordering;

use anyhow::{Context, bail};
use api::{CaptureConditions, CaptureState, CapturedPacket, Item, Request, from_hexadecimal};
use datapath::{Class, Verdict};

use crate::client::{self, RESPONSE_TIMEOUT, SocketArgs};
use crate::stop::{SIGINT, SIGTERM, flag_on_signals};
use pcapng::PcapngWriter;

mod filter;
mod pcapng;
mod text;

pub(crate) use filter::compile;
pub(crate) use text::packet_line;

/// The arguments of `capture`.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    socket: SocketArgs,
    /// Write pcapng to this file; `-` is the standard output
    #[arg(short, long, value_name = "FILE", conflicts_with = "json")]
    write: Option<PathBuf>,
    /// Write JSON, one object per line
    #[arg(short, long)]
    json: bool,
    /// Only packets that this interface received, or that leave by it
    #[arg(short, long, value_name = "NAME")]
    interface: Option<String>,
    /// Only packets with these verdicts: names as in `show counters`, or `sent`, `punted`, `dropped`
    #[arg(long, value_name = "NAME,...", value_delimiter = ',')]
    verdict: Vec<String>,
    /// Packets as they arrive, too
    #[arg(long)]
    arrivals: bool,
    /// Let the workers forward what is forwarded in the driver: slower meanwhile
    #[arg(long)]
    no_driver: bool,
    /// One packet in so many, at random
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    one_in: u32,
    /// The most bytes of a packet
    #[arg(short, long, value_name = "BYTES", default_value_t = u16::MAX)]
    snap_length: u16,
    /// End after so many packets
    #[arg(short, long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    count: Option<u64>,
    /// The last dropped packets of each verdict, which the workers keep, in place of new packets
    #[arg(long, conflicts_with_all = ["arrivals", "one_in", "interface", "count", "no_driver"])]
    last_drops: bool,
    /// A filter as that of tcpdump (pcap-filter(7)), such as `udp port 53 and src net 192.0.2.0/24`
    #[arg(trailing_var_arg = true, value_name = "FILTER", conflicts_with = "last_drops")]
    filter: Vec<String>,
}

/// The destination of the packets.
enum Output {
    Text(Box<dyn Write>),
    Json(Box<dyn Write>),
    Pcapng(PcapngWriter<Box<dyn Write>>),
}

impl Output {
    fn open(args: &Args) -> anyhow::Result<Self> {
        let stdout = || Box::new(BufWriter::new(io::stdout())) as Box<dyn Write>;
        let Some(path) = &args.write else {
            return Ok(if args.json { Self::Json(stdout()) } else { Self::Text(stdout()) });
        };
        let out: Box<dyn Write> = if path.as_os_str() == "-" {
            if io::IsTerminal::is_terminal(&io::stdout()) {
                bail!("pcapng is binary: pipe it to a program, such as `| wireshark -k -i -`");
            }
            stdout()
        } else {
            let file =
                File::create(path).with_context(|| format!("{}: creating", path.display()))?;
            Box::new(BufWriter::new(file))
        };
        Ok(Self::Pcapng(PcapngWriter::new(out)?))
    }

    fn write(&mut self, packet: &CapturedPacket) -> anyhow::Result<()> {
        match self {
            Self::Text(out) => writeln!(out, "{}", packet_line(packet)?)?,
            Self::Json(out) => {
                serde_json::to_writer(&mut *out, packet)?;
                writeln!(out)?;
            }
            Self::Pcapng(out) => out.write(packet)?,
        }
        Ok(())
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Text(out) | Self::Json(out) => out.flush(),
            Self::Pcapng(out) => out.flush(),
        }
    }
}

/// Returns the verdicts with these names, or of these classes; all without a name.
fn verdicts(names: &[String]) -> anyhow::Result<Vec<Verdict>> {
    let mut wanted = Vec::new();
    for name in names {
        let class = match name.as_str() {
            "punted" => Some(Class::Punted),
            "dropped" => Some(Class::Dropped),
            _ => None,
        };
        let before = wanted.len();
        let matches = |verdict: &Verdict| match class {
            Some(class) => verdict.class() == class,
            None => verdict.name() == name,
        };
        wanted.extend(Verdict::ALL.into_iter().filter(matches));
        if wanted.len() == before {
            bail!(
                "--verdict {name}: no such verdict; `fingerpost show counters` lists the verdicts of \
                 packets so far, and `punted` and `dropped` are all of a class"
            );
        }
    }
    Ok(if names.is_empty() { Verdict::ALL.to_vec() } else { wanted })
}

/// Returns the request for packets.
fn request(args: &Args) -> anyhow::Result<Request> {
    let verdicts = verdicts(&args.verdict)?;
    if args.last_drops {
        return Ok(Request::LastDrops);
    }
    let filter = args.filter.join(" ");
    Ok(Request::Capture(CaptureConditions {
        arrivals: args.arrivals,
        verdicts: verdicts.iter().map(|verdict| verdict.name().to_owned()).collect(),
        interface: args.interface.clone(),
        no_driver: args.no_driver,
        one_in: args.one_in,
        snap: args.snap_length,
        filter: if filter.is_empty() { Vec::new() } else { compile(&filter)? },
    }))
}

/// Ends the receiving of packets without an error.
#[derive(Debug)]
pub(crate) struct Ended;

impl std::fmt::Display for Ended {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the capture has ended")
    }
}

impl std::error::Error for Ended {}

/// Writes packets until Ctrl-C, `--count` packets or the end of the router.
pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let request = request(args)?;
    let wanted = verdicts(&args.verdict)?;
    let stop = flag_on_signals(&[SIGINT, SIGTERM])?;
    let mut output: Option<Output> = None;
    let (mut count, mut lost) = (0, 0);
    let received = client::send(&args.socket, &request, RESPONSE_TIMEOUT, &mut |item| {
        match item {
            Item::Packet(packet) => {
                let is_wanted = wanted.iter().any(|v| Some(v.name()) == packet.verdict.as_deref());
                if args.last_drops && !is_wanted {
                    return Ok(());
                }
                if let Some(output) = &mut output {
                    output.write(&packet)?;
                    count += 1;
                }
            }
            Item::Capture(state) => {
                // The first item: the router has accepted the conditions. Until then a file is kept.
                if output.is_none() {
                    output = Some(Output::open(args)?);
                    if !args.last_drops {
                        announce(&state);
                    }
                }
                lost = state.lost;
                output.as_mut().map_or(Ok(()), Output::flush)?;
            }
            _ => {}
        }
        let is_full = args.count.is_some_and(|most| count >= most);
        if is_full || stop.load(Ordering::Relaxed) { Err(Ended.into()) } else { Ok(()) }
    });
    if let Some(output) = &mut output {
        output.flush()?;
    }
    if !args.last_drops && output.is_some() {
        let missed = if lost > 0 {
            format!("; {lost} of all captures missed: use a filter, --one-in or --snap-length")
        } else {
            String::new()
        };
        eprintln!("fingerpost: {count} packets captured{missed}");
    }
    match received {
        Err(error) if !error.is::<Ended>() => Err(error),
        _ => Ok(ExitCode::SUCCESS),
    }
}

/// Reports that the capture has begun, and which packets are not in it.
fn announce(state: &CaptureState) {
    if !state.in_driver.is_empty() {
        eprintln!(
            "fingerpost: the driver forwards packets of {}, which are not captured: --no-driver \
             lets the workers forward them meanwhile",
            state.in_driver.join(", ")
        );
    }
    eprintln!("fingerpost: capturing; Ctrl-C stops");
}

/// Returns the bytes of a packet.
pub(crate) fn packet_bytes(packet: &CapturedPacket) -> anyhow::Result<Vec<u8>> {
    from_hexadecimal(&packet.data).context("a packet from the router is not in hexadecimal digits")
}

#[cfg(test)]
mod tests {
    use super::{Verdict, verdicts};

    fn named(names: &[&str]) -> anyhow::Result<Vec<Verdict>> {
        verdicts(&names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>())
    }

    #[test]
    fn verdicts_are_named_one_by_one_or_by_class() {
        assert_eq!(named(&[]).unwrap(), Verdict::ALL);
        assert_eq!(named(&["no_route", "sent"]).unwrap(), [Verdict::NoRoute, Verdict::Sent]);
        let dropped = named(&["dropped"]).unwrap();
        assert!(dropped.contains(&Verdict::NoRoute) && !dropped.contains(&Verdict::Sent));
        let error = named(&["no_rute"]).unwrap_err().to_string();
        assert!(error.starts_with("--verdict no_rute: no such verdict"), "{error}");
    }
}
