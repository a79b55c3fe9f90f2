//! The control socket: a Unix socket on which questions are asked, a line each.
//!
//! ```text
//!   accept ─► a thread a client ─► Request ─► control thread, workers, ports
//!                                  Line … ◄─┘
//! ```
//!
//! The socket belongs to the user that starts the router, and no other user may connect: the
//! file is made with its final mode, 0600, so that there is no moment in which one could.
//! A file that is there is a router at work, and an error, if somebody answers on it;
//! otherwise it was left by one that was killed, and is replaced. A client that does not
//! read is given up after [`PATIENCE`], and no more than [`MOST`] are served at once; a
//! client's slot is free again however its thread ends (`slots.rs`).

use std::fs;
use std::io::{self, BufRead, BufReader, BufWriter, ErrorKind, Write};
use std::iter;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::RecvTimeoutError;
use std::sync::{Arc, Mutex};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{self, AddressFamily, Backlog, SockFlag, SockType, UnixAddr};
use nix::sys::stat::{Mode, fchmod};

use super::api::{Item, Line, Message, Order, Request};
use super::audit::diff::{self, Ended};
use super::handle::ControlHandle;
use super::kernel_sync::KernelSync;
use super::query::QueryHandle;
use super::rights;
use super::slots::Slots;
use crate::daemon::{Daemon, Saver};
use crate::distribution::Command;

/// How long a client may take to read or to ask.
const PATIENCE: Duration = Duration::from_secs(30);
/// How long the listener sleeps between two looks for clients and for the end.
const LOOK: Duration = Duration::from_millis(20);
/// Clients at once.
const MOST: usize = 32;
/// Events of a stream that are written without a look at whether the client is there.
const TOGETHER: usize = 1024;
/// The longest question, in bytes.
const LONGEST: u64 = 4096;

/// Everybody who is asked.
#[derive(Clone, Debug)]
pub(crate) struct Sources {
    pub(crate) look: QueryHandle,
    /// Who does what is to be done.
    pub(crate) orders: ControlHandle<Daemon>,
    /// Held while the kernel is compared with.
    pub(crate) comparing: Arc<Mutex<()>>,
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
        create_folder(path)?;
        let listener = bind(path)?;
        let ending = Arc::new(AtomicBool::new(false));
        // Without a thread it is dropped, and the file with it.
        let mut server = Self { path: path.into(), stop: Arc::clone(&ending), thread: None };
        server.thread = Some(Builder::new().name("control-socket".into()).spawn(move || {
            // Those who connect are answered by others' rights.
            let _ = rights::keep(&[]);
            listen(&listener, &sources, &ending);
        })?);
        Ok(server)
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

/// Makes a listening socket that does not block, and whose file no other user may connect to, from
/// its creation on. No file stays behind an error.
///
/// The mode of a bound socket's file is that of the socket itself, less the umask (`unix_bind` of
/// the kernel), so the mode is set before the file exists.
fn bind(path: &Path) -> io::Result<UnixListener> {
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    let socket = socket::socket(AddressFamily::Unix, SockType::Stream, flags, None)?;
    fchmod(&socket, Mode::S_IRUSR | Mode::S_IWUSR)?;
    socket::bind(socket.as_raw_fd(), &UnixAddr::new(path)?)?;
    if let Err(error) = socket::listen(&socket, Backlog::new(128)?) {
        let _ = fs::remove_file(path);
        return Err(error.into());
    }
    Ok(socket.into())
}

/// Creates the folder of the socket if only that is missing: `/run/fingerpost` is empty after a
/// boot. Others may enter it; whether they may connect is the socket's own mode.
fn create_folder(path: &Path) -> io::Result<()> {
    let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) else {
        return Ok(());
    };
    match fs::DirBuilder::new().mode(0o755).create(folder) {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => Err(io::Error::new(
            error.kind(),
            format!("the folder {} cannot be created: {error}", folder.display()),
        )),
        _ => Ok(()),
    }
}

fn listen(listener: &UnixListener, sources: &Sources, stop: &AtomicBool) {
    let slots = Slots::new(MOST);
    while !stop.load(Ordering::Relaxed) {
        let Ok((client, _)) = listener.accept() else {
            std::thread::sleep(LOOK);
            continue;
        };
        let Some(slot) = slots.take() else { continue };
        let sources = sources.clone();
        // Where there is no thread for it, the closure is dropped, and the slot with it.
        let _ = Builder::new().name("control-client".into()).spawn(move || {
            let _slot = slot;
            // A client that is gone is no trouble of ours.
            let _ = serve(&client, &sources);
        });
    }
}

fn serve(client: &UnixStream, sources: &Sources) -> io::Result<()> {
    client.set_nonblocking(false)?;
    client.set_read_timeout(Some(PATIENCE))?;
    client.set_write_timeout(Some(PATIENCE))?;
    let mut asking = BufReader::new(client);
    let mut teller = ReplyWriter { out: BufWriter::with_capacity(64 << 10, client), items: 0 };
    loop {
        let mut question = String::new();
        if io::Read::take(&mut asking, LONGEST).read_line(&mut question)? == 0 {
            return Ok(());
        }
        teller.items = 0;
        match answer(&question, sources, client, &mut teller) {
            Ok(()) => teller.line(&Line::End { items: teller.items })?,
            Err(Ended::Words(error)) => teller.line(&Line::Error(error))?,
            Err(Ended::Client(error)) => return Err(error),
        }
        teller.out.flush()?;
    }
}

/// Writes an answer.
struct ReplyWriter<'a> {
    out: BufWriter<&'a UnixStream>,
    items: u64,
}

impl ReplyWriter<'_> {
    fn item(&mut self, item: Item) -> io::Result<()> {
        self.items += 1;
        self.line(&Line::Item(Box::new(item)))
    }

    fn line(&mut self, line: &Line) -> io::Result<()> {
        serde_json::to_writer(&mut self.out, line)?;
        self.out.write_all(b"\n")
    }
}

/// Answers a question, item by item.
fn answer(
    question: &str,
    sources: &Sources,
    client: &UnixStream,
    teller: &mut ReplyWriter<'_>,
) -> Result<(), Ended> {
    let not_understood =
        |error| Ended::Words(format!("not a question that is understood: {error}"));
    match serde_json::from_str(question).map_err(not_understood)? {
        Message::Show(Request::Diff { settle, sample, seed }) => {
            // One at a time: each has a copy of the kernel's routes.
            let Ok(_alone) = sources.comparing.try_lock() else {
                return Err(Ended::Words("another comparison is going on".to_owned()));
            };
            let settings = diff::Settings { settle: Duration::from_millis(settle), sample, seed };
            diff::run(&sources.look.control, settings, &mut |item| teller.item(item))
        }
        Message::Show(Request::Monitor) => monitor(sources, client, teller),
        message => {
            let items = match message {
                Message::Show(request) => sources.look.find(&request),
                Message::Do(order) => carry_out(order, sources),
            };
            let items = items.map_err(Ended::Words)?;
            Ok(items.into_iter().try_for_each(|item| teller.item(item))?)
        }
    }
}

/// Tells a client what happens until it is gone, or says something.
fn monitor(
    sources: &Sources,
    client: &UnixStream,
    teller: &mut ReplyWriter<'_>,
) -> Result<(), Ended> {
    let gone = || Ended::Words("the control thread does not answer".to_owned());
    let events = sources.look.control.call(KernelSync::watch).ok_or_else(gone)?;
    loop {
        match events.recv_timeout(LOOK) {
            Ok(first) => {
                for event in iter::once(first).chain(events.try_iter().take(TOGETHER)) {
                    teller.item(Item::Event((*event).clone()))?;
                }
                teller.out.flush()?;
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return Ok(()),
        }
        let mut heard = [PollFd::new(client.as_fd(), PollFlags::POLLIN)];
        if poll(&mut heard, PollTimeout::ZERO).is_ok_and(|ready| ready > 0) {
            return Ok(());
        }
    }
}

/// What the daemon has made of an order.
enum Done {
    /// It is done, in words.
    Words(String),
    /// It is this thread's to do: the daemon has no time for a disk.
    Save(Saver),
}

/// Has the daemon do something.
fn carry_out(order: Order, sources: &Sources) -> Result<Vec<Item>, String> {
    if let Order::Reload = &order
        && let Some(done) = sources.look.role.reload()
    {
        return done.map(|told| vec![Item::Done(told)]);
    }
    if let Order::Flush { sender } = order {
        return sources.look.role.gate()?.flush(sender).map(|report| vec![Item::Done(report)]);
    }
    let command = match &order {
        Order::Rollback => Some(Command::Rollback),
        Order::Retry => Some(Command::Retry),
        _ => None,
    };
    if let Some(command) = command {
        let done = sources.look.role.distribution()?.execute(command);
        return done.map(|told| vec![Item::Done(told)]);
    }
    let done = sources.orders.call(move |daemon| match order {
        // Done above.
        Order::Rollback | Order::Retry => Err("this router takes no bundles".to_owned()),
        Order::Flush { .. } => Err("this router has no flows".to_owned()),
        Order::Reload => match daemon.reload() {
            Ok(told) => Ok(Done::Words(told.to_string())),
            Err(error) => Err(error.to_string()),
        },
        Order::Save => daemon.saver().map(Done::Save).map_err(|error| error.to_string()),
        Order::Promote { interface } => daemon
            .observe(&interface, false)
            .map(|()| Done::Words(format!("{interface}: its packets are the router's"))),
        Order::Demote { interface } => daemon.observe(&interface, true).map(|()| {
            Done::Words(format!("{interface}: its packets are the kernel's, and counted"))
        }),
    });
    let gone = || "the router does not answer: it may be about to end".to_owned();
    let words = match done.ok_or_else(gone)?? {
        Done::Words(words) => words,
        Done::Save(saver) => match saver.save() {
            Ok((saved, _)) => saved.to_string(),
            Err(error) => return Err(error.to_string()),
        },
    };
    Ok(vec![Item::Done(words)])
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use super::*;

    #[test]
    fn control_socket_has_its_final_mode_from_the_first_moment() {
        let folder = std::env::temp_dir().join(format!("fp-socket-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let path = folder.join("control.sock");
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let watching = scope.spawn(|| {
                let mut modes = std::collections::BTreeSet::new();
                while !done.load(Ordering::Relaxed) {
                    if let Ok(about) = fs::symlink_metadata(&path) {
                        modes.insert(about.mode() & 0o7777);
                    }
                }
                modes
            });
            for _ in 0..2000 {
                let listener = bind(&path).unwrap();
                assert!(UnixStream::connect(&path).is_ok());
                drop(listener);
                fs::remove_file(&path).unwrap();
            }
            let _last = bind(&path).unwrap();
            std::thread::sleep(LOOK);
            done.store(true, Ordering::Relaxed);
            assert_eq!(watching.join().unwrap(), [0o600].into());
        });
        fs::remove_dir_all(&folder).unwrap();
    }
}
