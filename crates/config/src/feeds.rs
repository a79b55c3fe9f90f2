//! The section `[feed]`: the address to which FRR connects, and the allowed peers.
//!
//! A peer that sends routes decides where packets go, so few peers are allowed unless the file
//! states otherwise: on this host processes of root, of the user `frr` and of the router's own
//! user, and no other host.

use std::net::IpAddr;

use feed::fpm::{FpmOptions, PORT, Peers};
use feed::netlink::AnyPrefix;
use fib::{Addr, Prefix};
use nix::unistd::User;
use toml::Spanned;

use super::checker::Checker;
use super::text;

/// The user that Debian's package of FRR makes for its daemons.
const FRR: &str = "frr";

/// Checks the section; without an address to listen on there is no feed.
pub(super) fn check(c: &mut Checker<'_>, feed: text::Feed) -> Option<FpmOptions> {
    let text::Feed { fpm, fpm_peers, fpm_users } = feed;
    let mut peers = Peers::default();
    match &fpm_users {
        Some(listed) => peers.users = listed.iter().filter_map(|name| user(c, name)).collect(),
        None => peers.users.extend(number(FRR).ok().flatten()),
    }
    peers.remote = fpm_peers.iter().filter_map(|peer| remote(c, peer)).collect();
    let Some(text) = fpm else {
        let without = "has no effect without `fpm`";
        if let Some(first) = fpm_peers.first() {
            c.problem(first, "feed.fpm_peers", without);
        }
        if let Some(first) = fpm_users.iter().flatten().next() {
            c.problem(first, "feed.fpm_users", without);
        }
        return None;
    };
    let Ok(listen) = text.get_ref().parse() else {
        let what = format!("{:?} is no address and port, such as 127.0.0.1:{PORT}", text.get_ref());
        c.problem(&text, "feed.fpm", what);
        return None;
    };
    Some(FpmOptions { listen, peers, ..FpmOptions::default() })
}

/// Reads a user's name or number.
fn user(c: &mut Checker<'_>, name: &Spanned<String>) -> Option<u32> {
    let what = match number(name.get_ref()) {
        Ok(Some(number)) => return Some(number),
        Ok(None) => format!("there is no user {:?}", name.get_ref()),
        Err(error) => format!("the user {:?} cannot be looked up: {error}", name.get_ref()),
    };
    c.problem(name, "feed.fpm_users", what);
    None
}

/// Returns the number of a user by its name, or the number that the text is.
fn number(name: &str) -> Result<Option<u32>, nix::Error> {
    if let Ok(number) = name.parse() {
        return Ok(Some(number));
    }
    Ok(User::from_name(name)?.map(|user| user.uid.as_raw()))
}

/// Reads another host's address, or a prefix of such.
fn remote(c: &mut Checker<'_>, peer: &Spanned<String>) -> Option<AnyPrefix> {
    let text = peer.get_ref();
    let read = match text.parse::<IpAddr>() {
        Ok(IpAddr::V4(v4)) => Some(AnyPrefix::V4(Prefix::truncate(v4.into(), u32::BITS))),
        Ok(IpAddr::V6(v6)) => Some(AnyPrefix::V6(Prefix::truncate(v6.into(), u128::BITS))),
        Err(_) => prefix(text).map(AnyPrefix::V4).or_else(|| prefix(text).map(AnyPrefix::V6)),
    };
    if read.is_none() {
        let what = format!("{text:?} is no address and no prefix, such as 192.0.2.0/28");
        c.problem(peer, "feed.fpm_peers", what);
    }
    read
}

fn prefix<A: Addr>(text: &str) -> Option<Prefix<A>> {
    text.parse().ok()
}
