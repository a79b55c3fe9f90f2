//! A captured packet as a line.
//!
//! ```text
//!   2026-11-30T14:25:01.123456789Z r1 in dropped no_route worker 0 length 60: 192.0.2.1 > 8.8.8.8 protocol 17
//!   2026-11-30T14:25:01.123456790Z r1 in dropped blocked driver length 60: 198.51.100.1 > 8.8.8.8 protocol 17
//! ```

use api::{CaptureDirection, CapturedPacket};
use datapath::{Class, Verdict};
use jiff::Timestamp;
use wire::{ethernet, ipv4, ipv6, vlan};

use super::packet_bytes;

/// Returns the line of a packet. With the time 0 it has neither time nor worker.
pub(crate) fn packet_line(packet: &CapturedPacket) -> anyhow::Result<String> {
    let CapturedPacket { time_ns, worker, interface, direction, verdict, length, .. } = packet;
    let (time, worker) = match time_ns {
        0 => (String::new(), String::new()),
        time => {
            let time = Timestamp::from_nanosecond(i128::from(*time))?;
            let place = worker.map_or(" driver".to_owned(), |worker| format!(" worker {worker}"));
            (format!("{time:.9} "), place)
        }
    };
    let direction = match direction {
        CaptureDirection::In => "in",
        CaptureDirection::Out => "out",
    };
    let verdict = match verdict.as_deref() {
        None => "arrival".to_owned(),
        Some(name) => match Verdict::with_name(name) {
            Some(verdict) if verdict.class() == Class::Punted => format!("punted {name}"),
            Some(verdict) if verdict.class() == Class::Dropped => format!("dropped {name}"),
            _ => name.to_owned(),
        },
    };
    let content = content(&packet_bytes(packet)?);
    let rule = packet.rule.as_ref().map(|rule| format!(" rule {rule}")).unwrap_or_default();
    Ok(format!("{time}{interface} {direction} {verdict}{rule}{worker} length {length}: {content}"))
}

/// Describes a frame.
fn content(frame: &[u8]) -> String {
    let Ok(header) = ethernet::View::parse(frame) else { return "no Ethernet header".to_owned() };
    let (mut kind, mut at, mut tags) = (header.kind(), ethernet::LEN, String::new());
    while vlan::is_tag(kind)
        && let Some(&[a, b, c, d]) = frame.get(at..).and_then(<[u8]>::first_chunk)
    {
        tags += &format!("vlan {} ", u16::from_be_bytes([a, b]) & 0xfff);
        kind = u16::from_be_bytes([c, d]);
        at += vlan::LEN;
    }
    let packet = frame.get(at..).unwrap_or_default();
    let text = match kind {
        ethernet::IPV4 => ipv4::View::parse(packet).map_or_else(
            |error| format!("IPv4, {error:?}"),
            |view| {
                let [src, dst] = [view.src(), view.dst()].map(std::net::Ipv4Addr::from);
                format!("{src} > {dst} protocol {} ttl {}", view.protocol(), view.ttl())
            },
        ),
        ethernet::IPV6 => ipv6::View::parse(packet).map_or_else(
            |error| format!("IPv6, {error:?}"),
            |view| {
                let [src, dst] = [view.src(), view.dst()].map(std::net::Ipv6Addr::from);
                format!(
                    "{src} > {dst} next-header {} hop-limit {}",
                    view.next_header(),
                    view.hop_limit()
                )
            },
        ),
        ethernet::ARP => "ARP".to_owned(),
        kind => format!("EtherType 0x{kind:04x}"),
    };
    tags + &text
}
