//! The JSON of a pull.
//!
//! ```text
//!   {"new": [{"id": 5, "origin": "cscli", "scenario": "manual 'ban' from 'test'", "scope": "Ip",
//!             "type": "ban", "value": "192.0.2.3", "duration": "3h59m58.978901378s"}],
//!    "deleted": [{"id": 4, …, "duration": "-12.223534ms"}]}
//! ```
//!
//! Either list is `null` if it is empty, in 1.4.6. Both keys are required, so that another
//! program's JSON is an error and not an empty set. Unknown keys, such as `uuid`, are ignored.
//!
//! Texts are borrowed from the body, which may have tens of megabytes.

use std::borrow::Cow;

use serde::Deserialize;

/// A response of the decision stream.
#[derive(Debug, Deserialize)]
pub(super) struct Pull<'a> {
    /// The decisions that were created; all that are in force, in a full pull.
    #[serde(borrow, deserialize_with = "Option::deserialize")]
    new: Option<Vec<Decision<'a>>>,
    /// The decisions that have ended, by their time or by a command.
    #[serde(deserialize_with = "Option::deserialize")]
    deleted: Option<Vec<EndedDecision>>,
}

/// A decision in force.
#[derive(Debug, Deserialize)]
pub(super) struct Decision<'a> {
    pub(super) id: i64,
    /// `ban`, `captcha`, or another.
    #[serde(rename = "type", borrow)]
    pub(super) kind: Cow<'a, str>,
    /// `Ip`, `Range`, `Country`, `AS`, or another.
    #[serde(borrow)]
    pub(super) scope: Cow<'a, str>,
    /// An address, a prefix, or a value of another scope.
    #[serde(borrow)]
    pub(super) value: Cow<'a, str>,
    /// The time left.
    #[serde(borrow)]
    pub(super) duration: Cow<'a, str>,
}

/// A decision that has ended. The other keys are those that it had.
#[derive(Debug, Deserialize)]
struct EndedDecision {
    id: i64,
}

impl<'a> Pull<'a> {
    /// Parses a response.
    ///
    /// # Errors
    ///
    /// The place and kind of damage.
    pub(super) fn parse(body: &'a [u8]) -> Result<Self, String> {
        serde_json::from_slice(body).map_err(|error| {
            format!(
                "the response is not a complete decision stream: {error}: \
                 check that the URL is that of CrowdSec's Local API"
            )
        })
    }

    /// Returns the decisions that were created.
    pub(super) fn new_decisions(&self) -> &[Decision<'a>] {
        self.new.as_deref().unwrap_or_default()
    }

    /// Returns the ids of the decisions that have ended.
    pub(super) fn ended_ids(&self) -> impl Iterator<Item = i64> {
        self.deleted.iter().flatten().map(|decision| decision.id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn empty_lists_are_null_or_empty() {
        for body in [r#"{"deleted":null,"new":null}"#, r#"{"new": [], "deleted": []}"#] {
            let pull = Pull::parse(body.as_bytes()).unwrap();
            assert!(pull.new_decisions().is_empty() && pull.ended_ids().next().is_none());
        }
    }

    #[test]
    fn decision_with_escapes_and_unknown_keys_is_parsed() {
        let body = r#"{"new":[{"id":7,"type":"b\u0061n","scope":"Ip","value":"2001:db8::1",
            "duration":"1\u00b5s","uuid":"x","simulated":false,"scenario":"s","origin":"cscli"}],
            "deleted":[{"id":4,"duration":"-2s"},{"id":-1}], "links": {}}"#;
        let pull = Pull::parse(body.as_bytes()).unwrap();
        let decision = &pull.new_decisions()[0];
        assert_eq!((decision.id, &*decision.kind, &*decision.duration), (7, "ban", "1µs"));
        assert!(matches!(decision.value, Cow::Borrowed(_)));
        assert_eq!(pull.ended_ids().collect::<Vec<_>>(), [4, -1]);
    }

    #[test]
    fn damaged_response_is_an_error() {
        for body in [
            "",
            "null",
            "[]",
            "{}",
            r#"{"message":"access forbidden"}"#,
            r#"{"new":null}"#,
            r#"{"deleted":null}"#,
            r#"{"new":[{"id":1}],"deleted":null}"#,
            r#"{"new":[],"deleted":[{}]}"#,
            r#"{"new":[],"deleted":[]"#,
            r#"{"new":[],"deleted":[]}{"#,
            "<html>\u{0}</html>",
        ] {
            let error = Pull::parse(body.as_bytes()).unwrap_err();
            assert!(
                error.starts_with("the response is not a complete decision stream: "),
                "{body}"
            );
        }
        let body = br#"{"new":[{"id":1,"type":"ban","scope":"Ip","value":"?","duration":"1h"}],
            "deleted":null}"#;
        assert!(Pull::parse(body).is_ok());
        assert!(Pull::parse(&body.map(|byte| if byte == b'?' { 0xff } else { byte })).is_err());
    }
}
