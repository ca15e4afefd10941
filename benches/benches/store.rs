//! What the durable store does a second, and what it makes a client wait, on the disk of this
//! machine. Units stand in each line; the disk's own sync is measured beside.
//!
//! `SESSIONS` and `QUEUED` in the environment choose the size of the recovery rows.
#![allow(
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a report on a terminal"
)]
#![allow(clippy::cast_precision_loss, reason = "figures to read")]

use std::collections::VecDeque;
use std::env;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use mqttcore_store::files::{Files, Folder};
use mqttcore_store::record::{Message, Opened, PacketIdsBuf, RecipientsBuf, Record};
use mqttcore_store::{
    Batch, DurableStore, Journal, JournalOptions, Level, Need, Store, StoreOptions,
};

const TOPIC: &str = "fleet/1234567/telemetry/t";
const PAYLOAD: [u8; 64] = [0x5A; 64];
const SPAN: Duration = Duration::from_secs(3);
const WRITERS: u64 = 4;

fn main() {
    // `cargo test --benches` only wants to see it start.
    if env::args().any(|argument| argument == "--test") {
        return;
    }
    latency();
    throughput();
    bytes();
    recovery();
}

/// A folder of the disk that the build is on.
struct Workspace(PathBuf);

impl Workspace {
    fn new(name: &str) -> Self {
        let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
        // It may be left from a run that was stopped.
        let _ = std::fs::remove_dir_all(&path);
        Self(path)
    }

    fn files(&self) -> Arc<dyn Files> {
        Arc::new(Folder::open(&self.0).unwrap())
    }
}

impl Drop for Workspace {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn quantile(sorted: &[Duration], share: f64) -> Duration {
    let last = sorted.len() - 1;
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a rank"
    )]
    let place = (last as f64 * share).round() as usize;
    sorted[place]
}

fn ms(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e3
}

fn message(number: u64, session: u64, batch: &mut Batch, recipients: &mut RecipientsBuf) {
    recipients.clear();
    recipients.push(session, 1, false, &[]);
    batch.push(&Record::Message(Message {
        message: number,
        qos: 1,
        topic: TOPIC,
        recipients: recipients.as_recipients(),
        payload: &PAYLOAD,
        ..Message::default()
    }));
}

/// A QoS 1 publish of 64 bytes at a time, from its append until it is safe; in turns with a write
/// of the same size and a sync in a plain file.
fn latency() {
    let workspace = Workspace::new("latency");
    let plain = workspace.files().create("plain", 64 << 20).unwrap();
    let (store, _) = DurableStore::open(&workspace.files(), &StoreOptions::default()).unwrap();
    let (mut batch, mut recipients) = (Batch::default(), RecipientsBuf::default());
    let (mut disk, mut durable) = (Vec::new(), Vec::new());
    for turn in 0..500 {
        let began = Instant::now();
        plain.write_at(&[7; 156], turn * 156).unwrap();
        plain.sync().unwrap();
        disk.push(began.elapsed());
        let began = Instant::now();
        message(store.numbers(1), 1, &mut batch, &mut recipients);
        let ticket = store
            .append(&mut batch, Level::Fsync, Need::Ordinary)
            .unwrap();
        store.wait(ticket).unwrap();
        durable.push(began.elapsed());
    }
    disk.sort_unstable();
    durable.sort_unstable();
    let (p50, p99) = (quantile(&disk, 0.5), quantile(&disk, 0.99));
    println!(
        "disk: a write and fdatasync  p50 {:.2} ms  p99 {:.2} ms",
        ms(p50),
        ms(p99)
    );
    println!(
        "idle: one durable message    p50 {:.2} ms (goal {:.2})  p99 {:.2} ms (goal {:.2})",
        ms(quantile(&durable, 0.5)),
        1.5 * ms(p50) + 1.0,
        ms(quantile(&durable, 0.99)),
        1.5 * ms(p99) + 5.0,
    );
}

/// Four threads with batches of 32 messages and up to 64 of them under way each.
fn throughput() {
    let workspace = Workspace::new("log");
    let (journal, _) = Journal::open(&workspace.files(), &JournalOptions::default(), &mut |_| {
        Ok(())
    })
    .unwrap();
    let numbers = AtomicU64::new(1);
    let rate = pump(
        &|batch, recipients, session| {
            let first = numbers.fetch_add(32, Ordering::Relaxed);
            for number in first..first + 32 {
                message(number, session, batch, recipients);
            }
            journal.append(batch, Level::Fsync, Need::Ordinary).unwrap()
        },
        &|ticket| journal.wait(ticket).unwrap(),
    );
    let syncs = journal.stats().syncs;
    println!(
        "log: {:.0} durable records/s (goal 200,000), {} syncs, p50 {:.2} ms, p99 {:.2} ms",
        rate,
        syncs.count(),
        ms(syncs.quantile(0.5)),
        ms(syncs.quantile(0.99)),
    );
    drop(journal);

    let workspace = Workspace::new("whole");
    let (store, _) = DurableStore::open(&workspace.files(), &StoreOptions::default()).unwrap();
    for session in 0..WRITERS {
        open_session(&store, session);
    }
    let rate = pump(
        &|batch, recipients, session| {
            let first = store.numbers(32);
            for number in first..first + 32 {
                message(number, session, batch, recipients);
                batch.push(&Record::Dropped {
                    session,
                    delivery: number,
                });
            }
            store.append(batch, Level::Fsync, Need::Ordinary).unwrap()
        },
        &|ticket| store.wait(ticket).unwrap(),
    );
    println!(
        "store: {rate:.0} durable messages/s, queued and delivered, index and checkpoints included"
    );
}

/// Appends from all writers for a while; returns messages a second.
fn pump<T: Send>(
    append: &(dyn Fn(&mut Batch, &mut RecipientsBuf, u64) -> T + Sync),
    wait: &(dyn Fn(T) + Sync),
) -> f64 {
    let done = AtomicU64::new(0);
    let began = Instant::now();
    thread::scope(|scope| {
        for session in 0..WRITERS {
            let done = &done;
            scope.spawn(move || {
                let (mut batch, mut recipients) = (Batch::default(), RecipientsBuf::default());
                let mut under_way = VecDeque::new();
                while began.elapsed() < SPAN {
                    under_way.push_back(append(&mut batch, &mut recipients, session));
                    if under_way.len() == 64 {
                        under_way.drain(..32).for_each(wait);
                        done.fetch_add(32 * 32, Ordering::Relaxed);
                    }
                }
                done.fetch_add(32 * under_way.len() as u64, Ordering::Relaxed);
                under_way.into_iter().for_each(wait);
            });
        }
    });
    done.into_inner() as f64 / began.elapsed().as_secs_f64()
}

fn open_session(store: &dyn Store, session: u64) {
    let mut batch = Batch::default();
    batch.push(&Record::Opened(Opened {
        session,
        at_ms: 1,
        version: 5,
        expiry_s: u32::MAX,
        client_id: &format!("client-{session:07}"),
        username: None,
    }));
    store.append(&mut batch, Level::Os, Need::Ordinary).unwrap();
}

/// Bytes of the log for each message beyond its payload and topic.
fn bytes() {
    let workspace = Workspace::new("bytes");
    let (store, _) = DurableStore::open(&workspace.files(), &StoreOptions::default()).unwrap();
    let (mut batch, mut recipients) = (Batch::default(), RecipientsBuf::default());
    let count = 8_192;
    let session = 1_000_000;
    let first = (1 << 40) + store.numbers(1);
    let took = |batch: &mut Batch| {
        let before = store.stats().log.bytes;
        let ticket = store.append(batch, Level::Fsync, Need::Ordinary).unwrap();
        store.wait(ticket).unwrap();
        (store.stats().log.bytes - before) as f64 / count as f64
    };
    for number in first..first + count {
        message(number, session, &mut batch, &mut recipients);
    }
    let published = took(&mut batch);
    let own = (TOPIC.len() + PAYLOAD.len()) as f64;
    println!(
        "bytes: {:.1} a message over payload and topic, full batches (goal 48)",
        published - own
    );
    for number in first..first + count {
        let packet_id = u16::try_from(number % 65_535).unwrap() + 1;
        batch.push(&Record::Sending {
            session,
            delivery: number,
            packet_id,
        });
        let mut done = PacketIdsBuf::default();
        done.push(packet_id);
        batch.push(&Record::Completed {
            session,
            packet_ids: done.as_packet_ids(),
        });
    }
    let delivered = published + took(&mut batch);
    println!(
        "bytes: {:.1} more when each is sent and acknowledged by itself (goal 100 in all: {:.1})",
        delivered - published,
        delivered - own
    );
}

fn size(name: &str, default: u64) -> u64 {
    env::var(name).map_or(default, |text| text.parse().unwrap())
}

/// Reading a log back: alone, with all it amounts to, and from a checkpoint.
fn recovery() {
    let (sessions, queued) = (size("SESSIONS", 50_000), size("QUEUED", 500_000));
    let workspace = Workspace::new("recovery");
    let options = StoreOptions {
        checkpoint_bytes: u64::MAX,
        checkpoint_rows: usize::MAX,
        ..StoreOptions::default()
    };
    fill(&workspace, &options, sessions, queued);
    let files = workspace.files();

    let began = Instant::now();
    let (journal, recovery) = Journal::open(&files, &options.journal, &mut |_| Ok(())).unwrap();
    let scan = began.elapsed();
    drop(journal);
    let scale = 11_000_000.0 / recovery.records as f64;
    println!(
        "scan: {} sessions and {} queued messages in {:.2} s, {:.0} MB/s; at this rate 1 M and 10 M take {:.0} s (goal 12)",
        sessions,
        queued,
        scan.as_secs_f64(),
        recovery.scanned_bytes as f64 / 1e6 / scan.as_secs_f64(),
        scan.as_secs_f64() * scale,
    );

    let began = Instant::now();
    let (store, _) = DurableStore::open(&files, &options).unwrap();
    let replay = began.elapsed();
    println!(
        "replay: the same with sessions and queues made of it in {:.2} s (x {scale:.0} is {:.0} s)",
        replay.as_secs_f64(),
        replay.as_secs_f64() * scale
    );
    let began = Instant::now();
    store.checkpoint().unwrap();
    println!(
        "checkpoint: all of it written to redb in {:.2} s",
        began.elapsed().as_secs_f64()
    );
    store.close().unwrap();
    drop(store);

    let began = Instant::now();
    let (store, _) = DurableStore::open(&files, &options).unwrap();
    let open = began.elapsed();
    let mut seen = 0_u64;
    store.sessions(&mut |_, _, _| seen += 1).unwrap();
    let listed = began.elapsed();
    let mut waiting = 0;
    for session in 0..sessions {
        waiting += store.queue(session, 0, usize::MAX).unwrap().len();
    }
    println!(
        "start: from the checkpoint open in {:.3} s, {seen} sessions after {:.2} s, {waiting} queued after {:.2} s",
        open.as_secs_f64(),
        listed.as_secs_f64(),
        began.elapsed().as_secs_f64(),
    );
}

fn fill(workspace: &Workspace, options: &StoreOptions, sessions: u64, queued: u64) {
    let (journal, _) =
        Journal::open(&workspace.files(), &options.journal, &mut |_| Ok(())).unwrap();
    let (mut batch, mut recipients) = (Batch::default(), RecipientsBuf::default());
    let mut last = None;
    for session in 0..sessions {
        batch.push(&Record::Opened(Opened {
            session,
            at_ms: 1,
            version: 5,
            expiry_s: u32::MAX,
            client_id: &format!("client-{session:07}"),
            username: None,
        }));
        batch.push(&Record::Subscribed {
            session,
            filter: TOPIC,
            options: 1,
            id: 0,
        });
        if batch.records() >= 1_000 {
            last = Some(
                journal
                    .append(&mut batch, Level::Os, Need::Essential)
                    .unwrap(),
            );
        }
    }
    for number in 1..=queued {
        message(number, number % sessions, &mut batch, &mut recipients);
        if batch.records() >= 1_000 {
            last = Some(
                journal
                    .append(&mut batch, Level::Os, Need::Essential)
                    .unwrap(),
            );
        }
        if number % 100_000 == 0
            && let Some(ticket) = last.take()
        {
            journal.wait(ticket).unwrap();
        }
    }
    journal
        .append(&mut batch, Level::Os, Need::Essential)
        .unwrap();
    journal.close().unwrap();
}
