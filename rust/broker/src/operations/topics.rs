//! The tree of topics with retained messages, level by level.
//!
//! The tree is read on the caller's thread; no shard is asked.

use mqttcore_topics::{
    Match, Search, SubscriptionFilter, TopicFilter, TopicLimits, TopicName, Visitor,
};

use crate::clients::handle::Handle;
use crate::operations::first_keys::FirstKeys;
use crate::service::{BrokerHandle, BrokerStopped};

/// Topics whose subscribers are counted in one step.
const COUNTED_A_STEP: usize = 64;

/// A topic of the tree.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct TopicNode {
    /// The topic.
    pub topic: String,
    /// Whether the topic itself has a retained message.
    pub is_retained: bool,
    /// Number of retained messages on the topic and below it.
    pub retained: usize,
    /// Number of clients, shared subscriptions counting as one, that would receive a message on the topic; `None`: there is
    /// no such topic, or the search takes more steps than that of a message may.
    pub subscribers: Option<usize>,
}

/// A page of the tree.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct TopicPage {
    /// The topics, each before those below it; those of one level are sorted.
    pub topics: Vec<TopicNode>,
    /// Whether more follow.
    pub has_more: bool,
}

/// Which part of the tree to list.
#[derive(Clone, Debug)]
pub struct TopicQuery<'a> {
    /// Only topics below this one. `None`: all, except those that begin with `$`.
    pub below: Option<&'a str>,
    /// Number of levels.
    pub depth: usize,
    /// Only topics after this one.
    pub after: Option<&'a str>,
    /// Maximum number of topics.
    pub limit: usize,
}

/// The first topics of a part of the tree.
struct FirstNodes {
    depth: usize,
    /// Number of levels of the topic above.
    above: usize,
    /// By [`sort_key`]: whether the topic itself is retained, and the number of retained messages.
    nodes: FirstKeys<(bool, usize)>,
}

/// A text whose order is that of the tree: `a/b` comes before `a-b`. Topics do not contain the separator.
fn sort_key(topic: &str) -> String {
    topic.replace('/', "\0")
}

impl FirstNodes {
    fn new(query: &TopicQuery<'_>) -> Self {
        Self {
            depth: query.depth,
            above: query.below.map_or(0, |topic| topic.split('/').count()),
            nodes: FirstKeys::new(query.after.map(sort_key), query.limit),
        }
    }

    /// Counts a topic with a retained message at the levels of the page.
    fn count(&mut self, topic: &str) {
        let separators = topic.match_indices('/').map(|(index, _)| index);
        let ends = separators.chain([topic.len()]);
        for end in ends.skip(self.above).take(self.depth) {
            let node = self.nodes.offer(&sort_key(&topic[..end]), Default::default);
            if let Some((is_retained, count)) = node {
                *is_retained |= end == topic.len();
                *count += 1;
            }
        }
    }
}

impl BrokerHandle {
    /// Lists topics with retained messages level by level, with the number of retained messages at and below each.
    ///
    /// # Errors
    ///
    /// [`BrokerStopped`]
    pub async fn list_topics(&self, query: &TopicQuery<'_>) -> Result<TopicPage, BrokerStopped> {
        let filter = query.below.map_or("#".into(), |topic| format!("{topic}/#"));
        let mut page = TopicPage::default();
        // No topic is below one that is too long for that, or that has wildcards.
        let Ok(filter) = TopicFilter::parse(&filter, &TopicLimits::WIDEST) else {
            return Ok(page);
        };
        let mut first = FirstNodes::new(query);
        self.visit_retained(&filter, &mut |topic, _| first.count(topic))
            .await?;
        let (nodes, has_more) = first.nodes.into_page();
        page.has_more = has_more;
        for (key, (is_retained, retained)) in nodes {
            let topic = key.replace('\0', "/");
            let subscribers = self.count_subscribers(&topic)?;
            page.topics.push(TopicNode {
                topic,
                is_retained,
                retained,
                subscribers,
            });
            if page.topics.len() % COUNTED_A_STEP == 0 {
                tokio::task::yield_now().await;
            }
        }
        Ok(page)
    }

    /// Number of clients that would receive a message on `topic`, as in [`TopicNode::subscribers`].
    fn count_subscribers(&self, topic: &str) -> Result<Option<usize>, BrokerStopped> {
        let Ok(topic) = TopicName::parse(topic, &TopicLimits::WIDEST) else {
            return Ok(None);
        };
        let mut counted = CountedSubscribers::default();
        let engine = self.engine().ok_or(BrokerStopped)?;
        let snapshot = engine.directory.snapshot();
        snapshot.match_one(topic, None, 0, &mut counted);
        Ok((!counted.is_given_up).then_some(counted.count))
    }
}

/// Counts subscribers; no shared group moves on to its next member.
#[derive(Default)]
struct CountedSubscribers {
    count: usize,
    is_given_up: bool,
}

impl Visitor for CountedSubscribers {
    fn searched(&mut self, search: Search) {
        self.is_given_up |= !search.is_complete;
    }

    fn advances_cursor(&self) -> bool {
        false
    }

    fn plain(&mut self, found: Match<'_>) {
        let is_stream = Handle::of_word(found.handle).row_stream().is_some();
        self.count += usize::from(!is_stream);
    }

    fn group(&mut self, _: &SubscriptionFilter) {
        self.count += 1;
    }

    fn shared(&mut self, _: Match<'_>) -> bool {
        true
    }

    fn shared_offline(&mut self, _: Match<'_>) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(query: &TopicQuery<'_>, topics: &[&str]) -> (Vec<(String, bool, usize)>, bool) {
        let mut first = FirstNodes::new(query);
        for topic in topics {
            first.count(topic);
        }
        let (found, has_more) = first.nodes.into_page();
        let found =
            found.map(|(key, (is_retained, count))| (key.replace('\0', "/"), is_retained, count));
        (found.collect(), has_more)
    }

    fn nodes(query: &TopicQuery<'_>, topics: &[&str]) -> Vec<(String, bool, usize)> {
        page(query, topics).0
    }

    const TOPICS: [&str; 7] = ["a", "a/b/1", "a-b", "a/b/2", "a/c", "/x", "z/z"];

    fn query() -> TopicQuery<'static> {
        TopicQuery {
            below: None,
            depth: 1,
            after: None,
            limit: 100,
        }
    }

    #[test]
    fn each_level_has_the_number_of_messages_at_and_below_it() {
        let node = |topic: &str, is_here, count| (topic.to_owned(), is_here, count);

        assert_eq!(
            nodes(&query(), &TOPICS),
            [
                node("", false, 1),
                node("a", true, 4),
                node("a-b", true, 1),
                node("z", false, 1)
            ]
        );
        let below = TopicQuery {
            below: Some("a"),
            depth: 2,
            ..query()
        };
        assert_eq!(
            nodes(&below, &["a", "a/b/1", "a/b/2", "a/c"]),
            [
                node("a/b", false, 2),
                node("a/b/1", true, 1),
                node("a/b/2", true, 1),
                node("a/c", true, 1)
            ]
        );
    }

    #[test]
    fn pages_have_each_topic_once_with_its_whole_count_in_any_order() {
        let all = nodes(
            &TopicQuery {
                depth: 3,
                ..query()
            },
            &TOPICS,
        );
        let mut topics = TOPICS.to_vec();
        for _ in 0..TOPICS.len() {
            topics.rotate_left(1);
            let (mut found, mut after) = (Vec::new(), None::<String>);
            loop {
                let query = TopicQuery {
                    depth: 3,
                    limit: 2,
                    after: after.as_deref(),
                    ..query()
                };
                let (page, has_more) = page(&query, &topics);
                assert!(page.len() <= 2);
                found.extend(page);
                if !has_more {
                    break;
                }
                after = found.last().map(|(topic, ..)| topic.clone());
            }
            assert_eq!(found, all);
        }
    }
}
