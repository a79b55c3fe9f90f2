//! The section `[flowspec]`: BGP flow specifications as an access list.
//!
//! ```toml
//! [flowspec]
//! as = 65001
//! router_id = "192.0.2.1"
//! inbound = ["eth0"]             # interfaces whose received packets the rules examine
//! listen = "127.0.0.1:1179"      # BIRD, GoBGP or FRR connect here
//! peer_as = 65001                # default: `as`
//! hold_time = "90s"
//! users = ["bird"]               # users that may connect; default: root, bird, frr, the router's own
//! peers = ["192.0.2.7"]          # other hosts that may connect; default: none
//! ```
//!
//! A peer can have packets dropped, so few are allowed unless the file states otherwise.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::str::FromStr;

use feed::AnyPrefix;
use feed::fpm::Peers;
use flowspec::{FlowspecOptions, PORT};
use serde::Deserialize;
use toml::Spanned;

use super::TimeSpan;
use super::checker::Checker;
use super::peers::{remote, user, user_number};

/// The name of the list; no other list has it.
pub const FLOWSPEC_LIST: &str = "flowspec";

/// Users of Debian's packages of BGP routers, those that exist.
const ROUTERS: [&str; 2] = ["bird", "frr"];

/// Returns the users of this host whose processes may connect as BGP routers, unless others are named.
fn bgp_users() -> Vec<u32> {
    let mut users = Peers::default().users;
    users.extend(ROUTERS.iter().filter_map(|name| user_number(name)));
    users
}

/// The hold time that the speaker of a block list offers.
const BLOCK_LIST_HOLD_TIME: u16 = 90;

/// The speaker of a block list: its AS, which is that of its peers, and the address and port at which they connect, as in
/// `65001@127.0.0.1:1179`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlowspecSpeaker {
    own_as: u32,
    listen: SocketAddr,
}

impl FlowspecSpeaker {
    /// Returns the options for sessions with BGP routers of this host, and of other hosts in `remote`. The identifier is
    /// the address.
    pub fn options(self, remote: Vec<AnyPrefix>) -> FlowspecOptions {
        let router_id = match self.listen.ip() {
            IpAddr::V4(address) if !address.is_unspecified() => address,
            _ => Ipv4Addr::LOCALHOST,
        };
        FlowspecOptions {
            listen: self.listen,
            own_as: self.own_as,
            peer_as: self.own_as,
            router_id,
            hold_time: BLOCK_LIST_HOLD_TIME,
            peers: Peers { users: bgp_users(), remote },
        }
    }
}

impl FromStr for FlowspecSpeaker {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let form = || format!("an AS and an address are needed, as 65001@127.0.0.1:{PORT}");
        let (own_as, listen) = text.split_once('@').ok_or_else(form)?;
        let own_as = own_as.parse().ok().filter(|&number| !is_reserved(number)).ok_or_else(form)?;
        Ok(Self { own_as, listen: listen.parse().map_err(|_| form())? })
    }
}

/// Returns whether no router has this AS (RFC 7607, RFC 6793, RFC 7300).
fn is_reserved(number: u32) -> bool {
    matches!(number, 0 | 23456 | u32::MAX)
}

/// The flow specifications of the configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlowspecConfig {
    /// The options of the speaker.
    pub options: FlowspecOptions,
    /// The interfaces whose received packets the rules examine.
    pub inbound: Vec<String>,
}

/// `[flowspec]` as it is written in the file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct FlowspecSection {
    #[serde(rename = "as")]
    own_as: Spanned<u32>,
    router_id: Spanned<String>,
    inbound: Vec<Spanned<String>>,
    listen: Option<Spanned<String>>,
    peer_as: Option<Spanned<u32>>,
    hold_time: Option<Spanned<TimeSpan>>,
    users: Option<Vec<Spanned<String>>>,
    #[serde(default)]
    peers: Vec<Spanned<String>>,
}

/// Checks the section.
pub(super) fn check(c: &mut Checker<'_>, section: FlowspecSection) -> Option<FlowspecConfig> {
    let FlowspecSection {
        own_as,
        router_id,
        inbound,
        listen,
        peer_as,
        hold_time,
        users,
        peers: remote_peers,
    } = section;
    for (number, key) in [(Some(&own_as), "flowspec.as"), (peer_as.as_ref(), "flowspec.peer_as")] {
        if let Some(number) = number.filter(|number| is_reserved(*number.get_ref())) {
            c.problem(
                number,
                key,
                format!("{} is reserved: no router has this AS", number.get_ref()),
            );
        }
    }
    let id = router_id.get_ref().parse().ok().filter(|id: &Ipv4Addr| !id.is_unspecified());
    if id.is_none() {
        let what = format!("{:?} is no identifier, such as 192.0.2.1", router_id.get_ref());
        c.problem(&router_id, "flowspec.router_id", what);
    }
    let address = match &listen {
        None => Some(SocketAddr::from(([127, 0, 0, 1], PORT))),
        Some(text) => text.get_ref().parse().ok(),
    };
    if let (Some(text), None) = (&listen, address) {
        let what = format!("{:?} is no address and port, such as 127.0.0.1:{PORT}", text.get_ref());
        c.problem(text, "flowspec.listen", what);
    }
    let range = TimeSpan::seconds(3)..=TimeSpan::seconds(u16::MAX.into());
    let hold_time =
        TimeSpan::within(c, hold_time, "flowspec.hold_time", TimeSpan::seconds(90), range);
    let mut peers = Peers::default();
    match &users {
        Some(listed) => {
            let read = |name| user(c, name, "flowspec.users");
            peers.users = listed.iter().filter_map(read).collect();
        }
        None => peers.users = bgp_users(),
    }
    let read = |peer| remote(c, peer, "flowspec.peers");
    peers.remote = remote_peers.iter().filter_map(read).collect();
    let mut names: Vec<String> = Vec::new();
    for name in inbound {
        c.interface_name(&name, "flowspec.inbound");
        if names.contains(name.get_ref()) {
            c.problem(&name, "flowspec.inbound", format!("{:?} is a duplicate", name.get_ref()));
        }
        names.push(name.into_inner());
    }
    let own_as = own_as.into_inner();
    let options = FlowspecOptions {
        listen: address?,
        own_as,
        peer_as: peer_as.map_or(own_as, Spanned::into_inner),
        router_id: id?,
        hold_time: hold_time.as_secs() as u16,
        peers,
    };
    Some(FlowspecConfig { options, inbound: names })
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use crate::{Config, ConfigError};

    const SECTION: &str = "as = 65001\nrouter_id = '192.0.2.1'\ninbound = ['eth0']\n";

    fn parse(section: &str) -> Result<Config, ConfigError> {
        let text = format!("[[interface]]\nname = 'eth0'\n[flowspec]\n{section}");
        Config::parse(&text, Path::new("run.toml"))
    }

    #[test]
    fn section_has_its_defaults() {
        let config = parse(SECTION).unwrap().flowspec.unwrap();
        assert_eq!((config.options.own_as, config.options.peer_as), (65001, 65001));
        assert_eq!(config.options.listen, "127.0.0.1:1179".parse().unwrap());
        assert_eq!((config.options.hold_time, config.inbound), (90, vec!["eth0".to_owned()]));
        assert!(config.options.peers.users.contains(&0) && config.options.peers.remote.is_empty());
        let text = format!(
            "{SECTION}peer_as = 65002\nhold_time = '9s'\nusers = ['7']\npeers = ['2001:db8::/64']\n\
             listen = '[::1]:179'\n"
        );
        let options = parse(&text).unwrap().flowspec.unwrap().options;
        assert_eq!((options.peer_as, options.hold_time), (65002, 9));
        assert_eq!((options.peers.users, options.peers.remote.len()), (vec![7], 1));
        assert!(parse("").unwrap_err().to_string().contains("missing field `as`"));
    }

    #[test]
    fn bad_value_is_refused_with_its_line() {
        for (section, expected) in [
            (SECTION.replace("65001", "0"), ":4: flowspec.as: 0 is reserved"),
            (SECTION.replace("192.0.2.1", "r1"), ":5: flowspec.router_id: \"r1\" is no identifier"),
            (
                SECTION.replace("'eth0'", "'eth0', 'eth0'"),
                ":6: flowspec.inbound: \"eth0\" is a dup",
            ),
            (format!("{SECTION}listen = 'here'\n"), ":7: flowspec.listen: \"here\" is no address"),
            (format!("{SECTION}peers = ['you']\n"), ":7: flowspec.peers: \"you\" is no address"),
            (format!("{SECTION}users = ['no such']\n"), ":7: flowspec.users: there is no user"),
            (format!("{SECTION}hold_time = '2s'\n"), ":7: flowspec.hold_time: "),
            (
                format!("{SECTION}[[access_list]]\nname = 'flowspec'\ndefault = 'deny'\n"),
                ":8: access_list.name: \"flowspec\" is the list of BGP flow specifications",
            ),
        ] {
            let error = parse(&section).unwrap_err().to_string();
            assert!(error.contains(expected), "{section}: {error}");
        }
    }
}
