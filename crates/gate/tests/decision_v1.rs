//! Version 1 of the decision protocol against messages of an independent implementation.
//!
//! `golden/v1.py` packs them with Python's struct, and shares no code with the gate.

use fingerpost_gate::decision::v1::{Reader, Writer};
use fingerpost_gate::decision::{FlowCommand, Item, MessageError, ProgramDecision, Scope};
use fingerpost_gate::flow::Flow;
use fingerpost_gate::state::{Decision, Grant, Provisional, Traffic};

fn golden() -> Vec<(&'static str, Vec<u8>)> {
    let lines = include_str!("golden/v1.hex").lines();
    let bytes = |hex: &str| {
        let pairs = (0..hex.len()).step_by(2);
        pairs.map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap()).collect()
    };
    lines.map(|line| line.split_once(' ').unwrap()).map(|(name, hex)| (name, bytes(hex))).collect()
}

fn items(name: &str) -> Vec<Item> {
    let v4 = Scope::of(&Flow::v4(0xc000_0201, 0xc633_6407));
    let v6 = Scope::of(&Flow::v6(0x2001_0db8 << 96 | 1, 0x2001_0db8_ffff_u128 << 80 | 2));
    let declined = |scope, expire_s| {
        let decline = Provisional { expire_s, traffic: Traffic::All };
        Item { scope, command: FlowCommand::Decide(Decision::Provisional(decline)) }
    };
    let granted = |scope, [rate_kib, expire_s, next_renewal_ms, renewal_step_ms]: [u32; 4]| {
        let grant = Grant { rate_kib, expire_s, next_renewal_ms, renewal_step_ms };
        Item { scope, command: FlowCommand::Decide(Decision::Grant(grant)) }
    };
    let run = |scope, program, bytes: &[u8]| {
        let mut cookie = [0; 64];
        cookie[..bytes.len()].copy_from_slice(bytes);
        Item { scope, command: FlowCommand::Run(ProgramDecision { expire_s: 60, program, cookie }) }
    };
    let usual = [1024, 300, 240_000, 3_000];
    let all: Vec<u8> = (0..64).collect();
    match name {
        "empty" => vec![],
        "declined4" => vec![declined(v4, 600)],
        "declined6" => vec![declined(v6, u32::MAX)],
        "granted4" => vec![granted(v4, usual)],
        "granted6" => vec![granted(v6, [1, 2, 3, 4])],
        "program4" => vec![run(v4, 3, &[1, 2, 3, 4, 5, 6])],
        "program6" => vec![run(v6, 255, &all)],
        "none4" => vec![run(v4, 0, &[])],
        "all" => vec![declined(v4, 1), granted(v6, usual), run(v4, 3, &[1, 2, 3, 4, 5, 6])],
        other => panic!("no items for {other}"),
    }
}

fn read(bytes: &[u8]) -> (Vec<Item>, Option<MessageError>) {
    let reader = match Reader::new(bytes) {
        Ok(reader) => reader,
        Err(refused) => return (vec![], Some(refused)),
    };
    let mut items = Vec::new();
    for item in reader {
        match item {
            Ok(item) => items.push(item),
            Err(refused) => return (items, Some(refused)),
        }
    }
    (items, None)
}

#[test]
fn encoding_and_decoding_equal_the_golden_messages() {
    assert_eq!(golden().len(), 9);
    for (name, bytes) in golden() {
        assert_eq!(read(&bytes), (items(name), None), "{name}");
        let mut writer = Writer::new(1472);
        assert!(items(name).iter().all(|item| writer.push(item)), "{name}");
        assert_eq!(writer.finish(), bytes, "{name}");
    }
}

#[test]
fn messages_have_gatekeepers_lengths() {
    let length = |name: &str| {
        golden().into_iter().find(|(have, _)| *have == name).map(|(_, bytes)| bytes.len() - 4)
    };
    let lengths = ["declined4", "declined6", "granted4", "granted6", "none4", "program6"];
    assert_eq!(lengths.map(|name| length(name).unwrap()), [16, 40, 28, 52, 20, 108]);
}

#[test]
fn truncated_message_keeps_its_complete_decisions() {
    for (name, bytes) in golden() {
        let all = items(name);
        for len in 0..bytes.len() {
            let (kept, refused) = read(&bytes[..len]);
            assert!(all.starts_with(&kept), "{name} cut to {len}");
            // Truncation is undetected only between two decisions.
            let whole = refused.is_none();
            let mut writer = Writer::new(1472);
            assert!(kept.iter().all(|item| writer.push(item)));
            assert_eq!(whole, writer.finish().len() == len, "{name} cut to {len}");
        }
    }
}

#[test]
fn flipped_bits_give_other_decisions_or_an_error() {
    for (name, bytes) in golden() {
        for bit in 0..bytes.len() * 8 {
            let mut flipped = bytes.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            let (items_read, refused) = read(&flipped);
            assert!(refused.is_some() || items_read != items(name), "{name} bit {bit}");
            match bit / 8 {
                0 => assert_eq!(refused, Some(MessageError::Version)),
                1..4 => assert_eq!(refused, Some(MessageError::Malformed)),
                _ => {}
            }
        }
    }
}

#[test]
fn messages_do_not_exceed_their_maximum_length() {
    let item = items("declined6")[0];
    let mut writer = Writer::new(4 + 3 * 40 + 39);
    assert_eq!((0..5).filter(|_| writer.push(&item)).count(), 3);
    assert_eq!(writer.finish().len(), 4 + 3 * 40);
}
