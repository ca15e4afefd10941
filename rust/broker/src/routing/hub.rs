//! The way of one publish: who gets it, on which shard, and what becomes of what cannot be sent.
//!
//! [`route`] asks the directory once, [`route_all`] once for several messages; both send targets of other shards by mail, and hand the rest
//! to their sessions. The session decides about quality of service, windows and queues; here is
//! only what needs the connection: the limit of bytes that wait for a slow client.

use std::num::NonZeroU32;
use std::rc::Rc;

use mqttcore_codec::{PacketId, QoS, ReasonCode};
use mqttcore_session::{Cause, Delivered, Delivery, DropReason, Event, Message, QueueRoom};
use mqttcore_store::Level;
use mqttcore_topics::{Match, Search, SubscriptionFilter, TopicName, Visitor};
use smallvec::SmallVec;

use crate::clients::client::Client;
use crate::clients::handle::Handle;
use crate::clients::topic::topic_of;
use crate::config::hooks::EventKind;
use crate::kafka;
use crate::routing::group::{self, Choice, Judge};
use crate::routing::retain::{self, Retaining};
use crate::routing::{fill, journal, queue_policy, session_records};
use crate::runtime::log::{Escaped, LogClass};
use crate::runtime::metrics::{Counter, Metrics};
use crate::shard::{EventDetails, Letter, Shard, World};

/// One publish on its way to whoever gets it.
pub(crate) struct Publication<'a> {
    /// Who published it; `None` is the broker itself.
    pub(crate) publisher: Option<&'a Rc<Client>>,
    pub(crate) topic: TopicName<'a>,
    pub(crate) message: &'a Message,
    /// The publisher's identifier, above QoS 0.
    pub(crate) packet_id: Option<PacketId>,
    pub(crate) retaining: Retaining<'a>,
    /// Kafka has it already.
    pub(crate) is_logged: bool,
    /// A kept session whose queue is full is left out of it, and its publisher is told so.
    pub(crate) is_refused_when_full: bool,
}

impl<'a> Publication<'a> {
    /// One without RETAIN, below QoS 2.
    fn plain(
        shard: &Shard,
        publisher: &'a Rc<Client>,
        topic: TopicName<'a>,
        message: &'a Message,
    ) -> Self {
        Self {
            publisher: Some(publisher),
            topic,
            message,
            packet_id: None,
            retaining: Retaining::default(),
            is_logged: false,
            is_refused_when_full: queue_policy::refuses(shard, Some(publisher), topic, message),
        }
    }

    /// One of the broker itself that nobody can be told of.
    fn own(shard: &'a Shard, topic: TopicName<'a>, message: &'a Message) -> Self {
        Self {
            publisher: None,
            topic,
            message,
            packet_id: None,
            retaining: retain::store(shard, None, topic, message),
            is_logged: false,
            is_refused_when_full: false,
        }
    }

    /// The number of a durable publisher, and the identifier that it may not use for another
    /// message until it has released it.
    pub(crate) fn gate(&self, world: &World) -> Option<(u64, u16)> {
        let is_gated = self.message.qos() == QoS::ExactlyOnce;
        let packet_id = self.packet_id.filter(|_| is_gated)?;
        Some((self.publisher?.number(world)?, packet_id.get()))
    }
}

/// One subscriber that a message goes to.
pub(crate) struct Target {
    pub(crate) handle: Handle,
    pub(crate) qos: QoS,
    pub(crate) retain: bool,
    pub(crate) subscription_ids: SmallVec<[NonZeroU32; 2]>,
    /// The store's number of the delivery; 0 if its session is not kept.
    pub(crate) key: u64,
    /// Its session takes it whatever the limits of its queue.
    pub(crate) may_exceed: bool,
    /// It was chosen among the members of a group.
    pub(crate) choice: Option<Box<Choice>>,
}

impl Target {
    /// Whoever a message matched, which is `retain`.
    pub(crate) fn of(matched: &Match<'_>, retain: bool) -> Self {
        Self {
            handle: Handle::of_word(matched.handle),
            qos: matched.qos,
            // [MQTT-3.3.1-12, -13]
            retain: retain && matched.retain_as_published,
            subscription_ids: SmallVec::from_slice(matched.ids),
            key: 0,
            may_exceed: false,
            choice: None,
        }
    }

    /// Whether it takes the message out of the store, or from Kafka, not from here.
    pub(crate) fn is_stream(&self) -> bool {
        self.handle.stream().is_some() || self.handle.kafka().is_some()
    }

    fn delivery(&self, shard: &Shard) -> Delivery<'_> {
        let room = if self.may_exceed {
            QueueRoom::Any
        } else if self.key != 0 && shard.world.durable.are_all_full() {
            QueueRoom::None
        } else {
            QueueRoom::Limits
        };
        Delivery {
            qos: self.qos,
            retain: self.retain,
            subscription_ids: &self.subscription_ids,
            key: self.key,
            room,
        }
    }
}

/// Hands a message to every matching subscriber; returns how many there are.
///
/// What outlives the broker is written first. A message that was published at QoS 2 is delivered
/// once that is safe; others at once, since a repeat does them no harm (decision 19).
///
/// One that cannot be matched goes to nobody, is counted, and stands in the log.
pub(crate) fn route(shard: &Rc<Shard>, publication: Publication<'_>) -> usize {
    let mut targets = std::mem::take(&mut *shard.targets.borrow_mut());
    if let Err(why) = find(shard, &publication, &mut targets) {
        report_unroutable(shard, publication.publisher, publication.message, why);
        targets.clear();
    }
    hand_out(shard, publication, targets, |_| {})
}

/// Books a message that is not routed.
pub(crate) fn report_unroutable(
    shard: &Shard,
    publisher: Option<&Rc<Client>>,
    message: &Message,
    why: Unroutable,
) {
    why.count(shard.metrics());
    shard.log.warn(LogClass::Dropped, shard.now(), || {
        let (topic, why) = (Escaped(message.topic()), why.text());
        match publisher {
            Some(client) => {
                let id = Escaped(&client.id);
                format!("publish of client {id} to {topic} refused: {why}")
            }
            None => format!("publish of the broker to {topic} refused: {why}"),
        }
    });
}

/// Why a message is not routed.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Unroutable {
    /// The disk is too full for what it would leave behind.
    NoRoom,
    /// The queue of a kept session is full, and the policy of the message says that it is refused then.
    QueueFull,
    /// The search for its subscribers takes more steps than one may (abuse H15).
    TooManyFilters,
    /// It is a record of Kafka's, which does not take it, for this reason.
    NotLogged(&'static str),
}

impl Unroutable {
    /// For people.
    pub(crate) fn text(self) -> &'static str {
        match self {
            Self::NotLogged(why) => why,
            Self::NoRoom => "the disk is nearly full",
            Self::QueueFull => "the queue of a subscriber is full",
            Self::TooManyFilters => "too many filters with wildcards agree with parts of its topic",
        }
    }

    /// Counts it.
    pub(crate) fn count(self, metrics: &Metrics) {
        let counter = match self {
            Self::NoRoom | Self::NotLogged(_) => &metrics.refused_no_room,
            Self::QueueFull => &metrics.refused_queue_full,
            Self::TooManyFilters => &metrics.refused_too_many_filters,
        };
        counter.add(1);
    }
}

/// As [`route`]. `accepted` is called with the number of subscribers once the message is written, before any of them
/// gets it; or with [`Unroutable::QueueFull`] if some are left out.
///
/// # Errors
///
/// [`Unroutable`]: nothing is done.
pub(crate) fn try_route(
    shard: &Rc<Shard>,
    mut publication: Publication<'_>,
    accepted: impl FnOnce(Result<usize, Unroutable>),
) -> Result<usize, Unroutable> {
    let mut targets = std::mem::take(&mut *shard.targets.borrow_mut());
    let mut found = find(shard, &publication, &mut targets);
    let is_refused = leave_out_full(shard, &publication, &mut targets);
    if is_refused {
        // Its identifier is free again.
        publication.packet_id = None;
    }
    if found.is_ok() && journal::lacks_room(shard, &publication, &targets) {
        found = Err(Unroutable::NoRoom);
    }
    if let Err(why) = found {
        targets.clear();
        *shard.targets.borrow_mut() = targets;
        return Err(why);
    }
    Ok(hand_out(shard, publication, targets, |matched| {
        accepted(if is_refused {
            Err(Unroutable::QueueFull)
        } else {
            Ok(matched)
        });
    }))
}

/// Takes those out of `targets` whose queue is full, if the publisher can be told so; whether there were any. A queue that
/// got full after other publishers were asked to wait is filled beyond its limit.
fn leave_out_full(shard: &Shard, publication: &Publication<'_>, targets: &mut Vec<Target>) -> bool {
    let publisher = publication.publisher;
    let can_be_told = publisher.is_some_and(|client| client.login().version.has_properties());
    if !(can_be_told && publication.is_refused_when_full && shard.world.durable.has_full()) {
        return false;
    }
    let count = targets.len();
    if journal::level_of(shard, publisher, publication.topic) > Level::Memory {
        let (topic, message) = (publication.topic, publication.message);
        targets.retain(|target| !journal::lacks_queue_room(shard, topic, message, target));
    }
    targets.len() < count
}

/// A kept session whose queue is full and that would get `message`, if that may not be dropped then.
pub(crate) fn full_queue(
    shard: &Shard,
    publisher: Option<&Rc<Client>>,
    topic: TopicName<'_>,
    message: &Message,
) -> Option<Handle> {
    let own = publisher.map(|client| &**client);
    let is_refused = queue_policy::may_refuse(shard, own, topic, message)
        && journal::level_of(shard, publisher, topic) > Level::Memory;
    if !is_refused {
        return None;
    }
    let mut targets = std::mem::take(&mut *shard.targets.borrow_mut());
    let mut collector = Collector::new(shard, message.retain(), message.qos(), &mut targets);
    collector.takes_turns = false;
    // A search that is given up has found nobody, and is refused later.
    let _ = search(shard, publisher, topic, message, collector);
    let mut found = targets.drain(..);
    let full = found.find(|target| journal::lacks_queue_room(shard, topic, message, target));
    let full = full.map(|target| target.handle);
    drop(found);
    *shard.targets.borrow_mut() = targets;
    full
}

/// Collects who gets a message in `targets`, which are empty.
fn find(
    shard: &Shard,
    publication: &Publication<'_>,
    targets: &mut Vec<Target>,
) -> Result<(), Unroutable> {
    let message = publication.message;
    let collector = Collector::new(shard, message.retain(), message.qos(), targets);
    search(
        shard,
        publication.publisher,
        publication.topic,
        message,
        collector,
    )
}

fn search(
    shard: &Shard,
    publisher: Option<&Rc<Client>>,
    topic: TopicName<'_>,
    message: &Message,
    mut collector: Collector<'_>,
) -> Result<(), Unroutable> {
    debug_assert!(
        message.qos() == QoS::AtMostOnce
            || shard.world.is_stopping()
            || shard.world.loading.to_come() == Some(0),
        "whoever may get it is there"
    );
    let was_kept = shard.world.directory.match_cached(
        &mut shard.results.borrow_mut(),
        topic,
        publisher.map(|client| client.subscriber),
        shard.random(),
        &mut collector,
    );
    shard.metrics().matches_cached.add(was_kept.into());
    shard.count_steps(collector.steps);
    if collector.given_up > 0 {
        return Err(Unroutable::TooManyFilters);
    }
    Ok(())
}

fn hand_out(
    shard: &Rc<Shard>,
    publication: Publication<'_>,
    mut targets: Vec<Target>,
    accepted: impl FnOnce(usize),
) -> usize {
    let message = publication.message;
    let matched = targets.len();
    kafka::produce(shard, &publication, &targets);
    let level = journal::published(shard, &publication, &mut targets);
    // It is written: others may change what is retained.
    drop(publication);
    accepted(matched);
    if let Some(level) = level.filter(|_| !targets.iter().all(Target::is_stream)) {
        journal::hold(shard, level, message, std::mem::take(&mut targets));
    }
    deal(shard, message, targets.drain(..));
    *shard.targets.borrow_mut() = targets;
    matched
}

/// Publishes as the broker itself what has been promised already; returns how many it goes to.
pub(crate) fn publish_own(shard: &Rc<Shard>, message: &Message) -> usize {
    let own = |topic| route(shard, Publication::own(shard, topic, message));
    topic_of(message).map_or(0, own)
}

/// Publishes as the broker itself.
///
/// # Errors
///
/// [`Unroutable`]: nothing is done.
pub(crate) fn try_publish_own(shard: &Rc<Shard>, message: &Message) -> Result<usize, Unroutable> {
    let Some(topic) = topic_of(message) else {
        return Ok(0);
    };
    check_retained(shard, None, topic, message)?;
    if full_queue(shard, None, topic, message).is_some() {
        return Err(Unroutable::QueueFull);
    }
    let publication = Publication {
        is_refused_when_full: queue_policy::refuses(shard, None, topic, message),
        ..Publication::own(shard, topic, message)
    };
    try_route(shard, publication, |_| {})
}

/// Checks a message before it is retained, which comes before it is matched.
///
/// # Errors
///
/// [`Unroutable`], for one with RETAIN.
pub(crate) fn check_retained(
    shard: &Shard,
    publisher: Option<&Rc<Client>>,
    topic: TopicName<'_>,
    message: &Message,
) -> Result<(), Unroutable> {
    if journal::lacks_room_to_retain(shard, publisher, topic, message) {
        return Err(Unroutable::NoRoom);
    }
    check_filters(shard, topic, message)
}

/// As [`check_retained`], whatever room there is.
pub(crate) fn check_filters(
    shard: &Shard,
    topic: TopicName<'_>,
    message: &Message,
) -> Result<(), Unroutable> {
    if message.retain() && !shard.world.directory.snapshot().can_match(topic) {
        return Err(Unroutable::TooManyFilters);
    }
    Ok(())
}

/// Messages of one client that are matched together: what one read brought.
pub(crate) const TOGETHER: usize = 16;

/// Targets of messages matched together above which the next messages are matched one at a time.
const MANY_TARGETS: usize = 1024;

/// Steps of a search, for messages matched together, above which the same is done.
const MANY_STEPS: usize = 4096;

/// How many these are: matching many at once saves little where deliveries cost so much more.
const ONE_AT_A_TIME: u32 = 4096;

/// Messages of one client, none of them retained, that wait to be matched together.
#[derive(Default)]
pub(crate) struct Together {
    /// Each with the packet id that is to be acknowledged.
    messages: SmallVec<[(Message, Option<PacketId>); 4]>,
}

impl Together {
    pub(crate) fn push(&mut self, message: Message, packet_id: Option<PacketId>) {
        self.messages.push((message, packet_id));
    }

    /// Whether as many wait as should.
    pub(crate) fn is_full(&self, shard: &Shard) -> bool {
        let alone = shard.one_at_a_time.get();
        shard.one_at_a_time.set(alone.saturating_sub(1));
        alone > 0 || self.messages.len() >= TOGETHER
    }

    /// Hands out what waits, and how many it goes to, in order.
    pub(crate) fn route(
        &mut self,
        shard: &Rc<Shard>,
        publisher: &Rc<Client>,
        mut routed: impl FnMut(&Message, Option<PacketId>, Result<usize, Unroutable>),
    ) {
        let messages = std::mem::take(&mut self.messages);
        let topics: SmallVec<[TopicName<'_>; TOGETHER]> = messages
            .iter()
            .filter_map(|(message, _)| topic_of(message))
            .collect();
        if topics.len() < 2 || topics.len() < messages.len() {
            for (message, packet_id) in &messages {
                let mut accepted = Ok(0);
                let matched = topic_of(message).map_or(Ok(0), |topic| {
                    let publication = Publication::plain(shard, publisher, topic, message);
                    try_route(shard, publication, |result| accepted = result)
                });
                routed(message, *packet_id, matched.and(accepted));
            }
            return;
        }
        let mut targets = std::mem::take(&mut *shard.targets.borrow_mut());
        let mut collector = Collector::new(shard, false, QoS::AtMostOnce, &mut targets);
        collector.qos = messages.iter().map(|(message, _)| message.qos()).collect();
        let kept = shard.world.directory.match_many_cached(
            &mut shard.results.borrow_mut(),
            &topics,
            Some(publisher.subscriber),
            shard.random(),
            &mut collector,
        );
        shard.metrics().matches_cached.add(kept as u64);
        let starts = std::mem::take(&mut collector.starts);
        let (steps, given_up) = (collector.steps, collector.given_up);
        shard.count_steps(steps);
        if targets.len() > MANY_TARGETS || steps > MANY_STEPS {
            shard.one_at_a_time.set(ONE_AT_A_TIME);
        }
        let ends = starts.iter().skip(1).copied().chain([targets.len()]);
        let counts: SmallVec<[usize; TOGETHER]> = starts
            .iter()
            .zip(ends)
            .map(|(start, end)| end - start)
            .collect();
        let mut start = 0;
        for ((message, _), (topic, matched)) in messages.iter().zip(topics.iter().zip(&counts)) {
            let publication = Publication::plain(shard, publisher, *topic, message);
            let own = &mut targets[start..start + matched];
            kafka::produce(shard, &publication, own);
            // None of them is of QoS 2, so none has to wait.
            let _ = journal::published(shard, &publication, own);
            start += matched;
        }
        let mut rest = targets.drain(..);
        for (index, ((message, packet_id), matched)) in messages.iter().zip(counts).enumerate() {
            deal(shard, message, rest.by_ref().take(matched));
            let is_given_up = given_up & 1 << index != 0;
            let result = if is_given_up {
                Err(Unroutable::TooManyFilters)
            } else {
                Ok(matched)
            };
            routed(message, *packet_id, result);
        }
        drop(rest);
        *shard.targets.borrow_mut() = targets;
    }
}

struct Collector<'a> {
    shard: &'a Shard,
    judge: Judge<'a>,
    /// Of each of several messages.
    qos: SmallVec<[QoS; TOGETHER]>,
    retain: bool,
    /// The message is on its way, not only asked about.
    takes_turns: bool,
    targets: &'a mut Vec<Target>,
    /// The group whose members are asked.
    group: Option<SubscriptionFilter>,
    /// Where the targets of each of several topics start.
    starts: SmallVec<[usize; TOGETHER]>,
    /// What the searches took, and the offers to members of groups.
    steps: usize,
    /// Topics whose search was given up, a bit each.
    given_up: u32,
}

impl<'a> Collector<'a> {
    fn new(shard: &'a Shard, retain: bool, qos: QoS, targets: &'a mut Vec<Target>) -> Self {
        Self {
            shard,
            judge: Judge::new(shard, qos),
            qos: SmallVec::new(),
            retain,
            takes_turns: true,
            targets,
            group: None,
            starts: SmallVec::new(),
            steps: 0,
            given_up: 0,
        }
    }

    /// Which of several topics is matched; 0 for one alone.
    fn topic_index(&self) -> usize {
        self.starts.len().saturating_sub(1)
    }

    fn choose(&mut self, member: &Match<'_>) {
        let mut target = Target::of(member, self.retain);
        let choice = |group| Box::new(Choice::new(group, member.subscriber));
        target.choice = self.group.take().map(choice);
        self.targets.push(target);
    }
}

impl Visitor for Collector<'_> {
    fn searched(&mut self, search: Search) {
        self.steps += search.steps;
        if !search.is_complete {
            self.given_up |= 1 << self.topic_index();
        }
    }

    fn takes_turns(&self) -> bool {
        self.takes_turns
    }

    fn plain(&mut self, matched: Match<'_>) {
        self.targets.push(Target::of(&matched, self.retain));
    }

    fn group(&mut self, group: &SubscriptionFilter) {
        self.group = Some(group.clone());
        if let Some(qos) = self.qos.get(self.topic_index()) {
            self.judge = Judge::new(self.shard, *qos);
        }
    }

    fn probed(&mut self, places: usize) {
        self.steps += places;
    }

    fn shared(&mut self, candidate: Match<'_>) -> bool {
        self.steps += 1;
        let takes = self.judge.takes(&candidate);
        if takes {
            self.choose(&candidate);
        }
        takes
    }

    fn standby(&mut self, candidate: Match<'_>) -> u8 {
        self.judge.standby(&candidate)
    }

    fn shared_offline(&mut self, first_choice: Match<'_>) {
        if self.judge.standby(&first_choice) == 0 {
            // Nobody would take it: it is not handed on from the one whose drop it becomes.
            self.group = None;
        }
        self.choose(&first_choice);
    }

    fn topic(&mut self, _: usize) {
        self.starts.push(self.targets.len());
    }
}

/// Delivers the targets of this shard and posts the others to theirs; streams have theirs already.
pub(crate) fn deal(shard: &Rc<Shard>, message: &Message, targets: impl Iterator<Item = Target>) {
    let targets = targets.filter(|target| !target.is_stream());
    if shard.world.shards() == 1 {
        targets.for_each(|target| deliver_to(shard, message, target));
        return;
    }
    let mut away: Vec<Vec<Target>> = Vec::new();
    for target in targets {
        if target.handle.shard() == shard.index {
            deliver_to(shard, message, target);
            continue;
        }
        away.resize_with(shard.world.shards(), Vec::new);
        away[target.handle.shard()].push(target);
    }
    for (to, targets) in away.into_iter().enumerate() {
        if !targets.is_empty() {
            shard.post(to, Letter::Deliver(message.clone(), targets));
        }
    }
}

/// Delivers `message` to targets of this shard.
pub(crate) fn deliver_all(shard: &Rc<Shard>, message: &Message, targets: Vec<Target>) {
    for target in targets {
        deliver_to(shard, message, target);
    }
}

/// Hands `message` to the session of a target; what it cannot take goes on to the next member of its group.
fn deliver_to(shard: &Rc<Shard>, message: &Message, mut target: Target) {
    loop {
        // A session that ended meanwhile is not there any more, or another one has its slot.
        let client = shard.registry.borrow().at(target.handle);
        let refusal = match &client {
            Some(client) => offer(shard, client, message, target.delivery(shard)),
            None => Some(Drop::Ended),
        };
        let Some(reason) = refusal else { return };
        let handed = group::hand_on(shard, client.as_ref(), message, target, reason.most_tried());
        target = match (handed, client) {
            (Ok(Some(next)), _) => next,
            (Ok(None), _) => return,
            (Err(target), Some(client)) => {
                return discard(shard, &client, message, target.key, reason);
            }
            (Err(target), None) => return book_late(shard, message, &target),
        };
    }
}

/// Hands `message` to one session and sends what may be sent at once.
pub(crate) fn deliver(
    shard: &Rc<Shard>,
    client: &Rc<Client>,
    message: &Message,
    delivery: Delivery<'_>,
) {
    if let Some(reason) = offer(shard, client, message, delivery) {
        discard(shard, client, message, delivery.key, reason);
    }
}

/// The same, and answers why the session does not take it.
fn offer(
    shard: &Rc<Shard>,
    client: &Rc<Client>,
    message: &Message,
    delivery: Delivery<'_>,
) -> Option<Drop> {
    shard.count_delivery();
    if let Some(reason) = refusal(shard, client, message, &delivery) {
        if matches!(reason, Drop::Backlog) {
            group::refuses(shard, client);
        }
        return Some(reason);
    }
    let delivered = client
        .session
        .borrow_mut()
        .deliver(shard.now(), message, delivery);
    let mut refusal = None;
    match delivered {
        Delivered::Sent => {
            if client.session.borrow().is_full() {
                group::pass_over(shard, client);
            }
            if shard.journal.is_some() {
                handle_message_events(shard, client);
            }
            client.flush_session(shard);
            return None;
        }
        Delivered::Queued => {
            fill::watch(shard, client);
            group::pass_over(shard, client);
        }
        Delivered::Dropped(reason) => {
            if reason == DropReason::QueueFull || reason == DropReason::BacklogFull {
                group::refuses(shard, client);
            }
            refusal = Some(Drop::Session(reason));
        }
    }
    handle_message_events(shard, client);
    refusal
}

/// Does what the session says of its messages: those that it dropped, and what the store must be told.
pub(crate) fn handle_message_events(shard: &Rc<Shard>, client: &Rc<Client>) {
    loop {
        let event = client.session.borrow_mut().poll_message_event();
        match event {
            None => return,
            Some(event) => handle_message_event(shard, client, event),
        }
    }
}

/// Does what one such event says; nothing for others.
pub(crate) fn handle_message_event(shard: &Rc<Shard>, client: &Rc<Client>, event: Event) {
    match event {
        Event::Dropped {
            reason,
            message,
            key,
        } => discard(shard, client, &message, key, Drop::Session(reason)),
        Event::Overflowed => {
            if let Some(link) = client.link() {
                link.close(Cause::Administrative, ReasonCode::QUOTA_EXCEEDED);
            }
        }
        Event::Record { token, record } => session_records::told(shard, client, token, record),
        Event::WillDue(_) | Event::Expired => {}
    }
}

/// Most members of a group that may not have a message and are tried all the same.
const MOST_DENIALS: usize = 32;

/// Why a message is dropped.
#[derive(Clone, Copy)]
enum Drop {
    Backlog,
    Denied,
    Ended,
    Session(DropReason),
}

impl Drop {
    /// How many members of a group may be tried before the message is dropped for this reason.
    ///
    /// Members without room are passed over by later messages, so all may be tried. Members that may not have this one
    /// are asked for the next, so their number is bounded. A message that is too large [MQTT-3.1.2-25] or has expired
    /// goes to nobody else.
    fn most_tried(self) -> usize {
        use DropReason::{BacklogFull, Offline, OutsideMountPoint, QueueFull};
        match self {
            Self::Backlog | Self::Ended => usize::MAX,
            Self::Session(QueueFull | BacklogFull | Offline) => usize::MAX,
            Self::Denied | Self::Session(OutsideMountPoint) => MOST_DENIALS,
            Self::Session(_) => 0,
        }
    }
}

fn refusal(
    shard: &Shard,
    client: &Client,
    message: &Message,
    delivery: &Delivery<'_>,
) -> Option<Drop> {
    let limits = &shard.config().limits;
    if limits.outgoing_qos(message.qos(), delivery.qos) == QoS::AtMostOnce
        && let Some(link) = client.link()
        && link.outbox.borrow().len() > limits.qos0_backlog_bytes
    {
        return Some(Drop::Backlog);
    }
    let access = client.access();
    if !access.permissions.checks_deliveries() {
        return None;
    }
    // Deny wins at delivery too, whatever filter the message came through (abuse G07).
    let seen = topic_of(message).is_some_and(|topic| access.permissions.receives(topic));
    (!seen).then_some(Drop::Denied)
}

/// Takes a message that reaches nobody out of the books of the store, and into those of drops.
fn discard(shard: &Rc<Shard>, client: &Rc<Client>, message: &Message, key: u64, reason: Drop) {
    session_records::dropped(shard, client, key);
    dropped(shard, client, message, key, reason);
}

/// A message of a group came too late for a session that ended, and nobody else could take it. One of a plain
/// subscription is as if it had come after its end.
fn book_late(shard: &Shard, message: &Message, target: &Target) {
    if target.choice.is_none() {
        return;
    }
    let (counter, why) = ledger(shard, Drop::Ended);
    counter.add(1);
    shard.log.warn(LogClass::Dropped, shard.now(), || {
        let topic = Escaped(message.topic());
        format!("message for a shared subscription on {topic} dropped: {why}")
    });
}

/// Books a deliberate drop: a counter, a line in the log, an event.
fn dropped(shard: &Rc<Shard>, client: &Rc<Client>, message: &Message, key: u64, reason: Drop) {
    let (counter, why) = ledger(shard, reason);
    counter.add(1);
    let is_acknowledged = key != 0 && message.qos() > QoS::AtMostOnce;
    if is_acknowledged && matches!(reason, Drop::Session(DropReason::QueueFull)) {
        shard.metrics().dropped_acknowledged.add(1);
    }
    if matches!(reason, Drop::Session(DropReason::Offline)) {
        // What QoS 0 means for a session that is away: counted, but nobody's fault.
        return;
    }
    let details = EventDetails {
        topic: Some(message.topic()),
        reason: None,
    };
    shard.tell(EventKind::Dropped, client, details);
    shard.log.warn(LogClass::Dropped, shard.now(), || {
        let (id, topic) = (Escaped(&client.id), Escaped(message.topic()));
        format!("message for client {id} on {topic} dropped: {why}")
    });
}

fn ledger(shard: &Shard, reason: Drop) -> (&Counter, &'static str) {
    let metrics = shard.metrics();
    match reason {
        Drop::Backlog => (&metrics.dropped_qos0_backlog, "the client reads too slowly"),
        Drop::Denied => (&metrics.dropped_denied, "its grant denies the topic"),
        Drop::Ended => (&metrics.dropped_session_ended, "its session ended"),
        Drop::Session(DropReason::BacklogFull) => {
            (&metrics.dropped_qos0_backlog, "the client reads too slowly")
        }
        Drop::Session(DropReason::Offline) => (&metrics.dropped_offline, "QoS 0 and not connected"),
        Drop::Session(DropReason::Revoked) => (
            &metrics.dropped_denied,
            "its grant covers the topic no more",
        ),
        Drop::Session(DropReason::OutsideMountPoint) => (
            &metrics.dropped_denied,
            "its topic is outside of the client's mount point",
        ),
        Drop::Session(DropReason::Expired) => (&metrics.dropped_expired, "it expired"),
        Drop::Session(DropReason::PacketTooLarge) => (
            &metrics.dropped_too_large,
            "larger than the client's Maximum Packet Size",
        ),
        Drop::Session(_) => (&metrics.dropped_queue_full, "its queue is full"),
    }
}
