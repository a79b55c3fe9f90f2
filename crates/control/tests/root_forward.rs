//! The driver's path in the steering program, beside the worker's parse: each frame that the kernel forwards is
//! one that the worker would, with the same route and the same bytes; and plain packets are forwarded.
//!
//! Needs root (`CAP_BPF`, `CAP_PERFMON`), hence the feature `root-tests`.

use std::sync::Arc;

use datapath::{FlowHash, FlowKey, Group, Locals, Parsed, flow_v4, flow_v6, parse};
use fib::{Choice, Family, Hop, Prefix, Rib, Updater};
use port::af_xdp::bpf::asm::Action;
use port::af_xdp::steer::{self, DriverPath, Extensions, Steering, SteeringOutcome, VlanTags};
use xdp::forward::{
    EgressLink, ForwardPath, GroupHash, HashFields, NextHop, NextHops, OwnSources, SourceCheck,
    Tags,
};
use xdp::{BpfArrays, KernelTable};

const MAC: [u8; 6] = [2, 0, 0, 0, 0, 1];
const NEIGHBOR: [u8; 6] = [2, 0, 0, 0, 1, 1];
const EGRESS: [u8; 6] = [2, 0, 0, 0, 2, 2];
/// The links: the own one, one that packets leave by, one without a device.
const LINKS: [u16; 3] = [0, 1, 2];
const MTU: u16 = 1400;
/// The hops: by the second link, by the own one, by the third, and one that is not resolved.
const BY_LINK: Hop = Hop(1);
const BACK: Hop = Hop(2);
const WITHOUT_DEVICE: Hop = Hop(3);
const UNRESOLVED: Hop = Hop(4);
/// A hop that may stand for a group, and a further member of that.
const GROUPED: Hop = Hop(5);
const FURTHER: Hop = Hop(6);
const FURTHER_MAC: [u8; 6] = [2, 0, 0, 0, 1, 2];
const OWN_V4: u32 = 0xc000_0201;
const OWN_V6: u128 = 0x2001_0db8 << 96 | 1;

/// The loopback interface, which has no XDP: redirections of test runs are not made.
const DEVICE: u32 = 1;

/// The steering program with a path, and what the worker knows.
struct Router {
    steering: Steering,
    path: ForwardPath,
    v4: Updater<u32>,
    v6: Updater<u128>,
    _tables: (KernelTable<u32>, KernelTable<u128>),
    locals: Locals,
}

fn table<A: Family>(routes: &[(A, u32, Hop)]) -> (Updater<A>, KernelTable<A>) {
    let files = BpfArrays::new("chunks");
    let mut rib = Rib::new();
    for &(addr, len, hop) in routes {
        rib.insert(Prefix::truncate(addr, len), hop);
    }
    let updater = Updater::new_in(rib, Choice::Flat, 1, files.clone()).unwrap();
    let table = KernelTable::new(&files, updater.fib()).unwrap();
    (updater, table)
}

impl Router {
    fn new() -> Self {
        Self::with_sources([SourceCheck::Off; 2])
    }

    fn with_sources(sources: [SourceCheck; 2]) -> Self {
        Self::with(sources, GroupHash::default())
    }

    fn with(sources: [SourceCheck; 2], group_hash: GroupHash) -> Self {
        let hops = [BY_LINK, BY_LINK, BACK, WITHOUT_DEVICE, UNRESOLVED, BY_LINK, GROUPED];
        let routes = |shift: u32| (0x10..0x17_u128).map(move |top| top << shift);
        let v4: Vec<_> = routes(24).zip(hops).map(|(addr, hop)| (addr as u32, 8, hop)).collect();
        let v6: Vec<_> = routes(112).zip(hops).map(|(addr, hop)| (addr, 16, hop)).collect();
        let ((v4, table_v4), (v6, table_v6)) = (table(&v4), table(&v6));
        let next_hops = NextHops::new().unwrap();
        let link = EgressLink { device: DEVICE, mac: EGRESS, mtu: MTU, tags: Tags::NONE };
        next_hops.set_link(LINKS[1], Some(link)).unwrap();
        for (hop, link) in [BY_LINK, BACK, WITHOUT_DEVICE].into_iter().zip([1, 0, 2]) {
            next_hops.set_hop(hop, Some(NextHop { mac: NEIGHBOR, link: LINKS[link] }));
        }
        let own_sources = OwnSources::new().unwrap();
        own_sources.set([OWN_V4]);
        let path = ForwardPath {
            v4: Arc::clone(table_v4.arrays()),
            v6: Arc::clone(table_v6.arrays()),
            next_hops: Arc::new(next_hops),
            own_sources: Arc::new(own_sources),
            link: LINKS[0],
            sources,
            group_hash,
        };
        let own = steer::Locals { v4: [OWN_V4.into()].into(), v6: [OWN_V6.into()].into() };
        let steering = Steering::for_router(MAC, 1, &own).unwrap();
        let driver_path: Arc<dyn DriverPath> = Arc::new(path.clone());
        let extensions = Extensions { driver_path: Some(driver_path), ..Extensions::default() };
        steering.set_program(steering.load_with(&extensions).unwrap());
        steering.forward_in_driver([true; 2]).unwrap();
        let locals = Locals::new([OWN_V4], [OWN_V6]).with_sources_v4([OWN_V4]);
        Self { steering, path, v4, v6, _tables: (table_v4, table_v6), locals }
    }

    /// Returns the frame that the worker would send for this one, and its route's hop, if it would send one.
    fn worker(&self, frame: &[u8]) -> Option<(Vec<u8>, Hop)> {
        let hop = match parse(frame, MAC, &self.locals) {
            Parsed::V4(dst) => self.v4.fib().lookup(dst),
            Parsed::V6(dst) => self.v6.fib().lookup(dst),
            Parsed::Done(_) => return None,
        };
        let mut sent = frame.to_vec();
        let number = |at: usize| usize::from(u16::from_be_bytes([frame[at], frame[at + 1]]));
        let total = if frame[14] >> 4 == 4 {
            sent[22] -= 1;
            set_checksum(&mut sent);
            number(16)
        } else {
            sent[21] -= 1;
            40 + number(18)
        };
        sent.truncate(sent.len().min((14 + total).max(60)));
        sent[..6].copy_from_slice(&NEIGHBOR);
        sent[6..12].copy_from_slice(&EGRESS);
        (hop == BY_LINK && total <= usize::from(MTU)).then_some((sent, hop))
    }

    /// Runs the program and returns the frame that it forwards.
    fn forward(&self, frame: &[u8]) -> Option<Vec<u8>> {
        let run = self.steering.program().test_run(frame, 1).unwrap();
        if run.retval == Action::Redirect as u32 {
            return Some(run.output);
        }
        assert_eq!(run.output, frame, "a frame that is not forwarded stays as it is");
        None
    }
}

/// The checksum of RFC 1071 over an even number of bytes.
fn checksum(bytes: &[u8]) -> u16 {
    let words = bytes.as_chunks::<2>().0.iter().map(|word| u32::from(u16::from_be_bytes(*word)));
    let sum: u32 = words.sum();
    let sum = (sum & 0xffff) + (sum >> 16);
    !((sum & 0xffff) + (sum >> 16)) as u16
}

/// Sets the checksum of an IPv4 header without options.
fn set_checksum(frame: &mut [u8]) {
    frame[24..26].fill(0);
    let checksum = checksum(&frame[14..34]);
    frame[24..26].copy_from_slice(&checksum.to_be_bytes());
}

/// A frame with a packet of UDP or TCP whose checksum is `checksum`.
fn frame_v4(src: u32, dst: u32, ttl: u8, protocol: u8, payload: &[u8]) -> Vec<u8> {
    let total = (20 + payload.len()) as u16;
    let mut header = vec![0x45, 0, 0, 0, 0x12, 0x34, 0x40, 0, ttl, protocol, 0, 0];
    header[2..4].copy_from_slice(&total.to_be_bytes());
    header.extend(src.to_be_bytes());
    header.extend(dst.to_be_bytes());
    let mut frame = [&MAC[..], &[2; 6], &[0x08, 0x00], &header, payload].concat();
    set_checksum(&mut frame);
    frame
}

fn frame_v6(src: u128, dst: u128, limit: u8, next: u8, payload: &[u8]) -> Vec<u8> {
    let len = (payload.len() as u16).to_be_bytes();
    let header = [&[0x60, 0, 0, 0][..], &len, &[next, limit]].concat();
    let addresses = [src.to_be_bytes(), dst.to_be_bytes()].concat();
    [&MAC[..], &[2; 6], &[0x86, 0xdd], &header, &addresses, payload].concat()
}

/// A random frame, in most cases of a plain packet.
fn random(rng: &mut fastrand::Rng) -> Vec<u8> {
    let payload: Vec<u8> = (0..rng.usize(..200)).map(|_| rng.u8(..)).collect();
    let ttl = *rng.choice(&[0, 1, 2, 3, 64, 255]).unwrap();
    let protocol = *rng.choice(&[6, 17, 1, 4, 41, 0, 60, 58, 132]).unwrap();
    let six = rng.bool();
    let mut frame = if six {
        let address =
            |rng: &mut fastrand::Rng| rng.u128(0x10..0x17) << 112 | u128::from(rng.u64(..));
        frame_v6(address(rng), address(rng), ttl, protocol, &payload)
    } else {
        let address = |rng: &mut fastrand::Rng| rng.u32(0x0f..0x17) << 24 | rng.u32(..1 << 24);
        frame_v4(address(rng), address(rng), ttl, protocol, &payload)
    };
    match rng.u8(..8) {
        // A byte of the headers changes, the checksum with it or not.
        0 | 1 => {
            let at = rng.usize(12..frame.len().min(54));
            frame[at] = rng.u8(..);
            if !six && rng.bool() {
                set_checksum(&mut frame);
            }
        }
        2 => frame.truncate(rng.usize(14..frame.len())),
        3 => frame.resize(frame.len() + rng.usize(1..30), 7),
        4 => frame.resize(frame.len().max(60), 0),
        _ => {}
    }
    frame
}

#[test]
fn frames_are_forwarded_as_the_worker_would() {
    let router = Router::new();
    let mut rng = fastrand::Rng::with_seed(19);
    let (mut forwarded, mut left) = (0, 0);
    for _ in 0..200_000 {
        let frame = random(&mut rng);
        let want = router.worker(&frame);
        match (router.forward(&frame), want) {
            (Some(sent), Some((want, _))) => {
                assert_eq!(sent, want, "{frame:02x?}");
                forwarded += 1;
            }
            (Some(_), None) => panic!("the worker would not forward {frame:02x?}"),
            (None, Some(_)) => left += 1,
            (None, None) => {}
        }
    }
    assert_eq!(router.steering.count(SteeringOutcome::Forwarded).unwrap(), forwarded);
    // Options, packets in packets, and bytes behind a packet are left to the worker.
    assert!(forwarded > 20_000 && left < forwarded, "{forwarded} forwarded, {left} left");
    let used: Vec<_> = router.path.next_hops.take_used().collect();
    assert_eq!(used, [BY_LINK]);
    assert_eq!(router.path.next_hops.take_used().count(), 0);
}

const SOURCE_V4: u32 = 0xc633_6401;
const DST_V4: u32 = 0x1001_0203;
const SOURCE_V6: u128 = 0x2001_0db9 << 96 | 5;
const DST_V6: u128 = 0x0010 << 112 | 9;

/// Plain packets of each family, of every length to the MTU.
fn plain() -> impl Iterator<Item = Vec<u8>> {
    (8..=MTU as usize).flat_map(|len| {
        let v4 = frame_v4(SOURCE_V4, DST_V4, 64, 17, &vec![0; len]);
        let v6 = frame_v6(SOURCE_V6, DST_V6, 64, 17, &vec![0; len]);
        [v4, v6]
    })
}

#[test]
fn plain_packets_are_forwarded_up_to_the_mtu() {
    let router = Router::new();
    let (mut forwarded, mut bytes) = (0, 0);
    for frame in plain() {
        let fits = frame.len() - 14 <= usize::from(MTU);
        let sent = router.forward(&frame);
        assert_eq!(sent.is_some(), fits, "{} bytes", frame.len());
        assert_eq!(sent, router.worker(&frame).map(|(frame, _)| frame));
        forwarded += u32::from(fits);
        bytes += if fits { frame.len() as u64 } else { 0 };
    }
    assert_eq!(router.steering.forwarded_bytes().unwrap(), bytes);
    assert_eq!(forwarded, 2 * (u32::from(MTU) - 7) - 20 - 40);
}

#[test]
fn ttl_checksum_is_right_for_every_checksum() {
    let router = Router::new();
    for id in 0..=u16::MAX {
        let mut frame = frame_v4(SOURCE_V4, DST_V4, 64, 17, &[0; 26]);
        frame[18..20].copy_from_slice(&id.to_be_bytes());
        set_checksum(&mut frame);
        let want = router.worker(&frame).map(|(frame, _)| frame);
        assert!(want.is_some());
        assert_eq!(router.forward(&frame), want, "identification {id}");
    }
}

/// Packets that the worker must decide about, each with the reason.
fn exceptions() -> Vec<(&'static str, Vec<u8>)> {
    let data = [0; 40];
    let v4 = |src, dst, ttl| frame_v4(src, dst, ttl, 17, &data);
    let v6 = |src, dst, limit| frame_v6(src, dst, limit, 17, &data);
    let mut tagged = v4(SOURCE_V4, DST_V4, 64);
    tagged.splice(12..12, [0x81, 0, 0, 5]);
    let mut options = v4(SOURCE_V4, DST_V4, 64);
    options[14] = 0x46;
    let mut checksum = v4(SOURCE_V4, DST_V4, 64);
    checksum[24] ^= 1;
    let mut padded = v4(SOURCE_V4, DST_V4, 64);
    padded.push(0);
    let mut other = v4(SOURCE_V4, DST_V4, 64);
    other[5] ^= 0x40;
    let long = |mut frame: Vec<u8>, field: usize| {
        let total = u16::from_be_bytes([frame[field], frame[field + 1]]) + 1;
        frame[field..field + 2].copy_from_slice(&total.to_be_bytes());
        set_checksum(&mut frame);
        frame
    };
    vec![
        ("no route", v4(SOURCE_V4, 0x5001_0203, 64)),
        ("no route over IPv6", v6(SOURCE_V6, 0x0050 << 112, 64)),
        ("back by its own link", v4(SOURCE_V4, 0x1201_0203, 64)),
        ("a link without a device", v4(SOURCE_V4, 0x1301_0203, 64)),
        ("an unresolved next hop", v4(SOURCE_V4, 0x1401_0203, 64)),
        ("back over IPv6", v6(SOURCE_V6, 0x0012 << 112, 64)),
        ("a used-up TTL", v4(SOURCE_V4, DST_V4, 1)),
        ("a used-up hop limit", v6(SOURCE_V6, DST_V6, 1)),
        ("an own source", v4(OWN_V4, DST_V4, 64)),
        ("a loopback source", v4(0x7f00_0001, DST_V4, 64)),
        ("source 0", v4(0, DST_V4, 64)),
        ("a multicast source", v4(0xe000_0001, DST_V4, 64)),
        ("a loopback source over IPv6", v6(1, DST_V6, 64)),
        ("a link-local source", v6(0xfe80 << 112 | 1, DST_V6, 64)),
        ("hop-by-hop options", frame_v6(SOURCE_V6, DST_V6, 64, 0, &data)),
        ("options", options),
        ("a wrong checksum", checksum),
        ("a VLAN tag", tagged),
        ("a byte behind the packet", padded),
        ("another MAC", other),
        ("a total length beyond the frame", long(v4(SOURCE_V4, DST_V4, 64), 16)),
        ("a packet in a packet", frame_v4(SOURCE_V4, DST_V4, 64, 4, &data)),
    ]
}

#[test]
fn packets_for_the_worker_are_left_as_they_are() {
    let router = Router::new();
    let v4 = frame_v4(SOURCE_V4, DST_V4, 64, 17, &[0; 40]);
    assert!(router.forward(&v4).is_some(), "the packet without any exception");
    for (reason, frame) in exceptions() {
        assert_eq!(router.forward(&frame), None, "{reason}");
    }
}

#[test]
fn partial_checksums_are_left_to_the_worker() {
    let router = Router::new();
    for (protocol, field, len) in [(6, 16, 33_usize), (17, 6, 20)] {
        let mut payload = vec![9; len];
        payload[4..6].copy_from_slice(&(len as u16).to_be_bytes());
        let sum = |addresses: &[u8]| {
            let pseudo = [addresses, &[0, protocol], &(len as u16).to_be_bytes()].concat();
            !checksum(&pseudo)
        };
        let v4 = sum(&[SOURCE_V4.to_be_bytes(), DST_V4.to_be_bytes()].concat());
        let v6 = sum(&[SOURCE_V6.to_be_bytes(), DST_V6.to_be_bytes()].concat());
        for add in [0, 1] {
            let with = |sum: u16| {
                let mut payload = payload.clone();
                payload[field..field + 2].copy_from_slice(&(sum ^ add).to_be_bytes());
                payload
            };
            let v4 = frame_v4(SOURCE_V4, DST_V4, 64, protocol, &with(v4));
            let v6 = frame_v6(SOURCE_V6, DST_V6, 64, protocol, &with(v6));
            for frame in [v4, v6] {
                assert_eq!(router.forward(&frame).is_some(), add == 1, "protocol {protocol}");
            }
        }
    }
}

/// A frame of TCP or UDP to the group.
fn to_group(rng: &mut fastrand::Rng, six: bool) -> Vec<u8> {
    let payload: Vec<u8> = (0..rng.usize(20..60)).map(|_| rng.u8(..)).collect();
    let protocol = *rng.choice(&[6, 17]).unwrap();
    if !six {
        let address = |rng: &mut fastrand::Rng, top: u32| top << 24 | rng.u32(..1 << 24);
        // Sources below and above the destinations.
        let top = *rng.choice(&[0x14, 0x16, 0x50]).unwrap();
        return frame_v4(address(rng, top), address(rng, 0x16), 64, protocol, &payload);
    }
    let address = |rng: &mut fastrand::Rng, top: u128| top << 112 | rng.u128(..) >> 16;
    let top = *rng.choice(&[0x14, 0x16, 0x50]).unwrap();
    let mut frame = frame_v6(address(rng, top), address(rng, 0x16), 64, protocol, &payload);
    // The flow label.
    rng.fill(&mut frame[16..18]);
    frame
}

#[test]
fn member_of_a_group_is_that_of_the_workers() {
    let mut rng = fastrand::Rng::with_seed(5);
    let keys = [(HashFields::Layer3, FlowKey::LAYER_3), (HashFields::Layer4, FlowKey::LAYER_4)];
    for (fields, key) in keys {
        let hash = FlowHash { seed: rng.u64(..), v4: key, v6: key };
        let in_driver = GroupHash { seed: hash.seed, fields: [Some(fields); 2] };
        let router = Router::with([SourceCheck::Off; 2], in_driver);
        let next_hops = &router.path.next_hops;
        next_hops.set_hop(FURTHER, Some(NextHop { mac: FURTHER_MAC, link: LINKS[1] }));
        let mut group = Group::of(&[(BY_LINK, 1), (FURTHER, 3)], &Group::default());
        let mut members = [0; 2];
        for round in 0..20_000 {
            if round % 5_000 == 0 {
                group = Group::of(&[(BY_LINK, 1), (FURTHER, 1 + round / 100)], &group);
                next_hops.set_group(GROUPED, 7, group.buckets());
            }
            let six = rng.bool();
            let frame = to_group(&mut rng, six);
            let flow = if six { flow_v6(&frame, &hash) } else { flow_v4(&frame, &hash) };
            let (at, mac) = match group.choose(flow) {
                BY_LINK => (0, NEIGHBOR),
                FURTHER => (1, FURTHER_MAC),
                other => panic!("no member: {other:?}"),
            };
            // One in 65,536 packets has a checksum that looks partial.
            if let Some(sent) = router.forward(&frame) {
                assert_eq!(sent[..6], mac, "{fields:?} {frame:02x?}");
                members[at] += 1;
            }
        }
        assert!(members.iter().sum::<u32>() > 19_900 && members[0] > 100, "{members:?}");
        // Other protocols and fragments are the worker's, and all without buckets.
        let icmp = frame_v4(SOURCE_V4, 0x1600_0001, 64, 1, &[0; 40]);
        // Padding is no port.
        let mut short = frame_v4(SOURCE_V4, 0x1600_0001, 64, 17, &[1, 2]);
        short.resize(60, 9);
        if fields == HashFields::Layer4 {
            assert_eq!(router.forward(&short), None);
        }
        let mut fragment = frame_v4(SOURCE_V4, 0x1600_0001, 64, 17, &[0; 40]);
        assert!(router.forward(&fragment).is_some());
        fragment[20] = 0x20;
        set_checksum(&mut fragment);
        assert_eq!((router.forward(&icmp), router.forward(&fragment)), (None, None));
        next_hops.set_hop(GROUPED, None);
        assert_eq!(router.forward(&to_group(&mut rng, false)), None);
    }
}

#[test]
fn source_behind_a_group_is_the_workers() {
    for check in [SourceCheck::Loose, SourceCheck::Strict] {
        let fields = [Some(HashFields::Layer4); 2];
        let router = Router::with([check; 2], GroupHash { seed: 1, fields });
        let group = Group::of(&[(BACK, 1)], &Group::default());
        router.path.next_hops.set_group(GROUPED, 0, group.buckets());
        let v4 = |top: u32| frame_v4(top << 24 | 5, DST_V4, 64, 17, &[0; 40]);
        assert!(router.forward(&v4(0x12)).is_some());
        assert_eq!(router.forward(&v4(0x16)), None, "{check:?}");
    }
}

#[test]
fn destination_is_sampled_once_for_each_request() {
    let router = Router::new();
    let samples = router.path.next_hops.samples();
    let v4 = |last| frame_v4(SOURCE_V4, DST_V4 + last, 64, 17, &[0; 40]);
    let v6 = |last| frame_v6(SOURCE_V6, DST_V6 + last, 64, 17, &[0; 40]);
    // None was requested before the first packets.
    assert!(router.forward(&v4(0)).is_some() && router.forward(&v6(0)).is_some());
    assert_eq!((samples.take::<u32>(), samples.take::<u128>()), (None, None));
    for last in 1..4 {
        assert!(router.forward(&v4(last)).is_some() && router.forward(&v4(9)).is_some());
        assert!(router.forward(&v6(last.into())).is_some() && router.forward(&v6(9)).is_some());
        assert_eq!(samples.take(), Some((LINKS[0], DST_V4 + last)));
        assert_eq!(samples.take(), Some((LINKS[0], DST_V6 + u128::from(last))));
    }
    assert_eq!((samples.take::<u32>(), samples.take::<u128>()), (None, None));
}

#[test]
fn sources_are_checked_as_the_link_requires() {
    // Behind the packet's link, behind another one, without a next hop here, without a route.
    let tops = [0x12, 0x10, 0x14, 0x50];
    let forwards = |router: &Router, v4: bool, top: u32| {
        let frame = match v4 {
            true => frame_v4(top << 24 | 5, DST_V4, 64, 17, &[0; 40]),
            false => frame_v6(u128::from(top) << 112 | 5, DST_V6, 64, 17, &[0; 40]),
        };
        router.forward(&frame).is_some()
    };
    let (loose, strict) = ([true, true, false, false], [true, false, false, false]);
    for (check, wants) in
        [(SourceCheck::Off, [true; 4]), (SourceCheck::Loose, loose), (SourceCheck::Strict, strict)]
    {
        for v4 in [true, false] {
            let others = SourceCheck::Off;
            let router = Router::with_sources(if v4 { [check, others] } else { [others, check] });
            assert_eq!(tops.map(|top| forwards(&router, v4, top)), wants, "{check:?}, IPv4: {v4}");
            assert_eq!(tops.map(|top| forwards(&router, !v4, top)), [true; 4], "{check:?}");
        }
    }
}

#[test]
fn frames_of_other_devices_are_left_to_the_worker() {
    let router = Router::new();
    let frame = frame_v4(SOURCE_V4, DST_V4, 64, 17, &[0; 40]);
    let macs = [[2, 0, 0, 0, 9, 9]];
    router.steering.set_secondary_macs(&macs).unwrap();
    router.steering.set_vlans(&[VlanTags { outer: (0x8100, 5), inner: None }]).unwrap();
    let passed = || router.steering.count(SteeringOutcome::NoSocket).unwrap();
    let mut secondary = frame.clone();
    secondary[..6].copy_from_slice(&macs[0]);
    let mut tagged = frame.clone();
    tagged.splice(12..12, [0x81, 0, 0, 5]);
    for (nth, other) in [secondary, tagged].into_iter().enumerate() {
        assert_eq!(router.forward(&other), None);
        // It came to the socket that there is none of.
        assert_eq!(passed(), nth as u64 + 1);
    }
    // A tag of priority only is none.
    let mut priority = frame.clone();
    priority.splice(12..12, [0x81, 0, 0x60, 0]);
    assert_eq!(router.forward(&priority), router.worker(&frame).map(|(frame, _)| frame));
}

#[test]
fn path_is_taken_only_where_it_is_on() {
    let router = Router::new();
    let v4 = frame_v4(SOURCE_V4, DST_V4, 64, 17, &[0; 40]);
    let v6 = frame_v6(SOURCE_V6, DST_V6, 64, 17, &[0; 40]);
    let forwards = || [&v4, &v6].map(|frame| router.forward(frame).is_some());
    for families in [[false; 2], [true, false], [false, true], [true; 2]] {
        router.steering.forward_in_driver(families).unwrap();
        assert_eq!(forwards(), families);
    }
    router.steering.observe(true).unwrap();
    assert_eq!(forwards(), [false; 2]);
    router.steering.observe(false).unwrap();
    assert_eq!(forwards(), [true; 2]);
    router.path.next_hops.set_hop(BY_LINK, None);
    assert_eq!(forwards(), [false; 2]);
    router.steering.set_program(router.steering.load_with(&Extensions::default()).unwrap());
    assert_eq!(forwards(), [false; 2]);
}

/// Tags of frames: of none, one and two VLAN devices.
const TAGGED: [&[(u16, u16)]; 3] = [&[], &[(0x8100, 5)], &[(0x88a8, 6), (0x8100, 7)]];
/// The link of frames with tags.
const TAGGED_LINK: u16 = 2050;

/// Inserts tags, whose priority bits are `priority`, into a frame.
fn with_tags(frame: &[u8], tags: &[(u16, u16)], priority: u16) -> Vec<u8> {
    let each = tags.iter().flat_map(|(protocol, id)| [*protocol, priority << 12 | id]);
    let tags: Vec<u8> = each.flat_map(u16::to_be_bytes).collect();
    [&frame[..12], &tags, &frame[12..]].concat()
}

/// A router that knows frames with these tags, by the link, and sends others.
fn router_of_vlans(received: &[(u16, u16)], link: Option<u16>, sent: &[(u16, u16)]) -> Router {
    let router = Router::with_sources([SourceCheck::Strict, SourceCheck::Off]);
    // A device with two tags is over one with the outer tag.
    let outer = VlanTags { outer: received[0], inner: None };
    let both = VlanTags { inner: received.get(1).copied(), ..outer };
    router.steering.set_vlans(&[outer, both]).unwrap();
    let next_hops = &router.path.next_hops;
    let received = Tags::new(received.iter().copied()).unwrap();
    next_hops.set_vlan(LINKS[0], received, link).unwrap();
    let tags = Tags::new(sent.iter().copied()).unwrap();
    let link = EgressLink { device: DEVICE, mac: EGRESS, mtu: MTU, tags };
    next_hops.set_link(LINKS[1], Some(link)).unwrap();
    // The sources of IPv4 are behind the link of the tags.
    next_hops.set_hop(GROUPED, Some(NextHop { mac: NEIGHBOR, link: TAGGED_LINK }));
    router
}

/// A source that hop 6 leads to, and one of IPv6.
const BEHIND_TAGS: u32 = 0x1601_0203;

#[test]
fn tags_are_exchanged_as_the_links_have_them() {
    let mut rng = fastrand::Rng::with_seed(44);
    for received in &TAGGED[1..] {
        for sent in TAGGED {
            let router = router_of_vlans(received, Some(TAGGED_LINK), sent);
            for len in [0, 8, 26, 200, 1300] {
                let payload: Vec<u8> = (0..len).map(|_| rng.u8(..)).collect();
                let v4 = frame_v4(BEHIND_TAGS, DST_V4, 64, 1, &payload);
                let v6 = frame_v6(SOURCE_V6, DST_V6, 64, 58, &payload);
                for (plain, ttl) in [(v4, 22), (v6, 21)] {
                    let mut want = plain.clone();
                    want[..6].copy_from_slice(&NEIGHBOR);
                    want[6..12].copy_from_slice(&EGRESS);
                    want[ttl] -= 1;
                    if ttl == 22 {
                        set_checksum(&mut want);
                    }
                    let want = with_tags(&want, sent, 0);
                    for priority in [0, 0xb] {
                        let frame = with_tags(&plain, received, priority);
                        let about = format!("{received:?} to {sent:?}, {frame:02x?}");
                        assert_eq!(router.forward(&frame).as_ref(), Some(&want), "{about}");
                    }
                    // Without tags IPv4 has another link than the way back to its source.
                    assert_eq!(router.forward(&plain).is_some(), ttl == 21, "{received:?}");
                }
            }
        }
    }
}

#[test]
fn untagged_packets_get_the_tags_of_their_link() {
    for sent in &TAGGED[1..] {
        let router = Router::new();
        let tags = Tags::new(sent.iter().copied()).unwrap();
        let link = EgressLink { device: DEVICE, mac: EGRESS, mtu: MTU, tags };
        router.path.next_hops.set_link(LINKS[1], Some(link)).unwrap();
        let mut rng = fastrand::Rng::with_seed(45);
        let mut forwarded = 0;
        for _ in 0..20_000 {
            let frame = random(&mut rng);
            if let Some(found) = router.forward(&frame) {
                let (want, _) = router.worker(&frame).expect("the worker forwards it, too");
                assert_eq!(found, with_tags(&want, sent, 0), "{frame:02x?}");
                forwarded += 1;
            }
        }
        assert!(forwarded > 2000, "{forwarded}");
        let bytes = router.steering.forwarded_bytes().unwrap();
        assert!(bytes > forwarded * (34 + 4 * sent.len() as u64), "{bytes}");
    }
}

#[test]
fn tags_without_a_link_and_ways_back_are_left_to_the_worker() {
    let plain = frame_v6(SOURCE_V6, DST_V6, 64, 58, &[0; 40]);
    for received in &TAGGED[1..] {
        let frame = with_tags(&plain, received, 0);
        let link = |link| router_of_vlans(received, link, &[]).forward(&frame).is_some();
        assert!(link(Some(TAGGED_LINK)));
        assert!(!link(None), "no link of these tags");
        assert!(!link(Some(LINKS[1])), "the link that it would leave by");
        let router = router_of_vlans(received, Some(TAGGED_LINK), &[]);
        let other = with_tags(&plain, &[(0x8100, 9)], 0);
        assert_eq!(router.forward(&other), None, "a tag of no device");
        // A frame to a secondary MAC is that of another device.
        router.steering.set_secondary_macs(&[[2, 0, 0, 0, 0, 9]]).unwrap();
        let mut secondary = frame.clone();
        secondary[5] = 9;
        assert_eq!(router.forward(&secondary), None);
        // Too long by its link, not by its tags.
        let long = |len: usize| {
            with_tags(&frame_v6(SOURCE_V6, DST_V6, 64, 58, &vec![0; len]), received, 0)
        };
        assert!(router.forward(&long(MTU as usize - 40)).is_some());
        assert_eq!(router.forward(&long(MTU as usize - 39)), None);
        // Bytes behind the packet.
        assert_eq!(router.forward(&[&frame[..], &[0; 30]].concat()), None);
    }
}

#[test]
fn sample_has_the_link_of_the_tags() {
    let router = router_of_vlans(TAGGED[1], Some(TAGGED_LINK), &[]);
    let samples = router.path.next_hops.samples();
    assert_eq!(samples.take::<u128>(), None);
    let plain = frame_v6(SOURCE_V6, DST_V6, 64, 58, &[0; 40]);
    for (frame, link) in [(with_tags(&plain, TAGGED[1], 0), TAGGED_LINK), (plain, LINKS[0])] {
        assert!(router.forward(&frame).is_some());
        assert_eq!(samples.take::<u128>(), Some((link, DST_V6)));
    }
}
