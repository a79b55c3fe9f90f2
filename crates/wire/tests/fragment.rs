//! Fragmentation: what a receiver reassembles from the fragments is the packet (RFC 791, 3.2).

use fingerpost_wire::fragment::Fragments;
use fingerpost_wire::{checksum, ipv4};
use proptest::collection::vec;
use proptest::prelude::*;

/// An end of options follows every option here, so that all of them can be parsed.
fn options() -> impl Strategy<Value = Vec<u8>> {
    let option = (any::<u8>(), 2usize..12).prop_map(|(kind, len)| match kind {
        0 => vec![],
        1 => vec![1],
        kind => {
            let mut option = vec![0xee; len];
            option[..2].copy_from_slice(&[kind, len as u8]);
            option
        }
    });
    vec(option, 0..4).prop_map(|options| {
        let mut bytes = options.concat();
        bytes.resize(bytes.len().min(40).next_multiple_of(4), 0);
        bytes
    })
}

fn packet(header: ipv4::Header<'_>, payload: &[u8]) -> Vec<u8> {
    let total_len = (20 + header.options.len() + payload.len()) as u16;
    let mut bytes = vec![0; total_len.into()];
    let len = ipv4::Header { total_len, ..header }.emit(&mut bytes).unwrap();
    bytes[len..].copy_from_slice(payload);
    bytes
}

/// Divides a packet for an MTU, or returns `None` if it is sent whole or refused.
fn divide(packet: &[u8], mtu: u16) -> Option<Vec<Vec<u8>>> {
    let fragments = Fragments::new(packet, mtu)?;
    let one = |number| {
        let mut bytes = vec![0; fragments.header_len()];
        assert!(fragments.write_header(number, &mut bytes));
        assert!(!fragments.write_header(number, &mut vec![0; fragments.header_len() - 1]));
        bytes.extend_from_slice(&packet[fragments.payload(number)]);
        bytes
    };
    assert!(fragments.payload(fragments.count()).is_empty());
    Some((0..fragments.count()).map(one).collect())
}

proptest! {
    #[test]
    fn fragments_are_reassembled_to_the_packet(
        payload in vec(any::<u8>(), 0..4000), options in options(), mtu in 0u16..4100,
        offset in 0u16..0x2000, more: bool, id: u16, reserved: bool, dont: bool,
    ) {
        let flags = u8::from(more) | u8::from(dont) << 1 | u8::from(reserved) << 2;
        let header = ipv4::Header {
            tos: 0xb9, id, flags, fragment_offset: offset, ttl: 63, protocol: 17,
            src: 0xc000_0201, dst: 0xcb00_7107, options: &options, ..Default::default()
        };
        let whole = packet(header, &payload);
        let header_len = 20 + options.len();
        let fits = whole.len() <= mtu.into();
        let Some(fragments) = divide(&whole, mtu) else {
            let end = usize::from(offset) + payload.len().div_ceil(8);
            prop_assert!(fits || dont || usize::from(mtu) < header_len + 8 || end > 0x2000);
            return Ok(());
        };
        prop_assert!(!fits && !dont && fragments.len() > 1);
        let mut reassembled = Vec::new();
        for (number, fragment) in fragments.iter().enumerate() {
            let view = ipv4::View::parse(&fragment[..]).unwrap();
            prop_assert!(view.checksum_ok());
            prop_assert_eq!(usize::from(view.total_len()), fragment.len());
            prop_assert!(fragment.len() <= mtu.into());
            prop_assert_eq!(usize::from(view.fragment_offset()), usize::from(offset) + reassembled.len() / 8);
            let is_last = number + 1 == fragments.len();
            prop_assert_eq!(view.flags(), u8::from(!is_last || more));
            if number + 2 == fragments.len() {
                // The last two would not fit as one.
                prop_assert!(fragment.len() + fragments[number + 1].len() - header_len > mtu.into());
            }
            if !is_last {
                // No more fragments than are necessary: another unit would exceed the MTU.
                prop_assert!(view.payload().len().is_multiple_of(8));
                prop_assert!(fragment.len() + 8 > mtu.into());
            }
            let fields = ipv4::Header { total_len: 0, flags: 0, fragment_offset: 0, options: &[], ..view.header() };
            prop_assert_eq!(fields, ipv4::Header { flags: 0, fragment_offset: 0, options: &[], ..header });
            if number == 0 || offset > 0 {
                prop_assert_eq!(view.options(), &options[..]);
            }
            prop_assert_eq!(view.header_len(), header_len);
            reassembled.extend_from_slice(view.payload());
        }
        prop_assert_eq!(reassembled, payload);
    }

    #[test]
    fn damaged_packet_is_divided_or_refused(bytes in vec(any::<u8>(), 0..200), mtu in 0u16..200) {
        let mut bytes = bytes;
        if let [first, _, high, ..] = &mut bytes[..] {
            *first = 0x40 | *first & 15;
            *high = 0;
        }
        if let Some(fragments) = divide(&bytes, mtu) {
            prop_assert!(fragments.iter().all(|fragment| fragment.len() <= mtu.into()));
        }
    }
}

/// Divides a packet of 100 bytes of payload for an MTU of 80.
fn divided(header: ipv4::Header<'_>) -> Vec<Vec<u8>> {
    divide(&packet(header, &[7; 100]), 80).unwrap()
}

/// Option types with the copied flag: router alert (RFC 2113), security; without it: record route,
/// timestamp (RFC 791, 3.1).
#[test]
fn options_without_the_copied_flag_are_in_the_first_fragment_only() {
    let options = [7, 7, 4, 0, 0, 0, 0, 1, 148, 4, 0, 0, 68, 4, 5, 0, 130, 3, 9, 0];
    let later = [1, 1, 1, 1, 1, 1, 1, 1, 148, 4, 0, 0, 1, 1, 1, 1, 130, 3, 9, 0];
    let header = ipv4::Header { options: &options, ttl: 9, ..Default::default() };
    let fragments = divided(header);
    let options_of = |bytes: &[u8]| bytes[20..40].to_vec();
    assert_eq!(fragments.len(), 3);
    assert_eq!(options_of(&fragments[0]), options);
    assert!(fragments[1..].iter().all(|fragment| options_of(fragment) == later));
    assert!(fragments.iter().all(|fragment| checksum::is_valid(&fragment[..40])));
    // A later fragment of a datagram has only such options already.
    let fragments = divided(ipv4::Header { fragment_offset: 10, ..header });
    assert!(fragments.iter().all(|fragment| options_of(fragment) == options));
    // Behind an end of options, or an option that cannot be parsed, nothing changes.
    for options in [[7, 3, 4, 0, 7, 3, 4, 0], [7, 3, 4, 7, 1, 7, 3, 4], [7, 3, 4, 7, 9, 7, 3, 4]] {
        let fragments = divided(ipv4::Header { options: &options, ..header });
        assert_eq!(fragments[1][20..28], [&[1, 1, 1], &options[3..]].concat());
    }
}
