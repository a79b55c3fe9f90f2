//! The decisions of given pulls, and of a model of the engine.

use super::super::tests::{ban, body, decision, lines};
use super::*;

#[test]
fn decision_of_another_kind_is_skipped_with_one_warning() {
    let skipped = [
        decision(1, "captcha", "Ip", "192.0.2.1", "1h"),
        decision(2, "ban", "Country", "FR", "1h"),
        decision(3, "ban", "AS", "64500", "1h"),
        decision(4, "ban", "ip", "192.0.2.256", "1h"),
        decision(5, "BAN", "RANGE", "192.0.2.0/33", "1h"),
        decision(6, "ban", "range", "192.0.2.0/+8", "1h"),
        decision(7, "ban", "Ip", "", "1h"),
        decision(8, "ban", "Ip", "192.0.2.8", "5d"),
        decision(9, "ban", "Ip", "192.0.2.9", "9999999h"),
        decision(10, "ban", "Ip", "::ffff:192.0.2.10", "1h"),
        decision(11, "Ban", "RANGE", "0.0.0.0/0", "1h"),
    ];
    let text = body(&skipped, &[]);
    let pull = Pull::parse(text.as_bytes()).unwrap();
    let mut decisions = Decisions::default();
    let now = Timestamp::now();
    assert!(decisions.apply(&pull, true, now));
    let text = String::from_utf8(decisions.render(now)).unwrap();
    let prefixes: Vec<_> = lines(&text).into_iter().map(|(prefix, _)| prefix).collect();
    assert_eq!(prefixes, ["0.0.0.0/0", "::ffff:192.0.2.10"]);
    let warnings = decisions.take_warnings();
    assert_eq!(warnings.len(), 4);
    for (warning, part) in warnings.iter().zip([
        "decisions of another type than \"ban\" are not applied: 1, the first is decision 1",
        "decisions of another scope than \"Ip\" and \"Range\" are not applied: 2, the first is \
         decision 2, ban of Country FR for 1h",
        "decisions without a valid address or prefix are not applied: 4, the first is decision 4",
        "decisions without a valid duration are not applied: 2, the first is decision 8",
    ]) {
        assert!(warning.contains(part), "{warning}");
    }
    decisions.apply(&pull, true, now);
    assert!(decisions.take_warnings().is_empty());
}

#[test]
fn decision_that_arrives_again_keeps_its_end_within_the_jitter() {
    let mut decisions = Decisions::default();
    // Texts after pulls at a second of the minute, with the time that the engine computed then.
    let mut text_of = |second: &str, value: &str, left: &str, is_full: bool| {
        let now = format!("2026-12-01T00:00:{second}Z").parse().unwrap();
        let text = body(&[ban(1, value, left)], &[]);
        let changed = decisions.apply(&Pull::parse(text.as_bytes()).unwrap(), is_full, now);
        (changed, String::from_utf8(decisions.render(now)).unwrap())
    };
    let first = "192.0.2.1 expires=2026-12-01T01:00:00Z\n".to_owned();
    assert_eq!(text_of("00", "192.0.2.1", "1h0m0s", true), (true, first.clone()));
    // Rounded to a second, and late; exact, and later.
    assert_eq!(text_of("10.6", "192.0.2.1", "59m50s", true), (true, first.clone()));
    assert_eq!(text_of("22.001", "192.0.2.1", "59m40.0s", false), (false, first));
    let other = "192.0.2.1 expires=2026-12-01T01:00:04Z\n".to_owned();
    assert_eq!(text_of("30", "192.0.2.1", "59m34s", false), (true, other));
    let other = "192.0.2.2 expires=2026-12-01T01:00:06Z\n".to_owned();
    assert_eq!(text_of("31", "192.0.2.2", "59m34.5s", true), (true, other));
}

#[test]
fn end_of_a_decision_at_its_time_is_no_change() {
    let mut decisions = Decisions::default();
    let mut apply = |second: &str, new: &[String], deleted: &[String]| {
        let now = format!("2026-12-01T00:00:{second}Z").parse().unwrap();
        decisions.apply(&Pull::parse(body(new, deleted).as_bytes()).unwrap(), false, now)
    };
    assert!(apply("00", &[ban(1, "192.0.2.1", "9.2s"), ban(2, "192.0.2.2", "9.2s")], &[]));
    assert!(!apply("05", &[], &[]));
    assert!(apply("09.9", &[], &[ban(1, "192.0.2.1", "-700ms")]));
    assert!(!apply("10", &[], &[ban(1, "192.0.2.1", "-1s"), ban(2, "192.0.2.2", "-1s")]));
    // It removes the line once another changes.
    assert!(apply("20", &[ban(3, "192.0.2.3", "9s"), ban(4, "192.0.2.4", "10s")], &[]));
    let text = decisions.render("2026-12-01T00:00:29Z".parse().unwrap());
    assert_eq!(text, b"192.0.2.4 expires=2026-12-01T00:00:30Z\n");
}

/// An engine's decisions, in milliseconds since a begin, and the time of the last pull.
#[derive(Default)]
struct Engine {
    /// Value, creation and end of each id.
    decisions: Vec<(&'static str, i64, i64)>,
    last_pull: i64,
}

impl Engine {
    /// Returns the body of a pull at `now`, by the queries of `pkg/database/decisions.go`.
    fn pull(&mut self, is_full: bool, now: i64) -> String {
        let since = self.last_pull;
        self.last_pull = now;
        let select = |is_selected: &dyn Fn(i64, i64) -> bool| {
            let numbered = self.decisions.iter().enumerate();
            let selected = numbered.filter(|(_, (_, created, end))| is_selected(*created, *end));
            let json = |(id, (value, _, end)): (usize, &(&str, i64, i64))| {
                ban(id as i64, value, &format!("{}ms", end - now))
            };
            selected.map(json).collect::<Vec<_>>()
        };
        let new = select(&|created, end| end > now && (is_full || created > since));
        let deleted = select(&|_, end| end < now && (is_full || end > since - 2000));
        body(&new, &deleted)
    }
}

#[test]
fn decisions_after_each_pull_are_those_of_the_engine() {
    const VALUES: [(&str, &str); 6] = [
        ("192.0.2.1", "192.0.2.1"),
        ("192.0.2.1/32", "192.0.2.1"),
        ("198.51.100.0/24", "198.51.100.0/24"),
        ("198.51.100.9/24", "198.51.100.0/24"),
        ("2001:db8::1", "2001:db8::1"),
        ("2001:db8::/32", "2001:db8::/32"),
    ];
    let begin: Timestamp = "2026-12-01T00:00:00.25Z".parse().unwrap();
    let at = |ms: i64| begin + SignedDuration::from_millis(ms);
    let mut seed: u64 = 1;
    let mut random = |below: i64| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((seed >> 33) % below as u64) as i64
    };
    let (mut engine, mut decisions) = (Engine::default(), Decisions::default());
    let (mut now, mut is_full, mut active_pulls) = (0, true, 0);
    for step in 0..6000 {
        now += 1 + random(400);
        match random(8) {
            0 | 1 => {
                let value = VALUES[random(6) as usize].0;
                engine.decisions.push((value, now, now + 1 + random(30_000)));
            }
            2 => {
                let from = engine.decisions.len().saturating_sub(30);
                let index = from as i64 + random(30);
                if let Some((_, _, end)) = engine.decisions.get_mut(index as usize) {
                    *end = now.min(*end);
                }
            }
            3 if random(10) == 0 => {
                // A response is lost.
                engine.pull(is_full, now);
                is_full = true;
            }
            4 | 5 => {
                let text = engine.pull(is_full, now);
                let latency = random(500);
                let arrival = at(now + latency);
                decisions.apply(&Pull::parse(text.as_bytes()).unwrap(), is_full, arrival);
                is_full = random(20) == 0;
                let found = lines(&String::from_utf8(decisions.render(arrival)).unwrap());
                for (_, prefix) in VALUES {
                    let ends = engine.decisions.iter().filter(|(value, ..)| {
                        VALUES.iter().any(|(text, of)| text == value && *of == prefix)
                    });
                    let end = ends.map(|&(_, _, end)| end).max().unwrap_or(0);
                    let line = found.iter().find(|(listed, _)| listed == prefix);
                    // Decisions that end within the latency may be in either state.
                    assert!(line.is_some() || end <= now + latency, "{step}: {prefix} is missing");
                    let Some(&(_, listed)) = line else { continue };
                    assert!(end >= now, "{step}: {prefix} has ended");
                    let late = listed.duration_since(at(end));
                    let is_near = late >= SignedDuration::ZERO && late.as_millis() < 1500 + 500;
                    assert!(is_near, "{step}: {prefix} ends {late:?} late");
                    active_pulls += 1;
                }
                now += latency;
            }
            _ => {}
        }
    }
    assert!(active_pulls > 2000, "{active_pulls}");
}
