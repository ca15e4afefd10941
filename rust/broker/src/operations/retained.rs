//! Lists of retained messages.
//!
//! The lists read the retained store on the caller's thread; no shard is asked.

use std::sync::Arc;
use std::time::Instant;

use mqttcore_session::Message;
use mqttcore_topics::{TopicFilter, TopicName};

use crate::clients::retained::RetainedMessage;
use crate::clients::sources::RetainedPublisher;
use crate::operations::first_keys::FirstKeys;
use crate::service::{BrokerHandle, BrokerStopped, WALKED_A_STEP};

/// A retained message and its publisher.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct RetainedItem {
    /// The message.
    pub message: Message,
    /// Its publisher; `None` if it had no user name, or was the broker itself.
    pub publisher: Option<RetainedPublisher>,
}

impl RetainedItem {
    fn new(kept: &RetainedMessage) -> Self {
        let source = kept.source.as_ref();
        Self {
            message: kept.message.clone(),
            publisher: source.map(|source| source.publisher.clone()),
        }
    }
}

/// A page of retained messages, in the order of their topics.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct RetainedPage {
    /// The messages.
    pub messages: Vec<RetainedItem>,
    /// Whether more follow.
    pub has_more: bool,
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
        let mut first = FirstKeys::new(after.map(Into::into), limit);
        self.visit_retained(filter, &mut |topic, kept| {
            first.offer(topic, || RetainedItem::new(kept));
        })
        .await?;
        let (found, has_more) = first.into_page();
        Ok(RetainedPage {
            messages: found.map(|(_, item)| item).collect(),
            has_more,
        })
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
    pub fn retained(&self, topic: TopicName<'_>) -> Result<Option<RetainedItem>, BrokerStopped> {
        let engine = self.engine().ok_or(BrokerStopped)?;
        let kept = engine.retained.get(topic);
        let now = Instant::now();
        let valid = kept.filter(|kept| !kept.message.is_expired(now));
        Ok(valid.as_ref().map(RetainedItem::new))
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
    use crate::shard::{EngineParts, EngineState, RETAINED_WALKS};

    #[test]
    fn a_walk_waits_while_others_go_on() {
        let kept = EngineParts::default();
        let engine = Arc::new(EngineState::new(&Arc::default(), 1, 1, kept));
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
