//! The `[metrics]` section of the configuration of a router, gate or grantor.
//!
//! ```toml
//! [metrics]
//! listen = "127.0.0.1:9273"    # the HTTP listener for metrics and a page; default: none
//! allowed_hosts = ["gate-1.example.net"]   # accepted names, besides addresses and localhost
//! history_file = "/var/lib/fingerpost/history"   # keeps the page's history and attacks
//! ```
//!
//! A change of this section needs a restart.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use serde::Deserialize;
use toml::Spanned;

use super::checker::Checker;

/// The HTTP listener for metrics and the page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Metrics {
    /// The address and port.
    pub listen: SocketAddr,
    /// The accepted host names of requests, besides IP addresses and `localhost`.
    pub allowed_hosts: Vec<String>,
    /// The file that keeps the page's history over a restart, if any.
    pub history_file: Option<PathBuf>,
}

/// The section as it is written in the file.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct MetricsSection {
    listen: Option<Spanned<String>>,
    allowed_hosts: Option<Spanned<Vec<Spanned<String>>>>,
    history_file: Option<Spanned<PathBuf>>,
}

impl Metrics {
    /// Checks the section; returns `None` if it has no valid listener.
    pub(super) fn check(text: MetricsSection, c: &mut Checker<'_>) -> Option<Self> {
        let names = text.allowed_hosts.iter().flat_map(|names| names.get_ref());
        for name in names.filter(|name| !is_host_name(name.get_ref())) {
            let what = format!(
                "{:?} is not a host name without a port, such as gate-1.example.net (IP addresses \
                 are always allowed)",
                name.get_ref()
            );
            c.problem(name, "metrics.allowed_hosts", what);
        }
        if let Some(file) = &text.history_file {
            c.absolute_path(file, "metrics.history_file");
        }
        let Some(listen) = text.listen else {
            let what = "metrics.listen is required with this key";
            if let Some(hosts) = &text.allowed_hosts {
                c.problem(hosts, "metrics.allowed_hosts", what);
            }
            if let Some(file) = &text.history_file {
                c.problem(file, "metrics.history_file", what);
            }
            return None;
        };
        let form = "an address and a port, such as 127.0.0.1:9273";
        let listen = c.read(&listen, "metrics.listen", form)?;
        let hosts = text.allowed_hosts.map_or(Vec::new(), Spanned::into_inner);
        let hosts = hosts.into_iter().map(Spanned::into_inner).collect();
        Some(Self {
            listen,
            allowed_hosts: hosts,
            history_file: text.history_file.map(Spanned::into_inner),
        })
    }
}

/// Returns whether a text is a valid host name: no port, no address, no other part of a URL.
pub fn is_host_name(text: &str) -> bool {
    let label = |label: &str| {
        let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
        !label.is_empty() && label.len() <= 63 && label.bytes().all(is_allowed)
    };
    let text = text.strip_suffix('.').unwrap_or(text);
    text.len() <= 253 && text.split('.').all(label) && text.parse::<IpAddr>().is_err()
}

#[cfg(test)]
mod tests {
    use super::super::ConfigError;
    use super::*;

    #[test]
    fn every_problem_is_reported_with_its_line() {
        let check = |text: &str| {
            let mut c = Checker::new(text);
            let metrics = Metrics::check(toml::from_str(text).unwrap(), &mut c);
            let error = c.finish("".as_ref()).err();
            let problems = match error {
                Some(ConfigError::Invalid { problems, .. }) => problems,
                _ => Vec::new(),
            };
            (metrics, problems)
        };
        assert_eq!(check(""), (None, Vec::new()));
        let (metrics, problems) = check("listen = \"127.0.0.1:1\"\nallowed_hosts = [\"gate\"]");
        assert_eq!(metrics.map(|m| m.allowed_hosts), Some(vec!["gate".to_owned()]));
        assert!(problems.is_empty());
        let (metrics, problems) =
            check("listen = \"here\"\nallowed_hosts = [\"gate:80\",\n \"10.0.0.1\"]");
        let found: Vec<_> = problems.iter().map(|problem| (problem.line, problem.key)).collect();
        let expect =
            [(1, "metrics.listen"), (2, "metrics.allowed_hosts"), (3, "metrics.allowed_hosts")];
        assert!(metrics.is_none() && found == expect, "{problems:?}");
        assert_eq!(check("allowed_hosts = [\"gate\"]").1.len(), 1, "no listener");
        assert_eq!(check("history_file = \"history\"").1.len(), 2, "no listener, relative path");
    }
}
