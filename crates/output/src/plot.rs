//! SVG plots for a page: bars with their spread, rates by footprint, goodput over time.
//!
//! The elements have CSS classes and no colors, so that the style of the page decides about light and
//! dark mode (`page.css`). Labels are text elements, which readers can search and select and screen
//! readers can read. Each plot has a title, and its page has the same values in a table.

use std::fmt::Write;

/// A bar with its label, the CSS class of its row, its value and its spread.
pub struct Bar {
    /// The label before the bar.
    pub name: String,
    /// The CSS class.
    pub class: &'static str,
    /// The length of the bar.
    pub value: f64,
    /// The least value of the spread.
    pub low: f64,
    /// The largest value of the spread.
    pub high: f64,
    /// The text after the bar.
    pub text: String,
}

/// The widths of names, bars and texts, and the height of a row.
const NAMES: f64 = 136.0;
const BARS: f64 = 430.0;
const TEXTS: f64 = 154.0;
const ROW: f64 = 22.0;

/// Draws a bar chart from 0, with a line from the least to the largest value of each bar.
pub fn bar_plot(title: &str, bars: &[Bar]) -> String {
    let most = bars.iter().map(|bar| bar.high.max(bar.value)).fold(f64::MIN_POSITIVE, f64::max);
    let step = tick_step(most);
    let end = (most / step).ceil() * step;
    let x = |value: f64| NAMES + value / end * BARS;
    let height = bars.len() as f64 * ROW + 24.0;
    let mut svg = open(title, NAMES + BARS + TEXTS, height);
    let mut tick = 0.0;
    while tick <= end * 1.0001 {
        let at = x(tick);
        let foot = height - 22.0;
        let _ = write!(
            svg,
            "<line class=\"grid\" x1=\"{at:.1}\" x2=\"{at:.1}\" y1=\"0\" y2=\"{foot:.1}\"/>\
             <text class=\"tick\" x=\"{at:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>",
            height - 7.0,
            number(tick)
        );
        tick += step;
    }
    for (i, bar) in bars.iter().enumerate() {
        let Bar { name, class, value, low, high, text } = bar;
        let top = i as f64 * ROW + 4.0;
        let (middle, line) = (top + 7.0, top + 11.0);
        let _ = write!(
            svg,
            "<g class=\"{class}\"><text class=\"name\" x=\"{:.1}\" y=\"{line:.1}\" \
             text-anchor=\"end\">{}</text>\
             <rect class=\"bar\" x=\"{NAMES}\" y=\"{top:.1}\" width=\"{:.1}\" height=\"14\" rx=\"2\"/>\
             <path class=\"spread\" d=\"M{:.1} {:.1}v8M{:.1} {:.1}v8M{:.1} {middle:.1}H{:.1}\"/>\
             <text class=\"value\" x=\"{:.1}\" y=\"{line:.1}\">{}</text></g>",
            NAMES - 8.0,
            escape(name),
            x(*value) - NAMES,
            x(*low),
            middle - 4.0,
            x(*high),
            middle - 4.0,
            x(*low),
            x(*high),
            x(high.max(*value)) + 8.0,
            escape(text)
        );
    }
    svg + "</svg>"
}

/// A point in a plot of rates by bytes.
pub struct Dot {
    /// The label at the point.
    pub name: String,
    /// The CSS class.
    pub class: &'static str,
    /// The position on the horizontal axis.
    pub bytes: f64,
    /// The position on the vertical axis.
    pub value: f64,
}

/// Draws points and a curve over bytes, on logarithmic scales.
pub fn bytes_plot(title: &str, unit: &str, curve: &[(f64, f64)], dots: &[Dot]) -> String {
    let (width, height, left, foot) = (720.0, 400.0, 56.0, 40.0);
    let all = || curve.iter().copied().chain(dots.iter().map(|dot| (dot.bytes, dot.value)));
    let range = |values: &mut dyn Iterator<Item = f64>| {
        values.fold((f64::INFINITY, f64::MIN_POSITIVE), |(low, high), value| {
            (low.min(value), high.max(value))
        })
    };
    let (low_x, high_x) = range(&mut all().map(|(bytes, _)| bytes));
    let (low_y, high_y) = range(&mut all().map(|(_, value)| value));
    let (low_y, high_y) = (low_y * 0.8, high_y * 1.25);
    let scale = |value: f64, low: f64, high: f64| (value / low).ln() / (high / low).ln().max(1e-9);
    let x = |bytes: f64| left + scale(bytes, low_x, high_x) * (width - left - 24.0);
    let y = |value: f64| (height - foot) - scale(value, low_y, high_y) * (height - foot - 12.0);
    let mut svg = open(title, width, height);
    let mut bytes = 2f64.powi(low_x.log2().ceil() as i32);
    while bytes <= high_x * 1.0001 {
        let at = x(bytes);
        let _ = write!(
            svg,
            "<line class=\"grid\" x1=\"{at:.1}\" x2=\"{at:.1}\" y1=\"8\" y2=\"{:.1}\"/>\
             <text class=\"tick\" x=\"{at:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>",
            height - foot,
            height - foot + 15.0,
            binary(bytes)
        );
        bytes *= 4.0;
    }
    for power in low_y.log10().floor() as i32..=high_y.log10().ceil() as i32 {
        for digit in [1.0, 2.0, 5.0] {
            let value = digit * 10f64.powi(power);
            if value < low_y || value > high_y {
                continue;
            }
            let at = y(value);
            let _ = write!(
                svg,
                "<line class=\"grid\" x1=\"{left}\" x2=\"{:.1}\" y1=\"{at:.1}\" y2=\"{at:.1}\"/>\
                 <text class=\"tick\" x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
                width - 24.0,
                left - 6.0,
                at + 4.0,
                number(value)
            );
        }
    }
    let _ = write!(
        svg,
        "<text class=\"axis\" x=\"{left}\" y=\"{:.1}\">bytes that lookups may touch</text>\
         <text class=\"axis\" transform=\"translate(12 {:.1}) rotate(-90)\">{}</text>",
        height - 6.0,
        height - foot,
        escape(unit)
    );
    let path: Vec<String> =
        curve.iter().map(|&(bytes, value)| format!("{:.1} {:.1}", x(bytes), y(value))).collect();
    if !path.is_empty() {
        let _ = write!(svg, "<path class=\"limit\" d=\"M{}\"/>", path.join("L"));
    }
    // Overlapping names are moved down, in the order of their points from the top.
    let mut order: Vec<&Dot> = dots.iter().collect();
    order.sort_by(|a, b| y(a.value).total_cmp(&y(b.value)));
    let mut taken: Vec<(f64, f64, f64)> = Vec::new();
    for Dot { name, class, bytes, value } in order {
        let (cx, cy) = (x(*bytes), y(*value));
        let wide = name.chars().count() as f64 * 6.6 + 8.0;
        let right = cx + wide + 10.0 > width;
        let (from, to) = if right { (cx - wide - 8.0, cx) } else { (cx, cx + wide + 8.0) };
        let mut line = cy + 4.0;
        while let Some(&(_, _, other)) =
            taken.iter().find(|&&(a, b, other)| a < to && from < b && (line - other).abs() < 12.5)
        {
            line = other + 13.0;
        }
        taken.push((from, to, line));
        let (at, anchor) = if right { (cx - 8.0, "end") } else { (cx + 8.0, "start") };
        let _ = write!(
            svg,
            "<g class=\"{class}\"><circle class=\"dot\" cx=\"{cx:.1}\" cy=\"{cy:.1}\" r=\"4.5\"/>\
             <text class=\"name\" x=\"{at:.1}\" y=\"{line:.1}\" text-anchor=\"{anchor}\">{}</text></g>",
            escape(name)
        );
    }
    svg + "</svg>"
}

/// A line over time, with points on a second scale.
pub struct TimeSeries<'a> {
    /// CSS class.
    pub class: &'static str,
    /// Times in seconds, and shares from 0 to 1.
    pub line: &'a [(f64, f64)],
    /// Start times of operations in seconds, and their durations; `None` if one never finished.
    pub points: &'a [(f64, Option<f64>)],
}

/// Draws time series: lines on the left scale, from 0 to 100 %, and points on the right scale, from 0
/// to `most` seconds, with a cross above for longer operations. The time from 0 on is shaded and has
/// the label `phase`.
pub fn time_plot(title: &str, phase: &str, most: f64, series: &[TimeSeries<'_>]) -> String {
    let (width, height, left, right, head, foot) = (720.0, 230.0, 48.0, 44.0, 22.0, 30.0);
    let times = || series.iter().flat_map(|series| series.line.iter().map(|(at, _)| *at));
    let (begin, end) =
        times().fold((-1.0, 1.0), |(low, high): (f64, f64), at| (low.min(at), high.max(at)));
    let x = |at: f64| left + (at - begin) / (end - begin) * (width - left - right);
    let y = |part: f64| height - foot - part.clamp(0.0, 1.25) * (height - foot - head) / 1.25;
    let mut svg = open(title, width, height);
    let _ = write!(
        svg,
        "<rect class=\"shade\" x=\"{0:.1}\" y=\"{head}\" width=\"{1:.1}\" height=\"{2:.1}\"/>\
         <text class=\"tick\" x=\"{3:.1}\" y=\"{4:.1}\">{5}</text>",
        x(0.0),
        width - right - x(0.0),
        height - foot - head,
        x(0.0) + 4.0,
        head + 12.0,
        escape(phase)
    );
    for percent in [0.0, 25.0, 50.0, 75.0, 100.0] {
        let at = y(percent / 100.0);
        let _ = write!(
            svg,
            "<line class=\"grid\" x1=\"{left}\" x2=\"{:.1}\" y1=\"{at:.1}\" y2=\"{at:.1}\"/>\
             <text class=\"tick\" x=\"{:.1}\" y=\"{2:.1}\" text-anchor=\"end\">{percent} %</text>\
             <text class=\"tick\" x=\"{3:.1}\" y=\"{2:.1}\">{4} s</text>",
            width - right,
            left - 6.0,
            at + 4.0,
            width - right + 6.0,
            number(percent / 100.0 * most)
        );
    }
    let every = tick_step(end - begin).max(1.0);
    let mut tick = (begin / every).ceil() * every;
    while tick <= end {
        let _ = write!(
            svg,
            "<text class=\"tick\" x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{tick:.0}</text>",
            x(tick),
            height - foot + 15.0
        );
        tick += every;
    }
    for TimeSeries { class, line, points } in series {
        let path: Vec<String> =
            line.iter().map(|&(at, part)| format!("{:.1} {:.1}", x(at), y(part))).collect();
        let _ = write!(svg, "<g class=\"{class}\">");
        if !path.is_empty() {
            let _ = write!(svg, "<path class=\"course\" d=\"M{}\"/>", path.join("L"));
        }
        for &(at, took) in *points {
            let cx = x(at);
            let _ = match took.filter(|took| *took <= most * 1.2) {
                Some(took) => {
                    let cy = y(took / most);
                    write!(svg, "<circle class=\"dot\" cx=\"{cx:.1}\" cy=\"{cy:.1}\" r=\"3\"/>")
                }
                None => write!(
                    svg,
                    "<path class=\"cross\" d=\"M{:.1} {:.1}l6 6m0 -6l-6 6\"/>",
                    cx - 3.0,
                    head - 12.0
                ),
            };
        }
        svg += "</g>";
    }
    svg + "</svg>"
}

fn open(title: &str, width: f64, height: f64) -> String {
    let title = escape(title);
    format!(
        "<svg viewBox=\"0 0 {width:.0} {height:.0}\" role=\"img\" aria-label=\"{title}\">\
         <title>{title}</title>"
    )
}

/// Returns a round distance between about five ticks.
fn tick_step(most: f64) -> f64 {
    let power = 10f64.powf((most / 5.0).log10().floor());
    let steps = [1.0, 2.0, 2.5, 5.0, 10.0];
    let fit = steps.into_iter().find(|step| most / (step * power) <= 5.0);
    fit.unwrap_or(10.0) * power
}

/// Formats a number with few digits.
pub fn number(value: f64) -> String {
    match value {
        0.0 => "0".to_owned(),
        ..0.1 => format!("{value:.3}"),
        0.1..1.0 => format!("{value:.2}"),
        1.0..100.0 if value.fract() != 0.0 => format!("{value:.1}"),
        _ => format!("{value:.0}"),
    }
}

fn binary(bytes: f64) -> String {
    if bytes < 1024.0 * 1024.0 {
        format!("{:.0} KiB", bytes / 1024.0)
    } else {
        format!("{:.0} MiB", bytes / 1024.0 / 1024.0)
    }
}

/// Escapes text for HTML.
pub fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::{Bar, Dot, TimeSeries, bar_plot, bytes_plot, escape, number, tick_step, time_plot};

    fn assert_balanced(svg: &str) {
        assert!(svg.starts_with("<svg ") && svg.ends_with("</svg>"));
        assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
        assert_eq!(svg.matches("<g ").count(), svg.matches("</g>").count());
        assert_eq!(svg.matches("<text ").count(), svg.matches("</text>").count());
    }

    #[test]
    fn bar_plot_has_a_bar_per_row_and_escapes_names() {
        let bar = |name: &str, value| Bar {
            name: name.to_owned(),
            class: "ours",
            value,
            low: value * 0.9,
            high: value * 1.1,
            text: number(value),
        };
        let svg = bar_plot("a & b", &[bar("<x>", 100.0), bar("y", 0.0)]);
        assert_balanced(&svg);
        assert_eq!(svg.matches("class=\"bar\"").count(), 2);
        assert!(svg.contains("&lt;x&gt;") && svg.contains("a &amp; b"));
        assert_balanced(&bar_plot("none", &[]));
    }

    #[test]
    fn bytes_plot_separates_overlapping_names() {
        let dot =
            |name: &str| Dot { name: name.to_owned(), class: "theirs", bytes: 1e6, value: 100.0 };
        let svg =
            bytes_plot("t", "u", &[(32768.0, 2000.0), (6.4e7, 100.0)], &[dot("aa"), dot("bb")]);
        assert_balanced(&svg);
        let lines: Vec<&str> = svg
            .split("class=\"name\"")
            .skip(1)
            .filter_map(|part| part.split("y=\"").nth(1)?.split('"').next())
            .collect();
        assert_eq!(lines.len(), 2);
        assert_ne!(lines[0], lines[1]);
        assert_balanced(&bytes_plot("t", "u", &[], &[]));
    }

    #[test]
    fn time_plot_has_lines_points_and_crosses() {
        let line = [(-1.0, 1.0), (0.0, 0.5), (3.0, 0.0)];
        let points = [(0.5, Some(1.0)), (1.0, None), (2.0, Some(99.0))];
        let series = || TimeSeries { class: "ours", line: &line, points: &points };
        let svg = time_plot("a < b", "attack", 4.0, &[series(), series()]);
        assert_balanced(&svg);
        let count = |what: &str| svg.matches(what).count();
        assert_eq!(
            (count("<circle"), count("class=\"cross\""), count("class=\"course\"")),
            (2, 4, 2)
        );
        assert!(svg.contains("a &lt; b"));
        assert_balanced(&time_plot("none", "", 1.0, &[]));
    }

    #[test]
    fn tick_steps_are_round() {
        assert_eq!(tick_step(4.9), 1.0);
        assert_eq!(tick_step(930.0), 200.0);
        assert_eq!(tick_step(0.03), 0.01);
        assert_eq!(number(2.5), "2.5");
        assert_eq!(number(0.0), "0");
        assert_eq!(escape("<\"&\">"), "&lt;&quot;&amp;&quot;&gt;");
    }
}
