//! The pump of one connection: bytes to its session, its session's packets to bytes.
//!
//! One task, woken by the socket, by its outbox, or to be closed. A turn reads until the socket
//! is empty or its budget is spent, then writes once.

use std::future::poll_fn;
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};

use mqttcore_codec::{Limits, Packet, Version, decode, frame_len};
use mqttcore_session::{Cause, PublishRequest, Request};

use crate::clients::client::{Client, KeptWill, QueueLevel};
use crate::clients::link::Link;
use crate::connection::authorize::PendingRequest;
use crate::connection::disconnect_cause::DisconnectCause;
use crate::connection::last_packets::{leaving, send_disconnect, send_rest};
use crate::connection::linger::linger;
use crate::connection::publish::{accept_batch, publish};
use crate::connection::reauthentication::Reauthentication;
use crate::connection::socket::Stop;
use crate::connection::subscribe::{subscribe, unsubscribe};
use crate::connection::throttle::Throttle;
use crate::connection::transport::Transport;
use crate::routing::batch::{Incoming, MessageBatch};
use crate::routing::{fill, group, journal, retain};
use crate::sessions::lifecycle::{self, confirm, detach};
use crate::sessions::{loading, paging};
use crate::shard::guard::{CONNECTION, guarded};
use crate::shard::{SCRATCH_BYTES, Shard};

/// Bytes that one connection reads in a turn before others have theirs (engine decision 8).
const TURN_BYTES: usize = 64 * 1024;
/// Bytes waiting for a client above which nothing more is read from it.
const READ_BELOW_BYTES: usize = 256 * 1024;
/// A torn frame up to this size is put in front of the next read instead of growing a buffer.
const TORN_BYTES: usize = 4096;

struct Connection {
    shard: Rc<Shard>,
    client: Rc<Client>,
    link: Rc<Link>,
    transport: Transport,
    /// The start of a frame whose rest is still to be read.
    torn: Vec<u8>,
    /// What was read and is not handled, because something was waited for.
    rest: Option<Box<Rest>>,
    limits: Limits,
    version: Version,
    /// A step that waits; nothing is read from this client meanwhile.
    pause: Option<PendingRequest>,
    throttle: Option<Box<Throttle>>,
    reauthentication: Option<Box<Reauthentication>>,
}

/// Starts the task of a connection whose CONNACK is in its outbox already.
pub(crate) fn spawn(
    shard: &Rc<Shard>,
    client: &Rc<Client>,
    link: &Rc<Link>,
    transport: Transport,
    unread: Vec<u8>,
) {
    shard.tasks.set(shard.tasks.get() + 1);
    let connection = Connection {
        shard: Rc::clone(shard),
        client: Rc::clone(client),
        link: Rc::clone(link),
        transport,
        torn: Vec::new(),
        rest: (!unread.is_empty()).then(|| Box::new(Rest::new(unread.into()))),
        limits: shard.config().limits.after_connect(),
        version: link.version,
        pause: None,
        throttle: throttle(client),
        reauthentication: None,
    };
    let (lost_client, lost_link) = (Rc::clone(client), Rc::clone(link));
    let task = guarded(
        Rc::clone(shard),
        CONNECTION,
        connection.run(),
        move |shard| {
            loading::when_over(shard, move |shard| {
                if lost_client.has_link(&lost_link) {
                    detach(shard, &lost_client, Cause::ConnectionLost);
                }
            });
        },
    );
    let counted = Rc::clone(shard);
    tokio::task::spawn_local(async move {
        task.await;
        counted.world.connections.fetch_sub(1, Ordering::Relaxed);
        counted.task_ended();
    });
}

/// The client's allowance, if its grant has one.
fn throttle(client: &Client) -> Option<Box<Throttle>> {
    let limits = client.access().grant.limits;
    let rate = limits.messages_per_second?;
    Some(Box::new(Throttle::new(rate)))
}

impl Connection {
    async fn run(mut self) {
        let end = poll_fn(|cx| self.poll_turn(cx)).await;
        self.finish(end).await;
    }

    fn poll_turn(&mut self, cx: &mut Context<'_>) -> Poll<DisconnectCause> {
        self.link.park(cx.waker());
        self.shard.refresh_now();
        self.link.in_turn.set(true);
        let turn = self.turn(cx);
        self.link.in_turn.set(false);
        let Err(end) = turn else {
            self.shard.flush_mailboxes();
            return Poll::Pending;
        };
        self.shard.flush_mailboxes();
        if matches!(end, DisconnectCause::Lost) {
            // A client that only closed its sending half still takes what it is owed; whether it
            // does is its own affair.
            let _ = self.write(cx);
        }
        Poll::Ready(end)
    }

    /// Reads and handles what there is, then writes once.
    fn turn(&mut self, cx: &mut Context<'_>) -> Result<(), DisconnectCause> {
        if let Some(closing) = self.link.closing() {
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
        if self.reauthentication.is_some() {
            self.authenticate_again(cx)?;
        }
        let was_full = self.outbox_len() >= READ_BELOW_BYTES;
        retain::replay(&self.shard, &self.client);
        // Before the acknowledgements leave: what was acknowledged is then on its way everywhere.
        self.shard.flush_mailboxes();
        self.write(cx)?;
        if self.client.has_link(&self.link) {
            group::take_part_again(&self.shard, &self.client, self.outbox_len());
            if self.client.queue_level.get() != QueueLevel::Empty {
                fill::watch(&self.shard, &self.client);
            }
        }
        let drained = was_full && self.outbox_len() < READ_BELOW_BYTES;
        if more || drained || retain::can_replay(&self.shard, &self.client) {
            wake_after_others(cx);
        }
        Ok(())
    }

    fn outbox_len(&self) -> usize {
        self.link.outbox.borrow().len()
    }

    /// One step of input: a pause that ends, bytes behind it, or one read.
    fn poll_input(
        &mut self,
        cx: &mut Context<'_>,
        budget: &mut usize,
    ) -> Result<Poll<()>, DisconnectCause> {
        self.link.is_unread.set(true);
        if let Some(pause) = &mut self.pause {
            let Poll::Ready(result) = pause.as_mut().poll(cx) else {
                return Ok(Poll::Pending);
            };
            self.pause = None;
            result?;
            self.client.flush_session(&self.shard);
        }
        if let Some(throttle) = &mut self.throttle
            && throttle.poll_ready(cx).is_pending()
        {
            return Ok(Poll::Pending);
        }
        if paging::is_first_page_due(&self.shard, &self.client) {
            return Ok(Poll::Pending);
        }
        if let Some(rest) = self.rest.take() {
            self.handle_batch(rest.batch())?;
            return Ok(Poll::Ready(()));
        }
        let may_keep = self.shard.config().may_keep(self.client.promise.get());
        if self.outbox_len() >= READ_BELOW_BYTES
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
        read
    }

    /// Reads once, behind the torn frame of the last read, and handles what is whole now.
    fn read(
        &mut self,
        cx: &mut Context<'_>,
        scratch: &mut [u8],
        budget: &mut usize,
    ) -> Result<Poll<()>, DisconnectCause> {
        let torn = self.torn.len();
        let large = torn > TORN_BYTES;
        let start = if large { 0 } else { torn };
        if !large {
            scratch[..torn].copy_from_slice(&self.torn);
        }
        let longest = if large { self.missing() } else { SCRATCH_BYTES };
        let end = SCRATCH_BYTES.min(start + longest);
        let input = match self.transport.poll_read(cx, &mut scratch[start..end]) {
            Poll::Pending => return Ok(Poll::Pending),
            Poll::Ready(Err(Stop::Lost)) => return Err(DisconnectCause::Lost),
            Poll::Ready(Err(Stop::Fault(fault))) => return Err(DisconnectCause::Unframed(fault)),
            Poll::Ready(Ok(input)) => input,
        };
        let len = input.payload;
        *budget = budget.saturating_sub(input.raw);
        self.shard.metrics().bytes_received.add(input.raw as u64);
        if large {
            self.torn.extend_from_slice(&scratch[..len]);
            if self.missing() == 0 {
                let bytes = std::mem::take(&mut self.torn);
                self.handle_batch(Batch::new(&bytes))?;
            }
        } else {
            self.torn.clear();
            self.handle_batch(Batch::new(&scratch[..start + len]))?;
        }
        Ok(Poll::Ready(()))
    }

    /// Bytes until the torn frame is whole.
    fn missing(&self) -> usize {
        let announced = frame_len(&self.torn, &self.limits);
        let whole = announced.ok().flatten().unwrap_or(SCRATCH_BYTES);
        whole.saturating_sub(self.torn.len())
    }

    /// Handles the whole frames of `batch`, as many as this turn may, and keeps the rest.
    fn handle_batch(&mut self, mut batch: Batch<'_>) -> Result<(), DisconnectCause> {
        let mut step = Ok(true);
        while matches!(step, Ok(true)) && !self.must_stop() {
            step = self.handle_frame(&mut batch);
        }
        accept_batch(&self.shard, &self.client, &mut batch.together);
        if matches!(step, Ok(true)) {
            self.rest = batch.into_rest().map(Box::new);
        } else {
            self.torn.extend_from_slice(batch.rest());
        }
        lifecycle::handle_events(&self.shard, &self.client);
        confirm(&self.shard, &self.client);
        self.client.flush_session(&self.shard);
        paging::read_on(&self.shard, &self.client);
        step.map(|_| ())
    }

    /// Handles the next frame; false when there is no whole one.
    fn handle_frame(&mut self, batch: &mut Batch<'_>) -> Result<bool, DisconnectCause> {
        let decoded =
            decode(batch.rest(), self.version, &self.limits).map_err(DisconnectCause::Malformed)?;
        let Some((packet, len)) = decoded else {
            return Ok(false);
        };
        if !self.shard.held.is_over() && may_route(&packet) {
            let over = loading::over(Rc::clone(&self.shard));
            self.pause = Some(Box::pin(async {
                over.await;
                Ok(())
            }));
            return Ok(true);
        }
        if !matches!(packet, Packet::Publish(_)) {
            // What the packet asks for comes behind the publishes in front of it.
            accept_batch(&self.shard, &self.client, &mut batch.together);
        }
        self.shard.metrics().packets_received.add(1);
        let frame = batch.used..batch.used + len;
        batch.used += len;
        let request = self
            .client
            .session
            .borrow_mut()
            .handle_packet(self.shard.now(), packet)
            .map_err(DisconnectCause::Violation)?;
        self.handle_request(request, batch, frame)?;
        Ok(true)
    }

    /// Whether the frames behind this one have to wait: for a plugin, for the client's allowance,
    /// or for the other clients' turn.
    fn must_stop(&self) -> bool {
        self.pause.is_some() || self.is_throttled() || self.shard.is_turn_over()
    }

    fn is_throttled(&self) -> bool {
        self.throttle.as_deref().is_some_and(Throttle::is_spent)
    }

    fn handle_request<'b>(
        &mut self,
        request: Request<'b>,
        batch: &mut Batch<'b>,
        frame: Range<usize>,
    ) -> Result<(), DisconnectCause> {
        match request {
            Request::None => Ok(()),
            Request::Publish(request) => {
                if let Some(throttle) = &mut self.throttle {
                    throttle.spend(self.shard.now());
                }
                self.shard.metrics().messages_received.add(1);
                self.publish(request, batch, frame);
                Ok(())
            }
            Request::Subscribe(request) => {
                self.pause = subscribe(&self.shard, &self.client, request);
                Ok(())
            }
            Request::Unsubscribe(request) => {
                unsubscribe(&self.shard, &self.client, request);
                Ok(())
            }
            Request::Disconnect(cause) => Err(DisconnectCause::Left(cause)),
            Request::Reauthenticate { data } => {
                let begun = Reauthentication::begin(&self.shard, &self.client, data)?;
                self.reauthentication = Some(Box::new(begun));
                Ok(())
            }
            Request::Authenticate { data } => {
                if let Some(begun) = &mut self.reauthentication {
                    begun.proceed(data);
                }
                Ok(())
            }
        }
    }

    /// Goes on with an exchange; at its good end the new grant is in force.
    fn authenticate_again(&mut self, cx: &mut Context<'_>) -> Result<(), DisconnectCause> {
        let Some(begun) = &mut self.reauthentication else {
            return Ok(());
        };
        if let Poll::Ready(end) = begun.poll(cx, &self.shard, &self.client) {
            self.reauthentication = None;
            end?;
            self.throttle = throttle(&self.client);
        }
        Ok(())
    }
}

/// Whether a packet may send a message to others, or have retained ones sent.
fn may_route(packet: &Packet<'_>) -> bool {
    matches!(packet, Packet::Publish(_) | Packet::Subscribe(_))
}

/// The bytes of one read, and the chunk that its messages share once there is one.
struct Batch<'a> {
    bytes: &'a [u8],
    /// How many of them are handled.
    used: usize,
    chunk: Option<Arc<[u8]>>,
    /// Publishes that wait to be matched with those behind them.
    together: MessageBatch<'a>,
}

impl<'a> Batch<'a> {
    fn new(bytes: &'a [u8]) -> Self {
        Self {
            bytes,
            used: 0,
            chunk: None,
            together: MessageBatch::default(),
        }
    }

    fn rest(&self) -> &'a [u8] {
        self.bytes.get(self.used..).unwrap_or_default()
    }

    fn chunk(&mut self) -> &Arc<[u8]> {
        self.chunk.get_or_insert_with(|| Arc::from(self.bytes))
    }

    /// What is to be handled later, if anything: within the chunk if there is one, so that it is not copied again.
    fn into_rest(self) -> Option<Rest> {
        if self.rest().is_empty() {
            return None;
        }
        Some(match self.chunk {
            Some(chunk) => Rest {
                chunk,
                used: self.used,
            },
            None => Rest::new(self.rest().into()),
        })
    }
}

/// Bytes that were read, of which some are not handled.
struct Rest {
    chunk: Arc<[u8]>,
    /// How many of them are handled.
    used: usize,
}

impl Rest {
    fn new(chunk: Arc<[u8]>) -> Self {
        Self { chunk, used: 0 }
    }

    /// The same bytes, to go on with.
    fn batch(&self) -> Batch<'_> {
        Batch {
            used: self.used,
            chunk: Some(Arc::clone(&self.chunk)),
            ..Batch::new(&self.chunk)
        }
    }
}

impl Connection {
    fn publish<'b>(
        &mut self,
        request: PublishRequest<'b>,
        batch: &mut Batch<'b>,
        frame: Range<usize>,
    ) {
        let bytes = batch.bytes;
        let source = bytes.get(frame.clone()).unwrap_or_default();
        let message = request.to_message(self.shard.now(), source, batch.chunk(), frame.start);
        let incoming = Incoming {
            packet_id: request.packet_id(),
            topic: request.into_topic(),
            message,
        };
        self.pause = publish(&self.shard, &self.client, &mut batch.together, incoming);
    }

    /// Writes what waits, as far as the socket takes it: one `send`, or one `writev`.
    fn write(&mut self, cx: &mut Context<'_>) -> Result<(), DisconnectCause> {
        while self.transport.has_output() || !self.link.outbox.borrow().is_empty() {
            let written = {
                let outbox = self.link.outbox.borrow();
                match self.transport.poll_write(cx, &outbox) {
                    Poll::Ready(Ok(written)) => written,
                    Poll::Ready(Err(_)) => return Err(DisconnectCause::Lost),
                    Poll::Pending => break,
                }
            };
            self.shard.metrics().bytes_sent.add(written.raw as u64);
            self.link.outbox.borrow_mut().advance(written.payload);
            self.link.blocked_since.set(None);
        }
        if !self.link.outbox.borrow().is_empty() || self.transport.has_output() {
            self.hold_back();
        }
        Ok(())
    }

    /// The socket is full: stop holding other clients' chunks, and start the stall clock.
    fn hold_back(&self) {
        self.link.outbox.borrow_mut().release_chunks();
        self.client.session.borrow_mut().release_chunks();
        if self.link.blocked_since.get().is_none() {
            self.link.blocked_since.set(Some(self.shard.now()));
            lifecycle::arm(&self.shard, &self.client);
        }
    }

    /// Tells the client why, parts it from its session, and closes.
    async fn finish(mut self, end: DisconnectCause) {
        self.reauthentication = None;
        if !self.shard.held.is_over() {
            // Its will may go to a session that is not there yet.
            Box::pin(loading::over(Rc::clone(&self.shard))).await;
        }
        let (cause, farewell) = end.judge(&self.shard, &self.client, &self.link);
        if self.client.has_link(&self.link) {
            let farewell = farewell.as_ref().map(|(reason, text)| (*reason, &**text));
            send_disconnect(&self.shard, &self.client, farewell);
            let had_kept_will = self.client.kept_will.get() != KeptWill::None;
            let was_kept = had_kept_will || self.client.number(&self.shard.world).is_some();
            detach(&self.shard, &self.client, cause);
            self.shard.flush_mailboxes();
            if was_kept && matches!(end, DisconnectCause::Left(_)) {
                // The client hears no other answer to its DISCONNECT than the end of the connection.
                Box::pin(journal::all_safe(&self.shard)).await;
            }
        }
        let is_owed_more = send_rest(&self.shard, &self.link).await || self.transport.owes_close();
        let outbox = self.link.outbox.take();
        if matches!(end, DisconnectCause::Lost) && !is_owed_more {
            return;
        }
        let last = leaving(&outbox, self.transport.begun(&outbox));
        drop(outbox);
        let (stream, last) = self.transport.into_last(last);
        // Boxed, so that no living connection carries the space that its end will need.
        Box::pin(linger(&self.shard, stream, last)).await;
    }
}

/// Has this task polled again once sockets and timers have been looked at: a plain wake would keep
/// the run queue full, and the runtime looks at them only when it is empty or every 61 polls.
fn wake_after_others(cx: &mut Context<'_>) {
    let _ = std::pin::pin!(tokio::task::yield_now()).poll(cx);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An idle connection costs its task, its client and its session; keep them small.
    #[test]
    fn what_an_idle_connection_holds_stays_small() {
        assert!(
            size_of::<Connection>() <= 192,
            "{}",
            size_of::<Connection>()
        );
        assert!(size_of::<Client>() <= 216, "{}", size_of::<Client>());
        assert!(size_of::<Link>() <= 272, "{}", size_of::<Link>());
    }
}
