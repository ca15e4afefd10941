//! Acknowledgement queues: continuations that wait until the log is safe up to a ticket, one
//! queue for `os` and one for `fsync`.
//!
//! Acknowledgements of a client are sent in order [MQTT-4.6.0-2]. If one of them is in the
//! `fsync` queue, all later ones go there, too.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use mqttcore_session::{AckToken, Message};
use mqttcore_store::Durability;

use crate::clients::ack_order::AckOrder;
use crate::clients::client::Client;
use crate::clients::target::Target;
use crate::durability::store::DurableLog;

/// A step of the shard that waits for a ticket to be safe.
pub(crate) enum Continuation {
    /// Confirm the acknowledgements of a session up to this token, unless Kafka has not taken all
    /// records up to this one.
    Confirm(Rc<Client>, AckToken, u64),
    /// Deliver a QoS 2 message.
    Deliver(Message, Vec<Target>),
    /// Anything else.
    Call(Box<dyn FnOnce()>),
}

/// The first ticket that a shard waits for, for each durability; all ones if there is none. The thread of the log
/// wakes the shard when this ticket is safe.
pub(crate) struct Awaited([AtomicU64; 2]);

impl Default for Awaited {
    fn default() -> Self {
        Self([AtomicU64::new(u64::MAX), AtomicU64::new(u64::MAX)])
    }
}

impl Awaited {
    /// ORDERING: `SeqCst` here and in [`DurableLog::kept`]: either the shard sees that its ticket is safe, or the log's thread sees
    /// that the shard waits for it.
    pub(crate) fn set(&self, durability: Durability, ticket: u64) {
        self.0[usize::from(durability == Durability::Fsync)].store(ticket, Ordering::SeqCst);
    }

    /// Whether the shard waits for `ticket` or an earlier one.
    pub(crate) fn is_for(&self, durability: Durability, ticket: u64) -> bool {
        self.0[usize::from(durability == Durability::Fsync)].load(Ordering::SeqCst) <= ticket
    }
}

/// The queues of one shard, for `os` and for `fsync`.
#[derive(Default)]
pub(crate) struct AckQueues {
    by_durability: [AckQueue; 2],
    awaited: Arc<Awaited>,
    /// Order of QoS 2 messages in the queues.
    delivering: AckOrder,
}

/// The queue of one durability.
#[derive(Default)]
struct AckQueue {
    /// The last ticket of this durability, or a safer one.
    last: Cell<u64>,
    waiting: RefCell<VecDeque<(u64, Continuation)>>,
}

impl AckQueues {
    pub(crate) fn new(awaited: Arc<Awaited>) -> Self {
        Self {
            awaited,
            ..Self::default()
        }
    }

    /// Records that a batch was appended at `durability`.
    pub(crate) fn advance_to(&self, ticket: u64, durability: Durability) {
        if durability >= Durability::Os {
            self.queue_of(Durability::Os).last.set(ticket);
        }
        if durability == Durability::Fsync {
            self.queue_of(Durability::Fsync).last.set(ticket);
        }
    }

    /// Runs `then` when all batches so far have reached `durability`.
    pub(crate) fn push(&self, durability: Durability, then: Continuation) {
        let line = self.queue_of(durability);
        let mut waiting = line.waiting.borrow_mut();
        if waiting.is_empty() {
            self.awaited.set(durability, line.last.get());
        }
        waiting.push_back((line.last.get(), then));
    }

    /// Whether the first ticket of a queue is safe already.
    pub(crate) fn is_due(&self, log: &DurableLog) -> bool {
        [Durability::Os, Durability::Fsync]
            .into_iter()
            .any(|durability| {
                let waiting = self.queue_of(durability).waiting.borrow();
                let first = waiting.front();
                first.is_some_and(|(ticket, _)| *ticket <= log.kept(durability))
            })
    }

    /// Runs `then` when all batches so far have reached the durability that they asked for.
    pub(crate) fn push_last(&self, then: Continuation) {
        let [os, fsync] = [Durability::Os, Durability::Fsync]
            .map(|durability| self.queue_of(durability).last.get());
        let durability = if os > fsync {
            Durability::Os
        } else {
            Durability::Fsync
        };
        self.push(durability, then);
    }

    /// The durability that queued QoS 2 messages wait for; later ones must not overtake them.
    pub(crate) fn durability_of_deliveries(&self) -> Option<Durability> {
        self.delivering.durability()
    }

    /// Counts a QoS 2 message that is put into the queue of `durability`.
    pub(crate) fn deliver_at(&self, durability: Durability) {
        self.delivering.require(durability);
        self.delivering.enqueue();
    }

    /// Counts a QoS 2 message that left its queue.
    pub(crate) fn delivered(&self) {
        self.delivering.dequeue();
    }

    /// Takes the first continuation whose ticket is safe.
    pub(crate) fn next_safe(&self, log: &DurableLog) -> Option<Continuation> {
        [Durability::Os, Durability::Fsync]
            .into_iter()
            .find_map(|durability| {
                let mut waiting = self.queue_of(durability).waiting.borrow_mut();
                let (ticket, _) = waiting.front()?;
                if *ticket > log.kept(durability) {
                    return None;
                }
                let (_, then) = waiting.pop_front()?;
                let next = waiting.front().map_or(u64::MAX, |(ticket, _)| *ticket);
                self.awaited.set(durability, next);
                Some(then)
            })
    }

    fn queue_of(&self, durability: Durability) -> &AckQueue {
        &self.by_durability[usize::from(durability == Durability::Fsync)]
    }
}
