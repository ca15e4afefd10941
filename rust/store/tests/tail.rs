//! The tail of a log that a crash left unfinished, and disks on which it cannot be wiped at once.
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod small;

use std::collections::BTreeMap;
use std::sync::Arc;

use mqttcore_store::faults::{Disk, Faults};
use mqttcore_store::files::Files;
use mqttcore_store::record::Record;
use mqttcore_store::{Batch, Durability, SimulatedStore, SpacePolicy, Store, StoreError, Wal};

use small::OPTIONS;

const SEGMENT: &str = "00000000000000000001.log";

fn open(disk: &Disk) -> Result<SimulatedStore, StoreError> {
    let files: Arc<dyn Files> = Arc::new(disk.clone());
    SimulatedStore::open(&files, &OPTIONS).map(|(store, _)| store)
}

/// Writes a note as a group of its own.
fn note(store: &SimulatedStore, key: &str, value: &[u8], durability: Durability) {
    let mut batch = Batch::default();
    batch.push(&Record::Note { key, value });
    store
        .append(&mut batch, durability, SpacePolicy::Ordinary)
        .unwrap();
    store.step().unwrap();
}

fn notes(store: &SimulatedStore) -> BTreeMap<String, u8> {
    let mut notes = BTreeMap::new();
    store
        .notes(&mut |key, value| {
            notes.insert(key.to_owned(), value[0]);
        })
        .unwrap();
    notes
}

/// A log that was closed in order behind one note, and to which a broker wrote two more that are
/// not safe; it was killed then.
fn unfinished(seed: u64, torn: &[u8]) -> Disk {
    let disk = Disk::new(seed, Faults::default());
    let first = open(&disk).unwrap();
    note(&first, "kept", &[1], Durability::Fsync);
    first.close().unwrap();
    drop(first);
    let busy = open(&disk).unwrap();
    note(&busy, "torn", torn, Durability::Os);
    note(&busy, "late", &[3], Durability::Os);
    disk.after_kill()
}

fn place(disk: &Disk, text: &[u8]) -> usize {
    let bytes = disk.content(SEGMENT).unwrap();
    let place = bytes.windows(text.len()).position(|window| window == text);
    place.unwrap()
}

/// A value with which the group of "torn" ends where a sector does: what is written there next leaves
/// the sectors behind it alone.
fn up_to_a_sector() -> Vec<u8> {
    const SEGMENT_HEADER: usize = 64;
    const SECTOR: usize = 512;
    let value = vec![2; 600];
    let disk = unfinished(0, &value);
    let key_in_frame = place(&disk, b"kept") - SEGMENT_HEADER;
    let end = place(&disk, b"late") - key_in_frame;
    vec![2; value.len() + end.next_multiple_of(SECTOR) - end]
}

/// Of two groups behind the safe one the first is torn. The sync that should make the wiping of both
/// safe fails, and the next opening sees zeros. Then a group is written that ends where the torn one
/// did, and the power goes: behind it the other one would fit.
#[test]
fn a_torn_group_does_not_come_back_when_its_wiping_was_never_safe() {
    let value = up_to_a_sector();
    for seed in 0..32 {
        let disk = unfinished(seed, &value);
        let torn = place(&disk, b"torn");
        disk.corrupt(SEGMENT, |bytes| bytes[torn + 100] ^= 1);
        disk.set_faults(Faults {
            sync_error_one_in: 1,
            ..Faults::default()
        });
        // The log alone: nothing else may sync before it does.
        let files: Arc<dyn Files> = Arc::new(disk.clone());
        let wiping = Wal::open(&files, &OPTIONS.wal, &mut |_| Ok(()));
        assert!(wiping.is_err(), "its sync fails");
        let disk = disk.after_kill();
        disk.set_faults(Faults::default());

        let second = open(&disk).unwrap();
        assert_eq!(notes(&second), BTreeMap::from([("kept".into(), 1)]));
        note(&second, "next", &value, Durability::Fsync);
        let third = open(&disk.after_power_cut()).unwrap();

        let right = BTreeMap::from([("kept".into(), 1), ("next".into(), 2)]);
        assert_eq!(notes(&third), right, "seed {seed}");
    }
}
