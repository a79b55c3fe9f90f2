//! The chunks of a DXR table, as `table info` prints them: before and after equal ones are stored once.

use fib::engine::{ChunkCounts, Chunks};
use serde::Serialize;

/// The chunks of a DXR table.
#[derive(Debug, Serialize)]
pub(super) struct ChunkSummary {
    /// The share of the address space whose answers are in the first stage, 0 to 1.
    direct_coverage: f64,
    #[serde(flatten)]
    total: CountSummary,
    longest: usize,
    formats: Vec<FormatSummary>,
    /// The chunks with more than half of `ranges` and at most as many.
    by_ranges: Vec<LengthSummary>,
}

#[derive(Debug, Serialize)]
struct CountSummary {
    chunks: usize,
    ranges: usize,
    stored_chunks: usize,
    stored_ranges: usize,
}

/// The chunks of one format of ranges.
#[derive(Debug, Serialize)]
struct FormatSummary {
    name: &'static str,
    #[serde(flatten)]
    counts: CountSummary,
}

#[derive(Debug, Serialize)]
struct LengthSummary {
    ranges: usize,
    chunks: usize,
}

impl From<ChunkCounts> for CountSummary {
    fn from(counts: ChunkCounts) -> Self {
        let ChunkCounts { chunks, ranges, stored_chunks, stored_ranges } = counts;
        Self { chunks, ranges, stored_chunks, stored_ranges }
    }
}

impl From<&Chunks> for ChunkSummary {
    fn from(chunks: &Chunks) -> Self {
        let formats = chunks.formats.iter();
        let by_ranges = chunks.by_ranges.iter().enumerate();
        Self {
            direct_coverage: chunks.direct_coverage(),
            total: chunks.total().into(),
            longest: chunks.longest,
            formats: formats
                .map(|&(name, counts)| FormatSummary { name, counts: counts.into() })
                .collect(),
            by_ranges: by_ranges
                .map(|(i, &chunks)| LengthSummary { ranges: 2 << i, chunks })
                .collect(),
        }
    }
}

impl ChunkSummary {
    /// Returns the numbers as lines with their titles.
    pub(super) fn lines(&self) -> Vec<String> {
        let mut lines =
            vec![format!("{:<20}{:.3} %", "direct coverage", 100.0 * self.direct_coverage)];
        if self.total.chunks == 0 {
            return lines;
        }
        let (chunks, longest) = (self.total.chunks, self.longest);
        lines.push(format!("{:<20}{chunks}, the longest of {longest} ranges", "chunks"));
        for FormatSummary { name, counts } in &self.formats {
            let CountSummary { chunks, ranges, stored_chunks, stored_ranges } = counts;
            if *chunks == 0 {
                continue;
            }
            lines.push(format!(
                "  {name:<18}{stored_chunks} of {chunks} chunks stored, {stored_ranges} of {ranges} ranges"
            ));
        }
        let share = |length: &LengthSummary| {
            let least = length.ranges / 2 + 1;
            let lengths = match length.ranges {
                2 => "2".to_owned(),
                most => format!("{least}-{most}"),
            };
            let percent = 100.0 * length.chunks as f64 / chunks as f64;
            if percent > 0.0 && percent < 0.1 {
                return format!("{lengths}: <0.1 %");
            }
            format!("{lengths}: {percent:.1} %")
        };
        let shares: Vec<String> = self.by_ranges.iter().map(share).collect();
        lines.push(format!("{:<20}{}", "chunks by ranges", shares.join("  ")));
        lines
    }
}
