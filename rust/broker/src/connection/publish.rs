//! PUBLISH: checks the permission, routes the message, acknowledges it.
//!
//! A message waits for later ones and is routed with them, unless its effect depends on the time of routing; such a
//! message is routed alone and in order.

use std::rc::Rc;

use mqttcore_codec::{PacketId, QoS, ReasonCode};
use mqttcore_session::{Cause, Details, Message};
use mqttcore_topics::{TopicFilter, TopicName};
use smallvec::SmallVec;

use crate::clients::client::Client;
use crate::config::hooks::Action;
use crate::config::permissions::RuleAnswer;
use crate::connection::authorize::{Denial, PendingRequest, report_denied};
use crate::connection::disconnect_cause::DisconnectCause;
use crate::connection::full_queue;
use crate::routing::batch::{self, MessageBatch};
use crate::routing::external::{self, NotLogged};
use crate::routing::matching::MESSAGE_BATCH;
use crate::routing::publication::{Publication, Retention, Unroutable, report_unroutable};
use crate::routing::{queue_policy, retain, router};
use crate::sessions::lifecycle::confirm;
use crate::shard::Shard;

pub(super) fn denial() -> Denial {
    let text = "not allowed to publish to this topic";
    Denial::new(ReasonCode::NOT_AUTHORIZED, text)
}

/// Whether `client` may publish to `topic`; `Silent` if a plugin has to decide.
pub(crate) fn may_publish(shard: &Shard, client: &Client, topic: TopicName<'_>) -> RuleAnswer {
    let answer = publish_rules(shard, client, topic);
    if answer != RuleAnswer::Silent {
        return answer;
    }
    let is_about = |filter: &TopicFilter| filter.matches(topic);
    if !shard.interests().asks_about(Action::Publish, is_about) {
        RuleAnswer::Denied
    } else if client.has_cached_allow(Action::Publish, is_about) {
        RuleAnswer::Allowed
    } else {
        RuleAnswer::Silent
    }
}

/// The answer of the grant of `client` about publishing to `topic`, or about a request there that a plugin answers.
pub(super) fn publish_rules(shard: &Shard, client: &Client, topic: TopicName<'_>) -> RuleAnswer {
    let access = client.access();
    if shard.has_control_hook(topic) {
        access.permissions.control_rule(topic).answer()
    } else {
        access.permissions.publish(topic)
    }
}

/// Whether a message may wait for later ones and be matched with them.
///
/// It may not if its effect depends on the time: a retained message is stored right before it is matched, a QoS 2
/// message for Kafka is accepted only after Kafka has it, and if disk or memory is nearly full each message may be
/// rejected. Other QoS 2 messages may: until they are accepted, the session takes a PUBLISH with the same identifier for
/// a repeat, and a PUBREL comes after the batch.
pub(super) fn may_batch(shard: &Shard, publication: &Publication<'_>) -> bool {
    let message = publication.message;
    !message.retain()
        && !external::is_asked_first(shard, message)
        && !router::may_lack_room(shard)
        && !queue_policy::may_be_refused(shard, publication)
        && external::backpressure_reason(shard, publication).is_none()
}

/// Routes and acknowledges the messages of a batch in order.
pub(crate) fn accept_batch(shard: &Rc<Shard>, client: &Rc<Client>, batch: &mut MessageBatch<'_>) {
    batch.route(shard, client, |publication, routed| {
        answer(shard, client, publication, routed);
    });
}

/// Routes and acknowledges messages of one client in their order.
pub(super) fn accept_publications(
    shard: &Rc<Shard>,
    client: &Rc<Client>,
    publications: &mut SmallVec<[Publication<'_>; MESSAGE_BATCH]>,
) {
    batch::route_together(shard, client, publications, |publication, routed| {
        answer(shard, client, publication, routed);
    });
}

/// Acknowledges a message that was routed, or rejects it.
fn answer(
    shard: &Rc<Shard>,
    client: &Rc<Client>,
    publication: &Publication<'_>,
    routed: Result<usize, Unroutable>,
) {
    let (message, matched) = match routed {
        Ok(matched) => (publication.message, matched),
        Err(why) => return refuse(shard, client, publication, why),
    };
    let reason = if matched == 0 {
        ReasonCode::NO_MATCHING_SUBSCRIBERS
    } else {
        ReasonCode::SUCCESS
    };
    acknowledge(shard, client, (message, publication.packet_id), reason);
}

/// Acknowledges a message above QoS 0.
pub(super) fn acknowledge(
    shard: &Rc<Shard>,
    client: &Rc<Client>,
    (message, packet_id): (&Message, Option<PacketId>),
    reason: ReasonCode,
) {
    let Some(packet_id) = packet_id else {
        return;
    };
    let mut session = client.session.borrow_mut();
    session.accept_publish(packet_id, message.qos(), reason);
    drop(session);
    if message.qos() == QoS::ExactlyOnce {
        // Clients expect PUBREC before their own copy of the message: a session sends what is confirmed first.
        confirm(shard, client);
    }
}

/// Accepts a message; returns a [`PendingRequest`] if a 3.x client must wait until a queue has room.
pub(super) fn accept(
    shard: &Rc<Shard>,
    client: &Rc<Client>,
    publication: Publication<'_>,
) -> Option<PendingRequest> {
    match full_queue::must_wait_for(shard, client, &publication) {
        Some(full) => Some(full_queue::accept_when_room(
            shard,
            client,
            &publication,
            full,
        )),
        None => accept_logged(shard, client, publication),
    }
}

/// Accepts a message for which there is room. A QoS 2 message that goes to Kafka is accepted only after Kafka has it;
/// this returns a [`PendingRequest`].
pub(super) fn accept_logged(
    shard: &Rc<Shard>,
    client: &Rc<Client>,
    publication: Publication<'_>,
) -> Option<PendingRequest> {
    let refusal = external::backpressure_reason(shard, &publication);
    if let Some(why) = refusal.filter(|_| publication.packet_id.is_some()) {
        refuse(shard, client, &publication, Unroutable::NotLogged(why));
        return None;
    }
    let Some(logged) = external::produce_first(shard, client, &publication) else {
        accept_now(shard, client, publication);
        return None;
    };
    let (message, packet_id) = (publication.message.clone(), publication.packet_id);
    let (shard, client) = (Rc::clone(shard), Rc::clone(client));
    Some(Box::pin(async move {
        logged.await.map_err(|not_logged| match not_logged {
            NotLogged::Stopped => DisconnectCause::Lost,
            NotLogged::Lost => DisconnectCause::Refused {
                reason: ReasonCode::SERVER_BUSY,
                text: "Kafka did not accept the message".into(),
            },
        })?;
        let topic = message.topic_name();
        let mut publication = Publication::new(Some(&client), topic, &message, packet_id);
        publication.is_logged = true;
        accept_now(&shard, &client, publication);
        confirm(&shard, &client);
        Ok(())
    }))
}

/// Stores, routes and acknowledges a message.
///
/// If the store has no room for a retained message, the message is rejected, so that the client may send it again. If
/// the client cannot be told, the message is routed to current subscribers.
fn accept_now<'a>(shard: &'a Rc<Shard>, client: &Rc<Client>, mut publication: Publication<'a>) {
    if let Err(why) = router::check_retained(shard, &publication) {
        return refuse(shard, client, &publication, why);
    }
    retain::store(shard, &mut publication);
    if publication.retaining.outcome == Retention::Refused
        && let Some(packet_id) = publication.packet_id
        && client.login().version.has_properties()
    {
        let why = "the limit of retained messages is reached";
        return send_failure(client, publication.message, packet_id, why);
    }
    router::route(shard, &mut [publication], |publication, routed| {
        answer(shard, client, publication, routed);
    });
}

/// Rejects a message that cannot be routed. A 3.x client gets no failure code, so it is disconnected and sends the
/// message again: after an acknowledgement it would discard it.
pub(super) fn refuse(
    shard: &Rc<Shard>,
    client: &Client,
    publication: &Publication<'_>,
    why: Unroutable,
) {
    report_unroutable(shard, publication, why);
    let Some(packet_id) = publication.packet_id else {
        return;
    };
    if client.login().version.has_properties() {
        send_failure(client, publication.message, packet_id, why.text());
    } else if let Some(link) = client.link() {
        link.close(Cause::Administrative, ReasonCode::QUOTA_EXCEEDED);
    }
}

fn send_failure(client: &Client, message: &Message, packet_id: PacketId, why: &'static str) {
    let (reason, details) = (ReasonCode::QUOTA_EXCEEDED, Details::reason(why));
    let mut session = client.session.borrow_mut();
    session.refuse_publish(packet_id, message.qos(), reason, details);
}

/// Rejects a message that is not allowed; a 3.x client gets an acknowledgement nevertheless [MQTT-3.1.1 3.3.5-2].
pub(super) fn deny(
    shard: &Rc<Shard>,
    client: &Rc<Client>,
    publication: &Publication<'_>,
    refusal: Denial,
) {
    let (reason, topic) = (refusal.reason, publication.topic.as_str());
    if let Some(packet_id) = publication.packet_id {
        let (qos, details) = (publication.message.qos(), refusal.details());
        let mut session = client.session.borrow_mut();
        session.refuse_publish(packet_id, qos, reason, details);
    }
    report_denied(shard, client, "publish to", topic, reason);
}
