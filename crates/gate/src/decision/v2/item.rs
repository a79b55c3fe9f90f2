//! Encoding of decisions.
//!
//! ```text
//!   type:8 | family:8 | source length:8 | destination length:8 | source | destination
//!   1 declined   expire_s:32                                provisionally, for a single flow
//!   2 granted    rate_kib:32 expire_s:32 next_ms:32 step_ms:32
//!   3 program    expire_s:32 program:8 0:16 words:8 cookie
//!   4 flush
//!   5 declined, on proof or by address       expire_s:32
//!   6 declined provisionally, some packets   expire_s:32 protocol:8 has_port:8 port:16
//! ```
//!
//! Addresses are 4 bytes where the family is 4, and 16 where it is 6; bits beyond a length are
//! zero. Type 1 about prefixes rests on addresses, and is not provisional: it equals type 5.

use fib::{Addr, Prefix};

use super::MAX_ITEMS;
use crate::decision::cursor::{Cursor, put_grant, put_program};
use crate::decision::{FlowCommand, Item, MessageError, Scope};
use crate::state::{Decision, Provisional, Traffic};

const DECLINED: u8 = 1;
const GRANTED: u8 = 2;
const PROGRAM: u8 = 3;
const FLUSH: u8 = 4;
const DECLINED_FIRM: u8 = 5;
const DECLINED_SOME: u8 = 6;

pub(super) fn put(out: &mut Vec<u8>, item: &Item) {
    let kind = match item.command {
        FlowCommand::Decide(Decision::Decline { .. }) if item.scope.flow().is_none() => DECLINED,
        FlowCommand::Decide(Decision::Decline { .. }) => DECLINED_FIRM,
        FlowCommand::Decide(Decision::Provisional(Provisional {
            traffic: Traffic::All, ..
        })) => DECLINED,
        FlowCommand::Decide(Decision::Provisional(_)) => DECLINED_SOME,
        FlowCommand::Decide(Decision::Grant(_)) => GRANTED,
        FlowCommand::Run(_) => PROGRAM,
        FlowCommand::Flush => FLUSH,
    };
    match item.scope {
        Scope::V4(src, dst) => {
            out.extend_from_slice(&[kind, 4, src.len() as u8, dst.len() as u8]);
            out.extend_from_slice(&src.addr().to_be_bytes());
            out.extend_from_slice(&dst.addr().to_be_bytes());
        }
        Scope::V6(src, dst) => {
            out.extend_from_slice(&[kind, 6, src.len() as u8, dst.len() as u8]);
            out.extend_from_slice(&src.addr().to_be_bytes());
            out.extend_from_slice(&dst.addr().to_be_bytes());
        }
    }
    match &item.command {
        FlowCommand::Decide(Decision::Decline { expire_s }) => {
            out.extend_from_slice(&expire_s.to_be_bytes());
        }
        FlowCommand::Decide(Decision::Provisional(Provisional { expire_s, traffic })) => {
            out.extend_from_slice(&expire_s.to_be_bytes());
            match *traffic {
                Traffic::All => {}
                Traffic::Protocol(protocol) => out.extend_from_slice(&[protocol, 0, 0, 0]),
                Traffic::Port { protocol, port } => {
                    let [high, low] = port.to_be_bytes();
                    out.extend_from_slice(&[protocol, 1, high, low]);
                }
            }
        }
        FlowCommand::Decide(Decision::Grant(grant)) => put_grant(out, grant),
        FlowCommand::Run(program) => put_program(out, program),
        FlowCommand::Flush => {}
    }
}

fn get(cursor: &mut Cursor<'_>) -> Result<Item, MessageError> {
    let [kind, family, src_len, dst_len] = cursor.take()?;
    fn prefix<A: Addr>(addr: A, len: u8) -> Result<Prefix<A>, MessageError> {
        Prefix::new(addr, len.into()).map_err(|_| MessageError::Malformed)
    }
    let scope = match family {
        4 => Scope::V4(prefix(cursor.u32()?, src_len)?, prefix(cursor.u32()?, dst_len)?),
        6 => Scope::V6(prefix(cursor.u128()?, src_len)?, prefix(cursor.u128()?, dst_len)?),
        _ => return Err(MessageError::Malformed),
    };
    let command = match kind {
        DECLINED if scope.flow().is_some() => {
            let (expire_s, traffic) = (cursor.u32()?, Traffic::All);
            FlowCommand::Decide(Decision::Provisional(Provisional { expire_s, traffic }))
        }
        DECLINED | DECLINED_FIRM => {
            FlowCommand::Decide(Decision::Decline { expire_s: cursor.u32()? })
        }
        DECLINED_SOME if scope.flow().is_some() => {
            let expire_s = cursor.u32()?;
            let traffic = match cursor.take()? {
                [protocol, 0, 0, 0] => Traffic::Protocol(protocol),
                [protocol, 1, high, low] => {
                    Traffic::Port { protocol, port: u16::from_be_bytes([high, low]) }
                }
                _ => return Err(MessageError::Malformed),
            };
            FlowCommand::Decide(Decision::Provisional(Provisional { expire_s, traffic }))
        }
        GRANTED => FlowCommand::Decide(Decision::Grant(cursor.grant()?)),
        PROGRAM => FlowCommand::Run(cursor.program()?),
        FLUSH => FlowCommand::Flush,
        _ => return Err(MessageError::Malformed),
    };
    Ok(Item { scope, command })
}

/// Encodes an item, as in the body of a message.
pub fn encode_item(item: &Item) -> Vec<u8> {
    let mut out = Vec::new();
    put(&mut out, item);
    out
}

/// Decodes one item.
///
/// # Errors
///
/// [`MessageError::Truncated`] or [`MessageError::Malformed`], also for bytes behind it.
pub fn decode_item(bytes: &[u8]) -> Result<Item, MessageError> {
    let mut cursor = Cursor(bytes);
    let item = get(&mut cursor)?;
    if cursor.0.is_empty() { Ok(item) } else { Err(MessageError::Malformed) }
}

/// Decodes all items of a body into `items`; on an error none of them counts.
pub(super) fn get_all(body: &[u8], items: &mut Vec<Item>) -> Result<(), MessageError> {
    items.clear();
    let mut cursor = Cursor(body);
    while !cursor.0.is_empty() {
        if items.len() == MAX_ITEMS {
            return Err(MessageError::Malformed);
        }
        items.push(get(&mut cursor)?);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flow::Flow;

    #[test]
    fn decline_type_states_its_proof() {
        let flow = Scope::of(&Flow::v4(0x0a00_0001, 0xc000_0207));
        let prefix = Scope::V4(Prefix::truncate(0x0a00_0000, 24), Prefix::ALL);
        let provisional = |traffic| Decision::Provisional(Provisional { expire_s: 9, traffic });
        let cases: [(Scope, Decision, u8, &[u8]); 5] = [
            (flow, provisional(Traffic::All), 1, &[]),
            (prefix, Decision::Decline { expire_s: 9 }, 1, &[]),
            (flow, Decision::Decline { expire_s: 9 }, 5, &[]),
            (flow, provisional(Traffic::Protocol(17)), 6, &[17, 0, 0, 0]),
            (flow, provisional(Traffic::Port { protocol: 6, port: 81 }), 6, &[6, 1, 0, 81]),
        ];
        let mut items = Vec::new();
        for (scope, decision, kind, rest) in cases {
            let item = Item { scope, command: FlowCommand::Decide(decision) };
            let mut bytes = Vec::new();
            put(&mut bytes, &item);
            assert_eq!((bytes[0], &bytes[12..]), (kind, &[&[0, 0, 0, 9][..], rest].concat()[..]));
            get_all(&bytes, &mut items).unwrap();
            assert_eq!(items, [item]);
            // Meaningless items are refused: some packets of a prefix, a port without its flag.
            if kind == 6 {
                for (at, value) in [(2, 24), (17, 2), (17, 1 - bytes[17])] {
                    let mut wrong = bytes.clone();
                    (wrong[at], wrong[7], wrong[19]) = (value, 0, 81);
                    let means = at == 17 && value == 1;
                    assert_eq!(get_all(&wrong, &mut items).is_ok(), means, "{at} {value}");
                }
            }
        }
    }
}
