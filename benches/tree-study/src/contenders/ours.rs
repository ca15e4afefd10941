//! Our directory, behind the face of a contender.

use mqttcore_topics::{SubscriptionFilter, TopicName};

pub use crate::numbered::NumberedDirectory as Ours;

use super::Contender;

impl Contender for Ours {
    const NAME: &'static str = "mqttcore";
    type Reader = ();

    fn new() -> Self {
        Self::new()
    }

    fn admit(&mut self, clients: u32) {
        self.admit(clients);
    }

    fn subscribe(&self, filter: &SubscriptionFilter, client: u32, qos: u8) -> bool {
        self.subscribe(filter, client, qos)
    }

    fn unsubscribe(&self, filter: &SubscriptionFilter, client: u32) -> bool {
        self.unsubscribe(filter, client)
    }

    #[inline]
    fn for_each_match(&self, (): &mut (), topic: TopicName<'_>, visit: impl FnMut(u32, u8)) {
        Ours::for_each_match(self, topic, visit);
    }

    fn collect_garbage(&self) {
        self.collect_garbage();
    }
}
