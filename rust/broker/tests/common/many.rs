//! A store with many sessions of offline clients.

use std::path::Path;
use std::sync::Arc;

use mqttcore_store::files::{Files, Folder};
use mqttcore_store::record::{Away, MessageRecord, RecipientsBuf, Record, SessionOpened};
use mqttcore_store::{Batch, Durability, DurableStore, SpacePolicy, Store, StoreOptions};

/// The name of one of so many clients that the broker does not load all their sessions at once.
pub fn name(number: u64) -> String {
    format!("many-{number}")
}

pub fn filter(number: u64) -> String {
    format!("many/{number}")
}

pub fn opened(session: u64, client_id: &str, batch: &mut Batch) {
    batch.push(&Record::Opened(SessionOpened {
        session,
        at_ms: 1,
        version: 5,
        expiry_s: u32::MAX,
        client_id,
        username: None,
    }));
}

/// Makes a store with the sessions 1 to `sessions`, each with a subscription and one queued message.
pub fn fill(folder: &Path, sessions: u64, more: impl FnOnce(&mut Batch)) {
    let files: Arc<dyn Files> = Arc::new(Folder::open(folder).expect("a folder"));
    let (store, _) = DurableStore::open(&files, &StoreOptions::default()).expect("a store");
    let (mut batch, mut recipients) = (Batch::default(), RecipientsBuf::default());
    for session in 1..=sessions {
        opened(session, &name(session), &mut batch);
        batch.push(&Record::Subscribed {
            session,
            filter: &filter(session),
            options: 1,
            id: 0,
        });
        batch.push(&Record::Away(Away {
            session,
            at_ms: 2,
            expiry_s: u32::MAX,
            maybe_sent_below: 0,
        }));
        recipients.clear();
        recipients.push(session, 1, false, &[]);
        batch.push(&Record::Message(MessageRecord {
            message: session,
            qos: 1,
            topic: &filter(session),
            recipients: recipients.as_recipients(),
            payload: b"waited",
            ..MessageRecord::default()
        }));
        if batch.records() > 4_000 {
            append(&store, &mut batch);
        }
    }
    more(&mut batch);
    append(&store, &mut batch);
    store.close().expect("all of it is kept");
}

pub fn append(store: &DurableStore, batch: &mut Batch) {
    let appended = store.append(batch, Durability::Os, SpacePolicy::Essential);
    appended.expect("it takes records");
}
