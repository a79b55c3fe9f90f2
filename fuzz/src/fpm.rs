//! Plays bytes as the stream of an FPM peer over two connections, and compares the routes with the
//! reports.
//!
//! ```text
//! bytes ─┬─ at once ──► PeerRoutes ─► reported, change by change ┐
//!        └─ in pieces ► PeerRoutes ─► reported                   ├─ equal? and to the mirrors
//! ```
//!
//! The reports to a follower must not depend on the segments of the TCP stream, must match the
//! mirrors (a prefix counts in the first that has it), and every report must be a change. The first
//! byte selects whether the messages of a real zebra precede the input, the second the end of the
//! first connection, the third the length of the pieces.

use feed::fpm::PeerRoutes;
use std::net::IpAddr;

use feed::netlink::{
    AddressChange, AddressView, Follower, InterfaceSettings, Link, Neighbor, RouteInfo, Rule,
};
use fib::Prefix;

use crate::netlink::RecordedState;

const ZEBRA: &[u8] = include_bytes!("../../crates/feed/tests/golden/frr-8.4.4.fpm");

/// One run of the input.
#[derive(Default)]
struct Play {
    routes: PeerRoutes,
    follower: RecordedState,
    frames: u64,
    damaged: u64,
}

impl Play {
    /// Plays a connection in pieces of this many bytes.
    fn connection(&mut self, bytes: &[u8], piece: usize) {
        self.routes.connect();
        let mut waiting = Vec::new();
        for piece in bytes.chunks(piece) {
            waiting.extend_from_slice(piece);
            let applied = self.routes.apply(&waiting, &mut self.follower);
            waiting.drain(..applied.bytes);
            self.frames += applied.frames;
            self.damaged += applied.parse_errors + u64::from(applied.broken.is_some());
            if applied.broken.is_some() {
                break;
            }
        }
        let mut whole = RecordedState::default();
        for mirror in self.routes.stale().iter().chain([self.routes.mirror()]) {
            // No two mirrors have the same prefix: this panics if a prefix were reported twice.
            mirror.report_routes(&mut Once(&mut whole));
        }
        assert_eq!(self.follower, whole, "the reports and the mirrors");
    }
}

/// Panics if a prefix is reported twice.
struct Once<'a>(&'a mut RecordedState);

impl Follower for Once<'_> {
    fn route_v4(&mut self, table: u32, prefix: Prefix<u32>, best: Option<&RouteInfo>) {
        assert!(!self.0.v4.contains_key(&(table, prefix)), "{prefix} is in two mirrors");
        self.0.route_v4(table, prefix, best);
    }
    fn route_v6(&mut self, table: u32, prefix: Prefix<u128>, best: Option<&RouteInfo>) {
        assert!(!self.0.v6.contains_key(&(table, prefix)), "{prefix} is in two mirrors");
        self.0.route_v6(table, prefix, best);
    }
    fn link(&mut self, _: u32, _: Option<&Link>) {}
    fn address(&mut self, _: &AddressView, _: AddressChange) {}
    fn neighbor(&mut self, _: u32, _: IpAddr, _: Option<&Neighbor>) {}
    fn rules(&mut self, _: &[Rule]) {}
    fn settings(&mut self, _: u32, _: InterfaceSettings) {}
}

/// Plays one input; returns the numbers of complete frames and of damaged messages.
///
/// # Panics
///
/// If the reports depend on the pieces, or differ from the routes.
pub fn fpm(input: &[u8]) -> (u64, u64) {
    let Some((&[mode, end, piece], input)) = input.split_first_chunk::<3>() else { return (0, 0) };
    let (first, second) = input.split_at(input.len() * usize::from(end) / 255);
    let mut before = if mode & 1 == 0 { ZEBRA.to_vec() } else { Vec::new() };
    before.extend_from_slice(first);
    let play = |piece: usize| {
        let mut play = Play::default();
        play.connection(&before, piece);
        play.connection(second, piece);
        play.routes.sweep(&mut play.follower);
        let mut whole = RecordedState::default();
        play.routes.mirror().report_routes(&mut whole);
        assert_eq!(play.follower, whole, "after the sweep the last routes remain");
        play
    };
    let (whole, pieces) = (play(usize::MAX), play(1 + usize::from(piece)));
    assert_eq!(whole.follower, pieces.follower, "in pieces of {} bytes", 1 + piece);
    assert_eq!((whole.frames, whole.damaged), (pieces.frames, pieces.damaged));
    let mut gone = whole;
    gone.routes.clear(&mut gone.follower);
    assert_eq!(gone.follower, RecordedState::default(), "all routes were removed");
    (gone.frames, gone.damaged)
}
