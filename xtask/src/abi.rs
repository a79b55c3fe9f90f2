//! The binary interface of the C library: what `libfingerpost.so.0` has promised stays.
//!
//! ```text
//!   include/fingerpost.h ──► declarations, one a line ◄── all of them are there ── libfingerpost.abi
//! ```
//!
//! The library's test compares the header with the code. Here each declaration of `libfingerpost.abi` must be in the
//! header unchanged, and each of the header in that file: a new function is one more line there, and a changed one needs
//! another soname (`install.sh`, `libfingerpost.map`).

use std::collections::BTreeSet;
use std::fs;

const HEADER: &str = "crates/capi/include/fingerpost.h";
const PROMISED: &str = "crates/capi/libfingerpost.abi";

/// Compares the header's declarations with those that were promised.
///
/// # Errors
///
/// The declarations that differ, one a line.
pub(crate) fn check() -> Result<(), String> {
    let read = |path| fs::read_to_string(path).map_err(|error| format!("{path}: {error}"));
    let (header, promised) = (read(HEADER)?, read(PROMISED)?);
    let wrong = differences(&declarations(&header), &promised);
    if wrong.is_empty() { Ok(()) } else { Err(wrong.join("\n   ")) }
}

fn differences(header: &BTreeSet<String>, promised: &str) -> Vec<String> {
    let promised: BTreeSet<String> = promised.lines().map(str::to_owned).collect();
    let gone = promised
        .difference(header)
        .map(|line| format!("{HEADER}: changed or removed, which needs another soname: {line}"));
    let new = header.difference(&promised).map(|line| format!("{PROMISED}: add the line {line}"));
    gone.chain(new).collect()
}

/// Returns the declarations of a header, each as one line without comments.
fn declarations(header: &str) -> BTreeSet<String> {
    let mut all = BTreeSet::new();
    let (mut one, mut depth, mut in_comment) = (String::new(), 0, false);
    for line in header.lines() {
        in_comment |= line.starts_with("/*");
        let (text, _) = line.split_once("//").unwrap_or((line, ""));
        let is_code = !in_comment && !text.starts_with("extern \"C\"") && text != "}";
        in_comment &= !line.ends_with("*/");
        if text.starts_with('#') {
            // Constants, but not the guard.
            let value = text.strip_prefix("#define ").filter(|rest| rest.contains(' '));
            all.extend(value.map(|value| value.trim().to_owned()));
        } else if is_code {
            for char in text.chars() {
                one.push(char);
                depth += i32::from(char == '{') - i32::from(char == '}');
                if char == ';' && depth == 0 {
                    let words: Vec<_> = one.split_whitespace().collect();
                    all.insert(words.join(" "));
                    one.clear();
                }
            }
            one.push(' ');
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "/*\n * int not_code(void);\n */\n#ifndef X_H\n#define X_H\n#define X_SIZE 8\n\
        typedef struct x {\n  // A comment; with a mark.\n  int a;\n  char *b;\n} x;\n#ifdef __cplusplus\n\
        extern \"C\" {\n#endif\nint f(struct x *one,\n      int two);\n#ifdef __cplusplus\n}\n#endif\n";

    #[test]
    fn declarations_are_lines_without_comments() {
        let lines: Vec<_> = declarations(TEXT).into_iter().collect();
        let want = [
            "X_SIZE 8",
            "int f(struct x *one, int two);",
            "typedef struct x { int a; char *b; } x;",
        ];
        assert_eq!(lines, want);
    }

    #[test]
    fn changed_removed_and_new_declarations_are_found() {
        let have = declarations(TEXT);
        let same = have.iter().cloned().collect::<Vec<_>>().join("\n");
        assert_eq!(differences(&have, &same), [""; 0]);
        let wrong = differences(&have, &same.replace("int two", "long two"));
        assert_eq!(wrong.len(), 2, "{wrong:?}");
        assert!(wrong[0].contains("needs another soname: int f(struct x *one, long two);"));
        assert!(wrong[1].contains("add the line int f(struct x *one, int two);"));
    }
}
