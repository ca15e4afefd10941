//! The `subscribe` hook: plugins decide about the permitted filters of a SUBSCRIBE, all of them in one question.

use std::rc::Rc;
use std::sync::Arc;

use mqttcore_codec::ReasonCode;
use mqttcore_session::{SubscribeEntry, SubscribeRequest};

use crate::clients::client::Client;
use crate::config::hooks::{Reply, refusing};
use crate::config::packet_hooks::{SubscribeBatch, SubscribeDecision};
use crate::connection::authorize::Denial;
use crate::shard::Shard;

/// Whether plugins decide about a filter of `request`.
pub(super) fn are_asked(shard: &Shard, request: &SubscribeRequest) -> bool {
    shard.interests().subscribe && request.entries.iter().any(is_permitted)
}

fn is_permitted(entry: &SubscribeEntry) -> bool {
    entry.refused.is_none()
}

/// Asks the hooks about the permitted filters of `request` and applies their changes; returns the refused filters by their
/// index. A filter about which they do not answer is refused.
pub(super) async fn ask(
    shard: &Rc<Shard>,
    client: &Rc<Client>,
    request: &mut SubscribeRequest,
) -> Vec<(usize, Denial)> {
    if !are_asked(shard, request) {
        return Vec::new();
    }
    let permitted = request.entries.iter().filter(|entry| is_permitted(entry));
    let Some(decisions) = decisions(shard, client, permitted.cloned().collect()).await else {
        return Vec::new();
    };
    let mut decisions = decisions.into_iter();
    let mut refused = Vec::new();
    for (index, entry) in request.entries.iter_mut().enumerate() {
        if is_permitted(entry)
            && let Err(denial) = apply(entry, decisions.next())
        {
            refused.push((index, denial));
        }
    }
    refused
}

/// The decisions of the hooks; `None` if no plugin wants to be asked any more. If a reload replaces the plugins before they
/// answer, the new ones are asked, once.
async fn decisions(
    shard: &Rc<Shard>,
    client: &Rc<Client>,
    entries: Vec<SubscribeEntry>,
) -> Option<Vec<SubscribeDecision>> {
    for _ in 0..2 {
        if !shard.interests().subscribe {
            return None;
        }
        let hooks = shard.hooks();
        let (reply, answer) = Reply::new();
        let batch = SubscribeBatch {
            login: client.login(),
            entries: entries.clone(),
        };
        hooks.subscribe(batch, reply);
        if let Ok(decisions) = answer.await {
            return Some(decisions);
        }
        if Arc::ptr_eq(&hooks, &shard.hooks()) {
            break;
        }
    }
    Some(Vec::new())
}

fn apply(entry: &mut SubscribeEntry, decision: Option<SubscribeDecision>) -> Result<(), Denial> {
    match decision {
        Some(SubscribeDecision::Subscribe {
            max_qos,
            retain_handling,
        }) => {
            entry.options.qos = entry.options.qos.min(max_qos);
            entry.retain_handling = retain_handling;
            Ok(())
        }
        Some(SubscribeDecision::Deny { reason, text }) => Err(Denial {
            reason: refusing(reason),
            text: text.map(Into::into),
        }),
        None => Err(Denial::new(
            ReasonCode::IMPLEMENTATION_SPECIFIC_ERROR,
            "no plugin answered",
        )),
    }
}
