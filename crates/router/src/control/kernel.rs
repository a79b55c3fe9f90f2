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
//! packets wait or not, every second; those in use are confirmed every `FRESHEN`, because the kernel does not see the packets that
//! would keep its entries alive.
//!
//! Where FRR sends its routes itself (`feed::fpm`), they are taken from there, and from the
//! kernel all but the routes.

use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use feed::fpm::Fpm;
use feed::netlink::{Counters, Kernel};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use port::af_xdp::Interface;

use super::asks::Asked;
use super::plane::{ButRoutes, Plane};
use crate::datapath::WantReceiver;

/// Messages between two commits, at the most.
const BURST: usize = 4096;
/// How often unresolved gateways are asked for, in turns of the clock below.
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

    /// Returns how often the system refused something, and its last words.
    pub fn troubles(&self) -> (u64, Option<&str>) {
        (self.troubles, self.last_trouble.as_deref())
    }

    /// Reads everything from the kernel anew, beside what goes on.
    pub fn resynchronise(&mut self) {
        let result = self.kernel.resynchronise();
        self.note(result);
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
        let pumped = match &mut self.fpm {
            None => self.kernel.pump(&mut self.plane, BURST),
            Some(fpm) => {
                let pumped = fpm.pump(&mut self.plane, BURST);
                match pumped {
                    Ok(pumped) => more = pumped.more,
                    Err(error) => self.note(Err(error)),
                }
                self.kernel.pump(&mut ButRoutes(&mut self.plane), BURST)
            }
        };
        match pumped {
            Ok(pumped) => more |= pumped.more,
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
        self.ask();
        more || !committed.published
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

/// Follows until `stop`.
pub(crate) fn follow(mut following: Following, asked: &Asked<Following>, stop: &Arc<AtomicBool>) {
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
}
