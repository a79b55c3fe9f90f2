//! `fingerpost program`: compiles and verifies flow programs for the gate.
//!
//! ```text
//!   program list            lists the bundled programs
//!   program build NAME      compiles a bundled program, or a C file, with clang, and verifies it
//!   program check FILE      verifies an object file
//!   program source NAME     writes the source of a bundled program, or of a header
//! ```
//!
//! No object files are shipped: `build` compiles them with the installed clang. It writes no object
//! file that the verifier refuses.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context, bail};
use clap::Subcommand;
use gate::program::shipped::{CLANG, HEADERS, SOURCES};
use gate::program::{Program, Verified};

/// The arguments of `program`.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// List the bundled flow programs
    List,
    /// Compile a flow program with clang, and verify it
    Build(BuildArgs),
    /// Verify an object file
    Check(CheckArgs),
    /// Write the source of a bundled program or header to standard output
    Source {
        /// Name of the program, or `flow.h` or `limit.h`
        #[arg(value_name = "NAME")]
        name: String,
    },
}

#[derive(clap::Args)]
struct BuildArgs {
    /// Bundled program, or C file
    #[arg(value_name = "NAME|FILE.c")]
    source: String,
    /// Object file to write [default: NAME.o]
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Compiler to run
    #[arg(long, default_value = "clang")]
    clang: String,
    /// Write JSON
    #[arg(short, long)]
    json: bool,
}

#[derive(clap::Args)]
struct CheckArgs {
    /// Object file to verify
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Write JSON
    #[arg(short, long)]
    json: bool,
}

/// Runs the subcommand.
pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    match &args.verb {
        Verb::List => list(),
        Verb::Build(args) => build(args),
        Verb::Check(args) => {
            let bytes = std::fs::read(&args.file)
                .with_context(|| format!("reading {}", args.file.display()))?;
            verify(&args.file, &bytes, args.json)
        }
        Verb::Source { name } => source(name),
    }
}

fn list() -> anyhow::Result<ExitCode> {
    let mut out = std::io::stdout().lock();
    for source in SOURCES {
        // The first line is a comment: the name and a description.
        let first = source.text.lines().next().unwrap_or_default();
        let comment = first.trim_start_matches("/* ").trim_end_matches(" */");
        let description = comment.split_once(": ").map_or(comment, |(_, description)| description);
        writeln!(out, "{:>3}  {:<14}{description}", source.number, source.name)?;
    }
    Ok(ExitCode::SUCCESS)
}

fn source(name: &str) -> anyhow::Result<ExitCode> {
    let of_program = SOURCES.iter().find(|source| source.name == name).map(|source| source.text);
    let header = HEADERS.iter().find(|(header, _)| *header == name).map(|(_, text)| *text);
    let Some(text) = of_program.or(header) else {
        bail!("{name}: no such bundled program or header: `fingerpost program list` lists them");
    };
    std::io::stdout().lock().write_all(text.as_bytes())?;
    Ok(ExitCode::SUCCESS)
}

/// A temporary folder, which is removed when it is dropped.
struct TempFolder(PathBuf);

impl TempFolder {
    fn new() -> anyhow::Result<Self> {
        let random = fastrand::u64(..);
        let path = std::env::temp_dir().join(format!("fingerpost-program-{random:016x}"));
        std::fs::create_dir(&path).with_context(|| format!("creating {}", path.display()))?;
        Ok(Self(path))
    }
}

impl Drop for TempFolder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn build(args: &BuildArgs) -> anyhow::Result<ExitCode> {
    let folder = TempFolder::new()?;
    for (header, text) in HEADERS {
        std::fs::write(folder.0.join(header), text)?;
    }
    let own = Path::new(&args.source);
    let (input, stem) = match SOURCES.iter().find(|source| source.name == args.source) {
        Some(source) => {
            let input = folder.0.join(format!("{}.c", source.name));
            std::fs::write(&input, source.text)?;
            (input, PathBuf::from(source.name))
        }
        None if own.exists() => {
            let stem = own.file_stem().context("the file has no name")?;
            (own.to_owned(), PathBuf::from(stem))
        }
        None => bail!(
            "{}: no such file or bundled program: `fingerpost program list` lists the bundled ones",
            args.source
        ),
    };
    let object = folder.0.join("program.o");
    let clang = Command::new(&args.clang)
        .args(CLANG)
        .arg(&input)
        .arg("-I")
        .arg(&folder.0)
        .arg("-o")
        .arg(&object)
        .status()
        .with_context(|| format!("running {} (Debian: apt-get install clang)", args.clang))?;
    if !clang.success() {
        bail!("{}: {} failed to compile it", input.display(), args.clang);
    }
    let bytes = std::fs::read(&object)?;
    let output = args.output.clone().unwrap_or_else(|| stem.with_extension("o"));
    let done = verify(&output, &bytes, args.json)?;
    fib::image::replace(&output, &bytes)?;
    Ok(done)
}

/// Verifies an object file, and prints the result.
fn verify(file: &Path, bytes: &[u8], json: bool) -> anyhow::Result<ExitCode> {
    let program = Program::load(bytes)
        .with_context(|| format!("{}: refused by the verifier", file.display()))?;
    let sections = [("init", program.init()), ("pkt", program.packet())];
    let mut out = std::io::stdout().lock();
    if json {
        let of = |code: &Verified| {
            serde_json::json!({
                "instructions": code.instructions(),
                "longest": code.longest(),
                "steps": code.steps(),
            })
        };
        let each = sections.map(|(name, code)| (name.to_owned(), of(code)));
        let all: serde_json::Map<String, serde_json::Value> = each.into_iter().collect();
        writeln!(out, "{}", serde_json::json!({"file": file, "sections": all}))?;
        return Ok(ExitCode::SUCCESS);
    }
    writeln!(out, "{}: valid", file.display())?;
    for (name, code) in sections {
        let (instructions, longest, steps) = (code.instructions(), code.longest(), code.steps());
        writeln!(
            out,
            "  {name:<5} {instructions} instructions, at most {longest} executed, verified in {steps} steps"
        )?;
    }
    Ok(ExitCode::SUCCESS)
}
