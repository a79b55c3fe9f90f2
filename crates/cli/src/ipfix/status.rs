//! The forwarding status of a flow (RFC 7270, 4.12): what became of its packets, and why.

use datapath::{Class, Verdict};

/// Returns the forwarding status of packets with this verdict: in the upper two bits forwarded,
/// dropped or consumed, and a reason.
pub(super) fn forwarding_status(verdict: Verdict) -> u8 {
    match verdict.class() {
        Class::Sent => 64,
        Class::Punted => match verdict {
            Verdict::OwnAddress | Verdict::Multicast | Verdict::Broadcast => 195,
            _ => 192,
        },
        Class::Dropped => match verdict {
            Verdict::AclDenied | Verdict::Blocked => 129,
            Verdict::NoRoute | Verdict::UnreachableRoute | Verdict::ProhibitRoute => 131,
            Verdict::Unresolved => 132,
            Verdict::TooBig => 133,
            Verdict::BadChecksum => 134,
            Verdict::BadTotalLength | Verdict::Truncated => 135,
            Verdict::BadHeaderLength => 136,
            Verdict::TtlExpired => 137,
            Verdict::AclPoliced | Verdict::OverRate | Verdict::OverLimit => 138,
            // WRED: CoDel drops early, too.
            Verdict::EgressQueueDelay => 139,
            Verdict::Spoofed => 140,
            _ => 128,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn status_is_of_the_class_of_the_verdict() {
        for verdict in Verdict::ALL {
            let class = match verdict.class() {
                Class::Sent => 1,
                Class::Dropped => 2,
                Class::Punted => 3,
            };
            assert_eq!(forwarding_status(verdict) >> 6, class, "{}", verdict.name());
        }
    }
}
