//! The successor, in the process that starts it and is succeeded by it.

use std::env;
use std::io::{self, ErrorKind};
use std::os::fd::BorrowedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use port::af_xdp::InterfaceCounts;

use super::channel::Channel;
use super::{FORMATS, FromPredecessor, FromSuccessor, LAUNCHER, Suspended, VARIABLE, Welcome};

/// The longest time until the successor has its tables.
const PREPARATION: Duration = Duration::from_secs(300);
/// The longest time until its workers run, once those of the predecessor have stopped; less than the interval of a
/// service's watchdog.
const TAKEOVER: Duration = Duration::from_secs(5);
/// The longest time for a message that was begun.
const PATIENCE: Duration = Duration::from_secs(5);
/// The longest time until a launcher has ended after the channel was closed.
const END: Duration = Duration::from_secs(2);

/// A process that is started in order to take over from this one. Dropping the value kills it.
#[derive(Debug)]
pub(crate) struct Successor {
    launcher: Child,
    channel: Channel,
    started: Instant,
    /// The number of its process, once it has reported that.
    pid: Option<u32>,
    /// It runs on without this process, or was killed.
    is_released: bool,
}

/// A report of the successor before it takes over.
#[derive(Debug)]
pub(crate) enum Event {
    /// It runs, and reads the format of this process.
    Hello,
    /// It has its tables and programs.
    Ready,
    /// It has ended, or will.
    Failed(String),
}

impl Successor {
    /// Starts `program` with the arguments of this process.
    ///
    /// # Errors
    ///
    /// The system's error.
    pub(crate) fn start(program: &Path) -> io::Result<Self> {
        let (own, other) = UnixStream::pair()?;
        let mut arguments = env::args_os();
        let name = arguments.next().unwrap_or_else(|| program.into());
        let mut command = Command::new(program);
        command.arg0(name).args(arguments).env(VARIABLE, LAUNCHER);
        // Written for this process: the watchdog of the service is the successor's, too.
        command.env_remove("WATCHDOG_PID").stdin(Stdio::from(std::os::fd::OwnedFd::from(other)));
        let launcher = threads::rights::pass_to_child(|| command.spawn())??;
        let channel = Channel::new(own);
        Ok(Self { launcher, channel, started: Instant::now(), pid: None, is_released: false })
    }

    /// Returns the number of its process, or of its launcher until it has reported its own.
    pub(crate) fn pid(&self) -> u32 {
        self.pid.unwrap_or_else(|| self.launcher.id())
    }

    /// Returns what it has reported since the last call. Does not wait for more than a message that was begun.
    pub(crate) fn poll(&mut self, role: &str) -> Option<Event> {
        let mut ready = [PollFd::new(std::os::fd::AsFd::as_fd(&self.channel), PollFlags::POLLIN)];
        if poll(&mut ready, PollTimeout::ZERO) == Ok(0) {
            let late = self.started.elapsed() > PREPARATION;
            let reason = || format!("it was not ready after {} s", PREPARATION.as_secs());
            return late.then(|| Event::Failed(reason()));
        }
        Some(match self.channel.receive(PATIENCE).map(|(message, _)| message) {
            Ok(FromSuccessor::Hello { formats, version, role: other, pid }) => {
                self.pid = Some(pid);
                if !formats.contains(&FORMATS[0]) {
                    let reason = format!(
                        "version {version} does not read format {} of a running version {}: \
                         restart the service instead",
                        FORMATS[0],
                        env!("CARGO_PKG_VERSION")
                    );
                    self.refuse(&reason);
                    return Some(Event::Failed(reason));
                }
                if role != other {
                    let reason = format!("a {other} cannot take over from a {role}");
                    self.refuse(&reason);
                    return Some(Event::Failed(reason));
                }
                Event::Hello
            }
            Ok(FromSuccessor::Ready) => Event::Ready,
            Ok(FromSuccessor::Failed { reason }) => Event::Failed(reason),
            Ok(FromSuccessor::Running) => Event::Failed("it sent Running before Ready".to_owned()),
            Err(error) => Event::Failed(self.reason(&error)),
        })
    }

    fn refuse(&mut self, reason: &str) {
        let _ = self.channel.send(&FromPredecessor::Refused { reason: reason.to_owned() }, &[]);
    }

    /// Hands over descriptors, in the order of [`Welcome`].
    ///
    /// # Errors
    ///
    /// A message for the operator.
    pub(crate) fn welcome(
        &mut self,
        welcome: Welcome,
        descriptors: &[BorrowedFd<'_>],
    ) -> Result<(), String> {
        let sent = self.channel.send(&FromPredecessor::Welcome(welcome), descriptors);
        sent.map_err(|error| self.reason(&error))
    }

    /// Reports that the workers of this process have stopped, and waits until those of the successor run.
    ///
    /// # Errors
    ///
    /// A message for the operator: this process must forward again.
    pub(crate) fn take_over(
        &mut self,
        suspended: Suspended,
        descriptors: &[BorrowedFd<'_>],
    ) -> Result<(), String> {
        let sent = self.channel.send(&FromPredecessor::Suspended(suspended), descriptors);
        match sent.and_then(|()| self.channel.receive(TAKEOVER)).map(|(message, _)| message) {
            Ok(FromSuccessor::Running) => Ok(()),
            Ok(FromSuccessor::Failed { reason }) => Err(reason),
            Ok(other) => Err(format!("unexpected message: {other:?}")),
            Err(error) => Err(self.reason(&error)),
        }
    }

    /// Releases the successor, which runs on without this process.
    pub(crate) fn release(&mut self, counts: Vec<InterfaceCounts>) {
        self.is_released = true;
        // A successor that has just ended takes the interfaces with it in any case.
        let _ = self.channel.send(&FromPredecessor::Counts(counts), &[]);
    }

    /// Kills the process, unless it has been released. It detaches nothing that this one has.
    pub(crate) fn kill(&mut self) {
        if std::mem::replace(&mut self.is_released, true) {
            return;
        }
        // It may have ended already; without the channel it ends in any case.
        if let Some(pid @ 2..) = self.pid.and_then(|pid| i32::try_from(pid).ok()) {
            let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
        }
        let _ = self.launcher.kill();
    }

    /// Returns the reason for an error of the channel.
    fn reason(&mut self, error: &io::Error) -> String {
        match error.kind() {
            ErrorKind::WouldBlock | ErrorKind::TimedOut => {
                format!("its workers did not run after {} s", TAKEOVER.as_secs())
            }
            ErrorKind::UnexpectedEof | ErrorKind::BrokenPipe | ErrorKind::ConnectionReset => {
                match self.end_of_launcher() {
                    Some(status) if !status.success() => {
                        format!("it ended ({status}); see its log")
                    }
                    _ => "it ended; see its log".to_owned(),
                }
            }
            _ => error.to_string(),
        }
    }

    /// Waits for the end of the launcher.
    fn end_of_launcher(&mut self) -> Option<ExitStatus> {
        let begin = Instant::now();
        while begin.elapsed() < END {
            if let Ok(Some(status)) = self.launcher.try_wait() {
                return Some(status);
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        None
    }
}

impl Drop for Successor {
    fn drop(&mut self) {
        self.kill();
        let _ = self.launcher.wait();
    }
}
