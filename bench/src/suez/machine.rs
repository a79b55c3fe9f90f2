//! The machine and the program that the model runs, every figure an option.
//!
//! The defaults are those of the paper, sections 3.1 (cycles of a HAC lookup), 3.2 (of a NART
//! lookup) and 4.2 (caches). The paper's code takes 5 cycles for a hit in the first word of a
//! set, 3 for each further word, and 1 to detect a miss; the averages in its table 3 are exactly
//! these. A NART lookup
//! takes 7 cycles for a route of class AB, 12 for BC, and 20 + 4K for CD with K
//! rows before the match, each with every load in L1; a load from L2 or memory adds its extra
//! latency.

use anyhow::{Context, bail};

use super::cache::{Cache, Hierarchy, Latency};

/// The modeled machine and program.
#[derive(Clone, Debug, clap::Args, serde::Serialize)]
pub(super) struct Machine {
    /// Clock of the modeled processor in MHz
    #[arg(long, value_name = "MHZ", default_value_t = 500.0)]
    clock: f64,
    /// Bytes of L1
    #[arg(long, value_name = "BYTES", default_value_t = 16 << 10)]
    l1: u64,
    /// Associativity of L1
    #[arg(long, value_name = "N", default_value_t = 1)]
    l1_ways: u64,
    /// Bytes of L2
    #[arg(long, value_name = "BYTES", default_value_t = 1 << 20)]
    l2: u64,
    /// Associativity of L2
    #[arg(long, value_name = "N", default_value_t = 1)]
    l2_ways: u64,
    /// Bytes of a line in both
    #[arg(long, value_name = "BYTES", default_value_t = 32)]
    line: u64,
    /// Bytes of a page
    #[arg(long, value_name = "BYTES", default_value_t = 4 << 10)]
    page: u64,
    /// Cycles of a load from L1
    #[arg(long, value_name = "CYCLES", default_value_t = 1)]
    l1_cycles: u64,
    /// Cycles of a load from L2
    #[arg(long, value_name = "CYCLES", default_value_t = 6)]
    l2_cycles: u64,
    /// Cycles of a load from memory
    #[arg(long, value_name = "CYCLES", default_value_t = 30)]
    memory_cycles: u64,
    /// Let NART loads pass L1 by, as the paper's figures suggest that they did
    #[arg(long)]
    bypass_l1: bool,
    /// Bytes of the HAC in tables 2 and 3
    #[arg(long, value_name = "BYTES", default_value_t = 4 << 10)]
    pub(super) hac: u64,
    /// Bytes of the larger HAC in table 4
    #[arg(long, value_name = "BYTES", default_value_t = 8 << 10)]
    pub(super) hac_large: u64,
    /// Cycles of a hit in the first word of a HAC set
    #[arg(long, value_name = "CYCLES", default_value_t = 5)]
    pub(super) hit_cycles: u64,
    /// Cycles of each further word
    #[arg(long, value_name = "CYCLES", default_value_t = 3)]
    pub(super) word_cycles: u64,
    /// Cycles to go on to the NART after the last word
    #[arg(long, value_name = "CYCLES", default_value_t = 1)]
    pub(super) miss_cycles: u64,
    /// Cycles of a NART lookup of class AB
    #[arg(long, value_name = "CYCLES", default_value_t = 7)]
    pub(super) ab_cycles: u64,
    /// Cycles of a NART lookup of class BC
    #[arg(long, value_name = "CYCLES", default_value_t = 12)]
    pub(super) bc_cycles: u64,
    /// Cycles of a NART lookup of class CD that ends at the first row
    #[arg(long, value_name = "CYCLES", default_value_t = 20)]
    pub(super) cd_cycles: u64,
    /// Cycles of each further row
    #[arg(long, value_name = "CYCLES", default_value_t = 4)]
    pub(super) row_cycles: u64,
}

impl Machine {
    /// Returns empty caches, of which `reserved` bytes of L1 are for the HAC.
    pub(super) fn memory(&self, reserved: u64) -> anyhow::Result<Hierarchy> {
        let level = |what: &str, bytes, ways| {
            Cache::new(bytes, self.line, ways).map_err(anyhow::Error::msg).with_context(|| {
                format!("--{what} {bytes} --{what}-ways {ways} --line {}", self.line)
            })
        };
        let (l1, l2) = (level("l1", self.l1, self.l1_ways)?, level("l2", self.l2, self.l2_ways)?);
        let latency =
            Latency { l1: self.l1_cycles, l2: self.l2_cycles, memory: self.memory_cycles };
        if latency.l1 > latency.l2 || latency.l2 > latency.memory {
            bail!("a load further away takes longer: {latency:?}");
        }
        let memory = Hierarchy::new(l1, l2, latency, self.page, reserved);
        Ok(memory.map_err(anyhow::Error::msg)?.bypassing(self.bypass_l1))
    }

    /// Returns the cycles that a load takes longer than from L1.
    pub(super) fn beyond_l1(&self, cycles: u64) -> u64 {
        cycles.saturating_sub(self.l1_cycles)
    }

    /// Names the model in records.
    pub(super) fn name(&self) -> &'static str {
        if self.bypass_l1 { "model past L1" } else { "model" }
    }

    /// Returns a page's bytes.
    pub(super) fn page(&self) -> u64 {
        self.page
    }

    /// Returns the cycles of a HAC hit in one of the words, from 0.
    pub(super) fn hit(&self, word: usize) -> u64 {
        self.hit_cycles + self.word_cycles * word as u64
    }

    /// Returns the cycles until a HAC of so many words a set has been searched in
    /// vain.
    pub(super) fn miss(&self, words: usize) -> u64 {
        self.hit(words - 1) + self.miss_cycles
    }

    /// Returns million lookups a second.
    pub(super) fn mlps(&self, cycles: f64) -> f64 {
        self.clock / cycles
    }
}
