//! Lists of prefixes for policies, looked up a batch at a time.
//!
//! ```text
//!   text     192.0.2.0/24 64496     ─► Rib ─► Fib<u32>, Fib<u128> ─► number of a value
//!            2001:db8::/32 customers                                     │
//!            198.51.100.7      # nothing: true          values │ 64496 │ "customers" │ true │
//! ```
//!
//! A line is a prefix or an address and, after blanks, its value: a number, one or several words,
//! or nothing. The longest prefix decides. `#` and `;` begin a comment, so that lists such as
//! Spamhaus' DROP (`1.10.16.0/20 ; SBL256894`) are read as they are. A prefix with host bits set is
//! an error, because it is most often a mistake.
//!
//! [`Lists`] are all lists by name, a snapshot that is published as tables are
//! ([`fib::Publisher`]). The caller watches the files and publishes new lists, which apply to the
//! next batch of packets.

use core::fmt;
use std::collections::BTreeMap;
use std::sync::Arc;

use fib::{BadPrefix, Choice, Fib, Full, Hop, Prefix, Rib};

/// The value of a prefix in a list.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// The prefix is listed, without a value.
    True,
    /// A number.
    Number(f64),
    /// One word or several.
    Text(Arc<str>),
}

impl Value {
    fn of(text: &str) -> Self {
        match text {
            "" => Self::True,
            text => match text.parse::<f64>() {
                Ok(number) if number.is_finite() => Self::Number(number),
                _ => Self::Text(text.into()),
            },
        }
    }
}

/// An error in the text of a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ListError {
    /// An invalid line.
    Line {
        /// Its number, from 1.
        number: usize,
        /// Describes the error, with the text that was read.
        error: String,
    },
    /// The prefixes exceed what the tables can hold.
    Full(Full),
}

impl fmt::Display for ListError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Line { number, error } => write!(f, "line {number}: {error}"),
            Self::Full(full) => full.fmt(f),
        }
    }
}

impl std::error::Error for ListError {}

impl From<Full> for ListError {
    fn from(full: Full) -> Self {
        Self::Full(full)
    }
}

/// A prefix of either family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ListPrefix {
    /// IPv4.
    V4(Prefix<u32>),
    /// IPv6.
    V6(Prefix<u128>),
}

impl ListPrefix {
    /// Reads a prefix, or an address, which is a prefix of all its bits.
    ///
    /// # Errors
    ///
    /// A description of what is wrong with `text` ([`fib::BadPrefix::describe`]).
    pub fn parse(text: &str) -> Result<Self, String> {
        match text.contains(':') {
            true => {
                text.parse().map(Self::V6).map_err(|error: BadPrefix| error.describe::<u128>(text))
            }
            false => {
                text.parse().map(Self::V4).map_err(|error: BadPrefix| error.describe::<u32>(text))
            }
        }
    }
}

/// Returns the prefix and value of each line of a list.
pub fn lines(text: &str) -> impl Iterator<Item = Result<(ListPrefix, &str), ListError>> {
    text.lines().enumerate().filter_map(|(at, line)| {
        let line = line.split(['#', ';']).next().unwrap_or_default().trim();
        let (prefix, rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
        let bad = |error| ListError::Line { number: at + 1, error };
        (!line.is_empty())
            .then(|| ListPrefix::parse(prefix).map(|prefix| (prefix, rest.trim())).map_err(bad))
    })
}

/// Prefixes, each with a value.
#[derive(Debug)]
pub struct List {
    v4: Fib<u32>,
    v6: Fib<u128>,
    values: Vec<Value>,
    prefixes: usize,
    /// The first prefix of each of the first values.
    samples: Vec<ListPrefix>,
}

/// Maximum number of values of which a list has a sample.
const SAMPLES: usize = 16;

impl List {
    /// Reads a list from its text.
    ///
    /// # Errors
    ///
    /// The first invalid line, with its number; [`ListError::Full`] if there are too many.
    ///
    /// # Examples
    ///
    /// ```
    /// use fingerpost_gate::grantor::{List, Value};
    /// let list = List::parse("192.0.2.0/24 64496 # a comment\n198.51.100.7\n")?;
    /// assert_eq!(list.v4(0xc000_0201), Some(&Value::Number(64496.0)));
    /// assert_eq!(list.v4(0xc633_6407), Some(&Value::True));
    /// assert_eq!(list.v4(0xc633_6408), None);
    /// # Ok::<(), fingerpost_gate::grantor::ListError>(())
    /// ```
    pub fn parse(text: &str) -> Result<Self, ListError> {
        let (mut v4, mut v6) = (Rib::<u32>::new(), Rib::<u128>::new());
        let mut values: Vec<Value> = Vec::new();
        let mut samples = Vec::new();
        let mut numbers: BTreeMap<String, u32> = BTreeMap::new();
        for line in lines(text) {
            let (prefix, text) = line?;
            let number = *numbers.entry(text.to_owned()).or_insert_with(|| {
                values.push(Value::of(text));
                if samples.len() < SAMPLES {
                    samples.push(prefix);
                }
                values.len() as u32
            });
            match prefix {
                ListPrefix::V4(prefix) => _ = v4.insert(prefix, Hop(number)),
                ListPrefix::V6(prefix) => _ = v6.insert(prefix, Hop(number)),
            }
        }
        Ok(Self {
            prefixes: v4.len() + v6.len(),
            v4: Fib::build(&v4, Choice::Auto, 1)?,
            v6: Fib::build(&v6, Choice::Auto, 1)?,
            values,
            samples,
        })
    }

    /// Returns a prefix for each of its first values, for a dry run.
    pub(super) fn samples(&self) -> &[ListPrefix] {
        &self.samples
    }

    fn value(&self, hop: Hop) -> Option<&Value> {
        let number = (hop.0 as usize).checked_sub(1)?;
        self.values.get(number)
    }

    /// Returns the value of an IPv4 address, if it is listed.
    pub fn v4(&self, addr: u32) -> Option<&Value> {
        self.value(self.v4.lookup(addr))
    }

    /// Returns the value of an IPv6 address, if it is listed.
    pub fn v6(&self, addr: u128) -> Option<&Value> {
        self.value(self.v6.lookup(addr))
    }

    /// Looks up several addresses together, at most as many as `hops` has room for.
    pub(super) fn v4_batch<'a>(
        &'a self,
        addrs: &[u32],
        hops: &'a mut [Hop],
    ) -> impl Iterator<Item = Option<&'a Value>> {
        self.v4.lookup_batch(addrs, hops);
        hops.iter().map(|hop| self.value(*hop))
    }

    /// As [`v4_batch`](Self::v4_batch).
    pub(super) fn v6_batch<'a>(
        &'a self,
        addrs: &[u128],
        hops: &'a mut [Hop],
    ) -> impl Iterator<Item = Option<&'a Value>> {
        self.v6.lookup_batch(addrs, hops);
        hops.iter().map(|hop| self.value(*hop))
    }

    /// Counts the prefixes.
    pub fn len(&self) -> usize {
        self.prefixes
    }

    /// Returns whether the list has no prefix.
    pub fn is_empty(&self) -> bool {
        self.prefixes == 0
    }
}

/// All lists by their names.
pub type Lists = BTreeMap<String, Arc<List>>;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn longest_prefix_decides_in_both_families() {
        let text = "\n# all\n10.0.0.0/8 wide\n10.1.0.0/16\tnarrow one\n2001:db8::/32 3.5\n::1\n";
        let list = List::parse(text).unwrap();
        assert_eq!(list.len(), 4);
        assert_eq!(list.v4(0x0a02_0000), Some(&Value::Text("wide".into())));
        assert_eq!(list.v4(0x0a01_0000), Some(&Value::Text("narrow one".into())));
        assert_eq!(list.v6(0x2001_0db8 << 96), Some(&Value::Number(3.5)));
        assert_eq!(list.v6(1), Some(&Value::True));
        assert_eq!((list.v6(2), list.v4(1)), (None, None));
        let mut hops = [Hop::NONE; 2];
        let found: Vec<_> = list.v4_batch(&[1, 0x0a00_0001], &mut hops).collect();
        assert_eq!(found, [None, list.v4(0x0a00_0001)]);
        assert!(List::parse("").unwrap().is_empty());
    }

    #[test]
    fn line_without_a_prefix_is_named_with_its_number() {
        for bad in ["10.0.0.1/8", "10.0.0/8", "example.org", "::1/129", "1.2.3.4/33"] {
            let error = List::parse(&format!("10.0.0.0/8\n{bad} x\n")).unwrap_err().to_string();
            assert!(
                error.starts_with("line 2: ") && error.contains(&format!("{bad:?}")),
                "{error}"
            );
        }
        let error = List::parse("10.0.0.1/8\n").unwrap_err().to_string();
        let expected = r#"line 1: prefix "10.0.0.1/8" has host bits set; did you mean 10.0.0.0/8?"#;
        assert_eq!(error, expected);
    }

    #[test]
    fn spamhaus_drop_list_is_read_as_published() {
        let text = "; Spamhaus DROP List 2026/11/23 - (c) 2026 The Spamhaus Project SLU\n\
                    ; https://www.spamhaus.org/drop/drop.txt\n\
                    1.10.16.0/20 ; SBL256894\n\
                    1.19.0.0/16;SBL434604\n\
                    2a06:e480::/29 ; SBL301771\n";
        let list = List::parse(text).unwrap();
        assert_eq!(list.len(), 3);
        assert_eq!(list.v4(0x010a_1001), Some(&Value::True));
        assert_eq!(list.v4(0x0113_0001), Some(&Value::True));
        assert_eq!(list.v6(0x2a06_e480 << 96), Some(&Value::True));
    }
}
