//! What an array of an image may consist of: plain numbers, or some of them side by side.
//!
//! A number is stored with its lowest byte first, whatever the machine, so that on nearly
//! all of them an array in the file is the array in memory. What has several numbers
//! stores them in order, without gaps.

/// A plain number, or some of them, as an image holds it.
pub trait Item: Copy {
    /// How many bytes it takes in a file.
    const BYTES: usize;

    /// Writes it to the first [`BYTES`](Self::BYTES) of `bytes`.
    ///
    /// # Panics
    ///
    /// If there are fewer.
    fn put(self, bytes: &mut [u8]);

    /// Reads it from the first [`BYTES`](Self::BYTES) of `bytes`.
    ///
    /// # Panics
    ///
    /// If there are fewer.
    fn get(bytes: &[u8]) -> Self;
}

/// Lists the numbers, equal but for their widths.
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

/// An address and a hop, or a count: a range as wide as can be.
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

    fn goes_round<T: Item + PartialEq + core::fmt::Debug>(items: &[T]) {
        for &item in items {
            let mut bytes = [0xa5; 40];
            item.put(&mut bytes);
            assert_eq!(T::get(&bytes), item);
            assert!(bytes[T::BYTES..].iter().all(|&byte| byte == 0xa5), "no more than its own");
        }
    }

    #[test]
    fn every_item_goes_round() {
        goes_round(&[0u8, 7, 255]);
        goes_round(&[0u16, 0x1234]);
        goes_round(&[1u32, 0x1234_5678]);
        goes_round(&[u64::MAX, 0x1234_5678_9abc_def0]);
        goes_round(&[u128::MAX - 3, 1 << 100]);
        goes_round(&[(1u128 << 90, 77u32), (0, u32::MAX)]);
        goes_round(&[(1u8, 77u32)]);
        let mut bytes = [0; 4];
        0x0102_0304u32.put(&mut bytes);
        assert_eq!(bytes, [4, 3, 2, 1], "the lowest byte comes first");
    }
}
