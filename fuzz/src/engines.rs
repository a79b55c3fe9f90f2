//! Plays a script with every engine, or with one.
//!
//! The first byte of an input, its *header*, says over which addresses and with
//! which engines the rest is played:
//!
//! ```text
//!            7  6   5            0
//!   small  │ w │ -  │  engine     │   w: 0 = u8, 1 = u16
//!   wide   │  w     │  engine     │   w: 0, 3 = u32, 1 = u64, 2 = u128
//! ```
//!
//! Speed decides what is found, and engines differ by four orders of magnitude
//! in what it costs to make an empty one: `u8` tables take microseconds, the first
//! stage of `dir24_8` over `u32` is 2^24 entries. Hence:
//!
//! - `u8`: every engine plays every input.
//! - `u16`: the one that the header names (modulo their number), because all 65,536
//!   addresses are compared after each commit.
//! - wide: engine 0 stands for all the *light* ones together, whose empty table is
//!   at most 64 KiB; the others are the *heavy* ones, one an input. Those are
//!   kept from input to input: each input ends with all of its routes withdrawn
//!   and the answers compared once more, and an engine whose table is then
//!   not the bytes that it was at first (laid out wider for good) is made anew.
//!
//! A difference that a kept engine shows names how many scripts it had played before:
//! one that a process of its own does not show again is owed to what they left.

use std::any::Any;
use std::collections::{BTreeSet, HashMap};
use std::rc::Rc;

use fib::{Addr, Choice, Family, Prefix};

use crate::script::{Op, decode, step};
use crate::subject::{Exam, Routes, Subject, Tally};

/// The largest empty table of a light engine, in bytes.
const LIGHT: usize = 1 << 16;

/// The engines of one family.
struct Stock<A: Family> {
    /// Each with its name, and whether its empty table is small.
    all: Vec<(Choice, String, bool)>,
    /// The heavy ones that have been used, without a route.
    kept: HashMap<String, Subject<A>>,
}

/// Which engines of a family play.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Who {
    /// All of them.
    All,
    /// The one that the header names.
    One(u8),
    /// All light ones, or the heavy one that the header names.
    Light(u8),
}

/// Engines at work, kept from input to input.
#[derive(Default)]
pub struct Bench {
    /// A [`Stock`] for each family by its width.
    stocks: HashMap<u32, Box<dyn Any>>,
    /// What has been done so far.
    pub tally: Tally,
}

impl Bench {
    /// Plays an input over one of the small universes.
    ///
    /// # Panics
    ///
    /// If an engine differs from the oracle. So do all the others here.
    pub fn small(&mut self, input: &[u8]) {
        let Some((&header, script)) = input.split_first() else { return };
        if header & 0x80 == 0 {
            self.play::<u8>(script, Who::All);
        } else {
            self.play::<u16>(script, Who::One(header & 0x3f));
        }
    }

    /// Plays an input over one of the wide families.
    pub fn wide(&mut self, input: &[u8]) {
        let Some((&header, script)) = input.split_first() else { return };
        let who = Who::Light(header & 0x3f);
        match header >> 6 {
            1 => self.play::<u64>(script, who),
            2 => self.play::<u128>(script, who),
            _ => self.play::<u32>(script, who),
        }
    }

    /// Plays a script over a family.
    pub fn play<A: Family>(&mut self, script: &[u8], who: Who) {
        let stock = self.stocks.entry(A::BITS).or_insert_with(|| Box::new(Stock::<A>::new()));
        let stock = stock.downcast_mut::<Stock<A>>().expect("one family has one width");
        let ops = decode::<A>(script);
        let cast: Vec<(Choice, String, bool)> = stock.cast(who);
        let mut fresh: Vec<Subject<A>> = Vec::new();
        for (choice, name, light) in cast {
            if light {
                fresh.push(Subject::new(choice, name));
                continue;
            }
            let mut subject = match stock.kept.remove(&name) {
                Some(mut kept) => {
                    self.tally.kept += 1;
                    kept.again();
                    kept
                }
                None => Subject::new(choice, name.clone()),
            };
            if perform(std::slice::from_mut(&mut subject), &ops, &mut self.tally) {
                stock.kept.insert(name, subject);
            }
        }
        perform(&mut fresh, &ops, &mut self.tally);
    }
}

impl<A: Family> Stock<A> {
    fn new() -> Self {
        let light = |choice, name: &str| {
            A::BITS <= 16 || Subject::<A>::new(choice, name.to_owned()).empty_bytes() <= LIGHT
        };
        let named = every::<A>().into_iter().map(|choice| (choice, choice.name::<A>()));
        let all = named
            .map(|(choice, name)| {
                let light = light(choice, &name);
                (choice, name, light)
            })
            .collect();
        Self { all, kept: HashMap::new() }
    }

    /// Picks who plays.
    fn cast(&self, who: Who) -> Vec<(Choice, String, bool)> {
        let one = |of: Vec<&(Choice, String, bool)>, which: u8| {
            of.get(usize::from(which) % of.len().max(1)).map(|&one| one.clone())
        };
        match who {
            Who::All => self.all.clone(),
            Who::One(which) => one(self.all.iter().collect(), which).into_iter().collect(),
            Who::Light(0) => self.all.iter().filter(|(.., light)| *light).cloned().collect(),
            Who::Light(which) => {
                let heavy = self.all.iter().filter(|(.., light)| !light).collect();
                one(heavy, which - 1).into_iter().collect()
            }
        }
    }
}

/// Every engine that suits a family, and shapes of DXR that are not listed.
pub fn every<A: Family>() -> Vec<Choice> {
    let shapes: &[&str] = match A::BITS {
        8 => &["D1R", "D1X1R", "D3X3R"],
        16 => &["D12R", "D2X10R", "D2X3R/8"],
        32 => &["D12X6R"],
        64 => &["D12X8R"],
        _ => &["D12X8R", "D12X8R/64"],
    };
    let shapes = shapes.iter().filter_map(|name| Choice::parse::<A>(name).ok());
    Choice::every::<A>().into_iter().chain(shapes).collect()
}

/// Plays a script with `cast`, all in step, and leaves them without a route. Returns
/// whether each has the very footprint again with which it began.
fn perform<A: Family>(cast: &mut [Subject<A>], ops: &[Op<A>], tally: &mut Tally) -> bool {
    if cast.is_empty() {
        return true;
    }
    let mut routes = Routes::<A>::new();
    let mut borders: BTreeSet<A> = BTreeSet::from([A::MIN, A::MAX]);
    for op in ops {
        match *op {
            Op::Announce(prefix, hop) => {
                mark(&mut borders, prefix);
                let before = routes.insert(prefix, hop);
                cast.iter_mut().for_each(|subject| subject.announce(prefix, hop, before));
            }
            Op::Withdraw(prefix) => {
                mark(&mut borders, prefix);
                let before = routes.remove(&prefix);
                cast.iter_mut().for_each(|subject| subject.withdraw(prefix, before));
            }
            Op::Ask(addr) => drop(borders.insert(addr)),
            Op::Commit | Op::Rebuild => {
                let exam = exam(routes.clone(), &borders);
                for subject in cast.iter_mut() {
                    subject.commit(&exam, tally);
                    if *op == Op::Rebuild && subject.empty_bytes() <= LIGHT {
                        subject.rebuild(&exam, tally);
                    }
                }
            }
            Op::Sleep => cast.iter_mut().for_each(Subject::sleep),
            Op::Wake => cast.iter_mut().for_each(Subject::wake),
        }
    }
    let exam = exam(Routes::new(), &borders);
    // Every one is cleared, also after one that is not what it was.
    let cleared = cast.iter_mut().map(|subject| subject.clear(&exam, tally));
    cleared.filter(|same| !same).count() == 0
}

/// Adds a prefix's ends and their neighbors.
fn mark<A: Addr>(borders: &mut BTreeSet<A>, prefix: Prefix<A>) {
    for end in [prefix.addr(), prefix.last()] {
        borders.extend([step(end, u128::MAX), end, step(end, 1)]);
    }
}

/// Every address of a small universe, the borders of a wide one.
fn exam<A: Family>(routes: Routes<A>, borders: &BTreeSet<A>) -> Exam<A> {
    let singly: Vec<A> = borders.iter().copied().collect();
    let addrs = if A::BITS <= 16 {
        (0..1u128 << A::BITS).map(A::from_u128).collect()
    } else {
        singly.clone()
    };
    Exam::new(Rc::new(routes), addrs, singly)
}
