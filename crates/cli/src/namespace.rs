//! Network namespaces without names, for what is shown on one machine (`demo`, `lab`).
//!
//! A namespace here has no name and no mount: it belongs to a thread that
//! unshared it, is reached by that thread's `/proc` entry, and the kernel takes
//! it and every interface in it away when the process ends, by `SIGKILL` too.
//! The thread also has a view of `/sys` that shows the namespace's interfaces.
//! What has to be done inside is sent to the thread; a socket, an XDP program or
//! a process made there stays there whoever uses it afterwards.

use std::fs;
use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::mpsc::{self, Sender};
use std::thread::{self, JoinHandle};

use anyhow::{Context, Result, anyhow, bail};
use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};

type Job = Box<dyn FnOnce() + Send>;

/// A network namespace and the thread that holds it.
#[derive(Debug)]
pub(crate) struct Namespace {
    name: &'static str,
    path: PathBuf,
    /// `None` once it is being dropped, which ends the thread.
    jobs: Option<Sender<Job>>,
    thread: Option<JoinHandle<()>>,
}

impl Namespace {
    /// Makes an empty namespace, its loopback up.
    pub(crate) fn new(name: &'static str) -> Result<Self> {
        let (jobs, inbox) = mpsc::channel::<Job>();
        let (ready, answer) = mpsc::channel();
        let thread = thread::Builder::new().name(format!("ns-{name}")).spawn(move || {
            let entered = enter();
            let failed = entered.is_err();
            let told = ready.send(entered).is_ok();
            if told && !failed {
                inbox.into_iter().for_each(|job| job());
            }
        })?;
        let path = answer
            .recv()
            .map_err(|_| anyhow!("the thread of namespace {name} died"))?
            .with_context(|| format!("cannot make the network namespace {name}"))?;
        let namespace = Self { name, path, jobs: Some(jobs), thread: Some(thread) };
        namespace.ip("link set lo up")?;
        Ok(namespace)
    }

    /// Does something inside and returns what came of it.
    ///
    /// Threads and programs started by `job` are inside too.
    pub(crate) fn run<T: Send + 'static>(
        &self,
        job: impl FnOnce() -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let (done, answer) = mpsc::channel();
        let job: Job = Box::new(move || {
            // Nobody waits for it any more: then nobody misses it.
            let _ = done.send(job());
        });
        self.jobs
            .as_ref()
            .and_then(|jobs| jobs.send(job).ok())
            .and_then(|()| answer.recv().ok())
            .unwrap_or_else(|| bail!("the thread of namespace {} died", self.name))
    }

    /// Runs `ip` with arguments separated by spaces.
    pub(crate) fn ip(&self, arguments: &str) -> Result<String> {
        let arguments: Vec<String> = arguments.split_whitespace().map(String::from).collect();
        self.run(move || run("ip", &arguments, None))
    }

    /// Runs `tc` likewise.
    pub(crate) fn tc(&self, arguments: &str) -> Result<String> {
        let arguments: Vec<String> = arguments.split_whitespace().map(String::from).collect();
        self.run(move || run("tc", &arguments, None))
    }

    /// Runs `ip -batch` on `lines`.
    pub(crate) fn ip_batch(&self, lines: String) -> Result<()> {
        self.run(move || run("ip", &["-batch".into(), "-".into()], Some(lines)).map(drop))
    }

    /// Makes a veth pair, one end here and the other there, each with its name and its
    /// address, both down.
    pub(crate) fn join(
        &self,
        (near, near_mac): (&str, [u8; 6]),
        other: &Self,
        (far, far_mac): (&str, [u8; 6]),
    ) -> Result<()> {
        // One queue each way: native XDP needs as many receive queues as the
        // peer has transmit queues.
        self.ip(&format!(
            "link add {near} address {} numrxqueues 1 numtxqueues 1 type veth \
             peer name {far} address {} numrxqueues 1 numtxqueues 1 netns {}",
            Mac(near_mac),
            Mac(far_mac),
            other.path.display()
        ))?;
        Ok(())
    }

    /// Writes a file as seen from inside (`/proc/sys/net`, `/sys/class/net`).
    pub(crate) fn write(&self, path: impl Into<PathBuf>, text: &'static str) -> Result<()> {
        let path = path.into();
        self.run(move || {
            fs::write(&path, text)
                .with_context(|| format!("cannot set {} to {text}", path.display()))
        })
    }

    /// Returns the index of an interface.
    pub(crate) fn index(&self, interface: &str) -> Result<u32> {
        self.number(format!("/sys/class/net/{interface}/ifindex")).map(|index| index as u32)
    }

    /// Returns one of the kernel's counters of an interface (`tx_dropped`, …).
    pub(crate) fn counter(&self, interface: &str, counter: &str) -> Result<u64> {
        self.number(format!("/sys/class/net/{interface}/statistics/{counter}"))
    }

    fn number(&self, path: String) -> Result<u64> {
        self.run(move || {
            let text = fs::read_to_string(&path).with_context(|| format!("cannot read {path}"))?;
            text.trim().parse().with_context(|| format!("{path} is not a number: {text}"))
        })
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        self.jobs = None;
        if let Some(thread) = self.thread.take() {
            // It has nothing to say that was not said to who asked.
            let _ = thread.join();
        }
    }
}

/// Moves the calling thread into a new namespace with a `/sys` of its own.
fn enter() -> Result<PathBuf> {
    unshare(CloneFlags::CLONE_NEWNET | CloneFlags::CLONE_NEWNS)
        .context("unshare (CAP_SYS_ADMIN is needed)")?;
    // Else the mount below would show outside.
    mount(None::<&str>, "/", None::<&str>, MsFlags::MS_REC | MsFlags::MS_SLAVE, None::<&str>)
        .context("mount --make-rslave /")?;
    mount(Some("sysfs"), "/sys", Some("sysfs"), MsFlags::empty(), None::<&str>)
        .context("mount -t sysfs")?;
    Ok(format!("/proc/{}/task/{}/ns/net", nix::unistd::getpid(), nix::unistd::gettid()).into())
}

/// Runs a program of iproute2.
fn run(program: &str, arguments: &[String], input: Option<String>) -> Result<String> {
    let mut child = Command::new(program)
        .args(arguments)
        .stdin(if input.is_some() { Stdio::piped() } else { Stdio::null() })
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .with_context(|| format!("cannot run `{program}`: install the Debian package iproute2"))?;
    if let (Some(mut pipe), Some(text)) = (child.stdin.take(), input) {
        // It stops reading at its first error, which it then explains.
        let _ = pipe.write_all(text.as_bytes());
    }
    let output = child.wait_with_output()?;
    if !output.status.success() {
        bail!(
            "{program} {}: {}",
            arguments.join(" "),
            String::from_utf8_lossy(&output.stderr).lines().next().unwrap_or("failed")
        );
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Writes an Ethernet address in the usual way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Mac(pub(crate) [u8; 6]);

impl std::fmt::Display for Mac {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}
