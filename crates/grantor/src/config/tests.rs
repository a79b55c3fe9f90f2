//! Tests of a valid file and of the messages about invalid ones.

use std::os::unix::fs::PermissionsExt;

use gate::policy::Address;

use super::{Config, MemberConfig};
use config::ConfigError;

#[test]
fn invalid_values_are_reported_with_line_and_key() {
    let folder = std::env::temp_dir().join(format!("fingerpost-grantor-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let path = folder.join("grantor.toml");
    std::fs::write(folder.join("policy.lua"), "function decide(p) end").unwrap();
    std::fs::write(folder.join("bad.txt"), "10.0.0.0/8\nnowhere\n").unwrap();
    let good = "interfaces = ['a', 'b']\n[tunnel]\naddresses = ['10.9.1.100']\n\
                gates = ['10.2.0.1']\n[policy]\nfile = 'policy.lua'\nfallback = 'grant 5 10'\n\
                [decisions]\nversion = 1\n[control]\nsocket = ''\n";
    std::fs::write(&path, good).unwrap();
    let config = Config::load(&path).unwrap();
    assert_eq!(config.fixed.ends, [Address::V4(0x0a09_0164)]);
    assert!(config.fixed.limits.fallback.deliver && config.fixed.daemon.control.is_none());
    assert_eq!(config.fixed.port, None);
    let with = |port| good.replace("[policy]", &format!("udp_port = {port}\n[policy]"));
    std::fs::write(&path, with(6080)).unwrap();
    assert_eq!(Config::load(&path).unwrap().fixed.port, Some(6080));
    std::fs::write(&path, with(0)).unwrap();
    let message = Config::load(&path).unwrap_err().to_string();
    assert!(message.contains("grantor.toml:5: tunnel.udp_port: 0 is not a port"), "{message}");
    let bad = good
        .replace("'b'", "'a'")
        .replace("10.2.0.1", "10.2.0")
        .replace("policy.lua", "none.lua")
        .replace("grant 5 10", "grant 5")
        .replace("version = 1", "version = 3")
        + "[[list]]\nname = 'x'\nfile = 'bad.txt'\n[[program]]\nnumber = 3\nfile = 'bad.txt'\n\
           [[program]]\nnumber = 4\nfile = 'none.o'\n";
    std::fs::write(&path, bad).unwrap();
    let error = Config::load(&path).unwrap_err();
    std::fs::remove_dir_all(&folder).unwrap();
    let ConfigError::Invalid { problems, .. } = error else { panic!("{error}") };
    let found: Vec<_> = problems.iter().map(|problem| (problem.line, problem.key)).collect();
    let expect = [
        (1, "interfaces"),
        (4, "tunnel.gates"),
        (6, "policy.file"),
        (7, "policy.fallback"),
        (9, "decisions.version"),
        (9, "decisions"),
        (14, "list.file"),
        (17, "program.file"),
        (20, "program.file"),
    ];
    assert_eq!(found, expect);
    assert!(problems[6].what.contains("line 2: \"nowhere\""), "{}", problems[6].what);
}

#[test]
fn changed_keys_of_decisions_need_a_restart() {
    let folder = std::env::temp_dir().join(format!("fp-grantor-reload-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let path = folder.join("grantor.toml");
    std::fs::write(folder.join("policy.lua"), "function decide(p) end").unwrap();
    let write_key = |name: &str, digit: &str| {
        let file = folder.join(name);
        std::fs::write(&file, digit.repeat(64)).unwrap();
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600)).unwrap();
    };
    write_key("a.key", "a");
    write_key("b.key", "b");
    let load = |decisions: &str| {
        let text = "interfaces = ['a']\n[tunnel]\naddresses = ['10.9.1.100']\n\
                    gates = ['10.2.0.1']\nauthentication = 'off'\n[policy]\nfile = 'policy.lua'\n";
        std::fs::write(&path, format!("{text}[decisions]\n{decisions}\n")).unwrap();
        Config::load(&path).unwrap()
    };
    let running = load("version = 2\nid = 1\nkeys = { 1 = 'a.key', 2 = 'b.key' }");
    let keys = |decisions: &str| load(decisions).keys_needing_restart(&running.fixed);
    assert!(keys("version = 2\nid = 1\nkeys = { 2 = 'b.key', 1 = 'a.key' }").is_empty());
    for (decisions, key) in [
        ("version = 1", "decisions.version"),
        ("version = 2\nid = 2\nkeys = { 1 = 'a.key', 2 = 'b.key' }", "decisions.id"),
        ("version = 2\nid = 1\nkeys = { 1 = 'a.key' }", "decisions.keys"),
        ("version = 2\nid = 1\nkeys = { 1 = 'a.key', 3 = 'b.key' }", "decisions.keys"),
        ("version = 2\nid = 1\nkeys = { 1 = 'b.key', 2 = 'b.key' }", "decisions.keys"),
        (
            "version = 2\nid = 1\nkeys = { 1 = 'a.key', 2 = 'b.key' }\nshare_grants = true",
            "decisions.share_grants",
        ),
    ] {
        assert_eq!(keys(decisions), [key], "{decisions}");
    }
    // Another secret in the same file.
    write_key("a.key", "c");
    assert_eq!(
        keys("version = 2\nid = 1\nkeys = { 1 = 'a.key', 2 = 'b.key' }"),
        ["decisions.keys"]
    );
    std::fs::remove_dir_all(&folder).unwrap();
}
