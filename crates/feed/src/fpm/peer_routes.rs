//! The routes of a peer over its connections: those sent on this one, and those that remain of
//! earlier ones.
//!
//! ```text
//!   connect ─► apply … apply ─► sweep          stale is empty
//!      └─ the mirror becomes a stale one; a prefix that is sent again leaves it
//! ```
//!
//! This module has neither sockets nor a clock, which [`Fpm`](super::Fpm) has; so a fuzzer can run
//! it.

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
    /// Creates empty state.
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

    /// Removes all routes.
    pub fn clear(&mut self, to: &mut dyn Follower) {
        self.mirror.replace_with(Mirror::new(), to);
        self.sweep(to);
    }

    /// Reports every route to a new follower.
    pub fn report_routes(&self, to: &mut dyn Follower) {
        self.stale.iter().chain([&self.mirror]).for_each(|mirror| mirror.report_routes(to));
    }

    /// Returns the routes received on the last connection.
    pub fn mirror(&self) -> &Mirror {
        &self.mirror
    }

    /// Returns the routes that remain of earlier connections.
    pub fn stale(&self) -> &[Mirror] {
        &self.stale
    }
}
