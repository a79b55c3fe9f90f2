//! The label of members that have something in common, such as a place or a role.
//!
//! A stage of a rollout may be for the members of a label. Members have their labels in their own
//! configuration; a bundle names one.

use core::fmt;
use core::str::FromStr;

/// Longest label, in bytes.
pub const MAX_LABEL_LEN: usize = 32;

/// A label: 1 to [`MAX_LABEL_LEN`] letters, digits, `-` and `_`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Label {
    /// Padded with zeros.
    bytes: [u8; MAX_LABEL_LEN],
}

impl Label {
    /// Returns the text.
    pub fn as_str(&self) -> &str {
        let end = self.bytes.iter().position(|byte| *byte == 0).unwrap_or(MAX_LABEL_LEN);
        // Only ASCII is accepted.
        core::str::from_utf8(&self.bytes[..end]).unwrap_or_default()
    }
}

impl fmt::Debug for Label {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Label({self})")
    }
}

impl fmt::Display for Label {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The error of a text that is not a label.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ParseLabelError;

impl fmt::Display for ParseLabelError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("not a label: write 1 to 32 letters, digits, - and _")
    }
}

impl std::error::Error for ParseLabelError {}

impl FromStr for Label {
    type Err = ParseLabelError;

    fn from_str(text: &str) -> Result<Self, ParseLabelError> {
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
        let mut bytes = [0; MAX_LABEL_LEN];
        let room = bytes.get_mut(..text.len()).filter(|room| !room.is_empty());
        match room {
            Some(room) if text.bytes().all(is_plain) => room.copy_from_slice(text.as_bytes()),
            _ => return Err(ParseLabelError),
        }
        Ok(Self { bytes })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn label_is_plain_text() {
        let longest = "x".repeat(MAX_LABEL_LEN);
        for text in ["edge", "fra-1_a", "A", &longest] {
            assert_eq!(text.parse::<Label>().unwrap().to_string(), text);
        }
        for text in ["", "a b", "ä", "a.b", &format!("{longest}x"), "a\0"] {
            assert_eq!(text.parse::<Label>(), Err(ParseLabelError), "{text:?}");
        }
    }
}
