//! A child process of the lab (a gate, the grantor, a BGP speaker) in its namespace.
//!
//! Gates and grantor are this program, started as an operator would start it. Each child has its own
//! process group, so that only the lab receives Ctrl-C, and the kernel kills it if the lab dies
//! (`setpriv --pdeathsig`). A namespace ends with its last process.

use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::namespace::Namespace;

/// The time limit for the start and for the end of a child process.
const TIMEOUT: Duration = Duration::from_secs(30);
/// The interval between two looks at it.
const INTERVAL: Duration = Duration::from_millis(10);

/// A running process; killed when dropped.
#[derive(Debug)]
pub(super) struct ChildProcess {
    name: String,
    child: Child,
    /// Its standard error so far.
    log: Arc<Mutex<String>>,
    log_reader: Option<JoinHandle<()>>,
    /// Returns its standard output.
    output_reader: Option<JoinHandle<String>>,
}

/// Returns the path of this program, valid in any mount namespace.
pub(super) fn own_program() -> String {
    format!("/proc/{}/exe", nix::unistd::getpid())
}

impl ChildProcess {
    /// Starts `program` in a namespace; errors contain `name`.
    pub(super) fn start(
        namespace: &Namespace,
        name: &str,
        program: &str,
        arguments: &[&str],
    ) -> Result<Self> {
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL", "--", program]).args(arguments);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.current_dir("/").process_group(0);
        let starting = format!("cannot run setpriv (Debian package util-linux) for {name}");
        let mut child = namespace.run(move || command.spawn().context(starting))?;
        let (out, err) = (child.stdout.take(), child.stderr.take());
        let log = Arc::new(Mutex::new(String::new()));
        let shared = Arc::clone(&log);
        let log_reader = thread::Builder::new().name("log".into()).spawn(move || {
            for line in err.into_iter().flat_map(|err| BufReader::new(err).lines()) {
                let Ok(line) = line else { break };
                let mut log = shared.lock().unwrap_or_else(PoisonError::into_inner);
                *log += &line;
                log.push('\n');
            }
        })?;
        let output_reader = thread::Builder::new().name("output".into()).spawn(move || {
            let mut text = String::new();
            // The user of an incomplete text reports an error.
            let _ = out.map(|mut out| out.read_to_string(&mut text));
            text
        })?;
        let (log_reader, output_reader) = (Some(log_reader), Some(output_reader));
        Ok(Self { name: name.to_owned(), child, log, log_reader, output_reader })
    }

    /// Waits until its log contains `text`, or for `stop`.
    pub(super) fn wait_for_log(&mut self, text: &str, stop: &AtomicBool) -> Result<()> {
        let begin = Instant::now();
        while !stop.load(Ordering::Relaxed) {
            if self.log().contains(text) {
                return Ok(());
            }
            self.check_running()?;
            if begin.elapsed() > TIMEOUT {
                bail!("{} did not log \"{text}\", but: {}", self.name, self.last_lines());
            }
            thread::sleep(INTERVAL);
        }
        Ok(())
    }

    /// Returns an error with its last messages if it has ended.
    pub(super) fn check_running(&mut self) -> Result<()> {
        match self.child.try_wait()? {
            None => Ok(()),
            Some(status) => {
                self.log_reader.take().map(JoinHandle::join);
                bail!("{} has ended, {status}: {}", self.name, self.last_lines())
            }
        }
    }

    /// Ends it by SIGINT and returns its standard output.
    pub(super) fn end(mut self) -> Result<String> {
        kill(Pid::from_raw(self.child.id() as i32), Signal::SIGINT)
            .with_context(|| format!("{} has ended: {}", self.name, self.last_lines()))?;
        let begin = Instant::now();
        let status = loop {
            if let Some(status) = self.child.try_wait()? {
                break status;
            }
            if begin.elapsed() > TIMEOUT {
                bail!("{} does not end: {}", self.name, self.last_lines());
            }
            thread::sleep(INTERVAL);
        };
        if !status.success() {
            bail!("{} ended with {status}: {}", self.name, self.last_lines());
        }
        let text = self.output_reader.take().map(JoinHandle::join);
        text.and_then(Result::ok).ok_or_else(|| anyhow!("the output of {} was not read", self.name))
    }

    /// Kills it, as the loss of power does.
    pub(super) fn kill(&mut self) {
        // Fails if it has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    fn log(&self) -> String {
        self.log.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Returns the last lines of its log, in one line.
    fn last_lines(&self) -> String {
        let log = self.log();
        let last: Vec<&str> = log.lines().rev().take(3).collect();
        if last.is_empty() {
            return "it has logged nothing".to_owned();
        }
        last.into_iter().rev().collect::<Vec<_>>().join(" / ")
    }
}

impl Drop for ChildProcess {
    fn drop(&mut self) {
        self.kill();
        let _ = self.log_reader.take().map(JoinHandle::join);
        let _ = self.output_reader.take().map(JoinHandle::join);
    }
}
