//! Prefixes as C has them: the address in network order, the length, the family.

use std::ffi::{c_char, c_int};
use std::mem::MaybeUninit;
use std::net::{Ipv4Addr, Ipv6Addr};

use fib::{Addr, Prefix as FibPrefix};

use crate::argument::{array_mut, required, text};
use crate::status::{Failure, Status, guard};

/// The address families of Linux, as AF_INET and AF_INET6 of <sys/socket.h>.
const AF_INET: u8 = 2;
const AF_INET6: u8 = 10;

/// A block of addresses.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Prefix {
    /// The first address, in network order: 4 bytes of IPv4, or 16 of IPv6. No bit beyond the length is set.
    pub address: [u8; 16],
    /// The number of bits that the addresses share: at most 32, or 128.
    pub length: u8,
    /// AF_INET or AF_INET6.
    pub family: u8,
}

/// A prefix of either family.
pub(crate) enum AnyPrefix {
    V4(FibPrefix<u32>),
    V6(FibPrefix<u128>),
}

/// An address family of a table.
pub(crate) trait Bytes: Addr {
    /// Makes the prefix of C.
    fn to_c(prefix: FibPrefix<Self>) -> Prefix;
}

impl Bytes for u32 {
    fn to_c(prefix: FibPrefix<Self>) -> Prefix {
        let mut address = [0; 16];
        address[..4].copy_from_slice(&prefix.addr().to_be_bytes());
        Prefix { address, length: prefix.len() as u8, family: AF_INET }
    }
}

impl Bytes for u128 {
    fn to_c(prefix: FibPrefix<Self>) -> Prefix {
        let address = prefix.addr().to_be_bytes();
        Prefix { address, length: prefix.len() as u8, family: AF_INET6 }
    }
}

impl Prefix {
    /// Checks the prefix.
    pub(crate) fn read(&self) -> Result<AnyPrefix, Failure> {
        let (length, [a, b, c, d, ..]) = (self.length.into(), self.address);
        let checked = match self.family {
            AF_INET => FibPrefix::new(u32::from_be_bytes([a, b, c, d]), length).map(AnyPrefix::V4),
            AF_INET6 => {
                FibPrefix::new(u128::from_be_bytes(self.address), length).map(AnyPrefix::V6)
            }
            other => {
                let message = format_args!("family {other} is neither AF_INET nor AF_INET6");
                return Err(Failure::new(Status::Prefix, message));
            }
        };
        checked.map_err(|bad| {
            let text = self.text();
            let reason = match self.family {
                AF_INET => bad.describe::<u32>(&text),
                _ => bad.describe::<u128>(&text),
            };
            Failure::new(Status::Prefix, reason)
        })
    }

    fn text(&self) -> String {
        let [a, b, c, d, ..] = self.address;
        match self.family {
            AF_INET => format!("{}/{}", Ipv4Addr::new(a, b, c, d), self.length),
            _ => format!("{}/{}", Ipv6Addr::from(self.address), self.length),
        }
    }
}

/// Reads the family of an argument.
pub(crate) fn is_v6(family: c_int) -> Result<bool, Failure> {
    match u8::try_from(family) {
        Ok(AF_INET) => Ok(false),
        Ok(AF_INET6) => Ok(true),
        _ => {
            Err(Failure::argument(format_args!("family {family} is neither AF_INET nor AF_INET6")))
        }
    }
}

/// Reads a prefix: "192.0.2.0/24", "2001:db8::/32", or an address alone, which is one of full length.
/// FP_STATUS_PREFIX if the text is none.
///
/// # Safety
///
/// `text` ends with a zero.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fp_prefix_parse(
    text: *const c_char,
    prefix: Option<&mut MaybeUninit<Prefix>>,
) -> Status {
    guard(|| {
        // SAFETY: the caller's promise.
        let text = unsafe { self::text(text, "text") }?;
        let place = required(prefix, "prefix")?;
        let read = if text.contains(':') {
            text.parse().map(u128::to_c).map_err(|bad: fib::BadPrefix| bad.describe::<u128>(text))
        } else {
            text.parse().map(u32::to_c).map_err(|bad: fib::BadPrefix| bad.describe::<u32>(text))
        };
        place.write(read.map_err(|reason| Failure::new(Status::Prefix, reason))?);
        Ok(Status::Ok)
    })
}

/// Writes a prefix as text with a zero at its end; 44 bytes suffice for every prefix. FP_STATUS_ARGUMENT if
/// `size` is too small.
///
/// # Safety
///
/// `text` has `size` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fp_prefix_format(
    prefix: Option<&Prefix>,
    text: *mut c_char,
    size: usize,
) -> Status {
    guard(|| {
        let prefix = required(prefix, "prefix")?;
        prefix.read()?;
        let written = prefix.text();
        // SAFETY: the caller's promise.
        let place = unsafe { array_mut(text.cast::<u8>(), size) };
        let place = place.filter(|place| place.len() > written.len()).ok_or_else(|| {
            Failure::argument(format_args!(
                "text is NULL or too small for {} bytes",
                written.len() + 1
            ))
        })?;
        place[..written.len()].copy_from_slice(written.as_bytes());
        place[written.len()] = 0;
        Ok(Status::Ok)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefixes_are_checked() {
        let v4 = u32::to_c("10.1.0.0/16".parse().unwrap());
        assert!(
            matches!(v4.read(), Ok(AnyPrefix::V4(prefix)) if prefix.to_string() == "10.1.0.0/16")
        );
        let v6 = u128::to_c("2001:db8::/32".parse().unwrap());
        assert!(
            matches!(v6.read(), Ok(AnyPrefix::V6(prefix)) if prefix.to_string() == "2001:db8::/32")
        );
        for (bad, text) in [
            (Prefix { length: 33, ..v4 }, "10.1.0.0/33"),
            (Prefix { length: 8, ..v4 }, "10.1.0.0/8"),
            (Prefix { length: 129, ..v6 }, "2001:db8::/129"),
            (Prefix { family: 0, ..v4 }, "family 0"),
        ] {
            let Err(failure) = bad.read() else { panic!("{bad:?} is accepted") };
            assert_eq!(failure.status, Status::Prefix);
            assert!(failure.message.contains(text), "{}", failure.message);
        }
    }
}
