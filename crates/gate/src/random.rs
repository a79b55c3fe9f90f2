//! Random numbers that cannot be guessed: the only source of keys, secrets and sessions.
//!
//! They are the operating system's (getrandom(2)), by the crate `getrandom`: the numbers of
//! `fastrand`, which tests and samples use, can be computed from a few others, and std's
//! `RandomState` promises nothing.

/// Returns 64 random bits.
///
/// # Panics
///
/// If the system has no random generator, as std's maps do: no safe key could be made.
pub fn word() -> u64 {
    getrandom::u64().expect("the system's random generator works")
}

#[cfg(test)]
mod tests {
    #[test]
    fn words_are_all_different_and_every_bit_is_used() {
        let words: std::collections::BTreeSet<u64> = (0..1000).map(|_| super::word()).collect();
        assert_eq!(words.len(), 1000);
        assert_eq!(words.iter().fold(0, |all, word| all | word), u64::MAX);
        assert_eq!(words.iter().fold(u64::MAX, |all, word| all & word), 0);
    }
}
