//! The reasons of drop notices: those of the specification that a verdict is one of.

use datapath::Verdict;

/// Any reason that has no number of its own.
const UNKNOWN: u32 = 256;

/// Returns the number of the reason for which packets with this verdict are dropped.
pub(super) fn reason(verdict: Verdict) -> u32 {
    match verdict {
        // ICMP Destination Unreachable: net, host; administratively prohibited.
        Verdict::NoRoute => 6,
        Verdict::UnreachableRoute => 1,
        Verdict::ProhibitRoute | Verdict::ForwardingOff => 13,
        Verdict::SourceRoute => 5,
        Verdict::TtlExpired => 257,
        Verdict::AclDenied | Verdict::Blocked => 258,
        Verdict::TxFull | Verdict::EgressQueueFull | Verdict::HandoverFull | Verdict::LinkFull => {
            259
        }
        Verdict::EgressQueueDelay => 260,
        Verdict::AclPoliced | Verdict::OverRate | Verdict::OverLimit => 261,
        Verdict::TooBig => 262,
        Verdict::Blackhole => 269,
        Verdict::MulticastSource => 273,
        Verdict::Loopback => 272,
        Verdict::BadChecksum
        | Verdict::BadVersion
        | Verdict::BadHeaderLength
        | Verdict::BadTotalLength
        | Verdict::Truncated => 275,
        Verdict::Unresolved => 279,
        Verdict::LinkLocal | Verdict::MartianDestination => 281,
        Verdict::TunnelForged | Verdict::TunnelReplayed => 282,
        _ => UNKNOWN,
    }
}
