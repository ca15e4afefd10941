//! DUP after a crash: the log may end before the record of a sending, so a QoS 1 message that it says to be waiting
//! may have been sent if its client was connected (ADR 0026).

use std::sync::Arc;
use std::time::Duration;

use mqttcore_broker::Broker;
use mqttcore_codec::{Properties, QoS};
use mqttcore_store::files::{Files, Folder};
use mqttcore_store::record::{MessageRecord, RecipientsBuf, Record};
use mqttcore_store::{Batch, DurableStore, Store, StoreOptions};

use crate::common::many::{append, opened};
use crate::common::{Client, HOUR_S, Hello, Home, v5};

fn reader() -> Hello {
    v5("reader").keeping_session_s(HOUR_S)
}

/// A folder whose broker died with the reader connected, before the log had the sending of "sent" and "exact".
fn died_in_the_middle() -> Home {
    let home = Home::new();
    let files: Arc<dyn Files> = Arc::new(Folder::open(&home.folder(0)).expect("a folder"));
    let (store, _) = DurableStore::open(&files, &StoreOptions::default()).expect("a store");
    let mut batch = Batch::default();
    opened(1, "reader", &mut batch);
    batch.push(&Record::Subscribed {
        session: 1,
        filter: "a",
        options: QoS::ExactlyOnce as u8,
        id: 0,
    });
    for (number, qos, payload) in [(1, 1, "sent"), (2, 2, "exact")] {
        let mut recipients = RecipientsBuf::default();
        recipients.push(1, qos, false, &[]);
        batch.push(&Record::Message(MessageRecord {
            message: number,
            qos,
            topic: "a",
            recipients: recipients.as_recipients(),
            payload: payload.as_bytes(),
            ..MessageRecord::default()
        }));
    }
    append(&store, &mut batch);
    store.close().expect("all of it is kept");
    home
}

fn publish(broker: &Broker, payload: &str) {
    let sent = broker.publish(
        "a",
        payload.as_bytes(),
        QoS::AtLeastOnce,
        false,
        Properties::EMPTY,
    );
    assert_eq!(sent, Ok(1));
}

/// The next messages of the reader, and whether each has DUP.
fn heard(client: &mut Client, count: usize) -> Vec<(String, bool)> {
    let next = |_| {
        let message = client.take_message();
        (message.text().to_owned(), message.dup)
    };
    (0..count).map(next).collect()
}

fn said(heard: &[(&str, bool)]) -> Vec<(String, bool)> {
    let owned = heard.iter().map(|(text, dup)| ((*text).to_owned(), *dup));
    owned.collect()
}

#[test]
fn mqtt_3_3_1_1_a_qos_1_message_that_may_have_been_sent_before_a_crash_has_dup() {
    let home = died_in_the_middle();
    let broker = home.start(0);
    publish(&broker, "new");

    let mut client = reader().connect(&broker);

    let expected = said(&[("sent", true), ("exact", false), ("new", false)]);
    assert_eq!(heard(&mut client, 3), expected);
}

/// What came between the crashes waited for a client that was away: it was never sent.
#[test]
fn mqtt_3_3_1_1_messages_that_may_have_been_sent_have_dup_after_a_second_crash_and_later_ones_do_not()
 {
    let home = died_in_the_middle();
    let first = home.start(0);
    publish(&first, "between");
    let second = home.crash(first, 0);
    publish(&second, "new");
    let third = home.crash(second, 1);

    let mut client = reader().connect(&third);

    let expected = said(&[
        ("sent", true),
        ("exact", false),
        ("between", false),
        ("new", false),
    ]);
    assert_eq!(heard(&mut client, 4), expected);
}

#[test]
fn messages_queued_at_an_orderly_end_have_no_dup_after_a_crash_or_a_stop() {
    for (is_online, is_stopped) in [(false, false), (true, true)] {
        let home = Home::new();
        let first = home.start(0);
        let mut client = reader().receive_maximum(1).connect(&first);
        client.subscribe("a", QoS::AtLeastOnce);
        publish(&first, "sent");
        publish(&first, "waits");
        assert_eq!(client.message().text(), "sent");
        let online = if is_online {
            Some(client)
        } else {
            client.disconnect();
            None
        };
        let second = if is_stopped {
            first.stop(Duration::from_secs(5));
            home.start(0)
        } else {
            home.crash(first, 0)
        };
        drop(online);

        let mut client = reader().connect(&second);

        let expected = said(&[("sent", true), ("waits", false)]);
        assert_eq!(heard(&mut client, 2), expected);
    }
}
