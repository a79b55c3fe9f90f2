//! The prefixes of the routes in one of the kernel's tables: a BGP router's feed.
//!
//! ```text
//!   BIRD, FRR ─► kernel's table (ip route … table N) ─► netlink ─► prefixes ─► list
//! ```
//!
//! A BGP router that puts the routes with some community into a table of their own makes them a list: sources that a
//! peer reports (RFC 5635 has the same effect by a reverse path filter), or prefixes with the community BLACKHOLE
//! (RFC 7999). Routes of every type count, whatever their next hop.
//!
//! The feed follows the kernel's messages; it holds the routes of all tables, as the kernel does not filter its
//! messages by table.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::net::IpAddr;
use std::os::fd::AsFd;
use std::time::Duration;

use ::feed::AnyPrefix;
use ::feed::netlink::{
    AddressChange, AddressView, Follower, InterfaceSettings, Kernel, Link, Neighbor, RouteInfo,
    Rule,
};
use fib::Prefix;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use threads::Stop;

use super::Feed;

/// The longest wait for a message in milliseconds, after which the thread looks whether it has to end.
const WAIT: u8 = 100;
/// The most messages at once.
const MESSAGES: usize = 4096;

/// The routes of a table.
pub struct RoutesFeed {
    kernel: Kernel,
    routes: Routes,
}

/// The prefixes of a table, and whether they are other ones than were returned.
struct Routes {
    table: u32,
    prefixes: BTreeSet<AnyPrefix>,
    has_changed: bool,
}

impl RoutesFeed {
    /// Reads the routes in the network namespace of the calling thread.
    ///
    /// # Errors
    ///
    /// The error of the netlink socket.
    pub fn new(table: u32) -> Result<Self, String> {
        let failed = |error| format!("reading the kernel's routes: {error}");
        let mut kernel = Kernel::open().map_err(failed)?;
        let mut routes = Routes { table, prefixes: BTreeSet::new(), has_changed: true };
        kernel.start(&mut routes).map_err(failed)?;
        Ok(Self { kernel, routes })
    }
}

impl Feed for RoutesFeed {
    fn poll(&mut self, stop: &Stop) -> Result<Option<Vec<u8>>, String> {
        let failed =
            |error: &dyn std::fmt::Display| format!("following the kernel's routes: {error}");
        while !stop.is_set() {
            let progress =
                self.kernel.pump(&mut self.routes, MESSAGES).map_err(|error| failed(&error))?;
            // A dump may withdraw and return what it has not reached yet.
            if !progress.more
                && !progress.resynchronizing
                && std::mem::take(&mut self.routes.has_changed)
            {
                return Ok(Some(self.routes.text().into_bytes()));
            }
            if !progress.more {
                let mut fds = [PollFd::new(self.kernel.as_fd(), PollFlags::POLLIN)];
                poll(&mut fds, PollTimeout::from(WAIT)).map_err(|error| failed(&error))?;
            }
        }
        Ok(None)
    }

    /// A burst of changes is one file.
    fn interval(&self) -> Duration {
        Duration::from_millis(50)
    }
}

impl Routes {
    fn text(&self) -> String {
        let mut text = String::new();
        for prefix in &self.prefixes {
            let _ = writeln!(text, "{prefix}");
        }
        text
    }

    fn set(&mut self, table: u32, prefix: AnyPrefix, is_there: bool) {
        if table == self.table {
            self.has_changed |= match is_there {
                true => self.prefixes.insert(prefix),
                false => self.prefixes.remove(&prefix),
            };
        }
    }
}

impl Follower for Routes {
    fn route_v4(&mut self, table: u32, prefix: Prefix<u32>, best: Option<&RouteInfo>) {
        self.set(table, AnyPrefix::V4(prefix), best.is_some());
    }

    fn route_v6(&mut self, table: u32, prefix: Prefix<u128>, best: Option<&RouteInfo>) {
        self.set(table, AnyPrefix::V6(prefix), best.is_some());
    }

    fn link(&mut self, _: u32, _: Option<&Link>) {}
    fn address(&mut self, _: &AddressView, _: AddressChange) {}
    fn neighbor(&mut self, _: u32, _: IpAddr, _: Option<&Neighbor>) {}
    fn rules(&mut self, _: &[Rule]) {}
    fn settings(&mut self, _: u32, _: InterfaceSettings) {}
}
