//! The chunks of a DXR table, as `table info` prints them: before and after equal ones are stored once.

use fib::engine::{ChunkFormat, Chunks};
use serde::Serialize;

/// The chunks of a DXR table.
#[derive(Debug, Serialize)]
pub(super) struct ChunkSummary {
    /// The share of the address space whose answers are in the first stage, 0 to 1.
    direct_coverage: f64,
    chunks: usize,
    ranges: usize,
    stored_chunks: usize,
    stored_ranges: usize,
    longest: usize,
    formats: Vec<FormatSummary>,
    /// The chunks with more than half of `ranges` and at most as many.
    by_ranges: Vec<LengthSummary>,
}

/// The chunks of one format of ranges.
#[derive(Debug, Serialize)]
struct FormatSummary {
    name: &'static str,
    chunks: usize,
    ranges: usize,
    stored_chunks: usize,
    stored_ranges: usize,
}

#[derive(Debug, Serialize)]
struct LengthSummary {
    ranges: usize,
    chunks: usize,
}

impl ChunkSummary {
    pub(super) fn of(counts: &Chunks) -> Self {
        let sum = |number: fn(&ChunkFormat) -> usize| counts.formats.iter().map(number).sum();
        let format = |format: &ChunkFormat| FormatSummary {
            name: format.name,
            chunks: format.chunks,
            ranges: format.ranges,
            stored_chunks: format.stored_chunks,
            stored_ranges: format.stored_ranges,
        };
        let by_ranges = counts.by_ranges.iter().enumerate();
        Self {
            direct_coverage: counts.direct_coverage(),
            chunks: counts.chunks(),
            ranges: sum(|format| format.ranges),
            stored_chunks: sum(|format| format.stored_chunks),
            stored_ranges: sum(|format| format.stored_ranges),
            longest: counts.longest,
            formats: counts.formats.iter().map(format).collect(),
            by_ranges: by_ranges
                .map(|(i, &chunks)| LengthSummary { ranges: 2 << i, chunks })
                .collect(),
        }
    }

    /// Returns the numbers as lines with their titles.
    pub(super) fn lines(&self) -> Vec<String> {
        let mut lines =
            vec![format!("{:<20}{:.3} %", "direct coverage", 100.0 * self.direct_coverage)];
        if self.chunks == 0 {
            return lines;
        }
        let (chunks, longest) = (self.chunks, self.longest);
        lines.push(format!("{:<20}{chunks}, the longest of {longest} ranges", "chunks"));
        for format in self.formats.iter().filter(|format| format.chunks > 0) {
            let FormatSummary { name, chunks, ranges, stored_chunks, stored_ranges } = format;
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
