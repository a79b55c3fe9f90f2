//! Step 0: packets of sources on the allow-list, before everything else.
//!
//! They are few, or the list is wrong: their destinations are looked up one by one.

use super::families::{Families, src};
use super::{Counts, Packet, Reason, Verdict};
use crate::policy::{Action, Policy};

/// Gives packets of allowed sources their verdicts; returns which they are, a bit for each.
pub(super) fn pass(
    policy: &Policy,
    packets: &[Packet],
    verdicts: &mut [Verdict],
    counts: &mut Counts,
) -> u32 {
    let mut passed = 0u32;
    let mut families = Families::of(packets.iter().map(|packet| src(&packet.flow)));
    families.v4(|srcs, hops, of| {
        policy.allowed_v4(srcs, hops, |at, allowed| passed |= u32::from(allowed) << of[at]);
    });
    families.v6(|srcs, hops, of| {
        policy.allowed_v6(srcs, hops, |at, allowed| passed |= u32::from(allowed) << of[at]);
    });
    let mut left = passed;
    while left != 0 {
        let at = left.trailing_zeros() as usize;
        left &= left - 1;
        verdicts[at] = one(policy, &packets[at]);
        counts.verdict(&verdicts[at], packets[at].bytes);
    }
    passed
}

/// Says what becomes of a packet of an allowed source.
pub(super) fn one(policy: &Policy, packet: &Packet) -> Verdict {
    match policy.action(&packet.flow) {
        Some(Action::Grantors(set)) => {
            let grantor = policy.set(set).and_then(|set| set.pick(packet.hash));
            match grantor {
                Some(grantor) => Verdict::Allowed { grantor: grantor.address },
                None => Verdict::Drop(Reason::NoGrantor),
            }
        }
        other => past(other),
    }
}

/// Says what becomes of a packet to a destination that no grantor is asked about.
pub(super) fn past(action: Option<Action>) -> Verdict {
    match action {
        Some(Action::Back) => Verdict::Back,
        Some(Action::Front) => Verdict::Front,
        Some(_) => Verdict::Drop(Reason::Policy),
        None => Verdict::NoRoute,
    }
}
