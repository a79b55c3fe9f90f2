//! Questions to the control thread, from other threads.
//!
//! ```text
//!   Asker (a clone a thread) ── question ─► queue ─┐
//!        ▲                 └── wake ─► eventfd ────┴─► control thread, between two turns
//!        └────────── answer ◄──────────────────────────┘
//! ```
//!
//! The control thread owns the routes and shares nothing; who wants to know something
//! sends a piece of code that finds it out. It is run between two turns of following the
//! kernel, so it should be quick: a copy of all routes is the longest, some tens of
//! milliseconds for a full table.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel, sync_channel};
use std::time::Duration;

use nix::sys::eventfd::{EfdFlags, EventFd};

/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(10);

/// A question: a piece of code for the control thread.
type Question<T> = Box<dyn FnOnce(&mut T) + Send>;

/// Puts questions to whoever holds the [`Asked`] of the same pair.
#[derive(Debug)]
pub struct Asker<T> {
    questions: Sender<Question<T>>,
    wake: Arc<EventFd>,
}

impl<T> Clone for Asker<T> {
    fn clone(&self) -> Self {
        Self { questions: self.questions.clone(), wake: Arc::clone(&self.wake) }
    }
}

/// The answering end.
#[derive(Debug)]
pub struct Asked<T> {
    questions: Receiver<Question<T>>,
    wake: Arc<EventFd>,
}

/// Makes a pair.
///
/// # Errors
///
/// The system's, without a descriptor left.
pub fn pair<T>() -> io::Result<(Asker<T>, Asked<T>)> {
    let (send, receive) = channel();
    let flags = EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK;
    let wake = Arc::new(EventFd::from_value_and_flags(0, flags)?);
    Ok((Asker { questions: send, wake: Arc::clone(&wake) }, Asked { questions: receive, wake }))
}

impl<T> Asker<T> {
    /// Runs `question` on the other thread and returns what it found; nothing if that
    /// thread is gone, or has no time for ten seconds.
    pub fn ask<R: Send + 'static>(
        &self,
        question: impl FnOnce(&mut T) -> R + Send + 'static,
    ) -> Option<R> {
        let (tell, told) = sync_channel(1);
        let question = Box::new(move |asked: &mut T| _ = tell.send(question(asked)));
        self.questions.send(question).ok()?;
        // A full counter, the only failure, wakes as well.
        let _ = self.wake.write(1);
        told.recv_timeout(PATIENCE).ok()
    }
}

impl<T> Asked<T> {
    /// Answers all questions that are there.
    pub fn answer(&self, asked: &mut T) {
        let _ = self.wake.read();
        while let Ok(question) = self.questions.try_recv() {
            question(asked);
        }
    }
}

impl<T> AsFd for Asked<T> {
    /// Readable when there is a question.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.wake.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::pair;

    #[test]
    fn questions_are_answered_in_order_and_by_nobody_when_it_is_gone() {
        let (asker, asked) = pair::<u32>().unwrap();
        let other = asker.clone();
        let asking = std::thread::spawn(move || {
            let first = asker.ask(|number| std::mem::replace(number, 7));
            (first, asker.ask(|number| *number))
        });
        let mut number = 3;
        while !asking.is_finished() {
            asked.answer(&mut number);
            std::thread::yield_now();
        }
        assert_eq!(asking.join().unwrap(), (Some(3), Some(7)));
        drop(asked);
        assert_eq!(other.ask(|number| *number), None);
    }
}
