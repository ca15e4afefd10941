//! Publishes of a client, which are routed at once or wait for plugins: for permission, for the publish hooks, or for
//! the answer to a request on a control topic.
//!
//! Messages behind one that waits wait with it, so that the order of one publisher's messages stays. Nothing else is
//! read from the client meanwhile; other clients are not delayed.

use std::rc::Rc;
use std::sync::Arc;

use mqttcore_codec::{PacketId, ReasonCode};
use mqttcore_session::Message;
use tokio::sync::oneshot;

use crate::clients::client::Client;
use crate::config::grants::RuleAnswer;
use crate::config::hooks::{Action, Hooks, PublishBatch, PublishDecision, Reply, refusing};
use crate::connection::authorize::{
    AuthorizeArgs, AuthorizeResult, Denial, PendingRequest, UNANSWERED, ask, end_if_unanswered,
};
use crate::connection::control;
use crate::connection::disconnect_cause::DisconnectCause;
use crate::connection::publish::{
    accept, accept_batch, acknowledge, denial, deny, may_batch, may_publish, publish_rules,
};
use crate::routing::batch::{Incoming, MessageBatch};
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
    (batch, held): (&mut MessageBatch<'p>, &mut HeldPublishes),
    incoming: Incoming<'p>,
) -> Option<PendingRequest> {
    let publication = incoming.publication(client);
    let (permission, is_asked, is_due) = if batch.ends_with(publication.topic) {
        (RuleAnswer::Allowed, false, false)
    } else {
        let permission = may_publish(shard, client, publication.topic);
        let is_allowed = permission == RuleAnswer::Allowed;
        let is_asked = is_allowed && shard.has_publish_hook(publication.topic);
        let is_silent = permission == RuleAnswer::Silent;
        let is_due = is_silent || shard.has_control_hook(publication.topic);
        (permission, is_asked, is_due)
    };
    if is_asked || is_due || !held.is_empty() {
        drop(publication);
        // Earlier messages are answered first.
        accept_batch(shard, client, batch);
        held.push(incoming.message, incoming.packet_id, is_asked);
        return (is_due || held.is_full()).then(|| held.settle(shard, client));
    }
    if permission == RuleAnswer::Allowed && may_batch(shard, &publication) {
        drop(publication);
        batch.push(incoming);
        if batch.is_full(client) {
            accept_batch(shard, client, batch);
        }
        return None;
    }
    // Earlier messages are answered first.
    accept_batch(shard, client, batch);
    if permission == RuleAnswer::Denied {
        deny(shard, client, &publication, denial());
        return None;
    }
    accept(shard, client, publication)
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
        let asked = held.iter().filter(|held| held.is_asked);
        let asked: Vec<Message> = asked.map(|held| held.message.clone()).collect();
        let answer = HookAnswer::ask(shard, client, asked);
        let (shard, client) = (Rc::clone(shard), Rc::clone(client));
        Box::pin(async move {
            let mut decisions = answer.decisions(&shard, &client).await;
            for held in held {
                let decision = held.is_asked.then(|| next(&mut decisions));
                publish_held(&shard, &client, held, decision).await?;
                if shard.is_turn_over() {
                    tokio::task::yield_now().await;
                }
            }
            confirm(&shard, &client);
            Ok(())
        })
    }
}

type Decisions = std::vec::IntoIter<PublishDecision>;

/// What the publish hooks were asked, and where their answer arrives.
struct HookAnswer {
    hooks: Arc<dyn Hooks>,
    messages: Vec<Message>,
    answer: oneshot::Receiver<Vec<PublishDecision>>,
}

impl HookAnswer {
    fn ask(shard: &Shard, client: &Client, messages: Vec<Message>) -> Self {
        let (reply, answer) = Reply::new();
        let hooks = shard.hooks();
        if !messages.is_empty() {
            let batch = PublishBatch {
                login: client.login(),
                messages: messages.clone(),
                limits: Arc::clone(&shard.config().limits),
            };
            hooks.publish(batch, reply);
        }
        Self {
            hooks,
            messages,
            answer,
        }
    }

    /// The decision about each message. If a reload has replaced the hooks before they answered, the new ones are asked.
    async fn decisions(self, shard: &Shard, client: &Client) -> Decisions {
        let decisions = match self.answer.await {
            Ok(decisions) => decisions,
            Err(_) if Arc::ptr_eq(&self.hooks, &shard.hooks()) => Vec::new(),
            Err(_) => ask_again(shard, client, self.messages).await,
        };
        decisions.into_iter()
    }
}

async fn ask_again(shard: &Shard, client: &Client, messages: Vec<Message>) -> Vec<PublishDecision> {
    let is_asked = |message: &Message| shard.has_publish_hook(message.topic_name());
    let wanted: Vec<bool> = messages.iter().map(is_asked).collect();
    let asked = messages.into_iter().filter(is_asked).collect();
    let answer = HookAnswer::ask(shard, client, asked).answer;
    let mut decisions = answer.await.unwrap_or_default().into_iter();
    let decision = |is_asked| {
        if is_asked {
            next(&mut decisions)
        } else {
            PublishDecision::Publish
        }
    };
    wanted.into_iter().map(decision).collect()
}

/// The next decision; without one the message is refused.
fn next(decisions: &mut Decisions) -> PublishDecision {
    decisions.next().unwrap_or(PublishDecision::Fault)
}

/// Publishes or refuses one message; `decision` is that of the publish hooks if they were asked.
async fn publish_held(
    shard: &Rc<Shard>,
    client: &Rc<Client>,
    held: HeldPublish,
    mut decision: Option<PublishDecision>,
) -> Result<(), DisconnectCause> {
    let HeldPublish {
        mut message,
        packet_id,
        is_asked,
    } = held;
    let (mut is_permitted, mut is_decided) = (is_asked, is_asked);
    loop {
        if let Some(decision) = decision.take() {
            let Some(decided) = apply(shard, client, (&message, packet_id), decision)? else {
                return Ok(());
            };
            is_permitted &= decided.topic() == message.topic();
            message = decided;
        }
        if let Err(denial) = permit(shard, client, &message, is_permitted).await? {
            let publication = publication(client, &message, packet_id);
            deny(shard, client, &publication, denial);
            return Ok(());
        }
        if is_decided || !shard.has_publish_hook(message.topic_name()) {
            break;
        }
        (is_permitted, is_decided) = (true, true);
        let answer = HookAnswer::ask(shard, client, vec![message.clone()]);
        decision = Some(next(&mut answer.decisions(shard, client).await));
    }
    if shard.has_control_hook(message.topic_name()) {
        control::answer(shard, client, &message, packet_id).await;
        return Ok(());
    }
    let publication = publication(client, &message, packet_id);
    if let Some(pause) = accept(shard, client, publication) {
        pause.await?;
    }
    Ok(())
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
        PublishDecision::Replace(changed) => return Ok(Some(charged(shard, client, changed))),
        PublishDecision::Drop { reason } => {
            shard.metrics().dropped_hook.add(1);
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

/// The message with its bytes on the account of its publisher.
fn charged(shard: &Shard, client: &Client, mut message: Message) -> Message {
    if let Some(link) = client.link() {
        message.charge(shard.account_of(&link));
    }
    message
}
