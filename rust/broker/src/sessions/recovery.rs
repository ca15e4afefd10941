//! Restores sessions and messages from the store; `loading.rs` decides when.

use std::collections::{BTreeSet, HashMap};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

use mqttcore_codec::{PacketId, Properties, ProtocolVersion, QoS};
use mqttcore_session::{ChunkAccount, Message, Session, Subscription, WillMessage};
use mqttcore_store::{self as stored, KeptSession, Store, StoreError};
use mqttcore_topics::{Change, Options, SubscriptionFilter, TopicLimits, TopicName};
use smallvec::SmallVec;

use crate::clients::client::{Client, ClientIdentity, KeptWill, KnownLogin};
use crate::clients::retained::RetainedMessage;
use crate::config::permissions::{CompiledGrant, Permissions};
use crate::durability::clock::KeptClock;
use crate::durability::page::{Waiting, message_of};
use crate::durability::store::DurableLog;
use crate::routing::{fill, group, retain, session_records};
use crate::sessions::{lifecycle, paging};
use crate::shard::{EngineState, Shard};

/// A restored session for its shard.
pub(crate) struct RestoredSession {
    number: u64,
    client_id: Arc<str>,
    username: Option<Arc<str>>,
    version: ProtocolVersion,
    access: Arc<CompiledGrant>,
    expiry_s: u32,
    /// When its connection ended; without an end it was there when the broker died.
    away_since: Option<Instant>,
    will: Option<WillMessage>,
    subscriptions: Vec<(SubscriptionFilter, Options)>,
    exactly_once: BTreeSet<u16>,
    publishes: Vec<(PacketId, Waiting)>,
    releases: Vec<u16>,
    /// Its queued messages: they stay in the store.
    waiting: stored::QueueSummary,
    /// Queued messages with a lower number may have been sent.
    maybe_sent_below: u64,
}

/// Converts stored sessions for shards.
pub(crate) struct SessionReader<'s> {
    store: &'s dyn Store,
    clock: KeptClock,
    now: Instant,
    /// The first number that this run assigns.
    first_number: u64,
    /// Messages that were read: they wait for several sessions.
    messages: HashMap<u64, Message>,
    /// Counts these.
    account: Arc<ChunkAccount>,
    /// Rights of a session without a will while its client is offline: none.
    nothing: Arc<CompiledGrant>,
}

impl<'s> SessionReader<'s> {
    pub(crate) fn new(log: &'s DurableLog, account: &Arc<ChunkAccount>) -> Self {
        Self {
            store: &*log.store,
            clock: log.clock,
            now: Instant::now(),
            first_number: log.numbers(0),
            messages: HashMap::new(),
            account: Arc::clone(account),
            nothing: Arc::new(access_of(None)),
        }
    }

    /// The numbers of the messages that are retained.
    pub(crate) fn list_retained(&self) -> Result<Vec<u64>, StoreError> {
        let mut numbers = Vec::new();
        self.store.retained(&mut |_, number| numbers.push(number))?;
        Ok(numbers)
    }

    /// Puts these messages into their place, and topics whose message has expired meanwhile into
    /// `expired`.
    pub(crate) fn retained(
        &mut self,
        engine: &EngineState,
        numbers: &[u64],
        expired: &mut Vec<String>,
    ) -> Result<(), StoreError> {
        for number in numbers {
            let Some(stored) = self.store.message(*number)? else {
                continue;
            };
            let Some(message) = self.take(*number, &stored) else {
                continue;
            };
            if message.is_expired(self.now) {
                expired.push(message.topic().to_owned());
            } else {
                let record = stored.message();
                let name = record.source.zip(record.username);
                let named = |(id, name)| engine.sources.named(&Arc::from(id), &Arc::from(name));
                let owner = record.username.map(|name| engine.owners.user(name));
                let kept = RetainedMessage::new(message.clone(), true, name.map(named), owner);
                retain::recover(engine, message.topic_name(), kept);
            }
        }
        Ok(())
    }

    pub(crate) fn session(&mut self, kept: KeptSession) -> Result<RestoredSession, StoreError> {
        let row = kept.row;
        let mut publishes = Vec::with_capacity(row.publishes.len());
        for (packet_id, delivery) in &row.publishes {
            let waiting = self.waiting(delivery)?;
            publishes.extend(PacketId::new(*packet_id).zip(waiting));
        }
        let mut subscriptions = Vec::with_capacity(kept.subscriptions.len());
        for (text, (options, id)) in &kept.subscriptions {
            if let Ok(filter) = SubscriptionFilter::parse(text, &TopicLimits::AS_IT_CAME) {
                subscriptions.push((filter, session_records::unpack(*options, *id)));
            }
        }
        let will = row.will.as_ref().and_then(to_will);
        Ok(RestoredSession {
            number: kept.number,
            client_id: row.client_id.into(),
            username: row.username.map(Arc::from),
            version: ProtocolVersion::from_level(row.version).unwrap_or(ProtocolVersion::V5),
            access: match &will {
                Some(will) => Arc::new(access_of(Some(will))),
                None => Arc::clone(&self.nothing),
            },
            expiry_s: row.expiry_s,
            away_since: row.away_since_ms.map(|at_ms| self.clock.instant(at_ms)),
            will,
            subscriptions,
            exactly_once: row.exactly_once,
            publishes,
            releases: row.releases,
            waiting: kept.waiting,
            maybe_sent_below: match row.away_since_ms {
                Some(_) => row.maybe_sent_below,
                None => self.first_number,
            },
        })
    }

    fn waiting(
        &mut self,
        delivery: &stored::StoredDelivery,
    ) -> Result<Option<Waiting>, StoreError> {
        let message = self.message(delivery.message)?;
        Ok(message.map(|message| Waiting::new(delivery, message)))
    }

    fn message(&mut self, number: u64) -> Result<Option<Message>, StoreError> {
        if let Some(message) = self.messages.get(&number) {
            return Ok(Some(message.clone()));
        }
        let stored = self.store.message(number)?;
        Ok(stored.and_then(|stored| self.take(number, &stored)))
    }

    /// The message with this number; all recipients share one copy.
    fn take(&mut self, number: u64, stored: &stored::StoredMessage) -> Option<Message> {
        if let Some(message) = self.messages.get(&number) {
            return Some(message.clone());
        }
        let mut message = message_of(stored, self.clock)?;
        message.charge(&self.account);
        self.messages.insert(number, message.clone());
        Some(message)
    }
}

impl RestoredSession {
    fn session(&self, shard: &Shard) -> Session {
        let mut session = Session::restored(
            self.version,
            Arc::clone(&shard.config().limits),
            self.away_since.unwrap_or_else(|| shard.now()),
            self.expiry_s,
        );
        for (filter, options) in &self.subscriptions {
            session.restore_subscription(Subscription {
                filter: filter.clone(),
                options: *options,
            });
        }
        for packet_id in self.exactly_once.iter().copied().filter_map(PacketId::new) {
            session.restore_received(packet_id);
        }
        for (packet_id, waiting) in &self.publishes {
            let delivery = waiting.delivery(|message| shard.has_deliver_hook(message));
            session.restore_publish(*packet_id, waiting.message.clone(), delivery);
        }
        for packet_id in self.releases.iter().copied().filter_map(PacketId::new) {
            session.restore_release(packet_id);
        }
        let stored::QueueSummary {
            deliveries, bytes, ..
        } = self.waiting;
        if deliveries > 0 {
            let count = |figure: u64| usize::try_from(figure).unwrap_or(usize::MAX);
            session.restore_spilled(count(deliveries), count(bytes));
            session.restore_maybe_sent(self.maybe_sent_below);
        }
        if let Some(will) = &self.will {
            session.restore_will(will.clone());
        }
        session
    }
}

/// Rights of a session until its client reconnects and the plugins are asked again: to publish the will that was
/// allowed. It had the right to receive its messages when it subscribed.
fn access_of(will: Option<&WillMessage>) -> CompiledGrant {
    let publishing = |will: &WillMessage| Permissions::publishing(will.message.topic_name().into());
    let permissions = will.map(publishing);
    CompiledGrant::of(permissions.unwrap_or_default())
}

/// Creates the sessions that do not exist yet; sends nothing to clients.
pub(crate) fn install(shard: &Rc<Shard>, sessions: impl IntoIterator<Item = RestoredSession>) {
    for kept in sessions {
        let is_there = shard.find_client(&kept.client_id).is_some();
        if !is_there {
            install_one(shard, &kept);
        }
    }
}

fn install_one(shard: &Rc<Shard>, kept: &RestoredSession) {
    let directory = &shard.engine.directory;
    let client = shard.registry.borrow_mut().insert(shard.index, |handle| {
        Client::new(
            handle,
            directory.join_as(handle.word(), directory.key_of(&kept.client_id)),
            Arc::clone(&kept.client_id),
            ClientIdentity {
                who: KnownLogin::Kept(kept.username.clone()),
                access: Arc::clone(&kept.access),
            },
            kept.session(shard),
        )
    });
    client.set_number(&shard.engine, kept.number);
    // The store has no addresses of clients without a user name.
    let owner = kept.username.as_deref().filter(|_| kept.expiry_s > 0);
    let owner = owner.map(|username| shard.engine.owners.user(username));
    client.set_owner(shard, owner);
    client.set_kept(shard, kept.expiry_s > 0);
    group::set_online(shard, &client, false);
    fill::watch(shard, &client);
    paging::resume_if_needed(shard, &client);
    if kept.will.is_some() {
        client.kept_will.set(KeptWill::InSession);
    }
    if kept.away_since.is_none() {
        session_records::write_detached(shard, &client, kept.maybe_sent_below);
    }
    shard.metrics().sessions.add(1);
    shard.engine.loading.one_loaded();
    let changes: SmallVec<[Change<'_>; 4]> = kept
        .subscriptions
        .iter()
        .map(|(filter, options)| Change::Subscribe {
            filter,
            options: *options,
        })
        .collect();
    directory.commit(client.subscriber, &changes);
}

/// Starts the deadlines of the sessions in `count` slots from `from` on: wills and ends that came due meanwhile.
/// Returns the next slot, if there is one.
pub(crate) fn begin(shard: &Rc<Shard>, from: u32, count: u32) -> Option<u32> {
    shard.refresh_now();
    let end = shard.registry.borrow().slots();
    let next = end.min(from.saturating_add(count));
    for slot in from..next {
        lifecycle::handle_timeout(shard, slot);
    }
    shard.flush_mailboxes();
    (next < end).then_some(next)
}

fn to_will(will: &stored::StoredWill) -> Option<WillMessage> {
    let message = Message::restored(
        TopicName::parse(&will.topic, &TopicLimits::AS_IT_CAME).ok()?,
        Properties::from_checked(&will.properties),
        &will.payload,
        QoS::try_from(will.qos).ok()?,
        will.retain,
        None,
    );
    Some(WillMessage {
        message,
        delay_s: will.delay_s,
    })
}
