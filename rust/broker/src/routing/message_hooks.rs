//! Hooks that decide about messages: of a publisher, before they are routed, and of a subscriber, before they are sent.

use std::rc::Rc;
use std::sync::Arc;

use mqttcore_session::{HeldDecision, Message};

use crate::clients::client::Client;
use crate::config::hooks::{PublishBatch, PublishDecision, Reply};
use crate::routing::delivery::handle_message_events;
use crate::shard::Shard;
use crate::shard::guard::guarded;

/// The hooks that are asked.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum MessageHook {
    Publish,
    Deliver,
}

impl MessageHook {
    fn wants(self, shard: &Shard, message: &Message) -> bool {
        match self {
            Self::Publish => shard.has_publish_hook(message.topic_name()),
            Self::Deliver => shard.has_deliver_hook(message),
        }
    }
}

/// The decision about each message; one that no hook wants is published. If a reload has replaced the hooks before they
/// answered, the new ones are asked. Messages without a decision are refused.
pub(crate) async fn decisions(
    shard: &Shard,
    client: &Client,
    hook: MessageHook,
    messages: &[Message],
) -> Vec<PublishDecision> {
    let hooks = shard.hooks();
    match ask(shard, client, hook, messages).await {
        Some(decisions) => decisions,
        None if Arc::ptr_eq(&hooks, &shard.hooks()) => Vec::new(),
        None => ask(shard, client, hook, messages).await.unwrap_or_default(),
    }
}

/// `None`: there is no answer.
async fn ask(
    shard: &Shard,
    client: &Client,
    hook: MessageHook,
    messages: &[Message],
) -> Option<Vec<PublishDecision>> {
    let wanted: Vec<bool> = messages
        .iter()
        .map(|message| hook.wants(shard, message))
        .collect();
    let asked = messages.iter().zip(&wanted);
    let asked: Vec<Message> = asked
        .filter(|(_, is_wanted)| **is_wanted)
        .map(|(message, _)| message.clone())
        .collect();
    let mut decisions = Vec::new().into_iter();
    if !asked.is_empty() {
        let batch = PublishBatch {
            login: client.login(),
            messages: asked,
            limits: Arc::clone(&shard.config().limits),
        };
        let (reply, answer) = Reply::new();
        match hook {
            MessageHook::Publish => shard.hooks().publish(batch, reply),
            MessageHook::Deliver => shard.hooks().deliver(batch, reply),
        }
        decisions = answer.await.ok()?.into_iter();
    }
    let decision = |is_wanted| {
        if is_wanted {
            decisions.next().unwrap_or(PublishDecision::Fault)
        } else {
            PublishDecision::Publish
        }
    };
    Some(wanted.into_iter().map(decision).collect())
}

/// The message with its bytes on the account of its client.
pub(crate) fn charged(shard: &Shard, client: &Client, mut message: Message) -> Message {
    if let Some(link) = client.link() {
        message.charge(shard.account_of(&link));
    }
    message
}

/// Has the deliver hooks decide about the next messages of a session, 64 at a time. The messages are queued meanwhile.
pub(crate) fn decide_deliveries(shard: &Rc<Shard>, client: &Rc<Client>) {
    let handle = client.handle.word();
    if shard.deciding.borrow().contains_key(&handle) {
        return;
    }
    let (own, of) = (Rc::clone(shard), Rc::clone(client));
    let work = async move { decide_held(&own, &of).await };
    let of = Rc::clone(client);
    let after_panic = move |shard: &Rc<Shard>| {
        settle(shard, &of, Vec::new());
        shard.deciding.borrow_mut().remove(&handle);
    };
    let place = "the decisions about deliveries";
    let task = guarded(Rc::clone(shard), place, work, after_panic);
    let task = tokio::task::spawn_local(task).abort_handle();
    shard.deciding.borrow_mut().insert(handle, task);
}

/// The session has ended: its hooks are not asked any more.
pub(crate) fn stop_deciding(shard: &Shard, client: &Client) {
    let task = shard.deciding.borrow_mut().remove(&client.handle.word());
    if let Some(task) = task {
        task.abort();
    }
}

async fn decide_held(shard: &Rc<Shard>, client: &Rc<Client>) {
    loop {
        // The semaphore is never closed.
        let _turn = shard.engine.deciding.acquire().await;
        let messages = client.session.borrow_mut().ask_undecided();
        if messages.is_empty() {
            shard.deciding.borrow_mut().remove(&client.handle.word());
            return;
        }
        let decisions = decisions(shard, client, MessageHook::Deliver, &messages).await;
        shard.refresh_now();
        settle(shard, client, decisions);
    }
}

/// Applies the decisions about the held messages of a session, and sends what can be sent.
fn settle(shard: &Rc<Shard>, client: &Rc<Client>, decisions: Vec<PublishDecision>) {
    let decision = |decision| match decision {
        PublishDecision::Publish => HeldDecision::Send,
        PublishDecision::Replace(changed, _) => {
            HeldDecision::Replace(charged(shard, client, changed))
        }
        // The hook gives no other answers, so it failed.
        _ => HeldDecision::Drop,
    };
    let decisions = decisions.into_iter().map(decision).collect();
    let now = shard.now();
    client.session.borrow_mut().decide_undecided(now, decisions);
    handle_message_events(shard, client);
    client.flush_session(shard);
    // If nothing is sent, its connection still has to read queued messages, or to replay retained ones.
    if let Some(link) = client.link() {
        link.wake();
    }
}
