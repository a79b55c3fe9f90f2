//! Header views and checksums, without unsafe code.
