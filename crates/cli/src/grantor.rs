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
use router::control::progress::Progress;
use router::grantor::{Config, Grantor};
use router::preflight;
use serde_json::json;

use crate::service::{self, Service};
use crate::{bundle, check, progress};

/// The configuration that is read unless another is named.
pub(crate) const CONFIG: &str = "/etc/fingerpost/grantor.toml";

/// What `grantor` takes.
#[derive(clap::Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct Args {
    /// The configuration
    #[arg(short, long, value_name = "FILE", default_value = CONFIG)]
    config: PathBuf,
    /// Wait for interfaces that do not exist yet, as at boot, for as long as it takes
    #[arg(long)]
    wait_for_interfaces: bool,
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
        #[arg(short, long, value_name = "FILE", default_value = CONFIG)]
        config: PathBuf,
        #[command(flatten)]
        options: check::Options,
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
    match &args.what {
        Some(What::Check { config, options }) => judge(config, options),
        Some(What::Policy { name }) => policy(name.as_deref()),
        None => grant(args),
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

fn judge(path: &Path, options: &check::Options) -> anyhow::Result<ExitCode> {
    let config = match &options.bundle {
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
    let sound = format!(
        "{} interfaces, {} tunnel ends, {} gates, {} lists{programs}{}",
        config.fixed.interfaces.len(),
        config.fixed.ends.len(),
        config.fixed.gates.len(),
        config.lists.len(),
        bundle::over(config.bundle.as_deref())
    );
    check::report(&sound, &preflight::grantor(&config, options.offline), options.json)
}

fn grant(args: &Args) -> anyhow::Result<ExitCode> {
    let config = Config::local(&args.config)?;
    let signals = service::prepare(config.fixed.log)?;
    let names: Vec<_> = config.fixed.interfaces.iter().map(String::as_str).collect();
    if args.wait_for_interfaces && !signals.wait_for_interfaces(&names) {
        return Ok(ExitCode::SUCCESS);
    }
    let mut grantor = progress::during("following the kernel", || Grantor::start(&config))?;
    service::announce(&grantor.ports());
    log::info!("granting; Ctrl-C stops");
    let well = signals.serve(&mut grantor);
    let state = |counters: &Counters| json!({ "counters": counters, "grantor": grantor.told() });
    service::report(&grantor.stats(), well, args.json.then_some(state))
}

impl Service for Grantor {
    fn alive(&self) -> bool {
        Grantor::alive(self)
    }

    fn progress(&self) -> Progress {
        Grantor::progress(self)
    }

    fn attend(&mut self) {
        for line in Grantor::attend(self) {
            log::info!("{line}");
        }
    }

    fn problems(&self) -> Vec<String> {
        Grantor::problems(self)
    }

    fn reload(&mut self) -> Result<String, String> {
        Grantor::reload(self)
    }

    fn stop(&mut self) -> bool {
        Grantor::stop(self)
    }
}
