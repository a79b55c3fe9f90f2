//! Shows on a terminal the name and the elapsed time of a long operation.
//!
//! The line appears on standard error, is updated in place and cleared at the end. If standard error
//! is not a terminal, there is no line, so that logs and pipes receive only results.

use std::io::{IsTerminal, Write};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

/// Delay before the line appears, and interval of its updates.
const INTERVAL: Duration = Duration::from_millis(300);

/// Runs `work`, and shows `what` and the elapsed time meanwhile.
pub fn during<T>(what: &str, work: impl FnOnce() -> T) -> T {
    if !std::io::stderr().is_terminal() {
        return work();
    }
    let start = Instant::now();
    let (done, waiting) = mpsc::channel::<()>();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let mut shown = false;
            while waiting.recv_timeout(INTERVAL) == Err(RecvTimeoutError::Timeout) {
                show(&format!("\r{what} ... {:.1} s", start.elapsed().as_secs_f64()));
                shown = true;
            }
            if shown {
                show("\r\x1b[K");
            }
        });
        // Also dropped if `work` panics, so that the scope can end.
        let _done = done;
        work()
    })
}

/// Writes to standard error; ignores errors.
pub fn show(text: &str) {
    let mut err = std::io::stderr().lock();
    let _ = err.write_all(text.as_bytes()).and_then(|()| err.flush());
}

#[cfg(test)]
mod tests {
    #[test]
    fn during_returns_the_result_of_the_work() {
        assert_eq!(super::during("adding", || 1 + 1), 2);
    }
}
