//! sFlow datagrams, version 5 (<https://sflow.org/sflow_version_5.txt>), and drop notices
//! (<https://sflow.org/sflow_drops.txt>).
//!
//! ```text
//!   datagram: version, agent, number, uptime, samples …
//!     flow sample        a packet that was taken by chance, its input interface, its first bytes
//!     counters sample    the counters of an interface
//!     discarded packet   a dropped packet, its input interface, the reason, its first bytes
//! ```
//!
//! All numbers are in network order; texts and bytes are padded to four bytes (XDR, RFC 4506).

use std::net::IpAddr;

/// The largest datagram: what fits an Ethernet frame, as the specification advises.
const MAX_DATAGRAM: usize = 1400;
/// The bytes of the frame check sequence, which a frame's length has and its bytes have not.
const FCS: u32 = 4;
/// The formats of samples and records, of the enterprise 0.
const FLOW_SAMPLE: u32 = 1;
const COUNTERS_SAMPLE: u32 = 2;
const DISCARDED_PACKET: u32 = 5;
const SAMPLED_HEADER: u32 = 1;
const GENERIC_COUNTERS: u32 = 1;
/// The protocol of a sampled header, and the type of an interface (IANAifType): Ethernet.
const ETHERNET: u32 = 1;
const ETHERNET_CSMACD: u32 = 6;

/// A sampled packet.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sampled<'p> {
    /// The number of the sample.
    pub(super) number: u32,
    /// The kernel's index of the interface that received it; 0 if it is not known.
    pub(super) interface: u32,
    /// The length of the packet, in bytes, without its frame check sequence.
    pub(super) length: u32,
    /// Its first bytes.
    pub(super) header: &'p [u8],
    /// The samples that were lost so far.
    pub(super) drops: u32,
}

/// The counters of an interface.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct InterfaceCounters {
    /// The kernel's index.
    pub(super) index: u32,
    /// Bits a second; 0 if they are not known.
    pub(super) speed: u64,
    /// Whether packets can leave on it.
    pub(super) up: bool,
    /// Received bytes, packets, and packets that were lost.
    pub(super) received: [u64; 3],
    /// Transmitted bytes, packets, and packets that were lost.
    pub(super) transmitted: [u64; 3],
}

/// Bytes in XDR.
#[derive(Debug, Default)]
struct Xdr(Vec<u8>);

impl Xdr {
    fn push_words(&mut self, words: &[u32]) {
        words.iter().for_each(|word| self.0.extend(word.to_be_bytes()));
    }

    fn long(&mut self, value: u64) {
        self.0.extend(value.to_be_bytes());
    }

    /// Appends bytes with their length.
    fn opaque(&mut self, bytes: &[u8]) {
        self.push_words(&[bytes.len() as u32]);
        self.0.extend(bytes);
        self.0.resize(self.0.len().next_multiple_of(4), 0);
    }

    /// Appends a structure with its format.
    fn structure(&mut self, format: u32, content: &Self) {
        self.push_words(&[format]);
        self.opaque(&content.0);
    }
}

/// Returns the record of a packet's first bytes.
fn header_record(packet: &Sampled<'_>) -> Xdr {
    let mut header = Xdr::default();
    header.push_words(&[ETHERNET, packet.length + FCS, FCS]);
    header.opaque(packet.header);
    let mut records = Xdr::default();
    records.push_words(&[1]);
    records.structure(SAMPLED_HEADER, &header);
    records
}

/// Returns a flow sample: one packet in `one_in`, of which `pool` could have been taken so far.
pub(super) fn flow_sample(packet: &Sampled<'_>, one_in: u32, pool: u32) -> Vec<u8> {
    let mut sample = Xdr::default();
    // The output interface is not known on arrival.
    let Sampled { number, interface, drops, .. } = *packet;
    sample.push_words(&[number, interface, one_in, pool, drops, interface, 0]);
    sample.0.extend(header_record(packet).0);
    let mut whole = Xdr::default();
    whole.structure(FLOW_SAMPLE, &sample);
    whole.0
}

/// Returns the notice of a packet that was dropped for a reason.
pub(super) fn discarded_packet(packet: &Sampled<'_>, reason: u32) -> Vec<u8> {
    let mut sample = Xdr::default();
    let Sampled { number, interface, drops, .. } = *packet;
    // The data source, in two words: an interface by its index.
    sample.push_words(&[number, 0, interface, drops, interface, 0, reason]);
    sample.0.extend(header_record(packet).0);
    let mut whole = Xdr::default();
    whole.structure(DISCARDED_PACKET, &sample);
    whole.0
}

/// Returns a sample of an interface's counters.
pub(super) fn counters_sample(number: u32, of: &InterfaceCounters) -> Vec<u8> {
    let mut counters = Xdr::default();
    counters.push_words(&[of.index, ETHERNET_CSMACD]);
    counters.long(of.speed);
    // Full duplex; administratively up, and operational.
    counters.push_words(&[1, 1 | u32::from(of.up) << 1]);
    for (direction, [bytes, packets, lost]) in [of.received, of.transmitted].into_iter().enumerate()
    {
        counters.long(bytes);
        // Unicast, multicast and broadcast packets together; discards; errors.
        counters.push_words(&[packets as u32, 0, 0, lost as u32, 0]);
        if direction == 0 {
            // Packets of unknown protocols.
            counters.push_words(&[0]);
        }
    }
    // Not promiscuous.
    counters.push_words(&[0]);
    let mut sample = Xdr::default();
    sample.push_words(&[number, of.index, 1]);
    sample.structure(GENERIC_COUNTERS, &counters);
    let mut whole = Xdr::default();
    whole.structure(COUNTERS_SAMPLE, &sample);
    whole.0
}

/// Collects samples into datagrams.
#[derive(Debug)]
pub(super) struct Datagrams {
    agent: IpAddr,
    number: u32,
    samples: Vec<u8>,
    count: u32,
}

impl Datagrams {
    /// Makes datagrams of an agent with this address.
    pub(super) fn new(agent: IpAddr) -> Self {
        Self { agent, number: 0, samples: Vec::new(), count: 0 }
    }

    /// Adds a sample; returns the datagram before it, if it is full.
    pub(super) fn add(&mut self, sample: &[u8], uptime_ms: u32) -> Option<Vec<u8>> {
        let is_full = self.count > 0 && self.samples.len() + sample.len() > MAX_DATAGRAM;
        let full = if is_full { self.take(uptime_ms) } else { None };
        self.samples.extend(sample);
        self.count += 1;
        full
    }

    /// Returns the datagram of the samples so far, if there are any.
    pub(super) fn take(&mut self, uptime_ms: u32) -> Option<Vec<u8>> {
        if self.count == 0 {
            return None;
        }
        self.number = self.number.wrapping_add(1);
        let mut datagram = Xdr::default();
        datagram.push_words(&[5]);
        match self.agent {
            IpAddr::V4(agent) => datagram.push_words(&[1, agent.to_bits()]),
            IpAddr::V6(agent) => {
                datagram.push_words(&[2]);
                datagram.0.extend(agent.octets());
            }
        }
        datagram.push_words(&[0, self.number, uptime_ms, self.count]);
        datagram.0.append(&mut self.samples);
        self.count = 0;
        Some(datagram.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PACKET: Sampled<'static> =
        Sampled { number: 7, interface: 3, length: 60, header: &[1, 2, 3, 4, 5], drops: 9 };

    fn read_words(bytes: &[u8]) -> Vec<u32> {
        let (words, []) = bytes.as_chunks() else { panic!("{} bytes", bytes.len()) };
        words.iter().map(|word| u32::from_be_bytes(*word)).collect()
    }

    #[test]
    fn samples_have_the_words_of_the_specification() {
        let header = [1, 1, 24, 1, 64, 4, 5, 0x0102_0304, 0x0500_0000];
        let flow = read_words(&flow_sample(&PACKET, 1000, 5000));
        assert_eq!(flow[..2], [1, 64]);
        assert_eq!(flow[2..9], [7, 3, 1000, 5000, 9, 3, 0]);
        assert_eq!(flow[9..], header);
        let discarded = read_words(&discarded_packet(&PACKET, 258));
        assert_eq!(discarded[..2], [5, 64]);
        assert_eq!(discarded[2..9], [7, 0, 3, 9, 3, 0, 258]);
        assert_eq!(discarded[9..], header);
        let of = InterfaceCounters {
            index: 3,
            speed: 10_000_000_000,
            up: true,
            received: [1 << 33, 20, 1],
            transmitted: [300, 4, 0],
        };
        let counters = read_words(&counters_sample(8, &of));
        assert_eq!(counters[..7], [2, 108, 8, 3, 1, 1, 88]);
        assert_eq!(counters[7..13], [3, 6, 2, 1_410_065_408, 1, 3]);
        assert_eq!(counters[13..21], [2, 0, 20, 0, 0, 1, 0, 0]);
        assert_eq!(counters[21..], [0, 300, 4, 0, 0, 0, 0, 0]);
    }

    #[test]
    fn datagrams_have_their_samples_and_a_limit() {
        let mut datagrams = Datagrams::new("192.0.2.1".parse().unwrap());
        assert_eq!(datagrams.take(1), None);
        let sample = flow_sample(&PACKET, 1, 1);
        let full: Vec<_> = (0..100).filter_map(|_| datagrams.add(&sample, 1000)).collect();
        let last = datagrams.take(1000).unwrap();
        let counts: Vec<_> = full.iter().chain([&last]).map(|one| read_words(one)[6]).collect();
        assert_eq!(counts.iter().sum::<u32>(), 100);
        assert!(full.iter().all(|one| one.len() <= MAX_DATAGRAM + 28));
        assert_eq!(read_words(&full[0])[..7], [5, 1, 0xc000_0201, 0, 1, 1000, counts[0]]);
        assert_eq!(read_words(&full[1])[4], 2);
        let mut six = Datagrams::new("2001:db8::1".parse().unwrap());
        six.add(&sample, 0);
        assert_eq!(read_words(&six.take(5).unwrap())[..6], [5, 2, 0x2001_0db8, 0, 0, 1]);
    }
}
