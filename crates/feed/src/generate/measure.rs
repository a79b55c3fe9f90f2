//! Measures tables: this made the built-in models, and checks them.
//!
//! This is compiled for tests only. The trie is never built: a node is a slice of the sorted
//! routes, its branches the two parts of the slice, so that one recursion, at most as deep as an
//! address has bits, counts a table.

use core::fmt::{self, Write};

use fib::{Addr, Prefix};
use hashbrown::HashMap;

use super::model::{
    CLASSES, HERE, Kind, Model, ONE, Origin, OriginCards, Walk, ZERO, grades, is_grade, top,
};
use crate::Label;

fn class<A: Addr>(depth: u32, routes: usize) -> u8 {
    let grade = grades::<A>().into_iter().find(|grade| grade.0 == depth);
    let bounds = grade.map_or([usize::MAX; CLASSES - 1], |grade| grade.1);
    bounds.iter().take_while(|&&bound| routes >= bound).count() as u8
}

impl Model {
    /// Measures a table, sorted and without routes shorter than `TOP`.
    pub(super) fn measure<A: Addr>(routes: &[(Prefix<A>, Label)]) -> Self {
        let mut model = Self::empty();
        for block in routes.chunk_by(|a, b| a.0.addr().common(b.0.addr()) >= top::<A>()) {
            let class = class::<A>(top::<A>(), block.len());
            model.tops.push((block[0].0.addr().bits(0, top::<A>()) as u16, class));
            let kind = Kind { depth: top::<A>() as u8, cover: 0, class, twin: false };
            model.count(kind, block);
        }
        model.count_origins(routes);
        model
    }

    fn count<A: Addr>(&mut self, mut kind: Kind, routes: &[(Prefix<A>, Label)]) {
        let depth = u32::from(kind.depth);
        if is_grade::<A>(depth) {
            let class = class::<A>(depth, routes.len());
            self.classes.entry(kind).or_default()[usize::from(class)] += 1;
            kind.class = class;
        }
        let here = usize::from(routes[0].0.len() == depth);
        let below = &routes[here..];
        let zeros = below.partition_point(|(prefix, _)| prefix.addr().bits(depth, 1) == 0);
        let (zero, one) = below.split_at(zeros);
        let card =
            here * HERE + usize::from(!zero.is_empty()) * ZERO + usize::from(!one.is_empty()) * ONE;
        self.cards.entry(kind).or_default()[card] += 1;
        for part in [zero, one] {
            if !part.is_empty() {
                self.count(kind.child::<A>(card), part);
            }
        }
    }

    fn count_origins<A: Addr>(&mut self, routes: &[(Prefix<A>, Label)]) {
        let mut appeared: HashMap<Label, u32> = HashMap::new();
        let mut walk = Walk::new();
        for (at, &(prefix, label)) in routes.iter().enumerate() {
            let place = walk.place(prefix);
            let near = &routes[at.saturating_sub(Origin::REACH)..at];
            let origin = if walk.before() == Some(label) {
                Origin::Before
            } else if walk.cover() == Some(label) {
                Origin::Cover
            } else if near.iter().any(|near| near.1 == label) {
                Origin::Recent
            } else {
                *appeared.entry(label).or_default() += 1;
                Origin::Appears
            };
            self.origins[place][origin as usize] += 1;
            walk.put(prefix, label);
        }
        let mut times: Vec<u32> = appeared.into_values().collect();
        times.sort_unstable();
        self.appearances =
            times.chunk_by(|a, b| a == b).map(|same| (same[0], same.len() as u32)).collect();
    }
}

/// The text form: `top`, then lines of `node` and of `label` cards.
impl fmt::Display for Model {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for class in 0..CLASSES as u8 {
            write!(f, "top {class}")?;
            for (top, _) in self.tops.iter().filter(|top| top.1 == class) {
                write!(f, " {top:x}")?;
            }
            f.write_char('\n')?;
        }
        let mut kinds: Vec<_> = self.cards.iter().collect();
        kinds.sort_unstable();
        for (kind, cards) in kinds {
            let Kind { depth, cover, class, twin } = kind;
            write!(f, "node {depth} {cover} {class} {}", u8::from(*twin))?;
            list(f, &cards[1..])?;
        }
        let mut kinds: Vec<_> = self.classes.iter().collect();
        kinds.sort_unstable();
        for (kind, classes) in kinds {
            let Kind { depth, cover, class, twin } = kind;
            write!(f, "class {depth} {cover} {class} {}", u8::from(*twin))?;
            list(f, classes)?;
        }
        let used = |cards: &OriginCards| cards.iter().any(|&count| count > 0);
        for (place, cards) in self.origins.iter().enumerate().filter(|(_, cards)| used(cards)) {
            write!(f, "label {place}")?;
            list(f, cards)?;
        }
        for &(times, labels) in &self.appearances {
            writeln!(f, "appears {times} {labels}")?;
        }
        Ok(())
    }
}

fn list(f: &mut fmt::Formatter<'_>, counts: &[u32]) -> fmt::Result {
    for count in counts {
        write!(f, " {count}")?;
    }
    f.write_char('\n')
}
