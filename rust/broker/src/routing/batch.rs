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

/// A message of a client, and what its PUBLISH said beside it.
pub(crate) struct Incoming<'p> {
    pub(crate) topic: PublishTopic<'p>,
    pub(crate) message: Message,
    /// What is to be acknowledged.
    pub(crate) packet_id: Option<PacketId>,
}

impl Incoming<'_> {
    pub(crate) fn publication<'a>(&'a self, publisher: &'a Rc<Client>) -> Publication<'a> {
        let topic = self.topic.as_name();
        Publication::new(Some(publisher), topic, &self.message, self.packet_id)
    }
}

/// Messages of one client, in their order: none of them is retained or of QoS 2.
#[derive(Default)]
pub(crate) struct MessageBatch<'p> {
    messages: SmallVec<[Incoming<'p>; 4]>,
}

impl<'p> MessageBatch<'p> {
    pub(crate) fn push(&mut self, message: Incoming<'p>) {
        self.messages.push(message);
    }

    /// Whether as many wait as should.
    pub(crate) fn is_full(&self, shard: &Shard) -> bool {
        let alone = shard.one_at_a_time.get();
        shard.one_at_a_time.set(alone.saturating_sub(1));
        alone > 0 || self.messages.len() >= MESSAGE_BATCH
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
        let messages = self.messages.iter();
        let publications = messages.map(|incoming| incoming.publication(publisher));
        let mut publications: SmallVec<[_; MESSAGE_BATCH]> = publications.collect();
        router::route(shard, &mut publications, answer);
        drop(publications);
        self.messages.clear();
    }
}
