//! Tunnels whose packets prove that a gate of this deployment has sent them.
//!
//! ```text
//!   grantor's secret ─ HMAC ─► key of this session ─► gate: Stream::seal ═► TunnelVerifier::check
//!                                                       each worker its own    each worker its own
//!
//!   │ outer IP │ UDP │ GUE 0 │ key:16 class:8 1:8 │ epoch:16 stream:16 │ time:32 │ sequence:64 │ tag:128 │ inner
//! ```
//!
//! A grantor delivers packets from a tunnel with DSCP 0 or 1 without a check, so a host that can
//! send it a packet with a gate's address could grant itself. The private data of the GUE header
//! (`wire/src/gue.rs`) identifies the gate and worker that made the packet, and its time:
//!
//! | field | |
//! |---|---|
//! | key | the number of the secret, as in decisions (`decision/v2/keys.rs`) |
//! | class | the DSCP that counts; the outer header's may be rewritten on the path |
//! | 1 | the format |
//! | epoch | the lower 16 bits of the gate's session |
//! | stream | a worker of the gate: each numbers its own packets |
//! | time | the gate's monotonic clock, in units of 2^24 ns |
//! | sequence | the packet's number in its stream, from 1 on |
//! | tag | SipHash-2-4 with 128 bits |
//!
//! **The tag** covers, in this order: family, inner protocol, inner length, both UDP ports; the
//! private data before it; the outer addresses; and of the inner packet the first 40 bytes (60 over
//! IPv6), or as many as there are. ECN bits of the outer header and its TTL change on the path and
//! are not covered. The rest of the inner packet can be changed on the path, as on any path.
//!
//! **The key** is the first half of HMAC-SHA-256 of [`LABEL`] and the gate's session under the
//! secret that signs decisions. A gate chooses a session whenever it starts, and grantors learn it
//! from authentic answers to their content, so a recording of one session is useless in the next.
//!
//! **Replay** within a session is bounded twice: by a window of the last [`WINDOW`] numbers of each
//! stream (RFC 6479), and by time, without synchronized clocks: a grantor expects of a gate the
//! latest time that it has seen, plus the elapsed time (less a part in 512, for clock drift), and
//! refuses packets that are more than two seconds older. A grantor that has just started knows no
//! latest time: until the first fresh packet it may accept a recorded one of this session, once in
//! each of its workers.
//!
//! docs/decisions/0030 has the reasons and the cost.

mod check;
mod seal;

pub use check::{GateKeys, MAX_STREAMS, TunnelError, TunnelVerifier, WINDOW};
pub use seal::{Stream, TunnelKeys};

use core::fmt;

use siphasher::sip128::SipHasher24;
use wire::ipv6;
use wire::tunnel::{Ends, Ports};

/// The label of the key derivation: it separates these keys from other uses of the secret.
pub const LABEL: &[u8] = b"fingerpost tunnel 1";
/// The bytes of private data.
pub const PRIVATE_LEN: usize = 36;
/// The bytes of it that the tag covers.
const TAGGED_LEN: usize = 20;
/// The bytes that a header of GUE with private data adds behind UDP.
pub const OVERHEAD: usize = wire::gue::LEN + PRIVATE_LEN;
/// The format of the private data.
const FORMAT: u8 = 1;
/// The unit of time in nanoseconds, as a power of two.
const UNIT: u32 = 24;
/// The bytes of the inner packet that the tag covers.
const COVERED4: usize = 40;
const COVERED6: usize = ipv6::LEN + 20;

/// Private data as it stands in a packet.
pub type PrivateData = [u8; PRIVATE_LEN];

/// The key for tunnels to a grantor, in one session of the gate.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct TunnelKey {
    number: u16,
    epoch: u16,
    secret: [u64; 2],
}

impl TunnelKey {
    /// Takes the key of this number in a session, 16 bytes that cannot be guessed.
    pub fn new(number: u16, session: u64, secret: [u8; 16]) -> Self {
        let (words, _) = secret.as_chunks::<8>();
        let secret = [words[0], words[1]].map(u64::from_le_bytes);
        Self { number, epoch: session as u16, secret }
    }

    /// Returns the key's number.
    pub fn number(&self) -> u16 {
        self.number
    }
}

impl fmt::Debug for TunnelKey {
    /// Omits the secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TunnelKey({})", self.number)
    }
}

/// Returns the tag of a packet.
///
/// About sixty instructions and ten to thirteen words of SipHash; nothing depends on secret bytes.
fn tag(
    key: &TunnelKey,
    ends: Ends,
    ports: Ports,
    mark: &[u8; TAGGED_LEN],
    inner: &[u8],
) -> [u64; 2] {
    let mut bytes = [0u8; 8 + TAGGED_LEN + 32 + COVERED6];
    let six = inner.first().is_some_and(|first| first >> 4 == 6);
    let (protocol, most) = match six {
        true => (wire::tunnel::IPV6_IN_IP, COVERED6),
        false => (wire::tunnel::IPV4_IN_IP, COVERED4),
    };
    bytes[1] = protocol;
    bytes[2..4].copy_from_slice(&(inner.len() as u16).to_be_bytes());
    bytes[4..6].copy_from_slice(&ports.src.to_be_bytes());
    bytes[6..8].copy_from_slice(&ports.dst.to_be_bytes());
    bytes[8..8 + TAGGED_LEN].copy_from_slice(mark);
    let mut at = 8 + TAGGED_LEN;
    match ends {
        Ends::V4 { src, dst } => {
            bytes[0] = 4;
            bytes[at..at + 4].copy_from_slice(&src.to_be_bytes());
            bytes[at + 4..at + 8].copy_from_slice(&dst.to_be_bytes());
            at += 8;
        }
        Ends::V6 { src, dst, .. } => {
            bytes[0] = 6;
            bytes[at..at + 16].copy_from_slice(&src.to_be_bytes());
            bytes[at + 16..at + 32].copy_from_slice(&dst.to_be_bytes());
            at += 32;
        }
    }
    let covered = &inner[..inner.len().min(most)];
    bytes[at..at + covered.len()].copy_from_slice(covered);
    at += covered.len();
    let [k0, k1] = key.secret;
    let hash = SipHasher24::new_with_keys(k0, k1).hash(&bytes[..at]);
    [hash.h1, hash.h2]
}

#[cfg(test)]
mod tests;
