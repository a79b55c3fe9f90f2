//! Tags: those of VLAN devices, and those with only a priority.

use fingerpost_port::af_xdp::bpf::asm::Action;
use fingerpost_port::af_xdp::steer::{SteeringOutcome, VlanTags};

use crate::{MAC, declining, ethernet, run, steering, tagged, v4, v6};

/// A frame with the tags of a VLAN device is checked like the same frame without tags, as long as the
/// device is set; others are the host's.
#[test]
fn frames_of_vlan_devices_are_taken_while_these_are_set() {
    const Q: u16 = 0x8100;
    const AD: u16 = 0x88a8;
    let (router, gate) = (steering(), declining());
    let one = |protocol, id| VlanTags { outer: (protocol, id), inner: None };
    let two = VlanTags { inner: Some((Q, 8)), ..one(AD, 7) };
    let packets = [
        (v4("203.0.113.1", 64), SteeringOutcome::NoSocket),
        (v6("2001:db8:1::1", 64), SteeringOutcome::NoSocket),
        (v4("192.0.2.1", 64), SteeringOutcome::Local),
        (v4("203.0.113.1", 1), SteeringOutcome::NoSocket),
        (v6("2001:db8:1::1", 1), SteeringOutcome::NoSocket),
        (v6("ff02::1", 64), SteeringOutcome::Multicast),
        (ethernet(MAC, 0x0806, &[0; 28]), SteeringOutcome::Arp),
        (ethernet(MAC, 0x88cc, &[0; 40]), SteeringOutcome::NotIp),
        (v4("203.0.113.1", 64)[..33].to_vec(), SteeringOutcome::Unparsed),
        (v6("2001:db8:1::1", 64)[..53].to_vec(), SteeringOutcome::Unparsed),
    ];
    let sets =
        [vec![], vec![one(Q, 5), one(Q, 4094)], vec![one(AD, 7), one(Q, 5)], vec![one(AD, 7), two]];
    // The tags of a frame, and those of its device.
    let frames: [(&[(u16, u16)], VlanTags); 7] = [
        (&[(Q, 5)], one(Q, 5)),
        (&[(Q, 0xf005)], one(Q, 5)),
        (&[(Q, 4094)], one(Q, 4094)),
        (&[(AD, 5)], one(AD, 5)),
        (&[(AD, 7)], one(AD, 7)),
        (&[(AD, 0x2007), (Q, 0xe008)], two),
        // A priority tag before it.
        (&[(Q, 0xe000), (Q, 5)], one(Q, 5)),
    ];
    for set in &sets {
        router.set_vlans(set).expect("the map takes them");
        gate.set_vlans(set).expect("a gate ignores them");
        for (tags, device) in &frames {
            for (packet, want) in &packets {
                let want = if set.contains(device) { *want } else { SteeringOutcome::Tagged };
                let frame = tagged(packet, tags);
                assert_eq!(run(&router, &frame), want, "{tags:04x?} with {set:04x?}");
                assert_eq!(run(&gate, &frame), SteeringOutcome::Tagged);
            }
        }
        // Three tags, a tag without its device, a tag of no VLAN within one, a truncated tag.
        let packet = &packets[0].0;
        let theirs: [&[(u16, u16)]; 4] =
            [&[(AD, 7), (Q, 8), (Q, 9)], &[(AD, 7), (Q, 9)], &[(Q, 8)], &[(Q, 5), (Q, 0)]];
        for tags in theirs {
            assert_eq!(run(&router, &tagged(packet, tags)), SteeringOutcome::Tagged, "{tags:04x?}");
        }
        for end in 14..18 {
            let short = &tagged(packet, &[(Q, 5)])[..end];
            assert_eq!(run(&router, short), SteeringOutcome::Tagged, "{end} bytes");
        }
    }
}

/// A priority-tagged frame is handled as if it had no tag, with any order of types and priorities;
/// a frame with a VLAN tag goes to the host, whatever its other tags.
#[test]
fn priority_tags_are_stripped() {
    let (router, gate) = (steering(), declining());
    const Q: u16 = 0x8100;
    const AD: u16 = 0x88a8;
    let packets = [
        (v4("203.0.113.1", 64), SteeringOutcome::NoSocket),
        (v6("2001:db8:1::1", 64), SteeringOutcome::NoSocket),
        (v4("192.0.2.1", 64), SteeringOutcome::Local),
        (ethernet(MAC, 0x0806, &[0; 28]), SteeringOutcome::Arp),
        (ethernet(MAC, 0x88cc, &[0; 40]), SteeringOutcome::NotIp),
    ];
    let through: [&[(u16, u16)]; 5] = [
        &[(Q, 0)],
        &[(AD, 0xe000)],
        &[(AD, 0), (Q, 0x2000)],
        &[(Q, 0x1000), (AD, 0), (Q, 0xf000)],
        &[(Q, 0), (Q, 0), (AD, 0), (AD, 0)],
    ];
    for (packet, want) in &packets {
        for tags in through {
            for steering in [&router, &gate] {
                assert_eq!(run(steering, &tagged(packet, tags)), *want, "{tags:04x?}");
            }
        }
    }
    // A router answers an expired packet itself; a gate leaves it to Linux.
    let expired = tagged(&v6("2001:db8:1::1", 1), &[(Q, 0)]);
    assert_eq!(run(&router, &expired), SteeringOutcome::NoSocket);
    assert_eq!(run(&gate, &expired), SteeringOutcome::Expiring);
    let theirs: [&[(u16, u16)]; 5] = [
        &[(Q, 5)],
        &[(Q, 0xe001)],
        &[(AD, 4095), (Q, 0)],
        &[(Q, 0), (AD, 0x0800)],
        &[(Q, 0), (Q, 0), (Q, 0), (Q, 0), (Q, 9)],
    ];
    for tags in theirs {
        for steering in [&router, &gate] {
            let packet = tagged(&packets[0].0, tags);
            assert_eq!(run(steering, &packet), SteeringOutcome::Tagged, "{tags:04x?}");
        }
    }
    // One tag too many: passed on a router's interface, dropped on a gate's.
    let many = tagged(&packets[0].0, &[(Q, 0); 5]);
    assert_eq!(run(&router, &many), SteeringOutcome::Tagged);
    let before = gate.counts().unwrap();
    let dropped = gate.program().test_run(&many, 1).unwrap().retval;
    assert_eq!(dropped, Action::Drop as u32);
    assert_eq!(
        gate.counts().unwrap()[SteeringOutcome::Nested],
        before[SteeringOutcome::Nested] + 1
    );
    // A truncated tag, or one without payload.
    let short = tagged(&packets[0].0, &[(Q, 0)]);
    for (len, want) in [
        (14, SteeringOutcome::Tagged),
        (17, SteeringOutcome::Tagged),
        (18, SteeringOutcome::Unparsed),
        (37, SteeringOutcome::Unparsed),
    ] {
        assert_eq!(run(&gate, &short[..len]), want, "{len}");
    }
}
