//! Plays the kept corpus through the very functions that the targets call, without
//! libFuzzer: what was once found stays found.

use std::fs;
use std::path::Path;

use fingerpost_fuzz::{Bench, netlink, text};

/// Every input of a target, in order of name.
fn corpus(target: &str) -> Vec<(String, Vec<u8>)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(target);
    let files = fs::read_dir(&folder).unwrap_or_else(|error| panic!("{folder:?}: {error}"));
    let mut inputs: Vec<(String, Vec<u8>)> = files
        .map(|file| file.unwrap())
        .map(|file| (file.file_name().to_string_lossy().into(), fs::read(file.path()).unwrap()))
        .collect();
    inputs.sort();
    let bytes: usize = inputs.iter().map(|(_, input)| input.len()).sum();
    // Small enough for the tree, and enough of them to be worth a test.
    assert!((20..=400).contains(&inputs.len()), "{} inputs of {target}", inputs.len());
    assert!(bytes < 1 << 18, "{bytes} bytes of {target}");
    inputs
}

/// Plays one target's corpus and returns what that came to.
fn play(target: &str, one: impl Fn(&mut Bench, &[u8])) -> Bench {
    let mut bench = Bench::default();
    for (name, input) in corpus(target) {
        println!("{target}/{name}");
        one(&mut bench, &input);
    }
    println!("{target}: {:?}", bench.tally);
    let tally = bench.tally;
    assert!(tally.published > 300 && tally.rebuilt > 50, "{tally:?} is next to nothing");
    // Limits are there to be met, but the answers must not all be "full".
    assert!(tally.full < tally.published / 5, "{tally:?}");
    bench
}

#[test]
fn small_universes() {
    play("engines_small", Bench::small);
}

#[test]
fn wide_families() {
    let bench = play("engines_wide", Bench::wide);
    assert!(bench.tally.kept > 0, "no engine was kept: {:?}", bench.tally);
}

#[test]
fn netlink() {
    let counts = corpus("netlink").into_iter().map(|(_, input)| netlink::netlink(&input));
    let (taken, refused) = counts.fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1));
    assert!(taken > 200 && refused > 10, "{taken} messages taken, {refused} refused");
}

#[test]
fn text() {
    for (_, input) in corpus("text") {
        text::text(&input);
    }
}
