//! Sealed tunnels against an implementation in Python, against every flipped bit, and against
//! replayed packets.

use wire::tunnel::{Header, Outer};

use super::*;
use crate::decision::v2::keys::Keys;
use crate::policy::Address;

const SESSION: u64 = 0x1122_3344_5566_7788;
const GATE: Address = Address::V4(0x0a02_0001);
const SECOND: u64 = 1_000_000_000;
const TIME: u32 = 0x0102_0304;
const V4: Ends = Ends::V4 { src: 0x0a02_0001, dst: 0x0a09_0164 };
const V6: Ends =
    Ends::V6 { src: 0xfd02 << 112 | 1, dst: 0xfd09 << 112 | 0x100, flow_label: 0xabcde };

fn keys() -> Keys {
    let mut keys = Keys::new(7, &core::array::from_fn(|at| at as u8));
    keys.add(8, &[8; 32]);
    keys
}

fn header(ends: Ends, dscp: u8) -> Header {
    Header { ends, dscp, hop_limit: 64, udp: Some(Ports { src: 0xc123, dst: 6080 }) }
}

/// An inner packet as golden/tunnel.py builds one.
fn inner(version: u8, length: usize) -> Vec<u8> {
    let mut packet: Vec<u8> = (0..length).map(|at| (at * 7) as u8).collect();
    packet[0] = if version == 4 { 0x45 } else { 0x60 };
    packet
}

/// A packet of a tunnel, from its outer header on.
fn packet(header: &Header, private: &PrivateData, inner: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0; header.len_with(PRIVATE_LEN)];
    bytes.extend_from_slice(inner);
    header.emit_with(private, &mut bytes).unwrap();
    bytes
}

struct Pair {
    stream: Stream,
    key: TunnelKey,
    keys: GateKeys,
    checker: TunnelVerifier,
}

impl Pair {
    fn new() -> Self {
        let mut gates = GateKeys::default();
        let all = || [7, 8].map(|number| keys().tunnel(number, SESSION).unwrap()).into();
        gates.set(Address::V6(0xfd02 << 112 | 1), SESSION, all());
        gates.set(GATE, SESSION, all());
        Self {
            stream: Stream::new(3),
            key: keys().tunnel(7, SESSION).unwrap(),
            keys: gates,
            checker: TunnelVerifier::new([GATE, Address::V6(0xfd02 << 112 | 1)]),
        }
    }

    fn sealed(&mut self, ends: Ends, now: u64, inner: &[u8]) -> Vec<u8> {
        let header = header(ends, 41);
        let private = self.stream.seal(&self.key, &header, now, inner).unwrap();
        packet(&header, &private, inner)
    }

    fn check(&mut self, packet: &[u8], now: u64) -> Result<u8, TunnelError> {
        let outer = Outer::parse_with(packet, Some(6080)).map_err(|_| TunnelError::Untagged)?;
        self.checker.check(&self.keys, packet, &outer, now)
    }
}

#[test]
fn private_data_equals_the_golden_script() {
    let golden = include_str!("../../tests/golden/tunnel.hex");
    let lines = golden.lines().map(|line| line.split_once(' ').unwrap());
    let expect: Vec<_> = lines.collect();
    let ways = [
        ("4in4", V4, 4, 300),
        ("short", V4, 4, 20),
        ("6in4", V4, 6, 61),
        ("4in6", V6, 4, 39),
        ("6in6", V6, 6, 1400),
    ];
    assert_eq!(expect.len(), ways.len());
    for ((name, ends, version, length), (named, hex)) in ways.into_iter().zip(expect) {
        let mut pair = Pair::new();
        pair.stream.sequence = 0x11_2233_4454;
        let inner = inner(version, length);
        let now = u64::from(TIME) << UNIT | 77;
        let private = pair.stream.seal(&pair.key, &header(ends, 41), now, &inner).unwrap();
        let ours: String = private.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!((name, ours.as_str()), (named, hex));
        let sealed = packet(&header(ends, 41), &private, &inner);
        assert_eq!(pair.check(&sealed, 5), Ok(41), "{name}");
        assert_eq!(pair.check(&sealed, 5), Err(TunnelError::Replayed), "{name}");
    }
}

/// Every bit counts, except those that routers may change and those that the tag leaves out.
#[test]
fn packet_with_any_bit_flipped_is_rejected() {
    for (ends, version) in [(V4, 4), (V4, 6), (V6, 4), (V6, 6)] {
        let inner = inner(version, 90);
        let sealed = Pair::new().sealed(ends, SECOND, &inner);
        let outer = Outer::parse_with(&sealed, Some(6080)).unwrap();
        let covered = outer.offset + if version == 6 { 60 } else { 40 };
        let (mut refused, mut passed) = (0, Vec::new());
        for bit in 0..8 * sealed.len() {
            let mut flipped = sealed.clone();
            flipped[bit / 8] ^= 0x80 >> (bit % 8);
            if matches!(ends, Ends::V6 { .. }) {
                // A forger corrects the checksum, or leaves it out.
                flipped[46..48].fill(0);
            }
            match Pair::new().check(&flipped, 0) {
                Ok(41) => passed.push(bit / 8),
                Ok(class) => panic!("taken as of class {class} with bit {bit} flipped"),
                Err(_) => refused += 1,
            }
        }
        passed.dedup();
        // Outer: traffic class, length of what a header repeats, identification and flags, hops,
        // checksums, flow label. Inner: the bytes after the covered part.
        let may_change = |at: &usize| match ends {
            Ends::V4 { .. } => matches!(at, 0..=8 | 10 | 11 | 26 | 27) || *at >= covered,
            Ends::V6 { .. } => matches!(at, 0..=5 | 7 | 46 | 47) || *at >= covered,
        };
        assert!(passed.iter().all(may_change), "{passed:?}");
        assert!(refused > 8 * (PRIVATE_LEN + 32), "{refused}");
    }
}

#[test]
fn packet_without_a_tag_or_with_an_unknown_key_or_session_is_rejected() {
    let mut pair = Pair::new();
    let inner = inner(4, 60);
    for udp in [None, header(V4, 1).udp] {
        let plain = Header { udp, ..header(V4, 1) };
        let mut bytes = vec![0; plain.len()];
        bytes.extend_from_slice(&inner);
        plain.emit(&mut bytes).unwrap();
        assert_eq!(pair.check(&bytes, 0), Err(TunnelError::Untagged));
    }
    // The class is the gate's, with any outer header.
    let mut marked = pair.sealed(V4, 0, &inner);
    marked[1] = 1 << 2;
    assert_eq!(pair.check(&marked, 0), Ok(41));
    for (number, session, expect) in [
        (8, SESSION, Ok(41)),
        (8, SESSION + (1 << 20), Err(TunnelError::Forged)),
        (8, SESSION + 1, Err(TunnelError::Key)),
    ] {
        pair.key = keys().tunnel(number, session).unwrap();
        let sealed = pair.sealed(V4, 0, &inner);
        assert_eq!(pair.check(&sealed, 0), expect);
    }
    pair.key = Keys::new(9, &[8; 32]).tunnel(9, SESSION).unwrap();
    let sealed = pair.sealed(V4, 0, &inner);
    assert_eq!(pair.check(&sealed, 0), Err(TunnelError::Key));
    let Ends::V4 { dst, .. } = V4 else { panic!("IPv4") };
    let stranger = Ends::V4 { src: 0x0a02_0002, dst };
    let sealed = pair.sealed(stranger, 0, &inner);
    assert_eq!(pair.check(&sealed, 0), Err(TunnelError::Key));
    assert!(keys().tunnel(9, SESSION).is_none());
    assert_eq!(format!("{:?}", pair.key), "TunnelKey(9)");
}

/// Packets out of order, lost and replayed at random: each is accepted once, and all that arrive
/// within the window are.
#[test]
fn each_number_is_accepted_once_in_any_order() {
    let mut rng = fastrand::Rng::with_seed(9);
    let mut pair = Pair::new();
    let inner = inner(4, 20);
    let mut all: Vec<(u64, Vec<u8>)> = Vec::new();
    let mut taken = std::collections::BTreeSet::new();
    let mut refused = 0;
    for step in 1..30_000u64 {
        if rng.u8(..) == 0 {
            pair.stream.sequence += rng.u64(..3 * WINDOW);
        }
        let now = step * 1000;
        let sealed = pair.sealed(V4, now, &inner);
        all.push((pair.stream.sequence, sealed));
        // Most are the latest; some are recorded ones.
        let back = if rng.u8(..4) > 0 { rng.usize(..3) } else { rng.usize(..6000) };
        let at = (all.len() - 1).saturating_sub(back);
        let (number, sealed) = all[at].clone();
        let highest = taken.last().copied().unwrap_or(0);
        let expect = !taken.contains(&number) && number + WINDOW > highest;
        assert_eq!(pair.check(&sealed, now) == Ok(41), expect, "{number} after {highest}");
        if expect {
            taken.insert(number);
        }
        refused += u32::from(!expect);
    }
    assert!(taken.len() > 5_000 && refused > 5_000, "{} {refused}", taken.len());
}

/// A packet two seconds behind the latest of its gate is refused even inside the window, and so is
/// one recorded before a pause; packets of a gate with a slightly slower clock are accepted.
#[test]
fn recorded_packet_is_too_old_after_two_seconds() {
    let mut pair = Pair::new();
    let inner = inner(4, 20);
    let recorded = pair.sealed(V4, 100 * SECOND, &inner);
    let early = pair.sealed(V4, 101 * SECOND, &inner);
    let latest = pair.sealed(V4, 104 * SECOND, &inner);
    assert_eq!(pair.check(&latest, 4 * SECOND), Ok(41));
    assert_eq!(pair.check(&recorded, 4 * SECOND), Err(TunnelError::Replayed));
    assert_eq!(pair.check(&early, 4 * SECOND), Err(TunnelError::Replayed));
    // Another stream, without any state.
    pair.stream = Stream::new(9);
    let other = pair.sealed(V4, 105 * SECOND, &inner);
    assert_eq!(
        pair.check(&other, 60 * SECOND),
        Err(TunnelError::Replayed),
        "recorded, a minute ago"
    );
    let mut now = 60 * SECOND;
    for _ in 0..1000 {
        // 0.1 % slower than this clock.
        now += 10 * SECOND;
        let sealed = pair.sealed(V4, 100 * SECOND + now - now / 1000, &inner);
        assert_eq!(pair.check(&sealed, now), Ok(41));
    }
    // Another session: the last one's state does not count.
    let next = SESSION + (1 << 32);
    pair.key = keys().tunnel(7, next).unwrap();
    pair.keys.set(GATE, next, vec![pair.key]);
    pair.stream = Stream::new(9);
    let sealed = pair.sealed(V4, SECOND, &inner);
    assert_eq!(pair.check(&sealed, now), Ok(41));
    assert_eq!(pair.check(&other, now), Err(TunnelError::Forged));
}

#[test]
fn streams_beyond_capacity_replace_silent_ones() {
    let mut pair = Pair::new();
    let inner = inner(6, 40);
    let mut now = SECOND;
    let mut first = Vec::new();
    for stream in 0..MAX_STREAMS as u16 {
        pair.stream = Stream::new(stream);
        let sealed = pair.sealed(V4, now, &inner);
        assert_eq!(pair.check(&sealed, now), Ok(41));
        first.push(sealed);
    }
    pair.stream = Stream::new(1000);
    let sealed = pair.sealed(V4, now, &inner);
    assert_eq!(pair.check(&sealed, now), Err(TunnelError::Replayed), "no stream is silent yet");
    for step in 0..10 {
        now += SECOND;
        pair.stream = Stream { stream: 7, sequence: 10 + step };
        let sealed = pair.sealed(V4, now, &inner);
        assert_eq!(pair.check(&sealed, now), Ok(41));
    }
    pair.stream = Stream::new(1000);
    let sealed = pair.sealed(V4, now, &inner);
    assert_eq!(pair.check(&sealed, now), Ok(41));
    assert!(first.iter().all(|old| pair.check(old, now) == Err(TunnelError::Replayed)));
}
