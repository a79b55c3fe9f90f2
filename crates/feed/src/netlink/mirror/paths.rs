//! Paths: where a route leads as the kernel words it, each kept once.
//!
//! ```text
//!  message ─► Path (type, ways, nexthop number …) ─► Hop ─► State ─► Arc<Target>
//!             what identifies it: never changes              what is usable now
//! ```
//!
//! A path is what a deletion is matched by: it is kept as it was said, dead ways and
//! all. What can be used of it changes with links and nexthop objects, mostly without
//! a word about the routes themselves; so each path has a target computed from it,
//! and a route's target is looked up through its path.
//!
//! Which ways are used:
//! - dead ones never: the kernel marks a way when its link goes down or the last IPv4
//!   address of the link is removed, and unmarks it when the link comes up or gets one;
//! - those over a link that is down never;
//! - those over a link without a carrier never, where `ignore_routes_with_linkdown` is set
//!   (as FRR advises); elsewhere only while no other is left, since the kernel goes on
//!   using them, and to fall back to a shorter prefix would be to disagree with it.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use fib::{Hop, HopTable};

use crate::netlink::follower::{Target, Via};
use crate::netlink::link::Link;
use crate::netlink::netconf::ALL;
use crate::netlink::nexthop::Nexthop;
use crate::netlink::route::Way;
use crate::netlink::uapi::{
    RTN_ANYCAST, RTN_BLACKHOLE, RTN_BROADCAST, RTN_LOCAL, RTN_MULTICAST, RTN_PROHIBIT, RTN_THROW,
    RTN_UNICAST, RTN_UNREACHABLE, RTNH_F_ONLINK,
};

/// What identifies where a route leads.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Path {
    pub(super) v6: bool,
    /// `RTN_…`
    pub(super) kind: u8,
    /// The scope of an IPv4 route; those of the host itself outlive a link's going down.
    pub(super) scope: u8,
    /// The nexthop object, 0 if none; if there is one, no ways.
    pub(super) nexthop: u32,
    /// The preferred source of an IPv4 route, 0 if none.
    pub(super) source: u32,
    /// What else makes two IPv4 routes different to the kernel, as a hash.
    pub(super) other: u32,
    /// The flags of each hold `RTNH_F_ONLINK` at the most.
    pub(super) ways: Vec<Way>,
}

impl Path {
    /// Says whether a way goes by the link.
    pub(super) fn uses(&self, index: u32) -> bool {
        self.ways.iter().any(|way| way.interface == index)
    }
}

#[derive(Debug, Default)]
struct State {
    /// Which of the ways are marked dead; shorter than the ways if no other is.
    dead: Vec<bool>,
    target: Option<Arc<Target>>,
}

/// What targets are computed from.
pub(super) struct World<'a> {
    pub(super) links: &'a BTreeMap<u32, Link>,
    pub(super) nexthops: &'a BTreeMap<u32, Nexthop>,
    pub(super) ignoring: &'a BTreeSet<(bool, i32)>,
}

impl World<'_> {
    /// Says whether routes of a family over a link do not count without a carrier.
    pub(super) fn ignores(&self, v6: bool, index: u32) -> bool {
        // What is set for all counts for IPv4 only; for IPv6 it sets each.
        let all = !v6 && self.ignoring.contains(&(v6, ALL));
        all || self.ignoring.contains(&(v6, index.cast_signed()))
    }
}

/// All paths in use, with reference counts: one for each list entry that has it.
#[derive(Default)]
pub(super) struct Paths {
    pool: HopTable<Path>,
    states: Vec<State>,
    targets: HashSet<Arc<Target>>,
    by_nexthop: HashMap<u32, Vec<Hop>>,
    /// Where vias are gathered before it is known whether they are new.
    scratch: Option<Target>,
}

impl Paths {
    /// Adds a reference to a path. `dead` are the indexes of its dead ways as a message
    /// just said; `None` if nothing was said, which leaves what is known.
    pub(super) fn acquire(
        &mut self,
        path: &Path,
        dead: Option<&[bool]>,
        world: &World<'_>,
    ) -> Option<Hop> {
        let known = self.pool.find(path).is_some();
        let hop = self.pool.acquire(path).ok()?;
        let at = hop.0 as usize;
        if self.states.len() <= at {
            self.states.resize_with(at + 1, State::default);
        }
        if !known {
            self.states[at] = State::default();
            if path.nexthop != 0 {
                self.by_nexthop.entry(path.nexthop).or_default().push(hop);
            }
        }
        if !known || dead.is_some_and(|dead| dead != self.states[at].dead) {
            self.states[at].dead = dead.unwrap_or_default().to_vec();
            self.retarget(hop, world);
        }
        Some(hop)
    }

    /// Adds a reference to a path that has some.
    pub(super) fn retain(&mut self, hop: Hop) {
        if let Some(path) = self.pool.get(hop).cloned() {
            // It is in the table, so that there is room for it.
            let _ = self.pool.acquire(&path);
        }
    }

    /// Drops a reference.
    pub(super) fn release(&mut self, hop: Hop) {
        let Some(path) = self.pool.release(hop) else { return };
        self.states[hop.0 as usize] = State::default();
        if let Some(hops) = self.by_nexthop.get_mut(&path.nexthop) {
            hops.retain(|&other| other != hop);
            if hops.is_empty() {
                self.by_nexthop.remove(&path.nexthop);
            }
        }
    }

    pub(super) fn get(&self, hop: Hop) -> Option<&Path> {
        self.pool.get(hop)
    }

    /// Returns where a path leads now; `None` if none of its ways can be used.
    pub(super) fn target(&self, hop: Hop) -> Option<&Arc<Target>> {
        self.states.get(hop.0 as usize)?.target.as_ref()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (Hop, &Path)> {
        self.pool.iter().map(|(hop, path, _)| (hop, path))
    }

    pub(super) fn by_nexthop(&self, id: u32) -> &[Hop] {
        self.by_nexthop.get(&id).map_or(&[], Vec::as_slice)
    }

    pub(super) fn len(&self) -> usize {
        self.pool.len()
    }

    /// Marks the ways over a link dead, or unmarks them; returns whether all are dead now,
    /// marked or over a link that is down.
    pub(super) fn mark(&mut self, hop: Hop, index: u32, dead: bool, world: &World<'_>) -> bool {
        let (Some(path), Some(state)) = (self.pool.get(hop), self.states.get_mut(hop.0 as usize))
        else {
            return false;
        };
        if state.dead.is_empty() && dead {
            state.dead.resize(path.ways.len(), false);
        }
        for (way, mark) in path.ways.iter().zip(&mut state.dead) {
            if way.interface == index {
                *mark = dead;
            }
        }
        let down = |way: &Way| world.links.get(&way.interface).is_some_and(|link| !link.up);
        let mut ways = path.ways.iter().zip(&state.dead);
        let all = !state.dead.is_empty() && ways.all(|(way, &dead)| dead || down(way));
        if state.dead.iter().all(|&dead| !dead) {
            state.dead.clear();
        }
        all
    }

    /// Computes the target anew; returns whether it has changed.
    pub(super) fn retarget(&mut self, hop: Hop, world: &World<'_>) -> bool {
        let at = hop.0 as usize;
        let (Some(path), Some(state)) = (self.pool.get(hop), self.states.get(at)) else {
            return false;
        };
        let mut vias = match self.scratch.take() {
            Some(Target::Via(vias)) => vias,
            _ => Vec::new(),
        };
        vias.clear();
        let target = target(path, &state.dead, world, vias);
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

/// Computes where a path leads, with `vias` as memory.
fn target(path: &Path, dead: &[bool], world: &World<'_>, vias: Vec<Via>) -> Option<Target> {
    match path.kind {
        RTN_UNICAST if path.nexthop != 0 => by_nexthop(path, world, vias),
        RTN_UNICAST => {
            let ways = path.ways.iter().enumerate();
            let alive = ways.filter(|(at, _)| !dead.get(*at).copied().unwrap_or(false));
            by_ways(path.v6, alive.map(|(_, way)| *way), world, vias)
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

fn by_nexthop(path: &Path, world: &World<'_>, vias: Vec<Via>) -> Option<Target> {
    match world.nexthops.get(&path.nexthop)? {
        Nexthop::Way(way) => by_ways(path.v6, [*way].into_iter(), world, vias),
        Nexthop::Blackhole => Some(Target::Blackhole),
        Nexthop::Bridge => None,
        Nexthop::Group { members, .. } => {
            let ways = members.iter().filter_map(|&(id, weight)| match world.nexthops.get(&id) {
                // Groups have no groups as members.
                Some(Nexthop::Way(way)) => Some(Way { weight, ..*way }),
                _ => None,
            });
            let black =
                |&(id, _): &(u32, u16)| world.nexthops.get(&id) == Some(&Nexthop::Blackhole);
            let blackhole = members.iter().any(black);
            by_ways(path.v6, ways, world, vias).or(blackhole.then_some(Target::Blackhole))
        }
    }
}

fn by_ways(
    v6: bool,
    ways: impl Iterator<Item = Way> + Clone,
    world: &World<'_>,
    mut vias: Vec<Via>,
) -> Option<Target> {
    // An interface not heard of is one whose message is yet to come.
    let up = |way: &Way| {
        let link = world.links.get(&way.interface);
        link.is_none_or(|link| link.up)
    };
    let carried = |way: &Way| world.links.get(&way.interface).is_none_or(|link| link.carrier);
    let ignored = |way: &Way| !carried(way) && world.ignores(v6, way.interface);
    let alive = ways.filter(|way| up(way) && !ignored(way));
    if alive.clone().any(|way| way.encapsulated) {
        return Some(Target::Local);
    }
    let any_carried = alive.clone().any(|way| carried(&way));
    vias.extend(alive.filter(|way| !any_carried || carried(way)).map(|way| Via {
        interface: way.interface,
        gateway: way.gateway,
        weight: way.weight,
        onlink: way.flags & RTNH_F_ONLINK != 0,
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
