//! The configuration that the guide shows is one that the program takes.

use std::process::Command;

const GUIDE: &str = include_str!("../../../docs/guide/forwarding.md");

/// The first code block of a language.
fn block(language: &str) -> &'static str {
    let open = format!("```{language}\n");
    let start = GUIDE.find(&open).expect("the guide has such a block") + open.len();
    &GUIDE[start..start + GUIDE[start..].find("```").expect("the block ends")]
}

#[test]
fn the_example_configuration_is_sound() {
    let folder = std::env::temp_dir().join(format!("fingerpost-guide-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("router.toml"), block("toml")).unwrap();
    std::fs::write(folder.join("table.txt"), block("text")).unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_fingerpost"))
        .args(["forward", "--check", "-c"])
        .arg(folder.join("router.toml"))
        .output()
        .unwrap();
    std::fs::remove_dir_all(&folder).unwrap();
    let output_text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(output_text, "valid: 3 IPv4 and 2 IPv6 routes, 3 next hops\n");
}
