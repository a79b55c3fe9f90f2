//! `fingerpost grantor -c FILE`: a grantor in the protected network, until it is told to stop.
//!
//! A [service] that SIGHUP has go over to the policy, the lists and the programs as they are
//! now. `fingerpost grantor check -c FILE` judges the file and what it names, and takes
//! nothing over. A reload that fails says why and leaves everything as it was.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context;
use router::control::api::Counters;
use router::grantor::{Config, Grantor};
use serde_json::json;

use crate::service::{self, Service};
use crate::{bundle, progress};

/// What `grantor` takes.
#[derive(clap::Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub(crate) struct Args {
    /// The configuration
    #[arg(short, long, value_name = "FILE", required = true)]
    config: Option<PathBuf>,
    /// Write the counters at the end as JSON
    #[arg(short, long)]
    json: bool,
    #[command(subcommand)]
    what: Option<What>,
}

#[derive(clap::Subcommand)]
enum What {
    /// Read a configuration with its policy, say whether it is sound, and stop
    Check {
        /// The configuration
        #[arg(short, long, value_name = "FILE")]
        config: PathBuf,
        /// Judge it with this bundle, and not with the one in force
        #[arg(long, value_name = "FILE")]
        bundle: Option<PathBuf>,
    },
    /// Write a policy that comes with this to standard output, or their names
    Policy {
        /// Its name
        #[arg(value_name = "NAME")]
        name: Option<String>,
    },
}

/// Grants until a signal.
pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    match (&args.what, &args.config) {
        (Some(What::Check { config, bundle }), _) => check(config, bundle.as_deref()),
        (Some(What::Policy { name }), _) => policy(name.as_deref()),
        (None, Some(config)) => grant(config, args.json),
        (None, None) => anyhow::bail!("no configuration: fingerpost grantor -c FILE"),
    }
}

fn policy(name: Option<&str>) -> anyhow::Result<ExitCode> {
    use gate::grantor::shipped::POLICIES;
    let mut out = std::io::stdout().lock();
    match name {
        None => {
            for policy in POLICIES {
                writeln!(out, "{:<12}lists: {}", policy.name, policy.lists.join(", "))?;
            }
        }
        Some(name) => {
            let found = POLICIES.iter().find(|policy| policy.name == name);
            let found = found.with_context(|| {
                format!("no policy {name}; `fingerpost grantor policy` has their names")
            })?;
            out.write_all(found.text.as_bytes())?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn check(path: &Path, bundle: Option<&Path>) -> anyhow::Result<ExitCode> {
    let config = match bundle {
        None => Config::load(path)?,
        Some(file) => {
            let local = Config::local(path)?;
            let bundle = bundle::of_member(file, path, local.fixed.distribution.as_ref())?;
            Config::load_over(path, Some(&bundle))?
        }
    };
    config.try_policies().map_err(|bad| anyhow::anyhow!("{}: {bad}", path.display()))?;
    let programs = match config.programs.len() {
        0 => String::new(),
        some => format!(", {some} programs"),
    };
    writeln!(
        std::io::stdout(),
        "sound: {} interfaces, {} tunnel ends, {} gates, {} lists{programs}{}",
        config.fixed.interfaces.len(),
        config.fixed.ends.len(),
        config.fixed.gates.len(),
        config.lists.len(),
        bundle::over(config.bundle.as_deref())
    )?;
    Ok(ExitCode::SUCCESS)
}

fn grant(path: &Path, json: bool) -> anyhow::Result<ExitCode> {
    let config = Config::local(path)?;
    let signals = service::prepare()?;
    let mut grantor = progress::during("following the kernel", || Grantor::start(&config))?;
    service::announce(&grantor.ports());
    eprintln!("fingerpost: granting; Ctrl-C stops");
    let well = signals.serve(&mut grantor);
    let told = |counters: &Counters| json!({ "counters": counters, "grantor": grantor.told() });
    service::report(&grantor.stats(), well, json.then_some(told))
}

impl Service for Grantor {
    fn alive(&self) -> bool {
        Grantor::alive(self)
    }

    fn attend(&mut self) {
        for told in Grantor::attend(self) {
            eprintln!("fingerpost: {told}");
        }
    }

    fn reload(&mut self) -> Result<String, String> {
        Grantor::reload(self)
    }

    fn stop(&mut self) -> bool {
        Grantor::stop(self)
    }
}
