//! A damaged checkpoint that has taken over segments of the log: what can be read of it is kept.
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use std::collections::BTreeMap;
use std::sync::Arc;

use mqttcore_store::faults::{Disk, Faults, Random};
use mqttcore_store::files::Files;
use mqttcore_store::record::{Message, Opened, RecipientsBuf, Record};
use mqttcore_store::{
    Batch, DurableStore, JournalOptions, Level, Need, Store, StoreError, StoreOptions, tools,
};

const CHECKPOINT: &str = "checkpoint.redb";
const OPTIONS: StoreOptions = StoreOptions {
    journal: JournalOptions {
        segment_bytes: 16 * 1_024,
        ballast_bytes: 0,
        soft_bytes: 0,
        line_bytes: 1 << 20,
    },
    cache_bytes: 1 << 20,
    checkpoint_bytes: u64::MAX,
    checkpoint_rows: usize::MAX,
    segments_kept: 1,
};
const PAGE: usize = 4_096;
const SESSIONS: u64 = 120;
const MESSAGES: u64 = 240;
const RECIPIENTS: u64 = 4;
const RETAINED: u64 = 60;

fn files(disk: &Disk) -> Arc<dyn Files> {
    Arc::new(disk.clone())
}

fn append(store: &dyn Store, records: &[Record<'_>]) {
    let mut batch = Batch::default();
    for record in records {
        batch.push(record);
    }
    let ticket = store
        .append(&mut batch, Level::Fsync, Need::Ordinary)
        .unwrap();
    store.wait(ticket).unwrap();
}

fn client(session: usize) -> String {
    format!("meter-{session}-of-a-hall-with-a-long-name")
}

fn payload(number: u64) -> Vec<u8> {
    format!("{number} ").repeat(40).into_bytes()
}

/// The store of a broker that was killed. Its checkpoint has most of the log; the rest is in segments that are
/// there, a part of it behind the checkpoint.
fn store() -> Disk {
    let disk = Disk::new(1, Faults::default());
    let (store, _) = DurableStore::open(&files(&disk), &OPTIONS).unwrap();
    let sessions: Vec<u64> = (0..SESSIONS).map(|_| store.numbers(1)).collect();
    for (place, &session) in sessions.iter().enumerate() {
        let (client_id, filter) = (client(place), format!("hall/{place}/#"));
        append(
            &store,
            &[
                Record::Opened(Opened {
                    session,
                    at_ms: 1,
                    version: 5,
                    expiry_s: 60,
                    client_id: &client_id,
                    username: Some("somebody"),
                }),
                Record::Subscribed {
                    session,
                    filter: &filter,
                    options: 1,
                    id: 7,
                },
            ],
        );
    }
    for number in 0..MESSAGES {
        let mut recipients = RecipientsBuf::default();
        for place in 0..RECIPIENTS {
            let place = (number * 7 + place * 31) % SESSIONS;
            recipients.push(sessions[usize::try_from(place).unwrap()], 1, false, &[]);
        }
        let message = Message {
            message: store.numbers(RECIPIENTS),
            qos: 1,
            topic: &format!("hall/{number}"),
            recipients: recipients.as_recipients(),
            payload: &payload(number),
            ..Message::default()
        };
        append(&store, &[Record::Message(message)]);
        if number < RETAINED {
            let message = Message {
                message: store.numbers(1),
                topic: &format!("state/{number}"),
                kept: true,
                payload: &payload(number),
                ..Message::default()
            };
            append(&store, &[Record::Message(message)]);
        }
        if number == MESSAGES - 40 {
            store.checkpoint().unwrap();
            while disk.content("00000000000000000001.log").is_some() {
                std::thread::yield_now();
            }
        }
    }
    disk.after_kill()
}

/// Payloads by topic.
type Contents = BTreeMap<String, Vec<u8>>;

/// All that a store has to say.
#[derive(Debug, Default, PartialEq)]
struct State {
    /// By client identifier: filters, and what waits, by topic.
    sessions: BTreeMap<String, (Vec<String>, Contents)>,
    retained: Contents,
    /// Bytes of the records of all messages that are there.
    live_bytes: u64,
}

impl State {
    fn of(disk: &Disk) -> Result<Self, StoreError> {
        let (store, _) = DurableStore::open(&files(disk), &OPTIONS)?;
        let mut kept = Vec::new();
        store.sessions(&mut |session| kept.push(session)).unwrap();
        let content = |message| {
            let found = store.message(message).unwrap().unwrap();
            let found = found.message();
            (found.topic.to_owned(), found.payload.to_vec())
        };
        let mut state = Self {
            live_bytes: store.stats().live_bytes,
            ..Self::default()
        };
        for session in kept {
            let queue = store.queue(session.number, 0, usize::MAX).unwrap();
            let waits = queue.iter().map(|delivery| content(delivery.message));
            let filters = session.subscriptions.into_keys().collect();
            state
                .sessions
                .insert(session.row.client_id, (filters, waits.collect()));
        }
        let mut topics = Vec::new();
        store
            .retained(&mut |topic, message| topics.push((topic.to_owned(), message)))
            .unwrap();
        let retained = topics.into_iter();
        state.retained = retained
            .map(|(topic, message)| (topic, content(message).1))
            .collect();
        store.close().unwrap();
        Ok(state)
    }

    fn deliveries(&self) -> usize {
        self.sessions.values().map(|(_, waits)| waits.len()).sum()
    }

    /// Nothing is there that was not there before, and each session has its subscriptions.
    fn assert_part_of(&self, whole: &Self, what: &str) {
        for (client, (filters, waits)) in &self.sessions {
            let (all_filters, all) = &whole.sessions[client];
            assert_eq!(filters, all_filters, "{what}: {client}");
            for (topic, payload) in waits {
                assert!(all.get(topic) == Some(payload), "{what}: {client}, {topic}");
            }
        }
        for (topic, payload) in &self.retained {
            assert!(
                whole.retained.get(topic) == Some(payload),
                "{what}: {topic}"
            );
        }
    }
}

/// Damages a copy of the checkpoint, sees what a start says, mends it, and returns what is there then.
fn mended(disk: &Disk, what: &str, damage: impl FnOnce(&mut Vec<u8>)) -> (tools::Repair, State) {
    let disk = disk.after_kill();
    disk.corrupt(CHECKPOINT, damage);
    let disk = disk.after_kill();
    if let Err(error) = State::of(&disk) {
        let is_told = matches!(error, StoreError::Damaged(_));
        assert!(is_told, "{what}: {error}");
    }
    let repair = tools::repair(&files(&disk), &OPTIONS);
    let repair = repair.unwrap_or_else(|error| panic!("{what}: {error}"));
    tools::verify(&files(&disk)).unwrap_or_else(|error| panic!("{what}: {error}"));
    (repair, State::of(&disk).unwrap())
}

/// Pages that are not all zeros.
fn used_pages(content: &[u8]) -> Vec<usize> {
    let pages = content.chunks(PAGE).enumerate();
    let used = pages.filter(|(_, page)| page.iter().any(|&byte| byte != 0));
    used.map(|(page, _)| page).collect()
}

#[test]
fn no_bit_of_a_checkpoint_that_took_over_segments_costs_anything() {
    let disk = store();
    let whole = State::of(&disk.after_kill()).unwrap();
    let content = disk.content(CHECKPOINT).unwrap();
    let mut random = Random(3);
    // Flags of the file, but for the lowest: it says which of the two last commits counts, and redb opens the
    // other one. Then a few bytes of each page.
    let mut bits: Vec<(usize, u64)> = (1..8).map(|bit| (9, bit)).collect();
    for page in used_pages(&content).into_iter().step_by(2) {
        let begin = if page == 0 { 10 } else { page * PAGE };
        let used = (begin..(page + 1) * PAGE).filter(|&at| content[at] != 0);
        let used: Vec<_> = used.collect();
        let each = used.len().div_ceil(if page == 0 { 16 } else { 1 });
        bits.extend(
            used.into_iter()
                .step_by(each)
                .map(|at| (at, random.below(8))),
        );
    }
    let mut damaged = 0;
    for (at, bit) in bits {
        let what = format!("byte {at}, bit {bit}");

        let (repair, state) = mended(&disk, &what, |bytes| bytes[at] ^= 1 << bit);

        assert!(state == whole, "{what}: {repair:?}");
        assert_eq!(repair.lost_pages, 0, "{what}");
        damaged += usize::from(repair.damage.is_some());
    }
    assert!(damaged > 15, "{damaged}");
}

/// A part of each page in turn is overwritten.
#[test]
fn a_page_that_is_lost_costs_its_rows_and_the_report_names_them() {
    let disk = store();
    let whole = State::of(&disk.after_kill()).unwrap();
    let content = disk.content(CHECKPOINT).unwrap();
    let (mut damaged, mut kept) = (0, 0);
    // The first page says where the tables are.
    for page in used_pages(&content).into_iter().skip(1).step_by(8) {
        let what = format!("page {page}");

        let (repair, state) = mended(&disk, &what, |bytes| {
            bytes[page * PAGE + 64..][..512].fill(0xa5);
        });

        state.assert_part_of(&whole, &what);
        let lost = whole.deliveries() - state.deliveries();
        let told: u64 = repair.sessions.values().sum();
        assert!(told >= lost as u64, "{what}: {lost} are lost: {repair:?}");
        let told = repair.sessions.len();
        let lost = whole.sessions.len() - state.sessions.len();
        assert!(told >= lost, "{what}: {lost} are lost: {repair:?}");
        let told: u64 = repair.topics.values().sum();
        let lost = whole.retained.len() - state.retained.len();
        assert!(told >= lost as u64, "{what}: {lost} are lost: {repair:?}");
        assert!(
            state == whole || repair.lost_pages > 0,
            "{what}: {repair:?}"
        );
        if repair.damage.is_some() {
            damaged += 1;
            kept += state.deliveries();
        }
    }
    assert!(damaged > 2, "{damaged}");
    assert!(kept * 2 > damaged * whole.deliveries(), "{kept}");
}
