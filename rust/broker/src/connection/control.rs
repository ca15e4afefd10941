//! Control requests: messages on `$CONTROL/FEATURE/VERSION`, which a plugin answers to their client alone.

use std::num::NonZeroU32;
use std::rc::Rc;

use mqttcore_codec::{PacketId, Properties, PropertiesBuf, Property, QoS, ReasonCode};
use mqttcore_session::{Delivery, Message};
use mqttcore_topics::{TopicLimits, TopicName};

use crate::clients::client::Client;
use crate::config::hooks::{ControlRequest, Reply};
use crate::connection::authorize::{Denial, UNANSWERED};
use crate::connection::publish::{acknowledge, deny};
use crate::connection::renewal;
use crate::routing::delivery::deliver;
use crate::routing::publication::Publication;
use crate::sessions::lifecycle::confirm;
use crate::shard::Shard;

/// The answer to a request that no plugin answered, in the form of Mosquitto's control topics.
const NO_ANSWER: &[u8] =
    br#"{"responses":[{"command":"Unknown command","error":"no plugin answered"}]}"#;

/// Asks the plugin, acknowledges the request and sends the answer. The message is not routed.
pub(super) async fn answer(
    shard: &Rc<Shard>,
    client: &Rc<Client>,
    request: &Message,
    packet_id: Option<PacketId>,
) {
    let (reply, answer) = Reply::new();
    let asked = ControlRequest {
        login: client.login(),
        message: request.clone(),
    };
    shard.hooks().control(asked, reply);
    let payload = if let Ok(payload) = answer.await {
        // Who reads the answer relies on the change, for connected clients too.
        renewal::settled(shard).await;
        acknowledge(shard, client, (request, packet_id), ReasonCode::SUCCESS);
        payload
    } else {
        let topic = request.topic_name();
        let publication = Publication::new(Some(client), topic, request, packet_id);
        let reason = ReasonCode::IMPLEMENTATION_SPECIFIC_ERROR;
        deny(shard, client, &publication, Denial::new(reason, UNANSWERED));
        NO_ANSWER.into()
    };
    // The acknowledgement comes first, as in Mosquitto.
    confirm(shard, client);
    client.flush_session(shard);
    send(shard, client, request, &payload);
}

/// Sends an answer on `$CONTROL/FEATURE/VERSION/response`, if the client is subscribed to that topic and may receive
/// from it.
fn send(shard: &Rc<Shard>, client: &Rc<Client>, request: &Message, payload: &[u8]) {
    let topic = format!("{}/response", request.topic());
    let Ok(topic) = TopicName::parse(&topic, &TopicLimits::WIDEST) else {
        return;
    };
    let Some((qos, ids)) = subscribed(client, topic) else {
        return;
    };
    let properties = correlation(request.properties());
    let properties = properties.as_properties();
    let now = shard.now();
    let mut answer = Message::copied(now, topic, properties, payload, request.qos(), false);
    if let Some(link) = client.link() {
        answer.charge(shard.account_of(&link));
    }
    deliver(shard, client, &answer, Delivery::new(qos, &ids));
}

/// The highest QoS and the identifiers of the subscriptions that match `topic`; shared ones do not count: the answer is
/// for its client.
fn subscribed(client: &Client, topic: TopicName<'_>) -> Option<(QoS, Vec<NonZeroU32>)> {
    let session = client.session.borrow();
    let subscriptions = session.subscriptions().iter().filter(|held| {
        let filter = &held.filter;
        !filter.is_shared() && filter.filter().matches(topic)
    });
    let matching: Vec<_> = subscriptions.map(|held| held.options).collect();
    let qos = matching.iter().map(|options| options.qos).max()?;
    let ids = matching.iter().filter_map(|options| options.id);
    Some((qos, ids.collect()))
}

/// The Correlation Data of a request, by which its client recognises the answer.
fn correlation(request: Properties<'_>) -> PropertiesBuf {
    let mut properties = PropertiesBuf::default();
    for property in request {
        if matches!(property, Property::CorrelationData(_)) {
            // It was in a packet, so it fits.
            let _ = properties.push(property);
        }
    }
    properties
}
