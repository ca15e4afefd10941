//! The messages of one question for publish hooks, and what the hooks have decided so far.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use mqttcore_broker::{Login, PublishBatch, PublishDecision};
use mqttcore_session::{ChangeError, Message, MessageChanges, ServerLimits};
use mqttcore_topics::TopicFilter;

/// Messages of one client.
pub(super) struct Messages {
    pub(super) login: Arc<Login>,
    limits: Arc<ServerLimits>,
    slots: Mutex<Vec<Slot>>,
}

/// A message as the hooks so far have left it.
struct Slot {
    message: Message,
    is_changed: bool,
    /// A hook wants to know how long the store takes, and gave this number.
    number: Option<u64>,
    /// Number of hooks, from the first, that have decided or did not want it.
    passed: usize,
    /// The decision, unless the message is to be published.
    refusal: Option<PublishDecision>,
}

impl Slot {
    /// Whether a hook has to decide about the message still.
    fn is_for(&self, hook: usize, filter: &TopicFilter) -> bool {
        let is_open = self.refusal.is_none() && self.passed <= hook;
        is_open && filter.matches(self.message.topic_name())
    }
}

impl Messages {
    pub(super) fn new(batch: PublishBatch) -> Self {
        let slot = |message| Slot {
            message,
            is_changed: false,
            number: None,
            passed: 0,
            refusal: None,
        };
        Self {
            login: batch.login,
            limits: batch.limits,
            slots: Mutex::new(batch.messages.into_iter().map(slot).collect()),
        }
    }

    /// The messages on topics of `filter` that are to be published so far and that the hook at the position `hook` has
    /// not decided about, with their positions.
    pub(super) fn matching(&self, hook: usize, filter: &TopicFilter) -> Vec<(usize, Message)> {
        let slots = self.lock();
        let matching = slots.iter().enumerate();
        matching
            .filter(|(_, slot)| slot.is_for(hook, filter))
            .map(|(index, slot)| (index, slot.message.clone()))
            .collect()
    }

    /// Whether a hook has to decide about messages still.
    pub(super) fn has_matching(&self, hook: usize, filter: &TopicFilter) -> bool {
        self.lock().iter().any(|slot| slot.is_for(hook, filter))
    }

    /// Records that the hook at the position `hook` has decided about a message.
    pub(super) fn pass(&self, index: usize, hook: usize) {
        if let Some(slot) = self.lock().get_mut(index) {
            slot.passed = hook + 1;
        }
    }

    /// Decides that a message is not published.
    pub(super) fn refuse(&self, index: usize, refusal: PublishDecision) {
        if let Some(slot) = self.lock().get_mut(index) {
            slot.refusal = Some(refusal);
        }
    }

    /// Changes a message. With a number, its hook wants to know how long the store takes.
    pub(super) fn change(
        &self,
        index: usize,
        changes: &MessageChanges,
        number: Option<u64>,
    ) -> Result<(), ChangeError> {
        if let Some(slot) = self.lock().get_mut(index) {
            let now = Instant::now();
            slot.message = slot.message.changed(changes, now, &self.limits)?;
            slot.is_changed = true;
            slot.number = number.or(slot.number);
        }
        Ok(())
    }

    /// The decision about each message.
    pub(super) fn decisions(&self) -> Vec<PublishDecision> {
        let slots = std::mem::take(&mut *self.lock());
        let decision = |slot: Slot| match slot.refusal {
            Some(refusal) => refusal,
            None if slot.is_changed => PublishDecision::Replace(slot.message, slot.number),
            None => PublishDecision::Publish,
        };
        slots.into_iter().map(decision).collect()
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Slot>> {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
