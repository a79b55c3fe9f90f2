//! Tests of a valid configuration, and of the messages about invalid ones.

use std::net::Ipv4Addr;
use std::path::Path;

use feed::netlink::AnyPrefix;
use gate::policy::Action;
use gate::policy::sources::SourceClass;

use super::{Admission, Config};
use datapath::ReversePathFilter;
use port::af_xdp::Rss;

const VALID: &str = r#"
[front]
interface = "eth0"
[back]
interface = "eth1"
address4 = "10.9.0.1"
[link]
bandwidth = "2.5gbit"
[[grantors]]
name = "site"
members = [{ address = "10.9.1.1", weight = 3 }, { address = "fd00::1" }]
[[policy]]
prefix = "192.0.2.0/24"
grantors = "site"
[[policy]]
prefix = "192.0.2.9/32"
action = "back"
exempt = true
[[policy]]
prefix = "10.9.1.1/32"
action = "drop"
[[policy]]
prefix = "0.0.0.0/0"
action = "front"
"#;

const DEFAULT_ADMISSION: Admission =
    Admission { threshold: 0.5, first_packet_entries: 1 << 22, syn_cookie_rate: None };

fn error_of(text: &str) -> String {
    Config::parse(text, Path::new("gate.toml")).unwrap_err().to_string()
}

#[test]
fn rss_is_set_on_the_front_interface_alone() {
    let with = |rss: &str| VALID.replace("\"eth0\"", &format!("\"eth0\"\nrss = \"{rss}\""));
    let setups = |text: &str| {
        let config = Config::parse(text, Path::new("gate.toml")).unwrap();
        config.router().interfaces.iter().map(|port| port.queue_setup.rss).collect::<Vec<_>>()
    };
    assert_eq!(setups(&with("addresses")), [Some(Rss::Addresses), None]);
    assert_eq!(setups(&with("symmetric")), [Some(Rss::Symmetric), None]);
    assert_eq!(setups(VALID), [None, None]);
    let error = error_of(&with("ports"));
    assert!(error.contains("front.rss") && error.contains("\"ports\""), "{error}");
}

#[test]
fn valid_file_gives_its_settings_and_defaults() {
    let config = Config::parse(VALID, Path::new("gate.toml")).unwrap();
    assert_eq!(config.fixed.bits, 2_500_000_000);
    assert_eq!((config.fixed.entries, config.fixed.mtu), (1 << 20, u16::MAX));
    assert_eq!(config.fixed.admission, Some(DEFAULT_ADMISSION));
    assert!(config.trust.v1_sources.is_empty(), "version 1 is off by default");
    assert!(!config.trust.programs, "programs of senders are off by default");
    let more = format!("{VALID}\n[decisions]\naccept_programs = true\n");
    assert!(Config::parse(&more, Path::new("gate.toml")).unwrap().trust.programs);
    assert_eq!(config.trust.from.len(), 2);
    let action = |address: &str| config.rules.find(address.parse().unwrap()).unwrap().action;
    assert_eq!(action("192.0.2.8"), Action::Grantors(0));
    assert_eq!(action("192.0.2.9"), Action::Back);
    assert_eq!(action("8.8.8.8"), Action::Front);
    assert!(config.rules.find("2001:db8::1".parse().unwrap()).is_none());
}

#[test]
fn invalid_values_are_reported_with_line_key_and_value() {
    let text = VALID.replace("2.5gbit", "fast").replace("exempt = true", "");
    let message = error_of(&text);
    assert!(message.contains("gate.toml:8: link.bandwidth: \"fast\" is not a rate"), "{message}");
    let message = error_of(&VALID.replace("exempt = true", ""));
    assert!(
        message.contains("192.0.2.9/32 would lead past the protection of 192.0.2.0/24"),
        "{message}"
    );
    let message = error_of(&VALID.replace("grantors = \"site\"", "grantors = \"sight\""));
    assert!(message.contains("no [[grantors]] is named \"sight\" (defined: site)"), "{message}");
    let message = error_of(&VALID.replace("eth1", "eth0"));
    assert!(message.contains("is the front interface already"), "{message}");
    let message =
        error_of(&format!("{VALID}[[sender]]\nid = 0\nkeys = {{ 1 = \"no-such.key\" }}\n"));
    assert!(message.contains("sender.id") && message.contains("no-such.key"), "{message}");
    let message = error_of(&format!("{VALID}[admission]\nthreshold = 1.5\n"));
    assert!(
        message.contains("admission.threshold: 1.5 is out of range: a share from 0 to 1"),
        "{message}"
    );
    let with = |port| format!("{VALID}[tunnel]\nudp_port = {port}\n");
    assert_eq!(Config::parse(&with(6080), Path::new("")).unwrap().fixed.udp, Some(6080));
    let message = error_of(&with(0));
    assert!(message.contains("tunnel.udp_port: 0 is not a port"), "{message}");
    let message = error_of(&format!("{VALID}[tunel]\n"));
    assert!(message.contains("unknown field"), "{message}");
}

/// RFC 3704, as for a router.
#[test]
fn reverse_path_filter_is_read_for_both_interfaces() {
    let config = Config::parse(VALID, Path::new("gate.toml")).unwrap();
    let of = |config: &Config| [config.fixed.front.sources, config.fixed.back.sources];
    assert_eq!(of(&config), [ReversePathFilter::Off; 2]);
    let checked = VALID
        .replace("\"eth0\"", "\"eth0\"\nrpf = \"loose\"")
        .replace("\"eth1\"", "\"eth1\"\nrpf = \"strict\"");
    let config = Config::parse(&checked, Path::new("gate.toml")).unwrap();
    assert_eq!(of(&config), [ReversePathFilter::Loose, ReversePathFilter::Strict]);
    let router = config.router();
    let carried: Vec<_> = router.interfaces.iter().map(|interface| interface.sources).collect();
    assert_eq!(carried, [Some(ReversePathFilter::Loose), Some(ReversePathFilter::Strict)]);
    let error = error_of(&checked.replace("loose", "lose"));
    assert!(error.contains("front.rpf: \"lose\" is unknown: off, loose or strict"), "{error}");
}

#[test]
fn policy_that_leads_to_a_tunnel_end_past_the_gate_is_refused() {
    let open = VALID.replace("[[policy]]\nprefix = \"10.9.1.1/32\"\naction = \"drop\"\n", "");
    let error = error_of(&open);
    let expect =
        "gate.toml:20: policy.action: 0.0.0.0/0 leads by \"front\" to 10.9.1.1, where tunnels end";
    assert!(error.contains(expect), "{error}");
    let error = error_of(&VALID.replace("action = \"drop\"", "action = \"back\""));
    assert!(error.contains("10.9.1.1/32 leads by \"back\" to 10.9.1.1"), "{error}");
}

/// Compares the rules' forged sources, one by one, with the gate's lookup tables.
#[test]
fn rules_and_policy_find_the_same_packets_forged() {
    let rules = Config::parse(VALID, Path::new("gate.toml")).unwrap().rules;
    let policy = rules.policy(1).unwrap();
    let addresses = ["192.0.2.0", "192.0.2.9", "192.0.3.0", "10.9.1.1", "10.9.1.2", "203.0.113.5"];
    let mut forged = 0;
    for source in addresses {
        for destination in addresses {
            let [source, destination] =
                [source, destination].map(|text| text.parse::<Ipv4Addr>().unwrap());
            let flow = gate::flow::Flow::v4(source.into(), destination.into());
            let is_forged = rules.is_forged(source.into(), destination.into());
            assert_eq!(policy.action(&flow) == Some(Action::Forged), is_forged, "{flow}");
            forged += u32::from(is_forged);
        }
    }
    // Three of the sources, the exempt host behind the gate among them, and one destination.
    assert_eq!(forged, 3 * 6 + 3);
}

#[test]
fn admission_settings_are_read_and_checked() {
    let with = |text: &str| {
        let text = format!("{VALID}[flow_table]\nentries = 4096\n[admission]\n{text}\n");
        Config::parse(&text, Path::new("gate.toml")).unwrap().fixed.admission
    };
    assert_eq!(
        with("threshold = 0.0").map(|a| (a.threshold, a.first_packet_entries)),
        Some((0.0, 1 << 18))
    );
    assert_eq!(with("first_packet_entries = 99").map(|a| a.first_packet_entries), Some(99));
    assert_eq!(with("enabled = false"), None);
    assert_eq!(
        with("address_validation = \"second-packet\"\nsyn_cookie_rate = 7")
            .unwrap()
            .syn_cookie_rate,
        None
    );
    assert_eq!(with("address_validation = \"syn-cookie\"").unwrap().syn_cookie_rate, Some(100_000));
    assert_eq!(
        with("address_validation = \"syn-cookie\"\nsyn_cookie_rate = 7").unwrap().syn_cookie_rate,
        Some(7)
    );
    for (text, expected) in [
        (
            "address_validation = \"captcha\"",
            "admission.address_validation: \"captcha\" is unknown: second-packet or",
        ),
        (
            "enabled = false\naddress_validation = \"syn-cookie\"",
            "admission.address_validation: has no effect with `enabled = false`",
        ),
        (
            "syn_cookie_rate = 0",
            "admission.syn_cookie_rate: 0 is out of range: from 1 to 100000000",
        ),
    ] {
        let message = error_of(&format!("{VALID}[admission]\n{text}\n"));
        assert!(message.contains(expected), "{message}");
    }
}

#[test]
fn limits_and_allowed_sources_are_read_and_bad_lines_reported() {
    let folder = std::env::temp_dir().join(format!("fp-allow-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let list = folder.join("allow.txt");
    std::fs::write(&list, "# partners\n203.0.113.0/24 a bank\n2001:db8::1\n").unwrap();
    let limited =
        VALID.replacen("grantors = \"site\"", "grantors = \"site\"\nlimit = \"8mbit\"", 1);
    let text = format!("{limited}[allow]\nprefixes = [\"203.0.113.7\"]\nfile = \"allow.txt\"\n");
    let parse = |text: &str| Config::parse(text, &folder.join("gate.toml"));
    let config = parse(&text).unwrap();
    let rule = config.rules.find("192.0.2.8".parse().unwrap()).unwrap();
    assert_eq!((rule.limit, rule.per_destination_limit), (Some(8_000_000), None));
    assert_eq!(config.rules.set(1).map(|set| set.name.as_str()), Some("site"));
    assert!(config.rules.set(2).is_none());
    let by = |source: &str| {
        let prefix = config.rules.allowing(source.parse().unwrap())?;
        Some(prefix.to_string())
    };
    assert_eq!(by("203.0.113.7").as_deref(), Some("203.0.113.7/32"));
    assert_eq!(by("203.0.113.8").as_deref(), Some("203.0.113.0/24"));
    assert_eq!(by("2001:db8::1").as_deref(), Some("2001:db8::1/128"));
    assert_eq!(by("2001:db8::2"), None);
    std::fs::write(&list, "203.0.113.0/24\n203.0.113.300\n").unwrap();
    let error = parse(&text).unwrap_err().to_string();
    assert!(
        error.contains("allow.txt: line 2: \"203.0.113.300\" is not an address or prefix"),
        "{error}"
    );
    std::fs::remove_dir_all(&folder).unwrap();
    let error = parse(&text).unwrap_err().to_string();
    assert!(error.contains("allow.file: ") && error.contains("allow.txt: No such file"), "{error}");
    let error =
        error_of(&VALID.replace("action = \"front\"", "action = \"front\"\nlimit = \"1x\""));
    assert!(error.contains("a limit needs `grantors`: other actions have none"), "{error}");
    assert!(error.contains("policy.limit: \"1x\" is not a rate"), "{error}");
}

#[test]
fn blocked_sources_are_read_and_bad_lines_reported() {
    let folder = std::env::temp_dir().join(format!("fp-block-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let list = folder.join("block.txt");
    std::fs::write(&list, "# drop\n198.51.0.0/16\tAS64496\n198.51.100.0/24\n2001:db8::/32\n")
        .unwrap();
    let text = format!(
        "{VALID}[allow]\nprefixes = [\"198.51.100.7\", \"2001:db8::/48\"]\n\
         [block]\nprefixes = [\"203.0.113.7\", \"2001:db8:0:1::/64\"]\nfile = \"block.txt\"\n"
    );
    let parse = |text: &str| Config::parse(text, &folder.join("gate.toml"));
    let config = parse(&text).unwrap();
    assert_eq!((config.rules.allow.len(), config.rules.block.len()), (2, 5));
    let policy = config.rules.policy(1).unwrap();
    for (source, by, blocked) in [
        ("203.0.113.7", "203.0.113.7/32", true),
        ("198.51.7.7", "198.51.0.0/16", true),
        ("198.51.100.8", "198.51.100.0/24", true),
        ("198.51.100.7", "198.51.100.7/32", false),
        ("2001:db8:1::1", "2001:db8::/32", true),
        ("2001:db8:0:1::1", "2001:db8::/48", false),
    ] {
        let address = source.parse().unwrap();
        let (allowing, blocking) = (config.rules.allowing(address), config.rules.blocking(address));
        let (found, none) = if blocked { (blocking, allowing) } else { (allowing, blocking) };
        assert_eq!(found.map(|prefix| prefix.to_string()).as_deref(), Some(by));
        assert!(none.is_none(), "{source}");
        let flow = match address {
            std::net::IpAddr::V4(source) => gate::flow::Flow::v4(source.into(), 1),
            std::net::IpAddr::V6(source) => gate::flow::Flow::v6(source.into(), 1),
        };
        let kind = if blocked { SourceClass::Blocked } else { SourceClass::Allowed };
        assert_eq!(policy.source(&flow), Some(kind), "{source}");
    }
    // Each bad line is reported with its file and number; of many only the first ones.
    std::fs::write(&list, "203.0.113.0/24\n203.0.113.1/24\n".to_owned() + &"x\n".repeat(30))
        .unwrap();
    let error = parse(&text).unwrap_err().to_string();
    assert!(error.contains("block.txt: line 2: prefix \"203.0.113.1/24\" has host bits set; did you mean 203.0.113.0/24?"), "{error}");
    assert!(
        error.contains("block.txt: line 11: \"x\" is not an address or prefix")
            && !error.contains("line 12"),
        "{error}"
    );
    assert!(
        error.contains("block.file: ") && error.contains("block.txt: and 21 more lines"),
        "{error}"
    );
    std::fs::remove_dir_all(&folder).unwrap();
    let error = parse(&text).unwrap_err().to_string();
    assert!(error.contains("block.txt: No such file"), "{error}");
    let error = error_of(&format!("{VALID}[block]\nprefixes = [\"10.0.0.1/8\"]\n"));
    assert!(error.contains("gate.toml:26: block.prefixes: prefix \"10.0.0.1/8\" has host bits set; did you mean 10.0.0.0/8?"), "{error}");
    let error = error_of(&format!("{VALID}[flow_table]\nxdp_blocked_prefixes = 5000000\n"));
    assert!(
        error.contains("flow_table.xdp_blocked_prefixes: 5000000 is out of range: at most 4194304"),
        "{error}"
    );
}

/// Published lists of both families, unchanged.
#[test]
fn published_lists_block_the_sources_that_a_scan_finds() {
    let data = std::env::var_os("FINGERPOST_DATA").map_or_else(
        || concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared/data").into(),
        std::path::PathBuf::from,
    );
    let folder = std::env::temp_dir().join(format!("fp-lists-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let mut all = String::new();
    for name in [
        "list-firehol_abusers_30d-2026.netset.gz",
        "list-firehol_level1-2026.netset.gz",
        "list-fullbogons-ipv6-2024.txt.gz",
        "list-ipsum-20260822.txt.gz",
    ] {
        let file = std::fs::File::open(data.join(name)).expect("the lists are there");
        std::io::Read::read_to_string(&mut flate2::read::GzDecoder::new(file), &mut all).unwrap();
    }
    std::fs::write(folder.join("block.txt"), &all).unwrap();
    let text =
        format!("{VALID}[allow]\nprefixes = [\"10.0.0.0/9\"]\n[block]\nfile = \"block.txt\"\n");
    let rules = Config::parse(&text, &folder.join("gate.toml")).unwrap().rules;
    std::fs::remove_dir_all(&folder).unwrap();
    assert!(rules.block.len() > 400_000, "{}", rules.block.len());
    let policy = rules.policy(1).unwrap();
    let mut rng = fastrand::Rng::with_seed(3);
    let mut counts = [0; 3];
    for _ in 0..300 {
        // An address within a prefix of a list, or beside one.
        let prefix = rules.block[rng.usize(..rules.block.len())];
        let (flow, source) = match prefix {
            AnyPrefix::V4(prefix) => {
                let source = prefix.addr().wrapping_add(rng.u32(..3));
                (gate::flow::Flow::v4(source, 1), std::net::IpAddr::V4(source.into()))
            }
            AnyPrefix::V6(prefix) => {
                let source = prefix.addr().wrapping_sub(rng.u128(..2));
                (gate::flow::Flow::v6(source, 1), std::net::IpAddr::V6(source.into()))
            }
        };
        let want = match (rules.allowing(source), rules.blocking(source)) {
            (Some(_), _) => Some(SourceClass::Allowed),
            (None, Some(_)) => Some(SourceClass::Blocked),
            (None, None) => None,
        };
        assert_eq!(policy.source(&flow), want, "{source}");
        counts[want.map_or(0, |kind| kind as usize + 1)] += 1;
    }
    assert!(counts[0] > 10 && counts[2] > 100, "{counts:?}");
}

#[test]
fn lists_in_front_have_the_allowed_sources_before_them() {
    let path = Path::new("/etc/fingerpost/gate.toml");
    let section = "[allow]\nprefixes = [\"10.0.0.0/9\"]\n[block]\nprefixes = [\"10.0.0.0/8\"]\n";
    let parse = |more: &str| Config::parse(&format!("{VALID}{section}{more}\n"), path);
    let none = parse("").unwrap();
    assert!(none.block.is_none() && none.router().block.is_none());
    assert_eq!(none.rules.block.len(), 1);
    let some = parse("lists = [\"drop\"]\nbans = \"/bans\"").unwrap();
    assert_eq!((some.rules.block.len(), some.rules.allow.len()), (1, 1));
    let lists = some.router().block.unwrap();
    let names: Vec<String> = lists.all_lists().iter().map(ToString::to_string).collect();
    assert_eq!(names, ["[allow]", "/etc/fingerpost/drop", "bans"]);
    assert_eq!(
        (lists.interfaces.as_slice(), lists.allowed.unwrap().len()),
        (&["eth0".into()][..], 1)
    );
    // Lists may change while the gate runs, but not whether it has any.
    let other = parse("lists = [\"other\"]").unwrap();
    assert!(other.keys_needing_restart(&some.fixed).is_empty());
    assert_eq!(none.keys_needing_restart(&some.fixed), ["block.lists"]);
    assert_eq!(other.keys_needing_restart(&none.fixed), ["block.lists"]);
    let without = parse("xdp_blocked = 0").unwrap_err().to_string();
    assert!(without.contains("unknown field `xdp_blocked`"), "{without}");
    let error = parse("lists = [\"a\"]\ninterfaces = [\"eth1\"]").unwrap_err().to_string();
    assert!(error.contains("block.interfaces: not available on a gate"), "{error}");
    // The list of the policy is one of thirty.
    let many = |count: usize| (0..count).map(|i| format!("\"{i}\"")).collect::<Vec<_>>().join(",");
    assert!(parse(&format!("lists = [{}]", many(29))).is_ok());
    let error = parse(&format!("lists = [{}]", many(30))).unwrap_err().to_string();
    assert!(error.contains("block: 31 lists: at most 30 are possible"), "{error}");
}
