//! The predecessor, in the process that takes over from it.

use std::env;
use std::fs::File;
use std::io::{self, Read, Seek};
use std::net::TcpListener;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::time::Duration;

use nix::sys::socket::{self, SockaddrLike, SockaddrStorage};
use port::Host;
use port::af_xdp::{Interface, InterfaceHandover};

use super::channel::Channel;
use super::{FORMATS, FromPredecessor, FromSuccessor, Suspended, VARIABLE, Welcome};

/// The longest time until the predecessor answers: it stops its workers meanwhile.
const PATIENCE: Duration = Duration::from_secs(30);

/// The running process from which this one takes over.
#[derive(Debug)]
pub struct Predecessor {
    channel: Channel,
    interfaces: Vec<(InterfaceHandover, Option<OwnedFd>)>,
    host: Option<Host>,
    control: Option<UnixListener>,
    metrics: Option<TcpListener>,
    /// The sockets of the role.
    sockets: Vec<OwnedFd>,
}

impl Predecessor {
    /// Returns the process that has started this one, with the arguments of its own, in order to be succeeded by
    /// it; `None` if this process was started in any other way. `role` is `router`, `gate` or `grantor`.
    ///
    /// # Errors
    ///
    /// A message for the operator.
    pub fn from_environment(role: &str) -> Result<Option<Self>, String> {
        if env::var_os(VARIABLE).is_none() {
            return Ok(None);
        }
        let unusable = |error| {
            format!("{VARIABLE} is set, but the standard input is no predecessor's socket: {error}")
        };
        let stdin = io::stdin().as_fd().try_clone_to_owned();
        let stdin = stdin.and_then(|stdin| {
            let family =
                socket::getpeername::<SockaddrStorage>(std::os::fd::AsRawFd::as_raw_fd(&stdin))?
                    .family();
            match family {
                Some(socket::AddressFamily::Unix) => Ok(stdin),
                _ => Err(io::ErrorKind::InvalidInput.into()),
            }
        });
        let mut channel = Channel::new(UnixStream::from(stdin.map_err(unusable)?));
        let hello = FromSuccessor::Hello {
            formats: FORMATS.to_vec(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            role: role.to_owned(),
            pid: std::process::id(),
        };
        channel.send(&hello, &[]).map_err(unusable)?;
        let (answer, descriptors) = channel.receive(PATIENCE).map_err(unusable)?;
        match answer {
            FromPredecessor::Welcome(welcome) => Self::new(channel, welcome, descriptors).map(Some),
            FromPredecessor::Refused { reason } => Err(reason),
            other => Err(unexpected(&other)),
        }
    }

    fn new(channel: Channel, welcome: Welcome, descriptors: Vec<OwnedFd>) -> Result<Self, String> {
        let Welcome { format: _, interfaces, host, control, metrics, role_sockets } = welcome;
        let mut descriptors = descriptors.into_iter();
        let mut next = || descriptors.next().ok_or("the predecessor sent too few descriptors");
        let mut links = Vec::new();
        for interface in interfaces {
            links.push((interface, Some(next()?)));
        }
        let host = host.map(|host| Ok::<_, &str>(Host::succeed(host, next()?))).transpose()?;
        let control = control.map(|_| Ok::<_, &str>(UnixListener::from(next()?))).transpose()?;
        let metrics = metrics.map(|_| Ok::<_, &str>(TcpListener::from(next()?))).transpose()?;
        let sockets = (0..role_sockets).map(|_| next()).collect::<Result<_, _>>()?;
        Ok(Self { channel, interfaces: links, host, control, metrics, sockets })
    }

    /// Takes the sockets of the role.
    pub fn take_sockets(&mut self) -> Vec<OwnedFd> {
        std::mem::take(&mut self.sockets)
    }

    /// Takes the TAP device.
    pub(crate) fn take_host(&mut self) -> Option<Host> {
        self.host.take()
    }

    /// Takes the listener of the control socket, if that is at `path`.
    pub(crate) fn take_control(&mut self, path: &Path) -> Option<UnixListener> {
        self.control.take_if(|listener| {
            listener.local_addr().is_ok_and(|address| address.as_pathname() == Some(path))
        })
    }

    /// Takes the listener of the metrics, if that is at `address`.
    pub(crate) fn take_metrics(&mut self, address: std::net::SocketAddr) -> Option<TcpListener> {
        self.metrics.take_if(|listener| listener.local_addr().is_ok_and(|local| local == address))
    }

    /// Takes the description of the interface of this index, and its link.
    pub(crate) fn take_interface(&mut self, index: u32) -> Option<(InterfaceHandover, OwnedFd)> {
        let mut interfaces = self.interfaces.iter_mut();
        let (handover, link) = interfaces.find(|(handover, _)| handover.index == index)?;
        Some((handover.clone(), link.take()?))
    }

    /// Returns whether no interface is left that was not taken.
    pub(crate) fn has_no_interface_left(&self) -> bool {
        self.interfaces.iter().all(|(_, link)| link.is_none())
    }

    /// Lets the predecessor stop its workers, and returns their counters and the states of their hooks.
    ///
    /// # Errors
    ///
    /// A message for the operator.
    pub(crate) fn suspend(&mut self) -> Result<(Suspended, Vec<Vec<u8>>), String> {
        let (answer, descriptors) = self.ask(&FromSuccessor::Ready)?;
        let FromPredecessor::Suspended(suspended) = answer else {
            return Err(unexpected(&answer));
        };
        let read = |file| read_state(file).map_err(|error| format!("the state of a hook: {error}"));
        let hooks = descriptors.into_iter().map(read).collect::<Result<_, _>>()?;
        Ok((suspended, hooks))
    }

    /// Lets the predecessor exit, and owns the interfaces, which are those taken over, in any order. They
    /// continue the counts of the predecessor, except if that has ended before it could report them.
    pub(crate) fn release(mut self, taken_over: &[Interface]) {
        let counts = match self.ask(&FromSuccessor::Running) {
            Ok((FromPredecessor::Counts(counts), _)) => counts,
            Ok((other, _)) => {
                log::warn!("{}", unexpected(&other));
                Vec::new()
            }
            Err(error) => {
                log::warn!("the counters of the interfaces start again: {error}");
                Vec::new()
            }
        };
        for ((handover, _), counts) in self.interfaces.iter().zip(counts) {
            let of = taken_over.iter().find(|interface| interface.index() == handover.index);
            if let Some(interface) = of {
                interface.continue_counts(counts);
            }
        }
        taken_over.iter().for_each(Interface::own);
    }

    /// Reports to the predecessor why this process does not take over.
    pub(crate) fn fail(mut self, reason: &str) {
        let _ = self.channel.send(&FromSuccessor::Failed { reason: reason.to_owned() }, &[]);
    }

    fn ask(&mut self, message: &FromSuccessor) -> Result<(FromPredecessor, Vec<OwnedFd>), String> {
        let answer = self.channel.send(message, &[]).and_then(|()| self.channel.receive(PATIENCE));
        answer.map_err(|error| format!("the predecessor: {error}"))
    }
}

/// Reads a file that the predecessor has [written](super::state_file).
fn read_state(file: OwnedFd) -> io::Result<Vec<u8>> {
    let (mut file, mut bytes) = (File::from(file), Vec::new());
    file.rewind()?;
    file.read_to_end(&mut bytes)?;
    Ok(bytes)
}

fn unexpected(message: &FromPredecessor) -> String {
    format!("unexpected message of the predecessor: {message:?}")
}
