//! What waits until the store has kept something: one line for each level that there is to wait for.
//!
//! A client's promises leave in their order [MQTT-4.6.0-2], so one that stands in the line for the
//! disk has all its later ones there, whatever they wait for themselves.

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

/// What is done once a ticket is safe.
pub(crate) enum Continuation {
    /// Let the promises of a session leave, up to this one, unless Kafka has not taken all up to
    /// this record.
    Confirm(Rc<Client>, AckToken, u64),
    /// Deliver what was published at QoS 2.
    Deliver(Message, Vec<Target>),
    /// Anything else.
    Call(Box<dyn FnOnce()>),
}

/// The first ticket that something of a shard waits for, at each level; all ones if nothing does. The thread of the log
/// wakes the shard when that one is safe.
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

    /// Whether something waits for `ticket` or an earlier one.
    pub(crate) fn is_for(&self, durability: Durability, ticket: u64) -> bool {
        self.0[usize::from(durability == Durability::Fsync)].load(Ordering::SeqCst) <= ticket
    }
}

/// The lines of one shard: for the system, and for the disk.
#[derive(Default)]
pub(crate) struct AckQueues {
    by_durability: [AckQueue; 2],
    awaited: Arc<Awaited>,
    /// Messages of QoS 2 that stand in one of them.
    delivering: AckOrder,
}

/// What waits at one level.
#[derive(Default)]
struct AckQueue {
    /// The last ticket of this level, or a safer one.
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

    /// A batch was handed over at `durability`.
    pub(crate) fn advance_to(&self, ticket: u64, durability: Durability) {
        if durability >= Durability::Os {
            self.queue_of(Durability::Os).last.set(ticket);
        }
        if durability == Durability::Fsync {
            self.queue_of(Durability::Fsync).last.set(ticket);
        }
    }

    /// Has `then` done once all that was handed over so far is as safe as `durability` says.
    pub(crate) fn push(&self, durability: Durability, then: Continuation) {
        let line = self.queue_of(durability);
        let mut waiting = line.waiting.borrow_mut();
        if waiting.is_empty() {
            self.awaited.set(durability, line.last.get());
        }
        waiting.push_back((line.last.get(), then));
    }

    /// Whether the ticket of something in line is safe already.
    pub(crate) fn is_due(&self, log: &DurableLog) -> bool {
        [Durability::Os, Durability::Fsync]
            .into_iter()
            .any(|durability| {
                let waiting = self.queue_of(durability).waiting.borrow();
                let first = waiting.front();
                first.is_some_and(|(ticket, _)| *ticket <= log.kept(durability))
            })
    }

    /// Has `then` done once all that was handed over so far is as safe as was asked for.
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

    /// The level that messages of QoS 2 stand in line for; later ones must not overtake them.
    pub(crate) fn durability_of_deliveries(&self) -> Option<Durability> {
        self.delivering.durability()
    }

    /// A message of QoS 2 is going to stand in the line of `durability`.
    pub(crate) fn deliver_at(&self, durability: Durability) {
        self.delivering.require(durability);
        self.delivering.enqueue();
    }

    /// A message of QoS 2 has left the line.
    pub(crate) fn delivered(&self) {
        self.delivering.dequeue();
    }

    /// Takes out the first thing whose ticket is safe.
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
