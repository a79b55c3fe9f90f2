//! The URL of a fleet: the NATS servers, and the fleet's name.
//!
//! ```text
//!   nats://HOST[:PORT][,HOST[:PORT]…]/FLEET       port 4222 by default
//!   tls://…                                       by TLS, with the system's root certificates
//! ```
//!
//! User names and passwords are not part of it, because logs and status messages contain the URL; a
//! credentials file has them ([`crate::Access`]).

use core::fmt;
use core::str::FromStr;

/// The port of a NATS server.
const PORT: u16 = 4222;
/// Longest name of a fleet, in bytes.
const MAX_FLEET: usize = 32;
/// Most servers of a URL.
const MAX_SERVERS: usize = 16;

/// The URL of a fleet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FleetUrl {
    tls: bool,
    servers: Vec<String>,
    fleet: String,
}

/// The error of a text that is not the URL of a fleet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FleetUrlError {
    text: String,
    why: &'static str,
}

impl fmt::Display for FleetUrlError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} {}: write nats://HOST[:PORT][,HOST[:PORT]]/FLEET", self.text, self.why)
    }
}

impl std::error::Error for FleetUrlError {}

impl FleetUrl {
    /// Returns whether a text has the scheme of a fleet's URL.
    pub fn has_scheme(text: &str) -> bool {
        text.starts_with("nats://") || text.starts_with("tls://")
    }

    /// Returns the name of the fleet.
    pub fn fleet(&self) -> &str {
        &self.fleet
    }

    /// Returns the addresses of the servers, each as `SCHEME://HOST:PORT`.
    pub(crate) fn servers(&self) -> impl Iterator<Item = String> {
        self.servers.iter().map(|server| format!("{}://{server}", self.scheme()))
    }

    /// Returns whether the connection must use TLS.
    pub(crate) fn requires_tls(&self) -> bool {
        self.tls
    }

    fn scheme(&self) -> &'static str {
        if self.tls { "tls" } else { "nats" }
    }
}

impl fmt::Display for FleetUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://{}/{}", self.scheme(), self.servers.join(","), self.fleet)
    }
}

impl FromStr for FleetUrl {
    type Err = FleetUrlError;

    fn from_str(text: &str) -> Result<Self, FleetUrlError> {
        let wrong = |why| FleetUrlError { text: text.to_owned(), why };
        let (tls, rest) = match text.split_once("://") {
            Some(("nats", rest)) => (false, rest),
            Some(("tls", rest)) => (true, rest),
            _ => return Err(wrong("does not begin with nats:// or tls://")),
        };
        let (hosts, fleet) =
            rest.split_once('/').ok_or_else(|| wrong("does not name a fleet after its servers"))?;
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
        if fleet.is_empty() || fleet.len() > MAX_FLEET || !fleet.bytes().all(is_plain) {
            return Err(wrong("has no name of a fleet of 1 to 32 letters, digits, - and _"));
        }
        if hosts.contains('@') {
            return Err(wrong("has a user name or password, which a credentials file must have"));
        }
        let servers: Option<Vec<String>> = hosts.split(',').map(server).collect();
        match servers.filter(|servers| servers.len() <= MAX_SERVERS) {
            Some(servers) => Ok(Self { tls, servers, fleet: fleet.to_owned() }),
            None => Err(wrong("has a server without a valid host and port, or more than 16")),
        }
    }
}

/// Returns `HOST:PORT` of a server.
fn server(text: &str) -> Option<String> {
    let has_port = |rest: &str| rest.strip_prefix(':').map(str::parse::<u16>);
    let (host, port) = if let Some(inside) = text.strip_prefix('[') {
        let (address, rest) = inside.split_once(']')?;
        address.parse::<core::net::Ipv6Addr>().ok()?;
        (format!("[{address}]"), if rest.is_empty() { None } else { Some(has_port(rest)?) })
    } else {
        let at = text.find(':').unwrap_or(text.len());
        let (host, rest) = text.split_at(at);
        let is_host = |byte: u8| byte.is_ascii_alphanumeric() || b".-_".contains(&byte);
        if host.is_empty() || !host.bytes().all(is_host) {
            return None;
        }
        (host.to_owned(), has_port(rest))
    };
    let port = port.transpose().ok()?.unwrap_or(PORT);
    (port > 0).then(|| format!("{host}:{port}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn url_names_servers_and_a_fleet() {
        for (text, shown) in [
            ("nats://a/site", "nats://a:4222/site"),
            ("nats://10.0.0.1:1,b-2.example.com/x_1", "nats://10.0.0.1:1,b-2.example.com:4222/x_1"),
            ("tls://[fd00::1]:81,[::1]/f", "tls://[fd00::1]:81,[::1]:4222/f"),
        ] {
            let url: FleetUrl = text.parse().unwrap();
            assert_eq!(url.to_string(), shown);
            assert_eq!(shown.parse(), Ok(url));
        }
        let url: FleetUrl = "nats://a,b:2/site".parse().unwrap();
        assert_eq!(url.servers().collect::<Vec<_>>(), ["nats://a:4222", "nats://b:2"]);
    }

    #[test]
    fn invalid_url_is_refused_with_the_reason() {
        for (text, why) in [
            ("http://a/b", "does not begin with"),
            ("nats://a", "does not name a fleet"),
            ("nats://a/", "no name of a fleet"),
            ("nats://a/b/c", "no name of a fleet"),
            ("nats://u:p@a/b", "a credentials file"),
            ("nats://a:0/b", "without a valid host and port"),
            ("nats://a:99999/b", "without a valid host and port"),
            ("nats://a,,b/c", "without a valid host and port"),
            ("nats://[::1/c", "without a valid host and port"),
            ("nats://::1/c", "without a valid host and port"),
        ] {
            let error = text.parse::<FleetUrl>().unwrap_err().to_string();
            assert!(error.contains(why), "{error}");
        }
    }
}
