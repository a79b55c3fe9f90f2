//! URLs, checked when they are parsed.
//!
//! ```text
//!   https://lists.example:8443/drop.txt?v=2
//!   scheme  host          port path, with the query
//! ```
//!
//! A configuration names the file that a [`Client`](crate::Client) fetches. It is checked here, when
//! the configuration is read, so that a request cannot fail for the form of its URL.
//!
//! Invariants: the host is a name, an IPv4 address or an IPv6 address without its brackets, in lower
//! case; the path begins with `/` and holds printable ASCII alone. An empty path is `/` (RFC 9110,
//! 4.2.3). User names and passwords are refused (RFC 9110, 4.2.4): a URL is logged, so it must hold
//! no secret, and a password in the query cannot be recognized. Fragments are refused, because no
//! server receives them.

use std::fmt;
use std::net::Ipv6Addr;
use std::str::FromStr;

use hyper::http::uri::PathAndQuery;

/// An `http` or `https` URL of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Url {
    is_https: bool,
    host: String,
    port: u16,
    path: String,
}

/// The text is not a URL that a client can fetch. The message contains the text, except for one that
/// may hold a password.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UrlError {
    /// The text begins neither with `http://` nor with `https://`.
    Scheme(String),
    /// The authority holds a user name or a password.
    UserInfo,
    /// The host is empty or neither a name nor an address.
    Host(String),
    /// The port is not a number from 1 to 65535.
    Port(String),
    /// The path or query has characters that a request cannot hold.
    Path(String),
}

impl fmt::Display for UrlError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Scheme(url) => {
                write!(f, "{url:?} is neither http://HOST[:PORT]/PATH nor https://HOST[:PORT]/PATH")
            }
            Self::UserInfo => f.write_str(
                "the URL has a user name or password before its host, which is not supported: \
                 remove the part up to \"@\"",
            ),
            Self::Host(url) => write!(
                f,
                "{url:?} has no valid host: write a name, an IPv4 address or an IPv6 address in \
                 brackets"
            ),
            Self::Port(url) => {
                write!(f, "{url:?} has no valid port: write a number from 1 to 65535, or none")
            }
            Self::Path(path) => write!(
                f,
                "{path:?} is not a valid path of a URL: it begins with \"/\", has no fragment \
                 (\"#\"), and writes spaces and characters outside ASCII as %XX"
            ),
        }
    }
}

impl std::error::Error for UrlError {}

impl Url {
    /// Returns whether the server has to prove its name by a certificate.
    pub fn is_https(&self) -> bool {
        self.is_https
    }

    /// Returns the name or address of the server; an IPv6 address has no brackets.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// Returns the TCP port.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Returns the path, with the query if there is one.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// Returns the URL of another path, with its query, at the same server.
    ///
    /// # Errors
    ///
    /// [`UrlError::Path`].
    pub fn with_path(&self, path: &str) -> Result<Self, UrlError> {
        Ok(Self { path: check_path(path)?, ..self.clone() })
    }

    /// Returns the host, and the port if it is not the default of the scheme, as the `Host` header
    /// has them (RFC 9110, 7.2).
    pub(crate) fn authority(&self) -> String {
        let host = match self.host.contains(':') {
            true => format!("[{}]", self.host),
            false => self.host.clone(),
        };
        match self.port == default_port(self.is_https) {
            true => host,
            false => format!("{host}:{}", self.port),
        }
    }
}

fn default_port(is_https: bool) -> u16 {
    if is_https { 443 } else { 80 }
}

fn check_path(path: &str) -> Result<String, UrlError> {
    let is_valid = path.starts_with('/')
        && path.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'#')
        && PathAndQuery::from_str(path).is_ok();
    if is_valid { Ok(path.to_owned()) } else { Err(UrlError::Path(path.to_owned())) }
}

/// Parses a host with its brackets.
fn parse_host(host: &str) -> Option<String> {
    if let Some(bracketed) = host.strip_prefix('[') {
        let address: Ipv6Addr = bracketed.strip_suffix(']')?.parse().ok()?;
        return Some(address.to_string());
    }
    let is_valid = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
    (!host.is_empty() && host.bytes().all(is_valid)).then(|| host.to_ascii_lowercase())
}

fn parse_port(port: &str) -> Option<u16> {
    let is_number = port.bytes().all(|byte| byte.is_ascii_digit());
    port.parse().ok().filter(|port| is_number && *port != 0)
}

impl FromStr for Url {
    type Err = UrlError;

    fn from_str(text: &str) -> Result<Self, UrlError> {
        let (scheme, rest) = text.split_once("://").unwrap_or(("", text));
        let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
        let (authority, path) = rest.split_at(end);
        if authority.contains('@') {
            return Err(UrlError::UserInfo);
        }
        let is_https = match scheme.to_ascii_lowercase().as_str() {
            "http" => false,
            "https" => true,
            _ => return Err(UrlError::Scheme(text.to_owned())),
        };
        // A colon within brackets belongs to an IPv6 address.
        let (host, port) = match authority.rsplit_once(':').filter(|(_, port)| !port.contains(']'))
        {
            Some((host, port)) => {
                (host, parse_port(port).ok_or_else(|| UrlError::Port(text.to_owned()))?)
            }
            None => (authority, default_port(is_https)),
        };
        let host = parse_host(host).ok_or_else(|| UrlError::Host(text.to_owned()))?;
        let path = if path.starts_with('/') { path.to_owned() } else { format!("/{path}") };
        Ok(Self { is_https, host, port, path: check_path(&path)? })
    }
}

impl fmt::Display for Url {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.is_https { "https" } else { "http" };
        write!(f, "{scheme}://{}{}", self.authority(), self.path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Url, UrlError> {
        text.parse()
    }

    #[test]
    fn url_is_split_into_host_port_and_path() {
        let cases = [
            ("http://host/all.bundle", (false, "host", 80, "/all.bundle")),
            ("https://host/all.bundle", (true, "host", 443, "/all.bundle")),
            ("http://10.0.0.1:8080/a/b?c", (false, "10.0.0.1", 8080, "/a/b?c")),
            ("http://[fd00::1]:81/x", (false, "fd00::1", 81, "/x")),
            ("https://[FD00:0::1]/x", (true, "fd00::1", 443, "/x")),
            ("HTTPS://Lists.Example/X@y", (true, "lists.example", 443, "/X@y")),
            ("http://host", (false, "host", 80, "/")),
            ("http://host:8080?a=b", (false, "host", 8080, "/?a=b")),
        ];
        for (text, parts) in cases {
            let url = parse(text).unwrap();
            assert_eq!((url.is_https(), url.host(), url.port(), url.path()), parts, "{text}");
            assert_eq!(parse(&url.to_string()), Ok(url), "{text}");
        }
    }

    #[test]
    fn display_omits_default_port_and_brackets_ipv6() {
        for (text, shown) in [
            ("http://host:80/x", "http://host/x"),
            ("https://host:443/x", "https://host/x"),
            ("https://host:80/x", "https://host:80/x"),
            ("http://[fd00::1]:81/x?y", "http://[fd00::1]:81/x?y"),
        ] {
            assert_eq!(parse(text).unwrap().to_string(), shown);
        }
    }

    #[test]
    fn invalid_part_is_named() {
        type Variant = fn(String) -> UrlError;
        let cases: [(&str, Variant); 15] = [
            ("", UrlError::Scheme),
            ("/x", UrlError::Scheme),
            ("host/x", UrlError::Scheme),
            ("ftp://host/x", UrlError::Scheme),
            ("http://", UrlError::Host),
            ("http:///x", UrlError::Host),
            ("http://:80/x", UrlError::Host),
            ("http://a b/c", UrlError::Host),
            ("http://fd00::1:80/x", UrlError::Host),
            ("http://[host]/x", UrlError::Host),
            ("http://[fe80::1%25eth0]/x", UrlError::Host),
            ("http://host:x/y", UrlError::Port),
            ("http://host:99999/y", UrlError::Port),
            ("http://host:+80/y", UrlError::Port),
            ("http://host:0/y", UrlError::Port),
        ];
        for (text, error) in cases {
            assert_eq!(parse(text), Err(error(text.to_owned())), "{text}");
        }
        for path in ["/a b", "/a#b", "/ü", "/a\r\nX: y"] {
            let text = format!("http://host{path}");
            assert_eq!(parse(&text), Err(UrlError::Path(path.to_owned())), "{text}");
        }
    }

    #[test]
    fn user_info_is_refused_without_its_password() {
        for text in ["http://u@host/x", "https://user:secret@host/x", "ftp://user:secret@host"] {
            let error = parse(text).unwrap_err();
            assert_eq!(error, UrlError::UserInfo);
            assert!(!error.to_string().contains("secret"));
        }
    }

    #[test]
    fn path_is_replaced_at_the_same_server() {
        let url = parse("https://host:8080/v1").unwrap();
        let stream = url.with_path("/v1/stream?startup=true").unwrap();
        assert_eq!(stream.to_string(), "https://host:8080/v1/stream?startup=true");
        for bad in ["", "x", "/a b", "http://other/x"] {
            assert_eq!(url.with_path(bad), Err(UrlError::Path(bad.to_owned())));
        }
    }
}
