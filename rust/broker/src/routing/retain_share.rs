//! What one user, or one address, may have retained (abuse F01, ADR 0039).

use mqttcore_topics::TopicName;

use crate::clients::client::Client;
use crate::clients::shares::{Owner, Share};
use crate::config::address_limits::share_of;
use crate::routing::publication::Publication;
use crate::runtime::log::{Escaped, LogCategory};
use crate::shard::Shard;

/// Whom a message of `client` counts for.
pub(super) fn owner_of(shard: &Shard, client: &Client) -> Option<Owner> {
    let (login, owners) = (client.login(), &shard.engine.owners);
    if client.was_here() {
        return owners.of(&login, &shard.config().address_limits);
    }
    // The store does not know its address.
    login.username.as_deref().map(|name| owners.user(name))
}

/// Whether `owner` may not retain a message of `bytes` on `topic`. A topic that is there may change, as long as that does
/// not make the share larger than it may be (abuse F01).
pub(super) fn is_exceeded(shard: &Shard, owner: Owner, topic: TopicName<'_>, bytes: usize) -> bool {
    let (config, shares) = (shard.config(), &shard.engine.retained_shares);
    let limits = &config.user_limits;
    let most = Share {
        entries: share_of(config.retained_messages, limits.retained_messages),
        bytes: share_of(config.retained_bytes, limits.retained_bytes),
    };
    if shares.has_room(owner, bytes, most) {
        return false;
    }
    let old = shard.engine.retained.get(topic);
    old.is_none_or(|old| {
        let before = old.message.heap_bytes();
        let own = if old.owner == Some(owner) { before } else { 0 };
        let others = shares.of(owner).bytes.saturating_sub(own);
        bytes > before && others + bytes > most.bytes
    })
}

/// Counts and logs a retained message that is not stored because of its publisher's share.
pub(super) fn refuse(shard: &Shard, publication: &Publication<'_>) {
    shard.metrics().refused_user_retained.add(1);
    let Some(client) = publication.publisher else {
        return;
    };
    shard.log.warn(LogCategory::RetainedShare, shard.now(), || {
        let (topic, id) = (Escaped(publication.topic.as_str()), Escaped(&client.id));
        let login = client.login();
        let owner = if login.username.is_some() {
            "user"
        } else {
            "address"
        };
        format!(
            "retained message of client {id} at {} on {topic} not stored: its {owner} has too many",
            login.peer
        )
    });
}
