//! The state of the lists, for the control socket, and the orders of its clients.

use std::io;

use api::{BlockLine, BlockList, BlockedPrefix, Item, Order, Request};
use feed::AnyPrefix;
use fib::{Family, Prefix};
use xdp::block::count::Count;
use xdp::block::filter::Counts;
use xdp::block::masks::ListMasks;
use xdp::{Blocker, ListAction};

use crate::BlockLists;
use crate::config::parse_prefix;
use crate::lists::Entry;

impl BlockLists {
    /// Returns the items of the reply to a request; `None` if the request is not about block lists.
    ///
    /// # Errors
    ///
    /// A prefix that is none; what the kernel refuses.
    pub fn show(
        &mut self,
        blocker: &Blocker,
        request: &Request,
    ) -> Option<Result<Vec<Item>, String>> {
        let failed = |error: io::Error| format!("reading the counters: {error}");
        match request {
            Request::BlockLists => Some(
                blocker
                    .counts()
                    .map_err(failed)
                    .map(|counts| self.status(&counts).into_iter().map(Item::BlockList).collect()),
            ),
            Request::Blocked { prefix } => Some(parse_prefix(prefix).and_then(|prefix| {
                let blocked = self.blocked(blocker, prefix).map_err(failed)?;
                Ok(vec![Item::BlockedPrefix(blocked)])
            })),
            _ => None,
        }
    }

    /// Executes an order and returns a report; `None` if the order is not about block lists.
    ///
    /// # Errors
    ///
    /// The fault of the order, or an error of the kernel.
    pub fn execute(
        &mut self,
        blocker: &mut Blocker,
        order: &Order,
    ) -> Option<Result<String, String>> {
        match order {
            Order::Ban { prefix, seconds } => {
                Some(parse_prefix(prefix).and_then(|prefix| self.ban(blocker, prefix, *seconds)))
            }
            Order::ApplyLists => {
                self.turn(blocker, true);
                Some(match self.held().first() {
                    None => Ok("all lists are in force".to_owned()),
                    Some(list) => {
                        let reason = list.held.as_deref().unwrap_or_default();
                        Err(format!("{}: the list is held all the same: {reason}", list.name))
                    }
                })
            }
            Order::Unban { prefix } => {
                Some(parse_prefix(prefix).and_then(|prefix| self.unban(blocker, prefix)))
            }
            _ => None,
        }
    }

    /// Returns the lists, in the order of priority, with these counters.
    pub fn status(&self, counts: &Counts) -> Vec<BlockList> {
        let status = |(entry, count): (&Entry, &Count)| {
            let [v4, v6] = entry.applied();
            BlockList {
                name: entry.name().to_owned(),
                action: action(entry).to_owned(),
                to: entry.to().iter().map(ToString::to_string).collect(),
                v4,
                v6,
                expiring: entry.ending(),
                held: entry.held().map(str::to_owned),
                error: entry.error(),
                packets: count.packets,
                bytes: count.bytes,
            }
        };
        let none = vec![Count::default(); self.entries.len()];
        let counts = if counts.lists.is_empty() { &none } else { &counts.lists };
        self.entries.iter().zip(counts).map(status).collect()
    }

    fn blocked(&mut self, blocker: &Blocker, prefix: AnyPrefix) -> io::Result<BlockedPrefix> {
        let (count, since) = self.watched.count(prefix, blocker)?;
        let tables = blocker.tables();
        let (lines, within) = match prefix {
            AnyPrefix::V4(prefix) => self.lines(tables.lines_v4(), prefix),
            AnyPrefix::V6(prefix) => self.lines(tables.lines_v6(), prefix),
        };
        let everywhere = lines.iter().find(|line| line.to.is_empty());
        Ok(BlockedPrefix {
            prefix: prefix.to_string(),
            action: everywhere.map(|line| line.action.clone()),
            lines,
            within,
            packets: count.packets,
            bytes: count.bytes,
            counted_ms: since.as_millis() as u64,
        })
    }

    /// Returns the lines that cover a prefix, by list, and the number of those within it.
    fn lines<A: Family>(&self, lines: &ListMasks<A>, prefix: Prefix<A>) -> (Vec<BlockLine>, usize)
    where
        Prefix<A>: ToString,
    {
        let covering: Vec<(Prefix<A>, u32)> = lines.covering(prefix).collect();
        let of = |(number, entry): (usize, &Entry)| {
            let name = entry.name().to_owned();
            let action = action(entry).to_owned();
            let to: Vec<String> = entry.to().iter().map(ToString::to_string).collect();
            let in_list = covering.iter().filter(move |(_, lists)| lists & 1 << number != 0);
            in_list.map(move |(line, _)| BlockLine {
                list: name.clone(),
                action: action.clone(),
                to: to.clone(),
                prefix: line.to_string(),
            })
        };
        let by_list = self.entries.iter().enumerate().flat_map(of).collect();
        (by_list, lines.count_within(prefix))
    }
}

fn action(entry: &Entry) -> &'static str {
    match entry.action() {
        ListAction::Pass => "pass",
        ListAction::Drop => "drop",
    }
}
