//! The queues of egress interfaces, as `show egress-queues` prints them.

use std::io::{self, Write};

use api::{EgressQueue, EgressQueueClass};

/// Writes a queue.
pub(crate) fn write(out: &mut impl Write, queue: &EgressQueue) -> io::Result<()> {
    write!(out, "{}", queue.interface)?;
    if !queue.over.is_empty() {
        write!(out, " over {}", queue.over.join(", "))?;
    }
    if let Some(within) = &queue.within {
        write!(out, " within {within}")?;
    }
    if queue.weight != 1 {
        write!(out, " weight {}", queue.weight)?;
    }
    if !queue.is_port {
        write!(out, " (no port)")?;
    }
    match queue.bandwidth {
        Some(bandwidth) => writeln!(out, ": bandwidth {}", rate(bandwidth))?,
        None => writeln!(out, ": as fast as the port takes packets")?,
    }
    if let (Some(packets), Some(bytes)) = (queue.host_packets, queue.host_bytes) {
        writeln!(out, "    host: sent {packets} packets {bytes} bytes, by Linux")?;
    }
    queue.classes.iter().try_for_each(|class| write_class(out, class))
}

fn write_class(out: &mut impl Write, class: &EgressQueueClass) -> io::Result<()> {
    let EgressQueueClass { class: name, packets, bytes, .. } = class;
    let EgressQueueClass { dropped_full, dropped_delay, marked, .. } = class;
    writeln!(
        out,
        "    {name}: sent {packets} packets {bytes} bytes, dropped {dropped_full} full {dropped_delay} \
         delayed, marked {marked}"
    )?;
    let EgressQueueClass { waiting, waiting_bytes, delay_microseconds, .. } = class;
    if *waiting == 0 {
        return Ok(());
    }
    let delay = *delay_microseconds as f64 / 1000.0;
    writeln!(out, "        waiting {waiting} packets {waiting_bytes} bytes, for {delay:.1} ms")
}

/// Returns a rate with the unit of tc(8).
fn rate(bits: u64) -> String {
    let units = [("gbit", 1_000_000_000), ("mbit", 1_000_000), ("kbit", 1000)];
    let unit = units.into_iter().find(|(_, unit)| bits >= *unit);
    unit.map_or(format!("{bits}bit"), |(name, unit)| format!("{}{name}", bits as f64 / unit as f64))
}
