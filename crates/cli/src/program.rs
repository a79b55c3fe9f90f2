//! `fingerpost program`: flow programs for the gate, compiled and checked.
//!
//! ```text
//!   program list            the programs that come with this
//!   program build NAME      compiles one of them, or a file in C, by clang, and checks it
//!   program check FILE      has the verifier judge an object file
//!   program source NAME     writes the source of one of them, or a header, to begin from
//! ```
//!
//! Objects are made by whoever uses them, by the clang that is there: none come with the
//! program. `build` leaves no file behind that the verifier refuses.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context, bail};
use clap::Subcommand;
use gate::program::shipped::{CLANG, HEADERS, SOURCES};
use gate::program::{Program, Verified};

/// What `program` takes.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// List the flow programs that come with this
    List,
    /// Compile a flow program by clang, and check it
    Build(Build),
    /// Have the verifier judge an object file
    Check(Check),
    /// Write the source of a program that comes with this, or a header, to standard output
    Source {
        /// Its name, or `flow.h` or `limit.h`
        #[arg(value_name = "NAME")]
        name: String,
    },
}

#[derive(clap::Args)]
struct Build {
    /// A program that comes with this, or a file in C
    #[arg(value_name = "NAME|FILE.c")]
    source: String,
    /// Where the object goes; NAME.o unless said
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// The compiler
    #[arg(long, default_value = "clang")]
    clang: String,
    /// Write JSON
    #[arg(short, long)]
    json: bool,
}

#[derive(clap::Args)]
struct Check {
    /// The object file
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Write JSON
    #[arg(short, long)]
    json: bool,
}

/// Does what the verb says.
pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    match &args.verb {
        Verb::List => list(),
        Verb::Build(args) => build(args),
        Verb::Check(args) => {
            let bytes = std::fs::read(&args.file)
                .with_context(|| format!("reading {}", args.file.display()))?;
            judge(&args.file, &bytes, args.json)
        }
        Verb::Source { name } => source(name),
    }
}

fn list() -> anyhow::Result<ExitCode> {
    let mut out = std::io::stdout().lock();
    for source in SOURCES {
        // The first line of each says what it is, after its name.
        let first = source.text.lines().next().unwrap_or_default();
        let says = first.trim_start_matches("/* ").trim_end_matches(" */");
        let says = says.split_once(": ").map_or(says, |(_, says)| says);
        writeln!(out, "{:>3}  {:<14}{says}", source.number, source.name)?;
    }
    Ok(ExitCode::SUCCESS)
}

fn source(name: &str) -> anyhow::Result<ExitCode> {
    let of_program = SOURCES.iter().find(|source| source.name == name).map(|source| source.text);
    let header = HEADERS.iter().find(|(header, _)| *header == name).map(|(_, text)| *text);
    let Some(text) = of_program.or(header) else {
        bail!("{name}: no program or header of that name; `fingerpost program list` has them");
    };
    std::io::stdout().lock().write_all(text.as_bytes())?;
    Ok(ExitCode::SUCCESS)
}

/// A folder that goes with whoever made it.
struct Folder(PathBuf);

impl Folder {
    fn new() -> anyhow::Result<Self> {
        let random = fastrand::u64(..);
        let path = std::env::temp_dir().join(format!("fingerpost-program-{random:016x}"));
        std::fs::create_dir(&path).with_context(|| format!("making {}", path.display()))?;
        Ok(Self(path))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn build(args: &Build) -> anyhow::Result<ExitCode> {
    let folder = Folder::new()?;
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
            "{}: no such file, and no program that comes with this; `fingerpost program list` \
             has those",
            args.source
        ),
    };
    let object = folder.0.join("it.o");
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
        bail!("{} does not compile {}", args.clang, input.display());
    }
    let bytes = std::fs::read(&object)?;
    let output = args.output.clone().unwrap_or_else(|| stem.with_extension("o"));
    let done = judge(&output, &bytes, args.json)?;
    fib::image::replace(&output, &bytes)?;
    Ok(done)
}

/// Says what the verifier makes of an object.
fn judge(file: &Path, bytes: &[u8], json: bool) -> anyhow::Result<ExitCode> {
    let program = Program::load(bytes).with_context(|| format!("{} is refused", file.display()))?;
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
    writeln!(out, "{}: sound", file.display())?;
    for (name, code) in sections {
        let (instructions, longest, steps) = (code.instructions(), code.longest(), code.steps());
        writeln!(
            out,
            "  {name:<5} {instructions} instructions, at most {longest} run, shown in {steps} steps"
        )?;
    }
    Ok(ExitCode::SUCCESS)
}
