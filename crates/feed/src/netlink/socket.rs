//! A netlink socket: it asks, listens, and never waits.
//!
//! netlink(7). A socket that has joined groups gets every change from the moment of
//! [`Socket::open`] on. What it is too slow to take is lost, and the next receive says
//! so once (`ENOBUFS`); how much may wait is the receive buffer, which is set beyond
//! the system's limit where the process may (`SO_RCVBUFFORCE`). Each message that waits
//! takes a kilobyte or so of it, however short it is. After a loss the kernel throws away
//! all that is to come, and says nothing more of it, until the socket has been read
//! empty: [`Socket::drain`] comes before whatever is to make up for the loss.
//!
//! Only the kernel can send here: others need `CAP_NET_ADMIN` to. Everything received
//! goes to one buffer that is used again. A message longer than the buffer is cut off:
//! it counts as lost, and the buffer grows. The kernel fills up to 32 KiB a receive
//! where the buffer allows.
//!
//! `NETLINK_GET_STRICT_CHK` would have the kernel filter a dump by table or interface.
//! Whole dumps are asked for here, so it is not set.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use nix::errno::Errno;
use nix::sys::socket::sockopt::{RcvBuf, RcvBufForce};
use nix::sys::socket::{
    AddressFamily, MsgFlags, NetlinkAddr, SockFlag, SockProtocol, SockType, bind, getsockopt, recv,
    sendto, setsockopt, socket,
};

use super::error::Error;
use super::uapi::{NLM_F_DUMP, NLM_F_REQUEST};

/// What one receive gave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Received {
    /// So many bytes of messages.
    Bytes(usize),
    /// Nothing is there.
    Nothing,
    /// Messages were lost.
    Lost,
}

/// A netlink socket, of the routing family by default.
#[derive(Debug)]
pub(crate) struct Socket {
    fd: OwnedFd,
    sequence: u32,
}

impl Socket {
    /// Opens a socket in the network namespace of the calling thread and joins `groups`.
    pub(crate) fn open(groups: u32) -> Result<Self, Error> {
        Self::of(SockProtocol::NetlinkRoute, groups)
    }

    /// The same for another of netlink's families.
    pub(crate) fn of(protocol: SockProtocol, groups: u32) -> Result<Self, Error> {
        let failed = |operation| move |source| Error::System { operation, source };
        let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
        let fd = socket(AddressFamily::Netlink, SockType::Raw, flags, protocol)
            .map_err(failed("opening a netlink socket"))?;
        bind(fd.as_raw_fd(), &NetlinkAddr::new(0, groups))
            .map_err(failed("joining the kernel's groups"))?;
        Ok(Self { fd, sequence: 0 })
    }

    /// Sets how many bytes of messages may wait, and returns what the system made of it.
    pub(crate) fn set_buffer(&self, bytes: usize) -> Result<usize, Error> {
        let failed =
            |source| Error::System { operation: "sizing a netlink socket's buffer", source };
        if setsockopt(&self.fd, RcvBufForce, &bytes).is_err() {
            setsockopt(&self.fd, RcvBuf, &bytes).map_err(failed)?;
        }
        getsockopt(&self.fd, RcvBuf).map_err(failed)
    }

    /// Receives what is there.
    pub(crate) fn receive(&self, buffer: &mut Vec<u8>) -> Result<Received, Error> {
        loop {
            let flags = MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_TRUNC;
            return match recv(self.fd.as_raw_fd(), buffer, flags) {
                Ok(bytes) if bytes > buffer.len() => {
                    buffer.resize(bytes.next_power_of_two(), 0);
                    Ok(Received::Lost)
                }
                Ok(0) => Ok(Received::Nothing),
                Ok(bytes) => Ok(Received::Bytes(bytes)),
                Err(Errno::EAGAIN) => Ok(Received::Nothing),
                Err(Errno::EINTR) => continue,
                Err(Errno::ENOBUFS) => Ok(Received::Lost),
                Err(source) => {
                    Err(Error::System { operation: "receiving from a netlink socket", source })
                }
            };
        }
    }

    /// Throws away what is there, after a loss.
    pub(crate) fn drain(&self, buffer: &mut Vec<u8>) -> Result<(), Error> {
        while self.receive(buffer)? != Received::Nothing {}
        Ok(())
    }

    /// Makes the number of the next request.
    pub(crate) fn number(&mut self) -> u32 {
        // 0 is what the kernel says by itself.
        self.sequence = self.sequence.wrapping_add(1).max(1);
        self.sequence
    }

    /// Sends a request.
    pub(crate) fn send(&self, request: &[u8]) -> Result<(), Error> {
        let failed = |source| Error::System { operation: "sending to the kernel", source };
        let flags = MsgFlags::MSG_DONTWAIT;
        loop {
            match sendto(self.fd.as_raw_fd(), request, &NetlinkAddr::new(0, 0), flags) {
                Err(Errno::EINTR) => {}
                other => return other.map(drop).map_err(failed),
            }
        }
    }

    /// Asks for everything of a kind; returns the number of the request.
    ///
    /// `header` is the length of the kind's own header, of which only the family counts.
    pub(crate) fn dump(&mut self, kind: u16, family: u8, header: usize) -> Result<u32, Error> {
        let number = self.number();
        let length = 16 + header;
        let mut request = [0; 32];
        request[..4].copy_from_slice(&(length as u32).to_ne_bytes());
        request[4..6].copy_from_slice(&kind.to_ne_bytes());
        request[6..8].copy_from_slice(&(NLM_F_REQUEST | NLM_F_DUMP).to_ne_bytes());
        request[8..12].copy_from_slice(&number.to_ne_bytes());
        request[16] = family;
        self.send(&request[..length])?;
        Ok(number)
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}
