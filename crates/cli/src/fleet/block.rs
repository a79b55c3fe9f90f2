//! `fingerpost fleet block` and `unblock`: prefixes that all gates of a fleet drop.
//!
//! ```text
//!   stored list ─► signed with --key? ─► changed, sequence + 1, signed ─► stored, unless another one is there by now
//! ```
//!
//! Each gate applies the list as `ban` and `unban` would (`bundle::blocks`), and reports how many prefixes it drops.

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, ensure};
use blocklist::parse_prefix;
use bundle::blocks::{FleetBlocks, MAX_BLOCKS, now};
use bundle::key::SecretKey;
use fleet::Broker;
use serde_json::json;

use super::{ServerArgs, number_of};
use crate::bundle::secret;

/// The arguments of `fleet block`.
#[derive(clap::Args)]
pub(super) struct BlockArgs {
    #[command(flatten)]
    list: ListArgs,
    /// Seconds until each gate lifts the blocks; without, they do not end
    #[arg(long = "for", value_name = "S", value_parser = clap::value_parser!(u64).range(1..))]
    seconds: Option<u64>,
}

/// The arguments of both commands.
#[derive(clap::Args)]
pub(super) struct ListArgs {
    #[command(flatten)]
    servers: ServerArgs,
    /// Prefixes or addresses; without any, the list is shown
    #[arg(value_name = "PREFIX")]
    prefixes: Vec<String>,
    /// Secret key of the operator, which signs bundles too
    #[arg(long, value_name = "FILE")]
    key: PathBuf,
    /// Write JSON
    #[arg(short, long)]
    json: bool,
}

/// Blocks prefixes, or shows the list.
pub(super) fn block(args: &BlockArgs) -> anyhow::Result<ExitCode> {
    let end = args.seconds.map(|seconds| now().saturating_add(seconds));
    args.list.change(|list, prefix| {
        list.prefixes.insert(prefix, end);
        Ok(())
    })
}

/// Unblocks prefixes.
pub(super) fn unblock(args: &ListArgs) -> anyhow::Result<ExitCode> {
    ensure!(!args.prefixes.is_empty(), "no prefix: name those to unblock");
    args.change(|list, prefix| {
        ensure!(list.prefixes.remove(&prefix).is_some(), "{prefix} is not blocked by the fleet");
        Ok(())
    })
}

impl ListArgs {
    /// Changes the stored list by each prefix, signs and stores it.
    fn change(
        &self,
        mut change: impl FnMut(&mut FleetBlocks, String) -> anyhow::Result<()>,
    ) -> anyhow::Result<ExitCode> {
        let key = secret(&self.key)?;
        let broker = self.servers.connect()?;
        let (mut list, revision) = read(&broker, &key)?;
        list.prune(now());
        for prefix in &self.prefixes {
            let prefix = parse_prefix(prefix).map_err(anyhow::Error::msg)?.to_string();
            change(&mut list, prefix)?;
        }
        if !self.prefixes.is_empty() {
            ensure!(
                list.prefixes.len() <= MAX_BLOCKS,
                "more than {MAX_BLOCKS} prefixes: use a block list in a bundle"
            );
            list.sequence += 1;
            broker.put_blocks(list.sign(&key), revision)?;
        }
        let mut out = std::io::stdout().lock();
        if self.json {
            let document = json!({ "sequence": list.sequence, "prefixes": list.prefixes });
            serde_json::to_writer_pretty(&mut out, &document)?;
            writeln!(out)?;
            return Ok(ExitCode::SUCCESS);
        }
        let count = number_of(list.prefixes.len(), "prefix", "prefixes");
        writeln!(out, "list {}: {count}", list.sequence)?;
        for (prefix, end) in &list.prefixes {
            match end {
                None => writeln!(out, "{prefix}")?,
                Some(end) => writeln!(out, "{prefix} for {} s", end.saturating_sub(now()))?,
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// Reads the stored list, with its revision. The first one begins with sequence 0.
fn read(broker: &Broker, key: &SecretKey) -> anyhow::Result<(FleetBlocks, u64)> {
    let fleet = broker.url().fleet();
    let Some((signed, revision)) = broker.blocks()? else {
        return Ok((FleetBlocks { fleet: fleet.to_owned(), ..FleetBlocks::default() }, 0));
    };
    let list = FleetBlocks::open(&signed, fleet, &[key.public()])
        .with_context(|| format!("the list of blocked prefixes of {}", broker.url()))?;
    Ok((list, revision))
}
