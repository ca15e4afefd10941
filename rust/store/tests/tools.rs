//! Looking, checking, copying, mending.
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod common;

use mqttcore_store::faults::{Disk, Faults};
use mqttcore_store::files::Files as _;
use mqttcore_store::record::{MessageRecord, RecipientsBuf, Record, SessionOpened};
use mqttcore_store::{CopyProgress, DurableStore, Store, StoreError, StoreOptions, tools};

use common::{append, files};

const OPTIONS: StoreOptions = StoreOptions::small(4 * 1_024, 100);

fn publish(store: &dyn Store, session: u64, topic: &str, payload: &[u8], kept: bool) -> u64 {
    let message = store.numbers(1);
    let mut recipients = RecipientsBuf::default();
    recipients.push(session, 1, false, &[]);
    let published = MessageRecord {
        message,
        qos: 1,
        kept,
        topic,
        recipients: recipients.as_recipients(),
        payload,
        ..MessageRecord::default()
    };
    append(store, &[Record::Message(published)]);
    message
}

/// Two sessions; ten messages wait for `meter` in several segments, one for `lamp`.
fn filled() -> (Disk, u64, u64) {
    let disk = Disk::new(1, Faults::default());
    let (store, _) = DurableStore::open(&files(&disk), &OPTIONS).unwrap();
    let sessions = ["meter", "lamp"].map(|client_id| {
        let session = store.numbers(1);
        let (at_ms, version, expiry_s, username) = (1, 5, 60, None);
        let opened = SessionOpened {
            session,
            at_ms,
            version,
            expiry_s,
            client_id,
            username,
        };
        let subscribed = Record::Subscribed {
            session,
            filter: "t",
            options: 1,
            id: 0,
        };
        append(&store, &[Record::Opened(opened), subscribed]);
        session
    });
    for number in 0..10 {
        publish(&store, sessions[0], "t", &[number; 900], false);
    }
    publish(&store, sessions[1], "t", b"light", true);
    store.close().unwrap();
    (disk, sessions[0], sessions[1])
}

/// Makes one byte of message `number` to `meter` another one; returns where it was.
fn rot(disk: &Disk, number: u8) -> String {
    let names = disk.list().unwrap();
    let place = names.into_iter().find_map(|name| {
        let content = disk.content(&name).filter(|_| name.contains(".log"))?;
        let at = content
            .windows(900)
            .position(|window| window == [number; 900])?;
        Some((name, at))
    });
    let (name, at) = place.unwrap();
    disk.corrupt(&name, |bytes| bytes[at + 7] ^= 1);
    name
}

#[test]
fn a_store_is_described() {
    let (disk, ..) = filled();

    let info = tools::verify(&files(&disk)).unwrap();

    assert_eq!(
        (
            info.sessions,
            info.subscriptions,
            info.queued,
            info.retained
        ),
        (2, 2, 11, 1)
    );
    assert_eq!((info.messages, info.in_flight, info.torn), (11, 0, None));
    assert_eq!((info.last_lsn, info.applied_lsn), (15, 15));
    assert!(info.segments > 2);
}

#[test]
fn looking_is_refused_while_somebody_has_the_store() {
    let (disk, ..) = filled();
    let (_store, _) = DurableStore::open(&files(&disk), &OPTIONS).unwrap();

    assert!(matches!(
        tools::info(&files(&disk)),
        Err(StoreError::Locked)
    ));
    assert!(matches!(
        tools::verify(&files(&disk)),
        Err(StoreError::Locked)
    ));
}

#[test]
fn an_empty_folder_is_no_store() {
    let disk = Disk::new(1, Faults::default());

    assert!(matches!(
        tools::info(&files(&disk)),
        Err(StoreError::Missing)
    ));
    let to = Disk::new(2, Faults::default());
    assert!(matches!(
        tools::backup(&files(&disk), &to, &CopyProgress::default()),
        Err(StoreError::Missing)
    ));
    assert!(
        !disk
            .list()
            .unwrap()
            .iter()
            .any(|name| name.contains(".log"))
    );
}

#[test]
fn every_record_is_dumped() {
    let (disk, ..) = filled();
    let mut lsns = Vec::new();

    tools::dump(&files(&disk), &mut |logged| {
        lsns.push(logged.lsn);
        Ok(())
    })
    .unwrap();

    assert!(lsns.into_iter().eq(1..=15));
}

#[test]
fn a_copy_is_the_same_store() {
    let (disk, meter, _) = filled();
    let copy = Disk::new(2, Faults::default());

    tools::backup(&files(&disk), &copy, &CopyProgress::default()).unwrap();

    let copy = copy.after_power_cut();
    let (store, recovery) = DurableStore::open(&files(&copy), &OPTIONS).unwrap();
    assert_eq!(recovery.torn, None);
    assert_eq!(store.queue(meter, 0, 100).unwrap().len(), 10);
}

#[test]
fn a_copy_says_how_far_it_is() {
    let (disk, ..) = filled();
    let progress = CopyProgress::default();
    assert_eq!((progress.done(), progress.total()), (0, None));
    assert_eq!((progress.rate(), progress.eta_s()), (None, None));

    let copy = Disk::new(2, Faults::default());
    let bytes = tools::backup(&files(&disk), &copy, &progress).unwrap();

    assert_eq!((progress.done(), progress.total()), (bytes, Some(bytes)));
    assert!(progress.rate() > Some(0));
    assert_eq!(progress.eta_s(), Some(0));
    // The last file has no room.
    let full = Faults {
        capacity_bytes: bytes - 1,
        ..Faults::default()
    };
    let progress = CopyProgress::default();
    tools::backup(&files(&disk), &Disk::new(2, full), &progress).unwrap_err();
    assert_eq!(progress.total(), Some(bytes));
    assert!((1..bytes).contains(&progress.done()), "{progress:?}");
    assert!(progress.eta_s() >= Some(1));
}

#[test]
fn a_rotten_message_is_found_and_only_it_is_given_up() {
    let (disk, meter, lamp) = filled();
    let name = rot(&disk, 4);
    let found = tools::verify(&files(&disk)).unwrap_err();
    assert!(
        matches!(&found, StoreError::Damaged(damage) if damage.file == name),
        "{found}"
    );

    let repair = tools::repair(&files(&disk), &OPTIONS).unwrap();

    assert_eq!(
        repair.sessions.into_iter().collect::<Vec<_>>(),
        [("meter".to_owned(), 1)]
    );
    assert!(repair.set_aside.contains(&format!("{name}.damaged")));
    let info = tools::verify(&files(&disk)).unwrap();
    assert_eq!((info.sessions, info.queued, info.retained), (2, 10, 1));
    let (store, _) = DurableStore::open(&files(&disk), &OPTIONS).unwrap();
    let queue = store.queue(meter, 0, 100).unwrap();
    let first_bytes: Vec<u8> = queue
        .iter()
        .map(|delivery| {
            store
                .message(delivery.message)
                .unwrap()
                .unwrap()
                .message()
                .payload[0]
        })
        .collect();
    assert_eq!(first_bytes, [0, 1, 2, 3, 5, 6, 7, 8, 9]);
    let next = publish(&store, lamp, "t", b"on", false);
    assert_eq!(
        store.queue(lamp, 0, 100).unwrap().last().unwrap().number,
        next
    );
}

#[test]
fn damage_without_a_checkpoint_costs_what_is_damaged() {
    let (disk, meter, lamp) = filled();
    rot(&disk, 2);
    disk.remove("checkpoint.redb").unwrap();
    assert!(matches!(
        DurableStore::open(&files(&disk), &OPTIONS),
        Err(StoreError::Damaged(_))
    ));

    let repair = tools::repair(&files(&disk), &OPTIONS).unwrap();

    assert_eq!(repair.lost, [(7, 7)]);
    assert_eq!(repair.saved, 14);
    let (store, _) = DurableStore::open(&files(&disk), &OPTIONS).unwrap();
    assert_eq!(store.queue(meter, 0, 100).unwrap().len(), 9);
    assert_eq!(store.queue(lamp, 0, 100).unwrap().len(), 1);
}

#[test]
fn an_intact_store_is_not_repaired() {
    let (disk, ..) = filled();

    let repair = tools::repair(&files(&disk), &OPTIONS).unwrap();

    assert_eq!(repair, tools::Repair::default());
}
