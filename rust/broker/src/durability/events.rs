//! Events of the store.

use mqttcore_store::{Durability, StoreError};

use crate::runtime::log::LogCategory;

/// Handles events of the store. Called on threads of the store.
pub(crate) trait StoreEvents: Send + Sync {
    /// `ticket` and all before it are as safe as `durability` says.
    fn kept(&self, durability: Durability, ticket: u64);
    /// The log queue has room again.
    fn has_room(&self);
    /// The store has stopped.
    fn failed(&self, error: StoreError);
    /// Whether the messages of all sessions together are at their limit.
    fn set_all_full(&self, is_full: bool);
    /// A segment was scrubbed; `damage` describes what is damaged in it.
    fn scrubbed(&self, damage: Option<String>);
    /// A line for the log.
    fn say(&self, text: String);
    /// A warning for the log.
    fn warn(&self, class: LogCategory, text: String);
}
