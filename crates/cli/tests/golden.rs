//! The program against answers that Linux gave: `data/nested.answers`, see the
//! README there. `smoke/lookup_test.sh` queries the kernel again; this needs no root.

use std::process::Command;

const DATA: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../data");

/// Looks all addresses of the answers up with one engine.
fn compare(engine: &str) {
    let answers = std::fs::read_to_string(format!("{DATA}/nested.answers")).unwrap();
    let answers: Vec<[&str; 3]> = answers
        .lines()
        .map(|line| line.split(' ').collect::<Vec<_>>().try_into().unwrap())
        .collect();
    assert!(answers.len() > 1000, "the golden file holds {} answers", answers.len());
    let output = Command::new(env!("CARGO_BIN_EXE_fingerpost"))
        .args(["route", "get", "-j", "--engine", engine])
        .args(["--table", &format!("{DATA}/nested.txt")])
        .args(answers.iter().map(|[address, ..]| address))
        .output()
        .unwrap();
    // Some addresses have no route on purpose.
    assert_eq!(output.status.code(), Some(1), "{}", String::from_utf8_lossy(&output.stderr));
    let ours: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let ours = ours.as_array().unwrap();
    assert_eq!(ours.len(), answers.len());
    for ([address, prefix, next_hop], ours) in answers.into_iter().zip(ours) {
        let text = |name: &str| ours[name].as_str().unwrap_or("-");
        let got = [text("address"), text("prefix"), text("next_hop")];
        assert_eq!(got, [address, prefix, next_hop], "{engine}");
        let touched: u64 = ours["path"]
            .as_array()
            .unwrap()
            .iter()
            .map(|load| load["bytes"].as_u64().unwrap())
            .sum();
        assert_eq!(ours["bytes_touched"], touched, "{address} by {engine}");
    }
}

#[test]
fn the_automatic_choice_agrees_with_linux() {
    compare("auto");
}

#[test]
fn direct_and_range_agrees_with_linux() {
    compare("D16R");
    compare("D20R");
}

#[test]
fn direct_extension_and_range_agrees_with_linux() {
    compare("D16X4R");
    compare("D12X8R");
}

#[test]
fn the_oracle_agrees_with_linux() {
    compare("linear");
}
