//! Text formats: lines in, routes or events out.
//!
//! | file | format | a line |
//! |---|---|---|
//! | `table`   | text table      | `1.0.0.0/24 192.0.2.1` |
//! | `bgpdump` | `bgpdump -m`    | `TABLE_DUMP2\|1785420000\|B\|192.0.2.1\|64500\|1.0.0.0/24\|…` |
//! | `changes` | text updates    | `1418774413 a 1.0.0.0/24 192.0.2.1` |
//! | `click`   | Click configuration | `rt :: RadixIPLookup(1.0.0.0/24 192.0.2.1 0);` |
//! | `iproute` | `ip -j route`   | (JSON, not lines) |
//! | `pfx2as`  | CAIDA's origins | `1.0.0.0\t24\t13335` |
//! | `scan`    | the fields and prefixes of all of these | |
//!
//! A file may have both families. Lines end with LF or CR LF. The last line of a complete file may
//! lack its end; the last line of a truncated file is not trusted, because `10.0.0.0/2` may have
//! been a `/24`.

pub(crate) mod bgpdump;
pub(crate) mod changes;
pub(crate) mod click;
pub(crate) mod iproute;
pub(crate) mod pfx2as;
pub(crate) mod scan;
pub(crate) mod table;

use memchr::memchr;

use crate::error::Fault;
use crate::source::Source;

/// The longest line that is read: 1 MiB.
const MAX_LINE_LEN: usize = 1 << 20;

/// Calls `each` with each line, without its end, and its number, until the content ends or `each`
/// returns an error.
pub(crate) fn each_line(
    source: &mut Source<'_>,
    mut each: impl FnMut(u64, &[u8]) -> Result<(), String>,
) -> Result<(), Fault> {
    let mut line = 0u64;
    loop {
        let window = source.window();
        let mut at = 0;
        while let Some(length) = memchr(b'\n', &window[at..]) {
            line += 1;
            let text = &window[at..at + length];
            let text = text.strip_suffix(b"\r").unwrap_or(text);
            each(line, text).map_err(|what| Fault::in_line(line, text, what))?;
            at += length + 1;
        }
        let rest = window.len() - at;
        source.consume(at);
        if rest > MAX_LINE_LEN {
            return Err(Fault::in_line(
                line + 1,
                source.window(),
                "the line is longer than 1 MiB: this is no text table",
            ));
        }
        if source.fill() {
            continue;
        }
        if let Some(what) = source.broken() {
            let what = what.to_owned();
            return Err(Fault::Damage { offset: source.offset(), record: line + 1, what });
        }
        let text = source.window();
        let text = text.strip_suffix(b"\r").unwrap_or(text);
        if !text.is_empty() {
            each(line + 1, text).map_err(|what| Fault::in_line(line + 1, text, what))?;
        }
        return Ok(());
    }
}
