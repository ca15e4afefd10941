//! Acknowledgements of the client: PUBACK, PUBREC and PUBCOMP for messages in flight.

use std::time::Instant;

use mqttcore_codec::{Ack, PacketId, PacketType, QoS, ReasonCode};

use crate::control::{Control, ControlKind, Details};
use crate::event::{ExchangeRecord, SessionEvent};
use crate::gate::AckToken;
use crate::inflight::Stage;
use crate::request::Request;
use crate::session::Session;
use crate::violation::Violation;

impl Session {
    pub(crate) fn handle_puback(
        &mut self,
        now: Instant,
        ack: Ack<'_>,
    ) -> Result<Request<'static>, Violation> {
        let Stage::Published(place) = self.live.in_flight.stage(ack.packet_id) else {
            return match self.live.in_flight.stage(ack.packet_id) {
                Stage::Releasing => Err(WRONG_PUBACK),
                _ => self.stray(),
            };
        };
        if self.live.in_flight.get(place).outgoing.qos != QoS::AtLeastOnce {
            return Err(WRONG_PUBACK);
        }
        let entry = self.live.in_flight.remove(place);
        // The store has no record of a message without a key.
        if entry.is_some_and(|entry| entry.outgoing.key != 0) {
            self.record_completed(ack.packet_id);
        }
        self.completed(now);
        Ok(Request::None)
    }

    pub(crate) fn handle_pubrec(
        &mut self,
        now: Instant,
        ack: Ack<'_>,
    ) -> Result<Request<'static>, Violation> {
        let packet_id = ack.packet_id;
        match self.live.in_flight.stage(packet_id) {
            Stage::Published(place) => self.receive_pubrec(now, place, ack),
            Stage::Releasing => {
                self.hold_release(self.gate.last(), packet_id);
                self.stray()
            }
            // Without an answer, a client whose session was lost would wait forever (abuse D15).
            Stage::Unknown if ack.reason.is_error() => self.stray(),
            Stage::Unknown => {
                let told = (packet_id, ReasonCode::PACKET_IDENTIFIER_NOT_FOUND);
                let details = self.allowed(Details::reason("no such message is open"));
                self.live
                    .controls
                    .push_back(Control::explained(PacketType::PubRel, told, details));
                self.stray()
            }
        }
    }

    pub(crate) fn handle_pubcomp(
        &mut self,
        now: Instant,
        ack: Ack<'_>,
    ) -> Result<Request<'static>, Violation> {
        match self.live.in_flight.stage(ack.packet_id) {
            Stage::Published(_) => Err(EARLY_PUBCOMP),
            Stage::Unknown => self.stray(),
            Stage::Releasing => {
                self.live.in_flight.complete(ack.packet_id);
                self.record_completed(ack.packet_id);
                self.completed(now);
                Ok(Request::None)
            }
        }
    }

    fn receive_pubrec(
        &mut self,
        now: Instant,
        place: usize,
        ack: Ack<'_>,
    ) -> Result<Request<'static>, Violation> {
        let entry = self.live.in_flight.get(place);
        let (packet_id, key) = (entry.packet_id, entry.outgoing.key);
        if entry.outgoing.qos != QoS::ExactlyOnce {
            return Err(WRONG_PUBREC);
        }
        if ack.reason.is_error() {
            self.live.in_flight.remove(place);
            self.record_completed(packet_id);
            self.completed(now);
            return Ok(Request::None);
        }
        self.live.in_flight.release(place);
        let token = if self.is_durable && key != 0 {
            let token = self.gate.issue_token();
            let record = ExchangeRecord::Received { packet_id, key };
            self.live.events.push_back(SessionEvent::Record {
                token: Some(token),
                record,
            });
            token
        } else {
            self.gate.last()
        };
        self.hold_release(token, packet_id);
        // The client has the message, so its bytes are not counted any more. It still takes one unit of the send quota.
        self.refill(now);
        Ok(Request::None)
    }

    /// Sends PUBREL once `token` is confirmed.
    pub(crate) fn hold_release(&mut self, token: AckToken, packet_id: PacketId) {
        let release = Control(ControlKind::PubRel(packet_id, ReasonCode::SUCCESS));
        if self.is_durable {
            self.live.held.push(token, release);
        } else {
            self.live.controls.push_back(release);
        }
    }

    /// Ends an exchange: frees send quota and forgives one stray acknowledgement.
    fn completed(&mut self, now: Instant) {
        self.forgive_stray();
        self.refill(now);
    }

    /// Forgives one stray acknowledgement, since this one answered a packet that was sent.
    pub(crate) fn forgive_stray(&mut self) {
        self.live.link.strays = self.live.link.strays.saturating_sub(1);
    }

    /// Records that the identifier is free, whether or not the message was delivered.
    pub(crate) fn record_completed(&mut self, packet_id: PacketId) {
        if self.is_durable {
            let record = ExchangeRecord::Completed { packet_id };
            self.live.events.push_back(SessionEvent::Record {
                token: None,
                record,
            });
        }
    }

    /// Handles an acknowledgement that answers no packet: it is ignored or answered until the limit is reached
    /// (abuse D15).
    pub(crate) fn stray(&mut self) -> Result<Request<'static>, Violation> {
        self.live.link.strays = self.live.link.strays.saturating_add(1);
        if self.live.link.strays > self.limits.stray_acknowledgements {
            return Err(STRAY_FLOOD);
        }
        Ok(Request::None)
    }
}

const WRONG_PUBACK: Violation = Violation::protocol(
    ReasonCode::PROTOCOL_ERROR,
    "MQTT-4.3.3-1",
    "PUBACK for a QoS 2 message",
);
const WRONG_PUBREC: Violation = Violation::protocol(
    ReasonCode::PROTOCOL_ERROR,
    "MQTT-4.3.2-1",
    "PUBREC for a QoS 1 message",
);
const EARLY_PUBCOMP: Violation = Violation::protocol(
    ReasonCode::PROTOCOL_ERROR,
    "MQTT-4.3.3-1",
    "PUBCOMP before PUBREC",
);
const STRAY_FLOOD: Violation = Violation::limit(
    ReasonCode::MESSAGE_RATE_TOO_HIGH,
    "limit stray_acknowledgements",
    "too many acknowledgements of messages that are not in flight",
);
