//! Writes a line of the log for each event of links and feeds.
//!
//! ```text
//!   a turn of the control thread ─► Reporter ─► compared with the state last reported ─► log
//! ```
//!
//! An operator needs to see in the log when a link went down and when messages were lost, but no
//! line for each route. Reports compare the state after each turn: a link that went down and up
//! again within one turn is not reported, nor did it lose any packet. Events that others can cause
//! at any rate are reported once in `LOG_INTERVAL` with their number ([`LogLimiter`]).

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use super::plane::{PlanePort, Ports};
use api;

/// The minimum interval between two lines about events that others cause.
const LOG_INTERVAL: Duration = Duration::from_secs(60);

/// The state as last reported.
#[derive(Debug, Default)]
pub(super) struct Reporter {
    links: BTreeMap<u32, PlanePort>,
    /// For IPv4 and for IPv6: the kernel's forwarding is off, by interface.
    forwarding_off: BTreeMap<u32, [bool; 2]>,
    errors: u64,
    error_limiter: LogLimiter,
}

/// The overruns and resynchronizations of each feed.
pub(super) type FeedCounts = [(u64, u64); 2];

/// The feeds' names, in the order of [`FeedCounts`].
pub(super) const FEEDS: [&str; 2] = ["kernel", "fpm"];

impl Reporter {
    /// Reports changes of the ports since the last call.
    pub(super) fn report_links(&mut self, ports: &Ports) {
        for port in ports.iter() {
            if let Some(before) = self.links.get(&port.interface)
                && before != port
            {
                for line in changes(before, port) {
                    let interface = port.name.as_str();
                    if before.up && !port.up {
                        log::warn!(interface; "{line}");
                    } else {
                        log::info!(interface; "{line}");
                    }
                }
            }
            if self.links.get(&port.interface) != Some(port) {
                self.links.insert(port.interface, port.clone());
            }
        }
        self.links.retain(|index, _| ports.get(*index).is_some());
    }

    /// Reports that the kernel's forwarding is off for a port, and that it is on again.
    pub(super) fn report_forwarding(&mut self, ports: &Ports) {
        for port in ports.iter() {
            let now = ports.forwarding_off(port);
            let before = self.forwarding_off.insert(port.interface, now).unwrap_or_default();
            for (family, (was_off, is_off)) in ["IPv4", "IPv6"].iter().zip(before.iter().zip(now)) {
                let name = &port.name;
                match (was_off, is_off) {
                    (false, true) => log::warn!(
                        interface = name.as_str(), family = *family;
                        "link {name}: forwarding of {family} is off in the kernel, and its packets are dropped"
                    ),
                    (true, false) => log::info!(
                        interface = name.as_str(), family = *family;
                        "link {name}: forwarding of {family} is on"
                    ),
                    _ => {}
                }
            }
        }
        self.forwarding_off.retain(|index, _| ports.get(*index).is_some());
    }

    /// Reports overruns and resynchronizations of the feeds between two counts.
    pub(super) fn report_feeds(before: &FeedCounts, now: &FeedCounts) {
        for (feed, (before, now)) in FEEDS.iter().zip(before.iter().zip(now)) {
            if before.0 != now.0 {
                let total = now.0;
                log::warn!(feed = *feed, total; "{feed}: socket buffer full, messages lost ({total} times so far)");
            }
            if before.1 != now.1 {
                let total = now.1;
                log::info!(feed = *feed, total; "{feed}: all routes read again ({total} times so far)");
            }
        }
    }

    /// Reports requests that the system refused.
    pub(super) fn report_errors(&mut self, count: u64, last: Option<&str>) {
        let more = count.saturating_sub(self.errors);
        self.errors = count;
        if more > 0
            && let Some(times) = self.error_limiter.count(more, Instant::now())
            && let Some(last) = last
        {
            log::warn!(times, reason = last; "the system refused a request, {times} times: {last}");
        }
    }
}

/// Describes the changes of a port, a line each.
fn changes(before: &PlanePort, now: &PlanePort) -> Vec<String> {
    let name = &now.name;
    let mut lines = Vec::new();
    if before.name != *name {
        lines.push(format!("link {}: renamed to {name}", before.name));
    }
    if before.up != now.up {
        lines.push(format!("link {name}: {}", if now.up { "up" } else { "down" }));
    }
    if before.mtu != now.mtu {
        lines.push(format!("link {name}: MTU {}, before {}", now.mtu, before.mtu));
    }
    if before.mac != now.mac {
        let (before, now) = (api::mac(before.mac), api::mac(now.mac));
        lines.push(format!("link {name}: MAC {now}, before {before}"));
    }
    let (old, new) = (before.secondary_macs(), now.secondary_macs());
    for &mac in new.iter().filter(|mac| !old.contains(mac)) {
        lines.push(format!(
            "link {name}: receives packets to the MAC-VLAN device {}",
            api::mac(mac)
        ));
    }
    for &mac in old.iter().filter(|mac| !new.contains(mac)) {
        lines.push(format!("link {name}: no MAC-VLAN device {} any more", api::mac(mac)));
    }
    lines
}

/// Limits the rate of lines about frequent events.
#[derive(Debug, Default)]
pub struct LogLimiter {
    reported: Option<Instant>,
    since: u64,
}

impl LogLimiter {
    /// Counts events; if a line is due, returns the number of events since the last one.
    pub fn count(&mut self, times: u64, now: Instant) -> Option<u64> {
        self.since += times;
        let due = self.reported.is_none_or(|at| now.saturating_duration_since(at) >= LOG_INTERVAL);
        due.then(|| {
            self.reported = Some(now);
            std::mem::take(&mut self.since)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn port() -> PlanePort {
        PlanePort {
            mac: [2, 0, 0, 0, 0, 1],
            mtu: 1500,
            up: true,
            enabled: true,
            ..PlanePort::new(7, "eth0")
        }
    }

    #[test]
    fn each_changed_property_of_a_link_is_one_line() {
        let before = port();
        assert!(changes(&before, &PlanePort { table: 1, ..port() }).is_empty());
        let now = PlanePort {
            name: "wan".into(),
            up: false,
            mtu: 9000,
            mac: [2, 0, 0, 0, 0, 2],
            ..port()
        };
        let lines = [
            "link eth0: renamed to wan",
            "link wan: down",
            "link wan: MTU 9000, before 1500",
            "link wan: MAC 02:00:00:00:00:02, before 02:00:00:00:00:01",
        ];
        assert_eq!(changes(&before, &now), lines);
    }

    #[test]
    fn frequent_events_are_reported_once_a_minute_with_their_number() {
        let (mut limiter, begin) = (LogLimiter::default(), Instant::now());
        let at = |seconds| begin + Duration::from_secs(seconds);
        assert_eq!(limiter.count(1, at(0)), Some(1));
        assert_eq!((1..60).find_map(|second| limiter.count(2, at(second))), None);
        assert_eq!(limiter.count(1, at(60)), Some(119));
        assert_eq!(limiter.count(1, at(61)), None);
    }
}
