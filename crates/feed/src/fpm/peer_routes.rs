//! The routes of a peer over its connections: those sent on this one, and those that remain of
//! earlier ones.
//!
//! ```text
//!   connect ─► apply … apply ─► sweep          stale is empty
//!      └─ the mirror becomes an stale one; a prefix that comes again leaves it
//! ```
//!
//! No sockets and no clock: [`Fpm`](super::Fpm) has those, and a fuzzer needs none.

use std::mem;

use super::frame;
use crate::netlink::{Damage, Follower, Mirror};

/// The routes of a peer.
#[derive(Debug, Default)]
pub struct PeerRoutes {
    /// Routes received on the last connection.
    mirror: Mirror,
    /// Routes that remain of earlier ones; no two have the same prefix.
    stale: Vec<Mirror>,
}

/// The result of some bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ApplyResult {
    /// The bytes of the complete frames; the caller passes the remaining ones again with more.
    pub bytes: usize,
    /// The frames.
    pub frames: u64,
    /// The messages in them.
    pub messages: usize,
    /// The prefixes that are new to this connection.
    pub new: usize,
    /// The messages that were left out because they were damaged.
    pub parse_errors: u64,
    /// The error of the last of them.
    pub last_damage: Option<Damage>,
    /// The error that prevents reading on.
    pub broken: Option<Damage>,
}

impl PeerRoutes {
    /// Begins with nothing.
    pub fn new() -> Self {
        Self::default()
    }

    /// Begins another connection: present routes count until they are sent again or swept.
    pub fn connect(&mut self) {
        self.stale.push(mem::take(&mut self.mirror));
        self.stale.retain(|stale| !stale.has_no_routes());
    }

    /// Applies the frames that are whole, and reports what changes by each.
    pub fn apply(&mut self, bytes: &[u8], to: &mut dyn Follower) -> ApplyResult {
        let mut applied = ApplyResult::default();
        loop {
            let (length, content) = match frame::first(&bytes[applied.bytes..]) {
                Ok(Some(frame)) => frame,
                Ok(None) => return applied,
                Err(damage) => return ApplyResult { broken: Some(damage), ..applied },
            };
            let result = self.mirror.apply_frame(content, &mut self.stale, to);
            applied.messages += result.messages;
            applied.new += result.new;
            applied.frames += 1;
            if let Some(damage) = result.damage {
                applied.parse_errors += 1;
                applied.last_damage = Some(Damage { at: damage.at + frame::HEADER, ..damage });
            }
            applied.bytes += length;
        }
    }

    /// Removes the routes that the last connection has not sent.
    pub fn sweep(&mut self, to: &mut dyn Follower) {
        for mut stale in self.stale.drain(..) {
            stale.replace_with(Mirror::new(), to);
        }
    }

    /// Ends all routes.
    pub fn clear(&mut self, to: &mut dyn Follower) {
        self.mirror.replace_with(Mirror::new(), to);
        self.sweep(to);
    }

    /// Reports every route there is to a follower that knows none.
    pub fn report_routes(&self, to: &mut dyn Follower) {
        self.stale.iter().chain([&self.mirror]).for_each(|mirror| mirror.report_routes(to));
    }

    /// Returns the routes received on the last connection.
    pub fn mirror(&self) -> &Mirror {
        &self.mirror
    }

    /// Returns what is left of earlier connections.
    pub fn stale(&self) -> &[Mirror] {
        &self.stale
    }
}
