//! The descriptor of a socket, and its options, read and set as whole structs.

#![expect(unsafe_code, reason = "socket(2), getsockopt(2) and setsockopt(2)")]

use std::ffi::c_int;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use super::error::{Capability, Error};

/// Opens an unbound socket, which shows whether this kernel has AF_XDP and whether this process may
/// use it.
pub(super) fn open(interface: &str, needs: &[Capability]) -> Result<OwnedFd, Error> {
    // SAFETY: no pointer; it makes a descriptor.
    let fd = unsafe { libc::socket(libc::AF_XDP, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0) };
    if fd < 0 {
        let error = io::Error::last_os_error();
        return Err(Error::system("open an AF_XDP socket", interface, needs, error));
    }
    // SAFETY: created just above, and not yet shared.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Sets an option of a socket.
pub(super) fn set<T: Copy>(
    fd: BorrowedFd<'_>,
    level: c_int,
    option: c_int,
    value: &T,
) -> io::Result<()> {
    // SAFETY:
    // - the kernel reads as many bytes as given, those of `value`; options here are integers and,
    //   for the UMEM, an address and a length of memory that the kernel accesses only by the rules
    //   of `arena/region.rs`.
    let answer = unsafe {
        libc::setsockopt(
            fd.as_raw_fd(),
            level,
            option,
            (&raw const *value).cast(),
            size_of::<T>() as libc::socklen_t,
        )
    };
    if answer == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Reads an option of a socket into a struct of plain integers, and returns the number of bytes
/// that the kernel has set.
pub(super) fn get<T: Copy>(
    fd: BorrowedFd<'_>,
    level: c_int,
    option: c_int,
    value: &mut T,
) -> io::Result<usize> {
    let mut len = size_of::<T>() as libc::socklen_t;
    // SAFETY:
    // - the kernel writes at most `len` bytes, those of `value`, which is made
    //   of integers, and sets `len`.
    let answer = unsafe {
        libc::getsockopt(fd.as_raw_fd(), level, option, (&raw mut *value).cast(), &raw mut len)
    };
    if answer == 0 { Ok(len as usize) } else { Err(io::Error::last_os_error()) }
}
