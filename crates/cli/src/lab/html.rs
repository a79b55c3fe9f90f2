//! The report as an HTML page: connect times and goodput by attack and over time.

use std::fmt::Write;

use super::report::{EvaluatedRound, Figures, Report, percent};
use super::rounds::{LOAD, STREAMS};
use output::page::{figure, html_page, table};
use output::plot::{Bar, TimeSeries, bar_plot, escape, time_plot};

/// The scale of times to connect, in seconds.
const TIME_SCALE: f64 = 4.0;
const KEY: &str = "<span class=\"key ours\"></span>with the gate\
                   <span class=\"key theirs\"></span>without";

/// Draws the page.
pub(super) fn page(report: &Report) -> String {
    let parts = [head(report), overview(report), timelines(report), figures(report)];
    html_page("A server under attack, with the gate off and on", &parts.concat())
}

fn head(report: &Report) -> String {
    let scale = &report.scale;
    let mut text = format!(
        "<header><h1>A server under attack</h1><p class=\"lead\">The service that its honest clients had, with \
         the gate off and on.</p><dl><dt>Protected link</dt><dd>{} Mbit/s; attacks of {} times \
         that</dd><dt>Established</dt><dd>{STREAMS} connections that send {LOAD} % of the link \
         together</dd><dt>New</dt><dd>{} clients, four per second, each from an address of its \
         own</dd><dt>Policy</dt><dd><code>{}</code></dd></dl></header>",
        scale.link / 1_000_000,
        scale.factor,
        scale.new_clients(),
        report.policy
    );
    for failure in report.failures() {
        let _ = write!(text, "<p class=\"warn\">{}</p>", escape(&failure));
    }
    text
}

fn name(round: &EvaluatedRound) -> &str {
    round.round.attack.as_deref().unwrap_or("no attack")
}

fn class(round: &EvaluatedRound) -> &'static str {
    if round.round.gate { "ours" } else { "theirs" }
}

fn bar(round: &EvaluatedRound, value: f64, low: f64, high: f64, text: String) -> Bar {
    let name = if round.round.gate { "" } else { name(round) };
    // The end of a long name is the part that differs.
    let short = name.char_indices().rev().nth(18).map_or(name, |(at, _)| &name[at..]);
    Bar { name: short.to_owned(), class: class(round), value, low, high, text }
}

fn overview(report: &Report) -> String {
    let goodput: Vec<Bar> = report
        .rounds
        .iter()
        .map(|round| {
            let Figures { goodput, least_goodput, .. } = round.figures;
            let share = goodput.min(1.2) * 100.0;
            bar(round, share, least_goodput.min(1.2) * 100.0, share, percent(goodput))
        })
        .collect();
    let times: Vec<Bar> = report
        .rounds
        .iter()
        .map(|round| {
            let Figures { median, worst, in_time, .. } = round.figures;
            let (value, high) = (
                median.unwrap_or(TIME_SCALE).min(TIME_SCALE),
                worst.unwrap_or(TIME_SCALE).min(TIME_SCALE),
            );
            let text = match median {
                Some(median) => format!("{median:.2} s, {} in 3 s", percent(in_time)),
                None => format!("less than half, {} in 3 s", percent(in_time)),
            };
            bar(round, value, value.min(high), high, text)
        })
        .collect();
    format!(
        "<h2>At a glance</h2><p class=\"soft\">{KEY}</p>{}{}",
        figure(
            "Goodput of the established connections in percent of their offered rate; the line begins \
             at the least of them",
            &bar_plot("Goodput, percent", &goodput)
        ),
        figure(
            "Seconds until half of the new clients are connected; the line ends at the last one, or \
             at the end of the scale",
            &bar_plot("Median time to connect, seconds", &times)
        )
    )
}

fn timelines(report: &Report) -> String {
    let mut text = format!(
        "<h2>By attack</h2><p>Lines: goodput of the established connections, relative to their \
         goodput before the attack. Dots: new clients, by the time of their start and the seconds \
         until they were connected; a cross is a longer time than the scale has. The attack begins \
         at 0.</p>\
         <p class=\"soft\">{KEY}</p>"
    );
    let mut names: Vec<&str> = report.rounds.iter().map(name).collect();
    names.dedup();
    for attack in names {
        let summary = report.attacks.iter().find(|summary| summary.name == attack);
        let rounds: Vec<&EvaluatedRound> =
            report.rounds.iter().filter(|round| name(round) == attack).collect();
        let lines: Vec<_> = rounds
            .iter()
            .map(|round| {
                let class = class(round);
                let round = &round.round;
                let baseline = round.baseline.iter().sum::<f64>().max(1.0);
                let line: Vec<(f64, f64)> = round
                    .timeline
                    .chunks(3)
                    .filter_map(|part| {
                        let mean =
                            part.iter().map(|(_, rate)| rate).sum::<f64>() / part.len() as f64;
                        Some((part.last()?.0, mean / baseline))
                    })
                    .filter(|(at, _)| *at > -3.0)
                    .collect();
                let points: Vec<(f64, Option<f64>)> = round
                    .new_clients
                    .iter()
                    .map(|client| {
                        (client.start + super::rounds::RAMP_UP.as_secs_f64(), client.connected)
                    })
                    .collect();
                (class, line, points)
            })
            .collect();
        let each: Vec<TimeSeries<'_>> =
            lines.iter().map(|(class, line, points)| TimeSeries { class, line, points }).collect();
        let description = summary
            .map_or_else(|| "for comparison".to_owned(), |summary| summary.description.clone());
        let shaded = if summary.is_some() { "attack" } else { "new clients start" };
        let _ = write!(
            text,
            "<h3>{}</h3>{}",
            escape(attack),
            figure(
                &escape(&description),
                &time_plot(&format!("{attack}, over time"), shaded, TIME_SCALE, &each)
            )
        );
    }
    text
}

fn figures(report: &Report) -> String {
    let columns = [
        "attack", "gate", "offered", "median", "worst", "answered", "in 3 s", "goodput", "least",
        "fails", "returns",
    ];
    let time = |seconds: Option<f64>| {
        seconds.map_or("–".to_owned(), |seconds| format!("{seconds:.3} s"))
    };
    let rows: Vec<(&str, Vec<String>)> = report
        .rounds
        .iter()
        .map(|round| {
            let figures = &round.figures;
            let cells = vec![
                name(round).to_owned(),
                if round.round.gate { "on" } else { "off" }.to_owned(),
                figures.factor.map_or("–".to_owned(), |factor| format!("{factor:.1} ×")),
                time(figures.median),
                time(figures.worst),
                time(figures.answered),
                percent(figures.in_time),
                percent(figures.goodput),
                percent(figures.least_goodput),
                time(figures.failover.map(|[failed, _]| failed)),
                time(figures.failover.map(|[_, returned]| returned)),
            ];
            (class(round), cells)
        })
        .collect();
    format!("<h2>Figures</h2>{}", table(&columns, &rows))
}
