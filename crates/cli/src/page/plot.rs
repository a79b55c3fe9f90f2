//! Plots as SVG inside a page: bars with their spread, rates by footprint, goodput over time.
//!
//! Everything is drawn with classes and no color of its own, so that the page's style
//! decides about light and dark (`page.css`). Text is text: it can be searched, selected
//! and read aloud; every plot has a title, and what it shows stands in a table as well.

use std::fmt::Write;

/// One bar: what it is called, how its row looks, its value and its extremes.
pub(crate) struct Bar {
    pub(crate) name: String,
    pub(crate) class: &'static str,
    pub(crate) value: f64,
    pub(crate) low: f64,
    pub(crate) high: f64,
    /// Said behind the bar.
    pub(crate) text: String,
}

/// The widths of a bar plot: names, bars, and what is said behind them.
const NAMES: f64 = 136.0;
const BARS: f64 = 430.0;
const SAID: f64 = 154.0;
const ROW: f64 = 22.0;

/// Draws bars below each other, from 0 on, each with a line from its least to its most.
pub(crate) fn bars(title: &str, bars: &[Bar]) -> String {
    let most = bars.iter().map(|bar| bar.high.max(bar.value)).fold(f64::MIN_POSITIVE, f64::max);
    let step = step(most);
    let end = (most / step).ceil() * step;
    let x = |value: f64| NAMES + value / end * BARS;
    let height = bars.len() as f64 * ROW + 24.0;
    let mut svg = open(title, NAMES + BARS + SAID, height);
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

/// A point of a plot of rates by bytes.
pub(crate) struct Dot {
    pub(crate) name: String,
    pub(crate) class: &'static str,
    pub(crate) bytes: f64,
    pub(crate) value: f64,
}

/// Draws points over bytes, both on logarithmic scales, and a curve.
pub(crate) fn by_bytes(title: &str, unit: &str, curve: &[(f64, f64)], dots: &[Dot]) -> String {
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
    // Names that would lie on each other are moved down, the highest point's first.
    let mut order: Vec<&Dot> = dots.iter().collect();
    order.sort_by(|one, two| y(one.value).total_cmp(&y(two.value)));
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

/// What is drawn over time: a line, and points at heights of their own.
pub(crate) struct Course<'a> {
    /// Its row's class.
    pub(crate) class: &'static str,
    /// Seconds, and parts of one.
    pub(crate) line: &'a [(f64, f64)],
    /// Seconds at which something began, and how long it took; `None`: for good.
    pub(crate) points: &'a [(f64, Option<f64>)],
}

/// Draws courses over the same time: lines against the left scale, from 0 to 100 %, points
/// against the right one, from 0 to `most` seconds; what took longer is a cross above. From 0 on
/// time is shaded as being `what`.
pub(crate) fn over_time(title: &str, what: &str, most: f64, courses: &[Course<'_>]) -> String {
    let (width, height, left, right, head, foot) = (720.0, 230.0, 48.0, 44.0, 22.0, 30.0);
    let times = || courses.iter().flat_map(|course| course.line.iter().map(|(at, _)| *at));
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
        escape(what)
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
    let every = step(end - begin).max(1.0);
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
    for Course { class, line, points } in courses {
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

/// A round distance between ticks, of which there are about five.
fn step(most: f64) -> f64 {
    let power = 10f64.powf((most / 5.0).log10().floor());
    let steps = [1.0, 2.0, 2.5, 5.0, 10.0];
    let fit = steps.into_iter().find(|step| most / (step * power) <= 5.0);
    fit.unwrap_or(10.0) * power
}

/// Writes a number shortly.
pub(crate) fn number(value: f64) -> String {
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

/// Writes text so that it is nothing but text.
pub(crate) fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::{Bar, Course, Dot, bars, by_bytes, escape, number, over_time, step};

    fn balanced(svg: &str) {
        assert!(svg.starts_with("<svg ") && svg.ends_with("</svg>"));
        assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
        assert_eq!(svg.matches("<g ").count(), svg.matches("</g>").count());
        assert_eq!(svg.matches("<text ").count(), svg.matches("</text>").count());
    }

    #[test]
    fn a_bar_a_row_and_its_name_is_text() {
        let bar = |name: &str, value| Bar {
            name: name.to_owned(),
            class: "ours",
            value,
            low: value * 0.9,
            high: value * 1.1,
            text: number(value),
        };
        let svg = bars("a & b", &[bar("<x>", 100.0), bar("y", 0.0)]);
        balanced(&svg);
        assert_eq!(svg.matches("class=\"bar\"").count(), 2);
        assert!(svg.contains("&lt;x&gt;") && svg.contains("a &amp; b"));
        balanced(&bars("none", &[]));
    }

    #[test]
    fn names_do_not_lie_on_each_other() {
        let dot =
            |name: &str| Dot { name: name.to_owned(), class: "theirs", bytes: 1e6, value: 100.0 };
        let svg = by_bytes("t", "u", &[(32768.0, 2000.0), (6.4e7, 100.0)], &[dot("aa"), dot("bb")]);
        balanced(&svg);
        let lines: Vec<&str> = svg
            .split("class=\"name\"")
            .skip(1)
            .filter_map(|part| part.split("y=\"").nth(1)?.split('"').next())
            .collect();
        assert_eq!(lines.len(), 2);
        assert_ne!(lines[0], lines[1]);
        balanced(&by_bytes("t", "u", &[], &[]));
    }

    #[test]
    fn a_course_is_a_line_with_points_and_crosses() {
        let line = [(-1.0, 1.0), (0.0, 0.5), (3.0, 0.0)];
        let points = [(0.5, Some(1.0)), (1.0, None), (2.0, Some(99.0))];
        let course = || Course { class: "ours", line: &line, points: &points };
        let svg = over_time("a < b", "attack", 4.0, &[course(), course()]);
        balanced(&svg);
        let count = |what: &str| svg.matches(what).count();
        assert_eq!(
            (count("<circle"), count("class=\"cross\""), count("class=\"course\"")),
            (2, 4, 2)
        );
        assert!(svg.contains("a &lt; b"));
        balanced(&over_time("none", "", 1.0, &[]));
    }

    #[test]
    fn ticks_are_round() {
        assert_eq!(step(4.9), 1.0);
        assert_eq!(step(930.0), 200.0);
        assert_eq!(step(0.03), 0.01);
        assert_eq!(number(2.5), "2.5");
        assert_eq!(number(0.0), "0");
        assert_eq!(escape("<\"&\">"), "&lt;&quot;&amp;&quot;&gt;");
    }
}
