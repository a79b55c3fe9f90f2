//! `fingerpost fleet`: versions of policies for many gates and grantors, over NATS JetStream.
//!
//! ```text
//!   fleet serve              starts nats-server for a fleet on this machine
//!   fleet create URL         creates the fleet's buckets
//!   fleet rollout URL FILE   gives a bundle to a growing share of the members, while they are well
//!   fleet pause, resume URL  holds the rollout before its next stage
//!   fleet rollback URL       gives the files of the previous version to all members
//!   fleet status URL         verifies and shows the members' states
//!   fleet block URL PREFIX…  makes all gates drop prefixes; `unblock` ends that
//!   fleet attacks URL        adds up an attack over all gates
//!   fleet remove URL NAME    removes a member that is gone
//! ```
//!
//! The servers need no trust: bundles are signed by the operator, states by the members
//! (docs/guide/fleets.md, decision 65).

mod attacks;
mod block;
mod rollout;
mod serve;
mod status;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, ensure};
use bundle::state::MemberKeys;
use clap::Subcommand;
use fleet::{Access, Broker, FleetUrl, RolloutRecord, RolloutState};

/// The arguments of `fleet`.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// Run nats-server with JetStream on this machine, with a fleet, until Ctrl-C
    Serve(serve::Args),
    /// Create the buckets of a fleet on its servers
    Create {
        #[command(flatten)]
        servers: ServerArgs,
        /// Servers that store each message: 1, 3 or 5 of a cluster
        #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=5))]
        replicas: u8,
    },
    /// Give a bundle to a growing share of the members; stop if one of them rolls it back
    Rollout(rollout::Args),
    /// Let the running rollout begin no further stage
    Pause(ServerArgs),
    /// Let a paused rollout go on
    Resume(ServerArgs),
    /// Sign the files of the previous version with a higher version, for all members
    Rollback(rollout::RollbackArgs),
    /// Verify the states of the members, and show them
    Status(status::Args),
    /// Make all gates drop the packets from prefixes, or show those
    Block(block::BlockArgs),
    /// End the blocks of prefixes
    Unblock(block::ListArgs),
    /// Add up the current attack over all gates
    Attacks(status::Args),
    /// Remove the state of a member that is gone
    Remove {
        #[command(flatten)]
        servers: ServerArgs,
        /// Name of the member
        #[arg(value_name = "NAME")]
        name: String,
    },
}

/// The servers of a fleet.
#[derive(clap::Args)]
struct ServerArgs {
    /// Servers and name of the fleet: nats://HOST,HOST:PORT/FLEET
    #[arg(value_name = "URL")]
    url: FleetUrl,
    /// NATS credentials, as nsc writes them
    #[arg(long, value_name = "FILE")]
    credentials: Option<PathBuf>,
    /// Root certificates in PEM, in addition to those of the system
    #[arg(long, value_name = "FILE")]
    roots: Option<PathBuf>,
}

impl ServerArgs {
    fn connect(&self) -> anyhow::Result<Broker> {
        let access =
            Access { credentials: self.credentials.clone(), root_file: self.roots.clone() };
        Ok(Broker::connect(self.url.clone(), &access)?)
    }
}

/// Runs the subcommand.
pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    match &args.verb {
        Verb::Serve(args) => serve::run(args),
        Verb::Create { servers, replicas } => {
            let broker = servers.connect()?;
            broker.create((*replicas).into())?;
            print(&format!("{}: created", broker.url()))
        }
        Verb::Rollout(args) => rollout::run(args),
        Verb::Pause(servers) => change_state(servers, RolloutState::Running, RolloutState::Paused),
        Verb::Resume(servers) => change_state(servers, RolloutState::Paused, RolloutState::Running),
        Verb::Rollback(args) => rollout::roll_back(args),
        Verb::Status(args) => status::run(args),
        Verb::Block(args) => block::block(args),
        Verb::Unblock(args) => block::unblock(args),
        Verb::Attacks(args) => attacks::run(args),
        Verb::Remove { servers, name } => {
            let broker = servers.connect()?;
            let has_state = !broker.members(std::iter::once(name.as_str()))?.is_empty();
            ensure!(has_state, "{}: no member {name} has reported", broker.url());
            broker.remove_member(name)?;
            print(&format!("{name}: removed"))
        }
    }
}

fn print(line: &str) -> anyhow::Result<ExitCode> {
    writeln!(std::io::stdout(), "{line}")?;
    Ok(ExitCode::SUCCESS)
}

/// Pauses or resumes the rollout.
fn change_state(
    servers: &ServerArgs,
    from: RolloutState,
    to: RolloutState,
) -> anyhow::Result<ExitCode> {
    let broker = servers.connect()?;
    let record = broker.rollout()?;
    let record = record.filter(|record| record.state == from).with_context(|| {
        let is = if from == RolloutState::Running { "running" } else { "paused" };
        format!("{}: no rollout is {is}", broker.url())
    })?;
    let line =
        format!("rollout of version {}, stage {}: {}", record.version, record.stage, text(to));
    broker.put_rollout(&RolloutRecord { state: to, ..record })?;
    print(&line)
}

/// Returns a number with its noun, in the singular or the plural.
fn number_of(count: usize, one: &str, many: &str) -> String {
    format!("{count} {}", if count == 1 { one } else { many })
}

/// Returns the word for a state of a rollout.
fn text(state: RolloutState) -> &'static str {
    match state {
        RolloutState::Running => "running",
        RolloutState::Paused => "paused",
        RolloutState::Stopped => "stopped",
        RolloutState::Complete => "complete",
    }
}

/// Reads the list of the members' public keys.
fn read_members(path: &Path) -> anyhow::Result<MemberKeys> {
    let text =
        std::fs::read_to_string(path).with_context(|| format!("reading {}", path.display()))?;
    MemberKeys::parse(&text).map_err(|why| anyhow::anyhow!("{}: {why}", path.display()))
}
