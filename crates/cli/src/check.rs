//! The reports of `run --check`, `forward --check`, `gate check` and `grantor check`: one line for a
//! valid configuration, with its warnings, or the errors.
//!
//! ```text
//!   valid: ports eth0, eth1                                            standard output, status 0
//!       worker 0, core 0: eth0 queues 0 2, eth1 queue 0; 30 MiB for packets
//!   fingerpost: warning: eth1 is down: `ip link set eth1 up`           standard error
//!   fingerpost: eth9: no such interface in this network namespace …    standard error, status 1
//! ```
//!
//! With `-j` the report is one JSON object on standard output.

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::bail;
use bundle::MemberConfig;
use control::preflight::{Finding, PlannedWorker};
use serde_json::{Map, Value, json};

use crate::bundle::read_for_member;

/// The options of `gate check` and `grantor check`.
#[derive(clap::Args)]
pub(crate) struct CheckArgs {
    /// Configuration file
    #[arg(short, long, value_name = "FILE")]
    pub(crate) config: PathBuf,
    /// Check with this bundle instead of the one in force
    #[arg(long, value_name = "FILE")]
    bundle: Option<PathBuf>,
    /// Check only the file, not this machine's interfaces, queues, cores and folders
    #[arg(long)]
    pub(crate) offline: bool,
    /// Write JSON
    #[arg(short, long)]
    pub(crate) json: bool,
}

impl CheckArgs {
    /// Reads the configuration of a gate or a grantor, with the bundle of `--bundle` over it, or else
    /// with the one in force.
    pub(crate) fn load<C: MemberConfig>(&self) -> anyhow::Result<C> {
        let Some(file) = &self.bundle else { return Ok(C::load(&self.config)?) };
        let bundle = read_for_member(file, &self.config, C::local(&self.config)?.distribution())?;
        Ok(C::load_over(&self.config, Some(&bundle))?)
    }
}

/// Writes the findings about a configuration that could be parsed, or its `summary`.
pub(crate) fn report(summary: &str, findings: &[Finding], json: bool) -> anyhow::Result<ExitCode> {
    let (mut errors, mut warnings, mut workers) = (Vec::new(), Vec::new(), Vec::new());
    for finding in findings {
        match finding {
            Finding::Error(text) => errors.push(text.as_str()),
            Finding::Warning(text) => warnings.push(text.as_str()),
            Finding::Worker(worker) => workers.push(worker),
        }
    }
    let mut out = std::io::stdout().lock();
    if json {
        let document = json!({
            "valid": errors.is_empty(),
            "summary": errors.is_empty().then_some(summary),
            "errors": errors,
            "warnings": warnings,
            "workers": workers.iter().map(|worker| worker_json(worker)).collect::<Vec<_>>(),
        });
        writeln!(out, "{document}")?;
        return Ok(if errors.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE });
    }
    for warning in &warnings {
        eprintln!("fingerpost: warning: {warning}");
    }
    if !errors.is_empty() {
        bail!("{}", errors.join("\nfingerpost: "));
    }
    writeln!(out, "valid: {summary}")?;
    workers.iter().try_for_each(|worker| writeln!(out, "    {worker}"))?;
    Ok(ExitCode::SUCCESS)
}

fn worker_json(worker: &PlannedWorker) -> Value {
    let queues = worker.queues.iter().map(|(name, queues)| (name.clone(), json!(queues)));
    json!({
        "worker": worker.number,
        "core": worker.core,
        "queues": queues.collect::<Map<_, _>>(),
        "bytes": worker.bytes,
    })
}
