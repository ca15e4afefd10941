//! Publishes of a client that are routed at once or wait for plugins: for permission, for publish hooks, or for the
//! answer to a request on a control topic.
//!
//! Later messages wait behind a waiting one, so that the messages of a publisher stay in order. The client is not
//! read meanwhile; other clients are not delayed.

use std::rc::Rc;

use mqttcore_codec::{PacketId, ReasonCode};
use mqttcore_session::{Message, PublishTopic};
use mqttcore_topics::TopicName;
use smallvec::SmallVec;

use crate::clients::client::Client;
use crate::config::hooks::{Action, PublishDecision, refusing};
use crate::config::permissions::RuleAnswer;
use crate::connection::authorize::{
    AuthorizeArgs, AuthorizeResult, Denial, PendingRequest, UNANSWERED, ask, end_if_unanswered,
};
use crate::connection::control;
use crate::connection::disconnect_cause::DisconnectCause;
use crate::connection::publish::{
    accept, accept_batch, accept_publications, acknowledge, denial, deny, may_batch, may_publish,
    publish_rules,
};
use crate::routing::batch::{Incoming, MessageBatch};
use crate::routing::journal::report_stored;
use crate::routing::message_hooks::{self, MessageHook, charged};
use crate::routing::publication::Publication;
use crate::sessions::lifecycle::confirm;
use crate::shard::Shard;

/// Maximum number of messages that the plugins get in one batch.
const HELD_MAX: usize = 64;

/// Publishes a message if its client may, at once or with others in `batch`. If plugins decide about it, or about one
/// before it, it waits in `held`. Returns a [`PendingRequest`] if the client has to wait before its next packet.
pub(crate) fn publish<'p>(
    shard: &Rc<Shard>,
    client: &Rc<Client>,
    (batch, held, rules): (
        &mut MessageBatch<'p>,
        &mut HeldPublishes,
        &mut TopicRules<'p>,
    ),
    incoming: Incoming<'p>,
) -> Option<PendingRequest> {
    let rule = rules.of(shard, client, &incoming.topic);
    let publication = incoming.publication(client);
    if rule.is_asked || rule.is_due || !held.is_empty() {
        drop(publication);
        // Earlier messages are answered first.
        accept_batch(shard, client, batch);
        held.push(incoming.message, incoming.packet_id, rule.is_asked);
        return (rule.is_due || held.is_full()).then(|| held.settle(shard, client));
    }
    if rule.permission == RuleAnswer::Allowed && may_batch(shard, &publication) {
        drop(publication);
        batch.push(incoming);
        if batch.is_full(client) {
            accept_batch(shard, client, batch);
        }
        return None;
    }
    // Earlier messages are answered first.
    accept_batch(shard, client, batch);
    if rule.permission == RuleAnswer::Denied {
        deny(shard, client, &publication, denial());
        return None;
    }
    accept(shard, client, publication)
}

/// Rules of the topic of the last message of a read: most clients send many messages to the same topic. The
/// grant of the client and the plugins do not change within one read.
#[derive(Default)]
pub(crate) struct TopicRules<'p>(Option<(TopicName<'p>, TopicRule)>);

/// Rules of a topic.
#[derive(Clone, Copy)]
struct TopicRule {
    permission: RuleAnswer,
    /// The client may publish to it, and publish hooks decide about it.
    is_asked: bool,
    /// Plugins are asked about its messages one by one.
    is_due: bool,
}

impl<'p> TopicRules<'p> {
    fn of(&mut self, shard: &Shard, client: &Client, topic: &PublishTopic<'p>) -> TopicRule {
        let name = topic.as_name();
        if let Some((last, rule)) = self.0
            && last == name
        {
            return rule;
        }
        let permission = may_publish(shard, client, name);
        let rule = TopicRule {
            permission,
            is_asked: permission == RuleAnswer::Allowed && shard.has_publish_hook(name),
            is_due: permission == RuleAnswer::Silent || shard.has_control_hook(name),
        };
        self.0 = match topic {
            PublishTopic::Packet(name) => Some((*name, rule)),
            PublishTopic::Owned(_) => None,
        };
        rule
    }
}

/// Messages of one read that wait, in their order.
#[derive(Default)]
pub(crate) struct HeldPublishes(Vec<HeldPublish>);

struct HeldPublish {
    message: Message,
    packet_id: Option<PacketId>,
    /// Its client may publish it, and publish hooks decide about it.
    is_asked: bool,
}

impl HeldPublishes {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn is_full(&self) -> bool {
        self.0.len() >= HELD_MAX
    }

    /// Adds a message behind the others. `is_asked`: its client may publish it, and publish hooks decide about it.
    pub(crate) fn push(&mut self, message: Message, packet_id: Option<PacketId>, is_asked: bool) {
        self.0.push(HeldPublish {
            message,
            packet_id,
            is_asked,
        });
    }

    /// Asks the publish hooks about all messages at once, then publishes or refuses them in their order.
    pub(crate) fn settle(&mut self, shard: &Rc<Shard>, client: &Rc<Client>) -> PendingRequest {
        let held = std::mem::take(&mut self.0);
        let (shard, client) = (Rc::clone(shard), Rc::clone(client));
        Box::pin(async move {
            let mut decisions = decisions(&shard, &client, &asked(&held)).await;
            let mut batch = DecidedBatch::default();
            for held in held {
                let decision = held.is_asked.then(|| next(&mut decisions));
                publish_held(&shard, &client, &mut batch, (held, decision)).await?;
                if shard.is_turn_over() {
                    batch.route(&shard, &client);
                    tokio::task::yield_now().await;
                }
            }
            batch.route(&shard, &client);
            confirm(&shard, &client);
            Ok(())
        })
    }
}

/// The messages that publish hooks are asked about.
fn asked(held: &[HeldPublish]) -> Vec<Message> {
    let asked = held.iter().filter(|held| held.is_asked);
    asked.map(|held| held.message.clone()).collect()
}

type Decisions = std::vec::IntoIter<PublishDecision>;

/// The decision of the publish hooks about each message.
async fn decisions(shard: &Shard, client: &Client, messages: &[Message]) -> Decisions {
    let decided = message_hooks::decisions(shard, client, MessageHook::Publish, messages);
    decided.await.into_iter()
}

/// The next decision; without one the message is refused.
fn next(decisions: &mut Decisions) -> PublishDecision {
    decisions.next().unwrap_or(PublishDecision::Fault)
}

/// Messages that are published as they are, in their order, and may be routed together.
#[derive(Default)]
struct DecidedBatch(SmallVec<[(Message, Option<PacketId>); 4]>);

impl DecidedBatch {
    /// Adds a message, or returns what has to be decided about it.
    fn push(
        &mut self,
        shard: &Rc<Shard>,
        client: &Rc<Client>,
        (held, decision): (HeldPublish, Option<PublishDecision>),
    ) -> Result<(), (HeldPublish, Option<PublishDecision>)> {
        let is_published = match &decision {
            Some(PublishDecision::Publish) => true,
            None => !shard.has_publish_hook(held.message.topic_name()),
            Some(_) => false,
        };
        // The grant may have changed meanwhile.
        let is_permitted = || {
            !shard.has_control_hook(held.message.topic_name())
                && may_publish(shard, client, held.message.topic_name()) == RuleAnswer::Allowed
                && may_batch(shard, &publication(client, &held.message, held.packet_id))
        };
        if !is_published || !is_permitted() {
            return Err((held, decision));
        }
        self.0.push((held.message, held.packet_id));
        if self.0.len() >= usize::from(client.batch_limit.get()) {
            self.route(shard, client);
        }
        Ok(())
    }

    /// Routes and acknowledges its messages.
    fn route(&mut self, shard: &Rc<Shard>, client: &Rc<Client>) {
        if self.0.is_empty() {
            return;
        }
        let messages = self.0.iter();
        let publications =
            messages.map(|(message, packet_id)| publication(client, message, *packet_id));
        accept_publications(shard, client, &mut publications.collect());
        self.0.clear();
    }
}

/// Publishes or refuses one message, with those of `batch`; `decision` is that of the publish hooks if they were asked.
async fn publish_held(
    shard: &Rc<Shard>,
    client: &Rc<Client>,
    batch: &mut DecidedBatch,
    decided: (HeldPublish, Option<PublishDecision>),
) -> Result<(), DisconnectCause> {
    let Err((held, decision)) = batch.push(shard, client, decided) else {
        return Ok(());
    };
    // Earlier messages are answered first.
    batch.route(shard, client);
    let packet_id = held.packet_id;
    let number = match &decision {
        Some(PublishDecision::Replace(_, number)) => *number,
        _ => None,
    };
    let Some(message) = decide(shard, client, held, decision).await? else {
        return Ok(());
    };
    if shard.has_control_hook(message.topic_name()) {
        control::answer(shard, client, &message, packet_id).await;
        return Ok(());
    }
    let publication = publication(client, &message, packet_id);
    if let Some(pause) = accept(shard, client, publication) {
        pause.await?;
    }
    if let Some(number) = number.filter(|_| packet_id.is_some()) {
        report_stored(shard, client, number);
    }
    Ok(())
}

/// Asks the plugins all that they have not been asked yet. Returns the message that is to be published; `None` if it is
/// acknowledged or refused already.
///
/// # Errors
///
/// The client has to be disconnected.
async fn decide(
    shard: &Rc<Shard>,
    client: &Rc<Client>,
    held: HeldPublish,
    mut decision: Option<PublishDecision>,
) -> Result<Option<Message>, DisconnectCause> {
    let HeldPublish {
        mut message,
        packet_id,
        is_asked,
    } = held;
    let (mut is_permitted, mut is_decided) = (is_asked, is_asked);
    loop {
        if let Some(decision) = decision.take() {
            let Some(decided) = apply(shard, client, (&message, packet_id), decision)? else {
                return Ok(None);
            };
            is_permitted &= decided.topic() == message.topic();
            message = decided;
        }
        if let Err(denial) = permit(shard, client, &message, is_permitted).await? {
            let publication = publication(client, &message, packet_id);
            deny(shard, client, &publication, denial);
            return Ok(None);
        }
        if is_decided || !shard.has_publish_hook(message.topic_name()) {
            return Ok(Some(message));
        }
        (is_permitted, is_decided) = (true, true);
        let asked = std::slice::from_ref(&message);
        decision = Some(next(&mut decisions(shard, client, asked).await));
    }
}

fn publication<'a>(
    client: &'a Rc<Client>,
    message: &'a Message,
    packet_id: Option<PacketId>,
) -> Publication<'a> {
    Publication::new(Some(client), message.topic_name(), message, packet_id)
}

/// Whether the client may publish the message; a plugin that has permitted it before is not asked again.
async fn permit(
    shard: &Rc<Shard>,
    client: &Rc<Client>,
    message: &Message,
    is_permitted: bool,
) -> AuthorizeResult {
    let topic = message.topic_name();
    match may_publish(shard, client, topic) {
        RuleAnswer::Allowed => return Ok(Ok(())),
        RuleAnswer::Silent if is_permitted => return Ok(Ok(())),
        RuleAnswer::Denied => return Ok(Err(denial())),
        RuleAnswer::Silent => {}
    }
    let question = AuthorizeArgs {
        action: Action::Publish,
        topic: topic.into(),
        qos: message.qos(),
        retain: message.retain(),
        share: None,
    };
    let answer = ask(shard, client, question).await?;
    // The grant may have changed meanwhile.
    let rules = publish_rules(shard, client, topic);
    Ok(match answer {
        Ok(()) if rules == RuleAnswer::Denied => Err(denial()),
        answer => answer,
    })
}

/// The message that is to be published; `None` if it is acknowledged or refused already.
///
/// # Errors
///
/// The client has to be disconnected.
fn apply(
    shard: &Rc<Shard>,
    client: &Rc<Client>,
    (message, packet_id): (&Message, Option<PacketId>),
    decision: PublishDecision,
) -> Result<Option<Message>, DisconnectCause> {
    let refusal = match decision {
        PublishDecision::Publish => return Ok(Some(message.clone())),
        PublishDecision::Replace(changed, _) => return Ok(Some(charged(shard, client, changed))),
        PublishDecision::Drop { reason } => {
            shard.metrics().dropped_hook.count(message.qos());
            acknowledge(shard, client, (message, packet_id), reason);
            return Ok(None);
        }
        PublishDecision::Disconnect { reason, text } => {
            return Err(DisconnectCause::Refused {
                reason: refusing(reason),
                text: text.unwrap_or_default().into(),
            });
        }
        PublishDecision::Fault => match end_if_unanswered(client, message.qos()) {
            Some(end) => return Err(end),
            None => Denial::new(ReasonCode::IMPLEMENTATION_SPECIFIC_ERROR, UNANSWERED),
        },
        PublishDecision::Deny { reason, text } => Denial {
            reason: refusing(reason),
            text: text.map(Into::into),
        },
    };
    let publication = publication(client, message, packet_id);
    deny(shard, client, &publication, refusal);
    Ok(None)
}
