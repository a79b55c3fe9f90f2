//! Anonymous network namespaces for networks on one machine (`demo`, `lab`).
//!
//! A namespace here has no name and no mount: it belongs to the thread that unshared it, and is
//! accessible by the `/proc` entry of that thread. The kernel removes it and all its interfaces when
//! the process ends, also by `SIGKILL`. The thread also has a mount of `/sys` that shows the
//! interfaces of the namespace. Work inside is sent to the thread; a socket, an XDP program or a
//! process that it creates stays in the namespace, whichever thread uses it later.

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
    /// Creates an empty namespace with its loopback interface up.
    pub(crate) fn new(name: &'static str) -> Result<Self> {
        let (jobs, inbox) = mpsc::channel::<Job>();
        let (ready, answer) = mpsc::channel();
        let thread = thread::Builder::new().name(format!("ns-{name}")).spawn(move || {
            let entered = enter();
            let failed = entered.is_err();
            let sent = ready.send(entered).is_ok();
            if sent && !failed {
                inbox.into_iter().for_each(|job| job());
            }
        })?;
        let path = answer
            .recv()
            .map_err(|_| anyhow!("the thread of namespace {name} died"))?
            .with_context(|| format!("cannot create the network namespace {name}"))?;
        let namespace = Self { name, path, jobs: Some(jobs), thread: Some(thread) };
        namespace.ip("link set lo up")?;
        Ok(namespace)
    }

    /// Runs a job inside the namespace and returns its result.
    ///
    /// Threads and processes that `job` starts are inside the namespace, too.
    pub(crate) fn run<T: Send + 'static>(
        &self,
        job: impl FnOnce() -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let (done, answer) = mpsc::channel();
        let job: Job = Box::new(move || {
            // Fails only if the caller does not wait any more.
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

    /// Runs `tc` with arguments separated by spaces.
    pub(crate) fn tc(&self, arguments: &str) -> Result<String> {
        let arguments: Vec<String> = arguments.split_whitespace().map(String::from).collect();
        self.run(move || run("tc", &arguments, None))
    }

    /// Runs `ip -batch` on `lines`.
    pub(crate) fn ip_batch(&self, lines: String) -> Result<()> {
        self.run(move || run("ip", &["-batch".into(), "-".into()], Some(lines)).map(drop))
    }

    /// Creates a veth pair between two namespaces, each end with its name and MAC address, both down.
    pub(crate) fn connect(
        &self,
        (near, near_mac): (&str, [u8; 6]),
        other: &Self,
        (far, far_mac): (&str, [u8; 6]),
    ) -> Result<()> {
        // One queue per direction: native XDP needs as many receive queues as the peer has transmit
        // queues.
        self.ip(&format!(
            "link add {near} address {} numrxqueues 1 numtxqueues 1 type veth \
             peer name {far} address {} numrxqueues 1 numtxqueues 1 netns {}",
            Mac(near_mac),
            Mac(far_mac),
            other.path.display()
        ))?;
        Ok(())
    }

    /// Writes a file inside the namespace (`/proc/sys/net`, `/sys/class/net`).
    pub(crate) fn write(&self, path: impl Into<PathBuf>, text: &'static str) -> Result<()> {
        let path = path.into();
        self.run(move || {
            fs::write(&path, text)
                .with_context(|| format!("cannot set {} to {text}", path.display()))
        })
    }

    /// Returns the index of an interface.
    pub(crate) fn index(&self, interface: &str) -> Result<u32> {
        self.read_number(format!("/sys/class/net/{interface}/ifindex")).map(|index| index as u32)
    }

    /// Returns a kernel counter of an interface (`tx_dropped`, …).
    pub(crate) fn counter(&self, interface: &str, counter: &str) -> Result<u64> {
        self.read_number(format!("/sys/class/net/{interface}/statistics/{counter}"))
    }

    fn read_number(&self, path: String) -> Result<u64> {
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
            // The callers have received all results.
            let _ = thread.join();
        }
    }
}

/// Moves the calling thread into a new namespace with its own `/sys`.
fn enter() -> Result<PathBuf> {
    unshare(CloneFlags::CLONE_NEWNET | CloneFlags::CLONE_NEWNS)
        .context("unshare (CAP_SYS_ADMIN is needed)")?;
    // Without this, the mount below would propagate to the host.
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
        // The program stops reading at its first error, and reports it.
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

/// An Ethernet address, displayed as `02:00:00:00:00:01`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Mac(pub(crate) [u8; 6]);

impl std::fmt::Display for Mac {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}
