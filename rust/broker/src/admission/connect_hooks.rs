//! The `connect` and `will` hooks: plugins decide about the CONNECT and the will of an authenticated client.

use std::sync::Arc;

use mqttcore_codec::ReasonCode;
use mqttcore_session::{ConnAckFormat, ConnectRequest, Message};

use crate::admission::handshake::Handshake;
use crate::admission::identify::unanswered;
use crate::admission::rejection::{RejectReason, RejectedClient};
use crate::config::hooks::{Hooks, Login, PublishBatch, PublishDecision, Reply, refusing};
use crate::config::packet_hooks::{ConnectChanges, ConnectDecision};
use crate::config::permissions::{CompiledGrant, RuleAnswer};
use crate::shard::Shard;

impl Handshake<'_> {
    /// Asks the `connect` hooks; returns their changes.
    pub(crate) async fn ask_connect_hooks(
        &mut self,
        login: &Arc<Login>,
        to: ConnAckFormat,
    ) -> Result<ConnectChanges, RejectReason> {
        let decision = self
            .ask_hooks(|shard, hooks, reply| {
                let is_asked = shard.interests().connect;
                if is_asked {
                    hooks.connect(Arc::clone(login), reply);
                }
                is_asked
            })
            .await?;
        let refuse = |reason| RejectedClient::new(login, to, reason);
        match decision {
            HandshakeAnswer::NotAsked => Ok(ConnectChanges::default()),
            HandshakeAnswer::Decided(ConnectDecision::Allow(changes)) => Ok(changes),
            HandshakeAnswer::Decided(ConnectDecision::Deny { reason, text }) => {
                Err(RejectedClient {
                    text,
                    ..refuse(refusing(reason))
                }
                .into())
            }
            HandshakeAnswer::Decided(ConnectDecision::Redirect {
                server,
                is_permanent,
            }) => Err(RejectedClient {
                server: Some(server),
                ..refuse(if is_permanent {
                    ReasonCode::SERVER_MOVED
                } else {
                    ReasonCode::USE_ANOTHER_SERVER
                })
            }
            .into()),
            HandshakeAnswer::Missing => Err(unanswered(login, to, ReasonCode::SERVER_UNAVAILABLE)),
        }
    }

    /// Whether plugins decide about the will of `request`.
    pub(crate) fn has_will_hook(&self, request: &ConnectRequest) -> bool {
        let will = request.will.as_ref();
        will.is_some_and(|will| self.shard.has_will_hook(will.message.topic_name()))
    }

    /// Asks the `will` hooks about the will of `request`, which they may change or remove. The will has to be permitted
    /// before, and again if they change it.
    pub(crate) async fn ask_will_hooks(
        &mut self,
        request: &mut ConnectRequest,
        login: &Arc<Login>,
    ) -> Result<(), RejectReason> {
        let to = request.recipient();
        let Some(will) = &mut request.will else {
            return Ok(());
        };
        let decision = match self.decide_will(&will.message, login).await? {
            HandshakeAnswer::NotAsked => return Ok(()),
            HandshakeAnswer::Decided(decisions) => decisions.into_iter().next(),
            HandshakeAnswer::Missing => None,
        };
        match decision {
            Some(PublishDecision::Publish) => Ok(()),
            Some(PublishDecision::Replace(changed, _)) => {
                will.message = changed;
                Ok(())
            }
            Some(PublishDecision::Drop { .. }) => {
                let qos = will.message.qos();
                self.shard.metrics().dropped_hook.count(qos);
                request.will = None;
                Ok(())
            }
            Some(
                PublishDecision::Deny { reason, text }
                | PublishDecision::Disconnect { reason, text },
            ) => Err(RejectedClient {
                text,
                ..RejectedClient::new(login, to, refusing(reason))
            }
            .into()),
            Some(PublishDecision::Fault) | None => {
                Err(unanswered(login, to, ReasonCode::SERVER_UNAVAILABLE))
            }
        }
    }

    /// Asks the `will` hooks about one message.
    async fn decide_will(
        &mut self,
        will: &Message,
        login: &Arc<Login>,
    ) -> Result<HandshakeAnswer<Vec<PublishDecision>>, RejectReason> {
        self.ask_hooks(|shard, hooks, reply| {
            let is_asked = shard.has_will_hook(will.topic_name());
            if is_asked {
                let batch = PublishBatch {
                    login: Arc::clone(login),
                    messages: vec![will.clone()],
                    limits: Arc::clone(&shard.config().limits),
                };
                hooks.will(batch, reply);
            }
            is_asked
        })
        .await
    }

    /// Asks the hooks; `ask` returns false if none wants to be asked. If a reload replaces the plugins before they
    /// answer, the new ones are asked, once.
    async fn ask_hooks<T>(
        &mut self,
        ask: impl Fn(&Shard, &dyn Hooks, Reply<T>) -> bool,
    ) -> Result<HandshakeAnswer<T>, RejectReason> {
        for _ in 0..2 {
            let hooks = self.shard.hooks();
            let (reply, answer) = Reply::new();
            if !ask(self.shard, &*hooks, reply) {
                return Ok(HandshakeAnswer::NotAsked);
            }
            if let Some(decision) = self.while_connected(answer).await? {
                return Ok(HandshakeAnswer::Decided(decision));
            }
            if Arc::ptr_eq(&hooks, &self.shard.hooks()) {
                break;
            }
        }
        Ok(HandshakeAnswer::Missing)
    }
}

enum HandshakeAnswer<T> {
    NotAsked,
    Decided(T),
    Missing,
}

/// Checks the permission for the will now, as for a PUBLISH (abuse F07).
pub(crate) fn check_will(
    request: &ConnectRequest,
    login: &Arc<Login>,
    access: &CompiledGrant,
) -> Result<(), RejectReason> {
    let Some(will) = &request.will else {
        return Ok(());
    };
    let highest = access.grant.limits.max_qos;
    if highest.is_some_and(|highest| will.message.qos() > highest) {
        // [MQTT-3.2.2-12]
        let denied = RejectedClient::new(login, request.recipient(), ReasonCode::QOS_NOT_SUPPORTED);
        return Err(denied
            .with_reason_string("the QoS of the will is above the maximum")
            .into());
    }
    let answer = access.permissions.publish(will.message.topic_name());
    if answer == RuleAnswer::Allowed {
        return Ok(());
    }
    let denied = RejectedClient::new(login, request.recipient(), ReasonCode::NOT_AUTHORIZED);
    Err(denied
        .with_reason_string("not allowed to publish to the will topic")
        .into())
}
