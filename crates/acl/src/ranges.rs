//! Ranges: numbers that a field of a packet may have, such as `22,80-90`.

use std::fmt;

/// Inclusive ranges of numbers, in the order in which they are written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ranges(Vec<(u32, u32)>);

impl Ranges {
    /// Makes ranges from their first and last numbers.
    pub fn new(ranges: Vec<(u32, u32)>) -> Self {
        Self(ranges)
    }

    /// Returns whether no number is in a range.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the numbers that are in a range of both. O(product of their lengths).
    pub fn intersection(&self, other: &Self) -> Self {
        let pairs =
            self.iter().flat_map(|a| other.iter().map(move |b| (a.0.max(b.0), a.1.min(b.1))));
        Self(pairs.filter(|(first, last)| first <= last).collect())
    }

    /// Makes the range of one number.
    pub fn single(number: u32) -> Self {
        Self(vec![(number, number)])
    }

    /// Parses numbers and ranges with commas between them; `name` translates a word, and `most` is the
    /// greatest number.
    ///
    /// # Errors
    ///
    /// A description of the error.
    pub fn parse(
        text: &str,
        most: u32,
        name: impl Fn(&str) -> Option<u32>,
    ) -> Result<Self, String> {
        let number = |text: &str| match text.parse::<u32>() {
            Ok(number) if number <= most => Ok(number),
            Ok(_) => Err(format!("{text} is out of range: at most {most}")),
            Err(_) => name(text).ok_or_else(|| format!("{text:?} is not a number up to {most}")),
        };
        let range = |text: &str| {
            let (first, last) = match text.split_once('-') {
                // A name may contain a hyphen.
                Some((first, last)) if name(text).is_none() => (number(first)?, number(last)?),
                _ => (number(text)?, number(text)?),
            };
            if first > last {
                return Err(format!("{text} is empty: write {last}-{first}"));
            }
            Ok((first, last))
        };
        text.split(',').map(range).collect::<Result<_, _>>().map(Self)
    }

    /// Returns whether a number is in a range.
    pub fn contains(&self, number: u32) -> bool {
        self.iter().any(|(first, last)| (first..=last).contains(&number))
    }

    /// Iterates over the ranges.
    pub fn iter(&self) -> impl Iterator<Item = (u32, u32)> {
        self.0.iter().copied()
    }

    /// Returns the ranges in ascending order, those that touch as one.
    pub fn merged(&self) -> Vec<(u32, u32)> {
        let mut sorted = self.0.clone();
        sorted.sort_unstable();
        let mut merged: Vec<(u32, u32)> = Vec::new();
        for (first, last) in sorted {
            match merged.last_mut() {
                Some((_, end)) if first <= end.saturating_add(1) => *end = last.max(*end),
                _ => merged.push((first, last)),
            }
        }
        merged
    }

    /// Returns the number, if there is only one.
    pub fn number(&self) -> Option<u32> {
        match self.0[..] {
            [(first, last)] if first == last => Some(first),
            _ => None,
        }
    }
}

impl fmt::Display for Ranges {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, (first, last)) in self.iter().enumerate() {
            let comma = if at == 0 { "" } else { "," };
            if first == last {
                write!(f, "{comma}{first}")?;
            } else {
                write!(f, "{comma}{first}-{last}")?;
            }
        }
        Ok(())
    }
}
