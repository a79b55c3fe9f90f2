//! The metrics of `fingerpost block`: `GET /metrics`.

use std::fmt;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Instant;

use ::xdp::block::filter::Counts;
use api::BlockList;
use control::allowed_hosts::AllowedHosts;
use control::exposition::{Writer, family};
use control::handle::ControlHandle;
use control::http::Http;
use control::http_message::{HttpRequest, HttpResponse, RequestHandler};
use control::metrics::{MetricSet, encode_block_lists, respond_with};

use super::Protection;

/// Serves the metrics at `listen`, to requests with an address or one of `hosts`.
///
/// # Errors
///
/// The system's error.
pub(super) fn serve(
    listen: SocketAddr,
    hosts: &[String],
    protection: ControlHandle<Protection>,
) -> io::Result<Http> {
    let handler = Handler { protection, start: Instant::now() };
    Http::start(TcpListener::bind(listen)?, AllowedHosts::new(hosts), Arc::new(handler))
}

struct Handler {
    protection: ControlHandle<Protection>,
    start: Instant,
}

impl RequestHandler for Handler {
    fn handle(&self, request: &HttpRequest) -> HttpResponse {
        if request.path != "/metrics" {
            return HttpResponse::text(404, "not found: the metrics are at /metrics");
        }
        let values = self.protection.call(|protection| Values::read(protection));
        match values {
            Some(Ok(values)) => respond_with(self.start, Box::new(values), &request.accept),
            Some(Err(error)) => HttpResponse::text(503, &format!("cannot read counters: {error}")),
            None => HttpResponse::text(503, "the process does not answer: it may be about to end"),
        }
    }
}

/// All values at one moment.
#[derive(Debug)]
struct Values {
    lists: Vec<BlockList>,
    counts: Counts,
    /// The interfaces, and whether each has the program.
    interfaces: Vec<(String, bool)>,
}

impl Values {
    fn read(protection: &Protection) -> io::Result<Self> {
        let counts = protection.blocker.counts()?;
        let attached = protection.attached.iter();
        Ok(Self {
            lists: protection.lists.status(&counts),
            counts,
            interfaces: attached.map(|at| (at.name().to_owned(), at.mode().is_some())).collect(),
        })
    }
}

impl MetricSet for Values {
    fn encode(&self, to: &mut Writer<'_>) -> fmt::Result {
        encode_block_lists(&self.lists, to)?;
        let interfaces =
            self.interfaces.iter().map(|(name, has)| ([("interface", &name[..])], u64::from(*has)));
        let metric = family(
            "block_interface_protected",
            "1 while the program is on an interface; 0 while there is no such interface, or it has the program of \
             another process: its packets pass",
        );
        to.gauge(&metric, interfaces)?;
        let others = [("not_listed", self.counts.not_listed), ("not_ip", self.counts.others)];
        let metric = family(
            "block_passed_packets",
            "Packets about which no list decides, which pass: with a source in no list, or neither IPv4 nor IPv6",
        );
        to.counter(&metric, others.map(|(why, count)| ([("reason", why)], count.packets)))?;
        let metric =
            family("block_passed_bytes", "Bytes of these packets, with their Ethernet headers");
        to.counter(&metric, others.map(|(why, count)| ([("reason", why)], count.bytes)))
    }
}
