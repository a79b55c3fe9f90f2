//! Programs from grantors: which are accepted, in which order chunks may arrive, and whole
//! transfers over a network that loses, delays, reorders and repeats messages.

use std::collections::BTreeMap;

use super::*;
use crate::decision::MessageError;
use crate::decision::v2::chunk::MAX_OBJECT_LEN;
use crate::decision::v2::keys::Keys;
use crate::decision::v2::receiver::Receiver;
use crate::decision::v2::sender::Sender;
use crate::decision::v2::transfer::{CHECK_INTERVAL, MAX_CHUNKS_IN_FLIGHT, ProgramImage};
use crate::decision::{FlowCommand, Item, Scope};
use crate::flow::Flow;
use crate::program::tests::objects;

const MS: u64 = 1_000_000;

/// Returns a valid object: the shipped program of this index.
fn object(at: usize) -> &'static [u8] {
    &objects()[at].1
}

fn offer(number: u8, object: &[u8]) -> Chunk<'_> {
    let length = object.len() as u32;
    Chunk { program: number, length, offset: 0, digest: digest(object), bytes: &[] }
}

/// Returns the chunks of an object, in order.
fn chunks(number: u8, object: &[u8]) -> Vec<Chunk<'_>> {
    let whole = offer(number, object);
    let each = object.chunks(CHUNK_LEN).enumerate();
    each.map(|(at, bytes)| Chunk { offset: (at * CHUNK_LEN) as u32, bytes, ..whole }).collect()
}

fn is_never_silent(_: u32) -> bool {
    false
}

fn state(library: &mut Library, sender: u32, number: u8, object: &[u8]) -> TransferState {
    library.receive_chunk(sender, &offer(number, object), is_never_silent).0.state
}

/// Sends all chunks, runs the verifier, and returns the state after it.
fn send(library: &mut Library, sender: u32, number: u8, object: &[u8]) -> TransferState {
    let mut whole = None;
    for chunk in chunks(number, object) {
        assert!(whole.is_none());
        whole = library.receive_chunk(sender, &chunk, is_never_silent).1;
    }
    if let Some(job) = whole {
        assert_eq!(state(library, sender, number, object), TransferState::Verifying);
        let result = job.verify();
        library.finish_verification(&job, result);
    }
    state(library, sender, number, object)
}

fn open() -> Library {
    Library::new(Programs::default(), true)
}

#[test]
fn chunks_in_any_order_and_repeated_give_the_program() {
    let mut rng = fastrand::Rng::with_seed(1);
    for round in 0..50 {
        let object = object(rng.usize(..objects().len()));
        let mut library = open();
        assert_eq!(state(&mut library, 1, 7, object), TransferState::Wanted);
        let mut left = chunks(7, object);
        let mut met = Vec::new();
        rng.shuffle(&mut left);
        let job = loop {
            let is_repeat = !met.is_empty() && rng.bool();
            let chunk = if is_repeat { met[rng.usize(..met.len())] } else { left.pop().unwrap() };
            met.push(chunk);
            let (status, job) = library.receive_chunk(1, &chunk, is_never_silent);
            assert_eq!(job.is_some(), left.is_empty() && !is_repeat, "round {round}");
            match job {
                Some(job) => break job,
                None => assert_eq!(status.state, TransferState::Wanted),
            }
        };
        assert_eq!(job.object, object);
        let result = job.verify();
        let programs = library.finish_verification(&job, result).unwrap();
        assert_eq!(*programs.get(7).unwrap().digest(), digest(object));
        assert_eq!(state(&mut library, 1, 7, object), TransferState::Active);
        // The same object from another grantor is active for that grantor too.
        assert_eq!(state(&mut library, 2, 7, object), TransferState::Active);
    }
}

#[test]
fn sender_without_permission_is_rejected() {
    let refused = |reason| TransferState::Rejected(reason);
    let mut closed = Library::new(Programs::default(), false);
    assert_eq!(send(&mut closed, 1, 7, object(0)), refused(RejectReason::NotAllowed));
    assert!(closed.partial.is_empty(), "no chunk of it is stored");
    let mut configured = Programs::default();
    configured.set(7, Some(Arc::new(Program::load(object(0)).unwrap())));
    let mut library = Library::new(configured.clone(), true);
    assert_eq!(
        state(&mut library, 1, 7, object(0)),
        TransferState::Active,
        "it is the gate's own program"
    );
    assert_eq!(send(&mut library, 1, 7, object(2)), refused(RejectReason::Own));
    assert!(library.partial.is_empty());
    // A number belongs to the first sender, as long as that is alive.
    assert_eq!(send(&mut library, 1, 8, object(2)), TransferState::Active);
    assert_eq!(send(&mut library, 2, 8, object(4)), refused(RejectReason::OtherSender));
    assert_eq!(
        send(&mut library, 1, 8, object(6)),
        TransferState::Active,
        "a sender replaces its own program"
    );
    for chunk in chunks(8, object(4)) {
        if let (_, Some(job)) = library.receive_chunk(2, &chunk, |owner| owner == 1) {
            let result = job.verify();
            assert!(library.finish_verification(&job, result).is_some());
        }
    }
    assert_eq!(state(&mut library, 2, 8, object(4)), TransferState::Active);
    assert_eq!(state(&mut library, 1, 8, object(6)), refused(RejectReason::OtherSender));
    let list = library.list();
    let states: Vec<_> = list.iter().map(|p| (p.number, p.sender, p.state)).collect();
    let expect = [
        (7, None, TransferState::Active),
        (8, Some(2), TransferState::Active),
        (7, Some(1), refused(RejectReason::Own)),
        (8, Some(1), refused(RejectReason::OtherSender)),
    ];
    assert_eq!(states, expect);
    assert!(list[1].has_previous, "the program of sender 1 is stored for its flows");
}

#[test]
fn wrong_digest_or_rejected_program_changes_nothing() {
    let mut library = open();
    let sound = object(0);
    assert_eq!(send(&mut library, 1, 7, sound), TransferState::Active);
    // The digest of another file.
    let mut wrong = chunks(7, object(2));
    wrong.iter_mut().for_each(|chunk| chunk.digest = [5; 32]);
    for chunk in &wrong {
        assert!(library.receive_chunk(1, chunk, is_never_silent).1.is_none());
    }
    assert!(library.partial.is_empty());
    let list = library.list();
    assert_eq!(list.last().map(|p| p.state), Some(TransferState::Rejected(RejectReason::Digest)));
    // Truncated files, random bytes and single changed bits: an error, or a valid program.
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
            TransferState::Active => passed += 1,
            TransferState::Rejected(RejectReason::Verifier) => {
                refused += 1;
                let (status, _) = library.receive_chunk(1, &offer(9, &hostile), is_never_silent);
                assert!(!status.error.is_empty(), "the verifier's error is sent again");
                // Its chunks are not processed again.
                assert!(
                    library.receive_chunk(1, &chunks(9, &hostile)[0], is_never_silent).1.is_none()
                );
                assert!(library.partial.is_empty());
            }
            other => panic!("{other:?}"),
        }
        assert_eq!(state(&mut library, 1, 7, sound), TransferState::Active);
    }
    assert!(refused > 1_000 && passed > 50, "{refused} rejected, {passed} passed");
}

#[test]
fn memory_of_incomplete_programs_is_bounded() {
    let mut library = open();
    let mut rng = fastrand::Rng::with_seed(6);
    let bytes = vec![1; MAX_OBJECT_LEN];
    let whole = chunks(0, &bytes)[0];
    for round in 0..4_000u32 {
        let sender = rng.u32(1..4);
        let chunk = Chunk { program: rng.u8(..), digest: [rng.u8(..); 32], ..whole };
        let (status, job) = library.receive_chunk(sender, &chunk, is_never_silent);
        assert_eq!((status.state, job.is_none()), (TransferState::Wanted, true), "round {round}");
    }
    let stored: usize = library.partial.values().map(|p| p.bytes.len()).sum();
    assert_eq!(stored, 3 * MAX_OBJECT_LEN);
    // No second program is accepted while the verifier runs.
    let mut library = open();
    let job = chunks(7, object(0))
        .iter()
        .find_map(|chunk| library.receive_chunk(1, chunk, is_never_silent).1)
        .unwrap();
    for chunk in chunks(8, object(2)) {
        assert_eq!(
            library.receive_chunk(1, &chunk, is_never_silent).0.state,
            TransferState::Verifying
        );
    }
    assert!(library.partial.is_empty());
    let result = job.verify();
    assert!(library.finish_verification(&job, result).is_some());
    assert_eq!(state(&mut library, 1, 8, object(2)), TransferState::Wanted);
}

#[test]
fn reload_removes_programs_that_it_does_not_allow() {
    let digest_of = |programs: &Programs, number| programs.get(number).map(|p| *p.digest());
    let mut library = open();
    assert_eq!(send(&mut library, 1, 7, object(0)), TransferState::Active);
    assert_eq!(send(&mut library, 2, 8, object(2)), TransferState::Active);
    let mut configured = Programs::default();
    configured.set(8, Some(Arc::new(Program::load(object(4)).unwrap())));
    let programs = library.reload(configured, true, &[1, 2]);
    assert_eq!(digest_of(programs, 7), Some(digest(object(0))));
    assert_eq!(digest_of(programs, 8), Some(digest(object(4))), "now it is the gate's own program");
    assert!(programs.has_previous(8), "flows of the sent program continue");
    assert_eq!(state(&mut library, 2, 8, object(2)), TransferState::Rejected(RejectReason::Own));
    // The result of a verification that began before the reload is discarded.
    let job = chunks(9, object(6))
        .iter()
        .find_map(|chunk| library.receive_chunk(1, chunk, is_never_silent).1)
        .unwrap();
    library.reload(Programs::default(), true, &[1, 2]);
    let result = job.verify();
    assert!(library.finish_verification(&job, result).is_none());
    assert_eq!(state(&mut library, 1, 9, object(6)), TransferState::Wanted);
    // A removed sender has no programs left, and no sender has any where they are forbidden.
    let programs = library.reload(Programs::default(), true, &[2]);
    assert_eq!((digest_of(programs, 7), programs.has_previous(7)), (None, false));
    assert_eq!(send(&mut library, 2, 8, object(2)), TransferState::Active);
    let programs = library.reload(Programs::default(), false, &[2]);
    assert_eq!(digest_of(programs, 8), None);
    assert_eq!(
        state(&mut library, 2, 8, object(2)),
        TransferState::Rejected(RejectReason::NotAllowed)
    );
}

/// A flow continues with the version that it began with while that is the current or the previous
/// one. The oracle has a list of all versions that there were.
#[test]
fn flow_continues_with_its_version_until_that_is_removed() {
    let mut rng = fastrand::Rng::with_seed(11);
    let mut versions: Vec<_> =
        (0..8).map(|at| Arc::new(Program::load(object(at)).unwrap())).collect();
    // Some are the same for both instruction sets.
    versions.dedup_by_key(|p| *p.digest());
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
                // A reload, which has read all files again.
                1..4 => {
                    let at = rng.usize(..versions.len());
                    let mut next = Programs::default();
                    next.set(3, Some(Arc::clone(&versions[at])));
                    next.keep_previous(&programs);
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
            let stored = &history[history.len().saturating_sub(2)..];
            for (at, version) in versions.iter().enumerate() {
                let found = programs.version(3, version.tag()).map(Program::digest);
                let expect = stored.contains(&at).then(|| version.digest());
                assert_eq!(found, expect, "step {step}: {history:?}");
            }
            assert_eq!(
                programs.get(3).map(|p| p.tag()),
                stored.last().map(|&at| versions[at].tag())
            );
        }
    }
}

/// A lossy network. Messages in flight are ordered by arrival time and serial number; each has its
/// direction (whether to the gate) and bytes.
struct Network {
    rng: fastrand::Rng,
    loss: f64,
    in_flight: BTreeMap<(u64, u64), (bool, Vec<u8>)>,
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
            self.in_flight.insert((at, self.serial), (to_gate, message.to_vec()));
        }
    }
}

fn keys() -> Keys {
    Keys::new(1, &[0x42; 32])
}

fn gate(session: u64) -> (Receiver, Library) {
    let mut receiver = Receiver::new(session);
    receiver.set_sender(9, keys());
    let mut configured = Programs::default();
    configured.set(5, Some(Arc::new(Program::load(object(0)).unwrap())));
    (receiver, Library::new(configured, true))
}

/// Sends programs to a gate over a network that loses 30 % of the messages in both directions,
/// while decisions are sent and recorded messages replayed; with `restart`, the gate restarts
/// half-way.
fn check_convergence(seed: u64, restart: bool) {
    let mut network = Network {
        rng: fastrand::Rng::with_seed(seed),
        loss: 0.3,
        in_flight: BTreeMap::new(),
        serial: 0,
        recorded: Vec::new(),
    };
    let (mut receiver, mut library) = gate(77);
    let mut sender = Sender::new(9, keys(), 1452, 1_700_000_000);
    // Two valid programs, an invalid one, and one with a number of the gate's own.
    let none = vec![0x7f; 20_000];
    let images = [(1, object(2)), (2, &none), (3, object(8)), (5, object(2))]
        .map(|(number, object)| ProgramImage::new(number, "program", object));
    sender.set_programs(&images);
    let (mut message, mut reply, mut status_reply) = (Vec::new(), Vec::new(), Vec::new());
    let mut jobs: Vec<(u64, VerificationJob)> = Vec::new();
    let (mut now, mut decided, mut replayed, mut restarted) = (0, 0, 0, false);
    let states = |sender: &Sender| {
        let states =
            sender.programs().iter().map(|transfer| transfer.status().map(|status| status.state));
        states.collect::<Vec<_>>()
    };
    let expect = [
        TransferState::Active,
        TransferState::Rejected(RejectReason::Verifier),
        TransferState::Active,
        TransferState::Rejected(RejectReason::Own),
    ]
    .map(Some);
    loop {
        now += MS;
        assert!(now < 600_000 * MS, "after ten minutes: {:?}", states(&sender));
        if now.is_multiple_of(20 * MS) && decided < 500 {
            let scope = Scope::of(&Flow::v4(decided, 7));
            sender.push(&Item { scope, command: FlowCommand::Flush }).unwrap();
            decided += 1;
        }
        sender.queue_heartbeat(now);
        while sender.poll(now, &mut message) {
            network.send(now, true, &message);
        }
        let pending = sender.pending();
        assert!(pending <= MAX_CHUNKS_IN_FLIGHT + 4 + 500, "{pending}");
        if restart && !restarted && library.list().iter().any(|p| p.received.is_some()) {
            (receiver, library) = gate(78);
            (jobs, restarted) = (Vec::new(), true);
        }
        if !network.recorded.is_empty() && network.rng.u8(..5) == 0 {
            let at = network.rng.usize(..network.recorded.len());
            let replay = network.recorded[at].clone();
            network.serial += 1;
            network.in_flight.insert((now, network.serial), (true, replay));
        }
        if let Some(at) = jobs.iter().position(|(at, _)| *at <= now) {
            let (_, job) = jobs.remove(at);
            let result = job.verify();
            library.finish_verification(&job, result);
        }
        while let Some(entry) = network.in_flight.first_entry().filter(|entry| entry.key().0 <= now)
        {
            let (to_gate, message) = entry.remove();
            if !to_gate {
                let _ = sender.receive(now, &message);
                continue;
            }
            status_reply.clear();
            match receiver.receive(&message, &mut reply) {
                Ok(taken) => {
                    if let Some(chunk) = taken.chunk {
                        let target = taken.reply_target();
                        let (status, job) =
                            library.receive_chunk(taken.sender, &chunk, is_never_silent);
                        jobs.extend(job.map(|job| (now + 3 * MS, job)));
                        if chunk.is_offer() {
                            receiver.write_status(&target, &status, &mut status_reply);
                        }
                    }
                }
                Err(refused) => replayed += u32::from(refused == MessageError::Replayed),
            }
            for answer in [&reply, &status_reply].into_iter().filter(|reply| !reply.is_empty()) {
                network.send(now, false, answer);
            }
        }
        if states(&sender) == expect && (restarted || !restart) {
            break;
        }
    }
    assert!(replayed > 20, "{replayed} replayed");
    for (number, at) in [(1, 2), (3, 8), (5, 0)] {
        let program = library.programs().get(number).map(|p| *p.digest());
        assert_eq!(program, Some(digest(object(at))), "program {number}");
    }
    assert!(library.programs().get(2).is_none());
    let error = &sender.programs()[1].status().unwrap().error;
    assert!(error.contains("object"), "{error}");
    // The next check finds a gate that has lost its programs.
    (_, library) = gate(0);
    let lost_at = now;
    network.loss = 0.0;
    while library.programs().get(1).is_none() || library.programs().get(3).is_none() {
        now += MS;
        assert!(now < lost_at + 4 * CHECK_INTERVAL, "{:?}", states(&sender));
        while sender.poll(now, &mut message) {
            let Ok(taken) = receiver.receive(&message, &mut reply) else { continue };
            let (target, chunk) = (taken.reply_target(), taken.chunk);
            let found = chunk.map(|chunk| library.receive_chunk(9, &chunk, is_never_silent));
            sender.receive(now, &reply).unwrap();
            let Some((status, job)) = found else { continue };
            if chunk.is_some_and(|chunk| chunk.is_offer()) {
                receiver.write_status(&target, &status, &mut status_reply);
                let _ = sender.receive(now, &status_reply);
            }
            if let Some(job) = job {
                let result = job.verify();
                library.finish_verification(&job, result);
            }
        }
    }
}

#[test]
fn programs_arrive_over_a_network_with_30_percent_loss() {
    (0..4).for_each(|seed| check_convergence(seed, false));
}

#[test]
fn restarted_gate_receives_its_programs_again() {
    (20..24).for_each(|seed| check_convergence(seed, true));
}
