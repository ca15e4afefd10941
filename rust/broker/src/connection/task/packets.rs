//! Handles the packets of one read: decodes each, passes it to the session, and performs the effects.

use std::ops::Range;
use std::rc::Rc;

use mqttcore_codec::{Packet, decode};
use mqttcore_session::{PublishRequest, Request, Violation};

use super::Connection;
use crate::clients::traces::TraceSet;
use crate::connection::disconnect_cause::DisconnectCause;
use crate::connection::held_publishes::publish;
use crate::connection::input::ReadBatch;
use crate::connection::publish::accept_batch;
use crate::connection::rate_limit::RateLimit;
use crate::connection::reauthentication::Reauthentication;
use crate::connection::subscribe::{subscribe, unsubscribe};
use crate::routing::batch::Incoming;
use crate::sessions::lifecycle::{self, confirm};
use crate::sessions::{loading, paging};

/// Search steps that a filter of SUBSCRIBE or UNSUBSCRIBE counts as in the budget of a turn, which so ends after 512
/// filters. 64 KiB have more than 10,000 (abuse E12, H15).
const STEPS_OF_A_FILTER: usize = 32;

impl Connection {
    /// Handles complete frames of `batch` within the budget of this turn, and stores the rest.
    pub(super) fn handle_batch(&mut self, mut batch: ReadBatch<'_>) -> Result<(), DisconnectCause> {
        if let Some(throttle) = &self.throttle {
            batch.allowed = throttle.messages_left();
        }
        let mut step = Ok(true);
        while matches!(step, Ok(true)) && !self.must_stop(&batch) {
            step = self.handle_frame(&mut batch);
        }
        if let Some(throttle) = &mut self.throttle {
            throttle.spend_messages(batch.publishes);
        }
        self.count_handled(batch.frames);
        accept_batch(&self.shard, &self.client, &mut batch.together);
        if let Err(cause) = step {
            step = self.fail_after_held(&mut batch, cause);
        } else {
            self.settle_held(&mut batch);
        }
        if matches!(step, Ok(true)) {
            let new_chunk = |bytes: &[u8]| self.shard.new_chunk(&self.link, bytes);
            self.input.keep_unread(batch, new_chunk);
        } else {
            let space = &self.shard.address_space;
            self.input.keep_partial(&batch, &self.limits, space);
        }
        lifecycle::handle_events(&self.shard, &self.client);
        confirm(&self.shard, &self.client);
        self.client.flush_session(&self.shard);
        paging::read_on(&self.shard, &self.client);
        step.map(|_| ())
    }

    /// Counts what the client has sent.
    fn count_handled(&self, packets: u32) {
        if packets > 0 {
            let period = self.shard.period();
            self.link.measures.count_received(period, packets);
        }
    }

    /// Charges a packet that is no PUBLISH to the rate of control packets.
    fn charge_control_packet(
        &mut self,
        packet: &Packet<'_>,
        batch: &mut ReadBatch<'_>,
    ) -> Result<(), DisconnectCause> {
        let weight = control_weight(packet);
        self.link.is_settling.set(weight > 0);
        self.count_control_packets(weight)?;
        if self.throttle.as_deref().is_some_and(RateLimit::is_spent) {
            batch.allowed = batch.publishes;
        }
        Ok(())
    }

    /// Handles the next frame; returns false if it is incomplete.
    fn handle_frame(&mut self, batch: &mut ReadBatch<'_>) -> Result<bool, DisconnectCause> {
        let decoded = decode(batch.rest(), self.link.version, &self.limits);
        let is_publish = matches!(decoded, Ok(None | Some((Packet::Publish(_), _))));
        if !is_publish && !batch.held.is_empty() {
            // They take effect before this packet.
            self.settle_held(batch);
            return Ok(true);
        }
        let Some((packet, len)) = decoded.map_err(DisconnectCause::Malformed)? else {
            return Ok(false);
        };
        if !self.shard.is_loaded() && may_route(&packet) {
            self.pause_until_loaded();
            return Ok(true);
        }
        if matches!(packet, Packet::Publish(_)) {
            batch.publishes += 1;
        } else {
            // Earlier publishes take effect before this packet.
            accept_batch(&self.shard, &self.client, &mut batch.together);
            self.charge_control_packet(&packet, batch)?;
        }
        let packets = &self.shard.metrics().tallies.packets_received;
        packets.count(packet.packet_type());
        let source = batch.rest();
        let frame = batch.pass(len);
        let request = self
            .client
            .session
            .borrow_mut()
            .handle_packet(self.shard.now(), packet);
        let traces = self.client.traces(&self.shard, &self.link);
        if !traces.is_empty() {
            self.trace_received(traces, source.get(..len).unwrap_or_default(), &request);
        }
        let request = request.map_err(DisconnectCause::Violation)?;
        self.handle_request(request, batch, frame)?;
        Ok(true)
    }

    /// Handles no packets until all sessions are loaded.
    #[cold]
    fn pause_until_loaded(&mut self) {
        let over = loading::loaded(Rc::clone(&self.shard));
        self.waits.pause = Some(Box::pin(async {
            over.await;
            Ok(())
        }));
    }

    /// Adds a packet to the traces of `set`.
    #[cold]
    fn trace_received(
        &self,
        set: TraceSet,
        bytes: &[u8],
        request: &Result<Request<'_>, Violation>,
    ) {
        let topic = match request {
            Ok(Request::Publish(request)) => Some(request.topic()),
            _ => None,
        };
        let who = (&*self.client, &*self.link);
        self.shard.trace_received(set, who, bytes, topic);
    }

    /// Asks the plugins about the publishes that wait for them; the client is not read meanwhile.
    fn settle_held(&mut self, batch: &mut ReadBatch<'_>) {
        if !batch.held.is_empty() {
            self.waits.pause = Some(batch.held.settle(&self.shard, &self.client));
        }
    }

    /// Ends the connection with `cause` once the publishes before the fault have taken effect.
    fn fail_after_held(
        &mut self,
        batch: &mut ReadBatch<'_>,
        cause: DisconnectCause,
    ) -> Result<bool, DisconnectCause> {
        if batch.held.is_empty() {
            return Err(cause);
        }
        let settled = batch.held.settle(&self.shard, &self.client);
        self.waits.pause = Some(Box::pin(async {
            settled.await?;
            Err(cause)
        }));
        Ok(true)
    }

    /// Whether later frames must wait: for a paused step, for the rate limit, or for the next turn.
    fn must_stop(&self, batch: &ReadBatch<'_>) -> bool {
        self.waits.pause.is_some() || batch.publishes >= batch.allowed || self.shard.is_turn_over()
    }

    fn handle_request<'b>(
        &mut self,
        request: Request<'b>,
        batch: &mut ReadBatch<'b>,
        frame: Range<usize>,
    ) -> Result<(), DisconnectCause> {
        match request {
            Request::None => Ok(()),
            Request::Publish(request) => {
                self.count_message(&request);
                self.publish(request, batch, frame);
                Ok(())
            }
            Request::Subscribe(request) => {
                self.count_filters(request.entries.len());
                if let Some(pause) = subscribe(&self.shard, &self.client, request) {
                    self.waits.pause = Some(pause);
                }
                Ok(())
            }
            Request::Unsubscribe(request) => {
                self.count_filters(request.entries.len());
                unsubscribe(&self.shard, &self.client, request);
                Ok(())
            }
            Request::Disconnect(cause) => Err(DisconnectCause::Left(cause)),
            Request::Reauthenticate { data } => {
                let begun = Reauthentication::begin(&self.shard, &self.client, data)?;
                self.waits.reauthentication = Some(Box::new(begun));
                Ok(())
            }
            Request::Authenticate { data } => {
                if let Some(begun) = &mut self.waits.reauthentication {
                    begun.proceed(data);
                }
                Ok(())
            }
        }
    }

    /// Counts a message of the client, before anything decides about it.
    fn count_message(&self, request: &PublishRequest<'_>) {
        let metrics = self.shard.metrics();
        metrics.tallies.messages_received.count(request.qos());
        let payload = request.payload().len() as u64;
        metrics.payload_bytes_received.add(payload);
        metrics.topics.count(|| request.topic(), payload);
    }

    /// Counts the filters of a SUBSCRIBE or UNSUBSCRIBE in the budget of this turn, and the replays of retained messages
    /// that are waiting, each of which is looked at.
    fn count_filters(&self, count: usize) {
        let replays = self.link.with_replays(|replays| replays.len());
        self.shard.count_steps(count * STEPS_OF_A_FILTER + replays);
    }

    fn publish<'b>(
        &mut self,
        request: PublishRequest<'b>,
        batch: &mut ReadBatch<'b>,
        frame: Range<usize>,
    ) {
        let start = frame.start;
        let new_chunk = |bytes: &[u8]| self.shard.new_chunk(&self.link, bytes);
        let (source, chunk) = batch.source(frame, new_chunk);
        let message = request.to_message(self.shard.now(), source, chunk, start);
        let incoming = Incoming {
            packet_id: request.packet_id(),
            topic: request.into_topic(),
            message,
        };
        let places = (&mut batch.together, &mut batch.held, &mut batch.rules);
        if let Some(pause) = publish(&self.shard, &self.client, places, incoming) {
            self.waits.pause = Some(pause);
        }
    }
}

/// The weight of a packet in the limit of control packets a second. AUTH has a larger one, since it asks a plugin, in
/// one queue with logins. Each 100 filters count as a packet. Acknowledgements are limited by the messages.
fn control_weight(packet: &Packet<'_>) -> u32 {
    let of_filters = |count: usize| u32::try_from(count.div_ceil(100)).unwrap_or(u32::MAX);
    match packet {
        Packet::PingReq => 1,
        Packet::Subscribe(subscribe) => of_filters(subscribe.filters.len()),
        Packet::Unsubscribe(unsubscribe) => of_filters(unsubscribe.filters.len()),
        Packet::Auth(_) => 100,
        _ => 0,
    }
}

/// Whether a packet may send a message to other clients or start a replay of retained messages.
fn may_route(packet: &Packet<'_>) -> bool {
    matches!(packet, Packet::Publish(_) | Packet::Subscribe(_))
}
