//! `fingerpost completions SHELL`: a completion script, from the same definition
//! of the command line that parses it.

use std::io::Write;
use std::process::ExitCode;

use clap_complete::Shell;

/// What `completions` takes.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The shell to complete in
    shell: Shell,
}

/// Writes the script to standard output.
pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    // Made in memory first: the generator panics when its writer fails.
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut crate::command_line(), "fingerpost", &mut script);
    std::io::stdout().lock().write_all(&script)?;
    Ok(ExitCode::SUCCESS)
}
