//! The screen of `top`.
//!
//! ```text
//!   fingerpost            1.2 M packets/s in, 1.2 M out    q quits
//!   ┌ workers ───────────┐┌ dropped and punted ┐
//!   ┌ tables ────────────┐┌ feeds, auditor ────┐
//!   ┌ ports ───────────────────────────────────┐
//! ```
//!
//! Rates have three digits and a unit; counts are exact. Problems are red: an engine at its limit, a
//! mismatch, an overrun, an interface that is down.

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Cell, Paragraph, Row, Table};

use super::state::State;

const TITLE: Style = Style::new().add_modifier(Modifier::BOLD);
const WRONG: Style = Style::new().fg(Color::Red).add_modifier(Modifier::BOLD);

/// Draws the screen.
pub(super) fn draw(frame: &mut Frame<'_>, state: &State) {
    let now = &state.now;
    let workers = now.workers.len() as u16 + 3;
    let tables = (now.fibs.len() as u16 + 4).max(2 * now.feeds.len() as u16 + 4);
    let [head, upper, middle, lower] = Layout::vertical([
        Constraint::Length(1),
        Constraint::Length(workers.max(8)),
        Constraint::Length(tables),
        Constraint::Min(3),
    ])
    .areas(frame.area());
    let halves = [Constraint::Percentage(55), Constraint::Percentage(45)];
    let [left, right] = Layout::horizontal(halves).areas(upper);
    let [tables, feeds] = Layout::horizontal(halves).areas(middle);
    draw_head(frame, head, state);
    draw_workers(frame, left, state);
    draw_reasons(frame, right, state);
    draw_tables(frame, tables, state);
    draw_feeds(frame, feeds, state);
    draw_ports(frame, lower, state);
}

fn draw_head(frame: &mut Frame<'_>, area: Rect, state: &State) {
    let [received, sent, received_bytes, sent_bytes] = state.total();
    let line = Line::from(vec![
        Span::styled("fingerpost ", TITLE),
        Span::raw(format!(
            " in {} packets/s {}, out {} packets/s {}",
            scaled(received),
            bits(received_bytes),
            scaled(sent),
            bits(sent_bytes)
        )),
        Span::styled("   q quits", Style::new().add_modifier(Modifier::DIM)),
    ]);
    frame.render_widget(Paragraph::new(line), area);
}

fn draw_workers(frame: &mut Frame<'_>, area: Rect, state: &State) {
    let rows = state.now.workers.iter().map(|worker| {
        let [received, sent, received_bytes, sent_bytes] = state.worker(worker.worker);
        Row::new([
            worker.worker.to_string(),
            scaled(received),
            bits(received_bytes),
            scaled(sent),
            bits(sent_bytes),
        ])
    });
    let header = ["", "in/s", "", "out/s", ""];
    table(frame, area, "workers", &header, rows, &[4, 10, 12, 10, 12]);
}

fn draw_reasons(frame: &mut Frame<'_>, area: Rect, state: &State) {
    let rows = state
        .reasons()
        .into_iter()
        .map(|(reason, count, rate)| Row::new([reason, scaled(rate), count.to_string()]));
    let header = ["reason", "per second", "total"];
    table(frame, area, "dropped and punted", &header, rows, &[24, 10, 14]);
}

fn draw_tables(frame: &mut Frame<'_>, area: Rect, state: &State) {
    let mut rows: Vec<Row<'_>> = state
        .now
        .fibs
        .iter()
        .map(|fib| {
            let row = Row::new([
                format!("{} {}", fib.table, fib.family),
                fib.routes.to_string(),
                fib.engine.clone(),
                size(fib.bytes),
                fib.generation.to_string(),
            ]);
            if fib.full.is_some() { row.style(WRONG) } else { row }
        })
        .collect();
    let cell = match state.residency() {
        Some((cache, share)) => {
            format!("all fit in {cache}, {:.0} % of it", (share * 100.0).ceil())
        }
        None => "larger than the L3 cache".to_owned(),
    };
    rows.push(Row::new([String::new(), String::new(), cell]));
    let header = ["table", "routes", "engine", "bytes", "generation"];
    table(frame, area, "tables", &header, rows, &[10, 10, 26, 9, 10]);
}

fn draw_feeds(frame: &mut Frame<'_>, area: Rect, state: &State) {
    let (changes, commits) = state.changes();
    let mut lines = vec![Line::raw(format!(
        "{} changes/s in {} publications/s",
        scaled(changes),
        scaled(commits)
    ))];
    for feed in &state.now.feeds {
        let idle = state.idle_seconds(feed);
        let text = format!("{}: idle for {idle:.0} s, {} messages", feed.name, feed.messages);
        lines.push(Line::raw(text));
        // On a separate line, so that a narrow screen does not cut problems off.
        let style = if feed.overruns > 0 { WRONG } else { Style::new() };
        lines.push(Line::from(vec![
            Span::styled(format!("  {} overruns", feed.overruns), style),
            Span::raw(format!(", {} resynchronizations", feed.resynchronizations)),
        ]));
    }
    let audit = &state.now.audit;
    let style = if audit.mismatches > 0 { WRONG } else { Style::new() };
    lines.push(Line::from(vec![
        Span::raw("auditor: "),
        Span::styled(format!("{} mismatches", audit.mismatches), style),
        Span::raw(format!(", {} checks", audit.checks)),
    ]));
    let block = Block::bordered().title("feeds, auditor");
    frame.render_widget(Paragraph::new(lines).block(block), area);
}

fn draw_ports(frame: &mut Frame<'_>, area: Rect, state: &State) {
    let rows = state.now.interfaces.iter().map(|interface| {
        let link = if interface.up { "up" } else { "down" };
        let passed: u64 = interface
            .steered
            .iter()
            .filter(|(name, _)| {
                ![
                    "taken",
                    "nested_tags",
                    "other_mac_dropped",
                    "blocked",
                    "declined",
                    "forged",
                    "unserved",
                ]
                .contains(&name.as_str())
            })
            .map(|(_, count)| count)
            .sum();
        let row = Row::new([
            Cell::from(interface.name.clone()),
            Cell::from(if interface.observe { "observed" } else { link }),
            Cell::from(interface.mode.clone()),
            Cell::from(scaled(state.taken(interface))),
            Cell::from(passed.to_string()),
            Cell::from(interface.lost.values().sum::<u64>().to_string()),
        ]);
        if interface.up { row } else { row.style(WRONG) }
    });
    let header = ["port", "", "mode", "taken/s", "left to the kernel", "lost"];
    table(frame, area, "ports", &header, rows, &[16, 9, 22, 10, 18, 10]);
}

fn table<'a>(
    frame: &mut Frame<'_>,
    area: Rect,
    title: &'a str,
    header: &[&'a str],
    rows: impl IntoIterator<Item = Row<'a>>,
    widths: &[u16],
) {
    let widths = widths.iter().map(|&width| Constraint::Max(width));
    let table = Table::new(rows, widths)
        .header(Row::new(header.to_vec()).style(TITLE))
        .block(Block::bordered().title(title));
    frame.render_widget(table, area);
}

/// Formats a number with three digits and a unit: `999`, `1.23 k`, `45.6 M`.
fn scaled(number: f64) -> String {
    let mut number = number;
    for unit in ["", " k", " M", " G"] {
        if number < 999.5 {
            let digits = if unit.is_empty() || number >= 99.95 {
                0
            } else if number >= 9.995 {
                1
            } else {
                2
            };
            return format!("{number:.digits$}{unit}");
        }
        number /= 1000.0;
    }
    format!("{number:.0} T")
}

/// Formats bytes per second as bits per second.
fn bits(bytes: f64) -> String {
    let scaled = scaled(bytes * 8.0);
    let gap = if scaled.contains(' ') { "" } else { " " };
    format!("{scaled}{gap}bit/s")
}

/// Formats bytes with binary units.
fn size(bytes: u64) -> String {
    match bytes {
        0..=1023 => format!("{bytes} B"),
        1024..=1_048_575 => format!("{:.0} KiB", bytes as f64 / 1024.0),
        _ => format!("{:.1} MiB", bytes as f64 / 1_048_576.0),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::time::{Duration, Instant};

    use api::{Audit, Counters, Feed, Fib, Interface, Worker};
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    use super::super::state::{Snapshot, State};
    use super::*;

    fn snapshot(times: u64) -> Snapshot {
        let counters = Counters {
            received: 3_000_000 * times,
            received_bytes: 180_000_000 * times,
            sent: 2_990_000 * times,
            sent_bytes: 179_400_000 * times,
            dropped: BTreeMap::from([("no_route".to_owned(), 10_000 * times)]),
            ..Counters::default()
        };
        let fib = Fib {
            table: 254,
            family: "ipv4".to_owned(),
            routes: 1_107_954,
            engine: "D18R".to_owned(),
            bytes: 2_400_000,
            shared: false,
            generation: 77,
            full: None,
        };
        let feed = Feed {
            name: "kernel".to_owned(),
            messages: 5,
            overruns: 0,
            resynchronizations: 1,
            parse_errors: 0,
            refused: 0,
            changes: 700 * times,
            commits: 10 * times,
            errors: 0,
            last_error: None,
        };
        let interface = Interface {
            name: "eth0".to_owned(),
            index: 2,
            mac: "02:00:00:00:00:01".to_owned(),
            secondary_macs: Vec::new(),
            forwarding_off: Vec::new(),
            bond: None,
            vlans: Vec::new(),
            mtu: 1500,
            up: true,
            table: 254,
            rpf_v4: None,
            rpf_v6: None,
            rules: None,
            mode: "AF_XDP copy".to_owned(),
            configured: None,
            problem: None,
            observe: false,
            steered: BTreeMap::from([
                ("taken".to_owned(), 3_000_000 * times),
                ("arp".to_owned(), 9),
            ]),
            received: 2_999_958 * times,
            received_bytes: 0,
            transmitted: 0,
            transmitted_bytes: 0,
            lost: BTreeMap::from([("rx_ring_full".to_owned(), 42 * times)]),
            rings: BTreeMap::new(),
        };
        Snapshot {
            fibs: vec![fib],
            feeds: vec![feed],
            workers: vec![Worker { worker: 0, counters }],
            interfaces: vec![interface],
            audit: Audit { checks: 41, ..Audit::default() },
        }
    }

    fn screen(state: &State) -> String {
        let mut terminal = Terminal::new(TestBackend::new(130, 30)).unwrap();
        terminal.draw(|frame| draw(frame, state)).unwrap();
        let buffer = terminal.backend().buffer().clone();
        let lines = buffer.content().chunks(130);
        lines.map(|line| line.iter().map(|cell| cell.symbol()).collect::<String>() + "\n").collect()
    }

    #[test]
    fn screen_shows_the_rates_between_two_snapshots() {
        let start = Instant::now();
        let mut state = State::new(snapshot(1), start);
        state.caches = vec![("L1", 32 << 10), ("L2", 2 << 20), ("L3", 32 << 20)];
        let first = screen(&state);
        assert!(first.contains("in 0 packets/s") && first.contains("drop no_route"), "{first}");
        state.update(snapshot(3), start + Duration::from_secs(2));
        let screen = screen(&state);
        for text in [
            "in 3.00 M packets/s 1.44 Gbit/s, out 2.99 M packets/s 1.44 Gbit/s",
            "10.0 k",
            "30000",
            "254 ipv4",
            "1107954",
            "2.3 MiB",
            "all fit in L3, 8 % of it",
            "700 changes/s in 10 publications/s",
            "kernel: idle for 2 s, 5 messages",
            "  0 overruns, 1 resynchronizations",
            "auditor: 0 mismatches, 41 checks",
            "eth0",
            "AF_XDP copy",
        ] {
            assert!(screen.contains(text), "{text}\n{screen}");
        }
        // A restarted counter has no negative rate.
        state.update(snapshot(1), start + Duration::from_secs(3));
        assert_eq!(state.total()[0], 3e6);
    }

    #[test]
    fn small_screen_is_drawn_without_a_panic() {
        let state = State::new(snapshot(1), Instant::now());
        for (width, height) in [(1, 1), (20, 5), (300, 3), (80, 24)] {
            let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
            terminal.draw(|frame| draw(frame, &state)).unwrap();
        }
        let empty = State::new(Snapshot::default(), Instant::now());
        assert!(screen(&empty).contains("0 mismatches"));
    }

    #[test]
    fn scaled_keeps_three_digits() {
        for (number, text) in [
            (0.0, "0"),
            (999.4, "999"),
            (999.6, "1.00 k"),
            (12_345.0, "12.3 k"),
            (999_499.0, "999 k"),
            (1e6, "1.00 M"),
            (2.5e12, "2 T"),
        ] {
            assert_eq!(scaled(number), text);
        }
        assert_eq!((bits(1.0), bits(125.0)), ("8 bit/s".to_owned(), "1.00 kbit/s".to_owned()));
        assert_eq!(
            (size(10), size(2048), size(3 << 20)),
            ("10 B".into(), "2 KiB".into(), "3.0 MiB".into())
        );
    }
}
