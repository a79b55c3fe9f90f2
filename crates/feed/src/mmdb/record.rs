//! A record of a MaxMind database as JSON.
//!
//! The types of the format are those of JSON and a few more: integers of up to 128 bits are numbers of all
//! their digits, bytes are a string of hexadecimal digits, and floating-point numbers that JSON lacks are `null`. The keys
//! of a map keep the order of the file.

use core::fmt::{self, Write};

use serde::de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde::ser::Serialize;

/// A record, as JSON without blanks between its parts.
#[derive(Default)]
pub(super) struct Record(pub(super) String);

impl<'de> Deserialize<'de> for Record {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ToJson)
    }
}

/// Writes each value as JSON. Narrower integers arrive as those of 64 bits.
struct ToJson;

/// Returns the JSON of a value that has one.
fn json<E: Error>(value: impl Serialize) -> Result<Record, E> {
    serde_json::to_string(&value).map(Record).map_err(E::custom)
}

impl<'de> Visitor<'de> for ToJson {
    type Value = Record;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a record")
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Record, E> {
        json(value)
    }
    fn visit_i64<E: Error>(self, value: i64) -> Result<Record, E> {
        json(value)
    }
    fn visit_u64<E: Error>(self, value: u64) -> Result<Record, E> {
        json(value)
    }
    fn visit_u128<E: Error>(self, value: u128) -> Result<Record, E> {
        Ok(Record(value.to_string()))
    }
    fn visit_f32<E: Error>(self, value: f32) -> Result<Record, E> {
        json(value)
    }
    fn visit_f64<E: Error>(self, value: f64) -> Result<Record, E> {
        json(value)
    }
    fn visit_str<E: Error>(self, value: &str) -> Result<Record, E> {
        json(value)
    }

    fn visit_bytes<E: Error>(self, value: &[u8]) -> Result<Record, E> {
        let mut text = String::with_capacity(2 * value.len() + 2);
        text.push('"');
        for byte in value {
            write!(text, "{byte:02x}").map_err(E::custom)?;
        }
        text.push('"');
        Ok(Record(text))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut values: A) -> Result<Record, A::Error> {
        let mut text = String::from("[");
        while let Some(Record(value)) = values.next_element()? {
            if text.len() > 1 {
                text.push(',');
            }
            text.push_str(&value);
        }
        text.push(']');
        Ok(Record(text))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut values: A) -> Result<Record, A::Error> {
        let mut text = String::from("{");
        while let Some((Record(key), Record(value))) = values.next_entry()? {
            if text.len() > 1 {
                text.push(',');
            }
            text.push_str(&key);
            text.push(':');
            text.push_str(&value);
        }
        text.push('}');
        Ok(Record(text))
    }
}
