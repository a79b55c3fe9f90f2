//! Several tables: a port uses one, and the routes of the others do not affect it.

use fib::{Choice, Family, Fib, FibsUpdater, Hop, Prefix, Reader, Rib, Updater};
use fingerpost_datapath::{Numbered, Tables, Verdict};

use crate::packets::{OWN4, OWN6};
use crate::packets::{arriving, v4, v6};
use crate::reference::{Model, Paper};
use crate::rig::{Rig, ingresses, model, routes4, routes6};

const HERE: u32 = 0xc000_0263;
const HERE6: u128 = 0x2001_0db8 << 96 | 0x63;

/// Makes packets to destinations whose route depends on the table.
fn frames(port: usize) -> Vec<Vec<u8>> {
    let v4 = [0x0a00_0001, 0x0a00_0002, 0x0a01_0001, 0xc633_6401, 0xcb00_7107, OWN4];
    let v6 = [0x2001_0db8 << 96 | 1, 0x2001_0db8_0001 << 80, OWN6, OWN6 + 1];
    let v4 = v4.into_iter().map(|dst| crate::packets::v4(HERE, dst));
    let frames = v4.chain(v6.into_iter().map(|dst| crate::packets::v6(HERE6, dst)));
    frames.map(|frame| arriving(frame, port)).collect()
}

fn rib<A: Family>(routes: impl Iterator<Item = (Prefix<A>, Hop)>) -> Rib<A> {
    let mut rib = Rib::new();
    for (prefix, hop) in routes {
        rib.insert(prefix, hop);
    }
    rib
}

/// Makes the model's tables, each with its own engine.
fn apart(model: &Model) -> Tables {
    fn table<A: Family>(rib: Rib<A>) -> Reader<Fib<A>> {
        Updater::new(rib, Choice::Auto, 1).unwrap().reader()
    }
    let v4 = model.tables.iter().map(|paper| table(rib(routes4(paper))));
    let v6 = model.tables.iter().map(|paper| table(rib(routes6(paper))));
    Tables { v4: Numbered::Apart(v4.collect()), v6: Numbered::Apart(v6.collect()) }
}

/// Makes the model's tables in one shared memory.
fn together(model: &Model) -> Tables {
    let (mut v4, mut v6) = (FibsUpdater::new().unwrap(), FibsUpdater::new().unwrap());
    for paper in &model.tables {
        v4.add(rib(routes4(paper)));
        v6.add(rib(routes6(paper)));
    }
    v4.commit().unwrap();
    v6.commit().unwrap();
    Tables { v4: Numbered::Together(v4.reader()), v6: Numbered::Together(v6.reader()) }
}

#[test]
fn the_same_destination_in_two_tables_goes_two_ways() {
    let mut lists = Rig::new();
    let mut apart = Rig::build(apart, |_, port| Box::new(port));
    let mut together = Rig::build(together, |_, port| Box::new(port));
    for port in 0..3 {
        let frames = frames(port);
        let counted = lists.compare_on(port, &frames);
        assert_eq!(apart.compare_on(port, &frames).verdicts, counted.verdicts);
        assert_eq!(together.compare_on(port, &frames).verdicts, counted.verdicts);
    }
    // The model must send the two to different ports; otherwise the comparison proves little.
    let model = model();
    let out = |port| model.decide(port, &arriving(v4(HERE, 0x0a00_0002), port)).1[0].0;
    assert_eq!((out(0), out(2)), (1, 2));
    let verdict = |port, frame| model.decide(port, &arriving(frame, port)).0;
    assert_eq!(verdict(0, v4(HERE, OWN4)), Verdict::OwnAddress);
    assert_eq!(verdict(2, v4(HERE, OWN4)), Verdict::Sent);
    assert_eq!(verdict(2, v6(HERE6, OWN6)), Verdict::Sent);
    assert_eq!(verdict(2, v6(HERE6, OWN6 + 1)), Verdict::OwnAddress);
}

/// Packets arrive on one port after the other in one turn: no batch uses two tables.
#[test]
fn packets_on_all_ports_in_one_turn_keep_to_their_tables() {
    let mut rig = Rig::new();
    for port in 0..3 {
        for frame in frames(port) {
            assert!(rig.far[port].send(&frame));
        }
    }
    let mut expect = vec![Vec::new(); 3];
    for port in 0..3 {
        for frame in frames(port) {
            for (egress, bytes) in rig.model.decide(port, &frame).1 {
                expect[egress].push(bytes);
            }
        }
    }
    assert_eq!(rig.worker.poll(), 3 * frames(0).len());
    for (egress, expect) in expect.into_iter().enumerate() {
        let got: Vec<_> = std::iter::from_fn(|| rig.far[egress].take()).collect();
        assert_eq!(got, expect, "port {egress}");
    }
}

#[test]
fn a_port_moves_to_another_table_and_to_none() {
    let mut rig = Rig::new();
    let counted = rig.compare(&frames(0));
    for table in [1, 0, 1] {
        rig.model.ports[0].table = table;
        rig.ingresses.publish(Box::new(ingresses(&rig.model)));
        let moved = rig.compare(&frames(0));
        assert_eq!(moved.verdicts == counted.verdicts, table == 0);
    }

    // A number without a table has no routes, with either kind of tables.
    let there = [v4(HERE, 0x0a00_0002), v6(HERE6, 0x2001_0db8 << 96 | 1)];
    let mut model = model();
    model.ports[0].table = 7;
    model.tables.resize_with(8, Paper::default);
    let nowhere = || Box::new(ingresses(&model));
    let mut apart = Rig::build(apart, |_, port| Box::new(port));
    assert_eq!(apart.pass(&there).sent(), 2);
    apart.ingresses.publish(nowhere());
    assert_eq!(apart.pass(&there).count(Verdict::NoRoute), 2);
    let mut together = Rig::build(together, |_, port| Box::new(port));
    assert_eq!(together.pass(&there).sent(), 2);
    together.ingresses.publish(nowhere());
    assert_eq!(together.pass(&there).count(Verdict::NoRoute), 2);
}
