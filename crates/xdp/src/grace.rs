//! Waits until every program that could have read a former state of memory has ended.
//!
//! ```text
//!   publish ──► pins of the former state ──► queue ──► thread: updates a map of maps,
//!                                                      then drops the pins
//! ```
//!
//! An XDP program runs within a read-side critical section of RCU, and so does `BPF_PROG_TEST_RUN`. An
//! update of a map of maps from user space returns only after a grace period:
//! `maybe_wait_bpf_programs()` in `kernel/bpf/syscall.c` calls `synchronize_rcu()` (since Linux 4.20,
//! commit 1ae80cf31938), so that user space can rely on no program using the former inner map. A
//! state that was replaced before the update is therefore no longer read after it.
//!
//! A grace period takes some 10 to 50 ms. So a thread waits, once for all that is queued, and a
//! publication never does.

use std::io;
use std::os::fd::AsFd;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{Builder, JoinHandle, sleep};
use std::time::Duration;

use port::af_xdp::bpf::{Kind, Map};

/// The pause before another attempt, after the kernel has refused to wait.
const RETRY: Duration = Duration::from_secs(1);

/// Holds values until no program that was running at their [`retire`](Self::retire) runs any more.
#[derive(Debug)]
pub struct Grace<T> {
    /// Until the drop.
    queue: Option<Sender<T>>,
    thread: Option<JoinHandle<()>>,
}

impl<T: Send + 'static> Grace<T> {
    /// Starts the thread.
    ///
    /// # Errors
    ///
    /// Those of `bpf(2)` for a map: `EPERM` without `CAP_BPF`; that of a thread's start.
    pub fn new() -> io::Result<Self> {
        let barrier = Barrier::new()?;
        let (queue, retired) = channel();
        let thread = Builder::new().name("grace".into()).spawn(move || wait(&barrier, &retired))?;
        Ok(Self { queue: Some(queue), thread: Some(thread) })
    }

    /// Drops `value` on another thread after a grace period that begins now or later.
    pub fn retire(&self, value: T) {
        if let Some(queue) = &self.queue {
            // The thread ends after this sender only.
            let _ = queue.send(value);
        }
    }
}

impl<T> Drop for Grace<T> {
    /// Waits for the last grace period.
    fn drop(&mut self) {
        drop(self.queue.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn wait<T>(barrier: &Barrier, retired: &Receiver<T>) {
    while let Ok(first) = retired.recv() {
        let mut held = vec![first];
        held.extend(retired.try_iter());
        while barrier.wait().is_err() {
            sleep(RETRY);
        }
    }
}

/// A map of maps that exists for the wait upon its update.
#[derive(Debug)]
pub(crate) struct Barrier {
    maps: Map,
    inner: Map,
}

impl Barrier {
    pub(crate) fn new() -> io::Result<Self> {
        let inner = Map::array(Kind::Array, "grace_inner", 8, 1)?;
        Ok(Self { maps: Map::of_maps("grace", &inner, 1)?, inner })
    }

    /// Returns when every program that runs now has ended.
    pub(crate) fn wait(&self) -> io::Result<()> {
        self.maps.set_fd(0, self.inner.as_fd())
    }
}
