//! Completion: each frame of a batch, once its hop is known, is staged on its egress, or ends or waits.
//!
//! ```text
//!   frame, hop ─► refused? ─► rewrite ─► staged on its egress
//!                    └──────────┴ other verdict ─► Turn: held, punted or dropped
//! ```
//!
//! The loop is compiled three times, because most ports have no VLAN devices, and most batches of those that
//! have some are of one device ([`Arrivals`]).

use port::{Arena, Frame};

use super::batch::Kind;
use super::icmp_errors::IcmpErrors;
use super::ingress::FrameIngress;
use super::punt::Policer;
use super::refusals::Refusals;
use super::rewrite::HostTask;
use super::turn::{Lane, Punts, Turn, rewrite, stage};
use super::{Adjacencies, Batch, Ingress, PuntClass, Verdict, WantSender};
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
    /// All alike.
    Alike(FrameIngress),
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
                let alike = FrameIngress::untagged(port);
                self.complete_frames::<false, false>(lane, alike, &[], &mut none);
            }
            Arrivals::Alike(alike) => {
                self.complete_frames::<true, false>(lane, alike, &[], &mut none);
            }
            Arrivals::Listed(each, deferred) => {
                let alike = FrameIngress::untagged(lane as u16);
                self.complete_frames::<true, true>(lane, alike, each, deferred);
            }
        }
    }

    /// Stages the frames, or ends or holds them. They are `TAGGED` or not, and either `LISTED` or arrived as
    /// `alike`.
    #[inline(always)]
    fn complete_frames<const TAGGED: bool, const LISTED: bool>(
        self,
        lane: usize,
        alike: FrameIngress,
        listed: &[FrameIngress],
        deferred: &mut Vec<Frame>,
    ) {
        let Self { arena, lanes, stats, adjacencies, wants, policer, terms, batch, .. } = self;
        let Self { frames, errors, refusals, now, .. } = self;
        let (table, further, isolated) = (terms.table, terms.further, terms.isolated);
        let answers = terms.answers.map(|table| table.is_some());
        let is_isolated = isolated != [false; 2];
        let may_redirect = !is_isolated && terms.secondary_macs.is_empty();
        let has_refusals = !refusals.is_empty();
        let mut listed = listed.iter();
        for (at, (mut frame, (kind, hop))) in frames.drain(..).zip(batch.outcomes()).enumerate() {
            let mut ingress = alike;
            if LISTED {
                ingress = *listed.next().unwrap_or(&ingress);
                if kind == Kind::Deferred {
                    deferred.push(frame);
                    continue;
                }
            }
            let FrameIngress { port, tags } = ingress;
            let tags = if TAGGED { usize::from(tags) } else { 0 };
            let refused = if has_refusals { refusals.get(at) } else { None };
            let kind = refused.map_or(kind, Kind::Done);
            let host = |task| match task {
                HostTask::Options => !is_isolated && policer.take(PuntClass::Options),
                HostTask::Redirect(exit) => {
                    exit == port && may_redirect && policer.take(PuntClass::Redirect)
                }
            };
            let bytes = arena.bytes_mut(&frame);
            let verdict = match rewrite(bytes, tags, kind, hop, adjacencies, host) {
                Ok((exit, len)) => {
                    match stage(arena, lanes, adjacencies, frame, tags, exit, len) {
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
            arena.shrink_front(&mut frame, tags);
            let (arena, lanes, wants) = (&mut *arena, &mut *lanes, &mut *wants);
            let errors = &mut *errors;
            let punts = Punts { policer: &mut *policer, further, isolated, answers, errors };
            Turn { arena, lanes, stats, adjacencies, wants, ingress, lane, table, punts, now }
                .hold_or_finish(frame, kind, hop, verdict);
        }
    }
}
