//! Lines of the control socket: a line that was read can be written and is read the same.

use api::{Line, Message};

/// Counts of the results of inputs.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tally {
    /// Lines that were parsed, of either direction.
    pub understood: u32,
    /// Others.
    pub refused: u32,
}

/// Plays one input.
///
/// # Panics
///
/// If a line differs after it was written and read again.
pub fn control(input: &[u8], tally: &mut Tally) {
    let Ok(text) = std::str::from_utf8(input) else { return };
    match serde_json::from_str::<Message>(text) {
        Ok(message) => {
            tally.understood += 1;
            let written = serde_json::to_string(&message).expect("a message can be written");
            assert_eq!(serde_json::from_str::<Message>(&written).ok(), Some(message), "{written}");
        }
        Err(_) => tally.refused += 1,
    }
    // Answers may contain NaN, which is not equal to itself; their text is.
    if let Ok(line) = serde_json::from_str::<Line>(text) {
        tally.understood += 1;
        let written = serde_json::to_string(&line).expect("an answer can be written");
        let reread: Line = serde_json::from_str(&written).expect("a written line is readable");
        assert_eq!(serde_json::to_string(&reread).expect("and written again"), written);
    }
}
