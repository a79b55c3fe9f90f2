//! Grace periods: what is retired is dropped only when programs that ran at that time have ended.
//!
//! Needs root (`CAP_BPF`), hence the feature `root-tests`.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use fingerpost_xdp::Grace;
use port::af_xdp::bpf::asm::{Reg::*, *};
use port::af_xdp::bpf::{MappedArray, Program};

/// The runs of a program that have begun, and that have ended.
struct Runs {
    begun: MappedArray,
    ended: MappedArray,
}

impl Runs {
    fn new() -> Self {
        let array = |name| MappedArray::new(name, 1).expect("the right to make maps");
        Self { begun: array("begun"), ended: array("ended") }
    }
}

fn read(array: &MappedArray) -> u64 {
    array.get(0).expect("it has one word").load(Ordering::SeqCst)
}

/// A program of some milliseconds: it counts its begin and its end.
fn slow_program(runs: &Runs) -> Program {
    let mut asm = Assembler::new();
    let next = asm.label();
    count(&mut asm, &runs.begun);
    asm.mov(R7, 0).bind(next).call(Helper::KtimeNs).add(R7, 1).jump_if(Cond::Lt, R7, 100_000, next);
    count(&mut asm, &runs.ended);
    asm.leave(Action::Pass);
    Program::load("slow", &asm.finish().unwrap()).expect("the verifier accepts it")
}

fn count<'m>(asm: &mut Assembler<'m>, array: &'m MappedArray) {
    asm.load_map_value(R6, array.map(), 0).load(Size::Double, R1, R6, 0).add(R1, 1).store(
        Size::Double,
        R6,
        0,
        R1,
    );
}

/// Counts its drops, and those before the end of a run that had begun at its retirement.
struct Retired {
    runs: Arc<Runs>,
    /// The runs that had begun.
    begun: u64,
    early: Arc<AtomicU64>,
    dropped: Arc<AtomicU64>,
}

impl Drop for Retired {
    fn drop(&mut self) {
        let early = read(&self.runs.ended) < self.begun;
        self.early.fetch_add(early.into(), Ordering::SeqCst);
        self.dropped.fetch_add(1, Ordering::SeqCst);
    }
}

#[test]
fn value_is_dropped_after_every_program_that_ran_at_its_retirement() {
    let runs = Arc::new(Runs::new());
    let program = slow_program(&runs);
    let stop = AtomicBool::new(false);
    let (early, dropped) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let mut within = 0;
    thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                program.test_run(&[0; 64], 1).unwrap();
            }
        });
        let grace = Grace::new().unwrap();
        for _ in 0..300 {
            let begun = read(&runs.begun);
            within += u32::from(begun > read(&runs.ended));
            let (runs, early, dropped) = (runs.clone(), early.clone(), dropped.clone());
            grace.retire(Retired { runs, begun, early, dropped });
            thread::sleep(Duration::from_millis(2));
        }
        drop(grace);
        stop.store(true, Ordering::Relaxed);
    });
    assert!(within > 30, "a program ran at {within} of 300 retirements");
    assert_eq!((early.load(Ordering::SeqCst), dropped.load(Ordering::SeqCst)), (0, 300));
}
