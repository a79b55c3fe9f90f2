//! Forwarding that is off: refuses the packets of a port to which this machine is no router.
//!
//! As Linux does where `net.ipv4.conf.IFACE.forwarding` or `net.ipv6.conf.all.forwarding` is 0: it delivers what is
//! for itself, and drops the rest without an ICMP error; but IPv6 packets without a route still get Destination
//! Unreachable, since Linux looks for the route first. Packets that are left to the host for another reason, such as
//! a route that only the host has, are left to it here as well: it drops them, or finds that they are its own.

use wire::ethernet;

use super::batch::Kind;
use super::refusals::Refusals;
use super::{Adjacencies, Batch, Ingress, Verdict};

/// Refuses the frames of a batch to a port whose forwarding is off; `frames` are those of the batch without
/// tags, in order.
#[cold]
pub(super) fn refuse_forwarding<'f>(
    batch: &Batch,
    frames: impl Iterator<Item = &'f [u8]>,
    adjacencies: &Adjacencies,
    terms: &Ingress,
    refusals: &mut Refusals,
) {
    let [v4, v6] = terms.forwarding_off;
    for (at, ((kind, hop), frame)) in batch.outcomes().zip(frames).enumerate() {
        let adjacency = adjacencies.get(hop);
        let is_hosts = match adjacency.port() {
            Err(Verdict::HostRoute) => true,
            Err(Verdict::NoRoute) => terms.further && adjacencies.group(hop).is_none(),
            _ => false,
        };
        let leads = adjacency.leads() || adjacencies.group(hop).is_some();
        let is_refused = match kind {
            Kind::V4 => v4 && !is_hosts,
            Kind::V6 => v6 && !is_hosts && leads,
            // The first byte of the IP header has the version.
            Kind::Done(Verdict::TtlExpired) => match frame.get(ethernet::LEN) {
                Some(first) if first >> 4 == 4 => v4,
                _ => v6,
            },
            Kind::Done(_) | Kind::Deferred => false,
        };
        if is_refused {
            refusals.refuse(at, Verdict::ForwardingOff);
        }
    }
}
