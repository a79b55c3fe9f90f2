//! The paper's conclusions, compared with our results.
//!
//! A claim is an order, not a number: the paper's trace and routing tables are not public, so the
//! numbers cannot be reproduced, but its conclusions can be checked. The claims on the simulation
//! decide the exit status. Those on the measured table 6 are only reported: this machine is not a
//! Pentium II.

use super::measured::Score;
use super::tables::Simulated;

/// A conclusion of the paper.
#[derive(serde::Serialize)]
pub(super) struct Claim {
    pub(super) table: u8,
    pub(super) says: &'static str,
    /// Our results that it is compared with.
    pub(super) ours: String,
    pub(super) holds: bool,
    /// Whether it is measured on this machine instead of simulated.
    pub(super) measured: bool,
}

/// Compares the simulation with the claims.
pub(super) fn simulated(tables: &Simulated) -> Vec<Claim> {
    let degree = |ways: u32| {
        let row = tables.table2.iter().find(|row| row.ways == ways);
        row.map_or(f64::NAN, |row| row.mlps)
    };
    let [seven, three, two, one] = [7, 3, 2, 1].map(degree);
    let mlps = |values: &[f64]| {
        let values: Vec<String> = values.iter().map(|value| format!("{value:.2}")).collect();
        format!("{} MLPS", values.join(", "))
    };
    let claim = |table, says, ours, holds| Claim { table, says, ours, holds, measured: false };
    let [with, without] = &tables.table3;
    let sizes: Vec<f64> = tables.table4.iter().map(|row| row.mlps).collect();
    let blocks: Vec<f64> = tables.table5.iter().map(|row| row.hits).collect();
    let percents: Vec<String> = blocks.iter().map(|hits| format!("{hits:.2} %")).collect();
    vec![
        claim(
            2,
            "direct-mapped beats degree 2, 3 and 7 at equal size",
            mlps(&[one, two, three, seven]),
            one > two && one > three && one > seven,
        ),
        claim(2, "degree 3 with the duplicate beats 2 without", mlps(&[three, two]), three > two),
        claim(2, "degree 7 is the slowest", mlps(&[seven, two]), seven < two && seven < three),
        claim(
            3,
            "the duplicate makes hits quicker, and lookups with them",
            format!(
                "{:.2} and {:.2} cycles a hit, {:.2} and {:.2} MLPS",
                with.hit_time, without.hit_time, with.mlps, without.mlps
            ),
            with.hit_time < without.hit_time && with.mlps > without.mlps,
        ),
        claim(
            3,
            "with the duplicate most hits are in the first word",
            format!("{:.1} %", with.words[0]),
            with.words[0] > 50.0,
        ),
        claim(
            4,
            "the larger HAC beats the smaller, and that beats none",
            mlps(&sizes),
            sizes.is_sorted_by(|a, b| a > b),
        ),
        claim(
            5,
            "smaller blocks hit more: there is little spatial locality",
            percents.join(", "),
            blocks.is_sorted_by(|a, b| a > b),
        ),
    ]
}

/// Judges what was measured, on the engine of the paper.
pub(super) fn measured(scores: &[Score]) -> Vec<Claim> {
    let mut claims = Vec::new();
    for case in ["burst", "chained"] {
        let rate = |hac: &str| {
            let is =
                |score: &&Score| score.engine == "nart" && score.case == case && score.hac == hac;
            scores.iter().find(is).map(|score| score.summary.median)
        };
        let all = ["1 (1)", "3 (4)", "2 (2)", "7 (8)", "8 (8)", "no HAC"].map(rate);
        let [Some(one), Some(three), Some(two), Some(seven), Some(eight), Some(none)] = all else {
            return claims;
        };
        let mut claim = |says, values: &[f64], holds| {
            let values: Vec<String> = values.iter().map(|value| format!("{value:.1}")).collect();
            let ours = format!("{case}: {} MLPS", values.join(", "));
            claims.push(Claim { table: 6, says, ours, holds, measured: true });
        };
        claim(
            "direct-mapped beats degree 2, 3 and 7",
            &[one, two, three, seven],
            one > two && one > three && one > seven,
        );
        claim("degree 3 with the duplicate beats 2 without", &[three, two], three > two);
        claim("degree 2 beats 7", &[two, seven], two > seven);
        claim("degree 7 with the duplicate beats 8 without", &[seven, eight], seven > eight);
        claim("a direct-mapped HAC beats the NART alone", &[one, none], one > none);
        claim("the NART alone beats degree 7", &[none, seven], none > seven);
    }
    claims
}
