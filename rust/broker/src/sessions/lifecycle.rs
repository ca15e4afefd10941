//! Lifecycle of a session: acknowledgements, deadlines, disconnect, removal.

use std::rc::Rc;

use mqttcore_codec::ReasonCode;
use mqttcore_session::{Cause, Expiry, SessionEvent};

use crate::clients::client::Client;
use crate::clients::link::Closing;
use crate::config::plugin_event::EventKind;
use crate::routing::{delivery, external, fill, group, message_hooks, session_records};
use crate::runtime::log::LogCategory;
use crate::runtime::metrics::{Counter, Metrics};
use crate::sessions::{paging, wills};
use crate::shard::{EventDetails, Shard};

/// Confirms all acknowledgements so far: at once, unless one waits for the store (docs/decisions.md, 2) or
/// an external log.
pub(crate) fn confirm(shard: &Shard, client: &Rc<Client>) {
    if let Some(journal) = &shard.journal
        && let Some(durability) = client.ack_order.durability()
    {
        journal.hold_acknowledgement(client, durability);
        return;
    }
    let token = client.session.borrow().last_token();
    external::confirm_after(shard, client, token, client.external_record());
}

/// Detaches `client` from its connection: schedules its will and the expiry of its session. `why` has reason code and
/// reason for explanations; the reason may be empty.
pub(crate) fn detach(
    shard: &Rc<Shard>,
    client: &Rc<Client>,
    cause: Cause,
    (reason, why): (Option<ReasonCode>, &'static str),
) {
    let departure = client.session.borrow_mut().detach(shard.now(), cause);
    session_records::write_disconnected(shard, client, departure.will.is_some());
    if let Some(link) = client.link() {
        shard.metrics().clients(link.listener).sub(link.version);
    }
    client.set_link(None);
    group::set_online(shard, client, false);
    let details = EventDetails {
        reason,
        why: Some(why).filter(|why| !why.is_empty()),
        topic: None,
    };
    shard.send_event(EventKind::Disconnected, client, details);
    if let Some(will) = departure.will {
        wills::publish_or_queue(shard, client, will);
    }
    handle_events(shard, client);
    if departure.expiry == Expiry::Now {
        remove_session(shard, client, SessionEnd::Disconnected);
    } else {
        fill::watch(shard, client);
        arm(shard, client);
    }
}

/// Handles the events that the session reports as due.
pub(crate) fn handle_events(shard: &Rc<Shard>, client: &Rc<Client>) {
    loop {
        let event = client.session.borrow_mut().poll_event();
        match event {
            None => return,
            Some(SessionEvent::WillDue(message)) => wills::publish_or_queue(shard, client, message),
            Some(SessionEvent::Expired) => {
                if !client.is_online() {
                    shard.send_event(EventKind::SessionExpired, client, EventDetails::default());
                    remove_session(shard, client, SessionEnd::Expired);
                }
            }
            Some(event) => delivery::handle_message_event(shard, client, event),
        }
    }
}

/// Why a session ends.
#[derive(Clone, Copy, Debug)]
pub(crate) enum SessionEnd {
    Expired,
    /// It ends with its connection.
    Disconnected,
    /// Its client has connected again and does not resume it.
    Replaced,
    Operator,
}

impl SessionEnd {
    fn counter(self, metrics: &Metrics) -> &Counter {
        match self {
            Self::Expired => &metrics.sessions_expired,
            Self::Disconnected => &metrics.sessions_ended_disconnected,
            Self::Replaced => &metrics.sessions_ended_replaced,
            Self::Operator => &metrics.sessions_ended_operator,
        }
    }
}

/// Removes a session and frees its slot.
pub(crate) fn remove_session(shard: &Rc<Shard>, client: &Rc<Client>, why: SessionEnd) {
    if shard.client_at(client.handle).is_none() {
        return;
    }
    why.counter(shard.metrics()).add(1);
    // A will whose delay is still running is published when its session ends [MQTT-3.1.3-9].
    let (subscriptions, waiting) = {
        let session = client.session.borrow();
        let waiting = session.queued() + session.in_flight();
        (session.subscriptions().len(), waiting)
    };
    count_queued(shard, client, waiting);
    message_hooks::stop_deciding(shard, client);
    let will = client.session.borrow_mut().end(shard.now());
    shard.engine.directory.leave(client.subscriber);
    // Clean up as many subscriptions as this client leaves, its own or older ones: so the number of leftover
    // subscriptions is bounded, however fast clients come and go.
    shard.engine.directory.clean(subscriptions);
    shard.registry.borrow_mut().remove(client);
    shard.pagings.borrow_mut().stop(client);
    fill::forget(shard, client);
    client.count_out(shard);
    client.set_owner(shard, None);
    client.set_kept(shard, false);
    shard.wheel.borrow_mut().cancel(client.handle.slot());
    shard.metrics().sessions.sub(1);
    if let Some(will) = will {
        wills::publish_or_queue(shard, client, will);
    }
    wills::write_session_end(shard, client);
}

/// Counts and logs the queued messages of a session that ends: they are dropped.
fn count_queued(shard: &Shard, client: &Client, waiting: usize) {
    if waiting == 0 {
        return;
    }
    let dropped = &shard.metrics().dropped_session_ended;
    dropped.count_unknown(waiting as u64);
    shard.log.warn(LogCategory::Dropped, shard.now(), || {
        let who = client.named();
        let text = format!("{waiting} messages for {who} dropped: its session ended");
        client.log_entry("dropped", text)
    });
}

/// Makes the wheel call [`handle_timeout`] at the client's next deadline.
pub(crate) fn arm(shard: &Shard, client: &Client) {
    if shard.client_at(client.handle).is_none() {
        return;
    }
    let link = client.link();
    let stall = link
        .as_ref()
        .and_then(|link| link.measures.blocked_since())
        .map(|since| since + shard.config().stall_deadline);
    let ends = link.and_then(|link| link.grant_ends());
    let session = client.session.borrow().poll_timeout();
    let spill = paging::deadline(shard, client);
    if let Some(at) = [stall, ends, session, spill].into_iter().flatten().min() {
        shard.wheel.borrow_mut().arm(client.handle.slot(), at);
    }
}

/// Handles a possible deadline of the client in `slot`.
pub(crate) fn handle_timeout(shard: &Rc<Shard>, slot: u32) {
    let client = shard.registry.borrow().in_slot(slot);
    let Some(client) = client else { return };
    let now = shard.now();
    let violation = {
        let mut session = client.session.borrow_mut();
        session.release_chunks();
        if client.link().is_some_and(|link| link.is_unread.get()) {
            session.restart_keep_alive(now);
        }
        session.handle_timeout(now).err()
    };
    if let Some(link) = client.link() {
        let is_stalled = link
            .measures
            .blocked_since()
            .is_some_and(|since| now >= since + shard.config().stall_deadline);
        if let Some(violation) = violation {
            shard.metrics().keep_alive_timeouts.add(1);
            link.close(Cause::KeepAliveTimeout, violation.reason);
        } else if is_stalled {
            // Its task looks once more, and counts it.
            link.close(Closing::STALLED.cause, Closing::STALLED.reason);
        } else if link.grant_ends().is_some_and(|at| now >= at) {
            link.close(Cause::Administrative, ReasonCode::MAXIMUM_CONNECT_TIME);
        }
    }
    handle_events(shard, &client);
    client.flush_session(shard);
    fill::watch(shard, &client);
    paging::spill_if_due(shard, &client);
    arm(shard, &client);
}
