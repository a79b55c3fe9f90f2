//! The control thread: follows the kernel, or FRR, publishes, and answers.
//!
//! ```text
//!        ┌──────────── poll: messages │ questions │ a moment ────────────┐
//!        ▼                                                               │
//!   pump what is there ─► commit ─► steering told ─► gateways asked ─► answers
//! ```
//!
//! A turn takes at most `BURST` messages, so that under a storm of changes what came
//! first is published while the rest is still being read, and a question waits for no
//! more than a turn. While more is there after every turn, turns grow to `LARGEST_BURST`:
//! what many messages change in one block of a table is laid out once.
//! A port that goes down is a publication of its own, before its routes are removed. Where workers
//! still read what a commit must change, the next turn
//! begins a moment later; they pass within microseconds when they have packets, and hold
//! nothing when they sleep.
//!
//! Neighbors that packets wait for are asked for through the kernel (which sends the ARP
//! request or neighbor solicitation); gateways without a neighbor entry too, whether
//! packets wait or not, every second.
//!
//! The kernel does not see the packets that would make it confirm its entries, so the router
//! reports them: a neighbor that workers have used since the second before (`datapath/want.rs`),
//! and whose entry has become stale, is reported as used. The kernel then does what it does for
//! packets of its own (RFC 4861, 7.3.3): it waits a while for a confirmation, probes, and gives
//! the entry up or takes a new MAC. Gateways are reported every `FRESHEN` whether used or not, so
//! that the first packet after a pause finds them.
//!
//! Where FRR sends its routes itself (`feed::fpm`), they are taken from there, and from the
//! kernel all but the routes.

use std::collections::BTreeSet;
use std::iter;
use std::net::IpAddr;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};

use feed::fpm::Fpm;
use feed::netlink::{Counters, Follower, Kernel, Mirror, Pumped, RouteInfo};
use fib::{Family, Hop, Prefix};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use port::af_xdp::Interface;

use super::api::{Audit, Event, EventKind};
use super::audit::auditor::HEAL;
use super::churn::ChurnMonitor;
use super::devices::Devices;
use super::handle::ControlRequests;
use super::monitor::{Tee, Told, Watchers};
use super::plane::{HopTarget, One, Plane, PlaneTable, WithoutRoutes};
use super::report::{FEEDS, Feeds, Reporter};
use crate::datapath::{MARKS, WantReceiver};

/// Messages between two commits, at the most.
const BURST: usize = 4096;
/// The same where turns have left messages behind again and again.
const LARGEST_BURST: usize = 1 << 16;
/// Addresses whose routes are healed one by one within [`HEAL`]; beyond that all routes are read
/// again.
const MOST_HEALED: usize = 16;
/// How often unresolved gateways are asked for.
const ASK: Duration = Duration::from_secs(1);
/// The interval at which gateways are confirmed, used or not.
const FRESHEN: Duration = Duration::from_secs(20);
/// The delay after one refused connection before the next is logged.
const LOG: Duration = Duration::from_secs(5);
/// How long a turn waits for something to do, in milliseconds: what workers want is found
/// out by looking.
const WAIT: u16 = 5;
/// The same where something is waiting for a worker to pass.
const SOON: u16 = 1;

/// What the control thread owns, and questions are put to.
#[derive(Debug)]
pub struct KernelSync {
    /// The routes.
    pub plane: Plane,
    kernel: Kernel,
    fpm: Option<Fpm>,
    devices: Devices,
    wanted: Vec<WantReceiver>,
    asked: Instant,
    freshened: Instant,
    troubles: u64,
    last_error: Option<String>,
    /// Who listens to what happens.
    watchers: Watchers,
    /// The overruns and resynchronizations that listeners were told of, by feed.
    reported: Feeds,
    /// The links and feeds as last written to the log.
    reporter: Reporter,
    logged: Option<Feeds>,
    /// The count of refused connections at the last log line, and its time.
    refusals: (u64, Option<Instant>),
    /// What the auditor has come to.
    pub(super) audit: Audit,
    /// The last time that all routes were read again for a mismatch.
    pub(super) healed: Option<Instant>,
    /// Addresses whose routes were healed one by one, and when.
    healed_addresses: Vec<(IpAddr, Instant)>,
    /// Whether routes come so slowly that the kernel and the plane can be compared.
    calm: ChurnMonitor,
    /// The number of messages that the next turn takes.
    burst: usize,
    /// The plane is to be told of every route when they have been read anew.
    retell: bool,
}

impl KernelSync {
    /// Takes over a plane that the kernel has filled.
    pub fn new(
        plane: Plane,
        kernel: Kernel,
        fpm: Option<Fpm>,
        devices: Devices,
        wanted: Vec<WantReceiver>,
    ) -> Self {
        let now = Instant::now();
        Self {
            calm: ChurnMonitor::new(now, plane.counts().changes),
            burst: BURST,
            healed_addresses: Vec::new(),
            plane,
            kernel,
            fpm,
            devices,
            wanted,
            asked: now.checked_sub(ASK).unwrap_or(now),
            freshened: now,
            troubles: 0,
            last_error: None,
            watchers: Watchers::default(),
            reported: Feeds::default(),
            reporter: Reporter::default(),
            logged: None,
            refusals: (0, None),
            audit: Audit::default(),
            healed: None,
            retell: false,
        }
    }

    /// Returns what the feed has counted.
    pub fn feed(&self) -> &Counters {
        self.kernel.counters()
    }

    /// Returns what FRR's feed has counted, if that is followed.
    pub fn fpm(&self) -> Option<&feed::fpm::Counters> {
        self.fpm.as_ref().map(Fpm::counters)
    }

    /// Returns FRR's feed, if that is followed.
    pub(crate) fn fpm_feed(&self) -> Option<&Fpm> {
        self.fpm.as_ref()
    }

    /// Gives FRR's feed away, for another to go on with it.
    pub(crate) fn take_fpm(&mut self) -> Option<Fpm> {
        self.fpm.take()
    }

    /// Works for other ports from now on: those of `interfaces`, of workers that ask by
    /// `wanted`.
    pub(crate) fn set_ports(&mut self, interfaces: Vec<Interface>, wanted: Vec<WantReceiver>) {
        self.devices.set(interfaces);
        self.wanted = wanted;
    }

    /// Works for other workers from now on, that ask by `wanted` and have sockets on those
    /// ports that are `served`.
    pub(crate) fn set_workers(&mut self, wanted: Vec<WantReceiver>, served: &[bool]) {
        self.wanted = wanted;
        self.plane.set_served(served);
    }

    /// Adjusts the interfaces to the kernel's links.
    fn follow_devices(&mut self) {
        if self.plane.ports().has_gone() {
            let links = self.kernel.mirror().links().iter();
            self.plane.adopt_devices(links.map(|(&index, link)| (index, link)));
        }
        if self.plane.take_port_changes() || self.devices.is_due() {
            let problems = self.devices.follow(self.plane.ports());
            for (at, problem) in problems.into_iter().enumerate() {
                self.plane.set_problem(at, problem);
            }
        }
    }

    /// Returns who listens to what happens.
    pub(crate) fn watchers(&mut self) -> &mut Watchers {
        &mut self.watchers
    }

    /// Returns the route for an IPv4 prefix as its feed has told it.
    pub fn route_v4(&self, table: u32, prefix: Prefix<u32>) -> Option<&RouteInfo> {
        self.mirrors().into_iter().find_map(|mirror| mirror.best_v4(table, prefix))
    }

    /// Returns the route for an IPv6 prefix as its feed has told it.
    pub fn route_v6(&self, table: u32, prefix: Prefix<u128>) -> Option<&RouteInfo> {
        self.mirrors().into_iter().find_map(|mirror| mirror.best_v6(table, prefix))
    }

    /// Lists what has been told of the routes: of a prefix the first that has it counts.
    fn mirrors(&self) -> Vec<&Mirror> {
        match &self.fpm {
            Some(fpm) => iter::once(fpm.mirror()).chain(fpm.left()).collect(),
            None => vec![self.kernel.mirror()],
        }
    }

    /// Returns what the auditor has come to.
    pub fn audit(&self) -> &Audit {
        &self.audit
    }

    /// Takes over what is told of the whole life of the router, from one who was before.
    pub(crate) fn succeed(&mut self, before: &mut Self) {
        self.watchers = std::mem::take(&mut before.watchers);
        self.audit = std::mem::take(&mut before.audit);
        self.healed = before.healed;
        self.healed_addresses = std::mem::take(&mut before.healed_addresses);
        self.refusals = before.refusals;
        self.reported = self.feeds();
        self.logged = Some(self.feeds());
        self.reporter = std::mem::take(&mut before.reporter);
    }

    /// Says whether routes are being read anew, or FRR has not said them all.
    pub(super) fn is_resynchronizing(&self) -> bool {
        let fpm = self.fpm.as_ref().is_some_and(|fpm| !fpm.is_complete());
        self.retell || fpm || self.kernel.is_resynchronizing()
    }

    /// Has everything read anew, and the plane told of all of it.
    pub(super) fn heal(&mut self) {
        self.retell = true;
        if let Some(fpm) = &mut self.fpm {
            fpm.again();
        }
        let begun = self.kernel.resynchronize();
        self.note(begun);
    }

    /// Returns whether the kernel and the plane can be compared at this moment.
    pub(super) fn is_calm(&self) -> bool {
        self.calm.is_calm(Instant::now())
    }

    /// Heals the routes that hold an address: reads the one that the kernel uses, and tells
    /// the plane of all that the mirror has. Returns whether that may help: not, if it has been
    /// done for this address or for many others within [`HEAL`].
    pub(super) fn heal_address(&mut self, table: u32, address: IpAddr) -> bool {
        self.healed_addresses.retain(|(_, at)| at.elapsed() < HEAL);
        let known = self.healed_addresses.iter().any(|(other, _)| *other == address);
        if known || self.healed_addresses.len() >= MOST_HEALED {
            return false;
        }
        self.healed_addresses.push((address, Instant::now()));
        if self.fpm.is_none() {
            let read = self.kernel.reread(table, address, &mut self.plane);
            self.note(read.map(drop));
        }
        self.plane.begin_replay();
        match address {
            IpAddr::V4(v4) => self.republish_v4(table, u32::from(v4)),
            IpAddr::V6(v6) => self.republish_v6(table, u128::from(v6)),
        }
        true
    }

    /// Publishes the routes that hold an address to the plane, one by one. Each is removed first,
    /// so that its block is rebuilt in any case.
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

    /// Tells the plane of every route, and of the end of those that only it has.
    fn tell_again(&mut self) {
        self.plane.begin_replay();
        let mirrors = self.mirrors();
        let v4 = only_there(&self.plane, &mirrors, |it| it.v4, Mirror::best_v4);
        let v6 = only_there(&self.plane, &mirrors, |it| it.v6, Mirror::best_v6);
        for (table, gone) in v4 {
            self.plane.route_v4(table, gone, None);
        }
        for (table, gone) in v6 {
            self.plane.route_v6(table, gone, None);
        }
        if let Some(fpm) = &self.fpm {
            fpm.tell(&mut self.plane);
            self.kernel.mirror().tell_routes(&mut WithoutRoutes(&mut self.plane));
        } else {
            self.kernel.mirror().tell_routes(&mut self.plane);
        }
    }

    /// Returns how often the system refused something, and its last words.
    pub fn troubles(&self) -> (u64, Option<&str>) {
        (self.troubles, self.last_error.as_deref())
    }

    fn note<E: ToString>(&mut self, result: Result<(), E>) {
        if let Err(error) = result {
            self.troubles += 1;
            self.last_error = Some(error.to_string());
        }
    }

    /// Takes one turn; says whether the next one should come soon.
    fn turn(&mut self) -> bool {
        let mut more = false;
        let burst = self.burst;
        let mut told = (!self.watchers.is_empty()).then(Told::default);
        let pumped = match &mut self.fpm {
            None => pump_kernel(&mut self.kernel, &mut self.plane, false, &mut told, burst),
            Some(fpm) => {
                let pumped = match &mut told {
                    None => fpm.pump(&mut self.plane, burst),
                    Some(told) => {
                        let plane = &mut self.plane;
                        fpm.pump(&mut Tee { plane, without_routes: false, told }, burst)
                    }
                };
                match pumped {
                    Ok(pumped) => {
                        more = pumped.more;
                        log_refused(fpm, &mut self.refusals);
                        // Until then what has not come again may be in the image yet.
                        if pumped.resynchronized {
                            self.plane.retire();
                        }
                    }
                    Err(error) => self.note(Err(error)),
                }
                pump_kernel(&mut self.kernel, &mut self.plane, true, &mut told, burst)
            }
        };
        match pumped {
            Ok(pumped) => {
                more |= pumped.more;
                if self.retell && pumped.resynchronized {
                    self.retell = false;
                    self.tell_again();
                }
            }
            Err(error) => {
                self.note(Err(error));
                // Whatever was lost by it is read anew.
                let again = self.kernel.resynchronize();
                self.note(again);
                return true;
            }
        }
        self.burst = if more { (2 * burst).min(LARGEST_BURST) } else { BURST };
        self.follow_devices();
        let committed = self.plane.commit();
        let drained = !more && committed.published;
        self.calm.turn(Instant::now(), self.plane.counts().changes, drained);
        if committed.locals {
            let locals = self.plane.locals().into_iter().collect();
            for at in 0..self.devices.interfaces().len() {
                let result = self.devices.interfaces()[at].set_locals(&locals);
                self.note(result);
            }
        }
        if let Some(told) = told {
            self.watchers.committed(&told, &self.plane);
            self.tell_feeds();
        }
        self.report();
        self.ask();
        more || !committed.published
    }

    /// Writes what has happened to links and feeds to the log.
    fn report(&mut self) {
        self.reporter.report_links(self.plane.ports());
        self.reporter.report_troubles(self.troubles, self.last_error.as_deref());
        let feeds = self.feeds();
        // The read at the start is no resynchronization.
        if let Some(before) = self.logged.replace(feeds) {
            Reporter::report_feeds(&before, &feeds);
        }
    }

    /// Adds one who listens to what happens from now on.
    pub(crate) fn watch(&mut self) -> Receiver<Arc<Event>> {
        self.reported = self.feeds();
        self.watchers.add()
    }

    /// Returns the overruns and resynchronizations of the kernel's feed and of FRR's.
    fn feeds(&self) -> Feeds {
        let kernel = self.feed();
        let fpm = self.fpm().map_or((0, 0), |fpm| (0, fpm.sweeps));
        [(kernel.overruns, kernel.resynchronizations), fpm]
    }

    /// Tells listeners what has happened to the feeds as a whole.
    fn tell_feeds(&mut self) {
        let now = self.feeds();
        for (feed, (before, now)) in FEEDS.iter().zip(self.reported.iter().zip(now)) {
            let pairs = [("overrun", before.0, now.0), ("resynchronization", before.1, now.1)];
            for (what, _, total) in pairs.into_iter().filter(|(_, before, now)| before != now) {
                let (feed, what) = ((*feed).to_owned(), what.to_owned());
                self.watchers.tell(EventKind::Feed { feed, what, total });
            }
        }
        self.reported = now;
    }

    /// Has the kernel resolve neighbors.
    fn ask(&mut self) {
        for worker in &mut self.wanted {
            for want in worker.drain() {
                for (interface, address) in self.plane.wanted(want.hop, want.address) {
                    // Refused where the link is down, which is told by the link itself.
                    let _ = self.kernel.resolve(interface, address);
                }
            }
        }
        let now = Instant::now();
        if now.duration_since(self.asked) < ASK {
            return;
        }
        let freshen = now.duration_since(self.freshened) >= FRESHEN;
        self.asked = now;
        if freshen {
            self.freshened = now;
        }
        let mut confirmed: BTreeSet<_> = self.plane.gateways(freshen).into_iter().collect();
        confirmed.extend(self.stale_in_use());
        for (interface, address) in confirmed {
            let _ = self.kernel.resolve(interface, address);
        }
    }
}

impl KernelSync {
    /// Lists the neighbors that workers have used since the last time and the kernel holds for
    /// stale.
    fn stale_in_use(&self) -> Vec<(u32, IpAddr)> {
        let mut used = vec![0; MARKS / 64];
        for worker in &self.wanted {
            worker.take_marks(&mut used);
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

/// Returns whether the plane has a route of a feed's for a prefix.
fn has_route<A: Family>(
    plane: &Plane,
    table: u32,
    of: impl for<'a> Fn(PlaneTable<'a>) -> One<'a, A>,
    prefix: Prefix<A>,
) -> bool {
    let hop = plane.table(table).and_then(|table| of(table).rib().get(prefix));
    hop.is_some_and(|hop| matches!(plane.hop_target(hop), Some(HopTarget::Route(_))))
}

/// Lists the routes of a family that the plane has and no mirror.
fn only_there<A: Family>(
    plane: &Plane,
    mirrors: &[&Mirror],
    of: impl for<'a> Fn(PlaneTable<'a>) -> One<'a, A>,
    best: impl Fn(&Mirror, u32, Prefix<A>) -> Option<&RouteInfo>,
) -> Vec<(u32, Prefix<A>)> {
    let mut gone = Vec::new();
    for table in plane.tables() {
        let routes = of(table).rib().iter();
        let routes =
            routes.filter(|(_, hop)| matches!(plane.hop_target(*hop), Some(HopTarget::Route(_))));
        let alone = routes.map(|(prefix, _)| prefix).filter(|prefix| {
            mirrors.iter().all(|mirror| best(mirror, table.number, *prefix).is_none())
        });
        gone.extend(alone.map(|prefix| (table.number, prefix)));
    }
    gone
}

/// Logs the last connection that was refused, and how many there were before it.
fn log_refused(fpm: &Fpm, (logged, at): &mut (u64, Option<Instant>)) {
    let counters = fpm.counters();
    let new = counters.refused.saturating_sub(*logged);
    let Some(last) = counters.last_refused.filter(|_| new > 0) else { return };
    if at.is_some_and(|at| at.elapsed() < LOG) {
        return;
    }
    (*logged, *at) = (counters.refused, Some(Instant::now()));
    let before = if new > 1 { format!(" ({} more before it)", new - 1) } else { String::new() };
    eprintln!("fingerpost: fpm: {last}{before}");
}

/// Takes what the kernel has to say; where somebody listens, what the plane is told is kept.
fn pump_kernel(
    kernel: &mut Kernel,
    plane: &mut Plane,
    without_routes: bool,
    told: &mut Option<Told>,
    burst: usize,
) -> Result<Pumped, feed::netlink::Error> {
    match told {
        Some(told) => kernel.pump(&mut Tee { plane, without_routes, told }, burst),
        None if without_routes => kernel.pump(&mut WithoutRoutes(plane), burst),
        None => kernel.pump(plane, burst),
    }
}

/// Follows until `stop`, counting its turns, and gives back what it had.
pub(crate) fn follow(
    mut following: KernelSync,
    asked: ControlRequests<KernelSync>,
    stop: &AtomicBool,
    turns: &AtomicU64,
) -> (KernelSync, ControlRequests<KernelSync>) {
    let mut soon = true;
    while !stop.load(Ordering::Relaxed) {
        turns.fetch_add(1, Ordering::Relaxed);
        let wait = if soon { SOON } else { WAIT };
        {
            let kernel = PollFd::new(following.kernel.as_fd(), PollFlags::POLLIN);
            let asked = PollFd::new(asked.as_fd(), PollFlags::POLLIN);
            let fpm = following
                .fpm
                .as_ref()
                .map_or(asked.clone(), |fpm| PollFd::new(fpm.as_fd(), PollFlags::POLLIN));
            let mut ready = [kernel, asked, fpm];
            // Interrupted or not, the turn looks at everything.
            let _ = poll(&mut ready, PollTimeout::from(wait));
        }
        soon = following.turn();
        asked.serve(&mut following);
    }
    (following, asked)
}
