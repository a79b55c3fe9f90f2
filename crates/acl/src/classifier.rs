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
//! The cost of a packet that the address filter (`filter.rs`) lets through is a lookup in two tables, one load for each other field, and a few words; ten
//! thousand rules have 157 words and three summaries. Rules that overlap in every field cost more: each
//! word with a match is read.

use fib::{Fib, Full};

use crate::dimension::{Dimension, FieldTable, Places, build_addresses};
use crate::filter::AddressFilter;
use crate::rule::BitConditions;
use crate::{Addresses, Field, PacketFamily, Rule};

/// The greatest number of rules of a list.
pub const MOST_RULES: usize = 65_536;

/// The rules of one family, compiled.
#[derive(Debug)]
pub struct Classifier<A: PacketFamily> {
    /// `None`: all packets are looked up.
    filter: Option<AddressFilter>,
    pub(crate) sources: Option<Fib<A>>,
    pub(crate) destinations: Option<Fib<A>>,
    pub(crate) fields: Vec<FieldTable>,
    /// Those of the source and the destination, if there are some, and then those of the fields.
    pub(crate) dimensions: Vec<Dimension>,
    /// The number of summaries.
    parts: usize,
    /// The places of a word that have a rule.
    valid: Box<[u64]>,
    /// The rule at each place.
    rules: Box<[u32]>,
    /// The conditions on bits of addresses, which no row contains, by rule; empty if there are none.
    bits: Box<[BitConditions]>,
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
        let mut dimensions = Vec::new();
        let mut addresses = |of: for<'r> fn(&'r Rule) -> &'r Option<Addresses>| {
            if places.rules.iter().all(|(_, rule)| of(rule).is_none()) {
                return Ok(None);
            }
            let (table, dimension) = build_addresses(&places, of)?;
            dimensions.push(dimension);
            Ok(Some(table))
        };
        let (sources, destinations) = (addresses(|rule| &rule.from)?, addresses(|rule| &rule.to)?);
        let mut fields = Vec::new();
        for field in Field::ALL {
            if places.rules.iter().any(|(_, rule)| rule.constrains(field)) {
                let (table, dimension) = FieldTable::build(&places, field);
                fields.push(table);
                dimensions.push(dimension);
            }
        }
        let mut valid = vec![0; words];
        places.rules.iter().for_each(|(place, _)| valid[place / 64] |= 1 << (place % 64));
        by_place.resize(64 * words, u32::MAX);
        Ok(Self {
            filter: AddressFilter::build::<A>(places.rules.iter().map(|(_, rule)| *rule)),
            sources,
            destinations,
            fields,
            dimensions,
            parts: words.div_ceil(64),
            valid: valid.into(),
            rules: by_place.into(),
            bits: bits::<A>(rules),
        })
    }

    /// Returns whether a rule may match packets with these addresses.
    #[inline(always)]
    pub(crate) fn may_match(&self, source: A, destination: A) -> bool {
        match &self.filter {
            Some(filter) => filter.may_match(source, destination),
            None => self.parts > 0,
        }
    }

    /// Returns the number of summaries.
    #[inline]
    pub(crate) fn parts(&self) -> usize {
        self.parts
    }

    /// Returns the candidates of a summary before a dimension narrows them: all of its words.
    pub(crate) fn all_candidates(&self, part: usize) -> u64 {
        match self.valid.len().saturating_sub(64 * part) {
            words @ ..64 => (1 << words) - 1,
            _ => u64::MAX,
        }
    }

    /// Returns whether a rule's conditions on bits of addresses hold.
    #[inline]
    pub(crate) fn allows_bits(&self, rule: u32, source: A, destination: A) -> bool {
        self.bits.get(rule as usize).is_none_or(|bits| bits.hold(source, destination))
    }

    /// Returns the lowest rule from number `from` on, and below `lowest`, that matches a packet, among
    /// the words that are candidates of a summary; `lowest` if there is none. The packet's row in each
    /// dimension is `row` of its number; `allows` has the conditions of a rule that are in no row.
    #[inline]
    pub(crate) fn lowest(
        &self,
        part: usize,
        mut candidates: u64,
        row: impl Fn(usize) -> u32,
        allows: impl Fn(u32) -> bool,
        from: u32,
        mut lowest: u32,
    ) -> u32 {
        while candidates != 0 {
            let at = candidates.trailing_zeros();
            candidates &= candidates - 1;
            let word = 64 * part + at as usize;
            let mut bits = self.valid.get(word).copied().unwrap_or(0);
            for (number, dimension) in self.dimensions.iter().enumerate() {
                bits &= dimension.word(row(number), part, at);
            }
            // The rules of a word are in order.
            while bits != 0 {
                let place = 64 * word + bits.trailing_zeros() as usize;
                let rule = self.rules.get(place).copied().unwrap_or(u32::MAX);
                if rule >= from && allows(rule) {
                    lowest = lowest.min(rule);
                    break;
                }
                bits &= bits - 1;
            }
        }
        lowest
    }

    /// Returns the size in bytes.
    pub fn footprint(&self) -> usize {
        let tables = [&self.sources, &self.destinations].into_iter().flatten();
        self.filter.as_ref().map_or(0, AddressFilter::footprint)
            + tables.map(Fib::footprint).sum::<usize>()
            + self.fields.iter().map(FieldTable::footprint).sum::<usize>()
            + self.dimensions.iter().map(Dimension::footprint).sum::<usize>()
            + size_of_val(&*self.valid)
            + size_of_val(&*self.rules)
            + size_of_val(&*self.bits)
    }
}

/// Returns a number that is equal for rules with conditions on the same fields.
fn conditions(rule: &Rule) -> u32 {
    let addresses = [rule.from.is_some(), rule.to.is_some()].into_iter();
    let others = Field::ALL.into_iter().map(|field| rule.constrains(field));
    addresses.chain(others).fold(0, |number, has| number << 1 | u32::from(has))
}

/// Returns the conditions of rules on bits of addresses; none, if no rule about the family has one.
fn bits<A: PacketFamily>(rules: &[Rule]) -> Box<[BitConditions]> {
    if rules.iter().all(|rule| rule.bits().is_empty() || !rule.is_about::<A>()) {
        return Box::default();
    }
    rules.iter().map(Rule::bits).collect()
}
