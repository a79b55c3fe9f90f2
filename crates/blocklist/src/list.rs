//! A list that is read: a file of prefixes, a folder of such files, or prefixes in memory; what of it is applied, and
//! why its present content is not.

use std::path::Path;
use std::sync::Arc;

use feed::AnyPrefix;
use jiff::Timestamp;
use xdp::ListAction;

use crate::ListError;
use crate::config::ListConfig;
use crate::lines::{Content, Lines};
use crate::place::{Place, Version, files};
use crate::protected::{self, Protected};

/// The origin of a list's lines, which decides what a missing file or a shorter list means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// The operator: the file has to be there.
    Operator,
    /// A feed: without a file nothing has been received yet.
    Feed,
    /// An origin that states each prefix that leaves the list: such a feed, or a gate's policy.
    Withdrawing,
}

/// A list of one place.
#[derive(Debug)]
pub(crate) struct List {
    name: String,
    place: Place,
    action: ListAction,
    /// The destinations of the packets about which it decides; none: all.
    to: Vec<AnyPrefix>,
    origin: Origin,
    /// The version that was read last; `None` before.
    version: Option<Version>,
    /// The prefixes of each family that are applied.
    applied: [usize; 2],
    /// The prefixes that end, the first of them last.
    ending: Vec<(Timestamp, AnyPrefix)>,
    held: Option<String>,
    /// Why the content could not be read.
    error: Option<String>,
}

impl List {
    pub(crate) fn new(config: &ListConfig, place: Place) -> Self {
        let ListConfig { action, source, to } = config;
        let origin = match source {
            source if source.withdraws() => Origin::Withdrawing,
            source if source.is_feed() => Origin::Feed,
            _ => Origin::Operator,
        };
        Self {
            name: config.to_string(),
            place,
            action: *action,
            to: to.clone(),
            origin,
            version: None,
            applied: [0; 2],
            ending: Vec::new(),
            held: None,
            error: None,
        }
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Returns the file or the folder that it is read from.
    pub(crate) fn path(&self) -> Option<&Path> {
        self.place.path()
    }

    /// Gives a list in memory other prefixes, to be read, and returns the former ones; `None` for a list of files.
    pub(crate) fn give(&mut self, prefixes: &Arc<[AnyPrefix]>) -> Option<Arc<[AnyPrefix]>> {
        match &mut self.place {
            Place::Memory { prefixes: present, version } => {
                *version += 1;
                Some(std::mem::replace(present, Arc::clone(prefixes)))
            }
            Place::File(_) => None,
        }
    }

    pub(crate) fn action(&self) -> ListAction {
        self.action
    }

    /// Returns whether it is an allow list.
    pub(crate) fn allows(&self) -> bool {
        self.action == ListAction::Pass
    }

    /// Returns the destinations of the packets about which it decides; none: all.
    pub(crate) fn to(&self) -> &[AnyPrefix] {
        &self.to
    }

    /// Returns the number of IPv4 and IPv6 prefixes that are applied.
    pub(crate) fn applied(&self) -> [usize; 2] {
        self.applied
    }

    /// Counts the prefixes that end by themselves.
    pub(crate) fn ending(&self) -> usize {
        self.ending.len()
    }

    /// Removes and returns the prefixes that have ended.
    pub(crate) fn take_ended(&mut self, now: Timestamp) -> Content {
        let mut ended = Content::default();
        while let Some((_, prefix)) = self.ending.pop_if(|(at, _)| *at <= now) {
            match prefix {
                AnyPrefix::V4(prefix) => ended.0.push(prefix),
                AnyPrefix::V6(prefix) => ended.1.push(prefix),
            }
        }
        self.applied[0] -= ended.0.len();
        self.applied[1] -= ended.1.len();
        ended
    }

    /// Returns the reason why the file's present content is not applied.
    pub(crate) fn held(&self) -> Option<&str> {
        self.held.as_deref()
    }

    /// Returns the reason why the present content could not be read.
    pub(crate) fn error(&self) -> Option<&str> {
        self.error.as_deref()
    }

    /// Returns whether its present content is not applied: it has changed, or is held.
    pub(crate) fn is_pending(&self) -> bool {
        self.held.is_some() || self.has_changed()
    }

    /// Holds the content that was read last; `before` prefixes stay applied.
    pub(crate) fn hold(&mut self, reason: String, before: [usize; 2]) {
        log::error!(list = self.name.as_str(), reason = reason.as_str(); "{}: the list is held: {reason}", self.name);
        self.held = Some(reason);
        self.applied = before;
    }

    /// Returns whether any file is another one than was read last.
    pub(crate) fn has_changed(&self) -> bool {
        self.version.as_ref() != Some(&self.place.version())
    }

    /// Reads the files; returns what to apply, or `None` if it is held. `accepts_all` applies it however
    /// short it has become. The addresses of an allow list are
    /// not protected from the lists that are read after it.
    ///
    /// # Errors
    ///
    /// A file that is missing, cannot be read, or has a line that such a list cannot have.
    pub(crate) fn read(
        &mut self,
        protected: &mut Protected,
        accepts_all: bool,
    ) -> Result<Option<Content>, ListError> {
        // Before the file is read: if it is written meanwhile, it is read again.
        self.version = Some(self.place.version());
        let result = self.read_version(protected, accepts_all);
        self.error = result.as_ref().err().map(ToString::to_string);
        result.map_err(|error| match self.origin {
            Origin::Operator => ListError::new(format!("reading the list {error}")),
            _ => ListError::new(format!("reading the list {}: {error}", self.name)),
        })
    }

    fn read_version(
        &mut self,
        protected: &mut Protected,
        accepts_all: bool,
    ) -> Result<Option<Content>, ListError> {
        let mut lines = Lines::default();
        match &self.place {
            Place::Memory { prefixes, .. } => lines.add(prefixes),
            Place::File(path) if self.origin == Origin::Operator || path.exists() => {
                for file in files(path).map_err(|error| ListError::of(path, error))? {
                    lines.read(&file)?;
                    if self.allows() && lines.any_expires() {
                        let reason = "a line of an allow list cannot expire";
                        return Err(ListError::of(&file, reason));
                    }
                }
            }
            Place::File(_) => {}
        }
        let ((v4, v6), ending) = lines.in_force(Timestamp::now());
        let after = v4.len() + v6.len();
        let contains = match self.action {
            ListAction::Drop if self.to.is_empty() || protected.is_within(&self.to) => {
                protected.reason(&v4, &v6)
            }
            _ => None,
        };
        let shrinks = match self.origin {
            Origin::Operator | Origin::Feed if !accepts_all => {
                protected::shrinks(self.applied.iter().sum(), after)
            }
            _ => None,
        };
        self.held = contains.or(shrinks);
        if let Some(reason) = &self.held {
            log::error!(list = self.name.as_str(), reason = reason.as_str(); "{}: the list is held: {reason}", self.name);
            return Ok(None);
        }
        if self.allows() && self.to.is_empty() {
            protected.allow(&v4, &v6);
        }
        self.applied = [v4.len(), v6.len()];
        self.ending = ending;
        Ok(Some((v4, v6)))
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::time::Duration;

    use super::*;
    use crate::Source;
    use crate::lines::EXPIRES;

    fn list(path: &Path, action: ListAction) -> List {
        List::new(&ListConfig::new(action, Source::Path(path.into())), Place::File(path.into()))
    }

    #[test]
    fn line_expires_at_its_time_and_with_the_last_of_its_prefix() {
        let path = std::env::temp_dir().join(format!("fingerpost-expiry-{}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        let soon = Timestamp::now() + jiff::SignedDuration::from_secs(3600);
        let late = soon + jiff::SignedDuration::from_secs(3600);
        let write = |name: &str, lines: &[String]| fs::write(path.join(name), lines.join("\n"));
        let one = [
            format!("198.51.100.1 {EXPIRES}{soon}"),
            format!("198.51.100.2 {EXPIRES}{soon} # a comment"),
            format!("198.51.100.3 {EXPIRES}{soon}"),
            format!("198.51.100.4 {EXPIRES}2026-01-01T00:00:00+01:00"),
            format!("2001:db8::/32 {EXPIRES}{late}"),
            "203.0.113.0/24 a word".to_owned(),
        ];
        let two = ["198.51.100.2".to_owned(), format!("198.51.100.3 {EXPIRES}{late}")];
        write("one", &one).unwrap();
        write("two", &two).unwrap();
        let mut drops = list(&path, ListAction::Drop);
        let none = Protected::default;
        let (v4, v6) = drops.read(&mut none(), false).unwrap().unwrap();
        assert_eq!((v4.len(), v6.len(), drops.ending()), (4, 1, 3));
        let before = soon - jiff::SignedDuration::from_secs(1);
        assert_eq!(drops.take_ended(before), Content::default());
        let (ended, six) = drops.take_ended(soon);
        assert_eq!((ended, six), (vec!["198.51.100.1/32".parse().unwrap()], vec![]));
        let (ended, six) = drops.take_ended(late);
        assert_eq!((ended.len(), six.len(), drops.applied()), (1, 1, [2, 0]));
        let mut passes = list(&path, ListAction::Pass);
        let refused = passes.read(&mut none(), false).unwrap_err().to_string();
        assert!(refused.ends_with("one: a line of an allow list cannot expire"), "{refused}");
        write("one", &[format!("198.51.100.1 {EXPIRES}tomorrow")]).unwrap();
        let mut drops = list(&path, ListAction::Drop);
        let refused = drops.read(&mut none(), false).unwrap_err().to_string();
        assert!(refused.contains("one: `expires=tomorrow`: a time is needed as in"), "{refused}");
        fs::remove_dir_all(path).unwrap();
    }

    #[test]
    fn list_for_other_destinations_is_not_held_for_an_address_of_this_host() {
        let path = std::env::temp_dir().join(format!("fingerpost-to-{}", std::process::id()));
        fs::write(&path, "0.0.0.0/0\n").unwrap();
        let protected = Protected::of("192.0.2.1".parse().unwrap());
        for (to, is_held) in [("192.0.2.0/24", true), ("198.51.100.0/24", false)] {
            let to = vec![AnyPrefix::V4(to.parse().unwrap())];
            let source = Source::Path(path.clone());
            let config = ListConfig { action: ListAction::Drop, source, to };
            let mut list = List::new(&config, Place::File(path.clone()));
            // The host's address stays what it is, though a list allows it.
            let mut protected = protected.clone();
            protected.allow(&["192.0.2.1/32".parse().unwrap()], &[]);
            assert_eq!(list.read(&mut protected, false).unwrap().is_none(), is_held);
        }
        fs::remove_file(path).unwrap();
    }

    #[test]
    fn shorter_list_is_held_unless_its_feed_withdraws_prefixes() {
        let path = std::env::temp_dir().join(format!("fingerpost-shorter-{}", std::process::id()));
        let url = Source::Url("http://127.0.0.1/x".parse().unwrap(), Duration::from_secs(1));
        let config = |source| ListConfig::new(ListAction::Drop, source);
        for (source, is_held) in
            [(Source::Path(path.clone()), true), (url.clone(), true), (Source::Table(1), false)]
        {
            fs::write(&path, "192.0.2.1\n192.0.2.2\n192.0.2.3\n").unwrap();
            let mut list = List::new(&config(source), Place::File(path.clone()));
            assert!(list.has_changed(), "it has not been read yet");
            assert!(list.read(&mut Protected::default(), false).unwrap().is_some());
            assert!(!list.has_changed());
            fs::write(&path, "192.0.2.1\n").unwrap();
            assert!(list.has_changed());
            let content = list.read(&mut Protected::default(), false).unwrap();
            assert_eq!((content.is_none(), list.held().is_some()), (is_held, is_held));
            assert_eq!(list.applied(), if is_held { [3, 0] } else { [1, 0] });
        }
        fs::remove_file(&path).unwrap();
        let mut list = List::new(&config(url), Place::File(path.clone()));
        assert!(list.has_changed());
        let content = list.read(&mut Protected::default(), false).unwrap();
        assert_eq!(content, Some(Content::default()), "nothing has been received yet");
        assert!(!list.has_changed());
        let mut missing = List::new(&config(Source::Path(path.clone())), Place::File(path));
        let refused = missing.read(&mut Protected::default(), false).unwrap_err().to_string();
        assert!(refused.contains("fingerpost-shorter") && refused.contains("No such file"));
    }
    #[test]
    fn list_in_memory_changes_when_it_is_given_and_may_become_shorter() {
        let prefixes = |text: &[&str]| -> Arc<[AnyPrefix]> {
            text.iter().map(|text| crate::parse_prefix(text).unwrap()).collect()
        };
        let given = prefixes(&["192.0.2.0/24", "192.0.2.0/24", "198.51.100.1", "2001:db8::/32"]);
        let config = ListConfig::new(ListAction::Pass, Source::Policy(given));
        let mut list = List::new(&config, config.source.place(Path::new("/")).unwrap());
        assert!(list.has_changed() && list.path().is_none());
        let (v4, v6) = list.read(&mut Protected::default(), false).unwrap().unwrap();
        assert_eq!((v4.len(), v6.len(), list.has_changed()), (2, 1, false));
        assert_eq!(list.give(&prefixes(&["2001:db8::/32"])).unwrap().len(), 4);
        assert!(list.has_changed());
        let content = list.read(&mut Protected::default(), false).unwrap();
        assert_eq!(content, Some((vec![], vec!["2001:db8::/32".parse().unwrap()])));
        assert_eq!((list.name(), list.has_changed()), ("[allow]", false));
    }
}
