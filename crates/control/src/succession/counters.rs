//! Counters as they travel to a successor: by name, so that versions with other verdicts or classes can read them.

use std::collections::BTreeMap;

use acl::{InstalledList, RuleCount};
use datapath::Verdict;
use datapath::stats::{IcmpCounter, Snapshot};
use qos::{ClassCounts, QueueCounters, TrafficClass};
use serde::{Deserialize, Serialize};

/// The counters of a worker, or of interfaces that were closed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct WorkerCounts {
    verdicts: BTreeMap<String, u64>,
    icmp: BTreeMap<String, u64>,
    totals: BTreeMap<String, u64>,
}

/// Returns the names of counters that are not zero, with their values.
fn named(counts: impl Iterator<Item = (&'static str, u64)>) -> BTreeMap<String, u64> {
    counts.filter(|(_, n)| *n > 0).map(|(name, n)| (name.to_owned(), n)).collect()
}

impl From<&Snapshot> for WorkerCounts {
    fn from(counts: &Snapshot) -> Self {
        let mut counts = *counts;
        Self {
            verdicts: named(counts.iter().map(|(verdict, n)| (verdict.name(), n))),
            icmp: named(IcmpCounter::ALL.into_iter().map(IcmpCounter::name).zip(counts.icmp)),
            totals: named(counts.totals_mut().into_iter().map(|(name, n)| (name, *n))),
        }
    }
}

impl TryFrom<&WorkerCounts> for Snapshot {
    type Error = String;

    /// Refuses a counter of an unknown name: the sums would no longer add up.
    fn try_from(counts: &WorkerCounts) -> Result<Self, String> {
        let mut snapshot = Self::default();
        for (name, n) in &counts.verdicts {
            let verdict = Verdict::with_name(name).ok_or_else(|| unknown("verdict", name))?;
            snapshot.verdicts[verdict] = *n;
        }
        for (name, n) in &counts.icmp {
            let at = IcmpCounter::ALL.into_iter().position(|counter| counter.name() == name);
            snapshot.icmp[at.ok_or_else(|| unknown("ICMP counter", name))?] = *n;
        }
        for (name, n) in &counts.totals {
            let total = snapshot.totals_mut().into_iter().find(|(known, _)| known == name);
            let (_, total) = total.ok_or_else(|| unknown("counter", name))?;
            *total = *n;
        }
        Ok(snapshot)
    }
}

fn unknown(kind: &str, name: &str) -> String {
    format!("this version does not know the {kind} {name}, which the running one has counted")
}

/// The counters of one class of a queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct ClassTotals {
    packets: u64,
    bytes: u64,
    full: u64,
    delayed: u64,
    marked: u64,
}

impl From<ClassCounts> for ClassTotals {
    fn from(counts: ClassCounts) -> Self {
        // A suspended worker has no packet that waits.
        let ClassCounts { packets, bytes, full, delayed, marked, .. } = counts;
        Self { packets, bytes, full, delayed, marked }
    }
}

impl From<ClassTotals> for ClassCounts {
    fn from(totals: ClassTotals) -> Self {
        let ClassTotals { packets, bytes, full, delayed, marked } = totals;
        Self { packets, bytes, full, delayed, marked, ..Self::default() }
    }
}

/// The counters of the queues of an egress interface, by worker and interface below, and by class.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct InterfaceQueueCounts {
    pub(crate) interface: String,
    pub(crate) queues: Vec<BTreeMap<String, ClassTotals>>,
}

impl InterfaceQueueCounts {
    /// Reads the counters of the queues of an interface.
    pub(crate) fn read<'a>(
        interface: &str,
        queues: impl Iterator<Item = &'a QueueCounters>,
    ) -> Self {
        let by_class = |counters: &QueueCounters| {
            let classes = TrafficClass::ALL.into_iter().zip(counters.snapshot());
            classes.map(|(class, counts)| (class.name().to_owned(), counts.into())).collect()
        };
        Self { interface: interface.to_owned(), queues: queues.map(by_class).collect() }
    }

    /// Makes counters that continue these. Counts of a class of an unknown name are left out.
    pub(crate) fn counters(&self) -> impl Iterator<Item = QueueCounters> {
        self.queues.iter().map(|by_class| {
            let counts = TrafficClass::ALL.map(|class| by_class.get(class.name()).copied());
            QueueCounters::continuing(counts.map(|totals| totals.unwrap_or_default().into()))
        })
    }
}

/// The counters of an access list: by rule, with its text, and last that of the default.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct AccessListCounts {
    pub(crate) name: String,
    rules: Vec<(String, RuleTotals)>,
}

/// The counters of a rule.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
struct RuleTotals {
    packets: u64,
    bytes: u64,
    exceeded: u64,
}

impl AccessListCounts {
    /// Reads the counters of a list.
    pub(crate) fn read(name: &str, list: &InstalledList) -> Self {
        let texts = list.list().rules().iter().map(ToString::to_string).chain([String::new()]);
        let totals = list
            .counts()
            .into_iter()
            .map(|RuleCount { packets, bytes, exceeded }| RuleTotals { packets, bytes, exceeded });
        Self { name: name.to_owned(), rules: texts.zip(totals).collect() }
    }

    /// Lets a list continue these counters.
    pub(crate) fn continue_in(&self, list: &InstalledList) {
        let rules = self.rules.iter().map(|(text, totals)| {
            let RuleTotals { packets, bytes, exceeded } = *totals;
            (text.clone(), RuleCount { packets, bytes, exceeded })
        });
        list.continue_counts(&rules.collect::<Vec<_>>());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_of_a_worker_survive_the_journey() {
        let mut snapshot =
            Snapshot { received: 9, lookups_v6: 3, polls: 100, ..Default::default() };
        snapshot.verdicts[Verdict::Sent] = 7;
        snapshot.verdicts[Verdict::NoRoute] = 2;
        snapshot.icmp[IcmpCounter::TooBig as usize] = 4;
        let json = serde_json::to_string(&WorkerCounts::from(&snapshot)).unwrap();
        let counts: WorkerCounts = serde_json::from_str(&json).unwrap();
        assert_eq!(Snapshot::try_from(&counts), Ok(snapshot));
    }

    #[test]
    fn unknown_counter_is_refused_and_a_missing_one_is_zero() {
        let counts: WorkerCounts = serde_json::from_str(
            r#"{"verdicts": {"sent": 1}, "totals": {"received": 1}, "later": 5}"#,
        )
        .unwrap();
        let snapshot = Snapshot::try_from(&counts).unwrap();
        assert!(snapshot.balanced() && snapshot.polls == 0);
        let counts = WorkerCounts { verdicts: [("teleported".into(), 1)].into(), ..counts };
        assert!(Snapshot::try_from(&counts).unwrap_err().contains("teleported"));
        let counts = WorkerCounts { totals: [("weighed".into(), 1)].into(), ..Default::default() };
        assert!(Snapshot::try_from(&counts).unwrap_err().contains("weighed"));
    }

    #[test]
    fn queue_counters_continue_by_class() {
        let counters = QueueCounters::default();
        counters.left(TrafficClass::Control, 100, 0, true);
        counters.full(TrafficClass::Default);
        let counts = InterfaceQueueCounts::read("eth0", [&counters].into_iter());
        let json = serde_json::to_string(&counts).unwrap();
        let read: InterfaceQueueCounts = serde_json::from_str(&json).unwrap();
        let [continued] = &read.counters().collect::<Vec<_>>()[..] else { panic!("one queue") };
        assert_eq!(continued.snapshot(), counters.snapshot());
    }
}
