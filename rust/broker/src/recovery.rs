//! From what the store kept to sessions: they come back before anybody connects.

use std::collections::HashMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::num::NonZeroU32;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use mqttcore_codec::{PacketId, Properties, QoS, Version};
use mqttcore_session::{Delivery, Message, Session, Subscription, WillMessage};
use mqttcore_store::{self as stored, SessionRow, Store, StoreError, Subscriptions};
use mqttcore_topics::{Change, Options, SubscriptionFilter, TopicName};
use smallvec::SmallVec;

use crate::client::Client;
use crate::grants::{Access, Grant};
use crate::hooks::Login;
use crate::journal;
use crate::life;
use crate::paging;
use crate::retain::Retained;
use crate::shard::{Shard, World};
use crate::topic::{AS_IT_CAME, topic_of};

/// Deliveries that are read of a queue at once, and bytes of their messages.
const PAGE: usize = 256;
const PAGE_BYTES: u64 = 1 << 20;

/// One session.
pub(crate) struct Kept {
    number: u64,
    client_id: Arc<str>,
    row: SessionRow,
    /// When its connection ended; without an end it was there when the broker died.
    away_since: Option<Instant>,
    will: Option<WillMessage>,
    subscriptions: Subscriptions,
    publishes: Vec<(PacketId, Waiting)>,
    /// What waits for it: that stays in the store.
    waiting: stored::Waiting,
}

/// Deliveries that wait for one session, read back.
pub(crate) struct Page {
    waiting: Vec<Waiting>,
    /// Where the next page begins.
    pub(crate) next: u64,
    /// There are no more.
    pub(crate) is_last: bool,
}

/// A message on its way to one session.
struct Waiting {
    delivery: u64,
    message: Message,
    qos: QoS,
    retain: bool,
    subscription_ids: SmallVec<[NonZeroU32; 2]>,
}

/// One moment on both clocks.
#[derive(Clone, Copy)]
struct Clock {
    now: Instant,
    unix_ms: u64,
}

/// Reads everything that `store` kept: retained messages go to their place, sessions come back,
/// dealt to shards.
///
/// # Errors
///
/// Those of the store: what was promised cannot be read.
pub(crate) fn read(store: &dyn Store, world: &World) -> Result<Found, StoreError> {
    let mut reader = Reader {
        store,
        clock: Clock::now(),
        messages: HashMap::new(),
    };
    let expired = reader.retained(world)?;
    let mut rows = Vec::new();
    store.sessions(&mut |number, row, subscriptions| {
        rows.push((number, row.clone(), subscriptions.clone()));
    })?;
    let mut waiting = HashMap::new();
    store.waiting(&mut |number, waits| {
        waiting.insert(number, waits);
    })?;
    let mut dealt: Vec<Vec<Kept>> = (0..world.shards()).map(|_| Vec::new()).collect();
    for (number, row, subscriptions) in rows {
        let home = world.home(&row.client_id);
        let waiting = waiting.remove(&number).unwrap_or_default();
        dealt[home].push(reader.session(number, row, subscriptions, waiting)?);
    }
    Ok(Found { dealt, expired })
}

/// What there is to do.
pub(crate) struct Found {
    /// The sessions of each shard.
    pub(crate) dealt: Vec<Vec<Kept>>,
    /// Topics whose retained message has expired.
    pub(crate) expired: Vec<String>,
}

struct Reader<'s> {
    store: &'s dyn Store,
    clock: Clock,
    /// Messages that were read: they wait for several sessions.
    messages: HashMap<u64, Message>,
}

impl Reader<'_> {
    /// Returns the topics whose message has expired meanwhile.
    fn retained(&mut self, world: &World) -> Result<Vec<String>, StoreError> {
        let (mut numbers, mut expired) = (Vec::new(), Vec::new());
        self.store.retained(&mut |_, number| numbers.push(number))?;
        for number in numbers {
            let Some(message) = self.message(number)? else {
                continue;
            };
            if message.is_expired(self.clock.now) {
                expired.push(message.topic().to_owned());
            } else if let Some(topic) = topic_of(&message) {
                world.retained.set(topic, Retained::stored(message.clone()));
            }
        }
        Ok(expired)
    }

    fn session(
        &mut self,
        number: u64,
        row: SessionRow,
        subscriptions: Subscriptions,
        waiting: stored::Waiting,
    ) -> Result<Kept, StoreError> {
        let mut publishes = Vec::with_capacity(row.publishes.len());
        for (packet_id, delivery) in &row.publishes {
            let waiting = self.waiting(delivery)?;
            publishes.extend(PacketId::new(*packet_id).zip(waiting));
        }
        Ok(Kept {
            number,
            client_id: row.client_id.as_str().into(),
            away_since: row.away_since_ms.map(|at_ms| self.clock.instant(at_ms)),
            will: row.will.as_ref().and_then(to_will),
            row,
            subscriptions,
            publishes,
            waiting,
        })
    }

    fn waiting(&mut self, delivery: &stored::Delivery) -> Result<Option<Waiting>, StoreError> {
        let message = self.message(delivery.message)?;
        Ok(message.map(|message| Waiting::new(delivery, message)))
    }

    fn message(&mut self, number: u64) -> Result<Option<Message>, StoreError> {
        if let Some(message) = self.messages.get(&number) {
            return Ok(Some(message.clone()));
        }
        let stored = self.store.message(number)?;
        let message = stored.and_then(|stored| self.clock.message(&stored));
        if let Some(message) = &message {
            self.messages.insert(number, message.clone());
        }
        Ok(message)
    }
}

impl Page {
    /// Reads the deliveries that wait for `session` from number `from` on and below `below`.
    ///
    /// # Errors
    ///
    /// Those of the store: what was promised cannot be read.
    pub(crate) fn read(
        store: &dyn Store,
        session: u64,
        from: u64,
        below: u64,
    ) -> Result<Self, StoreError> {
        let clock = Clock::now();
        let mut page = Self {
            waiting: Vec::new(),
            next: from,
            is_last: true,
        };
        for (delivery, message) in store.page(session, from, PAGE, PAGE_BYTES)? {
            if delivery.number >= below {
                break;
            }
            (page.next, page.is_last) = (delivery.number + 1, false);
            let message = message.and_then(|stored| clock.message(&stored));
            let waiting = message.map(|message| Waiting::new(&delivery, message));
            page.waiting.extend(waiting);
        }
        Ok(page)
    }

    pub(crate) fn deliveries(&self) -> impl Iterator<Item = (Message, Delivery<'_>)> {
        let waiting = self.waiting.iter();
        waiting.map(|waiting| (waiting.message.clone(), waiting.delivery()))
    }
}

impl Clock {
    fn message(self, stored: &stored::StoredMessage) -> Option<Message> {
        let kept = stored.message();
        let expires_at = kept.expires_at_ms.map(|at_ms| self.instant(at_ms));
        to_message(&kept, expires_at)
    }

    fn now() -> Self {
        let since = SystemTime::now().duration_since(UNIX_EPOCH);
        Self {
            now: Instant::now(),
            unix_ms: since.map_or(0, |since| u64::try_from(since.as_millis()).unwrap_or(0)),
        }
    }

    /// A moment in unix milliseconds on the monotonic clock; one that this clock does not reach
    /// back to is now.
    fn instant(self, at_ms: u64) -> Instant {
        let ahead = Duration::from_millis(at_ms.saturating_sub(self.unix_ms));
        let behind = Duration::from_millis(self.unix_ms.saturating_sub(at_ms));
        let at = self.now.checked_sub(behind).unwrap_or(self.now);
        at.checked_add(ahead).unwrap_or(at)
    }
}

impl Waiting {
    fn new(delivery: &stored::Delivery, message: Message) -> Self {
        let ids = delivery.subscription_ids.iter();
        Self {
            delivery: delivery.number,
            message,
            qos: QoS::try_from(delivery.qos).unwrap_or_default(),
            retain: delivery.retain,
            subscription_ids: ids.filter_map(|id| NonZeroU32::new(*id)).collect(),
        }
    }

    fn delivery(&self) -> Delivery<'_> {
        Delivery {
            qos: self.qos,
            retain: self.retain,
            subscription_ids: &self.subscription_ids,
            key: self.delivery,
        }
    }
}

impl Kept {
    fn session(&self, shard: &Shard, filters: &[(SubscriptionFilter, Options)]) -> Session {
        let mut session = Session::restored(
            Arc::clone(&self.client_id),
            Arc::clone(&shard.config().limits),
            self.away_since.unwrap_or_else(|| shard.now()),
            self.row.expiry_s,
        );
        for (filter, options) in filters {
            session.restore_subscription(Subscription {
                filter: filter.clone(),
                options: *options,
            });
        }
        for packet_id in self.row.gates.iter().copied().filter_map(PacketId::new) {
            session.restore_received(packet_id);
        }
        for (packet_id, waiting) in &self.publishes {
            session.restore_publish(*packet_id, waiting.message.clone(), waiting.delivery());
        }
        for packet_id in self.row.releases.iter().copied().filter_map(PacketId::new) {
            session.restore_release(packet_id);
        }
        let stored::Waiting {
            deliveries, bytes, ..
        } = self.waiting;
        if deliveries > 0 {
            let count = |figure: u64| usize::try_from(figure).unwrap_or(usize::MAX);
            session.restore_spilled(count(deliveries), count(bytes));
        }
        if let Some(will) = &self.will {
            session.restore_will(will.clone());
        }
        session
    }

    /// Who it was, as far as the log says.
    fn login(&self) -> Login {
        Login {
            client_id: Arc::clone(&self.client_id),
            version: Version::from_level(self.row.version).unwrap_or(Version::V5),
            username: self.row.username.as_deref().map(Arc::from),
            password: None,
            peer: SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)),
            listener: Arc::from(""),
            clean_start: false,
            keep_alive_s: 0,
            session_expiry_interval_s: self.row.expiry_s,
            will_topic: None,
            user_properties: Arc::from([]),
        }
    }

    /// What it may do until it is back and plugins are asked again: publish the will that it was
    /// allowed when it left it. What it is sent, it had the right to when it subscribed.
    fn access(&self) -> Access {
        let will = self.will.iter().map(|will| will.message.topic().to_owned());
        let grant = Grant {
            publish: will.collect(),
            ..Grant::default()
        };
        // INVARIANT: a topic name is a filter that matches itself.
        Access::new(grant).expect("a topic name is a filter")
    }
}

/// The highest number of these sessions; 0 without any.
pub(crate) fn last_number(dealt: &[Vec<Kept>]) -> u64 {
    let numbers = dealt.iter().flatten().map(|kept| kept.number);
    numbers.max().unwrap_or(0)
}

/// Makes the sessions of `shard` that were kept; nobody is sent anything yet.
pub(crate) fn install(shard: &Rc<Shard>, sessions: Vec<Kept>) -> Vec<u32> {
    sessions
        .into_iter()
        .map(|kept| install_one(shard, &kept))
        .collect()
}

fn install_one(shard: &Rc<Shard>, kept: &Kept) -> u32 {
    let mut filters = Vec::with_capacity(kept.subscriptions.len());
    for (text, (options, id)) in &kept.subscriptions {
        if let Ok(filter) = SubscriptionFilter::parse(text, &AS_IT_CAME) {
            filters.push((filter, journal::unpack(*options, *id)));
        }
    }
    let directory = &shard.world.directory;
    let client = shard.registry.borrow_mut().insert(shard.index, |handle| {
        let (login, access) = (Arc::new(kept.login()), Arc::new(kept.access()));
        let session = kept.session(shard, &filters);
        Client::new(
            handle,
            directory.join(handle.pack()),
            session,
            login,
            access,
        )
    });
    client.set_number(&shard.world, kept.number);
    paging::resume_if_needed(shard, &client);
    client.will_is_kept.set(kept.will.is_some());
    if kept.away_since.is_none() {
        journal::away(shard, &client);
    }
    shard.metrics().sessions.add(1);
    let changes: Vec<_> = filters
        .iter()
        .map(|(filter, options)| Change::Subscribe {
            filter,
            options: *options,
        })
        .collect();
    directory.commit(client.subscriber, &changes);
    client.handle.slot
}

/// Lets time begin for sessions that were made again: wills and ends that came due meanwhile.
pub(crate) fn begin(shard: &Rc<Shard>, slots: &[u32]) {
    shard.refresh_now();
    for slot in slots {
        life::handle_timeout(shard, *slot);
    }
    shard.send_mail();
}

fn to_message(kept: &stored::record::Message<'_>, expires_at: Option<Instant>) -> Option<Message> {
    Some(Message::restored(
        TopicName::parse(kept.topic, &AS_IT_CAME).ok()?,
        Properties::from_checked(kept.properties),
        kept.payload,
        QoS::try_from(kept.qos).ok()?,
        kept.retain,
        expires_at,
    ))
}

fn to_will(will: &stored::Will) -> Option<WillMessage> {
    let message = Message::restored(
        TopicName::parse(&will.topic, &AS_IT_CAME).ok()?,
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
