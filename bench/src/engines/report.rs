//! The results as text, as JSON, and as lines of the record.

use serde::Serialize;

use super::Args;
use super::changes::{Count, Updates};
use crate::clock::Summary;
use crate::record::Figure;

/// The figures of one engine.
#[derive(Serialize)]
pub(super) struct EngineFigures {
    pub(super) engine: String,
    /// The error of an engine that cannot represent the table; the rest is empty then.
    pub(super) full: Option<String>,
    pub(super) bytes: usize,
    pub(super) bytes_per_prefix: f64,
    /// The bytes that the paper places on chip and off chip, if it distinguishes them.
    pub(super) on_chip: Option<usize>,
    pub(super) off_chip: Option<usize>,
    /// Milliseconds.
    pub(super) build: Option<Summary>,
    pub(super) builds: usize,
    pub(super) rates: Vec<Rate>,
    pub(super) accesses: Vec<Accesses>,
    pub(super) updates: Option<Updates>,
}

/// Million lookups per second.
#[derive(Serialize)]
pub(super) struct Rate {
    pub(super) stream: String,
    pub(super) threads: usize,
    #[serde(flatten)]
    pub(super) summary: Summary,
    pub(super) samples: usize,
    /// Keys of a pass.
    pub(super) keys: usize,
}

/// Loads of a lookup.
#[derive(Serialize)]
pub(super) struct Accesses {
    pub(super) stream: String,
    #[serde(flatten)]
    pub(super) count: Count,
}

/// The result of one contestant in one case.
#[derive(Serialize)]
pub(super) struct Score {
    pub(super) engine: String,
    pub(super) bytes: usize,
    pub(super) case: String,
    pub(super) threads: usize,
    pub(super) unit: &'static str,
    #[serde(flatten)]
    pub(super) summary: Summary,
    pub(super) samples: usize,
    /// The median over that of the rival.
    pub(super) ratio: f64,
}

#[derive(Serialize)]
struct Survey<'a> {
    table: &'a str,
    routes: usize,
    changes: &'a str,
    engines: &'a [EngineFigures],
}

#[derive(Serialize)]
struct Duel<'a> {
    table: &'a str,
    routes: usize,
    keys: usize,
    burst: usize,
    rival: Option<&'a str>,
    changes: &'a str,
    scores: &'a [Score],
}

/// One line of a record, before it is known whose it is.
struct Line {
    case: String,
    threads: usize,
    unit: &'static str,
    summary: Summary,
    samples: usize,
}

impl Line {
    fn new(case: &str, unit: &'static str, summary: Summary, samples: usize) -> Self {
        Self { case: case.to_owned(), threads: 1, unit, summary, samples }
    }

    /// A count's mean in the place of the median.
    fn count(case: &str, unit: &'static str, count: Count) -> Self {
        let Count { mean, min, max, samples } = count;
        let summary = Summary { median: mean, mad: 0.0, min: min as f64, max: max as f64 };
        Self::new(&format!("{case}, mean"), unit, summary, samples)
    }
}

/// Lists an engine's figures as the record has them.
fn lines(found: &EngineFigures) -> Vec<Line> {
    let mut lines = Vec::new();
    let exact =
        |case: &str, unit, bytes: usize| Line::new(case, unit, Summary::of(&[bytes as f64]), 1);
    lines.extend(found.build.map(|build| Line::new("build", "ms", build, found.builds)));
    lines.extend(found.on_chip.map(|bytes| exact("on chip", "bytes", bytes)));
    lines.extend(found.off_chip.map(|bytes| exact("off chip", "bytes", bytes)));
    lines.extend(found.rates.iter().map(|rate| Line {
        threads: rate.threads,
        ..Line::new(&rate.stream, "Mlookups/s", rate.summary, rate.samples)
    }));
    lines.extend(found.accesses.iter().map(|Accesses { stream, count }| {
        Line::count(&format!("{stream} accesses"), "accesses", *count)
    }));
    if let Some(updates) = &found.updates {
        let Updates { published, builder, words, samples, .. } = updates;
        lines.push(Line::new("updates, published", "kupdates/s", *published, *samples));
        lines.push(Line::new("updates", "kupdates/s", *builder, *samples));
        lines.push(Line::count("update accesses", "words", *words));
    }
    lines
}

/// Records and prints a survey.
pub(super) fn survey(
    args: &Args,
    table: &str,
    routes: usize,
    changes: &str,
    found: &[EngineFigures],
) -> anyhow::Result<()> {
    let lines: Vec<(&EngineFigures, Line)> =
        found.iter().flat_map(|one| lines(one).into_iter().map(move |line| (one, line))).collect();
    args.setting.record(lines.iter().map(|(one, line)| Figure {
        bench: "engines",
        table,
        routes,
        contestant: &one.engine,
        case: &line.case,
        threads: line.threads,
        unit: line.unit,
        summary: line.summary,
        samples: line.samples,
        bytes: one.bytes,
    }))?;
    print_survey(args, &Survey { table, routes, changes, engines: found })
}

/// Writes a number of bytes as people do.
fn size(bytes: usize) -> String {
    match bytes {
        ..10_000 => format!("{bytes} B"),
        10_000..10_000_000 => format!("{:.0} KiB", bytes as f64 / 1024.0),
        _ => format!("{:.1} MiB", bytes as f64 / f64::from(1 << 20)),
    }
}

#[expect(clippy::print_stdout, reason = "the result")]
fn print_survey(args: &Args, survey: &Survey<'_>) -> anyhow::Result<()> {
    if args.setting.output.json {
        println!("{}", serde_json::to_string_pretty(survey)?);
        return Ok(());
    }
    let Survey { table, routes, changes, engines } = survey;
    println!("{table}: {routes} routes; medians of {} passes; {changes}", args.rounds);
    println!(
        "\n{:<16} {:>10} {:>8} {:>10} {:>10} {:>9}  {:>9} {:>9}  {:>6} {:>6}",
        "engine",
        "bytes",
        "/prefix",
        "on chip",
        "off chip",
        "build ms",
        "kupd/s",
        "published",
        "words",
        "most"
    );
    let or_dash = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
    for one in *engines {
        if let (Some(full), None) = (&one.full, &one.build) {
            println!("{:<16} does not hold this table: {full}", one.engine);
            continue;
        }
        let update = |figure: fn(&Updates) -> String| or_dash(one.updates.as_ref().map(figure));
        println!(
            "{:<16} {:>10} {:>8.2} {:>10} {:>10} {:>9}  {:>9} {:>9}  {:>6} {:>6}{}",
            one.engine,
            size(one.bytes),
            one.bytes_per_prefix,
            or_dash(one.on_chip.map(size)),
            or_dash(one.off_chip.map(size)),
            or_dash(one.build.map(|build| format!("{:.1}", build.median))),
            update(|updates| format!("{:.1}", updates.builder.median)),
            update(|updates| format!("{:.1}", updates.published.median)),
            update(|updates| format!("{:.1}", updates.words.mean)),
            update(|updates| updates.words.max.to_string()),
            one.full.as_deref().map(|full| format!("  {full}")).unwrap_or_default(),
        );
    }
    let measured = || engines.iter().filter(|one| !one.rates.is_empty());
    let Some(first) = measured().next() else { return Ok(()) };
    println!("\nMillion lookups a second, by stream and threads");
    print!("{:<16}", "engine");
    for rate in &first.rates {
        print!(" {:>9}", format!("{} {}", rate.stream, rate.threads));
    }
    println!();
    for one in measured() {
        print!("{:<16}", one.engine);
        for rate in &one.rates {
            print!(" {:>9.*}", if rate.summary.median < 10.0 { 3 } else { 1 }, rate.summary.median);
        }
        println!();
    }
    println!("\nAccesses a lookup: on average, from the least to the most");
    print!("{:<16}", "engine");
    for Accesses { stream, .. } in &first.accesses {
        print!(" {stream:>20}");
    }
    println!();
    for one in measured() {
        print!("{:<16}", one.engine);
        for Accesses { count: Count { mean, min, max, .. }, .. } in &one.accesses {
            print!(" {:>20}", format!("{mean:.2}  {min}..{max}"));
        }
        println!();
    }
    Ok(())
}

/// Records and prints a duel.
pub(super) fn duel(
    args: &Args,
    table: &str,
    routes: usize,
    burst: usize,
    rival: Option<&str>,
    changes: &str,
    scores: &[Score],
) -> anyhow::Result<()> {
    args.setting.record(scores.iter().map(|score| Figure {
        bench: "duel",
        table,
        routes,
        contestant: &score.engine,
        case: &score.case,
        threads: score.threads,
        unit: score.unit,
        summary: score.summary,
        samples: score.samples,
        bytes: score.bytes,
    }))?;
    print_duel(args, &Duel { table, routes, keys: args.keys, burst, rival, changes, scores })
}

#[expect(clippy::print_stdout, reason = "the result")]
fn print_duel(args: &Args, duel: &Duel<'_>) -> anyhow::Result<()> {
    if args.setting.output.json {
        println!("{}", serde_json::to_string_pretty(duel)?);
        return Ok(());
    }
    let Duel { table, routes, keys, burst, rival, changes, scores } = duel;
    println!("{table}: {routes} routes; {keys} keys a pass, {burst} a call; {changes}");
    if let Some(rival) = rival {
        println!("{rival}");
    }
    println!("Medians of {} passes in turns; the ratio is to the first.", args.rounds);
    let mut heading = String::new();
    for score in *scores {
        let (case, how) = score.case.split_once(", ").unwrap_or((&score.case, ""));
        let this = format!("{case}, {} thread(s), {}", score.threads, score.unit);
        if this != heading {
            println!("\n{this}");
            heading = this;
        }
        let Score { engine, bytes, ratio, summary, .. } = score;
        let Summary { median, mad, min, max } = summary;
        println!(
            "  {:26} {median:8.1} ±{mad:<6.1} {min:7.1} to {max:<7.1} x{ratio:.2}  {}",
            format!("{engine} {how}"),
            size(*bytes),
        );
    }
    Ok(())
}
