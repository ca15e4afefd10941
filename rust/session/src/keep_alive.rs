//! Keep Alive: how long a client may be silent.

use std::time::{Duration, Instant};

/// The agreed interval and the last packet of the client; any packet counts (abuse C29).
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct KeepAlive {
    pub(crate) interval_s: u16,
    pub(crate) last_packet: Option<Instant>,
}

impl KeepAlive {
    /// When the client counts as gone: one and a half intervals after its last packet
    /// [MQTT-3.1.2-22]; never at interval 0.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        let silence = Duration::from_millis(u64::from(self.interval_s) * 1_500);
        self.last_packet
            .filter(|_| self.interval_s > 0)
            .map(|last_packet| last_packet + silence)
    }
}
