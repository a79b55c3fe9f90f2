//! Options of a reader, with their defaults by the content, and those of a writer.

use core::fmt;

/// The options of reading a file. The default is strict, with the format recognized by the content.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// Returns the routes before damage, with a warning; the default is to return an error only.
    pub partial: bool,
    /// The format; by default it is recognized by the content.
    pub format: Option<Format>,
    /// Clears host bits (`10.1.2.3/8` becomes `10.0.0.0/8`); the default is an error. This concerns
    /// text only: in MRT those bits are not part of the prefix (RFC 4271, 4.3).
    pub truncate_host_bits: bool,
    /// Adds the AS that originated a route to its label, after the next hop: `192.0.2.1 65001`. The
    /// AS is the last one of the path; a path that is empty or ends with a set has none (RFC 6811,
    /// section 2), nor has one of two-byte numbers that ends with AS_TRANS (RFC 6793). This concerns
    /// MRT and `bgpdump -m`.
    pub origin: bool,
}

/// The statements of a format beside the routes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WriteOptions {
    /// The time of the table, in seconds since 1970: of each update and entry of a dump, and of a
    /// database's build. MRT and `bgpdump -m` have 32 bits of it.
    pub time: u64,
    /// In a database, each record is a map of this key to the label; by default it is the label itself.
    pub record_key: Option<String>,
    /// The type that a database states in its metadata, such as `GeoLite2-ASN`.
    pub database_type: String,
}

impl Default for WriteOptions {
    fn default() -> Self {
        Self { time: 0, record_key: None, database_type: "fingerpost".into() }
    }
}

/// A file format; the compression is separate ([`Compression`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Lines of `PREFIX`, `PREFIX VALUE` or `PREFIX VALUE more`, blanks or tabs
    /// between, `#`, `;` or `%` before comments. RouteViews origin tables, lists
    /// of prefixes and netsets are all of this form.
    Table,
    /// Lines of `bgpdump -m`: `TABLE_DUMP2|time|B|peer|as|prefix|path|…`, and its
    /// `BGP4MP|time|A|…`, `W` and `STATE` lines.
    Bgpdump,
    /// CAIDA's prefix-to-AS mappings: lines of `ADDRESS LENGTH AS`.
    Pfx2as,
    /// A configuration of the Click modular router: the routes of its lookup elements.
    Click,
    /// The output of `ip -j route` and `ip -j -6 route`.
    IpRoute,
    /// Lines of `UNIXTIME a|w PREFIX NEXTHOP`.
    UpdateText,
    /// MRT (RFC 6396): `TABLE_DUMP`, `TABLE_DUMP_V2`, `BGP4MP`, `BGP4MP_ET`.
    Mrt,
    /// A MaxMind database (MaxMind DB File Format Specification, version 2.0). The label of a prefix is its record as
    /// JSON.
    Mmdb,
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Table => "text table",
            Self::Bgpdump => "bgpdump -m",
            Self::Pfx2as => "CAIDA pfx2as",
            Self::Click => "Click configuration",
            Self::IpRoute => "ip -j route",
            Self::UpdateText => "text updates",
            Self::Mrt => "MRT",
            Self::Mmdb => "MaxMind database",
        })
    }
}

/// The compression of a file, by its first bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Compression {
    /// No compression.
    #[default]
    None,
    /// RFC 1952, one member or several.
    Gzip,
    /// One stream or several.
    Bzip2,
}

impl fmt::Display for Compression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::None => "none",
            Self::Gzip => "gzip",
            Self::Bzip2 => "bzip2",
        })
    }
}
