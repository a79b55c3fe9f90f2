//! Checksums that show whether two runs measured the same table, keys and answers.
//!
//! | sum | SHA-256 of |
//! |---|---|
//! | of a file | its bytes, as by `sha256sum` |
//! | of the routes | a line `PREFIX HOP\n` for each, by address and then length, the hop in decimal |
//! | of the answers | a 32-bit number for each key in turn, the lowest byte first: the hop, or 0 |
//!
//! Prefixes are written as everywhere: `192.0.2.0/24`, and of IPv6 as RFC 5952 has it.

use fib::{Addr, Hop, Prefix};
use sha2::{Digest, Sha256};

/// Returns the checksum of bytes.
pub(super) fn of_bytes(bytes: &[u8]) -> String {
    format!("{:x}", Sha256::digest(bytes))
}

/// Returns the checksum of sorted routes.
pub(super) fn of_routes<A: Addr>(routes: &[(Prefix<A>, Hop)]) -> String
where
    Prefix<A>: std::fmt::Display,
{
    let mut sum = Sha256::new();
    for (prefix, hop) in routes {
        sum.update(format!("{prefix} {}\n", hop.0));
    }
    format!("{:x}", sum.finalize())
}

/// Returns the checksum of answers.
pub(super) fn of_answers(hops: &[Hop]) -> String {
    let mut sum = Sha256::new();
    let mut bytes = Vec::with_capacity(4 << 12);
    for hops in hops.chunks(1 << 12) {
        bytes.clear();
        bytes.extend(hops.iter().flat_map(|hop| hop.0.to_le_bytes()));
        sum.update(&bytes);
    }
    format!("{:x}", sum.finalize())
}

#[cfg(test)]
mod tests {
    use super::{of_answers, of_bytes, of_routes};
    use fib::{Hop, Prefix};

    #[test]
    fn checksums_equal_those_of_sha256sum() {
        // The example of FIPS 180-2, appendix B.1.
        let abc = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(of_bytes(b"abc"), abc);
        let routes = [
            ("10.0.0.0/8".parse::<Prefix<u32>>().unwrap(), Hop(7)),
            ("10.1.0.0/16".parse().unwrap(), Hop(12)),
        ];
        assert_eq!(of_routes(&routes), of_bytes(b"10.0.0.0/8 7\n10.1.0.0/16 12\n"));
        let hops: Vec<Hop> = (0..10_000).map(Hop).collect();
        let bytes: Vec<u8> = (0..10_000u32).flat_map(u32::to_le_bytes).collect();
        assert_eq!(of_answers(&hops), of_bytes(&bytes));
    }
}
