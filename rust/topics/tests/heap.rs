//! B5: a directory and a retained store give all memory back: when everything is removed, and when they are dropped.
//!
//! In a program of its own, one test at a time: the allocator counts for all threads.

mod oracle;

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicIsize, Ordering};
use std::sync::{Barrier, Mutex};
use std::thread;

use mqttcore_codec::QoS;
use mqttcore_topics::{Change, Directory, Options, RetainedStore, Strategy};
use oracle::{filter, name};

static BYTES: AtomicIsize = AtomicIsize::new(0);

struct Counting;

fn add(bytes: usize, sign: isize) {
    BYTES.fetch_add(sign * isize::try_from(bytes).unwrap_or(0), Ordering::SeqCst);
}

// SAFETY: the system's allocator does the work.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        add(layout.size(), 1);
        // SAFETY: the caller's contract.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        add(layout.size(), -1);
        // SAFETY: the caller's contract.
        unsafe { System.dealloc(block, layout) }
    }
}

#[global_allocator]
static HEAP: Counting = Counting;

const CLIENTS: u64 = if cfg!(miri) { 20 } else { 2_000 };

/// What the allocator handed out, and what blocks take.
fn held() -> isize {
    BYTES.load(Ordering::SeqCst) + isize::try_from(Directory::heap_bytes()).unwrap_or(0)
}

/// Drives the epoch past everything that was retired, and gives back what this thread keeps for later.
fn settled() -> isize {
    for _ in 0..256 {
        crossbeam_epoch::pin().flush();
    }
    // The epoch's own list frees each of its nodes by way of the next, so its length goes up and down for ever.
    let lengths = (0..8).map(|_| {
        crossbeam_epoch::pin().flush();
        Directory::trim();
        held()
    });
    lengths.min().unwrap_or_default()
}

/// Filters of every shape, on several threads: sets of all forms, groups, collisions, overlaps.
fn fill_and_empty(directory: &Directory, retained: &RetainedStore<String>) {
    thread::scope(|scope| {
        let writers = [0, 1].map(|writer| {
            scope.spawn(move || {
                for client in (writer..CLIENTS).step_by(2) {
                    let id = directory.join(client);
                    let own = [
                        format!("devices/{client}/+"),
                        format!("devices/{client}/state"),
                        format!("site/{}/room/{client}/#", client % 7),
                        "alerts/+/critical".to_owned(),
                        "$share/g/alerts/+/critical".to_owned(),
                    ]
                    .map(|text| filter(&text));
                    let options = Options::at(QoS::ExactlyOnce);
                    let changes = own
                        .each_ref()
                        .map(|filter| Change::Subscribe { filter, options });
                    directory.commit(id, &changes);
                    let topic = format!("site/{}/room/{client}", client % 7);
                    retained.set(name(&topic), topic.repeat(3));
                    retained.set(name(&topic), topic.clone());
                    // Half leaves, half takes its subscriptions back itself.
                    if client % 4 < 2 {
                        let changes = own.each_ref().map(|filter| Change::Unsubscribe { filter });
                        directory.commit(id, &changes);
                    }
                    retained.remove(name(&topic));
                    directory.leave(id);
                    directory.clean(3);
                }
            })
        });
        for writer in writers {
            // Waits for what the thread gives back at its very end, too.
            assert!(writer.join().is_ok());
        }
    });
    while directory.clean(100) > 0 {}
}

/// Held by the test that counts.
static ALONE: Mutex<()> = Mutex::new(());

#[test]
fn b5_what_is_removed_is_given_back() {
    let _alone = ALONE.lock();
    let emptied = || {
        let directory = Directory::new(1, Strategy::RoundRobin);
        let retained = RetainedStore::new(1);
        fill_and_empty(&directory, &retained);
        settled();
        let stats = directory.stats();
        assert_eq!((stats.nodes, stats.bytes, stats.retired_bytes), (0, 0, 0));
        assert_eq!((stats.subscriptions, stats.filters), (0, 0));
        assert_eq!((retained.len(), retained.audit()), (0, Ok(0)));
        assert_eq!(directory.audit().err(), None);
    };
    // Once for what the runtime and the epochs keep.
    emptied();
    let nothing = settled();

    for _ in 0..3 {
        emptied();
        assert!(settled() <= nothing);
    }

    // Dropped while full: whatever the shape, nothing stays.
    for mask in [u64::MAX, 0b11] {
        let directory = Directory::with_hash_mask(2, Strategy::Random, mask);
        let retained = RetainedStore::with_hash_mask(2, String::len, mask);
        for client in 0..CLIENTS.min(300) {
            let id = directory.join(client);
            for text in [
                "alerts/+/critical",
                "$share/g/a",
                "a/#",
                &format!("devices/{client}/+"),
            ] {
                let (filter, options) = (filter(text), Options::at(QoS::AtMostOnce));
                directory.commit(
                    id,
                    &[Change::Subscribe {
                        filter: &filter,
                        options,
                    }],
                );
            }
            retained.set(name(&format!("a/{client}")), "value".to_owned());
        }
        drop((directory, retained));
        assert!(settled() <= nothing);
    }
}

/// The budget is of the heap, not of what the directory thinks of it.
#[test]
#[cfg_attr(miri, ignore = "retires 60 MB")]
fn a_stalled_reader_holds_back_no_more_heap_than_is_counted() {
    let _alone = ALONE.lock();
    let directory = Directory::new(3, Strategy::RoundRobin);
    let filters: Vec<_> = (0..20_000)
        .map(|client| filter(&format!("devices/{client}/+")))
        .collect();
    let options = Options::at(QoS::AtMostOnce);
    let subscribe = |id, filter| directory.commit(id, &[Change::Subscribe { filter, options }]);
    let id = directory.join(1);
    for filter in &filters {
        subscribe(id, filter);
    }
    let (before, pinned, may_go) = (settled(), Barrier::new(2), Barrier::new(2));

    thread::scope(|scope| {
        scope.spawn(|| {
            let _snapshot = directory.snapshot();
            pinned.wait();
            may_go.wait();
        });
        pinned.wait();
        for filter in filters.iter().cycle() {
            directory.commit(id, &[Change::Unsubscribe { filter }]);
            subscribe(id, filter);
            if directory.stats().garbage_waits > 4 {
                break;
            }
        }
        let held = held() - before;
        may_go.wait();
        assert!((40 << 20..64 << 20).contains(&held), "{held}");
    });
}

/// Blocks of a growing tree go from size to size, so most of what it frees has a size that it needs no more (ADR 0149).
#[test]
#[cfg_attr(miri, ignore = "takes 10 MB")]
fn a_growing_tree_leaves_few_free_pieces_with_its_thread() {
    const CLIENTS: usize = 100;
    const FILTERS: usize = 1_000;
    let _alone = ALONE.lock();
    Directory::trim();
    let directory = Directory::new(4, Strategy::RoundRobin);
    let options = Options::at(QoS::AtMostOnce);

    for client in 0..CLIENTS {
        let id = directory.join(client as u64);
        let filters: Vec<_> = (client * FILTERS..(client + 1) * FILTERS)
            .map(|place| filter(&format!("load/filters/{}/+/{place}", place % FILTERS)))
            .collect();
        for packet in filters.chunks(100) {
            let subscribe = |filter| Change::Subscribe { filter, options };
            let changes: Vec<_> = packet.iter().map(subscribe).collect();
            directory.commit(id, &changes);
        }
    }

    let all = Directory::heap_bytes();
    Directory::trim();
    let free = all - Directory::heap_bytes();
    assert!(free / (CLIENTS * FILTERS) <= 8, "{free} bytes");
}
