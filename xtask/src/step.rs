//! A step: one child process (or one check of our own), streamed and counted.
//!
//! Both output streams of a child go into one pipe, so that the lines of cargo
//! (standard error) and of the test programs (standard output) arrive in the
//! order they were written: only so is it known which program a result line
//! belongs to. Every line is printed at once and then read for its counts.

use std::io::{BufRead, BufReader, IsTerminal, Write};
use std::process::{Command, Stdio};

use crate::results::{Counts, Reader};

/// One line of the plan.
pub(crate) struct Step {
    pub(crate) name: String,
    pub(crate) work: Work,
}

/// What a step does.
pub(crate) enum Work {
    /// A check of our own: `Err` says what is wrong.
    Own(Box<dyn Fn() -> Result<(), String>>),
    /// A command that passes or fails as a whole.
    Command(Words),
    /// A `cargo test`, with the files under `tests/` that are empty on purpose.
    Tests(Words, &'static [&'static str]),
    /// Left out because it was asked for.
    Skipped(&'static str),
}

/// A command: its words, and what is added to the environment.
#[derive(Clone, Debug, Default)]
pub(crate) struct Words {
    pub(crate) words: Vec<String>,
    pub(crate) env: Vec<(&'static str, String)>,
}

impl Words {
    /// A command of `words`.
    pub(crate) fn new(words: &[&str]) -> Self {
        Self { words: words.iter().map(|&word| word.to_owned()).collect(), env: Vec::new() }
    }

    /// `cargo` with `words`: the very one that runs us.
    pub(crate) fn cargo(words: &[&str]) -> Self {
        let mut command = Self::new(words);
        let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned());
        command.words.insert(0, cargo);
        command
    }

    /// Adds to the environment.
    pub(crate) fn env(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.env.push((name, value.into()));
        self
    }

    /// Runs it, handing each line to `each` after printing it. Returns whether
    /// it ended well, or why it could not be run.
    pub(crate) fn stream(&self, mut each: impl FnMut(&str)) -> Result<bool, String> {
        let shown = self.to_string();
        println!("$ {shown}");
        let (read, write) = std::io::pipe().map_err(|error| format!("making a pipe: {error}"))?;
        let also = write.try_clone().map_err(|error| format!("making a pipe: {error}"))?;
        let mut command = Command::new(&self.words[0]);
        command.args(&self.words[1..]).stdin(Stdio::null()).stdout(write).stderr(also);
        if std::io::stdout().is_terminal() {
            command.env("CARGO_TERM_COLOR", "always");
        }
        for (name, value) in &self.env {
            command.env(name, value);
        }
        let mut child = command.spawn().map_err(|error| format!("running {shown}: {error}"))?;
        // The write ends live on in `command`; without this the read never ends.
        drop(command);
        let mut lines = BufReader::new(read);
        let mut line = Vec::new();
        let mut line_is_open = false;
        let mut out = std::io::stdout();
        loop {
            line.clear();
            match lines.read_until(b'\n', &mut line) {
                Ok(0) => break,
                Ok(_) => {
                    line_is_open = !line.ends_with(b"\n");
                    // Whoever reads us may be gone; the tests go on all the same.
                    let _ = out.write_all(&line).and_then(|()| out.flush());
                    each(String::from_utf8_lossy(&line).trim_end());
                }
                Err(error) => return Err(format!("reading from {shown}: {error}")),
            }
        }
        // The last word of a child may lack its line end; ours begin a line.
        if line_is_open {
            println!();
        }
        let status = child.wait().map_err(|error| format!("waiting for {shown}: {error}"))?;
        if !status.success() {
            println!("{shown}: {status}");
        }
        Ok(status.success())
    }
}

impl std::fmt::Display for Words {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (name, value) in &self.env {
            write!(f, "{name}={value:?} ")?;
        }
        f.write_str(&self.words.join(" "))
    }
}

impl Step {
    /// A check of our own.
    pub(crate) fn own(name: &str, check: impl Fn() -> Result<(), String> + 'static) -> Self {
        Self { name: name.to_owned(), work: Work::Own(Box::new(check)) }
    }

    /// A command that passes or fails as a whole.
    pub(crate) fn command(name: &str, command: Words) -> Self {
        Self { name: name.to_owned(), work: Work::Command(command) }
    }

    /// A `cargo test`.
    pub(crate) fn tests(name: &str, command: Words, empty: &'static [&'static str]) -> Self {
        Self { name: name.to_owned(), work: Work::Tests(command, empty) }
    }

    /// Something left out on request.
    pub(crate) fn skipped(name: &str, why: &'static str) -> Self {
        Self { name: name.to_owned(), work: Work::Skipped(why) }
    }

    /// Does the work and returns its counts; whatever goes wrong is a count too.
    pub(crate) fn run(&self) -> Counts {
        let mut counts = Counts::default();
        match &self.work {
            Work::Own(check) => match check() {
                Ok(()) => counts.passed = 1,
                Err(why) => counts.fail(why),
            },
            Work::Command(command) => match command.stream(|_| ()) {
                Ok(true) => counts.passed = 1,
                Ok(false) => counts.fail(format!("{command} failed: see above")),
                Err(why) => counts.fail(why),
            },
            Work::Tests(command, may_be_empty) => {
                let mut reader = Reader::new(may_be_empty);
                match command.stream(|line| reader.line(line)) {
                    Ok(success) => counts = reader.end(success),
                    Err(why) => counts.fail(why),
                }
            }
            Work::Skipped(why) => {
                counts.skipped = 1;
                counts.notes.push((*why).to_owned());
            }
        }
        counts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_counts_once() {
        assert_eq!(Step::command("true", Words::new(&["true"])).run().passed, 1);
        assert_eq!(Step::command("false", Words::new(&["false"])).run().failed, 1);
        assert_eq!(Step::command("none", Words::new(&["/no/such/program"])).run().failed, 1);
    }

    #[test]
    fn both_streams_arrive_in_order_with_the_environment() {
        let script = "echo $WORD; echo two >&2; echo three; printf four >&2";
        let command = Words::new(&["sh", "-c", script]).env("WORD", "one");
        let mut lines = Vec::new();
        assert_eq!(command.stream(|line| lines.push(line.to_owned())), Ok(true));
        assert_eq!(lines, ["one", "two", "three", "four"]);
    }

    #[test]
    fn what_is_left_out_is_counted() {
        let counts = Step::skipped("smoke", "asked for").run();
        assert_eq!((counts.passed, counts.failed, counts.skipped), (0, 0, 1));
    }
}
