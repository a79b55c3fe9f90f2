//! Says on a terminal that something long is under way, and for how long.
//!
//! A full table takes a second or two to load; a person who sees nothing wonders
//! whether to press Ctrl-C. The line is rewritten in place on standard error and
//! wiped at the end, and there is none at all where standard error is no terminal,
//! so logs and pipes hold results only.

use std::io::{IsTerminal, Write};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

/// How long something takes before it is worth a word.
const PATIENCE: Duration = Duration::from_millis(300);

/// Does `work`, showing `what` and the time it has taken so far.
pub(crate) fn during<T>(what: &str, work: impl FnOnce() -> T) -> T {
    if !std::io::stderr().is_terminal() {
        return work();
    }
    let start = Instant::now();
    let (done, waiting) = mpsc::channel::<()>();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let mut shown = false;
            while waiting.recv_timeout(PATIENCE) == Err(RecvTimeoutError::Timeout) {
                show(&format!("\r{what} ... {:.1} s", start.elapsed().as_secs_f64()));
                shown = true;
            }
            if shown {
                show("\r\x1b[K");
            }
        });
        // Dropped also when `work` panics, so that the scope can end.
        let _done = done;
        work()
    })
}

/// Writes on the terminal; one that cannot be written to is no reason to stop.
pub(crate) fn show(text: &str) {
    let mut err = std::io::stderr().lock();
    let _ = err.write_all(text.as_bytes()).and_then(|()| err.flush());
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_result_is_handed_through() {
        assert_eq!(super::during("adding", || 1 + 1), 2);
    }
}
