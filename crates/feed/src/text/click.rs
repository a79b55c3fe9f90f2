//! Configurations of the Click modular router: the routes of its lookup elements.
//!
//! ```text
//! rt :: RadixIPLookup(          // an element, by its name and its class
//!     192.0.2.0/24 10.0.0.1 0,  // PREFIX [GATEWAY] OUTPUT; a gateway "-" is none
//!     10/8 1);                  // zero bytes at the end of an address may be left out
//! Idle -> rt; rt[0] -> Discard; // all else is passed over
//! ```
//!
//! The elements are those whose class ends with `IPLookup` or `IP6Lookup`, as all do that have the interface of Click's
//! `IPRouteTable`, and `LookupIP6Route`. A route's label is its gateway, or its output if it has none. As in Click, a
//! length may be a netmask, bits beyond the length are cleared, and of several routes of a prefix the first applies for
//! IPv4, the last for IPv6. Only one element of a file may have routes of a family: a file is one table.
//!
//! States: outside of an element's parentheses the scanner looks for a class; within them it collects arguments, which
//! end at commas. Comments (`//`, `/* */`) and quoted strings are passed over in both.

use core::net::{IpAddr, Ipv4Addr};
use std::io::Write;

use crate::error::{Fault, WriteError, excerpt};
use crate::prefix::AnyPrefix;
use crate::route_list::RouteList;
use crate::routing_table::RoutingTable;
use crate::source::Source;
use crate::text::{each_line, scan};

/// The most outputs of an element that is written: each needs a line of its own.
const MAX_OUTPUTS: u32 = 1 << 16;

/// The most next hops of Click's `RadixIPLookup`, which ends the program if there are more.
const MAX_RADIX_NEXT_HOPS: usize = 255;

/// Returns whether a configuration with routes begins here.
pub(crate) fn begins(head: &[u8]) -> bool {
    let mut scanner = Scanner::default();
    // Comments of text tables may have any parentheses.
    let mut lines = head.split(|&b| b == b'\n').filter(|line| !scan::is_comment(line));
    lines.any(|line| {
        let is_sound = scanner.line(line, |_, _| Ok(())).is_ok();
        is_sound && scanner.has_table
    })
}

/// Reads all routes.
pub(crate) fn read(source: &mut Source<'_>, routes: &mut RouteList<u64>) -> Result<(), Fault> {
    let mut scanner = Scanner::default();
    // The names of the elements with routes of IPv6 and of IPv4.
    let mut names: [Option<String>; 2] = [None, None];
    let mut last_line = (0, Vec::new());
    each_line(source, |number, line| {
        last_line.0 = number;
        last_line.1.clear();
        last_line.1.extend_from_slice(line);
        scanner.line(line, |name, argument| {
            let (prefix, label) = route(argument)?;
            let first = names[usize::from(is_ipv4(&prefix))].get_or_insert_with(|| name.to_owned());
            if first != name {
                return Err(format!(
                    "`{first}` and `{name}` both have routes of one family: keep one of them"
                ));
            }
            let label = routes.labels.intern(label);
            // Of several routes of a prefix the lowest rank applies, and among equal ranks the last.
            let rank = if is_ipv4(&prefix) { routes.entries() } else { 0 };
            routes.push(prefix, rank, label);
            Ok(())
        })
    })?;
    match &scanner.table {
        None => Ok(()),
        Some(name) => Err(Fault::in_line(
            last_line.0,
            &last_line.1,
            format!("the configuration ends within the routes of `{name}`"),
        )),
    }
}

/// The state of the scan.
#[derive(Default)]
struct Scanner {
    is_comment: bool,
    is_quoted: bool,
    /// The last word outside of an element's arguments, and the name that `::` gave to what comes next.
    word: String,
    name: String,
    has_word_ended: bool,
    /// The name of the element within whose parentheses the scanner is.
    table: Option<String>,
    /// The open parentheses.
    depth: u32,
    /// The argument so far.
    argument: Vec<u8>,
    has_table: bool,
}

impl Scanner {
    /// Scans a line, and calls `each` with the name of the element and the text of each of its routes.
    fn line(
        &mut self,
        line: &[u8],
        mut each: impl FnMut(&str, &[u8]) -> Result<(), String>,
    ) -> Result<(), String> {
        let mut rest = line;
        while let Some((&byte, after)) = rest.split_first() {
            let next = after.first();
            rest = after;
            match byte {
                b'*' if self.is_comment && next == Some(&b'/') => {
                    self.is_comment = false;
                    rest = &after[1..];
                }
                _ if self.is_comment => {}
                b'"' => self.is_quoted = !self.is_quoted,
                _ if self.is_quoted => {}
                b'/' if next == Some(&b'/') => break,
                b'/' if next == Some(&b'*') => {
                    self.is_comment = true;
                    rest = &after[1..];
                }
                b'(' => {
                    self.depth += 1;
                    if self.depth == 1 && is_lookup(&self.word) {
                        let name = if self.name.is_empty() { &self.word } else { &self.name };
                        self.table = Some(name.clone());
                        self.has_table = true;
                    }
                }
                b')' if self.depth == 0 => return Err("\")\" without \"(\"".into()),
                b')' => {
                    self.depth -= 1;
                    if self.depth == 0 {
                        self.argument(&mut each)?;
                        self.table = None;
                        self.word.clear();
                        self.name.clear();
                    }
                }
                b',' if self.depth == 1 => self.argument(&mut each)?,
                _ if self.table.is_some() => self.argument.push(byte),
                _ if self.depth > 0 => {}
                _ => self.outside(byte, next),
            }
        }
        self.has_word_ended = true;
        if self.table.is_some() {
            self.argument.push(b' ');
        }
        Ok(())
    }

    /// Handles a byte between elements.
    fn outside(&mut self, byte: u8, next: Option<&u8>) {
        match byte {
            b':' if next == Some(&b':') => self.name = core::mem::take(&mut self.word),
            b':' | b' ' | b'\t' => self.has_word_ended = true,
            b if b.is_ascii_alphanumeric() || matches!(b, b'_' | b'@' | b'/') => {
                if core::mem::take(&mut self.has_word_ended) {
                    self.word.clear();
                }
                self.word.push(char::from(b));
            }
            _ => {
                self.word.clear();
                self.name.clear();
            }
        }
    }

    /// Ends an argument.
    fn argument(
        &mut self,
        each: &mut impl FnMut(&str, &[u8]) -> Result<(), String>,
    ) -> Result<(), String> {
        let argument = self.argument.trim_ascii();
        if let Some(name) = self.table.as_ref().filter(|_| !argument.is_empty()) {
            each(name, argument)?;
        }
        self.argument.clear();
        Ok(())
    }
}

/// Returns whether a class looks up routes.
fn is_lookup(class: &str) -> bool {
    class.ends_with("IPLookup") || class.ends_with("IP6Lookup") || class == "LookupIP6Route"
}

/// Reads `PREFIX [GATEWAY] OUTPUT`; returns the prefix and the label.
fn route(argument: &[u8]) -> Result<(AnyPrefix, &str), String> {
    let shape =
        || format!("{:?}: a route is PREFIX [GATEWAY] OUTPUT", excerpt(argument.trim_ascii()));
    let text = core::str::from_utf8(argument).map_err(|_| shape())?;
    let words: Vec<&str> = text.split_ascii_whitespace().collect();
    let (prefix, gateway, output) = match words[..] {
        [prefix, output] => (prefix, "-", output),
        [prefix, gateway, output] => (prefix, gateway, output),
        _ => return Err(shape()),
    };
    if output.parse::<i32>().ok().filter(|&output| output >= 0).is_none() {
        return Err(format!("{}, and {output:?} is no number of an output", shape()));
    }
    let prefix = scan::prefix(plain(prefix).as_bytes(), true)?;
    match gateway.parse::<IpAddr>() {
        _ if gateway == "-" => Ok((prefix, output)),
        Ok(address) if address.is_ipv4() == is_ipv4(&prefix) => {
            Ok((prefix, if address.is_unspecified() { output } else { gateway }))
        }
        _ => Err(format!("{}, and {gateway:?} is no gateway of its family", shape())),
    }
}

fn is_ipv4(prefix: &AnyPrefix) -> bool {
    matches!(prefix, AnyPrefix::V4(_))
}

/// Returns the plain form of an IPv4 prefix that is abbreviated or has a netmask; other text unchanged.
fn plain(prefix: &str) -> String {
    let (address, length) = prefix.split_once('/').unwrap_or((prefix, ""));
    if length.is_empty() || address.contains(':') {
        return prefix.into();
    }
    let zeros = ".0".repeat(3usize.saturating_sub(address.matches('.').count()));
    let length = match length.parse::<Ipv4Addr>().map(u32::from) {
        Ok(mask) if mask.leading_ones() + mask.trailing_zeros() == 32 => {
            mask.leading_ones().to_string()
        }
        _ => length.into(),
    };
    format!("{address}{zeros}/{length}")
}

/// Writes an element for each family that has routes, with all outputs connected: for IPv4 a `RadixIPLookup`, or a
/// `DirectIPLookup` if it might have too many next hops; for IPv6 a `LookupIP6Route`.
pub(crate) fn write(table: &RoutingTable, out: &mut impl Write) -> Result<(), WriteError> {
    /// A label's part behind the prefix, and its output.
    fn parts(label: &str) -> Option<(String, u32)> {
        let output = label.parse::<u32>().ok().filter(|&output| output < MAX_OUTPUTS);
        match output {
            Some(output) => Some((label.into(), output)),
            None if label.parse::<IpAddr>().ok()?.is_unspecified() => None,
            None => Some((format!("{label} 0"), 0)),
        }
    }
    let parts: Vec<_> = table.labels.iter().map(|(_, label)| parts(label)).collect();
    table.each_route(|prefix, label| {
        let text = table.labels.get(label);
        let fits =
            text.parse::<IpAddr>().map_or(true, |gateway| gateway.is_ipv4() == is_ipv4(&prefix));
        if parts[label.0 as usize].is_some() && fits {
            return Ok(());
        }
        let what = format!(
            "label {text:?} is neither a gateway of the family nor an output below {MAX_OUTPUTS}"
        );
        Err(WriteError::route(prefix, what))
    })?;
    let class = if parts.len() > MAX_RADIX_NEXT_HOPS { "DirectIPLookup" } else { "RadixIPLookup" };
    for (of_ipv4, name, class) in [(true, "rt", class), (false, "rt6", "LookupIP6Route")] {
        let mut outputs = 0;
        let mut separator = format!("{name} :: {class}(\n");
        table.each_route(|prefix, label| {
            let Some((text, output)) = &parts[label.0 as usize] else {
                return Ok::<(), WriteError>(());
            };
            if is_ipv4(&prefix) == of_ipv4 {
                write!(out, "{separator}    {prefix} {text}")?;
                outputs = outputs.max(output + 1);
                separator = ",\n".into();
            }
            Ok(())
        })?;
        if outputs > 0 {
            writeln!(out, ");\nIdle -> {name};")?;
        }
        for output in 0..outputs {
            writeln!(out, "{name}[{output}] -> Discard;")?;
        }
    }
    Ok(())
}
