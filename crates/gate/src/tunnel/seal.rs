//! The gate's side: numbers and seals packets that enter a tunnel.

use wire::tunnel::{Ends, Header};

use super::{FORMAT, PRIVATE_LEN, PrivateData, TAGGED_LEN, TunnelKey, UNIT, tag};
use crate::policy::Address;

/// The keys of sealed tunnels, by the addresses of their ends.
#[derive(Clone, Debug, Default)]
pub struct TunnelKeys {
    /// In order, each end once.
    keys: Box<[(Address, TunnelKey)]>,
}

impl TunnelKeys {
    /// Takes the key of each end; of several for one end the last counts.
    pub fn new(keys: impl IntoIterator<Item = (Address, TunnelKey)>) -> Self {
        let keys: std::collections::BTreeMap<_, _> = keys.into_iter().collect();
        Self { keys: keys.into_iter().collect() }
    }

    /// Returns whether no tunnel is sealed.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// Returns the key of tunnels to an end; none if they are not sealed.
    ///
    /// O(log n) for n ends.
    #[inline]
    pub fn find(&self, end: Address) -> Option<&TunnelKey> {
        let at = self.keys.binary_search_by_key(&end, |(end, _)| *end).ok()?;
        self.keys.get(at).map(|(_, key)| key)
    }
}

/// One worker's stream: each stream of a session has its own number.
#[derive(Debug)]
pub struct Stream {
    pub(super) stream: u16,
    pub(super) sequence: u64,
}

impl Stream {
    /// Begins the stream of this number.
    pub fn new(stream: u16) -> Self {
        Self { stream, sequence: 0 }
    }

    /// Seals the next packet, at `now`, and returns the private data for this outer header. `inner`
    /// is the whole inner packet. A header without UDP cannot be sealed.
    #[inline]
    pub fn seal(
        &mut self,
        key: &TunnelKey,
        header: &Header,
        now: u64,
        inner: &[u8],
    ) -> Option<PrivateData> {
        let ports = header.udp?;
        self.sequence += 1;
        let mut private = [0; PRIVATE_LEN];
        private[..2].copy_from_slice(&key.number.to_be_bytes());
        private[2..4].copy_from_slice(&[header.dscp, FORMAT]);
        private[4..6].copy_from_slice(&key.epoch.to_be_bytes());
        private[6..8].copy_from_slice(&self.stream.to_be_bytes());
        private[8..12].copy_from_slice(&((now >> UNIT) as u32).to_be_bytes());
        private[12..TAGGED_LEN].copy_from_slice(&self.sequence.to_be_bytes());
        let (mark, code) = private.split_first_chunk_mut::<TAGGED_LEN>()?;
        let [low, high] = tag(key, header.ends, ports, mark, inner);
        code[..8].copy_from_slice(&low.to_le_bytes());
        code[8..].copy_from_slice(&high.to_le_bytes());
        Some(private)
    }
}

/// Returns the end of a tunnel.
pub(super) fn end(ends: Ends) -> Address {
    match ends {
        Ends::V4 { dst, .. } => Address::V4(dst),
        Ends::V6 { dst, .. } => Address::V6(dst),
    }
}

impl TunnelKeys {
    /// Returns the key of a tunnel with this outer header.
    #[inline]
    pub fn of(&self, header: &Header) -> Option<&TunnelKey> {
        self.find(end(header.ends))
    }
}
