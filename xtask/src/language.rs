//! The project's language: words and patterns that plain technical English does not need.
//!
//! CONTRIBUTING.md has the rules, `docs/glossary.md` the nouns. A machine can hold a part of them:
//! each [`Pattern`] is a regular expression over lines of code, scripts and prose, with the remedy.
//!
//! The tree had thousands of breaches when the rules came. `xtask/language.tsv` states how many of
//! each pattern are left; the check fails where there are more, and where there are fewer than
//! stated, so that the numbers only shrink (`cargo xtask language --record` writes them, and
//! refuses to raise one). A pattern that is not in the file has no breach left.
//!
//! `cargo xtask language [PATH...]` lists the breaches with file and line.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use regex::Regex;

use crate::house;

/// The file with the number of breaches left, by pattern.
const RECORD: &str = "xtask/language.tsv";

/// Folders whose files are held to the patterns, and the Markdown files at the root.
const FOLDERS: [&str; 8] =
    ["crates", "xtask", "fuzz/src", "fuzz/fuzz_targets", "smoke", "docs", "packaging", "bench"];

/// Files that quote the patterns.
const QUOTING: [&str; 3] = ["xtask/src/language.rs", "docs/glossary.md", "CONTRIBUTING.md"];

const PROSE: &[&str] =
    &["rs", "md", "sh", "py", "js", "html", "toml", "lua", "c", "service", "conf"];
const CODE: &[&str] = &["rs", "py", "sh", "js"];
const RUST: &[&str] = &["rs"];

/// Nouns after which "who" refers to people.
const PEOPLE: [&str; 15] = [
    "person",
    "people",
    "user",
    "users",
    "operator",
    "operators",
    "engineer",
    "engineers",
    "attacker",
    "attackers",
    "reader",
    "anyone",
    "those",
    "someone",
    "researchers",
];

/// A word or construction to avoid.
struct Pattern {
    name: &'static str,
    /// The extensions of the files that it holds for.
    files: &'static [&'static str],
    regex: &'static str,
    /// Tells a match that is fine from a breach, by the text before and after it.
    is_fine: fn(&str, &str) -> bool,
    remedy: &'static str,
}

const fn never(_: &str, _: &str) -> bool {
    false
}

/// A question may begin with "who" or "what".
fn is_question(_: &str, after: &str) -> bool {
    after.contains('?')
}

fn is_of_people(before: &str, after: &str) -> bool {
    let word = before.split_whitespace().next_back().unwrap_or_default();
    PEOPLE.contains(&word) || is_question(before, after)
}

/// The patterns: rules 3 to 7 of the language (CONTRIBUTING.md).
const PATTERNS: [Pattern; 11] = [
    Pattern {
        name: "told",
        files: PROSE,
        regex: r"(?i)told|\btell(?:s|ing|er)?\b",
        is_fine: never,
        remedy: "report, publish, send, return, log, notify",
    },
    Pattern {
        name: "passive-say",
        files: PROSE,
        regex: r"(?i)\b(?:is|are|was|were|be|been|being|not) (?:said|asked)\b|\bsays? of itself\b|unless (?:said|asked)|\bas said\b",
        is_fine: never,
        remedy: "a subject and an active verb: states, requests, queries",
    },
    Pattern {
        name: "headless",
        files: PROSE,
        regex: r#"(?:^|[.:;!] |//[/!]? |^\s*(?:[-*#>|]+|\d+\.) |["(|] ?|\*\*)(?:Who|Whoever|What|Whatever|Whose)\b"#,
        is_fine: is_question,
        remedy: "name the thing: the sender that …, the packets that …",
    },
    Pattern {
        name: "who",
        files: PROSE,
        regex: r"\b[Ww]ho(?:ever|m)?\b",
        is_fine: is_of_people,
        remedy: "hosts, flows, clients and programs are things: that, which",
    },
    Pattern {
        name: "he",
        files: PROSE,
        regex: r"\b(?:[Hh]e|[Hh]is|[Hh]im|[Hh]imself|[Ss]he|[Hh]er|[Hh]ers)\b",
        is_fine: never,
        remedy: "it, its",
    },
    Pattern {
        name: "declared-name",
        files: RUST,
        regex: r"\b(?:fn|struct|enum|trait|type|mod|union)\s+(?:settle\w*|judged?|go_over|goes_over|attend|stand|stay|again|one|some|other|others|news|words|way|near|kept|early|post|desk|shelf|board|wish|voice|letter|parcel|courier|said|says|asked?)\b",
        is_fine: never,
        remedy: "functions are verbs that say what they do, types are nouns",
    },
    Pattern {
        name: "type-name",
        files: RUST,
        regex: r"\b(?:Kept|Way|Ways|Ground|Stand|Stay|Abreast|Kin|Near|Early|Post|Office|Letter|Voice|Parcel|Courier|Wish|Wished|Board|Shelf|Shelved|Desk|Said|Says|News|Station|Stationed|Sifting|Leaving|Following|ButRoutes|Asker|Asked|Panel|Say|Judged|Settled|Whose|Doubt|Remains|Sight|Happened|Usual|Talk|Talks|Teller)\b",
        is_fine: never,
        remedy: "the noun of docs/glossary.md",
    },
    Pattern {
        name: "name-what",
        files: CODE,
        regex: r"\b(?:fn|def|function)\s+(?:what|who|whoever|whose|where|how|that|it|there|they|this|these|those)_\w+|^(?:what|who)_\w+\(\)",
        is_fine: never,
        remedy: "tests are subject_condition_result",
    },
    Pattern {
        name: "closure-it",
        files: CODE,
        regex: r"\|(?:&|mut |\()*it\b[^|]*\||\bfor (?:&|\()?it\b.* in\b|\blet (?:mut )?it\b|lambda it\b|, it\)?\||\(it\) =>",
        is_fine: never,
        remedy: "a name, or one conventional letter",
    },
    Pattern {
        name: "local-name",
        files: RUST,
        regex: r"\blet (?:mut )?(?:told|said|news|wish|voice|letter|parcel|courier|desk|shelf|again|kept|asked)\b",
        is_fine: never,
        remedy: "a noun that says what the value is",
    },
    Pattern {
        name: "nobody",
        files: PROSE,
        regex: r"(?i)\b(?:nobody|somebody|whoever|for want of|gone over to|went over to|is there twice|begin it with)\b",
        is_fine: never,
        remedy: "no host, a client, duplicate, was applied",
    },
];

/// A line with a breach.
struct Breach {
    file: PathBuf,
    line: usize,
    pattern: &'static str,
    text: String,
}

/// Finds the breaches in the files under `paths`, or in the whole tree.
fn breaches(paths: &[String]) -> Result<Vec<Breach>> {
    let mut files = Vec::new();
    if paths.is_empty() {
        for folder in FOLDERS {
            house::walk(Path::new(folder), &mut files);
        }
        for entry in fs::read_dir(".").context("reading the root")?.flatten() {
            files.push(entry.path().strip_prefix("./").map(Path::to_owned)?);
        }
    }
    for path in paths.iter().map(Path::new) {
        if path.is_dir() {
            house::walk(path, &mut files);
        } else {
            files.push(path.to_owned());
        }
    }
    files.sort();
    let compile = |pattern: &'static Pattern| Ok((pattern, Regex::new(pattern.regex)?));
    let patterns = PATTERNS.iter().map(compile).collect::<Result<Vec<_>>>()?;
    let mut found = Vec::new();
    for file in files {
        let extension = file.extension().and_then(|extension| extension.to_str()).unwrap_or("");
        if QUOTING.iter().any(|quoting| file == Path::new(quoting)) || !PROSE.contains(&extension) {
            continue;
        }
        let Ok(text) = fs::read_to_string(&file) else { continue };
        for (at, line) in text.lines().enumerate() {
            for (pattern, regex) in &patterns {
                let is_breach = pattern.files.contains(&extension)
                    && regex
                        .find_iter(line)
                        .any(|hit| !(pattern.is_fine)(&line[..hit.start()], &line[hit.end()..]));
                if is_breach {
                    let (file, text) = (file.clone(), line.trim().to_owned());
                    found.push(Breach { file, line: at + 1, pattern: pattern.name, text });
                }
            }
        }
    }
    Ok(found)
}

/// Counts breaches by pattern.
fn counts(breaches: &[Breach]) -> BTreeMap<&'static str, usize> {
    let mut counts: BTreeMap<_, usize> = PATTERNS.iter().map(|pattern| (pattern.name, 0)).collect();
    for breach in breaches {
        *counts.entry(breach.pattern).or_default() += 1;
    }
    counts
}

/// Reads the numbers of a record: a pattern, a tab and a number a line.
fn parse(record: &str) -> Result<BTreeMap<&str, usize>> {
    let mut allowed = BTreeMap::new();
    for line in record.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        let (name, count) = line.split_once('\t').with_context(|| format!("{RECORD}: {line:?}"))?;
        if !PATTERNS.iter().any(|pattern| pattern.name == name) {
            bail!("{RECORD}: unknown pattern {name:?}");
        }
        allowed.insert(name, count.parse().with_context(|| format!("{RECORD}: {line:?}"))?);
    }
    Ok(allowed)
}

/// Compares the numbers of the tree with those of the record; returns a line for each difference.
fn compare(found: &BTreeMap<&str, usize>, allowed: &BTreeMap<&str, usize>) -> Vec<String> {
    let mut wrong = Vec::new();
    for pattern in &PATTERNS {
        let name = pattern.name;
        let (is, was) =
            (found.get(name).copied().unwrap_or(0), allowed.get(name).copied().unwrap_or(0));
        if is > was {
            let remedy = pattern.remedy;
            wrong.push(format!(
                "{name}: {is} lines, {was} allowed; write: {remedy} (`cargo xtask language` lists \
                 the lines)"
            ));
        } else if is < was {
            wrong.push(format!(
                "{name}: {is} lines, {RECORD} states {was}: run `cargo xtask language --record`"
            ));
        }
    }
    wrong
}

/// Checks the tree against the record.
pub(crate) fn check() -> Result<(), String> {
    let run = || -> Result<Vec<String>> {
        let record = fs::read_to_string(RECORD).unwrap_or_default();
        Ok(compare(&counts(&breaches(&[])?), &parse(&record)?))
    };
    let wrong = run().map_err(|error| format!("{error:#}"))?;
    if wrong.is_empty() { Ok(()) } else { Err(wrong.join("\n   ")) }
}

/// Lists the breaches under `paths`, or in the whole tree.
pub(crate) fn list(paths: &[String]) -> Result<()> {
    let found = breaches(paths)?;
    for Breach { file, line, pattern, text } in &found {
        println!("{}:{line}: {pattern}: {text}", file.display());
    }
    for (name, count) in counts(&found) {
        eprintln!("{name:14} {count:6}");
    }
    Ok(())
}

/// Writes the numbers of breaches left; refuses to raise one.
pub(crate) fn record() -> Result<()> {
    let before = fs::read_to_string(RECORD).unwrap_or_default();
    let (found, allowed) = (counts(&breaches(&[])?), parse(&before)?);
    let mut text =
        String::from("# Lines that break a pattern of xtask/src/language.rs: only fewer.\n");
    for (name, count) in found.into_iter().filter(|(_, count)| *count > 0) {
        if !before.is_empty() && allowed.get(name).is_none_or(|&was| count > was) {
            let was = allowed.get(name).copied().unwrap_or(0);
            bail!("{name}: {count} lines, {was} allowed: the numbers may only shrink");
        }
        writeln!(text, "{name}\t{count}")?;
    }
    fs::write(RECORD, text).with_context(|| format!("writing {RECORD}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matches(name: &str, line: &str) -> bool {
        let pattern = PATTERNS.iter().find(|pattern| pattern.name == name).unwrap();
        let regex = Regex::new(pattern.regex).unwrap();
        regex
            .find_iter(line)
            .any(|hit| !(pattern.is_fine)(&line[..hit.start()], &line[hit.end()..]))
    }

    #[test]
    fn each_pattern_matches_its_breach_and_not_its_remedy() {
        for (name, breach, plain) in [
            ("told", "the gate is told of it", "the gate receives it"),
            ("told", "pub struct GateTold {", "pub struct GateStatus {"),
            ("passive-say", "unless said otherwise", "unless the file states otherwise"),
            ("headless", "/// What a peer sent.", "/// A message of a peer."),
            ("headless", "## Who does not pass", "## What happens then?"),
            ("who", "a source who is patient", "an operator who asks"),
            ("he", "the client and his port", "the client and its port"),
            ("declared-name", "fn settle(&self) {", "fn confirm(&self) {"),
            ("type-name", "struct Kept {", "struct QueuedFrames {"),
            ("name-what", "fn what_is_granted_passes() {", "fn grant_passes_packets() {"),
            ("closure-it", "map(|it| it.name)", "map(|p| p.name)"),
            ("local-name", "let told = 3;", "let status = 3;"),
            ("nobody", "nobody listens", "no process listens"),
        ] {
            assert!(matches(name, breach), "{name} does not match {breach:?}");
            assert!(!matches(name, plain), "{name} matches {plain:?}");
        }
    }

    #[test]
    fn record_fails_in_both_directions() {
        let found = BTreeMap::from([("told", 3), ("he", 1)]);
        assert!(compare(&found, &parse("# c\ntold\t3\nhe\t1\n").unwrap()).is_empty());
        let wrong = compare(&found, &parse("told\t2\nhe\t4\n").unwrap());
        assert_eq!(wrong.len(), 2);
        assert!(wrong[0].starts_with("told: 3 lines, 2 allowed"), "{wrong:?}");
        assert!(wrong[1].contains("states 4: run"), "{wrong:?}");
        assert!(parse("unknown\t2\n").is_err() && parse("told 2\n").is_err());
    }
}
