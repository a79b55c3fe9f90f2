//! A worker between its turns: its clock, the losses of its ports, what waits, and its end.
//!
//! ```text
//!   tick ─► packets that have waited for too long end
//!   count_losses ─► what the ports have lost is received and dropped
//!   retire ─► polls until the ports are empty ─► close, or suspend for the next worker
//! ```

use std::sync::Arc;

use port::{Arena, Port, PortStats};

use super::{SuspendedState, Worker};
use crate::batch::SIZE;
use crate::capture::Point;
use crate::hold::Held;
use crate::icmp_errors::{Admission, Pending};
use crate::rewrite::decrement_ttl;
use crate::stats::WorkerStats;
use crate::turn::Lane;
use crate::{PacketHook, Verdict};

impl<L> Worker<L> {
    /// Advances the worker's clock by one [`TICK`](super::TICK), and applies the published limits of ICMP
    /// errors. Packets that have waited for about a second end.
    pub fn tick(&mut self) {
        self.now += 1;
        self.punts.tick();
        if let Some(limits) = self.ingresses.current().icmp_limits() {
            self.errors.set_limits(limits);
        }
        let Self { lanes, arena, errors, stats, now, .. } = self;
        for (number, lane) in lanes.iter_mut().enumerate() {
            while let Some(Held { frame, ingress, own, .. }) = lane.hold.expired(*now) {
                let verdict = Verdict::Unresolved;
                let bytes = arena.bytes(&frame);
                let admission = if own {
                    Admission::Silent
                } else {
                    errors.admit(bytes, verdict, || 0, *now, stats)
                };
                let refused = match admission {
                    Admission::Answer { reason, to } => {
                        let lane = number;
                        // As by Linux, which resolves the next hop after it.
                        decrement_ttl(arena.bytes_mut(&frame));
                        errors.push(Pending { frame, verdict, ingress, lane, reason, to }).err()
                    }
                    Admission::Host | Admission::Silent => Some(frame),
                };
                if let Some(frame) = refused {
                    stats.end(arena, frame, verdict, Point::Ingress(ingress.port));
                }
            }
        }
        self.publish_held();
    }

    /// Counts the packets that the ports have lost since `before`, and stores their present
    /// counters there, so that the worker's counters include every packet that arrived for it.
    pub fn count_losses(&mut self, before: &mut Vec<PortStats>) {
        before.resize_with(self.lanes.len(), PortStats::default);
        for (lane, before) in self.lanes.iter().zip(before) {
            let now = lane.port.stats();
            for (verdict, was, is) in [
                (Verdict::RxRingFull, before.rx_ring_full, now.rx_ring_full),
                (Verdict::FillEmpty, before.fill_empty, now.fill_empty),
                (Verdict::RxDropped, before.rx_dropped, now.rx_dropped),
            ] {
                self.stats.lost(verdict, is.saturating_sub(was));
            }
            let invalid = now.tx_invalid.saturating_sub(before.tx_invalid);
            self.stats.unsent(Verdict::TxInvalid, invalid);
            *before = now;
        }
    }

    /// Stops the ports from accepting packets; those that they have accepted arrive with the next
    /// polls.
    pub fn retire(&mut self) {
        self.lanes.iter_mut().for_each(|lane| lane.port.retire());
    }

    /// Ends the packets that wait: the last call to a worker. Dropping a worker does the same.
    pub fn close(&mut self) {
        for lane in &mut self.lanes {
            while let Some(held) = lane.hold.pop() {
                let point = Point::Ingress(held.ingress.port);
                self.stats.end(&mut self.arena, held.frame, Verdict::Unresolved, point);
            }
        }
        for Lane { queueing, port, .. } in &mut self.lanes {
            if let Some(queueing) = queueing {
                queueing.close(&mut self.arena, &mut **port, &self.stats);
            }
        }
        let mut unanswered = self.errors.take();
        for pending in unanswered.drain(..) {
            let point = Point::Ingress(pending.ingress.port);
            self.stats.end(&mut self.arena, pending.frame, pending.verdict, point);
        }
        self.errors.restore(unanswered);
        if let Some(egress) = &mut self.egress {
            egress.hook.packets.close(&mut self.arena, &self.stats);
        }
        self.publish_held();
    }

    /// Ends the packets that wait, and returns the parts that continue with another worker: the
    /// hook, and the port by which other workers hand packets over.
    pub fn suspend(mut self) -> SuspendedState {
        let mut hook = self.egress.take().map(|egress| egress.hook);
        if let Some(hook) = &mut hook {
            hook.packets.drop_queued(&mut self.arena, &self.stats);
        }
        let handed = self.lanes.iter().position(|lane| lane.handed);
        let handed = handed.map(|at| {
            let lane = &mut self.lanes[at];
            while let Some(held) = lane.hold.pop() {
                let point = Point::Ingress(held.ingress.port);
                self.stats.end(&mut self.arena, held.frame, Verdict::Unresolved, point);
            }
            self.lanes.remove(at).port
        });
        self.close();
        SuspendedState { hook, handed }
    }

    /// Ends a worker whose turn has panicked: its ports send the packets that they have accepted and receive no more.
    /// Returns what [`suspend`](Self::suspend) returns. Packets that have no verdict yet, also those that waited in
    /// the ports, get one by
    /// [`WorkerStats::abandon`]; the bytes of those that were not counted yet stay uncounted.
    pub fn abandon(mut self) -> SuspendedState {
        let uncounted = self.turn_end.saturating_sub(self.stats.packets_received());
        if uncounted > 0 {
            self.stats.received(uncounted, 0);
        }
        self.retire();
        for lane in self.lanes.iter_mut().filter(|lane| !lane.handed) {
            // More than a port can hold, so that one that never ends does not matter.
            for _ in 0..1024 {
                self.frames.clear();
                let waiting = lane.port.receive(&mut self.arena, SIZE, &mut self.frames);
                if waiting == 0 {
                    break;
                }
                let lengths = self.frames.iter().map(|frame| frame.len() as u64);
                self.stats.received(waiting as u64, lengths.sum());
            }
            lane.port.flush(&mut self.arena);
        }
        self.suspend()
    }

    pub(super) fn hook(&self) -> Option<&dyn PacketHook> {
        self.egress.as_ref().map(|egress| &*egress.hook.packets)
    }

    /// Returns how many packets wait: for a neighbor's MAC address, for an ICMP error, in a hook's
    /// queues, or for their link.
    pub fn held(&self) -> usize {
        let queued = self.hook().map_or(0, |hook| hook.queued());
        let lanes = self.lanes.iter().map(|lane| {
            lane.hold.len() + lane.queueing.as_ref().map_or(0, |queueing| queueing.len())
        });
        queued + self.errors.len() + lanes.sum::<usize>()
    }

    /// Returns whether the worker needs another turn soon, even if no packet arrives.
    pub fn is_busy(&self) -> bool {
        self.held() > 0 || self.hook().is_some_and(|hook| hook.has_pending_work())
    }

    #[inline]
    pub(super) fn publish_held(&mut self) {
        let held = self.held();
        if held != self.held {
            self.held = held;
            self.stats.holds(held as u64);
        }
    }

    /// Returns the ports in the order of their numbers in adjacencies, then the further queues of
    /// ports; the port by which other workers hand packets over is the last.
    pub fn ports(&self) -> impl Iterator<Item = &dyn Port> {
        self.lanes.iter().map(|lane| &*lane.port)
    }

    /// Returns the arena.
    pub fn arena(&self) -> &Arena {
        &self.arena
    }

    /// Returns the counters.
    pub fn stats(&self) -> &Arc<WorkerStats> {
        &self.stats
    }
}
