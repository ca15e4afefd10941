//! Publishers of 3.x wait while a queue is full: they cannot be told that a message is refused.
//!
//! Such a client waits, with its message, until there is room, and is disconnected without an acknowledgement after
//! [`Config::queue_deadline`](crate::Config::queue_deadline). Then nobody gets the message, for the publisher sends it again.

use std::rc::Rc;

use tokio::time::timeout_at;

use crate::clients::client::Client;
use crate::clients::handle::Handle;
use crate::connection::authorize::PendingRequest;
use crate::connection::publish;
use crate::routing::publication::{Publication, Unroutable};
use crate::routing::router;
use crate::sessions::lifecycle::confirm;
use crate::shard::Shard;

/// The session whose queue a publish of a 3.x client has to wait for, before anything is done with it.
///
/// A client whose own queue is full does not wait: the broker would not read the acknowledgements that make room in it.
pub(crate) fn must_wait_for(
    shard: &Shard,
    client: &Client,
    publication: &Publication<'_>,
) -> Option<Handle> {
    let durable = &shard.engine.durable;
    let may_wait = durable.has_full()
        && !client.login().version.has_properties()
        && !durable.is_full(client.handle);
    may_wait
        .then(|| router::full_queue(shard, publication))
        .flatten()
}

/// Has a publish wait until the session at `full` has room, and then accepts it; its client is not read from meanwhile.
pub(crate) fn hold_back(
    shard: &Rc<Shard>,
    client: &Rc<Client>,
    publication: &Publication<'_>,
    mut full: Handle,
) -> PendingRequest {
    let (message, packet_id) = (publication.message.clone(), publication.packet_id);
    let deadline = shard.now() + shard.config().queue_deadline;
    let (shard, client) = (Rc::clone(shard), Rc::clone(client));
    Box::pin(async move {
        let topic = message.topic_name();
        let publication = Publication::new(Some(&client), topic, &message, packet_id);
        loop {
            let room = shard.engine.durable.has_room(full);
            if timeout_at(deadline.into(), room).await.is_err() {
                publish::refuse(&shard, &client, &publication, Unroutable::QueueFull);
                return Ok(());
            }
            match must_wait_for(&shard, &client, &publication) {
                Some(next) => full = next,
                None => break,
            }
        }
        if let Some(pause) = publish::accept_logged(&shard, &client, publication) {
            pause.await?;
        }
        confirm(&shard, &client);
        Ok(())
    })
}
