//! Writes packets as pcapng, with the verdict in the comment of each packet.
//!
//! ```text
//!   section header │ interface r1 │ packet, packet, … │ interface r2 │ packet, …
//! ```
//!
//! An interface is described before its first packet. A packet has its direction (`epb_flags`) and
//! its worker (`epb_queue`), unless it ended in the XDP program; its comment is the name and the help of its verdict,
//! and states the XDP program. Wireshark shows all three, and selects by `frame.comment contains "no_route"`.

use std::borrow::Cow;
use std::io::{self, Write};

use anyhow::Context;
use api::{CaptureDirection, CapturedPacket};
use datapath::Verdict;
use pcap_parser::pcapng::{
    EnhancedPacketBlock, InterfaceDescriptionBlock, OptionCode, PcapNGOption, SectionHeaderBlock,
};
use pcap_parser::{Linktype, ToVec};

use super::packet_bytes;

/// The option of a packet block with flags; its two lowest bits are the direction.
const FLAGS: OptionCode = OptionCode(2);
/// The option of a packet block with the queue that received the packet.
const QUEUE: OptionCode = OptionCode(6);
/// Time stamps are in 10⁻⁹ seconds.
const NANOSECONDS: u8 = 9;

/// A writer of a pcapng section.
pub(super) struct PcapngWriter<W> {
    out: W,
    /// The interfaces that are described.
    interfaces: Vec<String>,
}

fn option<'v>(code: OptionCode, value: impl Into<Cow<'v, [u8]>>) -> PcapNGOption<'v> {
    let value = value.into();
    PcapNGOption { code, len: value.len() as u16, value }
}

/// Returns the bytes of a block.
fn encode(block: &mut impl ToVec) -> anyhow::Result<Vec<u8>> {
    block.to_vec().ok().context("a block of pcapng cannot be encoded")
}

impl<W: Write> PcapngWriter<W> {
    /// Writes the header of the section.
    pub(super) fn new(mut out: W) -> anyhow::Result<Self> {
        let program = concat!("fingerpost ", env!("CARGO_PKG_VERSION"));
        let mut header = SectionHeaderBlock {
            block_type: 0,
            block_len1: 0,
            bom: 0,
            major_version: 1,
            minor_version: 0,
            // Not known.
            section_len: -1,
            options: vec![option(OptionCode::ShbUserAppl, program.as_bytes())],
            block_len2: 0,
        };
        out.write_all(&encode(&mut header)?)?;
        Ok(Self { out, interfaces: Vec::new() })
    }

    /// Writes a packet.
    pub(super) fn write(&mut self, packet: &CapturedPacket) -> anyhow::Result<()> {
        let interface = self.interface(&packet.interface)?;
        let data = packet_bytes(packet)?;
        let direction: u32 = match packet.direction {
            CaptureDirection::In => 1,
            CaptureDirection::Out => 2,
        };
        let comment = comment(packet);
        let mut block = EnhancedPacketBlock {
            block_type: 0,
            block_len1: 0,
            if_id: interface,
            ts_high: (packet.time_ns >> 32) as u32,
            ts_low: packet.time_ns as u32,
            caplen: data.len() as u32,
            origlen: packet.length.into(),
            data: &data,
            options: [
                Some(option(OptionCode::Comment, comment.as_bytes())),
                Some(option(FLAGS, direction.to_le_bytes().to_vec())),
                packet.worker.map(|worker| option(QUEUE, worker.to_le_bytes().to_vec())),
            ]
            .into_iter()
            .flatten()
            .collect(),
            block_len2: 0,
        };
        self.out.write_all(&encode(&mut block)?)?;
        Ok(())
    }

    /// Returns the number of an interface, and describes it if it is new.
    fn interface(&mut self, name: &str) -> anyhow::Result<u32> {
        if let Some(at) = self.interfaces.iter().position(|known| known == name) {
            return Ok(at as u32);
        }
        let mut block = InterfaceDescriptionBlock {
            block_type: 0,
            block_len1: 0,
            linktype: Linktype::ETHERNET,
            reserved: 0,
            snaplen: 0,
            options: vec![option(OptionCode::IfName, name.as_bytes())],
            block_len2: 0,
            if_tsresol: NANOSECONDS,
            if_tsoffset: 0,
        };
        self.out.write_all(&encode(&mut block)?)?;
        self.interfaces.push(name.to_owned());
        Ok(self.interfaces.len() as u32 - 1)
    }

    /// Writes what is buffered.
    pub(super) fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

/// Returns the comment of a packet: its verdict and the help of it, the rule of an access list, and whether it ended in
/// the XDP program.
fn comment(packet: &CapturedPacket) -> String {
    let mut text = match &packet.verdict {
        None => "arrival".to_owned(),
        Some(name) => Verdict::with_name(name)
            .map_or_else(|| name.clone(), |verdict| format!("{name}: {}", verdict.help())),
    };
    if let Some(rule) = &packet.rule {
        text += &format!("; rule {rule}");
    }
    if packet.worker.is_none() {
        text += "; by the XDP program";
    }
    text
}

#[cfg(test)]
mod tests {
    use pcap_parser::pcapng::Block;
    use pcap_parser::{PcapBlockOwned, PcapNGReader, traits::PcapReaderIterator};

    use super::*;

    fn packet(interface: &str, verdict: Option<Verdict>) -> CapturedPacket {
        CapturedPacket {
            time_ns: 1_700_000_000_123_456_789,
            worker: Some(3),
            interface: interface.to_owned(),
            direction: CaptureDirection::Out,
            verdict: verdict.map(|verdict| verdict.name().to_owned()),
            rule: None,
            length: 1500,
            data: "0102030405".to_owned(),
        }
    }

    #[test]
    fn every_verdict_is_read_back() {
        let mut out = Vec::new();
        let mut writer = PcapngWriter::new(&mut out).unwrap();
        for (at, verdict) in Verdict::ALL.into_iter().enumerate() {
            writer.write(&packet(["r1", "eth0.100"][at % 2], Some(verdict))).unwrap();
        }
        writer.write(&packet("r1", None)).unwrap();
        let mut reader = PcapNGReader::new(1 << 16, &out[..]).unwrap();
        let (mut names, mut comments) = (Vec::new(), Vec::new());
        while let Ok((size, block)) = reader.next() {
            match block {
                PcapBlockOwned::NG(Block::InterfaceDescription(block)) => {
                    assert_eq!(block.if_tsresol, NANOSECONDS);
                    let name = block.options.iter().find(|o| o.code == OptionCode::IfName).unwrap();
                    names.push(String::from_utf8(name.as_bytes().unwrap().to_vec()).unwrap());
                }
                PcapBlockOwned::NG(Block::EnhancedPacket(block)) => {
                    assert_eq!(block.data[..5], [1, 2, 3, 4, 5]);
                    assert_eq!((block.caplen, block.origlen), (5, 1500));
                    assert_eq!(block.decode_ts_f64(0, 1_000_000_000).floor(), 1_700_000_000.0);
                    let comment = block.options.iter().find(|o| o.code == OptionCode::Comment);
                    let comment = comment.unwrap().as_bytes().unwrap().to_vec();
                    comments.push(String::from_utf8(comment).unwrap());
                }
                _ => {}
            }
            reader.consume(size);
        }
        assert_eq!(names, ["r1", "eth0.100"]);
        let ruled = CapturedPacket {
            rule: Some("edge 7".to_owned()),
            ..packet("r1", Some(Verdict::AclDenied))
        };
        assert!(comment(&ruled).ends_with("; rule edge 7"), "{}", comment(&ruled));
        let in_driver = CapturedPacket { worker: None, ..packet("r1", None) };
        assert_eq!(comment(&in_driver), "arrival; by the XDP program");
        let all = Verdict::ALL.iter().map(|v| format!("{}: {}", v.name(), v.help()));
        assert_eq!(comments, all.chain(["arrival".to_owned()]).collect::<Vec<_>>());
    }
}
