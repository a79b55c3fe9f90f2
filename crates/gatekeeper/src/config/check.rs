//! The check of a gate's file: resolves names, reads values and collects every problem.
//!
//! The check continues after a problem with everything that can still be checked. A value that cannot
//! be read is replaced by one that causes no further problem; it is never used, because a file with a
//! problem gives no [`Config`].

mod rules;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::Path;
use std::str::FromStr;
use std::sync::Arc;

use feed::netlink::AnyPrefix;
use gate::cookie::MAX_ANSWERS;
use gate::decision::v2::keys::Keys;
use gate::gate::MAX_PREFIX_DECISIONS;
use gate::grantor::ListPrefix;
use gate::index::MAX_ENTRIES;
use gate::program::{Program, Programs};
use port::af_xdp::ModeChoice;
use toml::Spanned;

use super::{Admission, Config, Fixed, IN_BUNDLE, Member, Rules, Side, SteeredBy, Trust, text};
use crate::sender_limits::SenderLimits;
use bundle::{Bundle, DistributionConfig, FileSource};
use config::{CONTROL, ConfigError, Level, Metrics, Problem, place, read_secret, shape, stall};
use datapath::{PuntRates, ReversePathFilter};

/// The defaults of settings.
const ENTRIES: usize = 1 << 20;
const XDP_DECLINED_FLOWS: u32 = 1 << 16;
const XDP_BLOCKED_PREFIXES: u32 = 1 << 20;
const REQUESTS: usize = 512;
const GRANTED: usize = 4096;
const ICMP_RATE: u32 = 100;
/// The share of the table up to which every flow gets an entry. A flood leaves the other half, as much
/// as an ordinary day needs, to flows that passed the admission.
const THRESHOLD: f64 = 0.5;
/// The default of `first_packet_entries`: its ratio to the table's entries, and its minimum.
const FIRST_PACKETS_PER_ENTRY: usize = 4;
const MIN_FIRST_PACKETS: usize = 1 << 18;
/// The maximum of `first_packet_entries`.
const MAX_FIRST_PACKETS: usize = 1 << 30;
/// SYN cookies a second, by default: about 50 Mbit/s.
const SYN_COOKIE_RATE: u32 = 100_000;
/// The maximum size of an XDP map, whose memory cannot be swapped.
const MAX_XDP_ENTRIES: u32 = 1 << 22;
/// The maximum length of a queue, whose slots are a frame of memory each.
const MAX_QUEUE: usize = 1 << 17;

struct Checker<'t> {
    text: &'t str,
    problems: Vec<Problem>,
}

impl Checker<'_> {
    /// Returns an error if there is a problem.
    fn finish(&mut self, path: &Path) -> Result<(), ConfigError> {
        if self.problems.is_empty() {
            return Ok(());
        }
        let mut problems = std::mem::take(&mut self.problems);
        problems.sort_by_key(|problem| problem.line);
        Err(ConfigError::Sense { path: path.into(), problems })
    }

    fn line<T>(&self, at: &Spanned<T>) -> usize {
        place(self.text, at.span().start).0
    }

    fn problem<T>(&mut self, at: &Spanned<T>, key: &'static str, what: impl Into<String>) {
        let line = self.line(at);
        self.problems.push(Problem { line, key, what: what.into() });
    }

    /// Parses a value such as an address; `form` describes what it should be.
    fn read<T: FromStr>(
        &mut self,
        at: &Spanned<String>,
        key: &'static str,
        form: &str,
    ) -> Option<T> {
        let read = at.get_ref().parse().ok();
        if read.is_none() {
            self.problem(at, key, format!("{:?} is not {form}", at.get_ref()));
        }
        read
    }

    /// Reads a rate in bits a second.
    fn rate(&mut self, at: &Spanned<String>, key: &'static str) -> u64 {
        let text = at.get_ref();
        bandwidth(text).unwrap_or_else(|| {
            let what = format!(
                "{text:?} is not a rate: write for example 100mbit or 2.5gbit, at most 800gbit"
            );
            self.problem(at, key, what);
            1
        })
    }

    /// Reads a number from 1 to `most`.
    fn count(
        &mut self,
        at: Option<Spanned<usize>>,
        key: &'static str,
        default: usize,
        most: usize,
    ) -> usize {
        let Some(at) = at else { return default };
        if !(1..=most).contains(at.get_ref()) {
            self.problem(&at, key, format!("{} is out of range: from 1 to {most}", at.get_ref()));
            return default;
        }
        at.into_inner()
    }
}

pub(super) fn check(
    file: text::File,
    text: &str,
    path: &Path,
    bundle: Option<&Arc<Bundle>>,
) -> Result<Config, ConfigError> {
    let mut c = Checker { text, problems: Vec::new() };
    let folder = path.parent().unwrap_or(Path::new(""));
    let mut front =
        side(&mut c, &file.front.interface, file.front.mode.as_ref(), "front.interface");
    let mut back = side(&mut c, &file.back.interface, file.back.mode.as_ref(), "back.interface");
    front.sources = sources(&mut c, file.front.rpf.as_ref(), "front.rpf");
    back.sources = sources(&mut c, file.back.rpf.as_ref(), "back.rpf");
    if front.name == back.name {
        let what = format!("{:?} is the front interface already: name another one", back.name);
        c.problem(&file.back.interface, "back.interface", what);
    }
    let address4 = file.back.address4.as_ref();
    let address4 =
        address4.and_then(|at| c.read::<Ipv4Addr>(at, "back.address4", "an IPv4 address"));
    let address6 = file.back.address6.as_ref();
    let address6 =
        address6.and_then(|at| c.read::<Ipv6Addr>(at, "back.address6", "an IPv6 address"));
    if let Some(mtu) = file.back.mtu.as_ref().filter(|mtu| *mtu.get_ref() < 576) {
        c.problem(
            mtu,
            "back.mtu",
            format!("{} is too small: at least 576 bytes (RFC 791)", mtu.get_ref()),
        );
    }
    let bits = c.rate(&file.link.bandwidth, "link.bandwidth");
    let entries = c.count(file.flow_table.entries, "flow_table.entries", ENTRIES, MAX_ENTRIES);
    let authentication = authentication(&mut c, file.tunnel.authentication.as_ref());
    let mut fixed = Fixed {
        front,
        back,
        steering: match file.front.steering.as_ref().map(|by| (by, by.get_ref().as_str())) {
            None | Some((_, "software")) => SteeredBy::Software,
            Some((_, "card")) => SteeredBy::Card,
            Some((at, other)) => {
                let what = format!("{other:?} is unknown: software or card");
                c.problem(at, "front.steering", what);
                SteeredBy::Software
            }
        },
        fail_open: file.front.fail_open,
        address4: address4.map(u32::from),
        address6: address6.map(u128::from),
        mtu: file.back.mtu.map_or(u16::MAX, Spanned::into_inner),
        bits,
        requests: c.count(file.link.request_queue, "link.request_queue", REQUESTS, MAX_QUEUE),
        granted: c.count(file.link.granted_queue, "link.granted_queue", GRANTED, MAX_QUEUE),
        entries,
        admission: admission(&mut c, file.admission, entries),
        keep: file.flow_table.state_file.map(|path| {
            if !path.get_ref().is_absolute() {
                let what = format!("{:?} must be an absolute path", path.get_ref());
                c.problem(&path, "flow_table.state_file", what);
            }
            path.into_inner()
        }),
        xdp_declined_flows: xdp_entries(
            &mut c,
            file.flow_table.xdp_declined_flows,
            "flow_table.xdp_declined_flows",
            XDP_DECLINED_FLOWS,
        ),
        xdp_blocked_prefixes: xdp_entries(
            &mut c,
            file.flow_table.xdp_blocked_prefixes,
            "flow_table.xdp_blocked_prefixes",
            XDP_BLOCKED_PREFIXES,
        ),
        clamp_mss: file.tunnel.clamp_mss,
        udp: file.tunnel.udp_port.map(|port| {
            if *port.get_ref() == 0 {
                c.problem(
                    &port,
                    "tunnel.udp_port",
                    "0 is not a port: the standard port of GUE is 6080",
                );
            }
            port.into_inner()
        }),
        sealed: false,
        icmp_rate: file.tunnel.icmp_rate.unwrap_or(ICMP_RATE),
        stall: stall(file.workers.stall_timeout),
        cores: cores(&mut c, file.workers.cores),
        control: {
            let socket = file.control.socket.unwrap_or_else(|| CONTROL.into());
            (!socket.as_os_str().is_empty()).then_some(socket)
        },
        punts: file.punt.rates(PuntRates::GATE),
        metrics: Metrics::check(file.metrics, &mut |at, key, what| {
            c.problems.push(Problem { line: place(text, at).0, key, what });
        }),
        log: Level::check(file.log, &mut |at, key, what| {
            c.problems.push(Problem { line: place(text, at).0, key, what });
        }),
        distribution: file.distribution.map(|table| {
            DistributionConfig::check(table, folder, &mut |at, key, what| {
                let line = place(text, at).0;
                c.problems.push(Problem { line, key, what });
            })
        }),
    };
    let ids: Vec<u32> = file.sender.iter().map(|sender| *sender.id.get_ref()).collect();
    let extra_sources = addresses(&mut c, &file.decisions.sources, "decisions.sources");
    let v1_sources = addresses(&mut c, &file.decisions.v1_sources, "decisions.v1_sources");
    let (senders, limits) = senders(&mut c, file.sender, path);
    let workers = fixed.cores.len();
    let (rules, programs) = match bundle {
        None => {
            let ruled = text::Ruled {
                grantors: file.grantors,
                policy: file.policy,
                allow: file.allow,
                block: file.block,
                program: file.program,
                rules: file.rules,
            };
            let checked = check_rules(&mut c, ruled, &ids, workers, FileSource::Disk(folder));
            c.finish(path)?;
            checked
        }
        Some(bundle) => {
            c.finish(path)?;
            rules_of_bundle(bundle, |_| ids, workers)?
        }
    };
    let tunnels = match authentication {
        Some((_, false)) => Vec::new(),
        stated => {
            let members = || rules.sets.iter().flat_map(|set| &set.members);
            let named = |member: &Member| Some((member.grantor.address, member.sender?));
            if let Some((line, _)) = stated
                && let Some(unnamed) = members().find(|member| member.sender.is_none())
            {
                let what = format!(
                    "grantor {} has no `sender`, whose key would seal its tunnel: name the sender, or set \
                     authentication = \"off\"",
                    unnamed.grantor.address
                );
                let problems = vec![Problem { line, key: "tunnel.authentication", what }];
                return Err(ConfigError::Sense { path: path.into(), problems });
            }
            members().filter_map(named).collect()
        }
    };
    // The members in a bundle name senders of the file. A tunnel's overhead has to be the same before
    // and after a bundle.
    let by_bundle = fixed.distribution.is_some() && !senders.is_empty();
    fixed.sealed = match authentication {
        Some((_, on)) => on,
        None => by_bundle || !tunnels.is_empty(),
    };
    let mut from: Vec<IpAddr> = rules.grantors().map(IpAddr::from).collect();
    from.extend(extra_sources);
    Ok(Config {
        path: path.into(),
        fixed,
        rules,
        trust: Trust {
            senders,
            limits,
            from,
            v1_sources,
            tunnels,
            programs: file.decisions.accept_programs,
        },
        programs,
        bundle: bundle.cloned(),
    })
}

/// Checks the parts that a bundle may replace, from the file or from a bundle.
fn check_rules(
    c: &mut Checker<'_>,
    ruled: text::Ruled,
    senders: &[u32],
    workers: usize,
    folder: FileSource<'_>,
) -> (Rules, Programs) {
    let candidate = ruled.rules.candidate;
    let candidate = candidate.and_then(|file| rules::candidate(c, &file, senders, workers, folder));
    let sets = rules::sets(c, ruled.grantors, senders);
    let allow = rules::sources(c, &ruled.allow, ["allow.prefixes", "allow.file"], folder);
    let block = rules::sources(c, &ruled.block, ["block.prefixes", "block.file"], folder);
    let rules = Rules {
        version: ruled.rules.version,
        rules: rules::rules(c, ruled.policy, &sets),
        sources: rules::source_table(c, &allow, &block),
        allow,
        block,
        workers,
        candidate,
        sets,
    };
    if rules.rules.is_empty() && c.problems.is_empty() {
        let what = "no [[policy]]: all packets would be dropped; add one".into();
        c.problems.push(Problem { line: 1, key: "policy", what });
    }
    if c.problems.is_empty() {
        rules::tunnel_ends(c, &rules);
    }
    if c.problems.is_empty()
        && let Err(bad) = rules.policy(1)
    {
        let line = rules.rules.first().map_or(1, |rule| rule.line);
        c.problems.push(Problem { line, key: "policy", what: bad.to_string() });
    }
    let programs = programs(c, ruled.program, folder);
    (rules, programs)
}

/// Checks a bundle; `senders` returns the senders that exist, for the contents of the bundle.
fn rules_of_bundle(
    bundle: &Bundle,
    senders: impl FnOnce(&text::Ruled) -> Vec<u32>,
    workers: usize,
) -> Result<(Rules, Programs), ConfigError> {
    let (text, path) = bundle::role_file(bundle, IN_BUNDLE)?;
    let ruled = shape(text, &path)?;
    let senders = senders(&ruled);
    let mut c = Checker { text, problems: Vec::new() };
    let (mut rules, programs) =
        check_rules(&mut c, ruled, &senders, workers, FileSource::Bundle(bundle));
    c.finish(&path)?;
    let version = || format!("bundle {}", bundle.header().version);
    rules.version = rules.version.or_else(|| Some(version()));
    Ok((rules, programs))
}

/// Checks a bundle's file for gates without a gate: all senders that it names are assumed to exist.
pub fn check_bundle(bundle: &Bundle) -> Result<(), ConfigError> {
    let named = |ruled: &text::Ruled| {
        let members = ruled.grantors.iter().flat_map(|set| set.members.get_ref());
        members.filter_map(|member| Some(*member.sender.as_ref()?.get_ref())).collect()
    };
    rules_of_bundle(bundle, named, 1).map(|_| ())
}

fn side(
    c: &mut Checker<'_>,
    name: &Spanned<String>,
    mode: Option<&Spanned<String>>,
    key: &'static str,
) -> Side {
    // IFNAMSIZ is 16 with the terminating zero.
    if name.get_ref().is_empty() || name.get_ref().len() > 15 {
        let what = format!("{:?} is not an interface name: from 1 to 15 bytes", name.get_ref());
        c.problem(name, key, what);
    }
    let choice = match mode.map(|mode| mode.get_ref().as_str()) {
        None | Some("auto") => ModeChoice::Auto,
        Some("zero-copy") => ModeChoice::ZeroCopy,
        Some("copy") => ModeChoice::Copy,
        Some("generic") => ModeChoice::Generic,
        Some(other) => {
            if let Some(mode) = mode {
                let what = format!("{other:?} is unknown: auto, zero-copy, copy or generic");
                c.problem(mode, key, what);
            }
            ModeChoice::Auto
        }
    };
    Side { name: name.get_ref().clone(), mode: choice, sources: ReversePathFilter::Off }
}

/// Reads whether tunnels are sealed, with its line, if that is stated.
fn authentication(c: &mut Checker<'_>, value: Option<&Spanned<String>>) -> Option<(usize, bool)> {
    let value = value?;
    let on = match value.get_ref().as_str() {
        "on" => true,
        "off" => false,
        other => {
            let what = format!("{other:?} is unknown: on or off");
            c.problem(value, "tunnel.authentication", what);
            false
        }
    };
    Some((c.line(value), on))
}

/// Reads the reverse path filter of an interface.
fn sources(
    c: &mut Checker<'_>,
    check: Option<&Spanned<String>>,
    key: &'static str,
) -> ReversePathFilter {
    match check.map(|check| (check, check.get_ref().as_str())) {
        None | Some((_, "off")) => ReversePathFilter::Off,
        Some((_, "loose")) => ReversePathFilter::Loose,
        Some((_, "strict")) => ReversePathFilter::Strict,
        Some((at, other)) => {
            c.problem(at, key, format!("{other:?} is unknown: off, loose or strict"));
            ReversePathFilter::Off
        }
    }
}

/// Reads a rate in bits a second, with the units of tc(8).
pub(super) fn bandwidth(text: &str) -> Option<u64> {
    let text = text.trim().to_ascii_lowercase();
    let units = [("gbit", 1e9), ("mbit", 1e6), ("kbit", 1e3), ("bit", 1.0)];
    let (number, unit) =
        units.iter().find_map(|(name, unit)| Some((text.strip_suffix(name)?, unit)))?;
    let bits = number.trim().parse::<f64>().ok()? * unit;
    (1.0..=800e9).contains(&bits).then_some(bits as u64)
}

fn admission(c: &mut Checker<'_>, stated: text::Admission, entries: usize) -> Option<Admission> {
    let text::Admission {
        threshold,
        first_packet_entries,
        enabled,
        address_validation,
        syn_cookie_rate,
    } = stated;
    let enabled = enabled.unwrap_or(true);
    let default = (FIRST_PACKETS_PER_ENTRY * entries).max(MIN_FIRST_PACKETS);
    let key = "admission.first_packet_entries";
    let first_packet_entries = c.count(first_packet_entries, key, default, MAX_FIRST_PACKETS);
    if let Some(share) = threshold.as_ref().filter(|share| !(0.0..=1.0).contains(share.get_ref())) {
        let what = format!("{} is out of range: a share from 0 to 1", share.get_ref());
        c.problem(share, "admission.threshold", what);
    }
    let rate = syn_cookie_rate.as_ref().map_or(SYN_COOKIE_RATE, |rate| *rate.get_ref());
    if let Some(stated) = syn_cookie_rate.filter(|n| !(1..=MAX_ANSWERS).contains(n.get_ref())) {
        let what = format!("{rate} is out of range: from 1 to {MAX_ANSWERS}");
        c.problem(&stated, "admission.syn_cookie_rate", what);
    }
    let method = address_validation.as_ref().map(|method| (method, method.get_ref().as_str()));
    let syn_cookie_rate = match method {
        None | Some((_, "second-packet")) => None,
        Some((method, "syn-cookie")) => {
            if !enabled {
                let what = "has no effect with `enabled = false`: remove one of the two";
                c.problem(method, "admission.address_validation", what);
            }
            Some(rate)
        }
        Some((method, other)) => {
            let what = format!("{other:?} is unknown: second-packet or syn-cookie");
            c.problem(method, "admission.address_validation", what);
            None
        }
    };
    let threshold = threshold.map_or(THRESHOLD, Spanned::into_inner);
    enabled.then_some(Admission { threshold, first_packet_entries, syn_cookie_rate })
}

/// Reads the size of an XDP map.
fn xdp_entries(
    c: &mut Checker<'_>,
    value: Option<Spanned<u32>>,
    key: &'static str,
    default: u32,
) -> u32 {
    let Some(value) = value else { return default };
    if *value.get_ref() > MAX_XDP_ENTRIES {
        let what = format!("{} is out of range: at most {MAX_XDP_ENTRIES}", value.get_ref());
        c.problem(&value, key, what);
    }
    value.into_inner()
}

fn cores(c: &mut Checker<'_>, cores: Option<Spanned<Vec<usize>>>) -> Vec<Option<usize>> {
    let Some(listed) = cores else { return vec![None] };
    let mut seen = listed.get_ref().clone();
    seen.sort_unstable();
    seen.dedup();
    if seen.is_empty() || seen.len() < listed.get_ref().len() {
        let what = "an empty list or a duplicate core: name each core once";
        c.problem(&listed, "workers.cores", what);
        return vec![None];
    }
    listed.into_inner().into_iter().map(Some).collect()
}

fn addresses(c: &mut Checker<'_>, listed: &[Spanned<String>], key: &'static str) -> Vec<IpAddr> {
    listed.iter().filter_map(|at| c.read(at, key, "an IP address")).collect()
}

/// The senders' keys and their limits, by number.
type Senders = (Vec<(u32, Keys)>, Vec<(u32, SenderLimits)>);

fn senders(c: &mut Checker<'_>, listed: Vec<text::Sender>, path: &Path) -> Senders {
    let mut senders: Vec<(u32, Keys)> = Vec::new();
    let mut all_limits = Vec::new();
    for text::Sender { id, keys, prefixes, max_expiry, max_prefix_decisions } in listed {
        let number = *id.get_ref();
        if number == 0 {
            c.problem(&id, "sender.id", "0 is reserved: choose another number");
        } else if senders.iter().any(|(other, _)| *other == number) {
            c.problem(&id, "sender.id", format!("{number} is a duplicate"));
        }
        if keys.get_ref().is_empty() {
            c.problem(&keys, "sender.keys", "no key: no message of the sender could be verified");
        }
        let mut read = Keys::default();
        for (name, file) in keys.get_ref() {
            let Ok(name) = name.parse::<u16>() else {
                c.problem(
                    file,
                    "sender.keys",
                    format!("{name:?} is not a key number: from 0 to 65535"),
                );
                continue;
            };
            let file_path = path.parent().unwrap_or(Path::new("")).join(file.get_ref());
            match read_secret(&file_path) {
                Ok(secret) => read.add(name, &secret),
                Err(what) => c.problem(file, "sender.keys", what),
            }
        }
        senders.push((number, read));
        all_limits.push((number, limits(c, &prefixes, max_expiry, max_prefix_decisions)));
    }
    (senders, all_limits)
}

/// Reads the limits of a sender.
fn limits(
    c: &mut Checker<'_>,
    prefixes: &[Spanned<String>],
    max_expiry: Option<Spanned<u32>>,
    max_prefix_decisions: Option<Spanned<usize>>,
) -> SenderLimits {
    let mut limits = SenderLimits::default();
    for prefix in prefixes {
        match ListPrefix::parse(prefix.get_ref()) {
            Ok(ListPrefix::V4(read)) => limits.prefixes.push(AnyPrefix::V4(read)),
            Ok(ListPrefix::V6(read)) => limits.prefixes.push(AnyPrefix::V6(read)),
            Err(what) => c.problem(prefix, "sender.prefixes", what),
        }
    }
    if let Some(most) = max_expiry {
        if *most.get_ref() == 0 {
            c.problem(&most, "sender.max_expiry", "0 seconds: no decision would have an effect");
        }
        limits.max_expiry = most.into_inner();
    }
    if let Some(most) = max_prefix_decisions {
        if *most.get_ref() > MAX_PREFIX_DECISIONS {
            let what = format!(
                "{} is out of range: at most {MAX_PREFIX_DECISIONS}, the maximum of all senders together",
                most.get_ref()
            );
            c.problem(&most, "sender.max_prefix_decisions", what);
        }
        limits.max_prefix_decisions = most.into_inner();
    }
    limits
}

/// Loads the flow programs, which have to pass the verifier.
fn programs(c: &mut Checker<'_>, listed: Vec<text::Program>, folder: FileSource<'_>) -> Programs {
    let mut programs = Programs::default();
    for text::Program { number, file } in listed {
        if programs.get(*number.get_ref()).is_some() {
            c.problem(&number, "program.number", format!("{} is a duplicate", number.get_ref()));
        }
        let shown = folder.display_path(file.get_ref());
        match folder.read(file.get_ref()).map(|bytes| Program::load(&bytes)) {
            Ok(Ok(program)) => programs.set(*number.get_ref(), Some(Arc::new(program))),
            Ok(Err(error)) => c.problem(&file, "program.file", format!("{shown}: {error}")),
            Err(error) => c.problem(&file, "program.file", format!("{shown}: {error}")),
        }
    }
    programs
}
