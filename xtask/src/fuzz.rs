//! `fuzz`: builds the targets of `fuzz/` with libFuzzer, runs them, keeps a corpus.
//!
//! ```text
//! fuzz/corpus/TARGET ──► libFuzzer ──► target/fuzz/corpus/TARGET   all inputs found
//!        ▲                   │                     │
//!        │                   └─► fuzz/artifacts    │ what shows a difference
//!        └──────────── --keep: the fewest inputs ──┘ that reach as much
//! ```
//!
//! Nothing but cargo, the stable compiler and a C++ compiler is called: `cargo fuzz`
//! and a nightly toolchain would add a sanitizer, which code without `unsafe`
//! does not need, and the coverage that steers libFuzzer is a pass of LLVM that the
//! stable compiler takes too ([`COVERAGE`]). Comparisons are not traced: scripts are
//! short and hold no magic words, and the calls took 70 % of the time.
//!
//! The corpus in the tree is small, because `cargo xtask test` plays it
//! (`fuzz/tests/corpus.rs`); that of a long run stays in the target folder, from where the next run
//! goes on.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

use crate::command::{CommandLine, Log};
use crate::metadata;
use crate::needs;
use crate::step::Step;

/// Each target and the longest input worth its time, in bytes.
const TARGETS: [(&str, u32); 20] = [
    ("access_lists", 1024),
    ("bundles", 1024),
    ("captures", 1024),
    ("click", 256),
    ("configs", 2048),
    ("control", 256),
    ("databases", 512),
    ("decisions", 1024),
    ("engines_small", 256),
    ("engines_wide", 256),
    ("flowspec", 1024),
    ("fpm", 1024),
    ("image", 64),
    ("mrt", 512),
    ("netlink", 2048),
    ("packets", 256),
    ("programs", 256),
    ("state_files", 1024),
    ("text", 64),
    ("tunnels", 512),
];

/// Compiler flags that count every edge taken, as `cargo fuzz` sets them; but with several
/// codegen units, because one crate holds every engine of five families.
const COVERAGE: &str = "--cfg fuzzing -Ccodegen-units=8 -Cpasses=sancov-module \
    -Cllvm-args=-sanitizer-coverage-level=3 \
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters \
    -Cllvm-args=-sanitizer-coverage-pc-table";

/// The arguments of `fuzz`.
#[derive(clap::Args, Debug, PartialEq, Eq)]
pub(crate) struct Arguments {
    /// Targets; by default all
    targets: Vec<String>,
    /// Seconds for each target
    #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(u32).range(1..))]
    seconds: u32,
    /// Processes for each target
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    jobs: u32,
    /// Add the inputs that reach new code to the corpus of the tree
    #[arg(long)]
    keep: bool,
}

impl Arguments {
    /// Returns the selected targets, with the longest input of each.
    fn selected(&self) -> Result<Vec<(&'static str, u32)>> {
        let find = |name: &String| {
            let target = TARGETS.iter().find(|(known, _)| known == name);
            target
                .copied()
                .with_context(|| format!("unknown target `{name}`; there are: {}", names()))
        };
        match &self.targets[..] {
            [] => Ok(TARGETS.to_vec()),
            targets => targets.iter().map(find).collect(),
        }
    }
}

fn names() -> String {
    TARGETS.map(|(name, _)| name).join(", ")
}

/// `fuzz`: a build, and a run of each target for the given time.
pub(crate) fn steps(arguments: &Arguments) -> Result<Vec<Step>> {
    let (target, host) = (metadata::target()?.join("fuzz"), metadata::host()?);
    // For a named target, so that build scripts are not instrumented.
    let build = CommandLine::cargo(&["build", "--package", "fingerpost-fuzz", "--profile", "fuzz"])
        .args(&["--features", "libfuzzer", "--bins", "--target", &host])
        .env("RUSTFLAGS", COVERAGE)
        .env("CARGO_TARGET_DIR", target.to_string_lossy());
    let mut steps = vec![
        Step::check("a C++ compiler", |_| needs::cplusplus()),
        Step::command("fuzz targets", build),
    ];
    for (name, longest) in arguments.selected()? {
        let program = target.join(&host).join("fuzz").join(name).to_string_lossy().into_owned();
        let learnt = target.join("corpus").join(name);
        let corpus = Path::new("fuzz/corpus").join(name);
        for folder in [&learnt, &corpus, Path::new("fuzz/artifacts")] {
            let made = fs::create_dir_all(folder);
            made.with_context(|| format!("making {}", folder.display()))?;
        }
        let (from, to) = (learnt.to_string_lossy(), corpus.to_string_lossy());
        let mut run = CommandLine::new(&[&program, &from, &to]);
        run.words.extend([
            format!("-max_total_time={}", arguments.seconds),
            format!("-max_len={longest}"),
            format!("-artifact_prefix=fuzz/artifacts/{name}-"),
        ]);
        // Long scripts from the start; a minute for one is a bug too.
        let limits = ["-len_control=0", "-timeout=60", "-rss_limit_mb=6144"];
        run.words.extend(limits.map(str::to_owned));
        if arguments.jobs > 1 {
            run.words.push(format!("-fork={}", arguments.jobs));
        } else {
            run.words.push("-print_final_stats=1".to_owned());
        }
        steps.push(Step::command(&format!("fuzz {name}, {} s", arguments.seconds), run));
        if arguments.keep {
            let work = move |log: &mut Log| keep(&program, &learnt, &corpus, log);
            steps.push(Step::check(&format!("corpus of {name}"), work));
        }
    }
    Ok(steps)
}

/// Puts into `corpus` the fewest inputs of both folders that reach as many edges, beside
/// those with a name.
fn keep(program: &str, learnt: &Path, corpus: &Path, log: &mut Log) -> Result<(), String> {
    let fresh = learnt.with_extension("kept");
    let say = |what: &str| format!("{what} {}", fresh.display());
    // Files of an interrupted run.
    let _ = fs::remove_dir_all(&fresh);
    fs::create_dir_all(&fresh).map_err(|error| format!("{}: {error}", say("making")))?;
    let folders = [&*fresh, corpus, learnt].map(|folder| folder.to_string_lossy().into_owned());
    // Edges alone: with counts of how often each is taken it would be thousands.
    let mut merge = CommandLine::new(&[program, "-set_cover_merge=1", "-use_counters=0"]);
    merge.words.extend(folders);
    if !merge.stream(log, |_| ())? {
        return Err("the inputs could not be merged: see above".to_owned());
    }
    let inputs = |folder: &Path| -> Result<Vec<std::path::PathBuf>, String> {
        let entries = fs::read_dir(folder).map_err(|error| error.to_string())?;
        Ok(entries.flatten().map(|entry| entry.path()).collect())
    };
    let new = inputs(&fresh)?;
    if new.is_empty() {
        return Err(format!("nothing is in {}", fresh.display()));
    }
    // An input with a name reproduces a fixed bug, and stays.
    let named = |path: &Path| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        name.len() != 40 || !name.bytes().all(|byte| byte.is_ascii_hexdigit())
    };
    for old in inputs(corpus)?.into_iter().filter(|old| !named(old)) {
        fs::remove_file(&old).map_err(|error| format!("removing {}: {error}", old.display()))?;
    }
    for file in &new {
        let to = corpus.join(file.file_name().unwrap_or_default());
        fs::copy(file, &to).map_err(|error| format!("writing {}: {error}", to.display()))?;
    }
    println!("{} inputs are in {}", new.len(), corpus.display());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(clap::Parser)]
    struct Fuzz {
        #[command(flatten)]
        arguments: Arguments,
    }

    fn parse(words: &str) -> Result<Arguments> {
        let words = std::iter::once("fuzz").chain(words.split_whitespace());
        let arguments = <Fuzz as clap::Parser>::try_parse_from(words)?.arguments;
        arguments.selected().map(|_| arguments)
    }

    #[test]
    fn arguments_are_read_or_refused() {
        let arguments = parse("").unwrap();
        assert_eq!((arguments.selected().unwrap().len(), arguments.seconds), (TARGETS.len(), 60));
        let arguments = parse("text --seconds 1800 --jobs 2 --keep").unwrap();
        let targets = vec!["text".to_owned()];
        assert_eq!(arguments, Arguments { targets, seconds: 1800, jobs: 2, keep: true });
        assert_eq!(arguments.selected().unwrap(), [("text", 64)]);
        for bad in ["engine", "--seconds", "--seconds 0", "--jobs x", "--fast"] {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn targets_are_those_of_the_folder() {
        let folder = metadata::root().unwrap().join("fuzz/fuzz_targets");
        let mut found: Vec<String> = fs::read_dir(folder)
            .unwrap()
            .map(|file| file.unwrap().path().file_stem().unwrap().to_string_lossy().into_owned())
            .collect();
        found.sort();
        assert_eq!(found, TARGETS.map(|(name, _)| name));
    }
}
