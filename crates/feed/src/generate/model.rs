//! The model of a table: what kinds of places a trie of its prefixes has.
//!
//! Draw a table as a binary trie: a node a prefix, a branch a bit. From `TOP` bits
//! on (8 for IPv4, 16 for IPv6) every node that has a route in or below it is one
//! of seven cards:
//!
//! ```text
//!        card = route here (1) + routes below the 0 bit (2) + below the 1 bit (4)
//!
//!          (6)                 A node's kind is known before its subtree:
//!         0/ \1                  depth     its length in bits
//!        (3)  (1) ◄─ a leaf      cover     the length of the route that covers it,
//!       0/                                 in bands
//!      (1)                       class     how many routes its TOP-bit block has
//!                                twin      whether its sibling has routes too
//! ```
//!
//! The model is how often each kind of node was each card, and the blocks of
//! `TOP` bits themselves with their classes. [`deal`](super::deal) makes a table
//! of it; since a node's kind follows from its parent's kind and card, a table
//! dealt from these cards without replacement has exactly as many nodes of each
//! kind, hence the lengths, the nesting by bands of cover, and the full and empty
//! neighborhoods of the measured one. Where in its class they lie is chance.
//!
//! Labels are cards too ([`Origin`]): walking the table in order, a route has the
//! label of the route before it, of its cover, one that was there before or a new
//! one, by what kind of place it is.

use core::str::FromStr;

use fib::{Addr, Prefix};
use hashbrown::HashMap;

use crate::Label;

/// Counts of the cards 1 to 7 of one kind of node (0 is not used).
pub(super) type Cards = [u32; 8];
/// Counts of the cards of [`Origin`] of one kind of place.
pub(super) type OriginCards = [u32; Origin::COUNT];

pub(super) const HERE: usize = 1;
pub(super) const ZERO: usize = 2;
pub(super) const ONE: usize = 4;

/// The kind of a node, which is known before its subtree.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(super) struct Kind {
    pub(super) depth: u8,
    pub(super) cover: u8,
    pub(super) class: u8,
    pub(super) twin: bool,
}

impl Kind {
    /// Returns the kind of the children of a node of this kind with this card.
    #[inline]
    pub(super) fn child<A: Addr>(self, card: usize) -> Self {
        let cover = if card & HERE != 0 { band::<A>(self.depth) } else { self.cover };
        let twin = card & (ZERO | ONE) == ZERO | ONE;
        Self { depth: self.depth + 1, cover, class: self.class, twin }
    }
}

impl Kind {
    fn read(numbers: &[u32]) -> Result<Self, NotAModel> {
        let [depth, cover, class, twin] = numbers else { return Err(NotAModel) };
        let below = |n: u32, bound: usize| {
            u8::try_from(n).ok().filter(|&n| usize::from(n) < bound).ok_or(NotAModel)
        };
        Ok(Self {
            depth: below(*depth, 129)?,
            cover: below(*cover, BANDS)?,
            class: below(*class, CLASSES)?,
            twin: *twin == 1,
        })
    }
}

/// The number of bands of covers, the first being no cover.
pub(super) const BANDS: usize = 6;

/// The band of a covering length: 1 is the shortest.
fn band<A: Addr>(len: u8) -> u8 {
    let bounds: [u8; 4] = if A::BITS == 32 { [13, 17, 20, 22] } else { [29, 30, 33, 41] };
    1 + bounds.iter().take_while(|&&bound| len >= bound).count() as u8
}

/// The number of classes of blocks.
pub(super) const CLASSES: usize = 5;

/// Counts of the classes of the blocks that were of one kind.
pub(super) type Classes = [u32; CLASSES];

/// The lengths at which a block is classed by its number of routes, and the least
/// numbers of the classes after the first. The first length is `TOP`.
pub(super) const fn grades<A: Addr>() -> [(u32, [usize; CLASSES - 1]); 3] {
    if A::BITS == 32 {
        [(8, [512, 2048, 4096, 8192]), (16, [2, 6, 20, 60]), (20, [2, 4, 8, 14])]
    } else {
        [(16, [256, 2048, 4096, 8192]), (32, [2, 5, 20, 100]), (40, [2, 4, 16, 64])]
    }
}

/// Returns whether nodes of this depth are classified again.
#[inline]
pub(super) fn is_grade<A: Addr>(depth: u32) -> bool {
    let [_, second, third] = grades::<A>();
    depth == second.0 || depth == third.0
}

/// The length at which the model begins.
pub(super) const fn top<A: Addr>() -> u32 {
    grades::<A>()[0].0
}

/// The origin of a route's label.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Origin {
    /// The route before it, in order.
    Before,
    /// The longest route that covers it.
    Cover,
    /// A route shortly before it in order.
    Recent,
    /// None of these: the label appears here, for the first time or again.
    Appears,
}

impl Origin {
    pub(super) const COUNT: usize = 4;
    pub(super) const ALL: [Self; Self::COUNT] =
        [Self::Before, Self::Cover, Self::Recent, Self::Appears];
    /// How many routes back [`Recent`](Self::Recent) reaches.
    pub(super) const REACH: usize = 32;
}

/// A walk over a table in order, which classifies the place of each route's label.
///
/// Measuring and dealing share it, so that both use the same kinds of places: get the
/// [`place`](Self::place) of a route, determine its label, and [`put`](Self::put) it.
pub(super) struct Walk<A> {
    before: Option<(Prefix<A>, Label)>,
    /// How many routes before the last one had its label too.
    streak: u32,
    covers: Vec<Cover<A>>,
}

struct Cover<A> {
    prefix: Prefix<A>,
    label: Label,
}

impl<A: Addr> Walk<A> {
    /// The number of kinds of places.
    pub(super) const PLACES: usize = 5 * 7 * 4;

    pub(super) fn new() -> Self {
        Self { before: None, streak: 0, covers: Vec::new() }
    }

    /// Advances to a route and returns its kind of place, below `PLACES`.
    pub(super) fn place(&mut self, prefix: Prefix<A>) -> usize {
        while self.covers.pop_if(|cover| !cover.prefix.covers(prefix)).is_some() {}
        let band = |n: u32, bounds: &[u32]| bounds.iter().take_while(|&&least| n >= least).count();
        let near = match self.before {
            Some((before, _)) if before.covers(prefix) => 0,
            Some((before, _)) if before.last().succ() == Some(prefix.addr()) => {
                1 + usize::from(before.addr().common(prefix.addr()) + 1 < prefix.len())
            }
            Some((before, _)) => {
                3 + usize::from(before.addr().common(prefix.addr()) + 6 < prefix.len())
            }
            None => 4,
        };
        let cover = match self.covers.last() {
            None => 0,
            Some(cover) => {
                let longer = band(prefix.len() - cover.prefix.len(), &[3, 9]);
                1 + 2 * longer + usize::from(self.before() != Some(cover.label))
            }
        };
        (near * 7 + cover) * 4 + band(self.streak, &[1, 3, 8])
    }

    /// Returns the label of the previous route, if there is one.
    pub(super) fn before(&self) -> Option<Label> {
        self.before.map(|before| before.1)
    }

    /// Returns the label of the longest route that covers the current one.
    pub(super) fn cover(&self) -> Option<Label> {
        self.covers.last().map(|cover| cover.label)
    }

    /// Sets the label of the current route.
    pub(super) fn put(&mut self, prefix: Prefix<A>, label: Label) {
        self.streak = if self.before() == Some(label) { self.streak + 1 } else { 0 };
        self.before = Some((prefix, label));
        self.covers.push(Cover { prefix, label });
    }
}

/// A measured table, from which others like it are dealt.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Model {
    /// The blocks of `TOP` bits that have routes, and their classes.
    pub(super) tops: Vec<(u16, u8)>,
    pub(super) cards: HashMap<Kind, Cards>,
    pub(super) classes: HashMap<Kind, Classes>,
    pub(super) origins: Vec<OriginCards>,
    /// `(n, labels)`: how many labels appeared n times.
    pub(super) appearances: Vec<(u32, u32)>,
}

impl Model {
    pub(super) fn empty() -> Self {
        Self { origins: vec![OriginCards::default(); Walk::<u32>::PLACES], ..Self::default() }
    }

    /// The share of routes with the label of the route before, in 2^-32.
    pub(super) fn equal_neighbors(&self) -> i64 {
        let equal: u64 = self.origins.iter().map(|cards| u64::from(cards[0])).sum();
        let all: u64 = self.origins.iter().flatten().map(|&count| u64::from(count)).sum();
        ((equal << 32) / all.max(1)) as i64
    }
}

/// The error of a malformed model text.
#[derive(Debug)]
pub(super) struct NotAModel;

/// Reads `top CLASS BLOCK…` (hexadecimal), `node KIND COUNT×7`, `class KIND COUNT×5`,
/// `label PLACE COUNT×4` and `appears TIMES LABELS` lines, where a kind is depth, band
/// of the cover, class and twin.
impl FromStr for Model {
    type Err = NotAModel;

    fn from_str(text: &str) -> Result<Self, NotAModel> {
        let mut model = Self::empty();
        for line in text.lines().filter(|line| !line.starts_with('#')) {
            let mut words = line.split(' ');
            let head = words.next();
            if head == Some("top") {
                let class = words.next().and_then(|word| word.parse().ok()).ok_or(NotAModel)?;
                for word in words {
                    let top = u16::from_str_radix(word, 16).map_err(|_| NotAModel)?;
                    model.tops.push((top, class));
                }
                continue;
            }
            let numbers = words.map(str::parse).collect::<Result<Vec<u32>, _>>();
            match (head, &numbers.map_err(|_| NotAModel)?[..]) {
                (Some("node"), [kind @ .., c1, c2, c3, c4, c5, c6, c7]) => {
                    let cards = [0, *c1, *c2, *c3, *c4, *c5, *c6, *c7];
                    model.cards.insert(Kind::read(kind)?, cards);
                }
                (Some("class"), [kind @ .., c0, c1, c2, c3, c4]) => {
                    model.classes.insert(Kind::read(kind)?, [*c0, *c1, *c2, *c3, *c4]);
                }
                (Some("appears"), [times, labels]) => model.appearances.push((*times, *labels)),
                (Some("label"), [place, counts @ ..]) => {
                    let cards = counts.try_into().map_err(|_| NotAModel)?;
                    *model.origins.get_mut(*place as usize).ok_or(NotAModel)? = cards;
                }
                _ => return Err(NotAModel),
            }
        }
        model.tops.sort_unstable();
        Ok(model)
    }
}
