//! Copies of dropped packets, by the rights of a daemon's threads.

use std::thread;

use caps::CapSet;
use fingerpost_port::af_xdp::bpf::RingBuffer;
use fingerpost_port::af_xdp::bpf::asm::Action;
use fingerpost_port::af_xdp::steer::{
    CopyConditions, CopyOccasion, EarlyDropConfig, MAX_COPY, PacketCopy, SteeringOutcome,
};

use crate::{declining, for_gate, soon, steering, tagged, v4};

/// The programs are loaded without `CAP_PERFMON`; a session is opened, read and closed without any capability.
#[test]
fn dropped_packets_are_copied_without_capabilities() {
    assert!(steering().copies().is_some(), "Linux 5.18 or later");
    let gate = declining();
    let front = for_gate(EarlyDropConfig { fail_closed: true, ..EarlyDropConfig::default() });
    let (src, dst) = ("203.0.113.7".parse().unwrap(), "203.0.113.1".parse().unwrap());
    gate.decline(src, dst, Some(soon(60.0))).unwrap();
    let packet = v4("203.0.113.1", 64);
    // Without its priority tag, which the program removes.
    let sent = [tagged(&packet, &[(0x8100, 0xe000)]), packet.clone()];
    for (steering, why) in [(&gate, SteeringOutcome::Declined), (&front, SteeringOutcome::Unserved)]
    {
        let mut ring = RingBuffer::new("copies", 1 << 16).unwrap();
        let copies = steering.copies().expect("copies");
        let occasions = vec![CopyOccasion::Arrival, CopyOccasion::End(why)];
        let conditions = CopyConditions { occasions, one_in: 1, snap: MAX_COPY, port: 3 };
        let without_rights = |run: &mut (dyn FnMut() + Send)| {
            thread::scope(|scope| {
                scope.spawn(|| {
                    caps::clear(None, CapSet::Effective).unwrap();
                    caps::clear(None, CapSet::Permitted).unwrap();
                    run();
                });
            });
        };
        let (mut slot, mut read) = (None, Vec::new());
        without_rights(&mut || slot = copies.open(&ring, &conditions).unwrap());
        for packet in &sent {
            let run = steering.program().test_run(packet, 1).unwrap();
            assert_eq!(run.retval, Action::Drop as u32, "{why:?}");
        }
        without_rights(&mut || {
            ring.read(|record| read.extend(PacketCopy::read(record)));
            assert_eq!(copies.close(slot.expect("a slot")).unwrap(), 0);
        });
        let occasions: Vec<_> = read.iter().map(|copy| copy.occasion).collect();
        assert_eq!(occasions, [CopyOccasion::Arrival, CopyOccasion::End(why)].repeat(2));
        assert!(read.iter().all(|copy| copy.bytes == packet && copy.port == 3), "{read:?}");
        assert_eq!(steering.count(why).unwrap(), 2);
    }
}
