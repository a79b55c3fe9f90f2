//! A process of the lab: a gate, the grantor, a BGP speaker, in its namespace.
//!
//! Ours are the program itself, started anew as an operator would. Each is in a process
//! group of its own, so that Ctrl-C is the lab's to hear, and is killed by the kernel should
//! the lab die without a word (`setpriv --pdeathsig`): a namespace outlives its last process
//! by nothing.

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

/// How long a part may take to begin, and to end.
const PATIENCE: Duration = Duration::from_secs(30);
/// How often it is looked at meanwhile.
const LOOK: Duration = Duration::from_millis(10);

/// A running process; killed when dropped.
#[derive(Debug)]
pub(super) struct Part {
    name: String,
    child: Child,
    /// What it has said so far on standard error.
    said: Arc<Mutex<String>>,
    listener: Option<JoinHandle<()>>,
    /// What it writes to standard output, whole.
    result: Option<JoinHandle<String>>,
}

/// Returns where this program is found, from whatever namespace of mounts.
pub(super) fn ourselves() -> String {
    format!("/proc/{}/exe", nix::unistd::getpid())
}

impl Part {
    /// Starts `program` in a namespace; `name` is what errors call it.
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
        let said = Arc::new(Mutex::new(String::new()));
        let hearing = Arc::clone(&said);
        let listener = thread::Builder::new().name("listen".into()).spawn(move || {
            for line in err.into_iter().flat_map(|err| BufReader::new(err).lines()) {
                let Ok(line) = line else { break };
                let mut said = hearing.lock().unwrap_or_else(PoisonError::into_inner);
                *said += &line;
                said.push('\n');
            }
        })?;
        let result = thread::Builder::new().name("result".into()).spawn(move || {
            let mut text = String::new();
            // What cannot be read is missed by who looks into it.
            let _ = out.map(|mut out| out.read_to_string(&mut text));
            text
        })?;
        let (listener, result) = (Some(listener), Some(result));
        Ok(Self { name: name.to_owned(), child, said, listener, result })
    }

    /// Waits until it has said `text`, or `stop`.
    pub(super) fn says(&mut self, text: &str, stop: &AtomicBool) -> Result<()> {
        let begin = Instant::now();
        while !stop.load(Ordering::Relaxed) {
            if self.said().contains(text) {
                return Ok(());
            }
            self.runs()?;
            if begin.elapsed() > PATIENCE {
                bail!("{} does not say \"{text}\" but: {}", self.name, self.words());
            }
            thread::sleep(LOOK);
        }
        Ok(())
    }

    /// Is an error that says why, if it runs no more.
    pub(super) fn runs(&mut self) -> Result<()> {
        match self.child.try_wait()? {
            None => Ok(()),
            Some(status) => {
                self.listener.take().map(JoinHandle::join);
                bail!("{} has ended, {status}: {}", self.name, self.words())
            }
        }
    }

    /// Ends it as Ctrl-C would, and returns what it wrote.
    pub(super) fn end(mut self) -> Result<String> {
        kill(Pid::from_raw(self.child.id() as i32), Signal::SIGINT)
            .with_context(|| format!("{} has ended: {}", self.name, self.words()))?;
        let begin = Instant::now();
        let status = loop {
            if let Some(status) = self.child.try_wait()? {
                break status;
            }
            if begin.elapsed() > PATIENCE {
                bail!("{} does not end: {}", self.name, self.words());
            }
            thread::sleep(LOOK);
        };
        if !status.success() {
            bail!("{} ended with {status}: {}", self.name, self.words());
        }
        let text = self.result.take().map(JoinHandle::join);
        text.and_then(Result::ok).ok_or_else(|| anyhow!("what {} wrote was not read", self.name))
    }

    fn said(&self) -> String {
        self.said.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Its last words, in one line.
    fn words(&self) -> String {
        let said = self.said();
        let last: Vec<&str> = said.lines().rev().take(3).collect();
        if last.is_empty() {
            return "it has said nothing".to_owned();
        }
        last.into_iter().rev().collect::<Vec<_>>().join(" / ")
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        // It may have ended already, which is as good.
        let _ = self.child.kill();
        let _ = self.child.wait();
        for reader in [self.listener.take()].into_iter().flatten() {
            let _ = reader.join();
        }
        let _ = self.result.take().map(JoinHandle::join);
    }
}
