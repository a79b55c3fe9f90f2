//! A batch of several parts: each packet gets its own verdict, and packets of one kind keep their order.

use datapath::Verdict;
use fastrand::Rng;
use wire::ipv4;
use wire::tunnel::Outer;

use super::{PROTECTED, Rig, config};
use crate::packets::OWN4;
use crate::packets::v4;

#[test]
fn batch_of_several_parts_keeps_the_order_of_packets() {
    const PACKETS: u32 = 250;
    let mut rig = Rig::new(config("1gbit", ""));
    let mut rng = Rng::with_seed(5);
    let (mut asking, mut passing, mut own) = (Vec::new(), Vec::new(), 0);
    for n in 0..PACKETS {
        let src = 0xc633_6500 + n;
        let dst = match rng.u8(..3) {
            0 => {
                asking.push(src);
                PROTECTED
            }
            1 => {
                passing.push(src);
                0xc000_0207
            }
            _ => {
                own += 1;
                OWN4
            }
        };
        assert!(rig.far[0].send(&v4(src, dst)));
    }
    assert!(asking.len() > 64 && passing.len() > 64 && own > 64, "several parts of each");
    assert!(rig.worker.poll() >= PACKETS as usize, "all of it is one batch");
    rig.rest();
    let source = |packet: &[u8]| ipv4::View::parse(packet).unwrap().src();
    let left: Vec<_> = std::iter::from_fn(|| rig.far[1].take())
        .map(|frame| source(&frame[14 + Outer::parse(&frame[14..]).unwrap().offset..]))
        .collect();
    // The last request found the queue full.
    let refused = rig.count(Verdict::LowPriority) as usize;
    assert_eq!(left, asking[..asking.len() - refused]);
    assert!(left.len() >= 64, "{refused} of {} were refused", asking.len());
    let back: Vec<_> =
        std::iter::from_fn(|| rig.far[0].take()).map(|frame| source(&frame[14..])).collect();
    assert_eq!(back, passing);
    assert_eq!(rig.count(Verdict::OwnAddress), own);
    rig.check();
}
