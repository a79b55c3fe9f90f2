//! A definition for other programs: its sums, and its routes, keys and answers as files.
//!
//! | file | content |
//! |---|---|
//! | `routes.txt` | a line `PREFIX HOP` a route; the definition's `labeled` is its SHA-256 |
//! | `RND.keys`, … | the keys, as rivals read them (`bench/rivals/README.md`) |
//! | `RND.answers`, … | a 32-bit number for each, the lowest byte first; the stream's `answers` is its SHA-256 |

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;
use std::process::ExitCode;

use anyhow::Context;
use fib::{Choice, Family, Fib, Hop, Prefix, Rib};
use output::progress;

use super::course::Course;
use super::definition::{Definition, QUICK, Sums};
use super::sums;
use crate::contest::{PROVEN, check, right};

/// Works all sums out and prints them as a definition has them. Answers are a table's, of
/// which the first million are held against the routing table's own; that the others are
/// right as well, every contestant of a run says.
#[expect(clippy::print_stdout, reason = "the result")]
pub(super) fn sums<A: Family>(
    definition: &Definition,
    rib: &Rib<A>,
    routes: &[(Prefix<A>, Hop)],
    found: &Sums,
) -> anyhow::Result<ExitCode> {
    println!("sha256 = \"{}\"", found.file);
    println!("routes = {}", routes.len());
    println!("labeled = \"{}\"", found.labeled);
    let reference = Fib::build(rib, Choice::Auto, 2).context("building the reference")?;
    let mut hops = vec![Hop::NONE; definition.measure.keys];
    for asked in &definition.streams {
        let keys = asked.name.keys::<A>(hops.len(), routes);
        progress::during(&format!("answers to {}", asked.name), || {
            reference.lookup_batch(&keys, &mut hops);
            let proven = right(rib, &keys[..keys.len().min(PROVEN)]);
            check(&reference.name(), &keys, &proven, &hops)
        })?;
        let quick = &hops[..hops.len().min(QUICK)];
        println!("\n[[stream]]\nname = \"{}\"", asked.name);
        println!(
            "answers = \"{}\"\nquick = \"{}\"",
            sums::of_answers(&hops),
            sums::of_answers(quick)
        );
    }
    Ok(ExitCode::SUCCESS)
}

/// Writes the files.
pub(super) fn write<A: Family>(
    folder: &Path,
    routes: &[(Prefix<A>, Hop)],
    courses: &[Course<A>],
) -> anyhow::Result<()> {
    std::fs::create_dir_all(folder).with_context(|| format!("making {}", folder.display()))?;
    file(&folder.join("routes.txt"), |out| {
        routes.iter().try_for_each(|(prefix, hop)| writeln!(out, "{prefix} {}", hop.0))
    })?;
    for Course { stream, keys, hops } in courses {
        file(&folder.join(format!("{stream}.keys")), |out| {
            keys.iter().try_for_each(|key| match A::BITS {
                32 => out.write_all(&(key.to_u128() as u32).to_ne_bytes()),
                _ => out.write_all(&key.to_u128().to_be_bytes()),
            })
        })?;
        file(&folder.join(format!("{stream}.answers")), |out| {
            hops.iter().try_for_each(|hop| out.write_all(&hop.0.to_le_bytes()))
        })?;
    }
    eprintln!("fingerpost-bench: written to {}", folder.display());
    Ok(())
}

fn file(
    path: &Path,
    write: impl FnOnce(&mut BufWriter<File>) -> std::io::Result<()>,
) -> anyhow::Result<()> {
    let put = || {
        let mut out = BufWriter::new(File::create(path)?);
        write(&mut out)?;
        out.flush()
    };
    put().with_context(|| format!("writing {}", path.display()))
}
