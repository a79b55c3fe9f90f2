//! The fast path allocates nothing: counted while packets of every kind pass.

use crate::packets::{draw, spoil};
use crate::rig::Rig;
use fastrand::Rng;

#[test]
fn polling_allocates_nothing() {
    let mut rig = Rig::new();
    let mut rng = Rng::with_seed(42);
    let mut passed = 0;
    for turn in 0..200 {
        for _ in 0..rng.usize(..500) {
            let mut frame = draw(&mut rng);
            if rng.bool() {
                spoil(&mut rng, &mut frame);
            }
            assert!(rig.far[0].send(&frame));
        }
        let allocated = allocation_counter::measure(|| {
            let mut now = rig.worker.poll();
            while now > 0 {
                passed += now;
                now = rig.worker.poll();
            }
        });
        assert_eq!(allocated.count_total, 0, "in turn {turn}");
        // Emptying the other ends allocates, outside of what is measured.
        for far in &mut rig.far {
            while far.take().is_some() {}
        }
        while rig.hosts[0].take().is_some() {}
    }
    assert!(passed > 10_000, "packets did pass: {passed}");
    assert!(rig.worker.stats().snapshot().balanced());
}

/// The counter counts: the test above could fail.
#[test]
fn the_counter_counts() {
    let allocated = allocation_counter::measure(|| drop(std::hint::black_box(vec![1_u8; 10])));
    assert_eq!(allocated.count_total, 1);
}
