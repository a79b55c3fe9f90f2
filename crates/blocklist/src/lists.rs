//! All lists of a host, in the order of their priority, and their present state in a blocker.
//!
//! ```text
//!   turn: ends, changed files ─► protected addresses? ─► held, or applied ─► commit, all changes at once
//!   orders: ban, unban ─► protected addresses? ─► refused, or applied ─► commit
//! ```
//!
//! Allow lists come first, then the bans, then the other block lists, each in the order given; the first that
//! contains a source decides. Whether a content is held depends on the lists before it: an address that an allow list
//! contains is no reason.

use std::collections::HashSet;
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use api::BlockList;
use feed::AnyPrefix;
use jiff::{SignedDuration, Timestamp};
use xdp::block::BlockError;
use xdp::block::filter::Counts;
use xdp::{Blocker, ListAction};

use crate::bans::Bans;
use crate::config::{ListConfig, check};
use crate::feed::FeedThread;
use crate::lines::Content;
use crate::list::List;
use crate::protected::Protected;
use crate::watched::WatchedPrefixes;
use crate::{ListError, Source};

/// The time for which the protected addresses are not read again for another ban.
const PROTECTED_AGE: Duration = Duration::from_secs(1);

/// A list, and the thread that keeps its file up to date.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) kind: EntryKind,
    source: Source,
    pub(crate) feed: Option<FeedThread>,
}

/// A list that is read, or the one that orders change.
#[derive(Debug)]
pub(crate) enum EntryKind {
    Read(List),
    Bans(Bans),
}

/// The lists of a host.
#[derive(Debug)]
pub struct BlockLists {
    pub(crate) entries: Vec<Entry>,
    pub(crate) watched: WatchedPrefixes,
    /// The addresses that no ban may contain, and the time at which they were read.
    protected: Option<(Instant, Protected)>,
}

impl BlockLists {
    /// Opens the lists; the files of feeds are in the folder `cache`.
    ///
    /// # Errors
    ///
    /// Those of [`check`]; a file of bans or of a key that cannot be read.
    pub fn open(mut lists: Vec<ListConfig>, cache: &Path) -> Result<Self, ListError> {
        check(&lists)?;
        lists.sort_by_key(ListConfig::priority);
        let open = |config: ListConfig| {
            let place = config.source.place(cache)?;
            config.source.check()?;
            let kind = match &config.source {
                Source::Bans(file) => EntryKind::Bans(Bans::open(file.clone())?),
                _ => EntryKind::Read(List::new(&config, place)),
            };
            Ok(Entry { kind, source: config.source, feed: None })
        };
        let entries = lists.into_iter().map(open).collect::<Result<_, ListError>>()?;
        Ok(Self { entries, watched: WatchedPrefixes::default(), protected: None })
    }

    /// Creates the blocker of these lists. If packets are only counted, all lists let them pass.
    ///
    /// # Errors
    ///
    /// An error of the kernel.
    pub fn blocker(&self, observe: bool) -> Result<Blocker, BlockError> {
        let restricted = bits(self.entries.iter().map(|entry| !entry.to().is_empty()));
        Blocker::for_destinations(&self.actions(observe), restricted)
    }

    /// Returns the actions of the lists, in the order of priority; if packets are only counted, all of them pass.
    fn actions(&self, observe: bool) -> Vec<ListAction> {
        let action = |entry: &Entry| if observe { ListAction::Pass } else { entry.action() };
        self.entries.iter().map(action).collect()
    }

    /// Counts the prefixes of all lists.
    pub fn prefixes(&self) -> usize {
        self.entries.iter().flat_map(Entry::applied).sum()
    }

    /// Starts the threads of the feeds that have none, in the network namespace of the calling thread. Makes the folder of
    /// their files.
    ///
    /// # Errors
    ///
    /// A folder that cannot be made; a thread or a socket that the kernel refuses.
    pub fn start_feeds(&mut self) -> Result<(), ListError> {
        let mut files = HashSet::new();
        for entry in &mut self.entries {
            let EntryKind::Read(list) = &entry.kind else { continue };
            // Lists of one source, for several destinations, have one file.
            let is_first =
                |file: &&Path| entry.source.is_feed() && files.insert(file.to_path_buf());
            let Some(file) = list.path().filter(is_first) else { continue };
            if entry.feed.is_some() {
                continue;
            }
            if let Some(folder) = file.parent() {
                fs::create_dir_all(folder).map_err(|error| ListError::of(folder, error))?;
            }
            entry.feed = entry.source.start(file)?;
        }
        Ok(())
    }

    /// Takes over the threads of the feeds that both have, and ends the others of `former`: a new one may listen at the
    /// same address.
    pub fn take_feeds(&mut self, former: &mut Self) {
        for entry in &mut former.entries {
            let Some(feed) = entry.feed.take() else { continue };
            let is_same =
                |new: &&mut Entry| new.source == entry.source && new.path() == entry.path();
            if let Some(new) = self.entries.iter_mut().find(is_same) {
                new.feed = Some(feed);
            }
        }
    }

    /// Returns the lists whose content is held.
    pub fn held(&self) -> Vec<BlockList> {
        let all = self.status(&Counts::default());
        all.into_iter().filter(|list| list.held.is_some()).collect()
    }

    /// Reads all lists for the first time, and puts them into `blocker`, if there is one.
    ///
    /// # Errors
    ///
    /// A list that cannot be read.
    pub fn load(&mut self, mut blocker: Option<&mut Blocker>) -> Result<(), ListError> {
        let mut protected = Protected::of_this_host()?;
        for (number, entry) in self.entries.iter_mut().enumerate() {
            let content = match &mut entry.kind {
                EntryKind::Read(list) => list.read(&mut protected, false)?,
                EntryKind::Bans(bans) => {
                    // A host whose addresses have changed starts all the same.
                    Some(split(bans.prefixes().filter(|&prefix| is_harmless(prefix, &protected))))
                }
            };
            let Some(blocker) = &mut blocker else { continue };
            if let Some((v4, v6)) = content {
                blocker.replace(number, &v4, &v6);
            }
            if !entry.to().is_empty() {
                let (v4, v6) = split(entry.to().iter().copied());
                blocker.replace_destinations(number, &v4, &v6);
            }
        }
        Ok(())
    }

    /// Applies what has changed or ended, and commits. `accepts_all` applies lists however short they have become.
    /// Logs each list that cannot be read or committed.
    pub fn turn(&mut self, blocker: &mut Blocker, accepts_all: bool) {
        let mut changed = self.end(blocker);
        // A shorter allow list may be a reason to hold the lists after it.
        let has_changed = self.lists().any(|(_, list)| list.has_changed());
        let is_pending = |(_, list): (usize, &List)| list.allows() && list.is_pending();
        let all = accepts_all || has_changed && self.lists().any(is_pending);
        if all || has_changed {
            match Protected::of_this_host() {
                Ok(protected) => {
                    changed.extend(self.read(blocker, protected, all, accepts_all));
                }
                Err(error) => log::error!("{error}; the lists stay as they were"),
            }
        }
        if !changed.is_empty() && commit(blocker) {
            for number in changed {
                let entry = &self.entries[number];
                let prefixes: usize = entry.applied().iter().sum();
                log::info!(list = entry.name(), prefixes; "{}: {prefixes} prefixes", entry.name());
            }
        }
        self.watched.expire(blocker);
        self.save(false);
    }

    /// Replaces the sources that a gate's policy allows, and applies them as [`turn`](Self::turn) applies changes.
    ///
    /// # Errors
    ///
    /// A list after them would cut this host off: the former sources stay.
    pub fn set_allowed(
        &mut self,
        blocker: &mut Blocker,
        prefixes: &Arc<[AnyPrefix]>,
    ) -> Result<(), ListError> {
        let Some((number, former)) = self.give(prefixes) else { return Ok(()) };
        self.turn(blocker, false);
        let Some(reason) = self.entries[number].held() else { return Ok(()) };
        let error = ListError::new(format!("{}: {reason}", self.entries[number].name()));
        self.give(&former);
        self.turn(blocker, false);
        Err(error)
    }

    /// Gives the list of a gate's policy other prefixes; returns its number and the former ones, if there is one.
    fn give(&mut self, prefixes: &Arc<[AnyPrefix]>) -> Option<(usize, Arc<[AnyPrefix]>)> {
        self.entries.iter_mut().enumerate().find_map(|(number, entry)| match &mut entry.kind {
            EntryKind::Read(list) => Some((number, list.give(prefixes)?)),
            EntryKind::Bans(_) => None,
        })
    }

    /// Writes the file of bans, if it is time or the end.
    pub fn save(&mut self, at_end: bool) {
        if let Some((_, bans)) = self.bans() {
            bans.save(at_end);
        }
    }

    /// Bans a prefix, for `seconds` or without end, and commits. Returns a report.
    ///
    /// # Errors
    ///
    /// A prefix with a protected address; no list of bans; what the kernel refuses.
    pub(crate) fn ban(
        &mut self,
        blocker: &mut Blocker,
        prefix: AnyPrefix,
        seconds: Option<u64>,
    ) -> Result<String, String> {
        let mut protected = self.protected()?;
        let (v4, v6) = split([prefix]);
        protected.retain_unless(|lists| self.allowing() & lists != 0, blocker);
        if let Some(reason) = protected.reason(&v4, &v6) {
            return Err(format!("{reason}: a ban would cut this host off"));
        }
        let end = match seconds {
            None => None,
            Some(seconds) => {
                let span = i64::try_from(seconds).map(SignedDuration::from_secs);
                let end = span.ok().and_then(|span| Timestamp::now().checked_add(span).ok());
                Some(end.ok_or_else(|| format!("{seconds} s: the time is too long"))?)
            }
        };
        let (number, bans) = self.bans().ok_or_else(no_bans)?;
        bans.ban(prefix, end);
        set(blocker, number, prefix, true);
        if !commit(blocker) {
            return Err("the kernel refuses the table: the log has the reason".to_owned());
        }
        Ok(match end {
            Some(end) => format!("{prefix} is banned until {end}"),
            None => format!("{prefix} is banned"),
        })
    }

    /// Lifts the ban of a prefix, and commits. Returns a report.
    ///
    /// # Errors
    ///
    /// No such ban; no list of bans; what the kernel refuses.
    pub(crate) fn unban(
        &mut self,
        blocker: &mut Blocker,
        prefix: AnyPrefix,
    ) -> Result<String, String> {
        let (number, bans) = self.bans().ok_or_else(no_bans)?;
        if !bans.unban(prefix) {
            return Err(format!("{prefix} is not banned: `show blocked {prefix}` has its lists"));
        }
        set(blocker, number, prefix, false);
        match commit(blocker) {
            true => Ok(format!("{prefix} is banned no longer")),
            false => Err("the kernel refuses the table: the log has the reason".to_owned()),
        }
    }

    /// Returns what no ban may contain. With many connections, reading that takes long.
    fn protected(&mut self) -> Result<Protected, String> {
        if let Some((at, protected)) = &self.protected
            && at.elapsed() < PROTECTED_AGE
        {
            return Ok(protected.clone());
        }
        let protected = Protected::of_this_host().map_err(|error| error.to_string())?;
        self.protected = Some((Instant::now(), protected.clone()));
        Ok(protected)
    }

    fn lists(&self) -> impl Iterator<Item = (usize, &List)> {
        self.entries.iter().enumerate().filter_map(|(number, entry)| match &entry.kind {
            EntryKind::Read(list) => Some((number, list)),
            EntryKind::Bans(_) => None,
        })
    }

    fn bans(&mut self) -> Option<(usize, &mut Bans)> {
        self.entries.iter_mut().enumerate().find_map(|(number, entry)| match &mut entry.kind {
            EntryKind::Bans(bans) => Some((number, bans)),
            EntryKind::Read(_) => None,
        })
    }

    /// Returns the allow lists for all destinations, a bit for each.
    fn allowing(&self) -> u32 {
        let allows = |entry: &Entry| entry.action() == ListAction::Pass && entry.to().is_empty();
        bits(self.entries.iter().map(allows))
    }

    /// Removes the prefixes that have ended, and returns the lists that have changed.
    fn end(&mut self, blocker: &mut Blocker) -> Vec<usize> {
        let now = Timestamp::now();
        let mut changed = Vec::new();
        for (number, entry) in self.entries.iter_mut().enumerate() {
            let ended: Vec<AnyPrefix> = match &mut entry.kind {
                EntryKind::Read(list) => {
                    let (v4, v6) = list.take_ended(now);
                    let v4 = v4.into_iter().map(AnyPrefix::V4);
                    v4.chain(v6.into_iter().map(AnyPrefix::V6)).collect()
                }
                EntryKind::Bans(bans) => bans.take_ended(now),
            };
            for &prefix in &ended {
                set(blocker, number, prefix, false);
            }
            if !ended.is_empty() {
                changed.push(number);
            }
        }
        changed
    }

    /// Reads the lists that have changed, or `all`, and returns those that are applied. An allow list without which a
    /// list after it would cut this host off stays as it was.
    fn read(
        &mut self,
        blocker: &mut Blocker,
        mut protected: Protected,
        all: bool,
        accepts_all: bool,
    ) -> Vec<usize> {
        let mut contents = Vec::new();
        for (number, entry) in self.entries.iter_mut().enumerate() {
            let EntryKind::Read(list) = &mut entry.kind else { continue };
            // An allow list is read in any case: its addresses are no reason to hold the lists after it.
            if !all && !list.allows() && !list.has_changed() {
                continue;
            }
            let (before, is_pending) = (list.applied(), list.is_pending());
            match list.read(&mut protected, accepts_all) {
                Ok(Some(content)) => contents.push((number, content, before, is_pending)),
                Ok(None) => {}
                Err(error) => log::error!("{error}; the list stays as it was"),
            }
        }
        let is_new = |number| contents.iter().any(|&(of, ..)| of == number);
        let allowing = self.allowing();
        // New block lists have been compared with the allow lists when they were read.
        let is_old = |(number, entry): (usize, &Entry)| {
            let is_for_host = entry.to().is_empty() || protected.is_within(entry.to());
            entry.action() == ListAction::Drop && is_for_host && !is_new(number)
        };
        let blocking = bits(self.entries.iter().enumerate().map(is_old));
        let danger =
            protected.uncovered(|lists| lists & allowing != 0 && lists & blocking != 0, blocker);
        let mut changed = Vec::new();
        for (number, (v4, v6), before, is_pending) in contents {
            match (&danger, &mut self.entries[number].kind) {
                (Some(address), EntryKind::Read(list)) if is_pending && list.allows() => {
                    let reason =
                        format!("without its former prefixes, {address}, would be blocked");
                    list.hold(reason, before);
                }
                _ if blocker.replace(number, &v4, &v6) => changed.push(number),
                _ => {}
            }
        }
        changed
    }
}

impl Drop for BlockLists {
    fn drop(&mut self) {
        self.save(true);
    }
}

impl Entry {
    /// Returns the name of the list: its source.
    pub(crate) fn name(&self) -> &str {
        match &self.kind {
            EntryKind::Read(list) => list.name(),
            EntryKind::Bans(_) => "bans",
        }
    }

    /// Returns the file or the folder that the list is read from.
    fn path(&self) -> Option<&Path> {
        match &self.kind {
            EntryKind::Read(list) => list.path(),
            EntryKind::Bans(_) => None,
        }
    }

    pub(crate) fn action(&self) -> ListAction {
        match &self.kind {
            EntryKind::Read(list) => list.action(),
            EntryKind::Bans(_) => ListAction::Drop,
        }
    }

    /// Returns the destinations of the packets about which it decides; none: all.
    pub(crate) fn to(&self) -> &[AnyPrefix] {
        match &self.kind {
            EntryKind::Read(list) => list.to(),
            EntryKind::Bans(_) => &[],
        }
    }

    /// Returns the numbers of IPv4 and IPv6 prefixes in force.
    pub(crate) fn applied(&self) -> [usize; 2] {
        match &self.kind {
            EntryKind::Read(list) => list.applied(),
            EntryKind::Bans(bans) => bans.counts(),
        }
    }

    /// Counts the prefixes that end by themselves.
    pub(crate) fn ending(&self) -> usize {
        match &self.kind {
            EntryKind::Read(list) => list.ending(),
            EntryKind::Bans(bans) => bans.ending(),
        }
    }

    /// Returns why the present content is not in force.
    pub(crate) fn held(&self) -> Option<&str> {
        match &self.kind {
            EntryKind::Read(list) => list.held(),
            EntryKind::Bans(_) => None,
        }
    }

    /// Returns why the source does not answer, or the bans are not saved.
    pub(crate) fn error(&self) -> Option<String> {
        match &self.kind {
            EntryKind::Read(list) => {
                let own = list.error().map(str::to_owned);
                own.or_else(|| self.feed.as_ref().and_then(FeedThread::error))
            }
            EntryKind::Bans(bans) => bans.error().map(str::to_owned),
        }
    }
}

/// Returns whether a ban of the last time does not cut this host off; logs why it does.
fn is_harmless(prefix: AnyPrefix, protected: &Protected) -> bool {
    let (v4, v6) = split([prefix]);
    match protected.reason(&v4, &v6) {
        None => true,
        Some(reason) => {
            log::error!("the ban of {prefix} is not in force: {reason}");
            false
        }
    }
}

/// Shows all changes to the filter; returns whether it sees them.
fn commit(blocker: &mut Blocker) -> bool {
    match blocker.commit() {
        Ok(_) => true,
        Err(error) => {
            log::error!("{error}; the lists stay as they were, and the next change applies all");
            false
        }
    }
}

fn set(blocker: &mut Blocker, number: usize, prefix: AnyPrefix, listed: bool) {
    match prefix {
        AnyPrefix::V4(prefix) => blocker.set_v4(number, prefix, listed),
        AnyPrefix::V6(prefix) => blocker.set_v6(number, prefix, listed),
    };
}

/// Splits prefixes by family.
fn split(prefixes: impl IntoIterator<Item = AnyPrefix>) -> Content {
    let mut content = Content::default();
    for prefix in prefixes {
        match prefix {
            AnyPrefix::V4(prefix) => content.0.push(prefix),
            AnyPrefix::V6(prefix) => content.1.push(prefix),
        }
    }
    content
}

/// Returns a word with the bits of those that are true.
fn bits(which: impl Iterator<Item = bool>) -> u32 {
    which.enumerate().fold(0, |bits, (number, is_set)| bits | u32::from(is_set) << number)
}

fn no_bans() -> String {
    "there is no list of bans: start with --bans FILE, or set `bans` in [block]".to_owned()
}
