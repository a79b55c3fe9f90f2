//! The whole datapath against its slow twin, packet by packet and byte by byte.
//!
//! | module | |
//! |---|---|
//! | `reference` | the twin: one packet, decided as the documents say, in plain words |
//! | `rig` | a worker between memory ports, and the comparison |
//! | `packets` | packets to try, drawn and spoilt |
//! | `rules` | every verdict, random traffic, noise |
//! | `vrfs` | several tables |
//! | `sources` | which sources may come in where |
//! | `punts` | punts that the host answers, fragments and forwards, and their rates |
//! | `waiting` | packets that wait for a neighbor |
//! | `flows` | groups: shares, flows that stay, the twin of the hash |
//! | `allocation` | nothing is allocated while packets pass |
//! | `changes` | what is published while packets pass |
//! | `vantage` | a worker with a gate between its ports |
//! | `faults` | ports that lose, damage, repeat and refuse |

mod allocation;
mod changes;
mod faults;
mod flows;
mod losses;
mod packets;
mod punts;
mod reference;
mod rig;
mod rules;
mod sources;
mod vrfs;
mod waiting;
