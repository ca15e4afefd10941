//! Queue of wills that are due and wait for their turn (abuse F09).

use std::collections::{BTreeMap, HashMap};
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use mqttcore_session::Message;

use crate::clients::client::Client;
use crate::runtime::token_bucket::{Rate, TokenBucket};

/// A will of a lost client.
pub(crate) struct DueWill {
    /// Its session may have ended meanwhile.
    pub(crate) client: Rc<Client>,
    pub(crate) message: Message,
    /// The number of its session in the store, if the session has ended and only the will is left of it.
    pub(crate) record: Option<u64>,
}

impl DueWill {
    pub(crate) fn of(client: &Rc<Client>, message: Message) -> Self {
        Self {
            client: Rc::clone(client),
            message,
            record: None,
        }
    }
}

/// The wills of one shard that wait, oldest first.
#[derive(Default)]
pub(crate) struct DueWills {
    tokens: TokenBucket,
    last: u64,
    queue: BTreeMap<u64, DueWill>,
    by_client_id: HashMap<Arc<str>, u64>,
}

impl DueWills {
    /// Whether a will that has just come due may be published at once.
    pub(crate) fn is_next(&mut self, rate: Option<Rate>, now: Instant) -> bool {
        self.queue.is_empty() && self.tokens.take(rate, now)
    }

    /// Queues a will. Publish the one that waits for the same client identifier first.
    pub(crate) fn push(&mut self, will: DueWill) {
        self.last += 1;
        let id = Arc::clone(&will.client.id);
        let earlier = self.by_client_id.insert(id, self.last);
        debug_assert!(
            earlier.is_none(),
            "a connection publishes the will before it"
        );
        self.queue.insert(self.last, will);
    }

    /// Takes the oldest will if there is a token for it.
    pub(crate) fn pop(&mut self, rate: Option<Rate>, now: Instant) -> Option<DueWill> {
        let has_turn = !self.queue.is_empty() && self.tokens.take(rate, now);
        has_turn.then(|| self.pop_early())?
    }

    /// Takes the oldest will.
    pub(crate) fn pop_early(&mut self) -> Option<DueWill> {
        let (_, will) = self.queue.pop_first()?;
        self.by_client_id.remove(&will.client.id);
        Some(will)
    }

    /// Takes the will that waits for this client identifier.
    pub(crate) fn take(&mut self, client_id: &str) -> Option<DueWill> {
        let number = self.by_client_id.remove(client_id)?;
        self.queue.remove(&number)
    }

    /// The will of `client` that waits.
    pub(crate) fn of(&mut self, client: &Rc<Client>) -> Option<&mut DueWill> {
        let number = self.by_client_id.get(&client.id)?;
        let will = self.queue.get_mut(number)?;
        Rc::ptr_eq(&will.client, client).then_some(will)
    }
}

/// How many seconds' worth of wills may be published at once.
pub(crate) const BURST: Duration = Duration::from_secs(1);
