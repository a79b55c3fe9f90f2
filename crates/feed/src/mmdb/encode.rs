//! Encodes labels as records of a MaxMind database: the data section.
//!
//! ```text
//! label ─► JSON value, or a string ─► control byte, size, content
//!                                     pointer to an equal value that stands before
//! ```
//!
//! A label that is a JSON object, array, string, boolean or integer is a record of that type, and any other label is a
//! string. Integers are unsigned of 32, 64 or 128 bits, whichever fits first, or signed of 32 bits if they are
//! negative; other numbers are doubles, and `null` is the double that is not a number, as the reader prints it.
//!
//! A text, an object or an array that occurs again is a pointer to its first occurrence, so that a
//! database of a million cities has each country's names once.
//!
//! Source: MaxMind DB File Format Specification 2.0, "Output Data Section".

use core::fmt;

use hashbrown::HashMap;
use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;

/// MaxMind's C library reads no record that is nested more deeply.
const MAX_DEPTH: usize = 512;

/// The longest text and the largest map or array: sizes have 24 bits above 65821.
const MAX_SIZE: usize = 65_821 + (1 << 24) - 1;

/// A text whose JSON is shorter is not longer than a pointer.
const MIN_SHARED_LEN: usize = 6;

/// The types of the format that are written.
#[derive(Clone, Copy)]
pub(super) enum Type {
    String = 2,
    Double = 3,
    Unsigned16 = 5,
    Unsigned32 = 6,
    Map = 7,
    Signed32 = 8,
    Unsigned64 = 9,
    Unsigned128 = 10,
    Array = 11,
    Boolean = 14,
}

/// A data section that grows by a record at a time. Pointers count from its beginning.
#[derive(Default)]
pub(super) struct Records<'t> {
    bytes: Vec<u8>,
    /// The values that may occur again, by their JSON, and where they stand.
    shared: HashMap<&'t str, u32>,
    /// Where the key of all records stands.
    key: Option<u32>,
}

/// The members of a JSON object, in its order.
struct Members<'t>(Vec<(&'t RawValue, &'t RawValue)>);

impl<'t> Deserialize<'t> for Members<'t> {
    fn deserialize<D: Deserializer<'t>>(deserializer: D) -> Result<Self, D::Error> {
        struct Collect;
        impl<'t> Visitor<'t> for Collect {
            type Value = Members<'t>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'t>>(self, mut map: A) -> Result<Members<'t>, A::Error> {
                let mut members = Vec::new();
                while let Some(member) = map.next_entry()? {
                    members.push(member);
                }
                Ok(Members(members))
            }
        }
        deserializer.deserialize_map(Collect)
    }
}

/// Returns the JSON of a label that is a record of its own type; `None` if the record is the label's text.
fn json(label: &str) -> Option<&str> {
    let is_json = match label.bytes().next()? {
        b'{' | b'[' | b'"' | b't' | b'f' => true,
        // Not 1.10, an AS number or a version.
        b'-' | b'0'..=b'9' => !label.contains(['.', 'e', 'E']),
        _ => false,
    };
    let raw: &RawValue = serde_json::from_str(label).ok().filter(|_| is_json)?;
    Some(raw.get())
}

impl<'t> Records<'t> {
    /// Adds the record of a label, in a map with `key` if there is one; returns its offset.
    ///
    /// A label without text is an empty map, for a prefix that is in the table without more.
    pub(super) fn label(&mut self, key: Option<&str>, label: &'t str) -> Result<u32, String> {
        let at = self.here()?;
        if label.is_empty() {
            self.control(Type::Map, 0)?;
            return Ok(at);
        }
        if let Some(key) = key {
            self.control(Type::Map, 1)?;
            self.record_key(key)?;
        }
        match (json(label), key) {
            (Some(value), Some(_)) => self.value(value, 2)?,
            // Whole, though it may be a part of a former record: readers that verify a database want that.
            (Some(value), None) => self.whole(value, 1)?,
            (None, _) => self.text(label)?,
        }
        Ok(at)
    }

    /// Adds the key of all records, or a pointer to it.
    fn record_key(&mut self, key: &str) -> Result<(), String> {
        match self.key {
            Some(at) => self.pointer(at),
            None => {
                self.key = Some(self.here()?);
                self.text(key)?;
            }
        }
        Ok(())
    }

    /// Returns the bytes of all records.
    pub(super) fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }

    fn here(&self) -> Result<u32, String> {
        u32::try_from(self.bytes.len()).map_err(|_| "the records are longer than 4 GiB".to_owned())
    }

    /// Adds a JSON value, or a pointer to an equal one.
    fn value(&mut self, json: &'t str, depth: usize) -> Result<(), String> {
        match self.shared.get(json) {
            Some(&at) => self.pointer(at),
            None => self.whole(json, depth)?,
        }
        Ok(())
    }

    /// Adds a JSON value, whose parts may be pointers.
    fn whole(&mut self, json: &'t str, depth: usize) -> Result<(), String> {
        if depth > MAX_DEPTH {
            return Err(format!("the record is nested more than {MAX_DEPTH} levels deep"));
        }
        let first = json.as_bytes()[0];
        if matches!(first, b'{' | b'[' | b'"') && json.len() >= MIN_SHARED_LEN {
            let here = self.here()?;
            self.shared.entry(json).or_insert(here);
        }
        let error = |error: serde_json::Error| format!("the record is not JSON: {error}");
        match first {
            b'{' => {
                let Members(members) = serde_json::from_str(json).map_err(error)?;
                self.control(Type::Map, members.len())?;
                for (name, value) in members {
                    self.value(name.get(), depth + 1)?;
                    self.value(value.get(), depth + 1)?;
                }
                Ok(())
            }
            b'[' => {
                let values: Vec<&RawValue> = serde_json::from_str(json).map_err(error)?;
                self.control(Type::Array, values.len())?;
                values.into_iter().try_for_each(|value| self.value(value.get(), depth + 1))
            }
            b'"' => self.text(&serde_json::from_str::<String>(json).map_err(error)?),
            b't' => self.control(Type::Boolean, 1),
            b'f' => self.control(Type::Boolean, 0),
            b'n' => self.double(f64::NAN),
            _ if json.contains(['.', 'e', 'E']) => self.double(json.parse().map_err(|_| json)?),
            b'-' => {
                let number: i32 = json
                    .parse()
                    .map_err(|_| format!("no integer of a database is as low as {json}"))?;
                self.control(Type::Signed32, 4)?;
                self.bytes.extend(number.to_be_bytes());
                Ok(())
            }
            _ => {
                let number: u128 = json
                    .parse()
                    .map_err(|_| format!("no integer of a database is as high as {json}"))?;
                let kind = match number {
                    0..=0xffff_ffff => Type::Unsigned32,
                    0x1_0000_0000..=0xffff_ffff_ffff_ffff => Type::Unsigned64,
                    _ => Type::Unsigned128,
                };
                self.unsigned(kind, number)
            }
        }
    }

    /// Adds a text.
    pub(super) fn text(&mut self, text: &str) -> Result<(), String> {
        self.control(Type::String, text.len())?;
        self.bytes.extend(text.as_bytes());
        Ok(())
    }

    fn double(&mut self, number: f64) -> Result<(), String> {
        self.control(Type::Double, 8)?;
        self.bytes.extend(number.to_be_bytes());
        Ok(())
    }

    /// Adds an integer without its leading bytes of zero.
    pub(super) fn unsigned(&mut self, kind: Type, number: u128) -> Result<(), String> {
        let bytes = number.to_be_bytes();
        let begin = number.leading_zeros() as usize / 8;
        self.control(kind, bytes.len() - begin)?;
        self.bytes.extend(&bytes[begin..]);
        Ok(())
    }

    /// Adds the control byte of a value, its type if that is an extended one, and the rest of its size.
    pub(super) fn control(&mut self, kind: Type, size: usize) -> Result<(), String> {
        let (low, rest, width) = match size {
            0..=28 => (size, 0, 0),
            29..=284 => (29, size - 29, 1),
            285..=65_820 => (30, size - 285, 2),
            65_821..=MAX_SIZE => (31, size - 65_821, 3),
            _ => return Err(format!("no value of a database has more than {MAX_SIZE} parts")),
        };
        let (kind, extended) = match kind as u8 {
            kind @ 1..=7 => (kind, None),
            kind => (0, Some(kind - 7)),
        };
        self.bytes.push(kind << 5 | low as u8);
        self.bytes.extend(extended);
        self.bytes.extend(&rest.to_be_bytes()[size_of::<usize>() - width..]);
        Ok(())
    }

    /// Adds a pointer to the value at an offset, in the shortest form.
    fn pointer(&mut self, at: u32) {
        const POINTER: u8 = 1 << 5;
        let (form, rest, width) = match at {
            0..=0x7ff => (0, at, 1),
            0x800..=0x8_07ff => (1, at - 0x800, 2),
            0x8_0800..=0x808_07ff => (2, at - 0x8_0800, 3),
            _ => (3, at, 4),
        };
        let rest = rest.to_be_bytes();
        let high = if width < 4 { rest[3 - width] } else { 0 };
        self.bytes.push(POINTER | form << 3 | high);
        self.bytes.extend(&rest[4 - width..]);
    }
}

#[cfg(test)]
mod tests {
    use super::{MAX_DEPTH, Records};

    #[test]
    fn sizes_and_pointers_have_the_shortest_form_at_their_borders() {
        for (size, head) in [
            (28, &[0x5c][..]),
            (29, &[0x5d, 0]),
            (284, &[0x5d, 255]),
            (285, &[0x5e, 0, 0]),
            (65_820, &[0x5e, 255, 255]),
            (65_821, &[0x5f, 0, 0, 0]),
        ] {
            let text = "x".repeat(size);
            let mut records = Records::default();
            records.label(None, &text).unwrap();
            assert_eq!(records.into_bytes().split_at(head.len()).0, head, "{size}");
        }
        for (at, pointer) in [
            (0, &[0x20, 0][..]),
            (0x7ff, &[0x27, 0xff]),
            (0x800, &[0x28, 0, 0]),
            (0x8_07ff, &[0x2f, 0xff, 0xff]),
            (0x8_0800, &[0x30, 0, 0, 0]),
            (0x808_07ff, &[0x37, 0xff, 0xff, 0xff]),
            (0x808_0800, &[0x38, 8, 8, 8, 0]),
        ] {
            let mut records = Records::default();
            records.pointer(at);
            assert_eq!(records.into_bytes(), pointer, "{at:#x}");
        }
    }

    #[test]
    fn record_that_no_database_can_have_is_an_error() {
        let deep = "[".repeat(MAX_DEPTH + 1) + &"]".repeat(MAX_DEPTH + 1);
        for label in ["-2147483649", "340282366920938463463374607431768211456", &deep] {
            let error = Records::default().label(None, label).unwrap_err();
            assert!(error.contains("no integer") || error.contains("512"), "{error}");
        }
        Records::default().label(None, &deep[1..deep.len() - 1]).unwrap();
    }
}
