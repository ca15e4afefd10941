//! Delivers a message to the sessions of its targets, on this shard and on others.

use std::rc::Rc;

use mqttcore_codec::{QoS, ReasonCode};
use mqttcore_session::{
    Cause, Delivered, Delivery, DeliveryDecision, DropReason, Message, QueueRoom, SessionEvent,
};
use smallvec::SmallVec;

use crate::clients::client::Client;
use crate::clients::target::Target;
use crate::routing::drops::{DropCause, Dropped, count_late_drop, drop_message};
use crate::routing::{fill, group, memory, message_hooks, session_records};
use crate::shard::{Shard, ShardMessage};

/// Delivers to the targets of this shard and sends the others to their shards; streams have their
/// rows already.
pub(crate) fn deliver_to_shards(
    shard: &Rc<Shard>,
    message: &Message,
    targets: impl Iterator<Item = Target>,
) {
    let targets = targets.filter(|target| !target.is_stream());
    if shard.are_deliveries_plain() {
        hand_out(shard, &LiveMessage::plain(message), targets);
    } else {
        let targets = targets.inspect(|target| shard.show_delivery(message, target));
        hand_out(shard, &LiveMessage::new(shard, message), targets);
    }
}

/// Room for the targets of a message on another shard, at first.
const FEW_TARGETS: usize = 2;

fn hand_out(
    shard: &Rc<Shard>,
    message: &LiveMessage<'_>,
    mut targets: impl Iterator<Item = Target>,
) {
    if shard.engine.shards() == 1 {
        targets.for_each(|target| deliver_to(shard, message, target));
        return;
    }
    let Some(first) = targets.next() else { return };
    match targets.next() {
        None => hand_over(shard, message, first),
        Some(second) => hand_out_all(shard, message, first, second, targets),
    }
}

/// Delivers to one target of this shard, or sends it to its shard.
fn hand_over(shard: &Rc<Shard>, message: &LiveMessage<'_>, target: Target) {
    let to = target.handle.shard();
    if to == shard.index {
        deliver_to(shard, message, target);
    } else {
        shard.send_to_shard(to, ShardMessage::Deliver(message.message.clone(), target));
    }
}

/// Delivers to the targets of this shard, and sends the others as one list to each shard.
fn hand_out_all(
    shard: &Rc<Shard>,
    message: &LiveMessage<'_>,
    first: Target,
    second: Target,
    others: impl Iterator<Item = Target>,
) {
    let mut away: SmallVec<[(usize, Vec<Target>); 4]> = SmallVec::new();
    let mut sort = |target: Target| {
        let to = target.handle.shard();
        if to == shard.index {
            return deliver_to(shard, message, target);
        }
        if let Some((_, targets)) = away.iter_mut().find(|(other, _)| *other == to) {
            targets.push(target);
        } else {
            let mut targets = Vec::with_capacity(FEW_TARGETS);
            targets.push(target);
            away.push((to, targets));
        }
    };
    sort(first);
    sort(second);
    others.for_each(sort);
    for (to, targets) in away {
        let message = message.message.clone();
        shard.send_to_shard(to, ShardMessage::DeliverAll(message, targets));
    }
}

/// Delivers `message` to targets of this shard.
pub(crate) fn deliver_all(
    shard: &Rc<Shard>,
    message: &Message,
    targets: impl IntoIterator<Item = Target>,
) {
    let targets = targets.into_iter();
    if shard.are_deliveries_plain() {
        let live = LiveMessage::plain(message);
        targets.for_each(|target| deliver_to(shard, &live, target));
    } else {
        let live = LiveMessage::new(shard, message);
        for target in targets {
            shard.show_delivery(message, &target);
            deliver_to(shard, &live, target);
        }
    }
}

/// A message for targets of this shard.
#[derive(Clone, Copy)]
struct LiveMessage<'m> {
    message: &'m Message,
    /// Deliver hooks decide about it.
    is_held: bool,
}

impl<'m> LiveMessage<'m> {
    /// One that needs no look ([`Shard::are_deliveries_plain`]).
    fn plain(message: &'m Message) -> Self {
        Self {
            message,
            is_held: false,
        }
    }

    fn new(shard: &Shard, message: &'m Message) -> Self {
        Self {
            message,
            is_held: shard.has_deliver_hook(message),
        }
    }
}

/// Delivers `message` to the session of a target; if the session does not take it, offers it to
/// the next member of its group.
fn deliver_to(shard: &Rc<Shard>, live: &LiveMessage<'_>, mut target: Target) {
    let message = live.message;
    loop {
        // The session may have ended meanwhile, and another one may have its slot.
        let client = shard.client_at(target.handle);
        let refusal = match &client {
            Some(client) => offer(
                shard,
                client,
                message,
                delivery_of(&target, shard, live.is_held),
            ),
            None => Some(DropCause::Ended),
        };
        let Some(reason) = refusal else { return };
        let handed = group::redeliver(shard, client.as_ref(), message, target, reason.most_tried());
        target = match (handed, client) {
            (Ok(Some(next)), _) => {
                if !shard.are_deliveries_plain() {
                    shard.show_delivery(message, &next);
                }
                next
            }
            (Ok(None), _) => return,
            (Err(target), Some(client)) => {
                let dropped = Dropped::unseen(shard, message, target.qos, target.key);
                return drop_message(shard, &client, dropped, reason);
            }
            (Err(target), None) => return count_late_drop(shard, message, &target),
        };
    }
}

/// The delivery for the session of `target`.
fn delivery_of<'t>(target: &'t Target, shard: &Shard, is_held: bool) -> Delivery<'t> {
    let room = if target.may_exceed {
        QueueRoom::Any
    } else if target.key != 0 && shard.engine.durable.are_all_full() {
        QueueRoom::None
    } else {
        QueueRoom::Limits
    };
    Delivery {
        qos: target.qos,
        retain: target.retain,
        subscription_ids: &target.subscription_ids,
        key: target.key,
        room,
        is_held,
    }
}

/// Delivers `message` to one session, and sends as much as possible at once.
pub(crate) fn deliver(
    shard: &Rc<Shard>,
    client: &Rc<Client>,
    message: &Message,
    delivery: Delivery<'_>,
) {
    let (qos, key) = (delivery.qos, delivery.key);
    if let Some(reason) = offer(shard, client, message, delivery) {
        let dropped = Dropped::unseen(shard, message, qos, key);
        drop_message(shard, client, dropped, reason);
    }
}

/// The same, and returns why the session does not take the message. Longer than other functions: the path of each delivery,
/// of which each outcome is one step.
fn offer(
    shard: &Rc<Shard>,
    client: &Rc<Client>,
    message: &Message,
    delivery: Delivery<'_>,
) -> Option<DropCause> {
    shard.count_delivery();
    if let Some(reason) = drop_cause(shard, client, message, &delivery) {
        if matches!(reason, DropCause::Backlog | DropCause::Memory) {
            group::mark_refusing(shard, client);
        }
        return Some(reason);
    }
    if !delivery.is_held && client.forward(shard, message, &delivery) {
        if memory::is_short(shard) {
            fill::watch(shard, client);
        }
        return None;
    }
    let now = shard.now();
    let delivered = client.session.borrow_mut().deliver(now, message, delivery);
    let refusal = match delivered {
        Delivered::Sent => {
            after_send(shard, client);
            return None;
        }
        Delivered::Queued => {
            note_queued(shard, client, delivery.is_held);
            None
        }
        Delivered::Dropped(reason) => {
            if reason == DropReason::QueueFull || reason == DropReason::BacklogFull {
                group::mark_refusing(shard, client);
            }
            Some(DropCause::Session(reason))
        }
    };
    handle_message_events(shard, client);
    refusal
}

/// A message of a session is queued. One that is held says nothing about how busy its client is.
fn note_queued(shard: &Shard, client: &Rc<Client>, is_held: bool) {
    memory::relieve(shard, client);
    fill::watch(shard, client);
    if !is_held {
        group::mark_full(shard, client);
    }
}

/// Predicts the delivery of a message to a target on this shard. Nothing changes.
///
/// # Errors
///
/// Why its session would not see the message.
pub(crate) fn foresee(
    shard: &Shard,
    client: &Client,
    message: &Message,
    target: &Target,
) -> Result<DeliveryDecision, DropCause> {
    let delivery = delivery_of(target, shard, shard.has_deliver_hook(message));
    match drop_cause(shard, client, message, &delivery) {
        Some(cause) => Err(cause),
        None => Ok(client
            .session
            .borrow()
            .foresee(shard.now(), message, delivery)),
    }
}

/// Records the packets that a session has sent, and updates its availability.
fn after_send(shard: &Rc<Shard>, client: &Rc<Client>) {
    if client.session.borrow().is_full() {
        group::mark_full(shard, client);
    }
    if memory::is_short(shard) {
        fill::watch(shard, client);
    }
    if shard.journal.is_some() {
        handle_message_events(shard, client);
    }
    client.flush_session(shard);
}

/// Why a message is dropped before its session sees it.
fn drop_cause(
    shard: &Shard,
    client: &Client,
    message: &Message,
    delivery: &Delivery<'_>,
) -> Option<DropCause> {
    let limits = &shard.config().limits;
    if limits.outgoing_qos(message.qos(), delivery.qos) == QoS::AtMostOnce {
        if let Some(link) = &*client.link_ref()
            && link.outbox().len() > limits.qos0_backlog_bytes
        {
            return Some(DropCause::Backlog);
        }
        if memory::drops(shard, client) {
            return Some(DropCause::Memory);
        }
    }
    let access = client.access();
    if !access.permissions.checks_deliveries() {
        return None;
    }
    // A deny rule wins at delivery, too, whichever filter matched (abuse G07).
    let is_seen = access.permissions.receives(message.topic_name());
    (!is_seen).then_some(DropCause::Denied)
}

/// Handles the events of a session about its messages: drops, and changes for the store.
pub(super) fn handle_message_events(shard: &Rc<Shard>, client: &Rc<Client>) {
    loop {
        let event = client.session.borrow_mut().poll_message_event();
        match event {
            None => return,
            Some(event) => handle_message_event(shard, client, event),
        }
    }
}

/// Handles one event about messages; ignores others.
pub(crate) fn handle_message_event(shard: &Rc<Shard>, client: &Rc<Client>, event: SessionEvent) {
    match event {
        SessionEvent::Dropped {
            reason,
            qos,
            key,
            message,
        } => {
            let message = &message;
            let dropped = Dropped { message, qos, key };
            drop_message(shard, client, dropped, DropCause::Session(reason));
        }
        SessionEvent::Overflowed => {
            if let Some(link) = client.link() {
                link.close(Cause::Administrative, ReasonCode::QUOTA_EXCEEDED);
            }
        }
        SessionEvent::Record { token, record } => {
            session_records::write_exchange_step(shard, client, token, record);
        }
        SessionEvent::Undecided => message_hooks::decide_deliveries(shard, client),
        SessionEvent::WillDue(_) | SessionEvent::Expired => {}
    }
}
