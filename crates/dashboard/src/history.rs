//! Records every number of a router, second by second, for a quarter of an hour.
//!
//! ```text
//!   number  time   received  sent  …     SECONDS rows, the oldest overwritten
//!     41    …41.0     1200   1190        counters: the increase in that second
//!     42    …42.0     1300   1280        gauges: the value at its end
//! ```
//!
//! The columns are fixed at the start, and so is the size of a row and of the history: some 100
//! columns take 720 kB. Rows are numbered, so that a page requests those after its last one. A
//! second that was missed (the machine slept or was overloaded) has no row: the next row includes
//! its counts, and states its own length.

use std::collections::VecDeque;

use control::role::Number;

use serde::{Deserialize, Serialize};

/// The most rows.
pub(super) const SECONDS: usize = 900;

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
    /// Rows of the previous process, until the columns are known.
    restored: Option<HistoryRows>,
}

/// The rows as they are saved for a restart.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct HistoryRows {
    columns: Vec<String>,
    /// Of each row the time, the length, and the values in the order of the columns.
    rows: Vec<(f64, f64, Vec<u64>)>,
}

impl HistoryRows {
    /// Returns whether every row has a value for each column, and the rows are in order.
    pub(super) fn is_valid(&self) -> bool {
        let is_valid = |row: &(f64, f64, Vec<u64>)| {
            row.0.is_finite() && row.1.is_finite() && row.2.len() == self.columns.len()
        };
        self.rows.iter().all(is_valid) && self.rows.is_sorted_by(|a, b| a.0 <= b.0)
    }
}

/// The rows after a number, with the columns that are not 0 in all of them.
#[derive(Debug, PartialEq, Serialize)]
pub(super) struct HistoryView<'a> {
    columns: Vec<&'a str>,
    rows: Vec<RowView>,
}

/// A row: its number, the time at its end in seconds since 1970, its length in seconds, and
/// its values in the order of the columns.
#[derive(Debug, PartialEq, Serialize)]
pub(super) struct RowView(u64, f64, f64, Vec<u64>);

#[cfg(test)]
impl HistoryView<'_> {
    pub(super) fn len(&self) -> usize {
        self.rows.len()
    }
}

impl History {
    /// Adds a row for the values at `time`, `seconds` after the previous ones. The first call only
    /// sets the columns and the start of the counters.
    pub(super) fn add(&mut self, time: f64, seconds: f64, numbers: &[Number]) {
        if self.columns.len() != numbers.len() {
            self.columns = numbers.iter().map(|number| number.name.clone()).collect();
            self.before = numbers.iter().map(|number| number.value).collect();
            self.rows = VecDeque::with_capacity(SECONDS);
            self.next = 1;
            if let Some(restored) = self.restored.take() {
                self.restore(&restored);
            }
            return;
        }
        // The new row reuses the memory of the oldest.
        let reused = if self.rows.len() == SECONDS { self.rows.pop_front() } else { None };
        let mut values =
            reused.map_or_else(|| vec![0; numbers.len()].into_boxed_slice(), |row| row.values);
        for ((value, before), number) in values.iter_mut().zip(&mut self.before).zip(numbers) {
            let increase = number.value.saturating_sub(*before);
            *value = if number.gauge { number.value } else { increase };
            *before = number.value;
        }
        self.rows.push_back(Row { number: self.next, time, seconds, values });
        self.next += 1;
    }

    /// Continues saved rows that are older than `now`, as soon as the columns are known; returns
    /// their number.
    pub(super) fn resume(&mut self, mut saved: HistoryRows, now: f64) -> usize {
        saved.rows.retain(|row| (now - SECONDS as f64..=now).contains(&row.0));
        let excess = saved.rows.len().saturating_sub(SECONDS);
        saved.rows.drain(..excess);
        self.restored.insert(saved).rows.len()
    }

    fn restore(&mut self, saved: &HistoryRows) {
        let place = |name: &String| saved.columns.iter().position(|column| column == name);
        let places: Vec<_> = self.columns.iter().map(place).collect();
        for (time, seconds, values) in &saved.rows {
            let value = |place: &Option<usize>| place.and_then(|at| values.get(at).copied());
            let values = places.iter().map(|place| value(place).unwrap_or(0)).collect();
            let (number, time, seconds) = (self.next, *time, *seconds);
            self.rows.push_back(Row { number, time, seconds, values });
            self.next += 1;
        }
    }

    /// Returns the rows to be saved for a restart.
    pub(super) fn to_rows(&self) -> HistoryRows {
        let row = |row: &Row| (row.time, row.seconds, row.values.to_vec());
        HistoryRows { columns: self.columns.clone(), rows: self.rows.iter().map(row).collect() }
    }

    /// Returns the rows after the one with this number.
    pub(super) fn since(&self, number: u64) -> HistoryView<'_> {
        let rows = || self.rows.iter().filter(move |row| row.number > number);
        let is_used = |column: &usize| rows().any(|row| row.values[*column] != 0);
        let columns: Vec<usize> = (0..self.columns.len()).filter(is_used).collect();
        let pick = |row: &Row| columns.iter().map(|&column| row.values[column]).collect();
        HistoryView {
            rows: rows().map(|row| RowView(row.number, row.time, row.seconds, pick(row))).collect(),
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
    fn rows_have_increases_of_counters_and_values_of_gauges() {
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
        let view = history.since(last - 2);
        assert_eq!(view.columns, ["packets", "flows"]);
        let row = |at: u64| RowView(at, at as f64, 1.0, vec![3, at]);
        assert_eq!(view.rows, [row(last - 1), row(last)]);
        assert_eq!(history.since(last).rows, []);
        let all = history.since(0);
        assert_eq!((all.rows.len(), &all.rows[0]), (SECONDS, &row(8)));
    }

    #[test]
    fn decreasing_counter_adds_nothing() {
        let mut history = History::default();
        for value in [5, 9, 2, 3] {
            history.add(0.0, 1.0, &[number("packets", value, false)]);
        }
        let added: Vec<_> = history.since(0).rows.into_iter().map(|row| row.3).collect();
        assert_eq!(added, [vec![4], vec![0], vec![1]]);
    }
}
