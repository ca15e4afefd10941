//! Who looks at deliveries besides their receivers: deliver hooks, and observers, which see each message before a session
//! of this shard gets it (ADR 0118).

use std::sync::Weak;

use mqttcore_session::Message;

use crate::clients::delivery_observer::DeliveryObserver;
use crate::clients::target::Target;
use crate::shard::Shard;

impl Shard {
    /// Whether nobody looks at deliveries.
    pub(crate) fn are_deliveries_plain(&self) -> bool {
        self.are_deliveries_plain.get()
    }

    /// Whether a plugin decides about `message` before it is sent to a subscriber.
    pub(crate) fn has_deliver_hook(&self, message: &Message) -> bool {
        !self.are_deliveries_plain() && {
            let (interests, topic) = (self.interests(), message.topic_name());
            interests.deliver.iter().any(|filter| filter.matches(topic))
        }
    }

    /// Lets `observer` see the deliveries of this shard until it is dropped.
    pub(crate) fn observe_deliveries(&self, observer: Weak<dyn DeliveryObserver<Self>>) {
        let mut observers = self.delivery_observers.borrow_mut();
        observers.retain(|one| one.strong_count() > 0);
        observers.push(observer);
        drop(observers);
        self.note_deliveries();
    }

    /// Shows a message and one of its targets to the observers, if the target is on this shard.
    #[cold]
    pub(crate) fn show_delivery(&self, message: &Message, target: &Target) {
        if target.handle.shard() != self.index {
            return;
        }
        let mut is_one_gone = false;
        for observer in &*self.delivery_observers.borrow() {
            match observer.upgrade() {
                Some(observer) => observer.observe(self, message, target),
                None => is_one_gone = true,
            }
        }
        if is_one_gone {
            let mut observers = self.delivery_observers.borrow_mut();
            observers.retain(|observer| observer.strong_count() > 0);
            drop(observers);
            self.note_deliveries();
        }
    }

    /// Notes whether deliveries are plain, after hooks or observers have changed.
    pub(super) fn note_deliveries(&self) {
        let has_hooks = !self.interests().deliver.is_empty();
        let is_observed = !self.delivery_observers.borrow().is_empty();
        self.are_deliveries_plain.set(!has_hooks && !is_observed);
    }
}
