//! The classifier: finds the rules of one address family that match a packet, in their order.
//!
//! Each field that some rule has a condition on is a dimension, and a packet's value there has a row: the
//! set of the rules that allow it (`dimension.rs`, `rows.rs`). The rules that match are in all of the
//! packet's rows.
//!
//! ```text
//!   rules by their conditions:     from │ from, to │ from, to, dport │ none
//!   words of 64 rules:              w0  │ w1    w2 │ w3              │ w4
//!
//!   packet ─► row of its source ───┐
//!             row of its address ──┼─► summaries: words that may match ─► few words ─► lowest rule
//!             row of its port ─────┘   one AND for 64 words
//! ```
//!
//! Rules with conditions on the same fields share words. In such a word a summary is precise: where the
//! rules of a word were mixed, one of them would allow the value of nearly every packet, and all words
//! would have to be read. The order of rules is a number in `rules`, and the search keeps the lowest.
//!
//! The cost of a packet is a lookup in two tables, one load for each other field, and a few words; ten
//! thousand rules have 157 words and three summaries. Rules that overlap in every field cost more: each
//! word with a match is read.

use fib::{Full, Hop};

use crate::dimension::{AddressDimension, Dimension, FieldDimension, Places};
use crate::{Addresses, Field, PacketFamily, Rule};

/// The greatest number of dimensions: source, destination and the other fields.
pub(crate) const DIMENSIONS: usize = 2 + Field::ALL.len();

/// The rows of one packet, by dimension.
pub(crate) type PacketRows = [u32; DIMENSIONS];

/// The rules of one family, compiled.
#[derive(Debug)]
pub struct Classifier<A: PacketFamily> {
    pub(crate) sources: Option<AddressDimension<A>>,
    pub(crate) destinations: Option<AddressDimension<A>>,
    pub(crate) fields: Vec<FieldDimension>,
    /// The number of summaries.
    parts: usize,
    /// The places of a word that have a rule.
    valid: Box<[u64]>,
    /// The rule at each place.
    rules: Box<[u32]>,
}

impl<A: PacketFamily> Classifier<A> {
    /// Compiles the rules that packets of the family can match; a rule's number is its index.
    ///
    /// # Errors
    ///
    /// [`Full`], if a table's layout has no room for the prefixes.
    pub fn build(rules: &[Rule]) -> Result<Self, Full> {
        let mut order: Vec<(u32, u32)> = (0..)
            .zip(rules)
            .filter(|(_, rule)| rule.is_about::<A>())
            .map(|(number, rule)| (conditions(rule), number))
            .collect();
        order.sort_unstable();
        let (mut places, mut by_place) = (Vec::new(), Vec::new());
        for group in order.chunk_by(|a, b| a.0 == b.0) {
            by_place.resize(by_place.len().next_multiple_of(64), u32::MAX);
            for &(_, number) in group {
                places.push((by_place.len(), &rules[number as usize]));
                by_place.push(number);
            }
        }
        let words = by_place.len().div_ceil(64);
        let places = Places { rules: places, words };
        let addresses = |of: for<'r> fn(&'r Rule) -> &'r Option<Addresses>| {
            let has_condition = places.rules.iter().any(|(_, rule)| of(rule).is_some());
            let build =
                || AddressDimension::build(&places, |rule| of(rule).as_ref().map(A::prefixes));
            has_condition.then(build).transpose()
        };
        let sources = addresses(|rule| &rule.from)?;
        let destinations = addresses(|rule| &rule.to)?;
        let constrained =
            |field: &Field| places.rules.iter().any(|(_, rule)| rule.constrains(*field));
        let fields = Field::ALL.into_iter().filter(constrained);
        let fields = fields.map(|field| FieldDimension::build(&places, field)).collect();
        let mut valid = vec![0; words];
        places.rules.iter().for_each(|(place, _)| valid[place / 64] |= 1 << (place % 64));
        by_place.resize(64 * words, u32::MAX);
        Ok(Self {
            sources,
            destinations,
            fields,
            parts: words.div_ceil(64),
            valid: valid.into(),
            rules: by_place.into(),
        })
    }

    /// Returns whether no rule is about packets of the family.
    pub fn is_empty(&self) -> bool {
        self.parts == 0
    }

    /// Returns the dimensions, in the order of a packet's rows.
    #[inline(always)]
    fn dimensions(&self) -> impl Iterator<Item = &Dimension> {
        let addresses = [&self.sources, &self.destinations].into_iter().flatten();
        let addresses = addresses.map(|addresses| &addresses.dimension);
        addresses.chain(self.fields.iter().map(|field| &field.dimension))
    }

    /// Returns the rows of a packet by the hops of its addresses and by its other fields.
    #[inline(always)]
    pub(crate) fn rows(
        &self,
        source: Hop,
        destination: Hop,
        value: impl Fn(Field) -> usize,
    ) -> PacketRows {
        let mut rows = [0; DIMENSIONS];
        let addresses = [(&self.sources, source), (&self.destinations, destination)];
        let addresses =
            addresses.into_iter().filter_map(|(table, Hop(row))| table.as_ref().map(|_| row));
        let others = self.fields.iter().map(|field| field.row(value(field.field)));
        for (slot, row) in rows.iter_mut().zip(addresses.chain(others)) {
            *slot = row;
        }
        rows
    }

    /// Returns the lowest rule from number `from` on that matches the packet with these rows.
    #[inline]
    pub(crate) fn first(&self, rows: &PacketRows, from: u32) -> Option<u32> {
        let mut lowest = u32::MAX;
        for part in 0..self.parts {
            let each = || self.dimensions().zip(rows);
            let mut candidates = match self.valid.len() - 64 * part {
                words @ ..64 => (1 << words) - 1,
                _ => u64::MAX,
            };
            for (dimension, row) in each() {
                candidates &= dimension.present(*row, part);
            }
            while candidates != 0 {
                let at = candidates.trailing_zeros();
                candidates &= candidates - 1;
                let word = 64 * part + at as usize;
                let mut bits = self.valid.get(word).copied().unwrap_or(0);
                for (dimension, row) in each() {
                    bits &= dimension.word(*row, part, at);
                }
                // The rules of a word are in order.
                while bits != 0 {
                    let place = 64 * word + bits.trailing_zeros() as usize;
                    let rule = self.rules.get(place).copied().unwrap_or(u32::MAX);
                    if rule >= from {
                        lowest = lowest.min(rule);
                        break;
                    }
                    bits &= bits - 1;
                }
            }
        }
        (lowest != u32::MAX).then_some(lowest)
    }

    /// Returns the size in bytes.
    pub fn footprint(&self) -> usize {
        let addresses = [&self.sources, &self.destinations].into_iter().flatten();
        addresses.map(AddressDimension::footprint).sum::<usize>()
            + self.fields.iter().map(FieldDimension::footprint).sum::<usize>()
            + size_of_val(&*self.valid)
            + size_of_val(&*self.rules)
    }
}

/// Returns a number that is equal for rules with conditions on the same fields.
fn conditions(rule: &Rule) -> u32 {
    let addresses = [rule.from.is_some(), rule.to.is_some()].into_iter();
    let others = Field::ALL.into_iter().map(|field| rule.constrains(field));
    addresses.chain(others).fold(0, |number, has| number << 1 | u32::from(has))
}
