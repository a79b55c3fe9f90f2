//! Where packets come from and go: AF_XDP, pcap files, memory.
