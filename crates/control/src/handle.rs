//! Runs closures on the control thread on behalf of other threads.
//!
//! ```text
//!   ControlHandle (a clone a thread) ─ ControlRequest ─► queue ─┐
//!        ▲                          └── wake ─► eventfd ────────┴─► control thread, between
//!        └────────── result ◄──────────────────────────────────┘    two turns
//! ```
//!
//! The control thread owns the routes and shares no memory with other threads. Another thread
//! that needs some of its data sends a closure, which the control thread runs between two turns
//! of following the kernel. A closure must therefore be short: a copy of all routes is the longest
//! one, some tens of milliseconds for a full table.
//!
//! [`ControlHandle::call`] returns nothing if the control thread has ended or does not run the
//! closure within `CALL_TIMEOUT`.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender, sync_channel};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::eventfd::{EfdFlags, EventFd};

/// The timeout of a call.
const CALL_TIMEOUT: Duration = Duration::from_secs(10);

/// A closure for the control thread.
type ControlRequest<T> = Box<dyn FnOnce(&mut T) + Send>;

/// Sends requests to the thread that holds the [`ControlRequests`] of the same channel.
#[derive(Debug)]
pub struct ControlHandle<T> {
    requests: Sender<ControlRequest<T>>,
    wake: Arc<EventFd>,
}

impl<T> Clone for ControlHandle<T> {
    fn clone(&self) -> Self {
        Self { requests: self.requests.clone(), wake: Arc::clone(&self.wake) }
    }
}

/// The receiving end of a channel of requests.
#[derive(Debug)]
pub struct ControlRequests<T> {
    requests: Receiver<ControlRequest<T>>,
    wake: Arc<EventFd>,
}

/// Makes a channel of requests.
///
/// # Errors
///
/// The system's error, if no file descriptor is left.
pub fn channel<T>() -> io::Result<(ControlHandle<T>, ControlRequests<T>)> {
    let (send, receive) = mpsc::channel();
    let flags = EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK;
    let wake = Arc::new(EventFd::from_value_and_flags(0, flags)?);
    let handle = ControlHandle { requests: send, wake: Arc::clone(&wake) };
    Ok((handle, ControlRequests { requests: receive, wake }))
}

impl<T> ControlHandle<T> {
    /// Runs `request` on the control thread and returns its result; `None` if that thread has
    /// ended or does not run it within ten seconds.
    pub fn call<R: Send + 'static>(
        &self,
        request: impl FnOnce(&mut T) -> R + Send + 'static,
    ) -> Option<R> {
        let (send, receive) = sync_channel(1);
        let request = Box::new(move |state: &mut T| _ = send.send(request(state)));
        self.requests.send(request).ok()?;
        // The only possible failure is a full counter, which wakes the thread as well.
        let _ = self.wake.write(1);
        receive.recv_timeout(CALL_TIMEOUT).ok()
    }
}

impl<T> ControlRequests<T> {
    /// Runs requests as they come, each time followed by `after`, until `time` has passed or a signal comes.
    ///
    /// # Errors
    ///
    /// Those of poll(2).
    pub fn serve_for(
        &self,
        time: Duration,
        state: &mut T,
        after: impl Fn(&mut T),
    ) -> io::Result<()> {
        let end = Instant::now() + time;
        while let Some(left) = end.checked_duration_since(Instant::now()) {
            let mut fds = [PollFd::new(self.wake.as_fd(), PollFlags::POLLIN)];
            // In milliseconds, rounded up.
            let left = left + Duration::from_micros(999);
            match poll(&mut fds, PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX)) {
                Ok(0) | Err(Errno::EINTR) => break,
                Ok(_) => self.serve(state),
                Err(error) => return Err(error.into()),
            }
            after(state);
        }
        Ok(())
    }

    /// Runs all requests that are queued.
    pub fn serve(&self, state: &mut T) {
        let _ = self.wake.read();
        while let Ok(request) = self.requests.try_recv() {
            request(state);
        }
    }
}

impl<T> AsFd for ControlRequests<T> {
    /// Returns a descriptor that is readable while a request is queued.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.wake.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::channel;

    #[test]
    fn calls_run_in_order_and_return_none_after_the_receiver_is_dropped() {
        let (handle, requests) = channel::<u32>().unwrap();
        let second_handle = handle.clone();
        let caller = std::thread::spawn(move || {
            let first = handle.call(|number| std::mem::replace(number, 7));
            (first, handle.call(|number| *number))
        });
        let mut number = 3;
        while !caller.is_finished() {
            requests.serve(&mut number);
            std::thread::yield_now();
        }
        assert_eq!(caller.join().unwrap(), (Some(3), Some(7)));
        drop(requests);
        assert_eq!(second_handle.call(|number| *number), None);
    }
}
