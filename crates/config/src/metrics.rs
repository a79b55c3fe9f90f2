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

/// Receives a problem: its offset in the text, its key and its description.
pub type ProblemSink<'a> = &'a mut dyn FnMut(usize, &'static str, String);

impl Metrics {
    /// Checks the section; returns `None` if it has no valid listener.
    pub fn check(text: MetricsSection, problem: ProblemSink<'_>) -> Option<Self> {
        let names = text.allowed_hosts.iter().flat_map(|names| names.get_ref());
        for name in names.filter(|name| !is_host_name(name.get_ref())) {
            let what = format!(
                "{:?} is not a host name without a port, such as gate-1.example.net (IP addresses \
                 are always allowed)",
                name.get_ref()
            );
            problem(name.span().start, "metrics.allowed_hosts", what);
        }
        if let Some(file) = text.history_file.as_ref().filter(|file| !file.get_ref().is_absolute())
        {
            let what = format!("{:?} must be an absolute path", file.get_ref());
            problem(file.span().start, "metrics.history_file", what);
        }
        let Some(listen) = text.listen else {
            let hosts = text.allowed_hosts.map(|v| (v.span().start, "metrics.allowed_hosts"));
            let keep = text.history_file.map(|v| (v.span().start, "metrics.history_file"));
            for (at, key) in [hosts, keep].into_iter().flatten() {
                problem(at, key, "metrics.listen is required with this key".to_owned());
            }
            return None;
        };
        let Ok(at) = listen.get_ref().parse() else {
            let what = format!(
                "{:?} is not an address and a port, such as 127.0.0.1:9273",
                listen.get_ref()
            );
            problem(listen.span().start, "metrics.listen", what);
            return None;
        };
        let hosts = text.allowed_hosts.map_or(Vec::new(), Spanned::into_inner);
        let hosts = hosts.into_iter().map(Spanned::into_inner).collect();
        Some(Self {
            listen: at,
            allowed_hosts: hosts,
            history_file: text.history_file.map(Spanned::into_inner),
        })
    }
}

/// Returns whether a text is a valid host name: no port, no address, no other part of a URL.
pub fn is_host_name(text: &str) -> bool {
    let label = |label: &str| {
        let sound = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
        !label.is_empty() && label.len() <= 63 && label.bytes().all(sound)
    };
    let text = text.strip_suffix('.').unwrap_or(text);
    text.len() <= 253 && text.split('.').all(label) && text.parse::<IpAddr>().is_err()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_problem_is_told_with_its_place() {
        let check = |text: &str| {
            let mut problems = Vec::new();
            let metrics = Metrics::check(toml::from_str(text).unwrap(), &mut |at, key, what| {
                problems.push((at, key, what));
            });
            (metrics, problems)
        };
        assert_eq!(check(""), (None, Vec::new()));
        let (metrics, problems) = check("listen = \"127.0.0.1:1\"\nallowed_hosts = [\"gate\"]");
        assert_eq!(metrics.map(|m| m.allowed_hosts), Some(vec!["gate".to_owned()]));
        assert!(problems.is_empty());
        let (metrics, problems) =
            check("listen = \"here\"\nallowed_hosts = [\"gate:80\", \"10.0.0.1\"]");
        let at: Vec<_> = problems.iter().map(|it| (it.0, it.1)).collect();
        let expect =
            [(33, "metrics.allowed_hosts"), (44, "metrics.allowed_hosts"), (9, "metrics.listen")];
        assert!(metrics.is_none() && at == expect, "{problems:?}");
        assert_eq!(check("allowed_hosts = [\"gate\"]").1.len(), 1, "nobody listens");
        assert_eq!(check("history_file = \"history\"").1.len(), 2, "nor is it known where that is");
    }
}
