//! Parses fields, numbers and prefixes from bytes.
//!
//! The standard library's parsers need `str` and are general; a table has a million lines. This
//! parser reads the plain forms that tables consist of (four decimal numbers; groups of hexadecimal
//! digits with at most one `::`) in one pass over the bytes. It passes everything else, including
//! everything that looks wrong, to `str::parse`, which decides and returns the reason. So both
//! agree, unless the fast path accepts invalid text: the tests compare the two on nearly valid
//! text.

use fib::{Addr, BadPrefix, Prefix};

use crate::prefix::AnyPrefix;

/// Splits off the first field, at blanks or tabs; leading blanks of both parts are removed.
#[inline]
pub(crate) fn field(line: &[u8]) -> (&[u8], &[u8]) {
    let line = skip_blanks(line);
    let end = line.iter().position(|&b| b == b' ' || b == b'\t').unwrap_or(line.len());
    (&line[..end], skip_blanks(&line[end..]))
}

/// Returns the first field as a label: blanks inside the strings of JSON belong to it.
///
/// JSON begins with `{`, `[` or `"`. A string that does not end is no JSON, and the field ends at
/// the first blank.
#[inline]
pub(crate) fn label(line: &[u8]) -> &[u8] {
    let (first, rest) = field(line);
    if rest.is_empty() || !matches!(first.first(), Some(b'{' | b'[' | b'"')) {
        return first;
    }
    json_label(skip_blanks(line)).unwrap_or(first)
}

#[cold]
fn json_label(line: &[u8]) -> Option<&[u8]> {
    let (mut is_quoted, mut is_escaped) = (false, false);
    for (at, &byte) in line.iter().enumerate() {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' => is_escaped = is_quoted,
            b'"' => is_quoted = !is_quoted,
            b' ' | b'\t' if !is_quoted => return Some(&line[..at]),
            _ => {}
        }
    }
    (!is_quoted).then_some(line)
}

#[inline]
fn skip_blanks(line: &[u8]) -> &[u8] {
    let begin = line.iter().position(|&b| b != b' ' && b != b'\t').unwrap_or(line.len());
    &line[begin..]
}

/// Returns whether a comment begins here (`#`, `;` or `%`).
#[inline]
pub(crate) fn is_comment(text: &[u8]) -> bool {
    matches!(text.first(), Some(b'#' | b';' | b'%'))
}

/// Reads a number of decimal digits only.
pub(crate) fn number(text: &[u8]) -> Option<u64> {
    if text.is_empty() {
        return None;
    }
    text.iter().try_fold(0u64, |n, &b| {
        let digit = b.is_ascii_digit().then_some(u64::from(b.wrapping_sub(b'0')))?;
        n.checked_mul(10)?.checked_add(digit)
    })
}

/// Reads `ADDRESS/LENGTH` or `ADDRESS` of either family; with `truncate`, bits beyond the length are cleared.
///
/// # Errors
///
/// The reason, with the text and, for host bits, the prefix that was probably meant.
pub fn prefix(text: &[u8], truncate: bool) -> Result<AnyPrefix, String> {
    let fast = match v4(text) {
        Some((addr, len)) => Prefix::new(addr, len).ok().map(AnyPrefix::V4),
        None => v6(text).and_then(|(addr, len)| Prefix::new(addr, len).ok().map(AnyPrefix::V6)),
    };
    match fast {
        Some(prefix) => Ok(prefix),
        None => slow(text, truncate),
    }
}

#[cold]
fn slow(text: &[u8], truncate: bool) -> Result<AnyPrefix, String> {
    let text = core::str::from_utf8(text).map_err(|_| "the prefix is not text".to_owned())?;
    if text.contains(':') {
        read(text, truncate).map(AnyPrefix::V6)
    } else {
        read(text, truncate).map(AnyPrefix::V4)
    }
}

fn read<A: Addr>(text: &str, truncate: bool) -> Result<Prefix<A>, String> {
    match text.parse::<Prefix<A>>() {
        Ok(prefix) => Ok(prefix),
        Err(BadPrefix::HostBits) if truncate => {
            let (addr, len) = text.split_once('/').unwrap_or((text, ""));
            Ok(Prefix::truncate(A::parse(addr).unwrap_or_default(), len.parse().unwrap_or(A::BITS)))
        }
        Err(error) => Err(error.describe::<A>(text)),
    }
}

/// Reads the plain form of an IPv4 address and length; a number here has one to
/// three digits and no leading zero.
#[inline]
fn v4(text: &[u8]) -> Option<(u32, u32)> {
    let mut at = 0;
    let mut decimal = |stop: u8| -> Option<(u32, bool)> {
        let first = u32::from(text.get(at)?.wrapping_sub(b'0'));
        if first > 9 {
            return None;
        }
        let mut value = first;
        at += 1;
        while let Some(&b) = text.get(at) {
            let digit = b.wrapping_sub(b'0');
            if digit > 9 {
                if b != stop {
                    return None;
                }
                at += 1;
                return (value <= 255).then_some((value, true));
            }
            // "01" may mean octal: left to the slow path, which rejects it.
            if value == 0 || value > 255 {
                return None;
            }
            value = value * 10 + u32::from(digit);
            at += 1;
        }
        (value <= 255).then_some((value, false))
    };
    let (a, true) = decimal(b'.')? else { return None };
    let (b, true) = decimal(b'.')? else { return None };
    let (c, true) = decimal(b'.')? else { return None };
    let (d, more) = decimal(b'/')?;
    let addr = a << 24 | b << 16 | c << 8 | d;
    if !more {
        return Some((addr, 32));
    }
    let (len, false) = decimal(0)? else { return None };
    Some((addr, len))
}

/// Reads the plain form of an IPv6 address and length: groups of one to four
/// hexadecimal digits, at most one `::`, no embedded IPv4.
#[inline]
fn v6(text: &[u8]) -> Option<(u128, u32)> {
    let mut high = 0u128; // groups before `::`
    let mut low = 0u128; // groups after it
    let (mut before, mut after) = (0u32, 0u32);
    let mut gap = false;
    let mut at = 0;
    if text.starts_with(b"::") {
        gap = true;
        at = 2;
    }
    loop {
        let mut group = 0u128;
        let begin = at;
        while let Some(digit) = text.get(at).and_then(|&b| hex(b)) {
            group = group << 4 | u128::from(digit);
            at += 1;
            if at - begin > 4 {
                return None;
            }
        }
        let empty = at == begin;
        // A group may lack digits only at the end, after `::`.
        if empty && !(gap && after == 0 && matches!(text.get(at), None | Some(b'/'))) {
            return None;
        }
        if !empty {
            if gap {
                low = low << 16 | group;
                after += 1;
            } else {
                high = high << 16 | group;
                before += 1;
            }
            if before + after > 8 {
                return None;
            }
        }
        match text.get(at) {
            Some(b':') => {
                at += 1;
                if text.get(at) == Some(&b':') {
                    if gap {
                        return None;
                    }
                    gap = true;
                    at += 1;
                }
            }
            end => {
                let len = match end {
                    None => 128,
                    Some(b'/') => {
                        let digits = &text[at + 1..];
                        if digits.is_empty() || digits.len() > 3 {
                            return None;
                        }
                        number(digits)? as u32
                    }
                    Some(_) => return None,
                };
                return match (gap, before + after) {
                    (false, 8) => Some((high, len)),
                    (true, 0..=7) if before == 0 => Some((low, len)),
                    (true, 0..=7) => Some((high << (16 * (8 - before)) | low, len)),
                    _ => None,
                };
            }
        }
    }
}

#[inline]
fn hex(b: u8) -> Option<u8> {
    match b {
        b'0'..=b'9' => Some(b - b'0'),
        b'a'..=b'f' => Some(b - b'a' + 10),
        b'A'..=b'F' => Some(b - b'A' + 10),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::{AnyPrefix, field, number, prefix, v4, v6};
    use fib::Prefix;
    use proptest::prelude::*;

    /// Returns the result of the library's own parser.
    fn oracle(text: &str) -> Option<AnyPrefix> {
        if text.contains(':') {
            text.parse().ok().map(AnyPrefix::V6)
        } else {
            text.parse().ok().map(AnyPrefix::V4)
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(4000))]

        #[test]
        fn valid_prefix_is_read_by_fast_path(addr: u32, len in 0u32..=32, whole: u128,
                                                   blank in 0u32..128, long in 0u32..=128) {
            let prefix = Prefix::truncate(addr, len);
            prop_assert_eq!(v4(prefix.to_string().as_bytes()), Some((prefix.addr(), len)));
            // Zero runs of every kind, so that `::` is at every position.
            let whole = whole & !(u128::MAX.checked_shr(blank).unwrap_or(0));
            for addr in [whole, whole.swap_bytes(), whole.rotate_left(37)] {
                let prefix = Prefix::truncate(addr, long);
                let text = prefix.to_string();
                // Mapped addresses are printed with dots, which the slow path reads.
                if !text.contains('.') {
                    prop_assert_eq!(v6(text.as_bytes()), Some((prefix.addr(), long)), "{}", text);
                }
                prop_assert_eq!(super::prefix(text.as_bytes(), false), Ok(AnyPrefix::V6(prefix)));
            }
        }

        #[test]
        fn fast_scan_agrees_with_parse(text in "[0-9.]{0,16}(/[0-9]{0,4})?|[0-9a-fA-F:.]{0,40}(/[0-9]{0,4})?|([0-9]{1,3}\\.){3}[0-9]{1,3}(/[0-9]{1,3})?|([0-9a-f]{0,4}:){1,8}[0-9a-f]{0,5}(/[0-9]{1,3})?|(:?[0-9a-f]{0,2}:){1,9}[0-9a-f]?") {
            prop_assert_eq!(prefix(text.as_bytes(), false).ok(), oracle(&text), "{}", text);
        }
    }

    #[test]
    fn malformed_prefix_is_rejected() {
        for text in [
            "",
            "/",
            "1.2.3.4/",
            "1.2.3.4/33",
            "1.2.3",
            "1.2.3.4.5",
            "1.2.3.4x",
            "01.2.3.4",
            "256.1.1.1",
            "1..2.3",
            "1.2.3.0/+24",
            ":",
            ":::",
            "::/129",
            "1::2::3",
            "1:2:3:4:5:6:7",
            "1:2:3:4:5:6:7:8:9",
            "::1:",
            ":1::",
            "12345::",
            "1:2:3:4:5:6:7:8::/0",
            "g::",
            "::/",
        ] {
            assert!(prefix(text.as_bytes(), true).is_err(), "{text:?} was accepted");
            assert_eq!(oracle(text), None, "{text:?} is valid: a bad test case");
        }
        assert!(prefix(b"10.0.0.0\xff", false).is_err());
    }

    #[test]
    fn host_bits_error_suggests_prefix() {
        let error = prefix(b"10.1.2.3/8", false).unwrap_err();
        assert!(error.contains("10.0.0.0/8"), "{error}");
        let AnyPrefix::V6(cut) = prefix(b"2001:db8::1/32", true).unwrap() else { panic!() };
        assert_eq!(cut.to_string(), "2001:db8::/32");
    }

    #[test]
    fn field_and_number_are_split() {
        assert_eq!(field(b" \ta\t b c"), (&b"a"[..], &b"b c"[..]));
        assert_eq!(field(b"  "), (&b""[..], &b""[..]));
        assert_eq!(number(b"18446744073709551615"), Some(u64::MAX));
        assert_eq!(number(b"18446744073709551616"), None);
        assert_eq!(number(b"+1"), None);
        assert_eq!(number(b""), None);
    }
}
