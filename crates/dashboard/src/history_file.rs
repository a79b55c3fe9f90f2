//! Saves the history and the attacks to a file, so that a restart during an attack loses neither.
//!
//! ```text
//!   every INTERVAL, and at the end   Recorded ─► bytes ─► file, replaced atomically
//!   at the start                     file ─► read, checked ─► Recorded; or set aside, and empty
//!
//!   file   "fphist01" | length of the rest:8 | its SHA-256:32 | rows, attacks as JSON
//! ```
//!
//! Columns are saved by name, so that a version with other columns reads those that it knows. Rows
//! older than the length of the history are dropped, and so are rows of the future, after the clock
//! was set back. The size of the file is bounded as the memory is; a file of more than
//! 64 MiB is not read.
//!
//! No error stops a gate: a damaged file is renamed (`….damaged`) for inspection, and a failure to
//! write is reported once.

use std::ffi::OsString;
use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::attack::AttackLog;
#[cfg(test)]
use super::history;
use super::history::HistoryRows;
use super::recorded::{Recorded, lock};

const MAGIC: &[u8; 8] = b"fphist01";
/// The start of the magic number, without the version.
const KIND: &[u8] = b"fphist";
/// The largest file in bytes: several times the size of all rows.
const MAX_SIZE: u64 = 64 << 20;
/// The interval of writing: a power failure loses at most this time.
const INTERVAL: Duration = Duration::from_secs(15);

/// The content of a file.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub struct HistoryFile {
    pub(super) history: HistoryRows,
    pub(super) attacks: AttackLog,
}

impl HistoryFile {
    fn of(recorded: &Recorded) -> Self {
        Self { history: recorded.history.to_rows(), attacks: recorded.attacks.to_log() }
    }

    /// Returns the content that the history has after it is restored at this time, in seconds since 1970.
    #[must_use]
    pub fn restored(self, now: f64) -> Self {
        let mut recorded = Recorded::default();
        recorded.history.resume(self.history, now);
        recorded.attacks.resume(self.attacks, now);
        Self::of(&recorded)
    }

    /// Returns the bytes of a file.
    ///
    /// # Errors
    ///
    /// None, unless memory is exhausted: the content has a form in JSON.
    pub fn to_bytes(&self) -> io::Result<Vec<u8>> {
        Ok(with_header(&serde_json::to_vec(self)?))
    }

    /// Reads the bytes of a file.
    ///
    /// # Errors
    ///
    /// `InvalidData` if they are of another version, or damaged.
    pub fn from_bytes(bytes: &[u8]) -> io::Result<Self> {
        let rest = bytes.strip_prefix(MAGIC).ok_or_else(|| {
            let is_other_version = bytes.starts_with(KIND);
            invalid(if is_other_version {
                "written by another version of Fingerpost"
            } else {
                "not a history file"
            })
        })?;
        let (length, rest) = rest.split_first_chunk::<8>().ok_or_else(|| invalid("truncated"))?;
        let (sum, body) = rest.split_first_chunk::<32>().ok_or_else(|| invalid("truncated"))?;
        if u64::from_le_bytes(*length) != body.len() as u64 {
            return Err(invalid("damaged: its length differs from the one in its header"));
        }
        if Sha256::digest(body)[..] != sum[..] {
            return Err(invalid("damaged: its checksum does not match"));
        }
        let content: Self = serde_json::from_slice(body)?;
        if content.history.is_valid() { Ok(content) } else { Err(invalid("its rows are invalid")) }
    }
}

/// Adds the header of a file to rows and attacks in JSON.
pub fn with_header(body: &[u8]) -> Vec<u8> {
    let length = (body.len() as u64).to_le_bytes();
    [&MAGIC[..], &length, &Sha256::digest(body), body].concat()
}

fn invalid(reason: &str) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, reason.to_owned())
}

/// Reads a file; `None` if it does not exist.
fn read(path: &Path) -> io::Result<Option<HistoryFile>> {
    let bytes = match fs::metadata(path) {
        Ok(metadata) if metadata.len() > MAX_SIZE => {
            return Err(invalid("too large for a history file"));
        }
        Ok(_) => fs::read(path)?,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    HistoryFile::from_bytes(&bytes).map(Some)
}

/// Writes the file.
#[derive(Debug)]
pub(super) struct HistoryWriter {
    path: PathBuf,
    written: Instant,
    /// The last write failed, and the failure was reported.
    has_failed: bool,
}

impl HistoryWriter {
    /// Restores a file's content, at this time in seconds since 1970, and reports the result.
    pub(super) fn open(path: PathBuf, recorded: &mut Recorded, now: f64) -> Self {
        match read(&path) {
            Ok(None) => {}
            Ok(Some(content)) => {
                let rows = recorded.history.resume(content.history, now);
                let attacks = recorded.attacks.resume(content.attacks, now);
                recorded
                    .notices
                    .push(format!("history restored: {rows} seconds and {attacks} attacks"));
            }
            Err(error) => {
                let mut aside = OsString::from(&path);
                aside.push(".damaged");
                let aside = PathBuf::from(aside);
                let moved = match fs::rename(&path, &aside) {
                    Ok(()) => format!("renamed to {}", aside.display()),
                    Err(error) => format!("and it cannot be renamed: {error}"),
                };
                let path = path.display();
                recorded.notices.push(format!("{path}: {error}; {moved}; the history is empty"));
            }
        }
        Self { path, written: Instant::now(), has_failed: false }
    }

    /// Writes the file if it is due.
    pub(super) fn write_if_due(&mut self, recorded: &Mutex<Recorded>) {
        if self.written.elapsed() >= INTERVAL {
            self.write(recorded);
        }
    }

    /// Writes the file.
    pub(super) fn write(&mut self, recorded: &Mutex<Recorded>) {
        self.written = Instant::now();
        let content = HistoryFile::of(&lock(recorded));
        // Only the operator may read attacks and destinations.
        let result = content
            .to_bytes()
            .and_then(|bytes| fib::image::replace_with_mode(&self.path, &bytes, 0o600));
        if let (Err(error), false) = (&result, self.has_failed) {
            let path = self.path.display();
            lock(recorded).notices.push(format!("{path}: cannot write the history: {error}"));
        }
        self.has_failed = result.is_err();
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;
    use crate::attack::TrafficSecond;
    use control::role::Number;

    const NOW: f64 = 5000.0;

    /// Thirty seconds of history, the last of them hot, until this time.
    fn recorded(until: f64) -> Recorded {
        let mut recorded = Recorded::default();
        for at in 0..30_u32 {
            let time = until - 29.0 + f64::from(at);
            let numbers = [
                Number { name: "received".into(), value: 7 * u64::from(at), gauge: false },
                Number { name: "flows".into(), value: at.into(), gauge: true },
                Number { name: "never".into(), value: 3, gauge: false },
            ];
            recorded.history.add(time, 1.0, &numbers);
            let dropped = vec![("declined", if at > 20 { 500 } else { 0 })];
            recorded.attacks.add(TrafficSecond { time, seconds: 1.0, received: 1000, dropped });
        }
        recorded
    }

    fn folder(name: &str) -> PathBuf {
        let folder = std::env::temp_dir().join(format!("fp-history-{name}-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        folder
    }

    fn as_json(recorded: &Recorded) -> (String, String) {
        let history = serde_json::to_string(&recorded.history.since(0)).unwrap();
        (history, serde_json::to_string(recorded.attacks.list()).unwrap())
    }

    /// Restores a file in a new process, whose counters start at 0.
    fn restart(path: &Path, now: f64) -> Recorded {
        let mut recorded = Recorded::default();
        HistoryWriter::open(path.to_owned(), &mut recorded, now);
        for (at, value) in [(0.0, 0), (1.0, 5)] {
            let numbers = [
                Number { name: "flows".into(), value: 1, gauge: true },
                Number { name: "new".into(), value: 0, gauge: false },
                Number { name: "received".into(), value, gauge: false },
            ];
            recorded.history.add(now + at, 1.0, &numbers);
        }
        recorded
    }

    #[test]
    fn times_and_rates_are_read_as_they_were_written() {
        let mut random = fastrand::Rng::with_seed(1);
        for _ in 0..1000 {
            let time = 1.8e9 + 1e8 * random.f64();
            let written = HistoryFile::of(&recorded(time));
            assert_eq!(HistoryFile::from_bytes(&written.to_bytes().unwrap()).unwrap(), written);
        }
    }

    #[test]
    fn attack_continues_after_a_restart() {
        let folder = folder("restart");
        let path = folder.join("history");
        let before = recorded(NOW);
        let mut writer = HistoryWriter::open(path.clone(), &mut Recorded::default(), NOW);
        writer.write(&Mutex::new(recorded(NOW)));
        let mode = fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "only the operator may read attacks");
        let mut after = restart(&path, NOW + 3.0);
        assert_eq!(after.notices, ["history restored: 29 seconds and 1 attacks"]);
        // Columns by their names, all rows and one more.
        let (rows, attacks) = as_json(&after);
        assert!(
            rows.starts_with(
                "{\"columns\":[\"flows\",\"received\"],\"rows\":[[1,4972.0,1.0,[1,7]]"
            ),
            "{rows}"
        );
        assert!(rows.ends_with("[29,5000.0,1.0,[29,7]],[30,5004.0,1.0,[1,5]]]}"), "{rows}");
        assert_eq!(attacks, as_json(&before).1);
        // The attack continues, and ends by the same rule.
        let add = |after: &mut Recorded, time, count| {
            let dropped = vec![("declined", count)];
            after.attacks.add(TrafficSecond { time, seconds: 1.0, received: 1000, dropped });
        };
        add(&mut after, NOW + 4.0, 900);
        let attack = |after: &Recorded| after.attacks.list()[0].clone();
        assert_eq!((attack(&after).began, attack(&after).ended), (4991.0, None));
        (0..10).for_each(|at| add(&mut after, NOW + 5.0 + f64::from(at), 0));
        assert_eq!((attack(&after).ended, after.attacks.list().len()), (Some(NOW + 4.0), 1));
        // After a longer pause the attack has ended, and only the rows of the last quarter of an
        // hour remain.
        let late = restart(&path, NOW + 890.0);
        assert_eq!(late.attacks.list()[0].ended, Some(NOW));
        let (rows, _) = as_json(&late);
        assert!(rows.contains("[[1,4990.0,") && rows.contains("[12,5891.0,"), "{rows}");
        // After the clock was set back there are no rows of the future.
        let early = restart(&path, NOW - 10.0);
        assert!(early.notices[0].contains("restored: 19 seconds"), "{:?}", early.notices);
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn damaged_file_is_reported_and_renamed_and_the_history_is_empty() {
        let folder = folder("damaged");
        let path = folder.join("history");
        let aside = folder.join("history.damaged");
        let whole = HistoryFile::of(&recorded(NOW)).to_bytes().unwrap();
        assert!(HistoryFile::from_bytes(&whole).is_ok());
        let refused = |bytes: &[u8]| {
            fs::write(&path, bytes).unwrap();
            let recorded = restart(&path, NOW);
            assert!(recorded.attacks.list().is_empty());
            assert!(as_json(&recorded).0.contains("[[1,5001.0,"));
            assert_eq!(fs::read(&aside).unwrap(), bytes);
            assert!(!path.exists());
            let [notice] = &recorded.notices[..] else { panic!("{:?}", recorded.notices) };
            assert!(notice.contains("renamed to") && notice.contains("is empty"), "{notice}");
            notice.clone()
        };
        for length in (0..whole.len()).step_by(37) {
            refused(&whole[..length]);
        }
        for at in (0..whole.len()).step_by(29) {
            let mut other = whole.clone();
            other[at] ^= 1 << (at % 8);
            refused(&other);
        }
        let mut rng = fastrand::Rng::with_seed(3);
        for _ in 0..50 {
            let garbage: Vec<u8> = (0..rng.usize(0..4000)).map(|_| rng.u8(..)).collect();
            refused(&garbage);
        }
        assert!(refused(b"fphist99").contains("by another version of Fingerpost"));
        // A valid file with invalid rows.
        let with = |body: &str| with_header(body.as_bytes());
        let attacks = r#""attacks":{"all":[],"hot_until":0.0}"#;
        let valid =
            format!(r#"{{"history":{{"columns":["a"],"rows":[[1.0,1.0,[2]]]}},{attacks}}}"#);
        assert!(HistoryFile::from_bytes(&with(&valid)).is_ok());
        for (good, other) in
            [("[2]", "[2,3]"), ("[2]", "[-2]"), ("1.0,1.0", "1.0,1e999"), ("\"a\"", "1")]
        {
            refused(&with(&valid.replacen(good, other, 1)));
        }
        let back = valid.replacen("[[1.0", "[[9.0,1.0,[2]],[1.0", 1);
        assert!(refused(&with(&back)).contains("its rows are invalid"));
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn write_failure_is_reported_once() {
        let folder = folder("unwritten");
        let mut recorded = Recorded::default();
        let mut writer = HistoryWriter::open(folder.join("no/history"), &mut recorded, NOW);
        let recorded = Mutex::new(recorded);
        writer.write(&recorded);
        writer.write(&recorded);
        assert_eq!(lock(&recorded).notices.len(), 1, "{:?}", lock(&recorded).notices);
        fs::create_dir(folder.join("no")).unwrap();
        writer.write(&recorded);
        assert!(folder.join("no/history").exists() && lock(&recorded).notices.len() == 1);
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn file_size_is_bounded() {
        let mut recorded = Recorded::default();
        for at in 0..3 * history::SECONDS as u64 {
            let number = |column| Number {
                name: format!("column {column}"),
                value: at.wrapping_mul(column) << 20,
                gauge: true,
            };
            recorded.history.add(at as f64, 1.0, &(1..120).map(number).collect::<Vec<_>>());
        }
        let content = HistoryFile::of(&recorded);
        let bytes = content.to_bytes().unwrap();
        assert!((bytes.len() as u64) < MAX_SIZE / 8, "{}", bytes.len());
        assert_eq!(HistoryFile::from_bytes(&bytes).unwrap(), content);
    }
}
