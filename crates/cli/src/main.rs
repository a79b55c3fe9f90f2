//! The fingerpost program: a router for Linux whose whole routing table fits in a cache.
//!
//! Each subcommand is a module with two items, `Args` and `run`:
//!
//! ```text
//! demo                 forwards by a full table between namespaces, and checks each packet
//! run -c FILE          runs the router with the kernel's routes
//! gate -c FILE         runs a DDoS gate at a vantage point; `gate check` checks its file
//! grantor -c FILE      runs a grantor in the protected network
//! lab ddos             attacks a server in namespaces, with the gate off and on
//! bundle VERB          packs, signs and verifies policies for gates and grantors, rolls back
//! policy test FILE     compares a candidate policy with the current one on recorded packets
//! flow explain SRC DST prints the state of a flow at a running gate
//! acl explain, nft     explains the rules for a packet, writes the lists for nftables
//! show WHAT            prints the state of a running router, gate or grantor
//! reload               makes a running router reload its configuration
//! upgrade              makes the installed program take over from a running router or gate
//! promote, demote IF   switches an interface between forwarding and observing
//! block IF...          drops the packets of listed sources in the driver
//! ban, unban PREFIX    changes the bans of a running router or `block`
//! apply-lists          applies block lists that are held because they have become short
//! monitor              prints the events of a running router
//! capture              prints packets of a running router, or writes them for Wireshark
//! sflow                exports packets, drops and counters of a running router
//! trace                prints the steps that a running router takes with a packet
//! save                 makes a running router save an image of its tables
//! top                  shows a running router on one screen
//! program VERB         compiles and verifies flow programs for the gate
//! fib diff kernel      compares the tables of a running router with the kernel
//! forward -c FILE      runs the router with routes from files
//! route get ADDR...    looks up addresses, and prints the memory that each lookup touches
//! table info FILE      prints the contents and the size of a table
//! table generate       generates a synthetic table
//! table save, load     writes and reads images of built tables
//! completions, man     writes shell completions and manual pages
//! ```
//!
//! Results go to standard output; progress, warnings and errors go to standard error. `-j` makes the
//! result one JSON document. Exit status: 0 success, 1 failure, 2 usage error. A closed pipe on
//! standard output (`| head`) is not an error.

#![forbid(unsafe_code)]

use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};
use output::failure::{explain, is_broken_pipe};

mod acl;
mod block;
mod block_lists;
mod bundle;
mod bundle_check;
mod capture;
mod check;
mod client;
mod completions;
mod counters;
mod demo;
mod descriptor_store;
mod egress_queues;
mod export;
mod fib;
mod fleet;
mod flow;
mod forward;
mod gate;
mod grantor;
mod ipfix;
mod lab;
mod logging;
mod man;
mod monitor;
mod namespace;
mod order;
mod policy;
mod program;
mod realtime;
mod route;
mod run;
mod service;
mod sflow;
mod show;
mod stop;
mod table;
mod tables;
mod top;
mod trace;
mod watchdog;

/// A software router whose whole Internet routing table fits in the CPU's cache.
#[derive(Parser)]
#[command(name = "fingerpost", version, arg_required_else_help = true)]
struct Cli {
    /// Set the least severe level of the log: error, warn, info or debug [default: info]
    #[arg(long, global = true, value_name = "LEVEL", value_parser = logging::parse)]
    log_level: Option<config::Level>,
    /// Write the log as text, or as JSON with an object on a line [default: text]
    #[arg(long, global = true, value_name = "FORMAT", value_enum)]
    log_format: Option<logging::Format>,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Forward packets by a full table between namespaces, and check each one
    Demo(demo::Args),
    /// Run the router with routes from files
    Forward(forward::Args),
    /// Run the router with the kernel's routes, as BIRD, FRR or `ip` install them
    Run(run::Args),
    /// Run a DDoS gate at a vantage point: it forwards the flows that a grantor grants
    Gate(gate::Args),
    /// Run a grantor: it decides the requests of gates with a policy in Lua
    Grantor(grantor::Args),
    /// Run an attack against a server on this machine, with and without the gate
    Lab(lab::Args),
    /// Drop the packets of listed sources at interfaces, without forwarding
    Block(Box<block::Args>),
    /// Make a running router or `block` drop the packets of a prefix
    Ban(block_lists::BanArgs),
    /// End a ban
    Unban(block_lists::UnbanArgs),
    /// Apply block lists that are held because they have become much shorter
    ApplyLists(order::OrderArgs),
    /// Query flows of a running gate, or retract them
    Flow(flow::Args),
    /// Explain access lists of a configuration, or write them for nftables
    Acl(acl::Args),
    /// Show the state of a running router, gate or grantor
    Show(show::Args),
    /// Make a running router, gate or grantor reload its configuration
    Reload(order::OrderArgs),
    /// Make the installed program take over from a running router or gate
    Upgrade(order::UpgradeArgs),
    /// Make a running router forward the packets of an interface that it observes
    Promote(order::InterfaceArgs),
    /// Make a running router observe an interface: the kernel forwards, the router counts
    Demote(order::InterfaceArgs),
    /// Print the events of a running router until Ctrl-C
    Monitor(monitor::Args),
    /// Print packets that a running router, gate or grantor handles, or write them for Wireshark
    Capture(capture::Args),
    /// Export packets, drops and counters of a running router by sFlow
    Sflow(sflow::Args),
    /// Export the flows of a running router by IPFIX, with their drops and origins
    Ipfix(ipfix::Args),
    /// Print the steps that a running router takes with a packet, without sending it
    Trace(trace::Args),
    /// Make a running router save an image of its tables
    Save(order::OrderArgs),
    /// Show a running router on one screen with live rates
    Top(top::Args),
    /// Compare the tables of a running router with the kernel
    Fib(fib::Args),
    /// Compile and verify flow programs for the gate
    Program(program::Args),
    /// Test a candidate policy of a grantor on recorded packets
    Policy(policy::Args),
    /// Pack, sign and verify policies for gates and grantors, and roll back
    Bundle(bundle::Args),
    /// Give versions of policies to many gates and grantors, over NATS JetStream
    Fleet(fleet::Args),
    /// Look up addresses in a table
    Route(route::Args),
    /// Describe, generate, save and load tables
    Table(table::Args),
    /// Write shell completions to standard output
    Completions(completions::Args),
    /// Write the manual pages
    Man(man::Args),
}

/// Returns the definition of the command line, for completions and manual pages.
fn command_line() -> clap::Command {
    Cli::command()
}

fn main() -> ExitCode {
    // Ends the process if that only launches the successor of a daemon.
    control::launch();
    let cli = Cli::parse();
    let done =
        logging::start(cli.log_level, cli.log_format).and_then(|()| run_command(cli.command));
    done.unwrap_or_else(|error| {
        if is_broken_pipe(&error) {
            return ExitCode::SUCCESS;
        }
        logging::log_failure(&explain(&error));
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
        Command::Block(args) => block::run(&args),
        Command::Flow(args) => flow::run(&args),
        Command::Acl(args) => acl::run(&args),
        Command::Show(args) => show::run(&args),
        Command::Reload(args) => order::reload(&args),
        Command::Upgrade(args) => order::upgrade(&args),
        Command::Ban(args) => block_lists::ban(&args),
        Command::Unban(args) => block_lists::unban(&args),
        Command::ApplyLists(args) => order::apply_lists(&args),
        Command::Promote(args) => order::promote(&args),
        Command::Demote(args) => order::demote(&args),
        Command::Monitor(args) => monitor::run(&args),
        Command::Capture(args) => capture::run(&args),
        Command::Sflow(args) => sflow::run(&args),
        Command::Ipfix(args) => ipfix::run(&args),
        Command::Trace(args) => trace::run(&args),
        Command::Save(args) => order::save(&args),
        Command::Top(args) => top::run(&args),
        Command::Fib(args) => fib::run(&args),
        Command::Program(args) => program::run(&args),
        Command::Policy(args) => policy::run(&args),
        Command::Bundle(args) => bundle::run(&args),
        Command::Fleet(args) => fleet::run(&args),
        Command::Route(args) => route::run(&args),
        Command::Table(args) => table::run(&args),
        Command::Completions(args) => completions::run(&args),
        Command::Man(args) => man::run(&args),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn command_line_is_consistent() {
        command_line().debug_assert();
    }
}
