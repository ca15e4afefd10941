//! The torn tail of a log after a crash, and disks on which it cannot be wiped at once.
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

/// A log with one note that was closed in order. Then a broker wrote two more notes, which are not
/// safe, and was killed.
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

/// A value of such a length that the group of "torn" ends at the end of a sector. So the next write
/// in its place does not change the sectors behind it.
fn up_to_a_sector() -> Vec<u8> {
    const SEGMENT_HEADER: usize = 64;
    const SECTOR: usize = 512;
    let value = vec![2; 600];
    let disk = unfinished(0, &value);
    let key_in_frame = place(&disk, b"kept") - SEGMENT_HEADER;
    let end = place(&disk, b"late") - key_in_frame;
    vec![2; value.len() + end.next_multiple_of(SECTOR) - end]
}

/// Two groups follow the safe one, and the first of them is torn. An opening wipes both, but the sync
/// of this fails; the next opening sees zeros. Then a group is written that ends where the torn one
/// ended, and the power fails. If the wiping is lost, the second old group fits behind the new one.
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
        // Opens the log alone: its sync has to be the first one.
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
