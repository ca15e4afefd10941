//! Explains the delivery of a message to one receiver, on the shard of the receiver.

use std::num::NonZeroU32;
use std::rc::Rc;
use std::sync::Arc;

use mqttcore_codec::QoS;
use mqttcore_session::{DeliveryDecision, DropReason, Message, QueueCause, Subscription};
use mqttcore_topics::SubscriptionFilter;

use super::verdict::Verdict;
use crate::clients::client::Client;
use crate::clients::handle::Handle;
use crate::clients::target::Target;
use crate::routing::delivery;
use crate::routing::drops::DropCause;
use crate::shard::Shard;

/// A receiver of a message, and the verdict for it.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ExplainedReceiver {
    /// The client; `None` if its shard did not answer, or its session has ended meanwhile.
    pub client_id: Option<Arc<str>>,
    /// The number of its session, by which lists are sorted; 0 if the client does not receive the message.
    pub session: u64,
    /// The shared group that it is chosen in.
    pub group: Option<SubscriptionFilter>,
    /// The granted QoS.
    pub qos: QoS,
    /// The RETAIN flag of the delivery.
    pub retain: bool,
    /// The Subscription Identifiers of the delivery.
    pub subscription_ids: Vec<NonZeroU32>,
    /// The verdict.
    pub verdict: Verdict,
    /// A sentence for people.
    pub detail: Option<String>,
}

/// The position after which the next page of receivers begins: session and shared group.
pub type ReceiverPosition = (u64, String);

/// A target of a message.
pub(super) struct ForeseenReceiver {
    pub(super) target: Target,
    /// Its queue is full, and the publisher gets a refusal.
    pub(super) is_left_out: bool,
}

/// The answer of a receiver's shard.
pub(super) struct Judged {
    pub(super) client_id: Option<Arc<str>>,
    pub(super) verdict: Verdict,
    pub(super) detail: Option<String>,
}

impl ExplainedReceiver {
    /// A receiver whose shard has not answered yet.
    pub(super) fn unknown(target: &Target) -> Self {
        let (session, _) = position(target);
        Self {
            client_id: None,
            session,
            group: target.choice.as_ref().map(|choice| choice.group().clone()),
            qos: target.qos,
            retain: target.retain,
            subscription_ids: target.subscription_ids.to_vec(),
            verdict: Verdict::Unknown,
            detail: None,
        }
    }

    /// A client that is not a receiver.
    pub(super) fn none(client_id: &str, verdict: Verdict, detail: Option<String>) -> Self {
        Self {
            client_id: Some(client_id.into()),
            session: 0,
            group: None,
            qos: QoS::AtMostOnce,
            retain: false,
            subscription_ids: Vec::new(),
            verdict,
            detail,
        }
    }

    pub(super) fn fill(&mut self, judged: Judged) {
        (self.client_id, self.verdict) = (judged.client_id, judged.verdict);
        self.detail = judged.detail;
    }
}

/// The verdict about `message` for a receiver on this shard.
pub(super) fn judge(shard: &Shard, message: &Message, receiver: &ForeseenReceiver) -> Judged {
    if receiver.is_left_out
        && let Some(client) = shard.client_at(receiver.target.handle)
    {
        let text = "the queue is full, and the publisher gets 0x97";
        return Judged {
            client_id: Some(Arc::clone(&client.id)),
            verdict: Verdict::RefusedQueueFull,
            detail: Some(text.into()),
        };
    }
    judge_target(shard, message, &receiver.target)
}

/// The verdict about `message` for a target on this shard that it is delivered to.
pub(super) fn judge_target(shard: &Shard, message: &Message, target: &Target) -> Judged {
    let Some(client) = shard.client_at(target.handle) else {
        return Judged {
            client_id: None,
            verdict: Verdict::DroppedSessionEnded,
            detail: None,
        };
    };
    let (verdict, detail) = match delivery::foresee(shard, &client, message, target) {
        Ok(decision) => of_decision(decision),
        Err(cause) => (of_cause(cause), denial(&client, message, cause)),
    };
    Judged {
        client_id: Some(Arc::clone(&client.id)),
        verdict,
        detail,
    }
}

fn of_decision(decision: DeliveryDecision) -> (Verdict, Option<String>) {
    let dropped = |evicted: usize| {
        (evicted > 0).then(|| format!("messages that are dropped to make room: {evicted}"))
    };
    match decision {
        DeliveryDecision::SendAtMostOnce | DeliveryDecision::SendInFlight => {
            (Verdict::Delivered, None)
        }
        DeliveryDecision::Queue { cause, evicted } => {
            let verdict = match cause {
                QueueCause::Offline => Verdict::WaitingOffline,
                QueueCause::SendQuota => Verdict::WaitingQuota,
                QueueCause::Earlier => Verdict::WaitingEarlier,
                QueueCause::Decision => Verdict::DependsOnPlugin,
            };
            (verdict, dropped(evicted))
        }
        DeliveryDecision::Drop { reason, evicted } => {
            (of_cause(DropCause::Session(reason)), dropped(evicted))
        }
    }
}

fn of_cause(cause: DropCause) -> Verdict {
    match cause {
        DropCause::Denied | DropCause::Session(DropReason::Revoked) => Verdict::DeniedReceive,
        DropCause::Ended => Verdict::DroppedSessionEnded,
        DropCause::Memory => Verdict::DroppedMemory,
        DropCause::Backlog | DropCause::Session(DropReason::BacklogFull) => Verdict::DroppedBacklog,
        DropCause::Session(DropReason::Offline) => Verdict::DroppedOffline,
        DropCause::Session(DropReason::Expired) => Verdict::DroppedExpired,
        DropCause::Session(DropReason::PacketTooLarge) => Verdict::DroppedTooLarge,
        DropCause::Session(DropReason::OutsideMountPoint) => Verdict::DeniedMountPoint,
        DropCause::Session(_) => Verdict::DroppedQueueFull,
    }
}

/// The rule that denies the delivery.
fn denial(client: &Client, message: &Message, cause: DropCause) -> Option<String> {
    let access = client.access();
    let rule = access.permissions.receive_denial(message.topic_name());
    rule.filter(|_| matches!(cause, DropCause::Denied))
        .map(|rule| format!("deny {rule}"))
}

/// Sort key of a receiver: its session, then the shared group that it was chosen in.
pub(super) fn position(target: &Target) -> ReceiverPosition {
    let group = target.choice.as_ref();
    let group = group.map_or_else(String::new, |choice| choice.group().as_str().to_owned());
    (target.handle.word(), group)
}

/// A client and its subscriptions that match a topic.
pub(super) struct AskedReceiver {
    pub(super) handle: Handle,
    pub(super) matching: Vec<Subscription>,
}

impl AskedReceiver {
    pub(super) fn new(client: &Rc<Client>, message: &Message) -> Self {
        let session = client.session.borrow();
        let matches = |held: &&Subscription| held.filter.filter().matches(message.topic_name());
        Self {
            handle: client.handle,
            matching: session
                .subscriptions()
                .iter()
                .filter(matches)
                .cloned()
                .collect(),
        }
    }

    pub(super) fn groups(&self) -> Vec<SubscriptionFilter> {
        let filters = self.matching.iter().map(|held| &held.filter);
        filters
            .filter(|filter| filter.is_shared())
            .cloned()
            .collect()
    }

    /// Why the client is not a receiver.
    pub(super) fn absence(&self) -> (Verdict, Option<String>) {
        let names = || {
            let filters = self.matching.iter().map(|held| held.filter.as_str());
            Some(filters.collect::<Vec<_>>().join(", "))
        };
        if self.matching.is_empty() {
            (Verdict::NoSubscription, None)
        } else if self.matching.iter().any(|held| held.filter.is_shared()) {
            (Verdict::SharedWentTo, names())
        } else {
            (Verdict::NoLocal, names())
        }
    }
}
