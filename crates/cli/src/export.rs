//! Parts that the exporters of sFlow and IPFIX share.
//!
//! ```text
//!   control socket ─► capture ─► an exporter ─► datagrams ─► Collectors
//! ```
//!
//! An exporter is a client of the control socket with one of its captures. It needs no right beside
//! that socket, and its end changes nothing at the router.

use std::net::{IpAddr, SocketAddr, ToSocketAddrs, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use api::{CaptureConditions, CaptureState, Interface, Item, Request};

use crate::capture::Ended;
use crate::client::{self, RESPONSE_TIMEOUT, SocketArgs};

/// The time after which the router has read the packets before it.
const LAST_PACKETS: Duration = Duration::from_millis(50);

/// The arguments of an exporter that concern the packets that it reads.
#[derive(clap::Args)]
pub(crate) struct SampleArgs {
    #[command(flatten)]
    pub(crate) socket: SocketArgs,
    /// One packet in so many, at random; 1 is every packet
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) one_in: u32,
    /// Let the workers forward what is forwarded in the driver: slower meanwhile
    #[arg(long)]
    pub(crate) no_driver: bool,
}

/// The collectors, each of which receives every datagram.
pub(crate) struct Collectors(Vec<UdpSocket>);

impl Collectors {
    /// Connects to collectors: addresses or names, with a port or on `port`.
    pub(crate) fn connect(names: &[String], port: u16) -> anyhow::Result<Self> {
        Ok(Self(names.iter().map(|name| connect(name, port)).collect::<Result<_, _>>()?))
    }

    /// Returns the source address of the datagrams to the first collector.
    pub(crate) fn source(&self) -> anyhow::Result<IpAddr> {
        Ok(self.0.first().context("no collector")?.local_addr()?.ip())
    }

    /// Sends a datagram to each collector. One that is unreachable gets the next ones all the same.
    pub(crate) fn send(&self, datagram: &[u8]) {
        for collector in &self.0 {
            let _ = collector.send(datagram);
        }
    }
}

/// Connects a socket to a collector.
fn connect(collector: &str, port: u16) -> anyhow::Result<UdpSocket> {
    let addresses = collector.to_socket_addrs().or_else(|_| (collector, port).to_socket_addrs());
    let mut addresses = addresses.with_context(|| format!("--collector {collector}"))?;
    let to = addresses.next().with_context(|| format!("--collector {collector}: no address"))?;
    let from: SocketAddr = if to.is_ipv4() { ([0; 4], 0).into() } else { ([0; 16], 0).into() };
    let socket = UdpSocket::bind(from).context("opening a socket")?;
    socket.connect(to).with_context(|| format!("--collector {collector}: connecting to {to}"))?;
    Ok(socket)
}

/// Runs `step` until it fails or `stop` is set; a failure sets it, so that all threads end.
pub(crate) fn until(
    stop: &AtomicBool,
    mut step: impl FnMut() -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    while !stop.load(Ordering::Relaxed) {
        if let Err(error) = step() {
            stop.store(true, Ordering::Relaxed);
            return Err(error);
        }
    }
    Ok(())
}

/// Passes the packets of a capture, and its state at least ten times a second, to `take` until `stop`
/// is set, `take` fails or the router ends. Sets `stop` then. The packets before `stop` are among them.
pub(crate) fn stream(
    args: &SampleArgs,
    verdicts: Vec<String>,
    snap: u16,
    stop: &AtomicBool,
    mut take: impl FnMut(Item) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let conditions = CaptureConditions {
        arrivals: true,
        verdicts,
        interface: None,
        no_driver: args.no_driver,
        one_in: args.one_in,
        snap,
        filter: Vec::new(),
    };
    let mut is_announced = false;
    let mut stopping: Option<Instant> = None;
    let request = Request::Capture(conditions);
    let ended = client::send(&args.socket, &request, RESPONSE_TIMEOUT, &mut |item| {
        // The packets before a state have been read.
        let is_last = matches!(item, Item::Capture(_))
            && stopping.is_some_and(|since| since.elapsed() >= LAST_PACKETS);
        if let Item::Capture(state) = &item
            && !std::mem::replace(&mut is_announced, true)
        {
            announce(state);
        }
        if stop.load(Ordering::Relaxed) {
            stopping.get_or_insert_with(Instant::now);
        }
        take(item)?;
        if is_last { Err(Ended.into()) } else { Ok(()) }
    });
    stop.store(true, Ordering::Relaxed);
    match ended {
        Err(error) if error.is::<Ended>() => Ok(()),
        Err(error) => Err(error),
        Ok(_) => bail!("the router has ended"),
    }
}

/// Reports that the export has begun, and which packets are in no sample.
fn announce(state: &CaptureState) {
    if !state.in_driver.is_empty() {
        eprintln!(
            "fingerpost: the driver forwards packets of {}, which are not sampled: --no-driver lets the \
             workers forward them",
            state.in_driver.join(", ")
        );
    }
    eprintln!("fingerpost: exporting; Ctrl-C stops");
}

/// Returns the interfaces of the router.
pub(crate) fn interfaces(socket: &SocketArgs) -> anyhow::Result<Vec<Interface>> {
    let mut interfaces = Vec::new();
    client::send(socket, &Request::Interfaces, RESPONSE_TIMEOUT, &mut |item| {
        if let Item::Interface(interface) = item {
            interfaces.push(interface);
        }
        Ok(())
    })?;
    Ok(interfaces)
}
