//! Writes tables as MaxMind databases and as text, reads them again, and reads databases with changed bytes.
//!
//! ```text
//! bytes ─► edits, routes ─► database ─┬─► read ─► the longest prefix at each border, with the same record
//!                                     └─► edits ─► read ─► a bounded table, or damage
//! ```
//!
//! A table of which a format has no place for a route is refused, and only such a table. The first byte is the number
//! of edits, each of which is an index of two bytes and a value; each route is a byte for family and label, one for the
//! length, as many bytes of address as the length needs, and those of a label that is no known one.

use std::collections::BTreeMap;

use feed::{Format, Label, Options, RoutingTable, WriteError, WriteOptions, read, write};
use fib::{Addr, Prefix};
use serde_json::Value;

/// Labels, of which the first ones are records of their own type.
const LABELS: [&str; 16] = [
    "{\"autonomous_system_number\":64500,\"name\":\"a \\\"b\\\" c\"}",
    "{\"name\":\"a \\\"b\\\" c\",\"names\":{\"en\":\"Bad Ems\",\"de\":\"Bad Ems\"},\"list\":[1,-2,1.5,true]}",
    "[\"Bad Ems\",[\"Bad Ems\"],{}]",
    "\"Bad Ems\"",
    "{}",
    "340282366920938463463374607431768211455",
    "18446744073709551615",
    "-2147483648",
    "true",
    "64500",
    "192.0.2.1",
    "dev eth0",
    "64500_64501",
    "1.10",
    "# west",
    "",
];

/// The number of [`LABELS`] that are records of their own type.
const RECORDS: usize = 10;

/// The counts of all inputs.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    /// The tables that were written.
    pub written: u64,
    /// The tables that no database has.
    pub refused: u64,
    /// The databases with changed bytes that were read.
    pub read: u64,
    /// Those that were damaged.
    pub damaged: u64,
}

/// Routes of both families, with the texts of their labels.
#[derive(Default)]
struct Script {
    edits: Vec<(u16, u8)>,
    v4: BTreeMap<Prefix<u32>, String>,
    v6: BTreeMap<Prefix<u128>, String>,
}

fn script(input: &[u8]) -> Script {
    let mut bytes = input.iter().copied();
    let mut script = Script::default();
    for _ in 0..bytes.next().unwrap_or(0) % 16 {
        let (Some(high), Some(low), Some(value)) = (bytes.next(), bytes.next(), bytes.next())
        else {
            break;
        };
        script.edits.push((u16::from_be_bytes([high, low]), value));
    }
    while let (Some(kind), Some(len)) = (bytes.next(), bytes.next()) {
        let is_v6 = kind & 1 == 1;
        let width = if is_v6 { 128 } else { 32 };
        let len = u32::from(len) % (width + 1);
        let mut addr = 0u128;
        for at in 0..len.div_ceil(8) {
            addr |= u128::from(bytes.next().unwrap_or(0)) << (width - 8 * (at + 1));
        }
        let label = if kind & 2 == 0 {
            LABELS[usize::from(kind >> 2) % LABELS.len()].to_owned()
        } else {
            let text: Vec<u8> = bytes.by_ref().take(usize::from(kind >> 2)).collect();
            String::from_utf8_lossy(&text).into_owned()
        };
        if is_v6 {
            script.v6.insert(Prefix::truncate(addr, len), label);
        } else {
            script.v4.insert(Prefix::truncate(addr as u32, len), label);
        }
    }
    script
}

fn table(script: &Script) -> RoutingTable {
    let mut table = RoutingTable::default();
    for (&prefix, label) in &script.v4 {
        table.v4.push((prefix, table.labels.intern(label)));
    }
    for (&prefix, label) in &script.v6 {
        table.v6.push((prefix, table.labels.intern(label)));
    }
    table
}

/// Returns the JSON of a label's record; `None` if the label is JSON that the script made up.
fn record(label: &str) -> Option<String> {
    match label {
        "" => Some("{}".to_owned()),
        _ if LABELS[..RECORDS].contains(&label) => Some(label.to_owned()),
        "1.10" => Some("\"1.10\"".to_owned()),
        _ if serde_json::from_str::<Value>(label).is_ok() => None,
        _ => Some(Value::from(label).to_string()),
    }
}

/// Finds the label of an address by a scan.
fn scan<'t, A: Addr>(
    table: &'t RoutingTable,
    routes: &[(Prefix<A>, Label)],
    address: A,
) -> Option<&'t str> {
    let around = routes.iter().filter(|(prefix, _)| prefix.contains(address));
    let (_, label) = around.max_by_key(|(prefix, _)| prefix.len())?;
    Some(table.labels.get(*label))
}

/// Compares what two tables have at the borders of the first one.
fn compare<A: Addr>(
    written: &RoutingTable,
    routes: &[(Prefix<A>, Label)],
    found: &RoutingTable,
    found_routes: &[(Prefix<A>, Label)],
    is_compared: impl Fn(A) -> bool,
) {
    let borders = routes.iter().flat_map(|(prefix, _)| {
        [Some(prefix.addr()), Some(prefix.last()), prefix.last().succ()].into_iter().flatten()
    });
    for address in borders.filter(|&address| is_compared(address)) {
        let right = scan(written, routes, address);
        let answer = scan(found, found_routes, address);
        assert_eq!(answer.is_some(), right.is_some(), "{address:?}");
        if let (Some(record), Some(answer)) = (right.and_then(record), answer) {
            assert_eq!(answer, record, "{address:?}");
        }
    }
}

/// Compares two tables, the second of which was read as text.
fn compare_text<A: Addr>(
    written: &RoutingTable,
    routes: &[(Prefix<A>, Label)],
    found: &RoutingTable,
    found_routes: &[(Prefix<A>, Label)],
) {
    assert_eq!(found_routes.len(), routes.len());
    for (&(right, right_label), &(prefix, label)) in routes.iter().zip(found_routes) {
        assert_eq!(prefix, right);
        let (right, label) = (written.labels.get(right_label), found.labels.get(label));
        let text: Option<String> = serde_json::from_str(label).ok();
        assert!(label == right || text.as_deref() == Some(right), "{label:?} of {right:?}");
    }
}

fn read_as(bytes: &[u8], format: Format, partial: bool) -> Result<RoutingTable, feed::Error> {
    let options = Options { format: Some(format), partial, ..Options::default() };
    read(bytes, "fuzz".as_ref(), &options)
}

/// Plays one input.
///
/// # Panics
///
/// If a database or a text has other answers than the table, or if a damaged database has too many routes.
pub fn databases(input: &[u8], tally: &mut Tally) {
    let script = script(input);
    let table = table(&script);
    let options = WriteOptions::default();

    let mut text = Vec::new();
    write(&table, Format::Table, &options, &mut text).expect("a text has all labels");
    let found = read_as(&text, Format::Table, false).expect("the text is a table");
    compare_text(&table, &table.v4, &found, &found.v4);
    compare_text(&table, &table.v6, &found, &found.v6);

    let mut bytes = Vec::new();
    let is_inside = |prefix: &Prefix<u128>| prefix.len() >= 96 && prefix.addr() >> 32 == 0;
    match write(&table, Format::Mmdb, &options, &mut bytes) {
        Ok(()) => assert!(!script.v6.keys().any(is_inside), "a route is inside of ::/96"),
        Err(WriteError::Route { .. }) => {
            let mut labels = script.v4.values().chain(script.v6.values());
            assert!(script.v6.keys().any(is_inside) || labels.any(|label| record(label).is_none()));
            tally.refused += 1;
            return;
        }
        Err(error) => panic!("{error}"),
    }
    let found = read_as(&bytes, Format::Mmdb, false).expect("what was written is a database");
    compare(&table, &table.v4, &found, &found.v4, |_| true);
    compare(&table, &table.v6, &found, &found.v6, |address| address >> 32 != 0);

    tally.written += 1;
    if script.edits.is_empty() {
        return;
    }
    for (at, value) in script.edits {
        let at = usize::from(at) % bytes.len();
        bytes[at] = value;
    }
    let most = 8 * bytes.len() as u64;
    let partial = read_as(&bytes, Format::Mmdb, true).expect("a partial read has no damage");
    assert!(partial.report.entries <= most, "{} routes", partial.report.entries);
    match read_as(&bytes, Format::Mmdb, false) {
        Ok(table) => {
            assert_eq!((table.v4.len(), table.v6.len()), (partial.v4.len(), partial.v6.len()));
            tally.read += 1;
        }
        Err(error) => {
            assert!(matches!(error, feed::Error::Damage { .. }), "{error}");
            tally.damaged += 1;
        }
    }
}
