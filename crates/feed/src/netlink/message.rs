//! The netlink messages in a receive buffer.
//!
//! ```text
//! 0        4      6       8          12     16                 length
//! ┌────────┬──────┬───────┬──────────┬──────┬──────────────────┬┈┈┈┐
//! │ length │ type │ flags │ sequence │ port │ payload          │pad│ next …
//! └────────┴──────┴───────┴──────────┴──────┴──────────────────┴┈┈┈┘
//! ```
//!
//! netlink(7), `struct nlmsghdr`: host byte order, each message on a multiple of four
//! bytes. The payload is a fixed header, by type, and attributes. Nothing is copied.
//! An impossible length ends the walk, because the start of the next message is unknown.

use nix::errno::Errno;

use super::attribute::{Attributes, Bytes};
use super::error::Damage;

/// The bytes before the payload.
pub(crate) const HEADER: usize = 16;

/// One message, borrowed from the buffer it was received in.
#[derive(Clone, Copy, Debug)]
pub struct Message<'a> {
    /// The type (`RTM_NEWROUTE` …).
    pub kind: u16,
    /// `NLM_F_…`.
    pub flags: u16,
    /// The number of the request it answers; 0 if it answers none.
    pub sequence: u32,
    /// The bytes after the header.
    pub payload: &'a [u8],
    /// The offset of the payload in the receive buffer.
    pub at: usize,
}

impl<'a> Message<'a> {
    /// Splits the payload into its fixed header, of `N` bytes, and the attributes.
    pub(crate) fn split<const N: usize>(&self) -> Result<(&'a [u8; N], Attributes<'a>), Damage> {
        match self.payload.split_first_chunk::<N>() {
            Some((head, rest)) => Ok((head, Attributes::new(rest, self.at + N))),
            None => Err(Damage { at: self.at, what: "a message that ends within its header" }),
        }
    }

    /// Reads the error number of an `NLMSG_ERROR` or `NLMSG_DONE` message; `None` for success.
    pub(crate) fn errno(&self) -> Option<Errno> {
        let (head, _) = self.payload.split_first_chunk::<4>()?;
        match head.u32(0).cast_signed() {
            0 => None,
            negative => Some(Errno::from_raw(negative.wrapping_neg())),
        }
    }
}

/// Walks the messages in a receive buffer.
///
/// # Examples
///
/// ```
/// use fingerpost_feed::netlink::Messages;
/// let mut bytes = vec![20, 0, 0, 0, 3, 0, 2, 0, 7, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
/// let done = Messages::new(&bytes).next().unwrap().unwrap();
/// assert_eq!((done.kind, done.sequence, done.payload.len()), (3, 7, 4));
/// bytes.truncate(19);
/// assert!(Messages::new(&bytes).next().unwrap().is_err());
/// ```
#[derive(Clone, Debug)]
pub struct Messages<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Messages<'a> {
    /// Begins the walk over `bytes`.
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 0 }
    }

    fn take(&mut self) -> Result<Message<'a>, Damage> {
        let at = self.at;
        let damage = |what| Damage { at, what };
        let Some((head, _)) = self.bytes.split_first_chunk::<HEADER>() else {
            return Err(damage("a message shorter than its header"));
        };
        let length = head.u32(0) as usize;
        if length < HEADER {
            return Err(damage("a message whose length field is below its header's"));
        }
        let Some(payload) = self.bytes.get(HEADER..length) else {
            return Err(damage("a message that ends before its length"));
        };
        let next = length.next_multiple_of(4).min(self.bytes.len());
        self.bytes = &self.bytes[next..];
        self.at += next;
        let (kind, flags, sequence) = (head.u16(4), head.u16(6), head.u32(8));
        Ok(Message { kind, flags, sequence, payload, at: at + HEADER })
    }
}

impl<'a> Iterator for Messages<'a> {
    type Item = Result<Message<'a>, Damage>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        if self.bytes.is_empty() {
            return None;
        }
        let taken = self.take();
        if taken.is_err() {
            self.bytes = &[];
        }
        Some(taken)
    }
}
