//! A child process: its command line and environment, and its output, line by line.
//!
//! Both output streams of a child go into one pipe, so that the lines of cargo (standard error) and
//! of the test programs (standard output) arrive in the order in which they were written: this order
//! relates a result line to its program. Each line is logged at once and then read for its counts.
//! The messages of cargo in JSON are read, and not logged.

use std::io::{BufRead, BufReader, IsTerminal, Write};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use nix::sys::wait::{Id, WaitPidFlag, waitid};
use nix::unistd::Pid;

/// A build of everything from nothing is faster without the data for incremental builds, and so are
/// its tests, which are optimized in fewer units.
pub(crate) const NOT_INCREMENTAL: (&str, &str) = ("CARGO_INCREMENTAL", "0");

/// The unit of times in `/proc/PID/stat`: 1/100 s for user space on every architecture of Linux (`USER_HZ`).
const TICK: Duration = Duration::from_millis(10);

/// The output of commands, printed at once or kept to be printed later, and their processor time.
pub(crate) struct Log {
    lines: Option<Vec<u8>>,
    processor_time: Duration,
}

impl Log {
    /// Creates a log that prints each line at once.
    pub(crate) fn live() -> Self {
        Self { lines: None, processor_time: Duration::ZERO }
    }

    /// Creates a log that keeps its lines.
    pub(crate) fn buffered() -> Self {
        Self { lines: Some(Vec::new()), processor_time: Duration::ZERO }
    }

    /// Returns the lines kept; none of a live log.
    pub(crate) fn into_bytes(self) -> Vec<u8> {
        self.lines.unwrap_or_default()
    }

    /// Returns the processor time of the commands, with that of all children that they waited for.
    pub(crate) fn processor_time(&self) -> Duration {
        self.processor_time
    }

    /// Writes a line of text.
    pub(crate) fn line(&mut self, text: &str) {
        self.write(format!("{text}\n").as_bytes());
    }

    fn write(&mut self, bytes: &[u8]) {
        match &mut self.lines {
            Some(buffer) => buffer.extend_from_slice(bytes),
            None => {
                let mut out = std::io::stdout();
                // The reader of our output may be gone; the tests go on all the same.
                let _ = out.write_all(bytes).and_then(|()| out.flush());
            }
        }
    }
}

/// A command: its words, and the additions to its environment.
#[derive(Clone, Debug, Default)]
pub(crate) struct CommandLine {
    pub(crate) words: Vec<String>,
    env: Vec<(&'static str, String)>,
    folder: Option<PathBuf>,
}

impl CommandLine {
    /// Creates a command from `words`.
    pub(crate) fn new(words: &[&str]) -> Self {
        let words = words.iter().map(|&word| word.to_owned()).collect();
        Self { words, ..Self::default() }
    }

    /// Creates a command of the `cargo` that runs us.
    pub(crate) fn cargo(words: &[&str]) -> Self {
        let mut command = Self::new(words);
        let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned());
        command.words.insert(0, cargo);
        command
    }

    /// Adds a variable to the environment.
    pub(crate) fn env(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.env.push((name, value.into()));
        self
    }

    /// Sets the working directory.
    pub(crate) fn folder(mut self, folder: PathBuf) -> Self {
        self.folder = Some(folder);
        self
    }

    /// Adds words.
    pub(crate) fn args(mut self, words: &[&str]) -> Self {
        self.words.extend(words.iter().map(|&word| word.to_owned()));
        self
    }

    /// Runs the command; logs each line and passes it to `each`. Returns whether the exit status is 0.
    ///
    /// # Errors
    ///
    /// The command cannot be started or read from.
    pub(crate) fn stream(&self, log: &mut Log, mut each: impl FnMut(&str)) -> Result<bool, String> {
        let shown = self.to_string();
        log.line(&format!("$ {shown}"));
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
        if let Some(folder) = &self.folder {
            command.current_dir(folder);
        }
        let mut child = command.spawn().map_err(|error| format!("running {shown}: {error}"))?;
        // The write ends live on in `command`; without this the read never ends.
        drop(command);
        let mut lines = BufReader::new(read);
        let mut line = Vec::new();
        let mut line_is_open = false;
        loop {
            line.clear();
            match lines.read_until(b'\n', &mut line) {
                Ok(0) => break,
                Ok(_) => {
                    line_is_open = !line.ends_with(b"\n");
                    if !line.starts_with(b"{\"reason\":") {
                        log.write(&line);
                    }
                    each(String::from_utf8_lossy(&line).trim_end());
                }
                Err(error) => return Err(format!("reading from {shown}: {error}")),
            }
        }
        // The last line of a child may lack its end; ours begin a line.
        if line_is_open {
            log.line("");
        }
        log.processor_time += processor_time(&child);
        let status = child.wait().map_err(|error| format!("waiting for {shown}: {error}"))?;
        if !status.success() {
            log.line(&format!("{shown}: {status}"));
        }
        Ok(status.success())
    }
}

/// Waits for the end of `child` and returns its processor time; it must still be waited for.
fn processor_time(child: &Child) -> Duration {
    let Ok(process) = i32::try_from(child.id()) else { return Duration::ZERO };
    let flags = WaitPidFlag::WEXITED | WaitPidFlag::WNOWAIT;
    let _ = waitid(Id::Pid(Pid::from_raw(process)), flags);
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    ticks(&stat).map_or(Duration::ZERO, |ticks| TICK.saturating_mul(ticks))
}

/// Returns the sum of `utime`, `stime`, `cutime` and `cstime` in a line of `/proc/PID/stat` (proc(5)).
fn ticks(stat: &str) -> Option<u32> {
    // The name of the program, the second field, is in parentheses and may hold anything.
    let (_, fields) = stat.rsplit_once(')')?;
    let times = fields.split_whitespace().skip(11).take(4);
    times.map(|field| field.parse::<u32>().ok()).sum()
}

impl std::fmt::Display for CommandLine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (name, value) in &self.env {
            write!(f, "{name}={value:?} ")?;
        }
        f.write_str(&self.words.join(" "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_streams_arrive_in_order_with_the_environment() {
        let script = "echo $WORD; echo two >&2; echo three; printf four >&2";
        let command = CommandLine::new(&["sh", "-c", script]).env("WORD", "one");
        let (mut lines, mut log) = (Vec::new(), Log::buffered());
        assert_eq!(command.stream(&mut log, |line| lines.push(line.to_owned())), Ok(true));
        assert_eq!(lines, ["one", "two", "three", "four"]);
        let logged = String::from_utf8(log.into_bytes()).unwrap();
        assert!(logged.ends_with("one\ntwo\nthree\nfour\n"), "{logged:?}");
    }

    #[test]
    fn processor_time_of_children_is_counted() {
        let spin = "i=0; while [ $i -lt 200000 ]; do i=$((i + 1)); done";
        let mut log = Log::buffered();
        let nested = format!("sh -c '{spin}'; true");
        assert_eq!(CommandLine::new(&["sh", "-c", &nested]).stream(&mut log, |_| ()), Ok(true));
        assert!(log.processor_time() >= TICK, "{:?}", log.processor_time());
        assert_eq!(ticks("7 (a) b) Z 1 2 3 4 5 6 7 8 9 10 11 22 33 44 0"), Some(11 + 22 + 33 + 44));
        assert_eq!(ticks(""), None);
    }

    #[test]
    fn json_of_cargo_is_read_and_not_logged() {
        let line = r#"{"reason":"build-finished"}"#;
        let command = CommandLine::new(&["echo", line]);
        let (mut lines, mut log) = (Vec::new(), Log::buffered());
        assert_eq!(command.stream(&mut log, |line| lines.push(line.to_owned())), Ok(true));
        assert_eq!(lines, [line]);
        let logged = String::from_utf8(log.into_bytes()).unwrap();
        assert_eq!(logged.lines().count(), 1, "{logged:?}");
    }

    #[test]
    fn command_runs_in_its_folder() {
        let command = CommandLine::new(&["pwd"]).folder(PathBuf::from("/"));
        let mut lines = Vec::new();
        let _ = command.stream(&mut Log::buffered(), |line| lines.push(line.to_owned()));
        assert_eq!(lines, ["/"]);
    }
}
