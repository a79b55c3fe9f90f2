//! Groups: a hop that stands for several next hops, each with its share of the flows.
//!
//! ```text
//!   flow ── hash ──► buckets │ 3 │ 7 │ 3 │ 3 │ 7 │ 9 │ … ──► hop ──► adjacency
//!                            0   1   2   3   4   5       2^k - 1
//! ```
//!
//! The hash of a packet's flow selects a bucket (`flow.rs`), and the bucket holds the hop of a
//! member, so all packets of a flow leave by one member, in order. The number of a member's buckets
//! is proportional to its weight. The control plane makes the buckets with [`Group::of`] from the
//! previous ones; the datapath loads one.
//!
//! **Resilient.** A flow moves only if its bucket does. When a member is removed, only its buckets
//! are reassigned; a new member takes as many buckets as it needs, from all others in proportion.
//! (Hash modulo members, RFC 2992, moves most flows in either case. Linux has the same method as
//! "resilient nexthop groups", with timers; here buckets move at once.)
//!
//! **Exact.** The number of a member's buckets is its ideal share rounded down or up. There are so
//! many buckets that the smallest share has [`FINE`], if [`MAX_BUCKETS`] buckets allow it, so rounding
//! changes a share by less than 1 % of itself. When a group needs more buckets, the list doubles:
//! bucket i is repeated at i + 2^k, and the next bit of the hash selects between the two, so no
//! flow moves. The list never shrinks. A share below 1 / [`MAX_BUCKETS`] may get no bucket.
//!
//! A member of weight 0 has no flows and still belongs to the group: its link is down or its
//! neighbor not resolved. The reverse path filter accepts packets *from* it as before
//! (`source.rs`). Members are next hops; a group in a group is no route.

use fib::Hop;

/// The minimum number of buckets.
const MIN_BUCKETS: usize = 256;
/// The maximum number of buckets: 16 KiB.
const MAX_BUCKETS: usize = 4096;
/// The number of buckets that the smallest share is to have.
const FINE: u64 = 128;

/// The next hops that a hop stands for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Group {
    /// The buckets: none, or a power of two.
    buckets: Box<[Hop]>,
    /// The members, each once, in order, including those of weight 0.
    members: Box<[Hop]>,
}

/// A member while buckets are assigned.
struct Share {
    hop: Hop,
    weight: u64,
    /// The number of buckets that it had.
    had: u64,
    /// The number of buckets that it is to have.
    due: u64,
}

impl Group {
    /// Makes a group of `members`, each with its weight, and keeps the flows where `before` has
    /// them as far as the weights allow. The weights of a member that is listed twice are added.
    /// Without a weight above 0 there are no buckets, and the group is no route.
    ///
    /// # Complexity
    ///
    /// O(buckets + members²); for the control plane.
    ///
    /// # Examples
    ///
    /// ```
    /// use fib::Hop;
    /// use fingerpost_datapath::Group;
    /// let two = Group::of(&[(Hop(1), 1), (Hop(2), 1)], &Group::default());
    /// let three = Group::of(&[(Hop(1), 1), (Hop(2), 1), (Hop(3), 2)], &two);
    /// // Half of the flows move to the third member; the others do not move.
    /// let moved = (0..1 << 16).filter(|&hash| three.choose(hash) != two.choose(hash));
    /// assert!(moved.clone().all(|hash| three.choose(hash) == Hop(3)));
    /// assert_eq!(moved.count(), 1 << 15);
    /// ```
    pub fn of(members: &[(Hop, u16)], before: &Self) -> Self {
        let mut shares: Vec<Share> = Vec::new();
        for &(hop, weight) in members.iter().filter(|(hop, _)| hop.is_some()) {
            match shares.iter_mut().find(|share| share.hop == hop) {
                Some(share) => share.weight += u64::from(weight),
                None => shares.push(Share { hop, weight: weight.into(), had: 0, due: 0 }),
            }
        }
        shares.sort_by_key(|share| share.hop);
        let members = shares.iter().map(|share| share.hop).collect();
        shares.retain(|share| share.weight > 0);
        let total: u64 = shares.iter().map(|share| share.weight).sum();
        let Some(least) = shares.iter().map(|share| share.weight).min() else {
            return Self { buckets: Box::default(), members };
        };
        let wanted = (FINE * total).div_ceil(least).min(MAX_BUCKETS as u64) as usize;
        let count =
            before.buckets.len().max(wanted.next_power_of_two()).clamp(MIN_BUCKETS, MAX_BUCKETS);
        let mut buckets = vec![Hop::NONE; count];
        for (bucket, &hop) in buckets.iter_mut().zip(before.buckets.iter().cycle()) {
            if let Some(share) = find(&mut shares, hop) {
                share.had += 1;
                *bucket = hop;
            }
        }
        let fewer = shares.iter().all(|share| share.had > 0) && buckets.contains(&Hop::NONE);
        apportion(&mut shares, total, count as u64, fewer);
        deal(&mut buckets, &mut shares);
        Self { buckets: buckets.into(), members }
    }

    /// Returns the member for flows with this hash, or [`Hop::NONE`] if there is none.
    #[inline(always)]
    pub fn choose(&self, hash: u64) -> Hop {
        let last = self.buckets.len().wrapping_sub(1);
        self.buckets.get(hash as usize & last).copied().unwrap_or(Hop::NONE)
    }

    /// Returns the members in order, including those of weight 0.
    pub fn members(&self) -> &[Hop] {
        &self.members
    }

    /// Returns the buckets: none, or a power of two.
    pub fn buckets(&self) -> &[Hop] {
        &self.buckets
    }
}

fn find(shares: &mut [Share], hop: Hop) -> Option<&mut Share> {
    let at = shares.binary_search_by_key(&hop, |share| share.hop).ok()?;
    shares.get_mut(at)
}

/// Sets the number of buckets that each share is due: its ideal rounded down or up, as close as
/// possible to the number that it had, `count` in all. If members were only removed (`fewer`), no
/// remaining member is due fewer than it had, unless its weight has fallen, so that no other flow
/// moves.
fn apportion(shares: &mut [Share], total: u64, count: u64, fewer: bool) {
    let floor = |share: &Share| share.weight * count / total;
    let ceiling = |share: &Share| (share.weight * count).div_ceil(total);
    // The excess of a share over its ideal, in fractions of a bucket with the denominator `total`.
    let over =
        |share: &Share| (share.due * total).cast_signed() - (share.weight * count).cast_signed();
    let mut dealt = 0;
    for share in &mut *shares {
        share.due = share.had.clamp(floor(share), ceiling(share));
        dealt += share.due;
    }
    while dealt < count {
        let room = shares.iter_mut().filter(|share| share.due < ceiling(share));
        let Some(share) = room.min_by_key(|share| over(share)) else { return };
        share.due += 1;
        dealt += 1;
    }
    while dealt > count {
        let least =
            |share: &Share| if fewer { share.had.min(ceiling(share)) } else { floor(share) };
        let spare = shares.iter_mut().filter(|share| share.due > least(share));
        let Some(share) = spare.max_by_key(|share| over(share)) else { return };
        share.due -= 1;
        dealt -= 1;
    }
}

/// Takes buckets from members that have more than they are due, and assigns these and the free ones
/// to members that have fewer.
fn deal(buckets: &mut [Hop], shares: &mut [Share]) {
    for bucket in &mut *buckets {
        if let Some(share) = find(shares, *bucket)
            && share.had > share.due
        {
            share.had -= 1;
            *bucket = Hop::NONE;
        }
    }
    let mut free = buckets.iter_mut().filter(|bucket| !bucket.is_some());
    for share in shares {
        for bucket in free.by_ref().take((share.due - share.had) as usize) {
            *bucket = share.hop;
        }
    }
}

#[cfg(test)]
mod tests {
    use fastrand::Rng;

    use super::{Group, Hop, MAX_BUCKETS, MIN_BUCKETS};

    fn equal(hops: std::ops::RangeInclusive<u32>) -> Vec<(Hop, u16)> {
        hops.map(|hop| (Hop(hop), 1)).collect()
    }

    fn count(group: &Group, hop: Hop) -> usize {
        group.buckets.iter().filter(|&&bucket| bucket == hop).count()
    }

    /// Checks that every bucket belongs to a member, and that the share of every member is within
    /// one bucket and `slack` of its ideal.
    fn check(group: &Group, members: &[(Hop, u16)], slack: f64) {
        let total: f64 = members.iter().map(|member| f64::from(member.1)).sum();
        let buckets = group.buckets.len();
        assert!(buckets.is_power_of_two() && (MIN_BUCKETS..=MAX_BUCKETS).contains(&buckets));
        assert!(group.buckets.iter().all(|hop| members.iter().any(|m| m.0 == *hop && m.1 > 0)));
        for &(hop, weight) in members {
            let ideal = f64::from(weight) / total * buckets as f64;
            let got = count(group, hop) as f64;
            assert!((got - ideal).abs() < 1.0 + slack, "{hop:?}: {got} of {ideal}");
        }
    }

    #[test]
    fn weights_become_buckets() {
        for members in [
            equal(1..=1),
            equal(1..=2),
            equal(1..=3),
            equal(1..=8),
            equal(1..=31),
            vec![(Hop(5), 1), (Hop(9), 2), (Hop(7), 3)],
            vec![(Hop(5), 1), (Hop(9), 255)],
            vec![(Hop(5), u16::MAX), (Hop(9), u16::MAX), (Hop(1), 1)],
        ] {
            let group = Group::of(&members, &Group::default());
            check(&group, &members, 0.0);
            // The same members again move nothing.
            assert_eq!(Group::of(&members, &group), group);
        }
    }

    #[test]
    fn nobody_to_send_to_is_no_route() {
        for members in [vec![], vec![(Hop(4), 0)], vec![(Hop::NONE, 1)]] {
            let group = Group::of(&members, &Group::default());
            assert!((0..1000).all(|hash| group.choose(hash) == Hop::NONE));
        }
        assert_eq!(Group::of(&[(Hop(4), 0)], &Group::default()).members(), [Hop(4)]);
    }

    #[test]
    fn a_member_listed_twice_has_both_weights() {
        let twice = [(Hop(1), 1), (Hop(2), 1), (Hop(1), 2)];
        let once = [(Hop(1), 3), (Hop(2), 1)];
        let none = Group::default();
        assert_eq!(Group::of(&twice, &none), Group::of(&once, &none));
    }

    #[test]
    fn one_of_eight_goes_and_comes_and_only_its_flows_move() {
        let all = Group::of(&equal(1..=8), &Group::default());
        for gone in 1..=8 {
            let left: Vec<_> = equal(1..=8).into_iter().filter(|m| m.0 != Hop(gone)).collect();
            let without = Group::of(&left, &all);
            check(&without, &left, 0.0);
            let moved = |a: &Group, b: &Group| {
                (0..MAX_BUCKETS as u64)
                    .filter(|&hash| a.choose(hash) != b.choose(hash))
                    .collect::<Vec<_>>()
            };
            let moves = moved(&all, &without);
            assert!(moves.iter().all(|&hash| all.choose(hash) == Hop(gone)));
            assert_eq!(moves.len(), MAX_BUCKETS / 8, "and all of its flows do");
            // It returns, like a member whose link was down, and gets exactly its share.
            let readded = Group::of(&equal(1..=8), &without);
            let moves = moved(&without, &readded);
            assert!(moves.iter().all(|&hash| readded.choose(hash) == Hop(gone)));
            assert_eq!(moves.len(), MAX_BUCKETS / 8);
        }
    }

    /// Random groups with long histories: shares stay exact; a removal moves only the flows of
    /// removed members; an addition moves flows to new members only, and no more than their share
    /// and one bucket each.
    #[test]
    fn histories_keep_shares_and_flows() {
        for seed in 0..300 {
            let mut rng = Rng::with_seed(seed);
            let weight = |rng: &mut Rng| if rng.bool() { 1 } else { rng.u16(1..20) };
            let mut members: Vec<(Hop, u16)> = Vec::new();
            let mut group = Group::default();
            let mut slack;
            let mut next = 1;
            for _ in 0..30 {
                let before = (members.clone(), group.clone());
                let adds = members.len() < 2 || (rng.bool() && members.len() < 40);
                if adds {
                    for _ in 0..rng.u32(1..4) {
                        members.push((Hop(next), weight(&mut rng)));
                        next += 1;
                    }
                    slack = 0.0;
                } else {
                    for _ in 0..rng.usize(1..members.len().min(4)) {
                        members.swap_remove(rng.usize(..members.len()));
                    }
                    // Small shares of the remaining members may then be off by one more bucket.
                    slack = members.len() as f64 / 8.0;
                }
                group = Group::of(&members, &group);
                check(&group, &members, slack);
                let is = |list: &[(Hop, u16)], hop| list.iter().any(|member| member.0 == hop);
                let mut moved = 0;
                for hash in 0..group.buckets.len() as u64 {
                    let (old, new) = (before.1.choose(hash), group.choose(hash));
                    if old == new || old == Hop::NONE {
                        continue;
                    }
                    moved += 1;
                    if adds {
                        assert!(!is(&before.0, new), "seed {seed}: {old:?} to old {new:?}");
                    } else {
                        assert!(!is(&members, old), "seed {seed}: {old:?} to {new:?}");
                    }
                }
                if adds && !before.0.is_empty() {
                    let new = members.iter().filter(|member| !is(&before.0, member.0));
                    let share: usize = new.map(|member| count(&group, member.0)).sum();
                    assert_eq!(moved, share, "seed {seed}: all that moves is the share of the new");
                }
            }
        }
    }

    #[test]
    fn weights_that_change_move_no_more_than_the_difference() {
        let before = Group::of(&[(Hop(1), 1), (Hop(2), 1)], &Group::default());
        let members = [(Hop(1), 1), (Hop(2), 3)];
        let after = Group::of(&members, &before);
        check(&after, &members, 0.0);
        let moved =
            (0..MAX_BUCKETS as u64).filter(|&hash| before.choose(hash) != after.choose(hash));
        assert_eq!(moved.count(), MAX_BUCKETS / 4);
        // With weight 0 it belongs to the group and has no flows.
        let down = Group::of(&[(Hop(1), 1), (Hop(2), 0)], &after);
        assert_eq!((count(&down, Hop(2)), down.members()), (0, &[Hop(1), Hop(2)][..]));
    }

    #[test]
    fn more_members_than_buckets_are_dealt_what_there_is() {
        let members = equal(1..=5000);
        let group = Group::of(&members, &Group::default());
        assert_eq!(group.buckets.len(), MAX_BUCKETS);
        assert!(group.buckets.iter().all(|hop| hop.is_some()));
    }
}
