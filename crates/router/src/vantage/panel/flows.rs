//! What workers know of flows: asked of each, put together with what the rules say.
//!
//! ```text
//!   client's thread ── Question ──► worker, worker, …      each looks between two batches
//!                   ◄── Answers ──                         known, seen, dropped; End
//! ```

use std::net::IpAddr;
use std::time::{Duration, Instant};

use gate::flow::{Flow, Pair};
use gate::state::{State, Traffic};

use super::told::{FlowTold, OutcomeTold};
use super::{Panel, Talks, lock};
use crate::datapath::Verdict;
use crate::vantage::config::{Rule, Rules};
use crate::vantage::rings::{Answer, Known, Question};

/// How long a worker may take to answer.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long a worker is left alone between two looks for an answer.
const LOOK: Duration = Duration::from_millis(1);

impl Panel {
    /// Puts a question to every worker.
    fn ask(&self, question: Question) -> Result<Vec<Answer>, String> {
        let mut talks = lock(&self.talks);
        let Talks { each, ticket } = &mut *talks;
        *ticket = ticket.wrapping_add(1);
        let ticket = *ticket;
        let mut answers = Vec::new();
        for talk in each {
            let gone = || "a worker does not answer".to_owned();
            talk.questions.push((ticket, question)).map_err(|_| gone())?;
            let mut heard = Instant::now();
            loop {
                match talk.answers.pop() {
                    // Of a question that nobody waited for any more.
                    Ok((of, _)) if of != ticket => {}
                    Ok((_, Answer::End)) => break,
                    Ok((_, answer)) => {
                        answers.push(answer);
                        heard = Instant::now();
                    }
                    Err(_) if heard.elapsed() > PATIENCE => return Err(gone()),
                    Err(_) => std::thread::sleep(LOOK),
                }
            }
        }
        Ok(answers)
    }

    /// Says what is known of a flow.
    pub(crate) fn flow(&self, src: IpAddr, dst: IpAddr) -> Result<FlowTold, String> {
        let flow = match (src, dst) {
            (IpAddr::V4(src), IpAddr::V4(dst)) => Flow::v4(src.into(), dst.into()),
            (IpAddr::V6(src), IpAddr::V6(dst)) => Flow::v6(src.into(), dst.into()),
            _ => return Err(format!("{src} and {dst} are of different families")),
        };
        let answers = self.ask(Question::About(flow))?;
        let (rules, generation) = self.ruling();
        let known = answers.iter().find_map(|it| match it {
            Answer::Known(known) => Some(known),
            _ => None,
        });
        let dropped = answers.iter().find_map(|it| match it {
            Answer::Dropped(verdict, ago) => Some((verdict.name(), *ago)),
            _ => None,
        });
        let seen = answers.iter().find_map(|it| match it {
            Answer::Seen(ago) => Some(seconds(*ago)),
            _ => None,
        });
        let mut status = match known {
            Some(known) => tell(known, &rules, generation),
            None => FlowTold::unknown(src, dst, generation),
        };
        status.allowed = rules.allowing(src).map(|prefix| prefix.to_string());
        status.blocked = rules.blocking(src).map(|prefix| prefix.to_string());
        for (state, prefix) in [("allowed", &status.allowed), ("blocked", &status.blocked)] {
            if prefix.is_some() && known.is_none() {
                status.state = state.to_owned();
            }
        }
        if rules.is_forged(src, dst) && status.blocked.is_none() {
            status.state = Verdict::Forged.name().to_owned();
        }
        if let Some(&Rule { prefix, action, line, limit, per_destination_limit, .. }) =
            rules.find(dst)
        {
            status.rule = Some(prefix.to_string());
            (status.limit, status.per_destination_limit) = (limit, per_destination_limit);
            status.action = Some(rules.words(action));
            status.line = Some(line);
        }
        let candidate = rules.candidate.as_deref();
        status.candidate =
            candidate.map(|outcome| OutcomeTold::of(outcome, Some(&rules), src, dst));
        status.first_seen_ago = seen.filter(|_| known.is_none());
        let cookies = self.fixed.admission.is_some_and(|a| a.syn_cookie_rate.is_some());
        status.address_validation = (cookies && known.is_none()).then(|| "syn-cookie".to_owned());
        let blocked = status.blocked.is_some() && self.blocked.has(src);
        status.xdp_dropped = blocked || status.blocked.is_none() && self.decisions.is_early(&flow);
        status.version = rules.version.clone();
        status.dropped = dropped.map(|(name, _)| name.to_owned());
        status.last_drop_ago = dropped.map(|(_, ago)| seconds(ago));
        if status.xdp_dropped {
            let why = if blocked { Verdict::Blocked } else { Verdict::Declined };
            status.dropped = Some(why.name().to_owned());
            status.last_drop_ago = None;
        }
        Ok(status)
    }

    /// Lists flows, at most so many of a worker.
    pub(crate) fn flows(&self, most: u32) -> Result<Vec<FlowTold>, String> {
        let answers = self.ask(Question::Flows(most))?;
        let (rules, generation) = self.ruling();
        let known = answers.iter().filter_map(|it| match it {
            Answer::Known(known) => Some(tell(known, &rules, generation)),
            _ => None,
        });
        Ok(known.collect())
    }
}

fn seconds(nanoseconds: u64) -> f64 {
    nanoseconds as f64 / 1e9
}

fn tell(known: &Known, rules: &Rules, generation: u64) -> FlowTold {
    let (src, dst): (IpAddr, IpAddr) = match known.flow.pair() {
        Pair::V4 { src, dst } => (IpAddr::V4(src.into()), IpAddr::V4(dst.into())),
        Pair::V6 { src, dst } => (IpAddr::V6(src.into()), IpAddr::V6(dst.into())),
    };
    let over = known.left == 0;
    let state = match known.state {
        _ if over => "Expired".to_owned(),
        State::Provisional => "Declined".to_owned(),
        state => format!("{state:?}"),
    };
    let traffic = match known.traffic {
        Traffic::All => None,
        Traffic::Protocol(protocol) => Some(format!("protocol {protocol}")),
        Traffic::Port { protocol, port } => Some(format!("protocol {protocol}, port {port}")),
    };
    let granted = known.state == State::Granted && !over;
    let decided = known.state != State::Request && known.stamp.sender != 0;
    FlowTold {
        state: state.to_lowercase(),
        expires: Some(seconds(known.left)),
        traffic,
        program: (known.state == State::Program && !over).then_some(known.program),
        priority: (known.state == State::Request).then_some(known.priority),
        last_request_ago: (known.state == State::Request).then(|| seconds(known.idle)),
        budget: granted.then_some(known.budget),
        renewal: granted.then(|| seconds(known.renewal)),
        grantors: rules.set(known.set).map(|set| set.name.clone()),
        stale: known.generation != generation as u16,
        sender: decided.then_some(known.stamp.sender),
        decision: decided.then_some(known.stamp.number),
        ..FlowTold::unknown(src, dst, generation)
    }
}
