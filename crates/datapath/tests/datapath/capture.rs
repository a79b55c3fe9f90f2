//! Captures: the conditions of sessions, and the last drops of each verdict.

use fingerpost_datapath::Verdict;
use fingerpost_datapath::capture::{
    Conditions, DROP_SNAP, Filter, Occasion, Point, Position, Record, SESSIONS,
};

use crate::packets::{v4, v6};
use crate::rig::Rig;

const HERE: u32 = 0xc000_0263;

/// "udp", as libpcap 1.10 compiles it.
const UDP: [(u16, u8, u8, u32); 14] = [
    (0x28, 0, 0, 12),
    (0x15, 0, 5, 0x86dd),
    (0x30, 0, 0, 20),
    (0x15, 6, 0, 17),
    (0x15, 0, 6, 44),
    (0x30, 0, 0, 54),
    (0x15, 3, 4, 17),
    (0x15, 0, 3, 0x0800),
    (0x30, 0, 0, 23),
    (0x15, 0, 1, 17),
    (0x06, 0, 0, 262_144),
    (0x06, 0, 0, 0),
    (0x06, 0, 0, 0),
    (0x06, 0, 0, 0),
];

fn conditions(verdicts: &[Verdict]) -> Conditions {
    Conditions { verdicts: verdicts.to_vec(), ..Conditions::every_end(u16::MAX) }
}

/// Returns the records of a session, from a position on.
fn records(rig: &Rig, session: u32, since: Position) -> Vec<Record> {
    let records = rig.worker.stats().recorder().live(since).expect("a session was open");
    assert_eq!(records.lost, 0);
    records.records.into_iter().filter(|record| record.session == session).collect()
}

#[test]
fn session_has_the_packets_of_its_verdicts_and_port() {
    let mut rig = Rig::new();
    let recorder = |rig: &Rig| std::sync::Arc::clone(rig.worker.stats());
    let stats = recorder(&rig);
    let sent = Conditions { port: Some(1), ..conditions(&[Verdict::Sent]) };
    let (_, sent_since) = stats.recorder().open(7, &sent).unwrap();
    let (_, lost_since) = stats.recorder().open(8, &conditions(&[Verdict::NoRoute])).unwrap();
    let frames = [v4(HERE, 0x0a00_0001), v4(HERE, 0x0a01_0001), v4(HERE, 0x0808_0808)];
    let counted = rig.pass(&frames);
    assert_eq!((counted.sent(), counted.count(Verdict::NoRoute)), (2, 1));

    let of_port: Vec<_> =
        records(&rig, 7, sent_since).into_iter().map(|r| (r.point, r.occasion)).collect();
    let each = [0, 1, 2].map(|port| {
        let frame = rig.far[port].take();
        (frame.is_some(), (Point::Egress(port as u16), Occasion::End(Verdict::Sent)))
    });
    let expect: Vec<_> = each.iter().filter(|(left, _)| *left).map(|(_, record)| *record).collect();
    assert_eq!(expect.len(), 2, "each packet left by a port of its own");
    assert_eq!(of_port, expect.into_iter().filter(|r| r.0 == Point::Egress(1)).collect::<Vec<_>>());

    let lost = records(&rig, 8, lost_since);
    let [record] = &lost[..] else { panic!("{lost:?}") };
    assert_eq!(record.point, Point::Ingress(0));
    assert_eq!(record.bytes, frames[2], "a dropped packet is as it arrived");
    assert_eq!(usize::from(record.len), frames[2].len());
}

#[test]
fn filter_and_snap_apply_to_each_session() {
    let mut rig = Rig::new();
    let stats = std::sync::Arc::clone(rig.worker.stats());
    let filter = Filter::new(&UDP).unwrap();
    let udp = Conditions { arrivals: true, snap: 20, filter, ..conditions(&[]) };
    let (_, since) = stats.recorder().open(9, &udp).unwrap();
    let mut tcp = v4(HERE, 0x0a00_0001);
    let mut of_udp = v4(HERE, 0x0a00_0001);
    (tcp[14 + 9], of_udp[14 + 9]) = (6, 17);
    let mut udp6 = v6(0x2001_0db8 << 96 | 9, 0x2001_0db8_0001_0002_8000 << 48);
    udp6[14 + 6] = 17;
    rig.pass([&tcp, &of_udp, &udp6]);
    let got = records(&rig, 9, since);
    assert_eq!(got.len(), 2);
    for (record, sent) in got.iter().zip([&of_udp, &udp6]) {
        assert_eq!(record.bytes, sent[..20]);
        assert_eq!(usize::from(record.len), sent.len());
    }
}

#[test]
fn closed_session_records_nothing_and_its_slot_is_used_again() {
    let mut rig = Rig::new();
    let stats = std::sync::Arc::clone(rig.worker.stats());
    let recorder = stats.recorder();
    let all = conditions(&Verdict::ALL);
    // The rig has one.
    let opened: Vec<_> = (2..).map_while(|number| recorder.open(number, &all)).collect();
    assert_eq!(opened.len(), SESSIONS - 1);
    let (slot, since) = opened[1];
    recorder.close(slot);
    rig.pass([v4(HERE, 0x0a00_0001)]);
    assert_eq!(records(&rig, 3, since), []);
    assert_eq!(records(&rig, 2, since).len(), 1);
    assert_eq!(recorder.open(20, &all).unwrap().0, slot);
    rig.pass([v4(HERE, 0x0a00_0001)]);
    assert_eq!((records(&rig, 3, since).len(), records(&rig, 20, since).len()), (0, 1));
}

#[test]
fn sample_has_one_packet_in_n() {
    let mut rig = Rig::new();
    let stats = std::sync::Arc::clone(rig.worker.stats());
    let sampled = Conditions { one_in: 50, snap: 0, ..conditions(&[Verdict::Sent]) };
    let (_, mut since) = stats.recorder().open(5, &sampled).unwrap();
    let (mut taken, mut all) = (0, 0);
    for _ in 0..1000 {
        let counted = rig.pass((0..100).map(|_| v4(HERE, 0x0a00_0001)));
        all += counted.sent();
        let read = stats.recorder().live(since).unwrap();
        taken += read.records.iter().filter(|record| record.session == 5).count();
        since = read.position;
        while rig.far.iter_mut().any(|far| far.take().is_some()) {}
    }
    assert_eq!(all, 100_000);
    // 2000 are expected; the standard deviation of their number is 26.
    assert!((1870..=2130).contains(&taken), "{taken}");
}

#[test]
fn last_drops_of_a_verdict_outlive_a_flood_of_another() {
    let mut rig = Rig::new();
    let mut damaged = v4(HERE, 0x0a00_0001);
    damaged[24] ^= 1;
    rig.pass([&damaged]);
    for _ in 0..200 {
        rig.pass((0..200).map(|_| v4(HERE, 0x0808_0808)));
    }
    let drops = rig.worker.stats().recorder().last_drops();
    let of = |verdict| drops.iter().filter(move |r| r.occasion == Occasion::End(verdict));
    let of_damaged: Vec<_> = of(Verdict::BadChecksum).collect();
    assert_eq!(of_damaged.len(), 1);
    assert_eq!(of_damaged[0].bytes, damaged[..damaged.len().min(DROP_SNAP)]);
    assert!(of(Verdict::NoRoute).count() >= 20);
    assert!(drops.iter().all(|r| matches!(r.occasion, Occasion::End(v) if v != Verdict::Sent)));
}

/// A flood that keeps the worker busy, and a rare drop of another kind in it.
#[test]
fn rare_drop_in_a_flood_is_recorded() {
    let mut rig = Rig::new();
    let mut damaged = v4(HERE, 0x0a00_0001);
    damaged[24] ^= 1;
    let flood = v4(HERE, 0x0808_0808);
    let recorder = std::sync::Arc::clone(rig.worker.stats());
    let all = |verdict| {
        let drops = recorder.recorder().last_drops();
        drops.iter().filter(|r| r.occasion == Occasion::End(verdict)).count()
    };
    // 64 drops of an idle turn's credit, and then one a turn.
    for turn in 0..100 {
        for i in 0..200 {
            let frame = if turn > 50 && i == 150 { &damaged } else { &flood };
            assert!(rig.far[0].send(frame));
        }
        assert_eq!(rig.worker.poll(), 200);
    }
    assert!(all(Verdict::BadChecksum) >= 5, "{}", all(Verdict::BadChecksum));
    rig.pass([&flood]);
}
