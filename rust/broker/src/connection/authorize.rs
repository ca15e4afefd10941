//! What a client may do where its grant is silent: plugins are asked, and denials are reported.
//!
//! While a plugin decides, the client is not read from; nobody else waits.

use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;

use mqttcore_codec::{QoS, ReasonCode};
use mqttcore_session::Details;
use mqttcore_topics::TopicFilter;

use crate::clients::client::Client;
use crate::config::hooks::{Action, Ask, EventKind, Reply, Ruling, refusing};
use crate::connection::disconnect_cause::DisconnectCause;
use crate::runtime::log::{Escaped, LogCategory};
use crate::shard::{EventDetails, Shard};

/// A step that waits: for a plugin, for Kafka, for room in a queue, or for the sessions that were kept.
pub(crate) type PendingRequest = Pin<Box<dyn Future<Output = Result<(), DisconnectCause>>>>;

/// What a plugin said about one question: yes, no, or go.
pub(super) type AuthorizeResult = Result<Result<(), Denial>, DisconnectCause>;

/// Why something is refused.
pub(super) struct Denial {
    pub(super) reason: ReasonCode,
    /// For people.
    pub(super) text: Option<Box<str>>,
}

impl Denial {
    pub(super) fn new(reason: ReasonCode, text: &str) -> Self {
        Self {
            reason,
            text: Some(text.into()),
        }
    }

    pub(super) fn details(self) -> Details {
        Details {
            reason_string: self.text,
            ..Details::none()
        }
    }
}

/// What a plugin is asked: may the client do this?
pub(super) struct AuthorizeArgs<'a> {
    pub(super) action: Action,
    pub(super) topic: TopicFilter,
    pub(super) qos: QoS,
    pub(super) retain: bool,
    pub(super) share: Option<&'a str>,
}

/// Asks the plugins one question.
pub(super) fn ask(
    shard: &Rc<Shard>,
    client: &Rc<Client>,
    question: AuthorizeArgs<'_>,
) -> impl Future<Output = AuthorizeResult> + use<> {
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
            Ok(ruling) => judge(&client, action, ruling),
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

/// What a plugin's answer means; one that holds for more than this question is kept.
fn judge(client: &Client, action: Action, ruling: Ruling) -> AuthorizeResult {
    match ruling {
        Ruling::Allow => Ok(Ok(())),
        Ruling::AllowAll { covers, until } => {
            if let Some(link) = client.link() {
                link.cache_allow(action, covers, until);
            }
            Ok(Ok(()))
        }
        Ruling::Deny { reason, text } => Ok(Err(Denial {
            reason: refusing(reason),
            text: text.map(Into::into),
        })),
        Ruling::Disconnect { reason, text } => Err(DisconnectCause::Refused {
            reason: refusing(reason),
            text: text.unwrap_or_default().into(),
        }),
    }
}

/// Whether a fault of ours ends the connection: 3.x has no code for it, and an acknowledgement
/// would make the client forget its message [MQTT 3.1.1 MQTT-4.8.0-2].
fn awaits_acknowledgement(client: &Client, question: &AuthorizeArgs<'_>) -> bool {
    let is_told = client.login().version.has_properties();
    question.action == Action::Publish && question.qos > QoS::AtMostOnce && !is_told
}

/// Counts a denial, and tells plugins and the log of it.
pub(super) fn report_denied(
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
