//! Power losses, crashes and failing disks at random moments: safe groups are there, complete and in order.

use super::{known, reopen, write};
use crate::error::StoreError;
use crate::faults::{Disk, Faults, Random};

/// Acknowledged groups of a run.
#[derive(Debug, Default)]
struct Acknowledged {
    /// Groups that were written, as the log should have them.
    groups: Vec<Vec<u64>>,
    /// How many of them are safe from power cuts.
    safe: usize,
}

/// One run: writes groups of random sizes until the power goes or the disk fails.
fn live(
    disk: &Disk,
    random: &mut Random,
    acknowledged: &mut Acknowledged,
) -> Result<(), StoreError> {
    let (mut writer, _, numbers) = reopen(disk, &known(2_048))?;
    let mut held = 0;
    acknowledged.groups.retain(|group| {
        held += group.len();
        held <= numbers.len()
    });
    acknowledged.safe = acknowledged.groups.len();
    let mut next = numbers.len() as u64 + 1;
    for _ in 0..random.below(30) {
        let size = random.below(12) + 1;
        let group: Vec<u64> = (next..next + size).collect();
        next += size;
        acknowledged.groups.push(group.clone());
        write(&mut writer, &group)?;
        if random.below(3) > 0 {
            writer.sync()?;
            acknowledged.safe = acknowledged.groups.len();
        }
    }
    Ok(())
}

/// Checks that whole groups are read back, at least the `safe` ones.
fn check(disk: &Disk, acknowledged: &Acknowledged, seed: u64) {
    // Opening must stand a power cut too: read what the next run will see.
    let (_, _, numbers) = reopen(disk, &known(2_048)).unwrap_or_else(|error| {
        panic!("seed {seed}: {error}");
    });
    let mut ends = vec![0];
    for group in &acknowledged.groups {
        ends.push(ends.last().unwrap() + group.len());
    }
    assert!(
        numbers.iter().copied().eq(1..=numbers.len() as u64),
        "seed {seed}: in order"
    );
    let whole = ends.iter().position(|&end| end == numbers.len());
    let whole = whole.unwrap_or_else(|| panic!("seed {seed}: a group came back in part"));
    assert!(
        whole >= acknowledged.safe,
        "seed {seed}: {whole} groups of {} safe",
        acknowledged.safe
    );
}

fn run(seed: u64, faults: Faults) {
    let mut random = Random(seed);
    let mut disk = Disk::new(random.draw(), Faults::default());
    let mut acknowledged = Acknowledged::default();
    for _ in 0..6 {
        disk.set_faults(faults);
        disk.cut_after(random.below(120) + 1);
        let _ = live(&disk, &mut random, &mut acknowledged);
        disk = match random.below(3) {
            0 => disk.after_kill(),
            _ => disk.after_power_cut(),
        };
        disk.set_faults(Faults::default());
        check(&disk.clone(), &acknowledged, seed);
    }
}

#[test]
fn power_cuts_lose_nothing_that_was_safe() {
    for seed in 0..400 {
        run(seed, Faults::default());
    }
}

#[test]
fn short_writes_lose_nothing_that_was_safe() {
    for seed in 0..100 {
        run(
            seed,
            Faults {
                short_write_one_in: 3,
                ..Faults::default()
            },
        );
    }
}

#[test]
fn failed_writes_and_syncs_lose_nothing_that_was_safe() {
    for seed in 0..200 {
        let faults = Faults {
            sync_error_one_in: 20,
            write_error_one_in: 40,
            ..Faults::default()
        };
        run(seed, faults);
    }
}

/// A failed sync discards its pages; the next run reads them from the cache only.
#[test]
fn what_is_read_back_after_a_failed_sync_is_made_safe_before_it_is_believed() {
    let disk = Disk::new(3, Faults::default());
    let (mut writer, ..) = reopen(&disk, &known(2_048)).unwrap();
    write(&mut writer, &[1, 2, 3]).unwrap();
    disk.set_faults(Faults {
        sync_error_one_in: 1,
        ..Faults::default()
    });
    writer.sync().unwrap_err();
    let disk = disk.after_kill();
    disk.set_faults(Faults::default());

    let (_, recovery, seen) = reopen(&disk, &known(2_048)).unwrap();
    let (_, _, survived) = reopen(&disk.after_power_cut(), &known(2_048)).unwrap();

    assert_eq!((seen.len(), recovery.renewed), (3, 3));
    assert_eq!(survived, seen);
}

/// Opening ends with a marker without records. A failed sync discards it, and later groups may be on other pages.
#[test]
fn the_marker_of_an_opening_is_made_safe_before_anything_stands_behind_it() {
    let known = known(8_192);
    for count in 1..60 {
        let disk = Disk::new(count, Faults::default());
        let first: Vec<u64> = (1..=count).collect();
        let (mut writer, ..) = reopen(&disk, &known).unwrap();
        write(&mut writer, &first).unwrap();
        let disk = disk.after_kill();
        drop(reopen(&disk, &known).unwrap());
        disk.set_faults(Faults {
            sync_error_one_in: 1,
            ..Faults::default()
        });
        assert!(reopen(&disk, &known).is_err(), "its sync fails");
        let disk = disk.after_kill();
        disk.set_faults(Faults::default());

        let (mut writer, ..) = reopen(&disk, &known).unwrap();
        let second: Vec<u64> = (count + 1..=2 * count).collect();
        write(&mut writer, &second).unwrap();
        writer.sync().unwrap();

        let (_, _, survived) = reopen(&disk.after_power_cut(), &known).unwrap();
        assert!(
            survived.into_iter().eq(1..=2 * count),
            "{count} and as many"
        );
    }
}
