//! The auditor: what packets meet, held against the oracle and the kernel, all the time.
//!
//! ```text
//!   workers ─ a destination each, when asked (datapath/sample.rs) ─► every ROUND
//!     ├─► workers' table   ─┐
//!     ├─► Rib::longest      ├─ the same? ── yes ──► counted
//!     └─► kernel, fibmatch ─┘      │ no: looked at again every round
//!                                  ▼ still, after SETTLE
//!            counted, logged with both answers, told to listeners, healed
//! ```
//!
//! The oracle is the longest match in the routes (`fib/src/rib.rs`), which shares nothing with
//! the engines but the routes; the kernel's lookup shares nothing with us at all. Between
//! them they find a table that is not made of its routes, and routes that are not the
//! kernel's.
//!
//! Comparisons wait for calm (`control/churn.rs`): while many routes arrive, or wait to be
//! published, or are read again, no difference counts. A difference that remains after SETTLE is
//! checked once more, for as long, after the kernel has finished its work on links: it removes
//! routes before it reports that.
//!
//! To heal, the auditor queries the kernel for the one route that it uses for the destination, and
//! publishes every route that holds it to the plane again. A difference that returns within
//! [`HEAL`], or for many destinations, makes the feed read all of the kernel's routes again (where
//! FRR's are followed, zebra sends all of its routes) and publish every one to the plane, known or
//! not, and withdraw those that only the plane has. This happens at most once in [`HEAL`]: a
//! difference that stays is a bug, or a rule that the router does not follow, and is still counted.
//!
//! A thread of its own, without rights; it sends the control thread one query a round, of at most
//! [`DOUBTS`] and a sample of each worker. Without packets it sends none, nor
//! while an image of the routes is in use. Like the comparison (`diff.rs`), it queries the kernel
//! for destinations in the main table only.

use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

use feed::netlink::{Found, Lookup, Target};

use super::diff::{MAIN, show};
use super::{Side, resolvable, same_way};
use crate::control::api::{Difference, EventKind, RouteView};
use crate::control::handle::ControlHandle;
use crate::control::items::{self, words};
use crate::control::kernel_sync::KernelSync;
use crate::control::plane::{HopTarget, Plane};
use crate::control::rights;
use crate::daemon::View;

/// How often destinations are looked at.
const ROUND: Duration = Duration::from_millis(50);
/// How long what differs may take to agree.
const SETTLE: Duration = Duration::from_secs(1);
/// The same where FRR tells its routes itself: zebra gives them to the kernel afterwards,
/// which takes its time when there are many.
const SETTLE_FPM: Duration = Duration::from_secs(10);
/// Destinations that are waited for, at the most.
const DOUBTS: usize = 64;
/// How long after one healing the next may be.
pub(crate) const HEAL: Duration = Duration::from_secs(60);
/// How long after one mismatch the next is logged.
const LOG: Duration = Duration::from_secs(5);

/// The auditor at work; dropped, it is gone.
#[derive(Debug)]
pub(crate) struct Auditor {
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Auditor {
    /// Starts in the network namespace of the calling thread.
    ///
    /// # Errors
    ///
    /// The system's.
    pub(crate) fn start(control: ControlHandle<KernelSync>, view: Arc<View>) -> io::Result<Self> {
        let lookup = Lookup::open().map_err(io::Error::other)?;
        let (stop, stopped) = channel();
        let audit = Audit { control, view, lookup, doubts: Vec::new(), logged: None };
        let thread = Builder::new().name("auditor".into()).spawn(move || {
            // Routes may be read without any.
            let _ = rights::keep(&[]);
            let mut audit = audit;
            while stopped.recv_timeout(ROUND) == Err(RecvTimeoutError::Timeout) {
                audit.round();
            }
        })?;
        Ok(Self { stop: Some(stop), thread: Some(thread) })
    }
}

impl Drop for Auditor {
    fn drop(&mut self) {
        self.stop = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// A destination, in the table of this place in the workers' order.
type Destination = (usize, IpAddr);

/// A destination that differed.
#[derive(Clone, Copy, Debug)]
struct Doubt {
    of: Destination,
    since: Instant,
    /// The kernel has finished since what it was doing to links.
    waited: bool,
}

struct Audit {
    control: ControlHandle<KernelSync>,
    view: Arc<View>,
    lookup: Lookup,
    doubts: Vec<Doubt>,
    logged: Option<Instant>,
}

/// What the router says of a destination.
#[derive(Debug)]
struct Says {
    /// The kernel's number of the table.
    table: u32,
    /// The longest route.
    prefix: Option<String>,
    /// By the workers' table, and by the oracle.
    found: Option<HopTarget>,
    wanted: Option<HopTarget>,
    alike: bool,
}

/// What was found of a destination.
enum Judged {
    Same,
    Differs(Box<Difference>),
}

impl Audit {
    /// Looks at a sample, and at what is in doubt.
    fn round(&mut self) {
        let samples = self.view.counting();
        let samples = samples.iter().filter_map(|stats| stats.sample().take());
        let mut all: Vec<Destination> = self.doubts.iter().map(|doubt| doubt.of).collect();
        let fresh: Vec<_> = samples.filter(|it| resolvable(it.1) && !all.contains(it)).collect();
        all.extend(fresh);
        if all.is_empty() {
            return;
        }
        let asked = all.clone();
        let says = self.control.call(move |it| {
            it.may_be_audited().then(|| {
                it.audit.checks += asked.len() as u64;
                let settle = if it.fpm().is_some() { SETTLE_FPM } else { SETTLE };
                (asked.iter().map(|to| say(&it.plane, *to)).collect::<Vec<_>>(), settle)
            })
        });
        let Some(Some((says, settle))) = says else {
            // It begins anew when things are as they should be.
            self.doubts.clear();
            return;
        };
        let now = Instant::now();
        let mut left = Vec::new();
        for (to, says) in all.into_iter().zip(says) {
            let Some(says) = says else { continue };
            let Judged::Differs(difference) = self.judge(to.1, &says) else { continue };
            let known = self.doubts.iter().find(|doubt| doubt.of == to).copied();
            let mut doubt = known.unwrap_or(Doubt { of: to, since: now, waited: false });
            if now.duration_since(doubt.since) >= settle {
                if doubt.waited {
                    self.mismatch(*difference, says.table, to.1);
                    continue;
                }
                // A refusal counts as done: the doubt is checked again either way.
                let _ = self.lookup.wait_for_links();
                doubt = Doubt { since: Instant::now(), waited: true, ..doubt };
            }
            if left.len() < DOUBTS {
                left.push(doubt);
            }
        }
        self.doubts = left;
    }

    /// Holds what the router says against the kernel.
    fn judge(&mut self, address: IpAddr, says: &Says) -> Judged {
        let side = |prefix: String, way: &HopTarget| Sided { prefix, way: way.clone() };
        let of = |way: &Option<HopTarget>| {
            way.as_ref().map(|way| side(says.prefix.clone().unwrap_or_default(), way))
        };
        if !says.alike {
            return self.differs("table", address, says, of(&says.wanted));
        }
        let throws = matches!(&says.found, Some(HopTarget::Route(it)) if **it == Target::Throw);
        if says.table != MAIN || throws {
            return Judged::Same;
        }
        let kernel = match self.lookup.get(address) {
            Ok(Found::Route { table, .. }) if table != says.table => return Judged::Same,
            Ok(Found::Route { prefix, info, .. }) => Some((show(&prefix), info.target)),
            Ok(Found::Refused(target)) => Some((address.to_string(), Arc::new(target))),
            Ok(Found::Nothing) => None,
            // Asked again with the next sample.
            Err(_) => return Judged::Same,
        };
        if same_way(says.found.as_ref(), kernel.as_ref().map(|(_, target)| &**target)) {
            return Judged::Same;
        }
        let kernel = kernel.map(|(prefix, target)| Sided { prefix, way: HopTarget::Route(target) });
        self.differs("address", address, says, kernel)
    }

    fn differs(&self, what: &str, address: IpAddr, says: &Says, other: Option<Sided>) -> Judged {
        let names = self.view.interfaces();
        let name = |index: u32| {
            let known = names.iter().find(|interface| interface.index() == index);
            known.map_or_else(|| format!("if{index}"), |interface| interface.name())
        };
        let said = |it: Sided| {
            let words = words(&name, &it.way);
            RouteView { prefix: it.prefix, kind: words.kind.to_owned(), via: words.via }
        };
        let prefix = says.prefix.clone().unwrap_or_default();
        let mine = says.found.clone().map(|way| said(Sided { prefix, way }));
        Judged::Differs(Box::new(Difference {
            what: what.to_owned(),
            table: says.table,
            of: address.to_string(),
            kernel: other.map(said),
            router: mine,
        }))
    }

    /// A mismatch that has not settled.
    fn mismatch(&mut self, difference: Difference, table: u32, address: IpAddr) {
        let words = items::difference(&difference);
        if self.logged.is_none_or(|at| at.elapsed() >= LOG) {
            self.logged = Some(Instant::now());
            log::warn!("audit: {words}");
        }
        self.control.call(move |sync| sync.mismatch(difference, words, table, address));
    }
}

/// One side's answer.
struct Sided {
    prefix: String,
    way: HopTarget,
}

fn say(plane: &Plane, (at, address): Destination) -> Option<Says> {
    fn family<A: Side>(plane: &Plane, at: usize, address: A) -> Option<Says> {
        let table = plane.tables().nth(at)?;
        let fib = A::one(table);
        let rib = fib.rib();
        let longest = rib.longest(address);
        let (wanted, found) = (longest.map(|(_, hop)| hop), fib.lookup(address));
        Some(Says {
            table: table.number,
            prefix: longest.map(|(prefix, _)| prefix.to_string()),
            found: plane.hop_target(found).cloned(),
            wanted: wanted.and_then(|hop| plane.hop_target(hop).cloned()),
            alike: wanted.unwrap_or(fib::Hop::NONE) == found,
        })
    }
    match address {
        IpAddr::V4(it) => family(plane, at, u32::from(it)),
        IpAddr::V6(it) => family(plane, at, u128::from(it)),
    }
}

impl KernelSync {
    /// Says whether the routes are as the kernel has them, as far as is known.
    fn may_be_audited(&self) -> bool {
        self.is_calm() && !self.is_resynchronizing() && !self.plane.has_adopted()
    }

    /// Takes a mismatch down, and heals it.
    fn mismatch(&mut self, difference: Difference, words: String, table: u32, address: IpAddr) {
        self.audit.mismatches += 1;
        self.audit.last_mismatch = Some(words);
        self.watchers().tell(EventKind::Audit(difference));
        if self.heal_address(table, address) {
            self.audit.route_heals += 1;
            return;
        }
        let lately = self.healed.is_some_and(|at| at.elapsed() < HEAL);
        if !lately {
            self.healed = Some(Instant::now());
            self.audit.heals += 1;
            self.heal();
        }
    }
}
