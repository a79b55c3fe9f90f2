//! Tunnels: decapsulation equals a reference, and an encapsulated packet is decapsulated unchanged.
//!
//! ```text
//!   bytes ─► decapsulate ─► addresses, DSCP, offset: as read by index; inner bytes: unchanged except ECN
//!   bytes as an inner packet ─► tunnel header ─► decapsulate ─► the same bytes
//! ```

use gate::grantor::{DecapsulationError, decapsulate_with};
use gate::policy::Address;
use wire::tunnel::{Ends, Header, Ports};
use wire::{ipv4, ipv6};

const PORT: u16 = 6080;

/// Counts of the results of inputs.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tally {
    /// Inputs that were tunnels by themselves.
    pub opened: u32,
    /// Inputs that were not.
    pub closed: u32,
    /// Inner packets that were encapsulated and decapsulated.
    pub round: u32,
}

/// Plays one input: two bytes of choices and a packet.
///
/// # Panics
///
/// If a decapsulated packet differs.
pub fn tunnels(input: &[u8], tally: &mut Tally) {
    let [choice, tos, packet @ ..] = input else { return };
    whole(packet, (choice & 1 != 0).then_some(PORT), tally);
    inner(packet, *choice, *tos, tally);
}

/// Decapsulates the input itself.
fn whole(packet: &[u8], port: Option<u16>, tally: &mut Tally) {
    let mut bytes = packet.to_vec();
    let opened = match decapsulate_with(&mut bytes, port) {
        Ok(opened) => opened,
        Err(closed) => {
            tally.closed += 1;
            if closed != DecapsulationError::Congested {
                assert_eq!(bytes, packet, "rejected, but changed");
            }
            return;
        }
    };
    tally.opened += 1;
    let word = |at: usize| usize::from(packet[at]) << 8 | usize::from(packet[at + 1]);
    let number = |from: usize, to: usize| {
        packet[from..to].iter().fold(0, |number, &byte| number << 8 | u128::from(byte))
    };
    let (tos, header, total, from, to) = match packet[0] >> 4 {
        4 => {
            assert_eq!(word(6) & 0x3fff, 0, "a fragment");
            let address = |at| Address::V4(number(at, at + 4) as u32);
            (packet[1], usize::from(packet[0] & 15) * 4, word(2), address(12), address(16))
        }
        6 => {
            let tos = packet[0] << 4 | packet[1] >> 4;
            let address = |at| Address::V6(number(at, at + 16));
            (tos, 40, 40 + word(4), address(8), address(24))
        }
        version => panic!("opened version {version}"),
    };
    assert_eq!((opened.gate, opened.to), (from, to));
    assert_eq!(opened.dscp, tos >> 2);
    assert!(header <= opened.offset && opened.offset < opened.end && opened.end <= total);
    assert!(total <= packet.len());
    // Only the inner packet's ECN bits, and the checksum over them, have changed.
    let inner = opened.offset;
    let may_change = match packet[inner] >> 4 {
        4 => [inner + 1, inner + 10, inner + 11],
        6 => [inner + 1; 3],
        version => panic!("an inner packet of version {version}"),
    };
    for at in (0..packet.len()).filter(|at| !may_change.contains(at)) {
        assert_eq!(bytes[at], packet[at], "byte {at} has changed");
    }
    let ecn = |bytes: &[u8]| match bytes[inner] >> 4 {
        4 => bytes[inner + 1] & 3,
        _ => bytes[inner + 1] >> 4 & 3,
    };
    // RFC 6040, figure 4, as printed.
    let (before, outer) = (ecn(packet), tos & 3);
    let expected = match (before, outer) {
        (0, 3) => panic!("not capable, and congested: to be dropped"),
        (0, _) => 0,
        (3, _) | (_, 3) => 3,
        (2, 1) => 1,
        (inner, _) => inner,
    };
    assert_eq!(ecn(&bytes), expected);
    // A mark of the sender is not from the path.
    assert_eq!(opened.congested, outer == 3 && before != 3);
}

/// Encapsulates the input and decapsulates it.
fn inner(packet: &[u8], choice: u8, tos: u8, tally: &mut Tally) {
    let sound = ipv4::View::parse(packet).is_ok() || ipv6::View::parse(packet).is_ok();
    if !sound || packet.len() > 9000 {
        return;
    }
    let ends = match choice & 2 {
        0 => Ends::V4 { src: 0x0a02_0001, dst: 0x0a09_0164 },
        _ => Ends::V6 { src: 5 << 64, dst: 7 << 64, flow_label: u32::from(tos) },
    };
    let udp = (choice & 1 != 0).then_some(Ports::of(u32::from(tos), PORT));
    let header = Header { ends, dscp: tos >> 2, hop_limit: 64, udp };
    let mut bytes = vec![0; header.len()];
    bytes.extend_from_slice(packet);
    header.emit(&mut bytes).expect("there is room, and the inner packet is sound");
    let opened = decapsulate_with(&mut bytes, Some(PORT)).expect("a sealed packet opens");
    assert_eq!((opened.offset, opened.end, opened.dscp), (header.len(), bytes.len(), tos >> 2));
    assert_eq!(&bytes[opened.offset..opened.end], packet, "no mark was made on the path");
    tally.round += 1;
}
