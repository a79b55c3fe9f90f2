//! The `[punt]` section of the configuration of a router, gate or grantor: the limits of packets
//! per second that are punted to the kernel, by class (`datapath/punt.rs`).
//!
//! ```toml
//! [punt]
//! local = 20000        # for the router's own addresses, where they reach a worker; ARP, multicast
//! unreachable = 1000   # no route, TTL used up: packets that the router does not answer itself
//! too_big = 10000      # too long for the next link, and the router does not answer itself
//! options = 10000      # IPv4 options or hop-by-hop options: the kernel examines them, and forwards
//! redirect = 100       # the kernel forwards, and sends a Redirect where one is due
//! forward = 50000      # by routes that lead to the kernel; without it, no limit
//! ```
//!
//! The rates hold for the whole router; each worker has its share. 0 punts no packet. The default
//! of a gate's `options` and `redirect` is 0. Beyond these two rates the router itself forwards.

use serde::Deserialize;

use datapath::PuntRates;

/// The section as it is written in the file.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct PuntSection {
    local: Option<u32>,
    forward: Option<u32>,
    unreachable: Option<u32>,
    too_big: Option<u32>,
    options: Option<u32>,
    redirect: Option<u32>,
}

impl PuntSection {
    /// Returns the rates; missing ones have the value of `default`.
    pub fn rates(&self, default: PuntRates) -> PuntRates {
        let or = |rate: Option<u32>, default: u32| rate.unwrap_or(default);
        PuntRates {
            local: or(self.local, default.local),
            forward: or(self.forward, default.forward),
            unreachable: or(self.unreachable, default.unreachable),
            too_big: or(self.too_big, default.too_big),
            options: or(self.options, default.options),
            redirect: or(self.redirect, default.redirect),
        }
    }
}
