//! The check of a file's values: it reads them and collects the problems, with their lines.
//!
//! ```text
//!   text ─► serde: keys and types ─► Checker: values ─► finish ─► ConfigError, with all problems
//! ```
//!
//! The router, the gate, the grantor and the bundles check their files with a [`Checker`], so that
//! equal mistakes have equal messages. A check continues after a problem, so that the report has
//! all problems of the file. A value that cannot be read is replaced by one that raises no further
//! problem; it is never used, because [`Checker::finish`] returns an error.

use std::fmt::Display;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use datapath::ReversePathFilter;
use port::af_xdp::{ModeChoice, Rss};
use toml::Spanned;

use super::{ConfigError, Problem, place};

/// The receive modes of an interface, by name.
const MODES: [(&str, ModeChoice); 4] = [
    ("auto", ModeChoice::Auto),
    ("zero-copy", ModeChoice::ZeroCopy),
    ("copy", ModeChoice::Copy),
    ("generic", ModeChoice::Generic),
];
/// The same for a router, whose steering program may forward packets itself.
const ROUTER_MODES: [(&str, ModeChoice); 5] =
    [MODES[0], MODES[1], MODES[2], MODES[3], ("xdp", ModeChoice::Xdp)];

const RSS: [(&str, Rss); 2] = [("symmetric", Rss::Symmetric), ("addresses", Rss::Addresses)];

/// The text of a file, and the problems found in it.
#[derive(Debug)]
pub struct Checker<'t> {
    text: &'t str,
    problems: Vec<Problem>,
}

impl<'t> Checker<'t> {
    /// Begins a check of this text.
    pub fn new(text: &'t str) -> Self {
        Self { text, problems: Vec::new() }
    }

    /// Adds a problem of the value at `at`.
    pub fn problem<T>(&mut self, at: &Spanned<T>, key: &'static str, what: impl Into<String>) {
        self.problem_at_line(self.line(at), key, what);
    }

    /// Adds a problem at a line, from 1.
    pub fn problem_at_line(&mut self, line: usize, key: &'static str, what: impl Into<String>) {
        self.problems.push(Problem { line, key, what: what.into() });
    }

    /// Returns the line of a value.
    pub fn line<T>(&self, at: &Spanned<T>) -> usize {
        place(self.text, at.span().start).0
    }

    /// Returns whether no problem was found so far.
    pub fn is_valid(&self) -> bool {
        self.problems.is_empty()
    }

    /// Ends the check of the file `path`, or a part of it.
    ///
    /// # Errors
    ///
    /// [`ConfigError::Invalid`] with the problems, in the order of their lines, if there is one.
    pub fn finish(&mut self, path: &Path) -> Result<(), ConfigError> {
        if self.problems.is_empty() {
            return Ok(());
        }
        let mut problems = std::mem::take(&mut self.problems);
        problems.sort_by_key(|problem| problem.line);
        Err(ConfigError::Invalid { path: path.into(), problems })
    }

    /// Parses a value such as an address; `form` describes what it should be.
    pub fn read<T: FromStr>(
        &mut self,
        at: &Spanned<String>,
        key: &'static str,
        form: &str,
    ) -> Option<T> {
        let read = at.get_ref().parse().ok();
        if read.is_none() {
            self.problem(at, key, format!("{:?} is not {form}", at.get_ref()));
        }
        read
    }

    /// Parses a list of IP addresses.
    pub fn addresses(&mut self, listed: &[Spanned<String>], key: &'static str) -> Vec<IpAddr> {
        listed.iter().filter_map(|at| self.read(at, key, "an IP address")).collect()
    }

    /// Reads one of several words; without a value, or with an unknown word, the result is `None`.
    pub fn choice<T: Copy>(
        &mut self,
        value: Option<&Spanned<String>>,
        key: &'static str,
        choices: &[(&str, T)],
    ) -> Option<T> {
        let value = value?;
        let found = choices.iter().find(|(name, _)| name == value.get_ref());
        if found.is_none() {
            let names: Vec<_> = choices.iter().map(|(name, _)| *name).collect();
            let names = match &names[..] {
                [all @ .., last] if !all.is_empty() => format!("{} or {last}", all.join(", ")),
                all => all.join(", "),
            };
            self.problem(value, key, format!("{:?} is unknown: {names}", value.get_ref()));
        }
        found.map(|(_, choice)| *choice)
    }

    /// Reads the receive mode of an interface.
    pub fn mode(&mut self, value: Option<&Spanned<String>>, key: &'static str) -> ModeChoice {
        self.choice(value, key, &MODES).unwrap_or(ModeChoice::Auto)
    }

    /// Reads the receive mode of an interface of a router.
    pub fn router_mode(
        &mut self,
        value: Option<&Spanned<String>>,
        key: &'static str,
    ) -> ModeChoice {
        self.choice(value, key, &ROUTER_MODES).unwrap_or(ModeChoice::Auto)
    }

    /// Reads the RSS of an interface; `None`, the default, leaves it as it is.
    pub fn rss(&mut self, value: Option<&Spanned<String>>, key: &'static str) -> Option<Rss> {
        self.choice(value, key, &RSS)
    }

    /// Reads the reverse path filter of an interface; `None`, the default, is that of the kernel.
    pub fn filter_or_kernel(
        &mut self,
        value: Option<&Spanned<String>>,
        key: &'static str,
    ) -> Option<ReversePathFilter> {
        let named = ReversePathFilter::ALL.map(|filter| (filter.name(), Some(filter)));
        let choices: Vec<_> = [("kernel", None)].into_iter().chain(named).collect();
        self.choice(value, key, &choices).unwrap_or(None)
    }

    /// Reads the reverse path filter of an interface.
    pub fn reverse_path_filter(
        &mut self,
        value: Option<&Spanned<String>>,
        key: &'static str,
    ) -> ReversePathFilter {
        let named = ReversePathFilter::ALL.map(|filter| (filter.name(), filter));
        self.choice(value, key, &named).unwrap_or(ReversePathFilter::Off)
    }

    /// Checks the name of an interface.
    pub fn interface_name(&mut self, name: &Spanned<String>, key: &'static str) {
        // IFNAMSIZ is 16 with the zero at the end.
        if name.get_ref().is_empty() || name.get_ref().len() > 15 {
            let what = format!("{:?} is not an interface name: from 1 to 15 bytes", name.get_ref());
            self.problem(name, key, what);
        }
    }

    /// Checks that a path does not depend on the folder in which the program was started.
    pub fn absolute_path(&mut self, path: &Spanned<PathBuf>, key: &'static str) {
        if !path.get_ref().is_absolute() {
            self.problem(path, key, format!("{:?} must be an absolute path", path.get_ref()));
        }
    }

    /// Reads a number from `least` to `most`; without a value the result is `default`.
    pub fn number<T: Copy + PartialOrd + Display>(
        &mut self,
        value: Option<Spanned<T>>,
        key: &'static str,
        default: T,
        (least, most): (T, T),
    ) -> T {
        let Some(value) = value else { return default };
        let number = *value.get_ref();
        if !(least..=most).contains(&number) {
            self.problem(&value, key, format!("{number} is out of range: from {least} to {most}"));
            return default;
        }
        number
    }

    /// Reads a rate in bits a second, at most 800 Gb/s, with the units of tc(8); the result of an
    /// error is 1.
    pub fn bandwidth(&mut self, at: &Spanned<String>, key: &'static str) -> u64 {
        let text = at.get_ref();
        bandwidth(text).unwrap_or_else(|| {
            let what = format!(
                "{text:?} is not a rate: write for example 100mbit or 2.5gbit, at most 800gbit"
            );
            self.problem(at, key, what);
            1
        })
    }

    /// Reads the UDP port of tunnels.
    pub fn tunnel_port(&mut self, port: Option<Spanned<u16>>) -> Option<u16> {
        let port = port?;
        if *port.get_ref() == 0 {
            let what = "0 is not a port: the standard port of GUE is 6080";
            self.problem(&port, "tunnel.udp_port", what);
        }
        Some(port.into_inner())
    }
}

/// Reads a rate in bits a second.
fn bandwidth(text: &str) -> Option<u64> {
    let text = text.trim().to_ascii_lowercase();
    let units = [("gbit", 1e9), ("mbit", 1e6), ("kbit", 1e3), ("bit", 1.0)];
    let (number, unit) =
        units.iter().find_map(|(name, unit)| Some((text.strip_suffix(name)?, unit)))?;
    let bits = number.trim().parse::<f64>().ok()? * unit;
    (1.0..=800e9).contains(&bits).then_some(bits as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_have_the_units_of_tc() {
        for (text, bits) in
            [("1gbit", 1_000_000_000), ("100Mbit", 100_000_000), ("64 kbit", 64_000)]
        {
            assert_eq!(bandwidth(text), Some(bits), "{text}");
        }
        for text in ["", "1", "gbit", "-1mbit", "1e99gbit", "nanbit", "0bit"] {
            assert_eq!(bandwidth(text), None, "{text}");
        }
    }

    #[derive(serde::Deserialize)]
    struct File {
        mode: Spanned<String>,
        size: Spanned<usize>,
        path: Spanned<PathBuf>,
    }

    #[test]
    fn problems_have_line_key_value_and_remedy() {
        let text = "size = 9\npath = 'x'\nmode = 'fast'\n";
        let File { mode, size, path } = toml::from_str(text).unwrap();
        let mut c = Checker::new(text);
        assert_eq!(c.mode(Some(&mode), "mode"), ModeChoice::Auto);
        assert_eq!(c.number(Some(size), "size", 3, (1, 8)), 3);
        c.absolute_path(&path, "path");
        assert!(!c.is_valid());
        assert_eq!(
            c.finish(Path::new("f.toml")).unwrap_err().to_string(),
            "f.toml:1: size: 9 is out of range: from 1 to 8\n\
             f.toml:2: path: \"x\" must be an absolute path\n\
             f.toml:3: mode: \"fast\" is unknown: auto, zero-copy, copy or generic"
        );
        assert!(c.finish(Path::new("f.toml")).is_ok(), "problems are reported once");
    }
}
