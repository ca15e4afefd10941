//! End of a connection: sends the last bytes and detaches the session.

use std::rc::Rc;

use super::Connection;
use crate::clients::client::KeptWill;
use crate::clients::connections::ConnectionSlot;
use crate::connection::disconnect_cause::DisconnectCause;
use crate::connection::last_packets::{leaving, send_disconnect, send_rest};
use crate::connection::linger::linger;
use crate::connection::login_limits::LimitedLogin;
use crate::routing::journal;
use crate::sessions::lifecycle::detach;
use crate::sessions::loading;
use crate::transport::outbox::Outbox;
use crate::transport::{LARGE_UNSENT_BYTES, Transport};

impl Connection {
    /// Sends the reason to the client, detaches its session, and closes the connection.
    pub(super) async fn finish(mut self, end: DisconnectCause, slot: ConnectionSlot) {
        if let Some(waits) = self.waits.get_mut() {
            waits.reauthentication = None;
        }
        if let Some(login) = LimitedLogin::of(&self.shard, &self.client.login()) {
            login.succeed(&self.shard);
        }
        if !self.shard.is_loaded() {
            // The will may go to a session that is not loaded yet.
            Box::pin(loading::loaded(Rc::clone(&self.shard))).await;
        }
        end.report(&self.shard, &self.client, &self.link);
        let (cause, disconnect_reason) = end.classify();
        if self.client.has_link(&self.link) {
            let disconnect_reason = disconnect_reason
                .as_ref()
                .map(|(reason, text)| (*reason, &**text));
            send_disconnect(&self.shard, &self.client, disconnect_reason);
            let had_kept_will = self.client.kept_will.get() != KeptWill::None;
            let was_kept = had_kept_will || self.client.number(&self.shard.engine).is_some();
            detach(&self.shard, &self.client, cause, end.explanation());
            self.shard.flush_mailboxes();
            if was_kept && matches!(end, DisconnectCause::Left(_)) {
                // The close is the only answer to a client's DISCONNECT, so it waits for the log.
                Box::pin(journal::all_safe(&self.shard)).await;
            }
        }
        let Some(transport) = self.link.take_transport() else {
            return;
        };
        let is_owed_more =
            send_rest(&self.shard, &self.client, &self.link).await || transport.must_answer_close();
        let outbox = std::mem::take(&mut *self.link.outbox_mut());
        if !is_owed_more
            && (matches!(end, DisconnectCause::Lost) || self.may_close(&end, &outbox, &transport))
        {
            // A client that sees the close may connect again.
            return drop(slot);
        }
        let last = self.last_bytes(&transport, &outbox);
        drop(outbox);
        // Boxed, so that a connection does not need this space before its end.
        Box::pin(linger(&self.shard, transport, last)).await;
    }

    /// The bytes that the client still gets, which the system takes at once: otherwise they wait until a client of large
    /// messages has taken half a MiB, and a slow one is closed before that.
    fn last_bytes(&self, transport: &Transport, outbox: &Outbox) -> Vec<u8> {
        if self.link.measures.holds_more_unsent() {
            transport.hold_unsent(4 * LARGE_UNSENT_BYTES);
        }
        leaving(outbox, transport.begun(outbox))
    }

    /// Whether nothing is left to do before the socket is closed: the client has sent DISCONNECT and nothing behind it,
    /// and has got everything. A client that sends more then breaks [MQTT-3.14.4-2], and its connection is reset
    /// (ADR 0132).
    fn may_close(&self, end: &DisconnectCause, outbox: &Outbox, transport: &Transport) -> bool {
        matches!(end, DisconnectCause::Left(_))
            && outbox.is_empty()
            && self.input.is_empty()
            && transport.is_plain()
    }
}
