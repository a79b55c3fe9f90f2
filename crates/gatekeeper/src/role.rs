//! The gate's role: its answers to the control socket, its metrics and the numbers of its history.

use std::fmt;
use std::io;
use std::os::fd::OwnedFd;

use api::{AttackReport, Item, Order, Request};
use bundle::Command;

use super::controller::GateController;
use super::counter_snapshot::{CounterGroup, full_name, is_gauge};
use control::exposition::Writer;
use control::metrics::encode_distribution;
use control::role::{Number, Role};
use dashboard::SampleSource;
use gate::sample::PacketSample;
use serde_json::{Value, json};

impl Role for GateController {
    fn name(&self) -> &'static str {
        "gate"
    }

    fn show(&self, request: &Request) -> Option<Result<Vec<Item>, String>> {
        Some(match *request {
            Request::Gate => Ok(vec![Item::Gate(self.status())]),
            Request::Programs => Ok(self.programs().into_iter().map(Item::Program).collect()),
            Request::Distribution => Ok(vec![Item::Distribution(self.agent_status()?.status())]),
            Request::Flow { src, dst } => self.flow(src, dst).map(|flow| vec![Item::Flow(flow)]),
            Request::Flows { most } => {
                self.flows(most).map(|flows| flows.into_iter().map(Item::Flow).collect())
            }
            _ => return None,
        })
    }

    fn execute(&self, order: &Order) -> Option<Result<String, String>> {
        match *order {
            Order::Reload => Some(self.reload()),
            Order::Flush { sender } => Some(self.flush(sender)),
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
        self.counters().into_iter().map(gate_number).collect()
    }

    fn is_guard(&self) -> bool {
        true
    }

    fn hands_over(&self) -> bool {
        true
    }

    fn sockets(&self) -> io::Result<Vec<OwnedFd>> {
        self.decision_receiver().sockets()
    }

    fn suspend(&self) {
        self.decision_receiver().suspend();
    }

    fn resume(&self) {
        self.decision_receiver().resume();
    }

    fn state(&self) -> Value {
        json!(self.inherited_state())
    }
}

impl SampleSource for GateController {
    fn drain_samples(&self, take: &mut dyn FnMut(PacketSample)) {
        Self::drain_samples(self, take);
    }

    fn report_attack(&self, report: AttackReport) {
        self.set_attack(report);
    }
}

fn gate_number((about, name, value): (CounterGroup, &'static str, u64)) -> Number {
    Number { name: full_name(about, name), value, gauge: is_gauge(about, name) }
}
