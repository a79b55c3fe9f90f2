//! What happens, told while it happens to whoever listens (`fingerpost monitor`).
//!
//! ```text
//!   feed ─► Tee ─► Plane              a turn of the control thread
//!            └► told ── commit ─► Watchers ─► queue (QUEUE events) ─► client's thread ─► socket
//!                                   full: counted, and said in the stream as `lost`
//! ```
//!
//! The control thread waits for nobody: an event that finds a client's queue full is
//! counted, and the count goes into the queue in its place as soon as there is room. So does
//! what one turn has too much of (a table of a million routes read anew).
//!
//! While nobody listens there is no [`Tee`]: the feed tells the plane itself.
//!
//! A route's generation is the publication that it is in, or will be where a worker has
//! yet to leave the table before.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::time::SystemTime;

use feed::netlink::{Follower, Link, Neighbor, RouteInfo, Rule};
use fib::{Family, Prefix};

use super::api::{self, Event, EventKind};
use super::items::words;
use super::plane::{HopTarget, One, Plane, PlaneTable, WithoutRoutes};

/// Events that wait for a client.
const QUEUE: usize = 8192;
/// Events that one turn keeps before it counts.
const TURN: usize = QUEUE;

/// One who listens.
#[derive(Debug)]
struct Watcher {
    queue: SyncSender<Arc<Event>>,
    lost: u64,
}

/// All who listen.
#[derive(Debug, Default)]
pub(crate) struct Watchers(Vec<Watcher>);

impl Watchers {
    /// Says whether nobody listens.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Adds one; what is received are the events from now on.
    pub(crate) fn add(&mut self) -> Receiver<Arc<Event>> {
        let (queue, events) = sync_channel(QUEUE);
        // There is room.
        let _ = queue.try_send(Arc::new(now(EventKind::Started)));
        self.0.push(Watcher { queue, lost: 0 });
        events
    }

    /// Tells all of an event.
    pub(crate) fn tell(&mut self, what: EventKind) {
        if !self.is_empty() {
            let event = Arc::new(now(what));
            self.0.retain_mut(|watcher| watcher.tell(&event));
        }
    }

    /// Tells all that some could not be told.
    fn lose(&mut self, lost: u64) {
        for watcher in &mut self.0 {
            watcher.lost += lost;
        }
    }

    /// Tells those whose queues have room again of what they have lost.
    pub(crate) fn settle(&mut self) {
        self.0.retain_mut(Watcher::settle);
    }

    /// Tells of what a turn has told the plane, now that it is committed.
    pub(super) fn committed(&mut self, told: &Told, plane: &Plane) {
        for what in &told.events {
            self.tell(happened(what, plane));
        }
        self.lose(told.lost);
        self.settle();
    }
}

impl Watcher {
    /// Sends an event, or counts it; says whether the client is still there.
    fn tell(&mut self, event: &Arc<Event>) -> bool {
        if !self.settle() {
            return false;
        }
        if self.lost > 0 {
            self.lost += 1;
            return true;
        }
        match self.queue.try_send(Arc::clone(event)) {
            Ok(()) => true,
            Err(TrySendError::Full(_)) => {
                self.lost += 1;
                true
            }
            Err(TrySendError::Disconnected(_)) => false,
        }
    }

    /// Says what was lost, if there is room; says whether the client is still there.
    fn settle(&mut self) -> bool {
        if self.lost == 0 {
            return true;
        }
        match self.queue.try_send(Arc::new(now(EventKind::Lost { lost: self.lost }))) {
            Ok(()) => self.lost = 0,
            Err(TrySendError::Full(_)) => {}
            Err(TrySendError::Disconnected(_)) => return false,
        }
        true
    }
}

fn now(what: EventKind) -> Event {
    let since = SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default();
    Event { time: since.as_secs_f64(), what }
}

/// What the plane was told.
#[derive(Debug)]
enum What {
    V4(u32, Prefix<u32>, Option<HopTarget>, bool),
    V6(u32, Prefix<u128>, Option<HopTarget>, bool),
    Link(u32, Option<Link>),
    Neighbor(u32, IpAddr, Option<[u8; 6]>),
}

/// What the plane was told in a turn.
#[derive(Debug, Default)]
pub(super) struct Told {
    events: Vec<What>,
    lost: u64,
}

impl Told {
    fn push(&mut self, what: What) {
        if self.events.len() < TURN {
            self.events.push(what);
        } else {
            self.lost += 1;
        }
    }
}

/// Tells the plane, and keeps what it was told.
pub(super) struct Tee<'a> {
    pub(super) plane: &'a mut Plane,
    /// Says whether the kernel's routes are somebody else's to tell.
    pub(super) without_routes: bool,
    pub(super) told: &'a mut Told,
}

impl Tee<'_> {
    /// Says whether a route is the plane's, and whether it has one for the prefix.
    fn had<A: Family>(
        &self,
        table: u32,
        prefix: Prefix<A>,
        of: impl for<'a> Fn(PlaneTable<'a>) -> One<'a, A>,
    ) -> Option<bool> {
        let table = self.plane.table(table).filter(|_| !self.without_routes)?;
        let way = of(table).rib().get(prefix).and_then(|hop| self.plane.hop_target(hop));
        Some(matches!(way, Some(HopTarget::Route(_))))
    }

    fn tell(&mut self, tell: impl FnOnce(&mut dyn Follower)) {
        if self.without_routes {
            tell(&mut WithoutRoutes(self.plane));
        } else {
            tell(self.plane);
        }
    }
}

fn way(best: Option<&RouteInfo>) -> Option<HopTarget> {
    best.map(|best| HopTarget::Route(Arc::clone(&best.target)))
}

impl Follower for Tee<'_> {
    fn route_v4(&mut self, table: u32, prefix: Prefix<u32>, best: Option<&RouteInfo>) {
        if let Some(had) = self.had(table, prefix, |table| table.v4) {
            self.told.push(What::V4(table, prefix, way(best), had));
        }
        self.tell(|it| it.route_v4(table, prefix, best));
    }

    fn route_v6(&mut self, table: u32, prefix: Prefix<u128>, best: Option<&RouteInfo>) {
        if let Some(had) = self.had(table, prefix, |table| table.v6) {
            self.told.push(What::V6(table, prefix, way(best), had));
        }
        self.tell(|it| it.route_v6(table, prefix, best));
    }

    fn link(&mut self, index: u32, link: Option<&Link>) {
        self.told.push(What::Link(index, link.cloned()));
        self.tell(|it| it.link(index, link));
    }

    fn address(&mut self, index: u32, address: IpAddr, length: u8, there: bool) {
        self.tell(|it| it.address(index, address, length, there));
    }

    fn neighbor(&mut self, index: u32, address: IpAddr, neighbor: Option<&Neighbor>) {
        let before = self.plane.mac(index, address);
        let mac = neighbor.and_then(|neighbor| neighbor.mac);
        // Most messages are of how sure the kernel is, which changes nothing.
        if mac != before && !address.is_multicast() {
            self.told.push(What::Neighbor(index, address, mac));
        }
        self.tell(|it| it.neighbor(index, address, neighbor));
    }

    fn rules(&mut self, rules: &[Rule]) {
        self.tell(|it| it.rules(rules));
    }
}

/// Puts what the plane was told into words.
fn happened(what: &What, plane: &Plane) -> EventKind {
    let name = |index: u32| {
        let port = plane.ports().get(index);
        port.map_or_else(|| format!("if{index}"), |port| port.name.clone())
    };
    let route = |number: u32, prefix: String, way: &Option<HopTarget>, had: bool, v6: bool| {
        let table = plane.table(number);
        let (generation, behind) = table.map_or((0, false), |it| {
            if v6 {
                (it.v6.generation(), it.v6.is_behind())
            } else {
                (it.v4.generation(), it.v4.is_behind())
            }
        });
        let change = match (had, way) {
            (false, Some(_)) => "added",
            (true, Some(_)) => "changed",
            (_, None) => "removed",
        };
        let words = way.as_ref().map(|way| words(&name, way));
        let (kind, via) = words.map_or(("none", Vec::new()), |words| (words.kind, words.via));
        EventKind::Route {
            change: change.to_owned(),
            table: number,
            prefix,
            kind: kind.to_owned(),
            via,
            generation: generation + u64::from(behind),
        }
    };
    match what {
        What::V4(table, prefix, way, had) => route(*table, prefix.to_string(), way, *had, false),
        What::V6(table, prefix, way, had) => route(*table, prefix.to_string(), way, *had, true),
        What::Link(index, link) => EventKind::Interface {
            name: link.as_ref().map_or_else(|| name(*index), |link| link.name.clone()),
            present: link.is_some(),
            up: link.as_ref().is_some_and(|link| link.up && link.carrier),
            mtu: link.as_ref().map_or(0, |link| link.mtu),
            mac: link.as_ref().and_then(|link| link.mac).map(api::mac),
        },
        What::Neighbor(index, address, mac) => {
            EventKind::Neighbor { address: *address, dev: name(*index), mac: mac.map(api::mac) }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lost(events: &Receiver<Arc<Event>>) -> Vec<u64> {
        let number = |event: Arc<Event>| match event.what {
            EventKind::Lost { lost } => lost,
            _ => 0,
        };
        events.try_iter().map(number).collect()
    }

    fn some() -> EventKind {
        EventKind::Feed { feed: "kernel".into(), what: "overrun".into(), total: 1 }
    }

    #[test]
    fn a_slow_client_is_told_how_much_it_has_lost_and_where() {
        let mut watchers = Watchers::default();
        assert!(watchers.is_empty());
        let (slow, quick) = (watchers.add(), watchers.add());
        for listener in [&slow, &quick] {
            assert_eq!(listener.recv().unwrap().what, EventKind::Started);
        }
        for at in 0..QUEUE + 7 {
            watchers.tell(some());
            assert_eq!(quick.try_iter().count(), 1, "{at}");
        }
        watchers.settle();
        let mut heard = lost(&slow);
        assert_eq!(heard, vec![0; QUEUE]);
        watchers.settle();
        watchers.tell(some());
        heard = lost(&slow);
        assert_eq!(heard, [7, 0]);
        assert_eq!(lost(&quick), [0]);
        watchers.lose(3);
        watchers.tell(some());
        assert_eq!(lost(&quick), [3, 0]);
        // Who is gone is forgotten at the next event.
        drop(slow);
        watchers.tell(some());
        assert!(!watchers.is_empty());
        drop(quick);
        watchers.tell(some());
        assert!(watchers.is_empty());
    }
}
