//! The packet counters of a daemon as text: of `show`, and of a daemon that ends.

use std::io::{self, Write};

use api::Counters;

/// Writes the counters that are not zero.
pub(crate) fn write(out: &mut impl Write, counters: &Counters) -> io::Result<()> {
    writeln!(out, "received {} ({} bytes)", counters.received, counters.received_bytes)?;
    writeln!(out, "sent {} ({} bytes)", counters.sent, counters.sent_bytes)?;
    let Counters { originated, fragmented, fragments, .. } = *counters;
    if originated > 0 {
        writeln!(out, "originated {originated}")?;
    }
    if fragmented > 0 {
        writeln!(out, "fragmented {fragmented} (as {fragments} fragments)")?;
    }
    let Counters { icmp_errors, punted, dropped, .. } = counters;
    for (class, reasons) in [("icmp_errors", icmp_errors), ("punted", punted), ("dropped", dropped)]
    {
        for (reason, count) in reasons.iter().filter(|(_, count)| **count > 0) {
            writeln!(out, "{class} {reason} {count}")?;
        }
    }
    Ok(())
}
