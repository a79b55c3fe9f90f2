//! The grantor's role: its answers to the control socket, its metrics and the numbers of its history.

use std::fmt;

use api::{GrantorStatus, Item, Order, Request};
use bundle::Command;

use super::controller::GrantorController;
use control::exposition::Writer;
use control::metrics::encode_distribution;
use control::role::{Number, Role};

impl Role for GrantorController {
    fn name(&self) -> &'static str {
        "grantor"
    }

    fn show(&self, request: &Request) -> Option<Result<Vec<Item>, String>> {
        Some(match request {
            Request::Grantor => Ok(vec![Item::Grantor(self.status())]),
            Request::Programs => Ok(self.programs().into_iter().map(Item::Program).collect()),
            Request::Distribution => Ok(vec![Item::Distribution(self.agent_status()?.status())]),
            _ => return None,
        })
    }

    fn execute(&self, order: &Order) -> Option<Result<String, String>> {
        match order {
            Order::Reload => Some(self.reload()),
            Order::Rollback => Some(self.agent_status()?.execute(Command::Rollback)),
            Order::Retry => Some(self.agent_status()?.execute(Command::Retry)),
            _ => None,
        }
    }

    fn encode_metrics(&self, to: &mut Writer<'_>) -> fmt::Result {
        self.encode(to)?;
        match self.agent_status() {
            Some(agent) => encode_distribution(to, &agent.status()),
            None => Ok(()),
        }
    }

    fn numbers(&self) -> Vec<Number> {
        grantor_numbers(&self.status())
    }
}

/// Returns the numbers of a grantor: the same columns with a candidate and without.
fn grantor_numbers(status: &GrantorStatus) -> Vec<Number> {
    let shadow = status.candidate.as_ref();
    let candidate = [
        ("requests", shadow.map(|shadow| shadow.requests)),
        ("failed", shadow.map(|shadow| shadow.failed)),
        ("changed", shadow.map(|shadow| shadow.changes.values().sum())),
    ];
    let number = |part: &str, name: &str, value| Number {
        name: format!("{part}.{name}"),
        value,
        gauge: name == "memory_bytes",
    };
    let policy = status.policy.iter().map(|(name, value)| number("policy", name, *value));
    let decisions = status.decisions.iter().map(|(name, value)| number("decisions", name, *value));
    let candidate = candidate.map(|(name, value)| number("candidate", name, value.unwrap_or(0)));
    policy.chain(decisions).chain(candidate).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use api::PolicyComparison;

    #[test]
    fn grantor_has_the_same_columns_with_a_candidate_and_without() {
        let mut status: GrantorStatus = serde_json::from_str(
            r#"{"policy":{"granted":3,"memory_bytes":9},"decisions":{"messages":2},"lists":{}}"#,
        )
        .unwrap();
        let names = |status: &GrantorStatus| -> Vec<String> {
            grantor_numbers(status).into_iter().map(|number| number.name).collect()
        };
        let before = names(&status);
        assert_eq!(before[..3], ["policy.granted", "policy.memory_bytes", "decisions.messages"]);
        let changes = [("granted_declined".to_owned(), 2), ("declined_granted".to_owned(), 3)];
        status.candidate =
            Some(PolicyComparison { changes: changes.into(), ..PolicyComparison::default() });
        assert_eq!(names(&status), before);
        let changed = grantor_numbers(&status).pop().unwrap();
        assert_eq!((changed.name.as_str(), changed.value), ("candidate.changed", 5));
        let gauges: Vec<_> =
            grantor_numbers(&status).into_iter().filter(|number| number.gauge).collect();
        assert_eq!(gauges.len(), 1);
    }
}
