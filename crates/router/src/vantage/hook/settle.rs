//! What becomes of a packet by its verdict: it stays in the batch, ends, or waits for the link.
//!
//! ```text
//!   front ──────────────► stays in the batch
//!   dropped, no route ──► ended, with its flow's hash
//!   the rest ─► a place in Kept, a number in the Link ─► waits
//!                 └ none ──► ended, or another in its stead
//! ```
//!
//! What finds no place is counted as `low_priority` where it was a request, and as `link_full`
//! else.

use gate::flow::{Flow, Pair};
use gate::gate::{DropReason, Packet, Verdict as Judged};
use port::Frame;

use super::GateHook;
use crate::datapath::{Key, Verdict};
use crate::vantage::kept::{To, Waits};

/// What becomes of a packet.
pub(super) enum Settled {
    /// It is routed by its destination.
    Stays(Frame),
    /// It waits for the link.
    Kept,
    /// A packet of the flow with this hash, this one or another, has ended.
    Ended(Frame, u32, Verdict),
}

impl GateHook {
    /// Finds out what becomes of a packet by its verdict.
    pub(super) fn settle(&mut self, frame: Frame, packet: &Packet, judged: &Judged) -> Settled {
        let &Packet { ref flow, hash, .. } = packet;
        let ended = |frame, verdict| Settled::Ended(frame, hash, verdict);
        let (to, dscp) = match *judged {
            Judged::Front => return Settled::Stays(frame),
            Judged::NoRoute => return ended(frame, Verdict::NoRoute),
            Judged::Drop(DropReason::Blocked) => return ended(frame, Verdict::Blocked),
            Judged::Drop(DropReason::Declined) => return ended(frame, Verdict::Declined),
            Judged::Drop(DropReason::OverRate) => return ended(frame, Verdict::OverRate),
            Judged::Drop(DropReason::Policy) => return ended(frame, Verdict::Policy),
            Judged::Drop(DropReason::NoGrantor) => return ended(frame, Verdict::NoGrantor),
            Judged::Drop(DropReason::Program) => return ended(frame, Verdict::Program),
            Judged::Drop(DropReason::ProgramError) => return ended(frame, Verdict::ProgramError),
            Judged::Drop(DropReason::OverLimit) => return ended(frame, Verdict::OverLimit),
            Judged::Drop(DropReason::OverDestinationLimit) => {
                return ended(frame, Verdict::OverDestinationLimit);
            }
            Judged::Drop(DropReason::Proof) => return ended(frame, Verdict::Proof),
            Judged::Drop(DropReason::Forged) => return ended(frame, Verdict::Forged),
            Judged::Ask { .. } => return ended(frame, Verdict::SynCookie),
            Judged::Back => (To::Destination(key(flow)), 0),
            Judged::Granted { grantor, renew } => (To::Grantor(grantor), 1 + u8::from(renew)),
            Judged::Allowed { grantor } => (To::Grantor(grantor), 1),
            Judged::Direct { grantor } => (To::Direct(grantor), 1),
            Judged::Request { grantor, dscp } => (To::Grantor(grantor), dscp),
        };
        let asks = matches!(judged, Judged::Request { .. });
        let refused = if asks { Verdict::LowPriority } else { Verdict::LinkFull };
        // Requests have places of their own.
        let crowded = self.kept.len() - self.link.requests().len() >= self.others;
        let bytes = (frame.len() + self.outer_len(to)) as u32;
        if crowded && !asks {
            self.red_dropped += 1;
            return ended(frame, refused);
        }
        let number = match self.kept.put(Waits { frame, to, dscp, hash }) {
            Ok(number) => number,
            Err(waits) => return ended(waits.frame, refused),
        };
        let back = match judged {
            Judged::Request { .. } => self.link.enqueue_request(number, dscp, bytes),
            Judged::Granted { .. } | Judged::Allowed { .. } | Judged::Direct { .. } => {
                let back = self.link.enqueue_granted(number, destination(flow), bytes, self.now);
                self.red_dropped += u64::from(back.is_some());
                back
            }
            _ => self.link.enqueue_operational(number, bytes),
        };
        // Which may be another that had to go for it.
        match back.and_then(|number| self.kept.take(number)) {
            Some(waits) => Settled::Ended(waits.frame, waits.hash, refused),
            None => Settled::Kept,
        }
    }
}

fn key(flow: &Flow) -> Key {
    match flow.pair() {
        Pair::V4 { dst, .. } => Key::V4(dst),
        Pair::V6 { dst, .. } => Key::V6(dst),
    }
}

/// Returns what the queues of granted packets are chosen by.
fn destination(flow: &Flow) -> u128 {
    match flow.pair() {
        Pair::V4 { dst, .. } => dst.into(),
        Pair::V6 { dst, .. } => dst,
    }
}
