//! Explains after the fact: recent events that say why a client did not get a message.

use std::sync::Arc;
use std::time::{Duration, Instant};

use mqttcore_codec::ReasonCode;
use mqttcore_topics::{SubscriptionFilter, TopicLimits, TopicName};

use crate::config::hooks::EventKind;
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
    /// Lets the shards record recent events from now on, in at most 2 MiB together.
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
                let matching = events
                    .newest_first()
                    .filter(|event| query.covers(now, event));
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
    fn covers(&self, now: Instant, event: &RecentEvent) -> bool {
        let is_recent = |since: &Duration| now.duration_since(event.last) <= *since;
        let is_of_client = |id: &String| *event.client_id == **id;
        self.since.as_ref().is_none_or(is_recent)
            && self.client_id.as_ref().is_none_or(is_of_client)
            && self
                .topic
                .as_ref()
                .is_none_or(|topic| is_about(event, topic))
    }
}

/// Whether an event is about messages on `topic`.
fn is_about(event: &RecentEvent, topic: &str) -> bool {
    let Some(own) = event.topic.as_deref() else {
        return true;
    };
    let of_filter = || {
        let topic = TopicName::parse(topic, &TopicLimits::WIDEST).ok()?;
        let filter = SubscriptionFilter::parse(own, &TopicLimits::WIDEST).ok()?;
        Some(filter.filter().matches(topic))
    };
    own == topic || of_filter().unwrap_or(false)
}

fn past(now: Instant, event: &RecentEvent) -> PastEvent {
    PastEvent {
        first_age: now.duration_since(event.first),
        last_age: now.duration_since(event.last),
        count: event.count,
        kind: name(event.kind),
        client_id: Arc::clone(&event.client_id),
        topic: event.topic.clone(),
        why: event.why,
        reason: event.reason,
    }
}

fn name(kind: RecentKind) -> &'static str {
    match kind {
        RecentKind::Refused => "publish_refused",
        RecentKind::Client(EventKind::Connected) => "connected",
        RecentKind::Client(EventKind::Disconnected) => "disconnected",
        RecentKind::Client(EventKind::AuthFailed) => "auth_failed",
        RecentKind::Client(EventKind::Denied) => "denied",
        RecentKind::Client(EventKind::Subscribed) => "subscribed",
        RecentKind::Client(EventKind::Unsubscribed) => "unsubscribed",
        RecentKind::Client(EventKind::Dropped) => "dropped",
        RecentKind::Client(EventKind::SessionCreated) => "session_created",
        RecentKind::Client(EventKind::SessionResumed) => "session_resumed",
        RecentKind::Client(EventKind::SessionTakenOver) => "session_taken_over",
        RecentKind::Client(EventKind::SessionExpired) => "session_expired",
    }
}
