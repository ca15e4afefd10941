//! Recent events of a shard's clients, in bounded memory, for explanations after the fact (ADR 0057).

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

use mqttcore_codec::ReasonCode;

use crate::config::plugin_event::EventKind;

/// Bytes of the events of all shards together.
const RECENT_BYTES: usize = 2 << 20;
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
#[derive(Clone, Debug)]
pub(crate) struct RecentEvent {
    pub(crate) first: Instant,
    pub(crate) last: Instant,
    pub(crate) count: u64,
    pub(crate) kind: RecentKind,
    pub(crate) client_id: Arc<str>,
    pub(crate) topic: Option<Box<str>>,
    pub(crate) why: Option<&'static str>,
    pub(crate) reason: Option<ReasonCode>,
}

impl RecentEvent {
    fn new(now: Instant, new: NewEvent<'_>) -> Self {
        Self {
            first: now,
            last: now,
            count: 1,
            kind: new.kind,
            client_id: Arc::clone(new.client_id),
            topic: kept_topic(new).map(Box::from),
            why: new.why,
            reason: new.reason,
        }
    }

    fn is_same(&self, new: NewEvent<'_>) -> bool {
        self.kind == new.kind
            && self.client_id == *new.client_id
            && self.topic.as_deref() == kept_topic(new)
            && (self.why, self.reason) == (new.why, new.reason)
    }

    /// The place in the queue counts twice, since a queue grows to twice its length.
    fn bytes(&self) -> usize {
        let topic = self.topic.as_ref().map_or(0, |topic| topic.len());
        2 * size_of::<Self>() + self.client_id.len() + topic
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
#[derive(Debug, Default)]
pub(crate) struct RecentEvents {
    events: VecDeque<RecentEvent>,
    bytes: usize,
    /// Events so far; equal ones in a row count once.
    recorded: u64,
    /// When the newest event happened that had to make room.
    lost_until: Option<Instant>,
}

impl RecentEvents {
    /// Adds an event, and removes the oldest ones beyond this shard's share of the memory.
    pub(crate) fn record(&mut self, now: Instant, new: NewEvent<'_>, shards: usize) {
        if let Some(newest) = self.events.back_mut().filter(|newest| newest.is_same(new)) {
            (newest.last, newest.count) = (now, newest.count + 1);
            return;
        }
        let event = RecentEvent::new(now, new);
        self.bytes += event.bytes();
        self.recorded += 1;
        self.events.push_back(event);
        while self.bytes > RECENT_BYTES / shards.max(1)
            && let Some(oldest) = self.events.pop_front()
        {
            self.bytes -= oldest.bytes();
            self.lost_until = Some(oldest.last);
        }
    }

    /// The events, the newest first.
    pub(crate) fn newest_first(&self) -> impl Iterator<Item = &RecentEvent> {
        self.events.iter().rev()
    }

    /// The position behind the newest event.
    pub(crate) fn position(&self) -> EventPosition {
        EventPosition {
            events: self.recorded,
            count: self.events.back().map_or(0, |newest| newest.count),
        }
    }

    /// The newest events after `position`, the oldest first, at most `limit`; and the number of other events after
    /// it. If the event at `position` has occurred again since, it is among them, with the increase of its count.
    pub(crate) fn since(&self, position: EventPosition, limit: usize) -> (Vec<RecentEvent>, u64) {
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
        let events = again.into_iter().chain(newest.cloned());
        (events.collect(), left_out)
    }

    /// The event at `position` with the increase of its count, if it has occurred again.
    fn grown(&self, position: EventPosition) -> Option<RecentEvent> {
        let first = self.recorded - self.events.len() as u64;
        let place = position.events.checked_sub(first + 1)?;
        let event = self.events.get(usize::try_from(place).ok()?)?;
        let count = event.count.checked_sub(position.count)?;
        (count > 0).then(|| RecentEvent {
            count,
            ..event.clone()
        })
    }

    /// The time up to which events were removed; `None`: all are here.
    pub(crate) fn lost_until(&self) -> Option<Instant> {
        self.lost_until
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

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
        let (mut events, start) = (RecentEvents::default(), Instant::now());
        let client: Arc<str> = "c".into();
        let at = |second| start + Duration::from_secs(second);

        for (second, topic) in [(0, "a"), (1, "a"), (2, "b"), (3, "a")] {
            events.record(at(second), event(&client, topic), 1);
        }

        let seen: Vec<_> = events
            .newest_first()
            .map(|event| (event.topic.as_deref(), event.count, event.first, event.last))
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
        let (mut events, start) = (RecentEvents::default(), Instant::now());
        let client: Arc<str> = "c".into();
        let count = 100_000;

        for number in 0..count {
            let now = start + Duration::from_millis(number);
            events.record(now, event(&client, &format!("topic/{number}")), 4);
        }

        let heap = events.events.capacity() * size_of::<RecentEvent>();
        let topics: usize = events
            .events
            .iter()
            .filter_map(|event| Some(event.topic.as_ref()?.len()))
            .sum();
        assert!(heap + topics <= RECENT_BYTES / 4, "{heap} + {topics}");
        assert!(events.events.len() > 1_000);
        let newest = events.newest_first().next().expect("the newest");
        assert_eq!(newest.topic.as_deref(), Some("topic/99999"));
        let oldest = events.events.front().expect("the oldest");
        assert!(events.lost_until().is_some_and(|lost| lost < oldest.first));
    }

    #[test]
    fn events_behind_a_position_are_told_once_with_what_counts_have_grown() {
        let (mut events, now) = (RecentEvents::default(), Instant::now());
        let client: Arc<str> = "c".into();
        let mut position = events.position();
        let mut told = |events: &RecentEvents, limit| {
            let (newer, left_out) = events.since(position, limit);
            position = events.position();
            let newer = newer.into_iter();
            let newer = newer.map(|event| (event.topic.unwrap_or_default(), event.count));
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
        let mut events = RecentEvents::default();
        let (client, topic): (Arc<str>, _) = ("c".into(), "t".repeat(TOPIC_BYTES + 1));

        events.record(Instant::now(), event(&client, &topic), 1);

        assert_eq!(events.newest_first().next().expect("one").topic, None);
    }
}
