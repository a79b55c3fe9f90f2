//! A model of the memory hierarchy: two caches and the memory.
//!
//! Chiueh and Pradhan (1999), section 4.2: an L1 of 16 KiB and an L2 of 1 MiB, both
//! direct-mapped with lines of 32 bytes; a load takes 1 cycle where L1 has the
//! line, 6 where L2 has it and 30 from memory. The TLB is not modeled.
//!
//! ```text
//!   virtual address ─► Pages ─► physical ─► L1 ─miss─► L2 ─miss─► memory
//!                                           1 cycle    6          30
//!   physical pages, by which part of L1 they map to:
//!     0 1 2 3 │ 0 1 2 3 │ 0 1 2 3 …      the HAC has the one page 0;
//!     H . . . │ x . . . │ x . . . …      no page x is used, so none evicts it
//! ```
//!
//! To keep the HAC in L1 (section 3.1), the pages that map to the front of L1 are reserved: the
//! HAC lies in the first of them, and the others are unused. Other loads therefore have less of
//! L1, and, since L2 is indexed by the physical address too, the same share less of L2.
//!
//! Caches have any associativity and replace the least recently used line. They are inclusive: a
//! line from memory enters both, and a line evicted from L2 leaves L1.

/// One cache: sets of lines, each set in the order of last use, latest first.
#[derive(Clone, Debug)]
pub(super) struct Cache {
    line: u64,
    ways: usize,
    sets: u64,
    /// The cached line numbers; [`EMPTY`] after the last of a set.
    held: Vec<u64>,
}

/// No line: no address is that high.
const EMPTY: u64 = u64::MAX;

impl Cache {
    /// Creates an empty cache, or returns an error if the size is no whole number of sets.
    pub(super) fn new(bytes: u64, line: u64, ways: u64) -> Result<Self, String> {
        let sets = bytes.checked_div(line * ways).unwrap_or(0);
        if sets == 0 || sets * line * ways != bytes {
            return Err(format!(
                "{bytes} bytes are no whole number of sets of {ways} lines of {line} bytes"
            ));
        }
        Ok(Self { line, ways: ways as usize, sets, held: vec![EMPTY; (sets * ways) as usize] })
    }

    /// Returns the bytes of one way: addresses so far apart share a set.
    pub(super) fn way_bytes(&self) -> u64 {
        self.sets * self.line
    }

    /// Looks for the line of `address` and makes it the most recently used of its set. Returns
    /// whether it was a hit, and if not, the evicted line.
    pub(super) fn touch(&mut self, address: u64) -> Touch {
        let number = address / self.line;
        let first = (number % self.sets) as usize * self.ways;
        let set = &mut self.held[first..first + self.ways];
        let place = set.iter().position(|&held| held == number);
        let evicted = set[self.ways - 1];
        set[..=place.unwrap_or(self.ways - 1)].rotate_right(1);
        set[0] = number;
        match place {
            Some(_) => Touch::Hit,
            None => Touch::Miss { evicted: (evicted != EMPTY).then(|| evicted * self.line) },
        }
    }

    /// Drops every line that begins in the `bytes` from `address` on.
    fn drop_lines(&mut self, address: u64, bytes: u64) {
        for number in address / self.line..(address + bytes).div_ceil(self.line) {
            let first = (number % self.sets) as usize * self.ways;
            let set = &mut self.held[first..first + self.ways];
            if let Some(place) = set.iter().position(|&held| held == number) {
                set[place..].rotate_left(1);
                set[self.ways - 1] = EMPTY;
            }
        }
    }
}

/// The result of an access to a cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Touch {
    Hit,
    Miss { evicted: Option<u64> },
}

/// The cycles of a load, by the place of its line.
#[derive(Clone, Copy, Debug)]
pub(super) struct Latency {
    pub(super) l1: u64,
    pub(super) l2: u64,
    pub(super) memory: u64,
}

/// The physical pages in use.
#[derive(Clone, Copy, Debug)]
struct Pages {
    size: u64,
    /// Pages in one way of L1.
    colors: u64,
    /// The number of reserved ones, from the first.
    reserved: u64,
}

impl Pages {
    /// Returns the physical address: virtual pages map to usable ones, in order.
    fn physical(self, address: u64) -> u64 {
        let (page, offset) = (address / self.size, address % self.size);
        let usable = self.colors - self.reserved;
        let page = page / usable * self.colors + self.reserved + page % usable;
        page * self.size + offset
    }
}

/// Both caches and the memory, for all but the HAC.
#[derive(Clone, Debug)]
pub(super) struct Hierarchy {
    l1: Cache,
    l2: Cache,
    latency: Latency,
    pages: Pages,
    /// Whether loads bypass L1.
    bypass: bool,
    /// Loads found in L1, in L2, in memory.
    pub(super) found: [u64; 3],
}

impl Hierarchy {
    /// Joins two empty caches, with `reserved` bytes of L1 reserved in pages of `page` bytes;
    /// returns an error if that leaves nothing.
    pub(super) fn new(
        l1: Cache,
        l2: Cache,
        latency: Latency,
        page: u64,
        reserved: u64,
    ) -> Result<Self, String> {
        let way = l1.way_bytes();
        let (colors, reserved_pages) = (way / page.max(1), reserved.div_ceil(page.max(1)));
        if page == 0 || !way.is_multiple_of(page) && reserved > 0 {
            return Err(format!("a way of L1, {way} bytes, is no whole number of pages of {page}"));
        }
        if reserved_pages > 0 && reserved_pages >= colors {
            return Err(format!(
                "{reserved} bytes of the {way} in a way of L1 are for the HAC, and \
                 nothing is left"
            ));
        }
        // Without reserved pages, any number of colors leaves addresses unchanged.
        let pages = Pages { size: page, colors: colors.max(1), reserved: reserved_pages };
        Ok(Self { l1, l2, latency, pages, bypass: false, found: [0; 3] })
    }

    /// Lets loads bypass L1 if `bypass`: none hits it or fills it.
    pub(super) fn bypassing(self, bypass: bool) -> Self {
        Self { bypass, ..self }
    }

    /// Loads `bytes` bytes from a virtual address and returns the cycles, one line after the
    /// other if the bytes lie in two.
    pub(super) fn load(&mut self, address: u64, bytes: u64) -> u64 {
        let line = self.l1.line;
        let (first, last) = (address / line, (address + bytes.max(1) - 1) / line);
        (first..=last).map(|number| self.line((number * line).max(address))).sum()
    }

    fn line(&mut self, address: u64) -> u64 {
        let physical = self.pages.physical(address);
        if !self.bypass && self.l1.touch(physical) == Touch::Hit {
            self.found[0] += 1;
            return self.latency.l1;
        }
        match self.l2.touch(physical) {
            Touch::Hit => {
                self.found[1] += 1;
                self.latency.l2
            }
            Touch::Miss { evicted } => {
                if let Some(evicted) = evicted {
                    self.l1.drop_lines(evicted, self.l2.line);
                }
                self.found[2] += 1;
                self.latency.memory
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Cache, Hierarchy, Latency, Touch};

    const PAPER: Latency = Latency { l1: 1, l2: 6, memory: 30 };

    fn hits(cache: &mut Cache, addresses: &[u64]) -> Vec<bool> {
        addresses.iter().map(|&address| cache.touch(address) == Touch::Hit).collect()
    }

    #[test]
    fn lines_a_way_apart_conflict_in_a_direct_mapped_cache() {
        let mut cache = Cache::new(128, 32, 1).unwrap();
        let sequence = [0, 31, 32, 128, 0, 32, 64, 192, 64, 33];
        let right = [false, true, false, false, false, true, false, false, false, true];
        assert_eq!(hits(&mut cache, &sequence), right);
        assert_eq!(cache.touch(128 + 96), Touch::Miss { evicted: None });
        assert_eq!(cache.touch(96), Touch::Miss { evicted: Some(224) });
    }

    #[test]
    fn least_recently_used_line_is_evicted() {
        // One set of three lines.
        let mut cache = Cache::new(96, 32, 3).unwrap();
        assert_eq!(hits(&mut cache, &[0, 32, 64, 0, 96]), [false, false, false, true, false]);
        // 32 was the longest unused when 96 came; then 64.
        assert_eq!(hits(&mut cache, &[0, 64, 96]), [true, true, true]);
        assert_eq!(cache.touch(32), Touch::Miss { evicted: Some(0) });
        assert_eq!(cache.touch(0), Touch::Miss { evicted: Some(64) });
    }

    #[test]
    fn dropped_line_leaves_room_for_the_next() {
        let mut cache = Cache::new(64, 16, 4).unwrap();
        assert_eq!(hits(&mut cache, &[0, 16, 32, 48]), [false; 4]);
        cache.drop_lines(16, 32);
        assert_eq!(hits(&mut cache, &[0, 48]), [true, true]);
        assert_eq!(cache.touch(64), Touch::Miss { evicted: None });
        assert_eq!(cache.touch(80), Touch::Miss { evicted: None });
        assert_eq!(cache.touch(96), Touch::Miss { evicted: Some(0) });
    }

    #[test]
    fn load_costs_by_its_level_and_fills_all_levels_above() {
        // L1 of 2 lines, L2 of 4, direct-mapped.
        let (l1, l2) = (Cache::new(64, 32, 1).unwrap(), Cache::new(128, 32, 1).unwrap());
        let mut memory = Hierarchy::new(l1, l2, PAPER, 32, 0).unwrap();
        assert_eq!(memory.load(0, 4), 30);
        assert_eq!(memory.load(28, 4), 1);
        assert_eq!(memory.load(64, 4), 30, "another line, the same place in L1");
        assert_eq!(memory.load(0, 4), 6, "gone from L1, still in L2");
        assert_eq!(memory.load(0, 4), 1, "and back in L1");
        assert_eq!(memory.load(128, 4), 30, "drives line 0 out of both");
        assert_eq!(memory.load(0, 4), 30);
        assert_eq!(memory.found, [2, 1, 4]);
    }

    #[test]
    fn bypassing_accesses_are_not_in_the_first_level() {
        let (l1, l2) = (Cache::new(64, 32, 1).unwrap(), Cache::new(128, 32, 1).unwrap());
        let mut memory = Hierarchy::new(l1, l2, PAPER, 32, 0).unwrap().bypassing(true);
        assert_eq!([memory.load(0, 4), memory.load(0, 4), memory.load(128, 4)], [30, 6, 30]);
        assert_eq!(memory.found, [0, 1, 2]);
    }

    #[test]
    fn eviction_from_the_second_level_evicts_from_the_first() {
        // L1 of two ways holds both lines; L2, direct-mapped, only one of them.
        let (l1, l2) = (Cache::new(64, 32, 2).unwrap(), Cache::new(64, 32, 1).unwrap());
        let mut memory = Hierarchy::new(l1, l2, PAPER, 32, 0).unwrap();
        assert_eq!(memory.load(0, 1), 30);
        assert_eq!(memory.load(64, 1), 30);
        assert_eq!(memory.load(0, 1), 30);
    }

    #[test]
    fn load_over_two_lines_costs_both() {
        let (l1, l2) = (Cache::new(64, 32, 1).unwrap(), Cache::new(128, 32, 1).unwrap());
        let mut memory = Hierarchy::new(l1, l2, PAPER, 32, 0).unwrap();
        assert_eq!(memory.load(30, 4), 60);
        assert_eq!(memory.load(29, 4), 2);
        assert_eq!(memory.load(29, 3), 1);
    }

    #[test]
    fn reserved_sets_are_never_used() {
        let cache = |bytes| Cache::new(bytes, 32, 1).unwrap();
        let mut memory =
            Hierarchy::new(cache(16 << 10), cache(1 << 20), PAPER, 4 << 10, 4 << 10).unwrap();
        for line in 0..1 << 16 {
            memory.load(line * 32, 4);
        }
        let lines = |cache: &Cache| -> Vec<u64> {
            cache.held.iter().copied().filter(|&line| line != super::EMPTY).collect()
        };
        let (l1, l2) = (lines(&memory.l1), lines(&memory.l2));
        let apart = |number: &u64| number * 32 % (16 << 10) < 4 << 10;
        assert!(!l1.iter().chain(&l2).any(apart));
        assert_eq!(l1.len(), 384, "three quarters of 512 lines");
        assert_eq!(l2.len(), 3 << 13, "three quarters of 32,768 lines");
        assert!(Hierarchy::new(cache(16 << 10), cache(1 << 20), PAPER, 4 << 10, 16 << 10).is_err());
    }

    #[test]
    fn sizes_without_whole_sets_are_errors() {
        assert!(Cache::new(100, 32, 1).is_err());
        assert!(Cache::new(64, 0, 1).is_err());
        assert!(Cache::new(16, 32, 1).is_err());
    }
}
