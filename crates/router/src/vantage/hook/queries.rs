//! Questions about flows, answered between batches.
//!
//! A list of all flows is made a part of the table a turn, so that no packet waits for it; an
//! answer that finds no room in the ring waits for the next turn.

use gate::state::{State, Traffic};

use super::GateHook;
use crate::vantage::rings::{Answer, Known, Question};

impl GateHook {
    /// Answers questions, as far as there is room for answers.
    pub(super) fn talk(&mut self) {
        while self.listing.is_none() && self.ends.answers.slots() >= 4 {
            let Ok((ticket, question)) = self.ends.questions.pop() else { break };
            match question {
                Question::Flows(most) => self.listing = Some((ticket, 0, most)),
                Question::About(flow) => {
                    let hash = self.key.hash(&flow);
                    if let Some(entry) = self.gate.table().find(&flow, hash) {
                        let known = self.known(entry);
                        let _ = self.ends.answers.push((ticket, Answer::Known(known)));
                    }
                    if let Some(first) = self.gate.first_seen_at(hash, self.now) {
                        let ago = self.now.saturating_sub(first);
                        let _ = self.ends.answers.push((ticket, Answer::Seen(ago)));
                    }
                    if let Some((verdict, when)) = self.last.of(hash) {
                        let ago = self.now.saturating_sub(when);
                        let _ = self.ends.answers.push((ticket, Answer::Dropped(verdict, ago)));
                    }
                    let _ = self.ends.answers.push((ticket, Answer::End));
                }
            }
        }
        self.list();
    }

    /// Goes on with a list, a part of the table a turn: some microseconds.
    fn list(&mut self) {
        const PART: usize = 64;
        const PARTS: usize = 16;
        for _ in 0..PARTS {
            let Some((ticket, next, mut left)) = self.listing else { return };
            if self.ends.answers.slots() <= PART {
                return;
            }
            let part = next..next + PART;
            for (entry, _) in self.gate.table().within(part.clone()) {
                if left == 0 {
                    break;
                }
                left -= 1;
                let known = self.known(entry);
                let _ = self.ends.answers.push((ticket, Answer::Known(known)));
            }
            let over = left == 0 || part.end >= self.gate.table().used();
            if over {
                let _ = self.ends.answers.push((ticket, Answer::End));
            }
            self.listing = (!over).then_some((ticket, part.end, left));
        }
    }

    fn known(&self, entry: u32) -> Known {
        let entry = self.gate.table().entry(entry);
        let (record, belongs) = (entry.record(), entry.binding());
        let (state, until, traffic) = match record.state() {
            // One that is over is a request with its next packet, and already here.
            State::Provisional if record.provisional_until() <= self.now => {
                (State::Request, record.expire_at(), Traffic::All)
            }
            State::Provisional => {
                (State::Provisional, record.provisional_until(), record.provisional_traffic())
            }
            state => (state, record.expire_at(), Traffic::All),
        };
        Known {
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
