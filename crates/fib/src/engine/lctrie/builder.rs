//! Lays routes out as an LC-trie, a slot of the root at a time.
//!
//! ```text
//!   routes of a slot, in order       base: those that cover none    trie
//!   10.1/16      covers the next ─┐  10.1.0/24  pre ─► 10.1/16      skip to the first bit in
//!   10.1.0/24                     │  10.1.4/22  pre ─► 10.1/16      which first and last differ,
//!   10.1.4/22                     └► prefixes: 10.1/16 pre ─► short branch while half are filled
//! ```
//!
//! A slot's nodes, strings and prefixes are one span of each array (`arena.rs`),
//! so that a change of a route of at least as many bits as the root branches on
//! gives three spans back and takes three. A shorter route touches all slots below
//! it, except where only its hop changes: it is found there by index. A span that
//! moves leaves a hole; once holes are a sixteenth of an array, all slots are laid
//! out again, one after the other.
//!
//! O(n log n) for n routes of the slots touched.

use alloc::collections::BTreeMap;
use alloc::vec;
use alloc::vec::Vec;

use super::{Base, Covering, LcTrie, NIL, Node};
use crate::arena::Arena;
use crate::engine::{Leaf, RouteBuilder};
use crate::{Addr, Full, Hop, Prefix, Rib};

/// The builder of [`LcTrie`].
#[derive(Debug)]
pub struct LcTrieBuilder<A: Addr, L> {
    root: u32,
    /// How many of 100 children are to be filled.
    fill_factor: usize,
    trie: Arena<Node>,
    base: Arena<Base<A, L>>,
    prefixes: Arena<Covering<L>>,
    slots: Vec<Slot>,
    /// The routes shorter than the root's branch: (string, prefix). All slots below
    /// one that is listed lead to it where they should.
    short: BTreeMap<Prefix<A>, (u32, u32)>,
}

/// Where a slot's items are in an array.
#[derive(Clone, Copy, Debug, Default)]
struct Span {
    at: u32,
    len: u32,
}

/// The most items of an array: an index has a bit to spare, and all ones is [`NIL`].
const LIMIT: usize = (1 << 31) - 1;

fn take<T: Copy + PartialEq>(arena: &mut Arena<T>, len: usize) -> Result<Span, Full> {
    if len == 0 {
        return Ok(Span::default());
    }
    let at = arena.take(len);
    if at + len > LIMIT {
        let (limit, seen) = (LIMIT as u64, (at + len) as u64);
        return Err(Full { what: "items of one array", limit, seen });
    }
    Ok(Span { at: at as u32, len: len as u32 })
}

fn give_back<T: Copy + PartialEq>(arena: &mut Arena<T>, span: Span) {
    arena.free(span.at as usize, span.len as usize);
}

/// The items that a slot of the root owns.
#[derive(Clone, Copy, Debug, Default)]
struct Slot {
    nodes: Span,
    base: Span,
    prefixes: Span,
}

impl<A: Addr, L: Leaf> Default for LcTrieBuilder<A, L> {
    /// Branches on 16 bits at the root (half of them in a toy), with a fill factor of
    /// a half: the paper's.
    fn default() -> Self {
        Self::new(16.min(A::BITS / 2), 50)
    }
}

impl<A: Addr, L: Leaf> LcTrieBuilder<A, L> {
    /// Starts an empty trie whose root branches on `root` bits, 1 to 24 and less than
    /// the family has, and whose nodes on as many as leave `fill_factor` of 100
    /// children in use, 1 to 100.
    pub fn new(root: u32, fill_factor: usize) -> Self {
        let root = root.clamp(1, 24.min(A::BITS - 1));
        // The string of the slots that no route covers.
        let none = Base { key: A::MIN, pre: NIL, hop: L::default(), len: 0 };
        let mut this = Self {
            root,
            fill_factor: fill_factor.clamp(1, 100),
            trie: Arena::new(),
            base: Arena::new(),
            prefixes: Arena::new(),
            slots: vec![Slot::default(); 1 << root],
            short: BTreeMap::new(),
        };
        this.trie.store(&vec![Node::default(); 1 << root]);
        this.base.store(&[none]);
        this
    }

    /// Returns the longest listed route that is shorter than `prefix` and covers it.
    fn cover(&self, prefix: Prefix<A>) -> Option<(u32, u32)> {
        let mut lens = (0..prefix.len().min(self.root)).rev();
        lens.find_map(|len| self.short.get(&Prefix::truncate(prefix.addr(), len)).copied())
    }

    /// Writes the entries of a listed short route.
    fn write_short(&mut self, prefix: Prefix<A>, hop: L) {
        let Some(&(base, covering)) = self.short.get(&prefix) else { return };
        let pre = self.cover(prefix).map_or(NIL, |(_, covering)| covering);
        let len = prefix.len() as u8;
        self.base.write(base as usize, &[Base { key: prefix.addr(), pre, hop, len }]);
        self.prefixes.write(covering as usize, &[Covering { pre, hop, len }]);
    }

    /// Lists a route shorter than the root's branch; returns whether it was already listed.
    fn list(&mut self, prefix: Prefix<A>, hop: Hop) -> Result<bool, Full> {
        let hop = L::pack(hop)?;
        let listed = self.short.contains_key(&prefix);
        if !listed {
            let base = take(&mut self.base, 1)?.at;
            let covering = take(&mut self.prefixes, 1)?.at;
            self.short.insert(prefix, (base, covering));
        }
        self.write_short(prefix, hop);
        Ok(listed)
    }

    /// Lays out every slot, one after the other.
    fn lay_out_all(&mut self, rib: &Rib<A>) -> Result<(), Full> {
        self.trie.clear(1 << self.root);
        self.base.clear(1);
        self.prefixes.clear(0);
        self.slots.fill(Slot::default());
        self.short.clear();
        // In order, a short route comes after those that cover it.
        let short = |(prefix, _): &(Prefix<A>, Hop)| prefix.len() < self.root;
        for (prefix, hop) in rib.iter().filter(short).collect::<Vec<_>>() {
            self.list(prefix, hop)?;
        }
        (0..1 << self.root).try_for_each(|slot| self.lay_out(rib, slot))
    }

    /// Lays out a slot in place of its present content.
    fn lay_out(&mut self, rib: &Rib<A>, slot: usize) -> Result<(), Full> {
        let old = self.slots[slot];
        give_back(&mut self.trie, old.nodes);
        give_back(&mut self.base, old.base);
        give_back(&mut self.prefixes, old.prefixes);
        let block = Prefix::truncate(A::from_bits(slot, 0, self.root), self.root);
        let routes: Vec<_> = rib.covered(block).collect();
        let cover = self.cover(block);
        if routes.is_empty() {
            let string = cover.map_or(0, |(base, _)| base);
            self.slots[slot] = Slot::default();
            self.trie.write(slot, &[Node { adr: string, ..Node::default() }]);
            return Ok(());
        }
        let covers = |i: usize| routes.get(i + 1).is_some_and(|next| routes[i].0.covers(next.0));
        let covering = (0..routes.len()).filter(|&i| covers(i)).count();
        let prefixes_span = take(&mut self.prefixes, covering)?;
        let above = cover.map_or(NIL, |(_, covering)| covering);
        let mut base = Vec::with_capacity(routes.len() - covering);
        let mut prefixes = Vec::with_capacity(covering);
        let mut open: Vec<(Prefix<A>, u32)> = Vec::new();
        for (i, &(prefix, hop)) in routes.iter().enumerate() {
            while open.pop_if(|(last, _)| !last.covers(prefix)).is_some() {}
            let pre = open.last().map_or(above, |&(_, index)| index);
            let (hop, len) = (L::pack(hop)?, prefix.len() as u8);
            if covers(i) {
                open.push((prefix, prefixes_span.at + prefixes.len() as u32));
                prefixes.push(Covering { pre, hop, len });
            } else {
                base.push(Base { key: prefix.addr(), pre, hop, len });
            }
        }
        let mut nodes = Vec::new();
        let mut top = self.grow(&base, 0, self.root, &mut nodes);
        let nodes_span = take(&mut self.trie, nodes.len())?;
        let base_span = take(&mut self.base, base.len())?;
        for node in nodes.iter_mut().chain([&mut top]) {
            node.adr += if node.branch == 0 { base_span.at } else { nodes_span.at };
        }
        self.prefixes.write(prefixes_span.at as usize, &prefixes);
        self.base.write(base_span.at as usize, &base);
        self.trie.write(nodes_span.at as usize, &nodes);
        self.trie.write(slot, &[top]);
        self.slots[slot] = Slot { nodes: nodes_span, base: base_span, prefixes: prefixes_span };
        Ok(())
    }

    /// Appends the nodes below the one that holds `strings`, which agree in the first
    /// `bits` bits, and returns that one. Addresses count from the first node and from
    /// string 0 of the slot, `first` being the number of the first string.
    fn grow(&self, strings: &[Base<A, L>], first: u32, bits: u32, nodes: &mut Vec<Node>) -> Node {
        let leaf = |string: usize| Node { adr: first + string as u32, skip: 0, branch: 0 };
        let [low, .., high] = strings else { return leaf(0) };
        let shared = low.key.common(high.key);
        let branch = self.branch(strings, shared);
        let adr = nodes.len();
        nodes.resize(adr + (1 << branch), leaf(0));
        let mut from = 0;
        for child in 0..1usize << branch {
            let start =
                low.key.first(shared).to_u128() | A::from_bits(child, shared, branch).to_u128();
            let part = Prefix::truncate(A::from_u128(start), shared + branch);
            let ends_before = |base: &&Base<A, L>| base.key.last(base.len.into()) < part.addr();
            from += strings[from..].iter().take_while(ends_before).count();
            let within = strings[from..].iter().take_while(|base| base.key <= part.last()).count();
            nodes[adr + child] = if within > 0 {
                let strings = &strings[from..from + within];
                self.grow(strings, first + from as u32, shared + branch, nodes)
            } else {
                // No string: the neighbor that is nearer, whose prefixes are ours.
                let common = |i: usize| strings.get(i).map(|base| base.key.common(part.addr()));
                let before = from.checked_sub(1);
                match before {
                    Some(before) if common(before) >= common(from) => leaf(before),
                    _ => leaf(from),
                }
            };
        }
        Node { adr: adr as u32, skip: (shared - bits) as u8, branch: branch as u8 }
    }

    /// Chooses on how many bits from `at` on to branch: as many as leave the fill
    /// factor in use, at least one.
    fn branch(&self, strings: &[Base<A, L>], at: u32) -> u32 {
        let mut branch = 1;
        while at + branch < A::BITS && branch < 24 {
            let mut filled = 1;
            for pair in strings.windows(2) {
                filled += usize::from(pair[0].key.common(pair[1].key) < at + branch + 1);
            }
            if filled * 100 < self.fill_factor << (branch + 1) {
                break;
            }
            branch += 1;
        }
        branch
    }

    /// Applies the change of a route shorter than the root's branch.
    fn change_short(&mut self, rib: &Rib<A>, prefix: Prefix<A>) -> Result<(), Full> {
        let gone = match rib.get(prefix) {
            Some(hop) => {
                if self.list(prefix, hop)? {
                    return Ok(());
                }
                None
            }
            None => match self.short.remove(&prefix) {
                None => return Ok(()),
                gone => gone,
            },
        };
        let below = self.short.range(prefix..).take_while(|(other, _)| prefix.covers(**other));
        let below: Vec<_> = below.map(|(&other, &(base, _))| (other, base)).collect();
        for (other, base) in below {
            self.write_short(other, self.base[base as usize].hop);
        }
        let first = prefix.addr().bits(0, self.root);
        for slot in first..=prefix.last().bits(0, self.root) {
            self.lay_out(rib, slot)?;
        }
        if let Some((base, covering)) = gone {
            give_back(&mut self.base, Span { at: base, len: 1 });
            give_back(&mut self.prefixes, Span { at: covering, len: 1 });
        }
        Ok(())
    }
}

impl<A: Addr, L: Leaf> RouteBuilder<A> for LcTrieBuilder<A, L> {
    type Engine = LcTrie<A, L>;

    fn fill(&mut self, rib: &Rib<A>) -> Result<(), Full> {
        self.lay_out_all(rib)
    }

    fn change(&mut self, rib: &Rib<A>, prefix: Prefix<A>) -> Result<(), Full> {
        if prefix.len() < self.root {
            self.change_short(rib, prefix)?;
        } else {
            self.lay_out(rib, prefix.addr().bits(0, self.root))?;
        }
        if self.trie.is_sparse() || self.base.is_sparse() || self.prefixes.is_sparse() {
            self.lay_out_all(rib)?;
        }
        Ok(())
    }

    fn freeze(&self) -> LcTrie<A, L> {
        LcTrie {
            root: self.root,
            trie: self.trie.freeze(),
            base: self.base.freeze(),
            prefixes: self.prefixes.freeze(),
        }
    }

    fn refresh(&self, idle: &mut LcTrie<A, L>) {
        self.trie.refresh(&mut idle.trie);
        self.base.refresh(&mut idle.base);
        self.prefixes.refresh(&mut idle.prefixes);
    }

    fn written(&self) -> u64 {
        self.trie.written() + self.base.written() + self.prefixes.written()
    }
}
