//! Texts, arrays and results that C passes by pointer.

use std::ffi::{CStr, c_char};
use std::mem::MaybeUninit;
use std::path::Path;

use crate::status::Failure;

/// Returns an argument that must not be null.
pub(crate) fn required<T>(argument: Option<T>, name: &str) -> Result<T, Failure> {
    argument.ok_or_else(|| Failure::null(name))
}

/// Stores a result that the caller may not want.
pub(crate) fn store<T>(place: Option<&mut MaybeUninit<T>>, value: T) {
    if let Some(place) = place {
        place.write(value);
    }
}

/// Returns a text.
///
/// # Safety
///
/// `text` is null, or points to bytes that end with a zero and do not change during the call.
pub(crate) unsafe fn text<'a>(text: *const c_char, name: &str) -> Result<&'a str, Failure> {
    if text.is_null() {
        return Err(Failure::null(name));
    }
    // SAFETY: the caller's promise.
    let text = unsafe { CStr::from_ptr(text) };
    text.to_str().map_err(|_| Failure::argument(format_args!("{name} is no text in UTF-8")))
}

/// Returns the path of a file, in any encoding.
///
/// # Safety
///
/// As [`text`].
pub(crate) unsafe fn path<'a>(path: *const c_char) -> Result<&'a Path, Failure> {
    use std::os::unix::ffi::OsStrExt;
    if path.is_null() {
        return Err(Failure::null("path"));
    }
    // SAFETY: the caller's promise.
    let bytes = unsafe { CStr::from_ptr(path) }.to_bytes();
    Ok(Path::new(std::ffi::OsStr::from_bytes(bytes)))
}

/// Returns an array to read; an empty one may be null.
///
/// # Safety
///
/// `items` is null, or points to `count` items, aligned, that do not change during the call.
pub(crate) unsafe fn array<'a, T>(items: *const T, count: usize) -> Option<&'a [T]> {
    if count == 0 {
        return Some(&[]);
    }
    if items.is_null() || count > isize::MAX as usize / size_of::<T>().max(1) {
        return None;
    }
    // SAFETY: not null; the rest is the caller's promise.
    Some(unsafe { std::slice::from_raw_parts(items, count) })
}

/// Returns an array to write; an empty one may be null.
///
/// # Safety
///
/// `items` is null, or points to memory for `count` items, aligned, that nothing else uses during the call.
/// Every bit pattern is a value of `T`.
pub(crate) unsafe fn array_mut<'a, T>(items: *mut T, count: usize) -> Option<&'a mut [T]> {
    if count == 0 {
        return Some(&mut []);
    }
    if items.is_null() || count > isize::MAX as usize / size_of::<T>().max(1) {
        return None;
    }
    // SAFETY: not null; the rest is the caller's promise. Memory of C that was never written has some bytes, each of
    // which is a value.
    Some(unsafe { std::slice::from_raw_parts_mut(items, count) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn null_and_impossible_arrays_are_refused() {
        use std::ptr::{dangling, null, null_mut};
        // SAFETY: nothing is read, since the pointer is null.
        assert!(unsafe { array::<u32>(null(), 1) }.is_none());
        // SAFETY: nothing is read, since the array is empty.
        assert_eq!(unsafe { array::<u32>(null(), 0) }, Some(&[][..]));
        // SAFETY: nothing is read, since no array is so long.
        assert!(unsafe { array::<u32>(dangling(), usize::MAX) }.is_none());
        // SAFETY: nothing is written, since the pointer is null.
        assert!(unsafe { array_mut::<u32>(null_mut(), 1) }.is_none());
    }

    #[test]
    fn null_and_bytes_beyond_utf8_are_no_text() {
        let bytes = c"caf\xe9";
        // SAFETY: null.
        let null = unsafe { text(std::ptr::null(), "engine") };
        assert_eq!(null.unwrap_err().message, "engine is NULL");
        // SAFETY: a constant with a zero at its end.
        let bad = unsafe { text(bytes.as_ptr(), "engine") };
        assert_eq!(bad.unwrap_err().message, "engine is no text in UTF-8");
        // SAFETY: likewise.
        let good = unsafe { path(bytes.as_ptr()) };
        assert_eq!(good.unwrap().as_os_str().len(), 4, "a path need not be UTF-8");
    }
}
