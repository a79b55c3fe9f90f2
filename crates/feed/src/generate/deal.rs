//! Dealing: a table made of a model's cards.
//!
//! The trie is walked in address order and each node draws a card of its kind's
//! pack, without putting it back. Because the model counted exactly the nodes that
//! this walk meets, every pack is empty at the end and the table has as many routes
//! as the one that was measured. Then the routes, in order, draw where their labels
//! come from; those packs may run out early (what is drawn decides the place of the
//! next), and are then opened anew.
//!
//! A table of another size is made of that: a smaller one of whole families, a
//! route and all it covers, picked at random; a larger one by more-specifics added
//! under routes picked at random, which is how tables do grow.

use fib::{Addr, Prefix};
use hashbrown::HashSet;

use super::model::{
    BANDS, CLASSES, Cards, Classes, HERE, Kind, Model, ONE, Origin, OriginCards, Walk, ZERO,
    is_grade, top,
};
use super::random::Random;
use crate::Label;

/// Draws one of `cards` by what is left of each, and takes it out. `None` if
/// nothing is left.
#[inline]
fn draw<const N: usize>(cards: &mut [u32; N], random: &mut Random) -> Option<usize> {
    let left: u32 = cards.iter().sum();
    if left == 0 {
        return None;
    }
    let mut at = random.below(u64::from(left)) as u32;
    for (card, count) in cards.iter_mut().enumerate() {
        match at.checked_sub(*count) {
            Some(rest) => at = rest,
            None => {
                *count -= 1;
                return Some(card);
            }
        }
    }
    unreachable!("a draw is below the sum of the counts")
}

/// The packs of all kinds, in arrays.
struct Packs {
    cards: Vec<Cards>,
    classes: Vec<Classes>,
}

impl Packs {
    fn new<A: Addr>(model: &Model) -> Self {
        let kinds = (A::BITS as usize + 1) * BANDS * CLASSES * 2;
        let mut packs =
            Self { cards: vec![Cards::default(); kinds], classes: vec![Classes::default(); kinds] };
        for (&kind, &classes) in &model.classes {
            packs.classes[Self::at(kind)] = classes;
        }
        for (&kind, &cards) in &model.cards {
            packs.cards[Self::at(kind)] = cards;
        }
        packs
    }

    #[inline]
    fn at(kind: Kind) -> usize {
        let place = usize::from(kind.depth) * BANDS + usize::from(kind.cover);
        (place * CLASSES + usize::from(kind.class)) * 2 + usize::from(kind.twin)
    }
}

/// Deals the prefixes of a table, sorted.
pub(super) fn prefixes<A: Addr>(model: &Model, random: &mut Random) -> Vec<Prefix<A>> {
    let mut packs = Packs::new::<A>(model);
    let mut out = Vec::new();
    let top = top::<A>();
    // What is still to be walked: the last is next, so the zero branch goes on top.
    let mut open: Vec<(A, Kind)> = Vec::new();
    for &(block, class) in &model.tops {
        let addr = A::from_bits(usize::from(block), 0, top);
        open.push((addr, Kind { depth: top as u8, cover: 0, class, twin: false }));
        while let Some((addr, mut kind)) = open.pop() {
            if is_grade::<A>(u32::from(kind.depth))
                && let Some(class) = draw(&mut packs.classes[Packs::at(kind)], random)
            {
                kind.class = class as u8;
            }
            // A pack is never empty for a measured model, and a node at full
            // depth has no branches.
            let Some(card) = draw(&mut packs.cards[Packs::at(kind)], random) else { continue };
            let depth = u32::from(kind.depth);
            if card & HERE != 0 {
                out.push(Prefix::truncate(addr, depth));
            }
            if depth == A::BITS {
                continue;
            }
            let child = kind.child::<A>(card);
            if card & ONE != 0 {
                let one = addr.to_u128() | A::from_bits(1, depth, 1).to_u128();
                open.push((A::from_u128(one), child));
            }
            if card & ZERO != 0 {
                open.push((addr, child));
            }
        }
    }
    out
}

/// Gives every route a label, by the model; labels are `0..` in no order.
pub(super) fn labels<A: Addr>(
    model: &Model,
    prefixes: &[Prefix<A>],
    random: &mut Random,
) -> Vec<(Prefix<A>, Label)> {
    let mut packs = model.origins.clone();
    let appearing = appearances(model, random);
    let mut appearing = appearing.iter().copied().cycle();
    let mut routes: Vec<(Prefix<A>, Label)> = Vec::with_capacity(prefixes.len());
    let mut walk = Walk::new();
    // Equal neighbors: those there should be, in 2^-32, less those there are.
    let share = model.equal_neighbors();
    let mut lacking = 0i64;
    for &prefix in prefixes {
        let place = walk.place(prefix);
        let origin = draw_origin(&mut packs[place], &model.origins[place], random);
        // A label from elsewhere is another one than those at hand.
        let at_hand = |label| walk.cover() == Some(label) || walk.before() == Some(label);
        lacking += share;
        let known = match origin {
            // What a place is does not tell all, and the dealt labels drift apart
            // faster than real ones: make good for it where no label is due.
            Origin::Near if lacking > 0 => walk.before(),
            Origin::Cover => walk.cover(),
            Origin::Before => walk.before(),
            Origin::Near => near(&routes, random, at_hand),
            Origin::Appears => None,
        };
        let mut appear = || appearing.by_ref().take(TRIES).find(|&label| !at_hand(label));
        let label = known.or_else(&mut appear).unwrap_or(Label(0));
        if walk.before() == Some(label) {
            lacking -= 1 << 32;
        }
        routes.push((prefix, label));
        walk.put(prefix, label);
    }
    routes
}

/// How often a label is drawn anew when it is one at hand.
const TRIES: usize = 8;

/// Draws the label of one of the last routes.
fn near<A: Addr>(
    routes: &[(Prefix<A>, Label)],
    random: &mut Random,
    at_hand: impl Fn(Label) -> bool,
) -> Option<Label> {
    let last = &routes[routes.len().saturating_sub(Origin::REACH)..];
    if last.is_empty() {
        return None;
    }
    let draw = |_| last[random.below(last.len() as u64) as usize].1;
    (0..TRIES).map(draw).find(|&label| !at_hand(label))
}

/// Lists every label as often as it appears, shuffled.
fn appearances(model: &Model, random: &mut Random) -> Vec<Label> {
    let mut list = Vec::new();
    let mut label = 0;
    for &(times, labels) in &model.appearances {
        for _ in 0..labels {
            list.extend((0..times).map(|_| Label(label)));
            label += 1;
        }
    }
    for at in (1..list.len()).rev() {
        list.swap(at, random.below(at as u64 + 1) as usize);
    }
    list
}

fn draw_origin(pack: &mut OriginCards, full: &OriginCards, random: &mut Random) -> Origin {
    let card = draw(pack, random).or_else(|| {
        *pack = *full;
        draw(pack, random)
    });
    card.map_or(Origin::Before, |card| Origin::ALL[card])
}

/// Keeps `count` of the routes: whole families, picked at random, in order.
pub(super) fn thin<A: Addr>(routes: &mut Vec<Prefix<A>>, count: usize, random: &mut Random) {
    // (first, count) of each family: a route that nothing covers, and its own.
    let mut families: Vec<(usize, usize)> = Vec::new();
    let mut head: Option<Prefix<A>> = None;
    for (at, &prefix) in routes.iter().enumerate() {
        match (head, families.last_mut()) {
            (Some(cover), Some(family)) if cover.covers(prefix) => family.1 += 1,
            _ => {
                head = Some(prefix);
                families.push((at, 1));
            }
        }
    }
    let mut kept = Vec::new();
    let mut left = count;
    while left > 0 && !families.is_empty() {
        let pick = random.below(families.len() as u64) as usize;
        let (first, size) = families.swap_remove(pick);
        let size = size.min(left);
        left -= size;
        kept.push((first, size));
    }
    kept.sort_unstable();
    *routes =
        kept.iter().flat_map(|&(first, size)| &routes[first..first + size]).copied().collect();
}

/// Adds more-specifics until there are `count` routes, of the lengths there are.
/// The space may be too full for so many; then there are fewer.
pub(super) fn grow<A: Addr>(routes: &mut Vec<Prefix<A>>, count: usize, random: &mut Random) {
    if routes.is_empty() {
        return;
    }
    let measured = routes.len() as u64;
    let mut known: HashSet<Prefix<A>> = routes.iter().copied().collect();
    let patience = (count as u64).saturating_mul(64);
    for _ in 0..patience {
        if routes.len() >= count {
            break;
        }
        // The length of one route under the address of another.
        let cover = routes[random.below(measured) as usize];
        let len = routes[random.below(measured) as usize].len();
        if len <= cover.len() {
            continue;
        }
        let low = u128::from(random.next()) << 64 | u128::from(random.next());
        let host = A::from_u128(low).to_u128() & (cover.last().to_u128() ^ cover.addr().to_u128());
        let addr = A::from_u128(cover.addr().to_u128() | host);
        let prefix = Prefix::truncate(addr, len);
        if known.insert(prefix) {
            routes.push(prefix);
        }
    }
    routes.sort_unstable();
}
