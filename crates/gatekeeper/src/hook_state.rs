//! The state that a worker's hook leaves to the hook of a successor: decisions about prefixes, and flows.
//!
//! ```text
//!   state   decisions:4 | (sender:4 | number:8 | length:2 | decision of version 2) … | flow of a flow file …
//! ```
//!
//! Numbers are little-endian, decisions as `gate::decision::v2` encodes them. The lifetime of a decision about prefixes is what is
//! left of it, in whole seconds, rounded up. Every worker has the same decisions about prefixes.

use std::io::{self, ErrorKind};

use gate::decision::Item;
use gate::decision::v2::{decode_item, encode_item};
use gate::state::Stamp;

use crate::saved_flows::SavedFlow;

/// A decision about prefixes.
pub type PrefixDecision = (Item, Stamp);

/// The state that a hook restores.
#[derive(Clone, Debug, Default)]
pub struct HookState {
    /// Its flows.
    pub flows: Vec<SavedFlow>,
    /// Decisions about prefixes, the latest last.
    pub prefix_decisions: Vec<PrefixDecision>,
}

/// Returns the beginning of a state, to which flows are [appended](crate::saved_flows::append).
pub(crate) fn begin(decisions: &[PrefixDecision]) -> Vec<u8> {
    let mut out = (decisions.len() as u32).to_le_bytes().to_vec();
    for (item, stamp) in decisions {
        let item = encode_item(item);
        out.extend_from_slice(&stamp.sender.to_le_bytes());
        out.extend_from_slice(&stamp.number.to_le_bytes());
        out.extend_from_slice(&(item.len() as u16).to_le_bytes());
        out.extend_from_slice(&item);
    }
    out
}

/// Splits a state into its decisions about prefixes and the bytes of its flows.
///
/// # Errors
///
/// `InvalidData` if the state is damaged.
pub(crate) fn split(state: &[u8]) -> io::Result<(Vec<PrefixDecision>, &[u8])> {
    parse(state).ok_or_else(|| {
        io::Error::new(ErrorKind::InvalidData, "a decision about prefixes in it is invalid")
    })
}

fn parse(state: &[u8]) -> Option<(Vec<PrefixDecision>, &[u8])> {
    let (count, mut rest) = state.split_first_chunk()?;
    let mut decisions = Vec::new();
    for _ in 0..u32::from_le_bytes(*count) {
        let (sender, after) = rest.split_first_chunk()?;
        let (number, after) = after.split_first_chunk()?;
        let (length, after) = after.split_first_chunk()?;
        let (item, after) = after.split_at_checked(u16::from_le_bytes(*length).into())?;
        let sender = u32::from_le_bytes(*sender);
        let number = u64::from_le_bytes(*number);
        decisions.push((decode_item(item).ok()?, Stamp { sender, number }));
        rest = after;
    }
    Some((decisions, rest))
}

#[cfg(test)]
mod tests {
    use fib::Prefix;
    use gate::decision::{FlowCommand, Scope};
    use gate::state::{Decision, Grant};

    use super::*;

    #[test]
    fn decisions_about_prefixes_survive_and_damage_is_found() {
        let v4 = |addr, len| Prefix::truncate(addr, len);
        let grant = Grant { rate_kib: 7, expire_s: 9, next_renewal_ms: 5, renewal_step_ms: 3 };
        let decisions = [
            (Scope::V4(v4(0x0a00_0000, 8), v4(0xc000_0200, 24)), Decision::Decline { expire_s: 3 }),
            (
                Scope::V6(Prefix::truncate(1 << 100, 32), Prefix::truncate(0, 0)),
                Decision::Grant(grant),
            ),
        ];
        let decisions: Vec<_> = (5..)
            .zip(decisions)
            .map(|(number, (scope, decision))| {
                let item = Item { scope, command: FlowCommand::Decide(decision) };
                (item, Stamp { sender: 2, number })
            })
            .collect();
        let mut state = begin(&decisions);
        let head = state.len();
        state.extend_from_slice(b"flows");
        assert_eq!(split(&state).unwrap(), (decisions, &b"flows"[..]));
        assert_eq!(split(&begin(&[])).unwrap(), (vec![], &b""[..]));
        for end in 0..head {
            assert!(split(&state[..end]).is_err(), "{end} of {head} bytes");
        }
    }
}
