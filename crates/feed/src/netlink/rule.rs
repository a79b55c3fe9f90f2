//! Policy routing rules, which select the table for a packet.
//!
//! `RTM_NEWRULE`, `struct fib_rule_hdr` of 12 bytes: family, lengths of destination and
//! source, TOS, table, two reserved, action, flags (4). Rules are tried in the order
//! of their priority; a VRF rule (`l3mdev`) names no table and selects that of the interface.

use core::net::IpAddr;

use super::attribute::Bytes;
use super::error::Damage;
use super::message::Message;
use super::uapi::{
    AF_INET, AF_INET6, FIB_RULE_INVERT, FR_ACT_BLACKHOLE, FR_ACT_GOTO, FR_ACT_NOP, FR_ACT_PROHIBIT,
    FR_ACT_TO_TBL, FR_ACT_UNREACHABLE, FRA_DST, FRA_FWMARK, FRA_FWMASK, FRA_GOTO, FRA_IIFNAME,
    FRA_L3MDEV, FRA_OIFNAME, FRA_PAD, FRA_PRIORITY, FRA_PROTOCOL, FRA_SRC, FRA_SUPPRESS_PREFIXLEN,
    FRA_TABLE,
};

/// The action of a rule on a matching packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Looks it up in this table, and continues if it has no route.
    Table(u32),
    /// Looks it up in the table of the VRF that its interface belongs to.
    Vrf,
    /// Continues with the rule of this priority.
    Goto(u32),
    /// Continues with the next rule.
    Nop,
    /// Drops it.
    Blackhole,
    /// Drops it and answers that the destination is unreachable.
    Unreachable,
    /// Drops it and answers that this is prohibited.
    Prohibit,
    /// An unknown action.
    Unknown(u8),
}

/// A rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// Whether it is for IPv6.
    pub v6: bool,
    /// Its priority: the lowest first.
    pub priority: u32,
    /// Its action.
    pub action: Action,
    /// Whether it matches packets that its conditions do not (`not`).
    pub inverted: bool,
    /// The source prefix that it matches.
    pub source: Option<(IpAddr, u8)>,
    /// The destination prefix that it matches.
    pub destination: Option<(IpAddr, u8)>,
    /// The name of the input interface.
    pub input: Option<String>,
    /// The name of the output interface.
    pub output: Option<String>,
    /// The firewall mark that it matches, and the mask.
    pub mark: Option<(u32, u32)>,
    /// `suppress_prefixlength`: routes with prefixes of at most this length are ignored.
    pub suppressed: Option<u32>,
    /// The type of service that it matches; 0 is any.
    pub tos: u8,
    /// Other conditions (ports, users …), as the kernel sent them.
    pub other: Vec<u8>,
}

impl Rule {
    /// Returns whether it matches every packet.
    pub fn is_for_all(&self) -> bool {
        !self.inverted
            && self.source.is_none()
            && self.destination.is_none()
            && self.input.is_none()
            && self.output.is_none()
            && self.mark.is_none()
            && self.tos == 0
            && self.other.is_empty()
    }

    /// Makes a rule for all IPv4 packets.
    pub fn all(priority: u32, action: Action) -> Self {
        Self {
            v6: false,
            priority,
            action,
            inverted: false,
            source: None,
            destination: None,
            input: None,
            output: None,
            mark: None,
            suppressed: None,
            tos: 0,
            other: Vec::new(),
        }
    }

    /// Reads a message; `None` if it is of another family than IPv4 and IPv6.
    ///
    /// # Errors
    ///
    /// [`Damage`].
    pub fn parse(message: &Message<'_>) -> Result<Option<Self>, Damage> {
        let (head, attributes) = message.split::<12>()?;
        let family = head[0];
        if !matches!(family, AF_INET | AF_INET6) {
            return Ok(None);
        }
        let mut rule = Self {
            v6: family == AF_INET6,
            inverted: head.u32(8) & FIB_RULE_INVERT != 0,
            tos: head[3],
            ..Self::all(0, Action::Nop)
        };
        let (mut table, mut goto, mut vrf) = (u32::from(head[4]), 0, false);
        let (mut mark, mut mask) = (0, u32::MAX);
        for attribute in attributes {
            let attribute = attribute?;
            let text = || Some(String::from_utf8_lossy(attribute.text()).into_owned());
            match attribute.kind {
                FRA_PRIORITY => rule.priority = attribute.u32()?,
                FRA_TABLE => table = attribute.u32()?,
                FRA_GOTO => goto = attribute.u32()?,
                FRA_L3MDEV => vrf = attribute.value.first().is_some_and(|&is| is != 0),
                FRA_SRC => rule.source = Some((attribute.address()?, head[2])),
                FRA_DST => rule.destination = Some((attribute.address()?, head[1])),
                FRA_IIFNAME => rule.input = text(),
                FRA_OIFNAME => rule.output = text(),
                FRA_FWMARK => mark = attribute.u32()?,
                FRA_FWMASK => mask = attribute.u32()?,
                FRA_SUPPRESS_PREFIXLEN => {
                    let length = attribute.u32()?;
                    rule.suppressed = (length != u32::MAX).then_some(length);
                }
                FRA_PROTOCOL | FRA_PAD => {}
                kind => {
                    rule.other.extend(kind.to_ne_bytes());
                    rule.other.extend(attribute.value);
                }
            }
        }
        if mark != 0 || mask != u32::MAX {
            rule.mark = Some((mark, mask));
        }
        rule.action = match head[7] {
            _ if vrf => Action::Vrf,
            FR_ACT_TO_TBL => Action::Table(table),
            FR_ACT_GOTO => Action::Goto(goto),
            FR_ACT_NOP => Action::Nop,
            FR_ACT_BLACKHOLE => Action::Blackhole,
            FR_ACT_UNREACHABLE => Action::Unreachable,
            FR_ACT_PROHIBIT => Action::Prohibit,
            other => Action::Unknown(other),
        };
        Ok(Some(rule))
    }
}
