//! The control socket: a Unix socket on which questions are asked, a line each.
//!
//! ```text
//!   accept ─► a thread a client ─► Request ─► control thread, workers, ports
//!                                  Line … ◄─┘
//! ```
//!
//! The socket belongs to who starts the router, and nobody else may connect (mode 0600).
//! A file that is there is a router at work, and an error, if somebody answers on it;
//! otherwise it was left by one that was killed, and is replaced. A client that does not
//! read is given up after [`PATIENCE`], and no more than [`MOST`] are served at once.

use std::fs::{self, Permissions};
use std::io::{self, BufRead, BufReader, BufWriter, ErrorKind, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use super::answer;
use super::api::{Item, Line, Request};
use super::asks::Asker;
use super::kernel::Following;
use crate::daemon::View;

/// How long a client may take to read or to ask.
const PATIENCE: Duration = Duration::from_secs(30);
/// How long the listener sleeps between two looks for clients and for the end.
const LOOK: Duration = Duration::from_millis(20);
/// Clients at once.
const MOST: usize = 32;
/// The longest question, in bytes.
const LONGEST: u64 = 4096;

/// Everybody who is asked.
#[derive(Clone, Debug)]
pub(crate) struct Sources {
    pub(crate) control: Asker<Following>,
    pub(crate) view: Arc<View>,
    /// The kernel's table that is meant where none is said.
    pub(crate) table: u32,
}

/// The listening socket; dropped, it is gone, and its file too.
#[derive(Debug)]
pub(crate) struct Server {
    path: PathBuf,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    /// Listens at `path`.
    ///
    /// # Errors
    ///
    /// The system's; `AddrInUse` if a router answers there.
    pub(crate) fn start(path: &Path, sources: Sources) -> io::Result<Self> {
        if UnixStream::connect(path).is_ok() {
            let what = "a router is at work and answers there";
            return Err(io::Error::new(ErrorKind::AddrInUse, what));
        }
        if fs::symlink_metadata(path).is_ok() {
            fs::remove_file(path)?;
        }
        let listener = UnixListener::bind(path)?;
        fs::set_permissions(path, Permissions::from_mode(0o600))?;
        listener.set_nonblocking(true)?;
        let stop = Arc::new(AtomicBool::new(false));
        let ending = Arc::clone(&stop);
        let thread = Builder::new()
            .name("control-socket".into())
            .spawn(move || listen(&listener, &sources, &ending))?;
        Ok(Self { path: path.into(), stop, thread: Some(thread) })
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
        let _ = fs::remove_file(&self.path);
    }
}

fn listen(listener: &UnixListener, sources: &Sources, stop: &AtomicBool) {
    let serving = Arc::new(AtomicUsize::new(0));
    while !stop.load(Ordering::Relaxed) {
        let Ok((client, _)) = listener.accept() else {
            std::thread::sleep(LOOK);
            continue;
        };
        if serving.fetch_add(1, Ordering::Relaxed) >= MOST {
            serving.fetch_sub(1, Ordering::Relaxed);
            continue;
        }
        let (sources, done) = (sources.clone(), Arc::clone(&serving));
        let client = Builder::new().name("control-client".into()).spawn(move || {
            // A client that is gone is no trouble of ours.
            let _ = serve(&client, &sources);
            done.fetch_sub(1, Ordering::Relaxed);
        });
        if client.is_err() {
            serving.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

fn serve(client: &UnixStream, sources: &Sources) -> io::Result<()> {
    client.set_nonblocking(false)?;
    client.set_read_timeout(Some(PATIENCE))?;
    client.set_write_timeout(Some(PATIENCE))?;
    let mut asking = BufReader::new(client);
    let mut out = BufWriter::with_capacity(64 << 10, client);
    loop {
        let mut question = String::new();
        if io::Read::take(&mut asking, LONGEST).read_line(&mut question)? == 0 {
            return Ok(());
        }
        let found = match serde_json::from_str(&question) {
            Ok(request) => find(&request, sources),
            Err(error) => Err(format!("not a question that is understood: {error}")),
        };
        match found {
            Ok(items) => {
                let count = items.len() as u64;
                for item in items {
                    write(&mut out, &Line::Item(Box::new(item)))?;
                }
                write(&mut out, &Line::End { items: count })?;
            }
            Err(error) => write(&mut out, &Line::Error(error))?,
        }
        out.flush()?;
    }
}

fn write(out: &mut impl Write, line: &Line) -> io::Result<()> {
    serde_json::to_writer(&mut *out, line)?;
    out.write_all(b"\n")
}

/// Finds out what was asked.
fn find(request: &Request, sources: &Sources) -> Result<Vec<Item>, String> {
    let Sources { control, view, table } = sources;
    let table = *table;
    let gone = || "the control thread does not answer".to_owned();
    match request.clone() {
        Request::Routes { within, family } => {
            let found =
                control.ask(move |it| answer::routes(&it.plane, table, within.as_deref(), family));
            let routes = found.ok_or_else(gone)??;
            Ok(routes.into_iter().map(Item::Route).collect())
        }
        Request::Route { address } => {
            let found = control.ask(move |it| answer::answer(&it.plane, table, address));
            Ok(vec![Item::Answer(found.ok_or_else(gone)??)])
        }
        Request::Neighbours => control.ask(|it| answer::neighbours(&it.plane)).ok_or_else(gone),
        Request::NextHops => control.ask(|it| answer::next_hops(&it.plane)).ok_or_else(gone),
        Request::Fib => control.ask(|it| answer::fibs(&it.plane)).ok_or_else(gone),
        Request::Feeds => control.ask(|it| answer::feeds(it)).ok_or_else(gone),
        Request::Interfaces => {
            let ports = control.ask(|it| it.plane.ports().clone()).ok_or_else(gone)?;
            answer::interfaces(&ports, view)
        }
        Request::Counters => Ok(vec![Item::Counters(answer::counters(&view.stats()))]),
        Request::Workers => Ok(answer::workers(&view.worker_stats())),
    }
}
