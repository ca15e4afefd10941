//! The replies that the engine waits for, one for each kind of question.

use mqttcore_broker::{
    AuthorizeDecision, ConnectDecision, ExchangeReply, LoginDecision, PublishDecision, Reply,
    SubscribeDecision, Trial,
};
use mqttcore_codec::ReasonCode;

/// The reply that the engine waits for.
pub(super) enum QuestionReply {
    LoginDecision(Reply<LoginDecision>),
    AuthorizeDecision(Reply<AuthorizeDecision>),
    Trial(Reply<Trial>),
    PublishDecisions(Reply<Vec<PublishDecision>>),
    ConnectDecision(Reply<ConnectDecision>),
    SubscribeDecisions(Reply<Vec<SubscribeDecision>>),
    Control(Reply<Vec<u8>>),
    Exchange(Reply<ExchangeReply>),
}

impl QuestionReply {
    pub(super) fn is_exchange(&self) -> bool {
        matches!(self, Self::Exchange(_))
    }

    pub(super) fn is_abandoned(&self) -> bool {
        match self {
            Self::LoginDecision(reply) => reply.is_abandoned(),
            Self::AuthorizeDecision(reply) => reply.is_abandoned(),
            Self::Trial(reply) => reply.is_abandoned(),
            Self::PublishDecisions(reply) => reply.is_abandoned(),
            Self::ConnectDecision(reply) => reply.is_abandoned(),
            Self::SubscribeDecisions(reply) => reply.is_abandoned(),
            Self::Control(reply) => reply.is_abandoned(),
            Self::Exchange(reply) => reply.is_abandoned(),
        }
    }
    /// Refuses because of a fault on our side; returns false if nobody waits for the answer any more.
    pub(super) fn refuse(self, login_reason: ReasonCode) -> bool {
        let deny = |reason| LoginDecision::Deny { reason, text: None };
        match self {
            Self::LoginDecision(reply) => reply.send(deny(login_reason)),
            Self::ConnectDecision(reply) if login_reason == ReasonCode::SERVER_BUSY => {
                reply.send(ConnectDecision::Deny {
                    reason: login_reason,
                    text: None,
                })
            }
            Self::Exchange(reply) => {
                // Unlike a CONNECT, clients do not retry an exchange by themselves.
                let verdict = deny(match login_reason {
                    ReasonCode::SERVER_UNAVAILABLE => ReasonCode::IMPLEMENTATION_SPECIFIC_ERROR,
                    reason => reason,
                });
                reply.send(ExchangeReply::End {
                    verdict,
                    data: None,
                })
            }
            // Dropping the reply refuses: the engine selects the reason code for each protocol version, and asks the
            // new plugins after a reload.
            reply => !reply.is_abandoned(),
        }
    }
}
