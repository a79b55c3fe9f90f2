//! Messages, their streams and the exit status at errors and other edge cases.

use std::io::Write;
use std::process::{Command, Output, Stdio};

use serde_json::Value;

fn fingerpost(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_fingerpost")).args(args).output().unwrap()
}

fn fed(args: &[&str], input: &str) -> Output {
    let mut child = Command::new(env!("CARGO_BIN_EXE_fingerpost"))
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    child.wait_with_output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// Asserts that it failed with `status`, printed all `words` on standard error, and no result.
fn refuses(output: &Output, status: i32, words: &[&str]) {
    let message = text(&output.stderr);
    assert_eq!(output.status.code(), Some(status), "{message}");
    for word in words {
        assert!(message.contains(word), "`{word}` is not in: {message}");
    }
    assert_eq!(text(&output.stdout), "");
}

#[test]
fn usage_errors_have_status_2() {
    refuses(&fingerpost(&["route", "get"]), 2, &["<ADDR>"]);
    refuses(&fingerpost(&["route", "get", "10.0.0.300"]), 2, &["10.0.0.300", "IP address"]);
    refuses(&fingerpost(&["route", "get", "10.0.0.1"]), 2, &["--table FILE"]);
    refuses(&fingerpost(&["no-such-thing"]), 2, &["no-such-thing"]);
    refuses(&fingerpost(&[]), 2, &["Usage"]);
}

#[test]
fn failures_have_status_1_and_name_the_place() {
    let missing = fingerpost(&["table", "info", "/no/such/table"]);
    refuses(&missing, 1, &["fingerpost: /no/such/table: ", "No such file"]);
    let bad = fed(&["table", "info", "-"], "10.0.0.0/8 a\n10.1.2.3/16 b\n");
    refuses(&bad, 1, &["standard input", "line 2", "10.1.2.3/16"]);
    let engine = fed(&["table", "info", "--engine", "D40R", "-"], "10.0.0.0/8 a\n");
    refuses(&engine, 1, &["D40R", "IPv4"]);
}

#[test]
fn error_message_repeats_no_cause() {
    let missing = text(&fingerpost(&["table", "info", "/no/such/table"]).stderr);
    assert_eq!(missing.matches("No such file").count(), 1, "{missing}");
}

#[test]
fn damaged_table_is_refused_or_reported() {
    let input = "10.0.0.0/8 a\nnonsense\n11.0.0.0/8 b\n";
    refuses(&fed(&["table", "info", "-"], input), 1, &["line 2", "nonsense"]);
    let partial = fed(&["table", "info", "--partial", "-j", "-"], input);
    assert_eq!(partial.status.code(), Some(0));
    assert!(text(&partial.stderr).contains("warning"), "{}", text(&partial.stderr));
    let json: Value = serde_json::from_slice(&partial.stdout).unwrap();
    assert_eq!(json["v4"]["prefixes"], 1);
    assert_eq!(json["files"][0]["warnings"].as_array().unwrap().len(), 1);
}

#[test]
fn lookup_prints_prefix_next_hop_and_path() {
    let args = ["route", "get", "--table", "-", "10.1.2.3", "10.200.0.1"];
    let output = fed(&args, "10.0.0.0/8 west\n10.1.0.0/16 east\n");
    assert_eq!(output.status.code(), Some(0));
    let message = text(&output.stdout);
    assert!(message.contains("10.1.2.3 in 10.1.0.0/16 via east"), "{message}");
    assert!(message.contains("10.200.0.1 in 10.0.0.0/8 via west"), "{message}");
    assert!(message.contains("direct["), "{message}");
}

#[test]
fn missing_route_has_status_1() {
    let output = fed(&["route", "get", "-j", "--table", "-", "10.0.0.1", "::1"], "11.0.0.0/8 a\n");
    assert_eq!(output.status.code(), Some(1));
    let json: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(json[0]["prefix"].is_null() && json[1]["next_hop"].is_null());
}

#[test]
fn info_counts_add_up() {
    let input = "10.0.0.0/8 a\n10.1.0.0/16 b\n10.1.1.0/24 a\n2001:db8::/32 c\n";
    let output = fed(&["table", "info", "-j", "-"], input);
    let json: Value = serde_json::from_slice(&output.stdout).unwrap();
    for (family, prefixes, next_hops) in [("v4", 3, 2), ("v6", 1, 1)] {
        let family = &json[family];
        assert_eq!(
            (&family["prefixes"], &family["next_hops"]),
            (&prefixes.into(), &next_hops.into())
        );
        let sum = |value: &Value| value.as_u64().unwrap();
        let by_length = family["prefixes_by_length"].as_object().unwrap();
        assert_eq!(by_length.values().map(sum).sum::<u64>(), prefixes);
        let parts = family["parts"].as_array().unwrap();
        let bytes: u64 = parts.iter().map(|part| sum(&part["bytes"])).sum();
        assert_eq!(family["bytes"], bytes);
    }
    let only = fed(&["table", "info", "-6", "-j", "-"], input);
    let json: Value = serde_json::from_slice(&only.stdout).unwrap();
    assert!(json.get("v4").is_none() && json["v6"]["prefixes"] == 1);
}

#[test]
fn closed_pipe_is_no_error() {
    let mut child = Command::new(env!("CARGO_BIN_EXE_fingerpost"))
        .args(["completions", "zsh"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!((output.status.code(), text(&output.stderr)), (Some(0), String::new()));
}

#[test]
fn completions_and_manual_contain_the_subcommands() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let output = fingerpost(&["completions", shell]);
        assert!(text(&output.stdout).contains("completions"), "{shell}");
    }
    let page = text(&fingerpost(&["man"]).stdout);
    assert!(page.contains(".TH fingerpost 1") && page.contains("route"), "{page}");
}
