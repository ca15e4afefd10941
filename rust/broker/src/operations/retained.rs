//! Lists of retained messages.
//!
//! The lists read the retained store on the caller's thread; no shard is asked.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use mqttcore_session::Message;
use mqttcore_topics::{TopicFilter, TopicName};

use crate::clients::retained::RetainedMessage;
use crate::service::{BrokerHandle, BrokerStopped, WALKED_A_STEP};

/// A page of retained messages, in the order of their topics.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct RetainedPage {
    /// The messages.
    pub messages: Vec<Message>,
    /// Whether more follow.
    pub has_more: bool,
}

/// The first topics after a position, sorted; one more than a page holds.
struct FirstTopics<'a, T> {
    after: Option<&'a str>,
    limit: usize,
    found: BTreeMap<String, T>,
}

impl<'a, T> FirstTopics<'a, T> {
    fn new(after: Option<&'a str>, limit: usize) -> Self {
        Self {
            after,
            limit,
            found: BTreeMap::new(),
        }
    }

    /// Adds the topic if it may be among the first ones. The cost does not depend on the page size.
    fn offer(&mut self, topic: &str, value: impl FnOnce() -> T) {
        let is_full = self.found.len() > self.limit;
        let last = is_full.then(|| self.found.last_key_value()).flatten();
        if self.after.is_none_or(|after| topic > after)
            && last.is_none_or(|(last, _)| topic < last.as_str())
        {
            self.found.insert(topic.to_owned(), value());
            if is_full {
                self.found.pop_last();
            }
        }
    }
}

impl BrokerHandle {
    /// Lists the retained messages that match `filter`, with topics after `after`.
    ///
    /// # Errors
    ///
    /// [`BrokerStopped`]
    pub async fn list_retained(
        &self,
        filter: &TopicFilter,
        after: Option<&str>,
        limit: usize,
    ) -> Result<RetainedPage, BrokerStopped> {
        let mut first = FirstTopics::new(after, limit);
        self.visit_retained(filter, &mut |topic, kept| {
            first.offer(topic, || kept.message.clone());
        })
        .await?;
        let has_more = first.found.len() > limit;
        let messages = first.found.into_values().take(limit).collect();
        Ok(RetainedPage { messages, has_more })
    }

    /// Number of retained messages that match `filter`, and some of their topics.
    ///
    /// # Errors
    ///
    /// [`BrokerStopped`]
    pub async fn count_retained(
        &self,
        filter: &TopicFilter,
        sample: usize,
    ) -> Result<(usize, Vec<String>), BrokerStopped> {
        let (mut count, mut topics) = (0, Vec::new());
        self.visit_retained(filter, &mut |topic, _| {
            count += 1;
            if topics.len() < sample {
                topics.push(topic.to_owned());
            }
        })
        .await?;
        Ok((count, topics))
    }

    /// The retained message of `topic`.
    ///
    /// # Errors
    ///
    /// [`BrokerStopped`]
    pub fn retained(&self, topic: TopicName<'_>) -> Result<Option<Message>, BrokerStopped> {
        let engine = self.engine().ok_or(BrokerStopped)?;
        let kept = engine.retained.get(topic);
        let now = Instant::now();
        Ok(kept
            .map(|kept| kept.message)
            .filter(|message| !message.is_expired(now)))
    }

    /// Visits the messages that have not expired, one step of the walk at a time. At most [`RETAINED_WALKS`] walks run;
    /// others wait.
    pub(super) async fn visit_retained(
        &self,
        filter: &TopicFilter,
        visit: &mut (dyn FnMut(&str, &RetainedMessage) + Send),
    ) -> Result<(), BrokerStopped> {
        let walks = Arc::clone(&self.engine().ok_or(BrokerStopped)?.retained_walks);
        let _turn = walks.acquire_owned().await.map_err(|_| BrokerStopped)?;
        let mut cursor = None;
        loop {
            let engine = self.engine().ok_or(BrokerStopped)?;
            let now = Instant::now();
            let retained = &engine.retained;
            cursor = retained.walk(filter, cursor, WALKED_A_STEP, &mut |topic, kept| {
                if !kept.message.is_expired(now) {
                    visit(topic, kept);
                }
            });
            drop(engine);
            if cursor.is_none() {
                return Ok(());
            }
            tokio::task::yield_now().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    use mqttcore_topics::TopicLimits;

    use super::*;
    use crate::config::Config;
    use crate::shard::{EngineParts, EngineState, RETAINED_WALKS};

    #[test]
    fn the_first_topics_behind_a_position_are_found_in_any_order() {
        let mut topics: Vec<_> = (0..50_u32).map(|number| number * 37 % 50).collect();
        for _ in 0..2 {
            let mut first = FirstTopics::new(Some("09"), 3);
            for topic in &topics {
                first.offer(&format!("{topic:02}"), || *topic);
            }
            assert!(first.found.values().eq(&[10, 11, 12, 13]));
            topics.sort_unstable();
        }
        let mut first = FirstTopics::new(None, 0);
        let mut taken = 0;
        for topic in topics {
            first.offer(&format!("{topic:02}"), || taken += 1);
        }
        assert_eq!(
            (taken, first.found.len()),
            (1, 1),
            "one shows that more follow"
        );
    }

    #[test]
    fn a_walk_waits_while_others_go_on() {
        let kept = EngineParts::default();
        let engine = Arc::new(EngineState::new(&Config::default(), 1, 1, kept));
        let broker = BrokerHandle::new(&engine);
        let filter = TopicFilter::parse("#", &TopicLimits::WIDEST).unwrap();
        let walks = u32::try_from(RETAINED_WALKS).unwrap();
        let others = engine.retained_walks.try_acquire_many(walks).unwrap();
        let mut listed = pin!(broker.list_retained(&filter, None, 1));
        let mut context = Context::from_waker(Waker::noop());
        assert!(listed.as_mut().poll(&mut context).is_pending());

        drop(others);

        let Poll::Ready(page) = listed.poll(&mut context) else {
            panic!("it waits still");
        };
        assert!(page.unwrap().messages.is_empty());
        assert_eq!(engine.retained_walks.available_permits(), RETAINED_WALKS);
    }
}
