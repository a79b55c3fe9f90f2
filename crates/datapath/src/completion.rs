//! Completion: each frame of a batch, once its hop is known, is staged on its egress, or ends or waits.
//!
//! ```text
//!   frame, hop ─► refused? ─► rewrite ─► staged on its egress
//!                    └──────────┴ other verdict ─► Turn: held, punted or dropped
//! ```
//!
//! The loop is compiled three times, because most frames have no tag or one, and most batches are of one port
//! or VLAN device ([`Arrivals`]).

use port::{Arena, Frame};

use super::batch::Kind;
use super::icmp_errors::IcmpErrors;
use super::ingress::FrameIngress;
use super::punt::Policer;
use super::refusals::Refusals;
use super::rewrite::HostTask;
use super::turn::{Lane, Punts, Turn, rewrite, stage};
use super::vlan::TAG;
use super::{Adjacencies, Batch, Ingress, PuntClass, Verdict, WantSender};
use crate::capture::Point;
use crate::stats::WorkerStats;

/// The frames of a batch whose hops are known, and the parts of a worker that send or end them.
pub(super) struct Completion<'w> {
    pub(super) arena: &'w mut Arena,
    pub(super) lanes: &'w mut [Lane],
    pub(super) stats: &'w WorkerStats,
    pub(super) adjacencies: &'w Adjacencies,
    pub(super) wants: &'w mut WantSender,
    pub(super) policer: &'w mut Policer,
    pub(super) errors: &'w mut IcmpErrors,
    /// The settings of their port.
    pub(super) terms: &'w Ingress,
    pub(super) batch: &'w Batch,
    /// The frames that a check has refused.
    pub(super) refusals: &'w Refusals,
    pub(super) frames: &'w mut Vec<Frame>,
    pub(super) now: u64,
}

/// How the frames of a batch arrived.
pub(super) enum Arrivals<'w> {
    /// All without tags, on the port with this number.
    Untagged(u16),
    /// All with one tag, on the VLAN device with this number.
    Tagged(u16),
    /// Each by its own ingress; those of a later batch are moved to the second list.
    Listed(&'w [FrameIngress], &'w mut Vec<Frame>),
}

impl Completion<'_> {
    /// Stages the frames, or ends or holds them. Port `lane`, which is another one for a member of a bond,
    /// has received them.
    #[inline(always)]
    pub(super) fn complete(self, lane: usize, arrivals: Arrivals<'_>) {
        let mut none = Vec::new();
        match arrivals {
            Arrivals::Untagged(port) => {
                let ingress = || FrameIngress::untagged(port);
                self.complete_frames::<false>(lane, ingress, &mut none);
            }
            Arrivals::Tagged(port) => {
                let ingress = || FrameIngress::tagged(port, TAG, 0);
                self.complete_frames::<false>(lane, ingress, &mut none);
            }
            Arrivals::Listed(each, deferred) => {
                let mut each = each.iter();
                let none = FrameIngress::untagged(lane as u16);
                let ingress = || *each.next().unwrap_or(&none);
                self.complete_frames::<true>(lane, ingress, deferred);
            }
        }
    }

    /// Stages the frames, or ends or holds them, or moves those of a later batch, which only `LISTED` arrivals
    /// have, to `deferred`. `next_ingress` is called once for each frame, and compiled with the loop.
    #[inline(always)]
    fn complete_frames<const LISTED: bool>(
        self,
        lane: usize,
        mut next_ingress: impl FnMut() -> FrameIngress,
        deferred: &mut Vec<Frame>,
    ) {
        let Self { arena, lanes, stats, adjacencies, wants, policer, terms, batch, .. } = self;
        let Self { frames, errors, refusals, now, .. } = self;
        let (table, further, isolated) = (terms.table, terms.further, terms.isolated);
        let answers = terms.answers.map(|table| table.is_some());
        let is_isolated = isolated != [false; 2];
        let may_redirect = !is_isolated && terms.secondary_macs.is_empty();
        let has_refusals = !refusals.is_empty();
        for (at, (mut frame, (kind, hop))) in frames.drain(..).zip(batch.outcomes()).enumerate() {
            let ingress = next_ingress();
            if LISTED && kind == Kind::Deferred {
                deferred.push(frame);
                continue;
            }
            let (port, tags) = (ingress.port, ingress.tags());
            let refused = if has_refusals { refusals.get(at) } else { None };
            let host = |task| match task {
                HostTask::Options => !is_isolated && policer.take(PuntClass::Options),
                HostTask::Redirect(exit) => {
                    exit == port && may_redirect && policer.take(PuntClass::Redirect)
                }
            };
            let bytes = arena.bytes_mut(&frame);
            let rewritten = match refused {
                None => rewrite(bytes, tags, kind, hop, adjacencies, host),
                Some(verdict) => Err(verdict),
            };
            let verdict = match rewritten {
                Ok((exit, len)) => {
                    match stage(arena, lanes, adjacencies, frame, ingress, exit, len) {
                        Ok(()) => continue,
                        // An adjacency on a port that this worker does not have.
                        Err(refused) => {
                            frame = refused;
                            Verdict::NoRoute
                        }
                    }
                }
                Err(verdict) => verdict,
            };
            let kind = refused.map_or(kind, Kind::Done);
            arena.shrink_front(&mut frame, tags);
            if has_refusals && let Some(by) = refusals.rule(at) {
                // Refused without an ICMP error, and never punted.
                stats.end(arena, frame, verdict, Point::Refused(port, by));
                continue;
            }
            let (arena, lanes, wants) = (&mut *arena, &mut *lanes, &mut *wants);
            let errors = &mut *errors;
            let punts = Punts { policer: &mut *policer, further, isolated, answers, errors };
            Turn { arena, lanes, stats, adjacencies, wants, ingress, lane, table, punts, now }
                .hold_or_finish(frame, kind, hop, verdict);
        }
    }
}
