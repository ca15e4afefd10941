//! What the durable store does a second, what it makes a client wait, and what starting with a large
//! one takes, on the disk of this machine. Units stand in each line, goals behind them; the disk's
//! own sync is measured beside.
//!
//! `SESSIONS` and `QUEUED` in the environment choose the size of the recovery rows; their goals are
//! for a million and ten million. `benches/start_report.py` has it make such a store for a broker.
#![allow(
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a report on a terminal"
)]
#![allow(clippy::cast_precision_loss, reason = "figures to read")]

use std::collections::VecDeque;
use std::env;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use mqttcore_benches::load::process::cpu_seconds;
use mqttcore_store::files::{Files, Folder};
use mqttcore_store::record::{
    Away, MessageRecord, PacketIdRunsBuf, RecipientsBuf, Record, SessionOpened,
};
use mqttcore_store::{
    Batch, Durability, DurableStore, SpacePolicy, Store, StoreOptions, Wal, WalOptions,
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
    // Steps that are measured for memory have a process of their own.
    if let Ok(step) = env::var(STEP) {
        return match &*step {
            "folder" => folder(),
            "replay" => replay(),
            "start" => start(),
            _ => panic!("no step {step}"),
        };
    }
    latency();
    throughput();
    bytes();
    recovery();
}

const STEP: &str = "MQTTCORE_STORE_STEP";

/// Prints what was measured beside its goal; less is better.
fn judge(what: &str, measured: f64, goal: f64, unit: &str) {
    let verdict = if measured <= goal { "met" } else { "not met" };
    println!("{what}: {measured:.2} {unit} (goal {goal:.2}: {verdict})");
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

    /// What another process has made.
    fn kept(name: &str) -> Borrowed {
        Borrowed(PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name))
    }

    fn files(&self) -> Arc<dyn Files> {
        Arc::new(Folder::open(&self.0).unwrap())
    }
}

/// A folder that somebody else removes.
struct Borrowed(PathBuf);

impl Borrowed {
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
    message_on(TOPIC, number, session, batch, recipients);
}

fn message_on(
    topic: &str,
    number: u64,
    session: u64,
    batch: &mut Batch,
    recipients: &mut RecipientsBuf,
) {
    recipients.clear();
    recipients.push(session, 1, false, &[]);
    batch.push(&Record::Message(MessageRecord {
        message: number,
        qos: 1,
        topic,
        recipients: recipients.as_recipients(),
        payload: &PAYLOAD,
        ..MessageRecord::default()
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
            .append(&mut batch, Durability::Fsync, SpacePolicy::Ordinary)
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
    let (mid, late) = (quantile(&durable, 0.5), quantile(&durable, 0.99));
    judge(
        "idle: one durable message, p50",
        ms(mid),
        1.5 * ms(p50) + 1.0,
        "ms",
    );
    judge(
        "idle: one durable message, p99",
        ms(late),
        1.5 * ms(p99) + 5.0,
        "ms",
    );
}

/// Four threads with batches of 32 messages and up to 64 of them under way each.
fn throughput() {
    let workspace = Workspace::new("log");
    let (wal, _) = Wal::open(&workspace.files(), &WalOptions::default(), &mut |_| Ok(())).unwrap();
    let numbers = AtomicU64::new(1);
    let rate = pump(
        &|batch, recipients, session| {
            let first = numbers.fetch_add(32, Ordering::Relaxed);
            for number in first..first + 32 {
                message(number, session, batch, recipients);
            }
            wal.append(batch, Durability::Fsync, SpacePolicy::Ordinary)
                .unwrap()
        },
        &|ticket| wal.wait(ticket).unwrap(),
    );
    let syncs = wal.stats().syncs;
    println!(
        "log: {:.0} durable records/s (goal 200000: {}), {} syncs, p50 {:.2} ms, p99 {:.2} ms",
        rate,
        if rate >= 200_000.0 { "met" } else { "not met" },
        syncs.count(),
        ms(syncs.quantile(0.5)),
        ms(syncs.quantile(0.99)),
    );
    drop(wal);

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
            store
                .append(batch, Durability::Fsync, SpacePolicy::Ordinary)
                .unwrap()
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
    batch.push(&Record::Opened(SessionOpened {
        session,
        at_ms: 1,
        version: 5,
        expiry_s: u32::MAX,
        client_id: &format!("client-{session:07}"),
        username: None,
    }));
    store
        .append(&mut batch, Durability::Os, SpacePolicy::Ordinary)
        .unwrap();
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
        let ticket = store
            .append(batch, Durability::Fsync, SpacePolicy::Ordinary)
            .unwrap();
        store.wait(ticket).unwrap();
        (store.stats().log.bytes - before) as f64 / count as f64
    };
    for number in first..first + count {
        message(number, session, &mut batch, &mut recipients);
    }
    let published = took(&mut batch);
    let own = (TOPIC.len() + PAYLOAD.len()) as f64;
    let what = "bytes: a message over payload and topic, full batches";
    judge(what, published - own, 48.0, "bytes");
    for number in first..first + count {
        let packet_id = u16::try_from(number % 65_535).unwrap() + 1;
        batch.push(&Record::Sending {
            session,
            delivery: number,
            packet_id,
        });
        let mut done = PacketIdRunsBuf::default();
        done.push(packet_id);
        batch.push(&Record::Completed {
            session,
            packet_ids: done.as_packet_ids(),
        });
    }
    let delivered = published + took(&mut batch);
    let what = "bytes: the same, sent and acknowledged one by one";
    judge(what, delivered - own, 100.0, "bytes");
}

fn size(name: &str, default: u64) -> u64 {
    env::var(name).map_or(default, |text| text.parse().unwrap())
}

fn sizes() -> (u64, u64) {
    (size("SESSIONS", 1_000_000), size("QUEUED", 10_000_000))
}

fn large() -> StoreOptions {
    StoreOptions {
        checkpoint_bytes: u64::MAX,
        checkpoint_rows: usize::MAX,
        ..StoreOptions::default()
    }
}

/// Processor time of this process so far, in seconds: what is left of a duration where others work,
/// too.
fn cpu_s() -> f64 {
    cpu_seconds(std::process::id()).expect("this process")
}

/// Memory of this process in MB: now, and at the most.
fn memory_mb() -> (f64, f64) {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let figure = |name: &str| {
        let line = status.lines().find(|line| line.starts_with(name));
        let number = line.and_then(|line| line.split_whitespace().nth(1)?.parse().ok());
        number.unwrap_or(0.0) / 1024.0
    };
    (figure("VmRSS:"), figure("VmHWM:"))
}

/// Reading a log back: alone, with all it amounts to, and from a checkpoint.
fn recovery() {
    let (sessions, queued) = sizes();
    println!("recovery: {sessions} sessions, {queued} messages that wait for them");
    let workspace = Workspace::new("recovery");
    let options = large();
    let files = workspace.files();
    fill(&files, &options, sessions, queued);

    let began = Instant::now();
    let (wal, recovery) = Wal::open(&files, &options.wal, &mut |_| Ok(())).unwrap();
    let scan = began.elapsed();
    drop(wal);
    println!(
        "scan: the log alone in {:.2} s, {:.0} MB/s",
        scan.as_secs_f64(),
        recovery.scanned_bytes as f64 / 1e6 / scan.as_secs_f64(),
    );
    for step in ["replay", "start"] {
        let this = env::current_exe().unwrap();
        let status = Command::new(this).env(STEP, step).status().unwrap();
        assert!(status.success(), "step {step}");
    }
}

/// All that a log amounts to, without a checkpoint; then the checkpoint, while others read.
fn replay() {
    let workspace = Workspace::kept("recovery");
    let files = workspace.files();
    let (sessions, _) = sizes();
    let (before, _) = memory_mb();
    let began = Instant::now();
    let (store, _) = DurableStore::open(&files, &large()).unwrap();
    judge(
        "replay: sessions, queues and messages made of the whole log",
        began.elapsed().as_secs_f64(),
        12.0,
        "s",
    );
    println!("replay: {:.2} s of a processor", cpu_s());
    let what = "replay: memory for all of it, with nothing in a checkpoint";
    judge(what, memory_mb().0 - before, 600.0, "MB");
    let is_written = AtomicBool::new(false);
    let cpu_before = cpu_s();
    let began = Instant::now();
    let mut longest = Duration::ZERO;
    thread::scope(|scope| {
        scope.spawn(|| {
            store.checkpoint().unwrap();
            is_written.store(true, Ordering::Release);
        });
        let mut session = 1;
        while !is_written.load(Ordering::Acquire) {
            let asked = Instant::now();
            let page = store.page(session % sessions + 1, 0, 256, 1 << 20).unwrap();
            longest = longest.max(asked.elapsed());
            assert!(!page.is_empty(), "messages wait for session {session}");
            session += 1;
            thread::sleep(Duration::from_millis(1));
        }
    });
    println!(
        "checkpoint: all of it written in {:.2} s, {:.2} s of a processor",
        began.elapsed().as_secs_f64(),
        cpu_s() - cpu_before
    );
    let what = "checkpoint: the longest wait for a page meanwhile";
    judge(what, ms(longest), 250.0, "ms");
    store.close().unwrap();
}

/// From the checkpoint: when clients could connect, and when everything is known.
fn start() {
    let workspace = Workspace::kept("recovery");
    let files = workspace.files();
    let (sessions, _) = sizes();
    let (before, _) = memory_mb();
    let began = Instant::now();
    let (store, _) = DurableStore::open(&files, &large()).unwrap();
    judge("start: open", began.elapsed().as_secs_f64(), 1.0, "s");
    let (mut seen, mut deliveries) = (0_u64, 0);
    store
        .sessions(&mut |kept| {
            seen += 1;
            deliveries += kept.waiting.deliveries;
        })
        .unwrap();
    assert_eq!(seen, sessions, "every session is there");
    let what = format!("start: sessions, and how much of {deliveries} waits for each");
    judge(&what, began.elapsed().as_secs_f64(), 6.0, "s");
    println!("start: {:.2} s of a processor", cpu_s());
    judge("start: memory", memory_mb().1 - before, 600.0, "MB");
    let began = Instant::now();
    let read = 1_000.min(sessions);
    for session in 1..=read {
        let page = store.page(session, 0, 256, 1 << 20).unwrap();
        assert!(!page.is_empty(), "messages wait for session {session}");
    }
    println!(
        "start: a page of a queue with its messages in {:.3} ms",
        ms(began.elapsed()) / read as f64
    );
}

/// What session `number` subscribed to, as long as [`TOPIC`].
fn topic_of(session: u64) -> String {
    format!("fleet/{session:07}/telemetry/t")
}

/// A log of `sessions` sessions that are away, from number 1 on, each with a subscription, and of
/// `queued` messages for them in turn.
fn fill(files: &Arc<dyn Files>, options: &StoreOptions, sessions: u64, queued: u64) {
    let (wal, _) = Wal::open(files, &options.wal, &mut |_| Ok(())).unwrap();
    let (mut batch, mut recipients) = (Batch::default(), RecipientsBuf::default());
    let hand_over = |batch: &mut Batch| {
        let ticket = wal.append(batch, Durability::Os, SpacePolicy::Essential);
        ticket.unwrap()
    };
    for session in 1..=sessions {
        batch.push(&Record::Opened(SessionOpened {
            session,
            at_ms: 1,
            version: 5,
            expiry_s: u32::MAX,
            client_id: &format!("client-{session:07}"),
            username: None,
        }));
        batch.push(&Record::Subscribed {
            session,
            filter: &topic_of(session),
            options: 1,
            id: 0,
        });
        batch.push(&Record::Away(Away {
            session,
            at_ms: 2,
            expiry_s: u32::MAX,
            maybe_sent_below: 0,
        }));
        if batch.records() >= 1_000 {
            hand_over(&mut batch);
        }
    }
    for number in 1..=queued {
        let session = number % sessions + 1;
        let topic = topic_of(session);
        message_on(&topic, number, session, &mut batch, &mut recipients);
        if batch.records() >= 1_000 {
            let ticket = hand_over(&mut batch);
            if number % 100_000 < 1_000 {
                wal.wait(ticket).unwrap();
            }
        }
    }
    hand_over(&mut batch);
    wal.close().unwrap();
}

/// A store for somebody else: in the folder that `FOLDER` names, with a checkpoint of everything.
fn folder() {
    let path = env::var("FOLDER").unwrap();
    let files: Arc<dyn Files> = Arc::new(Folder::open(path.as_ref()).unwrap());
    let (sessions, queued) = sizes();
    fill(&files, &large(), sessions, queued);
    println!("folder: the log is written");
    let (store, _) = DurableStore::open(&files, &large()).unwrap();
    store.close().unwrap();
    println!("folder: and its checkpoint");
}
