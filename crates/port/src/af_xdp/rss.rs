//! Receive side scaling (RSS): how a card distributes received packets over its queues.
//!
//! ```text
//!   addresses, ports ─► Toeplitz hash with the key ─► low bits ─► indirection table ─► queue
//! ```
//!
//! While the value [`RssSetup`] lives, the indirection table contains the served queues, each equally often,
//! and the key is that of the [`Rss`] chosen. The device then gets back what it had, unless another program
//! has changed it since: a table that was the driver's own is reset (`ethtool -X NAME default`), so that the
//! number of channels may be lowered again, which the kernel refuses while a table names their queues.
//!
//! Limits: the main table and key, as of `ethtool -X` without a context. A device that is removed, or a
//! process that is killed, puts nothing back.
//!
//! Source: Documentation/networking/scaling.rst of Linux, and `struct ethtool_rxfh` in linux/ethtool.h; the
//! hash by Microsoft's "RSS hashing types"; the symmetric key by Woo and Park, "Scalable TCP Session
//! Monitoring with Symmetric Receive-side Scaling" (KAIST, 2012).

use serde::{Deserialize, Serialize};

use super::device::Device;
use super::error::Error;
use super::ethtool::{
    GET_FIELDS, GET_RSS, RSS_ENTRIES, RSS_FUNCTION, RSS_HEAD, RSS_KEY, RSS_MOST, RSS_UNCHANGED,
    SET_FIELDS, SET_RSS, fields_of, fields_request,
};

/// The distribution of received packets over queues.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Rss {
    /// Both directions of a flow have one queue: a key of a repeated 16-bit pattern. The fields stay as they
    /// are. The key is known to everyone, so a sender can choose flows that share a queue.
    Symmetric,
    /// All packets from one address to another have one queue, whatever their ports, and no sender can
    /// choose addresses that share a queue: a random key.
    Addresses,
}

/// The pattern of the symmetric key: any 16 bits repeat after the length of a port, and thus after that of an
/// address, so that an exchange of source and destination does not change the hash.
const SYMMETRIC: [u8; 2] = [0x6d, 0x5a];

/// The Toeplitz hash.
const TOEPLITZ: u8 = 1;

/// The types of flow with ports: TCP and UDP over IPv4, and over IPv6.
const FLOWS: [u32; 4] = [1, 2, 5, 6];
/// The fields: source and destination address.
const ADDRESSES: u64 = 1 << 4 | 1 << 5;

/// The RSS of a device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct State {
    table: Vec<u32>,
    key: Vec<u8>,
    function: u8,
    /// The fields hashed for each of [`FLOWS`], where the driver reports them.
    fields: [Option<u64>; FLOWS.len()],
}

impl State {
    /// Returns whether the table is that of a driver which was never configured: all queues in turn.
    fn has_default_table(&self) -> bool {
        let queues = self.table.iter().max().map_or(1, |last| last + 1);
        equal(self.table.len(), queues) == self.table
    }
}

/// Returns a table of `entries` with `queues` in turn.
fn equal(entries: usize, queues: u32) -> Vec<u32> {
    (0..queues).cycle().take(entries).collect()
}

/// A change of the RSS of a device: before and after.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct RssChange {
    before: State,
    applied: State,
}

/// The RSS of a device, set until the value is dropped.
#[derive(Debug)]
pub(super) struct RssSetup {
    device: Device,
    index: u32,
    before: State,
    applied: State,
}

impl RssSetup {
    /// Distributes the packets that the device receives over its first `queues` queues.
    ///
    /// # Errors
    ///
    /// [`Error::NoRss`]: the device has one queue, or its driver does not let the table, the key or the
    /// fields be set. The device is then unchanged.
    pub(super) fn set(name: &str, rss: Rss, queues: u32) -> Result<Self, Error> {
        let device = Device::find(name)?;
        let refused = |part| Error::NoRss { interface: name.to_owned(), part };
        let before = read(&device).ok_or_else(|| refused("the hash key"))?;
        let index = device.index()?;
        // From here on dropped by an error, which puts back the parts that were changed.
        let mut setup = Self { device, index, applied: before.clone(), before };
        let key = setup.before.key.len();
        let (key, fields) = match rss {
            Rss::Symmetric => (SYMMETRIC.into_iter().cycle().take(key).collect(), None),
            Rss::Addresses => (random(key), Some(ADDRESSES)),
        };
        // Some drivers do not state their only function.
        let function = if setup.before.function == 0 { 0 } else { TOEPLITZ };
        setup.set_key(&key, function).map_err(|_| refused("the hash key"))?;
        setup
            .set_table(Some(equal(setup.before.table.len(), queues)))
            .map_err(|_| refused("the indirection table"))?;
        if let Some(fields) = fields {
            setup.set_fields([Some(fields); FLOWS.len()]).map_err(|_| refused("the fields"))?;
        }
        Ok(setup)
    }

    /// Returns the change that a successor puts back.
    pub(super) fn change(&self) -> RssChange {
        RssChange { before: self.before.clone(), applied: self.applied.clone() }
    }

    /// Puts the RSS back in place of a predecessor that has made this change.
    pub(super) fn succeed(name: &str, change: RssChange) -> Option<Self> {
        let device = Device::find(name).ok()?;
        let index = device.index().ok()?;
        let RssChange { before, applied } = change;
        Some(Self { device, index, before, applied })
    }

    fn set_key(&mut self, key: &[u8], function: u8) -> Result<(), Error> {
        if (key, function) != (&self.applied.key, self.applied.function) {
            let mut request = vec![SET_RSS, 0, RSS_UNCHANGED, key.len() as u32, 0, 0];
            // The driver's current function is not stated: some drivers accept no other word for it.
            if function != self.applied.function {
                request[RSS_FUNCTION] = u32::from_ne_bytes([function, 0, 0, 0]);
            }
            request.extend(pack(key));
            self.device.query_rss(&mut request)?;
            (self.applied.key, self.applied.function) = (key.to_vec(), function);
        }
        Ok(())
    }

    /// Sets the table; `None` is the driver's own.
    fn set_table(&mut self, table: Option<Vec<u32>>) -> Result<(), Error> {
        let entries = table.as_ref().map_or(0, |table| table.len() as u32);
        let mut request = vec![SET_RSS, 0, entries, 0, 0, 0];
        request.extend(table.iter().flatten());
        self.device.query_rss(&mut request)?;
        if let Some(table) = table {
            self.applied.table = table;
        }
        Ok(())
    }

    fn set_fields(&mut self, fields: [Option<u64>; FLOWS.len()]) -> Result<(), Error> {
        for (at, flow) in FLOWS.into_iter().enumerate() {
            if let Some(wanted) = fields[at]
                && fields[at] != self.applied.fields[at]
            {
                self.device.query_rss(&mut fields_request(SET_FIELDS, flow, wanted))?;
                self.applied.fields[at] = fields[at];
            }
        }
        Ok(())
    }
}

impl Drop for RssSetup {
    fn drop(&mut self) {
        // The name may have changed. A device that was removed needs nothing.
        if self.device.find_name(self.index).is_err()
            || read(&self.device).as_ref() != Some(&self.applied)
        {
            return;
        }
        let before = self.before.clone();
        let _ = self.set_fields(before.fields);
        let _ = self.set_key(&before.key, before.function);
        // A written table counts as configured even if it has the entries of the default.
        let is_default = before.has_default_table();
        if is_default || self.applied.table != before.table {
            let _ = self.set_table((!is_default).then_some(before.table));
        }
    }
}

/// Returns whether the RSS of the device `name` can be read, as it must be before it is set.
pub fn has_rss(name: &str) -> bool {
    Device::find(name).is_ok_and(|device| read(&device).is_some())
}

/// Returns the RSS of a device; `None` if it has no table or no key.
fn read(device: &Device) -> Option<State> {
    let mut sizes = [GET_RSS, 0, 0, 0, 0, 0];
    device.query_rss(&mut sizes).ok()?;
    let (entries, bytes) = (sizes[RSS_ENTRIES], sizes[RSS_KEY]);
    if !(1..=RSS_MOST).contains(&entries) || !(1..=RSS_MOST).contains(&bytes) {
        return None;
    }
    let (entries, bytes) = (entries as usize, bytes as usize);
    let mut answer = vec![0; RSS_HEAD + entries + bytes.div_ceil(4)];
    answer[0] = GET_RSS;
    (answer[RSS_ENTRIES], answer[RSS_KEY]) = (entries as u32, bytes as u32);
    device.query_rss(&mut answer).ok()?;
    let (table, key) = answer[RSS_HEAD..].split_at(entries);
    let key = key.iter().flat_map(|word| word.to_ne_bytes()).take(bytes).collect();
    let [function, ..] = answer[RSS_FUNCTION].to_ne_bytes();
    let fields = FLOWS.map(|flow| {
        let mut request = fields_request(GET_FIELDS, flow, 0);
        device.query_rss(&mut request).ok()?;
        Some(fields_of(&request))
    });
    Some(State { table: table.to_vec(), key, function, fields })
}

/// Returns bytes as words; the last one is filled with zeros.
fn pack(bytes: &[u8]) -> impl Iterator<Item = u32> {
    bytes.chunks(4).map(|chunk| {
        let mut word = [0; 4];
        word[..chunk.len()].copy_from_slice(chunk);
        u32::from_ne_bytes(word)
    })
}

/// Returns random bytes of the operating system.
fn random(length: usize) -> Vec<u8> {
    let mut key = vec![0; length];
    getrandom::fill(&mut key).expect("the system's random generator works");
    key
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, Ipv6Addr};

    use super::{SYMMETRIC, State, TOEPLITZ, equal, random};

    /// The Toeplitz hash, bit by bit: each set bit of the input adds the 32 bits of the key at its place.
    fn toeplitz(key: &[u8], input: &[u8]) -> u32 {
        let bit = |bytes: &[u8], at: usize| bytes[at / 8] >> (7 - at % 8) & 1;
        let window = |at| (at..at + 32).fold(0, |word, at| word << 1 | u32::from(bit(key, at)));
        let set = (0..8 * input.len()).filter(|&at| bit(input, at) == 1);
        set.fold(0, |hash, at| hash ^ window(at))
    }

    fn symmetric() -> Vec<u8> {
        SYMMETRIC.into_iter().cycle().take(40).collect()
    }

    fn v4(src: [u8; 4], dst: [u8; 4], ports: [u16; 2]) -> Vec<u8> {
        let ports = ports.map(u16::to_be_bytes).concat();
        [&Ipv4Addr::from(src).octets()[..], &Ipv4Addr::from(dst).octets(), &ports].concat()
    }

    #[test]
    fn hash_is_that_of_the_specification() {
        let key = [
            0x6d, 0x5a, 0x56, 0xda, 0x25, 0x5b, 0x0e, 0xc2, 0x41, 0x67, 0x25, 0x3d, 0x43, 0xa3,
            0x8f, 0xb0, 0xd0, 0xca, 0x2b, 0xcb, 0xae, 0x7b, 0x30, 0xb4, 0x77, 0xcb, 0x2d, 0xa3,
            0x80, 0x30, 0xf2, 0x0c, 0x6a, 0x42, 0xb7, 0x3b, 0xbe, 0xac, 0x01, 0xfa,
        ];
        let packet = v4([66, 9, 149, 187], [161, 142, 100, 80], [2794, 1766]);
        assert_eq!(toeplitz(&key, &packet[..8]), 0x323e_8fc2);
        assert_eq!(toeplitz(&key, &packet), 0x51cc_c178);
    }

    #[test]
    fn symmetric_key_gives_both_directions_one_hash() {
        let key = symmetric();
        let mut rng = fastrand::Rng::with_seed(1);
        let mut hashes = std::collections::HashSet::new();
        for _ in 0..1000 {
            let (a, b) = (rng.u32(..).to_be_bytes(), rng.u32(..).to_be_bytes());
            let [p, q] = [rng.u16(..), rng.u16(..)];
            let hash = toeplitz(&key, &v4(a, b, [p, q]));
            assert_eq!(hash, toeplitz(&key, &v4(b, a, [q, p])));
            hashes.insert(hash);
            let (a, b) = (Ipv6Addr::from(rng.u128(..)), Ipv6Addr::from(rng.u128(..)));
            let v6 = |a: Ipv6Addr, b: Ipv6Addr, ports: [u16; 2]| {
                let ports = ports.map(u16::to_be_bytes).concat();
                toeplitz(&key, &[&a.octets()[..], &b.octets(), &ports].concat())
            };
            assert_eq!(v6(a, b, [p, q]), v6(b, a, [q, p]));
        }
        assert!(hashes.len() > 950, "{} hashes of 1000 flows", hashes.len());
    }

    #[test]
    fn random_key_differs_by_direction_and_time() {
        let (a, b) = ([10, 0, 0, 1], [192, 0, 2, 9]);
        let packets = [v4(a, b, [0, 0]), v4(b, a, [0, 0])];
        let key = random(40);
        assert_ne!(toeplitz(&key, &packets[0]), toeplitz(&key, &packets[1]));
        assert_ne!(key, random(40));
    }

    #[test]
    fn default_table_is_all_queues_in_turn() {
        let state = |table| State { table, key: vec![], function: TOEPLITZ, fields: [None; 4] };
        assert!(state(equal(128, 3)).has_default_table());
        assert!(state(equal(128, 1)).has_default_table());
        assert!(!state(vec![0, 0, 1, 1]).has_default_table());
        assert_eq!(equal(5, 2), [0, 1, 0, 1, 0]);
    }
}
