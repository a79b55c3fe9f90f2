//! AF_XDP: packets straight from a network interface's queue.

pub mod bpf;
pub(crate) mod region;
