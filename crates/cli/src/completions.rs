//! `fingerpost completions SHELL`: writes a completion script, from the definition that parses the
//! command line.

use std::io::Write;
use std::process::ExitCode;

use clap_complete::Shell;

/// The arguments of `completions`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Shell of the completions
    shell: Shell,
}

/// Writes the script to standard output.
pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    // Generated in memory: the generator panics if its writer fails.
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut crate::command_line(), "fingerpost", &mut script);
    std::io::stdout().lock().write_all(&script)?;
    Ok(ExitCode::SUCCESS)
}
