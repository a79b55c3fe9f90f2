//! Reads an input as a configuration of the Click modular router, and writes its routes again.
//!
//! Bytes below 32 stand for the words of `WORDS`, so that short inputs have routes; all others are the text itself.

use feed::{Format, Options, RoutingTable, WriteError, WriteOptions, read, write};

const WORDS: [&str; 32] = [
    "rt :: RadixIPLookup(",
    "r6 :: LookupIP6Route(",
    ");\n",
    "10.0.0.0/8",
    "10.1.0.0/16",
    "192.0.2.7",
    "10.9.8.7/255.255.0.0",
    "2001:db8::/32",
    "2001:db8:1::/48",
    " 192.0.2.1 0, ",
    "\n",
    " fe80::1 1, ",
    " 1",
    "0/0",
    "::/0",
    " - 2,",
    "/* ",
    " */",
    "// ",
    "\"",
    ", ",
    " -> ",
    "Idle",
    "FingerpostIPLookup(",
    "[1]",
    "::ffff:10.0.0.1/128",
    "65535",
    "10/8",
    "\\\n",
    "'",
    "elementclass E { ",
    "}",
];

/// The outcomes of the inputs played.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tally {
    /// Configurations with routes that were written again.
    pub written: usize,
    /// Configurations with routes of both families.
    pub both: usize,
    /// Those with an error.
    pub refused: usize,
}

fn read_text(text: &[u8], partial: bool) -> Result<RoutingTable, feed::Error> {
    let options = Options { format: Some(Format::Click), partial, ..Options::default() };
    read(text, "fuzz".as_ref(), &options)
}

/// Lists the routes with the texts of their labels.
fn routes(table: &RoutingTable) -> Vec<(String, String)> {
    let label = |label| table.labels.get(label).to_owned();
    let v4 = table.v4.iter().map(|&(prefix, number)| (prefix.to_string(), label(number)));
    let v6 = table.v6.iter().map(|&(prefix, number)| (prefix.to_string(), label(number)));
    v4.chain(v6).collect()
}

/// Plays one input.
///
/// # Panics
///
/// If a comment in front changes the routes, if a partial read has others, or if those written again differ.
pub fn click(input: &[u8], tally: &mut Tally) {
    let mut text = Vec::new();
    for byte in input {
        match WORDS.get(usize::from(*byte)) {
            Some(word) => text.extend(word.bytes()),
            None => text.push(*byte),
        }
    }
    let partial = read_text(&text, true).expect("a partial read has no damage");
    let table = match read_text(&text, false) {
        Ok(table) => table,
        Err(error) => {
            assert!(matches!(error, feed::Error::Line { .. }), "{error}");
            tally.refused += 1;
            return;
        }
    };
    let found = routes(&table);
    assert_eq!(routes(&partial), found);
    let commented = [&b"/* 10/8 1, ) */ // RadixIPLookup(\n"[..], &text].concat();
    let commented = read_text(&commented, false).expect("a comment is no error");
    assert_eq!(routes(&commented), found);

    let mut rewritten = Vec::new();
    match write(&table, Format::Click, &WriteOptions::default(), &mut rewritten) {
        Ok(()) => {}
        // A gateway of the other family.
        Err(WriteError::Route { .. }) => return,
        Err(error) => panic!("{error}"),
    }
    let reread = read_text(&rewritten, false).expect("what was written is a configuration");
    assert_eq!(routes(&reread), found);
    tally.written += usize::from(!found.is_empty());
    tally.both += usize::from(!table.v4.is_empty() && !table.v6.is_empty());
}
