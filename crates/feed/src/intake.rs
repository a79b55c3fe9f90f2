//! Where ranked routes and events are delivered while a file is read.
//!
//! MRT files, `bgpdump -m` lines and text streams hold either a table (entries
//! of peers, to be ranked) or a stream (announcements and withdrawals in time).
//! A reader hands over what it meets and need not know which of the two the
//! caller wants: a table is gathered; a stream is kept as events for
//! [`updates`](crate::updates), or replayed at once for [`load`](crate::load).
//!
//! The kind of the file is that of its first route. What is of the other kind is
//! counted and skipped, with a warning: a table and a stream in one file have no
//! common meaning.

use core::net::IpAddr;
use hashbrown::HashSet;

use fib::Prefix;

use crate::best::Standing;
use crate::gather::Gather;
use crate::text::scan::AnyPrefix;
use crate::updates::{Event, What};
use crate::{BestPath, Change, Label, Labels, Loaded, Peer, Rank, Report};

/// What becomes of a stream.
pub(crate) enum Sink {
    /// Its events are kept.
    Keep(Vec<Event>),
    /// It is replayed, for what is left at its end.
    Replay(Box<(BestPath<u32>, BestPath<u128>)>),
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Table,
    Stream,
}

/// Takes routes and events in.
pub(crate) struct Intake {
    pub(crate) labels: Labels,
    pub(crate) report: Report,
    pub(crate) truncate: bool,
    v4: Gather<u32, Standing>,
    v6: Gather<u128, Standing>,
    sink: Sink,
    kind: Option<Kind>,
    peers: HashSet<Peer>,
    last_peer: Option<Peer>,
    mixed: u64,
}

impl Intake {
    pub(crate) fn new(sink: Sink, truncate: bool) -> Self {
        Self {
            labels: Labels::new(),
            report: Report::default(),
            truncate,
            v4: Gather::new(),
            v6: Gather::new(),
            sink,
            kind: None,
            peers: HashSet::new(),
            last_peer: None,
            mixed: 0,
        }
    }

    fn is(&mut self, kind: Kind) -> bool {
        let same = *self.kind.get_or_insert(kind) == kind;
        self.mixed += u64::from(!same);
        same
    }

    /// Counts a peer that has a route.
    pub(crate) fn meet(&mut self, peer: Peer) {
        if self.last_peer != Some(peer) {
            self.last_peer = Some(peer);
            self.peers.insert(peer);
        }
    }

    /// Takes an entry of a table.
    pub(crate) fn entry(&mut self, prefix: AnyPrefix, standing: Standing, label: Label) {
        if !self.is(Kind::Table) {
            return;
        }
        match prefix {
            AnyPrefix::V4(prefix) => self.v4.push(prefix, standing, label),
            AnyPrefix::V6(prefix) => self.v6.push(prefix, standing, label),
        }
    }

    /// Takes an announcement of a stream.
    pub(crate) fn announce(
        &mut self,
        time: u64,
        peer: Peer,
        prefix: AnyPrefix,
        path: u32,
        rank: Rank,
        next_hop: IpAddr,
    ) {
        let label = self.labels.intern_address(next_hop);
        self.announce_label(time, peer, prefix, path, rank, label);
    }

    /// Takes an announcement of a stream whose next hop came as text.
    pub(crate) fn announce_label(
        &mut self,
        time: u64,
        peer: Peer,
        prefix: AnyPrefix,
        path: u32,
        rank: Rank,
        label: Label,
    ) {
        if !self.is(Kind::Stream) {
            return;
        }
        self.report.announcements += 1;
        self.meet(peer);
        match &mut self.sink {
            Sink::Keep(events) => {
                let what = match prefix {
                    AnyPrefix::V4(prefix) => What::V4(Change::Announce { prefix, label }),
                    AnyPrefix::V6(prefix) => What::V6(Change::Announce { prefix, label }),
                };
                events.push(Event { time, peer, path, rank, what });
            }
            Sink::Replay(best) => match prefix {
                AnyPrefix::V4(prefix) => {
                    best.0.announce(prefix, peer, path, rank, label);
                }
                AnyPrefix::V6(prefix) => {
                    best.1.announce(prefix, peer, path, rank, label);
                }
            },
        }
    }

    /// Takes a withdrawal of a stream.
    pub(crate) fn withdraw(&mut self, time: u64, peer: Peer, prefix: AnyPrefix, path: u32) {
        if !self.is(Kind::Stream) {
            return;
        }
        self.report.withdrawals += 1;
        match &mut self.sink {
            Sink::Keep(events) => {
                let what = match prefix {
                    AnyPrefix::V4(prefix) => What::V4(Change::Withdraw { prefix }),
                    AnyPrefix::V6(prefix) => What::V6(Change::Withdraw { prefix }),
                };
                events.push(Event { time, peer, path, rank: Rank::EVEN, what });
            }
            Sink::Replay(best) => match prefix {
                AnyPrefix::V4(prefix) => {
                    best.0.withdraw(prefix, peer, path);
                }
                AnyPrefix::V6(prefix) => {
                    best.1.withdraw(prefix, peer, path);
                }
            },
        }
    }

    /// Takes the change of a session's state: it is up, or it is not.
    pub(crate) fn session(&mut self, time: u64, peer: Peer, up: bool) {
        if !self.is(Kind::Stream) {
            return;
        }
        match &mut self.sink {
            Sink::Keep(events) => {
                let what = if up { What::Up } else { What::Down };
                events.push(Event { time, peer, path: 0, rank: Rank::EVEN, what });
            }
            Sink::Replay(best) if !up => {
                best.0.session_down(peer, |_| ());
                best.1.session_down(peer, |_| ());
            }
            Sink::Replay(_) => {}
        }
    }

    /// Ends a table or a replayed stream: the routes, the labels, the report.
    pub(crate) fn into_table(mut self) -> Loaded {
        self.tell();
        let (v4, v6) = match (self.kind, self.sink) {
            (Some(Kind::Stream), Sink::Replay(best)) => (best.0.table(), best.1.table()),
            _ => {
                let (v4, lost4) = self.v4.finish();
                let (v6, lost6) = self.v6.finish();
                self.report.duplicates += lost4 + lost6;
                (v4, v6)
            }
        };
        Loaded { v4, v6, labels: self.labels, report: self.report }
    }

    /// Ends a stream: its events, the labels, the report. `None` if it was a table.
    pub(crate) fn into_events(mut self) -> Option<(Vec<Event>, Labels, Report)> {
        self.tell();
        match self.sink {
            Sink::Keep(events) if self.kind != Some(Kind::Table) => {
                Some((events, self.labels, self.report))
            }
            _ => None,
        }
    }

    fn tell(&mut self) {
        self.report.peers = self.peers.len();
        if self.mixed > 0 {
            let what = match self.kind {
                Some(Kind::Table) => "updates in a table dump",
                _ => "entries of a table in a stream of updates",
            };
            self.report.warnings.push(format!("{} {what} were skipped", self.mixed));
        }
    }
}

/// Makes a prefix of what a message holds, where the bits beyond the length do
/// not count (RFC 4271, 4.3).
pub(crate) fn prefix4(addr: u32, len: u32) -> AnyPrefix {
    AnyPrefix::V4(Prefix::truncate(addr, len))
}

/// As [`prefix4`], for IPv6.
pub(crate) fn prefix6(addr: u128, len: u32) -> AnyPrefix {
    AnyPrefix::V6(Prefix::truncate(addr, len))
}
