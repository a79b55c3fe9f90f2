//! Decisions as bytes.
//!
//! ```text
//!   type:8 | family:8 | source length:8 | destination length:8 | source | destination
//!   1 declined   expire_s:32
//!   2 granted    rate_kib:32 expire_s:32 next_ms:32 step_ms:32
//!   3 program    expire_s:32 program:8 0:16 words:8 cookie
//!   4 flush
//! ```
//!
//! Addresses are 4 bytes where the family is 4, and 16 where it is 6; bits beyond a length
//! are zero.

use fib::{Addr, Prefix};

use super::MOST_ITEMS;
use crate::decision::cursor::{Cursor, put_grant, put_program};
use crate::decision::{Item, Refused, Say, Scope};
use crate::state::Decision;

const DECLINED: u8 = 1;
const GRANTED: u8 = 2;
const PROGRAM: u8 = 3;
const FLUSH: u8 = 4;

pub(super) fn put(out: &mut Vec<u8>, item: &Item) {
    let kind = match item.say {
        Say::Decide(Decision::Decline { .. }) => DECLINED,
        Say::Decide(Decision::Grant(_)) => GRANTED,
        Say::Run(_) => PROGRAM,
        Say::Flush => FLUSH,
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
    match &item.say {
        Say::Decide(Decision::Decline { expire_s }) => {
            out.extend_from_slice(&expire_s.to_be_bytes());
        }
        Say::Decide(Decision::Grant(grant)) => put_grant(out, grant),
        Say::Run(program) => put_program(out, program),
        Say::Flush => {}
    }
}

fn get(cursor: &mut Cursor<'_>) -> Result<Item, Refused> {
    let [kind, family, src_len, dst_len] = cursor.take()?;
    fn prefix<A: Addr>(addr: A, len: u8) -> Result<Prefix<A>, Refused> {
        Prefix::new(addr, len.into()).map_err(|_| Refused::Malformed)
    }
    let scope = match family {
        4 => Scope::V4(prefix(cursor.u32()?, src_len)?, prefix(cursor.u32()?, dst_len)?),
        6 => Scope::V6(prefix(cursor.u128()?, src_len)?, prefix(cursor.u128()?, dst_len)?),
        _ => return Err(Refused::Malformed),
    };
    let say = match kind {
        DECLINED => Say::Decide(Decision::Decline { expire_s: cursor.u32()? }),
        GRANTED => Say::Decide(Decision::Grant(cursor.grant()?)),
        PROGRAM => Say::Run(cursor.program()?),
        FLUSH => Say::Flush,
        _ => return Err(Refused::Malformed),
    };
    Ok(Item { scope, say })
}

/// Reads all items of a body over what `items` holds; it counts whole or not at all.
pub(super) fn get_all(body: &[u8], items: &mut Vec<Item>) -> Result<(), Refused> {
    items.clear();
    let mut cursor = Cursor(body);
    while !cursor.0.is_empty() {
        if items.len() == MOST_ITEMS {
            return Err(Refused::Malformed);
        }
        items.push(get(&mut cursor)?);
    }
    Ok(())
}
