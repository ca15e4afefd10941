//! Explains past deliveries: recent events with the reasons why a client did not get a message.

use std::sync::Arc;
use std::time::{Duration, Instant};

use mqttcore_codec::ReasonCode;
use mqttcore_topics::{SubscriptionFilter, TopicLimits, TopicName};

use crate::config::plugin_event::EventKind;
use crate::operations::asking::{AskError, MissingPart};
use crate::service::{BrokerHandle, BrokerStopped};
use crate::shard::{RecentEvent, RecentKind};

/// Which events are asked about. `None` matches all.
#[derive(Clone, Debug, Default)]
pub struct EventQuery {
    /// The client.
    pub client_id: Option<String>,
    /// The topic of the message. Events without a topic match; a subscription matches if its filter does.
    pub topic: Option<String>,
    /// Only events that are not older.
    pub since: Option<Duration>,
    /// Only events of these kinds, which have the names of [`PastEvent::kind`]; empty: all.
    pub kinds: Vec<&'static str>,
    /// Maximum number of events: the newest ones.
    pub limit: usize,
}

/// An event, or several equal ones in a row.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct PastEvent {
    /// How long ago it happened first.
    pub first_age: Duration,
    /// How long ago it happened last.
    pub last_age: Duration,
    /// How often.
    pub count: u64,
    /// The kind as a word for programs.
    pub kind: &'static str,
    /// The client; the publisher, if a publish was refused.
    pub client_id: Arc<str>,
    /// Topic or filter.
    pub topic: Option<Box<str>>,
    /// The reason, for people.
    pub why: Option<&'static str>,
    /// The reason code.
    pub reason: Option<ReasonCode>,
}

impl PastEvent {
    /// All kinds, by name.
    pub fn kinds() -> impl Iterator<Item = &'static str> {
        let clients = EventKind::ALL.into_iter().map(RecentKind::Client);
        let all = clients.chain([RecentKind::Refused]);
        all.map(RecentKind::name)
    }
}

/// The answer to an [`EventQuery`].
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct PastEvents {
    /// The events, the newest first.
    pub events: Vec<PastEvent>,
    /// Whether older ones match, too.
    pub has_more: bool,
    /// Events older than this may be missing; `None`: all since the start are here.
    pub complete_for: Option<Duration>,
    /// Shards that did not answer.
    pub missing: Vec<MissingPart>,
}

impl BrokerHandle {
    /// Lets the shards record recent events from now on, in at most 768 KiB together.
    pub fn record_events(&self) {
        if let Some(engine) = self.engine() {
            engine.record_events();
        }
    }

    /// Lists recent events, the newest first.
    ///
    /// # Errors
    ///
    /// [`BrokerStopped`]
    pub async fn past_events(&self, query: EventQuery) -> Result<PastEvents, BrokerStopped> {
        let (query, mut found) = (Arc::new(query), PastEvents::default());
        for shard in 0..self.shards() {
            let query = Arc::clone(&query);
            let ask = move |shard: &std::rc::Rc<crate::shard::Shard>| {
                let (now, events) = (shard.now(), shard.recent_events());
                let topic = query.topic.as_deref().map(AskedTopic::new);
                let matching = events
                    .newest_first()
                    .filter(|event| query.covers(now, *event, topic.as_ref()));
                let matching = matching.take(query.limit + 1);
                let matching: Vec<_> = matching.map(|event| past(now, event)).collect();
                let complete_for = events.lost_until().map(|lost| now.duration_since(lost));
                (matching, complete_for)
            };
            match self.read(shard, ask).await {
                Ok((events, complete_for)) => {
                    found.events.extend(events);
                    let shortest = [found.complete_for, complete_for]
                        .into_iter()
                        .flatten()
                        .min();
                    found.complete_for = shortest;
                }
                Err(AskError::Stopped(stopped)) => return Err(stopped),
                Err(why) => found.missing.push(MissingPart { shard, why }),
            }
        }
        found.events.sort_by_key(|event| event.last_age);
        found.has_more = found.events.len() > query.limit;
        found.events.truncate(query.limit);
        Ok(found)
    }
}

impl EventQuery {
    fn covers(&self, now: Instant, event: RecentEvent<'_>, topic: Option<&AskedTopic<'_>>) -> bool {
        let is_recent = |since: &Duration| now.duration_since(event.last) <= *since;
        let is_of_client = |id: &String| **event.client_id == **id;
        let is_wanted = self.kinds.is_empty() || self.kinds.contains(&event.kind.name());
        is_wanted
            && self.since.as_ref().is_none_or(is_recent)
            && self.client_id.as_ref().is_none_or(is_of_client)
            && topic.is_none_or(|topic| topic.is_of(event))
    }
}

/// The topic of a query; it is parsed once for all events.
struct AskedTopic<'t> {
    text: &'t str,
    /// `None` if the text is not a topic name.
    name: Option<TopicName<'t>>,
}

impl<'t> AskedTopic<'t> {
    fn new(text: &'t str) -> Self {
        let name = TopicName::parse(text, &TopicLimits::WIDEST).ok();
        Self { text, name }
    }

    /// Whether an event is about messages on the topic.
    fn is_of(&self, event: RecentEvent<'_>) -> bool {
        let Some(own) = event.topic else {
            return true;
        };
        let matches = |topic| {
            let filter = SubscriptionFilter::parse(own, &TopicLimits::WIDEST);
            filter.is_ok_and(|filter| filter.filter().matches(topic))
        };
        own == self.text || self.name.is_some_and(matches)
    }
}

pub(in crate::operations) fn past(now: Instant, event: RecentEvent<'_>) -> PastEvent {
    PastEvent {
        first_age: now.duration_since(event.first),
        last_age: now.duration_since(event.last),
        count: event.count,
        kind: event.kind.name(),
        client_id: Arc::clone(event.client_id),
        topic: event.topic.map(Box::from),
        why: event.why,
        reason: event.reason,
    }
}
