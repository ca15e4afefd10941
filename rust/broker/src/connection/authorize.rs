//! Authorization by plugins, for requests on which the client's grant is silent.
//!
//! While a plugin decides, the broker does not read from this client; other clients are not delayed.

use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;

use mqttcore_codec::{QoS, ReasonCode};
use mqttcore_session::Details;
use mqttcore_topics::TopicFilter;

use crate::clients::client::Client;
use crate::config::hooks::{Action, AuthorizeDecision, AuthorizeRequest, Login, Reply, refusing};
use crate::config::plugin_event::EventKind;
use crate::connection::disconnect_cause::DisconnectCause;
use crate::runtime::log::{Escaped, LogCategory};
use crate::shard::{EventDetails, Shard};

/// A paused step: it waits for a plugin, for Kafka, for room in a queue, or for stored sessions to be loaded.
pub(crate) type PendingRequest = Pin<Box<dyn Future<Output = Result<(), DisconnectCause>>>>;

/// The answer to one question: allowed, denied, or disconnect.
pub(super) type AuthorizeResult = Result<Result<(), Denial>, DisconnectCause>;

/// Reason of a denial.
pub(super) struct Denial {
    pub(super) reason: ReasonCode,
    /// Reason string.
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

/// The request that plugins decide about.
pub(super) struct AuthorizeArgs<'a> {
    pub(super) action: Action,
    pub(super) topic: TopicFilter,
    pub(super) qos: QoS,
    pub(super) retain: bool,
    pub(super) share: Option<&'a str>,
}

/// Asks the plugins about one request.
pub(super) fn ask(
    shard: &Rc<Shard>,
    client: &Rc<Client>,
    question: AuthorizeArgs<'_>,
) -> impl Future<Output = AuthorizeResult> + use<> {
    let is_publish = question.action == Action::Publish;
    let end = end_if_unanswered(client, question.qos).filter(|_| is_publish);
    let answer = try_ask(shard, client, question);
    async move {
        if let Some(result) = answer.await {
            return result;
        }
        // Authorization fails closed: without an answer the request is denied.
        let denial = Denial {
            reason: ReasonCode::NOT_AUTHORIZED,
            text: None,
        };
        end.map_or(Ok(Err(denial)), Err)
    }
}

/// As [`ask`]; returns `None` if no plugin answered.
pub(super) fn try_ask(
    shard: &Rc<Shard>,
    client: &Rc<Client>,
    question: AuthorizeArgs<'_>,
) -> impl Future<Output = Option<AuthorizeResult>> + use<> {
    let (action, asked_at) = (question.action, shard.engine.invalidations.count());
    let answer = ask_plugins(shard, client.login(), question);
    let (engine, client) = (Arc::clone(&shard.engine), Rc::clone(client));
    async move {
        let ruling = answer.await?;
        let may_cache = !engine.is_outdated(asked_at, &client);
        Some(judge(&client, action, ruling, may_cache))
    }
}

/// Asks the plugins about a request of the client that logged in as `login`; returns `None` if no plugin answered.
pub(super) fn ask_plugins(
    shard: &Shard,
    login: Arc<Login>,
    question: AuthorizeArgs<'_>,
) -> impl Future<Output = Option<AuthorizeDecision>> + use<> {
    let (reply, answer) = Reply::new();
    let request = AuthorizeRequest {
        login,
        action: question.action,
        topic: question.topic,
        qos: question.qos,
        retain: question.retain,
        share: question.share.map(Arc::from),
    };
    shard.hooks().authorize(request, reply);
    async move { answer.await.ok() }
}

/// Converts a plugin's answer; an answer that covers more requests is cached, unless it is outdated.
fn judge(
    client: &Client,
    action: Action,
    ruling: AuthorizeDecision,
    may_cache: bool,
) -> AuthorizeResult {
    match ruling {
        AuthorizeDecision::Allow => Ok(Ok(())),
        AuthorizeDecision::AllowAll { covers, until } => {
            if let Some(link) = client.link().filter(|_| may_cache) {
                link.cache_allow(action, covers, until);
            }
            Ok(Ok(()))
        }
        AuthorizeDecision::Deny { reason, text } => Ok(Err(Denial {
            reason: refusing(reason),
            text: text.map(Into::into),
        })),
        AuthorizeDecision::Disconnect { reason, text } => Err(DisconnectCause::Refused {
            reason: refusing(reason),
            text: text.unwrap_or_default().into(),
        }),
    }
}

/// The reason string if plugins did not decide about a request.
pub(super) const UNANSWERED: &str = "no plugin answered";

/// Why the connection ends if no plugin decides about a publish; `None`: the client can be told. MQTT 3.x has no failure
/// code, and after an acknowledgement the client would discard its message [MQTT 3.1.1 MQTT-4.8.0-2].
pub(super) fn end_if_unanswered(client: &Client, qos: QoS) -> Option<DisconnectCause> {
    let is_told = client.login().version.has_properties();
    (qos > QoS::AtMostOnce && !is_told).then(|| DisconnectCause::Refused {
        reason: ReasonCode::SERVER_UNAVAILABLE,
        text: UNANSWERED.into(),
    })
}

/// Counts and logs a denial and reports it to plugins.
pub(super) fn report_denied(
    shard: &Rc<Shard>,
    client: &Rc<Client>,
    what: &str,
    topic: &str,
    reason: ReasonCode,
) {
    let refusals = shard.metrics().refusals(client.listener());
    refusals.denied.add(1);
    let details = EventDetails {
        topic: Some(topic),
        reason: Some(reason),
        why: None,
    };
    shard.send_event(EventKind::Denied, client, details);
    shard.log.warn(LogCategory::Denied, shard.now(), || {
        let (who, topic, name) = (client.named(), Escaped(topic), reason.name());
        let text = format!("{who} may not {what} {topic}: {name}");
        client.log_entry("denied", text).with_reason(Some(reason))
    });
}
