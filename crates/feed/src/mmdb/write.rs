//! Writes a table as a MaxMind database.
//!
//! The routes become a binary tree without nesting: below a node, an address has the record of the longest prefix around
//! it, so that a lookup in the database and one in the table agree. A prefix that another one
//! divides comes back as the parts around that one.
//!
//! ```text
//! sorted routes ─► the routes of each half, and the record around them ─► nodes, numbered from the root on
//! ```
//!
//! A table of IPv4 alone is a tree of IPv4. Otherwise IPv4 is below `::/96` of a tree of IPv6, where IPv6 routes
//! do not reach, and `::ffff:0:0/96`, `2001::/32` and `2002::/16` lead to it if no route is in the way, as in MaxMind's
//! own databases.
//!
//! Source: MaxMind DB File Format Specification 2.0, "Binary Search Tree Section" and "Database Metadata".

use std::io::{self, Write};

use fib::{Addr, Prefix};

use super::MARKER;
use super::encode::{Records, Type};
use crate::error::WriteError;
use crate::label::Label;
use crate::options::WriteOptions;
use crate::routing_table::RoutingTable;

/// Where IPv4 is in a tree of IPv6.
const IPV4: (u128, u32) = (0, 96);

/// Where a tree of IPv6 leads to IPv4 again.
const ALIASES: [(u128, u32); 3] = [(0xffff << 32, 96), (0x2001 << 112, 32), (0x2002 << 112, 16)];

/// The bytes of zero between the tree and the records.
const SEPARATOR_LEN: usize = 16;

/// Where one half of a node leads.
#[derive(Clone, Copy)]
enum Target {
    Nothing,
    Node(u32),
    Record(Label),
    /// The tree of IPv4, inside that of IPv6.
    Ipv4,
}

/// Sorted routes, with where each leads.
type Routes<A> = [(Prefix<A>, Target)];

/// The search tree, as far as it is built.
struct Tree<'r> {
    nodes: Vec<[Target; 2]>,
    v4: &'r Routes<u32>,
    /// The root of IPv4, once it is built.
    ipv4: Option<Target>,
}

impl Tree<'_> {
    /// Builds the tree below a prefix from the routes inside; `around` is the record of the longest
    /// prefix that covers it.
    fn build<A: Addr>(
        &mut self,
        prefix: Prefix<A>,
        mut routes: &Routes<A>,
        mut around: Target,
    ) -> Target {
        if let Some((&(first, target), rest)) = routes.split_first()
            && first == prefix
        {
            (around, routes) = (target, rest);
        }
        if routes.is_empty() {
            return if let Target::Ipv4 = around { self.ipv4() } else { around };
        }
        let node = self.nodes.len();
        self.nodes.push([Target::Nothing; 2]);
        let at = prefix.len();
        let (low, high) =
            routes.split_at(routes.partition_point(|(p, _)| p.addr().bits(at, 1) == 0));
        for (side, (within, routes)) in
            [(prefix.addr(), low), (prefix.last(), high)].into_iter().enumerate()
        {
            self.nodes[node][side] = self.build(Prefix::truncate(within, at + 1), routes, around);
        }
        Target::Node(node as u32)
    }

    /// Builds the tree of IPv4, the first time.
    fn ipv4(&mut self) -> Target {
        match self.ipv4 {
            Some(target) => target,
            None => {
                let target = self.build(Prefix::ALL, self.v4, Target::Nothing);
                *self.ipv4.insert(target)
            }
        }
    }
}

/// Writes the table as a database.
pub(crate) fn write(
    table: &RoutingTable,
    options: &WriteOptions,
    out: &mut impl Write,
) -> Result<(), WriteError> {
    if let Some((prefix, _)) =
        table.v6.iter().find(|(prefix, _)| prefix.len() >= IPV4.1 && prefix.addr().first(96) == 0)
    {
        return Err(WriteError::route(prefix, "lies in ::/96, where a database has IPv4".into()));
    }
    let v4 = routes(&table.v4);
    let mut v6 = routes(&table.v6);
    let mut tree = Tree { nodes: Vec::new(), v4: &v4, ipv4: None };
    let ip_version = if v6.is_empty() { 4 } else { 6 };
    let root = if v6.is_empty() {
        tree.build(Prefix::ALL, &v4, Target::Nothing)
    } else {
        lead_to_ipv4(&mut v6, v4.iter().any(|(prefix, _)| prefix.len() > 0));
        tree.build(Prefix::ALL, &v6, Target::Nothing)
    };
    if tree.nodes.is_empty() {
        // One record is for all addresses, or there is none; a tree has a root.
        tree.nodes.push([root; 2]);
    }
    let (records, offsets) = records(&tree.nodes, table, options)?;
    let node_count = tree.nodes.len();
    let record_size = record_size(node_count, records.len()).map_err(WriteError::Table)?;
    let metadata =
        metadata(options, ip_version, node_count, record_size).map_err(WriteError::Table)?;
    write_tree(&tree.nodes, &offsets, record_size, out)?;
    out.write_all(&[0; SEPARATOR_LEN])?;
    out.write_all(&records)?;
    out.write_all(MARKER)?;
    out.write_all(&metadata)?;
    Ok(())
}

/// Returns the map that describes the database, with the types that the specification wants.
fn metadata(
    options: &WriteOptions,
    ip_version: u32,
    node_count: usize,
    record_size: u32,
) -> Result<Vec<u8>, String> {
    let mut map = Records::default();
    let numbers = [
        ("binary_format_major_version", Type::Unsigned16, 2),
        ("binary_format_minor_version", Type::Unsigned16, 0),
        ("build_epoch", Type::Unsigned64, options.time.into()),
        ("ip_version", Type::Unsigned16, ip_version.into()),
        ("node_count", Type::Unsigned32, node_count as u128),
        ("record_size", Type::Unsigned16, record_size.into()),
    ];
    map.control(Type::Map, numbers.len() + 3)?;
    for (name, kind, number) in numbers {
        map.text(name)?;
        map.unsigned(kind, number)?;
    }
    map.text("database_type")?;
    map.text(&options.database_type)?;
    map.text("description")?;
    map.control(Type::Map, 1)?;
    map.text("en")?;
    map.text("routes, written by fingerpost")?;
    map.text("languages")?;
    map.control(Type::Array, 0)?;
    Ok(map.into_bytes())
}

/// Returns the routes as those of a tree, each of which leads to the record of its label.
fn routes<A: Addr>(from: &[(Prefix<A>, Label)]) -> Vec<(Prefix<A>, Target)> {
    from.iter().map(|&(prefix, label)| (prefix, Target::Record(label))).collect()
}

/// Returns the records of the labels that the tree leads to, and their offsets by label. A label of prefixes that
/// longer ones hide has no record: a reader that verifies a database refuses it.
fn records(
    nodes: &[[Target; 2]],
    table: &RoutingTable,
    options: &WriteOptions,
) -> Result<(Vec<u8>, Vec<u32>), WriteError> {
    let mut records = Records::default();
    let mut offsets = vec![None; table.labels.len()];
    for target in nodes.as_flattened() {
        let &Target::Record(label) = target else { continue };
        let offset = &mut offsets[label.0 as usize];
        if offset.is_none() {
            let text = table.labels.get(label);
            let at = records.label(options.record_key.as_deref(), text);
            *offset = Some(at.map_err(|what| with_prefix(table, label, what))?);
        }
    }
    Ok((records.into_bytes(), offsets.into_iter().map(Option::unwrap_or_default).collect()))
}

/// Returns the error of a label with its first prefix.
fn with_prefix(table: &RoutingTable, wrong: Label, what: String) -> WriteError {
    let first = table.each_route(|prefix, label| if label == wrong { Err(prefix) } else { Ok(()) });
    match first {
        Err(prefix) => WriteError::route(prefix, what),
        Ok(()) => WriteError::Table(what),
    }
}

/// Adds the places of IPv4 to the routes of IPv6; the aliases only where no route is.
fn lead_to_ipv4(routes: &mut Vec<(Prefix<u128>, Target)>, has_aliases: bool) {
    let place = |(addr, len)| Prefix::truncate(addr, len);
    let free = |alias: &Prefix<u128>| {
        !routes.iter().any(|(route, _)| route.covers(*alias) || alias.covers(*route))
    };
    let aliases = ALIASES.map(place).into_iter().filter(|alias| has_aliases && free(alias));
    let places: Vec<_> = [place(IPV4)].into_iter().chain(aliases).collect();
    routes.extend(places.into_iter().map(|prefix| (prefix, Target::Ipv4)));
    routes.sort_unstable_by_key(|&(prefix, _)| prefix);
}

/// Returns the least size of a node's records, in bits, that holds all numbers.
fn record_size(node_count: usize, records_len: usize) -> Result<u32, String> {
    match node_count + SEPARATOR_LEN + records_len {
        0..=0xff_ffff => Ok(24),
        0x100_0000..=0xfff_ffff => Ok(28),
        0x1000_0000..=0xffff_ffff => Ok(32),
        _ => Err(format!(
            "{node_count} nodes and {records_len} bytes of records are too many for a database"
        )),
    }
}

/// Writes the nodes with records of `size` bits.
fn write_tree(
    nodes: &[[Target; 2]],
    offsets: &[u32],
    size: u32,
    out: &mut impl Write,
) -> io::Result<()> {
    let count = nodes.len();
    for node in nodes {
        let [left, right] = node.map(|target| match target {
            Target::Node(node) => node,
            Target::Record(label) => (count + SEPARATOR_LEN) as u32 + offsets[label.0 as usize],
            Target::Nothing | Target::Ipv4 => count as u32,
        });
        let both = match size {
            24 => u64::from(left) << 40 | u64::from(right) << 16,
            // The upper four bits of both are in the middle.
            28 => {
                u64::from(left & 0xff_ffff) << 40
                    | u64::from(left >> 24) << 36
                    | u64::from(right) << 8
            }
            _ => u64::from(left) << 32 | u64::from(right),
        };
        out.write_all(&both.to_be_bytes()[..size as usize / 4])?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::{Target, record_size, write_tree};
    use crate::label::Label;

    /// The specification's layouts, for records whose digits show their place.
    #[test]
    fn nodes_have_the_layout_of_their_record_size() {
        let nodes = [
            [Target::Node(0x12_3456), Target::Nothing],
            [Target::Record(Label(1)), Target::Node(0xab_cdef)],
        ];
        for (size, right) in [
            (24, "123456 000002 000022 abcdef"),
            (28, "123456 00 000002 000022 00 abcdef"),
            (32, "00123456 00000002 00000022 00abcdef"),
        ] {
            let mut bytes = Vec::new();
            write_tree(&nodes, &[0, 0x10], size, &mut bytes).unwrap();
            let digits: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
            assert_eq!(digits, right.replace(' ', ""), "{size}");
        }
        let mut bytes = Vec::new();
        let wide = [[Target::Node(0xabc_def0), Target::Node(0x123_4567)]];
        write_tree(&wide, &[], 28, &mut bytes).unwrap();
        assert_eq!(bytes, [0xbc, 0xde, 0xf0, 0xa1, 0x23, 0x45, 0x67]);
    }

    #[test]
    fn record_size_is_the_least_that_holds_all_offsets() {
        for (all, size) in [(24, 24), (28, 28), (32, 32)] {
            let records_len = (1usize << all) - 1 - 16 - 5;
            assert_eq!(record_size(5, records_len), Ok(size));
            assert_ne!(record_size(5, records_len + 1), Ok(size));
        }
    }
}
