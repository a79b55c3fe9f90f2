//! The control socket: a Unix socket that serves requests, one JSON line each (`api.rs`).
//!
//! ```text
//!   accept ─► a thread a client ─► Message ─► control thread, daemon, workers, ports
//!                                  Line … ◄──┘
//! ```
//!
//! The socket belongs to the user that starts the router, and no other user may connect: the
//! file is created with its final mode, 0600, so that it is never open to others.
//! If a process accepts connections on an existing socket file, a router runs there and the start
//! fails; otherwise a killed router left the file, and it is replaced. A client that does not read
//! is disconnected after [`CLIENT_TIMEOUT`], and at most [`MAX_CLIENTS`] are served at once; a
//! client's slot is released however its thread ends (`slots.rs`).

use std::fs;
use std::io::{self, BufRead, BufReader, BufWriter, ErrorKind, Write};
use std::iter;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::mpsc::RecvTimeoutError;
use std::sync::{Arc, Mutex};
use std::thread::Builder;
use std::time::Duration;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{self, AddressFamily, Backlog, SockFlag, SockType, UnixAddr};
use nix::sys::stat::{Mode, fchmod};
use threads::{Rights, Stop, Task};

use super::audit::diff::{self, DiffOptions, RequestError};
use super::handle::ControlHandle;
use super::kernel_sync::KernelSync;
use super::query::QueryHandle;
use super::slots::Slots;
use crate::role::unavailable;
use api::{Item, Line, Message, Order, Request};

/// The time that a client has to send a request or to read a reply.
const CLIENT_TIMEOUT: Duration = Duration::from_secs(30);
/// The interval at which the listener checks for clients and for its end.
const POLL_INTERVAL: Duration = Duration::from_millis(20);
/// The most clients at once.
const MAX_CLIENTS: usize = 32;
/// Events of a stream that are written before the server checks that the client is connected.
const EVENT_BURST: usize = 1024;
/// The longest request, in bytes.
const MAX_REQUEST: u64 = 4096;

/// The orders that the daemon executes, on the thread that started it.
pub(crate) trait Orders: Send + 'static {
    /// Reads the configuration again and applies it; returns a report.
    fn reload(&mut self) -> Result<String, String>;

    /// Returns a function that saves the image on the client's thread, so that the daemon does not
    /// wait for a disk.
    fn saver(&self) -> Result<SaveImage, String>;

    /// With `only`, leaves an interface's packets to the kernel and counts them; otherwise receives
    /// them again.
    fn observe(&mut self, interface: &str, only: bool) -> Result<(), String>;
}

/// Saves the image and returns a report.
pub(crate) type SaveImage = Box<dyn FnOnce() -> Result<String, String> + Send>;

/// The handles through which the server answers requests.
#[derive(Debug)]
pub(crate) struct ServerHandles<D> {
    pub(crate) query: QueryHandle,
    /// The daemon, which executes orders.
    pub(crate) orders: ControlHandle<D>,
    /// Locked during a comparison with the kernel: one at a time.
    pub(crate) comparing: Arc<Mutex<()>>,
}

impl<D> Clone for ServerHandles<D> {
    fn clone(&self) -> Self {
        let Self { query, orders, comparing } = self;
        Self { query: query.clone(), orders: orders.clone(), comparing: Arc::clone(comparing) }
    }
}

/// The listening socket. Dropping it closes it and removes its file.
#[derive(Debug)]
pub(crate) struct Server {
    path: PathBuf,
    thread: Option<Task>,
}

impl Server {
    /// Listens at `path`.
    ///
    /// # Errors
    ///
    /// The system's error; `AddrInUse` if a router runs there.
    pub(crate) fn start<D: Orders>(path: &Path, handles: ServerHandles<D>) -> io::Result<Self> {
        if UnixStream::connect(path).is_ok() {
            let reason = "another router serves this control socket";
            return Err(io::Error::new(ErrorKind::AddrInUse, reason));
        }
        if fs::symlink_metadata(path).is_ok() {
            fs::remove_file(path)?;
        }
        create_folder(path)?;
        let listener = bind(path)?;
        // If no thread can be made, `server` is dropped and removes the file.
        let mut server = Self { path: path.into(), thread: None };
        // The threads of the clients inherit the rights, none.
        let run = move |stop: &Stop| listen(&listener, &handles, stop);
        server.thread = Some(Task::start("control-socket", Rights::None, run)?);
        Ok(server)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.thread = None;
        let _ = fs::remove_file(&self.path);
    }
}

/// Makes a nonblocking listening socket to which no other user can connect from its creation on.
/// On an error no file is left.
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

/// Creates the folder of the socket if only that is missing: `/run` is empty after a boot. Other
/// users may enter the folder; the socket's own mode keeps them from connecting.
fn create_folder(path: &Path) -> io::Result<()> {
    let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) else {
        return Ok(());
    };
    match fs::DirBuilder::new().mode(0o755).create(folder) {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => Err(io::Error::new(
            error.kind(),
            format!("cannot create the folder {}: {error}", folder.display()),
        )),
        _ => Ok(()),
    }
}

fn listen<D: Orders>(listener: &UnixListener, handles: &ServerHandles<D>, stop: &Stop) {
    let slots = Slots::new(MAX_CLIENTS);
    while !stop.is_set() {
        let Ok((client, _)) = listener.accept() else {
            stop.wait(POLL_INTERVAL);
            continue;
        };
        let Some(slot) = slots.take() else { continue };
        let handles = handles.clone();
        // If no thread can be made, the closure is dropped and releases the slot.
        let _ = Builder::new().name("control-client".into()).spawn(move || {
            let _slot = slot;
            // A client that disconnects is not an error of the server.
            let _ = serve(&client, &handles);
        });
    }
}

fn serve<D: Orders>(client: &UnixStream, handles: &ServerHandles<D>) -> io::Result<()> {
    client.set_nonblocking(false)?;
    client.set_read_timeout(Some(CLIENT_TIMEOUT))?;
    client.set_write_timeout(Some(CLIENT_TIMEOUT))?;
    let mut requests = BufReader::new(client);
    let mut reply = ReplyWriter { out: BufWriter::with_capacity(64 << 10, client), items: 0 };
    loop {
        let mut line = String::new();
        if io::Read::take(&mut requests, MAX_REQUEST).read_line(&mut line)? == 0 {
            return Ok(());
        }
        reply.items = 0;
        match respond(&line, handles, client, &mut reply) {
            Ok(()) => reply.line(&Line::End { items: reply.items })?,
            Err(RequestError::Failed(error)) => reply.line(&Line::Error(error))?,
            Err(RequestError::Client(error)) => return Err(error),
        }
        reply.out.flush()?;
    }
}

/// Writes the lines of a reply and counts its items.
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

/// Answers a request, item by item.
fn respond<D: Orders>(
    line: &str,
    handles: &ServerHandles<D>,
    client: &UnixStream,
    reply: &mut ReplyWriter<'_>,
) -> Result<(), RequestError> {
    let invalid = |error| RequestError::Failed(format!("invalid request: {error}"));
    match serde_json::from_str(line).map_err(invalid)? {
        Message::Show(request @ Request::Diff { settle, sample, seed }) => {
            if let Some(Err(error)) = handles.query.role.show(&request) {
                return Err(RequestError::Failed(error));
            }
            // One at a time, because each holds a copy of the kernel's routes.
            let Ok(_guard) = handles.comparing.try_lock() else {
                let reason = "another comparison is running: try again when it has ended";
                return Err(RequestError::Failed(reason.to_owned()));
            };
            let options = DiffOptions { settle: Duration::from_millis(settle), sample, seed };
            diff::run(&handles.query.control, options, &mut |item| reply.item(item))
        }
        Message::Show(Request::Monitor) => monitor(handles, client, reply),
        message => {
            let items = match message {
                Message::Show(request) => handles.query.query(&request),
                Message::Do(order) => execute(order, handles),
            };
            let items = items.map_err(RequestError::Failed)?;
            Ok(items.into_iter().try_for_each(|item| reply.item(item))?)
        }
    }
}

/// Streams events to a client until it disconnects or sends anything.
fn monitor<D>(
    handles: &ServerHandles<D>,
    client: &UnixStream,
    reply: &mut ReplyWriter<'_>,
) -> Result<(), RequestError> {
    let no_answer = || RequestError::Failed("the control thread does not answer".to_owned());
    let events = handles.query.control.call(KernelSync::subscribe).ok_or_else(no_answer)?;
    loop {
        match events.recv_timeout(POLL_INTERVAL) {
            Ok(first) => {
                for event in iter::once(first).chain(events.try_iter().take(EVENT_BURST)) {
                    reply.item(Item::Event((*event).clone()))?;
                }
                reply.out.flush()?;
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return Ok(()),
        }
        let mut readable = [PollFd::new(client.as_fd(), PollFlags::POLLIN)];
        if poll(&mut readable, PollTimeout::ZERO).is_ok_and(|ready| ready > 0) {
            return Ok(());
        }
    }
}

/// The result of an order at the daemon.
enum OrderResult {
    /// The order is done; a report for the client.
    Done(String),
    /// The client's thread saves the image, so that the daemon does not wait for a disk.
    Save(SaveImage),
}

/// Has the daemon or the role execute an order.
fn execute<D: Orders>(order: Order, handles: &ServerHandles<D>) -> Result<Vec<Item>, String> {
    let role = &handles.query.role;
    if let Some(done) = role.execute(&order) {
        return done.map(|report| vec![Item::Done(report)]);
    }
    let role = role.name();
    let result = handles.orders.call(move |daemon| match order {
        Order::Rollback | Order::Retry => {
            Err(format!("this {role} has no [distribution] in its configuration"))
        }
        Order::Flush { .. } => Err(unavailable(role, "a gate")),
        Order::Reload => daemon.reload().map(OrderResult::Done),
        Order::Save => daemon.saver().map(OrderResult::Save),
        Order::Promote { interface } => daemon
            .observe(&interface, false)
            .map(|()| OrderResult::Done(format!("{interface}: its packets are the router's"))),
        Order::Demote { interface } => daemon.observe(&interface, true).map(|()| {
            OrderResult::Done(format!("{interface}: its packets are the kernel's, and counted"))
        }),
    });
    let no_answer = || "the router does not answer: it may be about to end".to_owned();
    let report = match result.ok_or_else(no_answer)?? {
        OrderResult::Done(report) => report,
        OrderResult::Save(save) => save()?,
    };
    Ok(vec![Item::Done(report)])
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    #[test]
    fn control_socket_file_has_its_final_mode_at_creation() {
        let folder = std::env::temp_dir().join(format!("fp-socket-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let path = folder.join("control.sock");
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let observer = scope.spawn(|| {
                let mut modes = std::collections::BTreeSet::new();
                while !done.load(Ordering::Relaxed) {
                    if let Ok(metadata) = fs::symlink_metadata(&path) {
                        modes.insert(metadata.mode() & 0o7777);
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
            std::thread::sleep(POLL_INTERVAL);
            done.store(true, Ordering::Relaxed);
            assert_eq!(observer.join().unwrap(), [0o600].into());
        });
        fs::remove_dir_all(&folder).unwrap();
    }
}
