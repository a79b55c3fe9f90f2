//! The kernel's order of several routes of one prefix, and the effect of messages on it.
//!
//! The metric orders; of equal metric:
//!
//! | | IPv4 (`fib_table_insert`) | IPv6 (`fib6_add_rt2node`) |
//! |---|---|---|
//! | added | before the others | after the others |
//! | appended | after the others | the same |
//! | replaced | the first is | the first of its kind is |
//! | several gateways | one route | one route, however they were added |
//! | message of a new one | that route | all gateways of its metric |
//! | message of a deletion | that route | those gateways that went |
//!
//! The kinds of IPv6 routes are those with a gateway, which join into one route with several
//! nexthops, and those that do not join: without a gateway, by nexthop object, or from router
//! advertisements. (A route with the protocol of router advertisements that a program added joins
//! all the same; only the message with all gateways shows it. Each of the joined routes may have an MTU, and the
//! message has that of the first.) A message that repeats the present
//! state changes nothing: a resynchronization replays messages over a dump that may include them.

use core::ops::Range;

use fib::Hop;

use super::candidates::{Candidate, CandidateLists};
use super::paths::{Path, ResolveContext};
use crate::netlink::route::RouteNexthop;
use crate::netlink::uapi::{NLM_F_APPEND, NLM_F_REPLACE, RTN_UNICAST, RTPROT_RA};

/// The source of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// An event: a change.
    Event,
    /// A dump: one of the present routes, in the kernel's order.
    Dump,
    /// A sender with one route per prefix: the only route of the prefix, or its deletion.
    Sole,
}

/// A route to be added or deleted, whose path is held by a reference.
pub(super) struct RouteChange<'a> {
    pub(super) candidate: Candidate,
    pub(super) path: &'a Path,
    pub(super) flags: u16,
    pub(super) origin: Origin,
}

fn same_metric(list: &[Candidate], metric: u32) -> Range<usize> {
    let start = list.partition_point(|candidate| candidate.metric < metric);
    let end = list.partition_point(|candidate| candidate.metric <= metric);
    start..end
}

/// Returns whether such routes join into one with several nexthops.
fn joins(path: &Path, protocol: u8) -> bool {
    path.v6
        && path.kind == RTN_UNICAST
        && path.nexthop_id == 0
        && (protocol != RTPROT_RA || path.nexthops.len() > 1)
        && path.nexthops.first().is_some_and(|nexthop| nexthop.gateway.is_some())
}

/// Finds the candidate that the kernel takes for the route of a change.
fn find(
    list: &[Candidate],
    mut range: Range<usize>,
    change: &RouteChange<'_>,
    lists: &CandidateLists,
) -> Option<usize> {
    let Candidate { metric, protocol, .. } = change.candidate;
    range.find(|&at| {
        let known = &list[at];
        (known.metric, known.protocol) == (metric, protocol)
            && lists.path(known).is_some_and(|path| path.is_like(change.path))
    })
}

/// Adds a route to the candidates of a prefix.
///
/// Returns a reference, to be released afterwards, if it created a path.
pub(super) fn add(
    list: &mut Vec<Candidate>,
    change: &RouteChange<'_>,
    lists: &mut CandidateLists,
    context: &ResolveContext<'_>,
) -> Option<Hop> {
    let range = same_metric(list, change.candidate.metric);
    if let Some(at) = find(list, range.clone(), change, lists) {
        list[at] = change.candidate;
        return None;
    }
    if change.path.v6 {
        add_v6(list, range, change, lists, context)
    } else {
        add_v4(list, range, change)
    }
}

fn add_v4(list: &mut Vec<Candidate>, range: Range<usize>, change: &RouteChange<'_>) -> Option<Hop> {
    let event = change.origin == Origin::Event;
    if event && change.flags & NLM_F_REPLACE != 0 && !range.is_empty() {
        list[range.start] = change.candidate;
    } else if event && change.flags & NLM_F_APPEND == 0 {
        list.insert(range.start, change.candidate);
    } else {
        list.insert(range.end, change.candidate);
    }
    None
}

fn add_v6(
    list: &mut Vec<Candidate>,
    range: Range<usize>,
    change: &RouteChange<'_>,
    lists: &mut CandidateLists,
    context: &ResolveContext<'_>,
) -> Option<Hop> {
    let kind = joins(change.path, change.candidate.protocol);
    let is = |candidate: &Candidate| {
        lists.path(candidate).is_some_and(|path| joins(path, candidate.protocol) == kind)
    };
    let of_kind = range.clone().find(|&at| is(&list[at]));
    let replaced = of_kind.or(range.clone().next());
    let replaces = change.origin == Origin::Event && change.flags & NLM_F_REPLACE != 0;
    if let Some(at) = replaced.filter(|_| replaces) {
        list[at] = change.candidate;
        return None;
    }
    if change.path.nexthops.len() > 1 {
        // The joined route replaces its parts.
        let part = |candidate: &Candidate| {
            is(candidate)
                || lists.path(candidate).is_some_and(|path| {
                    path.kind == change.path.kind
                        && !path.nexthops.is_empty()
                        && path
                            .nexthops
                            .iter()
                            .all(|nexthop| change.path.nexthops.contains(nexthop))
                })
        };
        let at = range.clone().find(|&at| part(&list[at])).unwrap_or(range.end);
        let parts: Vec<usize> = range.filter(|&at| part(&list[at])).collect();
        for at in parts.into_iter().rev() {
            list.remove(at);
        }
        list.insert(at, change.candidate);
        return None;
    }
    let (Some(at), [nexthop]) = (of_kind.filter(|_| kind), &change.path.nexthops[..]) else {
        list.insert(range.end, change.candidate);
        return None;
    };
    let joined = lists.path(&list[at])?;
    if joined.nexthops.contains(nexthop) {
        return None;
    }
    let mut joined = joined.clone();
    joined.nexthops.push(*nexthop);
    let path = lists.paths.acquire(&joined, None, context)?;
    list[at].path = path;
    Some(path)
}

/// Removes a route from the candidates of a prefix.
///
/// Returns a reference, to be released afterwards, if it created a path.
pub(super) fn remove(
    list: &mut Vec<Candidate>,
    change: &RouteChange<'_>,
    lists: &mut CandidateLists,
    context: &ResolveContext<'_>,
) -> Option<Hop> {
    let range = same_metric(list, change.candidate.metric);
    // Only an equal route: the kernel may report the end of a route that was removed silently
    // while a similar one still exists.
    if let Some(at) = find(list, range.clone(), change, lists) {
        list.remove(at);
        return None;
    }
    if !change.path.v6 {
        return None;
    }
    // Some of the gateways of a joined route.
    for at in range {
        let Some(from) = lists.path(&list[at]) else { continue };
        if !joins(from, list[at].protocol) {
            continue;
        }
        let gone = |nexthop: &RouteNexthop| {
            let same = |other: &RouteNexthop| {
                (other.interface, other.gateway) == (nexthop.interface, nexthop.gateway)
            };
            change.path.nexthops.iter().any(same)
        };
        let mut left = from.clone();
        left.nexthops.retain(|nexthop| !gone(nexthop));
        if left.nexthops.len() == from.nexthops.len() {
            continue;
        }
        if left.nexthops.is_empty() {
            list.remove(at);
            return None;
        }
        let path = lists.paths.acquire(&left, None, context)?;
        list[at].path = path;
        return Some(path);
    }
    None
}
