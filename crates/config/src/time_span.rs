//! Durations in configuration files: a number and its unit, such as `"300ms"` or `"1h 30m"`.
//!
//! A key names what it limits, and its value brings the unit, so that no operator has to remember
//! which keys are in seconds and which in milliseconds. A bare number is refused with the remedy.
//! The grammar is that of the crate `humantime`: `ns`, `us`, `ms`, `s`, `m`, `h`, `days`, `weeks`.

use std::fmt;
use std::ops::RangeInclusive;
use std::time::Duration;

use serde::de::{Deserialize, Deserializer, Error, Visitor};
use toml::Spanned;

use super::checker::Checker;

/// A duration that a configuration file states with its unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct TimeSpan(Duration);

impl TimeSpan {
    /// Returns the duration of so many seconds.
    pub const fn seconds(count: u64) -> Self {
        Self(Duration::from_secs(count))
    }

    /// Returns the duration of so many milliseconds.
    pub const fn milliseconds(count: u64) -> Self {
        Self(Duration::from_millis(count))
    }

    /// Returns the duration of so many microseconds.
    pub const fn microseconds(count: u64) -> Self {
        Self(Duration::from_micros(count))
    }

    /// Returns the duration of so many nanoseconds.
    pub const fn nanoseconds(count: u64) -> Self {
        Self(Duration::from_nanos(count))
    }

    /// Returns the value of a key, or `default` where the file does not state it. Reports a value
    /// outside `range` to `c`, and returns it all the same.
    pub fn within(
        c: &mut Checker<'_>,
        stated: Option<Spanned<Self>>,
        key: &'static str,
        default: Self,
        range: RangeInclusive<Self>,
    ) -> Duration {
        let Some(stated) = stated else { return default.0 };
        if !range.contains(stated.get_ref()) {
            let (least, most) = range.into_inner();
            let value = stated.get_ref();
            let what = format!("{value} is out of range: from {least} to {most}");
            c.problem(&stated, key, what);
        }
        stated.into_inner().0
    }
}

impl From<TimeSpan> for Duration {
    fn from(span: TimeSpan) -> Self {
        span.0
    }
}

impl fmt::Display for TimeSpan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        humantime::format_duration(self.0).fmt(f)
    }
}

impl<'de> Deserialize<'de> for TimeSpan {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Text;

        impl Visitor<'_> for Text {
            type Value = TimeSpan;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(
                    "a duration with its unit in quotes, such as \"500ms\", \"60s\" or \"1h\"",
                )
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<TimeSpan, E> {
                humantime::parse_duration(text).map(TimeSpan).map_err(|error| {
                    E::custom(format!(
                        "duration {text:?}: {error}; write a number and a unit, such as \"500ms\", \
                         \"60s\" or \"1h\""
                    ))
                })
            }
        }

        from.deserialize_str(Text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, serde::Deserialize)]
    struct File {
        interval: Option<Spanned<TimeSpan>>,
    }

    fn read(value: &str) -> Result<Option<Spanned<TimeSpan>>, String> {
        let file: Result<File, _> = toml::from_str(&format!("interval = {value}\n"));
        file.map(|file| file.interval).map_err(|error| error.message().to_owned())
    }

    #[test]
    fn durations_with_units_are_read() {
        for (text, milliseconds) in
            [("\"300ms\"", 300), ("\"60s\"", 60_000), ("\"1h 30m\"", 5_400_000), ("\"0s\"", 0)]
        {
            let span = read(text).unwrap().unwrap();
            assert_eq!(*span.get_ref(), TimeSpan::milliseconds(milliseconds), "{text}");
        }
    }

    #[test]
    fn bare_number_is_refused_with_the_remedy() {
        let message = read("60").unwrap_err();
        assert!(message.contains("a duration with its unit in quotes"), "{message}");
        let message = read("\"60\"").unwrap_err();
        assert!(message.contains("duration \"60\"") && message.contains("\"60s\""), "{message}");
        let message = read("\"soon\"").unwrap_err();
        assert!(message.contains("duration \"soon\""), "{message}");
    }

    #[test]
    fn value_out_of_range_is_reported_with_its_place() {
        let range = TimeSpan::seconds(1)..=TimeSpan::seconds(86_400);
        let stated = read("\"200ms\"").unwrap();
        let default = TimeSpan::seconds(60);
        let mut c = Checker::new("interval = \"200ms\"\n");
        TimeSpan::within(&mut c, stated, "interval", default, range.clone());
        assert_eq!(
            c.finish("f.toml".as_ref()).unwrap_err().to_string(),
            "f.toml:1: interval: 200ms is out of range: from 1s to 1day"
        );
        let value = TimeSpan::within(&mut c, None, "interval", default, range);
        assert!(c.is_valid());
        assert_eq!(value, Duration::from_secs(60));
    }
}
