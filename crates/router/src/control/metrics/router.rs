//! What every router counts: workers, tables, feeds, interfaces.

use std::collections::BTreeMap;
use std::fmt;

use super::Gathered;
use super::writer::{Writer, bytes, family};
use crate::control::api::{Feed, Fib, Interface};
use crate::datapath::Class;
use crate::stats::Snapshot;

impl Gathered {
    pub(super) fn encode_workers(&self, to: &mut Writer<'_>) -> fmt::Result {
        let names: Vec<String> = (0..self.workers.len()).map(|item| item.to_string()).collect();
        let each = |value: fn(&Snapshot) -> u64| {
            let values = names.iter().zip(&self.workers);
            values.map(move |(name, item)| ([("worker", name.as_str())], value(item)))
        };
        let metric = family("packets_received", "Packets that workers took from their ports");
        to.counter(&metric, each(|item| item.received))?;
        to.counter(
            &bytes("received", "Bytes of the packets received, with their Ethernet headers"),
            each(|item| item.received_bytes),
        )?;
        to.counter(
            &family("packets_sent", "Packets that workers sent by their ports"),
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
                 packets grows fast, it costs the kernel time",
                Class::Punted,
            ),
            (
                "packets_dropped",
                "Packets dropped, by reason; the guide lists each reason and its remedy",
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
            "Packets that wait for a neighbor's MAC now; if it stays above 0, the neighbor does \
             not answer",
        );
        to.gauge(&metric, each(|item| item.held))?;
        let lookups = names.iter().zip(&self.workers).flat_map(|(name, item)| {
            let of = |af, count| ([("worker", name.as_str()), ("af", af)], count);
            [of("ipv4", item.lookups_v4), of("ipv6", item.lookups_v6)]
        });
        to.counter(&family("lookups", "Destinations looked up in the tables"), lookups)?;
        let metric = family(
            "batches",
            "Batches of at least one packet; packets_received over it is the mean size of a batch",
        );
        to.counter(&metric, each(|item| item.batches))?;
        let metric = family(
            "polls",
            "Turns over all ports, with or without packets; if it does not grow, the worker hangs",
        );
        to.counter(&metric, each(|item| item.polls))
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
            "Memory that lookups in a table may touch, with the tables that share it; above the size of \
             the cache lookups become slower",
        );
        to.gauge(&metric, each(|item| item.bytes))?;
        let metric = family(
            "table_generation",
            "Times that a table was published; it does not grow while no route changes",
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
        to.gauge(&family("table_info", "The engine of a table; always 1"), engines)?;
        to.gauge(&family("next_hops", "Different next hops that routes use now"), [([], self.hops)])
    }

    pub(super) fn encode_feeds(&self, to: &mut Writer<'_>) -> fmt::Result {
        let each = |value: fn(&Feed) -> u64| {
            self.feeds.iter().map(move |item| ([("feed", item.name.as_str())], value(item)))
        };
        to.counter(
            &family("feed_messages", "Messages read from the kernel or FRR"),
            each(|item| item.messages),
        )?;
        let metric = family(
            "feed_overruns",
            "Times that messages were lost because the socket's buffer was full, and all routes \
             were read again: if it happens often, raise net.core.rmem_max",
        );
        to.counter(&metric, each(|item| item.overruns))?;
        let metric = family("feed_resynchronizations", "Times that all routes were read again");
        to.counter(&metric, each(|item| item.resynchronizations))?;
        let metric =
            family("feed_parse_errors", "Messages that could not be parsed; any is worth a report");
        to.counter(&metric, each(|item| item.parse_errors))?;
        let metric = family(
            "feed_connections_refused",
            "Connections of feeds that were refused: the log names the peer, `[feed] fpm_users` \
             and `fpm_peers` allow peers",
        );
        to.counter(&metric, each(|item| item.refused))?;
        let metric = family(
            "feed_errors",
            "Times that the system refused a request of the router; the log has the last reason",
        );
        to.counter(&metric, each(|item| item.errors))?;
        // Of all feeds together: the first says the same as the others.
        let first =
            |value: fn(&Feed) -> u64| self.feeds.iter().take(1).map(move |item| ([], value(item)));
        to.counter(
            &family(
                "feed_changes",
                "Changes of routes, links and neighbors taken over from the feeds",
            ),
            first(|item| item.changes),
        )?;
        let metric = family(
            "table_commits",
            "Commits that published tables; feed_changes over it is the mean size of a commit",
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
            "Packets that came in on an interface, by what the steering program did with them",
        );
        to.counter(&metric, steered)?;
        for (name, help, counts) in [
            (
                "interface_lost_packets",
                "Packets lost between an interface and the workers, by reason: receive rings that \
                 were full, frames that were missing or too short, redirections that failed, and \
                 on the way out malformed packets and drops of the device; if it grows, the \
                 workers are too slow or too few",
                (|item| &item.lost) as fn(&Interface) -> &BTreeMap<String, u64>,
            ),
            (
                "interface_ring_events",
                "Times that the kernel found a ring of an interface's sockets empty or a slot \
                 malformed; no packet is lost by that alone",
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
        let help = "Packets that workers received from an interface or gave it for sending, \
                    without those that the kernel receives and sends there";
        let packets = |interface: &Interface| [interface.received, interface.transmitted];
        to.counter(&family("interface_packets", help), directions(packets))?;
        let help = "Bytes of the packets that workers received from an interface or gave it for \
                    sending, with their Ethernet headers; its rate is the load of the link";
        let count = |interface: &Interface| [interface.received_bytes, interface.transmitted_bytes];
        to.counter(&bytes("interface", help), directions(count))?;
        let each = |value: fn(&Interface) -> u64| {
            self.interfaces
                .iter()
                .map(move |item| ([("interface", item.name.as_str())], value(item)))
        };
        let metric = family(
            "interface_up",
            "1 if packets can leave on the interface, 0 if its link is down",
        );
        to.gauge(&metric, each(|item| u64::from(item.up)))?;
        let metric = family(
            "interface_served",
            "1 if the interface works as a port, 0 if it is gone or cannot be one: `show interfaces` states why",
        );
        to.gauge(&metric, each(|item| u64::from(item.problem.is_none())))?;
        let ready = self.interfaces.iter().all(|item| item.problem.is_none());
        let metric =
            family("ready", "1 if every configured interface works as a port, 0 if one does not");
        to.gauge(&metric, [([], u64::from(ready))])?;
        let metric = family(
            "interface_observed",
            "1 if the interface's packets are left to the kernel and only counted",
        );
        to.gauge(&metric, each(|item| u64::from(item.observe)))?;
        let metric = bytes("interface_mtu", "The largest packet that fits the interface");
        to.gauge(&metric, each(|item| item.mtu.into()))?;
        let neighbors =
            self.neighbors.iter().map(|(name, &count)| ([("interface", name.as_str())], count));
        to.gauge(&family("neighbors", "Neighbors of an interface whose MAC is known"), neighbors)
    }
}
