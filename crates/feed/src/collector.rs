//! Where ranked routes and events are delivered while a file is read.
//!
//! MRT files, `bgpdump -m` lines and text streams hold either a table (entries of peers, to be
//! ranked) or a stream (announcements and withdrawals in time). A reader passes on all entries and
//! events and need not know which of the two the caller wants: a table is collected; a stream is
//! stored as events for [`updates`](crate::updates), or replayed at once for [`load`](crate::load).
//!
//! The kind of the file is that of its first route. Routes of the other kind are counted and
//! skipped, with a warning: a table and a stream in one file have no common meaning.

use core::net::IpAddr;
use hashbrown::HashSet;

use crate::best::{BestPath, Change, DecisionKey, Peer, Rank};
use crate::event::{Event, EventKind};
use crate::label::{Label, Labels};
use crate::options::Options;
use crate::prefix::AnyPrefix;
use crate::routing_table::{Report, RoutingTable};
use crate::table_builder::TableBuilder;

/// The processing of a stream.
pub(crate) enum StreamMode {
    /// Its events are stored.
    Collect(Vec<Event>),
    /// It is replayed; the result is the table at its end.
    Replay(Box<(BestPath<u32>, BestPath<u128>)>),
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Content {
    Table,
    Stream,
}

/// Collects routes and events.
pub(crate) struct RouteCollector {
    pub(crate) labels: Labels,
    pub(crate) report: Report,
    pub(crate) truncate: bool,
    origin: bool,
    v4: TableBuilder<u32, DecisionKey>,
    v6: TableBuilder<u128, DecisionKey>,
    mode: StreamMode,
    content: Option<Content>,
    peers: HashSet<Peer>,
    last_peer: Option<Peer>,
    mixed: u64,
}

impl RouteCollector {
    pub(crate) fn new(mode: StreamMode, options: &Options) -> Self {
        Self {
            labels: Labels::new(),
            report: Report::default(),
            truncate: options.truncate_host_bits,
            origin: options.origin,
            v4: TableBuilder::new(),
            v6: TableBuilder::new(),
            mode,
            content: None,
            peers: HashSet::new(),
            last_peer: None,
            mixed: 0,
        }
    }

    fn accepts(&mut self, content: Content) -> bool {
        let same = *self.content.get_or_insert(content) == content;
        self.mixed += u64::from(!same);
        same
    }

    /// Counts a peer that has a route.
    pub(crate) fn add_peer(&mut self, peer: Peer) {
        if self.last_peer != Some(peer) {
            self.last_peer = Some(peer);
            self.peers.insert(peer);
        }
    }

    /// Adds an entry of a table.
    pub(crate) fn add_entry(&mut self, prefix: AnyPrefix, key: DecisionKey, label: Label) {
        if !self.accepts(Content::Table) {
            return;
        }
        match prefix {
            AnyPrefix::V4(prefix) => self.v4.push(prefix, key, label),
            AnyPrefix::V6(prefix) => self.v6.push(prefix, key, label),
        }
    }

    /// Returns the label of a route from BGP.
    pub(crate) fn label(&mut self, next_hop: IpAddr, origin: Option<u32>) -> Label {
        self.labels.intern_route(next_hop, origin.filter(|_| self.origin))
    }

    /// Adds an announcement of a stream.
    pub(crate) fn announce(
        &mut self,
        time: u64,
        peer: Peer,
        prefix: AnyPrefix,
        path: u32,
        rank: Rank,
        label: Label,
    ) {
        if !self.accepts(Content::Stream) {
            return;
        }
        self.report.announcements += 1;
        self.add_peer(peer);
        match &mut self.mode {
            StreamMode::Collect(events) => {
                let kind = match prefix {
                    AnyPrefix::V4(prefix) => EventKind::V4(Change::Announce { prefix, label }),
                    AnyPrefix::V6(prefix) => EventKind::V6(Change::Announce { prefix, label }),
                };
                events.push(Event { time, peer, path, rank, kind });
            }
            StreamMode::Replay(best) => match prefix {
                AnyPrefix::V4(prefix) => {
                    best.0.announce(prefix, peer, path, rank, label);
                }
                AnyPrefix::V6(prefix) => {
                    best.1.announce(prefix, peer, path, rank, label);
                }
            },
        }
    }

    /// Adds a withdrawal of a stream.
    pub(crate) fn withdraw(&mut self, time: u64, peer: Peer, prefix: AnyPrefix, path: u32) {
        if !self.accepts(Content::Stream) {
            return;
        }
        self.report.withdrawals += 1;
        match &mut self.mode {
            StreamMode::Collect(events) => {
                let kind = match prefix {
                    AnyPrefix::V4(prefix) => EventKind::V4(Change::Withdraw { prefix }),
                    AnyPrefix::V6(prefix) => EventKind::V6(Change::Withdraw { prefix }),
                };
                events.push(Event { time, peer, path, rank: Rank::EVEN, kind });
            }
            StreamMode::Replay(best) => match prefix {
                AnyPrefix::V4(prefix) => {
                    best.0.withdraw(prefix, peer, path);
                }
                AnyPrefix::V6(prefix) => {
                    best.1.withdraw(prefix, peer, path);
                }
            },
        }
    }

    /// Adds a change of a session's state, to up or down.
    pub(crate) fn set_session(&mut self, time: u64, peer: Peer, up: bool) {
        if !self.accepts(Content::Stream) {
            return;
        }
        match &mut self.mode {
            StreamMode::Collect(events) => {
                let kind = if up { EventKind::Up } else { EventKind::Down };
                events.push(Event { time, peer, path: 0, rank: Rank::EVEN, kind });
            }
            StreamMode::Replay(best) if !up => {
                best.0.session_down(peer, |_| ());
                best.1.session_down(peer, |_| ());
            }
            StreamMode::Replay(_) => {}
        }
    }

    /// Ends a table or a replayed stream: the routes, the labels, the report.
    pub(crate) fn into_table(mut self) -> RoutingTable {
        self.finish_report();
        let (v4, v6) = match (self.content, self.mode) {
            (Some(Content::Stream), StreamMode::Replay(best)) => (best.0.table(), best.1.table()),
            _ => {
                let (v4, lost4) = self.v4.finish();
                let (v6, lost6) = self.v6.finish();
                self.report.duplicates += lost4 + lost6;
                (v4, v6)
            }
        };
        RoutingTable { v4, v6, labels: self.labels, report: self.report }
    }

    /// Ends a stream: its events, the labels, the report. `None` if it was a table.
    pub(crate) fn into_events(mut self) -> Option<(Vec<Event>, Labels, Report)> {
        self.finish_report();
        match self.mode {
            StreamMode::Collect(events) if self.content != Some(Content::Table) => {
                Some((events, self.labels, self.report))
            }
            _ => None,
        }
    }

    fn finish_report(&mut self) {
        self.report.peers = self.peers.len();
        if self.mixed > 0 {
            let what = match self.content {
                Some(Content::Table) => "updates in a table dump",
                _ => "entries of a table in a stream of updates",
            };
            self.report.warnings.push(format!("{} {what} were skipped", self.mixed));
        }
    }
}
