//! Plays a script with every engine, or with one.
//!
//! The first byte of an input, its *header*, selects the addresses and engines with which the rest
//! is played:
//!
//! ```text
//!            7  6   5            0
//!   small  │ w │ -  │  engine     │   w: 0 = u8, 1 = u16
//!   wide   │  w     │  engine     │   w: 0, 3 = u32, 1 = u64, 2 = u128
//! ```
//!
//! Speed decides how much is found, and the cost of an empty engine differs by four orders of
//! magnitude: `u8` tables take microseconds, the first stage of `dir24_8` over `u32` is 2^24
//! entries. Hence:
//!
//! - `u8`: every engine plays every input.
//! - `u16`: the one that the header names (modulo their number), because all 65,536
//!   addresses are compared after each commit.
//! - wide: engine 0 stands for all *light* ones together, whose empty table is at most 64 KiB; the
//!   others are the *heavy* ones, one an input. Those are reused from input to input: each input
//!   ends with all of its routes withdrawn and the results compared once more, and an engine whose
//!   table then differs in size from its initial one (permanently laid out wider) is created again.
//!
//! A difference found with a reused engine names the number of scripts that it had played before:
//! if a separate process does not reproduce it, the state left by those scripts is the cause.

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
    /// The heavy ones that can be reused, without a route.
    reusable: HashMap<String, Subject<A>>,
}

/// The engines of a family that play.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Selection {
    /// All of them.
    All,
    /// The one that the header names.
    One(u8),
    /// All light ones, or the heavy one that the header names.
    Light(u8),
}

/// The engines, reused from input to input.
#[derive(Default)]
pub struct Bench {
    /// A [`Stock`] for each family by its width.
    stocks: HashMap<u32, Box<dyn Any>>,
    /// The counters so far.
    pub tally: Tally,
}

impl Bench {
    /// Plays an input over one of the small universes.
    ///
    /// # Panics
    ///
    /// If an engine differs from the oracle. This holds for the other functions here too.
    pub fn small(&mut self, input: &[u8]) {
        let Some((&header, script)) = input.split_first() else { return };
        if header & 0x80 == 0 {
            self.play::<u8>(script, Selection::All);
        } else {
            self.play::<u16>(script, Selection::One(header & 0x3f));
        }
    }

    /// Plays an input over one of the wide families.
    pub fn wide(&mut self, input: &[u8]) {
        let Some((&header, script)) = input.split_first() else { return };
        let selection = Selection::Light(header & 0x3f);
        match header >> 6 {
            1 => self.play::<u64>(script, selection),
            2 => self.play::<u128>(script, selection),
            _ => self.play::<u32>(script, selection),
        }
    }

    /// Plays a script over a family.
    pub fn play<A: Family>(&mut self, script: &[u8], selection: Selection) {
        let stock = self.stocks.entry(A::BITS).or_insert_with(|| Box::new(Stock::<A>::new()));
        let stock = stock.downcast_mut::<Stock<A>>().expect("one family has one width");
        let ops = decode::<A>(script);
        let cast: Vec<(Choice, String, bool)> = stock.cast(selection);
        let mut fresh: Vec<Subject<A>> = Vec::new();
        for (choice, name, light) in cast {
            if light {
                fresh.push(Subject::new(choice, name));
                continue;
            }
            let mut subject = match stock.reusable.remove(&name) {
                Some(mut subject) => {
                    self.tally.reused += 1;
                    subject.begin_script();
                    subject
                }
                None => Subject::new(choice, name.clone()),
            };
            if perform(std::slice::from_mut(&mut subject), &ops, &mut self.tally) {
                stock.reusable.insert(name, subject);
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
        Self { all, reusable: HashMap::new() }
    }

    /// Returns the selected engines.
    fn cast(&self, selection: Selection) -> Vec<(Choice, String, bool)> {
        let one = |of: Vec<&(Choice, String, bool)>, which: u8| {
            of.get(usize::from(which) % of.len().max(1)).map(|&one| one.clone())
        };
        match selection {
            Selection::All => self.all.clone(),
            Selection::One(which) => one(self.all.iter().collect(), which).into_iter().collect(),
            Selection::Light(0) => self.all.iter().filter(|(.., light)| *light).cloned().collect(),
            Selection::Light(which) => {
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

/// Plays a script with all engines of `cast` in parallel, and leaves them without a route. Returns
/// whether each has its initial footprint again.
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
            Op::Query(addr) => drop(borders.insert(addr)),
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
    // Every engine is cleared, also after one with another footprint.
    let cleared = cast.iter_mut().map(|subject| subject.clear(&exam, tally));
    cleared.filter(|same| !same).count() == 0
}

/// Adds a prefix's ends and their neighbors.
fn mark<A: Addr>(borders: &mut BTreeSet<A>, prefix: Prefix<A>) {
    for end in [prefix.addr(), prefix.last()] {
        borders.extend([step(end, u128::MAX), end, step(end, 1)]);
    }
}

/// Returns the comparison of every address of a small universe, or of the borders of a wide one.
fn exam<A: Family>(routes: Routes<A>, borders: &BTreeSet<A>) -> Exam<A> {
    let singly: Vec<A> = borders.iter().copied().collect();
    let addrs = if A::BITS <= 16 {
        (0..1u128 << A::BITS).map(A::from_u128).collect()
    } else {
        singly.clone()
    };
    Exam::new(Rc::new(routes), addrs, singly)
}
