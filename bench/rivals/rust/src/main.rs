//! Rivals that are Rust crates, behind the line protocol of `../../README.md`.
//!
//! ```text
//!   rival prefix-trie    prefix-trie's PrefixMap
//!   rival treebitmap     ip_network_table-deps-treebitmap's IpLookupTable
//! ```
//!
//! Both take one address per call. The lookup is the one that each documentation shows for the
//! longest match. The conversion of keys to addresses is part of the reported time, because a
//! caller has to do it too. Keys are read from a file into memory; answers of a timed pass go
//! only through `black_box`. Time is the CPU time of the thread.
//!
//! The reported bytes are the memory that the crates report for themselves.

#![forbid(unsafe_code)]

use std::fs::{File, read};
use std::hint::black_box;
use std::io::{BufRead, BufWriter, Write, stdin, stdout};
use std::net::{Ipv4Addr, Ipv6Addr};
use std::process::ExitCode;
use std::sync::Barrier;
use std::time::{Duration, Instant};

use ip_network_table_deps_treebitmap::IpLookupTable;
use ip_network_table_deps_treebitmap::address::Address;
use nix::sched::{CpuSet, sched_setaffinity};
use nix::time::ClockId;
use nix::unistd::Pid;
use prefix_trie::PrefixMap;

type Reply = Result<String, String>;

/// A table of one family.
trait Table<K>: Default + Sync {
    fn insert(&mut self, addr: K, len: u8, hop: u32);
    fn remove(&mut self, addr: K, len: u8);
    /// Returns the hop, or 0.
    fn lookup(&self, addr: K) -> u32;
    fn bytes(&self) -> usize;
}

/// An address as a number, and as a file has it.
trait Key: Copy + Send + Sync {
    const BYTES: usize;
    fn read(bytes: &[u8]) -> Self;
    /// Changes bits.
    fn with(self, bits: u32) -> Self;
}

impl Key for u32 {
    const BYTES: usize = 4;
    fn read(bytes: &[u8]) -> Self {
        word(bytes)
    }
    fn with(self, bits: u32) -> Self {
        self ^ bits
    }
}

impl Key for u128 {
    const BYTES: usize = 16;
    fn read(bytes: &[u8]) -> Self {
        bytes[..16].iter().fold(0, |sum, &byte| sum << 8 | Self::from(byte))
    }
    fn with(self, bits: u32) -> Self {
        self ^ Self::from(bits)
    }
}

fn word(bytes: &[u8]) -> u32 {
    u32::from_ne_bytes([bytes[0], bytes[1], bytes[2], bytes[3]])
}

/// `prefix-trie`, by its own pairs of a number and a length.
struct Trie<K>(PrefixMap<(K, u8), u32>)
where
    (K, u8): prefix_trie::Prefix;

impl<K> Default for Trie<K>
where
    (K, u8): prefix_trie::Prefix,
{
    fn default() -> Self {
        Self(PrefixMap::new())
    }
}

impl<K: Key> Table<K> for Trie<K>
where
    (K, u8): prefix_trie::Prefix,
    PrefixMap<(K, u8), u32>: Sync,
{
    fn insert(&mut self, addr: K, len: u8, hop: u32) {
        self.0.insert((addr, len), hop);
    }
    fn remove(&mut self, addr: K, len: u8) {
        self.0.remove(&(addr, len));
    }
    fn lookup(&self, addr: K) -> u32 {
        self.0.get_lpm(&(addr, (K::BYTES * 8) as u8)).map_or(0, |(_, &hop)| hop)
    }
    fn bytes(&self) -> usize {
        self.0.mem_size()
    }
}

/// `treebitmap`, by the addresses of the standard library.
struct TreeBitmap<A>(IpLookupTable<A, u32>);

impl<A: Address> Default for TreeBitmap<A> {
    fn default() -> Self {
        Self(IpLookupTable::new())
    }
}

impl<A: Address + Sync, K: Key + Into<A>> Table<K> for TreeBitmap<A>
where
    IpLookupTable<A, u32>: Sync,
{
    fn insert(&mut self, addr: K, len: u8, hop: u32) {
        self.0.insert(addr.into(), len.into(), hop);
    }
    fn remove(&mut self, addr: K, len: u8) {
        self.0.remove(addr.into(), len.into());
    }
    fn lookup(&self, addr: K) -> u32 {
        self.0.longest_match(addr.into()).map_or(0, |(_, _, &hop)| hop)
    }
    fn bytes(&self) -> usize {
        let (nodes, results) = self.0.mem_usage();
        nodes + results
    }
}

fn main() -> ExitCode {
    let which = std::env::args().nth(1).unwrap_or_default();
    let version = match &*which {
        "prefix-trie" => "prefix-trie 0.10.1",
        "treebitmap" => "ip_network_table-deps-treebitmap 0.5.0",
        _ => {
            say("error name a rival: prefix-trie or treebitmap");
            return ExitCode::FAILURE;
        }
    };
    say(&format!("ok {version}"));
    let mut lines = stdin().lock().lines().map_while(Result::ok);
    let Some(line) = lines.next() else { return ExitCode::SUCCESS };
    match (&*which, &*line.split_whitespace().collect::<Vec<_>>()) {
        ("prefix-trie", ["table", "4", path]) => serve::<u32, Trie<u32>>(path, lines),
        ("prefix-trie", ["table", "6", path]) => serve::<u128, Trie<u128>>(path, lines),
        (_, ["table", "4", path]) => serve::<u32, TreeBitmap<Ipv4Addr>>(path, lines),
        (_, ["table", "6", path]) => serve::<u128, TreeBitmap<Ipv6Addr>>(path, lines),
        _ => say("error a table comes first"),
    }
    ExitCode::SUCCESS
}

fn say(line: &str) {
    let mut out = stdout().lock();
    // If the parent has closed the pipe, the input ends too, and with it this program.
    let _ = writeln!(out, "{line}").and_then(|()| out.flush());
}

fn serve<K: Key, T: Table<K>>(path: &str, lines: impl Iterator<Item = String>) {
    let mut table = T::default();
    match change(&mut table, path) {
        Ok((count, seconds)) => {
            say(&format!("ok {count} {seconds:.6} {} 0", table.bytes()));
        }
        Err(error) => return say(&format!("error {error}")),
    }
    let mut keys = Vec::new();
    for line in lines {
        match answer(&mut table, &mut keys, &line.split_whitespace().collect::<Vec<_>>()) {
            Ok(answer) => say(&format!("ok {answer}")),
            Err(error) => say(&format!("error {error}")),
        }
    }
}

fn answer<K: Key, T: Table<K>>(table: &mut T, keys: &mut Vec<K>, words: &[&str]) -> Reply {
    let number = |word: &str| word.parse::<usize>().map_err(|error| error.to_string());
    match *words {
        ["keys", path] => {
            *keys = Vec::new();
            let bytes = read(path).map_err(|error| error.to_string())?;
            *keys = bytes.chunks_exact(K::BYTES).map(K::read).collect();
            Ok(bytes.len().to_string())
        }
        ["pass", how, _, threads] => pass(table, keys, how == "chain", number(threads)?),
        ["pass", how, _, _, path] => answers(table, keys, how == "chain", path),
        ["latency", chain] => latency(table, keys, number(chain)?),
        ["change", path] => {
            change(table, path).map(|(count, seconds)| format!("{count} {seconds:.6}"))
        }
        _ => Err(format!("no such command: {}", words.join(" "))),
    }
}

/// Makes the changes of a file, hop 0 taking a route out; returns their number and time.
fn change<K: Key, T: Table<K>>(table: &mut T, path: &str) -> Result<(usize, f64), String> {
    let bytes = read(path).map_err(|error| error.to_string())?;
    let size = K::BYTES + 8;
    let start = on_cpu();
    for item in bytes.chunks_exact(size) {
        let (addr, len) = (K::read(item), word(&item[K::BYTES..]) as u8);
        match word(&item[K::BYTES + 4..]) {
            0 => table.remove(addr, len),
            hop => table.insert(addr, len, hop),
        }
    }
    Ok((bytes.len() / size, (on_cpu() - start).as_secs_f64()))
}

/// Looks keys up, one after the other. If `chained`, zero bits derived from each answer are
/// mixed into the next key: a data dependency that the optimizer cannot remove.
fn look<K: Key, T: Table<K>>(table: &T, keys: &[K], chained: bool, mut each: impl FnMut(u32)) {
    if chained {
        let zero = black_box(0);
        let mut hop = 0;
        for key in keys {
            hop = table.lookup(key.with(hop & zero));
            each(hop);
        }
    } else {
        keys.iter().for_each(|&key| each(table.lookup(key)));
    }
}

fn pass<K: Key, T: Table<K>>(table: &T, keys: &[K], chained: bool, threads: usize) -> Reply {
    if threads == 0 || keys.is_empty() {
        return Err("pass: a thread, and keys".to_owned());
    }
    let section = keys.len().div_ceil(threads);
    let ready = &Barrier::new(keys.len().div_ceil(section));
    let parts: Vec<String> = std::thread::scope(|scope| {
        let running: Vec<_> = keys
            .chunks(section)
            .enumerate()
            .map(|(cpu, keys)| {
                scope.spawn(move || {
                    pin(cpu);
                    ready.wait();
                    let start = on_cpu();
                    look(table, keys, chained, |hop| {
                        black_box(hop);
                    });
                    format!("{}:{:.9}", keys.len(), (on_cpu() - start).as_secs_f64())
                })
            })
            .collect();
        running.into_iter().map(|thread| thread.join().expect("a pass does not panic")).collect()
    });
    Ok(parts.join(" "))
}

fn answers<K: Key, T: Table<K>>(table: &T, keys: &[K], chained: bool, path: &str) -> Reply {
    let file = File::options().write(true).open(path).map_err(|error| error.to_string())?;
    let mut out = BufWriter::with_capacity(1 << 20, file);
    let start = on_cpu();
    let mut failed = None;
    look(table, keys, chained, |hop| failed = out.write_all(&hop.to_ne_bytes()).err());
    let failed = failed.or(out.flush().err());
    failed.map_or_else(
        || Ok(format!("{}:{:.9}", keys.len(), (on_cpu() - start).as_secs_f64())),
        |error| Err(error.to_string()),
    )
}

fn latency<K: Key, T: Table<K>>(table: &T, keys: &[K], chain: usize) -> Reply {
    if chain == 0 || chain > keys.len() {
        return Err("latency: a number of lookups, at most as many as keys".to_owned());
    }
    pin(0);
    let mut times: Vec<f64> = keys
        .chunks_exact(chain)
        .map(|keys| {
            let start = Instant::now();
            look(table, keys, true, |hop| {
                black_box(hop);
            });
            start.elapsed().as_secs_f64() / chain as f64 * 1e9
        })
        .collect();
    times.sort_by(f64::total_cmp);
    let at = |place: usize| format!("{:.3}", times[(times.len() - 1) * place / 1000]);
    Ok(format!("{} {} {} {} {}", times.len(), at(500), at(900), at(990), at(999)))
}

/// Binds the calling thread to one CPU; where that is forbidden it stays unbound.
fn pin(cpu: usize) {
    let mut set = CpuSet::new();
    let _ = set.set(cpu).and_then(|()| sched_setaffinity(Pid::from_raw(0), &set));
}

fn on_cpu() -> Duration {
    ClockId::CLOCK_THREAD_CPUTIME_ID.now().map(Duration::from).unwrap_or_default()
}
