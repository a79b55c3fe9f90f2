//! `fingerpost-bench suez` says with its exit status whether the paper's ordering comes out.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// A folder of its own, with a table of routes of up to 16 and up to 24 bits.
fn folder(name: &str) -> PathBuf {
    let folder = std::env::temp_dir().join(format!("fingerpost-{name}-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let wide = (0..200).map(|n| format!("{}.{}.0.0/16 192.0.2.{}\n", 20 + n % 7, n, n % 9));
    let fine = (0..2000).map(|n| format!("60.{}.{}.0/24 192.0.2.{}\n", n / 100, n % 100, n % 9));
    std::fs::write(folder.join("table.txt"), wide.chain(fine).collect::<String>()).unwrap();
    folder
}

fn suez(folder: &Path, options: &[&str]) -> (Output, serde_json::Value) {
    let output = Command::new(env!("CARGO_BIN_EXE_fingerpost-bench"))
        .args(["suez", "-j", "--routes", "0", "--packets", "150000", "--table"])
        .arg(folder.join("table.txt"))
        .arg("--record")
        .arg(folder)
        .args(options)
        .output()
        .unwrap();
    let result = serde_json::from_slice(&output.stdout);
    let result = result.unwrap_or_else(|_| panic!("{}", String::from_utf8_lossy(&output.stderr)));
    (output, result)
}

#[test]
fn the_papers_locality_gives_the_papers_order() {
    let folder = folder("suez-order");
    let (output, result) = suez(&folder, &["--engines", "nart", "--rounds", "1"]);
    std::fs::remove_dir_all(&folder).unwrap();
    let claims = result["claims"].as_array().unwrap();
    assert!(output.status.success(), "{claims:#?}");
    assert!(claims.iter().any(|claim| claim["measured"] == true), "table 6 is there too");
    let mlps = |row: usize| result["simulated"]["table2"][row]["mlps"].as_f64().unwrap();
    // Degrees 7, 3, 2, 1.
    assert!(mlps(3) > mlps(1) && mlps(1) > mlps(2) && mlps(2) > mlps(0));
    assert_eq!(result["table6"].as_array().unwrap().len(), 12);
}

#[test]
fn another_locality_gives_another_order_and_fails() {
    let folder = folder("suez-fails");
    let options = ["--engines", "none", "--tail", "0.5", "--scale", "20"];
    let (output, result) = suez(&folder, &options);
    std::fs::remove_dir_all(&folder).unwrap();
    assert_eq!(output.status.code(), Some(1));
    let broken = |claim: &&serde_json::Value| claim["holds"] == false;
    assert!(result["claims"].as_array().unwrap().iter().any(|claim| broken(&claim)));
}
