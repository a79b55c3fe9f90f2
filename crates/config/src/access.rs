//! The sections `[[access_list]]` and `[[prefix_list]]`: stateless access lists, and the interfaces whose
//! packets they examine.
//!
//! ```toml
//! [[prefix_list]]
//! name = "bogons"                       # @bogons in rules
//! prefixes = ["10.0.0.0/8", "fc00::/7"]
//! file = "bogons.txt"                   # more of them, one a line
//!
//! [[access_list]]
//! name = "edge"
//! inbound = ["eth0", "eth0.100"]        # interfaces that packets arrive on
//! outbound = ["eth1"]                   # interfaces that packets leave by
//! default = "permit"                    # or "deny": packets that no rule ends
//! rules = ["deny from @bogons", "permit ipproto tcp dport 22,80-90"]
//! file = "edge.rules"                   # more of them, one a line, after those
//! ```
//!
//! The crate `acl` has the words of rules. Files are beside the configuration, or absolute; `#` begins a
//! comment. The interfaces are those of the kernel, such as VLAN devices and bonds; one that does not
//! exist yet gets its list when it does.

use std::path::{Path, PathBuf};

use acl::{AccessList, Addresses, MOST_RULES, Rule};
use serde::Deserialize;
use toml::Spanned;

use super::checker::Checker;
use super::flowspec::FLOWSPEC_LIST;

/// The longest name of a list.
const LONGEST_NAME: usize = 31;

/// An access list of the configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AccessListConfig {
    /// Its name.
    pub name: String,
    /// Whether packets that no rule ends pass.
    pub permits: bool,
    /// Its rules.
    pub rules: Vec<Rule>,
    /// The interfaces that packets arrive on.
    pub inbound: Vec<String>,
    /// The interfaces that packets leave by.
    pub outbound: Vec<String>,
}

/// `[[prefix_list]]` as it is written in the file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PrefixListSection {
    name: Spanned<String>,
    #[serde(default)]
    prefixes: Vec<Spanned<String>>,
    file: Option<Spanned<PathBuf>>,
}

/// `[[access_list]]` as it is written in the file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct AccessListSection {
    name: Spanned<String>,
    #[serde(default)]
    inbound: Vec<Spanned<String>>,
    #[serde(default)]
    outbound: Vec<Spanned<String>>,
    default: Spanned<String>,
    #[serde(default)]
    rules: Vec<Spanned<String>>,
    file: Option<Spanned<PathBuf>>,
}

/// Checks the sections of the file `path`.
pub(super) fn check(
    c: &mut Checker<'_>,
    prefix_lists: Vec<PrefixListSection>,
    access_lists: Vec<AccessListSection>,
    path: &Path,
) -> Vec<AccessListConfig> {
    let folder = path.parent().unwrap_or(Path::new(""));
    let mut named: Vec<(String, Addresses)> = Vec::new();
    for PrefixListSection { name, prefixes, file } in prefix_lists {
        list_name(c, &name, "prefix_list.name", named.iter().map(|(name, _)| &**name));
        let mut addresses = Addresses::default();
        for prefix in &prefixes {
            if let Err(what) = addresses.add(prefix.get_ref()) {
                c.problem(prefix, "prefix_list.prefixes", what);
            }
        }
        for (line, text) in lines(c, file.as_ref(), "prefix_list.file", folder) {
            if let Err(what) = addresses.add(&text) {
                problem_in(c, file.as_ref(), "prefix_list.file", line, &what);
            }
        }
        if addresses.is_empty() && c.is_valid() {
            c.problem(&name, "prefix_list", "there is no prefix: add `prefixes` or `file`");
        }
        named.push((name.into_inner(), addresses));
    }
    let find = |name: &str| named.iter().find(|(own, _)| own == name).map(|(_, list)| list);
    let mut lists: Vec<AccessListConfig> = Vec::new();
    for section in access_lists {
        let AccessListSection { name, inbound, outbound, default, rules: listed, file } = section;
        list_name(c, &name, "access_list.name", lists.iter().map(|list| &*list.name));
        if name.get_ref() == FLOWSPEC_LIST {
            let what = format!("{FLOWSPEC_LIST:?} is the list of BGP flow specifications");
            c.problem(&name, "access_list.name", what);
        }
        let choices = [("permit", true), ("deny", false)];
        let permits = c.choice(Some(&default), "access_list.default", &choices);
        let mut rules = Vec::new();
        for text in &listed {
            match Rule::parse(text.get_ref(), &find) {
                Ok(rule) => rules.push(rule),
                Err(error) => {
                    c.problem(text, "access_list.rules", format!("{:?}: {error}", text.get_ref()));
                }
            }
        }
        for (line, text) in lines(c, file.as_ref(), "access_list.file", folder) {
            match Rule::parse(&text, &find) {
                Ok(rule) => rules.push(rule),
                Err(error) => {
                    let what = format!("{text:?}: {error}");
                    problem_in(c, file.as_ref(), "access_list.file", line, &what);
                }
            }
        }
        if let Some(policer) = AccessList::conflicting_policer(&rules) {
            let what = format!(
                "the policer {policer:?} has different rates: give its rules one rate, or names of their own"
            );
            c.problem(&name, "access_list.rules", what);
        }
        if rules.len() > MOST_RULES {
            c.problem(&name, "access_list", format!("more than {MOST_RULES} rules"));
        }
        let taken = |other: &AccessListConfig| other.inbound.clone();
        let inbound = interfaces(c, inbound, "access_list.inbound", &lists, taken);
        let taken = |other: &AccessListConfig| other.outbound.clone();
        let outbound = interfaces(c, outbound, "access_list.outbound", &lists, taken);
        let (name, permits) = (name.into_inner(), permits.unwrap_or(true));
        lists.push(AccessListConfig { name, permits, rules, inbound, outbound });
    }
    lists
}

/// Checks the name of a list.
fn list_name<'n>(
    c: &mut Checker<'_>,
    name: &Spanned<String>,
    key: &'static str,
    mut others: impl Iterator<Item = &'n str>,
) {
    let text = name.get_ref();
    let is_word =
        |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '_' | '-' | '.');
    let is_valid = text.starts_with(|letter: char| letter.is_ascii_alphabetic())
        && text.chars().all(is_word)
        && text.len() <= LONGEST_NAME;
    if !is_valid {
        let what = format!(
            "{text:?} is not a name: a letter, then letters, digits, `_`, `-` and `.`, at most \
             {LONGEST_NAME} in all"
        );
        c.problem(name, key, what);
    }
    if others.any(|other| other == text) {
        c.problem(name, key, format!("{text:?} is a duplicate"));
    }
}

/// Checks the interfaces of a list in one direction, in which each has one list at most.
fn interfaces(
    c: &mut Checker<'_>,
    names: Vec<Spanned<String>>,
    key: &'static str,
    lists: &[AccessListConfig],
    taken: impl Fn(&AccessListConfig) -> Vec<String>,
) -> Vec<String> {
    let mut checked: Vec<String> = Vec::new();
    for name in names {
        c.interface_name(&name, key);
        let text = name.get_ref();
        if checked.contains(text) {
            c.problem(&name, key, format!("{text:?} is a duplicate"));
        }
        if let Some(other) = lists.iter().find(|list| taken(list).contains(text)) {
            let what = format!(
                "{text:?} has the list {:?} already: an interface has one in each direction",
                other.name
            );
            c.problem(&name, key, what);
        }
        checked.push(name.into_inner());
    }
    checked
}

/// Reads the lines of a file that are neither empty nor comments, with their numbers.
fn lines(
    c: &mut Checker<'_>,
    file: Option<&Spanned<PathBuf>>,
    key: &'static str,
    folder: &Path,
) -> Vec<(usize, String)> {
    let Some(file) = file else { return Vec::new() };
    let text = match std::fs::read_to_string(folder.join(file.get_ref())) {
        Ok(text) => text,
        Err(error) => {
            c.problem(file, key, format!("{} cannot be read: {error}", file.get_ref().display()));
            return Vec::new();
        }
    };
    let lines = text.lines().map(|line| line.split('#').next().unwrap_or_default().trim());
    let lines = (1..).zip(lines).filter(|(_, line)| !line.is_empty());
    lines.map(|(number, line)| (number, line.to_owned())).collect()
}

/// Adds a problem of a line of a file that the configuration names.
fn problem_in(
    c: &mut Checker<'_>,
    file: Option<&Spanned<PathBuf>>,
    key: &'static str,
    line: usize,
    what: &str,
) {
    if let Some(file) = file {
        c.problem(file, key, format!("{}:{line}: {what}", file.get_ref().display()));
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use crate::{Config, ConfigError};

    fn parse(lists: &str, folder: &Path) -> Result<Config, ConfigError> {
        let text = format!("[[interface]]\nname = 'eth0'\n{lists}");
        Config::parse(&text, &folder.join("run.toml"))
    }

    #[test]
    fn lists_have_the_rules_of_the_configuration_and_then_those_of_the_file() {
        let folder = std::env::temp_dir().join(format!("fingerpost-lists-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let rules = "# a comment\n\n  deny ipproto udp # chargen\n";
        std::fs::write(folder.join("edge.rules"), rules).unwrap();
        std::fs::write(folder.join("private.txt"), "10.0.0.0/8\nfc00::/7\n").unwrap();
        let text = "[[prefix_list]]\nname = 'private'\nprefixes = ['192.168.0.0/16']\n\
                    file = 'private.txt'\n\
                    [[access_list]]\nname = 'edge'\ninbound = ['eth0', 'eth0.7']\n\
                    default = 'deny'\nrules = ['permit from @private']\nfile = 'edge.rules'\n";
        let config = parse(text, &folder).unwrap();
        std::fs::write(folder.join("edge.rules"), "permit\ndrop\n").unwrap();
        std::fs::write(folder.join("private.txt"), "10.0.0.0/8\n10.0.0.1/8\n").unwrap();
        let error = parse(text, &folder).unwrap_err().to_string();
        std::fs::remove_dir_all(&folder).unwrap();
        let [list] = &config.access_lists[..] else { panic!("{:?}", config.access_lists) };
        let rules: Vec<_> = list.rules.iter().map(ToString::to_string).collect();
        assert_eq!(rules, ["permit from @private", "deny ipproto udp"]);
        let private = list.rules[0].from.as_ref().unwrap();
        assert_eq!((private.v4.len(), private.v6.len()), (2, 1));
        assert!(!list.permits && list.inbound == ["eth0", "eth0.7"] && list.outbound.is_empty());
        assert!(error.contains("run.toml:6: prefix_list.file: private.txt:2: "), "{error}");
        assert!(error.contains("did you mean 10.0.0.0/8?"), "{error}");
        assert!(error.contains(":12: access_list.file: edge.rules:2: \"drop\": "), "{error}");
    }

    #[test]
    fn bad_list_is_refused_with_its_line() {
        const LIST: &str = "[[access_list]]\nname = 'a'\ninbound = ['eth0']\ndefault = 'deny'\n";
        for (text, expected) in [
            ("[[access_list]]\nname = 'a'\n".to_owned(), "missing field `default`"),
            (LIST.replace("'deny'", "'drop'"), ":6: access_list.default: \"drop\" is unknown"),
            (LIST.replace("'a'", "'7a'"), ":4: access_list.name: \"7a\" is not a name"),
            (format!("{LIST}{LIST}"), ":8: access_list.name: \"a\" is a duplicate"),
            (
                format!("{LIST}{}", LIST.replace("'a'", "'b'")),
                ":9: access_list.inbound: \"eth0\" has the list \"a\" already",
            ),
            (
                format!("{LIST}rules = ['deny from @b']\n"),
                ":7: access_list.rules: \"deny from @b\"",
            ),
            (format!("{LIST}file = 'none.rules'\n"), "none.rules cannot be read"),
            (
                "[[prefix_list]]\nname = 'b'\n".to_owned(),
                ":4: prefix_list: there is no prefix: add `prefixes` or `file`",
            ),
        ] {
            let error = parse(&text, Path::new("/nowhere")).unwrap_err().to_string();
            assert!(error.contains(expected), "{text}: {error}");
        }
    }
}
