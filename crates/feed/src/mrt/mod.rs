//! MRT: routing tables and BGP messages in binary (RFC 6396, RFC 8050).
//!
//! A file is a sequence of records. Each has a length, so that irrelevant ones are skipped:
//!
//! ```text
//! 0        4     6        8        12                    12 + length
//! ┌────────┬─────┬────────┬────────┬─────────────────────┐
//! │ time s │ type│ subtype│ length │ message             │ next record …
//! └────────┴─────┴────────┴────────┴─────────────────────┘
//!            12 TABLE_DUMP            ─► dump
//!            13 TABLE_DUMP_V2         ─► dump
//!            16 BGP4MP, 17 BGP4MP_ET  ─► message   (17: microseconds lead)
//! ```
//!
//! Numbers are in network byte order. Only those fields of a message are read that a forwarding
//! table needs: prefix, peer, next hop, and the attributes of the best path rule.
//! `docs/decisions/0003-mrt-scanner.md` explains why this is our own parser.
//!
//! Damage is a record that ends too early, an invalid number, or a type that was never assigned.
//! Reading stops there: after one wrong length nothing that follows can be trusted.

mod attributes;
mod bytes;
mod dump;
mod message;
mod write;

pub(crate) use write::write;

use crate::collector::RouteCollector;
use crate::error::Fault;
use crate::source::Source;

const HEADER: usize = 12;

/// A record longer than this counts as damage. A prefix with 65,535 entries, the maximum, is hardly
/// longer; real ones are below 64 KiB.
const MAX_RECORD_LEN: usize = 32 << 20;

const TABLE_DUMP: u16 = 12;
const TABLE_DUMP_V2: u16 = 13;
const BGP4MP: u16 = 16;
const BGP4MP_ET: u16 = 17;

/// The types of RFC 6396, sections 4 and 5, with those it lists as deprecated
/// in its appendix B.
fn assigned(kind: u16) -> bool {
    matches!(kind, 0..=13 | 16 | 17 | 32 | 33 | 48 | 49)
}

/// Returns whether content with this beginning is MRT.
pub(crate) fn begins(head: &[u8]) -> bool {
    let Some((head, _)) = head.split_first_chunk::<HEADER>() else { return false };
    let [_, _, _, _, k0, k1, s0, s1, l0, l1, l2, l3] = *head;
    // Text has no zero bytes; these have at least three.
    assigned(u16::from_be_bytes([k0, k1]))
        && u16::from_be_bytes([s0, s1]) <= 16
        && u32::from_be_bytes([l0, l1, l2, l3]) as usize <= MAX_RECORD_LEN
}

/// Reads all records into `collector`.
pub(crate) fn read(source: &mut Source<'_>, collector: &mut RouteCollector) -> Result<(), Fault> {
    let mut dump = dump::Dump::default();
    let mut skipped = 0u64;
    let mut record = 0u64;
    let end = loop {
        record += 1;
        let offset = source.offset();
        let damage = |what: String| Err(Fault::Damage { offset, record, what });
        let head = source.peek(HEADER);
        if head.is_empty() && source.broken().is_none() {
            break Ok(());
        }
        let Some((head, _)) = source.window().split_first_chunk::<HEADER>() else {
            break damage(cut(source, "the record's header"));
        };
        let [t0, t1, t2, t3, k0, k1, s0, s1, l0, l1, l2, l3] = *head;
        let time = u64::from(u32::from_be_bytes([t0, t1, t2, t3])) * 1_000_000;
        let kind = u16::from_be_bytes([k0, k1]);
        let subtype = u16::from_be_bytes([s0, s1]);
        let length = u32::from_be_bytes([l0, l1, l2, l3]) as usize;
        if !assigned(kind) {
            break damage(format!("there is no MRT type {kind}"));
        }
        if length > MAX_RECORD_LEN {
            break damage(format!("the record claims {length} bytes"));
        }
        let Some(body) = source.peek(HEADER + length).get(HEADER..HEADER + length) else {
            let what = format!("a record of {length} bytes (type {kind}, subtype {subtype})");
            break damage(cut(source, &what));
        };
        let read = match kind {
            TABLE_DUMP => dump::first_version(subtype, body, collector),
            TABLE_DUMP_V2 => dump.record(subtype, body, collector),
            BGP4MP => message::record(subtype, time, body, collector),
            BGP4MP_ET => message::extended(subtype, time, body, collector),
            _ => Ok(false),
        };
        match read {
            Ok(known) => skipped += u64::from(!known),
            Err(what) => {
                break damage(format!("{what} (type {kind}, subtype {subtype})"));
            }
        }
        source.consume(HEADER + length);
        collector.report.records += 1;
    };
    let mut warn = |count: u64, what: &str| {
        if count > 0 {
            collector.report.warnings.push(format!("{count} {what}"));
        }
    };
    warn(skipped, "records were skipped: neither unicast routes nor BGP messages");
    warn(dump.unusable, "entries were skipped: they have no next hop");
    end
}

fn cut(source: &Source<'_>, what: &str) -> String {
    let left = source.window().len();
    match source.broken() {
        Some(why) => format!("{why}, {left} bytes into {what}"),
        None => format!("the file ends {left} bytes into {what}"),
    }
}
