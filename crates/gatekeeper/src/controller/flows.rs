//! The state of flows: a query to each worker, combined with the rules.
//!
//! ```text
//!   client's thread ── Query ──► worker, worker, …        each replies between two batches
//!                   ◄── QueryReply ──                     Entry, FirstSeen, Dropped; then End
//! ```

use std::net::IpAddr;
use std::time::{Duration, Instant};

use gate::flow::{Flow, Pair};
use gate::state::{State, Traffic};

use super::{GateController, QueryChannels, lock};
use crate::candidate::outcome_of;
use crate::config::{Rule, Rules};
use crate::rings::{FlowEntry, Query, QueryReply};
use api::FlowStatus;
use datapath::Verdict;

/// How long a worker may take for the next reply.
const REPLY_TIMEOUT: Duration = Duration::from_secs(10);
/// How long to sleep between two checks for a reply.
const POLL_INTERVAL: Duration = Duration::from_millis(1);

impl GateController {
    /// Sends a query to every worker, one after the other, and collects the replies.
    fn query_workers(&self, query: Query) -> Result<Vec<QueryReply>, String> {
        let mut queries = lock(&self.queries);
        let QueryChannels { workers, ticket } = &mut *queries;
        *ticket = ticket.wrapping_add(1);
        let ticket = *ticket;
        let mut replies = Vec::new();
        for channel in workers {
            let no_reply = || "a worker does not answer".to_owned();
            channel.queries.push((ticket, query)).map_err(|_| no_reply())?;
            let mut last_reply = Instant::now();
            loop {
                match channel.replies.pop() {
                    // A reply to an earlier query, which timed out.
                    Ok((of, _)) if of != ticket => {}
                    Ok((_, QueryReply::End)) => break,
                    Ok((_, reply)) => {
                        replies.push(reply);
                        last_reply = Instant::now();
                    }
                    Err(_) if last_reply.elapsed() > REPLY_TIMEOUT => return Err(no_reply()),
                    Err(_) => std::thread::sleep(POLL_INTERVAL),
                }
            }
        }
        Ok(replies)
    }

    /// Returns the state of a flow.
    pub(crate) fn flow(&self, src: IpAddr, dst: IpAddr) -> Result<FlowStatus, String> {
        let flow = match (src, dst) {
            (IpAddr::V4(src), IpAddr::V4(dst)) => Flow::v4(src.into(), dst.into()),
            (IpAddr::V6(src), IpAddr::V6(dst)) => Flow::v6(src.into(), dst.into()),
            _ => return Err(format!("{src} and {dst} are of different address families")),
        };
        let replies = self.query_workers(Query::Flow(flow))?;
        let (rules, generation) = self.active_rules();
        let entry = replies.iter().find_map(|reply| match reply {
            QueryReply::Entry(entry) => Some(entry),
            _ => None,
        });
        let dropped = replies.iter().find_map(|reply| match reply {
            QueryReply::Dropped(verdict, ago) => Some((verdict.name(), *ago)),
            _ => None,
        });
        let first_seen = replies.iter().find_map(|reply| match reply {
            QueryReply::FirstSeen(ago) => Some(seconds(*ago)),
            _ => None,
        });
        let mut status = match entry {
            Some(entry) => flow_status(entry, &rules, generation),
            None => FlowStatus::unknown(src, dst, generation),
        };
        status.allowed = rules.allowing(src).map(|prefix| prefix.to_string());
        status.blocked = rules.blocking(src).map(|prefix| prefix.to_string());
        for (state, prefix) in [("allowed", &status.allowed), ("blocked", &status.blocked)] {
            if prefix.is_some() && entry.is_none() {
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
            status.action = Some(rules.action_name(action));
            status.line = Some(line);
        }
        let candidate = rules.candidate.as_deref();
        status.candidate = candidate.map(|candidate| outcome_of(candidate, Some(&rules), src, dst));
        status.first_seen_ago = first_seen.filter(|_| entry.is_none());
        let cookies = self.fixed.admission.is_some_and(|a| a.syn_cookie_rate.is_some());
        status.address_validation = (cookies && entry.is_none()).then(|| "syn-cookie".to_owned());
        let blocked = status.blocked.is_some() && self.blocked.blocks(src);
        status.xdp_dropped =
            blocked || status.blocked.is_none() && self.decisions.is_dropped_by_xdp(&flow);
        status.version = rules.version.clone();
        status.dropped = dropped.map(|(name, _)| name.to_owned());
        status.last_drop_ago = dropped.map(|(_, ago)| seconds(ago));
        if status.xdp_dropped {
            let verdict = if blocked { Verdict::Blocked } else { Verdict::Declined };
            status.dropped = Some(verdict.name().to_owned());
            status.last_drop_ago = None;
        }
        Ok(status)
    }

    /// Lists flows, at most `most` of each worker.
    pub(crate) fn flows(&self, most: u32) -> Result<Vec<FlowStatus>, String> {
        let replies = self.query_workers(Query::Flows(most))?;
        let (rules, generation) = self.active_rules();
        let flows = replies.iter().filter_map(|reply| match reply {
            QueryReply::Entry(entry) => Some(flow_status(entry, &rules, generation)),
            _ => None,
        });
        Ok(flows.collect())
    }
}

fn seconds(nanoseconds: u64) -> f64 {
    nanoseconds as f64 / 1e9
}

fn flow_status(entry: &FlowEntry, rules: &Rules, generation: u64) -> FlowStatus {
    let (src, dst): (IpAddr, IpAddr) = match entry.flow.pair() {
        Pair::V4 { src, dst } => (IpAddr::V4(src.into()), IpAddr::V4(dst.into())),
        Pair::V6 { src, dst } => (IpAddr::V6(src.into()), IpAddr::V6(dst.into())),
    };
    let is_expired = entry.left == 0;
    let state = match entry.state {
        _ if is_expired => "Expired".to_owned(),
        State::Provisional => "Declined".to_owned(),
        state => format!("{state:?}"),
    };
    let traffic = match entry.traffic {
        Traffic::All => None,
        Traffic::Protocol(protocol) => Some(format!("protocol {protocol}")),
        Traffic::Port { protocol, port } => Some(format!("protocol {protocol}, port {port}")),
    };
    let granted = entry.state == State::Granted && !is_expired;
    let decided = entry.state != State::Request && entry.stamp.sender != 0;
    FlowStatus {
        state: state.to_lowercase(),
        expires: Some(seconds(entry.left)),
        traffic,
        program: (entry.state == State::Program && !is_expired).then_some(entry.program),
        priority: (entry.state == State::Request).then_some(entry.priority),
        last_request_ago: (entry.state == State::Request).then(|| seconds(entry.idle)),
        budget: granted.then_some(entry.budget),
        renewal: granted.then(|| seconds(entry.renewal)),
        grantors: rules.set(entry.set).map(|set| set.name.clone()),
        stale: entry.generation != generation as u16,
        sender: decided.then_some(entry.stamp.sender),
        decision: decided.then_some(entry.stamp.number),
        ..FlowStatus::unknown(src, dst, generation)
    }
}
