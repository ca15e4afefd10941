//! The task of one connection: passes received packets to its session and writes the session's packets.
//!
//! The socket, the outbox and a close request wake it. A turn reads until the socket is empty or its budget is spent,
//! then writes once.

mod ending;
mod future;
mod packets;

use std::rc::Rc;
use std::task::{Context, Poll};

use mqttcore_codec::{Limits, ReasonCode};
use mqttcore_session::{Chunk, Idle, OnDemand};

use crate::clients::client::{Client, QueueLevel};
use crate::clients::connections::ConnectionSlot;
use crate::clients::link::{HeldBack, Link, Pace};
use crate::config::{ClientRates, RateLimitKind};
use crate::connection::READ_BELOW_BYTES;
use crate::connection::authorize::PendingRequest;
use crate::connection::disconnect_cause::DisconnectCause;
use crate::connection::input::{Arrived, Input, PARTIAL_BYTES, ReadBatch, Unread};
use crate::connection::output;
use crate::connection::rate_limit::{ControlPackets, FLOOD, RateLimit};
use crate::connection::reauthentication::Reauthentication;
use crate::connection::task::future::ConnectionTask;
use crate::routing::memory::{self, Shortage};
use crate::routing::{fill, group, retain};
use crate::sessions::paging;
use crate::shard::{Due, Shard};
use crate::transport::Transport;
use crate::transport::socket::{ReadBytes, ReadEnd};

/// Bytes that one connection reads in a turn, and one read of a large frame more (docs/decisions.md, engine 8).
const TURN_BYTES: usize = 64 * 1024;

struct Connection {
    shard: Rc<Shard>,
    client: Rc<Client>,
    link: Rc<Link>,
    input: Input,
    /// The runtime wakes the task when there is something to read.
    is_watched: bool,
    waits: OnDemand<Waits>,
    throttle: Option<Box<RateLimit>>,
    limits: Limits,
    /// The rate limit of retained messages; its state is in `waits`.
    retained_bytes_per_second: u32,
    control_packets: ControlPackets,
}

/// What a connection waits for besides its socket and its rate limit: hardly ever anything.
struct Waits {
    /// A paused step; nothing is read from this client meanwhile.
    pause: Option<PendingRequest>,
    /// The state of the rate limit of retained messages, which is created with the first of them.
    retained: Option<Box<RateLimit>>,
    reauthentication: Option<Box<Reauthentication>>,
}

impl Idle for Waits {
    const IDLE: Self = Self {
        pause: None,
        retained: None,
        reauthentication: None,
    };

    fn idle() -> &'static Self {
        const { &Self::IDLE }
    }
}

/// Starts the task of a connection whose CONNACK is already in its outbox.
pub(crate) fn spawn(
    shard: &Rc<Shard>,
    client: &Rc<Client>,
    link: &Rc<Link>,
    (transport, slot): (Transport, ConnectionSlot),
    unread: &[u8],
) {
    shard.tasks.set(shard.tasks.get() + 1);
    let channel = transport.channel();
    debug_assert_eq!(
        channel.heap_bytes(),
        transport.heap_bytes().next_multiple_of(1_024)
    );
    link.channel.set(channel);
    link.endpoint.borrow_mut().transport = Some(transport);
    let rates = ClientRates::of(&shard.config(), link.peer().ip());
    let connection = Connection {
        shard: Rc::clone(shard),
        client: Rc::clone(client),
        link: Rc::clone(link),
        input: Input::new(unread, |bytes| shard.new_chunk(link, bytes)),
        is_watched: false,
        waits: OnDemand::NONE,
        throttle: RateLimit::new(rates, client, None),
        limits: client.session.borrow().limits().after_connect(),
        retained_bytes_per_second: rates.retained_bytes,
        control_packets: ControlPackets::new(rates.control_packets),
    };
    tokio::task::spawn_local(ConnectionTask::new(connection, slot));
}

impl Connection {
    fn poll_turn(&mut self, cx: &mut Context<'_>) -> Poll<DisconnectCause> {
        self.link.store_waker(cx.waker());
        self.shard.refresh_now();
        self.link.in_turn.set(true);
        let turn = self.turn(cx);
        self.link.in_turn.set(false);
        let Err(end) = turn else {
            self.shard.flush_mailboxes_later();
            return Poll::Pending;
        };
        self.shard.flush_mailboxes();
        if matches!(end, DisconnectCause::Lost) {
            // A client that closed only its sending half may still read.
            let _ = self.write(cx);
        }
        Poll::Ready(end)
    }

    /// Reads and handles input, then writes once.
    fn turn(&mut self, cx: &mut Context<'_>) -> Result<(), DisconnectCause> {
        if let Some(closing) = output::closing(&self.shard, &self.link) {
            return Err(DisconnectCause::Closed(closing));
        }
        self.shard.start_turn();
        let mut budget = TURN_BYTES;
        let more = loop {
            if budget == 0 || self.shard.is_turn_over() {
                break true;
            }
            match self.poll_input(cx, &mut budget)? {
                Poll::Ready(()) => {}
                Poll::Pending => break false,
            }
        };
        if self.waits.reauthentication.is_some() {
            self.authenticate_again(cx)?;
        }
        let was_full = self.outbox_len() >= READ_BELOW_BYTES;
        if self.link.has_replays() {
            self.replay_retained(cx);
        }
        if self.outbox_len() > 0 {
            // Before acknowledgements are sent, so that acknowledged messages have been sent to all shards.
            self.shard.flush_mailboxes();
        }
        self.write(cx)?;
        let is_settled = self.link.is_settling.get() && self.outbox_len() == 0;
        if is_settled {
            self.link.is_settling.set(false);
            self.free_buffers();
        }
        self.update_levels(is_settled);
        let drained = was_full && self.outbox_len() < READ_BELOW_BYTES;
        let goes_on = more && !self.wait_for_receivers(cx);
        if goes_on || drained || self.may_replay(cx) {
            wake_after_others(cx);
        }
        Ok(())
    }

    /// Puts the next turn behind the connections that this one has sent messages to; returns false and does nothing if
    /// they are few.
    fn wait_for_receivers(&self, cx: &Context<'_>) -> bool {
        let due = &self.shard.due;
        let are_many = due.is_long();
        if are_many {
            due.push(Due::Turn(cx.waker().clone()));
        }
        are_many
    }

    /// Whether retained messages are to be sent and may be sent now.
    fn may_replay(&mut self, cx: &mut Context<'_>) -> bool {
        self.link.has_replays()
            && retain::can_replay(&self.shard, &self.client)
            && self.poll_retained(cx).is_ready()
    }

    /// Frees empty buffers.
    fn free_buffers(&mut self) {
        self.client.free_buffers(&self.link);
        self.input.shrink();
        self.link.partial_bytes.set(self.input.partial_bytes());
        let Waits {
            pause,
            retained,
            reauthentication,
        } = &*self.waits;
        if pause.is_none() && retained.is_none() && reauthentication.is_none() {
            self.waits.clear();
        }
    }

    /// Updates the availability of the client and the level of its queue, and reads on in a queue that is on the disk.
    /// Memory is counted in some turns, and once buffers were freed: it `is_settled`.
    fn update_levels(&self, is_settled: bool) {
        if !self.client.has_link(&self.link) {
            return;
        }
        if self.client.session.borrow().wants_page() {
            paging::read_on(&self.shard, &self.client);
        }
        group::update_availability(&self.shard, &self.client, self.outbox_len());
        let counts_memory = self.link.counts_memory() | is_settled;
        if self.client.queue_level.get() != QueueLevel::Empty {
            fill::watch(&self.shard, &self.client);
        } else if counts_memory {
            self.client.weigh(&self.shard);
        }
    }

    /// Sends retained messages that the client subscribed to, if the rate limit allows it.
    fn replay_retained(&mut self, cx: &mut Context<'_>) {
        if self.poll_retained(cx).is_pending() {
            return;
        }
        let bytes = retain::replay(&self.shard, &self.client);
        let per_second = self.retained_bytes_per_second;
        if bytes > 0 && per_second > 0 {
            self.waits
                .retained
                .get_or_insert_with(|| Box::new(RateLimit::of_retained(per_second)))
                .spend_bytes(self.shard.now(), bytes);
        }
    }

    /// Pending until the rate limit allows retained messages again.
    fn poll_retained(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let retained = self.waits.get_mut();
        match retained.and_then(|waits| waits.retained.as_deref_mut()) {
            Some(retained) if retained.is_spent() => {
                let ready = retained.poll_ready(cx, self.shard.now());
                let is_waiting = ready.is_pending();
                self.note_held_back(HeldBack {
                    retained: is_waiting.then_some(RateLimitKind::RetainedBytes),
                    ..self.link.held_back()
                });
                ready
            }
            _ => Poll::Ready(()),
        }
    }

    /// Pending until the rate limits of what the client sends allow a read.
    fn poll_throttle(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        match self.throttle.as_deref_mut() {
            Some(throttle) if throttle.is_spent() => {
                let ready = throttle.poll_ready(cx, self.shard.now());
                let limit = throttle.waits_for();
                self.note_held_back(HeldBack {
                    reads: limit,
                    ..self.link.held_back()
                });
                ready
            }
            _ => Poll::Ready(()),
        }
    }

    /// Notes the rate limits because of which the client waits from now on, and counts each new wait.
    #[cold]
    fn note_held_back(&self, held_back: HeldBack) {
        let before = self.link.held_back();
        self.link.set_held_back(held_back);
        let listener = Some(usize::from(self.link.listener));
        let refusals = self.shard.metrics().refusals(listener);
        for limit in held_back.begun_since(before) {
            refusals.held_back(limit).add(1);
        }
    }

    fn outbox_len(&self) -> usize {
        self.link.outbox().len()
    }

    /// One step of input: the end of a pause, unhandled input, or one read.
    fn poll_input(
        &mut self,
        cx: &mut Context<'_>,
        budget: &mut usize,
    ) -> Result<Poll<()>, DisconnectCause> {
        self.link.is_unread.set(true);
        if self.poll_pause(cx)?.is_pending() || paging::is_first_page_due(&self.shard, &self.client)
        {
            return Ok(Poll::Pending);
        }
        if let Some(unread) = self.input.take_unread() {
            self.handle_batch(unread.batch())?;
            return Ok(Poll::Ready(()));
        }
        if self.is_quiet() {
            self.link.is_unread.set(false);
            return Ok(Poll::Pending);
        }
        let may_keep = self.shard.config().may_keep(self.client.durability());
        if self.link.pace.get() == Pace::Held
            || self.outbox_len() >= READ_BELOW_BYTES
            || self
                .shard
                .poll_room(cx, may_keep, self.client.external_record())
                .is_pending()
        {
            return Ok(Poll::Pending);
        }
        self.link.is_unread.set(false);
        let mut scratch = self.shard.take_scratch();
        let read = self.read(cx, &mut scratch, budget);
        self.shard.return_scratch(scratch);
        if self.link.pace.get() == Pace::OneRead && matches!(read, Ok(Poll::Ready(()))) {
            self.link.pace.set(Pace::Held);
        }
        self.count_partial()?;
        read
    }

    /// Whether a read would find nothing.
    fn is_quiet(&self) -> bool {
        let endpoint = self.link.endpoint.borrow();
        self.is_watched && endpoint.transport.as_ref().is_none_or(Transport::is_quiet)
    }

    /// Ready if no step is paused and the rate limits allow a read.
    fn poll_pause(&mut self, cx: &mut Context<'_>) -> Result<Poll<()>, DisconnectCause> {
        if let Some(waits) = self.waits.get_mut()
            && let Some(pause) = &mut waits.pause
        {
            let Poll::Ready(result) = pause.as_mut().poll(cx) else {
                return Ok(Poll::Pending);
            };
            waits.pause = None;
            result?;
            self.client.flush_session(&self.shard);
        }
        Ok(self.poll_throttle(cx))
    }

    /// Reads once, after the partial frame of the last read, and handles the complete frames.
    fn read(
        &mut self,
        cx: &mut Context<'_>,
        scratch: &mut [u8],
        budget: &mut usize,
    ) -> Result<Poll<()>, DisconnectCause> {
        let room = self.input.make_room(self.shard.large_read_bytes());
        room.map_err(|_| self.refuse_packet())?;
        let (read, arrived) = match self.receive(cx, scratch) {
            Poll::Pending => return Ok(Poll::Pending),
            Poll::Ready(received) => received?,
        };
        *budget = budget.saturating_sub(read.cost());
        if let Some(throttle) = &mut self.throttle {
            throttle.spend_bytes(self.shard.now(), read.raw);
        }
        self.count_control_packets(read.control_frames)?;
        match arrived {
            None => {}
            Some(Arrived::Read(bytes)) => {
                self.handle_batch(ReadBatch::new(bytes))?;
                *budget = (*budget).max(usize::from(self.input.is_large()));
            }
            Some(Arrived::Frame(frame)) => {
                let chunk = Chunk::from_buffer(frame, self.shard.account_of(&self.link));
                self.handle_batch(Unread::new(self.shard.marked(chunk)).batch())?;
            }
        }
        Ok(Poll::Ready(()))
    }

    /// Receives bytes once, and notes whether the runtime wakes the task when there are more.
    fn receive<'s>(
        &mut self,
        cx: &mut Context<'_>,
        scratch: &'s mut [u8],
    ) -> Poll<Result<(ReadBytes, Option<Arrived<'s>>), DisconnectCause>> {
        let mut own = self.link.endpoint.borrow_mut();
        let Some(transport) = &mut own.transport else {
            return Poll::Pending;
        };
        let is_watched = &mut self.is_watched;
        let received = self.input.read(scratch, |place| {
            let room = place.room();
            let read = transport.poll_read(cx, place);
            *is_watched = transport.is_watched(cx, &read, room);
            read
        });
        let kind = transport.kind();
        received.map(|received| {
            let (read, arrived) = received.map_err(|end| match end {
                ReadEnd::Lost => DisconnectCause::Lost,
                ReadEnd::Fault(fault) => DisconnectCause::Unframed(fault),
                ReadEnd::Flood => DisconnectCause::Violation(FLOOD),
            })?;
            let tallies = &self.shard.metrics().tallies;
            tallies.bytes_received.add(kind, read.raw);
            Ok((read, arrived))
        })
    }

    /// Counts the partial frame in the memory budget. If memory is short, a client that sends a frame larger than the
    /// read buffer is disconnected (abuse H03).
    fn count_partial(&mut self) -> Result<(), DisconnectCause> {
        let bytes = self.input.partial_bytes();
        let before = self.link.partial_bytes.replace(bytes);
        if bytes <= before || bytes as usize <= PARTIAL_BYTES {
            return Ok(());
        }
        self.client.weigh(&self.shard);
        if !self.input.is_large() || !memory::is_full(&self.shard) {
            return Ok(());
        }
        Err(self.refuse_packet())
    }

    /// Counts and logs a packet that there is no memory for; returns why the client is disconnected.
    #[cold]
    fn refuse_packet(&self) -> DisconnectCause {
        memory::report_of(&self.shard, Shortage::Packet, Some(&self.client));
        DisconnectCause::Refused {
            reason: ReasonCode::QUOTA_EXCEEDED,
            text: Shortage::Packet.text().into(),
        }
    }

    /// Counts control packets of MQTT, control frames of WebSocket, or TLS records without payload.
    fn count_control_packets(&mut self, more: u32) -> Result<(), DisconnectCause> {
        let (now, connected_at) = (self.shard.now(), || self.shard.connected_at(&self.link));
        self.control_packets
            .count(more, connected_at, now, &mut self.throttle)
            .map_err(DisconnectCause::Violation)
    }

    /// Advances a re-authentication; after its success the rates of the new grant apply.
    fn authenticate_again(&mut self, cx: &mut Context<'_>) -> Result<(), DisconnectCause> {
        let waits = self.waits.get_mut();
        let Some(begun) = waits.and_then(|waits| waits.reauthentication.as_mut()) else {
            return Ok(());
        };
        if let Poll::Ready(end) = begun.poll(cx, &self.shard, &self.client) {
            self.waits.reauthentication = None;
            end?;
            let before = self.throttle.take();
            let rates = ClientRates::of(&self.shard.config(), self.link.peer().ip());
            self.throttle = RateLimit::new(rates, &self.client, before);
            // The wait for the old rates is void.
            self.note_held_back(HeldBack {
                reads: None,
                ..self.link.held_back()
            });
            wake_after_others(cx);
        }
        Ok(())
    }

    /// Writes from the outbox as much as the socket takes.
    fn write(&mut self, cx: &mut Context<'_>) -> Result<(), DisconnectCause> {
        output::write(&self.shard, &self.client, &self.link, cx).map_err(|_| DisconnectCause::Lost)
    }
}

/// Wakes this task after the runtime has polled sockets and timers. A plain wake would keep the run queue full, and the
/// runtime polls them only when it is empty or every 61 polls.
fn wake_after_others(cx: &mut Context<'_>) {
    let _ = std::pin::pin!(tokio::task::yield_now()).poll(cx);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An idle connection costs its task, its client and its session; keep them small.
    #[test]
    fn what_an_idle_connection_holds_stays_small() {
        let bytes = size_of::<Connection>();
        assert!(bytes <= 128, "{bytes}");
        assert!(size_of::<Client>() <= 216, "{}", size_of::<Client>());
        assert!(size_of::<Link>() <= 184, "{}", size_of::<Link>());
    }
}
