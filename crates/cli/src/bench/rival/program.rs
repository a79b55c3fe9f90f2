//! The other program: compiled when it is needed, asked line by line, and gone with us.
//!
//! `bench/rivals/rte_fib.c` goes to the compiler through a pipe, and what comes out,
//! like every file that both sides map, lies in memory that has no name in any folder
//! (`memfd_create`); it is passed on as `/proc/PID/fd/N`. So there is nothing to
//! clean up, whatever ends us, and the program itself asks the kernel to be killed
//! when its parent is.

use std::fs::File;
use std::io::{BufRead, BufReader, BufWriter, Write};
use std::os::fd::AsRawFd;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use anyhow::{Context, bail};
use nix::sys::memfd::{MFdFlags, memfd_create};

/// The program, which an installed `fingerpost` has with it.
const SOURCE: &str = include_str!("../../../../../bench/rivals/rte_fib.c");
/// What there must be to compile it.
const NEEDED: &str = "comparing with DPDK takes its headers and a C compiler: \
                      apt-get install libdpdk-dev pkg-config gcc libc6-dev";

/// A file in memory that the other program can open too.
pub(super) struct Shared(File);

impl Shared {
    /// Makes an empty one.
    pub(super) fn empty(name: &str) -> anyhow::Result<Self> {
        let memory = memfd_create(name, MFdFlags::MFD_CLOEXEC);
        Ok(Self(memory.with_context(|| format!("making room for {name}"))?.into()))
    }

    /// Makes one that holds `items`, each written as `bytes` makes it.
    pub(super) fn of<T, const N: usize>(
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

    /// Returns the file, for reading and for giving it a size.
    pub(super) fn file(&self) -> &File {
        &self.0
    }

    /// Names it for other processes of the same user.
    pub(super) fn path(&self) -> String {
        format!("/proc/{}/fd/{}", std::process::id(), self.0.as_raw_fd())
    }
}

/// The program, running.
pub(super) struct Program {
    child: Child,
    to: ChildStdin,
    from: BufReader<ChildStdout>,
}

impl Program {
    /// Compiles and starts it, with room for so many MiB.
    ///
    /// Returns it with what it says of itself: the version of DPDK.
    pub(super) fn start(megabytes: usize) -> anyhow::Result<(Self, String)> {
        let binary = compile()?;
        let mut child = Command::new(binary.path())
            .arg(megabytes.to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .context("starting the rival")?;
        let (Some(to), Some(from)) = (child.stdin.take(), child.stdout.take()) else {
            unreachable!("both pipes were asked for");
        };
        let mut program = Self { child, to, from: BufReader::new(from) };
        let version = program.answer().context("starting the rival")?;
        Ok((program, version))
    }

    /// Gives a command and returns what stands behind `ok`.
    pub(super) fn ask(&mut self, command: &str) -> anyhow::Result<String> {
        let given = writeln!(self.to, "{command}").and_then(|()| self.to.flush());
        given
            .context("the rival has ended")
            .and_then(|()| self.answer())
            .with_context(|| format!("the rival, asked to `{command}`"))
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
        // It has nothing to save. Both fail only where it has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Compiles the program into memory.
fn compile() -> anyhow::Result<Shared> {
    let flags = Command::new("pkg-config")
        .args(["--cflags", "--libs", "libdpdk"])
        .output()
        .with_context(|| format!("running pkg-config ({NEEDED})"))?;
    if !flags.status.success() {
        bail!("{}\n{NEEDED}", String::from_utf8_lossy(&flags.stderr).trim());
    }
    let flags = String::from_utf8(flags.stdout).context("reading what pkg-config says")?;
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
    let given = child.stdin.take().map(|mut pipe| pipe.write_all(SOURCE.as_bytes()));
    let said = child.wait_with_output().with_context(|| format!("running {compiler}"))?;
    if !said.status.success() {
        bail!("{compiler}: {}\n{NEEDED}", String::from_utf8_lossy(&said.stderr).trim());
    }
    given.transpose().context("handing the program to the compiler")?;
    Ok(binary)
}
