//! Integers in network order at an offset.
//!
//! The views call these only within the length that `parse` has checked, so the
//! bounds checks here never fire; over an array they are gone after inlining.

/// Reads `N` bytes from `at` on.
#[inline(always)]
pub(crate) fn take<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    let mut out = [0; N];
    out.copy_from_slice(&bytes[at..at + N]);
    out
}

#[inline(always)]
pub(crate) fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes(take(bytes, at))
}

#[inline(always)]
pub(crate) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes(take(bytes, at))
}

#[inline(always)]
pub(crate) fn u128_at(bytes: &[u8], at: usize) -> u128 {
    u128::from_be_bytes(take(bytes, at))
}

/// Writes `value` from `at` on.
#[inline(always)]
pub(crate) fn put<const N: usize>(bytes: &mut [u8], at: usize, value: [u8; N]) {
    bytes[at..at + N].copy_from_slice(&value);
}
