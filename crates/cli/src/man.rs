//! `fingerpost man [--dir FOLDER]`: the manual pages, from the same definition of
//! the command line that parses it.
//!
//! Without a folder the main page goes to standard output (`fingerpost man |
//! man -l -`); with one, a page for the program and one for each subcommand are
//! written into it under the names that `man` looks for.

use std::fs;
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context;

/// What `man` takes.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Write every page into this folder instead of the main one to standard output
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
            fs::create_dir_all(folder).with_context(|| format!("making {}", folder.display()))?;
            // A page for the help of the help is nobody's need.
            clap_mangen::generate_to(program.disable_help_subcommand(true), folder)
                .with_context(|| format!("writing pages into {}", folder.display()))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}
