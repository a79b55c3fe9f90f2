//! The check of a gate's file: resolves names, reads values and collects every problem.
//!
//! The check continues after a problem with everything that can still be checked. A value that cannot
//! be read is replaced by one that causes no further problem; it is never used, because a file with a
//! problem gives no [`Config`].

mod rules;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::Path;
use std::sync::Arc;

use feed::netlink::AnyPrefix;
use gate::cookie::MAX_ANSWERS;
use gate::decision::v2::keys::Keys;
use gate::gate::MAX_PREFIX_DECISIONS;
use gate::grantor::ListPrefix;
use gate::index::MAX_ENTRIES;
use gate::program::{Program, Programs};
use toml::Spanned;

use super::{Admission, Config, Fixed, IN_BUNDLE, Member, Rules, Side, SteeredBy, Trust, text};
use crate::sender_limits::SenderLimits;
use bundle::{Bundle, DistributionConfig, FileSource};
use config::{BlockConfig, Checker, ConfigError, DaemonSections, Problem, shape};
use datapath::PuntRates;

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
/// The ways in which packets reach the worker of their flow, by name.
const STEERINGS: [(&str, SteeredBy); 2] =
    [("software", SteeredBy::Software), ("card", SteeredBy::Card)];
/// The values of `tunnel.authentication`.
const ON_OFF: [(&str, bool); 2] = [("on", true), ("off", false)];
/// The maximum length of a queue, whose slots are a frame of memory each.
const MAX_QUEUE: usize = 1 << 17;

pub(super) fn check(
    file: text::File,
    text: &str,
    path: &Path,
    bundle: Option<&Arc<Bundle>>,
) -> Result<Config, ConfigError> {
    let mut c = Checker::new(text);
    let folder = path.parent().unwrap_or(Path::new(""));
    let text::Front { interface, mode, rpf, .. } = &file.front;
    let front = side(
        &mut c,
        (interface, "front.interface"),
        (mode.as_ref(), "front.mode"),
        (rpf.as_ref(), "front.rpf"),
    );
    let text::Back { interface, mode, rpf, .. } = &file.back;
    let back = side(
        &mut c,
        (interface, "back.interface"),
        (mode.as_ref(), "back.mode"),
        (rpf.as_ref(), "back.rpf"),
    );
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
    let bits = c.bandwidth(&file.link.bandwidth, "link.bandwidth");
    let entries =
        c.number(file.flow_table.entries, "flow_table.entries", ENTRIES, (1, MAX_ENTRIES));
    let authentication = authentication(&mut c, file.tunnel.authentication.as_ref());
    let sections = DaemonSections {
        workers: file.workers,
        control: file.control,
        metrics: file.metrics,
        log: file.log,
        punt: file.punt,
    };
    let mut section = file.block;
    let blocked = section.as_mut().map(|section| section.get_mut().take_policy());
    let (prefixes, list_file) = blocked.unwrap_or_default();
    let blocked = text::Sources { prefixes, file: list_file };
    let lists = section.filter(|section| !section.get_ref().is_empty());
    let mut fixed = Fixed {
        front,
        back,
        steering: c
            .choice(file.front.steering.as_ref(), "front.steering", &STEERINGS)
            .unwrap_or(SteeredBy::Software),
        rss: c.rss(file.front.rss.as_ref(), "front.rss"),
        fail_open: file.front.fail_open,
        address4: address4.map(u32::from),
        address6: address6.map(u128::from),
        mtu: file.back.mtu.map_or(u16::MAX, Spanned::into_inner),
        bits,
        requests: c.number(file.link.request_queue, "link.request_queue", REQUESTS, (1, MAX_QUEUE)),
        granted: c.number(file.link.granted_queue, "link.granted_queue", GRANTED, (1, MAX_QUEUE)),
        entries,
        admission: admission(&mut c, file.admission, entries),
        keep: file.flow_table.state_file.map(|path| {
            c.absolute_path(&path, "flow_table.state_file");
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
        has_block_lists: lists.is_some(),
        clamp_mss: file.tunnel.clamp_mss,
        udp: c.tunnel_port(file.tunnel.udp_port),
        sealed: false,
        icmp_rate: file.tunnel.icmp_rate.unwrap_or(ICMP_RATE),
        daemon: sections.check(&mut c, PuntRates::GATE),
        distribution: file
            .distribution
            .map(|section| DistributionConfig::check(section, folder, &mut c)),
    };
    let ids: Vec<u32> = file.sender.iter().map(|sender| *sender.id.get_ref()).collect();
    let extra_sources = c.addresses(&file.decisions.sources, "decisions.sources");
    let v1_sources = c.addresses(&file.decisions.v1_sources, "decisions.v1_sources");
    let (senders, limits) = senders(&mut c, file.sender, folder);
    let workers = fixed.daemon.cores.len();
    let front = &fixed.front.name;
    let mut block = lists.map(|section| BlockConfig::check_gate(&mut c, section, path, front));
    let (rules, programs) = match bundle {
        None => {
            let ruled = text::Ruled {
                grantors: file.grantors,
                policy: file.policy,
                allow: file.allow,
                block: blocked,
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
    if let Some(block) = &mut block {
        block.allowed = Some(Arc::clone(&rules.allow));
    }
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
                return Err(ConfigError::Invalid { path: path.into(), problems });
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
        block,
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
    if rules.rules.is_empty() && c.is_valid() {
        let what = "no [[policy]]: all packets would be dropped; add one";
        c.problem_at_line(1, "policy", what);
    }
    if c.is_valid() {
        rules::tunnel_ends(c, &rules);
    }
    if c.is_valid()
        && let Err(bad) = rules.policy(1)
    {
        let line = rules.rules.first().map_or(1, |rule| rule.line);
        c.problem_at_line(line, "policy", bad.to_string());
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
    let mut c = Checker::new(text);
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

/// Reads the keys of an interface; each value comes with its key.
fn side(
    c: &mut Checker<'_>,
    (name, name_key): (&Spanned<String>, &'static str),
    (mode, mode_key): (Option<&Spanned<String>>, &'static str),
    (rpf, rpf_key): (Option<&Spanned<String>>, &'static str),
) -> Side {
    c.interface_name(name, name_key);
    Side {
        name: name.get_ref().clone(),
        mode: c.mode(mode, mode_key),
        sources: c.reverse_path_filter(rpf, rpf_key),
    }
}

/// Reads whether tunnels are sealed, with its line, if that is stated.
fn authentication(c: &mut Checker<'_>, value: Option<&Spanned<String>>) -> Option<(usize, bool)> {
    let value = value?;
    let on = c.choice(Some(value), "tunnel.authentication", &ON_OFF).unwrap_or(false);
    Some((c.line(value), on))
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
    let first_packet_entries = c.number(first_packet_entries, key, default, (1, MAX_FIRST_PACKETS));
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

/// The senders' keys and their limits, by number.
type Senders = (Vec<(u32, Keys)>, Vec<(u32, SenderLimits)>);

fn senders(c: &mut Checker<'_>, listed: Vec<text::Sender>, folder: &Path) -> Senders {
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
        for (name, secret) in c.secrets(keys.get_ref(), folder, "sender.keys") {
            read.add(name, &secret);
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
