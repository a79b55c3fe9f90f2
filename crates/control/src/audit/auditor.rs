//! The auditor: continuously compares the forwarding of packets with the routes and the kernel.
//!
//! ```text
//!   workers ─ a destination each, on request (datapath/sample.rs) ─► every ROUND
//!   driver  ─ one of each family (xdp/forward/samples.rs) ─► with them
//!     ├─► workers' table   ─┐    and that of the driver
//!     ├─► Rib::longest      ├─ equal? ── yes ──► counted
//!     └─► kernel, fibmatch ─┘      │ no: compared again every round
//!                                  ▼ still different after SETTLE
//!            counted, logged with both answers, sent to subscribers, healed
//! ```
//!
//! `Rib::longest` is the longest match in the routes (`fib/src/rib.rs`), which shares only the
//! routes with the engines; the kernel's lookup shares nothing with the router. Together they
//! detect a table that does not match its routes, and routes that differ from the kernel's.
//!
//! The auditor compares only while few routes change (`control/churn.rs`): while many routes
//! arrive, or wait to be published, or are read again, no difference counts. A difference that
//! remains after SETTLE is checked once more, for as long, after the kernel has finished its work
//! on links, because it removes routes before it reports that.
//!
//! To heal, the auditor queries the kernel for the one route that it uses for the destination, and
//! publishes every route that holds it to the plane again. A difference that returns within
//! [`HEAL`], or for many destinations, makes the feed read all of the kernel's routes again (where
//! FRR's are followed, zebra sends all of its routes) and publish every one to the plane, known or
//! not, and withdraw those that only the plane has. This happens at most once in [`HEAL`]: a
//! difference that stays is a bug, or a rule that the router does not follow, and is still counted.
//!
//! The auditor is a thread of its own without capabilities; it sends the control thread one query
//! a round, of at most [`MAX_PENDING`] destinations and a sample of each worker. It sends none
//! without packets or while an image of the routes is in use. Like the comparison (`diff.rs`), it
//! queries the kernel for destinations in the main table only.

use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use feed::netlink::{Lookup, Target};
use fib::Hop;
use port::af_xdp::Interface;
use threads::{Rights, Task};

use super::{AuditFamily, MAIN, is_resolvable, is_same_path, kernel_route};
use crate::handle::ControlHandle;
use crate::items;
use crate::kernel_sync::{HEAL, KernelSync};
use crate::plane::{HopTarget, Plane};
use crate::target::{TargetView, target_view};
use crate::view::View;
use api::{Difference, EventKind, RouteView};

/// The interval of the comparisons.
const ROUND: Duration = Duration::from_millis(50);
/// The time after which a difference is a mismatch.
const SETTLE: Duration = Duration::from_secs(1);
/// The same where FRR sends its routes by FPM: zebra installs them in the kernel afterwards, which
/// takes longer when there are many.
const SETTLE_FPM: Duration = Duration::from_secs(10);
/// The most destinations that differ and are compared again.
const MAX_PENDING: usize = 64;
/// The minimum interval between two logged mismatches.
const LOG_INTERVAL: Duration = Duration::from_secs(5);

/// Starts the auditor's thread in the network namespace of the calling thread.
///
/// # Errors
///
/// The system's error.
pub(crate) fn start(control: ControlHandle<KernelSync>, view: Arc<View>) -> io::Result<Task> {
    let lookup = Lookup::open().map_err(io::Error::other)?;
    let mut audit = AuditLoop { control, view, lookup, pending: Vec::new(), logged: None };
    // Reading routes needs no capability.
    Task::start("auditor", Rights::None, move |stop| {
        while !stop.wait(ROUND) {
            audit.round();
        }
    })
}

/// A destination, and the index of its table in the workers' order.
type Destination = (usize, IpAddr);

/// A destination that differs, but not yet for long enough to be a mismatch.
#[derive(Clone, Copy, Debug)]
struct PendingMismatch {
    destination: Destination,
    since: Instant,
    /// The kernel has finished its work on links since then.
    links_settled: bool,
}

/// The state of the auditor's thread.
struct AuditLoop {
    control: ControlHandle<KernelSync>,
    view: Arc<View>,
    lookup: Lookup,
    pending: Vec<PendingMismatch>,
    logged: Option<Instant>,
}

/// The router's lookups of a destination.
#[derive(Debug)]
struct RouterLookup {
    /// The kernel's number of the table.
    table: u32,
    /// The longest prefix of the routes.
    prefix: Option<String>,
    /// The target in the workers' table.
    found: Option<HopTarget>,
    /// The target in the routes.
    expected: Option<HopTarget>,
    /// Whether the workers' table, that of the driver and the routes have the same hop.
    is_consistent: bool,
    /// Whether the destination is one of the router's own addresses by now.
    is_own: bool,
}

/// The result of comparing a destination.
enum AuditOutcome {
    Agrees,
    Differs(Box<Difference>),
}

impl AuditLoop {
    /// Compares a sample of each worker and of the driver, and the destinations that differed before.
    fn round(&mut self) {
        let samples = self.view.counting();
        let samples = samples.iter().filter_map(|stats| stats.sample().take());
        let in_driver = self.view.interfaces().iter().any(Interface::forwards_in_driver);
        let forwarded =
            in_driver.then(|| self.control.call(|sync| sync.plane.take_driver_samples()));
        let samples = samples.chain(forwarded.flatten().into_iter().flatten());
        let mut destinations: Vec<Destination> =
            self.pending.iter().map(|pending| pending.destination).collect();
        // A mismatch is healed once, so each destination is compared once: several workers and the driver may have
        // the same one.
        for sample in samples.filter(|sample| is_resolvable(sample.1)) {
            if !destinations.contains(&sample) {
                destinations.push(sample);
            }
        }
        if destinations.is_empty() {
            return;
        }
        let queries = destinations.clone();
        let reply = self.control.call(move |sync| {
            sync.is_auditable().then(|| {
                sync.audit.checks += queries.len() as u64;
                let settle = if sync.fpm().is_some() { SETTLE_FPM } else { SETTLE };
                let lookups = queries.iter().map(|query| router_lookup(&sync.plane, *query));
                (lookups.collect::<Vec<_>>(), settle)
            })
        });
        let Some(Some((lookups, settle))) = reply else {
            // Routes are changing; when they have settled, differences are counted from one again.
            self.pending.clear();
            return;
        };
        let now = Instant::now();
        let mut left = Vec::new();
        for (destination, lookup) in destinations.into_iter().zip(lookups) {
            let Some(lookup) = lookup else { continue };
            let address = destination.1;
            let AuditOutcome::Differs(difference) = self.compare(address, &lookup) else {
                continue;
            };
            let known = self.pending.iter().find(|pending| pending.destination == destination);
            let mut pending = known.copied().unwrap_or(PendingMismatch {
                destination,
                since: now,
                links_settled: false,
            });
            if now.duration_since(pending.since) >= settle {
                if pending.links_settled {
                    self.report_mismatch(*difference, lookup.table, address);
                    continue;
                }
                // If the kernel refuses to wait, the destination is checked again all the same.
                let _ = self.lookup.wait_for_links();
                pending = PendingMismatch { since: Instant::now(), links_settled: true, ..pending };
            }
            if left.len() < MAX_PENDING {
                left.push(pending);
            }
        }
        self.pending = left;
    }

    /// Compares the router's lookups with each other and with the kernel's.
    fn compare(&mut self, address: IpAddr, router: &RouterLookup) -> AuditOutcome {
        if !router.is_consistent {
            let prefix = router.prefix.clone().unwrap_or_default();
            let expected = router.expected.clone().map(|target| (prefix, target));
            return self.difference("table", address, router, expected);
        }
        let throws =
            matches!(&router.found, Some(HopTarget::Route(route)) if **route == Target::Throw);
        if router.table != MAIN || throws {
            return AuditOutcome::Agrees;
        }
        // After an error, the next sample queries the kernel again.
        let Ok(Some(kernel)) = kernel_route(&mut self.lookup, router.table, address, router.is_own)
        else {
            return AuditOutcome::Agrees;
        };
        if is_same_path(router.found.as_ref(), kernel.as_ref().map(|(_, target)| &**target)) {
            return AuditOutcome::Agrees;
        }
        let kernel = kernel.map(|(prefix, target)| (prefix, HopTarget::Route(target)));
        self.difference("address", address, router, kernel)
    }

    fn difference(
        &self,
        what: &str,
        address: IpAddr,
        router: &RouterLookup,
        reference: Option<(String, HopTarget)>,
    ) -> AuditOutcome {
        let names = self.view.interfaces();
        let name = |index: u32| {
            let known = names.iter().find(|interface| interface.index() == index);
            known.map_or_else(|| format!("if{index}"), |interface| interface.name())
        };
        let view = |(prefix, target): (String, HopTarget)| {
            let TargetView { kind, via } = target_view(&name, &target);
            RouteView { prefix, kind: kind.to_owned(), via }
        };
        let prefix = router.prefix.clone().unwrap_or_default();
        let found = router.found.clone().map(|target| view((prefix, target)));
        AuditOutcome::Differs(Box::new(Difference {
            what: what.to_owned(),
            table: router.table,
            of: address.to_string(),
            kernel: reference.map(view),
            router: found,
        }))
    }

    /// Logs a mismatch and has the control thread heal it.
    fn report_mismatch(&mut self, difference: Difference, table: u32, address: IpAddr) {
        let text = items::difference(&difference);
        if self.logged.is_none_or(|at| at.elapsed() >= LOG_INTERVAL) {
            self.logged = Some(Instant::now());
            log::warn!("audit: {text}");
        }
        self.control.call(move |sync| sync.heal_mismatch(difference, text, table, address));
    }
}

fn router_lookup(plane: &Plane, (at, address): Destination) -> Option<RouterLookup> {
    fn lookup<A: AuditFamily>(plane: &Plane, at: usize, address: A) -> Option<RouterLookup> {
        let table = plane.tables().nth(at)?;
        let fib = A::of(table);
        let rib = fib.rib();
        let longest = rib.longest(address);
        let (expected, found) = (longest.map(|(_, hop)| hop), fib.lookup(address));
        Some(RouterLookup {
            table: table.number,
            prefix: longest.map(|(prefix, _)| prefix.to_string()),
            found: plane.hop_target(found).cloned(),
            expected: expected.and_then(|hop| plane.hop_target(hop).cloned()),
            is_consistent: expected.unwrap_or(Hop::NONE) == found
                && plane.driver_lookup(at, address.ip()).is_none_or(|hop| hop == found),
            is_own: plane.is_own(address.ip()),
        })
    }
    match address {
        IpAddr::V4(v4) => lookup(plane, at, u32::from(v4)),
        IpAddr::V6(v6) => lookup(plane, at, u128::from(v6)),
    }
}

impl KernelSync {
    /// Returns whether the routes match the kernel's as far as messages have arrived, so that a
    /// difference is meaningful.
    fn is_auditable(&self) -> bool {
        self.is_quiet() && !self.is_resynchronizing() && !self.plane.has_adopted()
    }

    /// Records a mismatch and heals it.
    fn heal_mismatch(&mut self, difference: Difference, text: String, table: u32, address: IpAddr) {
        self.audit.mismatches += 1;
        self.audit.last_mismatch = Some(text);
        self.subscribers().publish(EventKind::Audit(difference));
        if self.heal_address(table, address) {
            self.audit.route_heals += 1;
            return;
        }
        let is_recent = self.healed.is_some_and(|at| at.elapsed() < HEAL);
        if !is_recent {
            self.healed = Some(Instant::now());
            self.audit.heals += 1;
            self.heal();
        }
    }
}
