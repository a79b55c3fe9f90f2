//! The sections `[[egress_queue]]`: queues of interfaces whose link is slower than what comes.
//!
//! ```toml
//! [[egress_queue]]
//! interface = "eth0"          # one of [[interface]], or a device over some
//! bandwidth = "100mbit"       # of the link, with the units of tc(8); default: as fast as the port takes
//! weight = 1                  # of a full link, beside those of the devices over it: 1 to 1000
//! overhead = 24               # bytes on the link for each frame, such as 24 for the preamble, the FCS and
//!                             # the gap of Ethernet; default: 0, as tc(8) counts
//! limit = 1000                # packets that may wait, of each worker
//! target = "5ms"              # CoDel: the acceptable standing delay (RFC 8289)
//! interval = "100ms"          # CoDel: the time that senders need to react
//! control_share = 10          # percent for routing protocols (DSCP CS6, CS7), before all others
//! requests_to = ["203.0.113.0/24"]   # networks behind gates, whose requests are a class of their own
//! request_share = 5           # percent for those requests
//!
//! [[egress_queue]]
//! interface = "eth0.100"      # a VLAN device or a bond, which may not exist yet
//! over = ["eth0"]             # the [[interface]]s that its frames leave by
//! bandwidth = "30mbit"        # within that of eth0
//!
//! [[egress_queue]]
//! interface = "bond0.100"
//! over = ["eth1", "eth2"]
//! within = "bond0"            # the device over the same interfaces whose bandwidth it shares
//! ```

use std::sync::Arc;

use acl::Addresses;
use qos::{CodelParameters, EgressQueueParameters};
use serde::Deserialize;
use toml::Spanned;

use super::checker::Checker;
use super::{Interface, TimeSpan};

/// The longest queue: its places are frames of memory.
const MOST_PLACES: u32 = 65_536;
/// The most queues.
const MOST_QUEUES: usize = 1024;
/// The longest frame, which a slow link takes time for.
const LONGEST_FRAME: u64 = 1514;

/// The queue of an interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EgressQueueConfig {
    /// The interface.
    pub interface: String,
    /// The interfaces that its frames leave by, if it is a device over them; none: it is one itself.
    pub over: Vec<String>,
    /// The device with a queue whose bandwidth limits this one's packets, too: the bond, of a VLAN device over one.
    pub within: Option<String>,
    /// The bits a second of its link; `None`: as fast as the port takes packets.
    pub bandwidth: Option<u64>,
    /// Its part of a full link, in proportion to the weights of the other queues of the link.
    pub weight: u32,
    /// The bytes on the link for each frame, in addition to its own.
    pub overhead: u32,
    /// The parameters of the queue of each worker.
    pub parameters: EgressQueueParameters,
    /// The destinations of requests.
    pub requests_to: Arc<Addresses>,
}

/// `[[egress_queue]]` as it is written in the file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct EgressQueueSection {
    interface: Spanned<String>,
    #[serde(default)]
    over: Vec<Spanned<String>>,
    within: Option<Spanned<String>>,
    bandwidth: Option<Spanned<String>>,
    weight: Option<Spanned<u32>>,
    overhead: Option<Spanned<u32>>,
    limit: Option<Spanned<u32>>,
    target: Option<Spanned<TimeSpan>>,
    interval: Option<Spanned<TimeSpan>>,
    control_share: Option<Spanned<u8>>,
    #[serde(default)]
    requests_to: Vec<Spanned<String>>,
    request_share: Option<Spanned<u8>>,
}

/// Checks the sections.
pub(super) fn check(
    c: &mut Checker<'_>,
    sections: Vec<EgressQueueSection>,
    interfaces: &[Interface],
) -> Vec<EgressQueueConfig> {
    let mut queues: Vec<EgressQueueConfig> = Vec::new();
    let mut around = Vec::new();
    let rates: Vec<(String, u64)> = sections
        .iter()
        .filter_map(|section| {
            let rate = c.bandwidth(section.bandwidth.as_ref()?, "egress_queue.bandwidth");
            Some((section.interface.get_ref().clone(), rate))
        })
        .collect();
    for section in sections {
        let name = section.interface.get_ref();
        c.interface_name(&section.interface, "egress_queue.interface");
        let is_port = |name: &str| interfaces.iter().any(|interface| interface.name == name);
        let known = || {
            let known: Vec<_> = interfaces.iter().map(|interface| &*interface.name).collect();
            known.join(", ")
        };
        if section.over.is_empty() && !is_port(name) {
            let what = format!(
                "there is no [[interface]] {name:?} (there is: {}); a VLAN device or a bond needs `over`",
                known()
            );
            c.problem(&section.interface, "egress_queue.interface", what);
        }
        for (at, below) in section.over.iter().enumerate() {
            if section.over[..at].iter().any(|other| other.get_ref() == below.get_ref()) {
                let what = format!("{:?} is a duplicate", below.get_ref());
                c.problem(below, "egress_queue.over", what);
            }
            if !is_port(below.get_ref()) {
                let what = format!(
                    "there is no [[interface]] {:?} (there is: {})",
                    below.get_ref(),
                    known()
                );
                c.problem(below, "egress_queue.over", what);
            }
        }
        if let Some(first) = section.over.first().filter(|_| is_port(name)) {
            let what = format!("{name:?} is an [[interface]], which is over no other");
            c.problem(first, "egress_queue.over", what);
        }
        if queues.iter().any(|queue| queue.interface == *name) {
            let what = format!("{name:?} has a queue already");
            c.problem(&section.interface, "egress_queue.interface", what);
        }
        if queues.len() == MOST_QUEUES {
            c.problem(&section.interface, "egress_queue", format!("more than {MOST_QUEUES}"));
            break;
        }
        around.extend(section.within.clone().map(|within| (queues.len(), within)));
        queues.push(queue(c, section, &rates));
    }
    for (at, within) in around {
        if let Some(what) = queues.get(at).and_then(|queue| cannot_be_within(queue, &queues)) {
            c.problem(&within, "egress_queue.within", what);
        }
    }
    queues
}

/// Describes why a queue cannot be within the one that it names.
fn cannot_be_within(queue: &EgressQueueConfig, all: &[EgressQueueConfig]) -> Option<String> {
    let name = queue.within.as_ref()?;
    if queue.over.is_empty() {
        return Some(format!("{:?} is an [[interface]]: its link is its own", queue.interface));
    }
    let Some(around) = all.iter().find(|around| around.interface == *name) else {
        return Some(format!("there is no [[egress_queue]] of {name:?}"));
    };
    if around.over.is_empty() {
        return Some(format!(
            "{name:?} is an [[interface]]: a device over it is within its bandwidth without this key"
        ));
    }
    if around.within.is_some() {
        return Some(format!("{name:?} is within another device itself, or is this one"));
    }
    if around.bandwidth.is_none() {
        return Some(format!("{name:?} has no `bandwidth` to share"));
    }
    let missing = queue.over.iter().find(|below| !around.over.contains(below))?;
    Some(format!("{name:?} is not over {missing:?}, as {:?} is", queue.interface))
}

/// Checks one section, given the bandwidths of all.
fn queue(
    c: &mut Checker<'_>,
    section: EgressQueueSection,
    rates: &[(String, u64)],
) -> EgressQueueConfig {
    let EgressQueueSection {
        interface,
        over,
        within,
        bandwidth: _,
        weight,
        overhead,
        limit,
        target,
        interval,
        control_share,
        requests_to: listed,
        request_share,
    } = section;
    let rate_of = |name: &Spanned<String>| {
        rates.iter().find(|(interface, _)| interface == name.get_ref()).map(|(_, rate)| *rate)
    };
    let bandwidth = rate_of(&interface);
    let limits = [&interface].into_iter().chain(&within).chain(&over);
    let slowest = limits.filter_map(rate_of).min();
    let weight = c.number(weight, "egress_queue.weight", 1, (1, 1000));
    let overhead = c.number(overhead, "egress_queue.overhead", 0, (0, 256));
    let places = c.number(limit, "egress_queue.limit", 1000, (16, MOST_PLACES));
    let standard = CodelParameters::default();
    // A slow link needs longer than the target for a single frame.
    let frame = slowest.map_or(0, |rate| LONGEST_FRAME * 8 * 1_000_000_000 / rate.max(1));
    let least = standard.target.max(frame * 3 / 2);
    let (shortest, longest) = (TimeSpan::microseconds(10), TimeSpan::seconds(10));
    let target = TimeSpan::within(
        c,
        target,
        "egress_queue.target",
        TimeSpan::nanoseconds(least),
        shortest..=longest,
    );
    let default = TimeSpan::nanoseconds(standard.interval.max(2 * least));
    let stated = interval.as_ref().map(|interval| c.line(interval));
    let interval =
        TimeSpan::within(c, interval, "egress_queue.interval", default, shortest..=longest);
    if let Some(line) = stated
        && interval <= target
    {
        let what = format!(
            "{} is not longer than the target: senders need some round trips to react",
            humantime::format_duration(interval)
        );
        c.problem_at_line(line, "egress_queue.interval", what);
    }
    let control_share = c.number(control_share, "egress_queue.control_share", 10, (0, 100));
    let mut requests_to = Addresses::default();
    for prefix in &listed {
        if let Err(what) = requests_to.add(prefix.get_ref()) {
            c.problem(prefix, "egress_queue.requests_to", what);
        }
    }
    if let Some(share) = request_share.as_ref().filter(|_| listed.is_empty()) {
        let what = "no packet is a request: `requests_to` must list the networks behind gates";
        c.problem(share, "egress_queue.request_share", what);
    }
    let request_share = c.number(request_share, "egress_queue.request_share", 5, (0, 100));
    let codel =
        CodelParameters { target: target.as_nanos() as u64, interval: interval.as_nanos() as u64 };
    EgressQueueConfig {
        interface: interface.into_inner(),
        over: over.into_iter().map(Spanned::into_inner).collect(),
        within: within.map(Spanned::into_inner),
        bandwidth,
        weight,
        overhead,
        parameters: EgressQueueParameters {
            places: places as usize,
            codel,
            control_share,
            request_share,
        },
        requests_to: Arc::new(requests_to),
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::EgressQueueConfig;
    use crate::{Config, ConfigError};

    fn parse(section: &str) -> Result<Vec<EgressQueueConfig>, ConfigError> {
        let text = format!("[[interface]]\nname = 'eth0'\n[[egress_queue]]\n{section}");
        Config::parse(&text, Path::new("run.toml")).map(|config| config.egress_queues)
    }

    #[test]
    fn queue_has_its_defaults() {
        let [queue] = parse("interface = 'eth0'").unwrap().try_into().unwrap();
        assert_eq!((queue.bandwidth, queue.overhead, queue.parameters.places), (None, 0, 1000));
        let codel = queue.parameters.codel;
        assert_eq!((codel.target, codel.interval), (5_000_000, 100_000_000));
        assert_eq!((queue.weight, queue.within), (1, None));
        assert_eq!((queue.parameters.control_share, queue.parameters.request_share), (10, 5));
    }

    #[test]
    fn device_over_an_interface_may_not_exist_yet() {
        let section = "interface = 'eth0.100'\nover = ['eth0']\nbandwidth = '30mbit'";
        let [queue] = parse(section).unwrap().try_into().unwrap();
        assert_eq!((&*queue.interface, queue.over), ("eth0.100", vec!["eth0".to_owned()]));
    }

    #[test]
    fn device_may_be_within_another_one() {
        let of = |interface: &str, rest: &str| {
            format!("[[egress_queue]]\ninterface = '{interface}'\n{rest}\n")
        };
        let bond = of("bond0", "over = ['eth0']\nbandwidth = '30mbit'");
        let vlan = |rest: &str| of("bond0.100", rest);
        let parse = |queues: &[&str]| {
            let interfaces = "interface = [{ name = 'eth0' }, { name = 'eth1' }]\n";
            Config::parse(&format!("{interfaces}{}", queues.concat()), Path::new("run.toml"))
        };
        // The device around it may be named first or last.
        let good = vlan("over = ['eth0']\nwithin = 'bond0'");
        let [first, _] = parse(&[&good, &bond]).unwrap().egress_queues.try_into().unwrap();
        assert_eq!(first.within.as_deref(), Some("bond0"));
        assert!(parse(&[&bond, &good]).is_ok());
        for (queues, expected) in [
            ([&*good, ""], "there is no [[egress_queue]] of \"bond0\""),
            ([&good, &of("bond0", "over = ['eth0']")], "has no `bandwidth` to share"),
            ([&vlan("over = ['eth1']\nwithin = 'bond0'"), &bond], "is not over \"eth1\""),
            ([&vlan("over = ['eth0']\nwithin = 'bond0.100'"), ""], "or is this one"),
            ([&vlan("over = ['eth0']\nwithin = 'eth0'"), &of("eth0", "")], "without this key"),
            ([&of("eth0", "within = 'bond0'"), &bond], "its link is its own"),
        ] {
            let error = parse(&queues).unwrap_err().to_string();
            assert!(error.contains("egress_queue.within: "), "{error}");
            assert!(error.contains(expected), "{error}");
        }
    }

    #[test]
    fn slow_link_has_a_longer_target() {
        let slow = "interface = 'eth0'\nbandwidth = '1mbit'";
        let [queue] = parse(slow).unwrap().try_into().unwrap();
        assert_eq!(queue.bandwidth, Some(1_000_000));
        // 1514 bytes take 12.112 ms.
        assert_eq!(queue.parameters.codel.target, 18_168_000);
        assert_eq!(queue.parameters.codel.interval, 100_000_000);
    }

    /// Packets of a fast device wait as long as the slow one around it takes.
    #[test]
    fn device_within_a_slow_one_has_its_target() {
        let slow = "interface = 'eth0'\nbandwidth = '1mbit'\n[[egress_queue]]\n\
                    interface = 'eth0.1'\nover = ['eth0']\nbandwidth = '1gbit'";
        let [_, device] = parse(slow).unwrap().try_into().unwrap();
        assert_eq!(device.bandwidth, Some(1_000_000_000));
        assert_eq!(device.parameters.codel.target, 18_168_000);
    }

    #[test]
    fn bad_values_are_reported_with_their_line() {
        for (section, expected) in [
            ("interface = 'eth1'", "run.toml:4: egress_queue.interface: there is no [[interface]]"),
            ("interface = 'eth0'\nbandwidth = '100'", ":5: egress_queue.bandwidth: \"100\""),
            (
                "interface = 'eth0.7'\nover = ['eth2']",
                ":5: egress_queue.over: there is no [[interface]]",
            ),
            (
                "interface = 'eth0.7'\nover = ['eth0', 'eth0']",
                ":5: egress_queue.over: \"eth0\" is a duplicate",
            ),
            ("interface = 'eth0'\nover = ['eth0']", ":5: egress_queue.over: \"eth0\" is an"),
            ("interface = 'eth0'\nlimit = 3", ":5: egress_queue.limit: 3 is out of range"),
            (
                "interface = 'eth0'\ntarget = '50ms'\ninterval = '20ms'",
                ":6: egress_queue.interval: 20ms is not longer than the target",
            ),
            ("interface = 'eth0'\nrequests_to = ['10.0.0.1/8']", ":5: egress_queue.requests_to: "),
            (
                "interface = 'eth0'\nrequest_share = 7",
                ":5: egress_queue.request_share: no packet is a request",
            ),
            ("interface = 'eth0'\ncontrol_share = 101", ":5: egress_queue.control_share: 101"),
            (
                "interface = 'eth0'\n[[egress_queue]]\ninterface = 'eth0'",
                ":6: egress_queue.interface: \"eth0\" has a queue already",
            ),
        ] {
            let error = parse(section).unwrap_err().to_string();
            assert!(error.contains(expected), "{section}: {error}");
        }
    }
}
