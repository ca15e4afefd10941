//! Held messages, about which the engine decides before they are sent.
//!
//! A message that is delivered with [`Delivery::is_held`](crate::Delivery::is_held) is queued, and so it is limited,
//! spilled and kept as any queued message. When it is the next one to send, [`SessionEvent::Undecided`] asks the engine.
//! Messages behind it wait with it, so the order stays. A message that was in flight when the engine restarted may be
//! held, too: the store has it as it was before the decision.

use std::time::Instant;

use crate::event::{DropReason, SessionEvent};
use crate::inflight::{InFlight, InFlightEntry};
use crate::message::Message;
use crate::queue::{Hold, Outgoing};
use crate::session::Session;

/// Maximum number of messages of one question.
pub const UNDECIDED_MAX: usize = 64;

/// The decision about a held message.
#[derive(Clone, Debug)]
pub enum HeldDecision {
    /// It is sent.
    Send,
    /// This message is sent instead, with the same QoS.
    Replace(Message),
    /// It is dropped.
    Drop,
}

impl Session {
    /// The next held messages, oldest first: at most [`UNDECIDED_MAX`], of as many that can be sent next. Answer with
    /// [`Session::decide_undecided`] before the next call.
    pub fn ask_undecided(&mut self) -> Vec<Message> {
        let live = self.live.get_mut();
        let in_flight = live.and_then(|live| live.in_flight.get_mut());
        let in_flight = in_flight.into_iter().flat_map(InFlight::unsent_mut);
        let next = in_flight.chain(self.queue.waiting_mut());
        let mut asked = Vec::new();
        let undecided = next.take(UNDECIDED_MAX);
        for outgoing in undecided.filter(|outgoing| outgoing.hold == Hold::Undecided) {
            // INVARIANT: there are 64 at most.
            let place = u8::try_from(asked.len()).expect("few messages");
            outgoing.hold = Hold::Asked(place);
            asked.push(outgoing.message.clone());
        }
        asked
    }

    /// Decides about the messages of the last [`Session::ask_undecided`] that are still here, in their order; those
    /// without a decision are dropped. Then as many messages as allowed are sent.
    pub fn decide_undecided(&mut self, now: Instant, decisions: Vec<HeldDecision>) {
        let mut decisions: Vec<_> = decisions.into_iter().map(Some).collect();
        let mut decide = |outgoing: &mut Outgoing| decide(outgoing, &mut decisions);
        let live = self.live.get_mut();
        let in_flight = live.and_then(|live| live.in_flight.get_mut());
        let ended = in_flight.map(|in_flight| in_flight.decide_unsent(&mut decide));
        let removed = self.queue.decide_first(UNDECIDED_MAX, &mut decide);
        for entry in ended.into_iter().flatten() {
            self.end_exchange(entry);
        }
        for outgoing in removed {
            self.drop_message(DropReason::Decision, outgoing);
        }
        if self.is_connected() {
            self.refill(now);
        }
    }

    /// Drops a message in flight; if it is of QoS 2, its PUBREL ends the exchange.
    fn end_exchange(&mut self, entry: InFlightEntry) {
        let (packet_id, is_exactly_once) = (entry.packet_id, entry.is_exactly_once());
        self.drop_message(DropReason::Decision, entry.outgoing);
        if !is_exactly_once {
            self.record_completed(packet_id);
        } else if self.is_connected() {
            self.hold_release(self.gate.last(), packet_id);
        }
    }

    /// Asks the engine about the next message to send if that is held and was not asked about.
    pub(crate) fn request_decisions(&mut self) {
        let in_flight = self.live.in_flight.next_held();
        let next = in_flight.or_else(|| self.queue.front());
        if next.is_some_and(|next| next.hold == Hold::Undecided) && self.is_connected() {
            self.live.events.push_back(SessionEvent::Undecided);
        }
    }
}

/// Applies the decision about a message; returns whether it stays.
fn decide(outgoing: &mut Outgoing, decisions: &mut [Option<HeldDecision>]) -> bool {
    let Hold::Asked(place) = outgoing.hold else {
        return true;
    };
    outgoing.hold = Hold::Free;
    match decisions.get_mut(usize::from(place)).and_then(Option::take) {
        Some(HeldDecision::Send) => true,
        Some(HeldDecision::Replace(message)) => {
            outgoing.message = message;
            true
        }
        Some(HeldDecision::Drop) | None => false,
    }
}
