//! What a reader may be told, and what it finds out for itself.

use core::fmt;

/// How a file is to be read. The default is strict and recognizes by content.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// Keep what came before damage, with a warning, where the default is to
    /// return an error and nothing else.
    pub partial: bool,
    /// The format, where it is not to be recognized by content.
    pub format: Option<Format>,
    /// Clear set bits beyond a prefix's length (`10.1.2.3/8` becomes
    /// `10.0.0.0/8`), where the default is an error. Only text can be at odds
    /// here: in MRT those bits are not part of the prefix (RFC 4271, 4.3).
    pub truncate_host_bits: bool,
}

/// The formats that are read. Compression is apart from it: [`Compression`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Lines of `PREFIX`, `PREFIX VALUE` or `PREFIX VALUE more`, blanks or tabs
    /// between, `#`, `;` or `%` before comments. RouteViews origin tables, lists
    /// of prefixes and netsets are all of this form.
    Table,
    /// Lines of `bgpdump -m`: `TABLE_DUMP2|time|B|peer|as|prefix|path|…`, and its
    /// `BGP4MP|time|A|…`, `W` and `STATE` lines.
    Bgpdump,
    /// What `ip -j route` and `ip -j -6 route` print.
    IpRoute,
    /// Lines of `UNIXTIME a|w PREFIX NEXTHOP`.
    UpdateText,
    /// MRT (RFC 6396): `TABLE_DUMP`, `TABLE_DUMP_V2`, `BGP4MP`, `BGP4MP_ET`.
    Mrt,
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Table => "text table",
            Self::Bgpdump => "bgpdump -m",
            Self::IpRoute => "ip -j route",
            Self::UpdateText => "text updates",
            Self::Mrt => "MRT",
        })
    }
}

/// How a file was packed, as its first bytes say.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Compression {
    /// Not at all.
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
