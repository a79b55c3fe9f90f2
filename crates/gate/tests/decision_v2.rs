//! Version 2 of the decision protocol: against messages of an independent implementation, against
//! forged and replayed messages, and over a network that loses, delays and reorders.

use std::collections::{BTreeMap, HashMap};

use fib::Prefix;
use fingerpost_gate::decision::v2::chunk::{CHUNK_LEN, ProgramStatus, RejectReason, TransferState};
use fingerpost_gate::decision::v2::keys::Keys;
use fingerpost_gate::decision::v2::receiver::Receiver;
use fingerpost_gate::decision::v2::sender::{
    HEARTBEAT_INTERVAL, MAX_QUEUED, MAX_TRANSMISSIONS, SendQueueFull, Sender,
};
use fingerpost_gate::decision::v2::transfer::{
    CHECK_INTERVAL, MAX_CHUNKS_IN_FLIGHT, POLL_INTERVAL, ProgramImage,
};
use fingerpost_gate::decision::{FlowCommand, Item, MessageError, ProgramDecision, Scope};
use fingerpost_gate::flow::Flow;
use fingerpost_gate::state::{Decision, Grant, Provisional, Record, Stamp, Traffic};

const SECRET: [u8; 32] = {
    let mut secret = [0; 32];
    let mut at = 0;
    while at < 32 {
        secret[at] = at as u8;
        at += 1;
    }
    secret
};
const SESSION: u64 = 0x1122_3344_5566_7788;
const START: u64 = 1_700_000_000;
const MS: u64 = 1_000_000;

fn golden(name: &str) -> Vec<u8> {
    let lines = include_str!("golden/v2.hex").lines().map(|line| line.split_once(' ').unwrap());
    let hex = lines.clone().find(|(have, _)| *have == name).unwrap().1;
    (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap()).collect()
}

fn items() -> Vec<Item> {
    let v4 = Scope::of(&Flow::v4(0xc000_0201, 0xc633_6407));
    let v6 = Scope::of(&Flow::v6(0x2001_0db8 << 96 | 1, 0x2001_0db8_ffff_u128 << 80 | 2));
    let mut cookie = [0; 64];
    cookie[..6].copy_from_slice(&[1, 2, 3, 4, 5, 6]);
    let grant =
        Grant { rate_kib: 1024, expire_s: 300, next_renewal_ms: 240_000, renewal_step_ms: 3_000 };
    let decline = Provisional { expire_s: 600, traffic: Traffic::All };
    vec![
        Item { scope: v4, command: FlowCommand::Decide(Decision::Provisional(decline)) },
        Item { scope: v6, command: FlowCommand::Decide(Decision::Grant(grant)) },
        Item {
            scope: v4,
            command: FlowCommand::Run(ProgramDecision { expire_s: 60, program: 3, cookie }),
        },
        Item {
            scope: Scope::V4("192.0.2.0/24".parse().unwrap(), Prefix::ALL),
            command: FlowCommand::Decide(Decision::Decline { expire_s: 30 }),
        },
        Item {
            scope: Scope::V6(Prefix::ALL, "2001:db8::/32".parse().unwrap()),
            command: FlowCommand::Flush,
        },
    ]
}

fn keys() -> Keys {
    Keys::new(7, &SECRET)
}

fn pair() -> (Sender, Receiver) {
    let mut receiver = Receiver::new(SESSION);
    receiver.set_sender(99, keys());
    (Sender::new(99, keys(), 1452, START), receiver)
}

/// Exchanges messages until the sender knows the session; returns the next message.
fn first_message(sender: &mut Sender, receiver: &mut Receiver) -> Vec<u8> {
    let (mut message, mut reply) = (Vec::new(), Vec::new());
    assert!(sender.poll(0, &mut message));
    assert_eq!(receiver.receive(&message, &mut reply).unwrap_err(), MessageError::OtherSession);
    sender.receive(0, &reply).unwrap();
    assert!(sender.poll(0, &mut message));
    message
}

#[test]
fn messages_equal_those_of_an_independent_implementation() {
    let (mut sender, mut receiver) = pair();
    items().iter().for_each(|item| sender.push(item).unwrap());
    let (mut message, mut reply) = (Vec::new(), Vec::new());
    assert!(sender.poll(0, &mut message));
    assert_eq!(message, golden("probe"));
    assert_eq!(receiver.receive(&message, &mut reply).unwrap_err(), MessageError::OtherSession);
    assert_eq!(reply, golden("hello"));
    sender.receive(0, &reply).unwrap();
    assert!(sender.poll(0, &mut message));
    assert_eq!(message, golden("decisions"));
    let taken = receiver.receive(&message, &mut reply).unwrap();
    let taken: Vec<_> = taken.items().map(|(item, _)| *item).collect();
    assert_eq!(taken, items());
    assert_eq!(reply, golden("acknowledgement"));
    sender.receive(0, &reply).unwrap();
    assert_eq!(sender.pending(), 0);
    assert!(!sender.poll(u64::MAX / 2, &mut message));
}

#[test]
fn changed_or_truncated_message_is_rejected() {
    for name in ["decisions", "hello", "acknowledgement"] {
        let message = golden(name);
        let check = |changed: &[u8]| {
            let (mut sender, mut receiver) = pair();
            sender.push(&items()[0]).unwrap();
            first_message(&mut sender, &mut receiver);
            let mut reply = Vec::new();
            let refused = if name == "decisions" {
                receiver.receive(changed, &mut reply).err()
            } else {
                sender.receive(5, changed).err()
            };
            assert!(refused.is_some() && reply.is_empty(), "{name}: {refused:?}");
        };
        (0..message.len()).for_each(|len| check(&message[..len]));
        check(&[&message[..], &[0]].concat());
        for bit in 0..message.len() * 8 {
            let mut changed = message.clone();
            changed[bit / 8] ^= 1 << (bit % 8);
            check(&changed);
        }
    }
}

#[test]
fn forged_unknown_and_replayed_messages_are_rejected() {
    let (mut sender, mut receiver) = pair();
    let (mut message, mut reply) = (Vec::new(), Vec::new());
    // Another secret under the same number, another number, another sender.
    let strangers = [
        (99, Keys::new(7, &[1; 32]), MessageError::Forged),
        (99, Keys::new(8, &SECRET), MessageError::UnknownKey),
        (98, keys(), MessageError::UnknownSender),
    ];
    for (id, keys, expect) in strangers {
        let mut stranger = Sender::new(id, keys, 1452, START);
        stranger.push(&items()[0]).unwrap();
        assert!(stranger.poll(0, &mut message));
        assert_eq!(receiver.receive(&message, &mut reply).unwrap_err(), expect);
        assert!(reply.is_empty(), "a message that is not authentic gets no answer");
    }
    sender.push(&items()[0]).unwrap();
    let message = first_message(&mut sender, &mut receiver);
    assert!(receiver.receive(&message, &mut reply).is_ok());
    assert_eq!(receiver.receive(&message, &mut reply).unwrap_err(), MessageError::Replayed);
    assert_eq!(reply, golden("acknowledgement"), "the first one may have been lost");
    // A restarted gate has another session, so a replay is rejected.
    let mut receiver = Receiver::new(SESSION + 1);
    receiver.set_sender(99, keys());
    assert_eq!(receiver.receive(&message, &mut reply).unwrap_err(), MessageError::OtherSession);
    // A gate rejects a gate's messages, and so does a grantor without a pending request.
    for name in ["acknowledgement", "hello"] {
        assert_eq!(
            receiver.receive(&golden(name), &mut reply).unwrap_err(),
            MessageError::Malformed
        );
    }
    let mut idle = Sender::new(99, keys(), 1452, START);
    assert_eq!(idle.receive(0, &golden("hello")), Err(MessageError::TooOld));
    assert_eq!(idle.receive(0, &golden("acknowledgement")), Err(MessageError::OtherSession));
    // A removed sender's decisions are rejected.
    assert!(receiver.remove_sender(99));
    assert!(!receiver.remove_sender(5));
    assert_eq!(receiver.receive(&message, &mut reply).unwrap_err(), MessageError::UnknownKey);
}

#[test]
fn key_rotation_rejects_no_message() {
    let (mut sender, mut receiver) = pair();
    let mut reply = Vec::new();
    let mut both = keys();
    both.add(8, &[9; 32]);
    sender.push(&items()[0]).unwrap();
    let mut message = first_message(&mut sender, &mut receiver);
    assert!(receiver.receive(&message, &mut reply).is_ok());
    sender.receive(1, &reply).unwrap();
    receiver.set_sender(99, both.clone());
    assert!(both.sign_with(8));
    sender.set_keys(both);
    sender.push(&items()[1]).unwrap();
    assert!(sender.poll(2, &mut message));
    assert!(receiver.receive(&message, &mut reply).is_ok());
    sender.receive(2, &reply).unwrap();
    assert_eq!(sender.pending(), 0);
    receiver.set_sender(99, Keys::new(8, &[9; 32]));
    let mut old = Sender::new(99, keys(), 1452, START + 9);
    old.push(&items()[0]).unwrap();
    assert!(old.poll(0, &mut message));
    assert_eq!(receiver.receive(&message, &mut reply).unwrap_err(), MessageError::UnknownKey);
}

/// A network of datagrams in both directions.
struct Network {
    rng: fastrand::Rng,
    loss: f64,
    /// Messages in flight, by arrival time and serial number: whether to the gate, and the bytes.
    in_flight: BTreeMap<(u64, u64), (bool, Vec<u8>)>,
    serial: u64,
    recorded: Vec<Vec<u8>>,
}

impl Network {
    fn new(seed: u64, loss: f64) -> Self {
        let rng = fastrand::Rng::with_seed(seed);
        Self { rng, loss, in_flight: BTreeMap::new(), serial: 0, recorded: Vec::new() }
    }

    fn send(&mut self, now: u64, to_gate: bool, message: &[u8]) {
        assert!(message.len() <= 1452);
        if to_gate && self.rng.u8(..10) == 0 {
            self.recorded.push(message.to_vec());
        }
        if self.rng.f64() >= self.loss {
            self.serial += 1;
            let at = now + self.rng.u64(5 * MS..50 * MS);
            self.in_flight.insert((at, self.serial), (to_gate, message.to_vec()));
        }
    }
}

/// Decides about random flows and flushes some prefixes over a network that loses 30 % of the
/// messages in both directions; with `restart`, the gate restarts half-way. In the end every flow
/// has the grantor's last decision.
fn check_convergence(seed: u64, restart: bool) {
    let mut network = Network::new(seed, 0.3);
    let (mut sender, mut receiver) = pair();
    let mut rng = fastrand::Rng::with_seed(seed + 100);
    let mut now = 0;
    let mut decided: HashMap<u32, Decision> = HashMap::new();
    let mut gate: HashMap<u32, Record> = HashMap::new();
    let (mut message, mut reply) = (Vec::new(), Vec::new());
    let (mut refused, mut late) = (0, 0);
    let mut left = 20_000;
    while left > 0 || sender.pending() > 0 {
        now += MS;
        assert!(now < 600_000 * MS, "{} are left after ten minutes", sender.pending());
        for _ in 0..20.min(left) {
            let src = rng.u32(..500);
            let decision = match rng.bool() {
                true => Decision::Decline { expire_s: 1_000 + left },
                false => {
                    Decision::Grant(Grant { rate_kib: left, expire_s: 9_999, ..Grant::default() })
                }
            };
            let item = Item {
                scope: Scope::of(&Flow::v4(src, 7)),
                command: FlowCommand::Decide(decision),
            };
            if sender.push(&item).is_ok() {
                decided.insert(src, decision);
                left -= 1;
            }
        }
        while sender.poll(now, &mut message) {
            network.send(now, true, &message);
        }
        if restart && left < 10_000 && receiver.session() == SESSION {
            receiver = Receiver::new(SESSION + 5);
            receiver.set_sender(99, keys());
        }
        // An attacker replays recorded messages.
        if !network.recorded.is_empty() && network.rng.u8(..3) == 0 {
            let at = network.rng.usize(..network.recorded.len());
            let replay = network.recorded[at].clone();
            network.serial += 1;
            network.in_flight.insert((now, network.serial), (true, replay));
        }
        while let Some(entry) = network.in_flight.first_entry().filter(|entry| entry.key().0 <= now)
        {
            let (to_gate, message) = entry.remove();
            if !to_gate {
                let _ = sender.receive(now, &message);
                continue;
            }
            let taken = receiver.receive(&message, &mut reply);
            refused += u32::from(taken.is_err());
            if let Ok(taken) = taken {
                for (item, stamp) in taken.items() {
                    let (Some(flow), FlowCommand::Decide(decision)) =
                        (item.scope.flow(), item.command)
                    else {
                        panic!("{item:?}");
                    };
                    let src = (0..500).find(|&src| Flow::v4(src, 7) == flow).unwrap();
                    let record = gate.entry(src).or_insert_with(|| Record::new(0));
                    late += u32::from(!record.decide(0, &decision, stamp));
                }
            }
            if !reply.is_empty() {
                network.send(now, false, &reply);
            }
        }
    }
    assert_eq!(sender.given_up(), 0);
    assert!(refused > 50 && late > 50, "{refused} rejected, {late} late");
    for (src, decision) in decided {
        let mut expect = Record::new(0);
        expect.decide(0, &decision, Stamp::default());
        assert_eq!(gate[&src].state(), expect.state(), "flow {src}");
        assert_eq!(gate[&src].expire_at(), expect.expire_at(), "flow {src}");
        if let Decision::Grant(_) = decision {
            assert_eq!(gate[&src].budget(0), expect.budget(0), "flow {src}");
        }
    }
}

#[test]
fn decisions_converge_over_a_network_with_30_percent_loss() {
    (0..4).for_each(|seed| check_convergence(seed, false));
}

#[test]
fn decisions_converge_after_a_restart_of_the_gate() {
    (10..12).for_each(|seed| check_convergence(seed, true));
}

#[test]
fn sender_with_a_clock_set_back_recovers() {
    let (mut sender, mut receiver) = pair();
    sender.push(&items()[0]).unwrap();
    let mut message = first_message(&mut sender, &mut receiver);
    let mut reply = Vec::new();
    assert!(receiver.receive(&message, &mut reply).is_ok());
    let mut back = Sender::new(99, keys(), 1452, START - 3_600);
    back.push(&items()[1]).unwrap();
    for (round, expect) in
        [Err(MessageError::OtherSession), Err(MessageError::TooOld), Ok(())].iter().enumerate()
    {
        let now = round as u64 * MS;
        assert!(back.poll(now, &mut message), "round {round}");
        let taken = receiver.receive(&message, &mut reply).map(|_| ());
        assert_eq!(taken, *expect, "round {round}");
        back.receive(now, &reply).unwrap();
    }
    assert_eq!(back.pending(), 0);
}

#[test]
fn missing_gate_is_given_up_and_the_queue_is_bounded() {
    let (mut sender, _) = pair();
    let item = items()[1];
    let mut pushed = 0;
    while sender.push(&item) != Err(SendQueueFull) {
        pushed += 1;
    }
    assert!(pushed > MAX_QUEUED * 20);
    let mut message = Vec::new();
    let mut sent = 0;
    let mut now = 0;
    while sender.given_up() == 0 {
        sent += u32::from(sender.poll(now, &mut message));
        now = sender.due_at().unwrap();
    }
    // Without answers one message at a time is sent; the last is the first of the next one.
    assert_eq!(sent, MAX_TRANSMISSIONS + 1);
    assert!(now < 60_000 * MS);
}

#[test]
fn idle_grantor_sends_heartbeats() {
    let (mut sender, mut receiver) = pair();
    let (mut out, mut reply) = (Vec::new(), Vec::new());
    // Returns the number of items in a new message, if one was accepted.
    let mut step = |sender: &mut Sender, now: u64, answers: bool| -> Option<usize> {
        sender.queue_heartbeat(now);
        let mut taken = None;
        while sender.poll(now, &mut out) {
            if let Ok(items) = receiver.receive(&out, &mut reply) {
                taken = Some(items.items().count());
            }
            if answers && !reply.is_empty() {
                sender.receive(now, &reply).unwrap();
            }
        }
        taken
    };
    // The first is for another session; the hello brings the second at once.
    assert_eq!(step(&mut sender, 0, true), Some(0));
    assert_eq!(step(&mut sender, HEARTBEAT_INTERVAL - 1, true), None);
    assert_eq!(step(&mut sender, HEARTBEAT_INTERVAL, true), Some(0));
    // A decision counts as a heartbeat.
    sender.push(&items()[0]).unwrap();
    assert_eq!(step(&mut sender, HEARTBEAT_INTERVAL + MS, true), Some(1));
    assert_eq!(step(&mut sender, 2 * HEARTBEAT_INTERVAL, true), None);
    assert_eq!(step(&mut sender, 2 * HEARTBEAT_INTERVAL + MS, true), Some(0));
    // Unacknowledged heartbeats are neither retransmitted nor counted; decisions are.
    let mut taken = 0;
    for now in (3 * HEARTBEAT_INTERVAL..303 * HEARTBEAT_INTERVAL).step_by(MS as usize) {
        taken += u64::from(step(&mut sender, now, false).is_some());
    }
    assert!((100..=300).contains(&taken), "{taken} in 300 intervals");
    assert_eq!((sender.given_up(), sender.pending() <= 1), (0, true));
    sender.push(&items()[0]).unwrap();
    assert_eq!(step(&mut sender, 304 * HEARTBEAT_INTERVAL, false), Some(1));
    assert_eq!(
        step(&mut sender, 304 * HEARTBEAT_INTERVAL + 4_000 * MS, false),
        None,
        "it was accepted before"
    );
    assert_eq!(step(&mut sender, 304 * HEARTBEAT_INTERVAL + 8_000 * MS, true), None);
    assert_eq!(sender.pending(), 0);
}

/// The program in the golden messages.
fn object() -> Vec<u8> {
    (0..1500u32).map(|at| (at % 251) as u8).collect()
}

fn status(of: &ProgramImage, state: TransferState, error: &str) -> ProgramStatus {
    ProgramStatus { program: of.number(), digest: *of.digest(), state, error: error.to_owned() }
}

/// Returns a grantor and a gate whose next message answers the offer of a program, and the offer.
fn offered() -> (Sender, Receiver, ProgramImage, Vec<u8>) {
    let (mut sender, mut receiver) = pair();
    let image = ProgramImage::new(3, "program", &object());
    sender.set_programs(std::slice::from_ref(&image));
    let offer = first_message(&mut sender, &mut receiver);
    (sender, receiver, image, offer)
}

#[test]
fn program_transfer_equals_that_of_an_independent_implementation() {
    let (mut sender, mut receiver, image, offer) = offered();
    let (mut message, mut reply, mut status_reply) = (Vec::new(), Vec::new(), Vec::new());
    assert_eq!(offer, golden("offer"));
    let taken = receiver.receive(&offer, &mut reply).unwrap();
    let (chunk, target) = (taken.chunk.unwrap(), taken.reply_target());
    assert!(chunk.is_offer() && taken.items().count() == 0);
    assert_eq!((chunk.program, chunk.length, &chunk.digest), (3, 1500, image.digest()));
    receiver.write_status(&target, &status(&image, TransferState::Wanted, ""), &mut status_reply);
    assert_eq!(status_reply, golden("wanted"));
    // Until then, nothing else is sent.
    sender.receive(0, &reply).unwrap();
    assert!(!sender.poll(1, &mut message));
    sender.receive(1, &status_reply).unwrap();
    let mut whole = vec![0; 1500];
    let mut last = Vec::new();
    while sender.poll(1, &mut message) {
        let chunk = receiver.receive(&message, &mut reply).unwrap().chunk.unwrap();
        let at = chunk.offset as usize;
        whole[at..at + chunk.bytes.len()].copy_from_slice(chunk.bytes);
        last.clone_from(&message);
    }
    assert_eq!((whole, last), (object(), golden("chunk")));
    let refused =
        status(&image, TransferState::Rejected(RejectReason::Verifier), "pkt: it would never end");
    receiver.write_status(&target, &refused, &mut status_reply);
    assert_eq!(status_reply, golden("refused"));
    // That offer has its answer already: only the answer to the next one is accepted.
    assert_eq!(sender.receive(2, &status_reply), Err(MessageError::TooOld));
    sender.receive(2, &reply).unwrap();
    assert!(sender.poll(2, &mut message));
    let target = receiver.receive(&message, &mut reply).unwrap().reply_target();
    receiver.write_status(&target, &refused, &mut status_reply);
    sender.receive(2, &status_reply).unwrap();
    assert_eq!(sender.programs()[0].status(), Some(&refused));
    // The next offer follows after an interval, and a repeated answer is rejected.
    assert_eq!(sender.receive(3, &status_reply), Err(MessageError::TooOld));
    sender.receive(3, &reply).unwrap();
    assert!(!sender.poll(CHECK_INTERVAL, &mut message));
    assert!(sender.poll(CHECK_INTERVAL + 2, &mut message));
}

#[test]
fn changed_or_truncated_offer_or_answer_is_rejected() {
    let (mut receiver, mut reply) = (Receiver::new(SESSION), Vec::new());
    receiver.set_sender(99, keys());
    for name in ["offer", "chunk", "wanted"] {
        let message = golden(name);
        let (mut sender, ..) = offered();
        let mut check = |changed: &[u8]| match name {
            "wanted" => assert!(sender.receive(5, changed).is_err()),
            _ => assert!(receiver.receive(changed, &mut reply).is_err() && reply.is_empty()),
        };
        (0..message.len()).for_each(|len| check(&message[..len]));
        check(&[&message[..], &[0]].concat());
        for bit in 0..message.len() * 8 {
            let mut changed = message.clone();
            changed[bit / 8] ^= 1 << (bit % 8);
            check(&changed);
        }
        if name == "wanted" {
            sender.receive(5, &message).unwrap();
        } else {
            assert!(receiver.receive(&message, &mut reply).unwrap().chunk.is_some());
        }
    }
}

#[test]
fn program_transfer_does_not_delay_decisions() {
    let (mut sender, mut receiver) = pair();
    let image = ProgramImage::new(3, "program", &vec![1; 200_000]);
    sender.set_programs(std::slice::from_ref(&image));
    let offer = first_message(&mut sender, &mut receiver);
    let (mut message, mut reply, mut status_reply) = (Vec::new(), Vec::new(), Vec::new());
    let target = receiver.receive(&offer, &mut reply).unwrap().reply_target();
    receiver.write_status(&target, &status(&image, TransferState::Wanted, ""), &mut status_reply);
    sender.receive(0, &status_reply).unwrap();
    let mut in_flight = 0;
    while sender.poll(0, &mut message) {
        in_flight += 1;
        assert!(message.len() <= CHUNK_LEN + 84);
    }
    // The unacknowledged offer is not a chunk.
    assert_eq!(in_flight, MAX_CHUNKS_IN_FLIGHT);
    sender.push(&items()[0]).unwrap();
    assert!(sender.poll(1, &mut message));
    assert_eq!(receiver.receive(&message, &mut reply).unwrap().items().count(), 1);
    // The status of a program that is no longer sent is rejected.
    sender.set_programs(&[]);
    assert_eq!(sender.receive(2, &status_reply), Err(MessageError::TooOld));
    // Without answers, offers are repeated at intervals and not counted as lost.
    let mut lonely = Sender::new(99, keys(), 1452, START);
    lonely.set_programs(&[image]);
    let mut sent = 0;
    for now in (0..60_000 * MS).step_by(MS as usize) {
        sent += u64::from(lonely.poll(now, &mut message));
    }
    assert!((60..=60_000 * MS / POLL_INTERVAL + 1).contains(&sent), "{sent} in a minute");
    assert_eq!((lonely.given_up(), lonely.pending() <= 1), (0, true));
}
