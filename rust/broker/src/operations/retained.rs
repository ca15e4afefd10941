//! Lists of retained messages.
//!
//! They read the retained store on the thread of who asks; no shard is asked.

use std::collections::BTreeMap;
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

impl BrokerHandle {
    /// Lists the retained messages that match `filter`, of topics behind `after`.
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
        let mut page = BTreeMap::new();
        self.visit_retained(filter, &mut |topic, kept| {
            let last = page.keys().nth(limit).map(String::as_str);
            if after.is_none_or(|after| topic > after) && last.is_none_or(|last| topic < last) {
                page.insert(topic.to_owned(), kept.message.clone());
                if page.len() > limit + 1 {
                    page.pop_last();
                }
            }
        })
        .await?;
        let has_more = page.len() > limit;
        let messages = page.into_values().take(limit).collect();
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

    /// Visits the messages that have not expired, a step of the walk at a time.
    async fn visit_retained(
        &self,
        filter: &TopicFilter,
        visit: &mut (dyn FnMut(&str, &RetainedMessage) + Send),
    ) -> Result<(), BrokerStopped> {
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
