//! Streams in a real folder, with all threads of the store.
#![cfg(feature = "columnar")]
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod small;

use std::collections::BTreeMap;
use std::io::{self, Read};
use std::ops::Range;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use mqttcore_store::files::{Files, Folder};
use mqttcore_store::record::{MessageRecord, Record, RowRefsBuf, Streamed};
use mqttcore_store::stream::{
    Bounds, Definition, KeptTime, Objects, StreamLimits, StreamOptions, TierOptions,
};
use mqttcore_store::{
    Batch, Durability, DurableStore, LogObserver, SpacePolicy, Store, StoreError, Ticket,
};

use small::OPTIONS;

/// A folder that goes with the test.
struct Temporary(PathBuf);

impl Temporary {
    fn new(name: &str) -> Self {
        let name = format!("mqttcore-streams-{name}-{}", std::process::id());
        Self(std::env::temp_dir().join(name))
    }

    fn open(&self, limits: StreamLimits) -> DurableStore {
        self.open_tiered(limits, None)
    }

    fn open_tiered(&self, limits: StreamLimits, tier: Option<&TierOptions>) -> DurableStore {
        let files: Arc<dyn Files> = Arc::new(Folder::open(&self.0).unwrap());
        let definition = |name: &str| Definition {
            name: name.to_owned(),
            filters: vec![format!("{name}/#")],
            partitions: 2,
            tier: tier.cloned(),
            ..Definition::default()
        };
        let definitions = vec![definition("plant"), definition("other")];
        let streams = StreamOptions {
            definitions,
            limits,
        };
        DurableStore::open_with(&files, &OPTIONS, &streams)
            .unwrap()
            .0
    }

    fn mode(&self, path: &str) -> u32 {
        let facts = std::fs::metadata(self.0.join(path)).unwrap();
        facts.permissions().mode() & 0o777
    }

    fn segments(&self) -> usize {
        let names = std::fs::read_dir(&self.0).unwrap();
        let names = names.map(|entry| entry.unwrap().path());
        names
            .filter(|path| path.extension() == Some(Path::new("log").as_os_str()))
            .count()
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.0).unwrap();
    }
}

fn append(store: &DurableStore, durability: Durability, payload: &[u8]) -> Ticket {
    let streams = store.streams().unwrap();
    let plant = streams.find("plant").unwrap();
    let mut rows = RowRefsBuf::default();
    rows.push(plant, 0);
    let mut batch = Batch::default();
    batch.push(&Record::Message(MessageRecord {
        message: store.numbers(1),
        topic: "plant/1",
        streamed: Some(Streamed {
            dup: false,
            at_us: 5,
            rows: rows.as_rows(),
        }),
        payload,
        ..MessageRecord::default()
    }));
    store
        .append(&mut batch, durability, SpacePolicy::Ordinary)
        .unwrap()
}

/// Sleeps until the first partition looks like that.
fn until(store: &DurableStore, is_so: impl Fn(Bounds) -> bool) {
    let streams = store.streams().unwrap();
    let deadline = Instant::now() + Duration::from_secs(60);
    while !is_so(streams.bounds("plant").unwrap()[0]) {
        assert!(Instant::now() < deadline, "{:?}", streams.bounds("plant"));
        std::thread::yield_now();
    }
}

/// A message of QoS 0: no acknowledgement waits for a sync, the row does not wait for one either.
#[test]
fn a_row_that_nobody_waits_for_is_seen_too() {
    let folder = Temporary::new("unseen");
    let store = folder.open(StreamLimits::default());

    append(&store, Durability::Memory, b"x");

    until(&store, |bounds| bounds.end == 1);
    store.close().unwrap();
}

#[test]
fn rows_are_sealed_when_the_store_is_closed_and_the_log_is_free() {
    let folder = Temporary::new("closed");
    let store = folder.open(StreamLimits::default());
    for _ in 0..40 {
        let ticket = append(&store, Durability::Fsync, &[b'x'; 4_000]);
        store.wait(ticket).unwrap();
    }
    store.checkpoint().unwrap();
    assert!(
        folder.segments() > 10,
        "rows that are in no file pin their segments"
    );

    store.close().unwrap();
    drop(store);

    let store = folder.open(StreamLimits::default());
    let expected = Bounds {
        earliest: 0,
        sealed_end: 40,
        end: 40,
    };
    assert_eq!(
        store.streams().unwrap().bounds("plant").unwrap()[0],
        expected
    );
    store.checkpoint().unwrap();
    store.close().unwrap();
    assert!(folder.segments() <= 4, "{} segments", folder.segments());
}

#[test]
fn a_tail_that_is_large_is_sealed_and_what_comes_meanwhile_waits() {
    let folder = Temporary::new("large");
    let limits = StreamLimits {
        partition_bytes: 4_000,
        tail_bytes: 8_000,
        ..StreamLimits::default()
    };
    let store = folder.open(limits);

    let mut last = None;
    for _ in 0..100 {
        last = Some(append(&store, Durability::Fsync, &[b'x'; 1_000]));
    }
    store.wait(last.unwrap()).unwrap();

    until(&store, |bounds| bounds.sealed_end > 0);
    until(&store, |bounds| bounds.end == 100);
    assert!(store.streams().unwrap().figures().files > 0);
    store.close().unwrap();
}

/// Object storage in memory, whose second write of a file hangs, as in a folder of a server that is away.
#[derive(Debug, Default)]
struct Hanging {
    content: Mutex<Content>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Content {
    objects: BTreeMap<String, Vec<u8>>,
    hangs: bool,
    is_let_go: bool,
    is_closed: bool,
}

impl Hanging {
    fn wait_until(&self, is_so: impl Fn(&Content) -> bool) {
        let limit = Duration::from_secs(60);
        let content = self.content.lock().unwrap();
        let waited = self
            .changed
            .wait_timeout_while(content, limit, |content| !is_so(content));
        assert!(!waited.unwrap().1.timed_out());
    }

    fn change<T>(&self, change: impl FnOnce(&mut Content) -> io::Result<T>) -> io::Result<T> {
        let changed = change(&mut self.content.lock().unwrap());
        self.changed.notify_all();
        changed
    }

    fn call<T>(&self, act: impl FnOnce(&mut Content) -> io::Result<T>) -> io::Result<T> {
        self.change(|content| {
            if content.is_closed {
                return Err(io::ErrorKind::Interrupted.into());
            }
            act(content)
        })
    }
}

impl Objects for Hanging {
    fn url(&self) -> &'static str {
        "file:///away"
    }

    fn put(&self, name: &str, content: &mut dyn Read, _: u64) -> io::Result<()> {
        let mut whole = Vec::new();
        content.read_to_end(&mut whole)?;
        let hangs = self.change(|content| {
            let mut names = content.objects.keys();
            content.hangs = name.contains("/data/") && names.any(|name| name.contains("/data/"));
            Ok(content.hangs)
        })?;
        if hangs {
            self.wait_until(|content| content.is_let_go);
        }
        self.call(|content| {
            content.objects.insert(name.to_owned(), whole);
            Ok(())
        })
    }

    fn get(&self, name: &str, part: Range<u64>) -> io::Result<Vec<u8>> {
        self.call(|content| {
            let object = content.objects.get(name).ok_or(io::ErrorKind::NotFound)?;
            let place = |at: u64| usize::try_from(at).unwrap().min(object.len());
            Ok(object[place(part.start)..place(part.end)].to_vec())
        })
    }

    fn bytes(&self, name: &str) -> io::Result<u64> {
        self.call(|content| {
            let object = content.objects.get(name).ok_or(io::ErrorKind::NotFound)?;
            Ok(object.len() as u64)
        })
    }

    fn list(&self, _: &str) -> io::Result<Vec<String>> {
        Ok(Vec::new())
    }

    fn remove(&self, _: &str) -> io::Result<()> {
        Ok(())
    }

    fn close(&self) {
        let _ = self.change(|content| {
            content.is_closed = true;
            Ok(())
        });
    }
}

#[derive(Debug)]
struct Stopped;

impl KeptTime for Stopped {
    fn now_us(&self) -> u64 {
        1_577_836_800_000_000
    }
}

/// What is told about object storage.
struct Told(Mutex<Vec<String>>);

impl LogObserver for Told {
    fn kept(&self, _: Durability, _: u64) {}

    fn refused(&self, _: &[Ticket]) {}

    fn tiered(&self, stream: &str, problem: Option<&StoreError>) {
        let problem = problem.map(ToString::to_string);
        let told = format!("{stream}: {}", problem.unwrap_or_default());
        self.0.lock().unwrap().push(told);
    }

    fn stopped(&self, _: &StoreError) {}
}

#[test]
fn a_stop_does_not_wait_for_object_storage_that_hangs() {
    let folder = Temporary::new("hangs");
    let objects = Arc::new(Hanging::default());
    let tier = TierOptions {
        start_limit: Duration::from_secs(10),
        objects: Arc::clone(&objects) as Arc<dyn Objects>,
        upload_after: Duration::ZERO,
        local_age: None,
        local_bytes: None,
        grace: Duration::ZERO,
    };
    let store = folder.open_tiered(StreamLimits::default(), Some(&tier));
    drop(tier);
    let told = Arc::new(Told(Mutex::default()));
    store.observe(Arc::clone(&told) as Arc<dyn LogObserver>);
    for _ in 0..2 {
        let ticket = append(&store, Durability::Fsync, b"x");
        store.wait(ticket).unwrap();
        store.seal("plant").unwrap();
    }
    store.streams().unwrap().count_by(Arc::new(Stopped));
    objects.wait_until(|content| content.hangs);

    store.close().unwrap();

    let problems = told.0.lock().unwrap().clone();
    let [problem] = &problems[..] else {
        panic!("{problems:?}");
    };
    for part in ["plant: ", "file:///away/plant/data", "the broker stops"] {
        assert!(problem.contains(part), "{problem}");
    }
    // Another process may have the folder when the call returns.
    let index = folder.0.join("streams/plant/sealed.json");
    let before = std::fs::read(&index).unwrap();
    assert!(!String::from_utf8_lossy(&before).contains("object"));
    drop(store);
    let _ = objects.change(|content| {
        content.is_let_go = true;
        Ok(())
    });
    let deadline = Instant::now() + Duration::from_secs(60);
    while Arc::strong_count(&objects) > 1 {
        assert!(Instant::now() < deadline, "the thread goes on");
        std::thread::yield_now();
    }
    assert_eq!(std::fs::read(&index).unwrap(), before);
}

/// A stream is sealed on request without pause; the thread that does it still looks after the others.
#[test]
fn rows_that_are_old_are_sealed_however_often_another_stream_is() {
    let folder = Temporary::new("often");
    let limits = StreamLimits {
        tail_age: Duration::ZERO,
        ..StreamLimits::default()
    };
    let store = folder.open(limits);
    let is_done = AtomicBool::new(false);

    std::thread::scope(|threads| {
        for _ in 0..2 {
            threads.spawn(|| {
                while !is_done.load(Ordering::Relaxed) {
                    store.seal("other").unwrap();
                }
            });
        }
        let ticket = append(&store, Durability::Fsync, b"x");
        store.wait(ticket).unwrap();
        let sealed = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            until(&store, |bounds| bounds.sealed_end == 1);
        }));
        is_done.store(true, Ordering::Relaxed);
        sealed.unwrap();
    });
    store.close().unwrap();
}

#[test]
fn sealing_on_request_returns_when_the_rows_are_in_files() {
    let folder = Temporary::new("request");
    let store = folder.open(StreamLimits::default());
    let ticket = append(&store, Durability::Fsync, b"x");
    store.wait(ticket).unwrap();

    store.seal("plant").unwrap();

    let bounds = store.streams().unwrap().bounds("plant").unwrap();
    assert_eq!(
        bounds[0],
        Bounds {
            earliest: 0,
            sealed_end: 1,
            end: 1
        }
    );
    assert!(store.seal("third").is_err());
    let data = "streams/plant/data";
    let file = format!("{data}/00000-00000000000000000000.parquet");
    assert_eq!((folder.mode(&file), folder.mode(data)), (0o640, 0o750));
    assert_eq!(folder.mode("streams/plant/stream.json"), 0o600);
    assert_eq!(
        (folder.mode("streams/plant"), folder.mode("streams")),
        (0o710, 0o710)
    );
    store.close().unwrap();
}
