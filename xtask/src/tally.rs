//! Runs the steps of a verb in order, adds their counts up and prints the end.

use std::time::{Duration, Instant};

use anyhow::Result;

use crate::results::Counts;
use crate::step::Step;

/// Runs every step, whatever became of the ones before, and prints the summary.
/// Returns whether nothing failed.
pub(crate) fn run(steps: &[Step]) -> Result<bool> {
    let begin = Instant::now();
    let mut rows: Vec<(&Step, Counts, Duration)> = Vec::with_capacity(steps.len());
    for (index, step) in steps.iter().enumerate() {
        println!("\n── {}/{} {} ──", index + 1, steps.len(), step.name);
        let start = Instant::now();
        let counts = step.run();
        let took = start.elapsed();
        for note in &counts.notes {
            println!("   {note}");
        }
        println!(
            "── {}/{} {}: {} ({:.1} s)",
            index + 1,
            steps.len(),
            step.name,
            verdict(&counts),
            took.as_secs_f64()
        );
        rows.push((step, counts, took));
    }
    println!("\n── summary ──");
    let width = rows.iter().map(|(step, ..)| step.name.chars().count()).max().unwrap_or(0);
    for (step, counts, took) in &rows {
        println!("{:<width$}  {:>6.1} s  {}", step.name, took.as_secs_f64(), verdict(counts),);
        if counts.failed + counts.skipped > 0 {
            for note in &counts.notes {
                println!("{:<width$}            {note}", "");
            }
        }
    }
    println!("{:<width$}  {:>6.1} s", "all", begin.elapsed().as_secs_f64());
    println!("{}", last_line(rows.iter().map(|(_, counts, _)| counts)));
    // A plan without steps proves nothing.
    Ok(!rows.is_empty() && rows.iter().all(|(_, counts, _)| counts.failed == 0))
}

/// What became of one step, in a few words.
fn verdict(counts: &Counts) -> String {
    match counts {
        Counts { passed: 1, failed: 0, skipped: 0, .. } => "passed".to_owned(),
        Counts { passed, failed: 0, skipped: 0, .. } => format!("{passed} passed"),
        Counts { passed, failed: 0, skipped, .. } => format!("{passed} passed, {skipped} skipped"),
        Counts { passed, failed, skipped, .. } => {
            format!("FAILED: {passed} passed, {failed} failed, {skipped} skipped")
        }
    }
}

/// The line that everything else reads: CI, and whoever is in a hurry.
fn last_line<'a>(counts: impl Iterator<Item = &'a Counts>) -> String {
    let (passed, failed, skipped) = counts.fold((0, 0, 0), |sum, counts| {
        (sum.0 + counts.passed, sum.1 + counts.failed, sum.2 + counts.skipped)
    });
    format!("{passed} passed, {failed} failed, {skipped} skipped")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_line_adds_all_steps_up() {
        let a = Counts { passed: 3, failed: 0, skipped: 1, notes: Vec::new() };
        let b = Counts { passed: 4, failed: 2, skipped: 0, notes: Vec::new() };
        assert_eq!(last_line([&a, &b].into_iter()), "7 passed, 2 failed, 1 skipped");
        assert_eq!(last_line([].into_iter()), "0 passed, 0 failed, 0 skipped");
    }
}
