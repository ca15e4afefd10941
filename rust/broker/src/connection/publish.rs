//! PUBLISH: permission first, then the way through the router, then the acknowledgement.
//!
//! A message waits for those behind it, to be routed with them, unless something depends on when it is routed. Any other
//! is routed alone, in its place.

use std::rc::Rc;

use mqttcore_codec::{PacketId, QoS, ReasonCode};
use mqttcore_session::{Cause, Details, Message};
use mqttcore_topics::{TopicFilter, TopicName};

use crate::clients::client::Client;
use crate::config::grants::RuleAnswer;
use crate::config::hooks::Action;
use crate::connection::authorize::{Denial, PendingRequest, Question, ask, report_denied};
use crate::connection::disconnect_cause::DisconnectCause;
use crate::connection::full_queue;
use crate::routing::batch::{Incoming, MessageBatch};
use crate::routing::external::{self, NotLogged};
use crate::routing::publication::{self, Publication, Retention, Unroutable};
use crate::routing::{queue_policy, retain, router};
use crate::sessions::lifecycle::confirm;
use crate::shard::Shard;

fn denial() -> Denial {
    let text = "not allowed to publish to this topic";
    Denial::new(ReasonCode::NOT_AUTHORIZED, text)
}

/// Publishes a message if its client may, at once or with those in `batch`; a [`PendingRequest`] where something is waited
/// for.
pub(crate) fn publish<'p>(
    shard: &Rc<Shard>,
    client: &Rc<Client>,
    batch: &mut MessageBatch<'p>,
    incoming: Incoming<'p>,
) -> Option<PendingRequest> {
    let permission = may_publish(shard, client, incoming.topic.as_name());
    if permission == RuleAnswer::Allowed && may_wait(shard, client, &incoming) {
        batch.push(incoming);
        if batch.is_full(shard) {
            accept_batch(shard, client, batch);
        }
        return None;
    }
    // Those before it have their answers before it.
    accept_batch(shard, client, batch);
    let (topic, message) = (incoming.topic.as_name(), incoming.message);
    match permission {
        RuleAnswer::Allowed => accept(shard, client, topic, message, incoming.packet_id),
        RuleAnswer::Silent => Some(ask_first(shard, client, message, incoming.packet_id)),
        RuleAnswer::Denied => {
            deny(shard, client, &message, incoming.packet_id, denial());
            None
        }
    }
}

/// Whether `client` may publish to `topic`; silent if a plugin has to say so.
fn may_publish(shard: &Shard, client: &Client, topic: TopicName<'_>) -> RuleAnswer {
    let answer = client.access().permissions.publish(topic);
    if answer != RuleAnswer::Silent {
        return answer;
    }
    let is_about = |filter: &TopicFilter| filter.matches(topic);
    if !shard.interests().asks_about(Action::Publish, is_about) {
        RuleAnswer::Denied
    } else if client.is_widened(Action::Publish, is_about) {
        RuleAnswer::Allowed
    } else {
        RuleAnswer::Silent
    }
}

/// Whether a publish may wait for those behind it, to be matched with them: nothing else depends on when it is.
///
/// A retained message is stored right before it is matched, a QoS 2 message is state from the moment that it is accepted,
/// and where the disk is nearly full each message may be refused.
fn may_wait(shard: &Shard, client: &Client, incoming: &Incoming<'_>) -> bool {
    let (topic, message) = (incoming.topic.as_name(), &incoming.message);
    !message.retain()
        && !shard.is_short_of_room()
        && !queue_policy::may_refuse(shard, Some(client), topic, message)
        && external::refusal(shard, topic, message).is_none()
        && message.qos() != QoS::ExactlyOnce
}

/// Routes and acknowledges, in their order, publishes that waited for each other.
pub(crate) fn accept_batch(shard: &Rc<Shard>, client: &Rc<Client>, batch: &mut MessageBatch<'_>) {
    batch.route(shard, client, |publication, routed| {
        answer(shard, client, publication, routed);
    });
}

/// Answers a publish that is routed, or refused.
fn answer(
    shard: &Rc<Shard>,
    client: &Rc<Client>,
    publication: &Publication<'_>,
    routed: Result<usize, Unroutable>,
) {
    let (message, packet_id) = (publication.message, publication.packet_id);
    match routed {
        Ok(matched) => acknowledge(shard, client, message, packet_id, matched),
        Err(why) => refuse_unroutable(shard, client, message, packet_id, why),
    }
}

/// Answers a publish that is accepted.
fn acknowledge(
    shard: &Rc<Shard>,
    client: &Rc<Client>,
    message: &Message,
    packet_id: Option<PacketId>,
    matched: usize,
) {
    let Some(packet_id) = packet_id else { return };
    let reason = if matched == 0 {
        ReasonCode::NO_MATCHING_SUBSCRIBERS
    } else {
        ReasonCode::SUCCESS
    };
    let mut session = client.session.borrow_mut();
    session.accept_publish(packet_id, message.qos(), reason);
    drop(session);
    if message.qos() == QoS::ExactlyOnce {
        // Clients expect PUBREC before their own copy of the message.
        confirm(shard, client);
        client.flush_session(shard);
    }
}

/// Has a plugin say whether `client` may publish `message`.
fn ask_first(
    shard: &Rc<Shard>,
    client: &Rc<Client>,
    message: Message,
    packet_id: Option<PacketId>,
) -> PendingRequest {
    let question = Question {
        action: Action::Publish,
        topic: message.topic_name().into(),
        qos: message.qos(),
        retain: message.retain(),
        share: None,
    };
    let answer = ask(shard, client, question);
    let (shard, client) = (Rc::clone(shard), Rc::clone(client));
    Box::pin(async move {
        let answer = answer.await?;
        let topic = message.topic_name();
        // Its grant may be another one since it asked.
        let rules = client.access().permissions.publish(topic);
        let refusal = match answer {
            Ok(()) if rules == RuleAnswer::Denied => Some(denial()),
            answer => answer.err(),
        };
        if let Some(refusal) = refusal {
            deny(&shard, &client, &message, packet_id, refusal);
        } else if let Some(pause) = accept(&shard, &client, topic, message.clone(), packet_id) {
            pause.await?;
        }
        confirm(&shard, &client);
        Ok(())
    })
}

/// Accepts a message; a [`PendingRequest`] where a client of 3.x has to wait for room in a queue.
fn accept(
    shard: &Rc<Shard>,
    client: &Rc<Client>,
    topic: TopicName<'_>,
    message: Message,
    packet_id: Option<PacketId>,
) -> Option<PendingRequest> {
    match full_queue::must_wait_for(shard, client, topic, &message) {
        Some(full) => Some(full_queue::hold_back(
            shard, client, message, packet_id, full,
        )),
        None => accept_logged(shard, client, topic, message, packet_id),
    }
}

/// Accepts a message for which there is room, but one of QoS 2 that is a record of an external log only when that has it: then
/// [`PendingRequest`].
pub(crate) fn accept_logged(
    shard: &Rc<Shard>,
    client: &Rc<Client>,
    topic: TopicName<'_>,
    message: Message,
    packet_id: Option<PacketId>,
) -> Option<PendingRequest> {
    let refusal = external::refusal(shard, topic, &message);
    if let Some(why) = refusal.filter(|_| packet_id.is_some()) {
        let why = Unroutable::NotLogged(why);
        refuse_unroutable(shard, client, &message, packet_id, why);
        return None;
    }
    let Some(logged) = external::log_first(shard, client, topic, &message) else {
        accept_now(shard, client, topic, &message, packet_id, false);
        return None;
    };
    let (shard, client) = (Rc::clone(shard), Rc::clone(client));
    Some(Box::pin(async move {
        logged.await.map_err(|not_logged| match not_logged {
            NotLogged::Stopped => DisconnectCause::Lost,
            NotLogged::Lost => DisconnectCause::Refused {
                reason: ReasonCode::SERVER_BUSY,
                text: "Kafka did not accept the message".into(),
            },
        })?;
        accept_now(
            &shard,
            &client,
            message.topic_name(),
            &message,
            packet_id,
            true,
        );
        confirm(&shard, &client);
        Ok(())
    }))
}

/// Keeps, routes and acknowledges a message; `is_logged`: the external log has it already.
///
/// A retained one for which the store has no room is refused as a whole, so that a client may send
/// it again; where it cannot be told, the message reaches those who are here.
fn accept_now(
    shard: &Rc<Shard>,
    client: &Rc<Client>,
    topic: TopicName<'_>,
    message: &Message,
    packet_id: Option<PacketId>,
    is_logged: bool,
) {
    let checked = if packet_id.is_some() {
        router::check_retained(shard, Some(client), topic, message)
    } else {
        router::check_filters(shard, topic, message)
    };
    if let Err(why) = checked {
        return refuse_unroutable(shard, client, message, packet_id, why);
    }
    let qos = message.qos();
    let retaining = retain::store(shard, Some(client), topic, message);
    if retaining.outcome == Retention::Refused
        && let Some(packet_id) = packet_id
        && client.login().version.has_properties()
    {
        let details = Details::reason("the limit of retained messages is reached");
        let mut session = client.session.borrow_mut();
        session.refuse_publish(packet_id, qos, ReasonCode::QUOTA_EXCEEDED, details);
        return;
    }
    let publication = Publication {
        packet_id,
        retaining,
        is_logged,
        is_refused_when_full: queue_policy::refuses(shard, Some(client), topic, message),
        ..Publication::new(Some(client), topic, message)
    };
    router::route(shard, &mut [publication], |publication, routed| {
        answer(shard, client, publication, routed);
    });
}

/// Refuses a message that cannot be routed.
pub(crate) fn refuse_unroutable(
    shard: &Rc<Shard>,
    client: &Rc<Client>,
    message: &Message,
    packet_id: Option<PacketId>,
    why: Unroutable,
) {
    publication::report_unroutable(shard, Some(client), message, why);
    if packet_id.is_some() {
        tell_refused(client, message, packet_id, why.text());
    }
}

/// Tells a client that its publish is refused. Of 3.x it cannot be told, so it is disconnected, and has to come again:
/// an acknowledgement would make it forget the message.
fn tell_refused(
    client: &Rc<Client>,
    message: &Message,
    packet_id: Option<PacketId>,
    why: &'static str,
) {
    let reason = ReasonCode::QUOTA_EXCEEDED;
    let told = packet_id.filter(|_| client.login().version.has_properties());
    if let Some(packet_id) = told {
        let details = Details::reason(why);
        let mut session = client.session.borrow_mut();
        session.refuse_publish(packet_id, message.qos(), reason, details);
    } else if let Some(link) = client.link() {
        link.close(Cause::Administrative, reason);
    }
}

/// Refuses a message: a 3.x client is acknowledged all the same [MQTT-3.1.1 3.3.5-2].
fn deny(
    shard: &Rc<Shard>,
    client: &Rc<Client>,
    message: &Message,
    packet_id: Option<PacketId>,
    refusal: Denial,
) {
    let reason = refusal.reason;
    if let Some(packet_id) = packet_id {
        let mut session = client.session.borrow_mut();
        session.refuse_publish(packet_id, message.qos(), reason, refusal.details());
    }
    report_denied(shard, client, "publish to", message.topic(), reason);
}
