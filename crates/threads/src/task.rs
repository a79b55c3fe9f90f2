//! Threads of the daemons: each has a name, its capabilities and one way to stop.
//!
//! ```text
//!   Task::start ─► thread named, capabilities dropped ─► run(&Stop) … Stop::wait ─► result
//!                                                           ▲                         │
//!   Task::stop, drop ── flag set, thread unparked ──────────┘          joined ◄───────┘
//! ```
//!
//! The start returns once the thread has dropped its capabilities, so that no thread reads input
//! from the network with more than it needs. `top -H` shows the names.
//!
//! A thread that panics is reported by [`Task::is_alive`], by the result of [`Task::stop`], and in
//! the log when a task is dropped.
//!
//! Some threads are no tasks:
//!
//! - A worker is pinned to a core before it drops its capabilities, and all workers share one flag,
//!   so that they stop at the same time (`control/src/workers.rs`).
//! - A thread that serves one client, or makes one system call, ends by itself and is not joined.
//!   It inherits the capabilities of the thread that starts it.
//! - The clients and servers of `lab` are threads of which many share one flag, and the thread of a
//!   network namespace ends with its queue of jobs (`cli/src/namespace.rs`).

use std::fmt;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::sync_channel;
use std::thread::{self, Builder, JoinHandle};
use std::time::{Duration, Instant};

use crate::rights::Rights;

/// Interval of the checks whether a thread with a time limit has ended.
const END_CHECK_INTERVAL: Duration = Duration::from_millis(5);

/// The flag that stops a task's thread. The default is a flag that nothing sets.
#[derive(Debug, Default)]
pub struct Stop(Arc<AtomicBool>);

impl Stop {
    /// Returns whether the thread has to end.
    pub fn is_set(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }

    /// Waits for `time`, or until the thread has to end; returns whether it has to. Must be called
    /// on the thread of the task, because only that one is woken.
    pub fn wait(&self, time: Duration) -> bool {
        let begin = Instant::now();
        while !self.is_set() {
            let left = time.saturating_sub(begin.elapsed());
            if left.is_zero() {
                return false;
            }
            thread::park_timeout(left);
        }
        true
    }
}

/// A thread panicked, which is a bug; the panic's message is on standard error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Panicked;

impl fmt::Display for Panicked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the thread panicked; this is a bug, please report it")
    }
}

impl std::error::Error for Panicked {}

/// A running thread. Dropping the task stops the thread and waits for its end.
#[derive(Debug)]
pub struct Task<T = ()> {
    stop: Arc<AtomicBool>,
    /// `None` once the thread has been joined, or abandoned. The thread returns nothing if it could
    /// not drop its capabilities.
    thread: Option<JoinHandle<Option<T>>>,
}

impl<T: Send + 'static> Task<T> {
    /// Starts a thread that drops all capabilities except `rights`, and then calls `run`, which ends
    /// soon after its flag is set.
    ///
    /// # Errors
    ///
    /// The system's error of the thread's creation or of dropping the capabilities; `run` is not
    /// called then.
    pub fn start(
        name: impl Into<String>,
        rights: Rights,
        run: impl FnOnce(&Stop) -> T + Send + 'static,
    ) -> io::Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        let thread_stop = Stop(Arc::clone(&stop));
        let (send, kept) = sync_channel(1);
        let thread = Builder::new().name(name.into()).spawn(move || {
            let result = rights.keep();
            let may_run = result.is_ok();
            // The starting thread waits for the result.
            let _ = send.send(result);
            may_run.then(|| run(&thread_stop))
        })?;
        let task = Self { stop, thread: Some(thread) };
        kept.recv().unwrap_or_else(|_| Err(io::Error::other(Panicked)))?;
        Ok(task)
    }
}

impl<T> Task<T> {
    /// Returns whether the thread runs; before it is stopped, one that does not has a bug.
    pub fn is_alive(&self) -> bool {
        self.thread.as_ref().is_some_and(|thread| !thread.is_finished())
    }

    /// Stops the thread, waits for its end and returns its result.
    ///
    /// # Errors
    ///
    /// [`Panicked`].
    pub fn stop(mut self) -> Result<T, Panicked> {
        self.request_stop();
        self.join()
    }

    /// Waits until the thread ends by itself and returns its result.
    ///
    /// # Errors
    ///
    /// [`Panicked`].
    pub fn finish(mut self) -> Result<T, Panicked> {
        self.join()
    }

    /// Stops the thread and waits for its end, but not longer than `limit`: a thread that is blocked
    /// for longer, for example by a remote file system, is abandoned.
    pub fn stop_within(mut self, limit: Duration) {
        self.request_stop();
        let begin = Instant::now();
        while self.is_alive() && begin.elapsed() < limit {
            thread::sleep(END_CHECK_INTERVAL);
        }
        if self.is_alive() {
            self.thread = None;
        }
    }

    fn request_stop(&self) {
        self.stop.store(true, Ordering::Release);
        if let Some(thread) = &self.thread {
            thread.thread().unpark();
        }
    }

    fn join(&mut self) -> Result<T, Panicked> {
        let thread = self.thread.take();
        thread.and_then(|thread| thread.join().ok()).flatten().ok_or(Panicked)
    }
}

impl<T> Drop for Task<T> {
    fn drop(&mut self) {
        let Some(thread) = &self.thread else { return };
        let name = thread.thread().name().unwrap_or_default().to_owned();
        self.request_stop();
        if self.join().is_err() {
            log::error!(thread = name.as_str(); "thread {name}: {Panicked}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;

    const LONG: Duration = Duration::from_secs(100);

    #[test]
    fn stop_ends_a_wait_and_returns_the_result() {
        let begin = Instant::now();
        let task = Task::start("waits", Rights::None, |stop| stop.wait(LONG)).unwrap();
        assert!(task.is_alive());
        assert_eq!(task.stop(), Ok(true));
        assert!(begin.elapsed() < LONG);
    }

    #[test]
    fn wait_lasts_for_its_time_despite_other_wakeups() {
        let task = Task::start("waits", Rights::None, |stop| {
            thread::current().unpark();
            let begin = Instant::now();
            (stop.wait(Duration::from_millis(20)), begin.elapsed())
        });
        let (is_stopped, took) = task.unwrap().finish().unwrap();
        assert!(!is_stopped && took >= Duration::from_millis(20), "{took:?}");
    }

    #[test]
    fn drop_joins_a_thread_that_has_its_name() {
        let (send, receive) = channel();
        let task = Task::start("named", Rights::None, move |stop| {
            while !stop.wait(LONG) {}
            let _ = send.send(thread::current().name().map(str::to_owned));
        });
        drop(task.unwrap());
        assert_eq!(receive.try_recv().unwrap().as_deref(), Some("named"));
    }

    #[test]
    fn panic_is_an_error_of_stop() {
        let task = Task::start("panics", Rights::None, |_| panic!("on purpose")).unwrap();
        while task.is_alive() {
            thread::yield_now();
        }
        let result: Result<(), Panicked> = task.stop();
        assert_eq!(result, Err(Panicked));
    }

    #[test]
    fn blocked_thread_is_abandoned_after_the_limit() {
        let (send, receive) = channel::<()>();
        let task = Task::start("blocked", Rights::None, move |_| _ = receive.recv()).unwrap();
        let begin = Instant::now();
        task.stop_within(Duration::from_millis(20));
        assert!(begin.elapsed() >= Duration::from_millis(20));
        assert!(send.send(()).is_ok());
    }
}
