//! The fingerpost program: a router for Linux whose whole table fits in a cache.
//!
//! Each subcommand is a file (or a folder) with two items, `Args` and `run`:
//!
//! ```text
//! demo                 the main job in a box: namespaces, a full table, every packet checked
//! run -c FILE          the router, following the kernel's routes
//! gate -c FILE         a DDoS gate at a vantage point; `gate check -c FILE` judges the file
//! grantor -c FILE      a grantor in the protected network
//! lab ddos             a server under attack, in namespaces, with the gate off and on
//! bundle VERB          policies for gates and grantors: packed, signed, checked, taken back
//! policy test FILE     what another policy would have made of recorded packets
//! flow explain SRC DST what a running gate knows of a flow
//! show WHAT            what a running router or gate knows and does
//! reload               a running router goes over to its configuration as it is now
//! promote, demote IF   an interface's packets are the router's, or the kernel's and counted
//! monitor              what happens in a running router
//! save                 has a running router save an image of its tables
//! top                  a running router on one screen
//! program VERB         flow programs for the gate: compiled, and checked
//! fib diff kernel      what a running router and the kernel do not agree on
//! forward -c FILE      the router, by routes from files
//! route get ADDR...    one lookup, and what it touched
//! table info FILE      what is in a table and what it costs
//! table generate       a synthetic table
//! table save, load     a table that is built, in a file
//! bench                measurements with records
//! completions, man     for shells and for reading
//! ```
//!
//! Results go to standard output, everything said beside them (progress,
//! warnings, errors) to standard error. `-j` makes the result one JSON document.
//! Exit status: 0 done, 1 failed, 2 not understood. Whoever stops reading us
//! (`| head`) is not an error.

#![forbid(unsafe_code)]

use std::io::ErrorKind;
use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};

mod bench;
mod bundle;
mod capture;
mod check;
mod client;
mod completions;
mod demo;
mod fib;
mod flow;
mod forward;
mod gate;
mod grantor;
mod lab;
mod logging;
mod man;
mod monitor;
mod namespace;
mod order;
mod page;
mod policy;
mod program;
mod progress;
mod route;
mod run;
mod service;
mod show;
mod stop;
mod table;
mod tables;
mod top;
mod urgent;
mod watchdog;

/// A software router whose whole Internet routing table fits in the CPU's cache.
#[derive(Parser)]
#[command(name = "fingerpost", version, arg_required_else_help = true)]
struct Cli {
    /// Write lines of the log from this level on: error, warn, info or debug
    #[arg(long, global = true, value_name = "LEVEL", value_parser = logging::parse)]
    log_level: Option<router::config::Level>,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Forward real packets by a full table, and check every one
    Demo(demo::Args),
    /// Forward packets by a configuration
    Forward(forward::Args),
    /// Forward packets by the kernel's routes, as BIRD, FRR or `ip` make them
    Run(run::Args),
    /// Guard a protected network at a vantage point: let flows through that a grantor allows
    Gate(gate::Args),
    /// Decide of the packets that gates send, by a policy in Lua
    Grantor(grantor::Args),
    /// Try the gate on this machine, under attack
    Lab(lab::Args),
    /// Ask a running gate about a flow
    Flow(flow::Args),
    /// Ask a running router
    Show(show::Args),
    /// Have a running router read its configuration again, and go over to it
    Reload(order::Reload),
    /// Have a running router take the packets of an interface that it observes
    Promote(order::Of),
    /// Have a running router leave the packets of an interface to the kernel, and count them
    Demote(order::Of),
    /// Tell what happens in a running router, until Ctrl-C
    Monitor(monitor::Args),
    /// Have a running router save an image of its tables
    Save(order::Save),
    /// Show a running router on one screen, refreshed every second
    Top(top::Args),
    /// Hold a running router's tables against others
    Fib(fib::Args),
    /// Compile and check flow programs for the gate
    Program(program::Args),
    /// Try another policy of a grantor on recorded packets
    Policy(policy::Args),
    /// Sign policies for gates and grantors, and have a member go back
    Bundle(bundle::Args),
    /// Ask a table for routes
    Route(route::Args),
    /// Describe a table, or make one
    Table(table::Args),
    /// Measure, with records
    Bench(Box<bench::Args>),
    /// Write the completions of a shell to standard output
    Completions(completions::Args),
    /// Write the manual pages
    Man(man::Args),
}

/// The whole command line as clap sees it, for completions and manual pages.
fn command_line() -> clap::Command {
    Cli::command()
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    let done = logging::start(cli.log_level).and_then(|()| run_command(cli.command));
    done.unwrap_or_else(|error| {
        if reader_is_gone(&error) {
            return ExitCode::SUCCESS;
        }
        logging::failure(&explain(&error));
        ExitCode::FAILURE
    })
}

fn run_command(command: Command) -> anyhow::Result<ExitCode> {
    match command {
        Command::Demo(args) => demo::run(&args),
        Command::Forward(args) => forward::run(&args),
        Command::Run(args) => run::run(&args),
        Command::Gate(args) => gate::run(&args),
        Command::Grantor(args) => grantor::run(&args),
        Command::Lab(args) => lab::run(&args),
        Command::Flow(args) => flow::run(&args),
        Command::Show(args) => show::run(&args),
        Command::Reload(args) => order::reload(&args),
        Command::Promote(args) => order::promote(&args),
        Command::Demote(args) => order::demote(&args),
        Command::Monitor(args) => monitor::run(&args),
        Command::Save(args) => order::save(&args),
        Command::Top(args) => top::run(&args),
        Command::Fib(args) => fib::run(&args),
        Command::Program(args) => program::run(&args),
        Command::Policy(args) => policy::run(&args),
        Command::Bundle(args) => bundle::run(&args),
        Command::Route(args) => route::run(&args),
        Command::Table(args) => table::run(&args),
        Command::Bench(args) => bench::run(&args),
        Command::Completions(args) => completions::run(&args),
        Command::Man(args) => man::run(&args),
    }
}

/// Writes an error and its causes in one line. Some errors tell their cause
/// themselves and some leave it to us; nothing is said twice.
fn explain(error: &anyhow::Error) -> String {
    let mut text = String::new();
    for cause in error.chain().map(ToString::to_string) {
        if text.is_empty() {
            text = cause;
        } else if !text.contains(&cause) {
            text = format!("{text}: {cause}");
        }
    }
    text
}

/// Says whether `error` is only that nobody reads our output any more.
fn reader_is_gone(error: &anyhow::Error) -> bool {
    error
        .chain()
        .filter_map(|cause| cause.downcast_ref::<std::io::Error>())
        .any(|cause| cause.kind() == ErrorKind::BrokenPipe)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        command_line().debug_assert();
    }

    #[test]
    fn nothing_is_said_twice() {
        let error = anyhow::anyhow!("no such file").context("x.txt: no such file");
        assert_eq!(explain(&error), "x.txt: no such file");
        assert_eq!(explain(&error.context("loading")), "loading: x.txt: no such file");
    }

    #[test]
    fn only_a_reader_that_left_is_quiet() {
        let error = |kind| anyhow::Error::from(std::io::Error::from(kind)).context("writing");
        assert!(reader_is_gone(&error(ErrorKind::BrokenPipe)));
        assert!(!reader_is_gone(&error(ErrorKind::NotFound)));
        assert!(!reader_is_gone(&anyhow::anyhow!("broken pipe")));
    }
}
