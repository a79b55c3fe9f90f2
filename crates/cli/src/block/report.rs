//! The counters of `fingerpost block`, as text or JSON.

use std::io::Write;

use ::xdp::Blocker;
use ::xdp::block::count::Count;
use ::xdp::block::filter::Counts;
use api::BlockList;
use blocklist::BlockLists;
use serde_json::{Value, json};

use super::attachment::Attachment;
use crate::block_lists::notes;

/// Prints the lists, their packets and those of none.
pub(super) fn print(
    lists: &BlockLists,
    attached: &[Attachment],
    blocker: &Blocker,
    as_json: bool,
) -> anyhow::Result<()> {
    let counts = blocker.counts()?;
    let lists = lists.status(&counts);
    let mut out = std::io::stdout().lock();
    if as_json {
        let interfaces: Vec<Value> = attached
            .iter()
            .map(|at| json!({"name": at.name(), "mode": at.mode().map(|mode| mode.to_string())}))
            .collect();
        let count = |Count { packets, bytes }| json!({"packets": packets, "bytes": bytes});
        let document = json!({
            "interfaces": interfaces,
            "lists": lists,
            "not_listed": count(counts.not_listed),
            "others": count(counts.others),
        });
        writeln!(out, "{document}")?;
        return Ok(out.flush()?);
    }
    writeln!(out, "{:6} {:>10} {:>14} {:>16}  list", "action", "prefixes", "packets", "bytes")?;
    for list in &lists {
        let BlockList { name, action, packets, bytes, .. } = list;
        let (prefixes, notes) = (list.v4 + list.v6, notes(list));
        writeln!(out, "{action:6} {prefixes:>10} {packets:>14} {bytes:>16}  {name}{notes}")?;
    }
    for (name, Count { packets, bytes }) in
        [("not listed", counts.not_listed), ("other protocols", counts.others)]
    {
        writeln!(out, "{:6} {:>10} {packets:>14} {bytes:>16}  {name}", "pass", "")?;
    }
    Ok(out.flush()?)
}

/// Prints the sizes of the lists, and what would be held.
pub(super) fn print_check(lists: &BlockLists, as_json: bool) -> anyhow::Result<()> {
    let lists = lists.status(&Counts::default());
    let mut out = std::io::stdout().lock();
    if as_json {
        writeln!(out, "{}", json!({ "lists": lists }))?;
        return Ok(());
    }
    for list in &lists {
        let BlockList { name, action, v4, v6, .. } = list;
        writeln!(out, "{action:6} {v4:>10} IPv4 {v6:>10} IPv6  {name}{}", notes(list))?;
    }
    Ok(())
}
