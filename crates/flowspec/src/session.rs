//! Session: the state of one BGP connection, without its socket.
//!
//! ```text
//!   connection ─► OPEN sent ─ OPEN ─► open confirm ─ KEEPALIVE ─► established
//!                     └───────────────────┴─ an error, silence: NOTIFICATION ─► closed
//! ```
//!
//! The speaker is passive: the router connects (RFC 4271, section 8.2.1, PassiveTcpEstablishment). The hold
//! time is the lesser of both sides' (section 4.2); keepalives are sent after a third of it. Capabilities
//! are the two families of flow specifications, one of which the peer must have, and AS numbers of four
//! octets. A malformed flow specification is skipped and counted; another error of an UPDATE ends the
//! session (RFC 7606, section 3).

use std::time::{Duration, Instant};

use crate::message::{self, Message, Notification, Open, Update};

/// The own side of sessions, and the AS that peers must have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpeakerIdentity {
    /// The own AS.
    pub own_as: u32,
    /// The AS that peers must have.
    pub peer_as: u32,
    /// The BGP identifier.
    pub identifier: u32,
    /// The longest hold time, in seconds; 0: none.
    pub hold_time: u16,
}

/// The time for which a connection without an OPEN is kept (RFC 4271, section 8.2.2, "large value").
const OPEN_HOLD_TIME: Duration = Duration::from_secs(240);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    OpenSent,
    OpenConfirm,
    Established,
}

/// A session, whose bytes the caller receives and sends.
#[derive(Debug)]
pub struct Session {
    local: SpeakerIdentity,
    state: State,
    received: Vec<u8>,
    /// Bytes for the peer; the caller removes those that it has sent.
    pub to_send: Vec<u8>,
    hold_time: Duration,
    last_received: Instant,
    last_sent: Instant,
}

/// The reason for which a session ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EndReason {
    /// This side sent the notification.
    Sent(Notification),
    /// The peer sent it.
    Received(Notification),
    /// The peer closed the connection, or the network did.
    Closed,
}

impl std::fmt::Display for EndReason {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Sent(notification) => write!(f, "notification sent: {notification}"),
            Self::Received(notification) => write!(f, "notification received: {notification}"),
            Self::Closed => f.write_str("connection closed by the peer"),
        }
    }
}

impl Session {
    /// Begins a session on a connection.
    pub fn new(local: SpeakerIdentity, now: Instant) -> Self {
        let mut to_send = Vec::new();
        let open = Open {
            my_as: local.own_as,
            hold_time: local.hold_time,
            identifier: local.identifier,
            has_flowspec: [true; 2],
        };
        open.encode(&mut to_send);
        Self {
            local,
            state: State::OpenSent,
            received: Vec::new(),
            to_send,
            hold_time: OPEN_HOLD_TIME,
            last_received: now,
            last_sent: now,
        }
    }

    /// Returns whether the peer's updates are received.
    pub fn is_established(&self) -> bool {
        self.state == State::Established
    }

    /// Processes received bytes; `apply` gets each update.
    ///
    /// # Errors
    ///
    /// The session has ended; what is to be sent still is.
    pub fn receive(
        &mut self,
        bytes: &[u8],
        now: Instant,
        mut apply: impl FnMut(Update) -> Result<(), Notification>,
    ) -> Result<(), EndReason> {
        self.received.extend_from_slice(bytes);
        let mut at = 0;
        let result = loop {
            match message::decode(&self.received[at..]) {
                Ok(None) => break Ok(()),
                Err(notification) => break Err(EndReason::Sent(notification)),
                Ok(Some((message, length))) => {
                    at += length;
                    self.last_received = now;
                    if let Err(end) = self.process(message, now, &mut apply) {
                        break Err(end);
                    }
                }
            }
        };
        self.received.drain(..at);
        if let Err(EndReason::Sent(notification)) = result {
            notification.encode(&mut self.to_send);
        }
        result
    }

    fn process(
        &mut self,
        message: Message,
        now: Instant,
        apply: &mut impl FnMut(Update) -> Result<(), Notification>,
    ) -> Result<(), EndReason> {
        let result = match (self.state, message) {
            (_, Message::Notification(notification)) => {
                return Err(EndReason::Received(notification));
            }
            (State::OpenSent, Message::Open(open)) => self.accept(open, now),
            (State::OpenConfirm, Message::Keepalive) => {
                self.state = State::Established;
                Ok(())
            }
            (State::Established, Message::Keepalive | Message::RouteRefresh) => Ok(()),
            (State::Established, Message::Update(update)) => apply(update),
            _ => Err(Notification::UNEXPECTED),
        };
        result.map_err(EndReason::Sent)
    }

    fn accept(&mut self, open: Open, now: Instant) -> Result<(), Notification> {
        if open.my_as != self.local.peer_as {
            return Err(Notification::BAD_PEER_AS);
        }
        let is_own = open.identifier == self.local.identifier;
        if open.identifier == 0 || is_own && self.local.peer_as == self.local.own_as {
            return Err(Notification::BAD_IDENTIFIER);
        }
        if matches!(open.hold_time, 1 | 2) {
            return Err(Notification::BAD_HOLD_TIME);
        }
        if open.has_flowspec == [false; 2] {
            return Err(Notification::UNSUPPORTED_CAPABILITY);
        }
        self.hold_time = Duration::from_secs(open.hold_time.min(self.local.hold_time).into());
        self.state = State::OpenConfirm;
        self.keep_alive(now);
        Ok(())
    }

    fn keep_alive(&mut self, now: Instant) {
        message::append_keepalive(&mut self.to_send);
        self.last_sent = now;
    }

    /// Sends a keepalive if it is time; the caller calls this at least once a second.
    ///
    /// # Errors
    ///
    /// The peer has been silent for the hold time.
    pub(crate) fn tick(&mut self, now: Instant) -> Result<(), EndReason> {
        // A hold time of 0: neither side sends keepalives.
        if self.hold_time.is_zero() {
            return Ok(());
        }
        if now.saturating_duration_since(self.last_received) >= self.hold_time {
            return Err(self.end(Notification::HOLD_TIMER_EXPIRED));
        }
        let is_due = now.saturating_duration_since(self.last_sent) >= self.hold_time / 3;
        if self.state != State::OpenSent && is_due {
            self.keep_alive(now);
        }
        Ok(())
    }

    /// Ends the session.
    pub(crate) fn end(&mut self, notification: Notification) -> EndReason {
        notification.encode(&mut self.to_send);
        EndReason::Sent(notification)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::tests::update;

    const LOCAL: SpeakerIdentity =
        SpeakerIdentity { own_as: 65001, peer_as: 65002, identifier: 1, hold_time: 90 };
    const OPEN: Open = Open { my_as: 65002, hold_time: 30, identifier: 2, has_flowspec: [true; 2] };

    fn message(encode: impl Fn(&mut Vec<u8>)) -> Vec<u8> {
        let mut bytes = Vec::new();
        encode(&mut bytes);
        bytes
    }

    fn sent(session: &mut Session) -> Vec<Message> {
        let bytes = std::mem::take(&mut session.to_send);
        let (mut at, mut messages) = (0, Vec::new());
        while let Some((message, length)) = message::decode(&bytes[at..]).expect("a message") {
            messages.push(message);
            at += length;
        }
        assert_eq!(at, bytes.len());
        messages
    }

    fn established(now: Instant) -> Session {
        let mut session = Session::new(LOCAL, now);
        let mut bytes = message(|to| OPEN.encode(to));
        message::append_keepalive(&mut bytes);
        // A byte at a time.
        for byte in bytes {
            session.receive(&[byte], now, |_| panic!("an update")).expect("no error");
        }
        assert!(session.is_established());
        session
    }

    #[test]
    fn session_is_established_by_open_and_keepalive() {
        let now = Instant::now();
        let mut session = established(now);
        let own = Open { my_as: 65001, hold_time: 90, identifier: 1, has_flowspec: [true; 2] };
        assert_eq!(sent(&mut session), [Message::Open(own), Message::Keepalive]);
        let mut bytes = update(&[(14, &[0, 1, 133, 0, 0, 3, 3, 0x81, 6])]);
        bytes.extend(update(&[(15, &[0, 1, 133, 3, 3, 0x81, 6])]));
        let mut count = [0; 2];
        let applied = session.receive(&bytes, now, |update| {
            count = [count[0] + update.announced.len(), count[1] + update.withdrawn.len()];
            Ok(())
        });
        assert_eq!((applied, count), (Ok(()), [1, 1]));
    }

    #[test]
    fn keepalives_follow_the_lesser_hold_time_and_silence_ends_the_session() {
        let begin = Instant::now();
        let mut session = established(begin);
        sent(&mut session);
        for second in 1..30 {
            session.tick(begin + Duration::from_secs(second)).expect("no error");
        }
        assert_eq!(sent(&mut session), [Message::Keepalive, Message::Keepalive]);
        let end = session.tick(begin + Duration::from_secs(30));
        assert_eq!(end, Err(EndReason::Sent(Notification::HOLD_TIMER_EXPIRED)));
        assert_eq!(sent(&mut session), [Message::Notification(Notification::HOLD_TIMER_EXPIRED)]);
    }

    #[test]
    fn bad_open_has_its_notification() {
        let now = Instant::now();
        for (open, expected) in [
            (Open { my_as: 65003, ..OPEN }, Notification::BAD_PEER_AS),
            (Open { identifier: 0, ..OPEN }, Notification::BAD_IDENTIFIER),
            (Open { hold_time: 2, ..OPEN }, Notification::BAD_HOLD_TIME),
            (Open { has_flowspec: [false; 2], ..OPEN }, Notification::UNSUPPORTED_CAPABILITY),
        ] {
            let mut session = Session::new(LOCAL, now);
            sent(&mut session);
            let end = session.receive(&message(|to| open.encode(to)), now, |_| Ok(()));
            assert_eq!(end, Err(EndReason::Sent(expected)));
            assert_eq!(sent(&mut session), [Message::Notification(expected)]);
        }
        let mut internal = Session::new(SpeakerIdentity { peer_as: 65001, ..LOCAL }, now);
        let own = Open { my_as: 65001, identifier: 1, ..OPEN };
        let end = internal.receive(&message(|to| own.encode(to)), now, |_| Ok(()));
        assert_eq!(end, Err(EndReason::Sent(Notification::BAD_IDENTIFIER)));
    }

    #[test]
    fn message_out_of_turn_ends_the_session() {
        let now = Instant::now();
        let end = |mut session: Session, bytes: &[u8]| session.receive(bytes, now, |_| Ok(()));
        let unexpected = Err(EndReason::Sent(Notification::UNEXPECTED));
        let fresh = || Session::new(LOCAL, now);
        assert_eq!(end(fresh(), &message(message::append_keepalive)), unexpected);
        assert_eq!(end(fresh(), &update(&[])), unexpected);
        assert_eq!(end(established(now), &message(|to| OPEN.encode(to))), unexpected);
        let cease = message(|to| Notification::SHUTDOWN.encode(to));
        let received = Err(EndReason::Received(Notification::SHUTDOWN));
        assert_eq!(end(fresh(), &cease), received);
        assert_eq!(end(established(now), &cease), received);
        let full = |_| Err(Notification::OUT_OF_RESOURCES);
        let refused = established(now).receive(&update(&[]), now, full);
        assert_eq!(refused, Err(EndReason::Sent(Notification::OUT_OF_RESOURCES)));
    }
}
