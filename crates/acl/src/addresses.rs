//! Addresses: the prefixes of both families that a rule names, and the names of lists of them.

use std::fmt;

use fib::Prefix;

/// The prefixes that the source or the destination of a packet may belong to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Addresses {
    /// The IPv4 prefixes.
    pub v4: Vec<Prefix<u32>>,
    /// The IPv6 prefixes.
    pub v6: Vec<Prefix<u128>>,
    /// The prefixes and names as they are written.
    written: Vec<String>,
}

impl Addresses {
    /// Returns whether there is no prefix.
    pub fn is_empty(&self) -> bool {
        self.v4.is_empty() && self.v6.is_empty()
    }

    /// Adds a prefix, or an address, which is the prefix of its own.
    ///
    /// # Errors
    ///
    /// A description of the error.
    pub fn add(&mut self, text: &str) -> Result<(), String> {
        if text.contains(':') {
            self.v6.push(parse(text, 128)?);
        } else {
            self.v4.push(parse(text, 32)?);
        }
        self.written.push(text.to_owned());
        Ok(())
    }

    /// Adds the prefixes of a named list.
    pub fn add_list(&mut self, name: &str, list: &Self) {
        self.v4.extend(&list.v4);
        self.v6.extend(&list.v6);
        self.written.push(format!("@{name}"));
    }
}

impl From<Prefix<u32>> for Addresses {
    fn from(prefix: Prefix<u32>) -> Self {
        Self { v4: vec![prefix], v6: Vec::new(), written: vec![prefix.to_string()] }
    }
}

impl From<Prefix<u128>> for Addresses {
    fn from(prefix: Prefix<u128>) -> Self {
        Self { v4: Vec::new(), v6: vec![prefix], written: vec![prefix.to_string()] }
    }
}

fn parse<A: fib::Addr>(text: &str, bits: u32) -> Result<Prefix<A>, String> {
    let whole = if text.contains('/') { text.to_owned() } else { format!("{text}/{bits}") };
    whole.parse().map_err(|error: fib::BadPrefix| error.describe::<A>(text))
}

impl fmt::Display for Addresses {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.written.join(","))
    }
}
