//! Requests of linux/ethtool.h: their commands and structures.
//!
//! Each request begins with its command in 32 bits; the driver answers in place. Most have a
//! fixed length. A request about receive side scaling (`struct ethtool_rxfh`) is as long as
//! its head states, hence a slice of words:
//!
//! ```text
//!   command │ context │ entries of the table │ bytes of the key │ function, 3 bytes │ 0 │ table │ key
//! ```

use serde::{Deserialize, Serialize};

/// `struct ethtool_channels` of linux/ethtool.h; the maxima are of `rx`, `tx`, `other` and `combined`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub(super) struct Channels {
    pub(super) command: u32,
    pub(super) max: [u32; 4],
    pub(super) rx: u32,
    pub(super) tx: u32,
    pub(super) other: u32,
    pub(super) combined: u32,
}

impl Channels {
    /// Returns the number of receive queues.
    pub(super) fn queues(&self) -> u32 {
        self.rx + self.combined
    }

    /// Returns the most receive queues that the device can have.
    pub(super) fn most(&self) -> u32 {
        let [rx, _, _, combined] = self.max;
        if combined > 0 { combined } else { rx }
    }

    /// Returns these with so many queues, each for both directions.
    pub(super) fn with_queues(self, count: u32) -> Self {
        let [_, tx, _, combined] = self.max;
        if combined > 0 {
            return Self { rx: 0, tx: 0, combined: count, ..self };
        }
        Self { rx: count, tx: count.min(tx), ..self }
    }
}

/// `struct ethtool_drvinfo` of linux/ethtool.h: names of the driver, its version, its firmware, its
/// bus and its ROM, and numbers.
#[repr(C)]
pub(super) struct DriverInfo {
    pub(super) command: u32,
    pub(super) text: [[u8; 32]; 5],
    pub(super) rest: [u32; 8],
}

/// `ETHTOOL_GDRVINFO`.
pub(super) const GET_DRIVER: u32 = 0x03;

/// `ETHTOOL_GCHANNELS`, `ETHTOOL_SCHANNELS`.
pub(super) const GET_CHANNELS: u32 = 0x3c;
pub(super) const SET_CHANNELS: u32 = 0x3d;

/// `struct ethtool_value` of linux/ethtool.h.
#[repr(C)]
pub(super) struct Value {
    pub(super) command: u32,
    pub(super) data: u32,
}

/// `ETHTOOL_STXCSUM`.
pub(super) const SET_TX_CHECKSUM: u32 = 0x17;

/// `ETHTOOL_GFLAGS`, `ETHTOOL_SFLAGS`, and two of their flags (linux/ethtool.h).
pub(super) const GET_FLAGS: u32 = 0x25;
pub(super) const SET_FLAGS: u32 = 0x26;
pub(super) const FLAG_RX_VLAN: u32 = 1 << 8;
pub(super) const FLAG_LRO: u32 = 1 << 15;

/// `ETHTOOL_GRSSH` and `ETHTOOL_SRSSH` (linux/ethtool.h): the table, the key and the hash function.
pub(super) const GET_RSS: u32 = 0x46;
pub(super) const SET_RSS: u32 = 0x47;
/// The words of a `struct ethtool_rxfh` before the table: command, context, sizes of the table in entries and
/// of the key in bytes, hash function and three bytes, and a reserved word.
pub(super) const RSS_HEAD: usize = 6;
/// The index of the number of entries of the table.
pub(super) const RSS_ENTRIES: usize = 2;
/// The index of the length of the key in bytes.
pub(super) const RSS_KEY: usize = 3;
/// The index of the hash function.
pub(super) const RSS_FUNCTION: usize = 4;
/// The size of a table that stays as it is.
pub(super) const RSS_UNCHANGED: u32 = u32::MAX;
/// The most entries of a table, and bytes of a key: far more than any card has.
pub(super) const RSS_MOST: u32 = 1 << 16;
/// `ETHTOOL_GRXFH` and `ETHTOOL_SRXFH`: the fields that are hashed for a type of flow.
pub(super) const GET_FIELDS: u32 = 0x29;
pub(super) const SET_FIELDS: u32 = 0x2a;

/// Returns the number of words that the kernel reads and writes of a request about receive side scaling.
///
/// # Panics
///
/// The request is about something else.
pub(super) fn rss_request_words(request: &[u32]) -> usize {
    match *request {
        [GET_RSS | SET_RSS, _, entries, key, ..] => {
            let entries = if entries == RSS_UNCHANGED { 0 } else { entries };
            RSS_HEAD + entries as usize + (key as usize).div_ceil(4)
        }
        [GET_FIELDS | SET_FIELDS, ..] => fields_request(0, 0, 0).len(),
        _ => panic!("no request about RSS: {request:?}"),
    }
}

/// Writes the start of a `struct ethtool_rxnfc`, of which these commands use no more: command, type of flow,
/// and the fields in 64 bits.
pub(super) fn fields_request(command: u32, flow: u32, fields: u64) -> [u32; 4] {
    let [a, b, c, d, e, f, g, h] = fields.to_ne_bytes();
    [command, flow, u32::from_ne_bytes([a, b, c, d]), u32::from_ne_bytes([e, f, g, h])]
}

/// Returns the fields of an answer.
pub(super) fn fields_of(request: &[u32; 4]) -> u64 {
    let ([a, b, c, d], [e, f, g, h]) = (request[2].to_ne_bytes(), request[3].to_ne_bytes());
    u64::from_ne_bytes([a, b, c, d, e, f, g, h])
}

#[cfg(test)]
mod tests {
    use super::{
        GET_FIELDS, GET_RSS, RSS_UNCHANGED, SET_RSS, fields_of, fields_request, rss_request_words,
    };

    #[test]
    fn fields_are_read_as_written() {
        let fields = 0x1122_3344_5566_7788;
        assert_eq!(fields_of(&fields_request(7, 1, fields)), fields);
    }

    #[test]
    fn request_has_the_words_that_its_head_states() {
        assert_eq!(rss_request_words(&[GET_RSS, 0, 0, 0, 0, 0]), 6);
        assert_eq!(rss_request_words(&[GET_RSS, 0, 128, 40, 0, 0]), 6 + 128 + 10);
        assert_eq!(rss_request_words(&[SET_RSS, 0, RSS_UNCHANGED, 41, 0, 0]), 6 + 11);
        assert_eq!(rss_request_words(&fields_request(GET_FIELDS, 1, 0)), 4);
    }

    #[test]
    #[should_panic(expected = "no request about RSS")]
    fn request_about_something_else_panics() {
        rss_request_words(&[0x3c, 0, 0, 0, 0, 0]);
    }
}
