//! How fast one client is read: messages, bytes and control packets a second (abuse A16, D21, E12, I11), and how fast it
//! gets retained messages (abuse E16).
//!
//! A client that is too fast is not read for a while, so that its own socket holds it back. Nothing is thrown away.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use mqttcore_codec::ReasonCode;
use mqttcore_session::Violation;
use tokio::time::Sleep;

use crate::clients::client::Client;
use crate::config::ClientRates;
use crate::runtime::token_bucket::{Rate, TokenBucket};

/// How many seconds' worth a client may send at once.
const BURST: Duration = Duration::from_secs(1);
/// How many seconds' worth of retained messages it gets at once.
const RETAINED_BURST: Duration = Duration::from_secs(4);
/// After so many seconds in a row with too many control packets, a client is disconnected.
const FLOOD_SECONDS: u32 = 5;
const FLOOD: Violation = Violation::limit(
    ReasonCode::MESSAGE_RATE_TOO_HIGH,
    "limit control_packets_per_second",
    "too many control packets a second",
);

/// The allowances of one client, and the wait for the next.
#[derive(Default)]
pub(crate) struct Throttle {
    messages: Option<Allowance>,
    bytes: Option<Allowance>,
    /// Retained messages that it subscribed to; there with the first of them.
    retained: Option<Allowance>,
    /// It sent too many control packets, and is not read until then.
    held_until: Option<Instant>,
    now: Option<Instant>,
    sleep: Option<Pin<Box<Sleep>>>,
}

struct Allowance {
    rate: Rate,
    bucket: TokenBucket,
}

impl Allowance {
    /// `None` if `per_second` is 0: there is no limit. What was spent `before` is spent.
    fn new(per_second: u32, before: Option<Self>) -> Option<Self> {
        Some(Self {
            rate: Rate::new(per_second, BURST)?,
            bucket: before.map(|before| before.bucket).unwrap_or_default(),
        })
    }

    fn spend(&mut self, count: usize, now: Instant) {
        let count = u32::try_from(count).unwrap_or(u32::MAX);
        self.bucket.spend_many(self.rate, count, now);
    }

    fn ready_at(&self) -> Option<Instant> {
        self.bucket.ready_at(self.rate)
    }
}

impl Throttle {
    /// The allowances of `client`; `None` if nothing limits it. What it spent of its allowances `before` stays spent.
    pub(crate) fn new(
        rates: ClientRates,
        client: &Client,
        before: Option<Box<Self>>,
    ) -> Option<Box<Self>> {
        let configured = if client.is_user(None) {
            rates.anonymous_messages
        } else {
            rates.messages
        };
        let granted = client.access().grant.limits.messages_per_second;
        // A grant of 0 messages counts as 1: it is a limit.
        let messages = granted.map_or(configured, |rate| rate.max(1));
        before.unwrap_or_default().limited_to(messages, rates.bytes)
    }

    /// The same with other rates; `None` if nothing is limited, or held back.
    fn limited_to(mut self: Box<Self>, messages: u32, bytes: u32) -> Option<Box<Self>> {
        self.messages = Allowance::new(messages, self.messages.take());
        self.bytes = Allowance::new(bytes, self.bytes.take());
        // The wait for the old rates.
        self.sleep = None;
        let is_limited = self.messages.is_some() || self.bytes.is_some() || self.retained.is_some();
        (is_limited || self.held_until.is_some()).then_some(self)
    }

    /// Takes one message off the allowance.
    pub(crate) fn spend_message(&mut self, now: Instant) {
        self.now = Some(now);
        if let Some(messages) = &mut self.messages {
            messages.spend(1, now);
        }
    }

    /// Takes `count` bytes off the allowance.
    pub(crate) fn spend_bytes(&mut self, count: usize, now: Instant) {
        self.now = Some(now);
        if let Some(bytes) = &mut self.bytes {
            bytes.spend(count, now);
        }
    }

    /// Takes `count` bytes of retained messages off the allowance of `per_second`.
    pub(crate) fn spend_retained(&mut self, per_second: u32, count: usize, now: Instant) {
        self.now = Some(now);
        let Some(rate) = Rate::new(per_second, RETAINED_BURST) else {
            return;
        };
        let bucket = TokenBucket::default();
        let allowance = Allowance { rate, bucket };
        self.retained.get_or_insert(allowance).spend(count, now);
    }

    /// Nothing more is read until `until`.
    fn hold(&mut self, now: Instant, until: Instant) {
        self.now = Some(now);
        self.held_until = Some(until);
    }

    /// Whether the client has to wait before it is read.
    pub(crate) fn is_spent(&self) -> bool {
        self.wait().is_some()
    }

    /// Until when it is not read, if it is not read now.
    fn wait(&self) -> Option<Instant> {
        let now = self.now?;
        self.ready_at().filter(|ready_at| *ready_at > now)
    }

    /// When everything is allowed again; `None` if nothing was spent yet.
    fn ready_at(&self) -> Option<Instant> {
        let allowances = [&self.messages, &self.bytes, &self.retained]
            .into_iter()
            .flatten();
        allowances
            .filter_map(Allowance::ready_at)
            .chain(self.held_until)
            .max()
    }

    /// Pending until there is an allowance again.
    pub(crate) fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let Some(ready_at) = self.wait() else {
            return Poll::Ready(());
        };
        let sleep = self
            .sleep
            .get_or_insert_with(|| Box::pin(tokio::time::sleep_until(ready_at.into())));
        if sleep.as_mut().poll(cx).is_pending() {
            return Poll::Pending;
        }
        self.sleep = None;
        self.now = Some(ready_at);
        Poll::Ready(())
    }
}

/// The control packets of one client, counted by the second since its CONNACK.
pub(crate) struct ControlPackets {
    per_second: u32,
    second: u32,
    count: u32,
    /// Seconds in a row with too many.
    flooded: u32,
}

impl ControlPackets {
    /// At most `per_second`; 0 is no limit.
    pub(crate) fn new(per_second: u32) -> Self {
        Self {
            per_second,
            second: 0,
            count: 0,
            flooded: 0,
        }
    }

    /// Counts `more` control packets of a client that got its CONNACK at `connected_at`. If they are too many for this second,
    /// `throttle` holds it back until the next.
    ///
    /// # Errors
    ///
    /// They were too many for [`FLOOD_SECONDS`] in a row.
    pub(crate) fn count(
        &mut self,
        more: u32,
        connected_at: Instant,
        now: Instant,
        throttle: &mut Option<Box<Throttle>>,
    ) -> Result<(), Violation> {
        if more == 0 || self.per_second == 0 {
            return Ok(());
        }
        let seconds = now.saturating_duration_since(connected_at).as_secs();
        let second = u32::try_from(seconds).unwrap_or(u32::MAX);
        if second != self.second {
            let was_flood = self.count > self.per_second && second == self.second + 1;
            self.flooded = if was_flood { self.flooded } else { 0 };
            (self.second, self.count) = (second, 0);
        }
        let before = self.count;
        self.count = before.saturating_add(more);
        if self.count <= self.per_second {
            return Ok(());
        }
        if before <= self.per_second {
            self.flooded += 1;
        }
        if self.flooded == FLOOD_SECONDS {
            return Err(FLOOD);
        }
        let next_second = connected_at + Duration::from_secs(u64::from(second) + 1);
        throttle.get_or_insert_default().hold(now, next_second);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn throttle(messages: u32, bytes: u32) -> Throttle {
        Throttle {
            messages: Allowance::new(messages, None),
            bytes: Allowance::new(bytes, None),
            ..Throttle::default()
        }
    }

    #[test]
    fn one_seconds_worth_may_come_at_once_and_no_more() {
        let now = Instant::now();
        for rate in [1, 3, 10, 1_000] {
            let mut throttle = throttle(rate, 0);
            let mut passed = 0;
            while !throttle.is_spent() {
                throttle.spend_message(now);
                passed += 1;
            }

            assert_eq!(passed, rate);
        }
    }

    #[test]
    fn a_spent_allowance_has_one_message_when_its_part_of_a_second_is_over() {
        let now = Instant::now();
        let mut throttle = throttle(10, 0);
        (0..10).for_each(|_| throttle.spend_message(now));

        assert_eq!(throttle.ready_at(), Some(now + Duration::from_millis(100)));
    }

    #[test]
    fn the_allowance_grows_with_time() {
        let now = Instant::now();
        let mut throttle = throttle(10, 0);
        (0..10).for_each(|_| throttle.spend_message(now));

        assert!(throttle.is_spent());
        throttle.spend_message(now + Duration::from_secs(2));
        assert!(!throttle.is_spent());
    }

    #[test]
    fn a_large_read_is_paid_for_with_a_longer_wait() {
        let now = Instant::now();
        let mut throttle = throttle(0, 1_000);
        throttle.spend_bytes(999, now);
        assert!(!throttle.is_spent());

        throttle.spend_bytes(3_001, now);

        assert!(throttle.is_spent());
        let wait = throttle.ready_at().expect("a wait") - now;
        assert_eq!(wait.as_secs(), 3);
    }

    #[test]
    fn e16_retained_messages_of_four_seconds_come_at_once_and_more_of_them_wait() {
        let now = Instant::now();
        let mut throttle = Throttle::default();
        throttle.spend_retained(1_000, 3_999, now);
        assert!(!throttle.is_spent());

        throttle.spend_retained(1_000, 3_001, now);

        assert!(throttle.is_spent());
        let wait = throttle.ready_at().expect("a wait") - now;
        assert_eq!(wait.as_secs(), 3);
        let after = Box::new(throttle).limited_to(0, 0).expect("a limit");
        assert!(after.is_spent(), "other rates forgive nothing");
    }

    #[test]
    fn other_rates_forgive_nothing() {
        let now = Instant::now();
        let mut before = throttle(10, 1_000);
        (0..10).for_each(|_| before.spend_message(now));
        before.spend_bytes(3_000, now);

        let after = Box::new(before).limited_to(20, 0).expect("a limit");
        assert!(after.is_spent() && after.bytes.is_none());

        let mut held = after;
        held.hold(now, now + Duration::from_secs(1));
        let held = held.limited_to(0, 0).expect("it is held back");
        assert!(held.is_spent());
        assert!(Box::new(throttle(1, 1)).limited_to(0, 0).is_none());
    }

    #[test]
    fn the_longest_wait_counts() {
        let now = Instant::now();
        let mut throttle = throttle(1, 1_000);
        throttle.spend_message(now);
        throttle.spend_bytes(10_000, now);

        assert_eq!((throttle.ready_at().expect("a wait") - now).as_secs(), 9);
        throttle.hold(now, now + Duration::from_secs(20));
        assert_eq!((throttle.ready_at().expect("a wait") - now).as_secs(), 20);
    }

    /// How many control packets of each second are read before the client is held back or disconnected.
    fn flood(seconds: &[u32]) -> Result<(), (usize, Violation)> {
        let start = Instant::now();
        let mut packets = ControlPackets::new(5);
        for (second, sent) in seconds.iter().enumerate() {
            let now = start + Duration::from_millis(1_000 * second as u64 + 400);
            let mut throttle = None;
            packets
                .count(*sent, start, now, &mut throttle)
                .map_err(|violation| (second, violation))?;
            let wait = throttle.and_then(|throttle: Box<Throttle>| throttle.ready_at());
            let wanted = (*sent > 5).then(|| now + Duration::from_millis(600));
            assert_eq!(wait, wanted, "{sent} packets in second {second}");
        }
        Ok(())
    }

    #[test]
    fn too_many_control_packets_are_read_a_second_later() {
        assert_eq!(flood(&[5, 6, 5, 100, 0, 6]), Ok(()));
    }

    #[test]
    fn too_many_for_five_seconds_in_a_row_are_a_violation() {
        assert_eq!(flood(&[6; 4]), Ok(()));
        assert_eq!(flood(&[6; 12]), Err((4, FLOOD)));
        let mut with_a_pause = [6; 9];
        with_a_pause[4] = 0;
        assert_eq!(flood(&with_a_pause), Ok(()));
    }

    #[test]
    fn without_a_limit_nothing_is_counted() {
        let now = Instant::now();
        let mut throttle = None;
        let counted = ControlPackets::new(0).count(u32::MAX, now, now, &mut throttle);

        assert!(counted.is_ok() && throttle.is_none());
    }
}
