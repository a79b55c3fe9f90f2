//! The owner of a TCP connection's other end, where that end is a socket of this host.
//!
//! ```text
//!   SOCK_DIAG_BY_FAMILY, the two addresses ─► inet_diag_msg: state, uid, inode
//! ```
//!
//! sock_diag(7). A TCP connection over loopback has two sockets in the same network
//! namespace; the kernel finds one by its two addresses and returns the user that made it. No
//! privilege is needed. The answer counts only for an established connection: a socket that
//! was closed waits without a file, and the kernel reports user 0 for it (Linux 6.18,
//! `inet_twsk_diag_fill`, `sock_i_uid`). A process that connects, sends and closes at once
//! would otherwise pass for root.

use core::net::{IpAddr, SocketAddr};

use nix::errno::Errno;
use nix::sys::socket::SockProtocol;

use super::error::Error;
use super::lookup::{Lookup, LookupResult};
use super::message::Messages;
use super::socket::{Received, Socket};
use super::uapi::{
    AF_INET, AF_INET6, NLM_F_REQUEST, NLMSG_ERROR, SOCK_DIAG_BY_FAMILY, TCP_ESTABLISHED,
};
use crate::netlink::follower::Target;

/// `IPPROTO_TCP`.
const TCP: u8 = 6;
/// The length of `struct inet_diag_msg`, and where its fields are.
const ANSWER: usize = 72;
const STATE: usize = 1;
const UID: usize = 64;
const INODE: usize = 68;

/// The owner of a peer's socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SocketOwner {
    /// Its address belongs to another host.
    Remote,
    /// A process of this user, on this host.
    User(u32),
    /// Its address is this host's, and no established connection uses it: it was closed, or
    /// is bound to a device.
    Unknown,
}

/// A connection for queries of the owners of sockets.
#[derive(Debug)]
pub struct SocketOwners {
    sockets: Socket,
    routes: Lookup,
    buffer: Vec<u8>,
}

impl SocketOwners {
    /// Opens two sockets in the network namespace of the calling thread.
    ///
    /// # Errors
    ///
    /// [`Error`].
    pub fn open() -> Result<Self, Error> {
        let sockets = Socket::of(SockProtocol::NetlinkSockDiag, 0)?;
        Ok(Self { sockets, routes: Lookup::open()?, buffer: vec![0; 8 << 10] })
    }

    /// Returns the owner of the socket that is `peer` to a TCP connection's end `own`.
    ///
    /// # Errors
    /// [`Error`]: the system's, or an invalid answer.
    pub fn of(&mut self, own: SocketAddr, peer: SocketAddr) -> Result<SocketOwner, Error> {
        // An address of IPv4 by a socket of IPv6 is one of IPv4 to the kernel's tables.
        let scope = match peer {
            SocketAddr::V6(peer) => peer.scope_id(),
            SocketAddr::V4(_) => 0,
        };
        let own = SocketAddr::new(own.ip().to_canonical(), own.port());
        let peer = SocketAddr::new(peer.ip().to_canonical(), peer.port());
        match self.user(own, peer, scope)? {
            Some(user) => Ok(SocketOwner::User(user)),
            None if self.is_own(peer.ip())? => Ok(SocketOwner::Unknown),
            None => Ok(SocketOwner::Remote),
        }
    }

    /// Returns whether an address is this host's.
    fn is_own(&mut self, address: IpAddr) -> Result<bool, Error> {
        if address.is_loopback() {
            return Ok(true);
        }
        let found = self.routes.get(address)?;
        Ok(matches!(found, LookupResult::Route { info, .. } if *info.target == Target::Local))
    }

    /// Returns the user of the established socket from `peer` to `own`, if there is one.
    fn user(
        &mut self,
        own: SocketAddr,
        peer: SocketAddr,
        scope: u32,
    ) -> Result<Option<u32>, Error> {
        let request = "the owner of a connection";
        let number = self.sockets.number();
        self.sockets.send(&encode_request(own, peer, scope, number))?;
        while let Received::Bytes(bytes) = self.sockets.receive(&mut self.buffer)? {
            for message in Messages::new(&self.buffer[..bytes]).flatten() {
                match message.kind {
                    _ if message.sequence != number => {}
                    SOCK_DIAG_BY_FAMILY => {
                        let Some(answer) = message.payload.first_chunk::<ANSWER>() else {
                            return Err(Error::Refused { request, source: Errno::EBADMSG });
                        };
                        let word = |at: usize| {
                            u32::from_ne_bytes(core::array::from_fn(|i| answer[at + i]))
                        };
                        let there = answer[STATE] == TCP_ESTABLISHED && word(INODE) != 0;
                        return Ok(there.then(|| word(UID)));
                    }
                    NLMSG_ERROR => {
                        return match message.errno() {
                            Some(Errno::ENOENT) => Ok(None),
                            Some(source) => Err(Error::Refused { request, source }),
                            None => continue,
                        };
                    }
                    _ => {}
                }
            }
        }
        Err(Error::Refused { request, source: Errno::ENODATA })
    }
}

/// Makes a request for one socket, `struct inet_diag_req_v2`.
fn encode_request(own: SocketAddr, peer: SocketAddr, scope: u32, sequence: u32) -> Vec<u8> {
    const LENGTH: u32 = 16 + 56;
    let octets = |address: IpAddr| {
        let mut sixteen = [0; 16];
        match address {
            IpAddr::V4(v4) => sixteen[..4].copy_from_slice(&v4.octets()),
            IpAddr::V6(v6) => sixteen.copy_from_slice(&v6.octets()),
        }
        sixteen
    };
    let family = if peer.is_ipv4() { AF_INET } else { AF_INET6 };
    let mut bytes = Vec::with_capacity(LENGTH as usize);
    bytes.extend(LENGTH.to_ne_bytes());
    bytes.extend(SOCK_DIAG_BY_FAMILY.to_ne_bytes());
    bytes.extend(NLM_F_REQUEST.to_ne_bytes());
    bytes.extend(sequence.to_ne_bytes());
    bytes.extend([0; 4]);
    bytes.extend([family, TCP, 0, 0]);
    bytes.extend(u32::MAX.to_ne_bytes()); // In any state.
    // The socket that is looked for is the peer's: its own port and address come first.
    bytes.extend(peer.port().to_be_bytes());
    bytes.extend(own.port().to_be_bytes());
    bytes.extend(octets(peer.ip()));
    bytes.extend(octets(own.ip()));
    bytes.extend(scope.to_ne_bytes());
    bytes.extend([0xff; 8]); // INET_DIAG_NOCOOKIE
    bytes
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};
    use std::time::{Duration, Instant};

    use nix::unistd::Uid;

    use super::{SocketOwner, SocketOwners};

    #[test]
    fn loopback_connection_owner_is_its_user_until_closed() {
        for at in ["127.0.0.1:0", "[::1]:0", "[::]:0"] {
            let Ok(listener) = TcpListener::bind(at) else { continue };
            let port = listener.local_addr().expect("an address").port();
            let to = if at.starts_with("[::1]") { "::1" } else { "127.0.0.1" };
            let peer = TcpStream::connect((to, port)).expect("a listener is there");
            let (own, address) = listener.accept().expect("a connection waits");
            let local = own.local_addr().expect("an address");
            let mut owners = SocketOwners::open().expect("netlink sockets open");
            let user = SocketOwner::User(Uid::effective().as_raw());
            assert_eq!(owners.of(local, address), Ok(user), "{at}");
            drop(peer);
            let begun = Instant::now();
            while owners.of(local, address) == Ok(user) {
                assert!(begun.elapsed() < Duration::from_secs(20), "{at}");
            }
            assert_eq!(owners.of(local, address), Ok(SocketOwner::Unknown), "{at}");
        }
    }

    #[test]
    fn address_of_another_host_is_remote() {
        let mut owners = SocketOwners::open().expect("netlink sockets open");
        let own = "192.0.2.1:2620".parse().expect("an address");
        let peer = "198.51.100.7:4000".parse().expect("an address");
        assert_eq!(owners.of(own, peer), Ok(SocketOwner::Remote));
    }
}
