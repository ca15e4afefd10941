//! Handles events of the external log.

use mqttcore_panics::Panicked;

use crate::durability::events::StoreEvents;
use crate::durability::outcomes::OutcomeEvents;
use crate::runtime::log::LogCategory;
use crate::shard::EngineState;

impl OutcomeEvents for EngineState {
    fn wake(&self, shard: usize) {
        self.wake(shard);
    }

    fn has_room(&self) {
        self.wake_all();
    }

    fn panicked(&self, panicked: Panicked) {
        self.fail(panicked.into());
    }

    fn warn(&self, text: String) {
        StoreEvents::warn(self, LogCategory::Kafka, text);
    }
}
