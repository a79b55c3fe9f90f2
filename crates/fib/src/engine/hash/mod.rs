//! Hashing for the schemes that search by prefix length: Bloom filters, which state where a search
//! may succeed, and tables, which state where it does.
//!
//! ```text
//!   prefix of l bits ──hash──► 64 bits ┬─► 13 bits of filter l   "no" or "perhaps"
//!                                      └─► home slot in table l  its value, or none
//! ```
//!
//! One hash a prefix and length serves both. It is a fixed function, the same in
//! every process, so that a table can be reproduced. An attacker who can inject arbitrary routes
//! can therefore make some collide, which costs time and never a wrong answer.
//! [`bloom`] and [`table`] are the two structures, [`lengths`] has one of each for
//! every prefix length.
//!
//! Sizes follow the number of keys: a structure is rebuilt when it is too small
//! or by a tenth too large, so that tables that shrink give their memory back, and
//! a key that comes and goes at the border moves nothing.

pub(crate) mod bloom;
pub(crate) mod lengths;
pub(crate) mod table;

use crate::Addr;

/// Hashes the first `len` bits of an address, given with all others zero.
///
/// The finalizer of splitmix64, once for each 64 bits: every step of it can be
/// undone, so that different keys of up to 64 bits and one length never have the
/// same hash, and longer ones only by chance.
#[inline(always)]
pub(crate) fn hash<K: Addr>(key: K, len: u32) -> u64 {
    let wide = key.to_u128();
    let salt = u64::from(len).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let low = mix(wide as u64 ^ salt);
    if K::BITS > 64 { mix(low ^ (wide >> 64) as u64) } else { low }
}

#[inline(always)]
fn mix(x: u64) -> u64 {
    let x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// Maps a hash evenly to an index below `size`, without a division.
#[inline(always)]
pub(crate) fn place(hash: u64, size: usize) -> usize {
    ((u128::from(hash) * size as u128) >> 64) as usize
}

/// The number of keys to make room for when there are `keys`: a thirtieth more, so
/// that the next does not move all.
pub(crate) fn room(keys: usize) -> usize {
    if keys == 0 { 0 } else { keys + keys / 32 + 4 }
}

/// Returns whether room for `capacity` keys is neither too little nor too much.
pub(crate) fn suits(capacity: usize, keys: usize) -> bool {
    keys <= capacity && capacity <= keys + keys / 12 + 8 && (keys > 0 || capacity == 0)
}

#[cfg(test)]
mod tests {
    use super::{hash, place, room, suits};
    use alloc::vec;

    #[test]
    fn size_of_a_fresh_build_suits_and_stays_close() {
        for keys in 0..5_000 {
            let capacity = room(keys);
            assert!(suits(capacity, keys));
            // The size that updates leave is near the size that a build would choose.
            for kept in keys..keys * 2 + 20 {
                if suits(kept, keys) && keys > 500 {
                    assert!(kept * 10 <= capacity * 11 && capacity * 10 <= kept * 11);
                }
            }
        }
    }

    #[test]
    fn neighboring_prefixes_spread_evenly() {
        for len in [20, 48, 64, 128] {
            let mut counts = vec![0u32; 100];
            for i in 0..100_000u128 {
                counts[place(hash(i << (128 - len), len), 100)] += 1;
            }
            // A thousand each, give or take five standard deviations.
            assert!(counts.iter().all(|&n| (840..1160).contains(&n)), "{len}: {counts:?}");
        }
    }
}
