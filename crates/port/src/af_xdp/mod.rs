//! AF_XDP: packets straight from a network interface's queue.

pub(crate) mod region;
