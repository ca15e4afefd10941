//! Publishes of one read that are matched together.

use std::rc::Rc;

use mqttcore_codec::{PacketId, QoS};
use mqttcore_session::Message;
use mqttcore_topics::TopicName;
use smallvec::SmallVec;

use crate::clients::client::Client;
use crate::clients::topic::topic_of;
use crate::routing::delivery::deliver_to_shards;
use crate::routing::journal;
use crate::routing::matching::{Collector, MESSAGE_BATCH};
use crate::routing::publication::{Publication, Unroutable};
use crate::routing::router::try_route;
use crate::shard::Shard;

/// Targets of messages matched together above which the next messages are matched one at a time.
const MANY_TARGETS: usize = 1024;

/// Steps of a search, for messages matched together, above which the same is done.
const MANY_STEPS: usize = 4096;

/// How many these are: matching many at once saves little where deliveries cost so much more.
const ONE_AT_A_TIME: u32 = 4096;

/// Messages of one client, none of them retained, that wait to be matched together.
#[derive(Default)]
pub(crate) struct MessageBatch {
    /// Each with the packet id that is to be acknowledged.
    messages: SmallVec<[(Message, Option<PacketId>); 4]>,
}

impl MessageBatch {
    pub(crate) fn push(&mut self, message: Message, packet_id: Option<PacketId>) {
        self.messages.push((message, packet_id));
    }

    /// Whether as many wait as should.
    pub(crate) fn is_full(&self, shard: &Shard) -> bool {
        let alone = shard.one_at_a_time.get();
        shard.one_at_a_time.set(alone.saturating_sub(1));
        alone > 0 || self.messages.len() >= MESSAGE_BATCH
    }

    /// Hands out what waits, and how many it goes to, in order.
    pub(crate) fn route(
        &mut self,
        shard: &Rc<Shard>,
        publisher: &Rc<Client>,
        mut routed: impl FnMut(&Message, Option<PacketId>, Result<usize, Unroutable>),
    ) {
        let messages = std::mem::take(&mut self.messages);
        let topics: SmallVec<[TopicName<'_>; MESSAGE_BATCH]> = messages
            .iter()
            .filter_map(|(message, _)| topic_of(message))
            .collect();
        if topics.len() < 2 || topics.len() < messages.len() {
            for (message, packet_id) in &messages {
                let mut accepted = Ok(0);
                let matched = topic_of(message).map_or(Ok(0), |topic| {
                    let publication = Publication::plain(shard, publisher, topic, message);
                    try_route(shard, publication, |result| accepted = result)
                });
                routed(message, *packet_id, matched.and(accepted));
            }
            return;
        }
        let mut targets = std::mem::take(&mut *shard.targets.borrow_mut());
        let mut collector = Collector::new(shard, false, QoS::AtMostOnce, &mut targets);
        collector.qos = messages.iter().map(|(message, _)| message.qos()).collect();
        let kept = shard.world.directory.match_many_cached(
            &mut shard.results.borrow_mut(),
            &topics,
            Some(publisher.subscriber),
            shard.random(),
            &mut collector,
        );
        shard.metrics().matches_cached.add(kept as u64);
        let starts = std::mem::take(&mut collector.starts);
        let (steps, given_up) = (collector.steps, collector.given_up);
        shard.count_steps(steps);
        if targets.len() > MANY_TARGETS || steps > MANY_STEPS {
            shard.one_at_a_time.set(ONE_AT_A_TIME);
        }
        let ends = starts.iter().skip(1).copied().chain([targets.len()]);
        let counts: SmallVec<[usize; MESSAGE_BATCH]> = starts
            .iter()
            .zip(ends)
            .map(|(start, end)| end - start)
            .collect();
        let mut start = 0;
        for ((message, _), (topic, matched)) in messages.iter().zip(topics.iter().zip(&counts)) {
            let publication = Publication::plain(shard, publisher, *topic, message);
            let own = &mut targets[start..start + matched];
            // None of them is of QoS 2, so none has to wait.
            let _ = journal::published(shard, &publication, own);
            start += matched;
        }
        let mut rest = targets.drain(..);
        for (index, ((message, packet_id), matched)) in messages.iter().zip(counts).enumerate() {
            deliver_to_shards(shard, message, rest.by_ref().take(matched));
            let is_given_up = given_up & 1 << index != 0;
            let result = if is_given_up {
                Err(Unroutable::TooManyFilters)
            } else {
                Ok(matched)
            };
            routed(message, *packet_id, result);
        }
        drop(rest);
        *shard.targets.borrow_mut() = targets;
    }
}
