//! What a broker does with news of its external log.

use mqttcore_panics::Panicked;

use crate::durability::events::StoreEvents;
use crate::durability::outcomes::OutcomeEvents;
use crate::runtime::log::LogClass;
use crate::shard::World;

impl OutcomeEvents for World {
    fn wake(&self, shard: usize) {
        self.ring(shard);
    }

    fn has_room(&self) {
        self.ring_all();
    }

    fn panicked(&self, panicked: Panicked) {
        self.fail(panicked.into());
    }

    fn warn(&self, text: String) {
        StoreEvents::warn(self, LogClass::Kafka, text);
    }
}
