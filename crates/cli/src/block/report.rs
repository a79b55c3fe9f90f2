//! The counters of `fingerpost block`, as text or JSON.

use std::io::Write;

use ::xdp::block::filter::Count;
use ::xdp::{Blocker, ListAction};
use serde_json::{Value, json};

use super::attachment::Attachment;
use super::list::List;

/// Prints the lists, their packets and those of none.
pub(super) fn print(
    lists: &[List],
    attached: &[Attachment],
    blocker: &Blocker,
    as_json: bool,
) -> anyhow::Result<()> {
    let counts = blocker.counts()?;
    let mut out = std::io::stdout().lock();
    if as_json {
        let interfaces: Vec<Value> = attached
            .iter()
            .map(|at| json!({"name": at.name(), "mode": at.mode().map(|mode| mode.to_string())}))
            .collect();
        let lists: Vec<Value> = lists
            .iter()
            .zip(&counts.lists)
            .map(|(list, count)| with_count(describe(list), *count))
            .collect();
        let document = json!({
            "interfaces": interfaces,
            "lists": lists,
            "not_listed": with_count(json!({}), counts.not_listed),
            "others": with_count(json!({}), counts.others),
        });
        writeln!(out, "{document}")?;
        return Ok(out.flush()?);
    }
    writeln!(out, "{:6} {:>10} {:>14} {:>16}  list", "action", "prefixes", "packets", "bytes")?;
    for (list, Count { packets, bytes }) in lists.iter().zip(&counts.lists) {
        let (action, name, held) = (action(list), list.path().display(), held(list));
        writeln!(out, "{action:6} {:>10} {packets:>14} {bytes:>16}  {name}{held}", list.len())?;
    }
    for (name, Count { packets, bytes }) in
        [("not listed", counts.not_listed), ("other protocols", counts.others)]
    {
        writeln!(out, "{:6} {:>10} {packets:>14} {bytes:>16}  {name}", "pass", "")?;
    }
    Ok(out.flush()?)
}

/// Prints the sizes of the lists, and what would be held.
pub(super) fn print_check(lists: &[List], as_json: bool) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    if as_json {
        let lists: Vec<Value> = lists.iter().map(describe).collect();
        writeln!(out, "{}", json!({ "lists": lists }))?;
        return Ok(());
    }
    for list in lists {
        let [v4, v6] = list.applied();
        let (action, name, held) = (action(list), list.path().display(), held(list));
        writeln!(out, "{action:6} {v4:>10} IPv4 {v6:>10} IPv6  {name}{held}")?;
    }
    Ok(())
}

fn action(list: &List) -> &'static str {
    match list.action() {
        ListAction::Pass => "pass",
        ListAction::Drop => "drop",
    }
}

fn held(list: &List) -> String {
    list.held().map_or_else(String::new, |reason| format!("  held: {reason}"))
}

fn describe(list: &List) -> Value {
    let [v4, v6] = list.applied();
    json!({
        "file": list.path().display().to_string(),
        "action": action(list),
        "v4": v4,
        "v6": v6,
        "expiring": list.expiring(),
        "held": list.held(),
    })
}

fn with_count(mut item: Value, count: Count) -> Value {
    item["packets"] = count.packets.into();
    item["bytes"] = count.bytes.into();
    item
}
