//! Messages of one read that are routed together.

use std::rc::Rc;

use mqttcore_codec::PacketId;
use mqttcore_session::{Message, PublishTopic};
use smallvec::SmallVec;

use crate::clients::client::Client;
use crate::routing::matching::MESSAGE_BATCH;
use crate::routing::publication::{Publication, Unroutable};
use crate::routing::router;
use crate::shard::Shard;

const LARGEST_BATCH: u8 = 16;
const _: () = assert!(LARGEST_BATCH as usize == MESSAGE_BATCH);

/// Targets of the messages of a batch above which the next messages are routed alone.
const BATCH_TARGETS: usize = 1024;

/// Steps of the search for the receivers of a batch above which the same is done.
const BATCH_STEPS: usize = 4096;

/// A message of a client, with other fields of its PUBLISH.
pub(crate) struct Incoming<'p> {
    pub(crate) topic: PublishTopic<'p>,
    pub(crate) message: Message,
    /// The packet identifier to acknowledge.
    pub(crate) packet_id: Option<PacketId>,
}

impl Incoming<'_> {
    pub(crate) fn publication<'a>(&'a self, publisher: &'a Rc<Client>) -> Publication<'a> {
        let topic = self.topic.as_name();
        Publication::new(Some(publisher), topic, &self.message, self.packet_id)
    }
}

/// Messages of one client, in their order: none of them is retained.
#[derive(Default)]
pub(crate) struct MessageBatch<'p> {
    messages: SmallVec<[Incoming<'p>; 4]>,
}

impl<'p> MessageBatch<'p> {
    pub(crate) fn push(&mut self, message: Incoming<'p>) {
        self.messages.push(message);
    }

    /// Whether as many messages of `publisher` wait as may be routed together.
    pub(crate) fn is_full(&self, publisher: &Client) -> bool {
        self.messages.len() >= usize::from(publisher.batch_limit.get())
    }

    /// Routes the batched messages; see [`router::route`].
    pub(crate) fn route(
        &mut self,
        shard: &Rc<Shard>,
        publisher: &Rc<Client>,
        answer: impl FnMut(&Publication<'_>, Result<usize, Unroutable>),
    ) {
        if self.messages.is_empty() {
            return;
        }
        {
            let messages = self.messages.iter();
            // In place, and not dropped by a call: a copy of it would be large.
            let mut publications = SmallVec::<[_; MESSAGE_BATCH]>::new();
            publications.extend(messages.map(|incoming| incoming.publication(publisher)));
            route_together(shard, publisher, &mut publications, answer);
        }
        self.messages.clear();
    }
}

/// Routes messages of `publisher`, and sets how many of the next ones are routed together.
pub(crate) fn route_together(
    shard: &Rc<Shard>,
    publisher: &Client,
    publications: &mut [Publication<'_>],
    answer: impl FnMut(&Publication<'_>, Result<usize, Unroutable>),
) {
    let steps_before = shard.steps();
    router::route(shard, publications, answer);
    let targets = publications.iter().map(|each| each.routed.found).sum();
    let steps = shard.steps() - steps_before;
    let limit = next_limit(publisher.batch_limit.get(), targets, steps);
    publisher.batch_limit.set(limit);
}

/// The next batch limit of a publisher, from the number of targets and search steps of its last batch: a batch cannot
/// be interrupted, so it grows only if its cost is known to be small.
fn next_limit(limit: u8, targets: usize, steps: usize) -> u8 {
    if targets > BATCH_TARGETS || steps > BATCH_STEPS {
        1
    } else if targets * 2 > BATCH_TARGETS || steps * 2 > BATCH_STEPS {
        limit
    } else {
        limit.saturating_mul(2).min(LARGEST_BATCH)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_grows_while_its_messages_have_few_receivers() {
        let grown = std::iter::successors(Some(1), |limit| Some(next_limit(*limit, 16, 16)));
        assert!(grown.take(6).eq([1, 2, 4, 8, 16, 16]));
    }

    #[test]
    fn messages_with_many_receivers_or_filters_to_look_at_are_routed_alone() {
        assert_eq!(next_limit(1, 10_000, 0), 1);
        assert_eq!(next_limit(16, BATCH_TARGETS + 1, 0), 1);
        assert_eq!(next_limit(16, 0, BATCH_STEPS + 1), 1);
    }

    #[test]
    fn a_batch_does_not_grow_beyond_the_cost_that_it_may_have() {
        assert_eq!(next_limit(4, BATCH_TARGETS / 2 + 1, 0), 4);
        assert_eq!(next_limit(4, 0, BATCH_STEPS / 2 + 1), 4);
    }
}
