//! What sessions cost that a store has kept and whose clients are not back.

use std::cell::Cell;
use std::sync::atomic::Ordering;

use mqttcore_broker::Config;
use mqttcore_topics::Directory;

use crate::common::{Home, config, eventually, many, start};
use crate::{CHECKPOINT_PAGES, Heap, PAGE};

/// What a broker holds over a store of so many sessions, once they are there; the pages of its checkpoint left out.
fn held_with(sessions: u64, expected: impl Fn(usize) -> bool) {
    let alone = Heap::alone();
    let home = Home::new();
    many::fill(&home.folder(0), sessions, |_| {});
    let heap = Heap::count(&alone);

    let broker = start(Config {
        shards: 1,
        data: Some(home.data(0)),
        ..config()
    });

    eventually(
        "all sessions are there, and what reading them took is given back",
        || {
            let stats = broker.stats();
            let pages = CHECKPOINT_PAGES.load(Ordering::Relaxed) * PAGE;
            let held = heap.grown() + Directory::heap_bytes() - pages;
            (stats.sessions, stats.sessions_to_come) == (sessions, 0) && expected(held)
        },
    );
}

/// A million of them, and ten million messages that wait for them, are to fit into 600 MB, of which Python and the cache
/// of the checkpoint take a sixth. Here: 232 bytes a client with its session, 32 each for its name and the text of its
/// filter, some 120 in the directory; the rest is slots of tables, and what a store with anything in it holds.
#[test]
fn a_kept_session_whose_client_is_away_is_small() {
    const SESSIONS: usize = 16_000;
    let without = Cell::new(0);
    held_with(0, |held| {
        without.set(held);
        true
    });

    held_with(SESSIONS as u64, |held| {
        held.saturating_sub(without.get()) / SESSIONS <= 560
    });
}
