//! Candidates beside random policies, compared with a search of the lists prefix by prefix.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use super::{CandidateEvaluation, OTHERS, PAIRS, RECENT, outcome_of};
use crate::config::{Config, Rules};
use gate::gate::RuleOutcome;
use gate::sample::PacketSample;

/// Reads two policies, the second as the candidate of the first.
fn rules(policy: &str, candidate: &str) -> Arc<Rules> {
    static NEXT: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
    let number = NEXT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    let folder = std::env::temp_dir().join(format!("fp-shadow-{}-{number}", std::process::id()));
    std::fs::create_dir_all(folder.join("next")).unwrap();
    std::fs::write(folder.join("next/gate.toml"), candidate).unwrap();
    std::fs::write(folder.join("next/allow.txt"), "10.66.0.0/16\n").unwrap();
    let text = format!(
        "front = {{ interface = \"a\" }}\nback = {{ interface = \"b\" }}\n\
         link = {{ bandwidth = \"1gbit\" }}\n{policy}\n\
         [rules]\ncandidate = \"next/gate.toml\"\n"
    );
    let config = Config::parse(&text, &folder.join("gate.toml"));
    std::fs::remove_dir_all(&folder).unwrap();
    Arc::new(config.unwrap_or_else(|error| panic!("{error}\n{text}\n{candidate}")).rules)
}

fn sample(source: IpAddr, destination: IpAddr, every: u32) -> PacketSample {
    PacketSample { source, destination, outcome: RuleOutcome::Request, bytes: 100, every }
}

/// Returns the outcome for an address pair by a search of every prefix.
fn outcome_by_search(rules: &Rules, policy: &Rules, source: IpAddr, destination: IpAddr) -> String {
    outcome_of(rules, Some(policy), source, destination).action
}

/// Writes a random policy: nested prefixes of a small space, sets, limits, allowed and blocked
/// sources.
fn random(rng: &mut fastrand::Rng) -> String {
    let mut text = String::new();
    let names = ["one", "two", "three"];
    for name in names {
        let weight = rng.u32(1..3);
        text += &format!(
            "[[grantors]]\nname = \"{name}\"\nmembers = [{{ address = \"10.9.0.1\", weight = {weight} }}]\n"
        );
    }
    let mut seen = std::collections::HashSet::new();
    for _ in 0..rng.usize(1..40) {
        let prefix = if rng.bool() {
            let len = rng.u32(8..=28);
            let address = 0xc000_0000 | (rng.u32(..) & 0x00ff_ff00);
            format!("{}/{len}", Ipv4Addr::from(address & (u32::MAX << (32 - len))))
        } else {
            let len = rng.u32(16..=48);
            let address = 0x2001_0db8_u128 << 96 | u128::from(rng.u32(..)) << 80;
            format!("{}/{len}", Ipv6Addr::from(address & (u128::MAX << (128 - len))))
        };
        if !seen.insert(prefix.clone()) {
            continue;
        }
        let action = match rng.u8(0..6) {
            0 => "action = \"back\"\nexempt = true".to_owned(),
            1 => "action = \"front\"\nexempt = true".to_owned(),
            2 => "action = \"drop\"".to_owned(),
            3 => format!("grantors = \"{}\"\nlimit = \"8mbit\"", names[rng.usize(..3)]),
            _ => format!("grantors = \"{}\"", names[rng.usize(..3)]),
        };
        text += &format!("[[policy]]\nprefix = \"{prefix}\"\n{action}\n");
    }
    let len = rng.u32(4..=12);
    let allowed = Ipv4Addr::from((10 << 24 | rng.u32(..) >> 8) & (u32::MAX << (32 - len)));
    text += &format!("[allow]\nprefixes = [\"{allowed}/{len}\", \"fd00::/9\"]\n");
    let len = rng.u32(9..=12);
    let blocked = Ipv4Addr::from((10 << 24 | rng.u32(..) >> 8) & (u32::MAX << (32 - len)));
    let six = ["fd40::/10", "fdc0::/10"][rng.usize(..2)];
    text + &format!("[block]\nprefixes = [\"{blocked}/{len}\", \"{six}\"]\n")
}

#[test]
fn evaluation_agrees_with_a_search_of_the_lists() {
    let mut rng = fastrand::Rng::with_seed(11);
    let (mut changed, mut same) = (0, 0);
    for _ in 0..60 {
        let rules = rules(&random(&mut rng), &random(&mut rng));
        let candidate = Arc::clone(rules.candidate.as_ref().unwrap());
        let mut evaluation = CandidateEvaluation::new(&rules).unwrap().unwrap();
        let mut expected: BTreeMap<(String, String), (u64, u64)> = BTreeMap::new();
        let mut all = (0, 0);
        for _ in 0..2000 {
            let (source, destination) = if rng.bool() {
                let source = 10 << 24 | rng.u32(..) >> 8;
                let destination = 0xc000_0000 | rng.u32(..) & 0x00ff_ffff;
                (IpAddr::V4(source.into()), IpAddr::V4(destination.into()))
            } else {
                let source = 0xfd_u128 << 120 | rng.u128(..) >> 8;
                let destination = 0x2001_0db8_u128 << 96 | u128::from(rng.u32(..)) << 80;
                (IpAddr::V6(source.into()), IpAddr::V6(destination.into()))
            };
            let every = rng.u32(1..9);
            evaluation.evaluate(Instant::now(), &sample(source, destination, every));
            all = (all.0 + 1, all.1 + u64::from(every));
            let was = outcome_by_search(&rules, &rules, source, destination);
            let will = outcome_by_search(&candidate, &rules, source, destination);
            if was == will {
                same += 1;
                continue;
            }
            changed += 1;
            let sums = expected.entry((was, will)).or_default();
            *sums = (sums.0 + 1, sums.1 + u64::from(every));
        }
        let status = evaluation.status();
        assert_eq!((status.samples, status.packets), all);
        let counted: BTreeMap<_, _> = status
            .changes
            .into_iter()
            .map(|change| ((change.policy, change.candidate), (change.samples, change.packets)))
            .collect();
        assert_eq!(counted, expected);
        for flow in status.flows {
            assert_ne!(flow.policy.action, flow.candidate.action, "{flow:?}");
        }
    }
    assert!(changed > 10_000 && same > 10_000, "{changed} {same}");
}

const SITE: &str = "[[grantors]]\nname = \"site\"\nmembers = [{ address = \"10.9.0.1\" }]\n";

#[test]
fn changed_flows_have_their_rules_and_the_latest_is_first() {
    let policy = format!("{SITE}[[policy]]\nprefix = \"192.0.2.0/24\"\ngrantors = \"site\"\n");
    let candidate = format!(
        "{policy}[[policy]]\nprefix = \"192.0.2.128/25\"\naction = \"drop\"\n\
         [allow]\nfile = \"allow.txt\"\n[rules]\nversion = \"next\"\n"
    );
    let rules = rules(&policy, &candidate);
    let mut evaluation = CandidateEvaluation::new(&rules).unwrap().unwrap();
    let mut evaluate = |source: [u8; 4], destination: [u8; 4]| {
        evaluation.evaluate(Instant::now(), &sample(source.into(), destination.into(), 4));
    };
    evaluate([10, 0, 0, 1], [192, 0, 2, 1]);
    evaluate([10, 66, 0, 1], [192, 0, 2, 1]);
    for last in 0..RECENT as u8 {
        evaluate([10, 0, 0, last], [192, 0, 2, 200]);
    }
    evaluate([10, 0, 0, 3], [192, 0, 2, 200]);
    let status = evaluation.status();
    assert_eq!((status.version.as_deref(), status.prefixes), (Some("next"), 2));
    let changes: Vec<_> =
        status.changes.iter().map(|c| (&*c.policy, &*c.candidate, c.packets)).collect();
    let dropped = 4 * (RECENT as u64 + 1);
    assert_eq!(changes, [("grantors site", "drop", dropped), ("grantors site", "allowed", 4)]);
    // The allowed flow was the oldest and was removed.
    assert_eq!(status.flows.len(), RECENT);
    let first = &status.flows[0];
    assert_eq!((first.source, first.packets), (IpAddr::from([10, 0, 0, 3]), 8));
    assert_eq!(first.policy.rule.as_deref(), Some("192.0.2.0/24"));
    assert_eq!(first.candidate.rule.as_deref(), Some("192.0.2.128/25"));
    assert_eq!(first.candidate.line, Some(8));
    let (source, destination) = ([10, 66, 0, 1].into(), [192, 0, 2, 1].into());
    let allowed = outcome_of(rules.candidate.as_ref().unwrap(), None, source, destination);
    assert_eq!((&*allowed.action, allowed.rule.as_deref()), ("allowed", Some("10.66.0.0/16")));
}

#[test]
fn set_with_other_members_is_another_outcome() {
    let protected = "[[policy]]\nprefix = \"192.0.2.0/24\"\ngrantors = \"site\"\n";
    let policy = format!("{SITE}{protected}");
    let changes = |candidate: &str| {
        let mut evaluation = CandidateEvaluation::new(&rules(&policy, candidate)).unwrap().unwrap();
        evaluation
            .evaluate(Instant::now(), &sample([10, 0, 0, 1].into(), [192, 0, 2, 1].into(), 1));
        evaluation.status().changes.pop().map(|change| change.candidate)
    };
    assert_eq!(changes(&policy), None);
    let limited = policy.replace("[[policy]]", "[[policy]]\nlimit = \"1mbit\"");
    assert_eq!(changes(&limited), None, "a limit is not part of an outcome");
    let other = changes(&policy.replace("10.9.0.1", "10.9.0.2"));
    assert_eq!(other.as_deref(), Some("grantors site of other members"));
    let other = changes(&policy.replace("site", "new"));
    assert_eq!(other.as_deref(), Some("grantors new"));
}

#[test]
fn pairs_beyond_the_maximum_are_counted_together() {
    let many = |name: &str| -> String {
        let set = |at: usize| {
            format!(
                "[[grantors]]\nname = \"{name}{at}\"\nmembers = [{{ address = \"10.9.0.1\" }}]\n\
                 [[policy]]\nprefix = \"10.{}.{}.0/24\"\ngrantors = \"{name}{at}\"\n",
                at / 256,
                at % 256
            )
        };
        (0..PAIRS + 9).map(set).collect()
    };
    let mut evaluation = CandidateEvaluation::new(&rules(&many("a"), &many("b"))).unwrap().unwrap();
    for at in 0..PAIRS + 9 {
        let to = [10, (at / 256) as u8, (at % 256) as u8, 1];
        evaluation.evaluate(Instant::now(), &sample([203, 0, 113, 1].into(), to.into(), 2));
    }
    let status = evaluation.status();
    assert_eq!(status.changes.len(), PAIRS + 1);
    assert_eq!((&*status.changes[0].policy, status.changes[0].packets), (OTHERS, 18));
    assert_eq!(status.changes.iter().map(|change| change.packets).sum::<u64>(), status.packets);
}

#[test]
fn candidate_is_checked_like_the_policy_in_force() {
    let policy = format!("{SITE}[[policy]]\nprefix = \"192.0.2.0/24\"\ngrantors = \"site\"\n");
    let folder = std::env::temp_dir().join(format!("fp-shadow-bad-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let refused = |candidate: Option<&str>| {
        let file = folder.join("next.toml");
        match candidate {
            Some(text) => std::fs::write(&file, text).unwrap(),
            None => std::fs::remove_file(&file).unwrap(),
        }
        let text = format!(
            "front = {{ interface = \"a\" }}\nback = {{ interface = \"b\" }}\n\
             link = {{ bandwidth = \"1gbit\" }}\n{policy}[rules]\ncandidate = \"next.toml\"\n"
        );
        let error = Config::parse(&text, &folder.join("gate.toml"));
        error
            .map(|config| assert!(config.rules.candidate.is_some()))
            .map_err(|error| error.to_string())
    };
    assert_eq!(refused(Some(&policy)), Ok(()));
    let hole = format!("{policy}[[policy]]\nprefix = \"192.0.2.9/32\"\naction = \"back\"\n");
    for (text, message) in [
        (&*hole, "192.0.2.9/32 would lead past the protection"),
        ("[front]\n", "unknown field `front`"),
        ("", "policy: no [[policy]]"),
        (
            &*policy.replace("= \"site\"", "= \"sight\"").replacen("sight", "site", 1),
            "next.toml:6: policy.grantors: no [[grantors]] is named \"sight\"",
        ),
        (
            &*format!("{policy}[rules]\ncandidate = \"x\"\n"),
            "next.toml:8: rules.candidate: a candidate cannot have a candidate",
        ),
    ] {
        let error = refused(Some(text)).unwrap_err();
        assert!(
            error.contains("gate.toml:11: rules.candidate: ") && error.contains(message),
            "{error}"
        );
    }
    assert!(refused(None).unwrap_err().contains("next.toml: No such file"));
    std::fs::remove_dir_all(Path::new(&folder)).unwrap();
}
