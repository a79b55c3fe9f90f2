//! Labels: the texts behind the prefixes of a file, each stored once.
//!
//! A full table has over a million routes and a few thousand next hops, or some 80,000 origins. The
//! text of each is stored once, in one string; a route holds its index, four bytes. Indexes are
//! dense, given in the order of appearance.
//!
//! ```text
//! Label(2) ─► ends[1]..ends[2] ─► "185.1.1.241 91.213.211.170 198.32.212.55"
//!                                                              └─────┬─────┘
//! ```
//!
//! A lookup of a text costs one hash; a text equal to the previous one costs a comparison, and in
//! tables sorted by address more than half are equal.

use core::fmt;
use core::hash::BuildHasher;
use core::net::IpAddr;

use hashbrown::{DefaultHashBuilder, HashMap, HashTable};

/// A small dense index into [`Labels`], the key of a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Label(pub u32);

/// The distinct texts of one file, by [`Label`].
///
/// # Examples
///
/// ```
/// use fingerpost_feed::{Label, Labels};
/// let mut labels = Labels::new();
/// assert_eq!(labels.intern("192.0.2.1"), Label(0));
/// assert_eq!(labels.intern("192.0.2.2"), Label(1));
/// assert_eq!(labels.intern("192.0.2.1"), Label(0));
/// assert_eq!(labels.get(Label(1)), "192.0.2.2");
/// ```
#[derive(Clone, Default)]
pub struct Labels {
    text: String,
    ends: Vec<usize>,
    index: HashTable<u32>,
    hasher: DefaultHashBuilder,
    /// Next hops that are binary addresses, so that a frequent one is not formatted each time.
    addresses: HashMap<(IpAddr, Option<u32>), Label>,
    last: Option<Label>,
}

/// Returns the 64-bit FNV-1a hash of bytes, such as those of a label's text: the same value on
/// every machine and in every run.
///
/// The upper bits are not uniform for short texts; mix them before you divide.
///
/// # Examples
///
/// ```
/// assert_eq!(fingerpost_feed::fnv1a(*b"a"), 0xaf63_dc4c_8601_ec8c);
/// ```
pub fn fnv1a(bytes: impl IntoIterator<Item = u8>) -> u64 {
    bytes.into_iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

impl Labels {
    /// Creates an empty set.
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns the label of `text`, adding it if it is new.
    ///
    /// # Panics
    ///
    /// After 2^32 distinct texts.
    pub fn intern(&mut self, text: &str) -> Label {
        if let Some(last) = self.last
            && self.get(last) == text
        {
            return last;
        }
        let hash = self.hasher.hash_one(text);
        let Self { text: all, ends, index, hasher, .. } = self;
        let same = |&at: &u32| piece(all, ends, at) == text;
        let label = match index.find(hash, same) {
            Some(&at) => Label(at),
            None => {
                let at = u32::try_from(ends.len()).expect("fewer than 2^32 labels");
                all.push_str(text);
                ends.push(all.len());
                index.insert_unique(hash, at, |&at| hasher.hash_one(piece(all, ends, at)));
                Label(at)
            }
        };
        self.last = Some(label);
        label
    }

    /// Returns the label of an address in its standard notation.
    pub fn intern_address(&mut self, address: IpAddr) -> Label {
        self.intern_route(address, None)
    }

    /// Returns the label of a next hop and, after a space, the AS that originated the route.
    pub fn intern_route(&mut self, next_hop: IpAddr, origin: Option<u32>) -> Label {
        if let Some(&label) = self.addresses.get(&(next_hop, origin)) {
            return label;
        }
        let label = match origin {
            Some(origin) => self.intern(&format!("{next_hop} {origin}")),
            None => self.intern(&next_hop.to_string()),
        };
        self.addresses.insert((next_hop, origin), label);
        label
    }

    /// Returns the text of `label`.
    ///
    /// # Panics
    ///
    /// If `label` is not of this set.
    pub fn get(&self, label: Label) -> &str {
        piece(&self.text, &self.ends, label.0)
    }

    /// Finds the label of `text`.
    pub fn find(&self, text: &str) -> Option<Label> {
        let hash = self.hasher.hash_one(text);
        let same = |&at: &u32| piece(&self.text, &self.ends, at) == text;
        self.index.find(hash, same).map(|&at| Label(at))
    }

    /// Counts the labels; they are `Label(0)` to `Label(len - 1)`.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Returns whether there is no label.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// Walks the labels and their texts in the order of the labels.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (Label, &str)> {
        (0..self.ends.len()).map(|at| {
            let label = Label(at as u32);
            (label, self.get(label))
        })
    }
}

impl fmt::Debug for Labels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}

/// Returns the text at index `at` of the string.
fn piece<'t>(text: &'t str, ends: &[usize], at: u32) -> &'t str {
    let at = at as usize;
    let begin = if at == 0 { 0 } else { ends[at - 1] };
    &text[begin..ends[at]]
}

#[cfg(test)]
mod tests {
    use super::{Label, Labels};
    use core::net::IpAddr;

    #[test]
    fn label_is_unique_per_text() {
        let mut labels = Labels::new();
        for turn in 0..2 {
            for n in 0..10_000u32 {
                assert_eq!(labels.intern(&n.to_string()), Label(n), "turn {turn}");
            }
        }
        assert_eq!(labels.len(), 10_000);
        assert_eq!(labels.find("4711"), Some(Label(4711)));
        assert_eq!(labels.find("10000"), None);
        assert_eq!(labels.find(""), None);
        assert!(labels.iter().all(|(label, text)| label.0.to_string() == text));
    }

    #[test]
    fn address_and_its_text_share_a_label() {
        let mut labels = Labels::new();
        let text = labels.intern("2001:db8::1");
        let address: IpAddr = "2001:db8::1".parse().unwrap();
        assert_eq!(labels.intern_address(address), text);
        assert_eq!(labels.intern_address(address), text);
        let empty = labels.intern("");
        assert_eq!(labels.get(empty), "");
        assert_eq!(labels.find(""), Some(empty));
    }
}
