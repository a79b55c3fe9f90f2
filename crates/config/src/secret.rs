//! Keys that daemons read from separate files.

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use toml::Spanned;

use super::checker::Checker;

impl Checker<'_> {
    /// Reads the keys of a sender by number: files of `listed`, relative to `folder`.
    pub fn secrets(
        &mut self,
        listed: &BTreeMap<String, Spanned<PathBuf>>,
        folder: &Path,
        key: &'static str,
    ) -> Vec<(u16, [u8; 32])> {
        let mut secrets = Vec::new();
        for (name, file) in listed {
            let Ok(number) = name.parse() else {
                self.problem(file, key, format!("{name:?} is not a key number: from 0 to 65535"));
                continue;
            };
            match read_secret(&folder.join(file.get_ref())) {
                Ok(secret) => secrets.push((number, secret)),
                Err(what) => self.problem(file, key, what),
            }
        }
        secrets
    }
}

/// Reads a key: 64 hexadecimal digits in a file that only its owner may read.
///
/// # Errors
///
/// The file cannot be read, users other than its owner may read it, or its content is not a key;
/// the message states the remedy.
pub fn read_secret(path: &Path) -> Result<[u8; 32], String> {
    let shown = path.display();
    let describe = |error: std::io::Error| format!("{shown}: {error}");
    let mode = std::fs::metadata(path).map_err(describe)?.permissions().mode();
    if mode & 0o077 != 0 {
        return Err(format!("{shown}: other users may read the key: chmod 600 {shown}"));
    }
    let text = std::fs::read_to_string(path).map_err(describe)?;
    let digits = text.trim().as_bytes();
    let malformed =
        || format!("{shown}: not 64 hexadecimal digits: create a key by openssl rand -hex 32");
    if digits.len() != 64 {
        return Err(malformed());
    }
    let mut secret = [0; 32];
    for (byte, pair) in secret.iter_mut().zip(digits.chunks_exact(2)) {
        let digit = |digit: u8| char::from(digit).to_digit(16).ok_or_else(malformed);
        *byte = (digit(pair[0])? << 4 | digit(pair[1])?) as u8;
    }
    Ok(secret)
}
