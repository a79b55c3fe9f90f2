//! The control thread: follows the kernel or FRR, publishes tables, and serves requests.
//!
//! ```text
//!        ┌──────────────── poll: messages │ requests │ timeout ────────────────────┐
//!        ▼                                                                         │
//!   read messages ─► commit ─► update steering ─► resolve neighbors ─► serve requests
//! ```
//!
//! A turn reads at most `BURST` messages, so that in a storm of changes the first ones are
//! published while the rest is still being read, and a request waits for one turn at most. While
//! messages remain after every turn, turns grow to `LARGEST_BURST`: a block of a table that many
//! messages change is rebuilt once.
//! A port that goes down is a publication of its own, before its routes are removed. Where workers
//! still read data that a commit must change, the next turn begins a moment later; they pass
//! within microseconds when they have packets, and hold nothing when they sleep.
//!
//! The kernel resolves the neighbors that packets wait for (it sends the ARP request or the
//! neighbor solicitation). Every second it also resolves gateways without a neighbor entry,
//! whether packets wait or not, and reads the kernel's settings (`sysctls.rs`), which are published by the
//! next turn.
//!
//! The kernel does not see the packets that would make it confirm its entries, so the router
//! reports them: a neighbor that workers have used since the second before (`datapath/want.rs`),
//! and whose entry has become stale, is reported as used. The kernel then acts as for packets of
//! its own (RFC 4861, 7.3.3): it waits a while for a confirmation, probes, and deletes the entry
//! or stores a new MAC. Gateways are reported every `CONFIRM_ALL` whether used or not, so that the
//! first packet after a pause finds them.
//!
//! The routes have one of three sources ([`RouteSource`]): the kernel; FRR, which sends its routes
//! by FPM (`feed::fpm`) while links, neighbors, rules and local addresses come from the kernel; or
//! the configuration, with which the thread follows only links and addresses.

use std::collections::BTreeSet;
use std::iter;
use std::net::IpAddr;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};

use feed::fpm::Fpm;
use feed::netlink::{Follower, Kernel, KernelCounters, KernelProgress, Mirror, RouteInfo};
use fib::{Family, Hop, Prefix};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use port::af_xdp::Interface;
use port::af_xdp::steer::VlanTags;
use threads::Stop;

use super::churn::ChurnMonitor;
use super::devices::Devices;
use super::driver_sync::DriverSync;
use super::handle::ControlRequests;
use super::links;
use super::monitor::{RecordingFollower, Subscribers, TurnChanges};
use super::plane::{
    HopTarget, Plane, PlanePort, PlaneTable, StaticFollower, TableView, WithoutRoutes,
};
use super::report::{FEEDS, FeedCounts, Reporter};
use super::route_source::{KernelScope, RouteSource};
use super::sysctls::{self, Sysctls};
use api::{Audit, Event, EventKind};
use datapath::{MARKS, WantReceiver};

/// The most messages between two commits.
const BURST: usize = 4096;
/// The same where messages remained after the previous turns.
const LARGEST_BURST: usize = 1 << 16;
/// The minimum interval between two heals of all routes.
pub(crate) const HEAL: Duration = Duration::from_secs(60);
/// Addresses whose routes are healed one by one within [`HEAL`]; beyond that all routes are read
/// again.
const MAX_HEALED: usize = 16;
/// The interval at which unresolved gateways are resolved.
const RESOLVE_INTERVAL: Duration = Duration::from_secs(1);
/// The interval at which all gateways are confirmed, used or not.
const CONFIRM_ALL: Duration = Duration::from_secs(20);
/// The minimum interval between two log lines about refused connections.
const LOG_INTERVAL: Duration = Duration::from_secs(5);
/// The longest wait of a turn for messages and requests, in milliseconds: workers' requests for
/// neighbors have no descriptor and are polled.
const WAIT: u16 = 5;
/// The same where a commit waits for a worker to pass.
const SHORT_WAIT: u16 = 1;

/// The state of the control thread, on which requests run.
#[derive(Debug)]
pub struct KernelSync {
    /// The routes.
    pub plane: Plane,
    kernel: Kernel,
    source: RouteSource,
    devices: Devices,
    /// The steering programs' paths, if some port's mode is `xdp`.
    driver: Option<DriverSync>,
    /// It was opened, or could not be.
    driver_tried: bool,
    wanted: Vec<WantReceiver>,
    /// The last time that unresolved gateways were resolved, and that all were confirmed.
    resolved: Instant,
    confirmed: Instant,
    /// Requests that the system refused, and the last reason.
    errors: u64,
    last_error: Option<String>,
    subscribers: Subscribers,
    /// The overruns and resynchronizations that subscribers have received, by feed.
    published: FeedCounts,
    /// The links and feeds as last written to the log.
    reporter: Reporter,
    logged: Option<FeedCounts>,
    /// The count of refused connections at the last log line, and its time.
    refusals: (u64, Option<Instant>),
    /// The results of the auditor.
    pub(super) audit: Audit,
    /// The last time that all routes were read again for a mismatch.
    pub(super) healed: Option<Instant>,
    /// Addresses whose routes were healed one by one, with the time.
    healed_addresses: Vec<(IpAddr, Instant)>,
    /// The rate of route changes.
    churn: ChurnMonitor,
    /// The number of messages that the next turn reads.
    burst: usize,
    /// All routes are being read again and are then published to the plane.
    is_replay_due: bool,
}

impl KernelSync {
    /// Starts with a plane that `kernel` and `source` have filled.
    pub fn new(
        plane: Plane,
        kernel: Kernel,
        source: RouteSource,
        devices: Devices,
        wanted: Vec<WantReceiver>,
    ) -> Self {
        let now = Instant::now();
        Self {
            churn: ChurnMonitor::new(now, plane.counts().changes),
            burst: BURST,
            healed_addresses: Vec::new(),
            plane,
            kernel,
            source,
            devices,
            driver: None,
            driver_tried: false,
            wanted,
            resolved: now.checked_sub(RESOLVE_INTERVAL).unwrap_or(now),
            confirmed: now,
            errors: 0,
            last_error: None,
            subscribers: Subscribers::default(),
            published: FeedCounts::default(),
            reporter: Reporter::default(),
            logged: None,
            refusals: (0, None),
            audit: Audit::default(),
            healed: None,
            is_replay_due: false,
        }
    }

    /// Returns the counters of the kernel's feed.
    pub fn feed(&self) -> &KernelCounters {
        self.kernel.counters()
    }

    /// Returns the counters of FRR's feed, if it is followed.
    pub fn fpm(&self) -> Option<&feed::fpm::FpmCounters> {
        self.source.fpm().map(Fpm::counters)
    }

    /// Returns FRR's feed, if it is followed.
    pub(crate) fn fpm_feed(&self) -> Option<&Fpm> {
        self.source.fpm()
    }

    /// Takes the source of the routes, so that another control thread continues with it.
    pub(crate) fn take_source(&mut self) -> RouteSource {
        std::mem::replace(&mut self.source, RouteSource::Kernel)
    }

    /// Replaces the ports: their interfaces, and the workers' requests for neighbors.
    pub(crate) fn set_ports(&mut self, interfaces: Vec<Interface>, wanted: Vec<WantReceiver>) {
        self.devices.set(interfaces);
        self.wanted = wanted;
        if let Some(driver) = &mut self.driver {
            driver.forget();
        }
    }

    /// Replaces the workers: their requests for neighbors, and the ports on which they have
    /// sockets.
    pub(crate) fn set_workers(&mut self, wanted: Vec<WantReceiver>, served: &[bool]) {
        self.wanted = wanted;
        self.plane.set_served(served);
    }

    /// Adjusts the interfaces to the kernel's links; returns whether one may have changed.
    fn follow_devices(&mut self) -> bool {
        if self.plane.ports().has_gone() {
            let links = self.kernel.mirror().links().iter();
            self.plane.adopt_devices(links.map(|(&index, link)| (index, link)));
        }
        let is_due = self.plane.take_port_changes() || self.devices.is_due();
        if is_due {
            let problems = self.devices.follow(self.plane.ports());
            for (at, problem) in problems.into_iter().enumerate() {
                self.plane.set_problem(at, problem);
            }
        }
        is_due
    }

    /// Reads which devices send packets that programs redirect to them.
    fn follow_driver(&mut self, ports_changed: bool) {
        if !self.plane.forwards_in_driver() {
            return;
        }
        let result = match &mut self.driver {
            Some(driver) => driver.follow(&mut self.plane, ports_changed),
            None if self.driver_tried => return,
            None => {
                self.driver_tried = true;
                let opened = DriverSync::open();
                opened.and_then(|driver| self.driver.insert(driver).follow(&mut self.plane, true))
            }
        };
        self.record_error(result);
    }

    /// Lets the workers forward what would be forwarded in the driver, or ends that; see
    /// [`DriverSync::pause`].
    pub(crate) fn pause_driver(&mut self, begins: bool) {
        if let Some(driver) = &mut self.driver {
            driver.pause(begins);
        }
        self.apply_driver();
    }

    /// Lets the steering programs forward as the plane has it since the last commit.
    fn apply_driver(&mut self) {
        let result = self.plane.take_driver_error().map_or(Ok(()), Err);
        self.record_error(result);
        if let Some(driver) = &mut self.driver {
            let result = driver.apply(&mut self.plane, self.devices.interfaces());
            self.record_error(result);
        }
    }

    /// Lets the steering programs take packets to the MAC-VLAN and VLAN devices over the ports. The
    /// workers know these devices since the last commit.
    fn steer_stacked_devices(&mut self) {
        let ports = self.plane.ports();
        let pairs = self.devices.interfaces().iter().zip(ports.iter());
        let set = |(interface, port): (&Interface, &PlanePort)| {
            let mut macs = port.secondary_macs();
            if let Some((_, bond)) = ports.bond_of(port) {
                macs.push(bond.mac);
                macs.extend(bond.secondary_macs());
            }
            let mut tags = Vec::new();
            for device in ports.vlans_over(port.interface) {
                macs.push(device.mac);
                macs.extend(device.secondary_macs());
                tags.extend(steered_tags(device));
            }
            macs.sort_unstable();
            macs.dedup();
            macs.retain(|mac| *mac != port.mac);
            interface.set_secondary_macs(&macs)?;
            interface.set_vlans(&tags)
        };
        let results: Vec<_> = pairs.map(set).collect();
        for result in results {
            self.record_error(result);
        }
    }

    /// Returns the subscribers of events.
    pub(crate) fn subscribers(&mut self) -> &mut Subscribers {
        &mut self.subscribers
    }

    /// Returns the route for an IPv4 prefix as its feed reported it.
    pub fn route_v4(&self, table: u32, prefix: Prefix<u32>) -> Option<&RouteInfo> {
        self.mirrors().into_iter().find_map(|mirror| mirror.best_v4(table, prefix))
    }

    /// Returns the route for an IPv6 prefix as its feed reported it.
    pub fn route_v6(&self, table: u32, prefix: Prefix<u128>) -> Option<&RouteInfo> {
        self.mirrors().into_iter().find_map(|mirror| mirror.best_v6(table, prefix))
    }

    /// Lists the mirrors of the routes: the first one that has a prefix takes precedence.
    fn mirrors(&self) -> Vec<&Mirror> {
        match &self.source {
            RouteSource::Kernel => vec![self.kernel.mirror()],
            RouteSource::Fpm(fpm) => iter::once(fpm.mirror()).chain(fpm.stale()).collect(),
            RouteSource::Static => Vec::new(),
        }
    }

    /// Returns the results of the auditor.
    pub fn audit(&self) -> &Audit {
        &self.audit
    }

    /// Takes the state that outlives a reload (subscribers, audit, log) from the previous state.
    pub(crate) fn succeed(&mut self, before: &mut Self) {
        self.subscribers = std::mem::take(&mut before.subscribers);
        self.audit = std::mem::take(&mut before.audit);
        self.healed = before.healed;
        self.healed_addresses = std::mem::take(&mut before.healed_addresses);
        self.refusals = before.refusals;
        self.published = self.feed_counts();
        self.logged = Some(self.feed_counts());
        self.reporter = std::mem::take(&mut before.reporter);
    }

    /// Returns whether routes are being read again, or FRR has not sent all of its routes.
    pub(super) fn is_resynchronizing(&self) -> bool {
        let fpm = self.source.fpm().is_some_and(|fpm| !fpm.is_complete());
        self.is_replay_due || fpm || self.kernel.is_resynchronizing()
    }

    /// Starts to read everything again, to publish all of it to the plane afterwards.
    pub(super) fn heal(&mut self) {
        self.is_replay_due = true;
        if let RouteSource::Fpm(fpm) = &mut self.source {
            fpm.restart_session();
        }
        let result = self.kernel.resynchronize();
        self.record_error(result);
    }

    /// Returns whether few routes change, so that the kernel and the plane can be compared.
    pub(super) fn is_quiet(&self) -> bool {
        self.churn.is_quiet(Instant::now())
    }

    /// Heals the routes that contain an address: reads the one that the kernel uses, and publishes
    /// all that the mirror has to the plane. Returns false, without an attempt, if this address
    /// or many others were healed within [`HEAL`].
    pub(super) fn heal_address(&mut self, table: u32, address: IpAddr) -> bool {
        self.healed_addresses.retain(|(_, at)| at.elapsed() < HEAL);
        let known = self.healed_addresses.iter().any(|(other, _)| *other == address);
        if known || self.healed_addresses.len() >= MAX_HEALED {
            return false;
        }
        self.healed_addresses.push((address, Instant::now()));
        if matches!(self.source, RouteSource::Kernel) {
            let result = self.kernel.reread(table, address, &mut self.plane);
            self.record_error(result.map(drop));
        }
        self.plane.begin_replay();
        match address {
            IpAddr::V4(v4) => self.republish_v4(table, u32::from(v4)),
            IpAddr::V6(v6) => self.republish_v6(table, u128::from(v6)),
        }
        true
    }

    /// Publishes the routes that contain an address to the plane, one by one. Each is removed
    /// first, so that its block is rebuilt in any case.
    fn republish_v4(&mut self, table: u32, address: u32) {
        for length in 0..=u32::BITS {
            let prefix = Prefix::truncate(address, length);
            let best = self.route_v4(table, prefix).cloned();
            if best.is_some() || has_route(&self.plane, table, |table| table.v4, prefix) {
                self.plane.route_v4(table, prefix, None);
                self.plane.route_v4(table, prefix, best.as_ref());
            }
        }
    }

    fn republish_v6(&mut self, table: u32, address: u128) {
        for length in 0..=u128::BITS {
            let prefix = Prefix::truncate(address, length);
            let best = self.route_v6(table, prefix).cloned();
            if best.is_some() || has_route(&self.plane, table, |table| table.v6, prefix) {
                self.plane.route_v6(table, prefix, None);
                self.plane.route_v6(table, prefix, best.as_ref());
            }
        }
    }

    /// Publishes every route to the plane, and withdraws those that only the plane has.
    fn replay(&mut self) {
        self.plane.begin_replay();
        let mirrors = self.mirrors();
        let v4 = only_in_plane(&self.plane, &mirrors, |table| table.v4, Mirror::best_v4);
        let v6 = only_in_plane(&self.plane, &mirrors, |table| table.v6, Mirror::best_v6);
        for (table, gone) in v4 {
            self.plane.route_v4(table, gone, None);
        }
        for (table, gone) in v6 {
            self.plane.route_v6(table, gone, None);
        }
        if let RouteSource::Fpm(fpm) = &self.source {
            fpm.report_routes(&mut self.plane);
            self.kernel.mirror().report_routes(&mut WithoutRoutes(&mut self.plane));
        } else {
            self.kernel.mirror().report_routes(&mut self.plane);
        }
    }

    /// Returns the number of requests that the system refused, and the last reason.
    pub fn errors(&self) -> (u64, Option<&str>) {
        (self.errors, self.last_error.as_deref())
    }

    fn record_error<E: ToString>(&mut self, result: Result<(), E>) {
        if let Err(error) = result {
            self.errors += 1;
            self.last_error = Some(error.to_string());
        }
    }

    /// Runs one turn; returns whether the next one should follow soon.
    fn turn(&mut self) -> bool {
        let mut more = false;
        let burst = self.burst;
        let mut changes = (!self.subscribers.is_empty()).then(TurnChanges::default);
        let scope = self.source.scope();
        if let RouteSource::Fpm(fpm) = &mut self.source {
            let pumped = match &mut changes {
                None => fpm.pump(&mut self.plane, burst),
                Some(changes) => {
                    let plane = &mut self.plane;
                    let scope = KernelScope::All;
                    fpm.pump(&mut RecordingFollower { plane, scope, changes }, burst)
                }
            };
            match pumped {
                Ok(pumped) => {
                    more = pumped.more;
                    log_refused(fpm, &mut self.refusals);
                    // Before that, the image may contain routes that FRR has not sent again.
                    if pumped.resynchronized {
                        self.plane.retire();
                    }
                }
                Err(error) => self.record_error(Err(error)),
            }
        }
        let pumped = pump_kernel(&mut self.kernel, &mut self.plane, scope, &mut changes, burst);
        match pumped {
            Ok(pumped) => {
                more |= pumped.more;
                if self.is_replay_due && pumped.resynchronized {
                    self.is_replay_due = false;
                    self.replay();
                }
            }
            Err(error) => {
                self.record_error(Err(error));
                // Messages may be lost: read everything again.
                let result = self.kernel.resynchronize();
                self.record_error(result);
                return true;
            }
        }
        self.follow_addresses();
        self.burst = if more { (2 * burst).min(LARGEST_BURST) } else { BURST };
        let followed = self.follow_devices();
        self.follow_driver(followed);
        let committed = self.plane.commit();
        self.apply_driver();
        if followed {
            self.steer_stacked_devices();
        }
        let drained = !more && committed.published;
        self.churn.record_turn(Instant::now(), self.plane.counts().changes, drained);
        if committed.locals {
            let locals = self.plane.locals().into_iter().collect();
            for at in 0..self.devices.interfaces().len() {
                let result = self.devices.interfaces()[at].set_locals(&locals);
                self.record_error(result);
            }
        }
        if let Some(changes) = changes {
            self.subscribers.publish_changes(&changes, &self.plane);
            self.publish_feed_events();
        }
        self.log_changes();
        self.resolve_neighbors();
        more || !committed.published
    }

    /// Lists the own addresses again if the kernel has reported a change of one: with static
    /// routes, its local table is not followed.
    fn follow_addresses(&mut self) {
        if !self.plane.take_address_changes() {
            return;
        }
        match links::addresses() {
            Ok(addresses) => self.plane.set_locals(addresses),
            Err(error) => self.record_error(Err(error)),
        }
    }

    /// Logs the changes of links and feeds.
    fn log_changes(&mut self) {
        self.reporter.report_links(self.plane.ports());
        self.reporter.report_forwarding(self.plane.ports());
        self.reporter.report_errors(self.errors, self.last_error.as_deref());
        let feeds = self.feed_counts();
        // The read at the start is no resynchronization.
        if let Some(before) = self.logged.replace(feeds) {
            Reporter::report_feeds(&before, &feeds);
        }
    }

    /// Adds a subscriber of events.
    pub(crate) fn subscribe(&mut self) -> Receiver<Arc<Event>> {
        self.published = self.feed_counts();
        self.subscribers.add()
    }

    /// Returns the overruns and resynchronizations of the kernel's feed and of FRR's.
    fn feed_counts(&self) -> FeedCounts {
        let kernel = self.feed();
        let fpm = self.fpm().map_or((0, 0), |fpm| (0, fpm.sweeps));
        [(kernel.overruns, kernel.resynchronizations), fpm]
    }

    /// Publishes the overruns and resynchronizations of the feeds.
    fn publish_feed_events(&mut self) {
        let now = self.feed_counts();
        for (feed, (before, now)) in FEEDS.iter().zip(self.published.iter().zip(now)) {
            let pairs = [("overrun", before.0, now.0), ("resynchronization", before.1, now.1)];
            for (what, _, total) in pairs.into_iter().filter(|(_, before, now)| before != now) {
                let (feed, what) = ((*feed).to_owned(), what.to_owned());
                self.subscribers.publish(EventKind::Feed { feed, what, total });
            }
        }
        self.published = now;
    }

    /// Applies the kernel's settings of which it reports no change.
    fn follow_sysctls(&mut self) {
        if !matches!(self.source, RouteSource::Static) {
            self.plane.set_sysctls(&Sysctls::read().share(self.wanted.len()));
            let off = self.plane.ports().without_forwarding_v6();
            let forced = off.filter(|port| sysctls::forces_forwarding_v6(&port.name));
            let forced = forced.map(|port| port.interface).collect();
            self.plane.set_forced_forwarding_v6(forced);
        }
    }

    /// Has the kernel resolve the neighbors that packets wait for, and confirm those in use.
    fn resolve_neighbors(&mut self) {
        for worker in &mut self.wanted {
            for want in worker.drain() {
                for (interface, address) in self.plane.neighbors_of(want.hop, want.address) {
                    // The kernel refuses if the link is down, which its link message reports.
                    let _ = self.kernel.resolve(interface, address);
                }
            }
        }
        let now = Instant::now();
        if now.duration_since(self.resolved) < RESOLVE_INTERVAL {
            return;
        }
        let confirm_all = now.duration_since(self.confirmed) >= CONFIRM_ALL;
        self.resolved = now;
        self.follow_sysctls();
        if confirm_all {
            self.confirmed = now;
        }
        let mut neighbors: BTreeSet<_> = self.plane.gateways(confirm_all).into_iter().collect();
        neighbors.extend(self.stale_in_use());
        for (interface, address) in neighbors {
            let _ = self.kernel.resolve(interface, address);
        }
    }
}

impl KernelSync {
    /// Lists the neighbors that workers have used since the last call and whose entry in the
    /// kernel is stale.
    fn stale_in_use(&self) -> Vec<(u32, IpAddr)> {
        let mut used = vec![0; MARKS / 64];
        for worker in &self.wanted {
            worker.take_marks(&mut used);
        }
        for hop in self.plane.take_driver_hops() {
            let at = hop.0 as usize % MARKS;
            used[at / 64] |= 1 << (at % 64);
        }
        if used.iter().all(|word| *word == 0) {
            return Vec::new();
        }
        let bit = |hop: Hop| {
            let at = hop.0 as usize % MARKS;
            used[at / 64] >> (at % 64) & 1 == 1
        };
        let neighbors = self.kernel.mirror().neighbors();
        let stale = |key: &(u32, IpAddr)| {
            neighbors.get(key).is_some_and(|known| known.mac.is_some() && known.wants_use())
        };
        self.plane.in_use(bit).into_iter().filter(stale).collect()
    }
}

/// Returns the tags by which the steering program knows a VLAN device.
fn steered_tags(device: &PlanePort) -> Option<VlanTags> {
    let mut tags = device.vlan.as_ref()?.tags.iter().map(|tag| (tag.protocol, tag.id));
    Some(VlanTags { outer: tags.next()?, inner: tags.next() })
}

/// Returns whether the plane has a route of a feed for a prefix.
fn has_route<A: Family>(
    plane: &Plane,
    table: u32,
    family: impl for<'a> Fn(PlaneTable<'a>) -> TableView<'a, A>,
    prefix: Prefix<A>,
) -> bool {
    let hop = plane.table(table).and_then(|table| family(table).rib().get(prefix));
    hop.is_some_and(|hop| matches!(plane.hop_target(hop), Some(HopTarget::Route(_))))
}

/// Lists the routes of a family that the plane has and no mirror has.
fn only_in_plane<A: Family>(
    plane: &Plane,
    mirrors: &[&Mirror],
    family: impl for<'a> Fn(PlaneTable<'a>) -> TableView<'a, A>,
    best: impl Fn(&Mirror, u32, Prefix<A>) -> Option<&RouteInfo>,
) -> Vec<(u32, Prefix<A>)> {
    let mut gone = Vec::new();
    for table in plane.tables() {
        let routes = family(table).rib().iter();
        let routes =
            routes.filter(|(_, hop)| matches!(plane.hop_target(*hop), Some(HopTarget::Route(_))));
        let unknown = routes.map(|(prefix, _)| prefix).filter(|prefix| {
            mirrors.iter().all(|mirror| best(mirror, table.number, *prefix).is_none())
        });
        gone.extend(unknown.map(|prefix| (table.number, prefix)));
    }
    gone
}

/// Logs the last connection that was refused, and how many there were before it.
fn log_refused(fpm: &Fpm, (logged, at): &mut (u64, Option<Instant>)) {
    let counters = fpm.counters();
    let new = counters.refused.saturating_sub(*logged);
    let Some(last) = counters.last_refused.filter(|_| new > 0) else { return };
    if at.is_some_and(|at| at.elapsed() < LOG_INTERVAL) {
        return;
    }
    (*logged, *at) = (counters.refused, Some(Instant::now()));
    let before = if new > 1 { format!(" ({} more before it)", new - 1) } else { String::new() };
    eprintln!("fingerpost: fpm: {last}{before}");
}

/// Reads the kernel's messages; where there are subscribers, records the changes.
fn pump_kernel(
    kernel: &mut Kernel,
    plane: &mut Plane,
    scope: KernelScope,
    changes: &mut Option<TurnChanges>,
    burst: usize,
) -> Result<KernelProgress, feed::netlink::Error> {
    match (changes, scope) {
        (Some(changes), _) => kernel.pump(&mut RecordingFollower { plane, scope, changes }, burst),
        (None, KernelScope::All) => kernel.pump(plane, burst),
        (None, KernelScope::WithoutRoutes) => kernel.pump(&mut WithoutRoutes(plane), burst),
        (None, KernelScope::Links) => kernel.pump(&mut StaticFollower(plane), burst),
    }
}

/// Runs turns until `stop` is set, counts them, and returns the state.
pub(crate) fn run(
    mut sync: KernelSync,
    requests: ControlRequests<KernelSync>,
    stop: &Stop,
    turns: &AtomicU64,
) -> (KernelSync, ControlRequests<KernelSync>) {
    let mut soon = true;
    while !stop.is_set() {
        turns.fetch_add(1, Ordering::Relaxed);
        let wait = if soon { SHORT_WAIT } else { WAIT };
        {
            let kernel = PollFd::new(sync.kernel.as_fd(), PollFlags::POLLIN);
            let queue = PollFd::new(requests.as_fd(), PollFlags::POLLIN);
            let fpm = sync
                .source
                .fpm()
                .map_or(queue.clone(), |fpm| PollFd::new(fpm.as_fd(), PollFlags::POLLIN));
            let mut ready = [kernel, queue, fpm];
            // Also after an interruption the turn reads every source.
            let _ = poll(&mut ready, PollTimeout::from(wait));
        }
        soon = sync.turn();
        requests.serve(&mut sync);
    }
    (sync, requests)
}
