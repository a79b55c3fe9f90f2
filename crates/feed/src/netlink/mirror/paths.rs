//! Paths: the destination of a route as the kernel states it, each stored once.
//!
//! ```text
//!  message ─► Path (type, nexthops, object number …) ─► Hop ─► State ─► Arc<Target>
//!             identity: never changes                          usable now
//! ```
//!
//! A deletion is matched by its path, so the path is stored as the message stated it, dead nexthops
//! included. Which of its nexthops are usable changes with links and nexthop objects, mostly without
//! a message about the routes; so each path has a target computed from it, and a route's target is
//! looked up through its path.
//!
//! The usable nexthops:
//! - never a dead one: the kernel marks a nexthop dead when its link goes down or the last IPv4
//!   address of the link is removed, and clears the mark when the link comes up or gets an address;
//! - never one over a link that is down;
//! - one over a link without a carrier never, if `ignore_routes_with_linkdown` is set (as FRR
//!   advises); otherwise only if no other is left, because the kernel goes on using it, and a
//!   fallback to a shorter prefix would disagree with the kernel.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use fib::{Hop, HopTable};

use crate::netlink::follower::{Target, Via};
use crate::netlink::link::Link;
use crate::netlink::netconf::ALL;
use crate::netlink::nexthop::NexthopObject;
use crate::netlink::route::{RouteNexthop, route_mtu};
use crate::netlink::uapi::{
    RTN_ANYCAST, RTN_BLACKHOLE, RTN_BROADCAST, RTN_LOCAL, RTN_MULTICAST, RTN_PROHIBIT, RTN_THROW,
    RTN_UNICAST, RTN_UNREACHABLE, RTNH_F_ONLINK,
};

/// The identity of a route's destination.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Path {
    pub(super) v6: bool,
    /// `RTN_…`
    pub(super) kind: u8,
    /// The scope of an IPv4 route; routes of host scope survive a link that goes down.
    pub(super) scope: u8,
    /// The nexthop object, 0 if none; if there is one, no nexthops.
    pub(super) nexthop_id: u32,
    /// The preferred source of an IPv4 route, 0 if none.
    pub(super) source: u32,
    /// The MTU of the route, 0 if it has none.
    /// It is part of the identity of an IPv4 route only ([`Path::is_like`]).
    pub(super) mtu: u32,
    /// A hash of the other attributes that distinguish IPv4 routes in the kernel.
    pub(super) other: u32,
    /// The flags of each hold `RTNH_F_ONLINK` at the most.
    pub(super) nexthops: Vec<RouteNexthop>,
}

impl Path {
    /// Returns whether the kernel takes both for one route: an IPv6 route may have another MTU, which
    /// the kernel changes without a notification (RFC 4861, 6.3.4).
    pub(super) fn is_like(&self, other: &Self) -> bool {
        let Self { v6, kind, scope, nexthop_id, source, mtu, other: attributes, nexthops } = self;
        *v6 == other.v6
            && *kind == other.kind
            && *scope == other.scope
            && *nexthop_id == other.nexthop_id
            && *source == other.source
            && (*v6 || *mtu == other.mtu)
            && *attributes == other.other
            && *nexthops == other.nexthops
    }

    /// Returns whether a nexthop uses the link.
    pub(super) fn uses(&self, index: u32) -> bool {
        self.nexthops.iter().any(|nexthop| nexthop.interface == index)
    }
}

#[derive(Debug, Default)]
struct State {
    /// The dead marks of the nexthops; shorter than the nexthops if the others are not dead.
    dead: Vec<bool>,
    target: Option<Arc<Target>>,
}

/// The state from which targets are computed.
pub(super) struct ResolveContext<'a> {
    pub(super) links: &'a BTreeMap<u32, Link>,
    pub(super) nexthop_objects: &'a BTreeMap<u32, NexthopObject>,
    pub(super) ignoring: &'a BTreeSet<(bool, i32)>,
}

impl ResolveContext<'_> {
    /// Returns whether routes of a family over a link are unusable without a carrier.
    pub(super) fn ignores(&self, v6: bool, index: u32) -> bool {
        // The setting for all interfaces applies to IPv4 only; for IPv6 it sets each interface.
        let all = !v6 && self.ignoring.contains(&(v6, ALL));
        all || self.ignoring.contains(&(v6, index.cast_signed()))
    }
}

/// All paths in use, with reference counts: one for each list candidate that has it.
#[derive(Default)]
pub(super) struct Paths {
    pool: HopTable<Path>,
    states: Vec<State>,
    targets: HashSet<Arc<Target>>,
    by_object: HashMap<u32, Vec<Hop>>,
    /// Scratch memory for a target that may already be interned.
    scratch: Option<Target>,
}

impl Paths {
    /// Adds a reference to a path. `dead` are the indexes of its dead nexthops as a message
    /// just change; `None` if nothing was change, which leaves what is known.
    pub(super) fn acquire(
        &mut self,
        path: &Path,
        dead: Option<&[bool]>,
        context: &ResolveContext<'_>,
    ) -> Option<Hop> {
        let known = self.pool.find(path).is_some();
        let hop = self.pool.acquire(path).ok()?;
        let at = hop.0 as usize;
        if self.states.len() <= at {
            self.states.resize_with(at + 1, State::default);
        }
        if !known {
            self.states[at] = State::default();
            if path.nexthop_id != 0 {
                self.by_object.entry(path.nexthop_id).or_default().push(hop);
            }
        }
        if !known || dead.is_some_and(|dead| dead != self.states[at].dead) {
            self.states[at].dead = dead.unwrap_or_default().to_vec();
            self.retarget(hop, context);
        }
        Some(hop)
    }

    /// Adds a reference to a path that is already referenced.
    pub(super) fn retain(&mut self, hop: Hop) {
        if let Some(path) = self.pool.get(hop).cloned() {
            // The path is in the table, so this cannot fail.
            let _ = self.pool.acquire(&path);
        }
    }

    /// Drops a reference.
    pub(super) fn release(&mut self, hop: Hop) {
        let Some(path) = self.pool.release(hop) else { return };
        self.states[hop.0 as usize] = State::default();
        if let Some(hops) = self.by_object.get_mut(&path.nexthop_id) {
            hops.retain(|&other| other != hop);
            if hops.is_empty() {
                self.by_object.remove(&path.nexthop_id);
            }
        }
    }

    pub(super) fn get(&self, hop: Hop) -> Option<&Path> {
        self.pool.get(hop)
    }

    /// Returns the current target of a path; `None` if no nexthop is usable.
    pub(super) fn target(&self, hop: Hop) -> Option<&Arc<Target>> {
        self.states.get(hop.0 as usize)?.target.as_ref()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (Hop, &Path)> {
        self.pool.iter().map(|(hop, path, _)| (hop, path))
    }

    pub(super) fn by_object(&self, id: u32) -> &[Hop] {
        self.by_object.get(&id).map_or(&[], Vec::as_slice)
    }

    pub(super) fn len(&self) -> usize {
        self.pool.len()
    }

    /// Sets or clears the dead mark of the nexthops over a link; returns whether all nexthops are now
    /// dead, by a mark or by a link that is down.
    pub(super) fn mark(
        &mut self,
        hop: Hop,
        index: u32,
        dead: bool,
        context: &ResolveContext<'_>,
    ) -> bool {
        let (Some(path), Some(state)) = (self.pool.get(hop), self.states.get_mut(hop.0 as usize))
        else {
            return false;
        };
        if state.dead.is_empty() && dead {
            state.dead.resize(path.nexthops.len(), false);
        }
        for (nexthop, mark) in path.nexthops.iter().zip(&mut state.dead) {
            if nexthop.interface == index {
                *mark = dead;
            }
        }
        let down = |nexthop: &RouteNexthop| {
            context.links.get(&nexthop.interface).is_some_and(|link| !link.up)
        };
        let mut nexthops = path.nexthops.iter().zip(&state.dead);
        let all = !state.dead.is_empty() && nexthops.all(|(nexthop, &dead)| dead || down(nexthop));
        if state.dead.iter().all(|&dead| !dead) {
            state.dead.clear();
        }
        all
    }

    /// Recomputes the target; returns whether it has changed.
    pub(super) fn retarget(&mut self, hop: Hop, context: &ResolveContext<'_>) -> bool {
        let at = hop.0 as usize;
        let (Some(path), Some(state)) = (self.pool.get(hop), self.states.get(at)) else {
            return false;
        };
        let mut vias = match self.scratch.take() {
            Some(Target::Via(vias)) => vias,
            _ => Vec::new(),
        };
        vias.clear();
        let target = target(path, &state.dead, context, vias);
        let interned = target.as_ref().map(|target| match self.targets.get(target) {
            Some(interned) => interned.clone(),
            None => {
                let interned = Arc::new(target.clone());
                self.targets.insert(interned.clone());
                interned
            }
        });
        self.scratch = target;
        let state = &mut self.states[at];
        let changed = state.target != interned;
        state.target = interned;
        if self.targets.len() > 64 + 4 * self.pool.len() {
            self.targets.retain(|target| Arc::strong_count(target) > 1);
        }
        changed
    }
}

/// Computes the target of a path, with `vias` as scratch memory.
fn target(
    path: &Path,
    dead: &[bool],
    context: &ResolveContext<'_>,
    vias: Vec<Via>,
) -> Option<Target> {
    match path.kind {
        RTN_UNICAST if path.nexthop_id != 0 => by_object(path, context, vias),
        RTN_UNICAST => {
            let nexthops = path.nexthops.iter().enumerate();
            let alive = nexthops.filter(|(at, _)| !dead.get(*at).copied().unwrap_or(false));
            by_nexthops(path, alive.map(|(_, nexthop)| *nexthop), context, vias)
        }
        RTN_LOCAL | RTN_ANYCAST => Some(Target::Local),
        RTN_BROADCAST => Some(Target::Broadcast),
        RTN_MULTICAST => Some(Target::Multicast),
        RTN_BLACKHOLE => Some(Target::Blackhole),
        RTN_UNREACHABLE => Some(Target::Unreachable),
        RTN_PROHIBIT => Some(Target::Prohibit),
        RTN_THROW => Some(Target::Throw),
        _ => None,
    }
}

fn by_object(path: &Path, context: &ResolveContext<'_>, vias: Vec<Via>) -> Option<Target> {
    match context.nexthop_objects.get(&path.nexthop_id)? {
        NexthopObject::Single(nexthop) => by_nexthops(path, [*nexthop].into_iter(), context, vias),
        NexthopObject::Blackhole => Some(Target::Blackhole),
        NexthopObject::Bridge => None,
        NexthopObject::Group { members, .. } => {
            let nexthops =
                members.iter().filter_map(|&(id, weight)| match context.nexthop_objects.get(&id) {
                    // Groups have no groups as members.
                    Some(NexthopObject::Single(nexthop)) => {
                        Some(RouteNexthop { weight, ..*nexthop })
                    }
                    _ => None,
                });
            let black = |&(id, _): &(u32, u16)| {
                context.nexthop_objects.get(&id) == Some(&NexthopObject::Blackhole)
            };
            let blackhole = members.iter().any(black);
            by_nexthops(path, nexthops, context, vias).or(blackhole.then_some(Target::Blackhole))
        }
    }
}

fn by_nexthops(
    path: &Path,
    nexthops: impl Iterator<Item = RouteNexthop> + Clone,
    context: &ResolveContext<'_>,
    mut vias: Vec<Via>,
) -> Option<Target> {
    // The message about an unknown interface has not arrived yet.
    let up = |nexthop: &RouteNexthop| {
        let link = context.links.get(&nexthop.interface);
        link.is_none_or(|link| link.up)
    };
    let carried = |nexthop: &RouteNexthop| {
        context.links.get(&nexthop.interface).is_none_or(|link| link.carrier)
    };
    let ignored =
        |nexthop: &RouteNexthop| !carried(nexthop) && context.ignores(path.v6, nexthop.interface);
    let alive = nexthops.filter(|nexthop| up(nexthop) && !ignored(nexthop));
    if alive.clone().any(|nexthop| nexthop.encapsulated) {
        return Some(Target::Local);
    }
    let any_carried = alive.clone().any(|nexthop| carried(&nexthop));
    vias.extend(alive.filter(|nexthop| !any_carried || carried(nexthop)).map(|nexthop| Via {
        interface: nexthop.interface,
        gateway: nexthop.gateway,
        weight: nexthop.weight,
        onlink: nexthop.flags & RTNH_F_ONLINK != 0,
        source: (path.source != 0).then(|| path.source.into()),
        mtu: route_mtu(path.mtu, path.v6),
    }));
    vias.sort_unstable();
    vias.dedup_by(|later, kept| {
        let same = Via { weight: kept.weight, ..*later } == *kept;
        if same {
            kept.weight = kept.weight.saturating_add(later.weight);
        }
        same
    });
    if let [only] = &mut vias[..] {
        only.weight = 1;
    }
    (!vias.is_empty()).then_some(Target::Via(vias))
}
