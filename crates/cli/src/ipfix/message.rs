//! IPFIX messages (RFC 7011, 3).
//!
//! ```text
//!   version 10 │ length │ export time │ sequence │ domain
//!   set: id │ length │ record │ record …
//!   set: …
//! ```
//!
//! The sequence is the number of data records before the message; templates are none. A message is at
//! most [`MOST`] bytes, so that it is one packet on nearly every path.

/// The sets of templates and of options templates (RFC 7011, 3.3.2).
pub(super) const TEMPLATES: u16 = 2;
pub(super) const OPTIONS_TEMPLATES: u16 = 3;
/// The first number of a template, and so of a set of data records.
pub(super) const FIRST_TEMPLATE: u16 = 256;

/// The most bytes of a message.
const MOST: usize = 1400;
const HEADER: usize = 16;
const SET_HEADER: usize = 4;

/// The message that is being filled, and the number of records before it.
pub(super) struct Messages {
    domain: u32,
    sequence: u32,
    /// The sets of the message, and the data records in them.
    sets: Vec<u8>,
    records: u32,
    /// The last set: its number, and where it begins.
    last: Option<(u16, usize)>,
}

impl Messages {
    /// Begins the messages of an observation domain.
    pub(super) fn new(domain: u32) -> Self {
        Self { domain, sequence: 0, sets: Vec::new(), records: 0, last: None }
    }

    /// Returns the observation domain.
    pub(super) fn domain(&self) -> u32 {
        self.domain
    }

    /// Adds a record to a set. Returns the message before it if there is no room for both.
    pub(super) fn add(&mut self, set: u16, record: &[u8], time: u32) -> Option<Vec<u8>> {
        let needed = SET_HEADER + record.len();
        let is_full = HEADER + self.sets.len() + needed > MOST;
        let full = if is_full { self.take(time) } else { None };
        let start = match self.last {
            // nfacctd 1.7.7 loses the message after the first of several options templates of a set.
            Some((last, start)) if last == set && set != OPTIONS_TEMPLATES => start,
            _ => {
                let start = self.sets.len();
                self.sets.extend(set.to_be_bytes());
                self.sets.extend([0; 2]);
                start
            }
        };
        self.last = Some((set, start));
        self.sets.extend(record);
        let length = (self.sets.len() - start) as u16;
        if let Some(field) = self.sets.get_mut(start + 2..start + SET_HEADER) {
            field.copy_from_slice(&length.to_be_bytes());
        }
        self.records += u32::from(set >= FIRST_TEMPLATE);
        full
    }

    /// Returns the message, if it has a record.
    pub(super) fn take(&mut self, time: u32) -> Option<Vec<u8>> {
        if self.sets.is_empty() {
            return None;
        }
        let length = (HEADER + self.sets.len()) as u16;
        let mut message = Vec::with_capacity(length.into());
        message.extend(10u16.to_be_bytes());
        message.extend(length.to_be_bytes());
        message.extend(time.to_be_bytes());
        message.extend(self.sequence.to_be_bytes());
        message.extend(self.domain.to_be_bytes());
        message.append(&mut self.sets);
        self.sequence = self.sequence.wrapping_add(std::mem::take(&mut self.records));
        self.last = None;
        Some(message)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_of_one_template_share_a_set_and_the_sequence_counts_them() {
        let mut messages = Messages::new(7);
        for (set, record) in [(TEMPLATES, [1, 2]), (256, [3, 4]), (256, [5, 6]), (257, [7, 8])] {
            assert_eq!(messages.add(set, &record, 9), None);
        }
        let message = messages.take(9).unwrap();
        let expected = [
            &[0, 10, 0, 36, 0, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0, 7][..],
            &[0, 2, 0, 6, 1, 2],
            &[1, 0, 0, 8, 3, 4, 5, 6],
            &[1, 1, 0, 6, 7, 8],
        ];
        assert_eq!(message, expected.concat());
        assert_eq!(messages.take(9), None);
        messages.add(256, &[1], 10);
        assert_eq!(messages.take(10).unwrap()[8..12], [0, 0, 0, 3]);
    }

    #[test]
    fn message_is_at_most_its_limit_and_no_record_is_lost() {
        let mut messages = Messages::new(1);
        let record = |number: u16| number.to_be_bytes().repeat(45);
        let mut all: Vec<_> = (0..1000)
            .filter_map(|number| messages.add(256 + number / 3 % 2, &record(number), 1))
            .collect();
        all.extend(messages.take(1));
        assert!(all.iter().all(|message| message.len() <= MOST));
        assert_eq!(messages.sequence, 1000);
        let mut numbers = Vec::new();
        for message in &all {
            let mut sets = &message[HEADER..];
            while !sets.is_empty() {
                let length = usize::from(u16::from_be_bytes([sets[2], sets[3]]));
                let (set, rest) = sets.split_at(length);
                let records = set[SET_HEADER..].chunks(90);
                numbers.extend(records.map(|record| u16::from_be_bytes([record[0], record[1]])));
                sets = rest;
            }
        }
        assert_eq!(numbers, (0..1000).collect::<Vec<_>>());
    }
}
