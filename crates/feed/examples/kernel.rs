//! Reads what the kernel has, once, and says how long that took.
//!
//! ```text
//! cargo run --release -p fingerpost-feed --example kernel
//! ```
//!
//! The part of receiving is the kernel's own: it writes the messages of a dump in the
//! call that receives them.

use std::time::Instant;

use fingerpost_feed::netlink::{Error, Kernel, NullFollower};

fn resident() -> u64 {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages = text.split(' ').nth(1).and_then(|pages| pages.parse::<u64>().ok());
    pages.unwrap_or_default() * 4096
}

fn main() -> Result<(), Error> {
    let before = resident();
    let mut kernel = Kernel::open()?;
    let begun = Instant::now();
    kernel.start(&mut NullFollower)?;
    let took = begun.elapsed();
    let counters = kernel.counters();
    let (v4, v6) = kernel
        .mirror()
        .tables()
        .values()
        .fold((0, 0), |sum, table| (sum.0 + table.0, sum.1 + table.1));
    let text = format!(
        "{v4} IPv4 and {v6} IPv6 routes in {took:.2?}, {:.2?} of it receiving {} messages\n\
         tables {} bytes, resident {} bytes more than before",
        counters.last_receiving,
        counters.messages,
        kernel.mirror().footprint(),
        resident().saturating_sub(before),
    );
    std::io::Write::write_all(&mut std::io::stdout(), text.as_bytes()).ok();
    Ok(())
}
