//! The report: one page of HTML that needs nothing else.
//!
//! Drawn from the [`Outcome`] alone, style and plots within it, no script, and readable in
//! light and dark as the reader's system has it. It answers in this order: who is fastest,
//! by how much and how surely; what a table costs in bytes; how near that is to what the
//! machine can do, and where the rest goes; what was measured and of whom.

use std::fmt::Write;

use super::course::Case;
use super::report::{Contestant, Outcome, Place, Score, percent, size};
use crate::clock::Summary;
use crate::keys::Stream;
use output::page::{figure, html_page, table};
use output::plot::{Bar, Dot, bar_plot, bytes_plot, escape, number};

/// Draws the page.
pub(super) fn page(outcome: &Outcome) -> String {
    let title = format!("{}: longest prefix match, measured", outcome.name);
    let parts = [head, glance, streams, footprints, shares, latencies, changes, everybody]
        .map(|part| part(outcome));
    html_page(&title, &parts.concat())
}

fn class(one: &Contestant) -> &'static str {
    if one.ours { "ours" } else { "theirs" }
}

const KEY: &str = "<span class=\"key ours\"></span>Fingerpost\
                   <span class=\"key theirs\"></span>others";

fn head(outcome: &Outcome) -> String {
    let Outcome { name, about, machine, routes, family, hops, keys, rounds, .. } = outcome;
    let shares: Vec<String> = hops.shares.iter().map(|share| format!("{share:.0}")).collect();
    let caches = format!("{} L2, {} L3", size(machine.level_2), size(machine.level_3));
    let facts = [
        ("Table", format!("{about}: {routes} routes of IPv{family}")),
        (
            "Next hops",
            format!(
                "{} different ones; the most frequent have {} % of the routes",
                hops.distinct,
                shares.join(", ")
            ),
        ),
        (
            "Machine",
            format!("{}, {} cores, {caches} as the system tells", machine.cpu, machine.cores),
        ),
        (
            "Method",
            format!(
                "{keys} keys a stream; medians of {rounds} rounds, in each of which every table is built \
             in a fresh process; all keep turns on the same keys, and every answer was checked before"
            ),
        ),
        ("Made", format!("{}, commit {}, Rust {}", machine.time, machine.commit, machine.rustc)),
    ];
    let mut text = format!(
        "<header><h1>{}</h1><p class=\"lead\">Longest prefix match, measured: who finds a route \
         fastest, in how many bytes, and how near that is to what the machine can do.</p><dl>",
        escape(name)
    );
    for (what, fact) in facts {
        let _ = write!(text, "<dt>{what}</dt><dd>{}</dd>", escape(&fact));
    }
    text += "</dl></header>";
    if outcome.quick {
        text += "<p class=\"warn\">A quick run on few keys: it shows that the benchmark works, \
                 not how fast anything is.</p>";
    }
    text
}

/// The case of a stream that is shown large: one thread, the longest bursts.
fn main_case(outcome: &Outcome, stream: Stream) -> Option<Case> {
    let cases = outcome.cases(stream);
    let fewest = cases.iter().map(|case| case.threads).min()?;
    cases.into_iter().filter(|case| case.threads == fewest).max_by_key(|case| case.burst)
}

fn glance(outcome: &Outcome) -> String {
    let mut rows = Vec::new();
    for Place { stream, .. } in &outcome.streams {
        let Some(case) = main_case(outcome, *stream) else { continue };
        let scores = outcome.scores(case);
        let best = |ours: bool| scores.iter().find(|(one, _)| one.ours == ours);
        let cells = |found: Option<&(&Contestant, &Score)>| match found {
            Some((one, score)) => [one.name.clone(), number(score.summary.median)],
            None => ["–".to_owned(), "–".to_owned()],
        };
        let ratio = best(true).zip(best(false)).map_or("–".to_owned(), |(ours, theirs)| {
            format!("× {:.2}", ours.1.summary.median / theirs.1.summary.median)
        });
        let [our_name, ours] = cells(best(true));
        let [their_name, theirs] = cells(best(false));
        rows.push(("", vec![stream.to_string(), our_name, ours, their_name, theirs, ratio]));
    }
    let columns = ["stream", "best of ours", "M/s", "best of others", "M/s", "ratio"];
    format!(
        "<h2>At a glance</h2><p>Million lookups a second on one thread, in the longest bursts. The \
         ratio is between medians of this run.</p>{}",
        table(&columns, &rows)
    )
}

/// What a stream asks, in a line.
fn asks(stream: Stream) -> &'static str {
    match stream {
        Stream::Rnd => "Uniform over the addresses that can be routed: nothing is found again.",
        Stream::Seq => "The same keys, each waiting for the answer before it: pure latency.",
        Stream::Rep => "Each key eight times, among seven others: traffic in trains.",
        Stream::Pfx => "A random route, then an address in it: every corner of the table alike.",
        Stream::Zipf => {
            "2^20 destinations, the one of rank r with weight 1/r: most traffic to a few."
        }
    }
}

fn streams(outcome: &Outcome) -> String {
    let mut text = format!("<h2>Lookups, stream by stream</h2><p class=\"soft\">{KEY}</p>");
    for Place { stream, locality } in &outcome.streams {
        let Some(case) = main_case(outcome, *stream) else { continue };
        let row = |(one, score): &(&Contestant, &Score)| {
            let Summary { median, min, max, .. } = score.summary;
            let share = score.share.map(|share| format!(", {} of limit", percent(share)));
            Bar {
                name: one.name.clone(),
                class: class(one),
                value: median,
                low: min,
                high: max,
                text: number(median) + &share.unwrap_or_default(),
            }
        };
        let rows: Vec<Bar> = outcome.scores(case).iter().map(row).collect();
        let heading = outcome.heading(case);
        let _ = write!(
            text,
            "<h3>{stream}</h3><p>{} Of {} keys {} are different; the most frequent 1 % of those make \
             {} of all; {} came within the last 4096 already.</p>{}",
            asks(*stream),
            outcome.keys,
            locality.distinct,
            percent(locality.hottest),
            percent(locality.recent),
            figure(
                &format!("{}; the line is from the slowest round to the fastest", escape(&heading)),
                &bar_plot(&heading, &rows)
            )
        );
        let mut rows = Vec::new();
        for case in outcome.cases(*stream) {
            for (one, Score { summary, .. }) in outcome.scores(case) {
                let Summary { median, mad, min, max } = *summary;
                let mut cells = vec![one.name.clone(), case.threads.to_string()];
                cells.push(case.burst.to_string());
                cells.extend([median, mad, min, max].map(|value| format!("{value:.1}")));
                rows.push((class(one), cells));
            }
        }
        let columns = ["", "threads", "burst", "median", "deviation", "least", "most"];
        let _ = write!(
            text,
            "<details><summary>All cases of {stream}</summary>{}</details>",
            table(&columns, &rows)
        );
    }
    text
}

fn footprints(outcome: &Outcome) -> String {
    let curve: Vec<(f64, f64)> =
        outcome.limit.iter().map(|at| (at.bytes as f64, at.independent.median)).collect();
    let mut text = "<h2>Bytes against speed</h2><p>The curve is what this machine does with plain \
                    loads of 4 bytes from random places in so many bytes, on huge pages, measured in \
                    this run. A lookup that touches two cache lines can do half of that, one of three a \
                    third; a smaller table stands further to the left, where there is more to be had.\
                    </p>"
        .to_owned();
    for stream in [Stream::Rnd, Stream::Pfx] {
        let Some(case) = main_case(outcome, stream) else { continue };
        let scores = outcome.scores(case);
        let dots: Vec<Dot> = scores
            .iter()
            .filter(|(one, _)| one.bytes > 0)
            .map(|(one, score)| Dot {
                name: one.name.clone(),
                class: class(one),
                bytes: one.bytes as f64,
                value: score.summary.median,
            })
            .collect();
        let plot =
            bytes_plot(&format!("{stream}: rate by bytes"), "million a second", &curve, &dots);
        text += &figure(
            &format!(
                "{} {KEY}<span class=\"key limit\"></span>one load a lookup",
                escape(&outcome.heading(case))
            ),
            &plot,
        );
    }
    let rows: Vec<_> = outcome
        .limit
        .iter()
        .map(|at| {
            let cells = vec![
                size(at.bytes),
                format!("{:.0} ± {:.0}", at.independent.median, at.independent.mad),
                format!("{:.0}", at.scalar),
                format!("{:.1} ± {:.1}", at.dependent.median, at.dependent.mad),
            ];
            ("", cells)
        })
        .collect();
    let columns = ["bytes", "independent, M/s", "of these one by one", "dependent, ns"];
    text + "<details><summary>The machine's limit in figures</summary>"
        + &table(&columns, &rows)
        + "</details>"
}

fn shares(outcome: &Outcome) -> String {
    let streams: Vec<Stream> = outcome.streams.iter().map(|place| place.stream).collect();
    let mut columns = vec!["engine".to_owned(), "bytes".to_owned(), "a prefix".to_owned()];
    columns.extend(streams.iter().map(Stream::to_string));
    let mut rows = Vec::new();
    for one in outcome.contestants.iter().filter(|one| one.ours) {
        let mut cells =
            vec![one.name.clone(), size(one.bytes), format!("{:.2}", one.bytes_per_prefix)];
        for &stream in &streams {
            let lines = one.touched.iter().find(|touched| touched.stream == stream);
            let case = main_case(outcome, stream);
            let share = one.scores.iter().find_map(|score| {
                let case = case?;
                ((score.stream, score.burst, score.threads) == (stream, case.burst, case.threads))
                    .then_some(score.share)?
            });
            cells.push(lines.zip(share).map_or("–".to_owned(), |(touched, share)| {
                format!("{} of {:.2}", percent(share), touched.lines)
            }));
        }
        rows.push((class(one), cells));
    }
    let columns: Vec<&str> = columns.iter().map(String::as_str).collect();
    format!(
        "<h2>The share of the machine's limit</h2><p>If a lookup were nothing but its loads, each of a \
         cache line from anywhere in the table, the machine could do <em>limit(bytes) / lines</em> a \
         second; that is 100 %. What is missing goes to instructions between the loads, to \
         mispredicted branches, and to loads that wait for each other within a lookup. More than \
         100 % means locality: the lines of a small first stage stay near, and keys that come again \
         find theirs. For SEQ the yardstick is a dependent load at each line. \
         Each figure is the share, and of how many lines a lookup.</p>{}",
        table(&columns, &rows)
    )
}

fn latencies(outcome: &Outcome) -> String {
    let mut all: Vec<_> =
        outcome.contestants.iter().filter_map(|one| Some((one, one.latency?))).collect();
    if all.is_empty() {
        return String::new();
    }
    all.sort_by(|one, two| one.1.p50.total_cmp(&two.1.p50));
    let plot: Vec<Bar> = all
        .iter()
        .map(|(one, latency)| Bar {
            name: one.name.clone(),
            class: class(one),
            value: latency.p50,
            low: latency.p50,
            high: latency.p90,
            text: format!("{} ns, 90 % {}", number(latency.p50), number(latency.p90)),
        })
        .collect();
    let rows: Vec<_> = all
        .iter()
        .map(|(one, latency)| {
            let mut cells = vec![one.name.clone()];
            let places = [latency.p50, latency.p90, latency.p99, latency.p999];
            cells.extend(places.map(|value| format!("{value:.1}")));
            (class(one), cells)
        })
        .collect();
    format!(
        "<h2>The latency of a single lookup</h2><p>SEQ by the wall clock, in chains of {} lookups: \
         the time of a lookup on average over a chain, and how that is spread over chains. The far \
         end has in it what the system did besides.</p>{}<details><summary>In figures</summary>{}\
         </details>",
        outcome.chain,
        figure(
            "Nanoseconds: the median chain, with a line to the 90th of 100",
            &bar_plot("Latency, ns", &plot)
        ),
        table(&["", "50 %", "90 %", "99 %", "99.9 %"], &rows)
    )
}

fn changes(outcome: &Outcome) -> String {
    let mut all: Vec<_> =
        outcome.contestants.iter().filter_map(|one| Some((one, one.changes?))).collect();
    if all.is_empty() {
        return String::new();
    }
    all.sort_by(|one, two| two.1.median.total_cmp(&one.1.median));
    let plot: Vec<Bar> = all
        .iter()
        .map(|(one, summary)| Bar {
            name: one.name.clone(),
            class: class(one),
            value: summary.median,
            low: summary.min,
            high: summary.max,
            text: number(summary.median),
        })
        .collect();
    format!(
        "<h2>Changes</h2><p>{} routes withdrawn, brought back or given another hop, one by one. Ours \
         publish each change by itself to readers who never stop; the others change their one table \
         in place, which nobody may read meanwhile unless they say so.</p>{}",
        outcome.changes,
        figure("Thousand changes a second", &bar_plot("Changes, thousand a second", &plot))
    )
}

fn everybody(outcome: &Outcome) -> String {
    let rows: Vec<_> = outcome
        .contestants
        .iter()
        .map(|one| {
            let bytes = if one.bytes == 0 { "–".to_owned() } else { size(one.bytes) };
            let what = match (one.ours, one.kept) {
                (true, _) => "an engine of Fingerpost".to_owned(),
                (false, true) => format!("{} (one process for all rounds)", one.what),
                (false, false) => one.what.clone(),
            };
            let cells = vec![
                one.name.clone(),
                one.version.clone(),
                bytes,
                format!("{:.2}", one.bytes_per_prefix),
                format!("{:.2}", one.filled.median),
                one.license.clone(),
                what,
            ];
            (class(one), cells)
        })
        .collect();
    let columns = ["", "version", "bytes", "a prefix", "filled in s", "license", "what"];
    let mut text = format!("<h2>Who took part</h2>{}", table(&columns, &rows));
    for missing in &outcome.missing {
        let _ = write!(
            text,
            "<p class=\"warn\"><strong>{}</strong> is missing: <code>{}</code></p>",
            escape(&missing.name),
            escape(&missing.why)
        );
    }
    text + "<p class=\"soft\">How time is kept stands in <code>bench/METHOD.md</code>, what may be \
            misleading in <code>bench/BIAS.md</code>, and how to take part in \
            <code>bench/rivals/README.md</code>.</p>"
}
