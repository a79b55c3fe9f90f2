//! Fragments: packets over the next link's MTU, whose senders allow it, leave in parts.

use fastrand::Rng;
use fingerpost_datapath::{Adjacency, FIRST_STACKED, PRIORITIES, StackedDevice, Verdict, VlanTag};
use wire::ipv4;

use crate::packets::{address4, sound, v4_with};
use crate::reference::RouteTarget;
use crate::rig::{LONG_FRAMES, Rig, adjacencies, hop};

const HERE: u32 = 0xc000_0263;
/// A destination behind the port with the small MTU of 100.
const NARROW: u32 = 0xcb00_7107;
const OPTIONS: [u8; 16] = [7, 7, 4, 0, 0, 0, 0, 1, 148, 4, 0, 0, 68, 4, 5, 0];

fn big(total_len: u16, id: u16) -> Vec<u8> {
    v4_with(ipv4::Header { total_len, id, dst: NARROW, src: HERE, flags: 0, ..sound() }, 0)
}

#[test]
fn drawn_long_packets_leave_as_the_fragments_of_the_model() {
    let mut rig = Rig::new();
    let (mut fragmented, mut refused) = (0, 0);
    for seed in 0..400 {
        let mut rng = Rng::with_seed(seed);
        let draw = |_| {
            let options = &OPTIONS[..4 * rng.usize(..=4)];
            let header = ipv4::Header {
                total_len: 20 + options.len() as u16 + rng.u16(..1480),
                id: rng.u16(..),
                flags: rng.u8(..8),
                fragment_offset: if rng.bool() { 0 } else { rng.u16(..0x2000) },
                dst: if rng.bool() { NARROW } else { address4(&mut rng) },
                src: HERE,
                options,
                ..sound()
            };
            v4_with(header, rng.usize(..9))
        };
        let frames: Vec<_> = (0..30).map(draw).collect();
        let counted = rig.compare(&frames);
        fragmented += counted.fragmented;
        refused += counted.count(Verdict::TooBig);
    }
    assert!(fragmented > 1000 && refused > 1000, "{fragmented}, {refused}");
}

/// Packets over 3840 bytes are in long frames, and so are their fragments where the MTU is.
#[test]
fn drawn_packets_of_long_frames_leave_whole_or_as_the_fragments_of_the_model() {
    let mut rig = Rig::new();
    let mut counts = [0; 3];
    for (seed, mtu) in (0..90).zip([1500, 4000, 9000].into_iter().cycle()) {
        for gateway in &mut rig.model.gateways {
            gateway.mtu = mtu;
        }
        rig.adjacencies.publish(Box::new(adjacencies(&rig.model)));
        let mut rng = Rng::with_seed(seed);
        let draw = |_| {
            let options = &OPTIONS[..4 * rng.usize(..=4)];
            let header = ipv4::Header {
                total_len: if rng.bool() { rng.u16(3800..9200) } else { rng.u16(100..16_114) },
                id: rng.u16(..),
                flags: rng.u8(..8),
                dst: if rng.bool() { NARROW } else { address4(&mut rng) },
                src: HERE,
                options,
                ..sound()
            };
            let front = 34 + options.len();
            let mut frame = v4_with(header, 0);
            frame[front..].fill_with(|| rng.u8(..));
            frame
        };
        let frames: Vec<_> = (0..30).map(draw).collect();
        let counted = rig.compare(&frames);
        let whole = counted.count(Verdict::Sent) - counted.fragments;
        let each = [whole, counted.fragmented, counted.count(Verdict::TooBig)];
        counts.iter_mut().zip(each).for_each(|(sum, count)| *sum += count);
    }
    assert!(counts.iter().all(|&count| count > 300), "{counts:?}");
}

#[test]
fn packet_without_free_long_frames_for_its_fragments_is_dropped() {
    let mut rig = Rig::new();
    for gateway in &mut rig.model.gateways {
        gateway.mtu = 4000;
    }
    rig.adjacencies.publish(Box::new(adjacencies(&rig.model)));
    // A batch leaves one long frame, and a packet needs two more: one packet ends, and frees its own.
    let count = LONG_FRAMES as u16 - 1;
    let counted = rig.pass((0..count).map(|id| big(9000, id)));
    assert_eq!((counted.count(Verdict::TooBig), counted.fragmented), (1, u64::from(count) - 1));
    assert_eq!(counted.sent(), 3 * counted.fragmented);
}

/// A batch of the longest packets is many times the frames that a lane has room for.
#[test]
fn full_batch_of_long_packets_leaves_in_order_without_loss() {
    let mut rig = Rig::new();
    let mut left = Vec::new();
    for round in 0..40_u16 {
        let frames: Vec<_> = (0..20).map(|n| big(1500, 20 * round + n)).collect();
        let counted = rig.pass(&frames);
        assert_eq!((counted.fragmented, counted.fragments), (20, 380));
        assert_eq!((counted.sent(), counted.originated), (380, 360));
        for port in &mut rig.far {
            left.extend(std::iter::from_fn(|| port.take()));
        }
    }
    let place = |frame: &Vec<u8>| {
        let view = ipv4::View::parse(&frame[14..]).unwrap();
        (view.id(), view.fragment_offset())
    };
    let places: Vec<_> = left.iter().map(place).collect();
    let want = (0..800).flat_map(|id| (0..19).map(move |part| (id, part * 10)));
    assert!(places.iter().copied().eq(want), "{places:?}");
}

#[test]
fn packet_without_free_frames_for_its_fragments_is_dropped() {
    let mut rig = Rig::with_frames(40);
    // A batch of 30 leaves ten frames free, and a packet needs 18 more: eight end until there are.
    let counted = rig.pass((0..30).map(|id| big(1500, id)));
    assert_eq!((counted.count(Verdict::TooBig), counted.fragmented), (8, 22));
    assert_eq!(counted.sent(), 22 * 19);
}

#[test]
fn fragments_of_a_flow_leave_by_one_member_of_a_bond_with_the_tag() {
    let mut rig = Rig::new();
    let tag = VlanTag { protocol: 0x8100, id: 100, priorities: [0; PRIORITIES] };
    let mut changed = adjacencies(&rig.model);
    changed.set_stacked([Some(StackedDevice::new(&[1, 2], &[tag]))].into());
    let gateway = &rig.model.gateways[3];
    let narrow = Adjacency::new(FIRST_STACKED, gateway.dst_mac, gateway.src_mac, 100);
    changed.set(hop(RouteTarget::To(3)), narrow);
    rig.adjacencies.publish(Box::new(changed));
    // Their ports differ; the fragments, of which only the first ones have ports, do not part.
    let frames: Vec<_> = (0..20).map(|id| big(300, id)).collect();
    let want: Vec<_> = frames.iter().flat_map(|frame| rig.model.decide(0, frame).1).collect();
    let counted = rig.pass(&frames);
    assert_eq!((want.len(), counted.sent()), (80, 80));
    let left: Vec<Vec<_>> =
        rig.far.iter_mut().map(|far| std::iter::from_fn(|| far.take()).collect()).collect();
    let [_, one, two] = &left[..] else { panic!("three ports") };
    assert!(one.is_empty() != two.is_empty(), "{} and {}", one.len(), two.len());
    for (got, (_, want)) in one.iter().chain(two).zip(want) {
        assert_eq!(*got, [&want[..12], &[0x81, 0, 0, 100], &want[12..]].concat());
    }
}
