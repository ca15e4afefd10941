//! Backpressure for 3.x publishers while a queue is full, since MQTT 3.x has no failure code for them.
//!
//! Such a client waits with its message until the queue has room. After
//! [`Config::queue_deadline`](crate::Config::queue_deadline) it is disconnected without an acknowledgement; the
//! message is not routed, because the publisher sends it again.

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

/// The full queue's session for which a message of a 3.x client must wait, if there is one.
///
/// A client whose own queue is full does not wait: the broker must read its acknowledgements, which free the queue.
pub(crate) fn must_wait_for(
    shard: &Shard,
    client: &Client,
    publication: &Publication<'_>,
) -> Option<Handle> {
    let durable = &shard.engine.durable;
    let may_batch = durable.has_full()
        && !client.login().version.has_properties()
        && !durable.is_full(client.handle);
    may_batch
        .then(|| router::full_queue(shard, publication))
        .flatten()
}

/// Waits until the session `full` has room and then accepts the message; its client is not read meanwhile.
pub(crate) fn accept_when_room(
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
