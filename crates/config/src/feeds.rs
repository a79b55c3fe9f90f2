//! The section `[feed]`: the address to which FRR connects, and the allowed peers.
//!
//! A peer that sends routes decides where packets go, so few peers are allowed unless the file
//! states otherwise: on this host processes of root, of the user `frr` and of the router's own
//! user, and no other host.

use feed::fpm::{FpmOptions, PORT, Peers};

use super::checker::Checker;
use super::peers::{remote, user, user_number};
use super::text;

/// The user that Debian's package of FRR makes for its daemons.
const FRR: &str = "frr";

/// Checks the section; without an address to listen on there is no feed.
pub(super) fn check(c: &mut Checker<'_>, feed: text::Feed) -> Option<FpmOptions> {
    let text::Feed { fpm, fpm_peers, fpm_users } = feed;
    let mut peers = Peers::default();
    match &fpm_users {
        Some(listed) => {
            let read = |name| user(c, name, "feed.fpm_users");
            peers.users = listed.iter().filter_map(read).collect();
        }
        None => peers.users.extend(user_number(FRR)),
    }
    peers.remote = fpm_peers.iter().filter_map(|peer| remote(c, peer, "feed.fpm_peers")).collect();
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
