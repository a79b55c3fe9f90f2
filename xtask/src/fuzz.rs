//! `fuzz`: builds the targets of `fuzz/` with libFuzzer, runs them, keeps a corpus.
//!
//! ```text
//! fuzz/corpus/TARGET ──► libFuzzer ──► target/fuzz/corpus/TARGET   all it has learnt
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
//! ([`corpus`]); that of a long run stays in the target folder, from where the next run
//! goes on.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail};

use crate::step::{Step, Words};
use crate::{needs, plan};

/// Each target and the longest input worth its time, in bytes.
const TARGETS: [(&str, u32); 15] = [
    ("bundles", 1024),
    ("captures", 1024),
    ("configs", 2048),
    ("control", 256),
    ("decisions", 1024),
    ("engines_small", 256),
    ("engines_wide", 256),
    ("fpm", 1024),
    ("image", 64),
    ("mrt", 512),
    ("netlink", 2048),
    ("packets", 256),
    ("programs", 256),
    ("text", 64),
    ("tunnels", 512),
];

/// What makes the compiler count every edge that is taken, as `cargo fuzz` has it; but
/// in several units, because one holds every engine of five families.
const COVERAGE: &str = "--cfg fuzzing -Ccodegen-units=8 -Cpasses=sancov-module \
    -Cllvm-args=-sanitizer-coverage-level=3 \
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters \
    -Cllvm-args=-sanitizer-coverage-pc-table";

/// What was asked for.
#[derive(Debug, PartialEq, Eq)]
struct Asked {
    targets: Vec<(&'static str, u32)>,
    seconds: u32,
    jobs: u32,
    keep: bool,
}

impl Asked {
    fn parse(words: &[String]) -> Result<Self> {
        let mut asked = Self { targets: Vec::new(), seconds: 60, jobs: 1, keep: false };
        let mut words = words.iter();
        while let Some(word) = words.next() {
            let mut number = || {
                let number = words.next().and_then(|word| word.parse().ok());
                number.filter(|&number| number > 0).with_context(|| format!("{word} N, above 0"))
            };
            match word.as_str() {
                "--seconds" => asked.seconds = number()?,
                "--jobs" => asked.jobs = number()?,
                "--keep" => asked.keep = true,
                name => match TARGETS.iter().find(|(known, _)| *known == name) {
                    Some(&target) => asked.targets.push(target),
                    None => bail!("there is no target `{name}`; there are: {}", names()),
                },
            }
        }
        if asked.targets.is_empty() {
            asked.targets = TARGETS.to_vec();
        }
        Ok(asked)
    }
}

fn names() -> String {
    TARGETS.map(|(name, _)| name).join(", ")
}

/// `cargo` in the workspace of `fuzz/`, which builds in a folder of its own.
fn cargo(words: &[&str]) -> Result<Words> {
    let target = plan::target()?.join("fuzz");
    let (verb, rest) = words.split_first().context("a cargo command has a verb")?;
    let mut all = vec![*verb, "--manifest-path", "fuzz/Cargo.toml"];
    all.extend(rest);
    Ok(Words::cargo(&all).env("CARGO_TARGET_DIR", target.to_string_lossy()))
}

/// What `check` holds `fuzz/` to.
pub(crate) fn check() -> Result<Vec<Step>> {
    Ok(vec![
        Step::command("formatting of fuzz", cargo(&["fmt", "--all", "--check"])?),
        Step::command(
            "lints of fuzz",
            cargo(&["clippy", "--all-targets", "--", "-D", "warnings"])?,
        ),
    ])
}

/// Plays the corpus in the tree, without libFuzzer.
pub(crate) fn corpus() -> Result<Step> {
    Ok(Step::tests("fuzz corpus", cargo(&["test", "--no-fail-fast"])?, &[]))
}

/// `fuzz`: a build, and each target for as long as was asked.
pub(crate) fn steps(words: &[String]) -> Result<Vec<Step>> {
    let asked = Asked::parse(words)?;
    let (target, host) = (plan::target()?.join("fuzz"), plan::host()?);
    // For a named target, so that build scripts are not made to count too.
    let build = ["build", "--release", "--features", "libfuzzer", "--target", &host];
    let mut steps = vec![
        Step::own("a C++ compiler", needs::cplusplus),
        Step::command("fuzz targets", cargo(&build)?.env("RUSTFLAGS", COVERAGE)),
    ];
    for (name, longest) in asked.targets {
        let program = target.join(&host).join("release").join(name).to_string_lossy().into_owned();
        let learnt = target.join("corpus").join(name);
        let kept = Path::new("fuzz/corpus").join(name);
        for folder in [&learnt, &kept, Path::new("fuzz/artifacts")] {
            let made = fs::create_dir_all(folder);
            made.with_context(|| format!("making {}", folder.display()))?;
        }
        let (from, to) = (learnt.to_string_lossy(), kept.to_string_lossy());
        let mut run = Words::new(&[&program, &from, &to]);
        run.words.extend([
            format!("-max_total_time={}", asked.seconds),
            format!("-max_len={longest}"),
            format!("-artifact_prefix=fuzz/artifacts/{name}-"),
        ]);
        // Long scripts from the start; a minute for one is a bug too.
        let limits = ["-len_control=0", "-timeout=60", "-rss_limit_mb=6144"];
        run.words.extend(limits.map(str::to_owned));
        if asked.jobs > 1 {
            run.words.push(format!("-fork={}", asked.jobs));
        } else {
            run.words.push("-print_final_stats=1".to_owned());
        }
        steps.push(Step::command(&format!("fuzz {name}, {} s", asked.seconds), run));
        if asked.keep {
            let work = move || keep(&program, &learnt, &kept);
            steps.push(Step::own(&format!("corpus of {name}"), work));
        }
    }
    Ok(steps)
}

/// Puts into `kept` the fewest inputs of both folders that reach as many edges, beside
/// those with a name.
fn keep(program: &str, learnt: &Path, kept: &Path) -> Result<(), String> {
    let fresh = learnt.with_extension("kept");
    let say = |what: &str| format!("{what} {}", fresh.display());
    // What a run that was broken off has left.
    let _ = fs::remove_dir_all(&fresh);
    fs::create_dir_all(&fresh).map_err(|error| format!("{}: {error}", say("making")))?;
    let folders = [&*fresh, kept, learnt].map(|folder| folder.to_string_lossy().into_owned());
    // Edges alone: with counts of how often each is taken it would be thousands.
    let mut merge = Words::new(&[program, "-set_cover_merge=1", "-use_counters=0"]);
    merge.words.extend(folders);
    if !merge.stream(|_| ())? {
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
    // What somebody gave a name shows an old mistake, and stays.
    let named = |path: &Path| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        name.len() != 40 || !name.bytes().all(|byte| byte.is_ascii_hexdigit())
    };
    for old in inputs(kept)?.into_iter().filter(|old| !named(old)) {
        fs::remove_file(&old).map_err(|error| format!("removing {}: {error}", old.display()))?;
    }
    for file in &new {
        let to = kept.join(file.file_name().unwrap_or_default());
        fs::copy(file, &to).map_err(|error| format!("writing {}: {error}", to.display()))?;
    }
    println!("{} inputs are in {}", new.len(), kept.display());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(words: &str) -> Result<Asked> {
        Asked::parse(&words.split_whitespace().map(str::to_owned).collect::<Vec<_>>())
    }

    #[test]
    fn words_are_understood_or_refused() {
        let asked = parse("").unwrap();
        assert_eq!((asked.targets.len(), asked.seconds, asked.jobs), (TARGETS.len(), 60, 1));
        let asked = parse("text --seconds 1800 --jobs 2 --keep").unwrap();
        let expected = Asked { targets: vec![("text", 64)], seconds: 1800, jobs: 2, keep: true };
        assert_eq!(asked, expected);
        for bad in ["engine", "--seconds", "--seconds 0", "--jobs x", "--fast"] {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn every_target_is_there_and_no_other() {
        let folder = plan::root().unwrap().join("fuzz/fuzz_targets");
        let mut found: Vec<String> = fs::read_dir(folder)
            .unwrap()
            .map(|file| file.unwrap().path().file_stem().unwrap().to_string_lossy().into_owned())
            .collect();
        found.sort();
        assert_eq!(found, TARGETS.map(|(name, _)| name));
    }
}
