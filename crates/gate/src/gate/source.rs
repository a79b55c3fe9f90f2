//! Step 0: packets of sources on the allow-list or the block list, before everything else.
//!
//! Allowed sources are few, or the list is wrong, so each destination is looked up by itself.
//! Destinations of blocked sources are not looked up at all.

use super::families::{Families, src};
use super::{DropReason, GateCounters, Packet, RuleCounters, Verdict};
use crate::policy::sources::SourceClass;
use crate::policy::{Action, Policy, RuleId};

/// Sets the verdicts for packets of listed sources; returns a bit for each such packet.
pub(super) fn apply_lists(
    policy: &Policy,
    packets: &[Packet],
    verdicts: &mut [Verdict],
    counts: &mut GateCounters,
    ledger: &RuleCounters,
) -> u32 {
    let mut settled = 0u32;
    let mut record = |at: u8, class| {
        let Some(class) = class else { return };
        let at = usize::from(at);
        settled |= 1 << at;
        let line;
        (verdicts[at], line) = verdict(policy, &packets[at], class);
        counts.verdict(ledger, line, &verdicts[at], packets[at].bytes);
    };
    let sources = policy.sources();
    let mut families = Families::of(packets.iter().map(|packet| src(&packet.flow)));
    families.v4(|srcs, hops, of| sources.v4(srcs, hops, |at, class| record(of[at], class)));
    families.v6(|srcs, hops, of| sources.v6(srcs, hops, |at, class| record(of[at], class)));
    settled
}

/// Returns the verdict for a packet of a listed source, and the rule that counts it.
pub(super) fn verdict(policy: &Policy, packet: &Packet, class: SourceClass) -> (Verdict, RuleId) {
    if class == SourceClass::Blocked {
        return (Verdict::Drop(DropReason::Blocked), RuleId::NONE);
    }
    let (action, line) = policy.action_and_rule(&packet.flow);
    let verdict = match action {
        Some(Action::Grantors(set)) => {
            let grantor = policy.set(set).and_then(|set| set.pick(packet.hash));
            match grantor {
                Some(grantor) => Verdict::Allowed { grantor: grantor.address },
                None => Verdict::Drop(DropReason::NoGrantor),
            }
        }
        other => unprotected_verdict(other),
    };
    (verdict, line)
}

/// Returns the verdict for a packet to a destination without a grantor.
pub(super) fn unprotected_verdict(action: Option<Action>) -> Verdict {
    match action {
        Some(Action::Back) => Verdict::Back,
        Some(Action::Front) => Verdict::Front,
        Some(Action::Forged) => Verdict::Drop(DropReason::Forged),
        Some(_) => Verdict::Drop(DropReason::Policy),
        None => Verdict::NoRoute,
    }
}
