//! Keys that daemons read from separate files.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

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
