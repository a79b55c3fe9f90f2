//! How the kernel keeps several routes of one prefix, and how its messages change them.
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
//! The kinds of IPv6 are routes with a gateway, which join into one of several ways,
//! and those without, by nexthop object or from router advertisements, which do not.
//! (One that a program gave the protocol of router advertisements joins all the same;
//! only the message with all of them tells.)
//! A message that repeats what is there changes nothing: a resynchronization replays
//! messages over a dump that may know of them.

use core::ops::Range;

use fib::Hop;

use super::lists::{Entry, Lists};
use super::paths::{Path, World};
use crate::netlink::uapi::{NLM_F_APPEND, NLM_F_REPLACE, RTN_UNICAST, RTPROT_RA};

/// Where a message comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// Something has changed.
    Event,
    /// It is one of what is there, listed in the kernel's order.
    Dump,
    /// It is all there is for a prefix, or there is nothing any more.
    Sole,
}

/// A new route, or one to be deleted; its path is held by a reference.
pub(super) struct Said<'a> {
    pub(super) entry: Entry,
    pub(super) path: &'a Path,
    pub(super) flags: u16,
    pub(super) origin: Origin,
}

fn same_metric(list: &[Entry], metric: u32) -> Range<usize> {
    let start = list.partition_point(|entry| entry.metric < metric);
    let end = list.partition_point(|entry| entry.metric <= metric);
    start..end
}

/// Says whether routes like this one join into one with several ways.
fn joins(path: &Path, protocol: u8) -> bool {
    path.v6
        && path.kind == RTN_UNICAST
        && path.nexthop == 0
        && (protocol != RTPROT_RA || path.ways.len() > 1)
        && path.ways.first().is_some_and(|way| way.gateway.is_some())
}

/// Adds to the list of a prefix what a message says is new.
///
/// Returns a reference to be released afterwards if a path was made on the way.
pub(super) fn add(
    list: &mut Vec<Entry>,
    said: &Said<'_>,
    lists: &mut Lists,
    world: &World<'_>,
) -> Option<Hop> {
    let range = same_metric(list, said.entry.metric);
    if list[range.clone()].contains(&said.entry) {
        return None;
    }
    if said.path.v6 { add_v6(list, range, said, lists, world) } else { add_v4(list, range, said) }
}

fn add_v4(list: &mut Vec<Entry>, range: Range<usize>, said: &Said<'_>) -> Option<Hop> {
    let event = said.origin == Origin::Event;
    if event && said.flags & NLM_F_REPLACE != 0 && !range.is_empty() {
        list[range.start] = said.entry;
    } else if event && said.flags & NLM_F_APPEND == 0 {
        list.insert(range.start, said.entry);
    } else {
        list.insert(range.end, said.entry);
    }
    None
}

fn add_v6(
    list: &mut Vec<Entry>,
    range: Range<usize>,
    said: &Said<'_>,
    lists: &mut Lists,
    world: &World<'_>,
) -> Option<Hop> {
    let kind = joins(said.path, said.entry.protocol);
    let is =
        |entry: &Entry| lists.path(entry).is_some_and(|path| joins(path, entry.protocol) == kind);
    let of_kind = range.clone().find(|&at| is(&list[at]));
    let replaced = of_kind.or(range.clone().next());
    let replaces = said.origin == Origin::Event && said.flags & NLM_F_REPLACE != 0;
    if let Some(at) = replaced.filter(|_| replaces) {
        list[at] = said.entry;
        return None;
    }
    if said.path.ways.len() > 1 {
        // All that have joined: they take the place of what has become part of them.
        let part = |entry: &Entry| {
            is(entry)
                || lists.path(entry).is_some_and(|path| {
                    path.kind == said.path.kind
                        && !path.ways.is_empty()
                        && path.ways.iter().all(|way| said.path.ways.contains(way))
                })
        };
        let at = range.clone().find(|&at| part(&list[at])).unwrap_or(range.end);
        let parts: Vec<usize> = range.filter(|&at| part(&list[at])).collect();
        for at in parts.into_iter().rev() {
            list.remove(at);
        }
        list.insert(at, said.entry);
        return None;
    }
    let (Some(at), [way]) = (of_kind.filter(|_| kind), &said.path.ways[..]) else {
        list.insert(range.end, said.entry);
        return None;
    };
    let joined = lists.path(&list[at])?;
    if joined.ways.contains(way) {
        return None;
    }
    let mut joined = joined.clone();
    joined.ways.push(*way);
    let path = lists.paths.acquire(&joined, None, world)?;
    list[at].path = path;
    Some(path)
}

/// Takes from the list of a prefix what a message says is gone.
///
/// Returns a reference to be released afterwards if a path was made on the way.
pub(super) fn remove(
    list: &mut Vec<Entry>,
    said: &Said<'_>,
    lists: &mut Lists,
    world: &World<'_>,
) -> Option<Hop> {
    let range = same_metric(list, said.entry.metric);
    // Nothing but the same: of a route that went without a word the kernel may speak
    // later, when another that is nearly the same is still there.
    if let Some(at) = range.clone().find(|&at| list[at] == said.entry) {
        list.remove(at);
        return None;
    }
    if !said.path.v6 {
        return None;
    }
    // Some of the gateways of a metric.
    for at in range {
        let Some(from) = lists.path(&list[at]) else { continue };
        if !joins(from, list[at].protocol) {
            continue;
        }
        let gone = |way: &crate::netlink::Way| {
            let same = |other: &crate::netlink::Way| {
                (other.interface, other.gateway) == (way.interface, way.gateway)
            };
            said.path.ways.iter().any(same)
        };
        let mut left = from.clone();
        left.ways.retain(|way| !gone(way));
        if left.ways.len() == from.ways.len() {
            continue;
        }
        if left.ways.is_empty() {
            list.remove(at);
            return None;
        }
        let path = lists.paths.acquire(&left, None, world)?;
        list[at].path = path;
        return Some(path);
    }
    None
}
