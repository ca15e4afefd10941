//! What a client asks for: permission first, then the deed, then the answer.
//!
//! Most of it is decided at once by the client's grant. Where a plugin wants to be asked, the
//! deed becomes a [`PendingRequest`]: the client is not read from until the answer is there, and nobody
//! else waits.

use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;

use mqttcore_codec::{PacketId, QoS, ReasonCode};
use mqttcore_session::{
    Cause, Details, Message, SubscribeEntry, SubscribeRequest, UnsubscribeRequest,
};
use mqttcore_topics::{Change, ShareName, TopicFilter, TopicName};

use crate::clients::client::Client;
use crate::clients::retained::Replay;
use crate::clients::topic::topic_of;
use crate::config::grants::RuleAnswer;
use crate::config::hooks::{Action, Ask, EventKind, Reply, Ruling, refusing};
use crate::connection::disconnect_cause::DisconnectCause;
use crate::connection::full_queue;
use crate::routing::batch::MessageBatch;
use crate::routing::external::{self, NotLogged};
use crate::routing::publication::{self, Publication, Retention, Unroutable};
use crate::routing::{queue_policy, retain, router, session_records};
use crate::runtime::log::{Escaped, LogCategory};
use crate::sessions::lifecycle::confirm;
use crate::sessions::rights::is_lost;
use crate::shard::{EventDetails, Shard};

/// A step that waits: for a plugin, or for the sessions that were kept.
pub(crate) type PendingRequest = Pin<Box<dyn Future<Output = Result<(), DisconnectCause>>>>;

/// What a plugin said about one question: yes, no, or go.
type Answer = Result<Result<(), Denial>, DisconnectCause>;

/// Why something is refused.
struct Denial {
    reason: ReasonCode,
    /// For people.
    text: Option<Box<str>>,
}

impl Denial {
    fn new(reason: ReasonCode, text: &str) -> Self {
        Self {
            reason,
            text: Some(text.into()),
        }
    }

    fn details(self) -> Details {
        Details {
            reason_string: self.text,
            ..Details::none()
        }
    }
}

const PUBLISH_DENIED: &str = "not allowed to publish to this topic";
const SUBSCRIBE_DENIED: &str = "not allowed to subscribe to this filter";

/// Asks the plugins one question.
fn ask(
    shard: &Rc<Shard>,
    client: &Rc<Client>,
    question: Question<'_>,
) -> impl Future<Output = Answer> + use<> {
    let (reply, answer) = Reply::new();
    let action = question.action;
    let is_owed_the_truth = awaits_acknowledgement(client, &question);
    shard.hooks().authorize(
        Ask {
            login: client.login(),
            action,
            topic: question.topic,
            qos: question.qos,
            retain: question.retain,
            share: question.share.map(Arc::from),
        },
        reply,
    );
    let client = Rc::clone(client);
    async move {
        match answer.await {
            Ok(Ruling::Allow) => Ok(Ok(())),
            Ok(Ruling::AllowAll { covers, until }) => {
                if let Some(link) = client.link() {
                    link.widen(action, covers, until);
                }
                Ok(Ok(()))
            }
            Ok(Ruling::Deny { reason, text }) => Ok(Err(Denial {
                reason: refusing(reason),
                text: text.map(Into::into),
            })),
            Ok(Ruling::Disconnect { reason, text }) => Err(DisconnectCause::Refused {
                reason: refusing(reason),
                text: text.unwrap_or_default().into(),
            }),
            Err(_) if is_owed_the_truth => Err(DisconnectCause::Refused {
                reason: ReasonCode::SERVER_UNAVAILABLE,
                text: "no plugin answered".into(),
            }),
            // A reply that nobody used is a refusal: authorization fails closed.
            Err(_) => Ok(Err(Denial {
                reason: ReasonCode::NOT_AUTHORIZED,
                text: None,
            })),
        }
    }
}

/// Whether a fault of ours ends the connection: 3.x has no code for it, and an acknowledgement
/// would make the client forget its message [MQTT 3.1.1 MQTT-4.8.0-2].
fn awaits_acknowledgement(client: &Client, question: &Question<'_>) -> bool {
    let is_told = client.login().version.has_properties();
    question.action == Action::Publish && question.qos > QoS::AtMostOnce && !is_told
}

struct Question<'a> {
    action: Action,
    topic: TopicFilter,
    qos: QoS,
    retain: bool,
    share: Option<&'a str>,
}

/// Whether a publish may wait for those behind it, to be matched with them: nothing else depends on when it is.
///
/// A retained message is stored right before it is matched, a QoS 2 message is state from the moment that it is accepted,
/// and where the disk is nearly full each message may be refused.
pub(crate) fn may_wait(
    shard: &Shard,
    client: &Client,
    topic: TopicName<'_>,
    message: &Message,
) -> bool {
    !message.retain()
        && !shard.is_short_of_room()
        && !queue_policy::may_refuse(shard, Some(client), topic, message)
        && external::refusal(shard, topic, message).is_none()
        && message.qos() != QoS::ExactlyOnce
        && client.access().permissions.publish(topic) == RuleAnswer::Allowed
}

/// Routes and acknowledges, in their order, publishes that waited for each other.
pub(crate) fn accept_batch(shard: &Rc<Shard>, client: &Rc<Client>, together: &mut MessageBatch) {
    together.route(shard, client, |message, packet_id, routed| match routed {
        Ok(matched) => acknowledge(shard, client, message, packet_id, matched),
        Err(why) => refuse_unroutable(shard, client, message, packet_id, why),
    });
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
    let mut session = client.session.borrow_mut();
    session.accept_publish(packet_id, message.qos(), reason_of(matched));
    drop(session);
    if message.qos() == QoS::ExactlyOnce {
        // Clients expect PUBREC before their own copy of the message.
        confirm(shard, client);
        client.flush_session(shard);
    }
}

fn reason_of(matched: usize) -> ReasonCode {
    if matched == 0 {
        ReasonCode::NO_MATCHING_SUBSCRIBERS
    } else {
        ReasonCode::SUCCESS
    }
}

/// Publishes `message` if its client may; a [`PendingRequest`] where a plugin has to say so.
pub(crate) fn publish(
    shard: &Rc<Shard>,
    client: &Rc<Client>,
    topic: TopicName<'_>,
    message: Message,
    packet_id: Option<PacketId>,
) -> Option<PendingRequest> {
    let answer = client.access().permissions.publish(topic);
    match answer {
        RuleAnswer::Allowed => {
            return accept(shard, client, topic, message, packet_id);
        }
        RuleAnswer::Silent
            if shard
                .interests()
                .asks_about(Action::Publish, |filter| filter.matches(topic)) => {}
        RuleAnswer::Silent | RuleAnswer::Denied => {
            let refusal = Denial::new(ReasonCode::NOT_AUTHORIZED, PUBLISH_DENIED);
            deny(shard, client, &message, packet_id, refusal);
            return None;
        }
    }
    if client.is_widened(Action::Publish, |filter| filter.matches(topic)) {
        return accept(shard, client, topic, message, packet_id);
    }
    let question = Question {
        action: Action::Publish,
        topic: topic.into(),
        qos: message.qos(),
        retain: message.retain(),
        share: None,
    };
    let answer = ask(shard, client, question);
    let (shard, client) = (Rc::clone(shard), Rc::clone(client));
    Some(Box::pin(async move {
        let answer = answer.await?;
        let topic = topic_of(&message);
        // Its grant may be another one since it asked.
        let is_denied = |topic| client.access().permissions.publish(topic) == RuleAnswer::Denied;
        match answer {
            Ok(()) if topic.is_none_or(is_denied) => {
                let refusal = Denial::new(ReasonCode::NOT_AUTHORIZED, PUBLISH_DENIED);
                deny(&shard, &client, &message, packet_id, refusal);
            }
            Ok(()) => {
                if let Some(topic) = topic
                    && let Some(pause) = accept(&shard, &client, topic, message.clone(), packet_id)
                {
                    pause.await?;
                }
            }
            Err(refusal) => deny(&shard, &client, &message, packet_id, refusal),
        }
        confirm(&shard, &client);
        Ok(())
    }))
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
        if let Some(topic) = topic_of(&message) {
            accept_now(&shard, &client, topic, &message, packet_id, true);
        }
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
        publisher: Some(client),
        topic,
        message,
        packet_id,
        retaining,
        is_logged,
        is_refused_when_full: queue_policy::refuses(shard, Some(client), topic, message),
    };
    let routed = router::try_route(shard, publication, |accepted| match accepted {
        Ok(matched) => acknowledge(shard, client, message, packet_id, matched),
        Err(why) => refuse_unroutable(shard, client, message, packet_id, why),
    });
    if let Err(why) = routed {
        refuse_unroutable(shard, client, message, packet_id, why);
    }
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

fn report_denied(
    shard: &Rc<Shard>,
    client: &Rc<Client>,
    what: &str,
    topic: &str,
    reason: ReasonCode,
) {
    shard.metrics().denied.add(1);
    let details = EventDetails {
        topic: Some(topic),
        reason: Some(reason),
    };
    shard.tell(EventKind::Denied, client, details);
    shard.log.warn(LogCategory::Denied, shard.now(), || {
        let (id, topic) = (Escaped(&client.id), Escaped(topic));
        format!("client {id} may not {what} {topic}: {}", reason.name())
    });
}

/// Subscribes to what the client may; a [`PendingRequest`] where a plugin has to say so.
pub(crate) fn subscribe(
    shard: &Rc<Shard>,
    client: &Rc<Client>,
    mut request: SubscribeRequest,
) -> Option<PendingRequest> {
    let mut why = Details::none();
    let open: Vec<usize> = (0..request.entries.len())
        .filter(|&index| judge_entry(shard, client, &mut request.entries[index], &mut why))
        .collect();
    if open.is_empty() {
        complete_subscribe(shard, client, request, why);
        return None;
    }
    let (shard, client) = (Rc::clone(shard), Rc::clone(client));
    Some(Box::pin(async move {
        for index in open {
            let entry = &mut request.entries[index];
            let filter = entry.filter.filter();
            if client.is_widened(Action::Subscribe, |covers| covers.covers(filter)) {
                continue;
            }
            let question = Question {
                action: Action::Subscribe,
                topic: filter.clone(),
                qos: entry.options.qos,
                retain: false,
                share: entry.filter.share().map(ShareName::as_str),
            };
            if let Err(refusal) = ask(&shard, &client, question).await? {
                refuse_entry(&shard, &client, entry, refusal, &mut why);
            }
        }
        // Its grant may be another one since it asked.
        for entry in &mut request.entries {
            if entry.refused.is_none() && is_lost(&shard, &client, entry.filter.filter()) {
                let refusal = Denial::new(ReasonCode::NOT_AUTHORIZED, SUBSCRIBE_DENIED);
                refuse_entry(&shard, &client, entry, refusal, &mut why);
            }
        }
        complete_subscribe(&shard, &client, request, why);
        confirm(&shard, &client);
        Ok(())
    }))
}

/// Refuses an entry that the rules do not allow; true where a plugin wants to be asked first.
fn judge_entry(
    shard: &Rc<Shard>,
    client: &Rc<Client>,
    entry: &mut SubscribeEntry,
    why: &mut Details,
) -> bool {
    if entry.refused.is_some() {
        return false;
    }
    let filter = entry.filter.filter();
    let answer = client.access().permissions.subscribe(filter);
    let is_silent = answer == RuleAnswer::Silent;
    if answer == RuleAnswer::Allowed
        || is_silent && client.is_widened(Action::Subscribe, |covers| covers.covers(filter))
    {
        return false;
    }
    if is_silent
        && shard
            .interests()
            .asks_about(Action::Subscribe, |about| about.covers(filter))
    {
        return true;
    }
    let refusal = Denial::new(ReasonCode::NOT_AUTHORIZED, SUBSCRIBE_DENIED);
    refuse_entry(shard, client, entry, refusal, why);
    false
}

/// Refuses an entry; SUBACK has one reason string, that of the first one with any words.
fn refuse_entry(
    shard: &Rc<Shard>,
    client: &Rc<Client>,
    entry: &mut SubscribeEntry,
    refusal: Denial,
    why: &mut Details,
) {
    let reason = refusal.reason;
    report_denied(shard, client, "subscribe to", entry.filter.as_str(), reason);
    entry.refused = Some(reason);
    why.reason_string = why.reason_string.take().or(refusal.text);
}

/// One commit for the packet, then SUBACK, then the retained messages (decision 14).
fn complete_subscribe(
    shard: &Rc<Shard>,
    client: &Rc<Client>,
    request: SubscribeRequest,
    why: Details,
) {
    let granted = || {
        request
            .entries
            .iter()
            .filter(|entry| entry.refused.is_none())
    };
    let changes: Vec<Change<'_>> = granted()
        .map(|entry| Change::Subscribe {
            filter: &entry.filter,
            options: entry.options,
        })
        .collect();
    if !changes.is_empty() {
        shard.world.directory.commit(client.subscriber, &changes);
    }
    let wanted = |entry: &&SubscribeEntry| entry.wants_retained();
    let wanted: Vec<SubscribeEntry> = request.entries.iter().filter(wanted).cloned().collect();
    for entry in granted() {
        session_records::subscribed(shard, client, &entry.filter, entry.options);
        tell_filter(shard, client, EventKind::Subscribed, entry.filter.as_str());
    }
    let mut session = client.session.borrow_mut();
    let suback = session.complete_subscribe(request, why);
    let Some(link) = client.link() else { return };
    let mut waiting = link.replays.borrow_mut();
    for replay in wanted.iter().map(|entry| Replay::new(entry, suback)) {
        // At most one a subscription: one that is made again begins anew.
        waiting.retain(|other| !other.is_same_as(&replay));
        waiting.push_back(replay);
    }
}

/// One commit for the packet, then UNSUBACK.
pub(crate) fn unsubscribe(shard: &Rc<Shard>, client: &Rc<Client>, request: UnsubscribeRequest) {
    let changes: Vec<Change<'_>> = request
        .entries
        .iter()
        .filter(|entry| entry.exists)
        .map(|entry| Change::Unsubscribe {
            filter: &entry.filter,
        })
        .collect();
    if !changes.is_empty() {
        shard.world.directory.commit(client.subscriber, &changes);
    }
    for entry in request.entries.iter().filter(|entry| entry.exists) {
        session_records::unsubscribed(shard, client, &entry.filter);
        if let Some(link) = client.link() {
            let mut replays = link.replays.borrow_mut();
            replays.retain(|replay| !replay.is_of(&entry.filter));
        }
        tell_filter(
            shard,
            client,
            EventKind::Unsubscribed,
            entry.filter.as_str(),
        );
    }
    client
        .session
        .borrow_mut()
        .complete_unsubscribe(request, Details::none());
}

fn tell_filter(shard: &Rc<Shard>, client: &Rc<Client>, kind: EventKind, filter: &str) {
    let details = EventDetails {
        topic: Some(filter),
        reason: None,
    };
    shard.tell(kind, client, details);
}
