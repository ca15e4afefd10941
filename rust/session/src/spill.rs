//! Spilled queues: messages that only the engine's store keeps; paging reads them back.
//!
//! Only stored messages may be spilled: those that were delivered with a [`Delivery::key`]. The engine closes the queue
//! of a client that stays offline ([`Session::spill`]), opens it when the client is back ([`Session::begin_paging`]),
//! and puts each page before the messages that arrived since ([`Session::page`]). A queue that grows beyond its memory
//! limit closes itself, even of a connected client. The messages in memory are then sent first, and the queue is opened
//! again.

use std::time::Instant;

use crate::event::DropReason;
use crate::limits::QueuePolicy;
use crate::message::Message;
use crate::outbound::Delivery;
use crate::restore::outgoing;
use crate::session::Session;

/// If fewer messages are in memory, the next page is requested.
const AT_HAND: usize = 128;

impl Session {
    /// Drops stored messages from memory, and only counts new ones, until [`Session::begin_paging`]. Returns false and
    /// does nothing if the client is connected, if no stored message is in memory, or if the queue policy needs the
    /// oldest message.
    pub fn spill(&mut self) -> bool {
        let is_done = self.may_spill();
        if is_done {
            self.queue.close();
        }
        is_done
    }

    /// Whether [`Session::spill`] would return true.
    pub fn may_spill(&self) -> bool {
        let is_held = !self.queue.is_closed() || self.queue.holds_stored();
        !self.is_connected() && is_held && !self.drops_oldest()
    }

    /// Drops the newest stored messages from memory if they exceed the memory limits. Messages that can be sent next
    /// stay: a page that is being read goes behind them.
    pub(crate) fn spill_surplus(&mut self) {
        if !self.drops_oldest() && !self.queue.is_within_memory(&self.limits) {
            self.queue.close_behind();
        }
    }

    /// Stops holding further stored messages in memory until [`Session::begin_paging`], whatever the limits are: new
    /// ones are only counted. Messages that can be sent next stay.
    pub fn spill_behind(&mut self) {
        if !self.drops_oldest() && !self.queue.is_closed() {
            self.queue.close_behind();
        }
    }

    /// Since when the client is offline; `None` if it is connected.
    pub fn away_since(&self) -> Option<Instant> {
        self.since.filter(|_| !self.is_connected())
    }

    /// Counts messages that were stored before the engine restarted, with the sum of their [`Message::len`]. New stored
    /// messages are only counted, too, until [`Session::begin_paging`].
    pub fn restore_spilled(&mut self, count: usize, bytes: usize) {
        self.queue.close();
        self.queue.count_spilled(count, bytes);
    }

    /// Records that the client was connected when the engine crashed: queued QoS 1 messages with a key below `key` may
    /// have been sent, so they are sent with DUP [MQTT-3.3.1-1].
    pub fn restore_maybe_sent(&mut self, key: u64) {
        self.queue.mark_maybe_sent_below(key);
    }

    /// Number of queued messages that are in the store only.
    pub fn spilled(&self) -> usize {
        self.queue.spilled()
    }

    /// Whether the queue is closed: new stored messages are only counted until the queue is opened.
    pub fn is_spilling(&self) -> bool {
        self.queue.is_closed()
    }

    /// Opens the queue: new messages are held in memory. The key of every counted message is below `below`; a new
    /// message with such a key may also come in a page. Pages start with the first key; messages that are in memory
    /// already are skipped.
    pub fn begin_paging(&mut self, below: u64) {
        self.queue.open(below);
    }

    /// Whether the next page is needed: the client is connected and few messages are in memory, or the queue policy
    /// needs the oldest message. If the queue is closed and all pages were read, open it first.
    pub fn wants_page(&self) -> bool {
        let has_use = self.is_connected() || self.drops_oldest();
        let (messages, bytes) = self.queue.sendable();
        let is_short = messages == 0 || messages < AT_HAND && bytes <= self.limits.queue_bytes;
        self.queue.spilled() > 0 && has_use && (is_short || self.drops_oldest())
    }

    /// Adds the next messages from the store, in their order, and sends as many as allowed. Messages that `keep`
    /// rejects are dropped, as by [`Session::keep_queued`]. `is_last`: the store has no more messages, whatever the
    /// count of spilled messages says. It has no effect if the queue was closed again in the meantime.
    pub fn page<'d>(
        &mut self,
        now: Instant,
        page: impl IntoIterator<Item = (Message, Delivery<'d>)>,
        is_last: bool,
        keep: impl Fn(&Message) -> bool,
    ) {
        let is_awaited = self.queue.spilled() > 0;
        for (message, delivery) in page {
            let mut outgoing = outgoing(message, delivery);
            outgoing.maybe_sent = self.queue.is_maybe_sent(&outgoing);
            if !is_awaited || !self.queue.fetch(&outgoing) {
                continue;
            }
            if keep(&outgoing.message) {
                self.queue.put_back(outgoing);
            } else {
                self.drop_message(DropReason::Revoked, outgoing);
            }
        }
        let is_whole = is_last && !self.queue.is_closed();
        if is_whole || self.queue.spilled() == 0 {
            self.queue.join();
        }
        self.drop_surplus();
        if self.is_connected() {
            self.refill(now);
        }
    }

    /// Drops the oldest messages while the queue is over its limits; they had to be read from the store first.
    fn drop_surplus(&mut self) {
        while self.drops_oldest()
            && !self.queue.is_within(&self.limits)
            && let Some(oldest) = self.queue.pop()
        {
            self.drop_message(DropReason::QueueFull, oldest);
        }
    }

    fn drops_oldest(&self) -> bool {
        self.limits.queue_policy == QueuePolicy::DropOldest
    }
}
