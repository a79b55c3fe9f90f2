//! Octets: a message's fields, read one after another.

/// The rest of a message; a field beyond its end is `None`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Octets<'m>(pub(crate) &'m [u8]);

impl<'m> Octets<'m> {
    pub(crate) fn is_empty(self) -> bool {
        self.0.is_empty()
    }

    /// Takes a number of octets.
    pub(crate) fn take(&mut self, len: usize) -> Option<&'m [u8]> {
        let (taken, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(taken)
    }

    /// Takes an unsigned number of `len` octets, at most eight.
    pub(crate) fn number(&mut self, len: usize) -> Option<u64> {
        Some(self.take(len)?.iter().fold(0, |number, octet| number << 8 | u64::from(*octet)))
    }

    pub(crate) fn u8(&mut self) -> Option<u8> {
        self.take(1).map(|octets| octets[0])
    }

    pub(crate) fn u16(&mut self) -> Option<u16> {
        self.number(2).map(|number| number as u16)
    }

    pub(crate) fn u32(&mut self) -> Option<u32> {
        self.number(4).map(|number| number as u32)
    }
}
