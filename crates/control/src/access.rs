//! The views of access lists: taken on the control thread, and formatted on the thread that asks.

use acl::{Action, RuleCount};
use api::{AccessInterface, AccessList, AccessRule, Flowspec, FlowspecSession, RefusedFlow};
use feed::fpm::Refused;
use flowspec::{SessionStatus, SpeakerStatus, StatusReader};

use crate::plane::{ActiveList, Plane};

/// A list with the interfaces that it applies to.
#[derive(Clone, Debug)]
pub(crate) struct ListView {
    list: ActiveList,
    pub(crate) inbound: Vec<AccessInterface>,
    pub(crate) outbound: Vec<AccessInterface>,
}

/// The packets of a list by what happened to them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ListTotals {
    pub(crate) permitted: u64,
    pub(crate) denied: u64,
    pub(crate) policed: u64,
}

/// Returns the lists, or the one named `name`.
///
/// # Errors
///
/// There is no such list.
pub(crate) fn views(plane: &Plane, name: Option<&str>) -> Result<Vec<ListView>, String> {
    let lists = plane.active_lists();
    let is_wanted = |list: &&ActiveList| name.is_none_or(|name| list.config.name == name);
    let views: Vec<_> = lists.iter().filter(is_wanted).map(|list| view(plane, list)).collect();
    match name.filter(|_| views.is_empty()) {
        None => Ok(views),
        Some(name) => {
            let names: Vec<_> = lists.iter().map(|list| &*list.config.name).collect();
            let known = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
            Err(format!("{name}: no access list of this router (there is: {known})"))
        }
    }
}

fn view(plane: &Plane, list: &ActiveList) -> ListView {
    let interface = |name: &String| {
        let is_port = plane.ports().named(name).is_some();
        AccessInterface { name: name.clone(), is_port }
    };
    ListView {
        inbound: list.config.inbound.iter().map(interface).collect(),
        outbound: list.config.outbound.iter().map(interface).collect(),
        list: list.clone(),
    }
}

impl ListView {
    /// Returns the list's name.
    pub(crate) fn name(&self) -> &str {
        &self.list.config.name
    }

    /// Adds the counters of the rules up.
    pub(crate) fn totals(&self) -> ListTotals {
        let counts = self.list.installed.counts();
        let actions = self.list.config.rules.iter().map(|rule| &rule.action);
        let default = if self.list.config.permits { Action::Permit } else { Action::Deny };
        let mut totals = ListTotals::default();
        for (action, count) in actions.chain([&default]).zip(counts) {
            match action {
                Action::Permit => totals.permitted += count.packets,
                Action::Deny => totals.denied += count.packets,
                Action::Police(_) => totals.policed += count.exceeded,
                Action::Count | Action::Mirror { .. } => {}
            }
        }
        totals
    }

    /// Returns the item of `show`.
    pub(crate) fn item(self) -> AccessList {
        let Self { list, inbound, outbound } = self;
        let mut counts = list.installed.counts();
        let default = counts.pop().unwrap_or_default();
        let rules = (1..).zip(list.config.rules.iter().zip(counts));
        let rules = rules.map(|(number, (rule, count))| {
            let RuleCount { packets, bytes, exceeded } = count;
            AccessRule { number, rule: rule.to_string(), packets, bytes, exceeded }
        });
        AccessList {
            name: list.config.name.clone(),
            inbound,
            outbound,
            default: if list.config.permits { "permit" } else { "deny" }.to_owned(),
            default_packets: default.packets,
            default_bytes: default.bytes,
            memory_bytes: list.installed.list().footprint() as u64,
            rules: rules.collect(),
        }
    }
}

/// Returns the item of the BGP flow specifications.
pub(crate) fn flowspec_item(reader: &StatusReader) -> Flowspec {
    let SpeakerStatus {
        sessions,
        flows,
        rules,
        refused,
        refused_flows,
        malformed,
        last_end,
        refused_connections,
        last_refused,
    } = reader.read();
    let session = |session: SessionStatus| FlowspecSession {
        peer: session.peer,
        established: session.is_established,
        flows: session.flows as u64,
        seconds: session.since.elapsed().as_secs(),
    };
    let refused = refused
        .into_iter()
        .map(|refused| RefusedFlow { flow: refused.flow, reason: refused.reason.to_owned() });
    let refusal = |last: Refused| last.describe("flowspec.users", "flowspec.peers");
    Flowspec {
        listen: reader.listen,
        sessions: sessions.into_iter().map(session).collect(),
        flows: flows as u64,
        rules: rules as u64,
        refused_flows: refused_flows as u64,
        refused: refused.collect(),
        malformed,
        refused_connections,
        last_refused: last_refused.map(refusal),
        last_end: last_end.map(|(peer, reason)| format!("{peer}: {reason}")),
    }
}
