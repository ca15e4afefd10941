//! Watches events of clients and lines of the log while they happen.
//!
//! Shards do no extra work for a watch: it reads their recent events (ADR 0057) repeatedly.

use std::rc::Rc;

use crate::operations::asking::AskError;
use crate::operations::explain::history::{PastEvent, past};
use crate::runtime::log::LoggedLine;
use crate::service::{BrokerHandle, BrokerStopped};
use crate::shard::{EventPosition, Shard};

/// Events of one shard that a watch gets at once; the newest ones.
const EVENTS_AT_ONCE: usize = 256;

/// How far a watch has come.
#[derive(Debug, Default)]
pub struct EventWatch {
    /// The position in each shard; empty before the first question.
    shards: Vec<Option<EventPosition>>,
    /// Number of the last line of the log.
    line: u64,
}

/// Events since the last question.
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct WatchedEvents {
    /// Events of clients, the oldest first.
    pub events: Vec<PastEvent>,
    /// Events that are left out: there were too many.
    pub left_out: u64,
    /// Lines of the log, the oldest first.
    pub lines: Vec<LoggedLine>,
}

impl BrokerHandle {
    /// Returns the events since the last question of `watch`; none for its first question. A shard that does not
    /// answer within 250 ms is asked again next time.
    ///
    /// # Errors
    ///
    /// [`BrokerStopped`]
    pub async fn watch_events(
        &self,
        watch: &mut EventWatch,
    ) -> Result<WatchedEvents, BrokerStopped> {
        let is_first = watch.shards.is_empty();
        watch.shards.resize(self.shards(), None);
        let mut found = WatchedEvents::default();
        for (shard, position) in watch.shards.iter_mut().enumerate() {
            let before = *position;
            match self.read(shard, move |shard| since(shard, before)).await {
                Ok((events, left_out, now)) => {
                    *position = Some(now);
                    found.events.extend(events);
                    found.left_out += left_out;
                }
                Err(AskError::Stopped(stopped)) => return Err(stopped),
                Err(_) => {}
            }
        }
        found
            .events
            .sort_by_key(|event| std::cmp::Reverse(event.last_age));
        let lines = self.log_lines(watch.line);
        watch.line = lines.last().map_or(watch.line, |line| line.number);
        if !is_first {
            found.lines = lines;
        }
        Ok(found)
    }

    /// The latest lines of the log behind the one with this number, the oldest first; none before
    /// [`record_events`](Self::record_events).
    pub fn log_lines(&self, after: u64) -> Vec<LoggedLine> {
        let engine = self.engine();
        engine.map_or_else(Vec::new, |engine| engine.latest_lines.after(after))
    }
}

/// The events of a shard since `before`, how many were left out, and the position behind them.
fn since(shard: &Rc<Shard>, before: Option<EventPosition>) -> (Vec<PastEvent>, u64, EventPosition) {
    let (now, recent) = (shard.now(), shard.recent_events());
    let (events, left_out) = match before {
        Some(before) => recent.since(before, EVENTS_AT_ONCE),
        None => (Vec::new(), 0),
    };
    let events = events.into_iter().map(|event| past(now, event)).collect();
    (events, left_out, recent.position())
}
