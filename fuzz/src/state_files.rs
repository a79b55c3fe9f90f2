//! State files: a gate's flows and a dashboard's history, across a restart.
//!
//! ```text
//!   input, with a header or without ─► flows of each worker ─► written ─► read ─► the same
//!                                  └─► history ─► written ─► read ─► the same; restored ─► written ─► read
//! ```

use dashboard::history_file::{HistoryFile, with_header};
use gatekeeper::saved_flows::{BOOT, SavedFlow, append, decode, encode};

/// Counts of the results of inputs.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tally {
    /// Flows of files that were read.
    pub flows: u32,
    /// Histories that were read.
    pub histories: u32,
    /// Files that were rejected.
    pub refused: u32,
}

/// The boot ID of this machine.
const THIS: [u8; BOOT] = *b"3b1f0e5c-5e1d-4c46-9d53-0123456789ab";

/// Plays one input.
///
/// # Panics
///
/// If a file that was read differs after it is written, or is refused then.
pub fn state_files(input: &[u8], tally: &mut Tally) {
    let Some((mode, body)) = input.split_first() else { return };
    match mode & 3 {
        // The rest has a header of its own.
        0 => flows(body, 1 + usize::from(mode >> 2 & 3), tally),
        1 => flows(&encode(&THIS, body), 1 + usize::from(mode >> 2 & 3), tally),
        2 => history(body, tally),
        _ => history(&with_header(body), tally),
    }
}

fn flows(bytes: &[u8], workers: usize, tally: &mut Tally) {
    let Ok(read) = decode(bytes, &THIS, workers) else {
        tally.refused += 1;
        return;
    };
    assert_eq!(read.len(), workers);
    let of_each = |read: &[Vec<SavedFlow>]| {
        let mut flows = Vec::new();
        for (worker, list) in (0..).zip(read) {
            list.iter().for_each(|(flow, record)| append(&mut flows, worker, flow, record));
        }
        flows
    };
    tally.flows += read.iter().map(|list| list.len() as u32).sum::<u32>();
    let written = of_each(&read);
    let reread = decode(&encode(&THIS, &written), &THIS, workers).expect("a written file");
    assert_eq!(of_each(&reread), written);
}

/// A time in seconds since 1970, near those of the corpus.
const NOW: f64 = 5000.0;

fn history(bytes: &[u8], tally: &mut Tally) {
    let Ok(read) = HistoryFile::from_bytes(bytes) else {
        tally.refused += 1;
        return;
    };
    tally.histories += 1;
    let check = |content: &HistoryFile| {
        let written = content.to_bytes().expect("memory");
        let reread = HistoryFile::from_bytes(&written).expect("a written file");
        assert_eq!(reread, *content);
    };
    check(&read);
    check(&read.restored(NOW));
}
