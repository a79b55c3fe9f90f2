//! The checkers against packets broken in every way, and against each other.

use super::super::network::EXITS;
use super::super::packets::Packets;
use super::*;
#[cfg(feature = "root-tests")]
use port::af_xdp::bpf::asm::Action;

fn checker(sink: u8) -> Checker {
    let exit = EXITS[usize::from(sink)];
    Checker { sink, dst_mac: exit.dst_mac, src_mac: exit.src_mac }
}

/// A frame of each family as it should arrive at sink 1.
fn arrived() -> [Vec<u8>; 2] {
    let v4 = ["203.0.113.0/24".parse().map(|prefix| (prefix, 1)).unwrap()];
    let v6 = ["2001:db8::/32".parse().map(|prefix| (prefix, 1)).unwrap()];
    let draw = |packets: Packets| {
        let mut frame = packets.frame(0).to_vec();
        frame[..6].copy_from_slice(&EXITS[1].dst_mac);
        frame[6..12].copy_from_slice(&EXITS[1].src_mac);
        frame
    };
    let mut four = draw(Packets::draw(&v4, &[], 1, 1).unwrap());
    wire::ipv4::View::parse(&mut four[14..]).unwrap().decrement_ttl();
    let mut six = draw(Packets::draw(&[], &v6, 1, 1).unwrap());
    wire::ipv6::View::parse(&mut six[14..]).unwrap().decrement_hop_limit();
    [four, six]
}

/// Frames that are wrong in one way each, and what is to be found.
fn broken() -> Vec<(&'static str, Vec<u8>, Finding)> {
    let [four, six] = arrived();
    let mut cases = Vec::new();
    let mut case = |name, frame: &[u8], change: &dyn Fn(&mut Vec<u8>), finding| {
        let mut frame = frame.to_vec();
        change(&mut frame);
        cases.push((name, frame, finding));
    };
    for (frame, ttl, payload, destination) in [(&four, 22, 42, 30), (&six, 21, 62, 38)] {
        let hash = frame.len() - 8;
        case("untouched", frame, &|_| {}, Finding::Right);
        case("runt", frame, &|f| f.truncate(20), Finding::Form);
        case("cut", frame, &|f| f.truncate(f.len() - 1), Finding::Form);
        case("padded", frame, &|f| f.push(0), Finding::Form);
        case("another type", frame, &|f| f[13] ^= 0x10, Finding::Form);
        case("another mark", frame, &|f| f[payload] ^= 1, Finding::Form);
        case("ARP", frame, &|f| f[12..14].copy_from_slice(&[8, 6]), Finding::Foreign);
        case("sink", frame, &|f| f[payload + 2] = 0, Finding::Sink);
        case("destination MAC", frame, &|f| f[5] ^= 0x80, Finding::DestinationMac);
        case("source MAC", frame, &|f| f[6] ^= 4, Finding::SourceMac);
        case("TTL not lessened", frame, &|f| f[ttl] += 1, Finding::Ttl);
        case("TTL lessened twice", frame, &|f| f[ttl] -= 1, Finding::Ttl);
        case("payload", frame, &|f| f[payload + 5] ^= 1, Finding::Payload);
        case("hash", frame, &|f| f[hash] ^= 1, Finding::Payload);
        case("destination", frame, &|f| f[payload + 8] ^= 1, Finding::Destination);
        // For IPv4 the header checksum shows it first.
        let finding = if ttl == 22 { Finding::Checksum } else { Finding::Destination };
        case("destination rewritten", frame, &|f| f[destination + 2] ^= 1, finding);
    }
    case("checksum", &four, &|f| f[24] ^= 1, Finding::Checksum);
    case("UDP checksum", &six, &|f| f[60] ^= 1, Finding::Payload);
    case("IPv6 multicast", &six, &|f| f[38] = 0xff, Finding::Foreign);
    cases
}

#[test]
fn each_kind_of_damage_is_found() {
    for (name, frame, finding) in broken() {
        assert_eq!(checker(1).check(&frame), finding, "{name}, {} bytes", frame.len());
    }
    let found = |wanted| broken().iter().any(|(_, _, finding)| *finding == wanted);
    assert!(Finding::ALL.into_iter().all(found), "a kind has no case");
}

#[test]
fn no_bit_can_change_unseen() {
    for frame in arrived() {
        for bit in 0..frame.len() * 8 {
            let mut frame = frame.clone();
            frame[bit / 8] ^= 1 << (bit % 8);
            assert_ne!(checker(1).check(&frame), Finding::Right, "bit {bit}");
        }
    }
}

/// Needs root, to load a program.
#[cfg(feature = "root-tests")]
#[test]
fn the_program_finds_what_its_twin_finds() {
    let counts = counters().unwrap();
    let program = checker(1).program(&counts).expect("this test needs root");
    let mut frames: Vec<Vec<u8>> = broken().into_iter().map(|(_, frame, _)| frame).collect();
    for frame in arrived() {
        for bit in 0..frame.len() * 8 {
            let mut frame = frame.clone();
            frame[bit / 8] ^= 1 << (bit % 8);
            frames.push(frame);
        }
    }
    let mut before = Findings::default();
    for frame in frames {
        let run = program.test_run(&frame, 1).unwrap();
        assert_eq!(run.retval, Action::Drop as u32);
        let after = read(&counts).unwrap();
        let mut wanted = Findings::default();
        wanted.add(checker(1).check(&frame));
        assert_eq!(after.since(before), wanted, "{frame:02x?}");
        before = after;
    }
}
