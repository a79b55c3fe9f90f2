//! Checks the `Host` of HTTP requests, against DNS rebinding.
//!
//! A script of a foreign site may send requests to any address to which its own host name resolves,
//! and the owner of that site can change the name to an address on the reader's network (DNS
//! rebinding). The browser still sees the same origin and lets the script read the response. The
//! `Host` of the request is still the name of the foreign site. Only these are answered:
//!
//! | `Host` | why it is safe |
//! |---|---|
//! | an IP address | it is not resolved |
//! | `localhost` | browsers resolve it themselves (RFC 6761, section 6.3) |
//! | a name of `[metrics] allowed_hosts` | it belongs to the operator |
//!
//! Any other request is misdirected (421; RFC 9110, section 15.5.20), and a request without exactly
//! one `Host` is invalid (400; RFC 9112, section 3.2). The port is ignored: it may be a tunnel's.

use std::net::Ipv6Addr;

use hyper::Request;
use hyper::header::HOST;

use config::is_host_name;

use super::http_message::HttpResponse;

/// The host names that the server accepts, beside addresses and `localhost`.
#[derive(Clone, Debug, Default)]
pub struct AllowedHosts(Vec<String>);

/// Returns the value of a `Host` without its port.
fn without_port(host: &str) -> &str {
    let is_port = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    match host.rsplit_once(':') {
        Some((name, port)) if is_port(port) && (!name.contains(':') || name.ends_with(']')) => name,
        _ => host,
    }
}

impl AllowedHosts {
    /// Takes [valid](is_host_name) names.
    pub fn new(names: &[String]) -> Self {
        Self(names.iter().map(|name| name.trim_end_matches('.').to_ascii_lowercase()).collect())
    }

    fn allows(&self, host: &str) -> bool {
        let host = without_port(host);
        if let Some(inside) = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
            return inside.parse::<Ipv6Addr>().is_ok();
        }
        let name = host.strip_suffix('.').unwrap_or(host).to_ascii_lowercase();
        host.parse::<std::net::Ipv4Addr>().is_ok() || name == "localhost" || self.0.contains(&name)
    }

    /// Checks the host of a request.
    ///
    /// # Errors
    ///
    /// The response to a request with another host.
    pub(crate) fn check<B>(&self, request: &Request<B>) -> Result<(), HttpResponse> {
        // The authority of an absolute target takes precedence (RFC 9112, section 3.2.2).
        let target = request.uri().authority().map(|authority| authority.as_str());
        let mut headers = request.headers().get_all(HOST).iter();
        let host = match (headers.next(), headers.next(), target) {
            (Some(host), None, None) => host.to_str().unwrap_or_default(),
            (Some(_), None, Some(target)) => target,
            _ => return Err(HttpResponse::text(400, "a request needs exactly one Host header")),
        };
        if self.allows(host) {
            return Ok(());
        }
        let name = without_port(host);
        let shown = if is_host_name(name) { name } else { "NAME" };
        Err(HttpResponse::text(
            421,
            &format!(
                "the host name of this request is not allowed. Use the IP address or localhost; or, \
                 if {shown} is a name of this machine, add to the configuration:\n\n\
                 [metrics]\nallowed_hosts = [\"{shown}\"]"
            ),
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_localhost_and_listed_names_are_allowed_and_nothing_else() {
        let hosts = AllowedHosts::new(&["Gate.Example.net.".to_owned(), "gate".to_owned()]);
        for own in [
            "127.0.0.1",
            "127.0.0.1:9273",
            "192.0.2.7:1",
            "[::1]",
            "[::1]:9273",
            "[2001:db8::7]:80",
            "localhost",
            "LOCALHOST:9273",
            "localhost.",
            "gate",
            "gate:9273",
            "GATE.example.NET",
            "gate.example.net.:80",
        ] {
            assert!(hosts.allows(own), "{own}");
        }
        for other in [
            "",
            ":",
            ":80",
            "evil.example",
            "127.0.0.1.evil.example",
            "evil.example:9273",
            "gate.example.net.evil.example",
            "xgate",
            "gate.",
            "localhost.evil.example",
            "localhost:evil",
            "localhost:80:80",
            "127.1",
            "2130706433",
            "0x7f000001",
            "::1",
            "[::1",
            "[::1]x",
            "[evil.example]",
            "[127.0.0.1]",
            "user@127.0.0.1",
            "127.0.0.1:x",
            "127.0.0.1 ",
        ] {
            // A name with a dot at its end is the same name.
            assert_eq!(hosts.allows(other), other == "gate.", "{other:?}");
        }
        let none = AllowedHosts::default();
        assert!(!none.allows("gate") && none.allows("10.0.0.1"));
    }

    #[test]
    fn request_needs_one_host_and_its_absolute_target_takes_precedence() {
        let hosts = AllowedHosts::new(&["gate".to_owned()]);
        let check = |uri: &str, headers: &[&str]| {
            let mut request = Request::builder().uri(uri);
            for host in headers {
                request = request.header(HOST, *host);
            }
            hosts.check(&request.body(()).unwrap()).map_err(|reply| (reply.status, reply.body))
        };
        assert!(check("/", &["gate:9273"]).is_ok());
        assert!(check("http://gate/", &["evil.example"]).is_ok());
        assert_eq!(check("/", &[]).unwrap_err().0, 400);
        assert_eq!(check("/", &["gate", "gate"]).unwrap_err().0, 400);
        let (status, text) = check("http://evil.example:80/", &["gate"]).unwrap_err();
        assert_eq!(status, 421);
        assert!(text.contains("allowed_hosts = [\"evil.example\"]"), "{text}");
        // The response repeats valid names only.
        let (status, text) = check("/", &["<b>x</b>"]).unwrap_err();
        assert!(status == 421 && !text.contains('<'), "{text}");
    }

    #[test]
    fn host_names_have_valid_labels_and_no_port() {
        for name in ["gate", "gate.example.net", "gate_1.example.", "a-b"] {
            assert!(is_host_name(name), "{name}");
        }
        for invalid in ["", ".", "a..b", "gate:80", "http://gate", "10.0.0.1", "::1", "gä", "a b"]
        {
            assert!(!is_host_name(invalid), "{invalid}");
        }
    }
}
