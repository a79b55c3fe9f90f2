//! The figures of a run as one self-contained page of HTML (`--html`).
//!
//! ```text
//!   figures ─► cases: routes, case, threads, unit ─► a plot and a table each
//! ```
//!
//! The page is drawn from the figures that the record gets, in their order, and names the machine, the commit and the
//! compiler as the record does. The line beside a bar is from the least sample to the largest one. All bars have one color: a
//! figure does not state whose the contestant is.

use std::fmt::Write;

use output::page::{figure, html_page, table};
use output::plot::{Bar, bar_plot, escape, number};

use super::clock::Summary;
use super::record::{self, Figure};

/// The key by which figures are compared with each other.
fn case<'a>(of: &Figure<'a>) -> (&'a str, usize, &'a str, usize, &'a str) {
    (of.table, of.routes, of.case, of.threads, of.unit)
}

/// Draws the page.
pub(super) fn page(figures: &[Figure<'_>]) -> String {
    let bench = figures.first().map_or("nothing", |first| first.bench);
    let title = format!("fingerpost-bench {bench}");
    let mut text = format!("<header><h1>{}</h1><dl>", escape(&title));
    for (what, fact) in [
        ("Machine", record::cpu()),
        (
            "Made",
            format!("{}, commit {}, Rust {}", record::now(), record::commit(), record::rustc()),
        ),
    ] {
        let _ = write!(text, "<dt>{what}</dt><dd>{}</dd>", escape(&fact));
    }
    text += "</dl></header>";
    let mut cases: Vec<_> = Vec::new();
    for of in figures {
        if !cases.contains(&case(of)) {
            cases.push(case(of));
        }
    }
    for key in cases {
        let group: Vec<_> = figures.iter().filter(|of| case(of) == key).collect();
        let (name, routes, case, threads, unit) = key;
        let heading = match (routes, threads) {
            (0, 1) => format!("{name}, {case}"),
            (0, _) => format!("{name}, {case}, {threads} threads"),
            (_, 1) => format!("{name}, {routes} prefixes, {case}"),
            _ => format!("{name}, {routes} prefixes, {case}, {threads} threads"),
        };
        let _ = write!(text, "<h2>{}</h2>", escape(&heading));
        let bars: Vec<Bar> = group.iter().map(|of| bar(of)).collect();
        let samples = group.iter().map(|of| of.samples).max().unwrap_or(0);
        let caption = format!("{}: the median of {samples} samples", escape(unit));
        text += &figure(&caption, &bar_plot(&heading, &bars));
        let rows: Vec<_> = group.iter().map(|of| ("", cells(of))).collect();
        text += &table(&["", "median", "deviation", "least", "most", "samples", "bytes"], &rows);
    }
    html_page(&title, &text)
}

fn bar(of: &Figure<'_>) -> Bar {
    let Summary { median, min, max, .. } = of.summary;
    let name = of.contestant.to_owned();
    Bar { name, class: "ours", value: median, low: min, high: max, text: number(median) }
}

fn cells(of: &Figure<'_>) -> Vec<String> {
    let Summary { median, mad, min, max } = of.summary;
    let bytes = if of.bytes == 0 { "–".to_owned() } else { of.bytes.to_string() };
    let values = [median, mad, min, max].map(|value| format!("{value:.3}"));
    [of.contestant.to_owned()]
        .into_iter()
        .chain(values)
        .chain([of.samples.to_string(), bytes])
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn page_has_a_plot_for_each_case_and_a_row_for_each_figure() {
        let figure = |contestant, case, unit, samples: &[f64]| Figure {
            bench: "xdp",
            table: "a <table>",
            routes: 1000,
            contestant,
            case,
            threads: 1,
            unit,
            summary: Summary::of(samples),
            samples: samples.len(),
            bytes: 0,
        };
        let text = page(&[
            figure("flat", "RND", "ns/lookup", &[1.0, 2.0, 4.0]),
            figure("lpm_trie", "RND", "ns/lookup", &[100.0, 101.0, 102.0]),
            figure("flat", "PFX", "ns/lookup", &[3.0]),
        ]);
        assert_eq!(text.matches("<svg").count(), 2);
        assert_eq!(text.matches("<tr class=\"\">").count(), 3);
        assert!(text.contains("a &lt;table&gt;, 1000 prefixes, PFX"), "{text}");
        let row = ["lpm_trie", "101.000", "1.000", "100.000", "102.000", "3", "–"];
        let row: String = row.map(|cell| format!("<td>{cell}</td>")).concat();
        assert!(text.contains(&row), "{text}");
        assert!(!text.contains("<script"));
    }
}
