//! The policy: the action for packets by destination, and the grantors of protected prefixes.
//!
//! ```text
//!   destination ── fib ──► action │ grantor set │ back │ front │ drop │
//!                                      │
//!   flow's hash ──► bucket │ 2 │ 0 │ 2 │ 1 │ … of 4096 ──► grantor
//! ```
//!
//! A [`Policy`] is a snapshot, read at every miss of the flow table and published as tables are
//! ([`fib::Publisher`]). Each has a generation: entries store theirs, and a flow is looked up again
//! when the generation differs (`gate.rs`).
//!
//! **Holes.** By longest match, a route to somewhere else within a protected prefix would lead past
//! the gate. Building a policy finds such routes and refuses them, unless they are named as exempt:
//! an operator who takes one host out of protection to look for a fault has to state that.
//!
//! **Grantors of a set** share flows by weight, by weighted rendezvous hashing (Thaler,
//! Ravishankar, IEEE/ACM Trans. Netw. 6(1), 1998; weights as in Schindelhauer, Schomaker,
//! SPAA 2005): bucket b belongs to the grantor of the highest score
//! weight / −ln u(b, address), u being even in (0, 1). When a grantor goes only its
//! buckets move, when one comes it takes its share and nothing else moves; the table
//! depends on addresses and weights alone, so every gate and worker has the same.
//!
//! **Limits** (`limit/aggregate.rs`) belong to sets: a prefix with a limit has a set of its own,
//! with the grantors of the set that it names. So do counters by rule (`gate/rule_counters.rs`): a
//! rule with counters has a set of its own, which identifies it. The hop that a lookup returns
//! stands for an action and a rule.
//!
//! **Sources** on the allow-list and the block list are looked up first (`policy/sources.rs`).
//! Packets that only a forger sends to the front, by their source or because they are for a
//! tunnel's end, have an action of their own (`policy/forged.rs`).

use core::fmt;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::collections::HashMap;
use std::sync::Arc;

use fib::{Choice, Family, Fib, Full, Hop, Prefix, Rib};

use crate::flow::{Flow, Pair, permute};
use crate::limit::aggregate::{Limit, MAX_LIMITS};

mod forged;
mod rule_id;
pub mod sources;

pub use forged::Forged;
use forged::{HostPrefix, InsidePrefixes};
pub use rule_id::{MAX_RULE_IDS, RuleId};
use sources::{SourceClass, SourceLists};

/// The buckets of a set, as a power of two.
const BUCKETS: u32 = 12;
/// Maximum number of grantor sets.
pub const MAX_SETS: usize = 1 << 15;

/// The action for packets to a prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    /// The prefix is protected; the grantors of this set decide.
    Grantors(u16),
    /// Forward to the back network without a grantor.
    Back,
    /// Send back to the front network.
    Front,
    /// Drop.
    Drop,
    /// Drop as forged: only a forger sends these packets to the front.
    Forged,
}

impl Action {
    /// Returns whether it forwards packets without a grantor.
    fn passes(self) -> bool {
        matches!(self, Self::Back | Self::Front)
    }
}

/// An address of a grantor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Address {
    /// IPv4.
    V4(u32),
    /// IPv6.
    V6(u128),
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::V4(address) => Ipv4Addr::from(address).fmt(f),
            Self::V6(address) => Ipv6Addr::from(address).fmt(f),
        }
    }
}

impl From<IpAddr> for Address {
    fn from(address: IpAddr) -> Self {
        match address {
            IpAddr::V4(address) => Self::V4(address.into()),
            IpAddr::V6(address) => Self::V6(address.into()),
        }
    }
}

impl From<Address> for IpAddr {
    fn from(address: Address) -> Self {
        match address {
            Address::V4(address) => Self::V4(address.into()),
            Address::V6(address) => Self::V6(address.into()),
        }
    }
}

/// A grantor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grantor {
    /// The destination of encapsulated packets.
    pub address: Address,
    /// Its share relative to the others'; 0 while it is not to be used.
    pub weight: u32,
}

/// Grantors that share flows.
#[derive(Clone, Debug)]
pub struct GrantorSet {
    grantors: Arc<[Grantor]>,
    /// The grantor of each bucket; empty if no weight is above 0.
    buckets: Arc<[u16]>,
    limit: Option<Limit>,
    line: RuleId,
}

impl GrantorSet {
    /// Makes a set of up to 65,535 grantors.
    pub fn new(grantors: &[Grantor]) -> Self {
        let used = |grantor: &Grantor| grantor.weight > 0;
        let buckets = if grantors.iter().any(used) { 1 << BUCKETS } else { 0 };
        let best = |bucket: u32| {
            let scores =
                (0..u16::MAX).zip(grantors).map(|(at, grantor)| (at, score(bucket, grantor)));
            scores.fold((0, -1.0), |best, next| if next.1 > best.1 { next } else { best }).0
        };
        let buckets = (0..buckets).map(best).collect();
        Self { grantors: grantors.into(), buckets, limit: None, line: RuleId::OTHERS }
    }

    /// Returns the grantor of the flow with this hash; none if no weight is above 0.
    #[inline]
    pub fn pick(&self, hash: u32) -> Option<&Grantor> {
        // Other bits than those that choose the worker.
        let bucket = permute(hash ^ 0x5bd1_e995) >> (32 - BUCKETS);
        self.grantors.get(usize::from(*self.buckets.get(bucket as usize)?))
    }

    /// Returns the limit on what goes to the prefix of this set, if it has one.
    #[inline]
    pub fn limit(&self) -> Option<Limit> {
        self.limit
    }

    /// Returns the grantors.
    pub fn grantors(&self) -> &[Grantor] {
        &self.grantors
    }
}

/// Returns the score of a grantor for a bucket.
fn score(bucket: u32, grantor: &Grantor) -> f64 {
    let (family, address) = match grantor.address {
        Address::V4(address) => (4, u128::from(address)),
        Address::V6(address) => (6, address),
    };
    let words = [u64::from(bucket) << 8 | family, (address >> 64) as u64, address as u64];
    let hash = words.into_iter().fold(0, |hash, word| mix(hash ^ word));
    let even = ((hash >> 11) as f64 + 0.5) / (1u64 << 53) as f64;
    f64::from(grantor.weight) / -even.ln()
}

/// The finalizer of SplitMix64 (Steele, Lea, Flood, OOPSLA 2014).
fn mix(word: u64) -> u64 {
    let word = word.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let word = (word ^ word >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let word = (word ^ word >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ word >> 31
}

/// The reason to refuse a policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PolicyError {
    /// A route within a protected or dropped prefix leads past it.
    Hole {
        /// The route, as text.
        inner: String,
        /// The prefix that it leads past.
        outer: String,
    },
    /// An action names a grantor set that does not exist.
    NoSuchSet {
        /// The prefix of the action, as text.
        prefix: String,
        /// The set.
        set: u16,
    },
    /// There are more sets than numbers for them.
    TooManySets,
    /// There are more prefixes with limits than buckets for them.
    TooManyLimits,
    /// The prefixes exceed what the tables can hold.
    Full(Full),
}

impl fmt::Display for PolicyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Hole { inner, outer } => write!(
                f,
                "{inner} would lead past the protection of {outer}: leave it out, or name it as exempt"
            ),
            Self::NoSuchSet { prefix, set } => {
                write!(f, "{prefix} names grantor set {set}, which does not exist: define it")
            }
            Self::TooManySets => write!(f, "there are more than {MAX_SETS} grantor sets"),
            Self::TooManyLimits => {
                write!(f, "there are more than {MAX_LIMITS} prefixes with limits")
            }
            Self::Full(full) => full.fmt(f),
        }
    }
}

impl std::error::Error for PolicyError {}

impl From<Full> for PolicyError {
    fn from(full: Full) -> Self {
        Self::Full(full)
    }
}

/// The meaning of a hop that a lookup returns.
type HopMeaning = (Action, RuleId);

/// Collects the parts of a policy.
#[derive(Debug, Default)]
pub struct PolicyBuilder {
    v4: Rib<u32>,
    v6: Rib<u128>,
    exempt4: Vec<Prefix<u32>>,
    exempt6: Vec<Prefix<u128>>,
    sets: Vec<GrantorSet>,
    limits: usize,
    line: RuleId,
    /// By hop, from 1 on.
    places: Vec<HopMeaning>,
    /// The hop of each meaning.
    hops: HashMap<HopMeaning, Hop>,
    sources: Arc<SourceLists>,
    sides: InsidePrefixes,
}

impl PolicyBuilder {
    /// Creates an empty builder.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a grantor set and returns its number.
    pub fn set(&mut self, grantors: &[Grantor]) -> u16 {
        self.sets.push(GrantorSet::new(grantors));
        (self.sets.len() - 1) as u16
    }

    /// Sets the rule that counts the packets of prefixes added from now on; those of grantors by
    /// [`set_with_limits`](Self::set_with_limits).
    pub fn set_rule(&mut self, line: RuleId) {
        self.line = line;
    }

    /// Adds the set of one rule: with the grantors of another set, with the rule's counters, and
    /// with limits in bits a second on the traffic to its prefix, if any: on all of it, and on each
    /// destination.
    ///
    /// # Panics
    ///
    /// If there is no such set.
    pub fn set_with_limits(&mut self, set: u16, all: Option<u64>, each: Option<u64>) -> u16 {
        let number = self.limits as u16;
        let limit = all.or(each).map(|_| Limit { number, all, each });
        self.limits += usize::from(limit.is_some());
        let of = self.sets[usize::from(set)].clone();
        self.sets.push(GrantorSet { limit, line: self.line, ..of });
        (self.sets.len() - 1) as u16
    }

    /// Sets the lists of sources that are looked up before anything else.
    pub fn sources(&mut self, sources: Arc<SourceLists>) {
        self.sources = sources;
    }

    /// Returns the hop of an action and the rule that counts it, which is its set's where it has
    /// one. Hops are as few as possible: tables with less than 256 of them are smaller and quicker.
    fn hop(&mut self, action: Action) -> Hop {
        let line = match action {
            Action::Grantors(set) => {
                self.sets.get(usize::from(set)).map_or(RuleId::OTHERS, |set| set.line)
            }
            _ => self.line,
        };
        *self.hops.entry((action, line)).or_insert_with(|| {
            self.places.push((action, line));
            Hop(self.places.len() as u32)
        })
    }

    /// Sets the action for packets to an IPv4 prefix.
    pub fn v4(&mut self, prefix: Prefix<u32>, action: Action) {
        let hop = self.hop(action);
        self.v4.insert(prefix, hop);
    }

    /// Sets the action for packets to an IPv6 prefix.
    pub fn v6(&mut self, prefix: Prefix<u128>, action: Action) {
        let hop = self.hop(action);
        self.v6.insert(prefix, hop);
    }

    /// Exempts an IPv4 prefix from the protection that it is within.
    pub fn exempt_v4(&mut self, prefix: Prefix<u32>, action: Action) {
        self.v4(prefix, action);
        self.exempt4.push(prefix);
    }

    /// Exempts an IPv6 prefix from the protection that it is within.
    pub fn exempt_v6(&mut self, prefix: Prefix<u128>, action: Action) {
        self.v6(prefix, action);
        self.exempt6.push(prefix);
    }

    /// States whether hosts with addresses of an IPv4 prefix are behind the gate: packets at the
    /// front with such a source are forged. The longest prefix counts.
    pub fn inside_v4(&mut self, prefix: Prefix<u32>, inside: bool) {
        self.sides.v4(prefix, inside);
    }

    /// States the same of an IPv6 prefix.
    pub fn inside_v6(&mut self, prefix: Prefix<u128>, inside: bool) {
        self.sides.v6(prefix, inside);
    }

    /// States that tunnels end at an address: packets at the front that are for it, or that have it
    /// as their source, are forged. This replaces what was added for the prefix of this address
    /// alone, so it comes after the rules.
    pub fn tunnel_end(&mut self, address: Address) {
        let line = core::mem::replace(&mut self.line, RuleId::NONE);
        match HostPrefix::from(address) {
            HostPrefix::V4(prefix) => {
                self.v4(prefix, Action::Forged);
                self.sides.v4(prefix, true);
            }
            HostPrefix::V6(prefix) => {
                self.v6(prefix, Action::Forged);
                self.sides.v6(prefix, true);
            }
        }
        self.line = line;
    }

    /// Builds the policy, of this generation.
    ///
    /// # Errors
    ///
    /// [`PolicyError`], by the first prefix it is found at.
    pub fn build(&self, generation: u64) -> Result<Policy, PolicyError> {
        if self.sets.len() > MAX_SETS {
            return Err(PolicyError::TooManySets);
        }
        if self.limits > MAX_LIMITS {
            return Err(PolicyError::TooManyLimits);
        }
        self.check(&self.v4, &self.exempt4)?;
        self.check(&self.v6, &self.exempt6)?;
        Ok(Policy {
            v4: Fib::build(&self.v4, Choice::Auto, 1)?,
            v6: Fib::build(&self.v6, Choice::Auto, 1)?,
            places: self.places.clone().into(),
            sets: self.sets.clone().into(),
            sources: Arc::clone(&self.sources),
            forged: self.sides.build()?,
            generation,
        })
    }

    /// Checks for holes and for sets that do not exist.
    fn check<A: Family>(&self, rib: &Rib<A>, exempt: &[Prefix<A>]) -> Result<(), PolicyError> {
        let of = |hop: Hop| self.places.get((hop.0 as usize).wrapping_sub(1)).map(|place| place.0);
        for (inner, hop) in rib {
            let Some(action) = of(hop) else { continue };
            if let Action::Grantors(set) = action
                && usize::from(set) >= self.sets.len()
            {
                return Err(PolicyError::NoSuchSet { prefix: inner.to_string(), set });
            }
            if !action.passes() || exempt.contains(&inner) {
                continue;
            }
            let stricter = |&(outer, hop): &(Prefix<A>, Hop)| {
                outer != inner && of(hop).is_some_and(|action| !action.passes())
            };
            if let Some((outer, _)) = rib.covering(inner).find(stricter) {
                let (inner, outer) = (inner.to_string(), outer.to_string());
                return Err(PolicyError::Hole { inner, outer });
            }
        }
        Ok(())
    }
}

/// A policy, frozen.
#[derive(Debug)]
pub struct Policy {
    v4: Fib<u32>,
    v6: Fib<u128>,
    /// By hop, from 1 on.
    places: Box<[HopMeaning]>,
    sets: Box<[GrantorSet]>,
    /// The lists of sources that are looked up before destinations.
    sources: Arc<SourceLists>,
    forged: Forged,
    generation: u64,
}

impl Policy {
    /// Returns the action for packets to an IPv4 address, if there is a route.
    pub fn action_v4(&self, dst: u32) -> Option<Action> {
        self.of(self.v4.lookup(dst)).0
    }

    /// Returns the action for packets to an IPv6 address, if there is a route.
    pub fn action_v6(&self, dst: u128) -> Option<Action> {
        self.of(self.v6.lookup(dst)).0
    }

    /// Looks up IPv4 destinations together, as many as there are hops, and calls `each` with the
    /// action and rule of each.
    pub fn actions_v4(
        &self,
        dsts: &[u32],
        hops: &mut [Hop],
        mut each: impl FnMut(usize, Option<Action>, RuleId),
    ) {
        self.v4.lookup_batch(dsts, hops);
        hops.iter().enumerate().for_each(|(at, &hop)| {
            let (action, line) = self.of(hop);
            each(at, action, line);
        });
    }

    /// Looks up IPv6 destinations together.
    pub fn actions_v6(
        &self,
        dsts: &[u128],
        hops: &mut [Hop],
        mut each: impl FnMut(usize, Option<Action>, RuleId),
    ) {
        self.v6.lookup_batch(dsts, hops);
        hops.iter().enumerate().for_each(|(at, &hop)| {
            let (action, line) = self.of(hop);
            each(at, action, line);
        });
    }

    /// Returns the lists of sources.
    #[inline]
    pub fn sources(&self) -> &SourceLists {
        &self.sources
    }

    /// Returns the list that a flow's source is on, if any.
    pub fn source(&self, flow: &Flow) -> Option<SourceClass> {
        self.sources.of(flow)
    }

    /// Returns the sources that no packet at the front can have.
    #[inline]
    pub fn forged(&self) -> &Forged {
        &self.forged
    }

    /// Returns the action for packets of a flow, if there is a route.
    pub fn action(&self, flow: &Flow) -> Option<Action> {
        self.action_and_rule(flow).0
    }

    /// Returns the action and the rule that counts it.
    pub fn action_and_rule(&self, flow: &Flow) -> (Option<Action>, RuleId) {
        if self.forged.contains(flow) {
            return (Some(Action::Forged), RuleId::NONE);
        }
        let hop = match flow.pair() {
            Pair::V4 { dst, .. } => self.v4.lookup(dst),
            Pair::V6 { dst, .. } => self.v6.lookup(dst),
        };
        self.of(hop)
    }

    /// Returns the meaning of a hop.
    #[inline(always)]
    fn of(&self, hop: Hop) -> (Option<Action>, RuleId) {
        match self.places.get((hop.0 as usize).wrapping_sub(1)) {
            Some(&(action, line)) => (Some(action), line),
            None => (None, RuleId::NONE),
        }
    }

    /// Returns the rule that counts packets of a grantor set's flows.
    #[inline]
    pub fn rule_of(&self, set: u16) -> RuleId {
        self.set(set).map_or(RuleId::OTHERS, |set| set.line)
    }

    /// Returns a grantor set.
    #[inline]
    pub fn set(&self, set: u16) -> Option<&GrantorSet> {
        self.sets.get(usize::from(set))
    }

    /// Returns the number that distinguishes this policy from earlier ones.
    #[inline]
    pub fn generation(&self) -> u64 {
        self.generation
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn p4(text: &str) -> Prefix<u32> {
        text.parse().unwrap()
    }

    fn grantor(address: u32, weight: u32) -> Grantor {
        Grantor { address: Address::V4(address), weight }
    }

    #[test]
    fn longest_prefix_decides_the_action() {
        let mut draft = PolicyBuilder::new();
        let set = draft.set(&[grantor(1, 1)]);
        draft.v4(p4("0.0.0.0/0"), Action::Front);
        draft.v4(p4("192.0.2.0/24"), Action::Grantors(set));
        draft.v4(p4("192.0.2.128/25"), Action::Drop);
        draft.exempt_v4(p4("192.0.2.129/32"), Action::Back);
        draft.v6("2001:db8::/32".parse().unwrap(), Action::Grantors(set));
        let policy = draft.build(7).unwrap();
        assert_eq!(policy.generation(), 7);
        let dsts = [0x0a00_0001, 0xc000_0201, 0xc000_02ff, 0xc000_0281];
        let expect = [Action::Front, Action::Grantors(set), Action::Drop, Action::Back];
        let mut met = 0;
        policy.actions_v4(&dsts, &mut [Hop::NONE; 4], |at, action, line| {
            assert_eq!(line, RuleId::OTHERS);
            assert_eq!(action, Some(expect[at]));
            assert_eq!(policy.action_v4(dsts[at]), action);
            met += 1;
        });
        assert_eq!(met, 4);
        assert_eq!(policy.action_v6(0x2001_0db8 << 96), Some(Action::Grantors(set)));
        assert_eq!(policy.action_v6(0), None);
    }

    #[test]
    fn each_rule_has_its_line_or_the_shared_one() {
        let mut draft = PolicyBuilder::new();
        let set = draft.set(&[grantor(1, 1)]);
        let line = |number| RuleId::of_rule(number).unwrap();
        let actions = [Action::Back, Action::Front, Action::Drop];
        for (at, number) in (0..).zip([0, 7, MAX_RULE_IDS - 1]) {
            draft.set_rule(line(number));
            let own = draft.set_with_limits(set, None, None);
            assert!(draft.sets[usize::from(own)].limit().is_none());
            draft.v4(Prefix::truncate(at << 24, 8), Action::Grantors(own));
            for (part, action) in (1..).zip(actions) {
                draft.exempt_v6(Prefix::truncate(u128::from(at) << 120 | part << 96, 32), action);
            }
        }
        assert_eq!(draft.limits, 0);
        draft.set_rule(RuleId::OTHERS);
        draft.v4(p4("9.0.0.0/8"), Action::Grantors(set));
        draft.v4(p4("10.0.0.0/8"), Action::Drop);
        let policy = draft.build(1).unwrap();
        for (at, number) in (0..).zip([0, 7, MAX_RULE_IDS - 1]) {
            let (action, counts) = policy.action_and_rule(&Flow::v4(1, at << 24));
            assert!(matches!(action, Some(Action::Grantors(own)) if policy.rule_of(own) == counts));
            assert_eq!(counts, line(number));
            for (part, action) in (1..).zip(actions) {
                let flow = Flow::v6(1, u128::from(at) << 120 | part << 96);
                assert_eq!(policy.action_and_rule(&flow), (Some(action), line(number)));
            }
        }
        assert_eq!(
            policy.action_and_rule(&Flow::v4(1, 9 << 24)),
            (Some(Action::Grantors(set)), RuleId::OTHERS)
        );
        assert_eq!(
            policy.action_and_rule(&Flow::v4(1, 10 << 24)),
            (Some(Action::Drop), RuleId::OTHERS)
        );
        assert_eq!(policy.action_and_rule(&Flow::v4(1, 11 << 24)), (None, RuleId::NONE));
    }

    #[test]
    fn hole_or_missing_set_is_rejected_with_its_prefix() {
        let mut draft = PolicyBuilder::new();
        draft.v4(p4("192.0.2.0/24"), Action::Drop);
        draft.v4(p4("192.0.2.0/26"), Action::Back);
        let error = draft.build(1).unwrap_err();
        assert_eq!(
            error.to_string(),
            "192.0.2.0/26 would lead past the protection of 192.0.2.0/24: \
             leave it out, or name it as exempt"
        );
        // Also behind a route that is no hole itself, and for the other family.
        let mut draft = PolicyBuilder::new();
        let set = draft.set(&[grantor(1, 1)]);
        draft.v6("2001:db8::/32".parse().unwrap(), Action::Grantors(set));
        draft.exempt_v6("2001:db8::/48".parse().unwrap(), Action::Back);
        draft.v6("2001:db8::/64".parse().unwrap(), Action::Front);
        assert!(matches!(draft.build(1), Err(PolicyError::Hole { .. })));
        let mut draft = PolicyBuilder::new();
        draft.v4(p4("10.0.0.0/8"), Action::Grantors(0));
        let error = draft.build(1).unwrap_err();
        assert_eq!(error, PolicyError::NoSuchSet { prefix: "10.0.0.0/8".to_owned(), set: 0 });
    }

    fn shares(set: &GrantorSet) -> Vec<f64> {
        let mut counts = vec![0u32; set.grantors().len()];
        const FLOWS: u32 = 200_000;
        for flow in 0..FLOWS {
            let grantor = set.pick(permute(flow)).unwrap();
            counts[set.grantors().iter().position(|have| have == grantor).unwrap()] += 1;
        }
        counts.into_iter().map(|count| f64::from(count) / f64::from(FLOWS)).collect()
    }

    #[test]
    fn grantors_share_flows_by_weight() {
        let set = GrantorSet::new(&[grantor(1, 1), grantor(2, 2), grantor(3, 5), grantor(4, 0)]);
        for (share, expect) in shares(&set).into_iter().zip([0.125, 0.25, 0.625, 0.0]) {
            assert!((share - expect).abs() < 0.03, "{share} for {expect}");
        }
        assert!(GrantorSet::new(&[]).pick(1).is_none());
        assert!(GrantorSet::new(&[grantor(1, 0)]).pick(1).is_none());
    }

    #[test]
    fn only_flows_of_a_removed_or_added_grantor_move() {
        let four: Vec<Grantor> = (1..5).map(|address| grantor(address, 3)).collect();
        let before = GrantorSet::new(&four);
        let without = GrantorSet::new(&[four[0], four[1], four[3]]);
        let mut down = four;
        down[2].weight = 0;
        let down = GrantorSet::new(&down);
        for flow in 0..50_000 {
            let hash = permute(flow);
            let was = before.pick(hash).unwrap();
            let now = without.pick(hash).unwrap();
            assert!(was == now || was.address == Address::V4(3));
            // Weight 0 equals a removal, whatever the order of the list.
            assert_eq!(down.pick(hash).unwrap(), now);
        }
    }
}
