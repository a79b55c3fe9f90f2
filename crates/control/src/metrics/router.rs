//! The metrics of every router: workers, tables, feeds, interfaces.

use std::collections::BTreeMap;
use std::fmt;

use super::Scrape;
use crate::exposition::{Writer, bytes, family};
use api::{Feed, Fib, Interface};
use datapath::Class;
use datapath::stats::{IcmpCounter, Snapshot};

impl Scrape {
    pub(super) fn encode_workers(&self, to: &mut Writer<'_>) -> fmt::Result {
        let names: Vec<String> = (0..self.workers.len()).map(|item| item.to_string()).collect();
        let each = |value: fn(&Snapshot) -> u64| {
            let values = names.iter().zip(&self.workers);
            values.map(move |(name, item)| ([("worker", name.as_str())], value(item)))
        };
        let metric = family(
            "packets_received",
            "Packets that workers received from their ports; with the originated ones they are the \
             sum of sent, punted, dropped and held packets",
        );
        to.counter(&metric, each(|item| item.received))?;
        to.counter(
            &bytes("received", "Bytes of the packets received, with their Ethernet headers"),
            each(|item| item.received_bytes),
        )?;
        to.counter(
            &family("packets_sent", "Packets that workers handed to their ports for sending"),
            each(Snapshot::sent),
        )?;
        to.counter(
            &bytes("sent", "Bytes of the packets sent, with their Ethernet headers"),
            each(|item| item.sent_bytes),
        )?;
        for (name, help, class) in [
            (
                "packets_punted",
                "Packets punted to the kernel, by reason; if a reason other than this host's own \
                 packets grows fast, it costs the kernel processor time",
                Class::Punted,
            ),
            (
                "packets_dropped",
                "Packets dropped, by reason; if *_full or unserved grows, the workers are too slow \
                 or too few, no_route means a missing route, and bad_* malformed packets",
                Class::Dropped,
            ),
        ] {
            let workers = names.iter().zip(&self.workers);
            let values = workers.flat_map(|(name, item)| {
                let verdicts = item.iter().filter(move |(verdict, _)| verdict.class() == class);
                verdicts.map(move |(verdict, count)| {
                    ([("worker", name.as_str()), ("reason", verdict.name())], count)
                })
            });
            to.counter(&family(name, help), values)?;
        }
        let metric = family(
            "packets_held",
            "Packets that wait for the MAC of a neighbor now; if it stays above 0, the neighbor \
             does not answer",
        );
        to.gauge(&metric, each(|item| item.held))?;
        let metric = family(
            "packets_originated",
            "Packets that workers made themselves, such as ICMP errors and fragments; they are also \
             sent, held or dropped",
        );
        to.counter(&metric, each(|item| item.originated))?;
        let metric = family(
            "packets_fragmented",
            "IPv4 packets over the next link's MTU that were sent as fragments; if it grows fast, \
             give the link a larger MTU, or the senders a smaller one",
        );
        to.counter(&metric, each(|item| item.fragmented))?;
        let metric = family(
            "fragments_sent",
            "Fragments of those packets; all but one of each packet are also counted as originated",
        );
        to.counter(&metric, each(|item| item.fragments))?;
        let icmp = |limited: bool| {
            let counters = IcmpCounter::ALL.into_iter();
            let counters =
                counters.filter(move |counter| (*counter == IcmpCounter::RateLimited) == limited);
            names.iter().zip(&self.workers).flat_map(move |(name, item)| {
                counters.clone().map(move |counter| (name, counter, item.icmp[counter as usize]))
            })
        };
        let metric = family(
            "icmp_errors_sent",
            "ICMP errors that the router sent itself, by reason; each is about a dropped packet",
        );
        let sent = icmp(false).map(|(name, counter, count)| {
            ([("worker", name.as_str()), ("reason", counter.name())], count)
        });
        to.counter(&metric, sent)?;
        let metric = family(
            "icmp_errors_rate_limited",
            "ICMP errors that were not sent because of a limit (net.ipv4.icmp_ratelimit, \
             icmp_msgs_per_sec); if it grows fast, many packets expire or have no route",
        );
        let limited = icmp(true).map(|(name, _, count)| ([("worker", name.as_str())], count));
        to.counter(&metric, limited)?;
        let lookups = names.iter().zip(&self.workers).flat_map(|(name, item)| {
            let of = |af, count| ([("worker", name.as_str()), ("af", af)], count);
            [of("ipv4", item.lookups_v4), of("ipv6", item.lookups_v6)]
        });
        let metric = family(
            "lookups",
            "Destinations looked up in the tables, by address family; grows with the packets that \
             are forwarded",
        );
        to.counter(&metric, lookups)?;
        let metric = family(
            "batches",
            "Batches of at least one packet; packets_received divided by it is the mean size of a \
             batch, which rises with the load",
        );
        to.counter(&metric, each(|item| item.batches))?;
        let metric = family(
            "polls",
            "Polls of all ports, with or without packets; if it does not grow, the worker hangs",
        );
        to.counter(&metric, each(|item| item.polls))?;
        let metric = family(
            "worker_panics",
            "Panics of a worker, after which new workers start; each is a bug: report the message in the log",
        );
        to.counter(&metric, each(|item| item.panics))
    }

    pub(super) fn encode_tables(&self, to: &mut Writer<'_>) -> fmt::Result {
        let numbers: Vec<String> = self.fibs.iter().map(|item| item.table.to_string()).collect();
        let each = |value: fn(&Fib) -> u64| {
            let values = numbers.iter().zip(&self.fibs);
            values.map(move |(number, item)| {
                ([("table", number.as_str()), ("af", item.family.as_str())], value(item))
            })
        };
        to.gauge(
            &family(
                "table_routes",
                "Routes in a table; compare with what the routing daemon has installed",
            ),
            each(|item| item.routes),
        )?;
        let metric = bytes(
            "table_size",
            "Memory that lookups in a table may touch, with the tables that share it; above the \
             size of the cache lookups become slower",
        );
        to.gauge(&metric, each(|item| item.bytes))?;
        let metric = family(
            "table_generation",
            "Publications of a table; it grows only while routes change",
        );
        to.gauge(&metric, each(|item| item.generation))?;
        let metric = family(
            "table_full",
            "1 if the engine had no room for the last changes, which are not in force: choose \
             another [fib] engine",
        );
        to.gauge(&metric, each(|item| u64::from(item.full.is_some())))?;
        let engines = numbers.iter().zip(&self.fibs).map(|(number, item)| {
            let engine = ("engine", item.engine.as_str());
            ([("table", number.as_str()), ("af", item.family.as_str()), engine], 1)
        });
        let metric = family("table_info", "The engine of a table, in a label; always 1");
        to.gauge(&metric, engines)?;
        let metric = family(
            "next_hops",
            "Different next hops and groups of next hops that routes use now; compare with the \
             number of peers and links",
        );
        to.gauge(&metric, [([], self.hops)])
    }

    pub(super) fn encode_feeds(&self, to: &mut Writer<'_>) -> fmt::Result {
        let each = |value: fn(&Feed) -> u64| {
            self.feeds.iter().map(move |item| ([("feed", item.name.as_str())], value(item)))
        };
        to.counter(
            &family(
                "feed_messages",
                "Messages read from the kernel or FRR; grows with changes of routes, links and \
                 neighbors",
            ),
            each(|item| item.messages),
        )?;
        let metric = family(
            "feed_overruns",
            "Times that messages were lost because the socket's buffer was full, and all routes \
             were read again: if it happens often, raise net.core.rmem_max",
        );
        to.counter(&metric, each(|item| item.overruns))?;
        let metric = family(
            "feed_resynchronizations",
            "Times that all routes of a feed were read again, after an overrun, a reconnection or \
             a mismatch; each costs seconds of processor time with a full table",
        );
        to.counter(&metric, each(|item| item.resynchronizations))?;
        let metric =
            family("feed_parse_errors", "Messages that could not be parsed; please report any");
        to.counter(&metric, each(|item| item.parse_errors))?;
        let metric = family(
            "feed_connections_refused",
            "Connections of feeds that were refused; the log names the peer: `[feed] fpm_users` \
             and `fpm_peers` allow peers",
        );
        to.counter(&metric, each(|item| item.refused))?;
        let metric = family(
            "feed_errors",
            "Times that the system refused a request of the router; the log has the last reason",
        );
        to.counter(&metric, each(|item| item.errors))?;
        // These two count all feeds together: every feed has the same value.
        let first =
            |value: fn(&Feed) -> u64| self.feeds.iter().take(1).map(move |item| ([], value(item)));
        to.counter(
            &family(
                "feed_changes",
                "Changes of routes, links and neighbors applied from all feeds; its rate is the \
                 churn of the routing table",
            ),
            first(|item| item.changes),
        )?;
        let metric = family(
            "table_commits",
            "Commits that published tables; feed_changes divided by it is the mean size of a commit",
        );
        to.counter(&metric, first(|item| item.commits))
    }

    pub(super) fn encode_interfaces(&self, to: &mut Writer<'_>) -> fmt::Result {
        let steered = self.interfaces.iter().flat_map(|item| {
            let name = item.name.as_str();
            item.steered.iter().map(move |(reason, &count)| {
                ([("interface", name), ("reason", reason.as_str())], count)
            })
        });
        let metric = family(
            "steered_packets",
            "Packets received on an interface, by the action of the steering program: taken are \
             the workers', all others are the kernel's or dropped; if stalled grows, a worker hangs",
        );
        to.counter(&metric, steered)?;
        for (name, help, counts) in [
            (
                "interface_lost_packets",
                "Packets lost between an interface and the workers, by reason: full receive rings, \
                 missing or too short frames, failed redirections, and on transmission malformed \
                 packets and drops of the device; if it grows, the workers are too slow or too few",
                (|item| &item.lost) as fn(&Interface) -> &BTreeMap<String, u64>,
            ),
            (
                "interface_ring_events",
                "Times that the kernel found a ring of an interface's sockets empty or a slot \
                 malformed; no packet is lost by that alone: frequent ones mean a busy worker",
                |item| &item.rings,
            ),
        ] {
            let values = self.interfaces.iter().flat_map(|item| {
                let name = item.name.as_str();
                counts(item).iter().map(move |(reason, &count)| {
                    ([("interface", name), ("reason", reason.as_str())], count)
                })
            });
            to.counter(&family(name, help), values)?;
        }
        let directions = |values: fn(&Interface) -> [u64; 2]| {
            self.interfaces.iter().flat_map(move |interface| {
                let name = interface.name.as_str();
                ["receive", "transmit"].into_iter().zip(values(interface)).map(
                    move |(direction, count)| {
                        ([("interface", name), ("direction", direction)], count)
                    },
                )
            })
        };
        let help = "Packets that workers received from an interface or handed to it for sending, \
                    without those that the kernel receives and sends there";
        let packets = |interface: &Interface| [interface.received, interface.transmitted];
        to.counter(&family("interface_packets", help), directions(packets))?;
        let help = "Bytes of the packets that workers received from an interface or handed to it \
                    for sending, with their Ethernet headers; its rate is the load of the link";
        let count = |interface: &Interface| [interface.received_bytes, interface.transmitted_bytes];
        to.counter(&bytes("interface", help), directions(count))?;
        let each = |value: fn(&Interface) -> u64| {
            self.interfaces
                .iter()
                .map(move |item| ([("interface", item.name.as_str())], value(item)))
        };
        let metric = family(
            "interface_up",
            "1 if packets can leave on the interface, 0 if its link is down: check cable and peer",
        );
        to.gauge(&metric, each(|item| u64::from(item.up)))?;
        let metric = family(
            "interface_served",
            "1 if the interface works as a port, 0 if it is gone or cannot be one: `show \
             interfaces` has the reason",
        );
        to.gauge(&metric, each(|item| u64::from(item.problem.is_none())))?;
        let ready = self.interfaces.iter().all(|item| item.problem.is_none());
        let metric = family(
            "ready",
            "1 if every configured interface works as a port, 0 if one does not: \
                 interface_served names it",
        );
        to.gauge(&metric, [([], u64::from(ready))])?;
        let metric = family(
            "interface_observed",
            "1 if the interface's packets are left to the kernel and only counted; `promote` ends \
             that",
        );
        to.gauge(&metric, each(|item| u64::from(item.observe)))?;
        let metric = bytes(
            "interface_mtu",
            "The largest packet that the interface sends, in bytes without the Ethernet header",
        );
        to.gauge(&metric, each(|item| item.mtu.into()))?;
        let neighbors =
            self.neighbors.iter().map(|(name, &count)| ([("interface", name.as_str())], count));
        let metric = family(
            "neighbors",
            "Neighbors of an interface whose MAC is known now; if it falls, links or hosts are down",
        );
        to.gauge(&metric, neighbors)
    }
}
