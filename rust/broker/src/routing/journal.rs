//! What a shard writes to the store, and what waits until it is safe.
//!
//! A shard collects the records of a turn and hands them over at the turn's end, before its mail
//! leaves and before it writes to a socket. The store answers with a ticket; what depends on the
//! records stands in line behind it: promises to clients, and the delivery of what was published
//! at QoS 2 (decisions 2 and 19). Nobody waits for the disk but those. `promise.rs` says how safe
//! is safe enough.

use std::cell::{Cell, RefCell};
use std::num::NonZeroU32;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Instant;

use mqttcore_codec::{PacketId, QoS};
use mqttcore_session::{AckToken, ConnectRequest, Message, Record as Told, WillMessage};
use mqttcore_store::record::{self, Opened, PacketIdsBuf, RecipientsBuf, Record, RowsBuf, WillSet};
use mqttcore_store::{Batch, Level, Pressure};
use mqttcore_topics::{Options, SubscriptionFilter, TopicName};
use smallvec::SmallVec;
use tokio::sync::oneshot;

use crate::clients::client::{Client, KeptWill};
use crate::clients::retained::Retained;
use crate::clients::topic::topic_of;
use crate::config::grants::{Access, RuleAnswer};
use crate::durability::line::{Awaited, Lines, Then};
use crate::durability::store::{Log, PageRequest};
use crate::kafka;
use crate::routing::group::Choice;
use crate::routing::hub::{self, Publication, Target};
use crate::routing::retain::Retention;
use crate::shard::Shard;
use crate::shard::guard::contained;
use crate::streams;

/// One shard's way to the store.
pub(crate) struct Journal {
    log: Arc<Log>,
    /// The records of this turn.
    batch: RefCell<Batch>,
    /// The safest that one of them has to be.
    level: Cell<Level>,
    /// Clients whose promises depend on them.
    promising: RefCell<Vec<Rc<Client>>>,
    /// What else depends on them.
    held: RefCell<Vec<(Level, Then)>>,
    /// What waits for earlier turns' records.
    lines: Lines,
    recipients: RefCell<RecipientsBuf>,
    rows: RefCell<RowsBuf>,
    /// Connections that do not read until the log has room.
    stalled: RefCell<Vec<Waker>>,
}

impl Shard {
    /// Whether the disk is too full for anything new that has to be kept.
    pub(crate) fn is_short_of_room(&self) -> bool {
        let journal = self.journal.as_ref();
        journal.is_some_and(|journal| journal.log.store.pressure() > Pressure::None)
    }
}

impl Journal {
    pub(crate) fn new(log: Arc<Log>, awaited: Arc<Awaited>) -> Self {
        Self {
            log,
            batch: RefCell::default(),
            level: Cell::new(Level::Memory),
            promising: RefCell::default(),
            held: RefCell::default(),
            lines: Lines::new(awaited),
            recipients: RefCell::default(),
            rows: RefCell::default(),
            stalled: RefCell::default(),
        }
    }

    /// Pending while more waits for the disk than should.
    pub(crate) fn poll_room(&self, cx: &Context<'_>) -> Poll<()> {
        if self.log.store.has_room() {
            return Poll::Ready(());
        }
        let mut stalled = self.stalled.borrow_mut();
        if !stalled.iter().any(|waker| waker.will_wake(cx.waker())) {
            stalled.push(cx.waker().clone());
        }
        drop(stalled);
        // It may have become shorter before this one was in the list.
        if self.log.store.has_room() {
            Poll::Ready(())
        } else {
            Poll::Pending
        }
    }

    /// Has those go on that waited for the log.
    fn wake_stalled(&self) {
        if !self.stalled.borrow().is_empty() && self.log.store.has_room() {
            let stalled = std::mem::take(&mut *self.stalled.borrow_mut());
            stalled.iter().for_each(Waker::wake_by_ref);
        }
    }

    fn write(&self, level: Level, record: &Record<'_>) {
        self.level.set(self.level.get().max(level));
        self.batch.borrow_mut().push(record);
    }

    fn after(&self, level: Level, then: Then) {
        self.held.borrow_mut().push((level, then));
    }

    /// The promises of `client` wait until what is written so far is as safe as `level` says.
    pub(crate) fn promise(&self, client: &Rc<Client>, level: Level) {
        if client.standing.ask(level) {
            self.promising.borrow_mut().push(Rc::clone(client));
        }
    }

    /// No delivery was given this number or a higher one so far.
    pub(crate) fn next_number(&self) -> u64 {
        self.log.numbers(0)
    }

    /// Has a page of a queue read; it comes as work for the shard.
    pub(crate) fn read_page(&self, request: PageRequest) {
        self.log.read_page(request);
    }

    /// Has `then` done behind every message that waits to be delivered; gives it back if none does.
    pub(crate) fn after_deliveries(&self, then: Box<dyn FnOnce()>) -> Option<Box<dyn FnOnce()>> {
        let Some(level) = self.lines.delivering() else {
            return Some(then);
        };
        self.after(level.max(Level::Os), Then::Call(then));
        None
    }

    /// Whether something that waited can be done: its records became safe before it stood in line.
    pub(crate) fn is_due(&self) -> bool {
        self.lines.is_due(&self.log)
    }

    /// Hands the records of this turn over, and lines up what depends on them.
    pub(crate) fn commit(&self) {
        let mut promising = self.promising.borrow_mut();
        let mut held = self.held.borrow_mut();
        let mut batch = self.batch.borrow_mut();
        if !batch.is_empty() {
            // Who stands behind something safer waits for that level, and so does what it depends on.
            let clients = promising
                .iter()
                .filter_map(|client| client.standing.level());
            let others = held.iter().map(|(level, _)| *level);
            let level = self.level.replace(Level::Memory);
            let level = clients.chain(others).fold(level, Level::max);
            self.lines
                .advance_to(self.log.append(&mut batch, level), level);
        }
        for client in promising.drain(..) {
            let level = client.standing.stand();
            let token = client.session.borrow().last_token();
            let record = client.kafka();
            self.lines.push(level, Then::Confirm(client, token, record));
        }
        for (level, then) in held.drain(..) {
            self.lines.push(level, then);
        }
    }
}

/// Does what waited for tickets that are safe by now.
pub(crate) fn advance(shard: &Rc<Shard>) {
    let Some(journal) = &shard.journal else {
        return;
    };
    while let Some(then) = journal.lines.next_safe(&journal.log) {
        // One that fails must not keep the others waiting.
        contained(shard, "what waited for the store", || {
            go_on(shard, journal, then);
        });
    }
    journal.wake_stalled();
}

fn go_on(shard: &Rc<Shard>, journal: &Journal, then: Then) {
    match then {
        Then::Confirm(client, token, record) => {
            client.standing.leave();
            kafka::let_leave(shard, &client, token, record);
            client.flush_session(shard);
        }
        Then::Deliver(message, targets) => {
            journal.lines.delivered();
            hub::deal(shard, &message, targets.into_iter());
        }
        Then::Call(call) => call(),
    }
}

/// The journal, and the number that the store keeps the session of `client` under.
fn kept<'s>(shard: &'s Shard, client: &Client) -> Option<(&'s Journal, u64)> {
    shard.journal.as_ref().zip(client.number(&shard.world))
}

/// Writes what a publish leaves behind, and numbers the deliveries to durable sessions. What is
/// retained is handed over at once, while it is this shard's turn: so the log has the order of
/// memory.
///
/// The publisher's promise then waits for it. Answers how safe it has to be before it is delivered,
/// if that has to wait: it is of QoS 2, and it, its PUBREC or an earlier one that it must not
/// overtake is not safe yet.
pub(crate) fn published(
    shard: &Shard,
    publication: &Publication<'_>,
    targets: &mut [Target],
) -> Option<Level> {
    let journal = shard.journal.as_ref()?;
    let level = level_of(shard, publication.publisher, publication.topic);
    let is_written = write_publish(shard, journal, publication, level, targets);
    if let Some(publisher) = publication.publisher.filter(|_| is_written) {
        journal.promise(publisher, level);
    }
    if publication.retaining.turn.is_some() {
        journal.commit();
    }
    let is_exact = publication.message.qos() == QoS::ExactlyOnce;
    let own = is_written.then_some(level);
    let publisher = publication.publisher;
    let promised = publisher.and_then(|client| client.standing.level());
    own.max(promised)
        .max(journal.lines.delivering())
        .filter(|_| is_exact)
}

/// How safe a publish has to be before it is acknowledged.
pub(crate) fn level_of(
    shard: &Shard,
    publisher: Option<&Rc<Client>>,
    topic: TopicName<'_>,
) -> Level {
    let config = shard.config();
    let publisher = publisher.map_or_else(|| config.promise(), |client| client.promise.get());
    config.promise_on(topic, publisher)
}

/// Whether the disk is too full for a publish with these targets, which would leave something behind.
/// What clears a retained message makes room, so it is always taken.
pub(crate) fn lacks_room(shard: &Shard, publication: &Publication<'_>, targets: &[Target]) -> bool {
    let qos = publication.message.qos();
    let is_clearing = publication.retaining.outcome == Retention::Cleared;
    if qos == QoS::AtMostOnce || is_clearing || !shard.is_short_of_room() {
        return false;
    }
    if targets
        .iter()
        .any(|target| target.handle.stream().is_some())
    {
        return true;
    }
    let is_for_kept = |target: &Target| {
        target.qos > QoS::AtMostOnce && shard.world.durable.number(target.handle).is_some()
    };
    let level = level_of(shard, publication.publisher, publication.topic);
    level > Level::Memory
        && (publication.gate(&shard.world).is_some() || targets.iter().any(is_for_kept))
}

/// Whether the disk is too full to retain `message`, which would have to be kept.
pub(crate) fn lacks_room_to_retain(
    shard: &Shard,
    publisher: Option<&Rc<Client>>,
    topic: TopicName<'_>,
    message: &Message,
) -> bool {
    message.retain()
        && !message.payload().is_empty()
        && shard.is_short_of_room()
        && level_of(shard, publisher, topic) > Level::Memory
}

/// Notes something that is true with what else is written in this turn.
pub(crate) fn note(shard: &Shard, key: &str, value: &[u8]) {
    if let Some(journal) = &shard.journal {
        let level = shard.config().promise().max(Level::Os);
        journal.write(level, &Record::Note { key, value });
    }
}

/// Calls `then` once all that was handed over so far is as safe as it has to be, and Kafka has said
/// what became of its part.
pub(crate) fn when_safe(shard: &Rc<Shard>, then: Box<dyn FnOnce()>) {
    when_stored(shard, kafka::when_kept(shard, then));
}

/// Calls `then` once all that `client` was promised so far is safe.
pub(crate) fn when_promised(shard: &Rc<Shard>, client: &Client, then: Box<dyn FnOnce()>) {
    let then = kafka::when_kept(shard, then);
    match shard.journal.as_ref().zip(client.standing.level()) {
        Some((journal, level)) => journal.after(level, Then::Call(then)),
        None => then(),
    }
}

/// [`when_safe`] without Kafka.
fn when_stored(shard: &Rc<Shard>, then: Box<dyn FnOnce()>) {
    match &shard.journal {
        Some(journal) => {
            journal.lines.push_last(Then::Call(then));
            advance(shard);
        }
        None => then(),
    }
}

/// Waits until all that the store was handed so far is as safe as it has to be.
pub(crate) async fn all_safe(shard: &Rc<Shard>) {
    let (sender, safe) = oneshot::channel();
    let tell = move || {
        // The connection that waits may have been cut off.
        let _ = sender.send(());
    };
    when_stored(shard, Box::new(tell));
    let _ = safe.await;
}

/// Has `message` delivered once all that is written so far is as safe as `level` says.
pub(crate) fn hold(shard: &Shard, level: Level, message: &Message, targets: Vec<Target>) {
    let Some(journal) = &shard.journal else {
        return;
    };
    journal.lines.deliver_at(level);
    let mut message = message.clone();
    message.release_chunk();
    journal.after(level, Then::Deliver(message, targets));
}

fn write_publish(
    shard: &Shard,
    journal: &Journal,
    publication: &Publication<'_>,
    level: Level,
    targets: &mut [Target],
) -> bool {
    let message = publication.message;
    let mut rows = journal.rows.borrow_mut();
    streams::list_rows(shard, publication, targets, &mut rows);
    let retaining = &publication.retaining;
    if level == Level::Memory {
        if retaining.was_stored {
            // What the store has is not retained any more.
            let topic = message.topic();
            journal.write(level, &Record::RetainCleared { topic });
        }
        write_rows(shard, journal, publication, &rows);
        return false;
    }
    let retention = retaining.outcome;
    let is_waited_for = message.qos() > QoS::AtMostOnce || retention != Retention::None;
    if !is_waited_for && !shard.config().limits.upgrade_outgoing_qos {
        write_rows(shard, journal, publication, &rows);
        return false;
    }
    let mut recipients = journal.recipients.borrow_mut();
    let first = number_deliveries(
        shard,
        journal,
        (publication, level),
        targets,
        &mut recipients,
    );
    let gate = publication.gate(&shard.world);
    if retention == Retention::Cleared {
        let topic = message.topic();
        journal.write(level, &Record::RetainCleared { topic });
    }
    let is_kept = retention == Retention::Kept;
    if recipients.is_empty() && !is_kept && rows.is_empty() {
        if let Some((session, packet_id)) = gate {
            journal.write(level, &Record::Gate { session, packet_id });
        }
        return gate.is_some() || retention == Retention::Cleared;
    }
    let publisher = publication.publisher;
    let login = publisher.filter(|_| is_kept).map(|client| client.login());
    let record = record::Message {
        kept: is_kept,
        username: login.as_ref().and_then(|login| login.username.as_deref()),
        gate,
        source: publisher
            .filter(|_| is_kept || !rows.is_empty())
            .map(|client| &*client.id),
        streamed: streams::streamed(message, &rows),
        ..message_record(shard, first, message, &recipients)
    };
    let level = if is_waited_for { level } else { Level::Memory };
    journal.write(level, &Record::Message(record));
    is_waited_for
}

/// Writes what is kept as rows alone: nobody waits for it.
fn write_rows(shard: &Shard, journal: &Journal, publication: &Publication<'_>, rows: &RowsBuf) {
    if rows.is_empty() {
        return;
    }
    let message = publication.message;
    let nobody = RecipientsBuf::default();
    let record = record::Message {
        source: publication.publisher.map(|client| &*client.id),
        streamed: streams::streamed(message, rows),
        ..message_record(shard, journal.log.numbers(1), message, &nobody)
    };
    journal.write(Level::Memory, &Record::Message(record));
}

/// Gives each delivery to a durable session above QoS 0 a number, and lists them; returns the first.
fn number_deliveries(
    shard: &Shard,
    journal: &Journal,
    (publication, level): (&Publication<'_>, Level),
    targets: &mut [Target],
    recipients: &mut RecipientsBuf,
) -> u64 {
    let message = publication.message;
    recipients.clear();
    // A queue comes back in the order of its numbers: no shard may have a stock of them.
    let first = journal.log.numbers(targets.len().max(1) as u64);
    for target in targets.iter_mut().filter(|target| !target.is_stream()) {
        let session = kept_target(shard, message, target);
        if let Some(choice) = &mut target.choice {
            (choice.level, choice.message) = (level, first);
            choice.session = session.unwrap_or(0);
        }
        if let Some(session) = session {
            let qos = outgoing_qos(shard, message, target.qos);
            target.key = first + recipients.len();
            target.may_exceed = publication.is_refused_when_full;
            recipients.push(
                session,
                qos as u8,
                target.retain,
                &plain(&target.subscription_ids),
            );
        }
    }
    first
}

/// The session that the store keeps a delivery for, if for one. A QoS 0 publish that was upgraded is not kept on a disk
/// that is nearly full: nobody was promised anything.
fn kept_target(shard: &Shard, message: &Message, target: &Target) -> Option<u64> {
    let is_lossy = message.qos() == QoS::AtMostOnce && shard.is_short_of_room();
    let is_kept = outgoing_qos(shard, message, target.qos) > QoS::AtMostOnce && !is_lossy;
    let session = shard.world.durable.number(target.handle);
    session.filter(|_| is_kept)
}

fn outgoing_qos(shard: &Shard, message: &Message, granted: QoS) -> QoS {
    let limits = &shard.config().limits;
    limits.outgoing_qos(message.qos(), granted)
}

/// Whether the store would keep the delivery for a session whose queue is full, and that may receive it.
pub(crate) fn lacks_queue_room(
    shard: &Shard,
    topic: TopicName<'_>,
    message: &Message,
    target: &Target,
) -> bool {
    let durable = &shard.world.durable;
    kept_target(shard, message, target).is_some()
        && durable.is_full(target.handle)
        && durable.receives(target.handle, topic)
}

/// Writes that a delivery goes to another member of its group, in one batch with its end at the one that refused it.
/// What the store has is not written again.
///
/// Answers how safe that has to be before it is delivered, if that has to wait: as in [`published`].
pub(crate) fn moved(
    shard: &Shard,
    refused: Option<&Rc<Client>>,
    message: &Message,
    key: u64,
    (next, choice): (&mut Target, &mut Choice),
) -> Option<Level> {
    let journal = shard.journal.as_ref()?;
    let had =
        |client: &&Rc<Client>| key != 0 && client.number(&shard.world) == Some(choice.session);
    let had = refused.filter(had);
    let session = kept_target(shard, message, next).filter(|_| choice.level > Level::Memory);
    if let Some(session) = session {
        let (qos, ids) = (
            outgoing_qos(shard, message, next.qos) as u8,
            plain(&next.subscription_ids),
        );
        let mut recipients = journal.recipients.borrow_mut();
        recipients.clear();
        recipients.push(session, qos, next.retain, &ids);
        next.key = journal.log.numbers(1);
        let record = if had.is_some() {
            Record::Route {
                message: choice.message,
                first: next.key,
                recipients: recipients.as_recipients(),
            }
        } else {
            choice.message = next.key;
            Record::Message(message_record(shard, next.key, message, &recipients))
        };
        journal.write(choice.level, &record);
    }
    choice.session = session.unwrap_or(0);
    if let Some(client) = had {
        dropped(shard, client, key);
    }
    let is_written = session.is_some() || had.is_some();
    let own = is_written.then_some(choice.level);
    let is_exact = message.qos() == QoS::ExactlyOnce;
    own.max(journal.lines.delivering()).filter(|_| is_exact)
}

fn message_record<'a>(
    shard: &Shard,
    number: u64,
    message: &'a Message,
    recipients: &'a RecipientsBuf,
) -> record::Message<'a> {
    record::Message {
        message: number,
        qos: message.qos() as u8,
        retain: message.retain(),
        kept: false,
        gate: None,
        expires_at_ms: message.expires_at().map(|at| kept_ms(shard, at)),
        source: None,
        username: None,
        streamed: None,
        topic: message.topic(),
        properties: message.properties().as_bytes(),
        recipients: recipients.as_recipients(),
        payload: message.payload(),
    }
}

/// Writes a retained message that a new subscription of `client` gets; returns the number of the
/// delivery.
pub(crate) fn replayed(
    shard: &Shard,
    client: &Client,
    retained: &Retained,
    qos: QoS,
    id: Option<NonZeroU32>,
) -> u64 {
    let message = &retained.message;
    let qos = outgoing_qos(shard, message, qos);
    let durable = kept(shard, client);
    let is_stored = qos > QoS::AtMostOnce && retained.is_stored;
    let Some((journal, session)) = durable.filter(|_| is_stored) else {
        return 0;
    };
    let number = journal.log.numbers(1);
    let mut recipients = journal.recipients.borrow_mut();
    recipients.clear();
    recipients.push(session, qos as u8, true, &plain(id.as_slice()));
    let record = message_record(shard, number, message, &recipients);
    journal.write(client.kept_at(), &Record::Message(record));
    number
}

/// A session is kept from now on, or is no longer; true if the store has not heard of it yet.
pub(crate) fn keep(shard: &Shard, client: &Rc<Client>, durable: bool) -> bool {
    let Some(journal) = &shard.journal else {
        return false;
    };
    let is_new = durable && client.number(&shard.world).is_none();
    if is_new {
        client.set_number(&shard.world, journal.log.session_number());
    } else if !durable {
        ended(shard, client);
    }
    is_new
}

/// Writes what a session has that lived in memory alone so far, behind [`opened`]: subscriptions,
/// and the identifiers that stand for messages. The messages themselves were never kept.
pub(crate) fn adopted(shard: &Shard, client: &Rc<Client>) {
    let Some((journal, session)) = kept(shard, client) else {
        return;
    };
    let (held, level) = (client.session.borrow(), client.kept_at());
    for subscription in held.subscriptions() {
        subscribed(shard, client, &subscription.filter, subscription.options);
    }
    for packet_id in held.unreleased_ids().map(PacketId::get) {
        journal.write(level, &Record::Gate { session, packet_id });
    }
    for packet_id in held.exactly_once_ids().map(PacketId::get) {
        journal.write(level, &Record::Received { session, packet_id });
    }
}

/// Whether the will of a client whose session ends with its connection is kept: all that of its client
/// lives in memory alone is not, nor is it while the disk is nearly full.
pub(crate) fn keeps_will(
    shard: &Shard,
    promise: Level,
    access: &Access,
    request: &ConnectRequest,
) -> bool {
    let has_room = shard.journal.is_some() && !shard.is_short_of_room();
    has_room && promise > Level::Memory && will_of(access, request).is_some()
}

/// The will that a client brings, if it may publish it.
fn will_of<'r>(access: &Access, request: &'r ConnectRequest) -> Option<&'r WillMessage> {
    let may_publish = |will: &&WillMessage| {
        let topic = topic_of(&will.message);
        topic.is_some_and(|topic| access.permissions.publish(topic) == RuleAnswer::Allowed)
    };
    request.will.as_deref().filter(may_publish)
}

/// Writes what a connection makes of a kept session, and its will, if that `keeps_will` or belongs to such a
/// session; CONNACK waits for it.
pub(crate) fn opened(
    shard: &Shard,
    client: &Rc<Client>,
    request: &ConnectRequest,
    keeps_will: bool,
) {
    let Some(journal) = &shard.journal else {
        return;
    };
    let own = client.number(&shard.world);
    let (session, place) = match own {
        Some(session) => (session, KeptWill::InSession),
        None if keeps_will => {
            let session = journal.log.session_number();
            shard.world.durable.set_will_alone(client.handle, session);
            (session, KeptWill::Alone)
        }
        None => return,
    };
    let (login, level) = (client.login(), client.kept_at());
    let opened = Opened {
        session,
        at_ms: kept_ms(shard, shard.now()),
        version: login.version.level(),
        expiry_s: client.session.borrow().expiry_interval_s(),
        client_id: &client.id,
        username: login.username.as_deref(),
    };
    journal.write(level, &Record::Opened(opened));
    match will_of(&client.access(), request) {
        Some(will) => {
            let will = WillSet {
                session,
                delay_s: will.delay_s,
                qos: will.message.qos() as u8,
                retain: will.message.retain(),
                topic: will.message.topic(),
                properties: will.message.properties().as_bytes(),
                payload: will.message.payload(),
            };
            journal.write(level, &Record::WillSet(will));
            client.kept_will.set(place);
        }
        None => will_ended(shard, client),
    }
    journal.promise(client, level);
}

/// Writes that the retained messages of these topics are over, before anybody replaces one.
pub(crate) fn expired(shard: &Shard, topics: &[String]) {
    if let Some(journal) = &shard.journal {
        for topic in topics {
            journal.write(Level::Memory, &Record::RetainCleared { topic });
        }
        journal.commit();
    }
}

/// Writes that a kept session is without a connection: its time runs from now on, through any
/// number of crashes. If nobody saw the end of the connection, what waits with a number below `maybe_sent_below` may
/// have been sent.
pub(crate) fn away(shard: &Shard, client: &Client, maybe_sent_below: u64) {
    if let Some((journal, session)) = kept(shard, client) {
        let away = Record::Away {
            session,
            at_ms: kept_ms(shard, shard.now()),
            expiry_s: client.session.borrow().expiry_interval_s(),
            maybe_sent_below,
        };
        journal.write(client.kept_at(), &away);
    }
}

/// Writes that the connection of a kept session ended, and its will if it is forgotten.
pub(crate) fn left(shard: &Shard, client: &Rc<Client>) {
    away(shard, client, 0);
    if client.session.borrow().will().is_none() {
        will_ended(shard, client);
    }
}

/// Writes that a kept will was published or cancelled.
pub(crate) fn will_ended(shard: &Shard, client: &Client) {
    let Some(journal) = &shard.journal else {
        return;
    };
    let own = client.number(&shard.world);
    let alone = shard.world.durable.will_alone(client.handle);
    let record = match (client.kept_will.take(), own, alone) {
        (KeptWill::Alone, _, Some(session)) => {
            shard.world.durable.set(client.handle, 0);
            Record::Ended { session }
        }
        (KeptWill::InSession, Some(session), _) => Record::WillEnded { session },
        _ => return,
    };
    journal.write(client.kept_at(), &record);
}

/// Writes that a kept session ended: nothing of it is left.
pub(crate) fn ended(shard: &Shard, client: &Client) {
    if let Some((journal, session)) = kept(shard, client) {
        journal.write(client.kept_at(), &Record::Ended { session });
        client.set_number(&shard.world, 0);
    }
}

/// Writes a granted subscription; SUBACK waits for it.
pub(crate) fn subscribed(
    shard: &Shard,
    client: &Rc<Client>,
    filter: &SubscriptionFilter,
    options: Options,
) {
    let Some((journal, session)) = kept(shard, client) else {
        return;
    };
    let subscribed = Record::Subscribed {
        session,
        filter: filter.as_str(),
        options: pack(options),
        id: options.id.map_or(0, NonZeroU32::get),
    };
    journal.write(client.kept_at(), &subscribed);
    journal.promise(client, client.kept_at());
}

/// Writes that a subscription ended; UNSUBACK waits for it.
pub(crate) fn unsubscribed(shard: &Shard, client: &Rc<Client>, filter: &SubscriptionFilter) {
    let Some((journal, session)) = kept(shard, client) else {
        return;
    };
    let filter = filter.as_str();
    journal.write(client.kept_at(), &Record::Unsubscribed { session, filter });
    journal.promise(client, client.kept_at());
}

fn plain(ids: &[NonZeroU32]) -> SmallVec<[u32; 2]> {
    ids.iter().map(|id| id.get()).collect()
}

/// QoS in two bits, No Local, Retain As Published; as in the Subscription Options of SUBSCRIBE.
fn pack(options: Options) -> u8 {
    options.qos as u8 | u8::from(options.no_local) << 2 | u8::from(options.retain_as_published) << 3
}

/// What [`pack`] made of the options of a subscription with this identifier.
pub(crate) fn unpack(packed: u8, id: u32) -> Options {
    Options {
        qos: QoS::try_from(packed & 0b11).unwrap_or_default(),
        no_local: packed & 1 << 2 != 0,
        retain_as_published: packed & 1 << 3 != 0,
        id: NonZeroU32::new(id),
    }
}

/// A moment of the monotonic clock as what is kept has it.
fn kept_ms(shard: &Shard, at: Instant) -> u64 {
    let log = shard.world.log.as_ref();
    log.map_or(0, |log| log.clock.unix_ms(at))
}

/// Writes what the session of `client` told; promises that wait for it stand in line.
pub(crate) fn told(shard: &Shard, client: &Rc<Client>, token: Option<AckToken>, record: Told) {
    let Some((journal, session)) = kept(shard, client) else {
        return;
    };
    let mut ended = PacketIdsBuf::default();
    let record = match record {
        // The message was never kept. After a crash only its identifier counts: the client may have
        // it, and must not take another message for a repeat.
        Told::Sending {
            packet_id, key: 0, ..
        } => Record::Received {
            session,
            packet_id: packet_id.get(),
        },
        Told::Sending { packet_id, key, .. } => Record::Sending {
            session,
            delivery: key,
            packet_id: packet_id.get(),
        },
        Told::Received { packet_id, .. } => Record::Received {
            session,
            packet_id: packet_id.get(),
        },
        Told::Completed { packet_id } => {
            ended.push(packet_id.get());
            Record::Completed {
                session,
                packet_ids: ended.as_packet_ids(),
            }
        }
        Told::Released { packet_id } => Record::Released {
            session,
            packet_id: packet_id.get(),
        },
    };
    journal.write(client.kept_at(), &record);
    if token.is_some() {
        journal.promise(client, client.kept_at());
    }
}

/// Writes that a delivery to `client` ended in a drop; later messages of its session wait for that.
pub(crate) fn dropped(shard: &Shard, client: &Rc<Client>, delivery: u64) {
    if let Some((journal, session)) = kept(shard, client)
        && delivery != 0
    {
        journal.write(client.kept_at(), &Record::Dropped { session, delivery });
        if client.is_online() {
            journal.promise(client, client.kept_at());
        }
    }
}
