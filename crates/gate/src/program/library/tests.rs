//! Programs from grantors: what is taken and what is not, in what order pieces may come, and the
//! whole of it over a network that loses, delays, reorders and repeats.

use std::collections::BTreeMap;

use super::*;
use crate::decision::Refused;
use crate::decision::v2::courier::{CHECK, MOST_PIECES, Parcel};
use crate::decision::v2::keys::Keys;
use crate::decision::v2::piece::MOST_OBJECT;
use crate::decision::v2::receiver::Receiver;
use crate::decision::v2::sender::Sender;
use crate::decision::{Item, Say, Scope};
use crate::flow::Flow;
use crate::program::tests::objects;

const MS: u64 = 1_000_000;

/// An object that passes, by the number of its place among those that come with this.
fn object(at: usize) -> &'static [u8] {
    &objects()[at].1
}

fn offer(number: u8, object: &[u8]) -> Piece<'_> {
    let length = object.len() as u32;
    Piece { program: number, length, offset: 0, digest: digest(object), bytes: &[] }
}

/// The pieces of an object, in order.
fn pieces(number: u8, object: &[u8]) -> Vec<Piece<'_>> {
    let whole = offer(number, object);
    let each = object.chunks(PIECE).enumerate();
    each.map(|(at, bytes)| Piece { offset: (at * PIECE) as u32, bytes, ..whole }).collect()
}

fn loud(_: u32) -> bool {
    false
}

fn state(library: &mut Library, sender: u32, number: u8, object: &[u8]) -> State {
    library.take(sender, &offer(number, object), loud).0.state
}

/// Sends all pieces and has the verifier say what it says; returns how it stands then.
fn send(library: &mut Library, sender: u32, number: u8, object: &[u8]) -> State {
    let mut whole = None;
    for piece in pieces(number, object) {
        assert!(whole.is_none());
        whole = library.take(sender, &piece, loud).1;
    }
    if let Some(job) = whole {
        assert_eq!(state(library, sender, number, object), State::Judging);
        let judged = job.judge();
        library.judged(&job, judged);
    }
    state(library, sender, number, object)
}

fn open() -> Library {
    Library::new(Programs::default(), true)
}

#[test]
fn pieces_may_come_in_any_order_and_twice() {
    let mut rng = fastrand::Rng::with_seed(1);
    for round in 0..50 {
        let object = object(rng.usize(..objects().len()));
        let mut library = open();
        assert_eq!(state(&mut library, 1, 7, object), State::Wanted);
        let mut left = pieces(7, object);
        let mut met = Vec::new();
        rng.shuffle(&mut left);
        let job = loop {
            let again = !met.is_empty() && rng.bool();
            let piece = if again { met[rng.usize(..met.len())] } else { left.pop().unwrap() };
            met.push(piece);
            let (standing, job) = library.take(1, &piece, loud);
            assert_eq!(job.is_some(), left.is_empty() && !again, "round {round}");
            match job {
                Some(job) => break job,
                None => assert_eq!(standing.state, State::Wanted),
            }
        };
        assert_eq!(job.object, object);
        let judged = job.judge();
        let programs = library.judged(&job, judged).unwrap();
        assert_eq!(*programs.get(7).unwrap().digest(), digest(object));
        assert_eq!(state(&mut library, 1, 7, object), State::InForce);
        // The same object of another grantor is in force for him too.
        assert_eq!(state(&mut library, 2, 7, object), State::InForce);
    }
}

#[test]
fn who_may_not_send_what_is_told_so() {
    let refused = |reason| State::Refused(reason);
    let mut closed = Library::new(Programs::default(), false);
    assert_eq!(send(&mut closed, 1, 7, object(0)), refused(Reason::NotAllowed));
    assert!(closed.making.is_empty(), "nothing of it is kept");
    let mut own = Programs::default();
    own.set(7, Some(Arc::new(Program::load(object(0)).unwrap())));
    let mut library = Library::new(own.clone(), true);
    assert_eq!(state(&mut library, 1, 7, object(0)), State::InForce, "it is the gate's own");
    assert_eq!(send(&mut library, 1, 7, object(2)), refused(Reason::Own));
    assert!(library.making.is_empty());
    // A number is the sender's who sent first, as long as he lives.
    assert_eq!(send(&mut library, 1, 8, object(2)), State::InForce);
    assert_eq!(send(&mut library, 2, 8, object(4)), refused(Reason::Others));
    assert_eq!(send(&mut library, 1, 8, object(6)), State::InForce, "his own he replaces");
    for piece in pieces(8, object(4)) {
        if let (_, Some(job)) = library.take(2, &piece, |owner| owner == 1) {
            let judged = job.judge();
            assert!(library.judged(&job, judged).is_some());
        }
    }
    assert_eq!(state(&mut library, 2, 8, object(4)), State::InForce);
    assert_eq!(state(&mut library, 1, 8, object(6)), refused(Reason::Others));
    let list = library.list();
    let told: Vec<_> = list.iter().map(|it| (it.number, it.sender, it.state)).collect();
    let expect = [
        (7, None, State::InForce),
        (8, Some(2), State::InForce),
        (7, Some(1), refused(Reason::Own)),
        (8, Some(1), refused(Reason::Others)),
    ];
    assert_eq!(told, expect);
    assert!(list[1].before, "1's is kept for the flows that began with it");
}

#[test]
fn what_is_not_what_was_announced_or_does_not_pass_changes_nothing() {
    let mut library = open();
    let sound = object(0);
    assert_eq!(send(&mut library, 1, 7, sound), State::InForce);
    // A digest of something else.
    let mut wrong = pieces(7, object(2));
    wrong.iter_mut().for_each(|piece| piece.digest = [5; 32]);
    for piece in &wrong {
        assert!(library.take(1, piece, loud).1.is_none());
    }
    assert!(library.making.is_empty());
    let list = library.list();
    assert_eq!(list.last().map(|it| it.state), Some(State::Refused(Reason::Digest)));
    // Files that are none, every cut of one, and bits that are others: an error, or sound.
    let mut rng = fastrand::Rng::with_seed(4);
    let (mut refused, mut passed) = (0, 0);
    for round in 0..2_000 {
        let mut hostile = object(rng.usize(..objects().len())).to_vec();
        match round % 3 {
            0 => hostile.truncate(rng.usize(1..hostile.len())),
            1 => hostile.iter_mut().for_each(|byte| *byte = rng.u8(..)),
            _ => {
                let at = rng.usize(..hostile.len());
                hostile[at] ^= 1 << rng.u8(..8);
            }
        }
        match send(&mut library, 1, 9, &hostile) {
            State::InForce => passed += 1,
            State::Refused(Reason::Verifier) => {
                refused += 1;
                let (standing, _) = library.take(1, &offer(9, &hostile), loud);
                assert!(!standing.words.is_empty(), "why it is refused is said again");
                // Its pieces once more are not even looked at.
                assert!(library.take(1, &pieces(9, &hostile)[0], loud).1.is_none());
                assert!(library.making.is_empty());
            }
            other => panic!("{other:?}"),
        }
        assert_eq!(state(&mut library, 1, 7, sound), State::InForce);
    }
    assert!(refused > 1_000 && passed > 50, "{refused} refused, {passed} passed");
}

#[test]
fn what_is_kept_is_bounded() {
    let mut library = open();
    let mut rng = fastrand::Rng::with_seed(6);
    let bytes = vec![1; MOST_OBJECT];
    let whole = pieces(0, &bytes)[0];
    for round in 0..4_000u32 {
        let sender = rng.u32(1..4);
        let piece = Piece { program: rng.u8(..), digest: [rng.u8(..); 32], ..whole };
        let (standing, job) = library.take(sender, &piece, loud);
        assert_eq!((standing.state, job.is_none()), (State::Wanted, true), "round {round}");
    }
    let kept: usize = library.making.values().map(|it| it.bytes.len()).sum();
    assert_eq!(kept, 3 * MOST_OBJECT);
    // And no second one is taken while one is judged.
    let mut library = open();
    let job = pieces(7, object(0)).iter().find_map(|it| library.take(1, it, loud).1).unwrap();
    for piece in pieces(8, object(2)) {
        assert_eq!(library.take(1, &piece, loud).0.state, State::Judging);
    }
    assert!(library.making.is_empty());
    let judged = job.judge();
    assert!(library.judged(&job, judged).is_some());
    assert_eq!(state(&mut library, 1, 8, object(2)), State::Wanted);
}

#[test]
fn another_configuration_takes_away_what_it_does_not_allow() {
    let digest_of = |programs: &Programs, number| programs.get(number).map(|it| *it.digest());
    let mut library = open();
    assert_eq!(send(&mut library, 1, 7, object(0)), State::InForce);
    assert_eq!(send(&mut library, 2, 8, object(2)), State::InForce);
    let mut own = Programs::default();
    own.set(8, Some(Arc::new(Program::load(object(4)).unwrap())));
    let programs = library.reload(own, true, &[1, 2]);
    assert_eq!(digest_of(programs, 7), Some(digest(object(0))));
    assert_eq!(digest_of(programs, 8), Some(digest(object(4))), "now it is the gate's own");
    assert!(programs.has_before(8), "flows of the one that was sent go on");
    assert_eq!(state(&mut library, 2, 8, object(2)), State::Refused(Reason::Own));
    // One that was judged meanwhile is no longer waited for.
    let job = pieces(9, object(6)).iter().find_map(|it| library.take(1, it, loud).1).unwrap();
    library.reload(Programs::default(), true, &[1, 2]);
    let judged = job.judge();
    assert!(library.judged(&job, judged).is_none());
    assert_eq!(state(&mut library, 1, 9, object(6)), State::Wanted);
    // Who is no sender any more has no programs here, nor has anybody where it is forbidden.
    let programs = library.reload(Programs::default(), true, &[2]);
    assert_eq!((digest_of(programs, 7), programs.has_before(7)), (None, false));
    assert_eq!(send(&mut library, 2, 8, object(2)), State::InForce);
    let programs = library.reload(Programs::default(), false, &[2]);
    assert_eq!(digest_of(programs, 8), None);
    assert_eq!(state(&mut library, 2, 8, object(2)), State::Refused(Reason::NotAllowed));
}

/// A flow goes on with the version that it began with while that is the number's or the one
/// before; the slow twin has a list of all versions there ever were.
#[test]
fn a_flow_keeps_to_the_version_that_it_began_with() {
    let mut rng = fastrand::Rng::with_seed(11);
    let mut versions: Vec<_> =
        (0..8).map(|at| Arc::new(Program::load(object(at)).unwrap())).collect();
    // Some are the same for both ends of the instruction set.
    versions.dedup_by_key(|it| *it.digest());
    assert!(versions.len() >= 4);
    for _ in 0..200 {
        let mut programs = Programs::default();
        let mut history: Vec<usize> = Vec::new();
        for step in 0..50 {
            match rng.u8(..10) {
                0 => {
                    programs.set(3, None);
                    history.clear();
                }
                // By a reload that has read all files anew.
                1..4 => {
                    let at = rng.usize(..versions.len());
                    let mut next = Programs::default();
                    next.set(3, Some(Arc::clone(&versions[at])));
                    next.follow(&programs);
                    programs = next;
                    history.push(at);
                }
                _ => {
                    let at = rng.usize(..versions.len());
                    programs.set(3, Some(Arc::clone(&versions[at])));
                    history.push(at);
                }
            }
            history.dedup();
            let kept = &history[history.len().saturating_sub(2)..];
            for (at, version) in versions.iter().enumerate() {
                let found = programs.version(3, version.tag()).map(Program::digest);
                let expect = kept.contains(&at).then(|| version.digest());
                assert_eq!(found, expect, "step {step}: {history:?}");
            }
            assert_eq!(
                programs.get(3).map(|it| it.tag()),
                kept.last().map(|&at| versions[at].tag())
            );
        }
    }
}

/// What a network has under way: by time and serial number, whether to the gate, and what.
struct Network {
    rng: fastrand::Rng,
    loss: f64,
    under_way: BTreeMap<(u64, u64), (bool, Vec<u8>)>,
    serial: u64,
    recorded: Vec<Vec<u8>>,
}

impl Network {
    fn send(&mut self, now: u64, to_gate: bool, message: &[u8]) {
        assert!(message.len() <= 1452);
        if to_gate && self.rng.u8(..8) == 0 {
            self.recorded.push(message.to_vec());
        }
        if self.rng.f64() >= self.loss {
            self.serial += 1;
            let at = now + self.rng.u64(5 * MS..50 * MS);
            self.under_way.insert((at, self.serial), (to_gate, message.to_vec()));
        }
    }
}

fn keys() -> Keys {
    Keys::new(1, &[0x42; 32])
}

fn gate(session: u64) -> (Receiver, Library) {
    let mut receiver = Receiver::new(session);
    receiver.admit(9, keys());
    let mut own = Programs::default();
    own.set(5, Some(Arc::new(Program::load(object(0)).unwrap())));
    (receiver, Library::new(own, true))
}

/// Programs to a gate over a network that loses 30 % of everything in both directions, while
/// decisions flow and somebody plays messages back; the gate starts anew half-way if asked to.
fn converges(seed: u64, restart: bool) {
    let mut network = Network {
        rng: fastrand::Rng::with_seed(seed),
        loss: 0.3,
        under_way: BTreeMap::new(),
        serial: 0,
        recorded: Vec::new(),
    };
    let (mut receiver, mut library) = gate(77);
    let mut sender = Sender::new(9, keys(), 1452, 1_700_000_000);
    // Two that are sound, one that is none, one whose number is the gate's own.
    let none = vec![0x7f; 20_000];
    let parcels = [(1, object(2)), (2, &none), (3, object(8)), (5, object(2))]
        .map(|(number, object)| Parcel::new(number, "it", object));
    sender.carry(&parcels);
    let (mut message, mut reply, mut told) = (Vec::new(), Vec::new(), Vec::new());
    let mut jobs: Vec<(u64, Job)> = Vec::new();
    let (mut now, mut decided, mut replayed, mut restarted) = (0, 0, 0, false);
    let settled = |sender: &Sender| {
        let states = sender.programs().iter().map(|it| it.told().map(|told| told.state));
        states.collect::<Vec<_>>()
    };
    let expect = [
        State::InForce,
        State::Refused(Reason::Verifier),
        State::InForce,
        State::Refused(Reason::Own),
    ]
    .map(Some);
    loop {
        now += MS;
        assert!(now < 600_000 * MS, "after ten minutes: {:?}", settled(&sender));
        if now.is_multiple_of(20 * MS) && decided < 500 {
            let scope = Scope::of(&Flow::v4(decided, 7));
            sender.push(&Item { scope, say: Say::Flush }).unwrap();
            decided += 1;
        }
        sender.beat(now);
        while sender.poll(now, &mut message) {
            network.send(now, true, &message);
        }
        let under_way = sender.pending();
        assert!(under_way <= MOST_PIECES + 4 + 500, "{under_way}");
        if restart && !restarted && library.list().iter().any(|it| it.there.is_some()) {
            (receiver, library) = gate(78);
            (jobs, restarted) = (Vec::new(), true);
        }
        if !network.recorded.is_empty() && network.rng.u8(..5) == 0 {
            let at = network.rng.usize(..network.recorded.len());
            let again = network.recorded[at].clone();
            network.serial += 1;
            network.under_way.insert((now, network.serial), (true, again));
        }
        if let Some(at) = jobs.iter().position(|(at, _)| *at <= now) {
            let (_, job) = jobs.remove(at);
            let judged = job.judge();
            library.judged(&job, judged);
        }
        while let Some(entry) = network.under_way.first_entry().filter(|it| it.key().0 <= now) {
            let (to_gate, message) = entry.remove();
            if !to_gate {
                let _ = sender.receive(now, &message);
                continue;
            }
            told.clear();
            match receiver.receive(&message, &mut reply) {
                Ok(taken) => {
                    if let Some(piece) = taken.piece {
                        let asked = taken.asked();
                        let (standing, job) = library.take(taken.sender, &piece, loud);
                        jobs.extend(job.map(|job| (now + 3 * MS, job)));
                        if piece.is_offer() {
                            receiver.tell(&asked, &standing, &mut told);
                        }
                    }
                }
                Err(refused) => replayed += u32::from(refused == Refused::Replayed),
            }
            for answer in [&reply, &told].into_iter().filter(|it| !it.is_empty()) {
                network.send(now, false, answer);
            }
        }
        if settled(&sender) == expect && (restarted || !restart) {
            break;
        }
    }
    assert!(replayed > 20, "{replayed} replayed");
    for (number, at) in [(1, 2), (3, 8), (5, 0)] {
        let program = library.programs().get(number).map(|it| *it.digest());
        assert_eq!(program, Some(digest(object(at))), "program {number}");
    }
    assert!(library.programs().get(2).is_none());
    let words = &sender.programs()[1].told().unwrap().words;
    assert!(words.contains("object"), "{words}");
    // A gate that has lost a program, whyever, is found out by the next look.
    (_, library) = gate(0);
    let lost = now;
    network.loss = 0.0;
    while library.programs().get(1).is_none() || library.programs().get(3).is_none() {
        now += MS;
        assert!(now < lost + 4 * CHECK, "{:?}", settled(&sender));
        while sender.poll(now, &mut message) {
            let Ok(taken) = receiver.receive(&message, &mut reply) else { continue };
            let (asked, piece) = (taken.asked(), taken.piece);
            let found = piece.map(|piece| library.take(9, &piece, loud));
            sender.receive(now, &reply).unwrap();
            let Some((standing, job)) = found else { continue };
            if piece.is_some_and(|piece| piece.is_offer()) {
                receiver.tell(&asked, &standing, &mut told);
                let _ = sender.receive(now, &told);
            }
            if let Some(job) = job {
                let judged = job.judge();
                library.judged(&job, judged);
            }
        }
    }
}

#[test]
fn a_third_lost_both_ways_and_programs_arrive() {
    (0..4).for_each(|seed| converges(seed, false));
}

#[test]
fn a_gate_that_starts_anew_is_sent_them_again() {
    (20..24).for_each(|seed| converges(seed, true));
}
