//! Keeps acknowledgements of one client in order while they wait for the store [MQTT-4.6.0-2].

use std::cell::Cell;

use mqttcore_store::Durability;

/// Where things that must leave in their order stand.
#[derive(Default)]
pub(crate) struct AckOrder {
    /// What the next one waits for, which is not in line yet.
    next: Cell<Option<Durability>>,
    /// What the last one in line waits for; all before it wait for that or less.
    durability: Cell<Option<Durability>>,
    /// How many are in line.
    count: Cell<u32>,
}

impl AckOrder {
    /// The next one waits for `durability`, at least; whether it is the first to say so.
    pub(crate) fn require(&self, durability: Durability) -> bool {
        let next = self.next.get();
        self.next.set(next.max(Some(durability)));
        next.is_none()
    }

    /// The level of the line that the next one has to stand in; `None` if it need not.
    pub(crate) fn durability(&self) -> Option<Durability> {
        self.next.get().max(self.durability.get())
    }

    /// The next one gets in line; returns the level that it waits for.
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

    /// The first one leaves.
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
