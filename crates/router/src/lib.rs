//! Joins routes and packets: configuration, control, datapath, counters.
