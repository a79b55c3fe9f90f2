//! The report as one self-contained page of HTML.
//!
//! The page is drawn from the [`Outcome`] alone. It contains its style and plots, has no script,
//! and follows the light or dark mode of the reader's system. Its order: the fastest contestants,
//! with ratios and spreads; the bytes of each table; the share of the machine's limit, and the
//! reasons for the rest; the contestants and the method.

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
    let parts = [head, glance, streams, footprints, shares, latencies, changes, contestants]
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
            format!("{}, {} cores, {caches} as the system reports", machine.cpu, machine.cores),
        ),
        (
            "Method",
            format!(
                "{keys} keys a stream; medians of {rounds} rounds, in each of which every table is built \
             in a fresh process; all take turns on the same keys, and every answer was checked before"
            ),
        ),
        ("Made", format!("{}, commit {}, Rust {}", machine.time, machine.commit, machine.rustc)),
    ];
    let mut text = format!(
        "<header><h1>{}</h1><p class=\"lead\">Longest prefix match, measured: the rate of \
         each table, its bytes, and its share of the machine's limit.</p><dl>",
        escape(name)
    );
    for (what, fact) in facts {
        let _ = write!(text, "<dt>{what}</dt><dd>{}</dd>", escape(&fact));
    }
    text += "</dl></header>";
    if outcome.quick {
        text += "<p class=\"warn\">A quick run on few keys: it shows that the benchmark works, \
                 not how fast the tables are.</p>";
    }
    text
}

/// The main case of a stream: one thread, the longest bursts.
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

/// Describes a stream in one line.
fn describe(stream: Stream) -> &'static str {
    match stream {
        Stream::Rnd => "Uniform over the routable addresses, each once: no locality.",
        Stream::Seq => "The same keys, each dependent on the answer before it: pure latency.",
        Stream::Rep => "Each key eight times, interleaved with seven others: packet trains.",
        Stream::Pfx => "A random route, then an address in it: uniform over the routes.",
        Stream::Zipf => {
            "2^20 destinations, the one of rank r with weight 1/r: most traffic to a few of them."
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
            "<h3>{stream}</h3><p>{} Of {} keys {} are different; the most frequent 1 % of those are \
             {} of all keys; {} of the keys occur among the 4096 before them.</p>{}",
            describe(*stream),
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
    let mut text = "<h2>Bytes against speed</h2><p>The curve is the rate of this machine for plain \
                    loads of 4 bytes from random places in so many bytes, on huge pages, measured in \
                    this run. A lookup that touches two cache lines can reach half of that, one of \
                    three a third. Smaller tables are further to the left, where the limit is higher.\
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
        "<h2>The share of the machine's limit</h2><p>If a lookup consisted only of its loads, each of \
         a cache line from anywhere in the table, the machine could do <em>limit(bytes) / lines</em> a \
         second; that is 100 %. The rest is the cost of instructions between the loads, of \
         mispredicted branches, and of loads that wait for each other within a lookup. More than \
         100 % means locality: the lines of a small first stage stay in the caches, and so do those of \
         repeated keys. For SEQ the limit is a dependent load of each line. \
         Each value is the share, and the number of lines that a lookup touches.</p>{}",
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
         the mean time of a lookup in a chain, and its distribution over the chains. The highest \
         values include interruptions by the system.</p>{}<details><summary>In figures</summary>{}\
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
        "<h2>Changes</h2><p>{} routes withdrawn, announced again or given another hop, one by one. Our \
         engines publish each change to readers that never stop; the others change their table in \
         place, without concurrent readers unless their documentation permits them.</p>{}",
        outcome.changes,
        figure("Thousand changes a second", &bar_plot("Changes, thousand a second", &plot))
    )
}

fn contestants(outcome: &Outcome) -> String {
    let rows: Vec<_> = outcome
        .contestants
        .iter()
        .map(|one| {
            let bytes = if one.bytes == 0 { "–".to_owned() } else { size(one.bytes) };
            let what = match (one.ours, one.single_process) {
                (true, _) => "an engine of Fingerpost".to_owned(),
                (false, true) => format!("{} (one process for all rounds)", one.what),
                (false, false) => one.what.clone(),
            };
            let cells = vec![
                one.name.clone(),
                one.version.clone(),
                bytes,
                format!("{:.2}", one.bytes_per_prefix),
                format!("{:.2}", one.fill_seconds.median),
                one.license.clone(),
                what,
            ];
            (class(one), cells)
        })
        .collect();
    let columns = ["", "version", "bytes", "a prefix", "fill time, s", "license", "what"];
    let mut text = format!("<h2>Contestants</h2>{}", table(&columns, &rows));
    for missing in &outcome.missing {
        let _ = write!(
            text,
            "<p class=\"warn\"><strong>{}</strong> is missing: <code>{}</code></p>",
            escape(&missing.name),
            escape(&missing.reason)
        );
    }
    text + "<p class=\"soft\"><code>bench/METHOD.md</code> describes the measurement, \
            <code>bench/BIAS.md</code> its limits, and <code>bench/rivals/README.md</code> how to \
            add a contestant.</p>"
}
