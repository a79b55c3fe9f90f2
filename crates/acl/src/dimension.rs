//! Dimensions: for each value of a field, the row of the rules that allow it.
//!
//! ```text
//!   address ─► fib::Fib ─► hop ─► row          port ─► array ─► row
//! ```
//!
//! A value's row has the rules with a condition on the field that allow it. Rules without a condition
//! allow every value; they are in no row, but in `any`, word by word: the classifier puts rules with
//! and without a condition on a field into different words.

use fib::{Choice, Fib, Full, Hop, Prefix, Rib};

use crate::rows::{Rows, RowsBuilder};
use crate::{Addresses, Field, Fields, PacketFamily, Rule};

/// The place of each rule in the sets, and the rules by place.
#[derive(Debug)]
pub(crate) struct Places<'r> {
    /// The rules with their places.
    pub(crate) rules: Vec<(usize, &'r Rule)>,
    /// The number of words of a set.
    pub(crate) words: usize,
}

/// The rows of one dimension.
#[derive(Debug)]
pub(crate) struct Dimension {
    rows: Rows,
    /// The words whose rules have no condition here.
    any: Box<[u64]>,
}

impl Dimension {
    fn new(rows: Rows, places: &Places<'_>, has_condition: impl Fn(&Rule) -> bool) -> Self {
        let mut any = vec![0_u64; places.words.div_ceil(64)];
        for &(place, rule) in &places.rules {
            if !has_condition(rule) {
                let word = place / 64;
                any[word / 64] |= 1 << (word % 64);
            }
        }
        Self { rows, any: any.into() }
    }

    /// Returns the words that have a rule which allows the value with this row: of the 64 words from number
    /// 64 × `part` on.
    #[inline(always)]
    pub(crate) fn candidates(&self, row: u32, part: usize) -> u64 {
        self.rows.present(row, part) | self.any.get(part).copied().unwrap_or(0)
    }

    /// Returns the rules of a word that allow a value, by the value's row.
    #[inline(always)]
    pub(crate) fn word(&self, row: u32, part: usize, at: u32) -> u64 {
        if self.any.get(part).is_some_and(|any| any >> at & 1 == 1) {
            return u64::MAX;
        }
        self.rows.word(row, part, at)
    }

    pub(crate) fn footprint(&self) -> usize {
        self.rows.footprint() + size_of_val(&*self.any)
    }
}

/// Builds the dimension of the source or the destination, and the table of its rows, as hops; `of` returns
/// the condition of a rule.
///
/// # Errors
///
/// [`Full`], if the table's layout has no room for the prefixes.
///
/// # Complexity
///
/// O(p log p + p × rules / 64) for p prefixes.
pub(crate) fn build_addresses<A: PacketFamily>(
    places: &Places<'_>,
    of: for<'r> fn(&'r Rule) -> &'r Option<Addresses>,
) -> Result<(Fib<A>, Dimension), Full> {
    let mut conditions: Vec<(Prefix<A>, usize)> = Vec::new();
    for &(place, rule) in &places.rules {
        let prefixes = of(rule).as_ref().map(A::prefixes).unwrap_or_default();
        conditions.extend(prefixes.iter().map(|&prefix| (prefix, place)));
    }
    conditions.sort_unstable_by_key(|&(prefix, place)| (prefix.addr(), prefix.len(), place));
    let mut rows = RowsBuilder::new(places.words);
    // An address in no prefix has no hop, which is 0.
    rows.add(&vec![0; places.words]);
    let mut rib = Rib::new();
    // The prefixes around the present one, each with the rules of all prefixes around it.
    let mut around: Vec<(Prefix<A>, Vec<u64>)> = Vec::new();
    for group in conditions.chunk_by(|a, b| a.0 == b.0) {
        let prefix = group[0].0;
        while around.last().is_some_and(|(outer, _)| !outer.covers(prefix)) {
            around.pop();
        }
        let outer = around.last().map(|(_, set)| set.clone());
        let mut set = outer.unwrap_or_else(|| vec![0; places.words]);
        for &(_, place) in group {
            set[place / 64] |= 1 << (place % 64);
        }
        rib.insert(prefix, Hop(rows.add(&set)));
        around.push((prefix, set));
    }
    let table = Fib::build(&rib, Choice::Auto, 1)?;
    let dimension = Dimension::new(rows.finish(), places, |rule| of(rule).is_some());
    Ok((table, dimension))
}

/// The rows of another field, by value.
#[derive(Debug)]
pub(crate) struct FieldTable {
    field: Field,
    /// The row of each value, and of packets without the field.
    by_value: Box<[u32]>,
}

impl FieldTable {
    /// Builds the dimension of a field, and its table.
    ///
    /// # Complexity
    ///
    /// O((values + ranges) × rules / 64).
    pub(crate) fn build(places: &Places<'_>, field: Field) -> (Self, Dimension) {
        let mut rows = RowsBuilder::new(places.words);
        let mut set = vec![0_u64; places.words];
        let mut by_value = vec![0; field.values() + 1];
        // The places whose rules begin or cease to allow at each value.
        let mut changes: Vec<(usize, usize)> = Vec::new();
        for &(place, rule) in &places.rules {
            if !rule.constrains(field) {
                continue;
            }
            match rule.ranges(field) {
                Some(ranges) => {
                    for (first, last) in ranges.merged() {
                        changes.push((first as usize, place));
                        changes.push((last as usize + 1, place));
                    }
                }
                None => {
                    let mut allowed = false;
                    for value in 0..=field.values() {
                        if rule.allows(field, value) != allowed {
                            allowed = !allowed;
                            changes.push((value, place));
                        }
                    }
                }
            }
        }
        changes.sort_unstable();
        let mut changes = changes.into_iter().peekable();
        let mut row = rows.add(&set);
        for (value, slot) in by_value.iter_mut().enumerate() {
            let mut has_changed = false;
            while let Some((_, place)) = changes.next_if(|(at, _)| *at == value) {
                set[place / 64] ^= 1 << (place % 64);
                has_changed = true;
            }
            if has_changed {
                row = rows.add(&set);
            }
            *slot = row;
        }
        let dimension = Dimension::new(rows.finish(), places, |rule| rule.constrains(field));
        (Self { field, by_value: by_value.into() }, dimension)
    }

    /// Returns the field.
    pub(crate) fn field(&self) -> Field {
        self.field
    }

    /// Finds the rows of the packets with these indexes, by their fields.
    #[inline]
    pub(crate) fn lookup<A: PacketFamily>(
        &self,
        packets: &[u16],
        fields: &[Fields<A>],
        rows: &mut [Hop],
    ) {
        // One loop for each field, which reads that field only.
        let find = |rows: &mut [Hop], value: fn(&Fields<A>) -> usize| {
            for &at in packets {
                let at = usize::from(at);
                if let (Some(row), Some(packet)) = (rows.get_mut(at), fields.get(at)) {
                    *row = Hop(self.by_value.get(value(packet)).copied().unwrap_or(0));
                }
            }
        };
        match self.field {
            Field::Protocol => find(rows, |packet| packet.value(Field::Protocol)),
            Field::SourcePort => find(rows, |packet| packet.value(Field::SourcePort)),
            Field::DestinationPort => find(rows, |packet| packet.value(Field::DestinationPort)),
            Field::IcmpType => find(rows, |packet| packet.value(Field::IcmpType)),
            Field::IcmpCode => find(rows, |packet| packet.value(Field::IcmpCode)),
            Field::TcpFlags => find(rows, |packet| packet.value(Field::TcpFlags)),
            Field::Fragment => find(rows, |packet| packet.value(Field::Fragment)),
            Field::Dscp => find(rows, |packet| packet.value(Field::Dscp)),
            Field::Length => find(rows, |packet| packet.value(Field::Length)),
            Field::FlowLabel => find(rows, |packet| packet.value(Field::FlowLabel)),
        }
    }

    pub(crate) fn footprint(&self) -> usize {
        size_of_val(&*self.by_value)
    }
}
