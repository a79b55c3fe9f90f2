//! SYN cookies: each answer byte for byte, its receiver, the rate limit, and the counters.

use datapath::Verdict;
use wire::checksum::{pseudo_ipv4, pseudo_ipv6};
use wire::{ethernet, ipv4, ipv6, tcp};

use super::{MS, OUTSIDE6, PROTECTED, Rig, config};
use crate::packets::{OWN4, mac};
use crate::packets::{ether, v4_with, v6_with};

const SIX: u128 = 0x2001_0db8 << 96;
const ASKING: &str = "[admission]\nthreshold = 0.0\naddress_validation = \"syn-cookie\"";

fn header(flags: u8, sequence: u32) -> tcp::Header<'static> {
    let options = if flags == tcp::SYN { &[2, 4, 5, 180, 1, 3, 3, 7][..] } else { &[] };
    tcp::Header { src_port: 40_000, dst_port: 443, sequence, flags, options, ..Default::default() }
}

fn four(src: u32, flags: u8, sequence: u32) -> Vec<u8> {
    let segment = header(flags, sequence);
    let len = (tcp::LEN + segment.options.len()) as u16;
    let (protocol, dst) = (tcp::PROTOCOL, PROTECTED);
    let ip = ipv4::Header { ttl: 9, protocol, src, dst, total_len: 20 + len, ..Default::default() };
    let mut frame = v4_with(ip, 0);
    segment.emit(&mut frame[34..], pseudo_ipv4(src, dst, protocol, len)).unwrap();
    frame
}

fn six(src: u128, flags: u8, sequence: u32) -> Vec<u8> {
    let segment = header(flags, sequence);
    let len = (tcp::LEN + segment.options.len()) as u16;
    let (src, dst) = (OUTSIDE6 | src, SIX | 9);
    let ip = ipv6::Header {
        payload_len: len,
        next_header: tcp::PROTOCOL,
        hop_limit: 9,
        src,
        dst,
        ..Default::default()
    };
    let mut frame = v6_with(ip, 0);
    segment.emit(&mut frame[54..], pseudo_ipv6(src, dst, tcp::PROTOCOL, len.into())).unwrap();
    frame
}

fn rig(more: &str) -> Rig {
    Rig::new(config("1gbit", &format!("{ASKING}\n{more}")))
}

#[test]
fn cookie_answers_its_syn_and_a_reset_with_it_makes_an_entry() {
    for make in [|flags, n| four(0xc000_0201, flags, n), |flags, n| six(1 << 16, flags, n)] {
        let mut rig = rig("");
        let syn: Vec<u8> = make(tcp::SYN, 77);
        rig.far[0].send(&syn);
        rig.rest();
        let got = rig.far[0].take().expect("the SYN is answered");
        assert_eq!(
            (&got[..6], &got[6..12], &got[12..14]),
            (&syn[6..12], &mac(0)[..], &syn[12..14])
        );
        assert!(got.len() <= syn.len(), "{} bytes for {}", got.len(), syn.len());
        let (segment, pseudo) = if got[12] == 0x86 {
            let ip = ipv6::View::parse(&got[14..]).unwrap();
            assert_eq!((ip.src(), ip.dst(), ip.hop_limit()), (SIX | 9, OUTSIDE6 | 1 << 16, 64));
            let pseudo = pseudo_ipv6(ip.src(), ip.dst(), tcp::PROTOCOL, 20);
            (got[54..].to_vec(), pseudo)
        } else {
            let ip = ipv4::View::parse(&got[14..]).unwrap();
            assert_eq!((ip.src(), ip.dst(), ip.ttl()), (PROTECTED, 0xc000_0201, 64));
            assert!(ip.checksum_ok() && ip.total_len() == 40);
            (got[34..].to_vec(), pseudo_ipv4(ip.src(), ip.dst(), tcp::PROTOCOL, 20))
        };
        let answer = tcp::View::parse(&segment[..]).unwrap();
        assert!(answer.checksum_ok(pseudo));
        assert_eq!((answer.src_port(), answer.dst_port()), (443, 40_000));
        assert_eq!((answer.flags(), answer.window()), (tcp::SYN | tcp::ACK, 0));
        assert_ne!(answer.acknowledgement(), 78);
        rig.far[0].send(&make(tcp::RST, answer.acknowledgement()));
        rig.rest();
        assert_eq!((rig.far[0].take(), rig.far[1].take()), (None, None));
        rig.far[0].send(&syn);
        rig.rest();
        assert!(rig.far[1].take().is_some(), "the SYN goes on");
        assert_eq!((rig.count(Verdict::SynCookie), rig.count(Verdict::CookieReset)), (1, 1));
        assert_eq!(rig.counters.packets("syn_cookie"), 1);
        assert_eq!(rig.worker.stats().snapshot().originated, 1);
        rig.check();
    }
}

/// The gate's own address, its links' broadcast address, and senders with a group or the gate's MAC
/// address.
#[test]
fn syn_without_a_valid_sender_gets_no_cookie() {
    let mut rig = rig("");
    let mut odd = vec![four(OWN4, tcp::SYN, 1)];
    for src in [[0xff; 6], [1, 0, 0x5e, 0, 0, 1], mac(0)] {
        let mut frame = four(0xc000_0202, tcp::SYN, 1);
        ether(&mut frame, ethernet::IPV4);
        frame[6..12].copy_from_slice(&src);
        odd.push(frame);
    }
    for frame in &odd {
        rig.far[0].send(frame);
        rig.clock.fetch_add(5_000 * MS, std::sync::atomic::Ordering::Relaxed);
        rig.rest();
        assert_eq!((rig.far[0].take(), rig.far[1].take()), (None, None));
    }
    // Impossible sources are dropped before the gate.
    for src in [0u32, 0x7f00_0001, 0xe000_0001, u32::MAX] {
        rig.far[0].send(&four(src, tcp::SYN, 1));
        rig.rest();
        assert_eq!(rig.far[0].take(), None);
    }
    assert_eq!((rig.count(Verdict::SynCookie), rig.count(Verdict::Forged)), (3, 1));
    assert_eq!(rig.worker.stats().snapshot().originated, 0);
    rig.check();
}

/// A flood of SYNs, each twice, with granted packets in between: the cookies keep to their rate, they
/// delay no other packet, nothing is allocated, and every packet is counted.
#[test]
fn flood_gets_cookies_up_to_the_rate_limit() {
    let mut rig = rig("syn_cookie_rate = 2000");
    let friend = gate::flow::Flow::v4(0xc000_0263, PROTECTED);
    rig.grant(friend, 1 << 20);
    let (mut answers, mut granted) = (0, 0);
    for step in 0..1000u32 {
        for n in 0..20 {
            let src = 0xc800_0000 + step * 20 + n;
            rig.far[0].send(&four(src, tcp::SYN, step));
            rig.far[0].send(&four(src, tcp::SYN, step));
        }
        rig.far[0].send(&four(0xc000_0263, tcp::ACK, step));
        let allocated = allocation_counter::measure(|| {
            for _ in 0..10 {
                rig.clock.fetch_add(MS / 10, std::sync::atomic::Ordering::Relaxed);
                rig.worker.poll();
            }
        });
        assert_eq!(allocated.count_total, 0);
        while let Some(got) = rig.far[0].take() {
            answers += 1;
            assert_eq!(got.len(), 54);
        }
        while let Some(got) = rig.far[1].take() {
            granted += u32::from(got[15] >> 2 == 1);
        }
        rig.check();
    }
    // Two thousand in a second, and a burst of forty.
    assert!((2000..=2041).contains(&answers), "{answers}");
    assert_eq!(granted, 1000);
    assert_eq!(rig.count(Verdict::SynCookie), answers);
    assert_eq!(rig.worker.stats().snapshot().originated, answers);
    let ended =
        ["request", "granted", "syn_cookie", "cookie_reset"].map(|name| rig.counters.packets(name));
    assert_eq!(rig.counters.packets("received"), ended.iter().sum::<u64>());
    assert_eq!(rig.counters.packets("received"), 41_000);
}
