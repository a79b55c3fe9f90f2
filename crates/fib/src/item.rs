//! The items of an array in an image: plain numbers, or several numbers side by side.
//!
//! A number is stored in little-endian order on every machine, so that on nearly all machines an
//! array in the file equals the array in memory. An item of several numbers stores them in order,
//! without gaps.

/// A plain number, or several, as an image stores it.
pub trait Item: Copy {
    /// The number of bytes in a file.
    const BYTES: usize;

    /// Writes the item to the first [`BYTES`](Self::BYTES) of `bytes`.
    ///
    /// # Panics
    ///
    /// If `bytes` is shorter.
    fn put(self, bytes: &mut [u8]);

    /// Reads an item from the first [`BYTES`](Self::BYTES) of `bytes`.
    ///
    /// # Panics
    ///
    /// If `bytes` is shorter.
    fn get(bytes: &[u8]) -> Self;
}

/// Implements [`Item`] for integers.
macro_rules! number {
    ($($int:ty)*) => {$(
        impl Item for $int {
            const BYTES: usize = size_of::<$int>();

            #[inline(always)]
            fn put(self, bytes: &mut [u8]) {
                bytes[..Self::BYTES].copy_from_slice(&self.to_le_bytes());
            }
            #[inline(always)]
            fn get(bytes: &[u8]) -> Self {
                let mut number = [0; size_of::<$int>()];
                number.copy_from_slice(&bytes[..Self::BYTES]);
                Self::from_le_bytes(number)
            }
        }
    )*};
}

number!(u8 u16 u32 u64 u128);

/// An address and a hop, or a count: the widest range entry.
impl<A: Item> Item for (A, u32) {
    const BYTES: usize = A::BYTES + 4;

    #[inline(always)]
    fn put(self, bytes: &mut [u8]) {
        self.0.put(bytes);
        self.1.put(&mut bytes[A::BYTES..]);
    }
    #[inline(always)]
    fn get(bytes: &[u8]) -> Self {
        (A::get(bytes), u32::get(&bytes[A::BYTES..]))
    }
}

#[cfg(test)]
mod tests {
    use super::Item;

    fn check_round_trip<T: Item + PartialEq + core::fmt::Debug>(items: &[T]) {
        for &item in items {
            let mut bytes = [0xa5; 40];
            item.put(&mut bytes);
            assert_eq!(T::get(&bytes), item);
            assert!(
                bytes[T::BYTES..].iter().all(|&byte| byte == 0xa5),
                "only its own bytes are written"
            );
        }
    }

    #[test]
    fn items_are_read_as_they_were_written() {
        check_round_trip(&[0u8, 7, 255]);
        check_round_trip(&[0u16, 0x1234]);
        check_round_trip(&[1u32, 0x1234_5678]);
        check_round_trip(&[u64::MAX, 0x1234_5678_9abc_def0]);
        check_round_trip(&[u128::MAX - 3, 1 << 100]);
        check_round_trip(&[(1u128 << 90, 77u32), (0, u32::MAX)]);
        check_round_trip(&[(1u8, 77u32)]);
        let mut bytes = [0; 4];
        0x0102_0304u32.put(&mut bytes);
        assert_eq!(bytes, [4, 3, 2, 1], "the lowest byte comes first");
    }
}
