//! The Internet checksum: the ones' complement of the ones' complement sum of
//! 16-bit words (RFC 1071), and its incremental update (RFC 1624).
//!
//! ```text
//!   bytes    45 00 | 00 3c | 1c 46 | …          words in network order
//!   sum      4500 + 003c + 1c46 + …             in 64 bits, carries kept
//!   fold     add the upper half to the lower until 16 bits are left
//!   checksum complement of that
//! ```
//!
//! Carries accumulate above the 16 bits and are folded at the end, so four bytes are added at once:
//! a 64-bit sum of 32-bit words overflows only after 2^32 words.
//!
//! **Incremental update.** When a word of the covered bytes changes from m to m', equation 3 of RFC
//! 1624 is `HC' = ~(~HC + ~m + m')`. The older equation of RFC 1141 is shorter and wrong in one
//! case: it can produce 0xffff, which no full computation gives (a sum with a nonzero word never
//! folds to zero), and receivers that compare instead of summing then reject the packet. The tests
//! cover all 2^16 words for the change of a TTL, and compare random changes with a full
//! computation.

/// A ones' complement sum under construction.
///
/// Pieces may have odd lengths: the next piece then starts in the middle of a
/// word, as it does in the packet.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sum {
    value: u64,
    odd: bool,
}

impl Sum {
    /// The empty sum.
    pub const ZERO: Self = Self { value: 0, odd: false };

    /// Adds bytes. O(bytes).
    #[inline]
    pub fn bytes(self, bytes: &[u8]) -> Self {
        let mut piece = 0u64;
        let (words, rest) = bytes.as_chunks::<4>();
        for word in words {
            piece += u64::from(u32::from_be_bytes(*word));
        }
        piece += match *rest {
            [a] => u64::from(a) << 8,
            [a, b] => u64::from(u16::from_be_bytes([a, b])),
            [a, b, c] => (u64::from(u16::from_be_bytes([a, b])) << 8 << 8) + (u64::from(c) << 8),
            _ => 0,
        };
        // A piece that starts in the middle of a word has its bytes in the other
        // halves; swapping the folded sum does the same (RFC 1071, 2.B).
        let piece = if self.odd { u64::from(fold(piece).swap_bytes()) } else { piece };
        Self { value: add(self.value, piece), odd: self.odd ^ (bytes.len() % 2 == 1) }
    }

    /// Adds a 16-bit word, on a word boundary.
    #[inline]
    pub fn word(self, word: u16) -> Self {
        Self { value: add(self.value, u64::from(word)), ..self }
    }

    /// Folds to 16 bits: 0xffff if a valid checksum was among the bytes.
    #[inline]
    pub fn fold(self) -> u16 {
        fold(self.value)
    }

    /// Returns the checksum of the added bytes.
    #[inline]
    pub fn checksum(self) -> u16 {
        !self.fold()
    }
}

/// Adds with end-around carry.
#[inline(always)]
fn add(a: u64, b: u64) -> u64 {
    let (sum, carry) = a.overflowing_add(b);
    sum + u64::from(carry)
}

#[inline(always)]
fn fold(value: u64) -> u16 {
    let value = (value >> 32) + (value & 0xffff_ffff);
    let value = (value >> 16) + (value & 0xffff);
    let value = (value >> 16) + (value & 0xffff);
    ((value >> 16) + (value & 0xffff)) as u16
}

/// Returns the checksum of `bytes`, in which the checksum field is zero.
///
/// # Examples
///
/// ```
/// // RFC 1071, section 3: the sum of these is 0xddf2.
/// let bytes = [0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7];
/// assert_eq!(fingerpost_wire::checksum::checksum(&bytes), !0xddf2);
/// ```
#[inline]
pub fn checksum(bytes: &[u8]) -> u16 {
    Sum::ZERO.bytes(bytes).checksum()
}

/// Returns whether `bytes`, which contain their checksum, are intact.
#[inline]
pub fn is_valid(bytes: &[u8]) -> bool {
    Sum::ZERO.bytes(bytes).fold() == 0xffff
}

/// Begins the sum of a TCP or UDP message over IPv4 with its pseudo header (RFC 9293, 3.1):
/// addresses, protocol, and the message's length in bytes.
#[inline]
pub fn pseudo_ipv4(src: u32, dst: u32, protocol: u8, len: u16) -> Sum {
    Sum::ZERO
        .bytes(&src.to_be_bytes())
        .bytes(&dst.to_be_bytes())
        .word(u16::from(protocol))
        .word(len)
}

/// Begins the sum of a message over IPv6 with its pseudo header (RFC 8200, 8.1).
#[inline]
pub fn pseudo_ipv6(src: u128, dst: u128, protocol: u8, len: u32) -> Sum {
    Sum::ZERO
        .bytes(&src.to_be_bytes())
        .bytes(&dst.to_be_bytes())
        .bytes(&len.to_be_bytes())
        .word(u16::from(protocol))
}

/// Returns the checksum after one covered word changed from `old` to `new`
/// (RFC 1624, equation 3).
///
/// # Examples
///
/// ```
/// // The example of RFC 1624, section 4: the older equation gives 0xffff here.
/// assert_eq!(fingerpost_wire::checksum::update(0xdd2f, 0x5555, 0x3285), 0x0000);
/// ```
#[inline(always)]
pub fn update(checksum: u16, old: u16, new: u16) -> u16 {
    let sum = u32::from(!checksum) + u32::from(!old) + u32::from(new);
    let sum = (sum >> 16) + (sum & 0xffff);
    !((sum >> 16) + sum) as u16
}

/// Returns the checksum after two adjoining covered words changed, such as an
/// IPv4 address or a TCP sequence number.
#[inline]
pub fn update32(checksum: u16, old: u32, new: u32) -> u16 {
    let upper = update(checksum, (old >> 16) as u16, (new >> 16) as u16);
    update(upper, old as u16, new as u16)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The definition: one word at a time with end-around carry.
    fn slow(bytes: &[u8]) -> u16 {
        let mut sum = 0u16;
        for pair in bytes.chunks(2) {
            let word = u16::from_be_bytes([pair[0], *pair.get(1).unwrap_or(&0)]);
            let (next, carry) = sum.overflowing_add(word);
            sum = next + u16::from(carry);
        }
        !sum
    }

    #[test]
    fn sum_equals_definition_at_every_length_and_cut() {
        for seed in 0..32 {
            let mut bytes = [0u8; 67];
            fastrand::Rng::with_seed(seed).fill(&mut bytes);
            if seed == 0 {
                bytes = [0xff; 67];
            }
            for len in 0..bytes.len() {
                let expect = slow(&bytes[..len]);
                assert_eq!(checksum(&bytes[..len]), expect);
                for cut in 0..=len {
                    let sum = Sum::ZERO.bytes(&bytes[..cut]).bytes(&bytes[cut..len]);
                    assert_eq!(sum.checksum(), expect, "length {len} cut at {cut}");
                }
            }
        }
    }

    #[test]
    fn long_runs_of_ones_do_not_overflow() {
        let bytes = [0xff; 65535];
        assert_eq!(checksum(&bytes), slow(&bytes));
    }

    /// Every value of the word that holds TTL and protocol, and several values of
    /// everything else: decremented and updated equals computed from scratch.
    #[test]
    fn ttl_decrement_equals_fresh_checksum_for_all_words() {
        for rest in [0u32, 1, 0xffff, 0x4500_0054, 0xffff_fffe, 0x8000_7fff, 0xdead_beef] {
            for word in 0x0100..=0xffffu16 {
                let fresh = |word: u16| {
                    let mut bytes = [0; 6];
                    bytes[..4].copy_from_slice(&rest.to_be_bytes());
                    bytes[4..].copy_from_slice(&word.to_be_bytes());
                    slow(&bytes)
                };
                let less = word - 0x0100;
                // All words would be zero: not a header.
                if rest == 0 && less == 0 {
                    continue;
                }
                assert_eq!(update(fresh(word), word, less), fresh(less), "{rest:x} {word:x}");
            }
        }
    }

    #[test]
    fn incremental_update_keeps_every_checksum_valid() {
        for checksum in 0..=0xffffu16 {
            // ~HC is congruent to the sum of all words, so the other words sum to
            // ~HC - m; whatever m' is, the result must make the whole valid again.
            for (old, new) in [(0, 0), (0, 0xffff), (0xffff, 0), (0x4006, 0x3f06), (1, 2)] {
                let after = update(checksum, old, new);
                let rest = u64::from(!checksum) + u64::from(!old);
                assert_eq!(fold(rest + u64::from(new) + u64::from(after)), 0xffff);
            }
        }
    }

    #[test]
    fn address_change_equals_fresh_checksum() {
        let mut rng = fastrand::Rng::with_seed(7);
        for _ in 0..20_000 {
            let mut bytes = [0u8; 20];
            rng.fill(&mut bytes);
            bytes[0] = 0x45;
            let before = slow(&bytes);
            let old = u32::from_be_bytes(bytes[12..16].try_into().unwrap());
            let new = old.wrapping_mul(0x9e37_79b9) ^ u32::from(rng.u8(..));
            bytes[12..16].copy_from_slice(&new.to_be_bytes());
            assert_eq!(update32(before, old, new), slow(&bytes));
        }
    }

    #[test]
    fn captured_header_is_valid_and_flipped_bit_is_not() {
        // A TCP segment's IPv4 header as captured (checksum 0xb1e6).
        let header = [
            0x45, 0x00, 0x00, 0x3c, 0x1c, 0x46, 0x40, 0x00, 0x40, 0x06, 0xb1, 0xe6, 0xac, 0x10,
            0x0a, 0x63, 0xac, 0x10, 0x0a, 0x0c,
        ];
        assert!(is_valid(&header));
        for bit in 0..header.len() * 8 {
            let mut flipped = header;
            flipped[bit / 8] ^= 0x80 >> (bit % 8);
            assert!(!is_valid(&flipped), "bit {bit}");
        }
    }
}
