//! `fingerpost top`: shows a running router on one screen, refreshed every second.
//!
//! ```text
//!   control socket ─► Snapshot (fib, feeds, workers, interfaces, audit) ─┐
//!                     the previous one ──────────────────────────────────┴─► State
//!   State ─► draw (ratatui) ─► the terminal's alternate screen, until `q` or Ctrl-C
//! ```
//!
//! `state.rs` computes the values and `draw.rs` draws them; neither uses a terminal or a socket, so
//! that tests render the same frame. The terminal is restored however the program ends: by `q`,
//! Escape or Ctrl-C, which are keys here, by a signal, an error or a panic.

mod draw;
mod state;

use std::io::IsTerminal;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::bail;
use api::{Item, Request};
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};

use crate::client::{self, SocketArgs};
use crate::stop;
use state::{Snapshot, State};

/// Time limit of the router for each item of a response.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(5);

/// Interval of checks for a signal.
const SIGNAL_INTERVAL: Duration = Duration::from_millis(100);

/// The arguments of `top`.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    socket: SocketArgs,
    /// Interval of updates in seconds, 0.1 to 60
    #[arg(short, long, value_name = "SECONDS", default_value_t = 1.0)]
    delay: f64,
}

/// Shows the router until `q`.
pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    if !std::io::stdout().is_terminal() || !std::io::stdin().is_terminal() {
        bail!("`top` needs a terminal: use `show`, `monitor` or metrics in programs");
    }
    if !(0.1..=60.0).contains(&args.delay) {
        bail!("--delay {}: not between 0.1 and 60 seconds", args.delay);
    }
    let every = Duration::from_secs_f64(args.delay);
    // Before the terminal switches to its alternate screen, so that errors stay visible.
    let mut state = State::new(fetch(args)?, Instant::now());
    let stop = stop::flag_on_signals(&[stop::SIGINT, stop::SIGTERM])?;
    let mut terminal = ratatui::try_init()?;
    let ended = watch(args, &stop, every, &mut state, &mut terminal);
    ratatui::restore();
    ended.map(|()| ExitCode::SUCCESS)
}

fn watch(
    args: &Args,
    stop: &AtomicBool,
    every: Duration,
    state: &mut State,
    terminal: &mut ratatui::DefaultTerminal,
) -> anyhow::Result<()> {
    loop {
        terminal.draw(|frame| draw::draw(frame, state))?;
        let until = Instant::now() + every;
        while let Some(left) = until.checked_duration_since(Instant::now()) {
            if stop.load(Ordering::Relaxed) {
                return Ok(());
            }
            if !event::poll(left.min(SIGNAL_INTERVAL))? {
                continue;
            }
            match event::read()? {
                Event::Key(key) if key.kind == KeyEventKind::Press => match key.code {
                    KeyCode::Char('q') | KeyCode::Esc => return Ok(()),
                    KeyCode::Char('c') if key.modifiers.contains(KeyModifiers::CONTROL) => {
                        return Ok(());
                    }
                    _ => {}
                },
                Event::Resize(..) => break,
                _ => {}
            }
        }
        state.update(fetch(args)?, Instant::now());
    }
}

/// Requests everything on the screen.
fn fetch(args: &Args) -> anyhow::Result<Snapshot> {
    let mut snapshot = Snapshot::default();
    let requests =
        [Request::Fib, Request::Feeds, Request::Workers, Request::Interfaces, Request::Audit];
    for request in requests {
        let sent = client::send(&args.socket, &request, RESPONSE_TIMEOUT, &mut |item| {
            match item {
                Item::Fib(fib) => snapshot.fibs.push(fib),
                Item::Feed(feed) => snapshot.feeds.push(feed),
                Item::Worker(worker) => snapshot.workers.push(worker),
                Item::Interface(interface) => snapshot.interfaces.push(interface),
                Item::Audit(audit) => snapshot.audit = audit,
                _ => {}
            }
            Ok(())
        });
        // A router with static routes has no audit.
        if !matches!(request, Request::Audit) {
            sent?;
        }
    }
    Ok(snapshot)
}
