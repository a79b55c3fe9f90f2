//! `fingerpost block INTERFACE... --block FILE`: drops the packets of listed sources in the driver, and forwards
//! nothing: for a host, or for a router of another make.
//!
//! ```text
//!   files, URLs, CrowdSec, routing tables, bans ─► BlockLists ─► Blocker ─► XDP program ─► each interface
//!      ▲ looked at ten times a second    ▲                         └─► counters ─► standard output
//!                          control socket ┘
//! ```
//!
//! The order of the lists, what of them is held, and their feeds are those of the crate `blocklist`.
//!
//! However the process ends, the kernel removes the program from the interfaces with its descriptors.

use std::io;
use std::net::SocketAddr;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use ::xdp::block::BlockError;
use ::xdp::block::filter::Filter;
use ::xdp::{Blocker, ListAction};
use anyhow::Context;
use api::{Item, Message};
use blocklist::feed::crowdsec;
use blocklist::feed::http::DEFAULT_INTERVAL as URL_INTERVAL;
use blocklist::{BlockLists, ListConfig, Source};
use config::{CONTROL, FlowspecSpeaker, is_host_name};
use control::handle::{ControlHandle, channel};
use control::server::{ReplyWriter, RequestError, Responder, Server, ServerSocket};
use feed::AnyPrefix;
use fetch::Url;
use output::progress;
use port::af_xdp::bpf::Program;
use sd_notify::NotifyState;

use crate::service::notify;
use crate::stop::{SIGINT, SIGTERM, flag_on_sighup, flag_on_signals};

mod attachment;
mod metrics;
mod report;

use attachment::{Attachment, ModeChoice};

/// The interval at which files and signals are looked at.
const TURN: Duration = Duration::from_millis(100);

/// The arguments of `block`.
#[derive(clap::Args)]
#[command(group = clap::ArgGroup::new("lists").multiple(true).required(true))]
pub(crate) struct Args {
    /// Interfaces whose received packets are examined
    #[arg(value_name = "INTERFACE", required = true)]
    interfaces: Vec<String>,
    /// List of prefixes whose packets are dropped: a file, a folder of files, or a URL; may be given several times
    ///
    /// A line is a prefix or an address, and may have more words or a comment. With the word
    /// expires=2026-12-01T00:00:00Z behind the prefix, it ends at that time. The file may be compressed.
    /// It is read again when it changes; write a new file and rename it. A URL is fetched each --poll.
    #[arg(long, value_name = "LIST", group = "lists")]
    block: Vec<String>,
    /// List of prefixes whose packets pass, whatever other lists contain them; may be given several times
    #[arg(long, value_name = "LIST")]
    allow: Vec<String>,
    /// List of prefixes whose packets to these destinations are dropped; may be given several times
    #[arg(long, value_name = "PREFIX[,PREFIX...]=LIST", group = "lists")]
    block_to: Vec<String>,
    /// List of prefixes whose packets to these destinations pass, whatever other lists contain them
    #[arg(long, value_name = "PREFIX[,PREFIX...]=LIST")]
    allow_to: Vec<String>,
    /// URL of a CrowdSec Local API, whose decisions to ban are a list
    #[arg(long, value_name = "URL", group = "lists", requires = "crowdsec_key")]
    crowdsec: Option<Url>,
    /// File with the key that `cscli bouncers add` has printed
    #[arg(long, value_name = "FILE", requires = "crowdsec")]
    crowdsec_key: Option<PathBuf>,
    /// Routing table of the kernel whose prefixes are a list, as BIRD or FRR fill it; may be given several times
    #[arg(long, value_name = "TABLE", group = "lists", value_parser = clap::value_parser!(u32).range(1..))]
    table: Vec<u32>,
    /// AS and address at which BGP sessions bring flow specifications, whose discarded sources are a list
    #[arg(long, value_name = "AS@ADDRESS:PORT", group = "lists")]
    flowspec: Option<FlowspecSpeaker>,
    /// Address or prefix of other hosts that may connect for --flowspec; may be given several times
    #[arg(long, value_name = "PREFIX", requires = "flowspec", value_parser = blocklist::parse_prefix)]
    flowspec_peer: Vec<AnyPrefix>,
    /// File of the prefixes that `fingerpost ban` and `unban` change
    #[arg(long, value_name = "FILE", group = "lists", requires = "control")]
    bans: Option<PathBuf>,
    /// Serve `fingerpost show`, `ban` and `unban` at this socket
    #[arg(long, value_name = "PATH", num_args = 0..=1, require_equals = true, default_missing_value = CONTROL)]
    control: Option<PathBuf>,
    /// Serve the metrics for Prometheus at this address, path /metrics
    #[arg(long, value_name = "ADDRESS:PORT")]
    metrics: Option<SocketAddr>,
    /// Host name by which clients may request the metrics, beside addresses and localhost; may be given several times
    #[arg(long, value_name = "NAME", requires = "metrics", value_parser = parse_host)]
    metrics_host: Vec<String>,
    /// Folder for what URLs, CrowdSec and routing tables have sent, which is in force until they send more
    #[arg(long, value_name = "FOLDER", default_value = "/var/cache/fingerpost")]
    cache: PathBuf,
    /// Seconds between two requests to URLs and CrowdSec [default: 3600 and 10]
    #[arg(long, value_name = "S", value_parser = clap::value_parser!(u32).range(1..))]
    poll: Option<u32>,
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

/// The lists, and their program on the interfaces.
struct Protection {
    lists: BlockLists,
    blocker: Blocker,
    /// The program, and the filter that it is.
    program: Program,
    filter: Arc<Filter>,
    attached: Vec<Attachment>,
    mode: ModeChoice,
}

/// Runs the subcommand.
pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let mut lists = BlockLists::open(configure(args)?, &args.cache)?;
    if args.check {
        lists.load(None)?;
        report::print_check(&lists, args.json)?;
        return Ok(if !lists.held().is_empty() { ExitCode::FAILURE } else { ExitCode::SUCCESS });
    }
    let interfaces = attachment::find(&args.interfaces)?;
    let stop = flag_on_signals(&[SIGINT, SIGTERM])?;
    let reload = flag_on_sighup()?;
    let mut blocker = lists.blocker(args.observe).map_err(name_rights)?;
    progress::during("reading the lists", || lists.load(Some(&mut blocker)))?;
    progress::during("building the table", || blocker.commit())?;
    let program = blocker.load().map_err(name_rights)?;
    let attached = attachment::attach_all(&interfaces, &program, args.mode)?;
    lists.start_feeds()?;
    let filter = Arc::clone(blocker.filter());
    let mut protection = Protection { lists, blocker, program, filter, attached, mode: args.mode };
    let (handle, requests) = channel().context("making the channel of requests")?;
    let server = args.control.as_ref().map(|path| {
        let at = || format!("listening at {}", path.display());
        let socket = ServerSocket::bind(path).with_context(at)?;
        Server::start(socket, Clients(handle.clone())).with_context(at)
    });
    let _server = server.transpose()?;
    let page = args.metrics.map(|listen| {
        let at = || format!("serving metrics at {listen}");
        metrics::serve(listen, &args.metrics_host, handle).with_context(at)
    });
    let _page = page.transpose()?;
    log_start(args, &protection);
    notify(NotifyState::Ready);
    let mut next =
        args.interval.map(|seconds| Instant::now() + Duration::from_secs(seconds.into()));
    while !stop.load(Ordering::Relaxed) {
        protection.turn(reload.swap(false, Ordering::Relaxed));
        if let (Some(at), Some(seconds)) = (next, args.interval)
            && Instant::now() >= at
        {
            protection.report(args.json)?;
            next = Some(at + Duration::from_secs(seconds.into()));
        }
        requests.serve_for(TURN, &mut protection, Protection::follow).context("waiting")?;
        notify(NotifyState::Watchdog);
    }
    notify(NotifyState::Stopping);
    protection.report(args.json)?;
    Ok(ExitCode::SUCCESS)
}

impl Protection {
    /// Applies what has changed; `accepts_all` applies lists however short they have become.
    fn turn(&mut self, accepts_all: bool) {
        self.lists.turn(&mut self.blocker, accepts_all);
        self.follow();
        for attached in &mut self.attached {
            attached.follow(&self.program, self.mode);
        }
    }

    /// Puts the program of another filter in place of the present one.
    fn follow(&mut self) {
        if Arc::ptr_eq(&self.filter, self.blocker.filter()) {
            return;
        }
        match self.blocker.load() {
            Ok(program) => {
                self.attached.iter().for_each(|attached| attached.replace(&program));
                self.program = program;
                self.filter = Arc::clone(self.blocker.filter());
            }
            Err(error) => log::error!("{error}; the former lists stay in force"),
        }
    }

    fn report(&self, as_json: bool) -> anyhow::Result<()> {
        report::print(&self.lists, &self.attached, &self.blocker, as_json)
    }
}

/// The clients of the control socket.
#[derive(Clone)]
struct Clients(ControlHandle<Protection>);

impl Responder for Clients {
    fn respond(
        &self,
        message: Message,
        _: &UnixStream,
        reply: &mut ReplyWriter<'_>,
    ) -> Result<(), RequestError> {
        let answer = self.0.call(move |protection| {
            let Protection { lists, blocker, .. } = protection;
            match message {
                Message::Show(request) => lists.show(blocker, &request),
                Message::Do(order) => {
                    let done = lists.execute(blocker, &order)?;
                    Some(done.map(|report| vec![Item::Done(report)]))
                }
            }
        });
        let failed = |reason: &str| RequestError::Failed(reason.to_owned());
        let items = answer
            .ok_or_else(|| failed("the process does not answer: it may be about to end"))?
            .ok_or_else(|| failed("not available on `fingerpost block`: this needs a router"))?
            .map_err(RequestError::Failed)?;
        Ok(items.into_iter().try_for_each(|item| reply.item(item))?)
    }
}

/// Adds the rights that a program needs, if their lack is the reason.
fn name_rights(error: BlockError) -> anyhow::Error {
    let error = anyhow::Error::from(error);
    let is_denied = error.chain().any(|cause| {
        let cause = cause.downcast_ref::<io::Error>();
        cause.is_some_and(|cause| cause.kind() == io::ErrorKind::PermissionDenied)
    });
    if is_denied {
        error.context("root, or CAP_BPF, CAP_NET_ADMIN and CAP_PERFMON, is needed")
    } else {
        error
    }
}

/// Reads a host name.
fn parse_host(text: &str) -> Result<String, String> {
    match is_host_name(text) {
        true => Ok(text.to_owned()),
        false => Err("a host name is needed, without a port".to_owned()),
    }
}

/// Returns the lists of the command line.
fn configure(args: &Args) -> anyhow::Result<Vec<ListConfig>> {
    let interval = |default| args.poll.map_or(default, |s| Duration::from_secs(s.into()));
    let mut lists = Vec::new();
    let parse = |text: &str| {
        let source = Source::parse(text, Path::new(""), interval(URL_INTERVAL));
        source.with_context(|| format!("the list {text}"))
    };
    let (allow, block) = (ListAction::Pass, ListAction::Drop);
    for (texts, pairs, action) in
        [(&args.allow, &args.allow_to, allow), (&args.block, &args.block_to, block)]
    {
        for text in texts {
            lists.push(ListConfig::new(action, parse(text)?));
        }
        for pair in pairs {
            let form = || format!("{pair}: prefixes and a list are needed, as 192.0.2.0/24=FILE");
            let (prefixes, list) = pair.split_once('=').with_context(form)?;
            let to = prefixes.split(',').map(blocklist::parse_prefix).collect::<Result<_, _>>();
            let to = to.map_err(anyhow::Error::msg)?;
            lists.push(ListConfig { action, source: parse(list)?, to });
        }
    }
    let mut drop = |source| lists.push(ListConfig::new(ListAction::Drop, source));
    if let (Some(url), Some(file)) = (&args.crowdsec, &args.crowdsec_key) {
        let interval = interval(crowdsec::DEFAULT_INTERVAL);
        drop(Source::Crowdsec { url: url.clone(), key_file: file.clone(), interval });
    }
    if let Some(speaker) = args.flowspec {
        drop(Source::Flowspec(speaker.options(args.flowspec_peer.clone())));
    }
    args.table.iter().for_each(|&table| drop(Source::Table(table)));
    args.bans.iter().for_each(|file| drop(Source::Bans(file.clone())));
    Ok(lists)
}

fn log_start(args: &Args, protection: &Protection) {
    let prefixes = protection.lists.prefixes();
    let places: Vec<String> = protection.attached.iter().map(Attachment::to_string).collect();
    let verb = if args.observe { "observing" } else { "blocking" };
    log::info!("{verb} by {prefixes} prefixes on {}; Ctrl-C stops", places.join(", "));
}
