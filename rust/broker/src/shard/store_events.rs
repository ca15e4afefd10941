//! Handles events of the store.

use std::rc::Rc;

use mqttcore_store::{Durability, StoreError};

use crate::durability::events::StoreEvents;
use crate::runtime::log::LogCategory;
use crate::shard::{EngineState, Shard};

impl StoreEvents for EngineState {
    fn kept(&self, durability: Durability, ticket: u64) {
        self.wake_waiting(durability, ticket);
    }

    fn has_room(&self) {
        self.wake_all();
    }

    fn failed(&self, error: StoreError) {
        self.fail(error.into());
    }

    fn set_all_full(&self, is_full: bool) {
        self.durable.set_all_full(is_full);
    }

    /// Counts the segment, and warns of damage: the damaged data may still be readable elsewhere, but perhaps not for
    /// long.
    fn scrubbed(&self, damage: Option<String>) {
        let count = move |shard: &Rc<Shard>| {
            shard.metrics().store_scrubbed.add(1);
            if let Some(damage) = damage {
                shard.metrics().store_damaged.add(1);
                shard.log.warn(LogCategory::Store, shard.now(), || {
                    format!(
                        "the store is damaged: {damage}; make a backup, then run `mqttcore store verify`"
                    )
                });
            }
        };
        self.run_on(0, Box::new(count));
    }

    fn say(&self, text: String) {
        self.run_on(0, Box::new(|shard| shard.log.say(text)));
    }

    fn warn(&self, class: LogCategory, text: String) {
        let warn = move |shard: &Rc<Shard>| shard.log.warn(class, shard.now(), || text);
        self.run_on(0, Box::new(warn));
    }
}
