//! The report of the service that the honest clients had, as text and JSON, and its requirements.
//!
//! | clients | requirement |
//! |---|---|
//! | new | each is connected within 3 s, and half of them within 1.2 s |
//! | established | each stream has 95 % of the goodput that it has without an attack |
//! | established, a gate fails and returns | each stream gets data again within a second |
//!
//! Without an attack the goodput of a stream is its offered rate, which every round verifies before
//! its attack. A stream that catches up on earlier losses counts for its offered rate at the most.
//!
//! With the gate on, both requirements must be met under every attack. With it off, neither must be
//! met: otherwise the attack had no effect.

use std::io::Write;

use anyhow::Result;
use serde::Serialize;

use super::clients::{NewClient, TIMEOUT};
use super::rounds::{LOAD, Round, STREAMS, Scale};

/// Seconds within which each new client must be connected.
const WORST: f64 = 3.0;
/// Seconds within which half of them must be connected.
const MEDIAN: f64 = 1.2;
/// The share of its goodput that each stream must have.
const GOODPUT: f64 = 0.95;
/// Seconds within which each stream gets data after a gate has failed or returned.
const FAILOVER: f64 = 1.0;
/// The least share of the stated rate that a valid attack has.
const FULL_RATE: f64 = 0.95;
/// Eighths, for a line of goodput in a terminal.
const BLOCKS: [char; 9] = [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// The figures of a round.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Figures {
    /// Seconds until half of the new clients were connected; `None` if fewer were.
    pub(super) median: Option<f64>,
    /// Seconds until all of them were connected; `None` if not all were.
    pub(super) worst: Option<f64>,
    /// Seconds until half of them had their answer.
    pub(super) answered: Option<f64>,
    /// The share of new clients that were connected in time.
    pub(super) in_time: f64,
    /// The goodput of all streams together, relative to their offered rate.
    pub(super) goodput: f64,
    /// The least goodput of a stream, relative to its offered rate.
    pub(super) least_goodput: f64,
    /// The same before the attack.
    pub(super) least_baseline: f64,
    /// The offered rate as a multiple of the protected link, if there was an attack.
    pub(super) factor: Option<f64>,
    /// The longest time in which a stream got nothing when a gate failed and when it returned, in seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) failover: Option<[f64; 2]>,
    /// Whether new clients meet their requirement.
    pub(super) new_pass: bool,
    /// Whether established clients meet theirs.
    pub(super) established_pass: bool,
}

impl Figures {
    /// Evaluates a round of this scale.
    pub(super) fn of(round: &Round, scale: &Scale) -> Self {
        let connected = quantiles(&round.new_clients, |client| client.connected);
        let answered = quantiles(&round.new_clients, |client| client.answered);
        let (median, worst) = (connected(0.5), connected(1.0));
        let count = round.new_clients.len().max(1) as f64;
        let in_time =
            |client: &&NewClient| client.connected.is_some_and(|seconds| seconds <= WORST);
        let in_time = round.new_clients.iter().filter(in_time).count() as f64 / count;
        let sent = scale.stream() as f64;
        let shares = |rates: &[f64]| -> Vec<f64> {
            rates.iter().map(|rate| (rate / sent).min(1.0)).collect()
        };
        let (attack, baseline) = (shares(&round.under_attack), shares(&round.baseline));
        let mean = |shares: &[f64]| shares.iter().sum::<f64>() / shares.len().max(1) as f64;
        let least = |shares: &[f64]| shares.iter().copied().fold(1.0, f64::min);
        let (goodput, least_goodput, least_baseline) =
            (mean(&attack), least(&attack), least(&baseline));
        Self {
            median,
            worst,
            answered: answered(0.5),
            in_time,
            goodput,
            least_goodput,
            least_baseline,
            factor: round.offered.map(|offered| offered.bits_per_second / scale.link as f64),
            failover: round.failover.as_ref().map(|pauses| {
                [&pauses.failed, &pauses.returned]
                    .map(|each| each.iter().copied().fold(0.0, f64::max))
            }),
            new_pass: median.is_some_and(|median| median <= MEDIAN) && in_time >= 1.0,
            established_pass: least_goodput >= GOODPUT,
        }
    }
}

/// Returns a function that returns the value that a share of the clients does not exceed, and `None`
/// if fewer of them have one.
fn quantiles(
    clients: &[NewClient],
    value: impl Fn(&NewClient) -> Option<f64>,
) -> impl Fn(f64) -> Option<f64> {
    let mut values: Vec<f64> =
        clients.iter().map(|client| value(client).unwrap_or(f64::INFINITY)).collect();
    values.sort_by(f64::total_cmp);
    move |share| {
        let last = values.len().checked_sub(1)?;
        let at = values.get((last as f64 * share).ceil() as usize)?;
        at.is_finite().then_some(*at)
    }
}

/// The name and the description of an attack.
#[derive(Clone, Debug, Serialize)]
pub(super) struct AttackSummary {
    pub(super) name: String,
    pub(super) description: String,
}

/// The report.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    pub(super) scale: Scale,
    pub(super) policy: &'static str,
    pub(super) attacks: Vec<AttackSummary>,
    pub(super) rounds: Vec<EvaluatedRound>,
    /// Whether the requirements are met with the gate on and not met with it off.
    pub(super) passed: bool,
}

/// A round and its figures.
#[derive(Debug, Serialize)]
pub(super) struct EvaluatedRound {
    #[serde(flatten)]
    pub(super) round: Round,
    pub(super) figures: Figures,
}

impl Report {
    /// Returns a report without rounds.
    pub(super) fn new(scale: Scale, attacks: Vec<AttackSummary>) -> Self {
        Self { scale, policy: super::guard::POLICY, attacks, rounds: Vec::new(), passed: false }
    }

    /// Adds a round.
    pub(super) fn add(&mut self, round: Round) {
        let figures = Figures::of(&round, &self.scale);
        self.rounds.push(EvaluatedRound { round, figures });
        self.passed = self.failures().is_empty();
    }

    /// Lists the requirements that are not met, and the attacks that had no effect.
    pub(super) fn failures(&self) -> Vec<String> {
        let mut failures = Vec::new();
        for EvaluatedRound { round, figures } in &self.rounds {
            let name = round.attack.as_deref().unwrap_or("no attack");
            let state = if round.gate { "on" } else { "off" };
            let mut fail = |text: &str| failures.push(format!("{name}, gate {state}: {text}"));
            // Without an attack the requirements must be met with the gate off, too.
            let must_pass = round.gate || round.attack.is_none();
            if figures.factor.is_some_and(|factor| factor < self.scale.factor * FULL_RATE) {
                fail("the machine could not send at the requested rate");
            }
            if figures.least_baseline < GOODPUT {
                fail("established connections did not have their rate before the attack");
            }
            for (event, seconds) in
                ["fails", "returns"].iter().zip(figures.failover.iter().flatten())
            {
                if *seconds > FAILOVER {
                    fail(&format!("established connections wait too long when a gate {event}"));
                }
            }
            match (must_pass, figures.new_pass) {
                (true, false) => fail("new clients wait too long"),
                (false, true) => fail("new clients are not affected by the attack"),
                _ => {}
            }
            match (must_pass, figures.established_pass) {
                (true, false) => fail("established connections lose goodput"),
                (false, true) => fail("established connections are not affected by the attack"),
                _ => {}
            }
        }
        failures
    }

    /// Writes it to standard output.
    pub(super) fn print(&self, json: bool) -> Result<()> {
        let mut out = std::io::stdout().lock();
        if json {
            serde_json::to_writer_pretty(&mut out, self)?;
            writeln!(out)?;
        } else {
            self.write(&mut out)?;
        }
        Ok(out.flush()?)
    }

    fn write(&self, out: &mut impl Write) -> Result<()> {
        let Scale { link, factor, seconds, failover } = self.scale;
        let mbit = |bits: f64| format!("{:.1} Mbit/s", bits / 1e6);
        writeln!(
            out,
            "protected link  {}; attacks at {factor} times that rate",
            mbit(link as f64)
        )?;
        writeln!(
            out,
            "clients         {STREAMS} connections that send {} together ({LOAD} % of the link), \
             and {} new ones in {seconds} s",
            mbit(link as f64 * LOAD as f64 / 100.0),
            self.scale.new_clients()
        )?;
        writeln!(out, "policy          {}", self.policy)?;
        for AttackSummary { name, description } in &self.attacks {
            writeln!(out, "{name:<32} {description}")?;
        }
        writeln!(out)?;
        writeln!(
            out,
            "{:<32} {:<4} {:>7}  {:>8} {:>8} {:>8}  {:>8} {:>8}  goodput per half second",
            "attack", "gate", "offered", "median", "worst", "in 3 s", "goodput", "least"
        )?;
        for EvaluatedRound { round, figures } in &self.rounds {
            let time = |seconds: Option<f64>| match seconds {
                Some(seconds) => format!("{seconds:.3} s"),
                None => format!("> {} s", TIMEOUT.as_secs()),
            };
            writeln!(
                out,
                "{:<32} {:<4} {:>7}  {:>8} {:>8} {:>8}  {:>8} {:>8}  {}",
                round.attack.as_deref().unwrap_or("none"),
                if round.gate { "on" } else { "off" },
                figures.factor.map_or("–".into(), |factor| format!("{factor:.1} ×")),
                time(figures.median),
                time(figures.worst),
                percent(figures.in_time),
                percent(figures.goodput),
                percent(figures.least_goodput),
                sparkline(round)
            )?;
        }
        if let Some(grants) = failover {
            writeln!(
                out,
                "\na gate fails and returns; grants {}",
                format!("{grants:?}").to_lowercase()
            )?;
        }
        for EvaluatedRound { round, figures } in &self.rounds {
            let (Some(longest), Some(pauses)) = (figures.failover, &round.failover) else {
                continue;
            };
            for (event, longest, each) in
                [("fails", longest[0], &pauses.failed), ("returns", longest[1], &pauses.returned)]
            {
                let mut each = each.clone();
                each.sort_by(f64::total_cmp);
                let median = each.get(each.len() / 2).copied().unwrap_or(longest);
                writeln!(
                    out,
                    "{:<32} {event:<8} longest time without data {longest:.3} s, median of {STREAMS} \
                     connections {median:.3} s",
                    round.attack.as_deref().unwrap_or("none")
                )?;
            }
        }
        writeln!(out)?;
        let failures = self.failures();
        for failure in &failures {
            writeln!(out, "{failure}")?;
        }
        let verdict = match (self.rounds.is_empty(), failures.is_empty()) {
            (true, _) => "interrupted before the first round had ended",
            (_, true) => {
                "with the gate on, new clients connect within 3 s, half of them within 1.2 s, and \
                 established ones keep 95 % of their goodput; with it off they do not"
            }
            (_, false) => "FAILED: see above",
        };
        Ok(writeln!(out, "{verdict}")?)
    }
}

/// Formats a share.
pub(super) fn percent(share: f64) -> String {
    format!("{:.1} %", share * 100.0)
}

/// Draws the goodput of a round as a line of block characters, from a second before the attack on.
fn sparkline(round: &Round) -> String {
    let baseline: f64 = round.baseline.iter().sum::<f64>().max(1.0);
    let mut steps: Vec<Vec<f64>> = Vec::new();
    for &(at, rate) in round.timeline.iter().filter(|(at, _)| *at > -1.0) {
        let step = ((at + 1.0) / 0.5) as usize;
        steps.resize(steps.len().max(step + 1), Vec::new());
        steps[step].push(rate);
    }
    let height = |rates: &Vec<f64>| {
        let mean = rates.iter().sum::<f64>() / rates.len().max(1) as f64;
        let last = BLOCKS.len() - 1;
        BLOCKS[((mean / baseline * last as f64).round() as usize).min(last)]
    };
    steps.iter().map(height).collect()
}

#[cfg(test)]
mod tests {
    use super::super::failover::Pauses;
    use super::super::sender::Offered;
    use super::super::topology::LinkCount;
    use super::*;

    const SCALE: Scale = Scale { link: 8_000_000, factor: 10.0, seconds: 2, failover: None };

    fn round(gate: bool, connected: &[Option<f64>], percents: &[f64], factor: f64) -> Round {
        let client = |&connected| NewClient { start: 0.0, connected, answered: connected };
        let bits_per_second = factor * 8e6;
        Round {
            attack: Some("flood".into()),
            gate,
            offered: Some(Offered { packets_per_second: 1.0, bits_per_second }),
            link: LinkCount::default(),
            new_clients: connected.iter().map(client).collect(),
            baseline: vec![75_000.0; percents.len()],
            under_attack: percents.iter().map(|percent| percent * 750.0).collect(),
            failover: None,
            counters: None,
            timeline: vec![(-0.9, 3e5), (0.1, 75e3), (0.2, 75e3), (0.6, 0.0)],
        }
    }

    #[test]
    fn requirements_are_evaluated() {
        let evaluate = |connected: &[Option<f64>], percents: &[f64]| {
            let figures = Figures::of(&round(true, connected, percents, 10.0), &SCALE);
            (figures.new_pass, figures.established_pass)
        };
        let quick = [Some(1.1), Some(1.19), Some(2.9)];
        assert_eq!(evaluate(&quick, &[95.0, 120.0]), (true, true));
        assert_eq!(evaluate(&[Some(1.1), Some(1.3), Some(2.9)], &[94.9, 200.0]), (false, false));
        assert_eq!(evaluate(&[Some(0.1), Some(0.1), Some(3.1)], &[0.0]), (false, false));
        assert_eq!(evaluate(&[Some(0.1), Some(0.1), None], &[]), (false, true));
        let figures = Figures::of(&round(true, &[None, Some(1.0), None], &[], 1.0), &SCALE);
        assert_eq!((figures.median, figures.worst), (None, None));
        assert!((figures.in_time - 1.0 / 3.0).abs() < 1e-9);
    }

    #[test]
    fn report_passes_if_only_the_gate_restores_service() {
        let mut report = Report::new(SCALE, Vec::new());
        report.add(round(false, &[None, Some(1.0)], &[10.0], 10.0));
        assert!(report.passed);
        report.add(round(true, &[Some(1.0), Some(1.0)], &[100.0], 10.0));
        assert!(report.passed, "{:?}", report.failures());
        let mut slow = round(true, &[Some(1.0), Some(4.0)], &[100.0], 9.0);
        slow.baseline = vec![70_000.0];
        report.add(slow);
        assert_eq!(report.failures().len(), 3, "{:?}", report.failures());
        assert!(!report.passed);
        let mut mild = Report::new(SCALE, Vec::new());
        mild.add(round(false, &[Some(1.0)], &[100.0], 10.0));
        assert_eq!(mild.failures().len(), 2);
        let mut moved = Report::new(SCALE, Vec::new());
        for (longest, failures) in [(0.99, 0), (1.01, 2)] {
            let each = vec![0.1, longest, 0.2];
            let failover = Some(Pauses { failed: each.clone(), returned: each });
            moved.add(Round { failover, ..round(true, &[Some(1.0)], &[100.0], 10.0) });
            assert_eq!(moved.failures().len(), failures, "{longest}");
        }
    }

    #[test]
    fn sparkline_is_as_high_as_the_goodput() {
        assert_eq!(sparkline(&round(true, &[], &[1.0, 1.0], 1.0)), "█ ▄ ");
    }
}
