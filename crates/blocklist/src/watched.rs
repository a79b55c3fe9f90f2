//! The prefixes whose packets are counted on request, each in a place of the filter.
//!
//! A request for a prefix begins to count, or continues. If all places are taken, the prefix that was requested
//! longest ago makes room; one without a request for [`IDLE`] is given up.

use std::io;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use feed::AnyPrefix;
use xdp::Blocker;
use xdp::block::count::Count;
use xdp::block::watch::MAX_WATCHES;

/// The time after the last request at which counting ends.
const IDLE: Duration = Duration::from_secs(600);

/// A prefix whose packets are counted.
#[derive(Clone, Copy, Debug)]
struct Watch {
    prefix: AnyPrefix,
    begin: Instant,
    requested: Instant,
}

/// The prefixes by place.
#[derive(Debug, Default)]
pub(crate) struct WatchedPrefixes([Option<Watch>; MAX_WATCHES]);

impl WatchedPrefixes {
    /// Returns the packets from `prefix` about which lists have decided, and since when.
    ///
    /// # Errors
    ///
    /// Those of `bpf(2)`.
    pub(crate) fn count(
        &mut self,
        prefix: AnyPrefix,
        blocker: &Blocker,
    ) -> io::Result<(Count, Duration)> {
        let now = Instant::now();
        let known = self.0.iter().position(|watch| watch.is_some_and(|w| w.prefix == prefix));
        if let Some(slot) = known
            && let Some(watch) = &mut self.0[slot]
        {
            watch.requested = now;
            return Ok((blocker.watched(slot)?, watch.begin.elapsed()));
        }
        let free = self.0.iter().position(Option::is_none);
        let oldest = || (0..MAX_WATCHES).min_by_key(|&slot| self.0[slot].map(|w| w.requested));
        let slot = free.or_else(oldest).unwrap_or(0);
        self.0[slot] = None;
        let addr: (IpAddr, u32) = match prefix {
            AnyPrefix::V4(prefix) => (IpAddr::V4(prefix.addr().into()), prefix.len()),
            AnyPrefix::V6(prefix) => (IpAddr::V6(prefix.addr().into()), prefix.len()),
        };
        blocker.watch(slot, Some(addr))?;
        let begin = Instant::now();
        self.0[slot] = Some(Watch { prefix, begin, requested: begin });
        Ok((Count::default(), Duration::ZERO))
    }

    /// Gives up prefixes without a recent request.
    pub(crate) fn expire(&mut self, blocker: &Blocker) {
        for (slot, watch) in self.0.iter_mut().enumerate() {
            if watch.is_some_and(|watch| watch.requested.elapsed() >= IDLE)
                && blocker.watch(slot, None).is_ok()
            {
                *watch = None;
            }
        }
    }
}
