//! The result of a call: a status, and a message of the calling thread.

use std::any::Any;
use std::cell::RefCell;
use std::ffi::{CString, c_char};
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// The result of a call.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// Done.
    Ok = 0,
    /// There is no such route.
    NotFound = 1,
    /// Readers still use the two tables that exist: commit again later. The changes are kept.
    Busy = 2,
    /// An argument is null, out of range, or does not suit the table.
    Argument = -1,
    /// A prefix is malformed: its family, its length, or a bit that is set beyond the length.
    Prefix = -2,
    /// The routes exceed a limit of the engine. They are kept; the readers' table is unchanged.
    Full = -3,
    /// The system refused to open, read or write a file.
    System = -4,
    /// A file is damaged, or in no known format.
    Format = -5,
    /// A defect of the library. The object may be freed only.
    Internal = -6,
}

/// A call that did not succeed.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) status: Status,
    pub(crate) message: String,
}

impl Failure {
    pub(crate) fn new(status: Status, message: impl fmt::Display) -> Self {
        Self { status, message: message.to_string() }
    }

    pub(crate) fn argument(message: impl fmt::Display) -> Self {
        Self::new(Status::Argument, message)
    }

    pub(crate) fn null(name: &str) -> Self {
        Self::argument(format_args!("{name} is NULL"))
    }
}

thread_local! {
    static MESSAGE: RefCell<CString> = RefCell::default();
}

fn set_message(text: String) {
    let mut bytes = text.into_bytes();
    bytes.retain(|&byte| byte != 0);
    // No zero is left, hence never the default.
    let message = CString::new(bytes).unwrap_or_default();
    MESSAGE.with_borrow_mut(|last| *last = message);
}

/// Runs a call of C: an error, or a panic, becomes a status and this thread's message.
pub(crate) fn guard(call: impl FnOnce() -> Result<Status, Failure>) -> Status {
    let failure = match catch_unwind(AssertUnwindSafe(call)) {
        Ok(Ok(status)) => return status,
        Ok(Err(failure)) => failure,
        Err(panic) => Failure::new(
            Status::Internal,
            format_args!("a defect of the library: {}", cause(&*panic)),
        ),
    };
    set_message(failure.message);
    failure.status
}

fn cause(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("a panic without a message")
}

/// Returns the reason of this thread's last failure (FP_STATUS_BUSY, and each below zero), in English; "" before
/// it. The text is valid until this thread's next call of the library.
#[unsafe(no_mangle)]
pub extern "C" fn fp_error_message() -> *const c_char {
    MESSAGE.with_borrow(|last| last.as_ptr())
}

/// Returns the version of the library, such as "0.1.0".
#[unsafe(no_mangle)]
pub extern "C" fn fp_version() -> *const c_char {
    const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), "\0");
    VERSION.as_ptr().cast()
}

#[cfg(test)]
mod tests {
    use std::ffi::CStr;

    use super::*;

    fn message() -> String {
        MESSAGE.with_borrow(|last| last.to_string_lossy().into_owned())
    }

    #[test]
    fn panic_becomes_a_status_and_a_message() {
        assert_eq!(guard(|| panic!("the {}", "reason")), Status::Internal);
        assert_eq!(message(), "a defect of the library: the reason");
        assert_eq!(guard(|| Err(Failure::argument("a\0b"))), Status::Argument);
        assert_eq!(message(), "ab");
        assert_eq!(guard(|| Ok(Status::NotFound)), Status::NotFound);
        assert_eq!(message(), "ab", "the last one remains");
    }

    #[test]
    fn messages_are_of_their_thread() {
        guard(|| Err(Failure::null("table")));
        std::thread::spawn(|| assert_eq!(message(), "")).join().unwrap();
        assert_eq!(message(), "table is NULL");
    }

    #[test]
    fn version_is_a_text_of_c() {
        // SAFETY: the constant ends with a zero.
        let version = unsafe { CStr::from_ptr(fp_version()) };
        assert_eq!(version.to_str(), Ok(env!("CARGO_PKG_VERSION")));
    }
}
