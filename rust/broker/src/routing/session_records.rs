//! Records of sessions: their begin and end, their subscriptions, and the steps of their QoS exchanges.

use std::num::NonZeroU32;
use std::rc::Rc;

use mqttcore_codec::{PacketId, QoS};
use mqttcore_session::{AckToken, ConnectRequest, ExchangeRecord, WillMessage};
use mqttcore_store::Durability;
use mqttcore_store::record::{Away, PacketIdRunsBuf, Record, SessionOpened, WillSet};
use mqttcore_topics::{Options, SubscriptionFilter};

use crate::clients::client::{Client, KeptWill};
use crate::config::permissions::{CompiledGrant, RuleAnswer};
use crate::routing::records::{kept, kept_ms};
use crate::shard::Shard;

/// Allocates or frees the number of a session in the store; true if the session has no record
/// yet.
pub(crate) fn keep(shard: &Shard, client: &Rc<Client>, durable: bool) -> bool {
    let Some(journal) = &shard.journal else {
        return false;
    };
    let is_new = durable && client.number(&shard.engine).is_none();
    if is_new {
        client.set_number(&shard.engine, journal.log.session_number());
    } else if !durable {
        write_session_end(shard, client);
    }
    is_new
}

/// Records the state of a session that was in memory only, after [`opened`]: subscriptions, and the identifiers that
/// stand for messages. The messages themselves were never stored.
pub(crate) fn write_adopted_session(shard: &Shard, client: &Rc<Client>) {
    let Some((journal, session)) = kept(shard, client) else {
        return;
    };
    let (held, durability) = (client.session.borrow(), client.kept_at());
    for subscription in held.subscriptions() {
        subscribed(shard, client, &subscription.filter, subscription.options);
    }
    for packet_id in held.unreleased_ids().map(PacketId::get) {
        journal.write(durability, &Record::ExactlyOnceKey { session, packet_id });
    }
    for packet_id in held.exactly_once_ids().map(PacketId::get) {
        journal.write(durability, &Record::Received { session, packet_id });
    }
}

/// Whether the will of a client whose session ends with its connection is stored: not if all state of its client is
/// in memory only, and not while the disk is nearly full.
pub(crate) fn keeps_will(
    shard: &Shard,
    durability: Durability,
    access: &CompiledGrant,
    request: &ConnectRequest,
) -> bool {
    let has_room = shard.journal.is_some() && !shard.is_short_of_room();
    has_room && durability > Durability::Memory && will_of(access, request).is_some()
}

/// The will that a client brings, if it may publish it.
fn will_of<'r>(access: &CompiledGrant, request: &'r ConnectRequest) -> Option<&'r WillMessage> {
    let may_publish = |will: &&WillMessage| {
        access.permissions.publish(will.message.topic_name()) == RuleAnswer::Allowed
    };
    request.will.as_deref().filter(may_publish)
}

/// Records the effect of a connection on a kept session, and its will, if that `keeps_will` or belongs to such a
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
    let own = client.number(&shard.engine);
    let (session, place) = match own {
        Some(session) => (session, KeptWill::InSession),
        None if keeps_will => {
            let session = journal.log.session_number();
            shard.engine.durable.set_will_alone(client.handle, session);
            (session, KeptWill::Alone)
        }
        None => return,
    };
    let (login, durability) = (client.login(), client.kept_at());
    let opened = SessionOpened {
        session,
        at_ms: kept_ms(shard, shard.now()),
        version: login.version.level(),
        expiry_s: client.session.borrow().expiry_interval_s(),
        client_id: &client.id,
        username: login.username.as_deref(),
    };
    journal.write(durability, &Record::Opened(opened));
    match will_of(&client.access(), request) {
        Some(will) => {
            journal.write(durability, &Record::WillSet(will_record(session, will)));
            client.kept_will.set(place);
        }
        None => will_ended(shard, client),
    }
    journal.hold_acknowledgement(client, durability);
}

fn will_record(session: u64, will: &WillMessage) -> WillSet<'_> {
    let message = &will.message;
    WillSet {
        session,
        delay_s: will.delay_s,
        qos: message.qos() as u8,
        retain: message.retain(),
        topic: message.topic(),
        properties: message.properties().as_bytes(),
        payload: message.payload(),
    }
}

/// Writes that the retained messages of these topics are over, before anybody replaces one.
pub(crate) fn expired(shard: &Shard, topics: &[String]) {
    if let Some(journal) = &shard.journal {
        for topic in topics {
            journal.write(Durability::Memory, &Record::RetainCleared { topic });
        }
        journal.commit();
    }
}

/// Records that a kept session has lost its connection: its expiry runs from now on, through any number of crashes.
/// If the end of the connection was not noticed, queued messages with a number below `maybe_sent_below` may have been
/// sent.
pub(crate) fn write_detached(shard: &Shard, client: &Client, maybe_sent_below: u64) {
    if let Some((journal, session)) = kept(shard, client) {
        let away = Record::Away(Away {
            session,
            at_ms: kept_ms(shard, shard.now()),
            expiry_s: client.session.borrow().expiry_interval_s(),
            maybe_sent_below,
        });
        journal.write(client.kept_at(), &away);
    }
}

/// Writes that the connection of a kept session ended, and its will if it is forgotten: neither due now nor delayed.
pub(crate) fn write_disconnected(shard: &Shard, client: &Rc<Client>, is_will_due: bool) {
    write_detached(shard, client, 0);
    if !is_will_due && client.session.borrow().will().is_none() {
        will_ended(shard, client);
    }
}

/// Writes that a kept will was published or cancelled.
pub(crate) fn will_ended(shard: &Shard, client: &Client) {
    let Some(journal) = &shard.journal else {
        return;
    };
    let own = client.number(&shard.engine);
    let alone = shard.engine.durable.will_alone(client.handle);
    let record = match (client.kept_will.take(), own, alone) {
        (KeptWill::Alone, _, Some(session)) => {
            shard.engine.durable.set(client.handle, 0);
            Record::Ended { session }
        }
        (KeptWill::InSession, Some(session), _) => Record::WillEnded { session },
        _ => return,
    };
    journal.write(client.kept_at(), &record);
}

/// Records that a kept session has ended, with everything in it.
pub(crate) fn write_session_end(shard: &Shard, client: &Client) {
    if let Some((journal, session)) = kept(shard, client) {
        journal.write(client.kept_at(), &Record::Ended { session });
        client.set_number(&shard.engine, 0);
    }
}

/// Takes the number of a session that ends while the store must keep its will, which is due. The record of the
/// session ends with the will: [`write_end_of`].
pub(crate) fn take_number(shard: &Shard, client: &Client) -> Option<u64> {
    let durable = &shard.engine.durable;
    let number = durable.number(client.handle);
    let number = number.or_else(|| durable.will_alone(client.handle))?;
    client.set_number(&shard.engine, 0);
    Some(number)
}

/// Writes that the will of a session that ended earlier was published or dropped.
pub(crate) fn write_end_of(shard: &Shard, client: &Client, session: u64) {
    if let Some(journal) = &shard.journal {
        journal.write(client.kept_at(), &Record::Ended { session });
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
    journal.hold_acknowledgement(client, client.kept_at());
}

/// Writes that a subscription ended; UNSUBACK waits for it.
pub(crate) fn unsubscribed(shard: &Shard, client: &Rc<Client>, filter: &SubscriptionFilter) {
    let Some((journal, session)) = kept(shard, client) else {
        return;
    };
    let filter = filter.as_str();
    journal.write(client.kept_at(), &Record::Unsubscribed { session, filter });
    journal.hold_acknowledgement(client, client.kept_at());
}

/// QoS in two bits, No Local, Retain As Published; as in the Subscription Options of SUBSCRIBE.
fn pack(options: Options) -> u8 {
    options.qos as u8 | u8::from(options.no_local) << 2 | u8::from(options.retain_as_published) << 3
}

/// Reverses [`pack`], for a subscription with this identifier.
pub(crate) fn unpack(packed: u8, id: u32) -> Options {
    Options {
        qos: QoS::try_from(packed & 0b11).unwrap_or_default(),
        no_local: packed & 1 << 2 != 0,
        retain_as_published: packed & 1 << 3 != 0,
        id: NonZeroU32::new(id),
    }
}

/// Writes an exchange step of the session of `client`; acknowledgements wait for it.
pub(crate) fn write_exchange_step(
    shard: &Shard,
    client: &Rc<Client>,
    token: Option<AckToken>,
    record: ExchangeRecord,
) {
    let Some((journal, session)) = kept(shard, client) else {
        return;
    };
    let mut ended = PacketIdRunsBuf::default();
    let record = exchange_record(session, record, &mut ended);
    journal.write(client.kept_at(), &record);
    if token.is_some() {
        journal.hold_acknowledgement(client, client.kept_at());
    }
}

/// The record of an exchange step of `session`; `ended` is scratch space.
fn exchange_record(session: u64, step: ExchangeRecord, ended: &mut PacketIdRunsBuf) -> Record<'_> {
    match step {
        // The message was never stored. After a crash only its identifier is known: the client may have the message and
        // must not take another one for a repeat.
        ExchangeRecord::Sending {
            packet_id, key: 0, ..
        } => Record::Received {
            session,
            packet_id: packet_id.get(),
        },
        ExchangeRecord::Sending { packet_id, key, .. } => Record::Sending {
            session,
            delivery: key,
            packet_id: packet_id.get(),
        },
        ExchangeRecord::Received { packet_id, .. } => Record::Received {
            session,
            packet_id: packet_id.get(),
        },
        ExchangeRecord::Completed { packet_id } => {
            ended.push(packet_id.get());
            Record::Completed {
                session,
                packet_ids: ended.as_packet_ids(),
            }
        }
        ExchangeRecord::Released { packet_id } => Record::Released {
            session,
            packet_id: packet_id.get(),
        },
    }
}

/// Writes that a delivery to `client` ended in a drop; later messages of its session wait for that.
pub(crate) fn write_dropped(shard: &Shard, client: &Rc<Client>, delivery: u64) {
    if let Some((journal, session)) = kept(shard, client)
        && delivery != 0
    {
        journal.write(client.kept_at(), &Record::Dropped { session, delivery });
        if client.is_online() {
            journal.hold_acknowledgement(client, client.kept_at());
        }
    }
}
