//! `fingerpost man [--dir FOLDER]`: writes the manual pages, from the definition that parses the
//! command line.
//!
//! Without a folder, it writes the main page to standard output (`fingerpost man | man -l -`). With a
//! folder, it writes a page for the program and one for each subcommand there, under the file names
//! that `man` expects.

use std::fs;
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context;

/// The arguments of `man`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Write all pages into this folder [default: the main page to standard output]
    #[arg(long, value_name = "FOLDER")]
    dir: Option<PathBuf>,
}

/// Writes the pages.
pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let program = crate::command_line();
    match &args.dir {
        None => {
            let mut text = Vec::new();
            clap_mangen::Man::new(program).render(&mut text)?;
            std::io::stdout().lock().write_all(&text)?;
        }
        Some(folder) => {
            fs::create_dir_all(folder).with_context(|| format!("creating {}", folder.display()))?;
            // No pages for the `help` subcommands.
            clap_mangen::generate_to(program.disable_help_subcommand(true), folder)
                .with_context(|| format!("writing pages into {}", folder.display()))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}
