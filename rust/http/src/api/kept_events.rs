//! The latest events, for readers of `GET /events` that connect again (`Last-Event-ID`, ADR 0094).

use std::collections::VecDeque;
use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::str::FromStr;
use std::time::Duration;

/// Bytes of the events that are kept.
const KEPT_BYTES: usize = 256 << 10;
/// How long events are collected after the last reader has left.
pub(super) const KEPT_FOR: Duration = Duration::from_secs(60);

/// The place behind an event, as `id` has it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct EventId {
    series: u64,
    number: u64,
}

impl fmt::Display for EventId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}-{}", self.series, self.number)
    }
}

/// The text is no `id` of an event.
#[derive(Debug)]
pub(super) struct NoEventId;

impl FromStr for EventId {
    type Err = NoEventId;

    fn from_str(text: &str) -> Result<Self, NoEventId> {
        let (series, number) = text.split_once('-').ok_or(NoEventId)?;
        Ok(Self {
            series: u64::from_str_radix(series, 16).map_err(|_| NoEventId)?,
            number: number.parse().map_err(|_| NoEventId)?,
        })
    }
}

/// An event with the tag of its kind.
#[derive(Debug)]
pub(super) struct KeptEvent<K> {
    pub(super) kind: K,
    /// As a reader gets it, with its `id`.
    pub(super) text: String,
}

/// The latest events of one series. Without events it uses no memory.
#[derive(Debug)]
pub(super) struct KeptEvents<K> {
    /// Another one after a time in which events were not collected.
    series: u64,
    /// Number of the newest event of the series.
    number: u64,
    bytes: usize,
    events: VecDeque<KeptEvent<K>>,
}

impl<K> Default for KeptEvents<K> {
    fn default() -> Self {
        Self {
            // Two runs of a broker have different ones.
            series: RandomState::new().hash_one(0),
            number: 0,
            bytes: 0,
            events: VecDeque::new(),
        }
    }
}

impl<K> KeptEvents<K> {
    /// Forgets all events: between them and the next ones, some were not collected.
    pub(super) fn begin_series(&mut self) {
        *self = Self {
            series: self.series.wrapping_add(1),
            ..Self::default()
        };
    }

    /// Adds an event without its `id`; removes the oldest ones beyond the bound.
    pub(super) fn add(&mut self, kind: K, event: &str) {
        self.number += 1;
        let text = format!("id: {}\n{event}", self.last());
        self.bytes += Self::size(&text);
        self.events.push_back(KeptEvent { kind, text });
        while self.bytes > KEPT_BYTES
            && let Some(oldest) = self.events.pop_front()
        {
            self.bytes -= Self::size(&oldest.text);
        }
    }

    /// The place in the queue counts twice, since a queue grows to twice its length.
    fn size(text: &str) -> usize {
        text.len() + 2 * size_of::<KeptEvent<K>>()
    }

    /// The place behind the newest event.
    pub(super) fn last(&self) -> EventId {
        EventId {
            series: self.series,
            number: self.number,
        }
    }

    /// The events behind a place, the oldest first, and how many more there were; `None` if the place belongs to another
    /// series.
    pub(super) fn after(&self, id: EventId) -> Option<(u64, impl Iterator<Item = &KeptEvent<K>>)> {
        let newer = self.number.checked_sub(id.number);
        let newer = newer.filter(|_| id.series == self.series)?;
        let kept = self.events.len() as u64;
        let lost = newer.saturating_sub(kept);
        let skipped = usize::try_from(kept - (newer - lost)).unwrap_or(usize::MAX);
        Some((lost, self.events.iter().skip(skipped)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The last lines of the events behind `id`, and how many are lost.
    fn after(kept: &KeptEvents<u8>, id: EventId) -> Option<(u64, Vec<&str>)> {
        let (lost, events) = kept.after(id)?;
        let texts = events.filter_map(|event| event.text.lines().last());
        Some((lost, texts.collect()))
    }

    #[test]
    fn a_reader_gets_the_events_behind_its_place() {
        let mut kept = KeptEvents::default();
        let first = kept.last();
        kept.add(0, "a");
        let second = kept.last();
        kept.add(0, "b");
        kept.add(0, "c");

        assert_eq!(after(&kept, first), Some((0, vec!["a", "b", "c"])));
        assert_eq!(after(&kept, second), Some((0, vec!["b", "c"])));
        assert_eq!(after(&kept, kept.last()), Some((0, vec![])));
        let texts: Vec<_> = kept.events.iter().map(|event| &event.text).collect();
        assert_eq!(*texts[0], format!("id: {second}\na"));
    }

    #[test]
    fn the_oldest_events_make_room_and_are_counted() {
        let mut kept = KeptEvents::default();
        let first = kept.last();
        for number in 0..10_000 {
            kept.add(0, &format!("{}\n{number}", "x".repeat(100)));
        }

        let (lost, events) = after(&kept, first).expect("the same series");
        assert_eq!(lost + events.len() as u64, 10_000);
        assert!(lost > 0 && events.len() > 1_000, "{lost}");
        assert_eq!(events[0], lost.to_string());
        let texts: usize = kept.events.iter().map(|event| event.text.len()).sum();
        let places = kept.events.capacity() * size_of::<KeptEvent<u8>>();
        assert!(texts + places <= KEPT_BYTES, "{texts} + {places}");
    }

    #[test]
    fn a_place_of_another_series_is_unknown() {
        let mut kept = KeptEvents::default();
        kept.add(0, "a");
        let old = kept.last();
        kept.begin_series();

        assert_eq!(after(&kept, old), None);
        assert_eq!(after(&kept, kept.last()), Some((0, vec![])));
        assert_eq!(
            after(
                &kept,
                EventId {
                    number: 9,
                    ..kept.last()
                }
            ),
            None
        );
        assert_eq!(after(&KeptEvents::default(), old), None);
    }

    #[test]
    fn an_id_is_read_as_it_is_written() {
        let id = EventId {
            series: 0x2a,
            number: 7,
        };

        assert_eq!(id.to_string(), "000000000000002a-7");
        assert_eq!(id.to_string().parse::<EventId>().ok(), Some(id));
        for text in ["", "-", "7", "2a-", "-7", "x-7", "2a-x", "2a--7"] {
            assert!(text.parse::<EventId>().is_err(), "{text}");
        }
    }
}
