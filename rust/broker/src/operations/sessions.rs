//! Counts and ends the sessions of offline clients that match a filter.

use std::rc::Rc;
use std::sync::Arc;

use crate::clients::client::Client;
use crate::operations::asking::AskError;
use crate::operations::client_filter::ClientFilter;
use crate::operations::steering::{end_offline, when_safe};
use crate::service::{Answer, BrokerHandle};
use crate::shard::Shard;

/// Number of slots that a shard examines for one question.
const COUNTED_A_TURN: usize = 256;
/// Number of slots whose sessions a shard ends for one change.
const ENDED_A_TURN: usize = 64;

/// Sessions without a connection.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub struct CountedSessions {
    /// Number of sessions.
    pub count: usize,
    /// Some of their client identifiers.
    pub sample: Vec<Arc<str>>,
}

impl BrokerHandle {
    /// Counts the sessions of offline clients that `filter` covers, and returns some of their client identifiers.
    ///
    /// # Errors
    ///
    /// [`AskError`]: a shard did not answer, or its sessions are not loaded yet.
    pub async fn count_sessions(
        &self,
        filter: &ClientFilter,
        sample: usize,
    ) -> Result<CountedSessions, AskError> {
        let filter = Arc::new(filter.clone());
        let mut counted = CountedSessions::default();
        for shard in 0..self.shards() {
            let mut from = 0;
            loop {
                let filter = Arc::clone(&filter);
                let ask = move |shard: &Rc<Shard>| {
                    let (found, next) = covered(shard, &filter, from, COUNTED_A_TURN);
                    let ids = found.iter().map(|client| Arc::clone(&client.id));
                    (ids.collect::<Vec<_>>(), next, shard.is_loaded())
                };
                let (ids, next, is_loaded) = self.read(shard, ask).await?;
                counted.count += ids.len();
                let room = sample - counted.sample.len();
                counted.sample.extend(ids.into_iter().take(room));
                if next == 0 {
                    if !is_loaded {
                        return Err(AskError::Loading);
                    }
                    break;
                }
                from = next;
            }
        }
        Ok(counted)
    }

    /// Ends the sessions of offline clients that `filter` covers; returns how many. A client that connects meanwhile keeps
    /// its session. Returns when the changes are safe.
    ///
    /// # Errors
    ///
    /// [`AskError`]; some sessions may have been ended then.
    pub async fn end_sessions(&self, filter: &ClientFilter) -> Result<usize, AskError> {
        let filter = Arc::new(filter.clone());
        let mut ended = 0;
        for shard in 0..self.shards() {
            let mut from = 0;
            loop {
                let filter = Arc::clone(&filter);
                let end = move |shard: &Rc<Shard>, answer: Answer<(usize, usize)>| {
                    let (found, next) = covered(shard, &filter, from, ENDED_A_TURN);
                    for client in &found {
                        end_offline(shard, client);
                    }
                    when_safe(shard, answer, (found.len(), next));
                };
                let (count, next) = self.change(shard, end).await?;
                ended += count;
                if next == 0 {
                    break;
                }
                from = next;
            }
        }
        Ok(ended)
    }
}

/// The offline clients of `count` slots from `from` on that the filter covers, and the next slot, 0 after the last one.
fn covered(
    shard: &Shard,
    filter: &ClientFilter,
    from: usize,
    count: usize,
) -> (Vec<Rc<Client>>, usize) {
    let (mut clients, next) = shard.registry.borrow().part(from, count);
    let now = shard.now();
    clients.retain(|client| !client.is_online() && filter.covers(client, now));
    (clients, next)
}
