//! B5: a directory and a retained store give all memory back: when everything is removed, and when they are dropped.
//!
//! One test only, in a program of its own: the allocator counts for all threads.

mod oracle;

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicIsize, Ordering};
use std::thread;

use mqttcore_codec::QoS;
use mqttcore_topics::{Change, Directory, Options, Retained, Strategy};
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
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        add(layout.size(), -1);
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(block, layout) }
    }
}

#[global_allocator]
static HEAP: Counting = Counting;

const CLIENTS: u64 = if cfg!(miri) { 20 } else { 2_000 };

/// Drives the epoch past everything that was retired, and gives back what this thread keeps for later.
fn settled() -> isize {
    for _ in 0..256 {
        crossbeam_epoch::pin().flush();
    }
    Directory::trim();
    BYTES.load(Ordering::SeqCst)
}

/// Filters of every shape, on several threads: sets of all forms, groups, collisions, overlaps.
fn fill_and_empty(directory: &Directory, retained: &Retained<String>) {
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

#[test]
fn b5_what_is_removed_is_given_back() {
    let emptied = || {
        let directory = Directory::new(1, Strategy::RoundRobin);
        let retained = Retained::new(1);
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
        assert_eq!(settled(), nothing);
    }

    // Dropped while full: whatever the shape, nothing stays.
    for mask in [u64::MAX, 0b11] {
        let directory = Directory::with_hash_mask(2, Strategy::Random, mask);
        let retained = Retained::with_hash_mask(2, String::len, mask);
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
        assert_eq!(settled(), nothing);
    }
}
