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
//! more than a turn. Where workers still read what a commit must change, the next turn
//! begins a moment later; they pass within microseconds when they have packets, and hold
//! nothing when they sleep.
//!
//! Neighbours that packets wait for are asked for through the kernel (which sends the ARP
//! request or neighbour solicitation); gateways without a neighbour entry too, whether
//! packets wait or not, every second. Those in use are confirmed every `FRESHEN`, because
//! the kernel does not see the packets that would keep its entries alive.
//!
//! Where FRR sends its routes itself (`feed::fpm`), they are taken from there, and from the
//! kernel all but the routes.

use std::iter;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};

use feed::fpm::Fpm;
use feed::netlink::{Counters, Follower, Kernel, Mirror, Pumped, RouteInfo};
use fib::{Family, Prefix};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use port::af_xdp::Interface;

use super::api::{Audit, Event, Happened};
use super::asks::Asked;
use super::monitor::{Tee, Told, Watchers};
use super::plane::{ButRoutes, One, Plane, PlaneTable, Way};
use crate::datapath::WantReceiver;

/// Messages between two commits, at the most.
const BURST: usize = 4096;
/// How often unresolved gateways are asked for.
const ASK: Duration = Duration::from_secs(1);
/// How often gateways in use are confirmed.
const FRESHEN: Duration = Duration::from_secs(20);
/// How long a turn waits for something to do, in milliseconds: what workers want is found
/// out by looking.
const WAIT: u16 = 5;
/// The same where something is waiting for a worker to pass.
const SOON: u16 = 1;

/// What the control thread owns, and questions are put to.
#[derive(Debug)]
pub struct Following {
    /// The routes.
    pub plane: Plane,
    kernel: Kernel,
    fpm: Option<Fpm>,
    interfaces: Vec<Interface>,
    wanted: Vec<WantReceiver>,
    asked: Instant,
    freshened: Instant,
    troubles: u64,
    last_trouble: Option<String>,
    /// Who listens to what happens.
    watchers: Watchers,
    /// The overruns and resynchronisations that listeners were told of, by feed.
    said: [(u64, u64); 2],
    /// What the auditor has come to.
    pub(super) audit: Audit,
    /// When the last mismatch was healed.
    pub(super) healed: Option<Instant>,
    /// The plane is to be told of every route when they have been read anew.
    retell: bool,
}

impl Following {
    /// Takes over a plane that the kernel has filled.
    pub fn new(
        plane: Plane,
        kernel: Kernel,
        fpm: Option<Fpm>,
        interfaces: Vec<Interface>,
        wanted: Vec<WantReceiver>,
    ) -> Self {
        let now = Instant::now();
        Self {
            plane,
            kernel,
            fpm,
            interfaces,
            wanted,
            asked: now.checked_sub(ASK).unwrap_or(now),
            freshened: now,
            troubles: 0,
            last_trouble: None,
            watchers: Watchers::default(),
            said: [(0, 0); 2],
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
        self.interfaces = interfaces;
        self.wanted = wanted;
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
        self.said = self.feeds();
    }

    /// Says whether routes are being read anew, or FRR has not said them all.
    pub(super) fn is_resynchronising(&self) -> bool {
        let fpm = self.fpm.as_ref().is_some_and(|fpm| !fpm.is_complete());
        self.retell || fpm || self.kernel.is_resynchronising()
    }

    /// Has everything read anew, and the plane told of all of it.
    pub(super) fn heal(&mut self) {
        self.retell = true;
        if let Some(fpm) = &mut self.fpm {
            fpm.again();
        }
        let begun = self.kernel.resynchronise();
        self.note(begun);
    }

    /// Tells the plane of every route, and of the end of those that only it has.
    fn tell_again(&mut self) {
        self.plane.is_told_again();
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
            self.kernel.mirror().tell_routes(&mut ButRoutes(&mut self.plane));
        } else {
            self.kernel.mirror().tell_routes(&mut self.plane);
        }
    }

    /// Returns how often the system refused something, and its last words.
    pub fn troubles(&self) -> (u64, Option<&str>) {
        (self.troubles, self.last_trouble.as_deref())
    }

    fn note<E: ToString>(&mut self, result: Result<(), E>) {
        if let Err(error) = result {
            self.troubles += 1;
            self.last_trouble = Some(error.to_string());
        }
    }

    /// Takes one turn; says whether the next one should come soon.
    fn turn(&mut self) -> bool {
        let mut more = false;
        let mut told = (!self.watchers.is_empty()).then(Told::default);
        let pumped = match &mut self.fpm {
            None => pump_kernel(&mut self.kernel, &mut self.plane, false, &mut told),
            Some(fpm) => {
                let pumped = match &mut told {
                    None => fpm.pump(&mut self.plane, BURST),
                    Some(told) => {
                        let plane = &mut self.plane;
                        fpm.pump(&mut Tee { plane, but_routes: false, told }, BURST)
                    }
                };
                match pumped {
                    Ok(pumped) => {
                        more = pumped.more;
                        // Until then what has not come again may be in the image yet.
                        if pumped.resynchronised {
                            self.plane.retire();
                        }
                    }
                    Err(error) => self.note(Err(error)),
                }
                pump_kernel(&mut self.kernel, &mut self.plane, true, &mut told)
            }
        };
        match pumped {
            Ok(pumped) => {
                more |= pumped.more;
                if self.retell && pumped.resynchronised {
                    self.retell = false;
                    self.tell_again();
                }
            }
            Err(error) => {
                self.note(Err(error));
                // Whatever was lost by it is read anew.
                let again = self.kernel.resynchronise();
                self.note(again);
                return true;
            }
        }
        let committed = self.plane.commit();
        if committed.locals {
            let locals = self.plane.locals().into_iter().collect();
            for at in 0..self.interfaces.len() {
                let told = self.interfaces[at].set_locals(&locals);
                self.note(told);
            }
        }
        if let Some(told) = told {
            self.watchers.committed(&told, &self.plane);
            self.tell_feeds();
        }
        self.ask();
        more || !committed.published
    }

    /// Adds one who listens to what happens from now on.
    pub(crate) fn watch(&mut self) -> Receiver<Arc<Event>> {
        self.said = self.feeds();
        self.watchers.add()
    }

    /// Returns the overruns and resynchronisations of the kernel's feed and of FRR's.
    fn feeds(&self) -> [(u64, u64); 2] {
        let kernel = self.feed();
        let fpm = self.fpm().map_or((0, 0), |fpm| (0, fpm.sweeps));
        [(kernel.overruns, kernel.resynchronisations), fpm]
    }

    /// Tells listeners what has happened to the feeds as a whole.
    fn tell_feeds(&mut self) {
        let now = self.feeds();
        for (feed, (before, now)) in ["kernel", "fpm"].iter().zip(self.said.iter().zip(now)) {
            let pairs = [("overrun", before.0, now.0), ("resynchronisation", before.1, now.1)];
            for (what, _, total) in pairs.into_iter().filter(|(_, before, now)| before != now) {
                let (feed, what) = ((*feed).to_owned(), what.to_owned());
                self.watchers.tell(Happened::Feed { feed, what, total });
            }
        }
        self.said = now;
    }

    /// Has the kernel resolve neighbours.
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
        for (interface, address) in self.plane.gateways(freshen) {
            let _ = self.kernel.resolve(interface, address);
        }
    }
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
        let routes = routes.filter(|(_, hop)| matches!(plane.way(*hop), Some(Way::Route(_))));
        let alone = routes.map(|(prefix, _)| prefix).filter(|prefix| {
            mirrors.iter().all(|mirror| best(mirror, table.number, *prefix).is_none())
        });
        gone.extend(alone.map(|prefix| (table.number, prefix)));
    }
    gone
}

/// Takes what the kernel has to say; where somebody listens, what the plane is told is kept.
fn pump_kernel(
    kernel: &mut Kernel,
    plane: &mut Plane,
    but_routes: bool,
    told: &mut Option<Told>,
) -> Result<Pumped, feed::netlink::Error> {
    match told {
        Some(told) => kernel.pump(&mut Tee { plane, but_routes, told }, BURST),
        None if but_routes => kernel.pump(&mut ButRoutes(plane), BURST),
        None => kernel.pump(plane, BURST),
    }
}

/// Follows until `stop`, and gives back what it had.
pub(crate) fn follow(
    mut following: Following,
    asked: Asked<Following>,
    stop: &AtomicBool,
) -> (Following, Asked<Following>) {
    let mut soon = true;
    while !stop.load(Ordering::Relaxed) {
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
        asked.answer(&mut following);
    }
    (following, asked)
}
