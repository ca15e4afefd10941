//! Subscriptions, messages and rules of one client.

use mqttcore_codec::QoS;
use mqttcore_session::{InFlightMessage, Message, Subscription};

use crate::config::rule_list::GrantRule;
use crate::operations::asking::AskError;
use crate::service::BrokerHandle;

/// Some of the subscriptions or messages of a client.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ClientItems<T> {
    /// The items.
    pub items: Vec<T>,
    /// Whether more follow.
    pub has_more: bool,
}

/// A message that waits for a client.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct QueuedMessage {
    /// The message.
    pub message: Message,
    /// The QoS of the delivery.
    pub qos: QoS,
}

/// The queue of a client.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ClientQueue {
    /// Messages that are in memory, the oldest first.
    pub items: Vec<QueuedMessage>,
    /// Number of all queued messages.
    pub messages: usize,
    /// Number of messages that are on the disk only.
    pub on_disk: usize,
}

impl BrokerHandle {
    /// The number of the shard that has the session of a client, if there is one; `None` once the broker has stopped.
    pub fn shard_of(&self, client_id: &str) -> Option<usize> {
        Some(self.engine()?.shard_of(client_id))
    }

    /// The queue of a client with its messages from position `from` on; `None` if it has no session.
    ///
    /// # Errors
    ///
    /// [`AskError`]
    pub async fn client_queue(
        &self,
        client_id: &str,
        from: usize,
        limit: usize,
    ) -> Result<Option<ClientQueue>, AskError> {
        self.read_client(client_id, move |client, _| {
            let session = client.session.borrow();
            let waiting = session.queued_messages().skip(from).take(limit);
            ClientQueue {
                items: waiting
                    .map(|(message, qos)| QueuedMessage {
                        message: message.clone(),
                        qos,
                    })
                    .collect(),
                messages: session.queued(),
                on_disk: session.spilled(),
            }
        })
        .await
    }

    /// Rules of the grant of a client from position `from` on; `None` if it has no session.
    ///
    /// # Errors
    ///
    /// [`AskError`]
    pub async fn client_rules(
        &self,
        client_id: &str,
        from: usize,
        limit: usize,
    ) -> Result<Option<ClientItems<GrantRule>>, AskError> {
        self.read_client(client_id, move |client, _| {
            let (items, has_more) = client.access().grant.rules(from, limit);
            ClientItems { items, has_more }
        })
        .await
    }

    /// The subscriptions of a client after `after`, sorted by filter; `None` if it has no session.
    ///
    /// # Errors
    ///
    /// [`AskError`]
    pub async fn client_subscriptions(
        &self,
        client_id: &str,
        after: Option<String>,
        limit: usize,
    ) -> Result<Option<ClientItems<Subscription>>, AskError> {
        self.read_client(client_id, move |client, _| {
            let session = client.session.borrow();
            let held = session.subscriptions();
            let is_before = |held: &Subscription| {
                let after = after.as_deref();
                after.is_some_and(|after| held.filter.as_str() <= after)
            };
            let rest = &held[held.partition_point(is_before)..];
            ClientItems {
                items: rest.iter().take(limit).cloned().collect(),
                has_more: rest.len() > limit,
            }
        })
        .await
    }

    /// The first messages in flight to a client; `None` if it has no session.
    ///
    /// # Errors
    ///
    /// [`AskError`]
    pub async fn client_in_flight(
        &self,
        client_id: &str,
        limit: usize,
    ) -> Result<Option<ClientItems<InFlightMessage>>, AskError> {
        self.read_client(client_id, move |client, _| {
            let session = client.session.borrow();
            ClientItems {
                items: session.in_flight_messages().take(limit).collect(),
                has_more: session.in_flight() > limit,
            }
        })
        .await
    }
}
