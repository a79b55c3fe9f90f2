//! Plays the stored corpus through the functions of the targets, without libFuzzer, as a regression
//! test.

#![expect(clippy::print_stdout, reason = "the name of a failing input is last in the output")]

use std::fs;
use std::path::Path;

use fingerpost_fuzz::{
    Bench, access_lists, bundles, captures, click, configs, control, databases, decisions,
    flowspec, fpm, image, mrt, netlink, packets, programs, state_files, text, tunnels,
};

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
    // Few enough for the repository, and enough for a test.
    assert!((20..=400).contains(&inputs.len()), "{} inputs of {target}", inputs.len());
    assert!(bytes < 1 << 18, "{bytes} bytes of {target}");
    inputs
}

/// Plays one target's corpus and returns the engines with their counters.
fn play(target: &str, one: impl Fn(&mut Bench, &[u8])) -> Bench {
    let mut bench = Bench::default();
    for (name, input) in corpus(target) {
        println!("{target}/{name}");
        one(&mut bench, &input);
    }
    println!("{target}: {:?}", bench.tally);
    let tally = bench.tally;
    assert!(tally.published > 300 && tally.rebuilt > 50, "{tally:?} is too little");
    // Limits should be exceeded at times, but not always.
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
    assert!(bench.tally.reused > 0, "no engine was reused: {:?}", bench.tally);
}

#[test]
fn netlink() {
    let counts = corpus("netlink").into_iter().map(|(_, input)| netlink::netlink(&input));
    let (taken, refused) = counts.fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1));
    assert!(taken > 200 && refused > 10, "{taken} messages accepted, {refused} rejected");
}

#[test]
fn fpm() {
    let counts = corpus("fpm").into_iter().map(|(_, input)| fpm::fpm(&input));
    let (frames, damaged) = counts.fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1));
    assert!(frames > 200 && damaged > 5, "{frames} frames, {damaged} damaged messages");
}

#[test]
fn image() {
    let inputs = corpus("image");
    let accepted = inputs.iter().filter(|(_, input)| image::image(input)).count();
    let refused = inputs.len() - accepted;
    assert!(accepted > 10 && refused > 10, "{accepted} accepted, {refused} refused");
}

#[test]
fn mrt() {
    let with_routes = corpus("mrt").into_iter().filter(|(_, input)| mrt::mrt(input)).count();
    assert!(with_routes > 10, "{with_routes} with routes or changes");
}

#[test]
fn text() {
    for (_, input) in corpus("text") {
        text::text(&input);
    }
}

/// The number of changed copies of each input that are played too, the same in each run;
/// `FUZZ_MUTATIONS` replaces it.
const MUTATIONS: usize = 64;

/// Changes an input: bits, bytes, lengths, pieces of another.
fn mutate(random: &mut impl FnMut(usize) -> usize, input: &mut Vec<u8>, other: &[u8]) {
    for _ in 0..=random(4) {
        let at = random(input.len().max(1));
        match random(7) {
            _ if input.is_empty() => input.push(random(256) as u8),
            0 => input[at] ^= 1 << random(8),
            1 => input[at] = random(256) as u8,
            2 => input[at] = [0, 1, 0x7f, 0x80, 0xff][random(5)],
            3 => input.truncate(at),
            4 => input.insert(at, random(256) as u8),
            5 => drop(input.remove(at)),
            _ => {
                let from = random(other.len().max(1));
                let piece = &other[from.min(other.len())..];
                let piece = &piece[..random(piece.len() + 1)];
                input.splice(at.., piece.iter().copied());
            }
        }
    }
}

/// Plays a target's corpus and changed copies of it, and returns the counters of the corpus.
fn tally<T: Clone + Default + std::fmt::Debug>(target: &str, one: impl Fn(&[u8], &mut T)) -> T {
    let mut tally = T::default();
    let inputs = corpus(target);
    for (name, input) in &inputs {
        println!("{target}/{name}");
        one(input, &mut tally);
    }
    println!("{target}: {tally:?}");
    let rounds = std::env::var("FUZZ_MUTATIONS").ok().and_then(|text| text.parse().ok());
    let mut all = tally.clone();
    // The seed is fixed so that a failure repeats.
    let mut rng = fastrand::Rng::with_seed(1);
    let mut random = |below: usize| rng.usize(..below);
    for (name, input) in &inputs {
        for round in 0..rounds.unwrap_or(MUTATIONS) {
            let mut changed = input.clone();
            let other = &inputs[random(inputs.len())].1;
            mutate(&mut random, &mut changed, other);
            let played = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                one(&changed, &mut all);
            }));
            assert!(played.is_ok(), "{target}/{name}, change {round}: {changed:02x?}");
        }
    }
    println!("{target} with changes: {all:?}");
    tally
}

#[test]
fn packets() {
    let tally = tally("packets", packets::packets);
    assert!(tally.forwarded >= 8 && tally.ended >= 30 && tally.chains >= 5, "{tally:?}");
}

#[test]
fn click() {
    let tally = tally("click", click::click);
    assert!(tally.written >= 10 && tally.both >= 3 && tally.refused >= 5, "{tally:?}");
}

#[test]
fn databases() {
    let tally = tally("databases", databases::databases);
    assert!(tally.written >= 20 && tally.refused >= 5, "{tally:?}");
    assert!(tally.read >= 1 && tally.damaged >= 10, "{tally:?}");
}

#[test]
fn access_lists() {
    let tally = tally("access_lists", access_lists::access_lists);
    assert!(tally.rules >= 40 && tally.refused >= 10, "{tally:?}");
    assert!(tally.packets >= 60 && tally.matches >= 60, "{tally:?}");
}

#[test]
fn flowspec() {
    let tally = tally("flowspec", flowspec::flowspec);
    assert!(tally.flows >= 30 && tally.rules >= 30, "{tally:?}");
    assert!(tally.refused >= 12 && tally.ended >= 3, "{tally:?}");
}

#[test]
fn tunnels() {
    let tally = tally("tunnels", tunnels::tunnels);
    assert!(tally.opened >= 5 && tally.closed >= 10 && tally.round >= 5, "{tally:?}");
}

#[test]
fn decisions() {
    let tally = tally("decisions", decisions::decisions);
    assert!(tally.v1 >= 5 && tally.v2 >= 5 && tally.refused >= 5, "{tally:?}");
}

#[test]
fn programs() {
    let tally = tally("programs", programs::programs);
    assert!(tally.passed >= 5 && tally.refused >= 5, "{tally:?}");
}

#[test]
fn bundles() {
    let tally = tally("bundles", bundles::bundles);
    assert!(tally.packed >= 5 && tally.opened >= 2 && tally.refused >= 10, "{tally:?}");
}

#[test]
fn control() {
    let tally = tally("control", control::control);
    assert!(tally.understood >= 10 && tally.refused >= 5, "{tally:?}");
}

#[test]
fn configs() {
    let tally = tally("configs", configs::configs);
    assert!(tally.taken >= 2 && tally.refused >= 10, "{tally:?}");
}

#[test]
fn captures() {
    let tally = tally("captures", captures::captures);
    assert!(tally.packets >= 10 && tally.refused >= 3, "{tally:?}");
}

#[test]
fn state_files() {
    let tally = tally("state_files", state_files::state_files);
    assert!(tally.flows >= 10 && tally.histories >= 5 && tally.refused >= 5, "{tally:?}");
}
