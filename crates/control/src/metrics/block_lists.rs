//! The metrics of block lists.

use std::fmt;

use api::BlockList;

use crate::exposition::{Writer, family};

/// Returns the labels of a list's packets.
fn decided(list: &BlockList) -> [(&'static str, &str); 2] {
    [("list", &list.name), ("action", &list.action)]
}

/// Writes the metrics of block lists.
///
/// # Errors
///
/// Those of the encoder.
pub fn encode_block_lists(lists: &[BlockList], to: &mut Writer<'_>) -> fmt::Result {
    let prefixes = lists.iter().flat_map(|list| {
        let counts = [("IPv4", list.v4), ("IPv6", list.v6)];
        counts.map(|(family, count)| ([("list", &list.name[..]), ("family", family)], count as u64))
    });
    let metric = family(
        "block_list_prefixes",
        "Prefixes of a block list or allow list in force; a sudden change is that of its source",
    );
    to.gauge(&metric, prefixes)?;
    let packets = lists.iter().map(|list| (decided(list), list.packets));
    let metric = family(
        "block_list_packets",
        "Packets about which a list has decided: the first list that contains their source; `show blocked` \
         counts those of a prefix",
    );
    to.counter(&metric, packets)?;
    let bytes = lists.iter().map(|list| (decided(list), list.bytes));
    let metric = family("block_list_bytes", "Bytes of these packets, with their Ethernet headers");
    to.counter(&metric, bytes)?;
    let held =
        lists.iter().map(|list| ([("list", &list.name[..])], u64::from(list.held.is_some())));
    let metric = family(
        "block_list_held",
        "1 while the present content of a list is held, and its former content in force; \
         `show block-lists` has the reason, and `apply-lists` applies a list that has become short",
    );
    to.gauge(&metric, held)?;
    let failing =
        lists.iter().map(|list| ([("list", &list.name[..])], u64::from(list.error.is_some())));
    let metric = family(
        "block_list_failing",
        "1 while the source of a list does not answer or its file cannot be read, and its former content is in \
         force; `show block-lists` has the reason",
    );
    to.gauge(&metric, failing)
}
