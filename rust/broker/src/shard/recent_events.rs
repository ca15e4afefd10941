//! Recent events of a shard's clients, in bounded memory, for explanations after the fact (ADR 0057).

use std::collections::VecDeque;
use std::num::NonZeroU8;
use std::sync::Arc;
use std::time::{Duration, Instant};

use mqttcore_codec::ReasonCode;

use crate::config::plugin_event::EventKind;

/// Bytes of the events of all shards together: about 10,000 events.
const RECENT_BYTES: usize = 768 << 10;
/// The queue grows by an eighth; by itself it would double its memory.
const GROWTH: usize = 8;
/// What the allocator takes for a block besides its bytes, on average.
const BLOCK_BYTES: usize = 16;
/// A longer topic is not kept.
const TOPIC_BYTES: usize = 1_024;

/// The kind of an event.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum RecentKind {
    /// An event of a client.
    Client(EventKind),
    /// A publish of a client was refused: none or not all of the subscribers got the message.
    Refused,
}

impl RecentKind {
    /// The kind as a word for programs.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Refused => "publish_refused",
            Self::Client(kind) => kind.name(),
        }
    }
}

/// An event that just happened.
#[derive(Clone, Copy)]
pub(crate) struct NewEvent<'a> {
    pub(crate) kind: RecentKind,
    pub(crate) client_id: &'a Arc<str>,
    /// Topic or filter.
    pub(crate) topic: Option<&'a str>,
    /// The reason, for people.
    pub(crate) why: Option<&'static str>,
    pub(crate) reason: Option<ReasonCode>,
}

impl NewEvent<'_> {
    /// Kind and reason.
    pub(crate) fn text(&self) -> String {
        let kind = self.kind.name();
        self.why
            .map_or_else(|| kind.to_owned(), |why| format!("{kind}: {why}"))
    }
}

/// An event, or several equal ones without another in between.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RecentEvent<'a> {
    pub(crate) first: Instant,
    pub(crate) last: Instant,
    pub(crate) count: u64,
    pub(crate) kind: RecentKind,
    pub(crate) client_id: &'a Arc<str>,
    pub(crate) topic: Option<&'a str>,
    pub(crate) why: Option<&'static str>,
    pub(crate) reason: Option<ReasonCode>,
}

/// An event as it is kept: 56 bytes.
#[derive(Debug)]
struct KeptEvent {
    /// Nanoseconds since [`RecentEvents::start`].
    first: u64,
    /// Most events have no equal one behind them.
    repeats: Option<Box<Repeats>>,
    client_id: Arc<str>,
    topic: Option<Box<str>>,
    /// Index in [`RecentEvents::whys`].
    why: Option<NonZeroU8>,
    kind: RecentKind,
    reason: Option<ReasonCode>,
}

/// The last one of several equal events, and their number.
#[derive(Debug)]
struct Repeats {
    last: Instant,
    count: u64,
}

impl KeptEvent {
    fn count(&self) -> u64 {
        self.repeats.as_ref().map_or(1, |repeats| repeats.count)
    }

    fn bytes(&self) -> usize {
        let topic = self.topic.as_ref();
        let repeats = self.repeats.as_ref();
        size_of::<Self>() * (GROWTH + 1) / GROWTH
            + self.client_id.len()
            + topic.map_or(0, |topic| topic.len() + BLOCK_BYTES)
            + repeats.map_or(0, |_| size_of::<Repeats>() + BLOCK_BYTES)
    }
}

impl RecentEvent<'_> {
    fn is_same(&self, new: NewEvent<'_>) -> bool {
        self.kind == new.kind
            && self.client_id == new.client_id
            && self.topic == kept_topic(new)
            && (self.why, self.reason) == (new.why, new.reason)
    }
}

fn kept_topic(new: NewEvent<'_>) -> Option<&str> {
    new.topic.filter(|topic| topic.len() <= TOPIC_BYTES)
}

/// A position between the events of a shard.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct EventPosition {
    /// Events before it.
    events: u64,
    /// How often the last one of them had happened.
    count: u64,
}

/// The latest events of a shard. Without events it uses no memory.
#[derive(Debug)]
pub(crate) struct RecentEvents {
    events: VecDeque<KeptEvent>,
    bytes: usize,
    /// Events so far; equal ones in a row count once.
    recorded: u64,
    /// When the shard was started.
    start: Instant,
    /// The reasons of all events so far: texts of the program, so they are few.
    whys: Vec<&'static str>,
    /// When the newest event happened that had to make room.
    lost_until: Option<Instant>,
}

impl RecentEvents {
    pub(crate) fn new(start: Instant) -> Self {
        Self {
            events: VecDeque::new(),
            bytes: 0,
            recorded: 0,
            start,
            whys: Vec::new(),
            lost_until: None,
        }
    }

    /// Adds an event, and removes the oldest ones beyond this shard's share of the memory.
    pub(crate) fn record(&mut self, now: Instant, new: NewEvent<'_>, shards: usize) {
        let newest = self.events.back().map(|newest| self.view(newest));
        if newest.is_some_and(|newest| newest.is_same(new)) {
            self.repeat(now);
        } else {
            self.push(now, new);
        }
        while self.bytes > RECENT_BYTES / shards.max(1)
            && let Some(oldest) = self.events.pop_front()
        {
            self.bytes -= oldest.bytes();
            self.lost_until = Some(self.view(&oldest).last);
        }
    }

    /// Counts the newest event once more.
    fn repeat(&mut self, now: Instant) {
        let Some(newest) = self.events.back_mut() else {
            return;
        };
        let (before, count) = (newest.bytes(), newest.count() + 1);
        match &mut newest.repeats {
            Some(repeats) => **repeats = Repeats { last: now, count },
            none => *none = Some(Box::new(Repeats { last: now, count })),
        }
        self.bytes += newest.bytes() - before;
    }

    fn push(&mut self, now: Instant, new: NewEvent<'_>) {
        let since_start = now.saturating_duration_since(self.start).as_nanos();
        let event = KeptEvent {
            first: u64::try_from(since_start).unwrap_or(u64::MAX),
            repeats: None,
            client_id: Arc::clone(new.client_id),
            topic: kept_topic(new).map(Box::from),
            why: new.why.and_then(|why| self.index_of(why)),
            kind: new.kind,
            reason: new.reason,
        };
        self.bytes += event.bytes();
        self.recorded += 1;
        if self.events.len() == self.events.capacity() {
            self.events
                .reserve_exact(16.max(self.events.len() / GROWTH));
        }
        self.events.push_back(event);
    }

    /// The index of a reason, from 1; `None` if there are too many.
    fn index_of(&mut self, why: &'static str) -> Option<NonZeroU8> {
        let known = self.whys.iter().position(|known| *known == why);
        let index = known.unwrap_or(self.whys.len());
        let place = u8::try_from(index + 1).ok().and_then(NonZeroU8::new)?;
        if known.is_none() {
            self.whys.push(why);
        }
        Some(place)
    }

    fn view<'a>(&self, event: &'a KeptEvent) -> RecentEvent<'a> {
        let first = self.start + Duration::from_nanos(event.first);
        let why = event.why.map(|place| usize::from(place.get()) - 1);
        RecentEvent {
            first,
            last: event.repeats.as_ref().map_or(first, |repeats| repeats.last),
            count: event.count(),
            kind: event.kind,
            client_id: &event.client_id,
            topic: event.topic.as_deref(),
            why: why.and_then(|index| self.whys.get(index).copied()),
            reason: event.reason,
        }
    }

    /// The events, the newest first.
    pub(crate) fn newest_first(&self) -> impl Iterator<Item = RecentEvent<'_>> {
        self.events.iter().rev().map(|event| self.view(event))
    }

    /// The position behind the newest event.
    pub(crate) fn position(&self) -> EventPosition {
        EventPosition {
            events: self.recorded,
            count: self.events.back().map_or(0, KeptEvent::count),
        }
    }

    /// The newest events after `position`, the oldest first, at most `limit`; and the number of other events after
    /// it. If the event at `position` has occurred again since, it is among them, with the increase of its count.
    pub(crate) fn since(
        &self,
        position: EventPosition,
        limit: usize,
    ) -> (Vec<RecentEvent<'_>>, u64) {
        let first = self.recorded - self.events.len() as u64;
        let again = self.grown(position);
        let from = position.events.max(first);
        let skipped = usize::try_from(from - first).unwrap_or(usize::MAX);
        let newer = self.events.len().saturating_sub(skipped);
        let left_out = (from - position.events) + newer.saturating_sub(limit) as u64;
        let newest = self
            .events
            .iter()
            .skip(skipped + newer.saturating_sub(limit));
        let newest = newest.map(|event| self.view(event));
        let events = again.into_iter().chain(newest);
        (events.collect(), left_out)
    }

    /// The event at `position` with the increase of its count, if it has occurred again.
    fn grown(&self, position: EventPosition) -> Option<RecentEvent<'_>> {
        let first = self.recorded - self.events.len() as u64;
        let place = position.events.checked_sub(first + 1)?;
        let event = self.events.get(usize::try_from(place).ok()?)?;
        let count = event.count().checked_sub(position.count)?;
        let event = self.view(event);
        (count > 0).then_some(RecentEvent { count, ..event })
    }

    /// The time up to which events were removed; `None`: all are here.
    pub(crate) fn lost_until(&self) -> Option<Instant> {
        self.lost_until
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event<'a>(client_id: &'a Arc<str>, topic: &'a str) -> NewEvent<'a> {
        NewEvent {
            kind: RecentKind::Client(EventKind::Dropped),
            client_id,
            topic: Some(topic),
            why: Some("its queue is full"),
            reason: None,
        }
    }

    #[test]
    fn equal_events_in_a_row_are_one_with_a_count() {
        let start = Instant::now();
        let mut events = RecentEvents::new(start);
        let client: Arc<str> = "c".into();
        let at = |second| start + Duration::from_secs(second);

        for (second, topic) in [(0, "a"), (1, "a"), (2, "b"), (3, "a")] {
            events.record(at(second), event(&client, topic), 1);
        }

        let seen: Vec<_> = events
            .newest_first()
            .map(|event| (event.topic, event.count, event.first, event.last))
            .collect();
        let expected = [
            (Some("a"), 1, at(3), at(3)),
            (Some("b"), 1, at(2), at(2)),
            (Some("a"), 2, at(0), at(1)),
        ];
        assert_eq!(seen, expected);
        assert_eq!(events.lost_until(), None);
    }

    #[test]
    fn the_oldest_events_make_room_within_the_share_of_the_shard() {
        let start = Instant::now();
        let mut events = RecentEvents::new(start);
        let client: Arc<str> = "c".into();
        let count = 100_000;

        for number in 0..count {
            let now = start + Duration::from_millis(number);
            events.record(now, event(&client, &format!("topic/{number}")), 4);
        }

        let heap = events.events.capacity() * size_of::<KeptEvent>();
        let topics: usize = events
            .events
            .iter()
            .filter_map(|event| Some(event.topic.as_ref()?.len() + BLOCK_BYTES))
            .sum();
        assert!(heap + topics <= RECENT_BYTES / 4, "{heap} + {topics}");
        assert!(events.events.len() > 1_000);
        let newest = events.newest_first().next().expect("the newest");
        assert_eq!(newest.topic, Some("topic/99999"));
        let oldest = events.newest_first().last().expect("the oldest");
        assert!(events.lost_until().is_some_and(|lost| lost < oldest.first));
    }

    #[test]
    fn events_behind_a_position_are_told_once_with_what_counts_have_grown() {
        let now = Instant::now();
        let mut events = RecentEvents::new(now);
        let client: Arc<str> = "c".into();
        let mut position = events.position();
        let mut told = |events: &RecentEvents, limit| {
            let (newer, left_out) = events.since(position, limit);
            position = events.position();
            let newer = newer.into_iter();
            let newer =
                newer.map(|event| (event.topic.unwrap_or_default().to_owned(), event.count));
            (newer.collect::<Vec<_>>(), left_out)
        };
        let record = |events: &mut RecentEvents, topics: &[&str]| {
            for topic in topics {
                events.record(now, event(&client, topic), 1);
            }
        };

        assert_eq!(told(&events, 9), (vec![], 0));
        record(&mut events, &["a", "a", "b"]);
        assert_eq!(
            told(&events, 9),
            (vec![("a".into(), 2), ("b".into(), 1)], 0)
        );
        assert_eq!(told(&events, 9), (vec![], 0));
        record(&mut events, &["b", "b", "c"]);
        assert_eq!(
            told(&events, 9),
            (vec![("b".into(), 2), ("c".into(), 1)], 0)
        );
        record(&mut events, &["d", "e", "f"]);
        assert_eq!(
            told(&events, 2),
            (vec![("e".into(), 1), ("f".into(), 1)], 1)
        );
        let many: Vec<_> = (0..100_000).map(|number| number.to_string()).collect();
        let many: Vec<_> = many.iter().map(String::as_str).collect();
        record(&mut events, &many);
        let (newer, left_out) = told(&events, 1);
        assert_eq!((newer.len(), left_out), (1, 99_999));
    }

    #[test]
    fn a_long_topic_is_not_kept() {
        let mut events = RecentEvents::new(Instant::now());
        let (client, topic): (Arc<str>, _) = ("c".into(), "t".repeat(TOPIC_BYTES + 1));

        events.record(Instant::now(), event(&client, &topic), 1);

        assert_eq!(events.newest_first().next().expect("one").topic, None);
    }
}
