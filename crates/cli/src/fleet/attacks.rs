//! `fingerpost fleet attacks`: one view of an attack over all gates.
//!
//! ```text
//!   verified states ─► gates whose attack lasts, not silent ─► sums ─► rates, drops by reason, destinations
//! ```
//!
//! The servers keep one state of each member, the last one, so that each gate is added up exactly once. A
//! silent gate is listed, and not part of the sums: its rates are old.

use std::collections::BTreeMap;
use std::io::Write;
use std::net::IpAddr;
use std::process::ExitCode;
use std::time::SystemTime;

use api::AttackReport;
use serde_json::json;

use super::number_of;
use super::status::{Args, Member};

/// Destinations that are shown.
const SHOWN: usize = 16;

/// The sums over the gates.
#[derive(Debug, Default, PartialEq)]
struct Total {
    gates: usize,
    /// The earliest beginning, in seconds since 1970.
    began: Option<f64>,
    received_rate: u64,
    dropped_rate: u64,
    dropped: BTreeMap<String, u64>,
    /// Packets a second for each destination: received, dropped.
    destinations: BTreeMap<IpAddr, (f64, f64)>,
}

impl Total {
    fn of<'m>(members: impl Iterator<Item = &'m Member>) -> Self {
        let mut total = Self::default();
        for attack in members.filter(|member| !member.is_silent()).filter_map(current_attack) {
            total.gates += 1;
            total.began = Some(total.began.map_or(attack.began, |began| began.min(attack.began)));
            total.received_rate += attack.received_rate;
            total.dropped_rate += attack.dropped_rate;
            for (reason, count) in &attack.dropped {
                *total.dropped.entry(reason.clone()).or_default() += count;
            }
            for of in &attack.destinations {
                let sums = total.destinations.entry(of.destination).or_default();
                sums.0 += of.received_rate;
                sums.1 += of.dropped_rate;
            }
        }
        total
    }

    /// Returns the destinations with most packets.
    fn top(&self) -> Vec<(IpAddr, f64, f64)> {
        let mut top: Vec<_> = self
            .destinations
            .iter()
            .map(|(address, (all, dropped))| (*address, *all, *dropped))
            .collect();
        top.sort_by(|a, b| b.1.total_cmp(&a.1));
        top.truncate(SHOWN);
        top
    }
}

/// Returns the attack that a member has reported and that lasts.
fn current_attack(member: &Member) -> Option<&AttackReport> {
    let (state, _) = member.state.as_ref()?;
    state.attack.as_ref().filter(|attack| attack.ended.is_none())
}

/// Prints the view. The exit status is 1 if a state is refused.
pub(super) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let (broker, found) = args.read()?;
    let total = Total::of(found.members.iter());
    let under_attack = || {
        let pair = |member| Some((member, current_attack(member)?));
        found.members.iter().filter_map(pair)
    };
    let mut out = std::io::stdout().lock();
    if args.json {
        let gates: Vec<_> = under_attack()
            .map(|(member, attack)| json!({ "name": member.name, "silent": member.is_silent(), "attack": attack }))
            .collect();
        let destination = |(address, received, dropped): (IpAddr, f64, f64)| json!({ "destination": address, "received_rate": received, "dropped_rate": dropped });
        let destinations: Vec<_> = total.top().into_iter().map(destination).collect();
        let document = json!({
            "url": broker.url().to_string(),
            "gates_under_attack": total.gates,
            "began": total.began,
            "received_rate": total.received_rate,
            "dropped_rate": total.dropped_rate,
            "dropped": total.dropped,
            "destinations": destinations,
            "gates": gates,
            "refused": found.refused_json(),
        });
        serde_json::to_writer_pretty(&mut out, &document)?;
        writeln!(out)?;
        return Ok(found.exit_code());
    }
    match total.began {
        None => writeln!(out, "{}: no gate is under attack", broker.url())?,
        Some(began) => {
            let now = SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default().as_secs_f64();
            writeln!(
                out,
                "{}: {} under attack since {:.0} s: {} packets/s, of which {} are dropped",
                broker.url(),
                number_of(total.gates, "gate", "gates"),
                (now - began).max(0.0),
                total.received_rate,
                total.dropped_rate
            )?;
        }
    }
    for (reason, count) in &total.dropped {
        writeln!(out, "  dropped {count:>14} {reason}")?;
    }
    for (address, received, dropped) in total.top() {
        writeln!(out, "  to {address:<40} {received:>12.0} packets/s, dropped {dropped:.0}")?;
    }
    for (member, attack) in under_attack() {
        let silent = if member.is_silent() { ", silent, not in the sums" } else { "" };
        writeln!(
            out,
            "{:<24} {:>10} packets/s, dropped {} (peak {}){silent}",
            member.name, attack.received_rate, attack.dropped_rate, attack.dropped_peak
        )?;
    }
    found.write_refused(&mut out)?;
    Ok(found.exit_code())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use api::{AttackedDestination, DistributionStatus};
    use bundle::state::{MemberState, SILENCE};

    use super::*;

    fn gate(name: &str, age: Duration, attack: Option<AttackReport>) -> Member {
        let state = MemberState::now("site", DistributionStatus::default(), attack);
        Member { name: name.to_owned(), state: Some((state, age)) }
    }

    #[test]
    fn each_gate_whose_attack_lasts_is_added_up_once() {
        let attack = |began: f64, count: u64| AttackReport {
            began,
            received_rate: 10 * count,
            dropped_rate: count,
            dropped: [("declined".to_owned(), count)].into(),
            destinations: vec![AttackedDestination {
                destination: [192, 0, 2, (count % 2) as u8].into(),
                received_rate: 1.0,
                dropped_rate: 0.5,
            }],
            ..AttackReport::default()
        };
        let old = SILENCE + Duration::from_secs(1);
        let members = [
            gate("a", Duration::ZERO, Some(attack(9.0, 1))),
            gate("b", Duration::ZERO, Some(attack(7.0, 2))),
            gate("c", Duration::ZERO, Some(attack(8.0, 3))),
            gate("silent", old, Some(attack(1.0, 100))),
            gate(
                "over",
                Duration::ZERO,
                Some(AttackReport { ended: Some(2.0), ..attack(1.0, 100) }),
            ),
            gate("calm", Duration::ZERO, None),
            Member { name: "new".to_owned(), state: None },
        ];
        let total = Total::of(members.iter());
        assert_eq!((total.gates, total.began), (3, Some(7.0)));
        assert_eq!((total.received_rate, total.dropped_rate), (60, 6));
        assert_eq!(total.dropped, [("declined".to_owned(), 6)].into());
        let address = |last| IpAddr::from([192, 0, 2, last]);
        assert_eq!(total.top(), [(address(1), 2.0, 1.0), (address(0), 1.0, 0.5)]);
    }
}
