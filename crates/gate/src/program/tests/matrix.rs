//! The verdict of each shipped program on each kind of packet, row by row.

use wire::{ipv4, ipv6};

use super::shipped;
use crate::program::{Machine, Prepared, Program, ProgramVerdict};

const SECOND: u64 = 1_000_000_000;
const MS: u64 = 1_000_000;
const TCP: u8 = 6;
const UDP: u8 = 17;
const SYN: u8 = 0x02;
const ACK: u8 = 0x10;

const GO: ProgramVerdict = ProgramVerdict::Forward(Prepared { priority: 1, direct: false });
const DIRECT: ProgramVerdict = ProgramVerdict::Forward(Prepared { priority: 1, direct: true });
const RENEW: ProgramVerdict = ProgramVerdict::Forward(Prepared { priority: 2, direct: false });
const NO: ProgramVerdict = ProgramVerdict::Decline;

/// An IPv4 packet; `place` is the fragment field.
fn v4(protocol: u8, place: u16, payload: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0; 20];
    let total_len = 20 + payload.len() as u16;
    ipv4::Header { total_len, protocol, ttl: 64, ..Default::default() }.emit(&mut bytes).unwrap();
    bytes[6..8].copy_from_slice(&place.to_be_bytes());
    bytes.extend_from_slice(payload);
    bytes
}

/// An IPv6 packet with eight bytes of hop-by-hop options.
fn v6(protocol: u8, payload: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0; 40];
    let payload_len = 8 + payload.len() as u16;
    ipv6::Header { payload_len, next_header: 0, ..Default::default() }.emit(&mut bytes).unwrap();
    bytes.extend_from_slice(&[protocol, 0, 1, 4, 0, 0, 0, 0]);
    bytes.extend_from_slice(payload);
    bytes
}

fn tcp(src: u16, dst: u16, flags: u8) -> Vec<u8> {
    let mut segment = [&src.to_be_bytes()[..], &dst.to_be_bytes(), &[0; 16]].concat();
    (segment[12], segment[13]) = (0x50, flags);
    segment
}

fn udp(src: u16, dst: u16, data: &[u8]) -> Vec<u8> {
    let len = 8 + data.len() as u16;
    [&src.to_be_bytes()[..], &dst.to_be_bytes(), &len.to_be_bytes(), &[0; 2], data].concat()
}

fn icmp(kind: u8) -> Vec<u8> {
    vec![kind, 0, 0, 0, 0, 0, 0, 0]
}

/// Returns a DNS message with these flags and a question for `www.example.org` of a type.
fn dns(flags: u16, kind: u16) -> Vec<u8> {
    let mut message = [0, 7, (flags >> 8) as u8, flags as u8, 0, 1, 0, 0, 0, 0, 0, 0].to_vec();
    for label in ["www", "example", "org"] {
        message.push(label.len() as u8);
        message.extend_from_slice(label.as_bytes());
    }
    message.push(0);
    message.extend_from_slice(&kind.to_be_bytes());
    message.extend_from_slice(&[0, 1]);
    message
}

struct Flow {
    program: Program,
    machine: Machine,
    cookie: [u8; 64],
}

impl Flow {
    fn new(name: &str, now: u64, terms: &[u8]) -> Self {
        let mut cookie = [0; 64];
        cookie[..terms.len()].copy_from_slice(terms);
        let (program, mut machine) = (shipped(name), Machine::default());
        assert!(machine.init(&program, now, &mut cookie));
        Self { program, machine, cookie }
    }

    fn send(&mut self, now: u64, packet: &[u8], length: u32) -> ProgramVerdict {
        let answer =
            self.machine.packet(&self.program, now, u64::MAX, &mut self.cookie, packet, length);
        assert_eq!(self.machine.faults(), 0);
        answer
    }
}

/// Returns the parameters of programs with two limits.
fn terms(rate1: u32, rate2: u32, direct: u8) -> Vec<u8> {
    let each = [rate1, rate2, 240_000, 3_000].map(u32::to_le_bytes).concat();
    [each, vec![direct]].concat()
}

/// Checks a program's verdict on each packet without a limit, and for forwarded packets whether the
/// second limit applies: with that at zero they are dropped.
fn matrix(
    name: &str,
    open: &[u8],
    narrow: &[u8],
    go: ProgramVerdict,
    rows: &[(&str, Vec<u8>, ProgramVerdict, bool)],
) {
    for (what, packet, expect, second) in rows {
        let length = packet.len() as u32 + 14;
        let answer = Flow::new(name, 5, open).send(6, packet, length);
        assert_eq!(answer, *expect, "{name}: {what}");
        if answer == go {
            let answer = Flow::new(name, 5, narrow).send(6, packet, length);
            assert_eq!(answer, if *second { NO } else { go }, "{name}: {what}, second limit");
        }
    }
}

#[test]
fn granted_equals_the_granted_state() {
    use crate::state::{Decision, Grant, Outcome, Record, Stamp};
    let grant = Grant { rate_kib: 3, expire_s: 300, next_renewal_ms: 2_500, renewal_step_ms: 700 };
    let cookie = [3u32, 2_500, 700].map(u32::to_le_bytes).concat();
    let mut flow = Flow::new("granted", 9, &cookie);
    let mut record = Record::new(0);
    record.decide(9, &Decision::Grant(grant), Stamp::default());
    let mut rng = fastrand::Rng::with_seed(8);
    let (packet, mut now, mut seen) = (v4(TCP, 0, &tcp(1, 2, ACK)), 9, [0; 3]);
    while now < 290 * SECOND {
        now += rng.u64(..200 * MS);
        let length = rng.u32(60..1514);
        let (expect, at) = match record.packet(now, length) {
            Outcome::Granted { renew: false } => (GO, 0),
            Outcome::Granted { renew: true } => (RENEW, 1),
            _ => (NO, 2),
        };
        assert_eq!(flow.send(now, &packet, length), expect);
        seen[at] += 1;
    }
    assert!(seen.iter().all(|&times| times > 100), "{seen:?}");
}

#[test]
fn declined_drops_every_packet() {
    let mut flow = Flow::new("declined", 0, &[]);
    assert_eq!(flow.send(1, &v4(UDP, 0, &udp(1, 2, &[])), 60), NO);
}

#[test]
fn grantedv2_enforces_two_limits() {
    let (open, narrow) = (terms(100, 100, 0), terms(100, 0, 0));
    let rows = [
        ("TCP", v4(TCP, 0, &tcp(9, 9, ACK)), GO, false),
        ("UDP over IPv6", v6(UDP, &udp(9, 9, &[])), GO, false),
        ("a first fragment", v4(UDP, 0x2000, &udp(9, 9, &[])), GO, true),
        ("a later fragment", v4(TCP, 5, &[0; 64]), GO, true),
        ("ICMP", v4(1, 0, &icmp(8)), GO, true),
        ("GRE", v4(47, 0, &[0; 4]), GO, true),
        ("no packet", vec![0x45, 0, 0], ProgramVerdict::Error, false),
    ];
    matrix("grantedv2", &open, &narrow, GO, &rows);
    let direct = Flow::new("grantedv2", 5, &terms(100, 0, 1)).send(6, &rows[0].1, 60);
    assert_eq!(direct, DIRECT);
    // One KiB a second; dropped packets count, and a flow that does not slow down gets no packet
    // through.
    let mut flow = Flow::new("grantedv2", 0, &terms(1, 0, 0));
    let packet = &rows[0].1;
    assert_eq!(flow.send(1, packet, 1000), GO);
    for at in 0..10 {
        assert_eq!(flow.send(2 + at, packet, 1000), NO);
    }
    // 9,976 bytes in debt: nine seconds later it still is, after that it is not.
    assert_eq!(flow.send(9 * SECOND, packet, 0), NO);
    assert_eq!(flow.send(10 * SECOND, packet, 1), GO);
    assert_eq!(flow.send(1000 * SECOND, packet, 1024), RENEW);
    assert_eq!(flow.send(1000 * SECOND + 1, packet, 1), NO);
}

#[test]
fn renewal_request_goes_to_the_grantor() {
    let mut flow = Flow::new("grantedv2", 0, &terms(1000, 0, 1));
    let packet = v4(TCP, 0, &tcp(9, 9, ACK));
    let at =
        [239_999, 240_000, 240_001, 242_999, 243_000].map(|ms| flow.send(ms * MS, &packet, 60));
    assert_eq!(at, [DIRECT, RENEW, DIRECT, DIRECT, RENEW]);
}

#[test]
fn web_forwards_web_packets_only() {
    let rows = [
        ("HTTP", v4(TCP, 0, &tcp(4000, 80, ACK)), GO, false),
        ("HTTPS over IPv6", v6(TCP, &tcp(4000, 443, ACK)), GO, false),
        ("SSH", v4(TCP, 0, &tcp(4000, 22, ACK)), GO, false),
        ("FTP", v4(TCP, 0, &tcp(4000, 21, ACK)), GO, false),
        ("passive FTP", v4(TCP, 0, &tcp(4000, 51_999, ACK)), GO, false),
        ("beyond it", v4(TCP, 0, &tcp(4000, 52_000, ACK)), NO, false),
        ("another port", v4(TCP, 0, &tcp(80, 8080, ACK)), NO, false),
        ("a new connection", v4(TCP, 0, &tcp(4000, 80, SYN)), GO, true),
        ("a reflected answer", v4(TCP, 0, &tcp(4000, 80, SYN | ACK)), NO, false),
        ("half a header", v4(TCP, 0, &tcp(4000, 80, ACK)[..16]), NO, false),
        ("a first fragment", v4(TCP, 0x2000, &tcp(4000, 80, ACK)), GO, true),
        ("one to another port", v4(TCP, 0x2000, &tcp(4000, 25, ACK)), NO, false),
        ("a later fragment", v4(TCP, 9, &[0; 40]), GO, true),
        ("one of UDP", v4(UDP, 9, &[0; 40]), NO, false),
        ("UDP", v4(UDP, 0, &udp(4000, 443, &[])), NO, false),
        ("an echo request", v4(1, 0, &icmp(8)), GO, true),
        ("a redirect", v4(1, 0, &icmp(5)), NO, false),
        ("too big, IPv6", v6(58, &icmp(2)), GO, true),
        ("a router's advertisement", v6(58, &icmp(134)), NO, false),
        ("ICMP of IPv4 in IPv6", v6(1, &icmp(8)), NO, false),
    ];
    matrix("web", &terms(100, 100, 0), &terms(100, 0, 0), GO, &rows);
    matrix(
        "web",
        &terms(0, 0, 0),
        &terms(0, 0, 0),
        GO,
        &[("over limit", rows[0].1.clone(), NO, false)],
    );
}

#[test]
fn dns_forwards_queries_only() {
    let query = |flags, kind| v4(UDP, 0, &udp(4000, 53, &dns(flags, kind)));
    let mut two = udp(4000, 53, &dns(0x0100, 1));
    two[8 + 5] = 2;
    let mut pointer = udp(4000, 53, &dns(0x0100, 1));
    pointer[8 + 12] = 0xc0;
    let cut = &udp(4000, 53, &dns(0x0100, 1));
    let rows = [
        ("a query", query(0x0100, 1), GO, false),
        ("a query over IPv6", v6(UDP, &udp(4000, 53, &dns(0, 28))), GO, false),
        ("for everything", query(0x0100, 255), GO, true),
        ("for a zone", query(0, 252), GO, true),
        ("an answer", query(0x8180, 1), NO, false),
        ("an update", query(0x2800, 6), NO, false),
        ("two questions", v4(UDP, 0, &two), NO, false),
        ("a name that points", v4(UDP, 0, &pointer), NO, false),
        ("half a name", v4(UDP, 0, &cut[..30]), NO, false),
        ("no message", v4(UDP, 0, &cut[..8]), NO, false),
        ("another port", v4(UDP, 0, &udp(53, 4000, &dns(0x0100, 1))), NO, false),
        ("a fragment", v4(UDP, 0x2000, cut), NO, false),
        ("TCP", v4(TCP, 0, &tcp(4000, 53, ACK)), GO, false),
        ("a new connection", v4(TCP, 0, &tcp(4000, 53, SYN)), GO, true),
        ("a reflected answer", v4(TCP, 0, &tcp(4000, 53, SYN | ACK)), NO, false),
        ("an echo request", v6(58, &icmp(128)), GO, true),
    ];
    matrix("dns", &terms(100, 100, 0), &terms(100, 0, 0), GO, &rows);
}

/// Parameters of tcp-services.
fn services(rate: u32, listening: &[u16], remote: &[u16]) -> Vec<u8> {
    let counts = (listening.len() | remote.len() << 4) as u32;
    let mut params = [rate, 240_000, 3_000 | counts << 24].map(u32::to_le_bytes).concat();
    for port in listening.iter().chain(remote) {
        params.extend_from_slice(&port.to_le_bytes());
    }
    params
}

#[test]
fn tcp_services_forwards_listed_ports_only() {
    let rows = |narrow: bool| {
        let second = if narrow { NO } else { DIRECT };
        [
            ("to a port that listens", v4(TCP, 0, &tcp(4000, 25, ACK)), DIRECT),
            ("to the last of them", v6(TCP, &tcp(4000, 993, ACK)), DIRECT),
            ("a new connection", v4(TCP, 0, &tcp(4000, 25, SYN)), second),
            ("a reflected answer", v4(TCP, 0, &tcp(443, 25, SYN | ACK)), NO),
            ("from a port elsewhere", v4(TCP, 0, &tcp(443, 4000, ACK)), DIRECT),
            ("its answer", v4(TCP, 0, &tcp(443, 4000, SYN | ACK)), DIRECT),
            ("a connection from there", v4(TCP, 0, &tcp(443, 4000, SYN)), NO),
            ("from a port that listens here", v4(TCP, 0, &tcp(25, 4000, ACK)), NO),
            ("to a port elsewhere", v4(TCP, 0, &tcp(4000, 443, ACK)), NO),
            ("a later fragment", v4(TCP, 9, &[0; 40]), second),
            ("UDP", v4(UDP, 0, &udp(4000, 25, &[])), NO),
            ("unreachable", v4(1, 0, &icmp(3)), second),
        ]
    };
    // The second limit is a twentieth of the first: 204 bytes of 4 KiB.
    for (rate, narrow) in [(4, false), (1, true)] {
        for (what, packet, expect) in rows(narrow) {
            let mut flow =
                Flow::new("tcp-services", 5, &services(rate, &[25, 587, 993], &[443, 80]));
            assert_eq!(flow.send(6, &packet, 100), expect, "{what}, {rate} KiB");
        }
    }
    let all: Vec<u16> = (1..=12).collect();
    let mut flow = Flow::new("tcp-services", 5, &services(100, &all, &[]));
    assert_eq!(flow.send(6, &v4(TCP, 0, &tcp(4000, 12, ACK)), 60), DIRECT);
    // Thirteen ports are more than a program can have.
    let mut cookie = [0; 64];
    cookie[..36].copy_from_slice(&services(1, &all, &[])[..36]);
    cookie[11] = 12 | 1 << 4;
    let before = cookie;
    assert!(!Machine::default().init(&shipped("tcp-services"), 5, &mut cookie));
    assert_eq!(cookie, before);
}
