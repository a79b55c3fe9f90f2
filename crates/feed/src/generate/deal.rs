//! Deals a table from a model's cards.
//!
//! The trie is walked in address order, and each node draws a card from its kind's deck without
//! replacement. Because the model counted exactly the nodes of this walk, every deck is empty at
//! the end and the table has as many routes as the measured one. Then each route, in order, draws
//! the origin of its label; those decks may run out early (a drawn card decides the place of the
//! next), and are then refilled.
//!
//! A table of another size is derived from that: a smaller one consists of random families, each a
//! route and all routes that it covers; a larger one has more-specifics added under random routes,
//! as real tables grow.

use fib::{Addr, Prefix};
use hashbrown::HashSet;

use super::model::{
    BANDS, CLASSES, Cards, Classes, HERE, Kind, Model, ONE, Origin, OriginCards, Walk, ZERO,
    is_grade, top,
};
use super::random::Random;
use crate::Label;

/// Draws one of `cards` with the probability of its remaining count, and removes it. `None` if none
/// is left.
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

/// The decks of all kinds, in arrays.
struct Decks {
    cards: Vec<Cards>,
    classes: Vec<Classes>,
}

impl Decks {
    fn new<A: Addr>(model: &Model) -> Self {
        let kinds = (A::BITS as usize + 1) * BANDS * CLASSES * 2;
        let mut decks =
            Self { cards: vec![Cards::default(); kinds], classes: vec![Classes::default(); kinds] };
        for (&kind, &classes) in &model.classes {
            decks.classes[Self::at(kind)] = classes;
        }
        for (&kind, &cards) in &model.cards {
            decks.cards[Self::at(kind)] = cards;
        }
        decks
    }

    #[inline]
    fn at(kind: Kind) -> usize {
        let place = usize::from(kind.depth) * BANDS + usize::from(kind.cover);
        (place * CLASSES + usize::from(kind.class)) * 2 + usize::from(kind.twin)
    }
}

/// Deals the prefixes of a table, sorted.
pub(super) fn prefixes<A: Addr>(model: &Model, random: &mut Random) -> Vec<Prefix<A>> {
    let mut decks = Decks::new::<A>(model);
    let mut out = Vec::new();
    let top = top::<A>();
    // The nodes to walk: the last is next, so the zero branch is pushed last.
    let mut open: Vec<(A, Kind)> = Vec::new();
    for &(block, class) in &model.tops {
        let addr = A::from_bits(usize::from(block), 0, top);
        open.push((addr, Kind { depth: top as u8, cover: 0, class, twin: false }));
        while let Some((addr, mut kind)) = open.pop() {
            if is_grade::<A>(u32::from(kind.depth))
                && let Some(class) = draw(&mut decks.classes[Decks::at(kind)], random)
            {
                kind.class = class as u8;
            }
            // A deck is never empty for a measured model, and a node at full depth has no branches.
            let Some(card) = draw(&mut decks.cards[Decks::at(kind)], random) else { continue };
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
    let mut decks = model.origins.clone();
    let appearing = appearances(model, random);
    let mut appearing = appearing.iter().copied().cycle();
    let mut routes: Vec<(Prefix<A>, Label)> = Vec::with_capacity(prefixes.len());
    let mut walk = Walk::new();
    // The missing equal neighbors: the expected number less the actual one, in 2^-32.
    let share = model.equal_neighbors();
    let mut lacking = 0i64;
    for &prefix in prefixes {
        let place = walk.place(prefix);
        let origin = draw_origin(&mut decks[place], &model.origins[place], random);
        // A label from elsewhere differs from those of the cover and the previous route.
        let at_hand = |label| walk.cover() == Some(label) || walk.before() == Some(label);
        lacking += share;
        let known = match origin {
            // The kind of place is not sufficient, and the dealt labels diverge faster than real
            // ones: corrected where no label is due.
            Origin::Recent if lacking > 0 => walk.before(),
            Origin::Cover => walk.cover(),
            Origin::Before => walk.before(),
            Origin::Recent => recent_label(&routes, random, at_hand),
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

/// How often a label is drawn again when it is one of those at hand.
const TRIES: usize = 8;

/// Draws the label of one of the last routes.
fn recent_label<A: Addr>(
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

fn draw_origin(deck: &mut OriginCards, full: &OriginCards, random: &mut Random) -> Origin {
    let card = draw(deck, random).or_else(|| {
        *deck = *full;
        draw(deck, random)
    });
    card.map_or(Origin::Before, |card| Origin::ALL[card])
}

/// Reduces the routes to `count`: random whole families, in order.
pub(super) fn thin<A: Addr>(routes: &mut Vec<Prefix<A>>, count: usize, random: &mut Random) {
    // (first, count) of each family: a route that no other covers, and the routes in it.
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
    let mut selected = Vec::new();
    let mut left = count;
    while left > 0 && !families.is_empty() {
        let pick = random.below(families.len() as u64) as usize;
        let (first, size) = families.swap_remove(pick);
        let size = size.min(left);
        left -= size;
        selected.push((first, size));
    }
    selected.sort_unstable();
    *routes =
        selected.iter().flat_map(|&(first, size)| &routes[first..first + size]).copied().collect();
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
