//! A child process that answers commands line by line.
//!
//! ```text
//!   ask("keys /proc/1/fd/7") ── a line ──►  its standard input
//!   Ok("…") or the error    ◄── a line ──   its standard output
//! ```
//!
//! Files that both sides read are in anonymous memory (`memfd_create`) with the path `/proc/PID/fd/N`,
//! so that nothing remains after this process. The child ends at the end of its input, or asks the
//! kernel to kill it with its parent. `bench/rivals/README.md` lists the commands.

use std::fs::File;
use std::io::{BufRead, BufReader, BufWriter, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use anyhow::{Context, bail};
use fib::{Family, Hop, Prefix};
use nix::sys::memfd::{MFdFlags, memfd_create};

/// The sources of DPDK's rival, which the program contains.
const SOURCES: [&str; 3] = [
    include_str!("../../rivals/rival.h"),
    include_str!("../../rivals/dpdk.h"),
    include_str!("../../rivals/rte_fib.c"),
];
/// The requirements to compile it.
const NEEDED: &str = "comparing with DPDK takes its headers and a C compiler: \
                      apt-get install libdpdk-dev pkg-config gcc libc6-dev";

/// A file in memory that the other program can open too.
pub(crate) struct Shared(File);

impl Shared {
    /// Makes an empty one.
    pub(crate) fn empty(name: &str) -> anyhow::Result<Self> {
        let memory = memfd_create(name, MFdFlags::MFD_CLOEXEC);
        Ok(Self(memory.with_context(|| format!("making room for {name}"))?.into()))
    }

    /// Makes one that holds `items`, each written as `bytes` makes it.
    fn of<T, const N: usize>(
        name: &str,
        items: impl Iterator<Item = T>,
        bytes: impl Fn(T) -> [u8; N],
    ) -> anyhow::Result<Self> {
        let shared = Self::empty(name)?;
        let mut file = BufWriter::with_capacity(1 << 20, &shared.0);
        for item in items {
            file.write_all(&bytes(item)).with_context(|| format!("writing {name}"))?;
        }
        file.flush().with_context(|| format!("writing {name}"))?;
        drop(file);
        Ok(shared)
    }

    /// Makes one that holds routes or changes.
    pub(crate) fn routes<A: Family>(routes: &[(Prefix<A>, Hop)]) -> anyhow::Result<Self> {
        let items = routes.iter();
        if A::BITS == 32 {
            Self::of("routes", items, |(prefix, hop)| {
                let mut bytes = [0; 12];
                bytes[..4].copy_from_slice(&(prefix.addr().to_u128() as u32).to_ne_bytes());
                bytes[4..8].copy_from_slice(&prefix.len().to_ne_bytes());
                bytes[8..].copy_from_slice(&hop.0.to_ne_bytes());
                bytes
            })
        } else {
            Self::of("routes", items, |(prefix, hop)| {
                let mut bytes = [0; 24];
                bytes[..16].copy_from_slice(&prefix.addr().to_u128().to_be_bytes());
                bytes[16..20].copy_from_slice(&prefix.len().to_ne_bytes());
                bytes[20..].copy_from_slice(&hop.0.to_ne_bytes());
                bytes
            })
        }
    }

    /// Makes one that holds addresses.
    pub(crate) fn keys<A: Family>(keys: &[A]) -> anyhow::Result<Self> {
        if A::BITS == 32 {
            Self::of("keys", keys.iter(), |key| (key.to_u128() as u32).to_ne_bytes())
        } else {
            Self::of("keys", keys.iter(), |key| key.to_u128().to_be_bytes())
        }
    }

    /// Makes one with room for so many answers.
    pub(crate) fn answers(count: usize) -> anyhow::Result<Self> {
        let answers = Self::empty("answers")?;
        answers.0.set_len(count as u64 * 4).context("making room for answers")?;
        Ok(answers)
    }

    /// Reads answers.
    pub(crate) fn read(&self, out: &mut [Hop]) -> anyhow::Result<()> {
        let mut bytes = vec![0; 4 << 16];
        for (i, out) in out.chunks_mut(1 << 16).enumerate() {
            let bytes = &mut bytes[..out.len() * 4];
            self.0.read_exact_at(bytes, i as u64 * (4 << 16))?;
            for (bytes, hop) in bytes.chunks_exact(4).zip(out) {
                *hop = Hop(u32::from_ne_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]));
            }
        }
        Ok(())
    }

    /// Names it for other processes of the same user.
    pub(crate) fn path(&self) -> String {
        format!("/proc/{}/fd/{}", std::process::id(), self.0.as_raw_fd())
    }
}

/// The program, running.
pub(crate) struct Program {
    child: Child,
    to: ChildStdin,
    from: BufReader<ChildStdout>,
}

impl Program {
    /// Starts a program and returns it with its name and version.
    pub(crate) fn start(mut command: Command) -> anyhow::Result<(Self, String)> {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .with_context(|| format!("starting {}", command.get_program().display()))?;
        let (Some(to), Some(from)) = (child.stdin.take(), child.stdout.take()) else {
            unreachable!("both pipes were requested");
        };
        let mut program = Self { child, to, from: BufReader::new(from) };
        let version = program
            .answer()
            .with_context(|| format!("starting {}", command.get_program().display()))?;
        Ok((program, version))
    }

    /// Compiles DPDK's table and starts it.
    pub(crate) fn dpdk() -> anyhow::Result<(Self, String)> {
        let binary = compile()?;
        Self::start(Command::new(binary.path()))
    }

    /// Sends a command and returns the reply after `ok`.
    pub(crate) fn ask(&mut self, command: &str) -> anyhow::Result<String> {
        let given = writeln!(self.to, "{command}").and_then(|()| self.to.flush());
        given
            .context("the rival has ended")
            .and_then(|()| self.answer())
            .with_context(|| format!("the rival, at the command `{command}`"))
    }

    fn answer(&mut self) -> anyhow::Result<String> {
        let mut line = String::new();
        if self.from.read_line(&mut line)? == 0 {
            bail!("it has ended: {}", self.child.wait()?);
        }
        match line.trim_end().split_once(' ').unwrap_or((line.trim_end(), "")) {
            ("ok", rest) => Ok(rest.to_owned()),
            _ => bail!("{}", line.trim_end()),
        }
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // It has no state to save. Both calls fail only if it has ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Compiles DPDK's table into memory.
fn compile() -> anyhow::Result<Shared> {
    let flags = Command::new("pkg-config")
        .args(["--cflags", "--libs", "libdpdk"])
        .output()
        .with_context(|| format!("running pkg-config ({NEEDED})"))?;
    if !flags.status.success() {
        bail!("{}\n{NEEDED}", String::from_utf8_lossy(&flags.stderr).trim());
    }
    let flags = String::from_utf8(flags.stdout).context("reading the output of pkg-config")?;
    let compiler = std::env::var("CC").unwrap_or_else(|_| "cc".to_owned());
    let binary = Shared::empty("rte_fib")?;
    let mut child = Command::new(&compiler)
        .args(["-pipe", "-std=gnu11", "-O2", "-Wall", "-x", "c", "-", "-x", "none"])
        .args(["-o", &binary.path()])
        .args(flags.split_whitespace())
        .arg("-lpthread")
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .with_context(|| format!("running {compiler} ({NEEDED})"))?;
    // One text: each file includes the one before it unless that is there already.
    let given = child.stdin.take().map(|mut pipe| pipe.write_all(SOURCES.concat().as_bytes()));
    let output = child.wait_with_output().with_context(|| format!("running {compiler}"))?;
    if !output.status.success() {
        bail!("{compiler}: {}\n{NEEDED}", String::from_utf8_lossy(&output.stderr).trim());
    }
    given.transpose().context("handing the program to the compiler")?;
    Ok(binary)
}

/// Reads a file of routes or changes, as [`Shared::routes`] wrote it.
pub(crate) fn read_routes<A: Family>(path: &str) -> anyhow::Result<Vec<(Prefix<A>, Hop)>> {
    let bytes = read(path)?;
    let word = |bytes: &[u8]| u32::from_ne_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
    let wide = usize::from(A::BITS > 32) * 12;
    let items = bytes.chunks_exact(12 + wide).map(|item| {
        let addr = if wide == 0 { word(item).into() } else { big(item) };
        let (len, hop) = (word(&item[4 + wide..]), word(&item[8 + wide..]));
        (Prefix::truncate(A::from_u128(addr), len.min(A::BITS)), Hop(hop))
    });
    Ok(items.collect())
}

/// Reads a file of keys, as [`Shared::keys`] wrote it.
pub(crate) fn read_keys<A: Family>(path: &str) -> anyhow::Result<Vec<A>> {
    let mut file = File::open(path).with_context(|| path.to_owned())?;
    let size = if A::BITS == 32 { 4 } else { 16 };
    let mut keys = Vec::with_capacity(file.metadata()?.len() as usize / size);
    let mut bytes = vec![0; 1 << 20];
    loop {
        let mut have = 0;
        while have < bytes.len() {
            match file.read(&mut bytes[have..])? {
                0 => break,
                more => have += more,
            }
        }
        keys.extend(bytes[..have].chunks_exact(size).map(|key| match *key {
            [a, b, c, d] => A::from_u128(u32::from_ne_bytes([a, b, c, d]).into()),
            _ => A::from_u128(big(key)),
        }));
        if have < bytes.len() {
            return Ok(keys);
        }
    }
}

/// Writes answers into a file that is there.
pub(crate) fn write_answers(path: &str, hops: &[Hop]) -> anyhow::Result<()> {
    let file = File::options().write(true).open(path).with_context(|| path.to_owned())?;
    let mut file = BufWriter::with_capacity(1 << 20, file);
    hops.iter().try_for_each(|hop| file.write_all(&hop.0.to_ne_bytes()))?;
    Ok(file.flush()?)
}

fn read(path: &str) -> anyhow::Result<Vec<u8>> {
    std::fs::read(path).with_context(|| path.to_owned())
}

fn big(bytes: &[u8]) -> u128 {
    bytes[..16].iter().fold(0, |sum, &byte| sum << 8 | u128::from(byte))
}

#[cfg(test)]
mod tests {
    use super::{Shared, read_keys, read_routes, write_answers};
    use fib::{Family, Hop, Prefix};

    fn through_a_file<A: Family>(addr: u128) {
        let routes: Vec<(Prefix<A>, Hop)> =
            (0..20).map(|len| (Prefix::truncate(A::from_u128(addr), len), Hop(len + 1))).collect();
        let shared = Shared::routes(&routes).unwrap();
        assert_eq!(read_routes::<A>(&shared.path()).unwrap(), routes);
        // More than one buffer of them.
        let keys: Vec<A> = (0..300_000u128).map(|i| A::from_u128(addr + i)).collect();
        let shared = Shared::keys(&keys).unwrap();
        assert_eq!(read_keys::<A>(&shared.path()).unwrap(), keys);
    }

    #[test]
    fn shared_files_round_trip() {
        through_a_file::<u32>(0xc0a8_1234);
        through_a_file::<u128>(0x2001_0db8_0000_1111_2222_3333_4444_5555);
        let hops: Vec<Hop> = (0..100_000).map(Hop).collect();
        let shared = Shared::answers(hops.len()).unwrap();
        write_answers(&shared.path(), &hops).unwrap();
        let mut out = vec![Hop::NONE; hops.len()];
        shared.read(&mut out).unwrap();
        assert_eq!(out, hops);
    }
}
