//! Reads an input as text, as a prefix and as the name of an engine.
//!
//! A prefix is compared with the standard library's results for its two halves; the name of an
//! engine is parsed again from the name of its choice.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use fib::{Choice, Family, Prefix};

/// Plays one input; bytes that are not UTF-8 are skipped.
///
/// # Panics
///
/// If the two results differ.
pub fn text(input: &[u8]) {
    let Ok(text) = std::str::from_utf8(input) else { return };
    prefix::<u32, Ipv4Addr>(text, |addr| u128::from(u32::from(addr)));
    prefix::<u128, Ipv6Addr>(text, u128::from);
    name::<u8>(text);
    name::<u16>(text);
    name::<u32>(text);
    name::<u64>(text);
    name::<u128>(text);
}

fn prefix<A: Family, I: FromStr>(text: &str, number: impl Fn(I) -> u128) {
    let ours = text.parse::<Prefix<A>>();
    let (addr, len) = text.split_once('/').map_or((text, None), |(addr, len)| (addr, Some(len)));
    let digits = |len: &&str| !len.is_empty() && len.bytes().all(|byte| byte.is_ascii_digit());
    let len = match len {
        None => Some(A::BITS),
        Some(len) => Some(len).filter(digits).and_then(|len| len.parse().ok()),
    };
    let addr = addr.parse::<I>().ok().map(number);
    let theirs = addr.zip(len).filter(|&(addr, len)| {
        let host = u128::MAX.checked_shr(len + 128 - A::BITS).unwrap_or(0);
        len <= A::BITS && addr & host == 0
    });
    let same = |prefix: Prefix<A>| (prefix.addr().to_u128(), prefix.len());
    assert_eq!(ours.ok().map(same), theirs, "{text:?} as a prefix of {} bits", A::BITS);
    if let Ok(prefix) = ours {
        assert_eq!(
            prefix.to_string().parse(),
            Ok(prefix),
            "{text:?} differs when written and parsed again"
        );
    }
}

fn name<A: Family>(text: &str) {
    let Ok(choice) = Choice::parse::<A>(text) else { return };
    let name = choice.name::<A>();
    assert_eq!(Choice::parse::<A>(&name), Ok(choice), "{text:?} is {name:?}");
    assert!(choice.suits::<A>(), "{text:?} is accepted for {} bits", A::BITS);
}
