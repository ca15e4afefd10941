//! Lists of subscriptions of all clients, and of the receivers of a topic.
//!
//! The lists read the directory on the caller's thread; shards only look up the client identifiers.

use std::collections::{BTreeMap, HashMap};
use std::rc::Rc;
use std::sync::Arc;

use mqttcore_codec::QoS;
use mqttcore_topics::{Match, Options, Search, SubscriptionFilter, TopicName, Visitor};

use crate::clients::handle::Handle;
use crate::operations::asking::{AskError, MissingPart};
use crate::service::{BrokerHandle, BrokerStopped};
use crate::shard::Shard;

/// Number of subscriptions that one step reads, and of clients that one question names.
const LISTED_A_STEP: usize = 256;

/// A subscription of a client.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ListedSubscription {
    /// The client; `None` if its shard did not answer, or its session has ended meanwhile.
    pub client_id: Option<Arc<str>>,
    /// The session's number, which lists are sorted by.
    pub session: u64,
    /// The topic filter.
    pub filter: SubscriptionFilter,
    /// The granted options.
    pub options: Options,
}

/// A client that would receive a message on a topic.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Receiver {
    /// The client; `None` as in [`ListedSubscription`].
    pub client_id: Option<Arc<str>>,
    /// The highest QoS of its matching subscriptions.
    pub qos: QoS,
    /// The shared group that it is a member of; `None`: it gets every message.
    pub group: Option<SubscriptionFilter>,
}

/// A page of such a list.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Page<T> {
    /// The items.
    pub items: Vec<T>,
    /// Whether more follow.
    pub has_more: bool,
    /// Shards that did not look up their clients.
    pub missing: Vec<MissingPart>,
}

/// The position after which the next page begins: session and filter.
pub type ListPosition = (u64, String);

impl BrokerHandle {
    /// Lists subscriptions in a fixed order: all, or those with `filter`.
    ///
    /// # Errors
    ///
    /// [`BrokerStopped`]
    pub async fn list_subscriptions(
        &self,
        filter: Option<SubscriptionFilter>,
        after: Option<ListPosition>,
        limit: usize,
    ) -> Result<Page<ListedSubscription>, BrokerStopped> {
        let mut page = BTreeMap::new();
        let mut listing = None;
        loop {
            let engine = self.engine().ok_or(BrokerStopped)?;
            let mut visit = |handle: u64, held: &SubscriptionFilter, options: Options| {
                let position = (handle, held.as_str().to_owned());
                let is_wanted = filter.as_ref().is_none_or(|filter| filter == held)
                    && Handle::of_word(handle).row_stream().is_none()
                    && after.as_ref().is_none_or(|after| position > *after);
                if is_wanted {
                    page.insert(position, (held.clone(), options));
                    if page.len() > limit + 1 {
                        page.pop_last();
                    }
                }
            };
            listing = engine.directory.list(listing, LISTED_A_STEP, &mut visit);
            drop(engine);
            if listing.is_none() {
                break;
            }
            tokio::task::yield_now().await;
        }
        self.named(page, limit).await
    }

    /// Adds the client identifiers to their subscriptions.
    async fn named(
        &self,
        page: BTreeMap<ListPosition, (SubscriptionFilter, Options)>,
        limit: usize,
    ) -> Result<Page<ListedSubscription>, BrokerStopped> {
        let has_more = page.len() > limit;
        let handles = page.keys().map(|(handle, _)| *handle).collect();
        let (names, missing) = self.names(handles).await?;
        let listed = |((session, _), (filter, options))| ListedSubscription {
            client_id: names.get(&session).cloned(),
            session,
            filter,
            options,
        };
        let items = page.into_iter().take(limit).map(listed).collect();
        Ok(Page {
            items,
            has_more,
            missing,
        })
    }

    /// Lists the clients that would receive a message on `topic`, at most `limit`. Nothing is sent, and no shared group
    /// moves on to its next member. Returns `None` if the search takes more steps than that of a message may.
    ///
    /// # Errors
    ///
    /// [`BrokerStopped`]
    pub async fn receivers(
        &self,
        topic: TopicName<'_>,
        limit: usize,
    ) -> Result<Option<Page<Receiver>>, BrokerStopped> {
        let mut found = Receivers {
            limit,
            ..Receivers::default()
        };
        let engine = self.engine().ok_or(BrokerStopped)?;
        engine
            .directory
            .snapshot()
            .match_one(topic, None, 0, &mut found);
        drop(engine);
        if found.is_given_up {
            return Ok(None);
        }
        let handles = found.found.iter().map(|(handle, ..)| *handle).collect();
        let (names, missing) = self.names(handles).await?;
        let has_more = found.found.len() > limit;
        let receiver = |(handle, qos, group)| Receiver {
            client_id: names.get(&handle).cloned(),
            qos,
            group,
        };
        let items = found.found.into_iter().take(limit).map(receiver);
        Ok(Some(Page {
            items: items.collect(),
            has_more,
            missing,
        }))
    }

    /// Looks up the client identifiers of sessions.
    pub(super) async fn names(
        &self,
        handles: Vec<u64>,
    ) -> Result<(HashMap<u64, Arc<str>>, Vec<MissingPart>), BrokerStopped> {
        let (mut names, mut missing) = (HashMap::new(), Vec::new());
        for shard in 0..self.shards() {
            let is_own = |handle: &&u64| Handle::of_word(**handle).shard() == shard;
            let mut own: Vec<u64> = handles.iter().filter(is_own).copied().collect();
            own.dedup();
            for part in own.chunks(LISTED_A_STEP) {
                let part = part.to_vec();
                match self.read(shard, move |shard| ids(shard, &part)).await {
                    Ok(found) => names.extend(found),
                    Err(AskError::Stopped(stopped)) => return Err(stopped),
                    Err(why) => {
                        missing.push(MissingPart { shard, why });
                        break;
                    }
                }
            }
        }
        Ok((names, missing))
    }
}

fn ids(shard: &Rc<Shard>, handles: &[u64]) -> Vec<(u64, Arc<str>)> {
    let registry = shard.registry.borrow();
    let named = |handle: &u64| {
        let client = registry.at(Handle::of_word(*handle))?;
        Some((*handle, Arc::clone(&client.id)))
    };
    handles.iter().filter_map(named).collect()
}

/// Collects receivers, at most one more than the limit.
#[derive(Default)]
struct Receivers {
    found: Vec<(u64, QoS, Option<SubscriptionFilter>)>,
    limit: usize,
    group: Option<SubscriptionFilter>,
    is_given_up: bool,
}

impl Receivers {
    fn add(&mut self, found: &Match<'_>, group: Option<SubscriptionFilter>) {
        let is_stream = Handle::of_word(found.handle).row_stream().is_some();
        let is_member = group.is_some();
        let new = (found.handle, found.qos, group);
        if !is_stream && self.found.len() <= self.limit && !(is_member && self.found.contains(&new))
        {
            self.found.push(new);
        }
    }
}

impl Visitor for Receivers {
    fn searched(&mut self, search: Search) {
        self.is_given_up |= !search.is_complete;
    }

    fn advances_cursor(&self) -> bool {
        false
    }

    fn plain(&mut self, found: Match<'_>) {
        self.add(&found, None);
    }

    fn group(&mut self, group: &SubscriptionFilter) {
        self.group = Some(group.clone());
    }

    /// Rejects the message, so that it is offered to all members.
    fn shared(&mut self, candidate: Match<'_>) -> bool {
        self.add(&candidate, self.group.clone());
        false
    }

    fn standby(&mut self, candidate: Match<'_>) -> u8 {
        self.add(&candidate, self.group.clone());
        0
    }

    fn shared_offline(&mut self, first_choice: Match<'_>) {
        self.add(&first_choice, self.group.clone());
    }
}
