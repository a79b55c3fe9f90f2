//! Flow programs from damaged object files: programs that pass the verifier run without a fault.
//!
//! ```text
//!   input ─► a shipped object, edits of its bytes ─► load ─► rejected
//!                                                      └► run on packets ─► no fault
//! ```
//!
//! The machine checks every access again and counts a fault for each that the verifier should have
//! rejected (`gate/src/program/machine.rs`). Two runs on the same input must give the same result.

use gate::program::{Machine, Program};

/// Objects that clang has compiled from `crates/gate/programs/`.
const OBJECTS: [&[u8]; 3] = [
    include_bytes!("../objects/granted.o"),
    include_bytes!("../objects/web.o"),
    include_bytes!("../objects/dns.o"),
];

/// Counts of the results of inputs.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tally {
    /// Objects that passed the verifier.
    pub passed: u32,
    /// Objects that were rejected.
    pub refused: u32,
}

/// Plays one input: a byte for the object, one for the number of edits, three bytes an edit, and a
/// packet.
///
/// # Panics
///
/// If a verified program faults, or the second run differs.
pub fn programs(input: &[u8], tally: &mut Tally) {
    let [which, edits, rest @ ..] = input else { return };
    let mut object = OBJECTS[usize::from(*which) % OBJECTS.len()].to_vec();
    let (edits, packet) = rest.split_at(rest.len().min(3 * usize::from(edits % 16)));
    for edit in edits.chunks_exact(3) {
        let at = usize::from(u16::from_be_bytes([edit[0], edit[1]])) % object.len();
        object[at] = edit[2];
    }
    let Ok(program) = Program::load(&object) else {
        tally.refused += 1;
        return;
    };
    tally.passed += 1;
    let run = || {
        let mut machine = Machine::default();
        let mut cookie = [0; 64];
        for (at, byte) in cookie.iter_mut().enumerate() {
            *byte = packet.get(at).copied().unwrap_or(0);
        }
        let mut answers = Vec::new();
        let takes = machine.init(&program, 1 << 40, &mut cookie);
        for turn in 0..8u64 {
            let now = (1 << 40) + turn * 300_000_000;
            let length = packet.len() as u32;
            answers.push(machine.packet(&program, now, now + 9, &mut cookie, packet, length));
        }
        assert_eq!(machine.faults(), 0, "a program that has passed the verifier");
        (takes, answers, cookie)
    };
    assert_eq!(run(), run());
}
