//! A netlink socket that sends requests and receives answers and events, and never waits.
//!
//! netlink(7). A socket that has joined groups gets every change from [`Socket::open`] on. Messages
//! that it does not read in time are lost, and the next receive reports that once (`ENOBUFS`). The
//! receive buffer limits how much may wait; it is set beyond the system's limit where the process may
//! (`SO_RCVBUFFORCE`). Each waiting message takes a kilobyte or so of it, however short it is. After a
//! loss the kernel discards all later messages, without another report, until the socket has been
//! read empty: [`Socket::drain`] comes before the resynchronization.
//!
//! Only the kernel can send to this socket: others need `CAP_NET_ADMIN`. All messages are received
//! into one buffer that is reused. A message longer than the buffer is truncated: it counts as lost,
//! and the buffer grows. The kernel fills up to 32 KiB a receive where the buffer allows.
//!
//! `NETLINK_GET_STRICT_CHK` would let the kernel filter a dump by table or interface. This feed
//! requests whole dumps, so it is not set.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use nix::errno::Errno;
use nix::sys::socket::sockopt::{RcvBuf, RcvBufForce};
use nix::sys::socket::{
    AddressFamily, MsgFlags, NetlinkAddr, SockFlag, SockProtocol, SockType, bind, getsockopt, recv,
    sendto, setsockopt, socket,
};

use super::error::Error;
use super::uapi::{NLM_F_DUMP, NLM_F_REQUEST};

/// The result of one receive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Received {
    /// This many bytes of messages.
    Bytes(usize),
    /// Nothing was available.
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

    /// Opens a socket of another netlink family.
    pub(crate) fn of(protocol: SockProtocol, groups: u32) -> Result<Self, Error> {
        let failed = |operation| move |source| Error::System { operation, source };
        let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
        let fd = socket(AddressFamily::Netlink, SockType::Raw, flags, protocol)
            .map_err(failed("opening a netlink socket"))?;
        bind(fd.as_raw_fd(), &NetlinkAddr::new(0, groups))
            .map_err(failed("joining the kernel's groups"))?;
        Ok(Self { fd, sequence: 0 })
    }

    /// Sets the size of the receive buffer in bytes and returns the size that the kernel chose.
    pub(crate) fn set_buffer(&self, bytes: usize) -> Result<usize, Error> {
        let failed =
            |source| Error::System { operation: "sizing a netlink socket's buffer", source };
        if setsockopt(&self.fd, RcvBufForce, &bytes).is_err() {
            setsockopt(&self.fd, RcvBuf, &bytes).map_err(failed)?;
        }
        getsockopt(&self.fd, RcvBuf).map_err(failed)
    }

    /// Receives available messages.
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

    /// Discards all available messages, after a loss.
    pub(crate) fn drain(&self, buffer: &mut Vec<u8>) -> Result<(), Error> {
        while self.receive(buffer)? != Received::Nothing {}
        Ok(())
    }

    /// Returns the sequence number of the next request.
    pub(crate) fn number(&mut self) -> u32 {
        // Events of the kernel have the number 0.
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

    /// Requests a dump of a kind of objects; returns the sequence number.
    ///
    /// `header` is the length of the kind's own header, of which only the family is set.
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
