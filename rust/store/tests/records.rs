//! Every record comes back as it was, and nothing else is taken for a record.
#![allow(clippy::unwrap_used, reason = "a test fails with it")]

use std::sync::Arc;

use mqttcore_store::faults::{Disk, Faults};
use mqttcore_store::files::Files;
use mqttcore_store::record::{
    Away, MessageRecord, PacketIdRunsBuf, Recipient, RecipientsBuf, Record, RowRefsBuf,
    SessionOpened, Streamed, WillSet,
};
use mqttcore_store::{Batch, Durability, SpacePolicy, Wal, WalOptions};
use proptest::prelude::*;

const OPTIONS: WalOptions = WalOptions {
    segment_bytes: 8 * 1_024,
    ballast_bytes: 0,
    soft_bytes: 0,
    queue_bytes: 1 << 20,
};

/// Writes `records` as one batch and hands each of them, read back, to `check`.
fn round_trip(records: &[Record<'_>], check: &mut dyn FnMut(usize, Record<'_>)) {
    let files: Arc<dyn Files> = Arc::new(Disk::new(1, Faults::default()));
    let (wal, _) = Wal::open(&files, &OPTIONS, &mut |_| Ok(())).unwrap();
    let mut batch = Batch::default();
    for record in records {
        batch.push(record);
    }
    let ticket = wal
        .append(&mut batch, Durability::Fsync, SpacePolicy::Ordinary)
        .unwrap();
    wal.wait(ticket).unwrap();
    wal.close().unwrap();

    let mut seen = 0;
    Wal::open(&files, &OPTIONS, &mut |logged| {
        check(seen, logged.record);
        seen += 1;
        Ok(())
    })
    .unwrap();
    assert_eq!(seen, records.len());
}

fn same(record: Record<'_>) -> Result<(), TestCaseError> {
    let mut result = Ok(());
    round_trip(&[record], &mut |_, found| {
        if found != record {
            result = Err(TestCaseError::fail(format!(
                "{record:?} came back as {found:?}"
            )));
        }
    });
    result
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn messages_come_back(
        message: u64,
        qos in 0..3_u8,
        flags: (bool, bool),
        exactly_once: Option<(u64, u16)>,
        expires_at_ms: Option<u64>,
        source in prop::option::of("[^\\x00]{0,20}"),
        username in prop::option::of("[^\\x00]{0,20}"),
        topic in "[a-z/é]{0,40}",
        properties: Vec<u8>,
        payload: Vec<u8>,
        rows in prop::option::of((any::<bool>(), any::<u64>(),
            prop::collection::btree_set((any::<u32>(), any::<u16>()), 0..4))),
        recipients in prop::collection::vec(
            (any::<u64>(), 0..3_u8, any::<bool>(), prop::collection::vec(any::<u32>(), 0..4)), 0..6),
    ) {
        let mut listed = RecipientsBuf::default();
        for (session, qos, retain, ids) in &recipients {
            listed.push(*session, *qos, *retain, ids);
        }
        let mut places = RowRefsBuf::default();
        for (stream, partition) in rows.iter().flat_map(|(_, _, rows)| rows) {
            places.push(*stream, *partition);
        }
        same(Record::Message(MessageRecord {
            message,
            qos,
            retain: flags.0,
            kept: flags.1,
            exactly_once,
            expires_at_ms,
            source: source.as_deref(),
            // It is that of the source.
            username: username.as_deref().filter(|_| source.is_some()),
            streamed: rows.map(|(dup, at_us, _)| Streamed { dup, at_us, rows: places.as_rows() }),
            topic: &topic,
            properties: &properties,
            recipients: listed.as_recipients(),
            payload: &payload,
        }))?;
        let walked: Vec<Recipient> = listed.as_recipients().iter().collect();
        let expected: Vec<Recipient> = recipients
            .into_iter()
            .map(|(session, qos, retain, subscription_ids)| {
                Recipient { session, qos, retain, subscription_ids }
            })
            .collect();
        prop_assert_eq!(walked, expected);
    }

    #[test]
    fn sessions_come_back(
        session: u64,
        at_ms: u64,
        version: u8,
        expiry_s: u32,
        client_id: String,
        username: Option<String>,
    ) {
        same(Record::Opened(SessionOpened {
            session,
            at_ms,
            version,
            expiry_s,
            client_id: &client_id,
            username: username.as_deref(),
        }))?;
        same(Record::Away(Away { session, at_ms, expiry_s, maybe_sent_below: 0 }))?;
        same(Record::Away(Away { session, at_ms, expiry_s, maybe_sent_below: at_ms }))?;
        same(Record::Stream { stream: expiry_s, epoch: at_ms, name: &client_id })?;
        same(Record::Sealed { stream: expiry_s, partition: u16::from(version), end: at_ms })?;
        same(Record::Ended { session })?;
        same(Record::WillEnded { session })?;
    }

    #[test]
    fn wills_come_back(
        session: u64,
        delay_s: u32,
        qos in 0..3_u8,
        retain: bool,
        topic: String,
        properties: Vec<u8>,
        payload: Vec<u8>,
    ) {
        same(Record::WillSet(WillSet {
            session,
            delay_s,
            qos,
            retain,
            topic: &topic,
            properties: &properties,
            payload: &payload,
        }))?;
    }

    #[test]
    fn exchanges_come_back(session: u64, delivery: u64, packet_id: u16, ids: Vec<u16>) {
        let mut packet_ids = PacketIdRunsBuf::default();
        for id in &ids {
            packet_ids.push(*id);
        }
        let packet_ids = packet_ids.as_packet_ids();
        prop_assert!(packet_ids.iter().eq(ids.iter().copied()));
        same(Record::ExactlyOnceKey { session, packet_id })?;
        same(Record::Released { session, packet_id })?;
        same(Record::Sending { session, delivery, packet_id })?;
        same(Record::Received { session, packet_id })?;
        same(Record::Completed { session, packet_ids })?;
        same(Record::Dropped { session, delivery })?;
    }

    #[test]
    fn subscriptions_come_back(session: u64, options: u8, id: u32, filter: String) {
        same(Record::Note { key: &filter, value: filter.as_bytes() })?;
        same(Record::Subscribed { session, filter: &filter, options, id })?;
        same(Record::Unsubscribed { session, filter: &filter })?;
        same(Record::RetainCleared { topic: &filter })?;
    }
}

#[test]
fn packet_ids_in_a_row_take_a_run() {
    let mut ids = PacketIdRunsBuf::default();
    let mut batch = Batch::default();
    for id in 1..=1_000 {
        ids.push(id);
    }

    batch.push(&Record::Completed {
        session: 1,
        packet_ids: ids.as_packet_ids(),
    });

    assert_eq!(batch.len_bytes(), 18 + 1 + 2 + 2);
}

/// Decision 35: payload, topic and at most 48 bytes a message; the marker is the group's.
#[test]
fn a_message_costs_little_more_than_its_bytes() {
    let mut recipients = RecipientsBuf::default();
    recipients.push(1_000_000, 1, false, &[7]);
    let message = MessageRecord {
        message: 1 << 40,
        qos: 1,
        expires_at_ms: Some(1),
        topic: "a/b",
        recipients: recipients.as_recipients(),
        payload: b"0123456789",
        ..MessageRecord::default()
    };
    let mut batch = Batch::default();

    batch.push(&Record::Message(message));

    assert!(
        batch.len_bytes() - 3 - 10 <= 48,
        "{}",
        batch.len_bytes() - 13
    );
}
