//! A shard's records for an external log (Kafka), and the continuations that wait for them.
//!
//! A shard hands over the records of a turn at the end of the turn. By QoS:
//!
//! * **QoS 0**: nothing waits for the record. If too many records wait for the external log, the message is dropped
//!   and counted.
//! * **QoS 1**: the message is delivered at once (docs/decisions.md, 19), and acknowledged when the external log has
//!   its record and the store has its own. If the external log does not accept the record, the publisher is
//!   disconnected without an acknowledgement, so that it sends the message again.
//! * **QoS 2**: the record goes to the external log first. When it is there, the message is accepted: written to the
//!   store, delivered, acknowledged. So a broker that dies in between has acknowledged nothing.
//!
//! While too many records wait for the external log, publishers that depend on it are not read.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};

use mqttcore_codec::QoS;
use mqttcore_session::{AckToken, Message};
use tokio::sync::oneshot;

use crate::clients::client::Client;
use crate::clients::handle::RowStream;
use crate::clients::link::Link;
use crate::durability::clock::now_us;
use crate::durability::outcomes::{LostRecord, RecordOutcome, RecordOutcomes, RecordTicket};
use crate::durability::room_wakers::RoomWakers;
use crate::durability::row_log::{RowLog, RowRecord};

/// Number of records after an unsettled one above which QoS 0 is dropped: they wait for a partition without a leader,
/// while other partitions make progress.
const UNSETTLED_MAX: usize = 1 << 20;

/// A shard's queue of records for the external log.
pub(crate) struct ExternalQueue {
    pub(crate) rows: Arc<dyn RowLog>,
    outcomes: RecordOutcomes,
    shard: u8,
    /// The records of this turn.
    batch: RefCell<Vec<RowRecord>>,
    /// The number of the last record, and the last one up to which all are settled.
    last: Cell<u64>,
    settled: Cell<u64>,
    /// The last one above QoS 0.
    pub(crate) owed: Cell<u64>,
    /// How many of those that no client published were lost.
    pub(crate) own_lost: Cell<u64>,
    /// Records behind `settled`, in their order; `None` is settled.
    pending: RefCell<VecDeque<Option<PendingRecord>>>,
    /// Continuations that wait until all records up to a number are settled, oldest first.
    waiting: RefCell<BTreeMap<(u64, u64), KafkaContinuation>>,
    serial: Cell<u64>,
    /// Connections that are not read until there is room.
    stalled: RoomWakers,
    /// Scratch space of [`settle_all`](Self::settle_all).
    settling: RefCell<Vec<(u64, RecordOutcome)>>,
}

/// A record without an outcome yet.
struct PendingRecord {
    bytes: usize,
    publisher: RecordOrigin,
}

/// The origin of a record, which decides what happens if the record is lost.
pub(crate) enum RecordOrigin {
    /// Nothing waits for it.
    None,
    /// A publisher, whose acknowledgement waits.
    Publisher(Rc<Client>, Rc<Link>),
    /// A step that waits for it.
    Asking(oneshot::Sender<Result<(), LostRecord>>),
}

/// A step of the shard that waits for records to be settled.
pub(crate) enum KafkaContinuation {
    /// Confirm the acknowledgements of a session up to this token.
    Confirm(Rc<Client>, AckToken),
    /// Call a function, for another thread.
    Call(Box<dyn FnOnce()>),
}

impl ExternalQueue {
    pub(crate) fn new(rows: Arc<dyn RowLog>, outcomes: RecordOutcomes, shard: usize) -> Self {
        Self {
            rows,
            outcomes,
            // INVARIANT: a shard's number is eight bits of a subscriber's handle.
            shard: u8::try_from(shard).expect("at most 64 shards"),
            batch: RefCell::default(),
            last: Cell::new(0),
            settled: Cell::new(0),
            owed: Cell::new(0),
            own_lost: Cell::new(0),
            pending: RefCell::default(),
            waiting: RefCell::default(),
            serial: Cell::new(0),
            stalled: RoomWakers::default(),
            settling: RefCell::default(),
        }
    }

    /// Hands over the records of this turn.
    pub(crate) fn hand_over(&self) {
        let mut batch = self.batch.borrow_mut();
        if !batch.is_empty() {
            self.rows.send(&mut batch);
        }
    }

    /// Adds a message to the records of this turn; returns its number.
    pub(crate) fn push(
        &self,
        stream: u32,
        message: &Message,
        client_id: &str,
        publisher: RecordOrigin,
    ) -> u64 {
        let number = self.last.get() + 1;
        self.last.set(number);
        if message.qos() > QoS::AtMostOnce {
            self.owed.set(number);
        }
        let bytes = self.rows.reserve(message);
        let external = RowStream::External(stream);
        let partition = self
            .rows
            .partition(external, message.topic(), client_id, bytes);
        let record = RowRecord {
            message: message.clone(),
            client_id: client_id.into(),
            stream,
            partition: partition.unwrap_or(0),
            timestamp_us: i64::try_from(now_us()).unwrap_or(i64::MAX),
            ticket: RecordTicket {
                shard: self.shard,
                number,
            },
        };
        let pending = PendingRecord { bytes, publisher };
        self.pending.borrow_mut().push_back(Some(pending));
        self.batch.borrow_mut().push(record);
        number
    }

    /// Takes the outcomes of records, and calls `settle` with each and its origin.
    pub(crate) fn settle_all(
        &self,
        shard: usize,
        mut settle: impl FnMut(RecordOrigin, RecordOutcome),
    ) {
        let mut outcomes = std::mem::take(&mut *self.settling.borrow_mut());
        self.outcomes.take(shard, &mut outcomes);
        for (number, outcome) in outcomes.drain(..) {
            if let Some(pending) = self.take(number) {
                let is_kept = matches!(outcome, RecordOutcome::Kept);
                self.rows.settled(pending.bytes, is_kept);
                settle(pending.publisher, outcome);
            }
        }
        *self.settling.borrow_mut() = outcomes;
        self.pass_settled();
    }

    /// Pending while the external log has no room, for a client that waits for `record`.
    pub(crate) fn poll_room(&self, record: u64, cx: &Context<'_>) -> Poll<()> {
        if self.is_settled(record) {
            return Poll::Ready(());
        }
        self.stalled.poll_room(cx, || self.rows.has_room())
    }

    /// Takes out the record of this number.
    fn take(&self, number: u64) -> Option<PendingRecord> {
        let place = number.checked_sub(self.settled.get() + 1)?;
        let place = usize::try_from(place).ok()?;
        self.pending.borrow_mut().get_mut(place)?.take()
    }

    fn pass_settled(&self) {
        let mut pending = self.pending.borrow_mut();
        while pending.front().is_some_and(Option::is_none) {
            pending.pop_front();
            self.settled.set(self.settled.get() + 1);
        }
    }

    pub(crate) fn has_room(&self) -> bool {
        self.rows.has_room() && self.pending.borrow().len() < UNSETTLED_MAX
    }

    pub(crate) fn is_settled(&self, number: u64) -> bool {
        number <= self.settled.get()
    }

    pub(crate) fn wait(&self, number: u64, waiting: KafkaContinuation) {
        let serial = self.serial.get();
        self.serial.set(serial + 1);
        self.waiting.borrow_mut().insert((number, serial), waiting);
    }

    /// Takes the first continuation whose records are settled.
    pub(crate) fn next_settled(&self) -> Option<KafkaContinuation> {
        let mut waiting = self.waiting.borrow_mut();
        let first = waiting.first_entry()?;
        let (number, _) = *first.key();
        self.is_settled(number).then(|| first.remove())
    }

    pub(crate) fn wake_stalled(&self) {
        self.stalled.wake_all();
    }
}
