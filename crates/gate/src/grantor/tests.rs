//! Policies against packets: results, lists, and the limits of faulty policies.

use std::sync::Arc;
use std::time::{Duration, Instant};

use fib::Publisher;
use wire::{ipv4, ipv6, tunnel};

use super::shipped::POLICIES;
use super::{
    DecapsulationError, Grantor, Limits, List, Lists, PolicyResult, Request, RequestOutcome,
    decapsulate,
};
use crate::decision::{FlowCommand, Item, ProgramDecision, Scope, v1};
use crate::flow::{Flow, Key};
use crate::gate::{Gate, Packet, Verdict};
use crate::policy::{Action, Address, Grantor as At, PolicyBuilder};
use crate::program::Machine;
use crate::program::tests::shipped;
use crate::state::{Decision, Grant, Provisional, Stamp, Traffic};

const SECOND: u64 = 1_000_000_000;
const SERVER: u32 = 0xc000_0207;

/// A SYN from an address to a port of the server.
pub(super) fn syn(src: u32, port: u16) -> Vec<u8> {
    let mut bytes = vec![0; 40];
    let header = ipv4::Header {
        total_len: 40,
        protocol: 6,
        ttl: 60,
        src,
        dst: SERVER,
        ..Default::default()
    };
    header.emit(&mut bytes).unwrap();
    bytes[20..24].copy_from_slice(&[
        (4000u16 >> 8) as u8,
        4000u16 as u8,
        (port >> 8) as u8,
        port as u8,
    ]);
    (bytes[32], bytes[33]) = (0x50, 0x02);
    bytes
}

fn syn6(src: u128) -> Vec<u8> {
    let mut bytes = vec![0; 60];
    let header =
        ipv6::Header { payload_len: 20, next_header: 6, src, dst: 7, ..Default::default() };
    header.emit(&mut bytes).unwrap();
    bytes[43] = 80;
    bytes
}

pub(super) fn lists(texts: &[(&str, &str)]) -> Lists {
    let list = |text| Arc::new(List::parse(text).unwrap());
    texts.iter().map(|(name, text)| ((*name).to_owned(), list(text))).collect()
}

pub(super) fn grantor(policy: &str, lists: &Publisher<Lists>) -> Grantor {
    Grantor::new(policy, lists.reader(), Limits::default()).unwrap()
}

fn ask(
    grantor: &mut Grantor,
    now: u64,
    packet: &[u8],
    dscp: u8,
    congested: bool,
) -> RequestOutcome {
    let mut decided = Vec::new();
    grantor.decide(now, &[Request { packet, dscp, congested }], &mut decided);
    assert_eq!(decided.len(), 1);
    decided[0]
}

/// Returns the policy's command for a SYN to port 80 at second 1, or its error.
fn decide_syn(policy: &str) -> Result<Option<FlowCommand>, String> {
    let none = Publisher::new(Lists::new());
    let mut grantor = grantor(policy, &none);
    let decided = ask(&mut grantor, SECOND, &syn(1, 80), 41, false);
    match grantor.last_error() {
        Some(error) => Err(error),
        None => Ok(decided.item.map(|item| item.command)),
    }
}

fn grants(rate_kib: u32, expire_s: u32, next_renewal_ms: u32, renewal_step_ms: u32) -> FlowCommand {
    FlowCommand::Decide(Decision::Grant(Grant {
        rate_kib,
        expire_s,
        next_renewal_ms,
        renewal_step_ms,
    }))
}

fn declines(expire_s: u32) -> FlowCommand {
    declines_some(expire_s, Traffic::All)
}

fn declines_some(expire_s: u32, traffic: Traffic) -> FlowCommand {
    FlowCommand::Decide(Decision::Provisional(Provisional { expire_s, traffic }))
}

fn declines_proven(expire_s: u32) -> FlowCommand {
    FlowCommand::Decide(Decision::Decline { expire_s })
}

#[test]
fn policy_reads_the_packets_fields() {
    let policy = r#"
        function decide(p)
            local seen = { p.src, p.dst, p.version, p.protocol, p.src_port, p.dst_port, p.length,
                p.ttl, p.dscp, p.tcp_flags, p.syn, p.fragment, p.renewal, p.congested, p.icmp_type,
                p:src_prefix(24, 48), now() }
            for at = 1, 17 do seen[at] = tostring(seen[at]) end
            error(table.concat(seen, " "), 0)
        end"#;
    let error = decide_syn(policy).unwrap_err();
    let seen = "0.0.0.1 192.0.2.7 4 6 4000 80 40 60 41 2 true false false false nil 0.0.0.0/24 1.0";
    assert!(error.contains(seen), "{error}");
    let none = Publisher::new(Lists::new());
    let mut grantor = grantor(policy, &none);
    ask(&mut grantor, 2 * SECOND, &syn6(0x2001_0db8 << 96), 2, true);
    let error = grantor.last_error().unwrap();
    let seen = "2001:db8:: ::7 6 6 0 80 60 0 2 0 false false true true nil 2001:db8::/48 2.0";
    assert!(error.contains(seen), "{error}");
}

#[test]
fn result_of_a_policy_is_parsed() {
    let grant = decide_syn("function decide(p) return grant { rate = 100 } end");
    assert_eq!(grant, Ok(Some(grants(100, 300, 240_000, 3_000))));
    let grant = decide_syn(
        "function decide(p) return grant { rate = 1.5, expire = 9, renewal = 0.5, step = 2 } end",
    );
    assert_eq!(grant, Ok(Some(grants(1, 9, 500, 2_000))));
    assert_eq!(decide_syn("function decide(p) return decline(60) end"), Ok(Some(declines(60))));
    for (terms, declined) in [
        ("expire = 6", declines(6)),
        ("expire = 6, proven = true", declines_proven(6)),
        ("expire = 6, protocol = p.protocol", declines_some(6, Traffic::Protocol(6))),
        (
            "expire = 6, protocol = 6, port = p.dst_port",
            declines_some(6, Traffic::Port { protocol: 6, port: 80 }),
        ),
    ] {
        let policy = format!("function decide(p) return decline {{ {terms} }} end");
        assert_eq!(decide_syn(&policy), Ok(Some(declined)), "{terms}");
    }
    assert_eq!(decide_syn("function decide(p) end"), Ok(None));
    assert_eq!(decide_syn("function decide(p) return pass() end"), Ok(None));
    let run = decide_syn("function decide(p) return run { program = 7, cookie = 'ab' } end");
    let mut cookie = [0; 64];
    cookie[..2].copy_from_slice(b"ab");
    assert_eq!(
        run,
        Ok(Some(FlowCommand::Run(ProgramDecision { expire_s: 300, program: 7, cookie })))
    );
    for (bad, why) in [
        ("grant {}", "no `rate`"),
        ("grant { rate = -1 }", "`rate` cannot"),
        ("grant { rate = 0/0 }", "`rate` cannot"),
        ("decline(2^40)", "`expire` cannot"),
        ("decline { expire = 1, protocol = 256 }", "`protocol` cannot"),
        ("decline { expire = 1, protocol = 6, port = 65536 }", "`port` cannot"),
        ("decline { expire = 1, port = 80 }", "a `port` without its `protocol`"),
        ("decline { expire = 1, proven = true, protocol = 6 }", "about the whole flow"),
        ("run { program = 256 }", "`program` cannot"),
        ("run { program = 1, cookie = string.rep('x', 65) }", "`cookie` cannot"),
        ("{ kind = 'flush' }", "`kind` cannot"),
        ("7", "neither a decision nor nil"),
    ] {
        let error = decide_syn(&format!("function decide(p) return {bad} end")).unwrap_err();
        assert!(error.contains(why), "{bad}: {error}");
    }
}

#[test]
fn invalid_policy_is_rejected() {
    let none = Publisher::new(Lists::new());
    let load =
        |policy| Grantor::new(policy, none.reader(), Limits::default()).map(|_| ()).unwrap_err().0;
    assert!(load("function decide(").contains("policy:1"));
    assert!(load("x = 1").contains("no function named `decide`"));
    assert!(load("local a = list 'nowhere'").contains("no list named `nowhere`"));
    assert!(load("while true do end").contains("limit of instructions"));
    // The running policy stays with its state when a new one is invalid.
    let counting = "local s = store(9) function decide(p) return decline(s:add('n', 1)) end";
    let mut grantor = grantor(counting, &none);
    let say = |grantor: &mut Grantor| ask(grantor, 1, &syn(1, 80), 41, false).item.unwrap().command;
    assert_eq!(say(&mut grantor), declines(1));
    assert!(grantor.reload("nonsense here").is_err());
    assert_eq!(say(&mut grantor), declines(2));
    grantor.reload("function decide(p) return decline(77) end").unwrap();
    assert_eq!(say(&mut grantor), declines(77));
    assert_eq!(grantor.counts().declined, 3);
}

#[test]
fn failing_policy_does_not_stop_traffic() {
    let policy = r#"
        local kept = {}
        function decide(p)
            if p.dst_port == 1 then while true do end end
            if p.dst_port == 2 then while true do kept[#kept + 1] = string.rep("x", 1000000) end end
            if p.dst_port == 3 then error "no" end
            if p.dst_port == 4 then return p.nothing.more end
            if p.dst_port == 5 then local function f() return 1 + f() end f() end
            if p.dst_port == 6 then return string.rep("x", 1 << 40) end
            kept = {}
            return grant { rate = 1 }
        end"#;
    let none = Publisher::new(Lists::new());
    let fallback = PolicyResult { command: Some(grants(5, 6, 7, 8)), deliver: true };
    let limits = Limits { fallback, memory: 8 << 20, ..Limits::default() };
    let mut grantor = Grantor::new(policy, none.reader(), limits).unwrap();
    let began = Instant::now();
    for round in 0..5 {
        for port in 1..=6 {
            let decided = ask(&mut grantor, 1, &syn(1, port), 41, false);
            assert_eq!(decided.item.unwrap().command, grants(5, 6, 7, 8), "{round}, {port}");
            assert!(decided.deliver);
            // The next packet is decided as usual.
            let decided = ask(&mut grantor, 1, &syn(1, 80), 41, false);
            assert_eq!(decided.item.unwrap().command, grants(1, 300, 240_000, 3_000), "{port}");
        }
    }
    assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
    let counts = *grantor.counts();
    // The loop and the recursion exceed the time, the others end with errors.
    assert_eq!((counts.over_time, counts.failed, counts.granted), (10, 20, 60));
    assert!(grantor.memory() < 8 << 20);
}

#[test]
fn policy_cannot_catch_the_limits() {
    for gone in [
        "pcall",
        "xpcall",
        "load",
        "dofile",
        "coroutine",
        "debug",
        "io",
        "os",
        "require",
        "setmetatable",
        "getmetatable",
        "utf8",
        "collectgarbage",
        "string.find",
        "string.match",
        "string.gmatch",
        "string.gsub",
        "string.dump",
    ] {
        let policy = format!("function decide(p) return {gone} == nil and decline(1) or nil end");
        assert_eq!(decide_syn(&policy), Ok(Some(declines(1))), "{gone}");
    }
    // String methods are those of the library.
    assert!(decide_syn("function decide(p) return ('x'):find('x') end").is_err());
}

#[test]
fn running_policy_sees_new_lists() {
    let policy = r#"
        local names = list "names"
        function decide(p)
            local name = p:src_in(names)
            if name == "friends" then return grant { rate = 1000 } end
            if name == true then return decline(1) end
            if name then return decline(name) end
            if p:dst_in(names) then return decline(999) end
        end"#;
    let texts = "10.0.0.0/8 friends\n10.9.0.0/16 50\n11.0.0.0/8\n2001:db8::/32 60\n";
    let mut published = Publisher::new(lists(&[("names", texts)]));
    let mut grantor = grantor(policy, &published);
    let packets = [
        syn(0x0a01_0000, 80),
        syn(0x0a09_0000, 80),
        syn6(0x2001_0db8 << 96),
        syn(0x0b00_0000, 80),
        syn(0x0c00_0000, 80),
        vec![0x45, 0],
    ];
    // More than a batch, in an order that mixes the families.
    let requests: Vec<Request<'_>> = (0..120)
        .map(|at| Request { packet: &packets[at % 6], dscp: 41, congested: false })
        .collect();
    let mut decided = Vec::new();
    grantor.decide(1, &requests, &mut decided);
    let expect = [
        Some(grants(1000, 300, 240_000, 3_000)),
        Some(declines(50)),
        Some(declines(60)),
        Some(declines(1)),
        None,
        None,
    ];
    for (at, decided) in decided.iter().enumerate() {
        assert_eq!(decided.item.map(|item| item.command), expect[at % 6], "{at}");
    }
    let flow = Flow::v4(0x0a01_0000, SERVER);
    assert_eq!(decided[0].item.unwrap().scope, Scope::of(&flow));
    assert_eq!((grantor.counts().unread, grantor.counts().undecided), (20, 20));
    // Other lists, then no lists.
    let changed = lists(&[("names", "192.0.2.0/24\n10.0.0.0/8 7\n")]);
    published.publish(Box::new(changed));
    assert!(published.reclaim().is_some());
    assert_eq!(ask(&mut grantor, 2, &packets[1], 41, false).item.unwrap().command, declines(7));
    assert_eq!(ask(&mut grantor, 2, &packets[4], 41, false).item.unwrap().command, declines(999));
    published.publish(Box::default());
    assert_eq!(ask(&mut grantor, 3, &packets[1], 41, false).item, None);
    assert_eq!(grantor.last_error(), None);
}

fn policy(name: &str) -> &'static str {
    let policy = POLICIES.iter().find(|policy| policy.name == name).unwrap();
    // The policy names the lists that its metadata states.
    for list in policy.lists {
        assert!(policy.text.contains(&format!("list \"{list}\"")), "{name}: {list}");
    }
    policy.text
}

#[test]
fn lists_policy_grants_declines_and_runs_web() {
    let published = Publisher::new(lists(&[
        ("allow", "10.0.0.0/8\n10.1.0.0/16 77\n"),
        ("deny", "10.0.0.0/7\n172.16.0.0/12\n"),
    ]));
    let mut grantor = grantor(policy("lists"), &published);
    let mut say = |src| ask(&mut grantor, 1, &syn(src, 80), 41, false).item.unwrap().command;
    assert_eq!(say(0x0a00_0001), grants(1024, 300, 240_000, 3_000));
    assert_eq!(say(0x0a01_0001), grants(77, 300, 240_000, 3_000));
    assert_eq!(say(0xac10_0001), declines_proven(600));
    assert_eq!(say(0x0b00_0001), declines_proven(600));
    // The program accepts its cookie.
    let FlowCommand::Run(run) = say(1) else { panic!("no program") };
    let terms = [512u32, 25, 240_000, 3_000].map(u32::to_le_bytes).concat();
    assert_eq!((run.program, &run.cookie[..17]), (3, &[&terms[..], &[0]].concat()[..]));
    let mut cookie = run.cookie;
    assert!(Machine::default().init(&shipped("web"), 0, &mut cookie));
    assert_eq!(cookie[8..16], (512i64 * 1024).to_le_bytes());
}

#[test]
fn tcp_services_cookie_has_the_ports() {
    let policy = "function decide(p) return tcp_services { rate = 10, listen = { 25, 587 }, remote = { 443 } } end";
    let Ok(Some(FlowCommand::Run(run))) = decide_syn(policy) else { panic!("no program") };
    assert_eq!(run.program, 4);
    assert_eq!(run.cookie[8..18], [0xb8, 0x0b, 0, 0x12, 25, 0, 75, 2, 187, 1]);
    let mut cookie = run.cookie;
    assert!(Machine::default().init(&shipped("tcp-services"), 0, &mut cookie));
}

#[test]
fn rates_policy_grants_the_rate_of_the_prefix() {
    let published = Publisher::new(lists(&[("rates", "10.0.0.0/8 100\n10.1.0.0/16 0\n::/0 9\n")]));
    let mut grantor = grantor(policy("rates"), &published);
    let mut say = |packet: &[u8]| ask(&mut grantor, 1, packet, 41, false).item.unwrap().command;
    assert_eq!(say(&syn(0x0a02_0000, 80)), grants(100, 120, 96_000, 3_000));
    assert_eq!(say(&syn(0x0a01_0000, 80)), declines_proven(600));
    assert_eq!(say(&syn6(5)), grants(9, 120, 96_000, 3_000));
    assert_eq!(say(&syn(1, 80)), grants(64, 120, 96_000, 3_000));
}

#[test]
fn reputation_falls_and_recovers() {
    let published = Publisher::new(lists(&[("asn", "10.0.0.0/8 64496\n11.0.0.0/8 64497\n")]));
    let mut grantor = grantor(policy("reputation"), &published);
    let mut say = |second: u64, src, port, dscp| {
        ask(&mut grantor, second * SECOND, &syn(src, port), dscp, false).item.unwrap().command
    };
    let granted = |rate| grants(rate, 60, 48_000, 3_000);
    let telnet = declines_some(10, Traffic::Port { protocol: 6, port: 23 });
    assert_eq!(say(1, 0x0a00_0001, 443, 41), granted(2048));
    // Its hosts, or forgers of their addresses, probe closed ports: points are capped.
    (0..5_000).for_each(|host| assert_eq!(say(1, 0x0a00_0000 + host, 23, 41), telnet));
    assert_eq!(say(1, 0x0a00_0002, 443, 41), granted(341));
    // A flow granted before keeps its grant, for any packet that requests the renewal.
    assert_eq!(say(1, 0x0a00_0001, 443, 2), granted(2048));
    assert_eq!(say(1, 0x0a00_0001, 23, 2), granted(2048));
    // Other systems are unaffected, and all points expire within a minute.
    assert_eq!(say(1, 0x0b00_0001, 443, 41), granted(2048));
    assert_eq!(say(26, 0x0a00_0003, 443, 41), granted(585));
    assert_eq!(say(26, 0x0a00_0002, 443, 2), granted(585));
    assert_eq!(say(52, 0x0a00_0003, 443, 41), granted(2048));
}

#[test]
fn aimd_policy_follows_congestion_marks() {
    let none = Publisher::new(Lists::new());
    let mut grantor = grantor(policy("aimd"), &none);
    let mut rate = |dscp, congested| match ask(&mut grantor, 1, &syn(1, 80), dscp, congested)
        .item
        .unwrap()
        .command
    {
        FlowCommand::Decide(Decision::Grant(grant)) => grant.rate_kib,
        other => panic!("{other:?}"),
    };
    assert_eq!([rate(41, false), rate(2, false), rate(2, false)], [256, 320, 384]);
    assert_eq!([rate(2, true), rate(2, true), rate(2, false)], [192, 96, 160]);
    for _ in 0..9 {
        rate(2, true);
    }
    assert_eq!(rate(2, true), 32);
    for _ in 0..200 {
        rate(2, false);
    }
    assert_eq!(rate(2, false), 8192);
}

#[test]
fn source_that_answers_the_server_is_granted() {
    let published = Publisher::new(lists(&[("services", "192.0.2.7 80\n")]));
    let mut grantor = grantor(policy("handshake"), &published);
    let tcp = |src, flags| {
        let mut packet = syn(src, 80);
        packet[33] = flags;
        packet
    };
    let mut says = |second: u64, packet: &[u8], dscp| {
        let decided = ask(&mut grantor, second * SECOND, packet, dscp, false);
        (decided.item.map(|item| item.command), decided.deliver)
    };
    let granted = (Some(grants(1024, 300, 240_000, 3_000)), true);
    // A SYN is forwarded without a decision, with ECN or without, however often it is sent.
    for flags in [0x02, 0xc2, 0x02] {
        assert_eq!(says(1, &tcp(1, flags), 41), (None, true));
    }
    assert_eq!(says(2, &tcp(1, 0x10), 41), granted);
    // Too late, and from another port.
    assert_eq!(says(62, &tcp(1, 0x10), 41), (None, true));
    let mut other = tcp(1, 0x10);
    other[21] ^= 1;
    assert_eq!(says(3, &other, 41), (None, true));
    assert_eq!(says(3, &tcp(2, 0x12), 41), (None, false));
    assert_eq!(says(3, &tcp(2, 0x18), 2), granted);
    let not_served = declines_some(10, Traffic::Port { protocol: 6, port: 81 });
    assert_eq!(says(3, &syn(1, 81), 41), (Some(not_served), false));
    let mut udp = tcp(3, 0x10);
    udp[9] = 17;
    assert_eq!(says(3, &udp, 41), (Some(declines_some(10, Traffic::Protocol(17))), false));
    // The packet that requests a renewal may be forged: the flow is renewed for any packet.
    for packet in [udp, tcp(1, 0x12), syn(1, 81)] {
        assert_eq!(says(4, &packet, 2), granted);
    }
}

/// Malformed headers cost a request its decision, but not a renewal.
#[test]
fn renewal_by_a_packet_with_a_broken_chain_is_decided_by_its_addresses() {
    let none = Publisher::new(Lists::new());
    let mut grantor = grantor(policy("aimd"), &none);
    let mut broken = syn6(5);
    (broken[6], broken[41]) = (60, 200);
    assert_eq!(ask(&mut grantor, 1, &broken, 41, false).item, None);
    let item = ask(&mut grantor, 1, &broken, 2, false).item.unwrap();
    assert_eq!(
        (item.scope, item.command),
        (Scope::of(&Flow::v6(5, 7)), grants(320, 30, 5_000, 5_000))
    );
    let text = "function decide(p) error(p.protocol .. tostring(p.dst_port)) end";
    let mut grantor = Grantor::new(text, none.reader(), Limits::default()).unwrap();
    ask(&mut grantor, 1, &broken, 2, false);
    assert!(grantor.last_error().unwrap().contains("255nil"));
}

/// A packet in a tunnel from gate 10.0.0.9 to grantor 10.0.0.1.
fn sealed(inner: &[u8], dscp: u8, ecn: u8) -> Vec<u8> {
    let ends = tunnel::Ends::V4 { src: 0x0a00_0009, dst: 0x0a00_0001 };
    let header = tunnel::Header { ends, dscp, hop_limit: 64, udp: None };
    let mut bytes = [&[0; 20], inner].concat();
    header.emit(&mut bytes).unwrap();
    let mut ip = ipv4::View::parse(&mut bytes[..]).unwrap();
    ip.set_tos(dscp << 2 | ecn);
    bytes
}

#[test]
fn packet_is_decapsulated() {
    let mut inner = syn(1, 80);
    let mut bytes = sealed(&inner, 41, 0);
    bytes.extend_from_slice(&[0; 6]);
    let opened = decapsulate(&mut bytes).unwrap();
    assert_eq!((opened.gate, opened.to), (Address::V4(0x0a00_0009), Address::V4(0x0a00_0001)));
    assert_eq!((opened.dscp, opened.congested, opened.requests_renewal()), (41, false, true));
    assert_eq!(bytes[opened.offset..opened.end], inner);
    assert!(!decapsulate(&mut sealed(&inner, 1, 0)).unwrap().requests_renewal());
    // Marked on the path: dropped if the sender does not support ECN.
    assert_eq!(decapsulate(&mut sealed(&inner, 41, 3)), Err(DecapsulationError::Congested));
    ipv4::View::parse(&mut inner[..]).unwrap().set_tos(2);
    let mut bytes = sealed(&inner, 2, 3);
    let opened = decapsulate(&mut bytes).unwrap();
    assert!(opened.congested);
    let ip = ipv4::View::parse(&bytes[opened.offset..opened.end]).unwrap();
    assert_eq!((ip.tos(), ip.checksum_ok()), (3, true));
    // Marked before the tunnel: the sender may have done so.
    let mut bytes = sealed(&bytes[opened.offset..opened.end], 2, 3);
    assert!(!decapsulate(&mut bytes).unwrap().congested);
    assert!(matches!(decapsulate(&mut syn(1, 80)), Err(DecapsulationError::Header(_))));
    assert!(matches!(decapsulate(&mut []), Err(DecapsulationError::Header(_))));
}

#[test]
fn request_goes_from_the_gate_to_the_grantor_and_back() {
    let mut draft = PolicyBuilder::new();
    let at = Address::V4(0x0a00_0001);
    let set = draft.set(&[At { address: at, weight: 1 }]);
    draft.v4("192.0.2.0/24".parse().unwrap(), Action::Grantors(set));
    let (key, of_gate) = (Key::random(), Publisher::new(draft.build(1).unwrap()));
    let mut gate: Gate = Gate::new(100, of_gate.reader(), 0);
    let published = Publisher::new(lists(&[("rates", "10.0.0.0/8 0\n")]));
    let mut grantor = grantor(policy("rates"), &published);
    for src in [7, 0x0a00_0001] {
        let packet = syn(src, 80);
        let flow = Flow::v4(src, SERVER);
        let through = Packet { flow, hash: key.hash(&flow), bytes: 54 };
        let mut verdict = [Verdict::NoRoute];
        gate.process(1, &[through], &mut verdict);
        let Verdict::Request { dscp, .. } = verdict[0] else { panic!("{verdict:?}") };
        let mut bytes = sealed(&packet, dscp, 0);
        let opened = decapsulate(&mut bytes).unwrap();
        let decided = ask(&mut grantor, 2, &bytes[opened.offset..opened.end], opened.dscp, false);
        let mut writer = v1::Writer::new(1400);
        assert!(writer.push(&decided.item.unwrap()));
        let message = writer.finish();
        for item in v1::Reader::new(&message).unwrap() {
            gate.decide(3, &item.unwrap(), Stamp::default(), |flow| key.hash(flow)).unwrap();
        }
        gate.process(4, &[through], &mut verdict);
        let granted = matches!(verdict[0], Verdict::Granted { grantor, .. } if grantor == at);
        assert_eq!(granted, src == 7, "{verdict:?}");
    }
}

#[test]
fn shipped_policies_fail_for_no_packet() {
    let mut rng = fastrand::Rng::with_seed(4);
    let published = Publisher::new(lists(&[
        ("allow", "::/1\n0.0.0.0/1 5\n"),
        ("deny", ""),
        ("rates", ""),
        ("services", "0.0.0.0/1\n128.0.0.0/1 80\n"),
        ("asn", "0.0.0.0/0 3\n"),
    ]));
    for policy in POLICIES {
        let mut grantor = grantor(policy.text, &published);
        let (mut decided, mut opened) = (Vec::new(), 0);
        for at in 0..5_000 {
            let mut bytes = [0; 90];
            rng.fill(&mut bytes);
            let inner =
                if at % 2 == 0 { syn(rng.u32(..), rng.u16(..)) } else { syn6(rng.u128(..)) };
            let mut bytes = if at % 5 == 0 {
                bytes.to_vec()
            } else {
                sealed(&inner, rng.u8(2..64), rng.u8(..4))
            };
            for _ in 0..rng.u8(..3) {
                let at = rng.usize(..bytes.len());
                bytes[at] = rng.u8(..);
            }
            if let Ok(open) = decapsulate(&mut bytes) {
                opened += 1;
                let packet = &bytes[open.offset..open.end];
                let request = Request { packet, dscp: open.dscp, congested: open.congested };
                grantor.decide(at * 1_000_000, &[request], &mut decided);
            }
        }
        assert!(opened > 1_000 && decided.len() == opened);
        let counts = *grantor.counts();
        let error = grantor.last_error();
        assert_eq!((counts.failed, counts.over_time), (0, 0), "{}: {error:?}", policy.name);
        let ended = counts.granted + counts.declined + counts.programs + counts.undecided;
        assert_eq!(ended + counts.unread, counts.requests, "{}", policy.name);
        let returned = |decided: &&RequestOutcome| matches!(decided.item, Some(Item { .. }));
        assert_eq!(decided.iter().filter(returned).count() as u64, ended - counts.undecided);
    }
}
