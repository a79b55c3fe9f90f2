//! The packet as a policy sees it: its headers, parsed once, and its values in the lists.
//!
//! The fields are those that the documentation names (docs/guide/grantor.md). Addresses
//! become text only when a policy reads them.
//!
//! A packet whose IPv6 extension headers cannot be parsed is no request. A renewal still has
//! addresses, and the policy sees those, with protocol 255: otherwise forged packets of this kind
//! with the addresses of a granted flow would suppress its renewals.

use core::net::{Ipv4Addr, Ipv6Addr};

use fib::Prefix;
use mlua::{IntoLua, Lua, MetaMethod, UserData, UserDataFields, UserDataMethods};
use wire::{ipv4, ipv6};

use super::lists::Value;
use super::script::{ListHandle, SharedContext};
use crate::flow::{Flow, Pair};

const TCP: u8 = 6;
const UDP: u8 = 17;
const ICMP: u8 = 1;
const ICMP6: u8 = 58;
/// Reserved (RFC 5237): the protocol behind extension headers that cannot be parsed.
const UNREADABLE: u8 = 255;
/// The DSCP of packets that ask for renewal.
const RENEWAL: u8 = 2;

/// A packet's headers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct PacketHeaders {
    pub(super) flow: Flow,
    pub(super) protocol: u8,
    pub(super) fragment: bool,
    pub(super) length: u16,
    pub(super) ttl: u8,
    pub(super) dscp: u8,
    pub(super) congested: bool,
    src_port: Option<u16>,
    dst_port: Option<u16>,
    tcp_flags: Option<u8>,
    icmp_type: Option<u8>,
}

impl PacketHeaders {
    /// Parses a packet from its IP header on; `None` if it is malformed.
    pub(super) fn new(packet: &[u8], dscp: u8, congested: bool) -> Option<Self> {
        let (mut headers, transport) = match packet.first()? >> 4 {
            4 => {
                let ip = ipv4::View::parse(packet).ok()?;
                let headers = Self {
                    flow: Flow::v4(ip.src(), ip.dst()),
                    protocol: ip.protocol(),
                    fragment: ip.is_fragment(),
                    length: ip.total_len(),
                    ttl: ip.ttl(),
                    ..Self::default()
                };
                let end = usize::from(ip.total_len());
                let begin = if ip.fragment_offset() > 0 { end } else { ip.header_len() };
                (headers, packet.get(begin..end)?)
            }
            6 => {
                let ip = ipv6::View::parse(packet).ok()?;
                let upper = match ip.upper() {
                    Ok(upper) => upper,
                    Err(_) if dscp == RENEWAL => {
                        let offset = ipv6::LEN + ip.payload().len();
                        ipv6::Upper { protocol: UNREADABLE, offset, fragment: None }
                    }
                    Err(_) => return None,
                };
                let end = ipv6::LEN + usize::from(ip.payload_len());
                let later = upper.fragment.is_some_and(|part| part.offset > 0);
                let headers = Self {
                    flow: Flow::v6(ip.src(), ip.dst()),
                    protocol: upper.protocol,
                    fragment: upper.fragment.is_some_and(|part| part.offset > 0 || part.more),
                    length: u16::try_from(end).unwrap_or(u16::MAX),
                    ttl: ip.hop_limit(),
                    ..Self::default()
                };
                (headers, packet.get(if later { end } else { upper.offset }..end)?)
            }
            _ => return None,
        };
        (headers.dscp, headers.congested) = (dscp, congested);
        match headers.protocol {
            TCP | UDP => {
                if let Some(&[a, b, c, d]) = transport.first_chunk::<4>() {
                    headers.src_port = Some(u16::from_be_bytes([a, b]));
                    headers.dst_port = Some(u16::from_be_bytes([c, d]));
                }
                if headers.protocol == TCP {
                    headers.tcp_flags = transport.get(13).copied();
                }
            }
            ICMP | ICMP6 => headers.icmp_type = transport.first().copied(),
            _ => {}
        }
        Some(headers)
    }

    fn prefix(&self, len: u32) -> Option<String> {
        match self.flow.pair() {
            Pair::V4 { src, .. } if len <= 32 => Some(Prefix::truncate(src, len as _).to_string()),
            Pair::V6 { src, .. } if len <= 128 => Some(Prefix::truncate(src, len as _).to_string()),
            _ => None,
        }
    }
}

/// The packet userdata of a policy: always the packet that is being decided.
pub(super) struct Packet(pub(super) SharedContext);

impl UserData for Packet {
    fn add_fields<F: UserDataFields<Self>>(fields: &mut F) {
        numbers_and_flags(fields);
        fields.add_field_method_get("src", |_, this| Ok(address(&this.headers().flow, true)));
        fields.add_field_method_get("dst", |_, this| Ok(address(&this.headers().flow, false)));
        fields.add_field_method_get("version", |_, this| {
            Ok(if this.headers().flow.is_v6() { 6 } else { 4 })
        });
        fields.add_field_method_get("syn", |_, this| {
            Ok(this.headers().tcp_flags.is_some_and(|flags| flags & 0x12 == 0x02))
        });
        fields.add_field_method_get("renewal", |_, this| Ok(this.headers().dscp == 2));
    }

    fn add_methods<M: UserDataMethods<Self>>(methods: &mut M) {
        methods.add_method("src_in", |lua, this, list: mlua::UserDataRef<ListHandle>| {
            this.listed(lua, list.0, false)
        });
        methods.add_method("dst_in", |lua, this, list: mlua::UserDataRef<ListHandle>| {
            this.listed(lua, list.0, true)
        });
        methods.add_method("src_prefix", |_, this, (v4, v6): (u32, Option<u32>)| {
            let headers = this.headers();
            let len = if headers.flow.is_v6() { v6.unwrap_or(v4) } else { v4 };
            headers
                .prefix(len)
                .ok_or_else(|| mlua::Error::runtime("the prefix is longer than an address"))
        });
        // Called for names that are no field or method: a misspelt field would silently be nil.
        methods.add_meta_method(
            MetaMethod::Index,
            |_, _, key: String| -> mlua::Result<mlua::Value> {
                Err(mlua::Error::runtime(format!("a packet has no field `{key}`")))
            },
        );
    }
}

/// The fields that are numbers or nothing.
fn numbers_and_flags<F: UserDataFields<Packet>>(fields: &mut F) {
    type Get = fn(&PacketHeaders) -> Option<u32>;
    let numbers: [(&str, Get); 9] = [
        ("protocol", |headers| Some(headers.protocol.into())),
        ("length", |headers| Some(headers.length.into())),
        ("ttl", |headers| Some(headers.ttl.into())),
        ("dscp", |headers| Some(headers.dscp.into())),
        ("src_port", |headers| headers.src_port.map(u32::from)),
        ("dst_port", |headers| headers.dst_port.map(u32::from)),
        ("tcp_flags", |headers| headers.tcp_flags.map(u32::from)),
        ("icmp_type", |headers| headers.icmp_type.map(u32::from)),
        ("wait", |headers| headers.dscp.checked_sub(3).map(u32::from)),
    ];
    for (name, get) in numbers {
        fields.add_field_method_get(name, move |_, this| Ok(get(&this.headers())));
    }
    type Is = fn(&PacketHeaders) -> bool;
    let flags: [(&str, Is); 2] =
        [("fragment", |headers| headers.fragment), ("congested", |headers| headers.congested)];
    for (name, get) in flags {
        fields.add_field_method_get(name, move |_, this| Ok(get(&this.headers())));
    }
}

impl Packet {
    fn headers(&self) -> PacketHeaders {
        self.0.borrow().headers
    }

    fn listed(&self, lua: &Lua, list: usize, dst: bool) -> mlua::Result<mlua::Value> {
        match self.0.borrow().found(list, dst) {
            None => Ok(mlua::Value::Nil),
            Some(Value::True) => Ok(mlua::Value::Boolean(true)),
            Some(Value::Number(number)) => number.into_lua(lua),
            Some(Value::Text(text)) => (&**text).into_lua(lua),
        }
    }
}

fn address(flow: &Flow, source: bool) -> String {
    match flow.pair() {
        Pair::V4 { src, dst } => Ipv4Addr::from(if source { src } else { dst }).to_string(),
        Pair::V6 { src, dst } => Ipv6Addr::from(if source { src } else { dst }).to_string(),
    }
}
