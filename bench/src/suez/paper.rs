//! The tables of the paper, as data.
//!
//! Tzi-cker Chiueh, Prashant Pradhan, "High-Performance IP Routing Table Lookup
//! Using CPU Caching", IEEE INFOCOM 1999. Tables 1 to 5 are of its simulation
//! (section 5: a 500 MHz Alpha, L1 16 KiB, L2 1 MiB, the HAC 4 KiB unless stated
//! otherwise), table 6 of its program on a 233 MHz Pentium II (section 6). The
//! trace of the Brookhaven National Laboratory has 184,400,259 packets and is not
//! public.

/// Table 1: a routing table, and the share of its routes by class.
pub(super) struct Static {
    pub(super) source: &'static str,
    pub(super) routes: usize,
    /// In percent: up to 16 bits, 17 to 24, 25 and more.
    pub(super) classes: [f64; 3],
    pub(super) bytes: usize,
    /// The flat table's size over the NART's, in percent.
    pub(super) efficiency: f64,
}

/// Table 1 without the row of the trace.
pub(super) const TABLE_1: [Static; 3] = [
    Static {
        source: "Merit",
        routes: 39_680,
        classes: [14.2, 85.8, 0.03],
        bytes: 843_444,
        efficiency: 42.3,
    },
    Static {
        source: "IANA/ISI",
        routes: 171_938,
        classes: [5.9, 79.1, 15.0],
        bytes: 886_023,
        efficiency: 174.6,
    },
    Static {
        source: "BNL",
        routes: 50_523,
        classes: [12.7, 87.2, 0.1],
        bytes: 905_195,
        efficiency: 50.2,
    },
];

/// Table 1: the trace's packets by the class of the route they take, in percent.
pub(super) const TABLE_1_TRACE: [f64; 3] = [78.7, 21.29, 0.01];

/// A speed in million lookups a second and a hit ratio in percent.
#[derive(Clone, Copy)]
pub(super) struct Speed {
    pub(super) mlps: f64,
    pub(super) hits: f64,
}

/// Table 2: by degree of logical associativity, with and without the duplicate as
/// the paper has it; 4 KiB.
pub(super) const TABLE_2: [(u32, bool, Speed); 4] = [
    (7, true, Speed { mlps: 60.49, hits: 97.87 }),
    (3, true, Speed { mlps: 77.09, hits: 96.95 }),
    (2, false, Speed { mlps: 71.92, hits: 97.21 }),
    (1, false, Speed { mlps: 87.87, hits: 95.22 }),
];

/// Table 3, degree 7: with the duplicate or not, the hits by word of a set in
/// percent, the cycles of a hit, and (in the text below it) the speed.
pub(super) const TABLE_3: [(bool, &[f64], f64, f64); 2] = [
    (true, &[78.73, 3.02, 3.04, 3.06, 3.04, 3.04, 3.01, 3.03], 7.55, 60.69),
    (false, &[14.09, 14.62, 14.04, 14.15, 14.45, 14.84, 13.79], 13.99, 34.29),
];

/// Table 4, degree 7: by bytes of the HAC.
pub(super) const TABLE_4: [(u64, Speed); 3] = [
    (8 << 10, Speed { mlps: 68.86, hits: 98.78 }),
    (4 << 10, Speed { mlps: 60.49, hits: 97.89 }),
    (0, Speed { mlps: 30.2, hits: 0.0 }),
];

/// Table 5: hit ratios in percent of a direct-mapped cache of 4 KiB, by the bytes
/// of a block.
pub(super) const TABLE_5: [(u64, f64); 4] = [(1, 97.41), (4, 94.02), (16, 86.40), (32, 80.64)];

/// Table 6 and the text below it: million lookups a second on the Pentium II.
#[expect(clippy::approx_constant, reason = "a figure of the paper's")]
pub(super) const TABLE_6: [(&str, f64); 6] = [
    ("7 (8)", 4.95),
    ("8 (8)", 3.14),
    ("3 (4)", 6.05),
    ("2 (2)", 5.51),
    ("1 (1)", 8.04),
    ("no HAC", 5.2),
];

/// Returns the cycles that the paper's results leave for a NART lookup, including its waits:
/// at degree 7 and degree 1 of table 2, and without a HAC in table 4. At the
/// other degrees the time of a hit is not printed.
pub(super) fn implied_nart() -> [f64; 3] {
    let clock = 500.0;
    // The remaining cycles, divided by the lookups that missed.
    let left = |speed: Speed, hit: f64, vain: f64| {
        let hits = speed.hits / 100.0;
        (clock / speed.mlps - hits * hit) / (1.0 - hits) - vain
    };
    let [(.., seven), _, _, (.., one)] = TABLE_2;
    [left(seven, TABLE_3[0].2, 27.0), left(one, 5.0, 6.0), clock / TABLE_4[2].1.mlps]
}
