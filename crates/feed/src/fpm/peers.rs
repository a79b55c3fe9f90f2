//! The peers that may connect (FRR, or a router with flow specifications), and the reasons for which others
//! are refused.
//!
//! A peer on this host is allowed by its user, which the kernel reports
//! ([`SocketOwners`](crate::netlink::SocketOwners)): an address of this host does not identify the user of the
//! socket. A peer on another host is allowed by its address, and by default none is. Both are
//! checked once, when the connection is accepted.

use core::fmt;
use core::net::{IpAddr, SocketAddr};

use crate::netlink::SocketOwner;
use crate::prefix::AnyPrefix;

/// The peers that may connect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peers {
    /// The users whose processes may connect on this host.
    pub users: Vec<u32>,
    /// The addresses of other hosts that may connect.
    pub remote: Vec<AnyPrefix>,
}

/// The reason to refuse a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// Another peer is connected.
    Busy,
    /// As many peers are connected as are served.
    Full,
    /// A process of this user, which is not allowed, connected on this host.
    User(u32),
    /// The address is this host's, and the kernel knows no user that has the connection open.
    NoUser,
    /// The address is another host's, and none of those allowed.
    Address,
    /// The query to the kernel failed.
    System(crate::netlink::Error),
}

/// A connection that was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refused {
    /// The other end's address.
    pub peer: SocketAddr,
    /// The reason.
    pub why: Refusal,
}

impl Default for Peers {
    /// Allows root and the user of this process, on this host.
    fn default() -> Self {
        let mut users = vec![0, nix::unistd::Uid::effective().as_raw()];
        users.dedup();
        Self { users, remote: Vec::new() }
    }
}

impl Peers {
    /// Checks a peer by its address and owner.
    ///
    /// # Errors
    ///
    /// The reason to refuse it.
    pub fn check(&self, peer: IpAddr, owner: SocketOwner) -> Result<(), Refusal> {
        let listed = |prefix: &AnyPrefix| match (prefix, peer.to_canonical()) {
            (AnyPrefix::V4(prefix), IpAddr::V4(v4)) => prefix.contains(v4.into()),
            (AnyPrefix::V6(prefix), IpAddr::V6(v6)) => prefix.contains(v6.into()),
            _ => false,
        };
        match owner {
            SocketOwner::User(user) if self.users.contains(&user) => Ok(()),
            SocketOwner::User(user) => Err(Refusal::User(user)),
            SocketOwner::Unknown => Err(Refusal::NoUser),
            SocketOwner::Remote if self.remote.iter().any(listed) => Ok(()),
            SocketOwner::Remote => Err(Refusal::Address),
        }
    }
}

impl Refused {
    /// Describes it for a log or a report; `users` and `peers` are the keys of the configuration that would
    /// allow it.
    pub fn describe(&self, users: &str, peers: &str) -> String {
        let why = match self.why {
            Refusal::Busy => "another peer is connected".to_owned(),
            Refusal::Full => "as many peers are connected as are served".to_owned(),
            Refusal::User(user) => format!("user {user} is not in {users}"),
            Refusal::NoUser => "no process on this host owns the connection".to_owned(),
            Refusal::Address => format!("its address is not in {peers}"),
            Refusal::System(error) => error.to_string(),
        };
        format!("connection from {} refused: {why}", self.peer)
    }
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.describe("feed.fpm_users", "feed.fpm_peers"))
    }
}

#[cfg(test)]
mod tests {
    use super::{Peers, Refusal};
    use crate::netlink::SocketOwner;
    use crate::prefix::AnyPrefix;

    #[test]
    fn local_peer_is_checked_by_user_and_remote_peer_by_address() {
        let remote = vec![
            AnyPrefix::V4("192.0.2.0/28".parse().expect("a prefix")),
            AnyPrefix::V6("2001:db8::7/128".parse().expect("a prefix")),
        ];
        let peers = Peers { users: vec![0, 104], remote };
        let check = |address: &str, owner| peers.check(address.parse().expect("one"), owner);
        assert_eq!(check("127.0.0.1", SocketOwner::User(104)), Ok(()));
        assert_eq!(check("127.0.0.1", SocketOwner::User(65534)), Err(Refusal::User(65534)));
        assert_eq!(check("192.0.2.1", SocketOwner::User(65534)), Err(Refusal::User(65534)));
        assert_eq!(check("192.0.2.1", SocketOwner::Unknown), Err(Refusal::NoUser));
        assert_eq!(check("192.0.2.15", SocketOwner::Remote), Ok(()));
        assert_eq!(check("::ffff:192.0.2.15", SocketOwner::Remote), Ok(()));
        assert_eq!(check("192.0.2.16", SocketOwner::Remote), Err(Refusal::Address));
        assert_eq!(check("2001:db8::7", SocketOwner::Remote), Ok(()));
        assert_eq!(check("2001:db8::8", SocketOwner::Remote), Err(Refusal::Address));
    }
}
