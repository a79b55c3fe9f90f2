//! `fingerpost top`: a running router on one screen, refreshed every second.
//!
//! ```text
//!   control socket ─► Shown (counters, fib, feeds, workers, interfaces, audit) ─┐
//!                     the one before ───────────────────────────────────────────┴─► State
//!   State ─► draw (ratatui) ─► the terminal's alternate screen, until `q` or Ctrl-C
//! ```
//!
//! What is shown is worked out in `state.rs` and drawn in `draw.rs`, neither of which knows of a
//! terminal or a socket, so that a test sees the same frame as a person. The terminal
//! is put back whichever way this ends: `q`, Escape and Ctrl-C, which are keys here, a
//! signal, an error, a panic.

mod draw;
mod state;

use std::io::IsTerminal;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::bail;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};
use router::control::api::{Item, Request};

use crate::client::{self, At};
use crate::stop;
use state::{Shown, State};

/// How long the router may take to answer.
const PATIENCE: Duration = Duration::from_secs(5);

/// How soon a signal is noticed.
const NOTICE: Duration = Duration::from_millis(100);

/// What `top` takes.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    at: At,
    /// Seconds between two looks
    #[arg(short, long, value_name = "SECONDS", default_value_t = 1.0)]
    delay: f64,
}

/// Shows, until `q`.
pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    if !std::io::stdout().is_terminal() || !std::io::stdin().is_terminal() {
        bail!("`top` needs a terminal (`show`, `monitor` and metrics are for programs)");
    }
    if !(0.1..=60.0).contains(&args.delay) {
        bail!("--delay {}: not between 0.1 and 60 seconds", args.delay);
    }
    let every = Duration::from_secs_f64(args.delay);
    // Before the screen is taken: nobody there is said in words.
    let mut state = State::new(look(args)?, Instant::now());
    let stop = stop::on(&[stop::SIGINT, stop::SIGTERM])?;
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
            if !event::poll(left.min(NOTICE))? {
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
        state.next(look(args)?, Instant::now());
    }
}

/// Asks for everything that is shown.
fn look(args: &Args) -> anyhow::Result<Shown> {
    let mut shown = Shown::default();
    let requests =
        [Request::Fib, Request::Feeds, Request::Workers, Request::Interfaces, Request::Audit];
    for request in requests {
        client::ask(&args.at, &request, PATIENCE, &mut |item| {
            match item {
                Item::Fib(it) => shown.fibs.push(it),
                Item::Feed(it) => shown.feeds.push(it),
                Item::Worker(it) => shown.workers.push(it),
                Item::Interface(it) => shown.interfaces.push(it),
                Item::Audit(it) => shown.audit = it,
                _ => {}
            }
            Ok(())
        })?;
    }
    Ok(shown)
}
