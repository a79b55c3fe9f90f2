//! The limits of ICMP errors (RFC 4443, 2.4 (f)), as Linux has them.
//!
//! They are set for all workers together, and each worker has its share. The worker applies them
//! (`icmp_errors.rs`); the control plane publishes changes of them with the settings of the ports (`ingress.rs`).

use wire::icmp;

/// The limits of ICMP errors, of all workers together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IcmpLimits {
    /// The maximum number a second of the types in the masks.
    pub rate: u32,
    /// The maximum number of those at once.
    pub burst: u32,
    /// The milliseconds between two such errors to one IPv4 destination; 0: no limit.
    pub interval_v4: u32,
    /// The same for IPv6.
    pub interval_v6: u32,
    /// The limited types of ICMP: a bit for each type below 32.
    pub mask_v4: u32,
    /// The limited types of ICMPv6.
    pub mask_v6: u32,
    /// The maximum number a second of other types.
    pub unmasked_rate: u32,
}

impl IcmpLimits {
    /// The defaults of Linux, and 100,000 a second of the types that it does not limit.
    pub const DEFAULT: Self = Self {
        rate: 1000,
        burst: 50,
        interval_v4: 1000,
        interval_v6: 1000,
        mask_v4: 1 << icmp::UNREACHABLE | 1 << icmp::TIME_EXCEEDED,
        mask_v6: 1 << icmp::V6_UNREACHABLE | 1 << icmp::V6_TIME_EXCEEDED,
        unmasked_rate: 100_000,
    };

    /// Returns the share of each of `workers` workers, rounded up. A destination has its limit with
    /// each worker.
    #[must_use]
    pub fn share(self, workers: usize) -> Self {
        let workers = u32::try_from(workers.max(1)).unwrap_or(u32::MAX);
        let share = |rate: u32| rate.div_ceil(workers);
        let (rate, burst, unmasked_rate) =
            (share(self.rate), share(self.burst), share(self.unmasked_rate));
        Self { rate, burst, unmasked_rate, ..self }
    }
}
