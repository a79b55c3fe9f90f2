//! The configuration: the parse of valid files, and the problems of invalid ones.

use std::path::Path;

use fingerpost_config::{Config, ConfigError, Target, Via};
use port::af_xdp::ModeChoice;

const GOOD: &str = r#"
[[interface]]
name = "west"
[[interface]]
name = "east"
mode = "copy"
queues = 2

[[nexthop]]
name = "a"
interface = "west"
mac = "02:00:00:00:00:0a"
address = "192.0.2.1"
[[nexthop]]
name = "b"
interface = "east"
mac = "02-00-00-00-00-0B"

[[routes]]
file = "full.gz"
nexthop = "a"
[[routes]]
file = "/srv/labels.txt"
[[routes]]
file = "more.txt"
nexthops = ["b", "a", "blackhole"]

[[route]]
prefix = "198.51.100.0/24"
nexthop = "blackhole"
[[route]]
prefix = "2001:db8::/32"
nexthop = "b"

[workers]
cores = [1, 0]
[fib]
engine = "D16X4R"
"#;

fn parse(text: &str) -> Result<Config, ConfigError> {
    Config::parse(text, Path::new("/etc/fingerpost/router.toml"))
}

/// Returns every problem as `line: key: description`.
fn problems(text: &str) -> Vec<String> {
    match parse(text).expect_err("the text is bad") {
        ConfigError::Invalid { problems, .. } => {
            problems.iter().map(|p| format!("{}: {}: {}", p.line, p.key, p.what)).collect()
        }
        other => panic!("of shape, not of sense: {other}"),
    }
}

#[test]
fn mode_xdp_needs_an_engine_of_the_kernel() {
    let with = |engine: &str| {
        format!("[[interface]]\nname = \"a\"\nmode = \"xdp\"\n[fib]\nengine = \"{engine}\"\n")
    };
    for engine in ["auto", "flat", "rank"] {
        let config = parse(&with(engine)).unwrap();
        assert!(config.forwards_in_driver());
        assert_eq!(config.keys_without_effect(), ["interface.mode = \"xdp\""]);
    }
    let found = problems(&with("D16X4R"));
    assert!(found[0].starts_with("1: fib.engine: programs in the kernel look up in"), "{found:?}");
    assert!(!parse(GOOD).unwrap().forwards_in_driver());
}

#[test]
fn mode_auto_may_be_the_driver_unless_the_workers_have_all_packets() {
    let plain = "[[interface]]\nname = \"a\"\n";
    let chooses = |text: &str| parse(text).unwrap().may_choose_driver();
    assert!(chooses(plain));
    assert!(chooses(&format!("{plain}[fib]\nengine = \"rank\"\n")));
    assert!(chooses(&format!("{plain}[[interface]]\nname = \"b\"\nmode = \"copy\"\n")));
    for more in [
        "mode = \"copy\"",
        "mode = \"xdp\"",
        "[fib]\nengine = \"D16X4R\"",
        "[fib]\nengine_v6 = \"D16X4R\"",
        "[[access_list]]\nname = \"edge\"\ninbound = [\"a\"]\ndefault = \"permit\"\nrules = [\"deny ipproto udp\"]",
        "[flowspec]\nas = 65001\nrouter_id = \"192.0.2.1\"\ninbound = [\"a\"]",
        "[image]\npath = \"/var/lib/fingerpost/tables\"",
    ] {
        assert!(!chooses(&format!("{plain}{more}\n")), "{more}");
    }
    let copies = parse(&format!("{plain}mode = \"copy\"\n")).unwrap();
    assert!(!copies.may_load_programs());
    assert!(parse(plain).unwrap().may_load_programs());
}

#[test]
fn a_good_one_is_read_whole() {
    let config = parse(GOOD).unwrap();
    assert_eq!(config.interfaces.len(), 2);
    assert_eq!(config.interfaces[0].mode, ModeChoice::Auto);
    assert_eq!(config.interfaces[1].mode, ModeChoice::Copy);
    assert_eq!(config.next_hops[0].address, Some("192.0.2.1".parse().unwrap()));
    assert_eq!(config.next_hops[1].interface, 1);
    assert_eq!(config.next_hops[1].mac, [2, 0, 0, 0, 0, 11]);
    let paths: Vec<_> = config.files.iter().map(|file| file.path.to_str().unwrap()).collect();
    assert_eq!(paths, ["/etc/fingerpost/full.gz", "/srv/labels.txt", "/etc/fingerpost/more.txt"]);
    assert_eq!(config.files[0].via, Via::One(Target::NextHop(0)));
    assert_eq!(config.files[1].via, Via::Label);
    let spread = vec![Target::NextHop(1), Target::NextHop(0), Target::Blackhole];
    assert_eq!(config.files[2].via, Via::Spread(spread));
    assert_eq!(config.routes_v4, [("198.51.100.0/24".parse().unwrap(), Target::Blackhole)]);
    assert_eq!(config.routes_v6, [("2001:db8::/32".parse().unwrap(), Target::NextHop(1))]);
    assert_eq!(config.daemon.cores, [Some(1), Some(0)]);

    let least = parse("[[interface]]\nname = \"lo\"\n").unwrap();
    assert_eq!(least.daemon.cores, [None]);
}

#[test]
fn toml_that_is_none_names_line_and_column() {
    let error = parse("[[interface]]\nname = \"west\nmode = 1").unwrap_err();
    let ConfigError::Shape { line, .. } = &error else { panic!("{error}") };
    assert_eq!(*line, 2, "{error}");
    assert!(error.to_string().starts_with("/etc/fingerpost/router.toml:2:"), "{error}");
}

#[test]
fn unknown_missing_and_mistyped_keys_are_named_with_their_line() {
    for (bad, line, words) in [
        ("[[interface]]\nname = \"a\"\nmtu = 1500\n", 3, ["unknown field", "`mtu`"]),
        ("[[interface]]\nname = \"a\"\n[fibb]\n", 3, ["unknown field", "`fibb`"]),
        ("\n[[interface]]\nmode = \"copy\"\n", 2, ["missing field", "`name`"]),
        ("[[interface]]\nname = 7\n", 2, ["expected a string", "name = 7"]),
        ("[workers]\ncores = [0, \"1\"]\n", 2, ["expected usize", "cores = [0"]),
        ("[[interface]]\nname = \"a\"\nname = \"b\"\n", 3, ["duplicate", "name"]),
    ] {
        let error = parse(bad).expect_err(bad);
        let ConfigError::Shape { line: at, what, .. } = &error else { panic!("{error}") };
        assert_eq!(*at, line, "{bad}: {error}");
        assert!(words.iter().all(|word| what.contains(word)), "{bad}: {error}");
    }
}

#[test]
fn all_contradictions_are_reported_at_once() {
    let text = r#"
[[interface]]
name = "west"
mode = "fast"
queues = 1
[[interface]]
name = "west"
[[interface]]
name = "an-interface-too-long"
[[nexthop]]
name = "a"
interface = "east"
mac = "02:00:00:00:00"
address = "192.0.2"
[[nexthop]]
name = "a"
interface = "west"
mac = "03:00:00:00:00:01"
[[nexthop]]
name = "blackhole"
interface = "west"
mac = "02:00:00:00:00:02"
address = "::1"
[[nexthop]]
name = "c"
interface = "west"
mac = "00:00:00:00:00:00"
address = "::1"
[[routes]]
file = "x"
nexthop = "d"
[[routes]]
file = "x"
nexthops = []
[[routes]]
file = "x"
nexthops = ["a"]
nexthop = "a"
[[route]]
prefix = "10.0.0.1/8"
nexthop = "a"
[[route]]
prefix = "10.0.0.0/8"
nexthop = "e"
[[route]]
prefix = "10.0.0.0/8"
nexthop = "a"
[[route]]
prefix = "2001:db8::g/32"
nexthop = "a"
[workers]
cores = [0, 0]
[fib]
engine = "D99"
engine_v6 = "D16X8R/64"
"#;
    let found = problems(text);
    let expect = [
        "4: interface.mode: \"fast\" is unknown: auto, zero-copy, copy, generic or xdp",
        "5: interface.queues: 1 queues and 2 workers",
        "7: interface.name: \"west\" is a duplicate",
        "9: interface.name: \"an-interface-too-long\" is not an interface name",
        "12: nexthop.interface: there is no [[interface]] \"east\" (there is: west, west, an-",
        "13: nexthop.mac: \"02:00:00:00:00\" is not a MAC",
        "14: nexthop.address: \"192.0.2\" is not an IP address",
        "16: nexthop.name: \"a\" is a duplicate",
        "18: nexthop.mac: \"03:00:00:00:00:01\" is not the address of one station",
        "20: nexthop.name: \"blackhole\" already means",
        "27: nexthop.mac: \"00:00:00:00:00:00\" is not the address of one station",
        "28: nexthop.address: ::1 is that of \"blackhole\" already",
        "31: routes.nexthop: there is no [[nexthop]] \"d\" (there is: a, a, blackhole, c)",
        "34: routes.nexthops: an empty list",
        "35: routes: `nexthop` and `nexthops` exclude",
        "40: route.prefix: prefix \"10.0.0.1/8\" has host bits set; did you mean 10.0.0.0/8?",
        "44: route.nexthop: there is no [[nexthop]] \"e\"",
        "46: route.prefix: 10.0.0.0/8 is a duplicate",
        "49: route.prefix: \"2001:db8::g/32\" is not an address or prefix",
        "52: workers.cores: core 0 is listed twice",
        "54: fib.engine: \"D99\": ",
    ];
    for (found, expect) in found.iter().zip(expect) {
        assert!(found.starts_with(expect), "found {found:?}, expected {expect:?}");
    }
    assert_eq!(found.len(), expect.len(), "{found:#?}");

    let text = parse(text).unwrap_err().to_string();
    assert_eq!(text.lines().count(), expect.len());
    assert!(text.lines().all(|line| line.starts_with("/etc/fingerpost/router.toml:")));
}

#[test]
fn an_image_has_a_path_and_tables_that_it_can_hold() {
    let with = |more: &str| format!("[[interface]]\nname = \"e\"\n{more}");
    let image = |text: &str| parse(&with(text)).unwrap().image;
    assert_eq!(image(""), None);
    let file = image("[image]\npath = \"/x/y\"\n").unwrap();
    assert_eq!((file.path.to_str(), file.every), (Some("/x/y"), None));
    let file = image("[image]\npath = \"/x/y\"\ninterval = \"60s\"\n").unwrap();
    assert_eq!(file.every.map(|every| every.as_secs()), Some(60));
    let found =
        problems(&with("[image]\npath = \"x\"\ninterval = \"0s\"\n[fib]\nengine = \"lulea\"\n"));
    assert!(
        found[0].starts_with("1: fib.engine: its tables are not kept in an image"),
        "{found:?}"
    );
    assert!(found[1].starts_with("4: image.path: "), "{found:?}");
    assert!(found[2].starts_with("5: image.interval: "), "{found:?}");
    assert_eq!(found.len(), 3);
}

#[test]
fn no_interface_and_no_core_are_errors() {
    assert!(problems("").iter().any(|problem| problem.contains("at least one")));
    assert!(problems("[workers]\ncores = []\n")[0].starts_with("2: workers.cores: an empty list"));
}

#[test]
fn a_file_that_is_not_there_is_named() {
    let error = Config::load("/no/such/router.toml").unwrap_err();
    assert!(matches!(error, ConfigError::Read { .. }));
    assert!(error.to_string().starts_with("/no/such/router.toml: cannot be read: "), "{error}");
}

#[test]
fn peers_of_frrs_feed_are_read_and_wrong_ones_named() {
    let base = "[[interface]]\nname = \"a\"\n[feed]\n";
    let whole = format!(
        "{base}fpm = \"127.0.0.1:2620\"\nfpm_users = [\"root\", \"104\"]\n\
         fpm_peers = [\"192.0.2.7\", \"2001:db8::/64\"]\n"
    );
    let feed = parse(&whole).expect("it is good").fpm.expect("a feed");
    assert_eq!(feed.peers.users, [0, 104]);
    let remote: Vec<String> = feed.peers.remote.iter().map(ToString::to_string).collect();
    assert_eq!(remote, ["192.0.2.7/32", "2001:db8::/64"]);
    let plain = parse(&format!("{base}fpm = \"[::1]:2620\"\n")).expect("it is good");
    let peers = plain.fpm.expect("a feed").peers;
    assert!(peers.users.contains(&0) && peers.remote.is_empty(), "{peers:?}");
    assert!(parse("[[interface]]\nname = \"a\"\n").expect("it is good").fpm.is_none());

    let wrong = format!(
        "{base}fpm = \"127.0.0.1:2620\"\nfpm_users = [\"no such user\"]\n\
         fpm_peers = [\"192.0.2.7/24\", \"here\"]\n"
    );
    assert_eq!(
        problems(&wrong),
        [
            "5: feed.fpm_users: there is no user \"no such user\"",
            "6: feed.fpm_peers: \"192.0.2.7/24\" is no address and no prefix, such as 192.0.2.0/28",
            "6: feed.fpm_peers: \"here\" is no address and no prefix, such as 192.0.2.0/28",
        ]
    );
    let without = format!("{base}fpm_users = [\"root\"]\nfpm_peers = [\"192.0.2.7\"]\n");
    let without = problems(&without);
    assert_eq!(without.len(), 2, "{without:?}");
    assert!(without.iter().all(|problem| problem.ends_with("has no effect without `fpm`")));
}
