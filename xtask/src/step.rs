//! A step: one row of a plan, done by a child process or a check of our own, with its counts.
//!
//! A step that may run beside others (any but [`Place::Alone`]) writes to a buffer, which
//! the [scheduler](crate::schedule) prints whole when the step has ended; a step that runs alone writes
//! straight to the terminal ([`Log`]).

use crate::command::{CommandLine, Log};
use crate::results::{Counts, Reader};

/// A row of a plan.
pub(crate) struct Step {
    pub(crate) name: String,
    pub(crate) place: Place,
    work: Work,
}

/// Which steps a step may run beside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// None.
    Alone,
    /// Its neighbors in the plan that may do so, too.
    Concurrent,
    /// The same, in the time that concurrent steps leave the processors idle.
    Idle,
    /// Its neighbors that are idle steps.
    AmongIdle,
}

type Check = dyn Fn(&mut Log) -> Result<(), String> + Send + Sync;
type Count = dyn Fn(&mut Log) -> Counts + Send + Sync;

/// The work of a step.
enum Work {
    /// A function that passes or fails as a whole.
    Check(Box<Check>),
    /// A command that passes or fails as a whole.
    Command(CommandLine),
    /// A `cargo test`, with the files under `tests/` that are empty on purpose.
    CargoTest(CommandLine, &'static [&'static str]),
    /// A function that returns its counts.
    Count(Box<Count>),
    /// Left out on request.
    Skipped(&'static str),
}

impl Step {
    fn new(name: &str, work: Work) -> Self {
        Self { name: name.to_owned(), place: Place::Alone, work }
    }

    /// Creates a step from a function; its error states the defect and the remedy.
    pub(crate) fn check(
        name: &str,
        check: impl Fn(&mut Log) -> Result<(), String> + Send + Sync + 'static,
    ) -> Self {
        Self::new(name, Work::Check(Box::new(check)))
    }

    /// Creates a step from a command that passes or fails as a whole.
    pub(crate) fn command(name: &str, command: CommandLine) -> Self {
        Self::new(name, Work::Command(command))
    }

    /// Creates a step from a `cargo test`.
    pub(crate) fn cargo_test(
        name: &str,
        command: CommandLine,
        empty: &'static [&'static str],
    ) -> Self {
        Self::new(name, Work::CargoTest(command, empty))
    }

    /// Creates a step from a function that counts tests.
    pub(crate) fn count(
        name: &str,
        count: impl Fn(&mut Log) -> Counts + Send + Sync + 'static,
    ) -> Self {
        Self::new(name, Work::Count(Box::new(count)))
    }

    /// Creates a step that is left out on request.
    pub(crate) fn skipped(name: &str, reason: &'static str) -> Self {
        Self::new(name, Work::Skipped(reason))
    }

    /// Lets the step run beside its neighbors in the plan that may do so, too.
    pub(crate) fn concurrent(mut self) -> Self {
        self.place = Place::Concurrent;
        self
    }

    /// Lets the step run beside its neighbors, in the time that those leave idle: for steps that
    /// compute and have no deadline.
    pub(crate) fn idle(mut self) -> Self {
        self.place = Place::Idle;
        self
    }

    /// Lets the step run beside idle neighbors: for a step with deadlines that leaves a processor idle.
    pub(crate) fn among_idle(mut self) -> Self {
        self.place = Place::AmongIdle;
        self
    }

    /// Returns the command of a `cargo test`.
    #[cfg(test)]
    pub(crate) fn cargo_test_command(&self) -> Option<String> {
        match &self.work {
            Work::CargoTest(command, _) => Some(command.to_string()),
            _ => None,
        }
    }

    /// Does the work and returns its counts; a command that cannot be run counts as a failure.
    pub(crate) fn run(&self, log: &mut Log) -> Counts {
        let mut counts = Counts::default();
        match &self.work {
            Work::Check(check) => match check(log) {
                Ok(()) => counts.passed = 1,
                Err(reason) => counts.fail(reason),
            },
            Work::Command(command) => match command.stream(log, |_| ()) {
                Ok(true) => counts.passed = 1,
                Ok(false) => counts.fail(format!("{command} failed: see above")),
                Err(reason) => counts.fail(reason),
            },
            Work::CargoTest(command, may_be_empty) => {
                let mut reader = Reader::new(may_be_empty);
                match command.stream(log, |line| reader.line(line)) {
                    Ok(success) => counts = reader.end(success),
                    Err(reason) => counts.fail(reason),
                }
            }
            Work::Count(count) => counts = count(log),
            Work::Skipped(reason) => {
                counts.skipped = 1;
                counts.notes.push((*reason).to_owned());
            }
        }
        counts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn command_counts_once() {
        let run = |words: &[&str]| {
            Step::command("command", CommandLine::new(words)).run(&mut Log::buffered())
        };
        assert_eq!(run(&["true"]).passed, 1);
        assert_eq!(run(&["false"]).failed, 1);
        assert_eq!(run(&["/no/such/program"]).failed, 1);
    }

    #[test]
    fn skipped_step_is_counted() {
        let counts = Step::skipped("smoke", "asked for").run(&mut Log::buffered());
        assert_eq!((counts.passed, counts.failed, counts.skipped), (0, 0, 1));
    }
}
