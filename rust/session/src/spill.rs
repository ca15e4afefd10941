//! Spilled queues: messages that only the engine's store keeps; paging reads them back.
//!
//! What may be let go of is what the store has: messages that were delivered with a
//! [`Delivery::key`]. The engine closes the queue of a client that stays away
//! ([`Session::spill`]), opens it when the client is back ([`Session::begin_paging`]), and puts
//! page after page in front of what has come since ([`Session::page`]). A queue that grows beyond what memory should
//! hold closes itself, of a client that is here, too: that one has what is at hand, then the queue is opened again.

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
    /// Lets go of the waiting messages that the store has, and only counts those that come, until
    /// [`Session::begin_paging`]. False if nothing was done: the client is here, nothing is left to let go of,
    /// or its policy must know the oldest message.
    pub fn spill(&mut self) -> bool {
        let is_done = self.may_spill();
        if is_done {
            self.queue.close();
        }
        is_done
    }

    /// Whether [`Session::spill`] would do something.
    pub fn may_spill(&self) -> bool {
        let is_held = !self.queue.is_closed() || self.queue.holds_stored();
        !self.is_connected() && is_held && !self.drops_oldest()
    }

    /// Lets go of what came last and is in the store if memory holds more than it should. What is at hand stays: a
    /// page that is on its way goes behind it.
    pub(crate) fn spill_surplus(&mut self) {
        if !self.drops_oldest() && !self.queue.is_within_memory(&self.limits) {
            self.queue.close_behind();
        }
    }

    /// Has the queue hold no more of what the store has than it holds now, whatever its limits say, until
    /// [`Session::begin_paging`]: what comes next is counted. What is at hand stays.
    pub fn spill_behind(&mut self) {
        if !self.drops_oldest() && !self.queue.is_closed() {
            self.queue.close_behind();
        }
    }

    /// Since when the client is away; `None` while it is here.
    pub fn away_since(&self) -> Option<Instant> {
        self.since.filter(|_| !self.is_connected())
    }

    /// Counts messages of an earlier life of the engine, with the [`Message::len`] of all of
    /// them; what comes until [`Session::begin_paging`] is counted, too.
    pub fn restore_spilled(&mut self, count: usize, bytes: usize) {
        self.queue.close();
        self.queue.count_spilled(count, bytes);
    }

    /// Says that the engine died with the client connected: messages of an earlier life at QoS 1 that wait and have
    /// a key below `key` may have been sent, so they go with DUP [MQTT-3.3.1-1].
    pub fn restore_maybe_sent(&mut self, key: u64) {
        self.queue.mark_maybe_sent_below(key);
    }

    /// Waiting messages that the store alone has.
    pub fn spilled(&self) -> usize {
        self.queue.spilled()
    }

    /// Whether the queue is closed: what comes is counted, and opening it comes first.
    pub fn is_spilling(&self) -> bool {
        self.queue.is_closed()
    }

    /// Opens the queue: what comes from now on is held in memory. Everything that was counted has
    /// a key below `below`; what comes with such a key was on its way. Pages begin with the first key: what
    /// is at hand is left out.
    pub fn begin_paging(&mut self, below: u64) {
        self.queue.open(below);
    }

    /// Whether the next page is wanted: the client is here and has little at hand, or the oldest
    /// messages have to be known. If the queue is closed and all pages were read, open it first.
    pub fn wants_page(&self) -> bool {
        let has_use = self.is_connected() || self.drops_oldest();
        let (messages, bytes) = self.queue.sendable();
        let is_short = messages == 0 || messages < AT_HAND && bytes <= self.limits.queue_bytes;
        self.queue.spilled() > 0 && has_use && (is_short || self.drops_oldest())
    }

    /// Puts back the next messages from the store, in their order, and sends what may be sent.
    /// What `keep` refuses is dropped, as by [`Session::keep_queued`]. With `is_last` there are
    /// no more of them, whatever the count was, but for what came after the queue was closed again.
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

    /// The oldest messages had to be known before they could be dropped.
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
