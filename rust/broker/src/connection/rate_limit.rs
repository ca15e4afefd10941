//! Rate limits of one client: messages, bytes and control packets a second that are read from it (abuse A16, D21, E12,
//! I11), and bytes a second of retained messages that are sent to it (abuse E16).
//!
//! A client above a limit is not read for a while, so that TCP slows it down; nothing is dropped. The limit of retained
//! messages delays only these: the client is read meanwhile.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use mqttcore_codec::ReasonCode;
use mqttcore_session::Violation;
use tokio::time::Sleep;

use crate::clients::client::Client;
use crate::config::{ClientRates, RateLimitKind};

/// How much a client may send at once, as time at its rate.
const BURST: Duration = Duration::from_secs(1);
/// How many retained messages it gets at once, as time at their rate.
const RETAINED_BURST: Duration = Duration::from_secs(4);
/// Number of consecutive seconds with too many control packets after which a client is disconnected.
const FLOOD_SECONDS: u32 = 5;
pub(crate) const FLOOD: Violation = Violation::limit(
    ReasonCode::MESSAGE_RATE_TOO_HIGH,
    "limit control_packets_per_second",
    "too many control packets a second",
);

/// Token buckets of one client, and the timer until the next token.
///
/// Times are nanoseconds since the first [`Self::grow`].
#[derive(Default)]
pub(crate) struct RateLimit {
    messages: Allowance,
    bytes: Allowance,
    /// End of a pause because of too many control packets.
    held_until: u64,
    /// The client has to wait before it is read, as of the last change.
    is_spent: bool,
    /// The time of the last refill.
    now: u64,
    epoch: Option<Instant>,
    /// When it was last refilled: a turn may read several times.
    seen: Option<Instant>,
    sleep: Option<Pin<Box<Sleep>>>,
}

/// A token bucket, as the time at which it will be full: a packet costs one addition, a refill one comparison.
#[derive(Default)]
struct Allowance {
    /// 0 is no limit.
    per_token: u64,
    /// How far `full_at` may be in the future while there is a token.
    slack: u64,
    full_at: u64,
    /// The same as a time, as of the last refill.
    latest: u64,
}

impl Allowance {
    /// No limit if `per_second` is 0.
    fn new(per_second: u32, burst: Duration) -> Self {
        let Some(per_token) = Duration::from_secs(1).checked_div(per_second) else {
            return Self::default();
        };
        let (per_token, burst) = (nanoseconds(per_token), nanoseconds(burst));
        let slack = burst - per_token;
        Self {
            per_token,
            slack,
            full_at: 0,
            latest: slack,
        }
    }

    /// The same with the tokens that were spent `before`, as of `now`.
    fn after(mut self, before: &Self, now: u64) -> Self {
        if self.is_limited() {
            self.full_at = before.full_at;
            self.latest = now.saturating_add(self.slack);
        }
        self
    }

    fn is_limited(&self) -> bool {
        self.per_token > 0
    }

    fn spend(&mut self, nanoseconds: u64) {
        self.full_at = self.full_at.saturating_add(nanoseconds);
    }

    fn refill(&mut self, now: u64) {
        self.full_at = self.full_at.max(now);
        self.latest = now.saturating_add(self.slack);
    }

    fn is_spent(&self) -> bool {
        self.full_at > self.latest
    }

    /// How often a token may be spent until there is none.
    fn left(&self) -> u32 {
        let rest = self.latest.saturating_sub(self.full_at);
        let count = rest.checked_div(self.per_token).map(|count| count + 1);
        u32::try_from(count.unwrap_or(u64::MAX)).unwrap_or(u32::MAX)
    }

    /// When there is a token.
    fn ready_at(&self) -> u64 {
        self.full_at - self.slack.min(self.full_at)
    }
}

fn nanoseconds(time: Duration) -> u64 {
    let seconds = time.as_secs().saturating_mul(1_000_000_000);
    seconds.saturating_add(u64::from(time.subsec_nanos()))
}

impl RateLimit {
    /// The rate limits of `client`; `None` if it has none. Tokens that were spent `before` stay spent.
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

    /// The rate limit of retained messages for one connection, in bytes (abuse E16). It does not limit reads from the
    /// client.
    pub(crate) fn of_retained(bytes_per_second: u32) -> Self {
        Self {
            bytes: Allowance::new(bytes_per_second, RETAINED_BURST),
            ..Self::default()
        }
    }

    /// The same with other rates; `None` if there is no limit and no pause.
    fn limited_to(mut self: Box<Self>, messages: u32, bytes: u32) -> Option<Box<Self>> {
        self.messages = Allowance::new(messages, BURST).after(&self.messages, self.now);
        self.bytes = Allowance::new(bytes, BURST).after(&self.bytes, self.now);
        // The timer is for the old rates.
        self.sleep = None;
        self.look();
        let is_limited = self.messages.is_limited() || self.bytes.is_limited();
        (is_limited || self.held_until > self.now).then_some(self)
    }

    /// Number of messages until the client has to wait, as of the last [`Self::spend_bytes`].
    pub(crate) fn messages_left(&self) -> u32 {
        if self.is_spent {
            return 0;
        }
        self.messages.left()
    }

    /// Spends the tokens of `count` messages.
    pub(crate) fn spend_messages(&mut self, count: u32) {
        let tokens = self.messages.per_token.saturating_mul(count.into());
        self.messages.spend(tokens);
        self.is_spent |= self.messages.is_spent();
    }

    /// Spends the tokens of `count` bytes, and looks at the time for the messages among them.
    pub(crate) fn spend_bytes(&mut self, now: Instant, count: usize) {
        self.grow(now);
        let count = u64::try_from(count).unwrap_or(u64::MAX);
        self.bytes.spend(self.bytes.per_token.saturating_mul(count));
        self.is_spent |= self.bytes.is_spent();
    }

    /// Pauses reading until `until`.
    fn hold(&mut self, now: Instant, until: Instant) {
        self.grow(now);
        self.held_until = self.time(until);
        self.look();
    }

    /// Whether the client has to wait before it is read, as of the last [`Self::poll_ready`].
    pub(crate) fn is_spent(&self) -> bool {
        self.is_spent
    }

    /// Computes whether the client has to wait.
    fn look(&mut self) {
        let is_held = self.held_until > self.now;
        self.is_spent = is_held | self.messages.is_spent() | self.bytes.is_spent();
    }

    fn time(&mut self, at: Instant) -> u64 {
        let epoch = *self.epoch.get_or_insert(at);
        nanoseconds(at.saturating_duration_since(epoch))
    }

    /// Refills the token buckets up to `now`.
    fn grow(&mut self, now: Instant) {
        if self.seen.replace(now) == Some(now) {
            return;
        }
        let now = self.time(now);
        if now > self.now {
            self.refill(now);
        }
    }

    fn refill(&mut self, now: u64) {
        self.now = now;
        self.messages.refill(now);
        self.bytes.refill(now);
        self.look();
    }

    /// When there are tokens again; `None` if there are some now.
    fn ready_at(&self) -> Option<Instant> {
        if !self.is_spent {
            return None;
        }
        let (at, _) = self.longest_wait();
        Some(self.epoch? + Duration::from_nanos(at))
    }

    /// The end of the longest wait, and the limit that it is for.
    fn longest_wait(&self) -> (u64, RateLimitKind) {
        let spent = [
            (&self.messages, RateLimitKind::Messages),
            (&self.bytes, RateLimitKind::Bytes),
        ];
        let spent = spent
            .into_iter()
            .filter(|(allowance, _)| allowance.is_spent());
        let pause = (self.held_until, RateLimitKind::ControlPackets);
        spent
            .map(|(allowance, kind)| (allowance.ready_at(), kind))
            .fold(
                pause,
                |longest, wait| if wait.0 > longest.0 { wait } else { longest },
            )
    }

    /// The limit because of which the client waits; `None` if it does not wait, as of the last [`Self::poll_ready`].
    pub(crate) fn waits_for(&self) -> Option<RateLimitKind> {
        self.sleep.as_ref()?;
        Some(self.longest_wait().1)
    }

    /// Pending until there are tokens. Call it only if it [`is_spent`](Self::is_spent).
    #[cold]
    pub(crate) fn poll_ready(&mut self, cx: &mut Context<'_>, now: Instant) -> Poll<()> {
        self.grow(now);
        let Some(ready_at) = self.ready_at() else {
            self.sleep = None;
            return Poll::Ready(());
        };
        let sleep = self
            .sleep
            .get_or_insert_with(|| Box::pin(tokio::time::sleep_until(ready_at.into())));
        if sleep.as_mut().poll(cx).is_pending() {
            return Poll::Pending;
        }
        self.sleep = None;
        self.grow(ready_at);
        Poll::Ready(())
    }
}

/// Control packets of one client, counted for each second since its CONNACK.
pub(crate) struct ControlPackets {
    per_second: u32,
    second: u32,
    count: u32,
    /// Number of consecutive seconds with too many.
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

    /// Counts `more` control packets of a client that got its CONNACK at `connected_at`. If they are too many for this
    /// second, `throttle` pauses reading until the next.
    ///
    /// # Errors
    ///
    /// There were too many in each of [`FLOOD_SECONDS`] consecutive seconds.
    pub(crate) fn count(
        &mut self,
        more: u32,
        connected_at: impl FnOnce() -> Instant,
        now: Instant,
        throttle: &mut Option<Box<RateLimit>>,
    ) -> Result<(), Violation> {
        if more == 0 || self.per_second == 0 {
            return Ok(());
        }
        let connected_at = connected_at();
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

    /// Allowances of a client that was first looked at at `now`.
    fn throttle(messages: u32, bytes: u32, now: Instant) -> RateLimit {
        RateLimit {
            messages: Allowance::new(messages, BURST),
            bytes: Allowance::new(bytes, BURST),
            epoch: Some(now),
            ..RateLimit::default()
        }
    }

    #[test]
    fn one_seconds_worth_may_come_at_once_and_no_more() {
        let start = Instant::now();
        for rate in [1, 3, 10, 1_000] {
            let mut throttle = throttle(rate, 0, start);
            for now in [start, start + Duration::from_secs(3_600)] {
                throttle.grow(now);
                let mut passed = 0;
                assert_eq!(throttle.messages_left(), rate);
                while !throttle.is_spent() {
                    throttle.spend_messages(1);
                    passed += 1;
                }

                assert_eq!(passed, rate);
            }
        }
    }

    #[test]
    fn a_spent_allowance_has_one_message_when_its_part_of_a_second_is_over() {
        let now = Instant::now();
        let mut throttle = throttle(10, 0, now);
        (0..10).for_each(|_| throttle.spend_messages(1));
        let ready_at = now + Duration::from_millis(100);

        assert_eq!(throttle.ready_at(), Some(ready_at));
        throttle.grow(ready_at);
        assert!(!throttle.is_spent() && throttle.ready_at().is_none());
        throttle.grow(now);
        assert_eq!(throttle.now, 100_000_000, "time does not go back");
    }

    #[test]
    fn the_allowance_grows_with_time() {
        let now = Instant::now();
        let mut throttle = throttle(10, 0, now);
        (0..10).for_each(|_| throttle.spend_messages(1));

        assert!(throttle.is_spent());
        throttle.grow(now + Duration::from_secs(2));
        throttle.spend_messages(1);
        assert!(!throttle.is_spent());
    }

    #[test]
    fn a_large_read_is_paid_for_with_a_longer_wait() {
        let now = Instant::now();
        let mut throttle = throttle(0, 1_000, now);
        throttle.spend_bytes(now, 999);
        assert!(!throttle.is_spent());

        throttle.spend_bytes(now, 3_001);

        assert!(throttle.is_spent());
        let wait = throttle.ready_at().expect("a wait") - now;
        assert_eq!(wait.as_secs(), 3);
    }

    #[test]
    fn e16_retained_messages_of_four_seconds_come_at_once_and_more_of_them_wait() {
        let now = Instant::now();
        let mut throttle = RateLimit::of_retained(1_000);
        throttle.grow(now);
        throttle.spend_bytes(now, 3_999);
        assert!(!throttle.is_spent());

        throttle.spend_bytes(now, 3_001);

        let wait = throttle.ready_at().expect("a wait") - now;
        assert_eq!(wait.as_secs(), 3);
        assert!(!RateLimit::of_retained(0).is_spent(), "0 is no limit");
    }

    #[test]
    fn other_rates_forgive_nothing() {
        let now = Instant::now();
        let mut before = throttle(10, 1_000, now);
        (0..10).for_each(|_| before.spend_messages(1));
        before.spend_bytes(now, 3_000);

        let after = Box::new(before).limited_to(20, 0).expect("a limit");
        assert!(after.is_spent() && !after.bytes.is_limited());

        let mut held = after;
        held.hold(now, now + Duration::from_secs(1));
        let held = held.limited_to(0, 0).expect("it is held back");
        assert!(held.is_spent());
        assert!(Box::new(throttle(1, 1, now)).limited_to(0, 0).is_none());
    }

    #[test]
    fn the_longest_wait_counts() {
        let now = Instant::now();
        let mut throttle = throttle(1, 1_000, now);
        throttle.spend_messages(1);
        throttle.spend_bytes(now, 10_000);

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
                .count(*sent, || start, now, &mut throttle)
                .map_err(|violation| (second, violation))?;
            let wait = throttle.and_then(|throttle: Box<RateLimit>| throttle.ready_at());
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
        let counted = ControlPackets::new(0).count(u32::MAX, || now, now, &mut throttle);

        assert!(counted.is_ok() && throttle.is_none());
    }
}
