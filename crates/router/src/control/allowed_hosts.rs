//! AllowedHosts: the names by which the page and the metrics are asked for, and no others.
//!
//! A script of somebody's site may ask whatever its own name resolves to; and its owner may have
//! that name resolve to an address on the reader's network a moment later (DNS rebinding). To
//! the browser that is the same origin still, so that the script may read the answer. What
//! gives it away is the `Host` of its requests: it bears the site's name. So only these are answered:
//!
//! | `Host` | why it is safe |
//! |---|---|
//! | an IP address | nobody has it resolve to another |
//! | `localhost` | browsers resolve it themselves (RFC 6761, section 6.3) |
//! | a name of `[metrics] allowed_hosts` | the operator's |
//!
//! Anything else is misdirected (RFC 9110, section 15.5.20), and a request without one `Host`
//! is no request (RFC 9112, section 3.2). The port says nothing: it may be a tunnel's.

use std::net::{IpAddr, Ipv6Addr};

use hyper::Request;
use hyper::header::HOST;

use super::http::HttpResponse;

/// The names that a server answers to, beside addresses and `localhost`.
#[derive(Clone, Debug, Default)]
pub(crate) struct AllowedHosts(Vec<String>);

/// Says whether a text may be a host's name: no port, no address, none of an URL's signs.
pub(crate) fn is_name(text: &str) -> bool {
    let label = |label: &str| {
        let sound = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
        !label.is_empty() && label.len() <= 63 && label.bytes().all(sound)
    };
    let text = text.strip_suffix('.').unwrap_or(text);
    text.len() <= 253 && text.split('.').all(label) && text.parse::<IpAddr>().is_err()
}

/// Leaves the port out of what stands in a `Host`.
fn without_port(host: &str) -> &str {
    let port = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    match host.rsplit_once(':') {
        Some((name, after)) if port(after) && (!name.contains(':') || name.ends_with(']')) => name,
        _ => host,
    }
}

impl AllowedHosts {
    /// Takes names that [are some](is_name).
    pub(crate) fn new(names: &[String]) -> Self {
        Self(names.iter().map(|name| name.trim_end_matches('.').to_ascii_lowercase()).collect())
    }

    fn have(&self, host: &str) -> bool {
        let host = without_port(host);
        if let Some(inside) = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
            return inside.parse::<Ipv6Addr>().is_ok();
        }
        let name = host.strip_suffix('.').unwrap_or(host).to_ascii_lowercase();
        host.parse::<std::net::Ipv4Addr>().is_ok() || name == "localhost" || self.0.contains(&name)
    }

    /// Looks whom a request is for.
    ///
    /// # Errors
    ///
    /// What is answered to one that is for somebody else.
    pub(crate) fn judge<B>(&self, request: &Request<B>) -> Result<(), HttpResponse> {
        // Where the target says it, that holds (RFC 9112, section 3.2.2).
        let target = request.uri().authority().map(|it| it.as_str());
        let mut said = request.headers().get_all(HOST).iter();
        let host = match (said.next(), said.next(), target) {
            (Some(host), None, None) => host.to_str().unwrap_or_default(),
            (Some(_), None, Some(target)) => target,
            _ => return Err(HttpResponse::text(400, "a request has one Host")),
        };
        if self.have(host) {
            return Ok(());
        }
        let name = without_port(host);
        let shown = if is_name(name) { name } else { "NAME" };
        Err(HttpResponse::text(
            421,
            &format!(
                "asked for by a name that is not this one's. Ask by its IP address or by localhost; \
                 or, if {shown} is a name of it, write in its configuration:\n\n\
                 [metrics]\nallowed_hosts = [\"{shown}\"]"
            ),
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_localhost_and_the_names_listed_are_answered_and_nothing_else() {
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
            assert!(hosts.have(own), "{own}");
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
            // Of one name with a dot at its end: it is the same name.
            assert_eq!(hosts.have(other), other == "gate.", "{other:?}");
        }
        assert!(!AllowedHosts::default().have("gate") && AllowedHosts::default().have("10.0.0.1"));
    }

    #[test]
    fn a_request_has_one_host_and_its_target_comes_first() {
        let hosts = AllowedHosts::new(&["gate".to_owned()]);
        let judge = |uri: &str, said: &[&str]| {
            let mut request = Request::builder().uri(uri);
            for host in said {
                request = request.header(HOST, *host);
            }
            hosts.judge(&request.body(()).unwrap()).map_err(|reply| (reply.status, reply.body))
        };
        assert!(judge("/", &["gate:9273"]).is_ok());
        assert!(judge("http://gate/", &["evil.example"]).is_ok());
        assert_eq!(judge("/", &[]).unwrap_err().0, 400);
        assert_eq!(judge("/", &["gate", "gate"]).unwrap_err().0, 400);
        let (status, words) = judge("http://evil.example:80/", &["gate"]).unwrap_err();
        assert_eq!(status, 421);
        assert!(words.contains("allowed_hosts = [\"evil.example\"]"), "{words}");
        // Nothing that is no name is said again.
        let (status, words) = judge("/", &["<b>x</b>"]).unwrap_err();
        assert!(status == 421 && !words.contains('<'), "{words}");
    }

    #[test]
    fn names() {
        for name in ["gate", "gate.example.net", "gate_1.example.", "a-b"] {
            assert!(is_name(name), "{name}");
        }
        for none in ["", ".", "a..b", "gate:80", "http://gate", "10.0.0.1", "::1", "gä", "a b"] {
            assert!(!is_name(none), "{none}");
        }
    }
}
