//! Runs the steps of a plan, adds their counts up and prints the summary.
//!
//! ```text
//!   plan:      A   B   v   c   d   e   i   j   F     A B F: alone; c d e: concurrent; i j: idle; v: among idle
//!   time ─►    A │ B │ v ── c ──── e │ F
//!                    │      d ─────  │
//!                    │ i ── j ────── │               in the time that v, c, d and e do not use
//! ```
//!
//! Steps run in the order of the plan. Concurrent steps that follow one another share [`WIDTH`]
//! threads, and idle steps among them share [`IDLE_WIDTH`] more, whose processes the kernel runs when
//! no other wants the processor; a step among idle ones waits for the concurrent steps before it, and
//! those after it wait for its end; a step that runs alone waits for all before it. A failing step does
//! not end the run: the summary at the end is always whole, and its last line is always `N passed,
//! N failed, N skipped`.

use std::io::Write;
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::Result;

use crate::command::Log;
use crate::results::Counts;
use crate::step::{Place, Step};

/// The number of concurrent steps that run at the same time.
const WIDTH: usize = 3;

/// The number of idle steps that run at the same time.
const IDLE_WIDTH: usize = 2;

/// The number of steps in the list of the slowest.
const SLOWEST: usize = 10;

/// A finished step.
struct Row<'s> {
    step: &'s Step,
    counts: Counts,
    took: Duration,
    processor_time: Duration,
}

/// Runs all steps and prints the summary. Returns whether no step failed.
pub(crate) fn run(steps: &[Step]) -> Result<bool> {
    let begin = Instant::now();
    let mut rows: Vec<Row<'_>> = Vec::with_capacity(steps.len());
    let mut rest = steps;
    while !rest.is_empty() {
        let is_alone = |step: &&Step| step.place == Place::Alone;
        let (now, after) = rest.split_at(rest.iter().take_while(is_alone).count());
        for step in now {
            let header = format!("{}/{} {}", rows.len() + 1, steps.len(), step.name);
            println!("\n── {header} ──");
            let row = run_step(step, &mut Log::live());
            println!("{}", end_line(&header, &row));
            rows.push(row);
        }
        let (now, after) = after.split_at(after.iter().take_while(|step| !is_alone(step)).count());
        rows.extend(run_concurrent(now, rows.len(), steps.len()));
        rest = after;
    }
    print_summary(&rows, begin.elapsed());
    // A plan without steps proves nothing.
    Ok(!rows.is_empty() && rows.iter().all(|row| row.counts.failed == 0))
}

fn run_step<'s>(step: &'s Step, log: &mut Log) -> Row<'s> {
    let start = Instant::now();
    let counts = step.run(log);
    for note in &counts.notes {
        log.line(&format!("   {note}"));
    }
    Row { step, counts, took: start.elapsed(), processor_time: log.processor_time() }
}

/// Runs steps at the same time; the output of each is printed when it has ended.
fn run_concurrent(steps: &[Step], done: usize, all: usize) -> Vec<Row<'_>> {
    let rows = Mutex::new(Vec::with_capacity(steps.len()));
    let run = |step| {
        let mut log = Log::buffered();
        let row = run_step(step, &mut log);
        let mut rows = rows.lock().unwrap_or_else(PoisonError::into_inner);
        let header = format!("{}/{all} {}", done + rows.len() + 1, step.name);
        let mut out = std::io::stdout().lock();
        let _ = writeln!(out, "\n── {header} ──");
        let _ = out.write_all(&log.into_bytes());
        let _ = writeln!(out, "{}", end_line(&header, &row));
        let _ = out.flush();
        rows.push(row);
    };
    let (idle, concurrent): (Vec<_>, Vec<_>) =
        steps.iter().partition(|step| step.place == Place::Idle);
    let lanes = [Lane::new(concurrent, WIDTH), Lane::new(idle, IDLE_WIDTH)];
    std::thread::scope(|scope| {
        for lane in &lanes {
            for _ in 0..lane.width.min(lane.steps.len()) {
                scope.spawn(|| lane.work(&run));
            }
        }
    });
    rows.into_inner().unwrap_or_else(PoisonError::into_inner)
}

/// Steps that some threads run, in their order.
struct Lane<'s> {
    steps: Vec<&'s Step>,
    width: usize,
    next: AtomicUsize,
    /// By index.
    ended: Mutex<Vec<bool>>,
    step_ends: Condvar,
}

impl<'s> Lane<'s> {
    fn new(steps: Vec<&'s Step>, width: usize) -> Self {
        let ended = Mutex::new(vec![false; steps.len()]);
        Self { steps, width, next: AtomicUsize::new(0), ended, step_ends: Condvar::new() }
    }

    /// Runs one step after the other until none is left.
    fn work(&self, run: &impl Fn(&'s Step)) {
        if self.steps[0].place == Place::Idle {
            yield_to_others();
        }
        loop {
            let index = self.next.fetch_add(1, Ordering::Relaxed);
            let Some(step) = self.steps.get(index) else { return };
            let ended = self.ended.lock().unwrap_or_else(PoisonError::into_inner);
            drop(self.step_ends.wait_while(ended, |ended| self.must_wait(index, ended)));
            run(step);
            self.ended.lock().unwrap_or_else(PoisonError::into_inner)[index] = true;
            self.step_ends.notify_all();
        }
    }

    /// Returns whether a step must wait for steps before it: one among idle ones for all, another for those.
    fn must_wait(&self, index: usize, ended: &[bool]) -> bool {
        let is_among_idle = |step: &Step| step.place == Place::AmongIdle;
        let sole = is_among_idle(self.steps[index]);
        let mut before = self.steps.iter().zip(ended).take(index);
        before.any(|(step, ended)| !ended && (sole || is_among_idle(step)))
    }
}

/// Gives this thread, and the processes that it starts, the scheduling policy `SCHED_IDLE`, by the
/// program of util-linux: the system call would need `unsafe`. Without it the steps run all the same.
fn yield_to_others() {
    let Ok(thread) = std::fs::read_link("/proc/thread-self") else { return };
    let Some(thread) = thread.file_name() else { return };
    let _ = Command::new("chrt").args(["--idle", "--pid", "0"]).arg(thread).status();
}

fn end_line(header: &str, row: &Row<'_>) -> String {
    let (took, processor_time) = (row.took.as_secs_f64(), row.processor_time.as_secs_f64());
    format!("── {header}: {} ({took:.1} s, {processor_time:.1} CPU s)", outcome(&row.counts))
}

fn print_summary(rows: &[Row<'_>], took: Duration) {
    println!("\n── summary ──");
    let width = rows.iter().map(|row| row.step.name.chars().count()).max().unwrap_or(0);
    let line = |row: &Row<'_>| {
        let (took, processor_time) = (row.took.as_secs_f64(), row.processor_time.as_secs_f64());
        let name = &row.step.name;
        let outcome = outcome(&row.counts);
        format!("{name:<width$}  {took:>6.1} s  {processor_time:>6.1} CPU s  {outcome}")
    };
    for row in rows {
        println!("{}", line(row));
    }
    if rows.len() > SLOWEST {
        let list = |which: &str, key: fn(&Row<'_>) -> Duration| {
            println!("\n── the {SLOWEST} {which} ──");
            let mut rows: Vec<&Row<'_>> = rows.iter().collect();
            rows.sort_by_key(|row| std::cmp::Reverse(key(row)));
            for row in rows.into_iter().take(SLOWEST) {
                println!("{}", line(row));
            }
        };
        list("slowest", |row| row.took);
        list("with the most processor time", |row| row.processor_time);
    }
    let incomplete = |row: &&Row<'_>| row.counts.failed + row.counts.skipped > 0;
    if rows.iter().any(|row| incomplete(&row)) {
        println!("\n── failed or skipped ──");
        for row in rows.iter().filter(incomplete) {
            println!("{}", line(row));
            for note in &row.counts.notes {
                println!("{:<width$}            {note}", "");
            }
        }
    }
    let processor_time: f64 = rows.iter().map(|row| row.processor_time.as_secs_f64()).sum();
    let took = took.as_secs_f64();
    println!("\n{:<width$}  {took:>6.1} s  {processor_time:>6.1} CPU s", "all");
    println!("{}", last_line(rows.iter().map(|row| &row.counts)));
}

/// Describes the outcome of one step in a few words.
fn outcome(counts: &Counts) -> String {
    match counts {
        Counts { passed: 1, failed: 0, skipped: 0, .. } => "passed".to_owned(),
        Counts { passed, failed: 0, skipped: 0, .. } => format!("{passed} passed"),
        Counts { passed, failed: 0, skipped, .. } => format!("{passed} passed, {skipped} skipped"),
        Counts { passed, failed, skipped, .. } => {
            format!("FAILED: {passed} passed, {failed} failed, {skipped} skipped")
        }
    }
}

/// Returns the line that CI reads.
fn last_line<'a>(counts: impl Iterator<Item = &'a Counts>) -> String {
    let (passed, failed, skipped) = counts.fold((0, 0, 0), |sum, counts| {
        (sum.0 + counts.passed, sum.1 + counts.failed, sum.2 + counts.skipped)
    });
    format!("{passed} passed, {failed} failed, {skipped} skipped")
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::Barrier;

    use super::*;

    #[test]
    fn last_line_adds_all_steps_up() {
        let a = Counts { passed: 3, failed: 0, skipped: 1, notes: Vec::new() };
        let b = Counts { passed: 4, failed: 2, skipped: 0, notes: Vec::new() };
        assert_eq!(last_line([&a, &b].into_iter()), "7 passed, 2 failed, 1 skipped");
        assert_eq!(last_line([].into_iter()), "0 passed, 0 failed, 0 skipped");
    }

    #[test]
    fn concurrent_steps_run_at_the_same_time_and_all_are_counted() {
        // Each step waits for the other: one after the other they would never end.
        let barrier = Arc::new(Barrier::new(2));
        let step = |name: &str| {
            let barrier = Arc::clone(&barrier);
            Step::check(name, move |_| {
                barrier.wait();
                Ok(())
            })
        };
        assert!(run(&[step("a").concurrent(), step("b").concurrent()]).unwrap());
        assert!(run(&[step("a").idle(), step("b").concurrent()]).unwrap());
        assert!(run(&[step("a").idle(), step("b").idle()]).unwrap());
    }

    #[test]
    fn step_among_idle_runs_beside_idle_and_no_concurrent_steps() {
        let barrier = Arc::new(Barrier::new(2));
        let concurrent = Arc::new(AtomicUsize::new(0));
        let meet = |place: fn(Step) -> Step| {
            let barrier = Arc::clone(&barrier);
            place(Step::check("meet", move |_| {
                barrier.wait();
                Ok(())
            }))
        };
        let count = || {
            let concurrent = Arc::clone(&concurrent);
            let step = Step::check("concurrent", move |_| {
                concurrent.fetch_add(1, Ordering::SeqCst);
                std::thread::sleep(Duration::from_millis(20));
                concurrent.fetch_sub(1, Ordering::SeqCst);
                Ok(())
            });
            step.concurrent()
        };
        let sole = Arc::clone(&concurrent);
        let sole = Step::check("sole", move |_| {
            for _ in 0..20 {
                let running = sole.load(Ordering::SeqCst);
                if running > 0 {
                    return Err(format!("{running} concurrent steps run"));
                }
                std::thread::sleep(Duration::from_millis(2));
            }
            Ok(())
        });
        let steps = [
            count(),
            meet(Step::among_idle),
            meet(Step::idle),
            count(),
            sole.among_idle(),
            count(),
            count(),
        ];
        assert!(run(&steps).unwrap());
    }

    #[test]
    fn steps_among_idle_divide_the_concurrent_ones() {
        let order = Arc::new(Mutex::new(String::new()));
        let log = |name: char, wait: u64| {
            let order = Arc::clone(&order);
            Step::check(&name.to_string(), move |_| {
                std::thread::sleep(Duration::from_millis(wait));
                order.lock().unwrap().push(name);
                Ok(())
            })
        };
        let steps = [
            log('a', 20).among_idle(),
            log('b', 10).concurrent(),
            log('b', 0).concurrent(),
            log('c', 10).among_idle(),
            log('d', 0).concurrent(),
            log('e', 0).among_idle(),
        ];
        for _ in 0..20 {
            assert!(run(&steps).unwrap());
            assert_eq!(std::mem::take(&mut *order.lock().unwrap()), "abbcde");
        }
    }

    #[test]
    fn processes_of_idle_steps_have_the_policy_of_idle_time() {
        fn policy() -> String {
            let shown = Command::new("sh").args(["-c", "chrt --pid $$"]).output().unwrap();
            let shown = String::from_utf8(shown.stdout).unwrap();
            shown
                .lines()
                .find(|line| line.contains("policy"))
                .unwrap()
                .replace(char::is_numeric, "")
        }
        let has = |place: fn(Step) -> Step, expected: &str| {
            let expected = expected.to_owned();
            let step = Step::check("policy", move |_| {
                let found = policy();
                if found.contains(&expected) { Ok(()) } else { Err(found) }
            });
            run(&[place(step)]).unwrap()
        };
        assert!(has(Step::idle, "SCHED_IDLE"));
        // Other steps have the policy of this process, which may be an idle step itself.
        let own = policy();
        assert!(has(Step::concurrent, &own));
        assert!(has(|step| step, &own));
    }

    #[test]
    fn failing_step_fails_the_run_and_does_not_end_it() {
        let ran = Arc::new(AtomicUsize::new(0));
        let count = |result: Result<(), String>| {
            let ran = Arc::clone(&ran);
            Step::check("step", move |_| {
                ran.fetch_add(1, Ordering::Relaxed);
                result.clone()
            })
        };
        let steps = [count(Err("broken".to_owned())), count(Ok(())).concurrent(), count(Ok(()))];
        assert!(!run(&steps).unwrap());
        assert_eq!(ran.load(Ordering::Relaxed), 3);
        assert!(!run(&[]).unwrap());
    }
}
