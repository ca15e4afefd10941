//! Limits of the retained messages of one user or one address (abuse F01, ADR 0039).

use mqttcore_topics::TopicName;

use crate::clients::client::Client;
use crate::clients::shares::{Owner, Share};
use crate::config::address_limits::share_of;
use crate::routing::publication::Publication;
use crate::runtime::log::{Escaped, LogCategory};
use crate::shard::Shard;

/// The owner that a retained message of `client` counts for.
pub(super) fn owner_of(shard: &Shard, client: &Client) -> Option<Owner> {
    let (login, owners) = (client.login(), &shard.engine.owners);
    if client.was_here() {
        return owners.of(&login, &shard.config().address_limits);
    }
    // The store has no address of this client.
    login.username.as_deref().map(|name| owners.user(name))
}

/// Counts a message of `bytes` on `topic` for `owner`, if it may retain that. It may change a topic of its own, as long as
/// that does not make its share larger than it may be; a topic of others is a new one for it (abuse F01).
pub(super) fn try_count(shard: &Shard, owner: Owner, topic: TopicName<'_>, bytes: usize) -> bool {
    let (shares, most) = (&shard.engine.retained_shares, most(shard));
    shares.try_add(owner, bytes, None, most)
        || own_bytes(shard, owner, topic)
            .is_some_and(|own| shares.try_add(owner, bytes, Some(own), most))
}

/// Whether [`try_count`] would count it.
pub(super) fn has_room(shard: &Shard, owner: Owner, topic: TopicName<'_>, bytes: usize) -> bool {
    let (shares, most) = (&shard.engine.retained_shares, most(shard));
    shares.would_add(owner, bytes, None, most)
        || own_bytes(shard, owner, topic)
            .is_some_and(|own| shares.would_add(owner, bytes, Some(own), most))
}

fn most(shard: &Shard) -> Share {
    let config = shard.config();
    let limits = &config.user_limits;
    Share {
        entries: share_of(config.retained_messages, limits.retained_messages),
        bytes: share_of(config.retained_bytes, limits.retained_bytes),
    }
}

/// Bytes of the message that `owner` has retained on `topic`.
fn own_bytes(shard: &Shard, owner: Owner, topic: TopicName<'_>) -> Option<usize> {
    let old = shard.engine.retained.get(topic);
    let own = old.filter(|old| old.owner == Some(owner));
    own.map(|own| own.message.heap_bytes())
}

/// Counts and logs a retained message that is not stored because of its publisher's share.
pub(super) fn refuse(shard: &Shard, publication: &Publication<'_>) {
    let publisher = publication.publisher;
    let listener = publisher.and_then(|client| client.listener());
    let refusals = shard.metrics().refusals(listener);
    refusals.refused_user_retained.add(1);
    let Some(client) = publisher else {
        return;
    };
    shard.log.warn(LogCategory::RetainedShare, shard.now(), || {
        let (topic, who) = (Escaped(publication.topic.as_str()), client.named());
        let owner = if client.login().username.is_some() {
            "user"
        } else {
            "address"
        };
        let text =
            format!("retained message of {who} on {topic} not stored: its {owner} has too many");
        client.log_entry("retained_refused", text)
    });
}
