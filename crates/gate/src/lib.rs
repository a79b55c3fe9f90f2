//! The DDoS gate without I/O: batches of packets in, a verdict for each out.
//!
//! A gate runs at a vantage point before a protected network. It forwards the packets of a flow
//! only after a grantor in that network has granted the flow. Packets of flows without a decision
//! are requests: they share a small part of the link, by priority. The system is that of chapter 4
//! of Fu (*High-Performance Software Packet Processing*, Boston University, 2020), written from it
//! and from the behavior of Gatekeeper, its implementation.
//!
//! ```text
//!   packet ─► Flow ─► hash ─► index ─► entry ─► state ─► granted, declined, or a request
//!             flow.rs         index/            state.rs                of some priority.rs
//! ```
//!
//! docs/decisions/0010 lists where it departs from the published gates, and why.
//!
//! Everything is a function of packets, decisions and monotonic time in nanoseconds. The packet
//! path does not allocate, block, or read a clock.
//!
//! | module | what it is |
//! |---|---|
//! | [`admission`] | which flows have to send a second packet before they get an entry |
//! | [`grantor`] | requests in, a policy in Lua, decisions out |
//! | [`gate`] | batches of packets in, a verdict for each out |
//! | [`cookie`] | SYN cookies: proof of an address before any state is kept for it |
//! | [`decision`] | the decision protocol, in two versions |
//! | [`table`] | the flow table: index, entries, timer wheels, eviction |
//! | [`expiry`] | the timer wheels |
//! | [`flow`] | a pair of addresses, and its hash under a secret key |
//! | [`index`] | from hashes to numbers of entries: seven schemes behind one trait |
//! | [`limit`] | the egress link: requests by priority, grants in RED queues, a reserve |
//! | [`policy`] | the action for packets by destination, and the grantors of protected prefixes |
//! | [`priority`] | the priority of a request |
//! | [`program`] | flow programs: loaded, verified, run |
//! | [`tunnel`] | tunnels whose packets prove that a gate has sent them |
//! | [`random`] | random numbers for keys, secrets and sessions |
//! | [`sample`] | a packet that represents others, with its outcome |
//! | [`state`] | the record of a flow, and the outcome for each of its packets |
//!
//! # Examples
//!
//! ```
//! use fib::Publisher;
//! use fingerpost_gate::decision::{FlowCommand, Item, Scope};
//! use fingerpost_gate::flow::{Flow, Key};
//! use fingerpost_gate::gate::{Gate, Packet, Verdict};
//! use fingerpost_gate::policy::{Action, Address, Grantor, PolicyBuilder};
//! use fingerpost_gate::state::{Decision, Grant, Stamp};
//!
//! let mut builder = PolicyBuilder::new();
//! let grantor = Address::V4(0x0a00_0001);
//! let set = builder.set(&[Grantor { address: grantor, weight: 1 }]);
//! builder.v4("192.0.2.0/24".parse()?, Action::Grantors(set));
//! let policy = Publisher::new(builder.build(1)?);
//! let mut gate: Gate = Gate::new(1 << 16, policy.reader(), 0);
//!
//! let key = Key::random();
//! let flow = Flow::v4(0xc633_6401, 0xc000_0207);
//! let packet = Packet { flow, hash: key.hash(&flow), bytes: 60 };
//! let mut verdicts = [Verdict::NoRoute; 1];
//! gate.process(0, &[packet], &mut verdicts);
//! assert_eq!(verdicts, [Verdict::Request { grantor, dscp: 41 }]);
//!
//! let terms = Grant { rate_kib: 1024, expire_s: 300, next_renewal_ms: 240_000, renewal_step_ms: 3_000 };
//! let item = Item { scope: Scope::of(&flow), command: FlowCommand::Decide(Decision::Grant(terms)) };
//! gate.decide(1, &item, Stamp::default(), |flow| key.hash(flow))?;
//! gate.process(2, &[packet], &mut verdicts);
//! assert_eq!(verdicts, [Verdict::Granted { grantor, renew: false }]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#![forbid(unsafe_code)]

pub mod admission;
pub mod cookie;
pub mod decision;
pub mod expiry;
pub mod flow;
pub mod gate;
pub mod grantor;
pub mod index;
pub mod limit;
pub mod policy;
pub mod priority;
pub mod program;
pub mod random;
pub mod sample;
pub mod state;
pub mod table;
pub mod tunnel;
