//! The section `[block]`: lists of sources whose packets the router drops, whatever their destination.
//!
//! ```toml
//! [block]
//! lists = ["firehol.netset", "https://lists.example/drop.txt"]   # files or folders beside this file, or absolute; URLs
//! allow = ["office.txt"]             # lists of sources that pass, whatever other lists contain them
//! crowdsec = "http://127.0.0.1:8080" # the decisions of a CrowdSec engine
//! crowdsec_key = "/etc/fingerpost/crowdsec.key"
//! flowspec = "65001@127.0.0.1:1179"  # the sources that BGP flow specifications of sessions there discard
//! flowspec_peers = ["192.0.2.7"]     # other hosts that may connect for them; default: none
//! tables = [100]                     # the prefixes of the routes in these tables of the kernel
//! bans = "/var/lib/fingerpost/bans"  # the prefixes that `fingerpost ban` and `unban` change
//! cache = "/var/cache/fingerpost"    # what URLs, CrowdSec and tables have sent, for the next start
//! poll = "1h"                        # the time between two requests to URLs and CrowdSec; default: 1h and 10s
//! observe = false                    # count the packets of the lists, and drop none
//! interfaces = ["eth0"]              # those whose packets are examined; default: all
//!
//! [[block.pair]]                     # a list for the packets to these destinations
//! list = "bad.netset"
//! to = ["192.0.2.0/24"]
//! action = "drop"                    # or "pass": with the lists of `allow`
//! ```
//!
//! The lists have the order of `fingerpost block`: those of `allow`, the bans, `lists`, CrowdSec, flow specifications,
//! tables.
//!
//! A gate has the same keys but `interfaces`: its lists are in front of the gate's front interface, and the sources that
//! its policy allows are an allow list before them.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use blocklist::feed::{crowdsec, http};
use blocklist::{ListConfig, Source};
use feed::AnyPrefix;
use serde::Deserialize;
use toml::Spanned;
use xdp::ListAction;

use super::checker::Checker;
use super::flowspec::FlowspecSpeaker;
use super::peers::remote;
use super::{Interface, TimeSpan};

/// The folder of what lists from outside have sent.
const CACHE: &str = "/var/cache/fingerpost";

/// The block lists of the configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlockConfig {
    /// The lists, without `allowed`.
    pub lists: Vec<ListConfig>,
    /// The sources that a gate's policy allows, which come before all lists.
    pub allowed: Option<Arc<[AnyPrefix]>>,
    /// The names of the interfaces whose packets are examined; none: all.
    pub interfaces: Vec<String>,
    /// The folder of what lists from outside have sent.
    pub cache: PathBuf,
    /// The packets of the lists are counted, and none is dropped.
    pub observe: bool,
}

impl BlockConfig {
    /// Returns whether a list has the sources of BGP flow specifications.
    pub fn has_flowspec(&self) -> bool {
        self.lists.iter().any(|list| matches!(list.source, Source::Flowspec(_)))
    }

    /// Checks a gate's section of the file `path`: its lists, for the interface `front`, after those that its policy
    /// allows, of which there are none yet.
    pub fn check_gate(
        c: &mut Checker<'_>,
        section: Spanned<BlockSection>,
        path: &Path,
        front: &str,
    ) -> Self {
        if let Some(name) = section.get_ref().interfaces.first() {
            let what = "not available on a gate, whose lists are in front of its front interface: remove it";
            c.problem(name, "block.interfaces", what);
        }
        let lists = check_lists(c, section, path, Some(Arc::default()));
        Self { interfaces: vec![front.to_owned()], ..lists }
    }

    /// Returns all lists.
    pub fn all_lists(&self) -> Vec<ListConfig> {
        let policy = self
            .allowed
            .iter()
            .map(|allowed| ListConfig::new(ListAction::Pass, Source::Policy(Arc::clone(allowed))));
        policy.chain(self.lists.iter().cloned()).collect()
    }

    /// Returns whether another configuration differs at most in the sources that a gate's policy allows.
    pub fn has_same_lists(&self, other: &Self) -> bool {
        *self == Self { allowed: self.allowed.clone(), ..other.clone() }
    }
}

/// `[block]` as it is written in the file.
#[derive(Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct BlockSection {
    /// Of a gate alone, as `file`.
    prefixes: Vec<Spanned<String>>,
    file: Option<Spanned<PathBuf>>,
    lists: Vec<Spanned<String>>,
    allow: Vec<Spanned<String>>,
    crowdsec: Option<Spanned<String>>,
    crowdsec_key: Option<Spanned<PathBuf>>,
    flowspec: Option<Spanned<String>>,
    flowspec_peers: Vec<Spanned<String>>,
    tables: Vec<Spanned<u32>>,
    bans: Option<Spanned<PathBuf>>,
    cache: Option<Spanned<PathBuf>>,
    poll: Option<Spanned<TimeSpan>>,
    observe: bool,
    /// Of a router alone.
    interfaces: Vec<Spanned<String>>,
    pair: Vec<PairSection>,
}

/// `[[block.pair]]` as it is written in the file.
#[derive(Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
struct PairSection {
    list: Spanned<String>,
    to: Spanned<Vec<Spanned<String>>>,
    action: Option<Spanned<String>>,
}

impl BlockSection {
    /// Removes and returns the blocked sources of a gate's policy: prefixes, and the name of a file.
    pub fn take_policy(&mut self) -> (Vec<Spanned<String>>, Option<Spanned<PathBuf>>) {
        (std::mem::take(&mut self.prefixes), self.file.take())
    }

    /// Returns whether no key is stated.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// Checks a router's section of the file `path`.
pub(super) fn check(
    c: &mut Checker<'_>,
    section: Spanned<BlockSection>,
    path: &Path,
    interfaces: &[Interface],
) -> BlockConfig {
    for name in &section.get_ref().interfaces {
        if !interfaces.iter().any(|interface| interface.name == *name.get_ref()) {
            let what = format!("no [[interface]] is named {:?}", name.get_ref());
            c.problem(name, "block.interfaces", what);
        }
    }
    let what = "not available on a router: name a file in `lists`";
    if let Some(prefix) = section.get_ref().prefixes.first() {
        c.problem(prefix, "block.prefixes", what);
    }
    if let Some(file) = &section.get_ref().file {
        c.problem(file, "block.file", what);
    }
    check_lists(c, section, path, None)
}

/// Checks the keys that all roles have.
fn check_lists(
    c: &mut Checker<'_>,
    section: Spanned<BlockSection>,
    path: &Path,
    allowed: Option<Arc<[AnyPrefix]>>,
) -> BlockConfig {
    let line = c.line(&section);
    let BlockSection {
        prefixes: _,
        file: _,
        lists: drops,
        allow,
        crowdsec,
        crowdsec_key,
        flowspec,
        flowspec_peers,
        tables,
        bans,
        cache,
        poll,
        observe,
        interfaces,
        pair,
    } = section.into_inner();
    let range = TimeSpan::seconds(1)..=TimeSpan::seconds(7 * 24 * 3600);
    let is_stated = poll.is_some();
    let stated = TimeSpan::within(c, poll, "block.poll", TimeSpan::seconds(1), range);
    let interval = |default: Duration| if is_stated { stated } else { default };
    let folder = path.parent().unwrap_or(Path::new(""));
    let mut lists = Vec::new();
    for (texts, key, action) in
        [(&allow, "block.allow", ListAction::Pass), (&drops, "block.lists", ListAction::Drop)]
    {
        for text in texts {
            match Source::parse(text.get_ref(), folder, interval(http::DEFAULT_INTERVAL)) {
                Ok(source) => lists.push(ListConfig::new(action, source)),
                Err(error) => c.problem(text, key, error.to_string()),
            }
        }
    }
    for PairSection { list, to, action } in pair {
        let actions = [("drop", ListAction::Drop), ("pass", ListAction::Pass)];
        let action =
            c.choice(action.as_ref(), "block.pair.action", &actions).unwrap_or(ListAction::Drop);
        if to.get_ref().is_empty() {
            c.problem(&to, "block.pair.to", "no destination: name prefixes, or use `lists`");
        }
        let mut destinations = Vec::new();
        for text in to.get_ref() {
            match blocklist::parse_prefix(text.get_ref()) {
                Ok(prefix) => destinations.push(prefix),
                Err(error) => c.problem(text, "block.pair.to", error),
            }
        }
        match Source::parse(list.get_ref(), folder, interval(http::DEFAULT_INTERVAL)) {
            Ok(source) => lists.push(ListConfig { action, source, to: destinations }),
            Err(error) => c.problem(&list, "block.pair.list", error.to_string()),
        }
    }
    let mut drop = |source| lists.push(ListConfig::new(ListAction::Drop, source));
    match (crowdsec, crowdsec_key) {
        (Some(url), Some(key_file)) => {
            c.absolute_path(&key_file, "block.crowdsec_key");
            let interval = interval(crowdsec::DEFAULT_INTERVAL);
            match url.get_ref().parse() {
                Ok(url) => {
                    drop(Source::Crowdsec { url, key_file: key_file.into_inner(), interval });
                }
                Err(error) => {
                    let error: blocklist::UrlError = error;
                    c.problem(&url, "block.crowdsec", error.to_string());
                }
            }
        }
        (Some(url), None) => {
            c.problem(&url, "block.crowdsec", "needs `crowdsec_key`, the file of the key");
        }
        (None, Some(key)) => {
            c.problem(&key, "block.crowdsec_key", "has no effect without `crowdsec`");
        }
        (None, None) => {}
    }
    let remote = flowspec_peers.iter().filter_map(|peer| remote(c, peer, "block.flowspec_peers"));
    let remote: Vec<_> = remote.collect();
    match (&flowspec, flowspec_peers.first()) {
        (Some(text), _) => match text.get_ref().parse::<FlowspecSpeaker>() {
            Ok(speaker) => drop(Source::Flowspec(speaker.options(remote))),
            Err(error) => c.problem(text, "block.flowspec", error),
        },
        (None, Some(peer)) => {
            c.problem(peer, "block.flowspec_peers", "has no effect without `flowspec`");
        }
        (None, None) => {}
    }
    for table in &tables {
        match table.get_ref() {
            0 => c.problem(table, "block.tables", "the kernel has no table 0: from 1"),
            &number => drop(Source::Table(number)),
        }
    }
    if let Some(bans) = bans {
        c.absolute_path(&bans, "block.bans");
        drop(Source::Bans(bans.into_inner()));
    }
    if let Some(cache) = &cache {
        c.absolute_path(cache, "block.cache");
    }
    let cache = cache.map_or_else(|| CACHE.into(), Spanned::into_inner);
    let interfaces = interfaces.into_iter().map(Spanned::into_inner).collect();
    let config = BlockConfig { lists, allowed, interfaces, cache, observe };
    if c.is_valid() {
        if let Some(what) = blocklist::check(&config.all_lists()).err() {
            c.problem_at_line(line, "block", what.to_string());
        } else if config.lists.iter().all(|list| list.action == ListAction::Pass) {
            let what = "no list of sources to drop: set `lists`, `pair`, `crowdsec`, `flowspec`, `tables` or `bans`, or remove the section";
            c.problem_at_line(line, "block", what);
        }
    }
    config
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Config;

    fn parse(section: &str) -> Result<Option<BlockConfig>, String> {
        let text = format!("[[interface]]\nname = 'a'\n[block]\n{section}\n");
        let config = Config::parse(&text, Path::new("/etc/fingerpost/run.toml"));
        config.map(|config| config.block).map_err(|error| error.to_string())
    }

    #[test]
    fn lists_have_their_sources_and_intervals() {
        let section = "lists = ['a', '/b', 'https://lists.example/c']\nallow = ['d']\n\
                       crowdsec = 'http://127.0.0.1:8080'\ncrowdsec_key = '/key'\ntables = [100]\n\
                       flowspec = '65001@10.0.0.1:1179'\nflowspec_peers = ['192.0.2.0/24']\nbans = '/bans'\nobserve = true";
        let block = parse(section).unwrap().unwrap();
        let names: Vec<String> = block.lists.iter().map(|list| list.source.to_string()).collect();
        let wanted = [
            "/etc/fingerpost/d",
            "/etc/fingerpost/a",
            "/b",
            "https://lists.example/c",
            "crowdsec http://127.0.0.1:8080/",
            "flowspec 10.0.0.1:1179",
            "table 100",
            "/bans",
        ];
        assert_eq!(names, wanted);
        let pairs = "[[block.pair]]\nlist = 'a'\nto = ['192.0.2.0/24', '2001:db8::1']\n\
                     [[block.pair]]\nlist = 'a'\nto = ['::/0']\naction = 'pass'";
        let names: Vec<String> =
            parse(pairs).unwrap().unwrap().lists.iter().map(ToString::to_string).collect();
        let list = "/etc/fingerpost/a to";
        let wanted = [format!("{list} 192.0.2.0/24,2001:db8::1/128"), format!("{list} ::/0")];
        assert_eq!(names, wanted);
        let speaker = block.lists.iter().find_map(|list| match &list.source {
            Source::Flowspec(options) => Some(options),
            _ => None,
        });
        let speaker = speaker.unwrap();
        assert_eq!((speaker.own_as, speaker.peer_as, speaker.hold_time), (65001, 65001, 90));
        assert_eq!(
            (speaker.router_id.to_string().as_str(), speaker.peers.remote.len()),
            ("10.0.0.1", 1)
        );
        assert!(block.interfaces.is_empty() && block.allowed.is_none());
        let some = parse("bans = '/bans'\ninterfaces = ['a']").unwrap().unwrap();
        assert_eq!(some.interfaces, ["a"]);
        let passes = |list: &&ListConfig| list.action == ListAction::Pass;
        assert_eq!(block.lists.iter().filter(passes).count(), 1);
        assert!(block.observe && block.cache == Path::new(CACHE));
        let interval = |section: &str| match &parse(section).unwrap().unwrap().lists[0].source {
            Source::Url(_, interval) | Source::Crowdsec { interval, .. } => interval.as_secs(),
            source => panic!("{source}"),
        };
        let crowdsec = "crowdsec = 'http://x'\ncrowdsec_key = '/k'";
        assert_eq!(interval("lists = ['http://x/y']"), 3600);
        assert_eq!(interval(crowdsec), 10);
        assert_eq!(interval(&format!("{crowdsec}\npoll = '30s'")), 30);
    }

    #[test]
    fn bad_section_is_refused_with_its_line_and_remedy() {
        for (section, what) in [
            ("", "3: block: no list of sources to drop"),
            ("allow = ['a']", "3: block: no list of sources to drop"),
            ("lists = ['a', 'a']", "3: block: /etc/fingerpost/a: the list is given twice"),
            ("lists = ['http://']", "4: block.lists: "),
            ("crowdsec = 'http://x'", "4: block.crowdsec: needs `crowdsec_key`"),
            ("lists = ['a']\ncrowdsec_key = '/k'", "5: block.crowdsec_key: has no effect"),
            ("flowspec = '127.0.0.1:1179'", "4: block.flowspec: an AS and an address are needed"),
            ("flowspec = '0@127.0.0.1:1179'", "4: block.flowspec: an AS and an address are needed"),
            ("lists = ['a']\nflowspec_peers = ['::1']", "5: block.flowspec_peers: has no effect"),
            ("tables = [0]", "4: block.tables: the kernel has no table 0"),
            ("bans = 'b'", "4: block.bans: \"b\" must be an absolute path"),
            ("lists = ['a']\npoll = '0s'", "5: block.poll: 0s is out of range: from 1s to 7days"),
            ("lists = ['a']\nlist = 1", "unknown field `list`"),
            ("prefixes = ['192.0.2.0/24']", "4: block.prefixes: not available on a router"),
            ("file = 'a'", "4: block.file: not available on a router: name a file in `lists`"),
            ("lists = ['a']\ninterfaces = ['b']", "5: block.interfaces: no [[interface]] is named"),
            ("[[block.pair]]\nlist = 'a'\nto = []", "6: block.pair.to: no destination"),
            (
                "[[block.pair]]\nlist = 'a'\nto = ['192.0.2.1/24']",
                "6: block.pair.to: prefix \"192.0.2.1/24\" has host bits set; did you mean 192.0.2.0/24?",
            ),
            ("[[block.pair]]\nlist = 'a'\nto = ['::/0']\naction = 'x'", "7: block.pair.action: "),
        ] {
            let error = parse(section).unwrap_err();
            assert!(error.contains(what), "{section}: {error}");
        }
    }
}
