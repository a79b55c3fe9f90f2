//! Durations as Go's `time.Duration` prints and parses them: `3h59m51.3s`, `-12.223534ms`, `0s`.
//!
//! ```text
//!   [sign] { digits [ "." digits ] unit }     unit: ns, us, µs, ms, s, m, h; "0" alone has none
//! ```
//!
//! CrowdSec writes the time that a decision has left in this form, negative after its end. The
//! parser accepts all that Go's does, since other programs may add decisions by their own text. As
//! in Go, a part of a nanosecond is dropped, and 64 bits of nanoseconds, 292 years, are the limit.
//!
//! Source: `ParseDuration` in Go's package `time`.

use jiff::SignedDuration;

/// The digits of a fraction that are read; a nanosecond is 3.6e-12 of an hour.
const FRACTION_DIGITS: usize = 18;

/// Parses a duration; `None` if the text is none, or out of range.
pub(super) fn parse(text: &str) -> Option<SignedDuration> {
    let (sign, mut rest) = match text.strip_prefix('-') {
        Some(rest) => (-1, rest),
        None => (1, text.strip_prefix('+').unwrap_or(text)),
    };
    if rest == "0" {
        return Some(SignedDuration::ZERO);
    }
    if rest.is_empty() {
        return None;
    }
    let mut nanoseconds: i128 = 0;
    while !rest.is_empty() {
        let (whole, after) = split_digits(rest);
        let (fraction, after) = match after.strip_prefix('.') {
            Some(after) => split_digits(after),
            None => ("", after),
        };
        if whole.is_empty() && fraction.is_empty() {
            return None;
        }
        let end = after.find(|c: char| c == '.' || c.is_ascii_digit()).unwrap_or(after.len());
        let (unit, after) = after.split_at(end);
        let unit = unit_nanoseconds(unit)?;
        nanoseconds += number(whole)? * unit;
        let fraction = &fraction[..fraction.len().min(FRACTION_DIGITS)];
        nanoseconds += number(fraction)? * unit / 10_i128.pow(fraction.len() as u32);
        if nanoseconds > i128::from(i64::MAX) {
            return None;
        }
        rest = after;
    }
    Some(SignedDuration::from_nanos((sign * nanoseconds) as i64))
}

fn split_digits(text: &str) -> (&str, &str) {
    text.split_at(text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len()))
}

/// Returns the value of digits, 0 if there are none; `None` if it exceeds 64 bits.
fn number(digits: &str) -> Option<i128> {
    if digits.is_empty() { Some(0) } else { digits.parse::<u64>().ok().map(i128::from) }
}

fn unit_nanoseconds(unit: &str) -> Option<i128> {
    Some(match unit {
        "ns" => 1,
        // The micro sign and the Greek letter.
        "us" | "\u{b5}s" | "\u{3bc}s" => 1_000,
        "ms" => 1_000_000,
        "s" => 1_000_000_000,
        "m" => 60_000_000_000,
        "h" => 3_600_000_000_000,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn duration_of_each_unit_is_parsed() {
        let cases: [(&str, i64); 20] = [
            ("0", 0),
            ("-0", 0),
            ("0s", 0),
            ("1ns", 1),
            ("1us", 1_000),
            ("1µs", 1_000),
            ("1μs", 1_000),
            ("1ms", 1_000_000),
            ("1s", 1_000_000_000),
            ("+1m", 60_000_000_000),
            ("1h", 3_600_000_000_000),
            ("3h59m51.3s", 14_391_300_000_000),
            ("9m59.019601379s", 599_019_601_379),
            ("-12.223534ms", -12_223_534),
            ("-1h0m0.5s", -3_600_500_000_000),
            (".5s", 500_000_000),
            ("5.s", 5_000_000_000),
            ("1s1h", 3_601_000_000_000),
            ("0.3333333333333333333333333h", 1_199_999_999_999),
            ("2562047h47m16.854775807s", i64::MAX),
        ];
        for (text, nanoseconds) in cases {
            assert_eq!(parse(text), Some(SignedDuration::from_nanos(nanoseconds)), "{text}");
        }
    }

    #[test]
    fn text_that_is_no_duration_is_refused() {
        for text in [
            "",
            "-",
            "s",
            ".s",
            "5",
            "1h5",
            "5d",
            "1 s",
            "--1s",
            "1s-1s",
            "1h+1m",
            "1..5s",
            "1S",
            "ü",
            "1ü",
            "٣s",
            "2562047h47m16.854775808s",
            "99999999999999999999s",
            "18446744073709551615h18446744073709551615h",
        ] {
            assert_eq!(parse(text), None, "{text}");
        }
    }
}
