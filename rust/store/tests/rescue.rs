//! A damaged checkpoint that has taken over segments of the log: what can be read of it is kept.
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod common;

use std::collections::BTreeMap;

use mqttcore_store::faults::{Disk, Faults, Random};
use mqttcore_store::files::Files as _;
use mqttcore_store::record::{MessageRecord, RecipientsBuf, Record, SessionOpened};
use mqttcore_store::{DurableStore, Store, StoreError, StoreOptions, tools};

use common::{append, files};

const CHECKPOINT: &str = "checkpoint.redb";
const FIRST: &str = "00000000000000000001.log";
const OPTIONS: StoreOptions = StoreOptions::small(16 * 1_024, 1);
const PAGE: usize = 4_096;
const RECIPIENTS: u64 = 4;
/// Messages behind the checkpoint.
const BEHIND: u64 = 40;

/// How much is in a store.
#[derive(Clone, Copy)]
struct Sizes {
    sessions: u64,
    messages: u64,
    retained: u64,
    segment_bytes: u64,
    segments_kept: usize,
}

const LARGE: Sizes = Sizes {
    sessions: 120,
    messages: 240,
    retained: 60,
    segment_bytes: OPTIONS.wal.segment_bytes,
    segments_kept: OPTIONS.segments_kept,
};
const SMALL: Sizes = Sizes {
    sessions: 6,
    messages: 80,
    retained: 4,
    segment_bytes: 4 * 1_024,
    ..LARGE
};
/// The checkpoint has taken over nothing.
const COMPLETE: Sizes = Sizes {
    segments_kept: 100,
    ..SMALL
};

fn client(session: usize) -> String {
    format!("meter-{session}-of-a-hall-with-a-long-name")
}

fn payload(number: u64) -> Vec<u8> {
    format!("{number} ").repeat(40).into_bytes()
}

/// The store of a broker that was killed. Its checkpoint has most of the log; the rest is in segments that are
/// there, a part of it behind the checkpoint.
fn store(sizes: &Sizes) -> Disk {
    let disk = Disk::new(1, Faults::default());
    let mut options = OPTIONS;
    options.wal.segment_bytes = sizes.segment_bytes;
    options.segments_kept = sizes.segments_kept;
    let (store, _) = DurableStore::open(&files(&disk), &options).unwrap();
    let sessions: Vec<u64> = (0..sizes.sessions).map(|_| store.numbers(1)).collect();
    for (place, &session) in sessions.iter().enumerate() {
        let (client_id, filter) = (client(place), format!("hall/{place}/#"));
        append(
            &store,
            &[
                Record::Opened(SessionOpened {
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
    for number in 0..sizes.messages {
        let mut recipients = RecipientsBuf::default();
        for place in 0..RECIPIENTS {
            let place = (number * 7 + place * 31) % sizes.sessions;
            recipients.push(sessions[usize::try_from(place).unwrap()], 1, false, &[]);
        }
        let message = MessageRecord {
            message: store.numbers(RECIPIENTS),
            qos: 1,
            topic: &format!("hall/{number}"),
            recipients: recipients.as_recipients(),
            payload: &payload(number),
            ..MessageRecord::default()
        };
        append(&store, &[Record::Message(message)]);
        if number < sizes.retained {
            let message = MessageRecord {
                message: store.numbers(1),
                topic: &format!("state/{number}"),
                kept: true,
                payload: &payload(number),
                ..MessageRecord::default()
            };
            append(&store, &[Record::Message(message)]);
        }
        if number == sizes.messages - BEHIND {
            store.checkpoint().unwrap();
            let keeps_all = sizes.segments_kept > OPTIONS.segments_kept;
            while !keeps_all && disk.content(FIRST).is_some() {
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
    /// By client identifier: filters, and queued messages by topic.
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

    fn assert_is(&self, other: &Self, changes: u64) {
        self.assert_part_of(other, &format!("change {changes}"));
        let figures = |state: &Self| (state.deliveries(), state.retained.len(), state.live_bytes);
        assert_eq!(figures(self), figures(other), "change {changes}");
        assert!(self == other, "change {changes}");
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
    let disk = store(&LARGE);
    let whole = State::of(&disk.after_kill()).unwrap();
    let content = disk.content(CHECKPOINT).unwrap();
    let mut random = Random(3);
    // Flags of the file, then a few bytes of each page.
    let mut bits: Vec<(usize, u64)> = (0..8).map(|bit| (9, bit)).collect();
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
    let disk = store(&LARGE);
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

/// The place in a file behind the first bytes of `wanted`.
fn place_of(disk: &Disk, name: &str, wanted: &[u8]) -> Option<usize> {
    let content = disk.content(name)?;
    let place = content
        .windows(wanted.len())
        .position(|part| part == wanted);
    place.map(|place| place + 1)
}

/// One bit at the front of a page with sessions: the search for it ends soon.
fn flip_session(disk: &Disk) {
    let at = place_of(disk, CHECKPOINT, client(2).as_bytes()).unwrap();
    disk.corrupt(CHECKPOINT, |bytes| bytes[at / PAGE * PAGE + 1] ^= 4);
}

/// A page with contents of messages; no single bit makes a page of it, so that none is searched for.
fn overwrite_page(disk: &Disk) {
    let at = place_of(disk, CHECKPOINT, &payload(3)).unwrap();
    disk.corrupt(CHECKPOINT, |bytes| {
        bytes[at / PAGE * PAGE..][..512].fill(0xa5);
    });
}

fn flip_message(disk: &Disk, number: u64) {
    let names = disk.list().unwrap().into_iter();
    let mut segments = names.filter(|name| name.strip_suffix(".log").is_some());
    let place = segments.find_map(|name| Some((place_of(disk, &name, &payload(number))?, name)));
    let (at, name) = place.unwrap();
    disk.corrupt(&name, |bytes| bytes[at] ^= 4);
}

/// The segment that is written to.
fn last_segment(disk: &Disk) -> String {
    let mut names = disk.list().unwrap().into_iter();
    let last = names.rfind(|name| name.strip_suffix(".log").is_some());
    last.unwrap()
}

/// The log begins with LSN 1, but it is not all there: the checkpoint has what it lacks.
#[test]
fn a_checkpoint_with_a_wrong_bit_has_what_an_old_record_said_that_cannot_be_read() {
    let damaged = store(&COMPLETE);
    let whole = State::of(&damaged.after_kill()).unwrap();
    flip_session(&damaged);
    let at = place_of(&damaged, FIRST, b"hall/2/#").unwrap();
    damaged.corrupt(FIRST, |bytes| bytes[at] ^= 4);
    let damaged = damaged.after_kill();
    let started = State::of(&damaged).unwrap_err();

    let repair = tools::repair(&files(&damaged), &OPTIONS).unwrap();

    assert!(matches!(started, StoreError::Damaged(_)), "{started}");
    assert!(State::of(&damaged).unwrap() == whole, "{repair:?}");
    assert!(repair.set_aside.contains(&format!("{CHECKPOINT}.damaged")));
    assert!(
        repair.sessions.is_empty() && repair.topics.is_empty(),
        "{repair:?}"
    );
}

/// The bit of the file that names its last commit: no checksum covers it.
#[test]
fn a_checkpoint_that_names_its_older_commit_is_righted_and_the_start_says_so() {
    let disk = store(&LARGE);
    let whole = State::of(&disk.after_kill()).unwrap();
    disk.corrupt(CHECKPOINT, |bytes| bytes[9] ^= 1);

    let verified = tools::verify(&files(&disk.after_kill())).unwrap();
    let disk = disk.after_kill();
    let (store, recovery) = DurableStore::open(&files(&disk), &OPTIONS).unwrap();
    store.close().unwrap();

    let says = "checkpoint.redb pointed to the older of its last two commits";
    assert!(recovery.rebuilt[0].contains(says), "{recovery:?}");
    assert_eq!(verified.rebuilt, recovery.rebuilt);
    assert!(State::of(&disk).unwrap() == whole);
}

/// The power goes at each file operation of a repair that may change the folder, or at one of `step`. Then the store
/// is refused, or opens as the repair would have left it; and another repair keeps what one that nobody disturbs
/// keeps.
fn cut_everywhere(step: usize, sizes: &Sizes, damage: impl FnOnce(&Disk)) {
    let damaged = store(sizes);
    damage(&damaged);
    let disk = damaged.after_kill();
    let repair = tools::repair(&files(&disk), &OPTIONS).unwrap();
    assert!(repair.damage.is_some());
    let mended = State::of(&disk).unwrap();
    assert!(mended.deliveries() > 0, "{repair:?}");
    for changes in (1..).step_by(step) {
        let disk = damaged.after_kill();
        disk.reseed(changes);
        disk.cut_after_changes(changes);
        let repaired = tools::repair(&files(&disk), &OPTIONS);
        if !disk.is_off() {
            assert_eq!(repaired.unwrap(), repair);
            assert!(changes > 50, "{changes}");
            break;
        }
        // Whether what was not synced is lost is chance.
        let disk = if changes % 3 == 0 {
            disk.after_kill()
        } else {
            disk.after_power_cut()
        };
        match State::of(&disk) {
            Ok(state) => state.assert_is(&mended, changes),
            Err(error) => {
                let is_told = matches!(error, StoreError::Damaged(_));
                assert!(is_told, "change {changes}: {error}");
            }
        }
        tools::repair(&files(&disk), &OPTIONS)
            .unwrap_or_else(|error| panic!("change {changes}: {error}"));
        State::of(&disk).unwrap().assert_is(&mended, changes);
    }
}

#[test]
fn a_repair_of_a_page_of_the_checkpoint_is_cut_anywhere_and_repeated() {
    cut_everywhere(1, &SMALL, overwrite_page);
}

#[test]
fn a_repair_of_a_record_is_cut_anywhere_and_repeated() {
    cut_everywhere(1, &SMALL, |disk| flip_message(disk, SMALL.messages - 20));
}

#[test]
fn a_repair_of_a_missing_segment_is_cut_anywhere_and_repeated() {
    cut_everywhere(5, &SMALL, |disk| {
        disk.remove(&last_segment(disk)).unwrap();
        disk.sync_names().unwrap();
    });
}

#[test]
fn a_repair_of_a_checkpoint_and_a_record_is_cut_anywhere_and_repeated() {
    cut_everywhere(1, &SMALL, |disk| {
        overwrite_page(disk);
        flip_message(disk, SMALL.messages - 20);
    });
}

#[test]
fn a_repair_of_a_checkpoint_and_an_old_record_is_cut_anywhere_and_repeated() {
    cut_everywhere(5, &COMPLETE, |disk| {
        flip_session(disk);
        flip_message(disk, 2);
    });
}

/// A page of links to others has the content of another such page: a write went to the wrong place.
#[test]
fn a_page_that_links_to_pages_of_another_table_costs_its_rows() {
    let disk = store(&LARGE);
    let whole = State::of(&disk.after_kill()).unwrap();
    let content = disk.content(CHECKPOINT).unwrap();
    let mut branches = used_pages(&content);
    branches.retain(|page| content[page * PAGE] == 2);
    let mut damaged = 0;
    for (&from, &to) in branches.iter().zip(branches.iter().cycle().skip(1)) {
        let what = format!("page {from} in the place of {to}");

        let (repair, state) = mended(&disk, &what, |bytes| {
            bytes.copy_within(from * PAGE..(from + 1) * PAGE, to * PAGE);
        });

        state.assert_part_of(&whole, &what);
        damaged += usize::from(repair.damage.is_some());
    }
    assert!(damaged > 2, "{damaged} of {}", branches.len());
}
