//! Publishes events to the subscribers of `fingerpost monitor` as they occur.
//!
//! ```text
//!   feed ─► RecordingFollower ─► Plane                         a turn of the control thread
//!                 └► TurnChanges ── commit ─► Subscribers ─► queue (QUEUE events)
//!                                       full: counted          └─► client's thread ─► socket
//! ```
//!
//! The control thread never waits for a client: an event that finds a client's queue full is
//! counted, and an event `lost` with the count takes its place in the queue as soon as there is
//! room. Changes of one turn beyond [`TURN`] (a table of a million routes read again) are counted
//! likewise.
//!
//! Without subscribers there is no [`RecordingFollower`]: the feed updates the plane directly.
//!
//! The generation of a route's event is the publication that contains the route; where a worker
//! still reads the previous table, the publication that will contain it.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::time::SystemTime;

use feed::netlink::{
    AddressChange, AddressView, Follower, InterfaceSettings, Link, Neighbor, RouteInfo, Rule,
};
use fib::{Family, Prefix};

use super::plane::{HopTarget, Plane, PlaneTable, StaticFollower, TableView, WithoutRoutes};
use super::route_source::KernelScope;
use super::target::target_view;
use api::{self, Event, EventKind};

/// The events that a client's queue holds.
const QUEUE: usize = 8192;
/// The changes that one turn records; further ones are only counted.
const TURN: usize = QUEUE;

/// A client that receives events.
#[derive(Debug)]
struct Subscriber {
    queue: SyncSender<Arc<Event>>,
    lost: u64,
}

/// The clients that receive events.
#[derive(Debug, Default)]
pub(crate) struct Subscribers(Vec<Subscriber>);

impl Subscribers {
    /// Returns whether there is no subscriber.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Adds a subscriber; its queue receives the events from now on.
    pub(crate) fn add(&mut self) -> Receiver<Arc<Event>> {
        let (queue, events) = sync_channel(QUEUE);
        // The queue is empty.
        let _ = queue.try_send(Arc::new(event_now(EventKind::Started)));
        self.0.push(Subscriber { queue, lost: 0 });
        events
    }

    /// Sends an event to all subscribers.
    pub(crate) fn publish(&mut self, kind: EventKind) {
        if !self.is_empty() {
            let event = Arc::new(event_now(kind));
            self.0.retain_mut(|subscriber| subscriber.send(&event));
        }
    }

    /// Counts events that no subscriber receives.
    fn add_lost(&mut self, lost: u64) {
        for subscriber in &mut self.0 {
            subscriber.lost += lost;
        }
    }

    /// Sends the count of lost events to the subscribers whose queues have room again.
    pub(crate) fn report_lost(&mut self) {
        self.0.retain_mut(Subscriber::report_lost);
    }

    /// Publishes the changes of a turn after the plane has committed them.
    pub(super) fn publish_changes(&mut self, changes: &TurnChanges, plane: &Plane) {
        for change in &changes.recorded {
            self.publish(change_event(change, plane));
        }
        self.add_lost(changes.lost);
        self.report_lost();
    }
}

impl Subscriber {
    /// Sends an event, or counts it as lost; returns whether the client is still connected.
    fn send(&mut self, event: &Arc<Event>) -> bool {
        if !self.report_lost() {
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

    /// Sends the count of lost events if the queue has room; returns whether the client is still
    /// connected.
    fn report_lost(&mut self) -> bool {
        if self.lost == 0 {
            return true;
        }
        match self.queue.try_send(Arc::new(event_now(EventKind::Lost { lost: self.lost }))) {
            Ok(()) => self.lost = 0,
            Err(TrySendError::Full(_)) => {}
            Err(TrySendError::Disconnected(_)) => return false,
        }
        true
    }
}

fn event_now(kind: EventKind) -> Event {
    let since = SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default();
    Event { time: since.as_secs_f64(), kind }
}

/// A change that a feed reported to the plane. Routes have the table, the prefix, the new target,
/// and whether the plane had a route before.
#[derive(Debug)]
enum PlaneChange {
    RouteV4(u32, Prefix<u32>, Option<HopTarget>, bool),
    RouteV6(u32, Prefix<u128>, Option<HopTarget>, bool),
    Link(u32, Option<Link>),
    Neighbor(u32, IpAddr, Option<[u8; 6]>),
}

/// The changes of a turn.
#[derive(Debug, Default)]
pub(super) struct TurnChanges {
    recorded: Vec<PlaneChange>,
    lost: u64,
}

impl TurnChanges {
    fn push(&mut self, change: PlaneChange) {
        if self.recorded.len() < TURN {
            self.recorded.push(change);
        } else {
            self.lost += 1;
        }
    }
}

/// Forwards a feed's changes to the plane and records them.
pub(super) struct RecordingFollower<'a> {
    pub(super) plane: &'a mut Plane,
    /// The changes that the plane follows.
    pub(super) scope: KernelScope,
    pub(super) changes: &'a mut TurnChanges,
}

impl RecordingFollower<'_> {
    /// Returns whether the plane has a route of a feed for the prefix; `None` if it ignores
    /// routes of this table.
    fn has_route<A: Family>(
        &self,
        table: u32,
        prefix: Prefix<A>,
        family: impl for<'a> Fn(PlaneTable<'a>) -> TableView<'a, A>,
    ) -> Option<bool> {
        let table = self.plane.table(table).filter(|_| self.scope == KernelScope::All)?;
        let target = family(table).rib().get(prefix).and_then(|hop| self.plane.hop_target(hop));
        Some(matches!(target, Some(HopTarget::Route(_))))
    }

    fn forward(&mut self, apply: impl FnOnce(&mut dyn Follower)) {
        match self.scope {
            KernelScope::All => apply(self.plane),
            KernelScope::WithoutRoutes => apply(&mut WithoutRoutes(self.plane)),
            KernelScope::Links => apply(&mut StaticFollower(self.plane)),
        }
    }
}

fn route_target(best: Option<&RouteInfo>) -> Option<HopTarget> {
    best.map(|best| HopTarget::Route(Arc::clone(&best.target)))
}

impl Follower for RecordingFollower<'_> {
    fn route_v4(&mut self, table: u32, prefix: Prefix<u32>, best: Option<&RouteInfo>) {
        if let Some(had) = self.has_route(table, prefix, |table| table.v4) {
            self.changes.push(PlaneChange::RouteV4(table, prefix, route_target(best), had));
        }
        self.forward(|plane| plane.route_v4(table, prefix, best));
    }

    fn route_v6(&mut self, table: u32, prefix: Prefix<u128>, best: Option<&RouteInfo>) {
        if let Some(had) = self.has_route(table, prefix, |table| table.v6) {
            self.changes.push(PlaneChange::RouteV6(table, prefix, route_target(best), had));
        }
        self.forward(|plane| plane.route_v6(table, prefix, best));
    }

    fn link(&mut self, index: u32, link: Option<&Link>) {
        self.changes.push(PlaneChange::Link(index, link.cloned()));
        self.forward(|plane| plane.link(index, link));
    }

    fn address(&mut self, view: &AddressView, change: AddressChange) {
        self.forward(|plane| plane.address(view, change));
    }

    fn neighbor(&mut self, index: u32, address: IpAddr, neighbor: Option<&Neighbor>) {
        let before = self.plane.mac(index, address);
        let mac = neighbor.and_then(|neighbor| neighbor.mac);
        // Most messages report the kernel's reachability state (NUD), which changes no MAC.
        if mac != before && !address.is_multicast() {
            self.changes.push(PlaneChange::Neighbor(index, address, mac));
        }
        self.forward(|plane| plane.neighbor(index, address, neighbor));
    }

    fn rules(&mut self, rules: &[Rule]) {
        self.forward(|plane| plane.rules(rules));
    }

    fn settings(&mut self, interface: u32, settings: InterfaceSettings) {
        self.forward(|plane| plane.settings(interface, settings));
    }
}

/// Converts a change to an event.
fn change_event(change: &PlaneChange, plane: &Plane) -> EventKind {
    let name = |index: u32| {
        let port = plane.ports().get(index);
        port.map_or_else(|| format!("if{index}"), |port| port.name.clone())
    };
    let route = |number: u32, prefix: String, target: &Option<HopTarget>, had: bool, v6: bool| {
        let table = plane.table(number);
        let (generation, behind) = table.map_or((0, false), |table| {
            if v6 {
                (table.v6.generation(), table.v6.is_behind())
            } else {
                (table.v4.generation(), table.v4.is_behind())
            }
        });
        let change = match (had, target) {
            (false, Some(_)) => "added",
            (true, Some(_)) => "changed",
            (_, None) => "removed",
        };
        let view = target.as_ref().map(|target| target_view(&name, target));
        let (kind, via) = view.map_or(("none", Vec::new()), |view| (view.kind, view.via));
        EventKind::Route {
            change: change.to_owned(),
            table: number,
            prefix,
            kind: kind.to_owned(),
            via,
            generation: generation + u64::from(behind),
        }
    };
    match change {
        PlaneChange::RouteV4(table, prefix, target, had) => {
            route(*table, prefix.to_string(), target, *had, false)
        }
        PlaneChange::RouteV6(table, prefix, target, had) => {
            route(*table, prefix.to_string(), target, *had, true)
        }
        PlaneChange::Link(index, link) => EventKind::Interface {
            name: link.as_ref().map_or_else(|| name(*index), |link| link.name.clone()),
            present: link.is_some(),
            up: link.as_ref().is_some_and(|link| link.up && link.carrier),
            mtu: link.as_ref().map_or(0, |link| link.mtu),
            mac: link.as_ref().and_then(|link| link.mac).map(api::mac),
        },
        PlaneChange::Neighbor(index, address, mac) => {
            EventKind::Neighbor { address: *address, dev: name(*index), mac: mac.map(api::mac) }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the count of each `lost` event in a queue, and 0 for every other event.
    fn lost(events: &Receiver<Arc<Event>>) -> Vec<u64> {
        let number = |event: Arc<Event>| match event.kind {
            EventKind::Lost { lost } => lost,
            _ => 0,
        };
        events.try_iter().map(number).collect()
    }

    fn overrun() -> EventKind {
        EventKind::Feed { feed: "kernel".into(), what: "overrun".into(), total: 1 }
    }

    #[test]
    fn slow_subscriber_receives_the_count_of_lost_events_in_their_place() {
        let mut subscribers = Subscribers::default();
        assert!(subscribers.is_empty());
        let (slow, quick) = (subscribers.add(), subscribers.add());
        for events in [&slow, &quick] {
            assert_eq!(events.recv().unwrap().kind, EventKind::Started);
        }
        for at in 0..QUEUE + 7 {
            subscribers.publish(overrun());
            assert_eq!(quick.try_iter().count(), 1, "{at}");
        }
        subscribers.report_lost();
        let mut received = lost(&slow);
        assert_eq!(received, vec![0; QUEUE]);
        subscribers.report_lost();
        subscribers.publish(overrun());
        received = lost(&slow);
        assert_eq!(received, [7, 0]);
        assert_eq!(lost(&quick), [0]);
        subscribers.add_lost(3);
        subscribers.publish(overrun());
        assert_eq!(lost(&quick), [3, 0]);
        // A disconnected subscriber is removed at the next event.
        drop(slow);
        subscribers.publish(overrun());
        assert!(!subscribers.is_empty());
        drop(quick);
        subscribers.publish(overrun());
        assert!(subscribers.is_empty());
    }
}
