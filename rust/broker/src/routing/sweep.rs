//! Removes expired retained messages (abuse F06).

use std::time::{Duration, Instant};

use mqttcore_topics::RetainedCursor;

use crate::clients::retained::RetainedMessage;
use crate::routing::retain::forget_expired;
use crate::shard::Shard;

/// Time from the begin of one walk over all retained messages to the next: expiries are in seconds.
const WALK_EVERY: Duration = Duration::from_secs(1);

/// A walk over the retained messages, in steps.
#[derive(Default)]
pub(crate) struct Sweep {
    /// Position of the walk; `None` at the end.
    cursor: Option<RetainedCursor>,
    /// When it began.
    began: Option<Instant>,
}

impl Sweep {
    /// Checks the next retained messages, and removes expired ones.
    pub(crate) fn step(&mut self, shard: &Shard) {
        const LOOKED_AT_A_STEP: usize = 256;
        let now = shard.now();
        if !self.is_due(now) {
            return;
        }
        let mut expired = Vec::new();
        self.cursor = shard.engine.retained.walk_all(
            self.cursor.take(),
            LOOKED_AT_A_STEP,
            &mut |_, kept: &RetainedMessage| {
                if kept.message.is_expired(now) {
                    expired.push(kept.message.clone());
                }
            },
        );
        for message in expired {
            forget_expired(shard, message.topic_name());
        }
    }

    /// Whether the walk continues, or a new one begins.
    fn is_due(&mut self, now: Instant) -> bool {
        if self.cursor.is_some() {
            return true;
        }
        let is_recent = |began: Instant| now.saturating_duration_since(began) < WALK_EVERY;
        if self.began.is_some_and(is_recent) {
            return false;
        }
        self.began = Some(now);
        true
    }
}

#[cfg(test)]
mod tests {
    use mqttcore_topics::{RetainedStore, TopicLimits, TopicName};

    use super::*;

    #[test]
    fn a_walk_that_has_ended_begins_again_after_a_second() {
        let (start, mut sweep) = (Instant::now(), Sweep::default());
        let after = |millis| start + Duration::from_millis(millis);

        assert!(sweep.is_due(start));
        assert!(!sweep.is_due(after(999)));
        assert!(sweep.is_due(after(1_000)));
        assert!(!sweep.is_due(after(1_100)));
    }

    #[test]
    fn a_walk_that_has_not_ended_goes_on_at_once() {
        let (now, mut sweep) = (Instant::now(), Sweep::default());
        let retained = RetainedStore::new(7);
        for topic in ["a", "b"] {
            let topic = TopicName::parse(topic, &TopicLimits::default()).unwrap();
            retained.set(topic, ());
        }

        assert!(sweep.is_due(now));
        sweep.cursor = retained.walk_all(None, 1, &mut |_, ()| ());

        assert!(sweep.cursor.is_some() && sweep.is_due(now));
    }
}
