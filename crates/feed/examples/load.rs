//! Loads each file named, and prints its report and the time it took; `generate` for a
//! file stands for the generated table of full size.
//!
//! `cargo run --release -p fingerpost-feed --example load -- FILE…`

use std::io::Write;
use std::time::Instant;

fn main() -> std::io::Result<()> {
    let mut out = std::io::stdout().lock();
    let options = fingerpost_feed::Options { partial: true, ..Default::default() };
    for path in std::env::args_os().skip(1) {
        let begin = Instant::now();
        let loaded = if path == "generate" {
            Ok(fingerpost_feed::generate(&fingerpost_feed::Recipe::default()))
        } else {
            fingerpost_feed::load(&path, &options)
        };
        let took = begin.elapsed();
        match loaded {
            Ok(table) => writeln!(
                out,
                "{}: {took:.3?}, {} labels, {:?}",
                path.display(),
                table.labels.len(),
                table.report
            )?,
            Err(error) => writeln!(out, "{error}")?,
        }
    }
    Ok(())
}
