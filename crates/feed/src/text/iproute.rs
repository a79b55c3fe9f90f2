//! The output of `ip -j route`: JSON objects in one or several arrays.
//!
//! ```text
//! [{"dst":"default","gateway":"192.0.2.1","dev":"eth0","metric":100}, …]
//! ```
//!
//! | object | label |
//! |---|---|
//! | `gateway`, or `via` with a `host` | the address |
//! | `nexthops` | the addresses (or devices) of all, separated by commas |
//! | `dev` alone | `dev NAME` |
//! | `type` other than `unicast` | the type: `blackhole`, `unreachable`, `local`, … |
//!
//! `default` has the family of its next hop; without one, that of the routes before it in the same
//! array; else IPv4. Of two routes to one prefix the one with the lower metric is used, and of
//! equal ones the first, as in the kernel. Objects are read one by one, so that those before the
//! end of a truncated file are known.

use core::fmt;
use core::net::IpAddr;
use std::io::{self, Read, Write};

use fib::Prefix;
use serde::Deserialize;
use serde::de::{self, DeserializeSeed, Deserializer, IgnoredAny, SeqAccess, Visitor};
use serde_json::json;

use crate::error::{Fault, WriteError};
use crate::label::Label;
use crate::prefix::AnyPrefix;
use crate::route_list::RouteList;
use crate::routing_table::RoutingTable;
use crate::source::Source;
use crate::text::scan;

/// The kernel's order of routes to one prefix: by metric, then by arrival.
pub(crate) type Preference = (u64, u64);

#[derive(Deserialize)]
struct RouteObject {
    dst: Option<String>,
    #[serde(rename = "type")]
    kind: Option<String>,
    metric: Option<u64>,
    #[serde(flatten)]
    nexthop: JsonNexthop,
    nexthops: Option<Vec<JsonNexthop>>,
}

#[derive(Deserialize)]
struct JsonNexthop {
    gateway: Option<String>,
    via: Option<JsonVia>,
    dev: Option<String>,
}

#[derive(Deserialize)]
struct JsonVia {
    host: String,
}

impl JsonNexthop {
    fn address(&self) -> Option<&str> {
        self.gateway.as_deref().or(self.via.as_ref().map(|via| via.host.as_str()))
    }
}

impl RouteObject {
    /// An object as `ip` prints for a table without routes.
    fn is_empty(&self) -> bool {
        self.dst.is_none() && self.nexthop.dev.is_none() && self.nexthop.address().is_none()
    }

    fn label(&self) -> String {
        let one = |nexthop: &JsonNexthop| match (nexthop.address(), &nexthop.dev) {
            (Some(address), _) => address.to_owned(),
            (None, Some(dev)) => format!("dev {dev}"),
            (None, None) => String::new(),
        };
        match (self.kind.as_deref(), &self.nexthops) {
            (Some(kind), _) if kind != "unicast" => kind.to_owned(),
            (_, Some(nexthops)) => nexthops.iter().map(one).collect::<Vec<_>>().join(","),
            _ => one(&self.nexthop),
        }
    }

    /// The family of the next hop, which is that of `default`.
    fn is_v6(&self) -> Option<bool> {
        let first = self.nexthops.iter().flatten().next();
        let address = self.nexthop.address().or_else(|| first?.address())?;
        Some(address.parse::<IpAddr>().ok()?.is_ipv6())
    }
}

/// The destination of the objects.
struct Routes<'l> {
    list: &'l mut RouteList<Preference>,
    truncate: bool,
}

impl Routes<'_> {
    fn take(&mut self, object: &RouteObject, before_v6: Option<bool>) -> Result<bool, String> {
        let Some(dst) = object.dst.as_deref() else {
            return Err("a route without dst".into());
        };
        let prefix = if dst == "default" {
            if object.is_v6().or(before_v6).unwrap_or(false) {
                AnyPrefix::V6(Prefix::ALL)
            } else {
                AnyPrefix::V4(Prefix::ALL)
            }
        } else {
            scan::prefix(dst.as_bytes(), self.truncate)?
        };
        let preference = (object.metric.unwrap_or(0), self.list.entries());
        let label = self.list.labels.intern(&object.label());
        self.list.push(prefix, preference, label);
        Ok(matches!(prefix, AnyPrefix::V6(_)))
    }
}

/// Reads all arrays.
pub(crate) fn read(
    source: &mut Source<'_>,
    truncate: bool,
    list: &mut RouteList<Preference>,
) -> Result<(), Fault> {
    let mut routes = Routes { list, truncate };
    loop {
        // Only blanks are between arrays. Their lines are not counted below, so errors give the
        // line within their array.
        let blanks = source.peek(1).iter().take_while(|b| b.is_ascii_whitespace()).count();
        if blanks > 0 {
            source.consume(blanks);
            continue;
        }
        if source.window().is_empty() {
            return match source.broken().map(str::to_owned) {
                Some(what) => Err(Fault::Damage {
                    offset: source.offset(),
                    record: routes.list.entries() + 1,
                    what,
                }),
                None => Ok(()),
            };
        }
        let error = {
            let mut json = serde_json::Deserializer::from_reader(Pull { source });
            Array { routes: &mut routes }.deserialize(&mut json).err()
        };
        if let Some(error) = error {
            let what = match source.broken() {
                Some(why) => why.to_owned(),
                None => format!("{error}: give what `ip -j route` prints"),
            };
            let (offset, record) = (source.offset(), routes.list.entries() + 1);
            return Err(Fault::Damage { offset, record, what });
        }
    }
}

/// Reads the window byte by byte as serde requests them, so that no byte behind an array is
/// consumed.
struct Pull<'s, 'r> {
    source: &'s mut Source<'r>,
}

impl Read for Pull<'_, '_> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let have = self.source.peek(1);
        let count = have.len().min(out.len()).min(1);
        out[..count].copy_from_slice(&have[..count]);
        self.source.consume(count);
        Ok(count)
    }
}

/// Reads the objects of one array one by one.
struct Array<'a, 'l> {
    routes: &'a mut Routes<'l>,
}

impl<'de> DeserializeSeed<'de> for Array<'_, '_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, json: D) -> Result<(), D::Error> {
        json.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Array<'_, '_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an array of routes")
    }

    fn visit_seq<S: SeqAccess<'de>>(self, mut objects: S) -> Result<(), S::Error> {
        let mut before = None;
        while let Some(object) = objects.next_element::<RouteObject>()? {
            if object.is_empty() {
                continue;
            }
            before = Some(self.routes.take(&object, before).map_err(de::Error::custom)?);
        }
        Ok(())
    }

    /// `ip -j route` prints `[{}]` or `{}` for some empty tables; a lone object
    /// with members is one route less its array.
    fn visit_map<M: de::MapAccess<'de>>(self, mut members: M) -> Result<(), M::Error> {
        match members.next_key::<IgnoredAny>()? {
            None => Ok(()),
            Some(_) => Err(de::Error::custom("an object where an array is expected")),
        }
    }
}

/// The types of routes that have no next hop (`rtnetlink(7)`).
const TYPES: [&str; 9] = [
    "local",
    "broadcast",
    "anycast",
    "multicast",
    "blackhole",
    "unreachable",
    "prohibit",
    "throw",
    "nat",
];

/// Writes an array with an object for each route, a line each.
pub(crate) fn write(table: &RoutingTable, out: &mut impl Write) -> Result<(), WriteError> {
    // The fields behind the destination, by family and label.
    let texts = |is_v6| -> Vec<Option<String>> {
        table.labels.iter().map(|(_, label)| fields(label, is_v6)).collect()
    };
    let texts = [texts(false), texts(true)];
    let text = |prefix: &AnyPrefix, label: Label| {
        texts[usize::from(matches!(prefix, AnyPrefix::V6(_)))][label.0 as usize].as_deref()
    };
    table.each_route(|prefix, label| match text(&prefix, label) {
        Some(_) => Ok(()),
        None => {
            let label = table.labels.get(label);
            let what = format!(
                "label {label:?} is no next hop of ip route: an address, `dev NAME` or a type"
            );
            Err(WriteError::route(prefix, what))
        }
    })?;
    out.write_all(b"[")?;
    let mut separator = "";
    table.each_route(|prefix, label| -> Result<(), WriteError> {
        // Not `default`, which does not say of which family it is.
        let fields = text(&prefix, label).unwrap_or_default();
        write!(out, "{separator}{{\"dst\":\"{prefix}\"{fields}}}")?;
        separator = ",\n";
        Ok(())
    })?;
    out.write_all(b"]\n")?;
    Ok(())
}

/// Returns the fields of an object that is read with this label.
fn fields(label: &str, is_v6: bool) -> Option<String> {
    if label.is_empty() {
        return Some(String::new());
    }
    if TYPES.contains(&label) {
        return Some(format!(",\"type\":\"{label}\""));
    }
    let nexthop = |text: &str| match (text.parse::<IpAddr>(), text.strip_prefix("dev ")) {
        (Ok(address), _) if address.is_ipv6() == is_v6 => Some(json!({ "gateway": text })),
        (Ok(address), _) => {
            let family = if address.is_ipv6() { "inet6" } else { "inet" };
            Some(json!({ "via": { "family": family, "host": text } }))
        }
        (Err(_), Some(dev)) if !dev.contains(' ') => Some(json!({ "dev": dev })),
        _ => None,
    };
    let nexthops: Vec<_> = label.split(',').map(nexthop).collect::<Option<_>>()?;
    Some(match &nexthops[..] {
        [only] => {
            let object = only.to_string();
            format!(",{}", &object[1..object.len() - 1])
        }
        several => format!(",\"nexthops\":{}", serde_json::Value::from(several)),
    })
}
