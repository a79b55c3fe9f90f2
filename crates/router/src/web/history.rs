//! The history: every number of a router, second by second, for a quarter of an hour.
//!
//! ```text
//!   number  time   received  sent  …     SECONDS rows, the oldest overwritten
//!     41    …41.0     1200   1190        counters: what was added in that second
//!     42    …42.0     1300   1280        gauges: what they were at its end
//! ```
//!
//! The columns are made at the start and stay; a row is of fixed size, so that all of it is:
//! some 100 columns take 720 kB. Rows are numbered, so that a page asks for those after the
//! last that it has. A second that was missed (the machine was asleep, or had no time) has no
//! row, and what was counted in it is in the next, which tells how long it was.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

/// Rows at the most.
pub(super) const SECONDS: usize = 900;

/// A number of the moment, by name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Number {
    pub(super) name: String,
    pub(super) value: u64,
    /// It is of the moment, and not a count.
    pub(super) gauge: bool,
}

#[derive(Debug)]
struct Row {
    number: u64,
    time: f64,
    seconds: f64,
    values: Box<[u64]>,
}

/// The rows.
#[derive(Debug, Default)]
pub(super) struct History {
    columns: Vec<String>,
    rows: VecDeque<Row>,
    /// The counters at the end of the last row.
    before: Vec<u64>,
    next: u64,
    /// Rows of a process before this one, until the columns are known.
    kept: Option<Kept>,
}

/// The rows as they are kept over a restart.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Kept {
    columns: Vec<String>,
    /// Of each its time, its length, and its values in the order of the columns.
    rows: Vec<(f64, f64, Vec<u64>)>,
}

impl Kept {
    /// Says whether the rows are as long as the columns are many, and in order.
    pub(super) fn is_sound(&self) -> bool {
        let sound = |row: &(f64, f64, Vec<u64>)| {
            row.0.is_finite() && row.1.is_finite() && row.2.len() == self.columns.len()
        };
        self.rows.iter().all(sound) && self.rows.is_sorted_by(|one, two| one.0 <= two.0)
    }
}

/// The rows after some number: only columns of which something is not 0.
#[derive(Debug, PartialEq, Serialize)]
pub(super) struct Told<'a> {
    columns: Vec<&'a str>,
    rows: Vec<Second>,
}

/// Of a row its number, the time at its end in seconds since 1970, its length in seconds, and
/// its values in the order of the columns.
#[derive(Debug, PartialEq, Serialize)]
pub(super) struct Second(u64, f64, f64, Vec<u64>);

#[cfg(test)]
impl Told<'_> {
    pub(super) fn len(&self) -> usize {
        self.rows.len()
    }
}

impl History {
    /// Takes the numbers as they are at `time`, `seconds` after the last; the first time only
    /// counts begin.
    pub(super) fn add(&mut self, time: f64, seconds: f64, numbers: &[Number]) {
        if self.columns.len() != numbers.len() {
            self.columns = numbers.iter().map(|it| it.name.clone()).collect();
            self.before = numbers.iter().map(|it| it.value).collect();
            self.rows = VecDeque::with_capacity(SECONDS);
            self.next = 1;
            if let Some(kept) = self.kept.take() {
                self.restore(&kept);
            }
            return;
        }
        // The memory of the oldest row is the newest's.
        let reused = if self.rows.len() == SECONDS { self.rows.pop_front() } else { None };
        let mut values =
            reused.map_or_else(|| vec![0; numbers.len()].into_boxed_slice(), |row| row.values);
        for ((value, before), it) in values.iter_mut().zip(&mut self.before).zip(numbers) {
            *value = if it.gauge { it.value } else { it.value.saturating_sub(*before) };
            *before = it.value;
        }
        self.rows.push_back(Row { number: self.next, time, seconds, values });
        self.next += 1;
    }

    /// Goes on with rows of before `now`, as soon as the columns are known; returns how many.
    pub(super) fn resume(&mut self, mut kept: Kept, now: f64) -> usize {
        kept.rows.retain(|row| (now - SECONDS as f64..=now).contains(&row.0));
        let over = kept.rows.len().saturating_sub(SECONDS);
        kept.rows.drain(..over);
        self.kept.insert(kept).rows.len()
    }

    fn restore(&mut self, kept: &Kept) {
        let place = |name: &String| kept.columns.iter().position(|column| column == name);
        let places: Vec<_> = self.columns.iter().map(place).collect();
        for (time, seconds, values) in &kept.rows {
            let value = |place: &Option<usize>| place.and_then(|at| values.get(at).copied());
            let values = places.iter().map(|place| value(place).unwrap_or(0)).collect();
            let (number, time, seconds) = (self.next, *time, *seconds);
            self.rows.push_back(Row { number, time, seconds, values });
            self.next += 1;
        }
    }

    /// Returns what is to be kept over a restart.
    pub(super) fn kept(&self) -> Kept {
        let row = |row: &Row| (row.time, row.seconds, row.values.to_vec());
        Kept { columns: self.columns.clone(), rows: self.rows.iter().map(row).collect() }
    }

    /// Returns the rows after that with this number.
    pub(super) fn since(&self, number: u64) -> Told<'_> {
        let rows = || self.rows.iter().filter(move |row| row.number > number);
        let some = |column: &usize| rows().any(|row| row.values[*column] != 0);
        let columns: Vec<usize> = (0..self.columns.len()).filter(some).collect();
        let pick = |row: &Row| columns.iter().map(|&column| row.values[column]).collect();
        Told {
            rows: rows().map(|row| Second(row.number, row.time, row.seconds, pick(row))).collect(),
            columns: columns.iter().map(|&column| self.columns[column].as_str()).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn number(name: &str, value: u64, gauge: bool) -> Number {
        Number { name: name.to_owned(), value, gauge }
    }

    #[test]
    fn counters_are_told_by_what_was_added_and_gauges_as_they_are() {
        let mut history = History::default();
        assert!(history.since(0).rows.is_empty());
        for at in 0..=SECONDS as u64 + 7 {
            let numbers = [
                number("packets", 500 + 3 * at, false),
                number("flows", at, true),
                number("no", 9, false),
            ];
            history.add(at as f64, 1.0, &numbers);
        }
        let last = SECONDS as u64 + 7;
        let told = history.since(last - 2);
        assert_eq!(told.columns, ["packets", "flows"]);
        let row = |at: u64| Second(at, at as f64, 1.0, vec![3, at]);
        assert_eq!(told.rows, [row(last - 1), row(last)]);
        assert_eq!(history.since(last).rows, []);
        let all = history.since(0);
        assert_eq!((all.rows.len(), &all.rows[0]), (SECONDS, &row(8)));
    }

    #[test]
    fn a_counter_that_goes_back_counts_nothing() {
        let mut history = History::default();
        for value in [5, 9, 2, 3] {
            history.add(0.0, 1.0, &[number("packets", value, false)]);
        }
        let added: Vec<_> = history.since(0).rows.into_iter().map(|row| row.3).collect();
        assert_eq!(added, [vec![4], vec![0], vec![1]]);
    }
}
