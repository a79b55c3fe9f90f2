//! The whole datapath compared with a slow reference, packet by packet and byte by byte.
//!
//! | module | content |
//! |---|---|
//! | `reference` | the reference: one packet, decided by the rules of the RFCs, in plain code |
//! | `rig` | a worker between memory ports, and the comparison |
//! | `packets` | test packets, valid and corrupted |
//! | `rules` | every verdict, random traffic, noise |
//! | `vlans` | VLAN devices over a port |
//! | `vrfs` | several tables |
//! | `secondary_macs` | frames to the MAC-VLAN devices over a port |
//! | `sources` | the reverse path filter |
//! | `access` | access lists, compared with their slow twin |
//! | `icmp_errors` | the ICMP errors of the router itself, byte for byte, and their limits |
//! | `fragments` | packets over the next link's MTU that leave in parts |
//! | `punts` | punts that the host answers and forwards, and their rates |
//! | `queues` | packets that wait for their link: classes, rate, CoDel, ports that refuse |
//! | `waiting` | packets that wait for a neighbor |
//! | `flows` | groups: shares, flows that do not move, a reference for the hash |
//! | `allocation` | no allocation while packets pass |
//! | `changes` | changes that are published while packets pass |
//! | `faults` | ports that lose, damage, duplicate and refuse frames |
//! | `losses` | losses of ports before and after the worker |

mod access;
mod allocation;
mod bonds;
mod capture;
mod changes;
mod faults;
mod flows;
mod fragments;
mod icmp_errors;
mod losses;
mod packets;
mod punts;
mod queues;
mod reference;
mod rig;
mod rules;
mod secondary_macs;
mod sources;
mod vlans;
mod vrfs;
mod waiting;
