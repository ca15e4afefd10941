//! Keeps acknowledgements of one client in order while they wait for the store [MQTT-4.6.0-2].

use std::cell::Cell;

use mqttcore_store::Durability;

/// The acknowledgements of one client that wait for the store, and their durability.
pub(crate) struct AckOrder {
    /// The durability of the client's messages and requests: it fits into padding.
    pub(crate) of_client: Cell<Durability>,
    /// The durability that the next acknowledgement requires; it is not queued yet.
    next: Cell<Option<Durability>>,
    /// The durability of the last queued acknowledgement; earlier ones require that or less.
    durability: Cell<Option<Durability>>,
    /// Number of queued acknowledgements.
    count: Cell<u32>,
}

impl Default for AckOrder {
    fn default() -> Self {
        Self {
            of_client: Cell::new(Durability::Fsync),
            next: Cell::default(),
            durability: Cell::default(),
            count: Cell::default(),
        }
    }
}

impl AckOrder {
    /// Requires at least `durability` for the next acknowledgement; returns whether this is its first requirement.
    pub(crate) fn require(&self, durability: Durability) -> bool {
        let next = self.next.get();
        self.next.set(next.max(Some(durability)));
        next.is_none()
    }

    /// The durability that the next acknowledgement has to wait for; `None` if it need not wait.
    pub(crate) fn durability(&self) -> Option<Durability> {
        self.next.get().max(self.durability.get())
    }

    /// Queues the next acknowledgement; returns the durability that it waits for.
    pub(crate) fn enqueue(&self) -> Durability {
        let durability = self
            .durability()
            .unwrap_or(Durability::Os)
            .max(Durability::Os);
        self.next.set(None);
        self.durability.set(Some(durability));
        self.count.set(self.count.get() + 1);
        durability
    }

    /// Removes the first acknowledgement.
    pub(crate) fn dequeue(&self) {
        let count = self.count.get() - 1;
        self.count.set(count);
        if count == 0 {
            self.durability.set(None);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_comes_behind_something_safer_waits_for_it() {
        let ack_order = AckOrder::default();

        ack_order.require(Durability::Os);
        assert_eq!(ack_order.enqueue(), Durability::Os);
        ack_order.require(Durability::Os);
        ack_order.require(Durability::Fsync);
        assert_eq!(ack_order.enqueue(), Durability::Fsync);
        assert_eq!(ack_order.durability(), Some(Durability::Fsync));
        ack_order.require(Durability::Memory);
        assert_eq!(ack_order.enqueue(), Durability::Fsync);

        (0..3).for_each(|_| ack_order.dequeue());
        assert_eq!(ack_order.durability(), None);
        ack_order.require(Durability::Os);
        assert_eq!(ack_order.enqueue(), Durability::Os);
    }
}
