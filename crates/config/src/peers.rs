//! The peers that may connect: users of this host, by name or number, and addresses of other hosts.

use std::net::IpAddr;

use feed::netlink::AnyPrefix;
use fib::{Addr, Prefix};
use nix::unistd::User;
use toml::Spanned;

use super::checker::Checker;

/// Reads a user's name or number.
pub(super) fn user(c: &mut Checker<'_>, name: &Spanned<String>, key: &'static str) -> Option<u32> {
    let what = match number(name.get_ref()) {
        Ok(Some(number)) => return Some(number),
        Ok(None) => format!("there is no user {:?}", name.get_ref()),
        Err(error) => format!("the user {:?} cannot be looked up: {error}", name.get_ref()),
    };
    c.problem(name, key, what);
    None
}

/// Returns the number of a user, if there is one with this name.
pub(super) fn user_number(name: &str) -> Option<u32> {
    number(name).ok().flatten()
}

/// Returns the number of a user by its name, or the number that the text is.
fn number(name: &str) -> Result<Option<u32>, nix::Error> {
    if let Ok(number) = name.parse() {
        return Ok(Some(number));
    }
    Ok(User::from_name(name)?.map(|user| user.uid.as_raw()))
}

/// Reads another host's address, or a prefix of such.
pub(super) fn remote(
    c: &mut Checker<'_>,
    peer: &Spanned<String>,
    key: &'static str,
) -> Option<AnyPrefix> {
    let text = peer.get_ref();
    let read = match text.parse::<IpAddr>() {
        Ok(IpAddr::V4(v4)) => Some(AnyPrefix::V4(Prefix::truncate(v4.into(), u32::BITS))),
        Ok(IpAddr::V6(v6)) => Some(AnyPrefix::V6(Prefix::truncate(v6.into(), u128::BITS))),
        Err(_) => prefix(text).map(AnyPrefix::V4).or_else(|| prefix(text).map(AnyPrefix::V6)),
    };
    if read.is_none() {
        let what = format!("{text:?} is no address and no prefix, such as 192.0.2.0/28");
        c.problem(peer, key, what);
    }
    read
}

fn prefix<A: Addr>(text: &str) -> Option<Prefix<A>> {
    text.parse().ok()
}
