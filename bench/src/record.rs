//! Records: one CSV file a machine and day, a line a figure.
//!
//! `bench/record/<cpu>/<date>.csv`. A line names its commit, compiler and table, so that the
//! measurement can be repeated and compared with later ones; the values are the median of a run,
//! its median deviation and its extremes.

use std::borrow::Cow;
use std::fs::{OpenOptions, create_dir_all};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::Command;

use super::clock::Summary;

const HEAD: &str = "time,commit,rustc,bench,table,routes,contestant,case,threads,unit,\
                    median,mad,min,max,samples,bytes";

/// One figure.
pub(super) struct Figure<'a> {
    pub(super) bench: &'a str,
    pub(super) table: &'a str,
    pub(super) routes: usize,
    pub(super) contestant: &'a str,
    pub(super) case: &'a str,
    pub(super) threads: usize,
    pub(super) unit: &'a str,
    pub(super) summary: Summary,
    pub(super) samples: usize,
    pub(super) bytes: usize,
}

/// Appends figures to the file of this machine and day, and returns its path.
pub(super) fn append<'a>(
    folder: &Path,
    figures: impl IntoIterator<Item = Figure<'a>>,
) -> io::Result<PathBuf> {
    let now = now();
    let folder = folder.join(slug(&cpu()));
    create_dir_all(&folder)?;
    let path = folder.join(format!("{}.csv", &now[..10]));
    let mut file = OpenOptions::new().create(true).append(true).open(&path)?;
    if file.metadata()?.len() == 0 {
        writeln!(file, "{HEAD}")?;
    }
    let commit = commit();
    let rustc = rustc();
    for figure in figures {
        let Figure { bench, table, routes, contestant, case, threads, unit, .. } = figure;
        let Figure { summary: Summary { median, mad, min, max }, samples, bytes, .. } = figure;
        writeln!(
            file,
            "{now},{commit},{rustc},{bench},{},{routes},{},{},{threads},{unit},\
             {median:.3},{mad:.3},{min:.3},{max:.3},{samples},{bytes}",
            field(table),
            field(contestant),
            field(case)
        )?;
    }
    Ok(path)
}

/// Returns the time, in UTC.
pub(super) fn now() -> String {
    jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// Quotes what would otherwise be two fields (RFC 4180, section 2).
fn field(text: &str) -> Cow<'_, str> {
    if text.contains([',', '"', '\n']) {
        Cow::Owned(format!("\"{}\"", text.replace('"', "\"\"")))
    } else {
        Cow::Borrowed(text)
    }
}

/// Names the version of the compiler.
pub(super) fn rustc() -> String {
    let rustc = output_of(Command::new("rustc").arg("--version"));
    rustc.split(' ').nth(1).unwrap_or(UNKNOWN).to_owned()
}

/// Names the commit that is checked out, with `-dirty` if anything but the records differs from it.
pub(super) fn commit() -> String {
    let head = output_of(Command::new("git").args(["rev-parse", "--short", "HEAD"]));
    let changes = ["status", "--porcelain", "--untracked-files=no", "--", ":/", ":!/bench/record"];
    match output_of(Command::new("git").args(changes)).as_str() {
        UNKNOWN => head,
        _ => head + "-dirty",
    }
}

/// Names the processor as the kernel does.
pub(super) fn cpu() -> String {
    let text = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let field = |name: &str| {
        let line = text.lines().find(|line| line.split(':').next().map(str::trim) == Some(name));
        line.and_then(|line| line.split_once(':')).map(|(_, value)| value.trim().to_owned())
    };
    let model = field("model name").unwrap_or_else(|| std::env::consts::ARCH.to_owned());
    // Virtual machines hide the model name; the model number still identifies the generation.
    field("model").map_or(model.clone(), |number| format!("{model} model {number}"))
}

/// Makes a folder name of a text.
fn slug(text: &str) -> String {
    let words = text.to_lowercase().replace("(r)", "").replace("(tm)", "");
    let words = words.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| !word.is_empty());
    words.collect::<Vec<_>>().join("-")
}

/// Stands for a missing output of a program.
const UNKNOWN: &str = "unknown";

/// Returns what a program prints, or [`UNKNOWN`] if that is nothing.
fn output_of(command: &mut Command) -> String {
    let output = command.output().ok().filter(|output| output.status.success());
    let text = output.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned());
    text.filter(|text| !text.is_empty()).unwrap_or_else(|| UNKNOWN.to_owned())
}

#[cfg(test)]
mod tests {
    use super::{field, slug};

    #[test]
    fn a_comma_does_not_make_two_fields() {
        assert_eq!(field("RND"), "RND");
        assert_eq!(field("RND accesses, mean"), "\"RND accesses, mean\"");
        assert_eq!(field("a \"b\""), "\"a \"\"b\"\"\"");
    }

    #[test]
    fn a_processor_makes_a_folder_name() {
        assert_eq!(slug("Intel(R) Xeon(R) Processor model 167"), "intel-xeon-processor-model-167");
    }
}
