//! Reads and writes fields in network order, one after the other.

use super::{MessageError, ProgramDecision};
use crate::state::Grant;

/// Bytes that are read from the front.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cursor<'a>(pub(super) &'a [u8]);

impl<'a> Cursor<'a> {
    pub(super) fn take<const N: usize>(&mut self) -> Result<[u8; N], MessageError> {
        let (first, rest) = self.0.split_first_chunk().ok_or(MessageError::Truncated)?;
        self.0 = rest;
        Ok(*first)
    }

    pub(super) fn u8(&mut self) -> Result<u8, MessageError> {
        self.take().map(u8::from_be_bytes)
    }

    pub(super) fn u16(&mut self) -> Result<u16, MessageError> {
        self.take().map(u16::from_be_bytes)
    }

    pub(super) fn u32(&mut self) -> Result<u32, MessageError> {
        self.take().map(u32::from_be_bytes)
    }

    pub(super) fn u64(&mut self) -> Result<u64, MessageError> {
        self.take().map(u64::from_be_bytes)
    }

    pub(super) fn u128(&mut self) -> Result<u128, MessageError> {
        self.take().map(u128::from_be_bytes)
    }

    pub(super) fn slice(&mut self, len: usize) -> Result<&'a [u8], MessageError> {
        let (first, rest) = self.0.split_at_checked(len).ok_or(MessageError::Truncated)?;
        self.0 = rest;
        Ok(first)
    }

    /// Reads the four fields of a grant.
    pub(super) fn grant(&mut self) -> Result<Grant, MessageError> {
        Ok(Grant {
            rate_kib: self.u32()?,
            expire_s: self.u32()?,
            next_renewal_ms: self.u32()?,
            renewal_step_ms: self.u32()?,
        })
    }

    /// Reads a program and its cookie, of at most 16 words.
    pub(super) fn program(&mut self) -> Result<ProgramDecision, MessageError> {
        let expire_s = self.u32()?;
        let program = self.u8()?;
        if self.u16()? != 0 {
            return Err(MessageError::Malformed);
        }
        let words = usize::from(self.u8()?);
        let mut cookie = [0; 64];
        let given = cookie.get_mut(..words * 4).ok_or(MessageError::Malformed)?;
        given.copy_from_slice(self.slice(words * 4)?);
        Ok(ProgramDecision { expire_s, program, cookie })
    }
}

/// Writes the four fields of a grant.
pub(super) fn put_grant(out: &mut Vec<u8>, grant: &Grant) {
    for field in [grant.rate_kib, grant.expire_s, grant.next_renewal_ms, grant.renewal_step_ms] {
        out.extend_from_slice(&field.to_be_bytes());
    }
}

/// Writes a program and its cookie without the zero words at its end.
pub(super) fn put_program(out: &mut Vec<u8>, program: &ProgramDecision) {
    let used = program.cookie.iter().rposition(|&byte| byte != 0).map_or(0, |last| last + 1);
    let words = used.div_ceil(4);
    out.extend_from_slice(&program.expire_s.to_be_bytes());
    out.extend_from_slice(&[program.program, 0, 0, words as u8]);
    out.extend_from_slice(&program.cookie[..words * 4]);
}
