//! Frames, against a slow parser that shares no code with the datapath.
//!
//! The first byte of an input selects the corrections of the rest, so that more inputs pass the
//! first check: the destination MAC, the EtherType, the header checksum.

use datapath::{Locals, Parsed, Verdict, parse};
use wire::ipv6;

const MAC: [u8; 6] = [2, 0, 0, 0, 0, 7];
const OWN_V4: u32 = 0xc000_0201;
const OWN_V6: u128 = 0x2001_0db8 << 96 | 1;

/// Counts of the results of inputs.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tally {
    /// Packets that may be forwarded.
    pub forwarded: u32,
    /// Others.
    pub ended: u32,
    /// IPv6 packets whose extension headers led to a protocol.
    pub chains: u32,
}

/// Plays one input.
///
/// # Panics
///
/// If the datapath and the slow parser differ.
pub fn packets(input: &[u8], tally: &mut Tally) {
    let Some((mode, bytes)) = input.split_first() else { return };
    let frame = repaired(*mode, bytes);
    let locals = Locals::new([OWN_V4], [OWN_V6]).with_sources_v4([OWN_V4]);
    let parsed = parse(&frame, MAC, &locals);
    assert_eq!(parsed, slowly(&frame), "{frame:02x?}");
    match parsed {
        Parsed::V4(_) | Parsed::V6(_) => tally.forwarded += 1,
        Parsed::Done(_) => tally.ended += 1,
    }
    let Some(packet) = frame.get(14..) else { return };
    if let Ok(view) = ipv6::View::parse(packet) {
        let upper = view.upper().ok().map(|upper| {
            let fragment = upper.fragment.map(|fragment| (fragment.offset, fragment.more));
            (upper.protocol, upper.offset, fragment)
        });
        assert_eq!(upper, chain(packet), "{packet:02x?}");
        tally.chains += u32::from(upper.is_some_and(|upper| upper.1 > 40));
    }
}

/// Applies the corrections of the mode.
fn repaired(mode: u8, bytes: &[u8]) -> Vec<u8> {
    let mut frame = bytes.to_vec();
    if mode & 1 != 0 && frame.len() >= 14 {
        frame[..6].copy_from_slice(&MAC);
    }
    match mode >> 1 & 3 {
        1 if frame.len() >= 34 => {
            frame[12..14].copy_from_slice(&[8, 0]);
            let header = 14 + usize::from(frame[14] % 16) * 4;
            if mode & 8 != 0 && (34..=frame.len()).contains(&header) {
                let sum = !sum(&frame[14..header], 10);
                frame[24..26].copy_from_slice(&sum.to_be_bytes());
            }
        }
        2 if frame.len() >= 54 => frame[12..14].copy_from_slice(&[0x86, 0xdd]),
        _ => {}
    }
    frame
}

fn word(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

/// Returns the ones' complement sum of a header without the word at `without`.
fn sum(header: &[u8], without: usize) -> u16 {
    let words = (0..header.len()).step_by(2).filter(|&at| at != without);
    let mut sum: u32 = words.map(|at| u32::from(word(header, at))).sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

fn number(bytes: &[u8]) -> u128 {
    bytes.iter().fold(0, |number, &byte| number << 8 | u128::from(byte))
}

fn slowly(frame: &[u8]) -> Parsed {
    match frame_verdict(frame) {
        Ok(parsed) => parsed,
        Err(verdict) => Parsed::Done(verdict),
    }
}

fn frame_verdict(frame: &[u8]) -> Result<Parsed, Verdict> {
    if frame.len() < 14 {
        return Err(Verdict::Runt);
    }
    let (ours, group) = (frame[..6] == MAC, frame[0] & 1 == 1);
    let kind = word(frame, 12);
    if !ours && !group {
        return Err(Verdict::NotOurs);
    }
    match kind {
        0x0800 | 0x86dd if frame[..6] == [0xff; 6] => Err(Verdict::Broadcast),
        0x0800 | 0x86dd if !ours => Err(Verdict::Multicast),
        0x0800 => v4(&frame[14..]),
        0x86dd => v6(&frame[14..]),
        0x0806 => Err(Verdict::Arp),
        0x8100 | 0x88a8 => Err(Verdict::Tagged),
        _ => Err(Verdict::EtherType),
    }
}

fn v4(packet: &[u8]) -> Result<Parsed, Verdict> {
    if packet.len() < 20 {
        return Err(Verdict::Truncated);
    }
    if packet[0] >> 4 != 4 {
        return Err(Verdict::BadVersion);
    }
    let header = usize::from(packet[0] % 16) * 4;
    let total = usize::from(word(packet, 2));
    if header < 20 {
        return Err(Verdict::BadHeaderLength);
    }
    if total < header {
        return Err(Verdict::BadTotalLength);
    }
    if total > packet.len() {
        return Err(Verdict::Truncated);
    }
    // In ones' complement 0 and 0xffff are the same number.
    if !matches!(sum(&packet[..header], usize::MAX), 0 | 0xffff) {
        return Err(Verdict::BadChecksum);
    }
    let mut at = 20;
    while at < header && packet[at] != 0 {
        match packet[at] {
            1 => at += 1,
            131 | 137 => return Err(Verdict::SourceRoute),
            _ if at + 1 >= header || packet[at + 1] < 2 => break,
            _ => at += usize::from(packet[at + 1]),
        }
    }
    let (src, dst) = (number(&packet[12..16]) as u32, number(&packet[16..20]) as u32);
    if dst == OWN_V4 {
        return Err(Verdict::OwnAddress);
    }
    let ([d, e, ..], [s, ..]) = (dst.to_be_bytes(), src.to_be_bytes());
    match (d, e) {
        _ if dst == u32::MAX => return Err(Verdict::Broadcast),
        (224..=239, _) => return Err(Verdict::Multicast),
        (127, _) => return Err(Verdict::Loopback),
        _ if dst == 0 => return Err(Verdict::MartianDestination),
        (169, 254) => return Err(Verdict::LinkLocal),
        _ => {}
    }
    match s {
        127 => return Err(Verdict::Loopback),
        224..=239 => return Err(Verdict::MulticastSource),
        _ if [0, u32::MAX, OWN_V4].contains(&src) => return Err(Verdict::MartianSource),
        _ => {}
    }
    if packet[8] < 2 { Err(Verdict::TtlExpired) } else { Ok(Parsed::V4(dst)) }
}

fn v6(packet: &[u8]) -> Result<Parsed, Verdict> {
    if packet.len() < 40 {
        return Err(Verdict::Truncated);
    }
    if packet[0] >> 4 != 6 {
        return Err(Verdict::BadVersion);
    }
    if 40 + usize::from(word(packet, 4)) > packet.len() {
        return Err(Verdict::Truncated);
    }
    let (src, dst) = (number(&packet[8..24]), number(&packet[24..40]));
    if dst == OWN_V6 {
        return Err(Verdict::OwnAddress);
    }
    if dst >> 120 == 0xff {
        return Err(Verdict::Multicast);
    }
    for (address, martian) in [(dst, Verdict::MartianDestination), (src, Verdict::MartianSource)] {
        if address == 1 {
            return Err(Verdict::Loopback);
        }
        if address >> 120 == 0xff {
            return Err(Verdict::MulticastSource);
        }
        if address == 0 || address >> 32 == 0xffff {
            return Err(martian);
        }
        if address >> 118 == 0xfe80 >> 6 {
            return Err(Verdict::LinkLocal);
        }
    }
    if packet[7] < 2 { Err(Verdict::TtlExpired) } else { Ok(Parsed::V6(dst)) }
}

/// A protocol, its offset, the fragment's offset, and whether more fragments follow.
type Upper = (u8, usize, Option<(u16, bool)>);

/// Walks the extension headers of an IPv6 packet whose length is right.
fn chain(packet: &[u8]) -> Option<Upper> {
    let end = 40 + usize::from(word(packet, 4));
    let (mut protocol, mut at, mut fragment) = (packet[6], 40, None);
    let mut headers = 0;
    loop {
        if !matches!(protocol, 0 | 43 | 44 | 51 | 60) {
            return Some((protocol, at, fragment));
        }
        headers += 1;
        if headers > ipv6::MAX_EXTENSIONS || (protocol == 0 && headers > 1) || at + 8 > end {
            return None;
        }
        let length = usize::from(packet[at + 1]);
        let length = match protocol {
            44 => 8,
            51 => 4 * (length + 2),
            _ => 8 * (length + 1),
        };
        if at + length > end {
            return None;
        }
        if protocol == 44 {
            fragment = Some((word(packet, at + 2) >> 3, packet[at + 3] & 1 == 1));
        }
        (protocol, at) = (packet[at], at + length);
        if fragment.is_some_and(|(place, _)| place > 0) {
            return Some((protocol, at, fragment));
        }
    }
}
