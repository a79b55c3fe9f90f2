//! What the server's honest clients got, for people and for programs, and the bars.
//!
//! | bar | |
//! |---|---|
//! | new clients | every one is connected within 3 s, and half of them within 1.2 s |
//! | established ones | every stream keeps 95 % of the goodput that it has without an attack |
//!
//! Without an attack a stream's goodput is what it sends, which every round sees before its attack;
//! what a stream makes up for in one moment that it missed in another is not goodput, so that neither
//! counts for more than it sends.
//!
//! With the gate on both must hold under every attack; with it off neither does, or the
//! attack was none.

use std::io::Write;

use anyhow::Result;
use serde::Serialize;

use super::clients::{Newcomer, PATIENCE};
use super::rounds::{LOAD, Round, STREAMS, Scale};

/// Seconds within which every new client is connected.
const WORST: f64 = 3.0;
/// Seconds within which half of them are.
const MEDIAN: f64 = 1.2;
/// The share of its goodput that every stream keeps.
const KEPT: f64 = 0.95;
/// How far below the stated rate an attack may fall and still be one.
const FULL: f64 = 0.95;
/// Eighths, for a line of goodput in a terminal.
const BLOCKS: [char; 9] = [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// A round in figures.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Figures {
    /// Half of the new clients were connected within so many seconds, if so many ever were.
    pub(super) median: Option<f64>,
    /// All of them were.
    pub(super) worst: Option<f64>,
    /// Half of them had their answer.
    pub(super) answered: Option<f64>,
    /// The share of new clients that was connected in time.
    pub(super) in_time: f64,
    /// The share of their goodput that all streams together kept.
    pub(super) kept: f64,
    /// The share that the one kept that kept the least.
    pub(super) least: f64,
    /// The share that the one with the least had before the attack.
    pub(super) before: f64,
    /// Times the protected link that were offered, if there was an attack.
    pub(super) factor: Option<f64>,
    /// The bar for new clients holds.
    pub(super) new_hold: bool,
    /// The bar for established ones holds.
    pub(super) established_hold: bool,
}

impl Figures {
    /// Judges a round of this scale.
    pub(super) fn of(round: &Round, scale: &Scale) -> Self {
        let connected = ranked(&round.newcomers, |it| it.connected);
        let answered = ranked(&round.newcomers, |it| it.answered);
        let (median, worst) = (connected(0.5), connected(1.0));
        let count = round.newcomers.len().max(1) as f64;
        let early = |it: &&Newcomer| it.connected.is_some_and(|seconds| seconds <= WORST);
        let in_time = round.newcomers.iter().filter(early).count() as f64 / count;
        let sent = scale.stream() as f64;
        let shares = |rates: &[f64]| -> Vec<f64> {
            rates.iter().map(|rate| (rate / sent).min(1.0)).collect()
        };
        let (under, calm) = (shares(&round.under), shares(&round.calm));
        let mean = |shares: &[f64]| shares.iter().sum::<f64>() / shares.len().max(1) as f64;
        let least = |shares: &[f64]| shares.iter().copied().fold(1.0, f64::min);
        let (kept, least, before) = (mean(&under), least(&under), least(&calm));
        Self {
            median,
            worst,
            answered: answered(0.5),
            in_time,
            kept,
            least,
            before,
            factor: round.offered.map(|offered| offered.bits_a_second / scale.link as f64),
            new_hold: median.is_some_and(|median| median <= MEDIAN) && in_time >= 1.0,
            established_hold: least >= KEPT,
        }
    }
}

/// Returns who gives the value that a share of the clients does not exceed; nothing where
/// fewer of them have one.
fn ranked(
    newcomers: &[Newcomer],
    value: impl Fn(&Newcomer) -> Option<f64>,
) -> impl Fn(f64) -> Option<f64> {
    let mut values: Vec<f64> =
        newcomers.iter().map(|it| value(it).unwrap_or(f64::INFINITY)).collect();
    values.sort_by(f64::total_cmp);
    move |share| {
        let last = values.len().checked_sub(1)?;
        let at = values.get((last as f64 * share).ceil() as usize)?;
        at.is_finite().then_some(*at)
    }
}

/// What an attack is, for the report.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Known {
    pub(super) name: String,
    pub(super) about: String,
}

/// Everything there is to say.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    pub(super) scale: Scale,
    pub(super) policy: &'static str,
    pub(super) attacks: Vec<Known>,
    pub(super) rounds: Vec<Judged>,
    /// The bars hold with the gate on, and do not with it off.
    pub(super) holds: bool,
}

/// A round and what is made of it.
#[derive(Debug, Serialize)]
pub(super) struct Judged {
    #[serde(flatten)]
    pub(super) round: Round,
    pub(super) figures: Figures,
}

impl Report {
    /// Begins one.
    pub(super) fn new(scale: Scale, attacks: Vec<Known>) -> Self {
        Self { scale, policy: super::guard::POLICY, attacks, rounds: Vec::new(), holds: false }
    }

    /// Adds a round.
    pub(super) fn add(&mut self, round: Round) {
        let figures = Figures::of(&round, &self.scale);
        self.rounds.push(Judged { round, figures });
        self.holds = self.complaints().is_empty();
    }

    /// Says where a bar is not met, or where an attack was not one.
    pub(super) fn complaints(&self) -> Vec<String> {
        let mut found = Vec::new();
        for Judged { round, figures } in &self.rounds {
            let name = round.attack.as_deref().unwrap_or("no attack");
            let state = if round.gate { "on" } else { "off" };
            let mut say = |what: &str| found.push(format!("{name}, gate {state}: {what}"));
            // Without an attack, all have to be content either way.
            let content = round.gate || round.attack.is_none();
            if figures.factor.is_some_and(|factor| factor < self.scale.factor * FULL) {
                say("the machine could not send as much as was asked for");
            }
            if figures.before < KEPT {
                say("established connections were not at their speed before the attack");
            }
            match (content, figures.new_hold) {
                (true, false) => say("new clients wait too long"),
                (false, true) => say("new clients do not mind the attack"),
                _ => {}
            }
            match (content, figures.established_hold) {
                (true, false) => say("established connections lose goodput"),
                (false, true) => say("established connections do not mind the attack"),
                _ => {}
            }
        }
        found
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
        let Scale { link, factor, seconds } = self.scale;
        let mbit = |bits: f64| format!("{:.1} Mbit/s", bits / 1e6);
        writeln!(out, "protected link  {}; attacks of {factor} times that", mbit(link as f64))?;
        writeln!(
            out,
            "clients         {STREAMS} connections that send {} together ({LOAD} % of the link), \
             and {} new ones in {seconds} s",
            mbit(link as f64 * LOAD as f64 / 100.0),
            self.scale.newcomers()
        )?;
        writeln!(out, "policy          {}", self.policy)?;
        for Known { name, about } in &self.attacks {
            writeln!(out, "{name:<32} {about}")?;
        }
        writeln!(out)?;
        writeln!(
            out,
            "{:<32} {:<4} {:>7}  {:>8} {:>8} {:>8}  {:>8} {:>8}  goodput by half seconds",
            "attack", "gate", "offered", "median", "worst", "in 3 s", "goodput", "least"
        )?;
        for Judged { round, figures } in &self.rounds {
            let time = |seconds: Option<f64>| match seconds {
                Some(seconds) => format!("{seconds:.3} s"),
                None => format!("> {} s", PATIENCE.as_secs()),
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
                percent(figures.kept),
                percent(figures.least),
                line(round)
            )?;
        }
        writeln!(out)?;
        let complaints = self.complaints();
        for complaint in &complaints {
            writeln!(out, "{complaint}")?;
        }
        let verdict = match (self.rounds.is_empty(), complaints.is_empty()) {
            (true, _) => "interrupted before the first round had ended",
            (_, true) => {
                "with the gate on, new clients connect within 3 s, half of them within 1.2 s, and \
                 established ones keep 95 % of their goodput; with it off they do not"
            }
            (_, false) => "NOT AS IT SHOULD BE: see above",
        };
        Ok(writeln!(out, "{verdict}")?)
    }
}

/// Writes a share.
pub(super) fn percent(share: f64) -> String {
    format!("{:.1} %", share * 100.0)
}

/// Draws the goodput of a round, from a second before the attack on.
fn line(round: &Round) -> String {
    let calm: f64 = round.calm.iter().sum::<f64>().max(1.0);
    let mut steps: Vec<Vec<f64>> = Vec::new();
    for &(at, rate) in round.timeline.iter().filter(|(at, _)| *at > -1.0) {
        let step = ((at + 1.0) / 0.5) as usize;
        steps.resize(steps.len().max(step + 1), Vec::new());
        steps[step].push(rate);
    }
    let height = |rates: &Vec<f64>| {
        let mean = rates.iter().sum::<f64>() / rates.len().max(1) as f64;
        let last = BLOCKS.len() - 1;
        BLOCKS[((mean / calm * last as f64).round() as usize).min(last)]
    };
    steps.iter().map(height).collect()
}

#[cfg(test)]
mod tests {
    use super::super::sender::Offered;
    use super::super::topology::LinkCount;
    use super::*;

    const SCALE: Scale = Scale { link: 8_000_000, factor: 10.0, seconds: 2 };

    fn round(gate: bool, connected: &[Option<f64>], under: &[f64], factor: f64) -> Round {
        let newcomer = |&connected| Newcomer { begun: 0.0, connected, answered: connected };
        let bits_a_second = factor * 8e6;
        Round {
            attack: Some("flood".into()),
            gate,
            offered: Some(Offered { packets_a_second: 1.0, bits_a_second }),
            link: LinkCount::default(),
            newcomers: connected.iter().map(newcomer).collect(),
            calm: vec![75_000.0; under.len()],
            under: under.iter().map(|percent| percent * 750.0).collect(),
            kept: None,
            timeline: vec![(-0.9, 3e5), (0.1, 75e3), (0.2, 75e3), (0.6, 0.0)],
        }
    }

    #[test]
    fn the_bars_are_what_they_are() {
        let judge = |connected: &[Option<f64>], under: &[f64]| {
            let figures = Figures::of(&round(true, connected, under, 10.0), &SCALE);
            (figures.new_hold, figures.established_hold)
        };
        let quick = [Some(1.1), Some(1.19), Some(2.9)];
        assert_eq!(judge(&quick, &[95.0, 120.0]), (true, true));
        assert_eq!(judge(&[Some(1.1), Some(1.3), Some(2.9)], &[94.9, 200.0]), (false, false));
        assert_eq!(judge(&[Some(0.1), Some(0.1), Some(3.1)], &[0.0]), (false, false));
        assert_eq!(judge(&[Some(0.1), Some(0.1), None], &[]), (false, true));
        let figures = Figures::of(&round(true, &[None, Some(1.0), None], &[], 1.0), &SCALE);
        assert_eq!((figures.median, figures.worst), (None, None));
        assert!((figures.in_time - 1.0 / 3.0).abs() < 1e-9);
    }

    #[test]
    fn a_report_holds_when_the_gate_makes_the_difference() {
        let mut report = Report::new(SCALE, Vec::new());
        report.add(round(false, &[None, Some(1.0)], &[10.0], 10.0));
        assert!(report.holds);
        report.add(round(true, &[Some(1.0), Some(1.0)], &[100.0], 10.0));
        assert!(report.holds, "{:?}", report.complaints());
        let mut slow = round(true, &[Some(1.0), Some(4.0)], &[100.0], 9.0);
        slow.calm = vec![70_000.0];
        report.add(slow);
        assert_eq!(report.complaints().len(), 3, "{:?}", report.complaints());
        assert!(!report.holds);
        let mut mild = Report::new(SCALE, Vec::new());
        mild.add(round(false, &[Some(1.0)], &[100.0], 10.0));
        assert_eq!(mild.complaints().len(), 2);
    }

    #[test]
    fn a_line_is_as_high_as_the_goodput() {
        assert_eq!(line(&round(true, &[], &[1.0, 1.0], 1.0)), "█ ▄ ");
    }
}
