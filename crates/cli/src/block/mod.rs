//! `fingerpost block INTERFACE... --block FILE`: drops the packets of listed sources in the driver, and forwards
//! nothing: for a host, or for a router of another make.
//!
//! ```text
//!   files of prefixes ─► lists, in the order of priority ─► Blocker ─► XDP program ─► each interface
//!      ▲ looked at ten times a second                          └─► counters ─► standard output
//! ```
//!
//! Lists of `--allow` come before those of `--block`, each in the order given; the first that contains a
//! source decides. A file that changes is read again, and its list replaced in one step. Some
//! contents are *held*: logged, and not applied (`hold.rs`).
//!
//! However the process ends, the kernel removes the program from the interfaces with its descriptors.

use std::collections::HashSet;
use std::io;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::Ordering;
use std::thread::sleep;
use std::time::{Duration, Instant};

use ::xdp::block::BlockError;
use ::xdp::{Blocker, ListAction, Publication};
use anyhow::ensure;
use jiff::Timestamp;
use output::progress;

use crate::stop::{SIGINT, SIGTERM, flag_on_sighup, flag_on_signals};

mod attachment;
mod hold;
mod list;
mod report;

use attachment::{Attachment, ModeChoice};
use hold::Protected;
use list::List;

/// The interval at which files and signals are looked at.
const TURN: Duration = Duration::from_millis(100);

/// The arguments of `block`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Interfaces whose received packets are examined
    #[arg(value_name = "INTERFACE", required = true)]
    interfaces: Vec<String>,
    /// File of prefixes whose packets are dropped, or folder of such files; may be given several times
    ///
    /// A line is a prefix or an address, and may have more words or a comment. With the word
    /// expires=2026-12-01T00:00:00Z behind the prefix, it ends at that time. The file may be compressed.
    /// It is read again when it changes; write a new file and rename it.
    #[arg(long, value_name = "FILE", required = true)]
    block: Vec<PathBuf>,
    /// File or folder of prefixes whose packets pass, whatever lists of --block contain them; may be given several
    /// times
    #[arg(long, value_name = "FILE")]
    allow: Vec<PathBuf>,
    /// Count the packets of each list, and drop none
    #[arg(long)]
    observe: bool,
    /// Place of the program: `native`, in the driver; `generic`, in the stack; or native where the driver can
    #[arg(long, value_enum, value_name = "MODE", default_value = "auto")]
    mode: ModeChoice,
    /// Print the counters every so many seconds, and not only at the end
    #[arg(long, value_name = "S", value_parser = clap::value_parser!(u32).range(1..))]
    interval: Option<u32>,
    /// Read the lists, print their sizes and what would be held, and exit
    #[arg(long)]
    check: bool,
    /// Write JSON, a document a line
    #[arg(short, long)]
    json: bool,
}

/// Runs the subcommand.
pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let mut lists = open_lists(args)?;
    let mut protected = Protected::of_this_host()?;
    if args.check {
        lists.iter_mut().try_for_each(|list| list.read(&mut protected, false).map(drop))?;
        report::print_check(&lists, args.json)?;
        let is_held = lists.iter().any(|list| list.held().is_some());
        return Ok(if is_held { ExitCode::FAILURE } else { ExitCode::SUCCESS });
    }
    let interfaces = attachment::find(&args.interfaces)?;
    let stop = flag_on_signals(&[SIGINT, SIGTERM])?;
    let reload = flag_on_sighup()?;
    let actions: Vec<ListAction> = lists
        .iter()
        .map(|list| if args.observe { ListAction::Pass } else { list.action() })
        .collect();
    let mut blocker = Blocker::new(&actions).map_err(name_rights)?;
    for (number, list) in lists.iter_mut().enumerate() {
        let what = format!("reading {}", list.path().display());
        let content = progress::during(&what, || list.read(&mut protected, false))?;
        if let Some((v4, v6)) = content {
            blocker.replace(number, &v4, &v6);
        }
    }
    progress::during("building the table", || blocker.commit())?;
    let mut attached = attachment::attach_all(&interfaces, blocker.program(), args.mode)?;
    log_start(args, &lists, &attached);
    let mut next =
        args.interval.map(|seconds| Instant::now() + Duration::from_secs(seconds.into()));
    while !stop.load(Ordering::Relaxed) {
        let accepts_all = reload.swap(false, Ordering::Relaxed);
        refresh(&mut lists, &mut blocker, &attached, accepts_all);
        for attached in &mut attached {
            attached.follow(blocker.program(), args.mode);
        }
        if let (Some(at), Some(seconds)) = (next, args.interval)
            && Instant::now() >= at
        {
            report::print(&lists, &attached, &blocker, args.json)?;
            next = Some(at + Duration::from_secs(seconds.into()));
        }
        sleep(TURN);
    }
    report::print(&lists, &attached, &blocker, args.json)?;
    Ok(ExitCode::SUCCESS)
}

/// Adds the rights that a program needs, if their lack is the reason.
fn name_rights(error: BlockError) -> anyhow::Error {
    let error = anyhow::Error::from(error);
    let is_denied = error.chain().any(|cause| {
        let cause = cause.downcast_ref::<io::Error>();
        cause.is_some_and(|cause| cause.kind() == io::ErrorKind::PermissionDenied)
    });
    if is_denied { error.context("root, or CAP_BPF and CAP_NET_ADMIN, is needed") } else { error }
}

/// Opens the lists in the order of their priority.
fn open_lists(args: &Args) -> anyhow::Result<Vec<List>> {
    let allow = args.allow.iter().map(|path| (path, ListAction::Pass));
    let block = args.block.iter().map(|path| (path, ListAction::Drop));
    let files: Vec<_> = allow.chain(block).collect();
    let mut seen = HashSet::new();
    for (path, _) in &files {
        ensure!(seen.insert(path), "{}: the file is given twice", path.display());
    }
    Ok(files.into_iter().map(|(path, action)| List::new(path, action)).collect())
}

/// Reads the files that have changed, and shows the changes to the program.
fn refresh(lists: &mut [List], blocker: &mut Blocker, attached: &[Attachment], accepts_all: bool) {
    let mut changed = expire(lists, blocker);
    // A shorter allow list may be a reason to hold the lists after it.
    let has_changed = lists.iter().any(List::has_changed);
    let all = accepts_all || has_changed && lists.iter().any(|l| l.allows() && l.is_pending());
    if all || has_changed {
        match Protected::of_this_host() {
            Ok(protected) => changed.extend(read(lists, blocker, protected, all, accepts_all)),
            Err(error) => log::error!("{error:#}; the lists stay as they were"),
        }
    }
    if changed.is_empty() {
        return;
    }
    match blocker.commit() {
        Ok(publication) => {
            if publication == Publication::Replaced {
                attached.iter().for_each(|attached| attached.replace(blocker.program()));
            }
            for number in changed {
                let list = &lists[number];
                log::info!("{}: {} prefixes", list.path().display(), list.len());
            }
        }
        Err(error) => {
            log::error!("{error}; the lists stay as they were, and the next change applies all");
        }
    }
}

/// Removes the prefixes that have expired, and returns the lists that have changed.
fn expire(lists: &mut [List], blocker: &mut Blocker) -> Vec<usize> {
    let now = Timestamp::now();
    let mut changed = Vec::new();
    for (number, list) in lists.iter_mut().enumerate() {
        let (v4, v6) = list.take_expired(now);
        for &prefix in &v4 {
            blocker.set_v4(number, prefix, false);
        }
        for &prefix in &v6 {
            blocker.set_v6(number, prefix, false);
        }
        if v4.len() + v6.len() > 0 {
            changed.push(number);
        }
    }
    changed
}

/// Reads the lists that have changed, or `all`, and returns those that are applied. An allow list without which a list
/// after it would cut this host off stays as it was.
fn read(
    lists: &mut [List],
    blocker: &mut Blocker,
    mut protected: Protected,
    all: bool,
    accepts_all: bool,
) -> Vec<usize> {
    let mut contents = Vec::new();
    for (number, list) in lists.iter_mut().enumerate() {
        // An allow list is read in any case: its addresses are no reason to hold the lists after it.
        if !all && !list.allows() && !list.has_changed() {
            continue;
        }
        let (before, is_pending) = (list.applied(), list.is_pending());
        match list.read(&mut protected, accepts_all) {
            Ok(Some(content)) => contents.push((number, content, before, is_pending)),
            Ok(None) => {}
            Err(error) => log::error!("{error:#}; the list stays as it was"),
        }
    }
    let is_new = |number| contents.iter().any(|&(of, ..)| of == number);
    let bits = |which: &dyn Fn(usize, &List) -> bool| {
        let numbered = lists.iter().enumerate().filter(|(number, list)| which(*number, list));
        numbered.fold(0, |bits, (number, _)| bits | 1_u32 << number)
    };
    let allowing = bits(&|_, list| list.allows());
    // New block lists have been compared with the allow lists when they were read.
    let blocking = bits(&|number, list| !list.allows() && !is_new(number));
    let danger =
        protected.uncovered(|lists| lists & allowing != 0 && lists & blocking != 0, blocker);
    let mut changed = Vec::new();
    for (number, (v4, v6), before, is_pending) in contents {
        match &danger {
            Some(address) if is_pending && lists[number].allows() => {
                let reason = format!("without its former prefixes, {address}, would be blocked");
                lists[number].hold(reason, before);
            }
            _ => {
                blocker.replace(number, &v4, &v6);
                changed.push(number);
            }
        }
    }
    changed
}

fn log_start(args: &Args, lists: &[List], attached: &[Attachment]) {
    let prefixes: usize = lists.iter().map(List::len).sum();
    let places: Vec<String> = attached.iter().map(Attachment::to_string).collect();
    let verb = if args.observe { "observing" } else { "blocking" };
    log::info!("{verb} by {prefixes} prefixes on {}; Ctrl-C stops", places.join(", "));
}
