//! The priority of a request: the logarithm of its sender's waiting time.
//!
//! Requests compete with each other. The thesis (4.3.4) ranks them by patience, as Portcullis does
//! (Parno et al., SIGCOMM 2007) and without its puzzles: the priority of a packet is the floored
//! base-2 logarithm of the time since the previous packet of the same flow. Spoofed sources send
//! once, and a flood of them shares one low priority; an honest TCP client backs off exponentially,
//! and each of its retransmissions ranks above all first packets.
//!
//! The scale is that of the published gates, picoseconds, so that gates of both kinds and the
//! routers behind them rank alike:
//!
//! ```text
//!   gap        10 µs  100 µs  1 ms  10 ms  100 ms  1 s  2 s  60 s  13.3 d
//!   priority      23      26    29     33      36   39   40    45      60
//!   DSCP          26      29    32     36      39   42   43    48      63
//! ```
//!
//! **Allowance.** An application that sends a handful of packets at once is no attack. A packet
//! that arrives too early for the flow's priority may keep that priority [`ALLOWANCE`] times; then
//! the flow falls to the priority of its gaps. A new flow has [`FIRST`], which makes DSCP 41: just
//! below the 42 of a TCP retransmission after one second.
//!
//! **Lifetime.** Without a packet, a flow is forgotten 2^(priority + 4) ps after the last one that
//! earned its priority: 16 times its patience. Then it counts as new. The lifetime is at least
//! [`SHORTEST`]: packets of a batch have the same time and gaps of zero, and a flood's flow would
//! be new, with its first priority and its allowance, after every eighth of its packets.

/// The priority of a new flow: about 0.27 s.
pub const FIRST: u8 = 38;
/// Maximum number of early packets that keep the priority.
pub const ALLOWANCE: u8 = 7;
/// Minimum lifetime of a flow, in nanoseconds: that of gaps of 67 µs, which is more than lies
/// between two batches.
pub const SHORTEST: u64 = (1u64 << 30).div_ceil(1000);
/// The lowest DSCP of a request; 0 is operational, 1 granted, 2 granted and to be renewed.
pub const LOWEST_DSCP: u8 = 3;
/// The highest DSCP.
pub const HIGHEST_DSCP: u8 = 63;

/// Returns the priority of a packet that arrives `gap` nanoseconds after the previous one.
///
/// # Examples
///
/// ```
/// use fingerpost_gate::priority::{dscp, priority};
/// assert_eq!(dscp(priority(1_000_000_000)), 42);
/// assert_eq!(dscp(priority(2_000_000_000)), 43);
/// assert_eq!(priority(0), 0);
/// ```
#[inline]
pub fn priority(gap: u64) -> u8 {
    gap.saturating_mul(1000).checked_ilog2().unwrap_or(0) as u8
}

/// Returns the DSCP that a request of this priority carries.
#[inline]
pub fn dscp(priority: u8) -> u8 {
    priority.saturating_add(LOWEST_DSCP).min(HIGHEST_DSCP)
}

/// Returns the lifetime of a flow with this priority, in nanoseconds.
#[inline]
pub fn lifetime(priority: u8) -> u64 {
    (1u64 << priority.saturating_add(4).min(63)).div_ceil(1000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn priority_is_the_logarithm_of_the_wait() {
        const US: u64 = 1_000;
        const MS: u64 = 1_000 * US;
        const S: u64 = 1_000 * MS;
        let days = 13 * 86_400 * S + 86_400 * S * 4 / 10;
        let scale = [
            (10 * US, 26),
            (100 * US, 29),
            (MS, 32),
            (10 * MS, 36),
            (100 * MS, 39),
            (S, 42),
            (2 * S, 43),
            (4 * S, 44),
            (60 * S, 48),
            (days, 63),
            (u64::MAX, 63),
        ];
        for (gap, expect) in scale {
            assert_eq!(dscp(priority(gap)), expect, "{gap} ns");
        }
    }

    #[test]
    fn priority_begins_at_its_power_of_two() {
        for p in 10..54u8 {
            let begins = (1u64 << p).div_ceil(1000);
            assert_eq!(priority(begins), p);
            assert_eq!(priority(begins - 1), p - 1);
        }
    }

    #[test]
    fn new_flow_is_remembered_for_more_than_four_seconds() {
        assert_eq!(lifetime(FIRST), 4_398_046_512);
        assert_eq!(lifetime(63), lifetime(59));
    }
}
