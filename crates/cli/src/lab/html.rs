//! The report as a page: what the clients got, attack by attack, over time.

use std::fmt::Write;

use super::report::{Figures, Judged, Report, percent};
use super::rounds::{LOAD, STREAMS};
use output::page::{figure, html_page, table};
use output::plot::{Bar, TimeSeries, bar_plot, escape, time_plot};

/// The scale of times to connect, in seconds.
const MOST: f64 = 4.0;
const KEY: &str = "<span class=\"key ours\"></span>with the gate\
                   <span class=\"key theirs\"></span>without";

/// Draws the page.
pub(super) fn page(report: &Report) -> String {
    let parts = [head(report), glance(report), courses(report), figures(report)];
    html_page("A server under attack, with the gate off and on", &parts.concat())
}

fn head(report: &Report) -> String {
    let scale = &report.scale;
    let mut text = format!(
        "<header><h1>A server under attack</h1><p class=\"lead\">What its honest clients got, with \
         the gate off and on.</p><dl><dt>Protected link</dt><dd>{} Mbit/s; attacks of {} times \
         that</dd><dt>Established</dt><dd>{STREAMS} connections that send {LOAD} % of the link \
         together</dd><dt>New</dt><dd>{} clients, four a second, each from an address of its \
         own</dd><dt>Policy</dt><dd><code>{}</code></dd></dl></header>",
        scale.link / 1_000_000,
        scale.factor,
        scale.newcomers(),
        report.policy
    );
    for complaint in report.complaints() {
        let _ = write!(text, "<p class=\"warn\">{}</p>", escape(&complaint));
    }
    text
}

fn name(judged: &Judged) -> &str {
    judged.round.attack.as_deref().unwrap_or("no attack")
}

fn class(judged: &Judged) -> &'static str {
    if judged.round.gate { "ours" } else { "theirs" }
}

fn bar(judged: &Judged, value: f64, low: f64, high: f64, text: String) -> Bar {
    let name = if judged.round.gate { "" } else { name(judged) };
    // The end says the most of a name that is too long for its place.
    let short = name.char_indices().rev().nth(18).map_or(name, |(at, _)| &name[at..]);
    Bar { name: short.to_owned(), class: class(judged), value, low, high, text }
}

fn glance(report: &Report) -> String {
    let kept: Vec<Bar> = report
        .rounds
        .iter()
        .map(|judged| {
            let Figures { kept, least, .. } = judged.figures;
            let share = kept.min(1.2) * 100.0;
            bar(judged, share, least.min(1.2) * 100.0, share, percent(kept))
        })
        .collect();
    let times: Vec<Bar> = report
        .rounds
        .iter()
        .map(|judged| {
            let Figures { median, worst, in_time, .. } = judged.figures;
            let (value, high) = (median.unwrap_or(MOST).min(MOST), worst.unwrap_or(MOST).min(MOST));
            let text = match median {
                Some(median) => format!("{median:.2} s, {} in 3 s", percent(in_time)),
                None => format!("hardly ever, {} in 3 s", percent(in_time)),
            };
            bar(judged, value, value.min(high), high, text)
        })
        .collect();
    format!(
        "<h2>At a glance</h2><p class=\"soft\">{KEY}</p>{}{}",
        figure(
            "Goodput of the established connections, percent of what they send; the line begins \
             at the one that kept the least",
            &bar_plot("Goodput kept, percent", &kept)
        ),
        figure(
            "Seconds until half of the new clients are connected; the line ends at the last, or \
             at the end of the scale",
            &bar_plot("Median time to connect, seconds", &times)
        )
    )
}

fn courses(report: &Report) -> String {
    let mut text = format!(
        "<h2>Attack by attack</h2><p>Lines: goodput of the established connections, of what they \
         had before the attack. Dots: new clients, at the time they came and the seconds until \
         they were connected; crosses took longer than the scale has. The attack begins at 0.</p>\
         <p class=\"soft\">{KEY}</p>"
    );
    let mut names: Vec<&str> = report.rounds.iter().map(name).collect();
    names.dedup();
    for attack in names {
        let about = report.attacks.iter().find(|known| known.name == attack);
        let rounds: Vec<&Judged> =
            report.rounds.iter().filter(|judged| name(judged) == attack).collect();
        let lines: Vec<_> = rounds
            .iter()
            .map(|judged| {
                let round = &judged.round;
                let calm = round.calm.iter().sum::<f64>().max(1.0);
                let line: Vec<(f64, f64)> = round
                    .timeline
                    .chunks(3)
                    .filter_map(|part| {
                        let mean = part.iter().map(|it| it.1).sum::<f64>() / part.len() as f64;
                        Some((part.last()?.0, mean / calm))
                    })
                    .filter(|(at, _)| *at > -3.0)
                    .collect();
                let points: Vec<(f64, Option<f64>)> = round
                    .newcomers
                    .iter()
                    .map(|it| (it.begun + super::rounds::SETTLE.as_secs_f64(), it.connected))
                    .collect();
                (class(judged), line, points)
            })
            .collect();
        let each: Vec<TimeSeries<'_>> =
            lines.iter().map(|(class, line, points)| TimeSeries { class, line, points }).collect();
        let what = about.map_or_else(|| "for comparison".to_owned(), |known| known.about.clone());
        let shaded = if about.is_some() { "attack" } else { "new clients come" };
        let _ = write!(
            text,
            "<h3>{}</h3>{}",
            escape(attack),
            figure(
                &escape(&what),
                &time_plot(&format!("{attack}, over time"), shaded, MOST, &each)
            )
        );
    }
    text
}

fn figures(report: &Report) -> String {
    let columns =
        ["attack", "gate", "offered", "median", "worst", "answered", "in 3 s", "goodput", "least"];
    let time = |seconds: Option<f64>| seconds.map_or("–".to_owned(), |it| format!("{it:.3} s"));
    let rows: Vec<(&str, Vec<String>)> = report
        .rounds
        .iter()
        .map(|judged| {
            let figures = &judged.figures;
            let cells = vec![
                name(judged).to_owned(),
                if judged.round.gate { "on" } else { "off" }.to_owned(),
                figures.factor.map_or("–".to_owned(), |factor| format!("{factor:.1} ×")),
                time(figures.median),
                time(figures.worst),
                time(figures.answered),
                percent(figures.in_time),
                percent(figures.kept),
                percent(figures.least),
            ];
            (class(judged), cells)
        })
        .collect();
    format!("<h2>In figures</h2>{}", table(&columns, &rows))
}
