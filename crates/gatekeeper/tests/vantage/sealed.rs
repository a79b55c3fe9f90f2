//! Sealed tunnels: the grantor's checks accept each sent packet once.

use gate::decision::v2::keys::Keys;
use gate::policy::Address;
use gate::tunnel::{GateKeys, PRIVATE_LEN, TunnelError, TunnelKeys, TunnelVerifier};

use super::*;

const SESSION: u64 = 0xfeed_0000_0000_1234;

fn keys() -> Keys {
    Keys::new(3, &[9; 32])
}

/// Returns a rig whose tunnels to these ends are sealed, and the grantor's verifier and keys.
fn sealed(ends: &[Address]) -> (Rig, TunnelVerifier, GateKeys) {
    let mut config = config("1gbit", "");
    config.fixed.sealed = true;
    let key = keys().tunnel(3, SESSION).unwrap();
    let keys = TunnelKeys::new(ends.iter().map(|end| (*end, key)));
    let rig = Rig::sealing(config, Key::random(), None, keys);
    let gates = [Address::V4(BACK4), Address::V6(BACK6)];
    let mut known = GateKeys::default();
    gates.iter().for_each(|gate| known.set(*gate, SESSION, vec![key]));
    (rig, TunnelVerifier::new(gates), known)
}

#[test]
fn sealed_packet_passes_the_grantors_checks_once() {
    let ends = [Address::V4(GRANTOR), Address::V6(GRANTOR6)];
    let (mut rig, mut checker, known) = sealed(&ends);
    let six = 0x2001_0db8 << 96;
    let outside = OUTSIDE6;
    for n in 0..300u32 {
        let sent = match n % 3 {
            0 => v4(0xc000_0200 + n, PROTECTED),
            1 => v6(outside | u128::from(n), six | 9),
            _ => v6(outside | u128::from(n), six | 1 << 80),
        };
        rig.far[0].send(&sent);
        rig.rest();
        let got = rig.far[1].take().expect("it goes to the grantor");
        let outer = Outer::parse_with(&got[14..], Some(6080)).unwrap();
        assert_eq!((outer.dscp, outer.private), (41, PRIVATE_LEN));
        assert_eq!(outer.offset, if n % 3 == 1 { 88 } else { 68 });
        let inner = &got[14 + outer.offset..14 + outer.end];
        assert_eq!(inner, &sent[14..14 + inner.len()]);
        let now = rig.clock.load(Ordering::Relaxed);
        assert_eq!(checker.check(&known, &got[14..], &outer, now), Ok(41));
        let repeated = checker.check(&known, &got[14..], &outer, now);
        assert_eq!(repeated, Err(TunnelError::Replayed));
    }
    rig.check();
}

/// ICMP errors report the MTU that fits: 68 bytes less over IPv4, 88 over IPv6.
#[test]
fn oversize_packet_of_a_sealed_tunnel_is_answered_with_its_mtu() {
    let ends = [Address::V4(GRANTOR), Address::V6(GRANTOR6)];
    let (mut rig, ..) = sealed(&ends);
    let answers = [1412, 1413, 1432, 1433].map(|len| answered_mtus(&mut rig, len));
    let (four, six) = (Some(1432), Some(1412));
    assert_eq!(answers, [[None, None], [None, six], [None, six], [four, six]]);
    rig.check();
}

/// One grantor with a key and one without, at one gate.
#[test]
fn tunnel_without_a_key_is_not_sealed() {
    let (mut rig, ..) = sealed(&[Address::V6(GRANTOR6)]);
    rig.far[0].send(&v4(0xc000_0205, PROTECTED));
    rig.rest();
    let got = rig.far[1].take().expect("it goes to the grantor");
    assert_eq!(Outer::parse(&got[14..]).unwrap().offset, 20, "IP in IP, as before");
    rig.check();
}

/// The flows of retracted decisions send requests again.
#[test]
fn retracted_grant_becomes_a_request_and_other_senders_grants_stay() {
    let mut rig = Rig::new(config("1gbit", ""));
    let terms =
        Grant { rate_kib: 1000, expire_s: 60, next_renewal_ms: 50_000, renewal_step_ms: 1000 };
    let flows: Vec<Flow> = (1..60).map(|n| Flow::v4(0xc000_0200 + n, PROTECTED)).collect();
    for (at, flow) in flows.iter().enumerate() {
        let item =
            Item { scope: Scope::of(flow), command: FlowCommand::Decide(Decision::Grant(terms)) };
        let stamp = Stamp { sender: 1 + at as u32 % 2, number: at as u64 };
        assert!(rig.rings.decide(item, stamp));
    }
    let granted = |rig: &mut Rig| -> Vec<bool> {
        let each = flows.iter().map(|flow| {
            let gate::flow::Pair::V4 { src, dst } = flow.pair() else { panic!("IPv4") };
            rig.far[0].send(&v4(src, dst));
            rig.rest();
            let got = rig.far[1].take().expect("it goes to the grantor");
            Outer::parse(&got[14..]).unwrap().dscp == 1
        });
        each.collect()
    };
    assert!(granted(&mut rig).iter().all(|&granted| granted));
    assert!(rig.rings.retract(Stamp { sender: 1, number: 30 }));
    // The retraction examines the table over several turns.
    (0..20).for_each(|_| rig.rest());
    let left = granted(&mut rig);
    let expect: Vec<bool> = (0..flows.len()).map(|at| at % 2 == 1 || at > 30).collect();
    assert_eq!(left, expect);
    rig.check();
}
