//! The history and the attacks in a file, so that a restart in the middle of an attack forgets nothing.
//!
//! ```text
//!   every EVERY, and at the end   Seen ─► bytes ─► file, whole or not at all
//!   at the start                  file ─► read, judged ─► Seen; or said, set aside, begun anew
//!
//!   file   "fphist01" | length of the rest:8 | its SHA-256:32 | rows, attacks as JSON
//! ```
//!
//! Columns are kept by their names, so that a version with more of them or fewer reads what it
//! knows. Rows older than the history is long are left out, and so are those of a time to come, where the
//! clock was set. What is in the file is bounded as what is in memory is; a file that is longer than
//! [`MOST`] is none of ours and is not read.
//!
//! Nothing here stops a gate: a file that makes no sense gets another name (`….damaged`) for who wants
//! to look at it, and one that cannot be written is said once.

use std::ffi::OsString;
use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::attack;
use super::history;
use super::watch::{Seen, lock};

const MAGIC: &[u8; 8] = b"fphist01";
/// What stands before the version in all files of this kind.
const KIND: &[u8] = b"fphist";
/// The most bytes of a file: several times what all rows take.
const MOST: u64 = 64 << 20;
/// How often it is written: what a machine that loses its power may lose.
const EVERY: Duration = Duration::from_secs(15);

/// What a file holds.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Kept {
    pub(super) history: history::Kept,
    pub(super) attacks: attack::Kept,
}

fn bad(what: &str) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, what.to_owned())
}

fn to_bytes(kept: &Kept) -> io::Result<Vec<u8>> {
    let body = serde_json::to_vec(kept)?;
    let length = (body.len() as u64).to_le_bytes();
    Ok([&MAGIC[..], &length, &Sha256::digest(&body), &body].concat())
}

fn from_bytes(bytes: &[u8]) -> io::Result<Kept> {
    let rest = bytes.strip_prefix(MAGIC).ok_or_else(|| {
        let other = bytes.starts_with(KIND);
        bad(if other { "of another version of Fingerpost" } else { "no history" })
    })?;
    let (length, rest) = rest.split_first_chunk::<8>().ok_or_else(|| bad("cut short"))?;
    let (sum, body) = rest.split_first_chunk::<32>().ok_or_else(|| bad("cut short"))?;
    if u64::from_le_bytes(*length) != body.len() as u64 {
        return Err(bad("not as long as it says it is"));
    }
    if Sha256::digest(body)[..] != sum[..] {
        return Err(bad("damaged: its checksum is another"));
    }
    let kept: Kept = serde_json::from_slice(body)?;
    if kept.history.is_sound() { Ok(kept) } else { Err(bad("its rows make no sense")) }
}

/// Reads a file; nothing if there is none.
fn read(path: &Path) -> io::Result<Option<Kept>> {
    let bytes = match fs::metadata(path) {
        Ok(about) if about.len() > MOST => return Err(bad("far too long to be a history")),
        Ok(_) => fs::read(path)?,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    from_bytes(&bytes).map(Some)
}

/// Who writes the file.
#[derive(Debug)]
pub(super) struct Keeper {
    path: PathBuf,
    written: Instant,
    /// It could not be written, which was said.
    troubled: bool,
}

impl Keeper {
    /// Goes on with what a file has, at this time in seconds since 1970; says what came of it.
    pub(super) fn begin(path: PathBuf, seen: &mut Seen, now: f64) -> Self {
        match read(&path) {
            Ok(None) => {}
            Ok(Some(kept)) => {
                let rows = seen.history.resume(kept.history, now);
                let attacks = seen.attacks.resume(kept.attacks, now);
                seen.news.push(format!(
                    "the history goes on with {rows} seconds and {attacks} attacks of before"
                ));
            }
            Err(error) => {
                let mut aside = OsString::from(&path);
                aside.push(".damaged");
                let aside = PathBuf::from(aside);
                let moved = match fs::rename(&path, &aside) {
                    Ok(()) => format!("set aside as {}", aside.display()),
                    Err(error) => format!("which cannot be set aside either: {error}"),
                };
                let path = path.display();
                seen.news.push(format!("{path}: {error}; {moved}. The history begins anew"));
            }
        }
        Self { path, written: Instant::now(), troubled: false }
    }

    /// Writes the file if it is time.
    pub(super) fn keep_sometimes(&mut self, seen: &Mutex<Seen>) {
        if self.written.elapsed() >= EVERY {
            self.keep(seen);
        }
    }

    /// Writes the file.
    pub(super) fn keep(&mut self, seen: &Mutex<Seen>) {
        self.written = Instant::now();
        let kept = {
            let seen = lock(seen);
            Kept { history: seen.history.kept(), attacks: seen.attacks.kept() }
        };
        // Only the operator may read attacks and destinations.
        let done = to_bytes(&kept)
            .and_then(|bytes| fib::image::replace_with_mode(&self.path, &bytes, 0o600));
        if let (Err(error), false) = (&done, self.troubled) {
            let path = self.path.display();
            lock(seen).news.push(format!("{path}: the history is not kept: {error}"));
        }
        self.troubled = done.is_err();
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;
    use crate::web::attack::Second;
    use crate::web::history::Number;

    const NOW: f64 = 5000.0;

    /// Some seconds of history, the last of them hot, until this time.
    fn seen(until: f64) -> Seen {
        let mut seen = Seen::default();
        for at in 0..30_u32 {
            let time = until - 29.0 + f64::from(at);
            let numbers = [
                Number { name: "received".into(), value: 7 * u64::from(at), gauge: false },
                Number { name: "flows".into(), value: at.into(), gauge: true },
                Number { name: "never".into(), value: 3, gauge: false },
            ];
            seen.history.add(time, 1.0, &numbers);
            let dropped = vec![("declined", if at > 20 { 500 } else { 0 })];
            seen.attacks.see(Second { time, seconds: 1.0, received: 1000, dropped });
        }
        seen
    }

    fn folder(name: &str) -> PathBuf {
        let folder = std::env::temp_dir().join(format!("fp-history-{name}-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        folder
    }

    fn told(seen: &Seen) -> (String, String) {
        let history = serde_json::to_string(&seen.history.since(0)).unwrap();
        (history, serde_json::to_string(seen.attacks.told()).unwrap())
    }

    /// Goes on with a file, as a process does that counts from 0.
    fn again(path: &Path, now: f64) -> Seen {
        let mut seen = Seen::default();
        Keeper::begin(path.to_owned(), &mut seen, now);
        for (at, value) in [(0.0, 0), (1.0, 5)] {
            let numbers = [
                Number { name: "flows".into(), value: 1, gauge: true },
                Number { name: "new".into(), value: 0, gauge: false },
                Number { name: "received".into(), value, gauge: false },
            ];
            seen.history.add(now + at, 1.0, &numbers);
        }
        seen
    }

    #[test]
    fn a_restart_in_the_middle_of_an_attack_goes_on_with_it() {
        let folder = folder("restart");
        let path = folder.join("history");
        let before = seen(NOW);
        let mut keeper = Keeper::begin(path.clone(), &mut Seen::default(), NOW);
        keeper.keep(&Mutex::new(seen(NOW)));
        let mode = fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "only the operator may read attacks");
        let mut after = again(&path, NOW + 3.0);
        assert_eq!(after.news, ["the history goes on with 29 seconds and 1 attacks of before"]);
        // Columns by their names, all rows and one more.
        let (rows, attacks) = told(&after);
        assert!(
            rows.starts_with(
                "{\"columns\":[\"flows\",\"received\"],\"rows\":[[1,4972.0,1.0,[1,7]]"
            ),
            "{rows}"
        );
        assert!(rows.ends_with("[29,5000.0,1.0,[29,7]],[30,5004.0,1.0,[1,5]]]}"), "{rows}");
        assert_eq!(attacks, told(&before).1);
        // Which goes on, and ends by the same rule.
        let see = |after: &mut Seen, time, count| {
            let dropped = vec![("declined", count)];
            after.attacks.see(Second { time, seconds: 1.0, received: 1000, dropped });
        };
        see(&mut after, NOW + 4.0, 900);
        let attack = |after: &Seen| after.attacks.told()[0].clone();
        assert_eq!((attack(&after).began, attack(&after).ended), (4991.0, None));
        (0..10).for_each(|at| see(&mut after, NOW + 5.0 + f64::from(at), 0));
        assert_eq!((attack(&after).ended, after.attacks.told().len()), (Some(NOW + 4.0), 1));
        // Later than an attack would have ended it has; and of the rows those are left that are
        // of the last quarter of an hour.
        let late = again(&path, NOW + 890.0);
        assert_eq!(late.attacks.told()[0].ended, Some(NOW));
        let (rows, _) = told(&late);
        assert!(rows.contains("[[1,4990.0,") && rows.contains("[12,5891.0,"), "{rows}");
        // A clock that was set back: no rows of a time to come.
        let early = again(&path, NOW - 10.0);
        assert!(early.news[0].contains("with 19 seconds"), "{:?}", early.news);
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn what_is_damaged_is_said_and_set_aside_and_begun_anew() {
        let folder = folder("damaged");
        let path = folder.join("history");
        let aside = folder.join("history.damaged");
        let whole = {
            let seen = seen(NOW);
            to_bytes(&Kept { history: seen.history.kept(), attacks: seen.attacks.kept() }).unwrap()
        };
        assert!(from_bytes(&whole).is_ok());
        let refused = |bytes: &[u8]| {
            fs::write(&path, bytes).unwrap();
            let seen = again(&path, NOW);
            assert!(seen.attacks.told().is_empty() && told(&seen).0.contains("[[1,5001.0,"));
            assert_eq!(fs::read(&aside).unwrap(), bytes);
            assert!(!path.exists());
            let [said] = &seen.news[..] else { panic!("{:?}", seen.news) };
            assert!(said.contains("set aside as") && said.contains("begins anew"), "{said}");
            said.clone()
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
        assert!(refused(b"fphist99").contains("of another version of Fingerpost"));
        // Sound as a file, and of no sense.
        let with = |body: &str| {
            let length = (body.len() as u64).to_le_bytes();
            [&MAGIC[..], &length, &Sha256::digest(body), body.as_bytes()].concat()
        };
        let attacks = r#""attacks":{"all":[],"hot_until":0.0}"#;
        let sound =
            format!(r#"{{"history":{{"columns":["a"],"rows":[[1.0,1.0,[2]]]}},{attacks}}}"#);
        assert!(from_bytes(&with(&sound)).is_ok());
        for (good, other) in
            [("[2]", "[2,3]"), ("[2]", "[-2]"), ("1.0,1.0", "1.0,1e999"), ("\"a\"", "1")]
        {
            refused(&with(&sound.replacen(good, other, 1)));
        }
        let back = sound.replacen("[[1.0", "[[9.0,1.0,[2]],[1.0", 1);
        assert!(refused(&with(&back)).contains("its rows make no sense"));
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn what_cannot_be_written_is_said_once() {
        let folder = folder("unwritten");
        let mut seen = Seen::default();
        let mut keeper = Keeper::begin(folder.join("no/history"), &mut seen, NOW);
        let seen = Mutex::new(seen);
        keeper.keep(&seen);
        keeper.keep(&seen);
        assert_eq!(lock(&seen).news.len(), 1, "{:?}", lock(&seen).news);
        fs::create_dir(folder.join("no")).unwrap();
        keeper.keep(&seen);
        assert!(folder.join("no/history").exists() && lock(&seen).news.len() == 1);
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn it_is_bounded() {
        let mut seen = Seen::default();
        for at in 0..3 * history::SECONDS as u64 {
            let number = |column| Number {
                name: format!("column {column}"),
                value: at.wrapping_mul(column) << 20,
                gauge: true,
            };
            seen.history.add(at as f64, 1.0, &(1..120).map(number).collect::<Vec<_>>());
        }
        let kept = Kept { history: seen.history.kept(), attacks: seen.attacks.kept() };
        let bytes = to_bytes(&kept).unwrap();
        assert!((bytes.len() as u64) < MOST / 8, "{}", bytes.len());
        assert_eq!(from_bytes(&bytes).unwrap(), kept);
    }
}
