//! The packet as a policy sees it: its headers, and its values in the lists.
//!
//! The fields are those that the documentation names (docs/guide/grantor.md). Addresses
//! become text only when a policy reads them.

use core::cell::RefCell;
use core::net::{Ipv4Addr, Ipv6Addr};
use std::rc::Rc;

use fib::Reader;
use mlua::{IntoLua, Lua, MetaMethod, UserData, UserDataFields, UserDataMethods};

use super::headers::PacketHeaders;
use super::lists::{Lists, Value};
use crate::flow::{Flow, Pair};

/// The state that the packet's userdata and the lists read: the request that is being decided.
pub(super) struct ScriptContext {
    pub(super) headers: PacketHeaders,
    /// Its number in the batch.
    pub(super) at: usize,
    pub(super) now: u64,
    pub(super) lists: Reader<Lists>,
    /// The lists that the policy has named, in order.
    pub(super) wanted: Vec<String>,
    /// Their values for the batch's sources, and for its destinations.
    pub(super) found: Vec<[Vec<Option<Value>>; 2]>,
}

impl ScriptContext {
    pub(super) fn found(&self, list: usize, dst: bool) -> Option<&Value> {
        self.found.get(list)?[usize::from(dst)].get(self.at)?.as_ref()
    }
}

/// The context, shared with the functions of a script.
pub(super) type SharedContext = Rc<RefCell<ScriptContext>>;

/// A list that a policy has named.
pub(super) struct ListHandle(pub(super) usize);

impl UserData for ListHandle {}

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
