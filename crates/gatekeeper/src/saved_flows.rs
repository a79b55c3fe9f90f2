//! The flow file: the flows of a gate across a restart.
//!
//! ```text
//!   stop    workers' tables ─► bytes ─► file, replaced atomically
//!   start   file ─► read ─► each worker's table, except expired flows ─► file removed
//!
//!   file    "fpflows3" | boot ID of the machine:36 | flow …
//!   flow    worker:4 | version:1 | source:16 | destination:16 | record:88
//! ```
//!
//! Records contain times of the kernel's monotonic clock, which continues from one process to the next
//! and restarts with the machine: a file of another boot is rejected. A file is used once, because it
//! lacks the decisions that the gate received afterwards. Prefix decisions are not in it either. A gate
//! that is killed writes no file. If a file is damaged, the gate reports it and starts with an empty
//! table.
//!
//! Each worker gets the flows of the worker with its number. If there are fewer workers than before,
//! all workers get all flows, since the card may bring any flow to any of them. With software steering
//! (`steering.rs`) the owner of a flow changes with each start, and each worker takes its own flows.

use std::fs;
use std::io::{self, ErrorKind};
use std::path::Path;

use gate::flow::{Flow, Pair};
use gate::state::{BYTES, Record};

const MAGIC: &[u8; 8] = b"fpflows3";
/// The length of the ID of a boot.
pub const BOOT: usize = 36;
const FLOW: usize = 4 + 1 + 32 + BYTES;

/// A flow and its record.
pub type SavedFlow = (Flow, Record);

/// Returns the boot ID of the machine.
fn boot() -> io::Result<[u8; BOOT]> {
    let text = fs::read("/proc/sys/kernel/random/boot_id")?;
    let mut boot = [0; BOOT];
    boot.iter_mut().zip(text).for_each(|(to, byte)| *to = byte);
    Ok(boot)
}

/// Appends a worker's flow to the flows of a file.
pub fn append(out: &mut Vec<u8>, worker: u32, flow: &Flow, record: &Record) {
    let (version, src, dst) = match flow.pair() {
        Pair::V4 { src, dst } => (4, src.into(), dst.into()),
        Pair::V6 { src, dst } => (6, src, dst),
    };
    out.extend_from_slice(&worker.to_le_bytes());
    out.push(version);
    out.extend_from_slice(&u128::to_be_bytes(src));
    out.extend_from_slice(&u128::to_be_bytes(dst));
    out.extend_from_slice(&record.to_bytes());
}

fn decode_flow(bytes: &[u8; FLOW]) -> Option<(u32, SavedFlow)> {
    let worker = u32::from_le_bytes(bytes[..4].try_into().ok()?);
    let address = |at: usize| Some(u128::from_be_bytes(bytes.get(at..at + 16)?.try_into().ok()?));
    let (src, dst) = (address(5)?, address(21)?);
    let flow = match bytes[4] {
        4 => Flow::v4(u32::try_from(src).ok()?, u32::try_from(dst).ok()?),
        6 => Flow::v6(src, dst),
        _ => return None,
    };
    Some((worker, (flow, Record::from_bytes(bytes[37..].try_into().ok()?)?)))
}

/// Writes the flows that workers have saved to a file, and returns their number.
///
/// # Errors
///
/// The system's; the file is unchanged then.
pub(super) fn write(path: &Path, flows: &[u8]) -> io::Result<usize> {
    // Only the operator may read which hosts communicate.
    fib::image::replace_with_mode(path, &encode(&boot()?, flows), 0o600)?;
    Ok(flows.len() / FLOW)
}

/// Returns the bytes of a file: the flows that were [appended](append), of this boot of the machine.
pub fn encode(boot: &[u8; BOOT], flows: &[u8]) -> Vec<u8> {
    [&MAGIC[..], boot, flows].concat()
}

/// Reads a file and returns the flows of each worker: no flows if there is no file.
///
/// # Errors
///
/// The system's; `InvalidData` if the file is damaged or from another boot.
pub(super) fn read(path: &Path, workers: usize) -> io::Result<Vec<Vec<SavedFlow>>> {
    match fs::read(path) {
        Ok(bytes) => decode(&bytes, &boot()?, workers),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(vec![Vec::new(); workers]),
        Err(error) => Err(error),
    }
}

/// Returns the flows of each of `workers` workers that the hooks of a predecessor have [appended](append).
///
/// # Errors
///
/// `InvalidData` if a flow is damaged; the system's error.
pub(super) fn inherited(flows: &[u8], workers: usize) -> io::Result<Vec<Vec<SavedFlow>>> {
    let boot = boot()?;
    decode(&encode(&boot, flows), &boot, workers)
}

/// Returns the flows of each of `workers` workers in the bytes of a file.
///
/// # Errors
///
/// `InvalidData` if the file is damaged, or from another boot than this one.
pub fn decode(bytes: &[u8], boot: &[u8; BOOT], workers: usize) -> io::Result<Vec<Vec<SavedFlow>>> {
    let mut all: Vec<Vec<SavedFlow>> = vec![Vec::new(); workers];
    let bad = |what: &str| io::Error::new(ErrorKind::InvalidData, what.to_owned());
    let rest = bytes
        .strip_prefix(MAGIC)
        .ok_or_else(|| bad("not a flow file: its first 8 bytes are not \"fpflows3\""))?;
    let (boot_id, flows) =
        rest.split_at_checked(BOOT).ok_or_else(|| bad("the file is truncated"))?;
    if boot_id != boot {
        return Err(bad("the file is from another boot of this machine"));
    }
    let (flows, remainder) = flows.as_chunks::<FLOW>();
    if !remainder.is_empty() {
        return Err(bad("the file is truncated"));
    }
    let read: Option<Vec<_>> = flows.iter().map(decode_flow).collect();
    let read = read.ok_or_else(|| bad("a flow in the file is invalid"))?;
    let before = read.iter().map(|(worker, _)| *worker as usize + 1).max().unwrap_or(0);
    for (worker, flow) in read {
        match all.get_mut(worker as usize) {
            Some(flows) if before <= workers => flows.push(flow),
            _ => all.iter_mut().for_each(|flows| flows.push(flow)),
        }
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt;

    use super::{BOOT, FLOW, Flow, MAGIC, Record, append, decode_flow, read, write};

    #[test]
    fn file_restores_its_flows_and_is_rejected_when_damaged() {
        let folder = std::env::temp_dir().join(format!("fp-flows-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let path = folder.join("flows");
        assert!(read(&path, 2).unwrap().iter().all(Vec::is_empty), "no file yet");
        let flows = [Flow::v4(1, 2), Flow::v6(3 << 64, 4), Flow::v4(5, 6)];
        let mut bytes = Vec::new();
        for (worker, flow) in [0, 1, 1].into_iter().zip(&flows) {
            append(&mut bytes, worker, flow, &Record::new(7));
        }
        // Only the owner may read the new file, whatever the mode of the old one.
        std::fs::write(&path, b"").unwrap();
        std::fs::set_permissions(&path, Permissions::from_mode(0o644)).unwrap();
        assert_eq!(write(&path, &bytes).unwrap(), 3);
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        let whole = std::fs::read(&path).unwrap();
        let of = |workers| -> Vec<Vec<Flow>> {
            std::fs::write(&path, &whole).unwrap();
            let all = read(&path, workers).unwrap();
            all.into_iter().map(|flows| flows.into_iter().map(|(flow, _)| flow).collect()).collect()
        };
        assert_eq!(of(2), [vec![flows[0]], flows[1..].to_vec()]);
        assert_eq!(of(1), [flows.to_vec()], "fewer workers than before");
        for damaged in [&whole[..whole.len() - 1], &whole[1..], &whole[..20], b""] {
            std::fs::write(&path, damaged).unwrap();
            assert!(read(&path, 2).is_err());
        }
        let mut other = whole.clone();
        other[10] ^= 1;
        std::fs::write(&path, &other).unwrap();
        assert!(read(&path, 2).unwrap_err().to_string().contains("another boot"));
        std::fs::remove_dir_all(&folder).unwrap();
    }

    /// After any change of the bytes: flows that are read, written and read again stay the same.
    #[test]
    fn accepted_file_is_unchanged_when_written_again() {
        let folder = std::env::temp_dir().join(format!("fp-flows-fuzz-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let path = folder.join("flows");
        let mut bytes = Vec::new();
        for number in 0..6 {
            let flow = if number % 2 == 0 { Flow::v4(number, 2) } else { Flow::v6(3 << 64, 4) };
            append(&mut bytes, number / 3, &flow, &Record::new(7));
        }
        write(&path, &bytes).unwrap();
        let whole = std::fs::read(&path).unwrap();
        let head = MAGIC.len() + BOOT;
        let mut rng = fastrand::Rng::with_seed(16);
        let (mut taken, mut refused) = (0, 0);
        for _ in 0..5_000 {
            let mut other = whole.clone();
            for _ in 0..rng.u8(1..4) {
                let at = rng.usize(..other.len());
                match rng.u8(..4) {
                    0 => other[at] = rng.u8(..),
                    1 => other[at] ^= 1 << rng.u8(..8),
                    2 => other.truncate(at.max(1)),
                    _ => _ = other.drain(..at.min(FLOW)),
                }
            }
            std::fs::write(&path, &other).unwrap();
            let workers = rng.usize(1..4);
            let Ok(all) = read(&path, workers) else {
                refused += 1;
                continue;
            };
            taken += 1;
            assert_eq!(all.len(), workers);
            let (flows, rest) = other[head..].as_chunks::<FLOW>();
            assert!(rest.is_empty());
            for bytes in flows {
                let written = |bytes: &[u8; FLOW]| {
                    let (worker, (flow, record)) = decode_flow(bytes).unwrap();
                    let mut encoded = Vec::new();
                    append(&mut encoded, worker, &flow, &record);
                    <[u8; FLOW]>::try_from(encoded).unwrap()
                };
                let rewritten = written(bytes);
                assert_eq!(rewritten[..37], bytes[..37], "the worker and the flow");
                assert_eq!(written(&rewritten), rewritten);
            }
        }
        assert!(taken > 300 && refused > 300, "{taken} taken, {refused} refused");
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
