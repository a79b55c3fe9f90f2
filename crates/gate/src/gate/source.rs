//! Step 0: packets of sources on the allow-list or the block list, before everything else.
//!
//! Who is allowed is one of few, or the list is wrong: his destination is looked up by itself.
//! Destinations of who is blocked are not looked up at all.

use super::families::{Families, src};
use super::{Counts, Ledger, Line, Packet, Reason, Verdict};
use crate::policy::sources::Source;
use crate::policy::{Action, Policy};

/// Gives packets of sources on a list their verdicts; returns which they are, a bit for each.
pub(super) fn settle(
    policy: &Policy,
    packets: &[Packet],
    verdicts: &mut [Verdict],
    counts: &mut Counts,
    ledger: &Ledger,
) -> u32 {
    let mut settled = 0u32;
    let mut say = |at: u8, said| {
        let Some(said) = said else { return };
        let at = usize::from(at);
        settled |= 1 << at;
        let line;
        (verdicts[at], line) = one(policy, &packets[at], said);
        counts.verdict(ledger, line, &verdicts[at], packets[at].bytes);
    };
    let sources = policy.sources();
    let mut families = Families::of(packets.iter().map(|packet| src(&packet.flow)));
    families.v4(|srcs, hops, of| sources.v4(srcs, hops, |at, said| say(of[at], said)));
    families.v6(|srcs, hops, of| sources.v6(srcs, hops, |at, said| say(of[at], said)));
    settled
}

/// Says what becomes of a packet of a source of which this is said, and where it counts.
pub(super) fn one(policy: &Policy, packet: &Packet, said: Source) -> (Verdict, Line) {
    if said == Source::Blocked {
        return (Verdict::Drop(Reason::Blocked), Line::NONE);
    }
    let (action, line) = policy.ruled(&packet.flow);
    let verdict = match action {
        Some(Action::Grantors(set)) => {
            let grantor = policy.set(set).and_then(|set| set.pick(packet.hash));
            match grantor {
                Some(grantor) => Verdict::Allowed { grantor: grantor.address },
                None => Verdict::Drop(Reason::NoGrantor),
            }
        }
        other => past(other),
    };
    (verdict, line)
}

/// Says what becomes of a packet to a destination that no grantor is asked about.
pub(super) fn past(action: Option<Action>) -> Verdict {
    match action {
        Some(Action::Back) => Verdict::Back,
        Some(Action::Front) => Verdict::Front,
        Some(Action::Forged) => Verdict::Drop(Reason::Forged),
        Some(_) => Verdict::Drop(Reason::Policy),
        None => Verdict::NoRoute,
    }
}
