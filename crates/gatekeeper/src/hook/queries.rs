//! Replies to queries about flows, between batches.
//!
//! A list of all flows is made from one part of the table in each turn, so that no packet waits for
//! it. A reply that finds the ring full waits for the next turn.

use gate::state::{State, Traffic};

use super::GateHook;
use crate::rings::{FlowEntry, Query, QueryReply};

/// A list of flows that is being sent.
#[derive(Clone, Copy)]
pub(super) struct FlowList {
    /// The number of the query.
    ticket: u32,
    /// The next entry of the table.
    next: usize,
    /// Flows that may still be sent.
    left: u32,
}

impl GateHook {
    /// Answers queries as far as the reply ring has room.
    pub(super) fn answer_queries(&mut self) {
        while self.listing.is_none() && self.rings.replies.slots() >= 4 {
            let Ok((ticket, query)) = self.rings.queries.pop() else { break };
            match query {
                Query::Flows(most) => self.listing = Some(FlowList { ticket, next: 0, left: most }),
                Query::Flow(flow) => {
                    let hash = self.key.hash(&flow);
                    if let Some(entry) = self.gate.table().find(&flow, hash) {
                        let entry = self.flow_entry(entry);
                        let _ = self.rings.replies.push((ticket, QueryReply::Entry(entry)));
                    }
                    if let Some(first) = self.gate.first_seen_at(hash, self.now) {
                        let ago = self.now.saturating_sub(first);
                        let _ = self.rings.replies.push((ticket, QueryReply::FirstSeen(ago)));
                    }
                    if let Some((verdict, when)) = self.recent_drops.find(hash) {
                        let ago = self.now.saturating_sub(when);
                        let _ =
                            self.rings.replies.push((ticket, QueryReply::Dropped(verdict, ago)));
                    }
                    let _ = self.rings.replies.push((ticket, QueryReply::End));
                }
            }
        }
        self.continue_list();
    }

    /// Continues a list with the next parts of the table, which takes some microseconds.
    fn continue_list(&mut self) {
        const PART: usize = 64;
        const PARTS: usize = 16;
        for _ in 0..PARTS {
            let Some(FlowList { ticket, next, mut left }) = self.listing else { return };
            if self.rings.replies.slots() <= PART {
                return;
            }
            let part = next..next + PART;
            for (entry, _) in self.gate.table().within(part.clone()) {
                if left == 0 {
                    break;
                }
                left -= 1;
                let entry = self.flow_entry(entry);
                let _ = self.rings.replies.push((ticket, QueryReply::Entry(entry)));
            }
            let is_complete = left == 0 || part.end >= self.gate.table().used();
            if is_complete {
                let _ = self.rings.replies.push((ticket, QueryReply::End));
            }
            self.listing = (!is_complete).then_some(FlowList { ticket, next: part.end, left });
        }
    }

    fn flow_entry(&self, entry: u32) -> FlowEntry {
        let entry = self.gate.table().entry(entry);
        let (record, belongs) = (entry.record(), entry.binding());
        let (state, until, traffic) = match record.state() {
            // After its expiry the flow's next packet makes it a request: it is reported as one.
            State::Provisional if record.provisional_until() <= self.now => {
                (State::Request, record.expire_at(), Traffic::All)
            }
            State::Provisional => {
                (State::Provisional, record.provisional_until(), record.provisional_traffic())
            }
            state => (state, record.expire_at(), Traffic::All),
        };
        FlowEntry {
            flow: entry.flow(),
            state,
            program: record.program(),
            left: until.saturating_sub(self.now),
            traffic,
            idle: self.now.saturating_sub(record.last_seen()),
            priority: record.priority(),
            set: belongs.set,
            generation: belongs.generation,
            budget: record.budget(self.now),
            renewal: record.next_renewal_at().saturating_sub(self.now),
            stamp: record.stamp(),
        }
    }
}
