//! VLAN devices: a tagged frame ends like the same frame without its tags on a port with the device's
//! settings.

use std::sync::Arc;

use fastrand::Rng;
use fingerpost_datapath::{
    Adjacency, FIRST_STACKED, Ingress, Ingresses, PRIORITIES, PuntRates, ReversePathFilter,
    StackedDevice, Verdict, VlanTable, VlanTag,
};
use wire::ipv4;

use crate::packets::{MAC, draw, sound, v4, v4_with, v6};
use crate::reference::RouteTarget;
use crate::rig::{Rig, adjacencies, hop, ingresses};

const Q: u16 = 0x8100;
const AD: u16 = 0x88a8;
const HERE: u32 = 0xc000_0263;
/// A destination by gateway 0, and one by gateway 2, behind port 0.
const AWAY: u32 = 0x0a00_0001;
const BACK: u32 = 0xc000_0201;

/// The devices over port 0: their tags, and the table.
const DEVICES: [(&[(u16, u16)], usize); 4] =
    [(&[(Q, 5)], 0), (&[(Q, 6)], 0), (&[(AD, 7)], 1), (&[(AD, 7), (Q, 8)], 0)];

/// The priorities of the tags of exits, by those of packets: those of the TOS are 0, 2, 6 and 4.
const PRIORITY: [u8; PRIORITIES] = [0, 1, 2, 3, 7, 4, 6, 5, 0, 0, 0, 0, 0, 0, 0, 1];

fn number(device: usize) -> u16 {
    FIRST_STACKED + device as u16
}

fn exit(port: u16, tags: &[(u16, u16)]) -> StackedDevice {
    let tag = |&(protocol, id)| VlanTag { protocol, id, priorities: PRIORITY };
    StackedDevice::new(&[port], &tags.iter().map(tag).collect::<Vec<_>>())
}

/// Makes the exit of a device with one tag, whose priority no packet changes.
fn fixed_exit(port: u16, (protocol, id): (u16, u16)) -> StackedDevice {
    StackedDevice::new(&[port], &[VlanTag { protocol, id, priorities: [3; PRIORITIES] }])
}

/// Adds tags to a frame, the outer one first.
fn tagged(frame: &[u8], tags: &[(u16, u16)]) -> Vec<u8> {
    let mut all = frame[..12].to_vec();
    for (protocol, control) in tags {
        all.extend(protocol.to_be_bytes());
        all.extend(control.to_be_bytes());
    }
    all.extend(&frame[12..]);
    all
}

/// Returns the settings of port 0 with the devices over it; port 0 has the settings of a device, but
/// for the table.
fn settings(rig: &Rig, sources: ReversePathFilter) -> Ingresses {
    settings_with(rig, sources, [[0; 8]; 4])
}

/// Returns [`settings`] by which packets of the devices have priorities.
fn settings_with(rig: &Rig, sources: ReversePathFilter, priorities: [[u8; 8]; 4]) -> Ingresses {
    let terms = ingresses(&rig.model);
    let with = |table: usize, below: &[(u16, u16, usize)]| {
        let mut vlans = VlanTable::default();
        below.iter().for_each(|&(kind, id, device)| vlans.insert(kind, id, number(device)));
        let like = terms.get(2 * table);
        Ingress { mac: Some(MAC), sources: [sources; 2], vlans: Arc::new(vlans), ..like.clone() }
    };
    let zero = with(0, &[(Q, 5, 0), (Q, 6, 1), (AD, 7, 2)]);
    let inner: [&[_]; 4] = [&[], &[], &[(Q, 8, 3)], &[]];
    let mut devices: Vec<Ingress> =
        DEVICES.iter().zip(inner).map(|((_, table), inner)| with(*table, inner)).collect();
    for (device, priorities) in devices.iter_mut().zip(priorities) {
        device.priorities = priorities;
        if device.table == 0 {
            device.locals = Arc::clone(&zero.locals);
        }
    }
    let ports = [zero, terms.get(1).clone(), terms.get(2).clone()];
    Ingresses::new(ports).with_stacked(devices.into_iter().map(Some).collect())
}

/// The tags of the exit over port 2, with a priority by the TOS.
const TWO_TAGS: &[(u16, u16)] = &[(AD, 100), (Q, 200)];

/// Makes a rig with the devices; gateway 1 is behind a device over port 2.
fn with_devices(sources: ReversePathFilter) -> Rig {
    with_exit(sources, exit(2, TWO_TAGS))
}

/// Makes a rig with the devices; gateway 1 is behind this one.
fn with_exit(sources: ReversePathFilter, gateways: StackedDevice) -> Rig {
    let mut rig = Rig::new().with_punts(PuntRates {
        unreachable: PuntRates::UNLIMITED,
        too_big: PuntRates::UNLIMITED,
        redirect: 0,
        ..PuntRates::ROUTER
    });
    let terms = settings(&rig, sources);
    rig.ingresses.publish(Box::new(terms));
    publish(&mut rig, &[], gateways);
    rig
}

/// Publishes the exits: those over port 0 as they receive, and that of gateway 1; gateways in `unknown`
/// have no MAC.
fn publish(rig: &mut Rig, unknown: &[usize], gateways: StackedDevice) {
    publish_with(rig, unknown, gateways, false);
}

/// Publishes the exits like [`publish`]; IPv4 packets keep their priority, or not.
fn publish_with(rig: &mut Rig, unknown: &[usize], gateways: StackedDevice, keeps: bool) {
    let mut changed = adjacencies(&rig.model);
    assert_eq!(changed.set_keeps_priority(keeps), keeps);
    let mut exits: Vec<_> = DEVICES.iter().map(|(tags, _)| Some(exit(0, tags))).collect();
    exits.push(Some(gateways));
    changed.set_stacked(exits.into());
    let gateway = &rig.model.gateways[1];
    let adjacency = Adjacency::new(number(4), gateway.dst_mac, gateway.src_mac, 1500);
    changed.set(hop(RouteTarget::To(1)), adjacency);
    for &at in unknown {
        let port = rig.model.gateways[at].port as u16;
        changed.set(hop(RouteTarget::To(at)), Adjacency::unresolved(port));
    }
    rig.adjacencies.publish(Box::new(changed));
}

fn outputs(rig: &mut Rig) -> [Vec<Vec<u8>>; 4] {
    let [a, b, c] = &mut rig.far[..] else { unreachable!("a rig has three ports") };
    let sent = [a, b, c].map(|far| std::iter::from_fn(|| far.take()).collect());
    let punted = std::iter::from_fn(|| rig.hosts[0].take()).collect();
    let [a, b, c] = sent;
    [a, b, c, punted]
}

#[test]
fn tagged_frames_end_like_untagged_ones_on_a_port_with_the_same_settings() {
    let rng = &mut Rng::with_seed(0x5eed_0018);
    let none: &[(u16, u16)] = &[];
    let mut verdicts = 0;
    for round in 0..300 {
        // Tags that depend on the packet, and one that does not: the same length as most frames have.
        let gateways = if round % 2 == 0 { exit(2, TWO_TAGS) } else { fixed_exit(2, (Q, 300)) };
        let make = || with_exit(ReversePathFilter::Off, gateways.clone());
        let (mut rig, mut plain) = (make(), make());
        // Of many frames, those of one device follow each other.
        let change = *rng.choice(&[1.0, 0.3, 0.02]).unwrap();
        let mut device = 0;
        let (mut frames, mut expected) = (Vec::new(), [const { Vec::new() }; 4]);
        let mut counts = fingerpost_datapath::VerdictMap::<u64>::default();
        for _ in 0..rng.usize(1..60) {
            if rng.f32() < change {
                device = rng.usize(..=DEVICES.len());
            }
            let (tags, table) = DEVICES.get(device).copied().unwrap_or((none, 0));
            let priority = rng.u16(..) & 0xf000;
            let tags: Vec<_> = tags.iter().map(|(kind, id)| (*kind, id | priority)).collect();
            let frame = draw(rng);
            // The same frame alone, on a port with the same table.
            let mut ports = ingresses(&plain.model);
            let like = Ingress {
                sources: [ReversePathFilter::Off; 2],
                mac: Some(MAC),
                ..ports.get(2 * table).clone()
            };
            let [one, two] = [1, 2].map(|port| ports.get(port).clone());
            ports = Ingresses::new([like, one, two]);
            plain.ingresses.publish(Box::new(ports));
            let before = plain.pass([&frame]);
            before.verdicts.iter().for_each(|(verdict, count)| counts[verdict] += count);
            for (at, sent) in outputs(&mut plain).into_iter().enumerate() {
                let with_tags = |sent: Vec<u8>| if at == 3 { tagged(&sent, &tags) } else { sent };
                expected[at].extend(sent.into_iter().map(with_tags));
            }
            frames.push(tagged(&frame, &tags));
        }
        let counted = rig.pass(&frames);
        assert_eq!(counted.verdicts, counts, "round {round}");
        let bytes: usize = frames.iter().map(Vec::len).sum();
        assert_eq!(counted.received_bytes, bytes as u64);
        let mut sent = outputs(&mut rig);
        // Batches of different tables leave one after the other.
        sent.iter_mut().chain(&mut expected).for_each(|list| list.sort());
        assert_eq!(sent, expected, "round {round}");
        verdicts += counts.iter().filter(|(_, count)| **count > 0).count();
    }
    assert!(verdicts > 1500, "{verdicts}: many verdicts in each round");
}

#[test]
fn devices_with_like_settings_share_a_batch_and_others_do_not() {
    let rig = Rig::new();
    let settings = settings(&rig, ReversePathFilter::Off);
    let groups = [0, number(0), number(1), number(2), number(3)].map(|port| settings.group(port));
    assert_eq!(groups, [0, 0, 0, number(2), 0]);
    assert!(settings.has(2) && settings.has(number(3)) && !settings.has(number(4)));
}

#[test]
fn exit_adds_its_tags_with_the_priority_of_the_tos() {
    let mut rig = with_devices(ReversePathFilter::Off);
    let to_device = 0x0a01_0001;
    for (tos, priority) in [(0, 0), (0x04, 0), (0x08, 2), (0x10, 6), (0x18, 7), (0xb8, 7)] {
        let header = ipv4::Header { tos, src: HERE, dst: to_device, ..sound() };
        assert_eq!(rig.pass([v4_with(header, 0)]).sent(), 1);
        let got = rig.far[2].take().unwrap();
        let control = priority << 13;
        assert_eq!(got[12..16], tagged(&[0; 14], &[(AD, control | 100)])[12..16], "{tos:#x}");
        assert_eq!(got[16..20], tagged(&[0; 14], &[(Q, control | 200)])[12..16], "{tos:#x}");
        assert_eq!((&got[20..22], got[22]), (&[8, 0][..], 0x45));
    }
    // Linux sets no priority by the traffic class of IPv6.
    assert_eq!(rig.pass([v6(0x2001_0db8 << 96 | 1, 0x2001_0db8_0001 << 80 | 9)]).sent(), 1);
    assert_eq!(rig.far[2].take().unwrap()[14..16], [0, 100]);
}

/// IPv6 packets keep the priority that the device of their inner tag gives them, frame by frame, also while they
/// are held; IPv4 packets have that of their TOS, or keep it too, if Linux is set so.
#[test]
fn exit_adds_the_priority_that_the_packet_arrived_with() {
    /// The priorities of packets by those of tags, for each device.
    const MAPS: [[u8; 8]; 4] =
        [[0; 8], [0, 5, 0, 0, 3, 0, 0, 15], [4; 8], [1, 0, 0, 2, 0, 6, 6, 7]];
    let to_device = |rng: &mut Rng, is_v4: bool, tos: u8| match is_v4 {
        true => {
            v4_with(ipv4::Header { tos, src: HERE, dst: 0x0a01_0001, ..sound() }, rng.usize(0..40))
        }
        false => v6(0x2001_0db8 << 96 | 1, 0x2001_0db8_0001 << 80 | 9),
    };
    let rng = &mut Rng::with_seed(0x5eed_0044);
    let mut seen = std::collections::BTreeSet::<[u8; 2]>::new();
    for round in 0..200 {
        let mut rig = with_devices(ReversePathFilter::Off);
        rig.ingresses.publish(Box::new(settings_with(&rig, ReversePathFilter::Off, MAPS)));
        let (keeps, is_held) = (round % 2 == 0, round % 3 == 0);
        let unknown = if is_held { &[1][..] } else { &[] };
        publish_with(&mut rig, unknown, exit(2, TWO_TAGS), keeps);
        // Frames of one device and priority follow each other, or not.
        let change = *rng.choice(&[1.0, 0.1]).unwrap();
        let (mut device, mut pcp) = (0, 0);
        let (mut frames, mut expected) = (Vec::new(), Vec::new());
        for _ in 0..rng.usize(1..60) {
            if rng.f32() < change {
                // Without the third, whose table has no route there; the last one is none.
                (device, pcp) = (*rng.choice(&[0, 1, 3, 9]).unwrap(), rng.u16(0..8));
            }
            let (is_v4, tos) = (rng.bool(), rng.u8(0..4));
            let frame = to_device(rng, is_v4, tos << 3);
            let mut tags = DEVICES.get(device).map_or(vec![], |(tags, _)| tags.to_vec());
            let arrived = MAPS.get(device).map_or(0, |map| map[usize::from(pcp)]);
            match &mut tags[..] {
                [outer, inner] => {
                    (outer.1, inner.1) = (rng.u16(0..8) << 13 | outer.1, pcp << 13 | inner.1);
                }
                [tag] => tag.1 |= pcp << 13,
                _ => {}
            }
            let of_packet = if is_v4 && !keeps { [0, 2, 6, 4][usize::from(tos)] } else { arrived };
            expected.push([PRIORITY[usize::from(of_packet)]; 2]);
            frames.push(tagged(&frame, &tags));
        }
        let counted = rig.pass(&frames);
        if is_held {
            assert_eq!(counted.held, frames.len() as u64);
            publish_with(&mut rig, &[], exit(2, TWO_TAGS), keeps);
            rig.pass([[0; 0]; 0]);
        }
        let got = outputs(&mut rig);
        assert_eq!(got.each_ref().map(Vec::len), [0, 0, frames.len(), 0]);
        let got: Vec<_> = got[2].iter().map(|frame| [frame[14] >> 5, frame[18] >> 5]).collect();
        assert_eq!(got, expected, "round {round}");
        seen.extend(got);
    }
    assert_eq!(seen.len(), 8);
}

#[test]
fn exit_with_a_fixed_tag_replaces_tags_of_any_length() {
    let mut rig = with_exit(ReversePathFilter::Off, fixed_exit(2, (AD, 300)));
    let (to_device, to_port) = (0x0a01_0001, AWAY);
    let all: [&[(u16, u16)]; 3] = [&[], &[(Q, 5)], &[(AD, 7), (Q, 8)]];
    for tags in all {
        for to in [to_device, to_port] {
            assert_eq!(rig.pass([tagged(&v4(HERE, to), tags)]).sent(), 1, "{tags:?}");
        }
        let [_, one, two, _] = outputs(&mut rig);
        let gateways = &rig.model.gateways;
        let expected = |gateway: usize, tags: &[(u16, u16)]| {
            let mut frame = v4_with(ipv4::Header { src: HERE, dst: to_device, ..sound() }, 0);
            frame[..6].copy_from_slice(&gateways[gateway].dst_mac);
            frame[6..12].copy_from_slice(&gateways[gateway].src_mac);
            tagged(&frame, tags)[..14 + 4 * tags.len()].to_vec()
        };
        assert_eq!(two.len(), 1);
        assert!(two[0].starts_with(&expected(1, &[(AD, 3 << 13 | 300)])), "{tags:?}: {two:02x?}");
        assert_eq!(one.len(), 1);
        assert!(one[0].starts_with(&expected(0, &[])), "{tags:?}: {one:02x?}");
        assert_eq!(one[0].len() + 4, two[0].len());
    }
}

/// A tag without a device, in the middle of a run of frames of one device, is not taken for that device's,
/// whether it differs in its type, its identifier, or is a further one.
#[test]
fn frame_that_differs_from_a_run_has_its_own_ingress() {
    let runs: [&[(u16, u16)]; 4] = [&[], &[(Q, 5)], &[(AD, 7)], &[(AD, 7), (Q, 8)]];
    let others: [&[(u16, u16)]; 6] =
        [&[(Q, 9)], &[(AD, 5)], &[(Q, 7)], &[(AD, 7), (Q, 9)], &[(AD, 7), (AD, 8)], &[(Q, 8)]];
    for run in runs {
        for other in others {
            let mut rig = with_devices(ReversePathFilter::Off);
            let odd = tagged(&v4(HERE, AWAY), other);
            let mut frames = vec![tagged(&v4(HERE, AWAY), run); 19];
            let mut expected = rig.pass(&frames).verdicts;
            outputs(&mut rig);
            expected[Verdict::Tagged] += 1;
            frames.insert(11, odd.clone());
            assert_eq!(rig.pass(&frames).verdicts, expected, "{run:04x?} {other:04x?}");
            assert!(outputs(&mut rig)[3].contains(&odd), "{run:04x?} {other:04x?}");
        }
    }
}

#[test]
fn unknown_tags_stay_and_go_to_the_host_with_those_of_the_device() {
    let mut rig = with_devices(ReversePathFilter::Off);
    let unknown: [&[(u16, u16)]; 5] =
        [&[(Q, 9)], &[(AD, 5)], &[(Q, 7)], &[(AD, 7), (Q, 9)], &[(Q, 5), (Q, 8)]];
    for tags in unknown {
        let frame = tagged(&v4(HERE, AWAY), tags);
        assert_eq!(rig.pass([&frame]).count(Verdict::Tagged), 1, "{tags:04x?}");
        assert_eq!(outputs(&mut rig), [vec![], vec![], vec![], vec![frame]]);
    }
}

#[test]
fn packets_of_several_devices_wait_and_leave_without_further_frames() {
    let mut rig = with_devices(ReversePathFilter::Off);
    publish(&mut rig, &[0, 2], exit(2, TWO_TAGS));
    let six = tagged(&v4(HERE, AWAY), &[(Q, 6)]);
    // In table 1 this address is behind gateway 0.
    let seven = tagged(&v4(HERE, BACK), &[(AD, 7)]);
    let counted = rig.pass([&six, &seven, &v4(HERE, AWAY + 1)]);
    assert_eq!((counted.held, counted.sent()), (3, 0));
    publish(&mut rig, &[], exit(2, TWO_TAGS));
    assert_eq!(rig.pass([[0; 0]; 0]).sent(), 3);
    assert_eq!(outputs(&mut rig).map(|list| list.len()), [0, 3, 0, 0]);
    // A packet of a device that is removed ends.
    publish(&mut rig, &[0], exit(2, TWO_TAGS));
    assert_eq!(rig.pass([&seven]).held, 1);
    let terms = ingresses(&rig.model);
    rig.ingresses.publish(Box::new(terms));
    publish(&mut rig, &[], exit(2, TWO_TAGS));
    assert_eq!(rig.pass([[0; 0]; 0]).sent(), 0);
    (0..11).for_each(|_| rig.worker.tick());
    assert_eq!((rig.pass([[0; 0]; 0]).count(Verdict::Unresolved), rig.worker.held()), (1, 0));
}

#[test]
fn redirects_and_the_strict_filter_distinguish_the_devices_of_a_port() {
    let rates = PuntRates { redirect: 100, ..PuntRates::ROUTER };
    let mut rig = with_devices(ReversePathFilter::Off).with_punts(rates);
    // Gateway 2 is behind the device with VLAN 5.
    let behind = |rig: &mut Rig| {
        let mut changed = adjacencies(&rig.model);
        let exits: Vec<_> = DEVICES.iter().map(|(tags, _)| Some(exit(0, tags))).collect();
        changed.set_stacked(exits.into());
        let gateway = &rig.model.gateways[2];
        let adjacency = Adjacency::new(number(0), gateway.dst_mac, gateway.src_mac, 1500);
        changed.set(hop(RouteTarget::To(2)), adjacency);
        rig.adjacencies.publish(Box::new(changed));
    };
    behind(&mut rig);
    for (tags, redirects) in [(&[(Q, 0xa005)][..], 1), (&[(Q, 6)], 0), (&[], 0)] {
        let frame = tagged(&v4(HERE, BACK), tags);
        let counted = rig.pass([&frame]);
        assert_eq!((counted.count(Verdict::Redirect), counted.sent()), (redirects, 1 - redirects));
        let [sent, .., punted] = outputs(&mut rig);
        match redirects {
            1 => assert_eq!(punted[0], frame, "the host gets what arrived, with its priority"),
            _ => assert_eq!(sent[0][12..16], [0x81, 0, 0, 5]),
        }
    }
    let mut rig = with_devices(ReversePathFilter::Strict);
    behind(&mut rig);
    // The source is in the network of gateway 2.
    for (tags, spoofed) in [(&[(Q, 5)][..], 0), (&[(Q, 6)], 1), (&[], 1)] {
        let counted = rig.pass([tagged(&v4(HERE, AWAY), tags)]);
        assert_eq!(counted.count(Verdict::Spoofed), spoofed, "{tags:04x?}");
    }
}
