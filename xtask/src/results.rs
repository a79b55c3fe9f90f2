//! Reads the counts out of what `cargo test` prints.
//!
//! Three kinds of line matter:
//!
//! ```text
//!      Running tests/engines.rs (target/debug/deps/engines-0f)   a program starts
//!    Doc-tests fingerpost_fib                                    so does this
//! test result: ok. 12 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; ...
//! ```
//!
//! A program that starts and gives no result has died (a signal, an abort): that
//! is one failure. A file under `tests/` whose program runs no test at all is one
//! too, because such a file exists to be run: a wrong `cfg` would otherwise empty
//! it in silence. Files that are empty by intent in this step are given in
//! `may_be_empty`.

/// The counts of a step, and a note for each failure.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) passed: u32,
    pub(crate) failed: u32,
    pub(crate) skipped: u32,
    pub(crate) notes: Vec<String>,
}

impl Counts {
    /// Counts one more failure, with its reason.
    pub(crate) fn fail(&mut self, note: impl Into<String>) {
        self.failed += 1;
        self.notes.push(note.into());
    }

    /// Returns whether nothing was counted.
    pub(crate) fn is_empty(&self) -> bool {
        self.passed + self.failed + self.skipped == 0
    }
}

/// Follows the output of one `cargo test`.
pub(crate) struct Reader<'a> {
    counts: Counts,
    program: Option<String>,
    may_be_empty: &'a [&'a str],
    must_run_tests: bool,
}

impl<'a> Reader<'a> {
    pub(crate) fn new(may_be_empty: &'a [&'a str]) -> Self {
        Self { counts: Counts::default(), program: None, may_be_empty, must_run_tests: false }
    }

    /// Creates a reader of one program that is run without cargo.
    pub(crate) fn of_program(name: &str, must_run_tests: bool) -> Self {
        let program = Some(name.to_owned());
        Self { counts: Counts::default(), program, may_be_empty: &[], must_run_tests }
    }

    /// Takes one line of output.
    pub(crate) fn line(&mut self, line: &str) {
        let plain = strip_color(line);
        if let Some(program) = program(&plain) {
            self.died();
            self.program = Some(program.to_owned());
        } else if let Some([passed, failed, ignored]) = result(&plain) {
            self.counts.passed += passed;
            self.counts.failed += failed;
            self.counts.skipped += ignored;
            let program = self.program.take().unwrap_or_default();
            if failed > 0 {
                self.counts.notes.push(format!("{program}: {failed} failed"));
            }
            let empty = passed + failed + ignored == 0;
            let is_file = program.starts_with("tests/") && !self.may_be_empty.contains(&&*program);
            if empty && (is_file || self.must_run_tests) {
                self.counts.fail(format!("{program} ran no test"));
            }
        } else if let Some(name) =
            plain.strip_prefix("test ").and_then(|rest| rest.strip_suffix(" ... FAILED"))
        {
            self.counts.notes.push(format!("FAILED {name}"));
        }
    }

    /// Ends the step: `success` is whether cargo itself was content.
    pub(crate) fn end(mut self, success: bool) -> Counts {
        self.died();
        if !success && self.counts.failed == 0 {
            self.counts.fail("cargo failed before or beside the tests: see its messages above");
        }
        if self.counts.is_empty() {
            self.counts.fail("no test was run");
        }
        self.counts
    }

    /// Ends the run of one program: `success` is whether its exit status was 0.
    pub(crate) fn end_of_program(mut self, success: bool) -> Counts {
        self.died();
        if !success && self.counts.failed == 0 {
            self.counts.fail("the program failed beside its tests: see above");
        }
        self.counts
    }

    fn died(&mut self) {
        if let Some(program) = self.program.take() {
            self.counts.fail(format!("{program} ended without a result"));
        }
    }
}

/// The test program that a line says is being run.
fn program(line: &str) -> Option<&str> {
    let line = line.trim_start();
    if let Some(rest) = line.strip_prefix("Running ") {
        // `unittests src/lib.rs (path)` or `tests/name.rs (path)`.
        let (name, path) = rest.split_once(" (")?;
        return path.ends_with(')').then_some(name);
    }
    line.strip_prefix("Doc-tests ")
}

/// Passed, failed and ignored of a `test result:` line.
fn result(line: &str) -> Option<[u32; 3]> {
    let rest = line.strip_prefix("test result: ")?;
    let (_, counts) = rest.split_once(". ")?;
    let mut found = [0; 3];
    for part in counts.split("; ") {
        let Some((number, what)) = part.split_once(' ') else { continue };
        let at = match what {
            "passed" => 0,
            "failed" => 1,
            "ignored" => 2,
            _ => continue,
        };
        found[at] = number.parse().ok()?;
    }
    Some(found)
}

/// Removes the escape sequences of a colored line.
fn strip_color(line: &str) -> String {
    let mut plain = String::with_capacity(line.len());
    let mut chars = line.chars();
    while let Some(char) = chars.next() {
        if char == '\x1b' {
            // `ESC [ parameters letter`.
            chars.by_ref().find(char::is_ascii_alphabetic);
        } else {
            plain.push(char);
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    const OK: &str = "test result: ok. 12 passed; 0 failed; 1 ignored; 0 measured; 3 filtered out; finished in 0.01s";
    const BAD: &str = "test result: FAILED. 3 passed; 2 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.01s";
    const EMPTY: &str = "test result: ok. 0 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s";

    fn read(lines: &[&str], success: bool) -> Counts {
        let mut reader = Reader::new(&["tests/loom.rs"]);
        for line in lines {
            reader.line(line);
        }
        reader.end(success)
    }

    #[test]
    fn results_of_several_programs_add_up() {
        let counts = read(
            &[
                "\x1b[1m\x1b[92m     Running\x1b[0m unittests src/lib.rs (target/debug/deps/fib-0f)",
                OK,
                "     Running tests/engines.rs (target/debug/deps/engines-0f)",
                "test all::narrow ... FAILED",
                BAD,
                "   Doc-tests fingerpost_fib",
                OK,
            ],
            false,
        );
        assert_eq!((counts.passed, counts.failed, counts.skipped), (27, 2, 2));
        assert_eq!(counts.notes, ["FAILED all::narrow", "tests/engines.rs: 2 failed"]);
    }

    #[test]
    fn a_program_without_a_result_is_a_failure() {
        let counts = read(
            &[
                "     Running tests/a.rs (target/a)",
                "     Running tests/b.rs (target/b)",
                OK,
                "     Running tests/c.rs (target/c)",
            ],
            false,
        );
        assert_eq!((counts.passed, counts.failed), (12, 2));
    }

    #[test]
    fn a_step_without_tests_is_a_failure() {
        assert_eq!(read(&[], true).failed, 1);
        assert_eq!(read(&["     Running unittests src/lib.rs (x)", EMPTY], true).failed, 1);
    }

    #[test]
    fn an_empty_test_file_is_a_failure_unless_expected() {
        let with = |name: &str| {
            let running = format!("     Running {name} (target/x)");
            read(&["     Running unittests src/lib.rs (x)", OK, &running, EMPTY], true).failed
        };
        assert_eq!(with("tests/engines.rs"), 1);
        assert_eq!(with("tests/loom.rs"), 0);
        assert_eq!(with("unittests src/main.rs"), 0);
    }

    #[test]
    fn a_build_that_fails_is_a_failure() {
        assert_eq!(read(&["error[E0308]: mismatched types"], false).failed, 1);
        assert_eq!(read(&["     Running tests/a.rs (target/a)", OK], false).failed, 1);
    }

    #[test]
    fn program_without_cargo_is_counted_and_may_die() {
        let run = |lines: &[&str], must_run, success| {
            let mut reader = Reader::of_program("fib tests/x", must_run);
            lines.iter().for_each(|line| reader.line(line));
            let counts = reader.end_of_program(success);
            (counts.passed, counts.failed)
        };
        assert_eq!(run(&[OK], true, true), (12, 0));
        assert_eq!(run(&[OK], true, false), (12, 1));
        assert_eq!(run(&[BAD], true, false), (3, 2));
        assert_eq!(run(&[EMPTY], true, true), (0, 1));
        assert_eq!(run(&[EMPTY], false, true), (0, 0));
        assert_eq!(run(&[], false, false), (0, 1));
    }

    #[test]
    fn lines_that_only_look_alike_are_not_counted() {
        assert_eq!(result("test result of the year: 12 passed"), None);
        assert_eq!(program("Running late (as ever"), None);
    }
}
