//! The shard log writer: collects the records of a turn, and the continuations that depend on them.
//!
//! A shard hands over the records of a turn at the end of the turn, before it sends messages to other shards and
//! before it writes to a socket. The store returns a ticket. Acknowledgements, and the delivery of QoS 2 messages,
//! wait for this ticket (docs/decisions.md, 2 and 19). `config/durability.rs` defines the durabilities.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};

use mqttcore_store::record::{RecipientsBuf, Record, RowRefsBuf};
use mqttcore_store::{Batch, Durability};

use crate::clients::client::Client;
use crate::durability::ack_queue::{AckQueues, Awaited, Continuation};
use crate::durability::room_wakers::RoomWakers;
use crate::durability::store::{DurableLog, PageRequest};

/// Writes one shard's records to the store.
pub(crate) struct ShardLogWriter {
    pub(crate) log: Arc<DurableLog>,
    /// The records of this turn.
    batch: RefCell<Batch>,
    /// The highest durability that a record of the turn needs.
    durability: Cell<Durability>,
    /// Clients with held acknowledgements that depend on them.
    held_clients: RefCell<Vec<Rc<Client>>>,
    /// Other continuations that depend on them.
    held: RefCell<Vec<(Durability, Continuation)>>,
    /// Continuations that wait for records of earlier turns.
    pub(crate) ack_queues: AckQueues,
    pub(crate) recipients: RefCell<RecipientsBuf>,
    pub(crate) rows: RefCell<RowRefsBuf>,
    /// Connections that do not read until the log has room.
    stalled: RoomWakers,
}

impl ShardLogWriter {
    pub(crate) fn new(log: Arc<DurableLog>, awaited: Arc<Awaited>) -> Self {
        Self {
            log,
            batch: RefCell::default(),
            durability: Cell::new(Durability::Memory),
            held_clients: RefCell::default(),
            held: RefCell::default(),
            ack_queues: AckQueues::new(awaited),
            recipients: RefCell::default(),
            rows: RefCell::default(),
            stalled: RoomWakers::default(),
        }
    }

    /// Pending while the queue of the log has no room.
    pub(crate) fn poll_room(&self, cx: &Context<'_>) -> Poll<()> {
        self.stalled.poll_room(cx, || self.log.store.has_room())
    }

    /// Wakes the connections that wait for the log, if it has room.
    pub(crate) fn wake_stalled(&self) {
        if !self.stalled.is_empty() && self.log.store.has_room() {
            self.stalled.wake_all();
        }
    }

    pub(crate) fn write(&self, durability: Durability, record: &Record<'_>) {
        self.durability.set(self.durability.get().max(durability));
        self.batch.borrow_mut().push(record);
    }

    pub(crate) fn after(&self, durability: Durability, then: Continuation) {
        self.held.borrow_mut().push((durability, then));
    }

    /// Holds acknowledgements to `client` until all records so far have reached `durability`.
    pub(crate) fn hold_acknowledgement(&self, client: &Rc<Client>, durability: Durability) {
        if client.ack_order.require(durability) {
            self.held_clients.borrow_mut().push(Rc::clone(client));
        }
    }

    /// The next number of a delivery; no delivery has it or a higher one yet.
    pub(crate) fn next_number(&self) -> u64 {
        self.log.numbers(0)
    }

    /// Requests a page of a queue; it arrives as a job of the shard.
    pub(crate) fn read_page(&self, request: PageRequest) {
        self.log.read_page(request);
    }

    /// Runs `then` after all messages that wait for delivery; returns it if there is none.
    pub(crate) fn after_deliveries(&self, then: Box<dyn FnOnce()>) -> Option<Box<dyn FnOnce()>> {
        let Some(durability) = self.ack_queues.durability_of_deliveries() else {
            return Some(then);
        };
        self.after(durability.max(Durability::Os), Continuation::Call(then));
        None
    }

    /// Whether a continuation can run: its records became safe before it was queued.
    pub(crate) fn is_due(&self) -> bool {
        self.ack_queues.is_due(&self.log)
    }

    /// Appends the records of this turn to the log, and queues the continuations that depend on them.
    pub(crate) fn commit(&self) {
        let mut held_clients = self.held_clients.borrow_mut();
        let mut held = self.held.borrow_mut();
        let mut batch = self.batch.borrow_mut();
        if !batch.is_empty() {
            // If an earlier acknowledgement of the client waits for a higher durability, this one
            // waits for it, too, so the records get that durability.
            let clients = held_clients
                .iter()
                .filter_map(|client| client.ack_order.durability());
            let others = held.iter().map(|(durability, _)| *durability);
            let durability = self.durability.replace(Durability::Memory);
            let durability = clients.chain(others).fold(durability, Durability::max);
            self.ack_queues
                .advance_to(self.log.append(&mut batch, durability), durability);
        }
        for client in held_clients.drain(..) {
            let durability = client.ack_order.enqueue();
            let token = client.session.borrow().last_token();
            let record = client.external_record();
            self.ack_queues
                .push(durability, Continuation::Confirm(client, token, record));
        }
        for (durability, then) in held.drain(..) {
            self.ack_queues.push(durability, then);
        }
    }
}
