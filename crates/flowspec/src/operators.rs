//! Operators: the comparisons of a component, and the values for which they hold.
//!
//! A component is a list of pairs of an operator octet and a value of 1, 2, 4 or 8 octets (RFC 8955 4.2.1):
//!
//! ```text
//!   end of list │ and │ length of the value: 2 bits │ 0 │ less │ greater │ equal      numeric
//!                                                   │ 0 │ 0    │ not     │ match      bit mask
//! ```
//!
//! AND binds more tightly than OR; the AND of the first pair has no meaning.

use crate::octets::Octets;

const END: u8 = 0x80;
const AND: u8 = 0x40;

/// A pair of an operator and its value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Operator {
    bits: u8,
    pub(crate) value: u64,
}

impl Operator {
    fn is_and(self) -> bool {
        self.bits & AND != 0
    }

    /// Returns whether the numeric comparison holds.
    fn compares(self, number: u64) -> bool {
        let by = |bit: u8, holds: bool| self.bits & bit != 0 && holds;
        by(4, number < self.value) || by(2, number > self.value) || by(1, number == self.value)
    }

    /// Returns whether the comparison of bits holds.
    fn masks(self, bits: u64) -> bool {
        let holds = match self.bits & 1 != 0 {
            true => bits & self.value == self.value,
            false => bits & self.value != 0,
        };
        holds != (self.bits & 2 != 0)
    }
}

/// Reads a list of operators, and leaves `octets` behind it; `None` if it does not end.
pub(crate) fn read(octets: &mut Octets<'_>) -> Option<Vec<Operator>> {
    let mut operators = Vec::new();
    loop {
        let bits = octets.u8()?;
        let value = octets.number(1 << (bits >> 4 & 3))?;
        operators.push(Operator { bits, value });
        if bits & END != 0 {
            return Some(operators);
        }
    }
}

fn holds(operators: &[Operator], holds: impl Fn(Operator) -> bool) -> bool {
    let (mut any, mut all) = (false, true);
    for (at, operator) in operators.iter().enumerate() {
        if at > 0 && !operator.is_and() {
            any |= all;
            all = true;
        }
        all &= holds(*operator);
    }
    any | all
}

/// Returns the ranges of numbers up to `max` for which numeric comparisons hold, in ascending order.
/// O(n²) for n operators.
pub(crate) fn ranges(operators: &[Operator], max: u32) -> Vec<(u32, u32)> {
    // Between these numbers nothing changes.
    let mut starts: Vec<u64> = vec![0];
    starts.extend(operators.iter().flat_map(|op| [op.value, op.value.saturating_add(1)]));
    starts.retain(|start| *start <= max.into());
    starts.sort_unstable();
    starts.dedup();
    let ends = starts.iter().skip(1).map(|next| (next - 1) as u32).chain([max]);
    let mut ranges: Vec<(u32, u32)> = Vec::new();
    for (&start, end) in starts.iter().zip(ends) {
        if !holds(operators, |operator| operator.compares(start)) {
            continue;
        }
        match ranges.last_mut() {
            Some((_, last)) if u64::from(*last) + 1 == start => *last = end,
            _ => ranges.push((start as u32, end)),
        }
    }
    ranges
}

/// Returns whether comparisons of bits hold.
pub(crate) fn matches_bits(operators: &[Operator], bits: u64) -> bool {
    holds(operators, |operator| operator.masks(bits))
}

/// Writes numeric comparisons as in `>=80&<=90|=443`.
pub(crate) fn numeric_text(operators: &[Operator]) -> String {
    const SIGNS: [&str; 8] = ["never", "=", ">", ">=", "<", "<=", "!=", "any"];
    text(operators, |op| format!("{}{}", SIGNS[usize::from(op.bits & 7)], op.value))
}

/// Writes comparisons of bits as in `any 0x2&not all 0x10`.
pub(crate) fn mask_text(operators: &[Operator]) -> String {
    text(operators, |op| {
        let not = if op.bits & 2 != 0 { "not " } else { "" };
        let quantity = if op.bits & 1 != 0 { "all" } else { "any" };
        format!("{not}{quantity} {:#x}", op.value)
    })
}

fn text(operators: &[Operator], write: impl Fn(&Operator) -> String) -> String {
    let mut text = String::new();
    for operator in operators {
        if !text.is_empty() {
            text.push(if operator.is_and() { '&' } else { '|' });
        }
        text.push_str(&write(operator));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(octets: &[u8]) -> Vec<Operator> {
        let mut rest = Octets(octets);
        let operators = read(&mut rest).expect("a list that ends");
        assert!(rest.is_empty());
        operators
    }

    /// The examples of RFC 8955, section 4.3.
    #[test]
    fn lists_of_the_standard_have_their_ranges() {
        let ports = parse(&[0x03, 0x89, 0x45, 0x8b, 0x91, 0x1f, 0x90]);
        assert_eq!(ranges(&ports, u16::MAX.into()), [(137, 139), (8080, 8080)]);
        assert_eq!(numeric_text(&ports), ">=137&<=139|=8080");
        assert_eq!(ranges(&parse(&[0x81, 0x06]), 255), [(6, 6)]);
    }

    #[test]
    fn ranges_are_those_of_a_search_of_all_numbers() {
        let mut state = 7u32;
        let mut random = |below: u32| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 8) % below
        };
        let mut found = 0;
        for _ in 0..2000 {
            let count = 1 + random(4);
            let list: Vec<_> = (0..count)
                .map(|_| Operator {
                    bits: (random(256) as u8) & (AND | 7),
                    value: random(300).into(),
                })
                .collect();
            let by_ranges = ranges(&list, 255);
            for number in 0..=255u32 {
                // OR of ANDs, by splitting the list.
                let mut groups: Vec<Vec<Operator>> = Vec::new();
                for operator in &list {
                    match groups.last_mut() {
                        Some(group) if operator.is_and() => group.push(*operator),
                        _ => groups.push(vec![*operator]),
                    }
                }
                let expected =
                    groups.iter().any(|group| group.iter().all(|op| op.compares(number.into())));
                let is_in = by_ranges.iter().any(|(first, last)| (first..=last).contains(&&number));
                assert_eq!(is_in, expected, "{number} by {}", numeric_text(&list));
                found += usize::from(expected);
            }
        }
        assert!(found > 100_000);
    }

    #[test]
    fn bits_match_any_or_all_of_a_mask_or_not() {
        // SYN without ACK: match all of 2, and not any of 0x10.
        let syn = parse(&[0x01, 0x02, 0xc2, 0x10]);
        assert_eq!(
            [0x02, 0x12, 0x10, 0x00, 0x03].map(|bits| matches_bits(&syn, bits)),
            [true, false, false, false, true]
        );
        assert_eq!(mask_text(&syn), "all 0x2&not any 0x10");
        // Any of RST and FIN, or all of SYN and ACK.
        let list = parse(&[0x00, 0x05, 0x81, 0x12]);
        assert_eq!(
            [0x04, 0x01, 0x12, 0x02, 0x10].map(|bits| matches_bits(&list, bits)),
            [true, true, true, false, false]
        );
    }

    #[test]
    fn list_without_end_is_refused() {
        for octets in [&[][..], &[0x01], &[0x01, 6], &[0xb1, 0, 0, 0, 0, 0, 0, 6]] {
            assert!(read(&mut Octets(octets)).is_none(), "{octets:?}");
        }
    }
}
