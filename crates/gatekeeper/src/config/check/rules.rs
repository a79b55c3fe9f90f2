//! The check of the parts that a reload may change: grantor sets, prefixes, lists of sources, a
//! candidate.

use std::net::IpAddr;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use feed::netlink::AnyPrefix;
use gate::decision::v2::sender::HEARTBEAT_INTERVAL;
use gate::grantor::{ListPrefix, lines};
use gate::policy::sources::{SourceClass, SourceListBuilder, SourceLists};
use gate::policy::{Action, Grantor, RuleId};
use toml::Spanned;

use super::check_rules;
use crate::config::{MAX_COUNTED_RULES, Member, Rule, Rules, Set, text};
use bundle::FileSource;
use config::{Checker, ConfigError, TimeSpan, shape};

/// The range of `hold_time`: at least three times a grantor's message interval.
const HOLD_TIMES: RangeInclusive<TimeSpan> =
    TimeSpan::milliseconds(3 * HEARTBEAT_INTERVAL / 1_000_000)..=TimeSpan::seconds(60);

/// Reads the grantor sets.
pub(super) fn sets(c: &mut Checker<'_>, listed: Vec<text::Grantors>, senders: &[u32]) -> Vec<Set> {
    let mut sets: Vec<Set> = Vec::new();
    for text::Grantors { name, members, hold_time } in listed {
        if sets.iter().any(|other| other.name == *name.get_ref()) {
            c.problem(&name, "grantors.name", format!("{:?} is a duplicate", name.get_ref()));
        }
        if members.get_ref().is_empty() {
            c.problem(
                &members,
                "grantors.members",
                "no member: no flow of the set could be granted",
            );
        }
        if let Some(limit) = &hold_time
            && !HOLD_TIMES.contains(limit.get_ref())
        {
            let (least, most) = HOLD_TIMES.into_inner();
            let what = format!("{} is out of range: from {least} to {most}", limit.get_ref());
            c.problem(limit, "grantors.hold_time", what);
        }
        let mut read: Vec<Member> = Vec::new();
        for text::Member { address, weight, sender } in members.into_inner() {
            if hold_time.is_some() && sender.is_none() {
                let what = "`hold_time` needs the `sender` of each member, whose messages show that it is alive: \
                            add it";
                c.problem(&address, "grantors.members", what);
            }
            if let Some(sender) = &sender
                && !senders.contains(sender.get_ref())
            {
                let what = format!("no [[sender]] has the id {}", sender.get_ref());
                c.problem(sender, "grantors.members", what);
            }
            let Some(at) = c.read::<IpAddr>(&address, "grantors.members", "an IP address") else {
                continue;
            };
            let grantor = Grantor { address: at.into(), weight: weight.unwrap_or(1) };
            if read.iter().any(|other| other.grantor.address == grantor.address) {
                c.problem(&address, "grantors.members", format!("{at} is a duplicate"));
            }
            read.push(Member { grantor, sender: sender.map(Spanned::into_inner) });
        }
        let hold_time = hold_time.map(|limit| limit.into_inner().into());
        sets.push(Set { name: name.into_inner(), members: read, hold_time });
    }
    sets
}

/// Reads the actions by destination prefix.
pub(super) fn rules(c: &mut Checker<'_>, listed: Vec<text::Policy>, sets: &[Set]) -> Vec<Rule> {
    let mut rules: Vec<Rule> = Vec::new();
    for text::Policy { prefix, grantors, action, exempt, limit, per_destination_limit } in listed {
        let line = c.line(&prefix);
        let action = match (grantors, action) {
            (Some(name), None) => {
                let set = sets.iter().position(|set| set.name == *name.get_ref());
                if set.is_none() {
                    let names: Vec<_> = sets.iter().map(|set| set.name.as_str()).collect();
                    let what = format!(
                        "no [[grantors]] is named {:?} (defined: {})",
                        name.get_ref(),
                        names.join(", ")
                    );
                    c.problem(&name, "policy.grantors", what);
                }
                Action::Grantors(set.unwrap_or(0) as u16)
            }
            (None, Some(action)) => match action.get_ref().as_str() {
                "back" => Action::Back,
                "front" => Action::Front,
                "drop" => Action::Drop,
                other => {
                    let what = format!("{other:?} is unknown: back, front or drop");
                    c.problem(&action, "policy.action", what);
                    Action::Drop
                }
            },
            _ => {
                c.problem(&prefix, "policy", "set exactly one of `grantors` and `action`");
                Action::Drop
            }
        };
        let mut bound = |at: Option<Spanned<String>>, key| {
            let at = at?;
            if !matches!(action, Action::Grantors(_)) {
                c.problem(&at, key, "a limit needs `grantors`: other actions have none");
            }
            Some(c.bandwidth(&at, key))
        };
        let limit = bound(limit, "policy.limit");
        let per_destination_limit = bound(per_destination_limit, "policy.per_destination_limit");
        match ListPrefix::parse(prefix.get_ref()).map(any) {
            Ok(read) if rules.iter().any(|other| other.prefix == read) => {
                c.problem(&prefix, "policy.prefix", format!("{} is a duplicate", prefix.get_ref()));
            }
            Ok(prefix) => {
                let counted = initial_line(rules.len());
                rules.push(Rule {
                    prefix,
                    action,
                    exempt,
                    limit,
                    per_destination_limit,
                    counted,
                    line,
                });
            }
            Err(error) => c.problem(&prefix, "policy.prefix", error),
        }
    }
    rules
}

/// Reports rules that lead to a tunnel's end past the gate. Packets that arrive there from outside
/// would be delivered as granted. The gate drops them whatever the rules are, so that such a rule is a
/// mistake.
pub(super) fn tunnel_ends(c: &mut Checker<'_>, rules: &Rules) {
    let mut ends: Vec<IpAddr> = rules.grantors().map(IpAddr::from).collect();
    ends.sort_unstable();
    ends.dedup();
    for end in ends {
        let Some(rule) = rules.find(end) else { continue };
        if !matches!(rule.action, Action::Back | Action::Front) {
            continue;
        }
        let (prefix, action) = (rule.prefix, rules.action_name(rule.action));
        let what = format!(
            "{prefix} leads by {action:?} to {end}, where tunnels end: packets out of them are \
             delivered without a check; add a [[policy]] with the prefix of {end} and action = \"drop\""
        );
        c.problem_at_line(rule.line, "policy.action", what);
    }
}

fn any(place: ListPrefix) -> AnyPrefix {
    match place {
        ListPrefix::V4(prefix) => AnyPrefix::V4(prefix),
        ListPrefix::V6(prefix) => AnyPrefix::V6(prefix),
    }
}

/// The maximum number of bad lines of a list that are reported one by one.
const MAX_BAD_LINES: usize = 10;

/// Reads the sources of the file and of the list that it names.
pub(super) fn sources(
    c: &mut Checker<'_>,
    listed: &text::Sources,
    [prefixes, file_key]: [&'static str; 2],
    folder: FileSource<'_>,
) -> Arc<[AnyPrefix]> {
    let mut all = Vec::new();
    for prefix in &listed.prefixes {
        match ListPrefix::parse(prefix.get_ref()) {
            Ok(place) => all.push(any(place)),
            Err(error) => c.problem(prefix, prefixes, error),
        }
    }
    if let Some(file) = &listed.file {
        let shown = folder.display_path(file.get_ref());
        match folder.read_text(file.get_ref()) {
            Ok(list) => {
                let mut bad = 0;
                for line in lines(&list) {
                    match line {
                        Ok((place, _)) => all.push(any(place)),
                        Err(what) => {
                            bad += 1;
                            if bad <= MAX_BAD_LINES {
                                c.problem(file, file_key, format!("{shown}: {what}"));
                            }
                        }
                    }
                }
                if bad > MAX_BAD_LINES {
                    let what = format!("{shown}: and {} more lines", bad - MAX_BAD_LINES);
                    c.problem(file, file_key, what);
                }
            }
            Err(error) => c.problem(file, file_key, format!("{shown}: {error}")),
        }
    }
    all.into()
}

/// Reads a candidate policy, with the checks of a policy in force. Names of files in it are relative
/// to its folder.
pub(super) fn candidate(
    c: &mut Checker<'_>,
    file: &Spanned<PathBuf>,
    senders: &[u32],
    workers: usize,
    folder: FileSource<'_>,
) -> Option<Arc<Rules>> {
    let shown = folder.display_path(file.get_ref());
    let candidate_folder = match folder {
        FileSource::Disk(folder) => folder.join(file.get_ref()).parent().map(Path::to_path_buf),
        FileSource::Bundle(_) => None,
    };
    let candidate_source = candidate_folder.as_deref().map_or(folder, FileSource::Disk);
    let read = folder.read_text(file.get_ref()).map_err(|error| format!("{shown}: {error}"));
    let checked = read.and_then(|text| {
        let path = Path::new(&shown);
        check_candidate(&text, path, senders, workers, candidate_source)
            .map_err(|error| error.to_string())
    });
    checked.map_err(|what| c.problem(file, "rules.candidate", what)).ok().map(Arc::new)
}

/// Checks the text of a candidate.
fn check_candidate(
    text: &str,
    path: &Path,
    senders: &[u32],
    workers: usize,
    folder: FileSource<'_>,
) -> Result<Rules, ConfigError> {
    let mut ruled: text::Ruled = shape(text, path)?;
    let mut c = Checker::new(text);
    if let Some(nested) = ruled.rules.candidate.take() {
        let what = "a candidate cannot have a candidate: remove the key";
        c.problem(&nested, "rules.candidate", what);
    }
    let (rules, _) = check_rules(&mut c, ruled, senders, workers, folder);
    c.finish(path)?;
    Ok(rules)
}

/// Builds the lookup table of allowed and blocked sources.
pub(super) fn source_table(
    c: &mut Checker<'_>,
    allow: &[AnyPrefix],
    block: &[AnyPrefix],
) -> Arc<SourceLists> {
    let mut listed = SourceListBuilder::default();
    for (all, kind) in [(allow, SourceClass::Allowed), (block, SourceClass::Blocked)] {
        for prefix in all {
            match *prefix {
                AnyPrefix::V4(prefix) => listed.v4(prefix, kind),
                AnyPrefix::V6(prefix) => listed.v6(prefix, kind),
            }
        }
    }
    listed.build().map(Arc::new).unwrap_or_else(|full| {
        c.problem_at_line(1, "block", full.to_string());
        Arc::default()
    })
}

/// Returns the line of the first policy's rule with this index.
fn initial_line(index: usize) -> RuleId {
    RuleId::of_rule(index).filter(|_| index < MAX_COUNTED_RULES).unwrap_or(RuleId::OTHERS)
}
