//! What every router counts: workers, tables, feeds, interfaces.

use std::fmt;

use super::Gathered;
use super::writer::{Writer, bytes, family};
use crate::control::api::{Feed, Fib, Interface};
use crate::datapath::Class;
use crate::stats::Snapshot;

impl Gathered {
    pub(super) fn encode_workers(&self, to: &mut Writer<'_>) -> fmt::Result {
        let names: Vec<String> = (0..self.workers.len()).map(|it| it.to_string()).collect();
        let each = |value: fn(&Snapshot) -> u64| {
            let values = names.iter().zip(&self.workers);
            values.map(move |(name, it)| ([("worker", name.as_str())], value(it)))
        };
        let it = family("packets_received", "Packets that a worker took from its ports");
        to.counter(&it, each(|it| it.received))?;
        to.counter(&bytes("received", "Bytes of them"), each(|it| it.received_bytes))?;
        to.counter(&family("packets_sent", "Packets sent"), each(Snapshot::sent))?;
        to.counter(&bytes("sent", "Bytes of them"), each(|it| it.sent_bytes))?;
        for (name, help, class) in [
            ("packets_punted", "Packets handed to the kernel", Class::Punted),
            ("packets_dropped", "Packets dropped", Class::Dropped),
        ] {
            let workers = names.iter().zip(&self.workers);
            let values = workers.flat_map(|(name, it)| {
                let verdicts = it.iter().filter(move |(verdict, _)| verdict.class() == class);
                verdicts.map(move |(verdict, count)| {
                    ([("worker", name.as_str()), ("reason", verdict.name())], count)
                })
            });
            to.counter(&family(name, help), values)?;
        }
        let it = family("packets_held", "Packets that wait for a neighbour's MAC");
        to.gauge(&it, each(|it| it.held))?;
        let lookups = names.iter().zip(&self.workers).flat_map(|(name, it)| {
            let of = |af, count| ([("worker", name.as_str()), ("af", af)], count);
            [of("ipv4", it.lookups_v4), of("ipv6", it.lookups_v6)]
        });
        to.counter(&family("lookups", "Destinations looked up"), lookups)?;
        let it = family("batches", "Batches of at least one packet");
        to.counter(&it, each(|it| it.batches))?;
        let it = family("polls", "Turns over all ports, with or without packets");
        to.counter(&it, each(|it| it.polls))
    }

    pub(super) fn encode_tables(&self, to: &mut Writer<'_>) -> fmt::Result {
        let numbers: Vec<String> = self.fibs.iter().map(|it| it.table.to_string()).collect();
        let each = |value: fn(&Fib) -> u64| {
            let values = numbers.iter().zip(&self.fibs);
            values.map(move |(number, it)| {
                ([("table", number.as_str()), ("af", it.family.as_str())], value(it))
            })
        };
        to.gauge(&family("table_routes", "Routes of a table"), each(|it| it.routes))?;
        let it = bytes(
            "table_size",
            "What lookups in a table may touch, with the tables that share its memory",
        );
        to.gauge(&it, each(|it| it.bytes))?;
        let it = family("table_generation", "Publications of a table so far");
        to.gauge(&it, each(|it| it.generation))?;
        let it = family("table_full", "1 if the last changes found no room in the engine");
        to.gauge(&it, each(|it| u64::from(it.full.is_some())))?;
        let engines = numbers.iter().zip(&self.fibs).map(|(number, it)| {
            let engine = ("engine", it.engine.as_str());
            ([("table", number.as_str()), ("af", it.family.as_str()), engine], 1)
        });
        to.gauge(&family("table_info", "The engine of a table; always 1"), engines)?;
        to.gauge(&family("next_hops", "Next hops in use"), [([], self.hops)])
    }

    pub(super) fn encode_feeds(&self, to: &mut Writer<'_>) -> fmt::Result {
        let each = |value: fn(&Feed) -> u64| {
            self.feeds.iter().map(move |it| ([("feed", it.name.as_str())], value(it)))
        };
        to.counter(&family("feed_messages", "Messages read"), each(|it| it.messages))?;
        let it = family("feed_overruns", "Times that messages were lost for want of room");
        to.counter(&it, each(|it| it.overruns))?;
        let it = family("feed_resynchronisations", "Times that everything was read anew");
        to.counter(&it, each(|it| it.resynchronisations))?;
        let it = family("feed_damaged", "Messages that made no sense");
        to.counter(&it, each(|it| it.damaged))?;
        let it = family("feed_troubles", "Times that the system refused something");
        to.counter(&it, each(|it| it.troubles))?;
        // Of all feeds together: the first says the same as the others.
        let first =
            |value: fn(&Feed) -> u64| self.feeds.iter().take(1).map(move |it| ([], value(it)));
        to.counter(
            &family("changes", "Changes taken over from the feeds"),
            first(|it| it.changes),
        )?;
        let it = family("commits", "Commits that published something");
        to.counter(&it, first(|it| it.commits))
    }

    pub(super) fn encode_interfaces(&self, to: &mut Writer<'_>) -> fmt::Result {
        let steered = self.interfaces.iter().flat_map(|it| {
            let name = it.name.as_str();
            it.steered.iter().map(move |(reason, &count)| {
                ([("interface", name), ("reason", reason.as_str())], count)
            })
        });
        let it =
            family("steered_packets", "Packets that came in, by what the steering program did");
        to.counter(&it, steered)?;
        let each = |value: fn(&Interface) -> u64| {
            self.interfaces.iter().map(move |it| ([("interface", it.name.as_str())], value(it)))
        };
        let it = family("interface_up", "1 if packets can leave on it");
        to.gauge(&it, each(|it| u64::from(it.up)))?;
        let it = family("interface_observed", "1 if its packets are left to the kernel");
        to.gauge(&it, each(|it| u64::from(it.observe)))?;
        let it = bytes("interface_mtu", "The largest packet");
        to.gauge(&it, each(|it| it.mtu.into()))?;
        let neighbours =
            self.neighbours.iter().map(|(name, &count)| ([("interface", name.as_str())], count));
        to.gauge(&family("neighbours", "Neighbours whose MAC is known"), neighbours)
    }
}
