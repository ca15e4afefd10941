//! Deadlines of a session: keep-alive, will delay, session expiry.

use std::time::{Duration, Instant};

use mqttcore_codec::ReasonCode;

use crate::event::SessionEvent;
use crate::session::{LinkState, Session};
use crate::violation::Violation;

/// How long a session outlives its connection.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Expiry {
    /// The session ended with its connection; the caller removes it.
    Now,
    /// The session ends at this time, unless the client reconnects.
    At(Instant),
    /// The session never expires.
    Never,
}

/// Session Expiry Interval of a session that never expires.
const FOR_EVER_S: u32 = u32::MAX;

impl Expiry {
    /// Expiry `interval_s` seconds after `now`; never if the clock cannot represent that time.
    pub(crate) fn after(now: Instant, interval_s: u32) -> Self {
        match interval_s {
            0 => Self::Now,
            FOR_EVER_S => Self::Never,
            seconds => later(now, seconds).map_or(Self::Never, Self::At),
        }
    }
}

impl Session {
    /// The earliest time at which [`Session::handle_timeout`] has something to do.
    pub fn poll_timeout(&self) -> Option<Instant> {
        if self.is_connected() {
            return self.silence_deadline();
        }
        match (self.will_deadline(), self.expiry_deadline()) {
            (Some(will), Some(expiry)) => Some(will.min(expiry)),
            (will, expiry) => will.or(expiry),
        }
    }

    /// Handles the deadlines that have passed at `now`.
    ///
    /// Without a connection, a delayed will and the end of the session are reported as events.
    ///
    /// # Errors
    ///
    /// The Keep Alive timeout has passed [MQTT-3.1.2-22]: disconnect with the violation's reason, detach for
    /// [`Cause::KeepAliveTimeout`](crate::Cause::KeepAliveTimeout) and close.
    pub fn handle_timeout(&mut self, now: Instant) -> Result<(), Violation> {
        if self.is_connected() {
            return if is_due(self.silence_deadline(), now) {
                Err(SILENT_CLIENT)
            } else {
                Ok(())
            };
        }
        let has_ended = is_due(self.expiry_deadline(), now);
        if (has_ended || is_due(self.will_deadline(), now))
            && let Some(will) = self.take_will(now)
        {
            self.live.events.push_back(SessionEvent::WillDue(will));
        }
        if has_ended {
            self.state = LinkState::Ended;
            self.live.events.push_back(SessionEvent::Expired);
        }
        Ok(())
    }

    /// Restarts the Keep Alive timeout of a connected client, because the engine does not read from it for a while.
    pub fn restart_keep_alive(&mut self, now: Instant) {
        if self.is_connected() {
            self.since = Some(now);
        }
    }

    /// When the last packet of a connected client was handled; `None` if it is offline.
    pub fn last_packet_at(&self) -> Option<Instant> {
        self.since.filter(|_| self.is_connected())
    }

    /// When the delay of a waiting will ends.
    pub(crate) fn will_deadline(&self) -> Option<Instant> {
        let will = self.live.rare.will.as_ref()?;
        later(self.since?, will.delay_s)
    }

    /// When the session ends, if its client stays offline; `None`: it does not expire, or the client is connected.
    pub fn expires_at(&self) -> Option<Instant> {
        self.away_since()?;
        self.expiry_deadline()
    }

    /// When a session without a connection ends.
    fn expiry_deadline(&self) -> Option<Instant> {
        if self.state == LinkState::Ended {
            return None;
        }
        let since = self.since?;
        match Expiry::after(since, self.expiry_interval_s) {
            // A restored session: the caller has removed every other session that ends with its connection.
            Expiry::Now => Some(since),
            Expiry::At(instant) => Some(instant),
            Expiry::Never => None,
        }
    }

    /// When the Keep Alive of a connected client times out: one and a half times Keep Alive after its last packet of
    /// any type (abuse C29); never if Keep Alive is disabled.
    fn silence_deadline(&self) -> Option<Instant> {
        let silence = Duration::from_millis(u64::from(self.live.link.keep_alive_s) * 1_500);
        let since = self.since.filter(|_| !silence.is_zero());
        since.map(|last_packet| last_packet + silence)
    }
}

fn later(instant: Instant, seconds: u32) -> Option<Instant> {
    instant.checked_add(Duration::from_secs(u64::from(seconds)))
}

pub(crate) fn is_due(deadline: Option<Instant>, now: Instant) -> bool {
    deadline.is_some_and(|deadline| deadline <= now)
}

const SILENT_CLIENT: Violation = Violation::protocol(
    ReasonCode::KEEP_ALIVE_TIMEOUT,
    "MQTT-3.1.2-22",
    "no packet within 1.5 times the Keep Alive",
);
