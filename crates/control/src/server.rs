//! The control socket: a Unix socket that serves requests, one JSON line each (`api.rs`).
//!
//! ```text
//!   accept ─► a thread a client ─► Message ─► Responder: a daemon (`requests.rs`), or another program
//!                                  Line … ◄──┘
//! ```
//!
//! The socket belongs to the user that starts the router, and no other user may connect: the
//! file is created with its final mode, 0600, so that it is never open to others.
//! If a process accepts connections on an existing socket file, a router runs there and the start
//! fails; otherwise a killed router left the file, and it is replaced. A client that does not read
//! is disconnected after `CLIENT_TIMEOUT`, and at most `MAX_CLIENTS` are served at once; a
//! client's slot is released however its thread ends (`slots.rs`).

use std::fs;
use std::io::{self, BufRead, BufReader, BufWriter, ErrorKind, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::Builder;
use std::time::Duration;

use nix::sys::socket::{self, AddressFamily, Backlog, SockFlag, SockType, UnixAddr};
use nix::sys::stat::{Mode, fchmod};
use threads::{Rights, Stop, Task};

use super::slots::Slots;
use api::{Item, Line, Message};

/// The time that a client has to send a request or to read a reply.
const CLIENT_TIMEOUT: Duration = Duration::from_secs(30);
/// The interval at which the listener checks for clients and for its end.
pub(crate) const POLL_INTERVAL: Duration = Duration::from_millis(20);
/// The most clients at once.
const MAX_CLIENTS: usize = 32;
/// The longest request, in bytes: one with a packet filter.
const MAX_REQUEST: u64 = 16 << 10;

/// Answers the requests of the clients, each on a thread of its own.
pub trait Responder: Clone + Send + 'static {
    /// Writes the items of the reply to a message. The server writes its last line.
    ///
    /// # Errors
    ///
    /// [`RequestError`].
    fn respond(
        &self,
        message: Message,
        client: &UnixStream,
        reply: &mut ReplyWriter<'_>,
    ) -> Result<(), RequestError>;
}

/// The reason that a request to the control socket was not completed.
#[derive(Debug)]
pub enum RequestError {
    /// The client disconnected.
    Client(io::Error),
    /// The request failed; the message is for the client.
    Failed(String),
}

impl From<io::Error> for RequestError {
    fn from(error: io::Error) -> Self {
        Self::Client(error)
    }
}

/// A listening socket that no server serves yet. Dropping it removes its file, unless another process listens, too.
#[derive(Debug)]
pub struct ServerSocket {
    path: PathBuf,
    listener: Option<UnixListener>,
    is_inherited: bool,
}

impl ServerSocket {
    /// Makes a listening socket at `path`.
    ///
    /// # Errors
    ///
    /// The system's error; `AddrInUse` if another process listens there.
    pub fn bind(path: &Path) -> io::Result<Self> {
        if UnixStream::connect(path).is_ok() {
            let reason = "another process serves this control socket";
            return Err(io::Error::new(ErrorKind::AddrInUse, reason));
        }
        if fs::symlink_metadata(path).is_ok() {
            fs::remove_file(path)?;
        }
        create_folder(path)?;
        let listener = Some(bind(path)?);
        Ok(Self { path: path.into(), listener, is_inherited: false })
    }

    /// Takes the socket at `path` of a process that still listens.
    pub fn inherited(path: &Path, listener: UnixListener) -> Self {
        Self { path: path.into(), listener: Some(listener), is_inherited: true }
    }
}

impl Drop for ServerSocket {
    fn drop(&mut self) {
        if self.listener.is_some() && !self.is_inherited {
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// The server at a listening socket. Dropping it closes the socket and removes its file.
#[derive(Debug)]
pub struct Server {
    path: PathBuf,
    listener: Arc<UnixListener>,
    clients: Slots,
    thread: Option<Task>,
}

impl Server {
    /// Serves the clients of a listening socket.
    ///
    /// # Errors
    ///
    /// The system's error.
    pub fn start(mut socket: ServerSocket, responder: impl Responder) -> io::Result<Self> {
        let listener = socket.listener.take();
        let listener = listener.unwrap_or_else(|| unreachable!("it is taken here alone"));
        let (listener, clients) = (Arc::new(listener), Slots::new(MAX_CLIENTS));
        let path = std::mem::take(&mut socket.path);
        // If no thread can be made, `server` is dropped and removes the file.
        let mut server = Self { path, listener, clients, thread: None };
        server.accept(responder)?;
        Ok(server)
    }

    /// Returns the path of the socket.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Accepts no more clients for now: they wait. Those that are being served continue.
    pub fn suspend(&mut self) {
        self.thread = None;
    }

    /// Accepts clients, again after [`suspend`](Self::suspend).
    ///
    /// # Errors
    ///
    /// The system's error.
    pub fn accept(&mut self, responder: impl Responder) -> io::Result<()> {
        let (listener, clients) = (Arc::clone(&self.listener), self.clients.clone());
        // The threads of the clients inherit the rights, none.
        let run = move |stop: &Stop| listen(&listener, &clients, &responder, stop);
        self.thread = Some(Task::start("control-socket", Rights::None, run)?);
        Ok(())
    }

    /// Returns whether a client is being served.
    pub fn has_clients(&self) -> bool {
        self.clients.any_taken()
    }
}

impl AsFd for Server {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.listener.as_fd()
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

fn listen(listener: &UnixListener, slots: &Slots, responder: &impl Responder, stop: &Stop) {
    while !stop.is_set() {
        let Ok((client, _)) = listener.accept() else {
            stop.wait(POLL_INTERVAL);
            continue;
        };
        let Some(slot) = slots.take() else { continue };
        let responder = responder.clone();
        // If no thread can be made, the closure is dropped and releases the slot.
        let _ = Builder::new().name("control-client".into()).spawn(move || {
            let _slot = slot;
            // A client that disconnects is not an error of the server.
            let _ = serve(&client, &responder);
        });
    }
}

fn serve(client: &UnixStream, responder: &impl Responder) -> io::Result<()> {
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
        let invalid = |error| RequestError::Failed(format!("invalid request: {error}"));
        let message = serde_json::from_str(&line).map_err(invalid);
        match message.and_then(|message| responder.respond(message, client, &mut reply)) {
            Ok(()) => reply.line(&Line::End { items: reply.items })?,
            Err(RequestError::Failed(error)) => reply.line(&Line::Error(error))?,
            Err(RequestError::Client(error)) => return Err(error),
        }
        reply.out.flush()?;
    }
}

/// Writes the lines of a reply and counts its items.
#[derive(Debug)]
pub struct ReplyWriter<'a> {
    out: BufWriter<&'a UnixStream>,
    items: u64,
}

impl ReplyWriter<'_> {
    /// Writes an item.
    ///
    /// # Errors
    ///
    /// Those of the client's socket.
    pub fn item(&mut self, item: Item) -> io::Result<()> {
        self.items += 1;
        self.line(&Line::Item(Box::new(item)))
    }

    /// Sends the client what has been written.
    pub(crate) fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }

    fn line(&mut self, line: &Line) -> io::Result<()> {
        serde_json::to_writer(&mut self.out, line)?;
        self.out.write_all(b"\n")
    }
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
