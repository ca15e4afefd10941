//! Writes the records of messages before their deliveries, and says which durability a delivery waits for.

use std::num::NonZeroU32;
use std::rc::Rc;

use mqttcore_codec::QoS;
use mqttcore_session::Message;
use mqttcore_store::Durability;
use mqttcore_store::record::{self, RecipientsBuf, Record, RowRefsBuf};

use crate::clients::client::Client;
use crate::clients::handle::RowStream;
use crate::clients::retained::RetainedMessage;
use crate::clients::target::{GroupState, Target};
use crate::durability::journal::ShardLogWriter;
use crate::routing::publication::{Publication, Retention};
use crate::routing::records::{kept, kept_ms, plain};
use crate::routing::session_records::write_dropped;
use crate::routing::{external, queue_policy, rows};
use crate::shard::Shard;

/// Makes the records of a publish for external logs and for the store, and numbers the deliveries
/// to durable sessions. The record of a retained message is handed over while its topic is
/// locked, so that the log has the same order as memory.
///
/// The acknowledgement waits for the record. Returns the durability that delivery has to wait for,
/// or `None`. Delivery waits only at QoS 2, if this record, its PUBREC or an earlier message that
/// it must not overtake is not safe yet.
pub(crate) fn write_published(
    shard: &Shard,
    publication: &Publication<'_>,
    targets: &mut [Target],
) -> Option<Durability> {
    external::produce(shard, publication, targets);
    let journal = shard.journal.as_ref()?;
    let durability = durability_of(shard, publication);
    let is_written = write_publish(shard, journal, publication, durability, targets);
    if let Some(publisher) = publication.publisher.filter(|_| is_written) {
        journal.hold_acknowledgement(publisher, durability);
    }
    if publication.retaining.lock.is_some() {
        journal.commit();
    }
    let is_exact = publication.message.qos() == QoS::ExactlyOnce;
    let own = is_written.then_some(durability);
    let publisher = publication.publisher;
    let acknowledging = publisher.and_then(|client| client.ack_order.durability());
    own.max(acknowledging)
        .max(journal.ack_queues.durability_of_deliveries())
        .filter(|_| is_exact)
}

/// The durability that a publish needs before it is acknowledged.
pub(crate) fn durability_of(shard: &Shard, publication: &Publication<'_>) -> Durability {
    let (config, publisher) = (shard.config(), publication.publisher);
    let publisher = publisher.map_or_else(|| config.durability(), |client| client.durability());
    config.durability_on(publication.topic, publisher)
}

/// Whether a publish with these targets needs a record and the disk is too full for it.
pub(crate) fn lacks_room(shard: &Shard, publication: &Publication<'_>, targets: &[Target]) -> bool {
    let qos = publication.message.qos();
    if qos == QoS::AtMostOnce || !shard.is_short_of_room() {
        return false;
    }
    if targets
        .iter()
        .any(|target| matches!(target.handle.row_stream(), Some(RowStream::Stored(_))))
    {
        return true;
    }
    let is_for_kept = |target: &Target| {
        target.qos > QoS::AtMostOnce && shard.engine.durable.number(target.handle).is_some()
    };
    let durability = durability_of(shard, publication);
    durability > Durability::Memory
        && (publication.exactly_once_key(&shard.engine).is_some()
            || targets.iter().any(is_for_kept))
}

/// Whether a retained message must be stored and the disk is too full for it.
pub(crate) fn lacks_room_to_retain(shard: &Shard, publication: &Publication<'_>) -> bool {
    let message = publication.message;
    message.retain()
        && !message.payload().is_empty()
        && shard.is_short_of_room()
        && durability_of(shard, publication) > Durability::Memory
}

/// Returns whether the acknowledgement has to wait for a record.
fn write_publish(
    shard: &Shard,
    journal: &ShardLogWriter,
    publication: &Publication<'_>,
    durability: Durability,
    targets: &mut [Target],
) -> bool {
    let retaining = &publication.retaining;
    let mut rows = journal.rows.borrow_mut();
    rows::list_rows(shard, publication, targets, &mut rows);
    let is_cleared = if durability == Durability::Memory {
        // The message in the store is not retained any more.
        retaining.was_stored
    } else {
        retaining.outcome == Retention::Cleared
    };
    if is_cleared {
        let topic = publication.topic.as_str();
        journal.write(durability, &Record::RetainCleared { topic });
    }
    if !records_deliveries(shard, publication, durability) {
        write_rows(shard, journal, publication, &rows);
        return false;
    }
    let is_waited_for = publication.is_waited_for();
    let is_written = write_deliveries(shard, journal, (publication, durability), targets, &rows);
    is_waited_for && (is_written || is_cleared)
}

fn records_deliveries(
    shard: &Shard,
    publication: &Publication<'_>,
    durability: Durability,
) -> bool {
    let is_upgraded = shard.config().limits.upgrade_outgoing_qos;
    durability > Durability::Memory && (publication.is_waited_for() || is_upgraded)
}

/// Sets the fields of a target that depend on the store, as [`write_published`] would, but writes nothing: a delivery
/// that would get a number gets the key 1.
pub(crate) fn foresee_record(shard: &Shard, publication: &Publication<'_>, target: &mut Target) {
    let durability = durability_of(shard, publication);
    let is_recorded = shard.journal.is_some()
        && records_deliveries(shard, publication, durability)
        && kept_target(shard, publication.message, target).is_some();
    target.key = u64::from(is_recorded);
    target.may_exceed = is_recorded && queue_policy::is_refused_when_full(shard, publication);
}

/// Writes a publish with its deliveries to durable sessions, or its packet identifier alone; returns whether there was
/// something to write.
fn write_deliveries(
    shard: &Shard,
    journal: &ShardLogWriter,
    (publication, durability): (&Publication<'_>, Durability),
    targets: &mut [Target],
    rows: &RowRefsBuf,
) -> bool {
    let mut recipients = journal.recipients.borrow_mut();
    let first = number_deliveries(
        shard,
        journal,
        (publication, durability),
        targets,
        &mut recipients,
    );
    let exactly_once = publication.exactly_once_key(&shard.engine);
    let kept = publication.retaining.outcome == Retention::Kept;
    if recipients.is_empty() && !kept && rows.is_empty() {
        if let Some((session, packet_id)) = exactly_once {
            journal.write(durability, &Record::ExactlyOnceKey { session, packet_id });
        }
        return exactly_once.is_some();
    }
    let is_waited_for = publication.is_waited_for();
    let durability = if is_waited_for {
        durability
    } else {
        Durability::Memory
    };
    let record = message_record(shard, first, publication.message, &recipients);
    let record = record::MessageRecord {
        kept,
        exactly_once,
        ..record
    };
    write_message(journal, durability, publication, record, rows);
    true
}

/// Writes the record of a publish. It names the publisher if the message becomes a retained message or a row.
fn write_message(
    journal: &ShardLogWriter,
    durability: Durability,
    publication: &Publication<'_>,
    record: record::MessageRecord<'_>,
    rows: &RowRefsBuf,
) {
    let is_kept = record.kept;
    let publisher = publication.publisher;
    let login = publisher.filter(|_| is_kept).map(|client| client.login());
    let source = publisher.filter(|_| is_kept || !rows.is_empty());
    let record = record::MessageRecord {
        username: login.as_ref().and_then(|login| login.username.as_deref()),
        source: source.map(|client| &*client.id),
        streamed: rows::streamed(publication.message, rows),
        ..record
    };
    journal.write(durability, &Record::Message(record));
}

/// Writes a message that is stored as rows only; no acknowledgement waits for it.
fn write_rows(
    shard: &Shard,
    journal: &ShardLogWriter,
    publication: &Publication<'_>,
    rows: &RowRefsBuf,
) {
    if rows.is_empty() {
        return;
    }
    let nobody = RecipientsBuf::default();
    let number = journal.log.numbers(1);
    let record = message_record(shard, number, publication.message, &nobody);
    write_message(journal, Durability::Memory, publication, record, rows);
}

/// Gives each delivery to a durable session above QoS 0 a number, and lists them; returns the first.
fn number_deliveries(
    shard: &Shard,
    journal: &ShardLogWriter,
    (publication, durability): (&Publication<'_>, Durability),
    targets: &mut [Target],
    recipients: &mut RecipientsBuf,
) -> u64 {
    let message = publication.message;
    let may_exceed = queue_policy::is_refused_when_full(shard, publication);
    recipients.clear();
    // Queues are restored in the order of these numbers, so no shard may allocate them in
    // advance.
    let first = journal.log.numbers(targets.len().max(1) as u64);
    for target in targets.iter_mut().filter(|target| !target.is_stream()) {
        let session = kept_target(shard, message, target);
        if let Some(choice) = &mut target.choice {
            let choice = choice.state_mut();
            (choice.durability, choice.message) = (durability, first);
            choice.session = session.unwrap_or(0);
        }
        if let Some(session) = session {
            let qos = outgoing_qos(shard, message, target.qos);
            target.key = first + recipients.len();
            target.may_exceed = may_exceed;
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

/// The session for which the store keeps a delivery; `None` if it does not keep it. If the disk is nearly full,
/// upgraded QoS 0 messages are not kept: no acknowledgement depends on them.
fn kept_target(shard: &Shard, message: &Message, target: &Target) -> Option<u64> {
    let is_lossy = message.qos() == QoS::AtMostOnce && shard.is_short_of_room();
    let is_kept = outgoing_qos(shard, message, target.qos) > QoS::AtMostOnce && !is_lossy;
    let session = shard.engine.durable.number(target.handle);
    session.filter(|_| is_kept)
}

fn outgoing_qos(shard: &Shard, message: &Message, granted: QoS) -> QoS {
    let limits = &shard.config().limits;
    limits.outgoing_qos(message.qos(), granted)
}

/// Whether the store would keep the delivery, the session's queue is full, and the session may receive the message.
pub(crate) fn lacks_queue_room(
    shard: &Shard,
    publication: &Publication<'_>,
    target: &Target,
) -> bool {
    let durable = &shard.engine.durable;
    kept_target(shard, publication.message, target).is_some()
        && durable.is_full(target.handle)
        && durable.receives(target.handle, publication.topic)
}

/// Writes that a delivery moves to another member of its group, and in the same batch that it has
/// ended at the member that refused it. A message that is in the store is not written again.
///
/// Returns the durability that delivery has to wait for, like [`write_published`].
pub(crate) fn write_requeued(
    shard: &Shard,
    refused: Option<&Rc<Client>>,
    message: &Message,
    key: u64,
    (next, choice): (&mut Target, &mut GroupState),
) -> Option<Durability> {
    let journal = shard.journal.as_ref()?;
    let had =
        |client: &&Rc<Client>| key != 0 && client.number(&shard.engine) == Some(choice.session);
    let had = refused.filter(had);
    let session =
        kept_target(shard, message, next).filter(|_| choice.durability > Durability::Memory);
    if let Some(session) = session {
        write_moved(
            shard,
            journal,
            message,
            session,
            had.is_some(),
            (next, choice),
        );
    }
    choice.session = session.unwrap_or(0);
    if let Some(client) = had {
        write_dropped(shard, client, key);
    }
    let is_written = session.is_some() || had.is_some();
    let own = is_written.then_some(choice.durability);
    let is_exact = message.qos() == QoS::ExactlyOnce;
    own.max(journal.ack_queues.durability_of_deliveries())
        .filter(|_| is_exact)
}

/// Writes the delivery to the next member of a group; `is_there`: the store has the message.
fn write_moved(
    shard: &Shard,
    journal: &ShardLogWriter,
    message: &Message,
    session: u64,
    is_there: bool,
    (next, choice): (&mut Target, &mut GroupState),
) {
    let qos = outgoing_qos(shard, message, next.qos) as u8;
    let mut recipients = journal.recipients.borrow_mut();
    recipients.clear();
    recipients.push(session, qos, next.retain, &plain(&next.subscription_ids));
    next.key = journal.log.numbers(1);
    let record = if is_there {
        Record::Route {
            message: choice.message,
            first: next.key,
            recipients: recipients.as_recipients(),
        }
    } else {
        choice.message = next.key;
        Record::Message(message_record(shard, next.key, message, &recipients))
    };
    journal.write(choice.durability, &record);
}

fn message_record<'a>(
    shard: &Shard,
    number: u64,
    message: &'a Message,
    recipients: &'a RecipientsBuf,
) -> record::MessageRecord<'a> {
    record::MessageRecord {
        message: number,
        qos: message.qos() as u8,
        retain: message.retain(),
        kept: false,
        exactly_once: None,
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
pub(crate) fn write_replayed(
    shard: &Shard,
    client: &Client,
    retained: &RetainedMessage,
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
