//! Every bit flipped and every length cut: damaged data is never accepted.

use crate::wal::identity::{CUT, EMPTIED};

use super::{LogExpectation, STORE, known, reopen, small_log, write};
use crate::error::StoreError;
use crate::faults::{Disk, Faults};
use crate::files::Files;

const SEGMENT: &str = "00000000000000000001.log";

/// Where the groups of [`small_log`] end, and how many numbers are whole there.
fn ends() -> [(usize, usize); 4] {
    // A marker takes 34 bytes, and these records 18 and a body of 4.
    let (record, marker, start) = (22, 34, 64);
    let first = start + 2 * record + marker;
    let second = first + record + marker;
    let third = second + 3 * record + marker;
    [(start, 0), (first, 2), (second, 3), (third, 6)]
}

/// Groups that must be read if the log is damaged from `byte` on: those before it.
fn whole_before(byte: usize) -> usize {
    let whole = ends().into_iter().filter(|(end, _)| *end <= byte);
    whole.map(|(_, numbers)| numbers).max().unwrap_or(0)
}

#[test]
fn the_log_is_as_long_as_it_says() {
    let content = small_log().content(SEGMENT).unwrap();

    let (end, _) = ends()[3];

    assert!(content[end - 1] != 0 || content[end - 8..end].iter().any(|&byte| byte != 0));
    assert!(content[end..].iter().all(|&byte| byte == 0));
}

#[test]
fn a_flipped_bit_is_refused_or_cut_off() {
    let (second, third) = (ends()[2].0, ends()[3].0);
    for byte in 64..third {
        for bit in 0..8 {
            let disk = small_log();
            disk.corrupt(SEGMENT, |bytes| bytes[byte] ^= 1 << bit);

            let opened = reopen(&disk, &known(1_024));

            // The last marker says that the second group was safe. Nothing says it of the third.
            match opened {
                Err(StoreError::Damaged(damage)) if byte < second => {
                    assert_eq!(
                        usize::try_from(damage.first_lsn).unwrap(),
                        whole_before(byte) + 1,
                        "byte {byte}"
                    );
                    assert!(damage.offset <= byte as u64);
                }
                Ok((_, recovery, numbers)) if byte >= second => {
                    assert_eq!(numbers, [1, 2, 3], "byte {byte}, bit {bit}");
                    assert!(recovery.torn.is_some());
                }
                other => panic!("byte {byte}, bit {bit}: {other:?}"),
            }
        }
    }
}

#[test]
fn a_flipped_bit_in_what_somebody_testified_for_is_refused() {
    let disk = small_log();
    let (mut writer, ..) = reopen(&disk, &known(1_024)).unwrap();
    writer.testify().unwrap();
    writer.sync().unwrap();
    disk.corrupt(SEGMENT, |bytes| bytes[ends()[2].0 + 20] ^= 1);

    let refused = reopen(&disk, &known(1_024)).err();

    assert!(matches!(refused, Some(StoreError::Damaged(damage)) if damage.first_lsn == 4));
}

#[test]
fn a_flipped_bit_that_the_checkpoint_knows_of_is_refused() {
    let disk = small_log();
    disk.corrupt(SEGMENT, |bytes| bytes[ends()[2].0 + 20] ^= 1);

    let known = LogExpectation {
        applied_lsn: 6,
        ..known(1_024)
    };
    let refused = reopen(&disk, &known).err();

    assert!(matches!(refused, Some(StoreError::Damaged(damage)) if damage.last_lsn == 6));
}

#[test]
fn a_broken_header_is_made_anew_while_there_are_records() {
    for byte in 0..64 {
        let disk = small_log();
        disk.corrupt(SEGMENT, |bytes| bytes[byte] ^= 0x10);
        let known = LogExpectation {
            store: STORE,
            knows_store: true,
            has_checkpoint: true,
            ..known(1_024)
        };

        let (_, recovery, numbers) = reopen(&disk, &known).unwrap();

        assert_eq!(numbers, [1, 2, 3, 4, 5, 6], "byte {byte}");
        assert_eq!(recovery.rebuilt.len(), 1);
        let (_, again, _) = reopen(&disk, &known).unwrap();
        assert!(again.rebuilt.is_empty());
    }
}

#[test]
fn a_broken_header_is_refused_while_nobody_knows_the_store() {
    let disk = small_log();
    disk.corrupt(SEGMENT, |bytes| bytes[20] ^= 0x10);

    assert!(reopen(&disk, &known(1_024)).is_err());
}

/// A disk with two segments at least, and the number of the last one.
fn rolled() -> (Disk, String) {
    let disk = small_log();
    let (mut writer, ..) = reopen(&disk, &known(1_024)).unwrap();
    for number in 7..40 {
        write(&mut writer, &[number]).unwrap();
        writer.sync().unwrap();
    }
    let last = writer.current.name();
    assert_ne!(last, SEGMENT);
    (disk, last)
}

#[test]
fn a_last_segment_that_is_lost_is_missed() {
    type Loss = fn(&Disk, &str);
    let losses: [(&str, Loss, &str); 5] = [
        (
            "removed",
            |disk, last| disk.remove(last).unwrap(),
            "it is missing",
        ),
        (
            "emptied",
            |disk, last| disk.corrupt(last, Vec::clear),
            EMPTIED,
        ),
        (
            "zeroed",
            |disk, last| disk.corrupt(last, |bytes| bytes.fill(0)),
            EMPTIED,
        ),
        (
            "cut",
            |disk, last| disk.corrupt(last, |bytes| bytes.truncate(700)),
            CUT,
        ),
        (
            "cut to its header",
            |disk, last| disk.corrupt(last, |bytes| bytes.truncate(64)),
            CUT,
        ),
    ];
    for (name, lose, reason) in losses {
        let (disk, last) = rolled();
        lose(&disk, &last);

        let refused = reopen(&disk, &known(1_024)).err();

        match refused {
            Some(StoreError::Damaged(damage)) => {
                assert_eq!((damage.file, damage.reason), (last, reason), "{name}");
                assert!(damage.first_lsn > 7, "{name}");
            }
            other => panic!("{name}: {other:?}"),
        }
    }
}

/// The disk may lose the power between any two calls of a roll.
#[test]
fn a_segment_that_is_being_made_is_not_missed() {
    for calls in 1..200 {
        let disk = small_log();
        let (mut writer, ..) = reopen(&disk, &known(1_024)).unwrap();
        disk.cut_after(calls);
        for number in 7..40 {
            if write(&mut writer, &[number])
                .and_then(|_| writer.sync())
                .is_err()
            {
                break;
            }
        }
        for disk in [disk.after_power_cut(), disk.after_kill()] {
            disk.set_faults(Faults::default());
            let (_, recovery, _) = reopen(&disk, &known(1_024)).unwrap();
            assert!(recovery.rebuilt.is_empty(), "{calls}");
        }
    }
}

#[test]
fn a_segment_that_was_never_born_is_begun_again() {
    let disk = Disk::new(1, Faults::default());
    reopen(&disk, &known(1_024)).unwrap();
    disk.corrupt(SEGMENT, |bytes| bytes[..64].fill(0));

    let (mut writer, ..) = reopen(&disk, &known(1_024)).unwrap();
    write(&mut writer, &[1]).unwrap();

    assert_eq!(reopen(&disk, &known(1_024)).unwrap().2, [1]);
}

#[test]
fn a_tail_that_was_cut_anywhere_leaves_whole_groups() {
    for length in 64..ends()[3].0 - 8 {
        let disk = small_log();
        // What was zero before is not cut: the last bytes of a marker often are.
        let mut cut = length;
        disk.corrupt(SEGMENT, |bytes| {
            while bytes[cut] == 0 {
                cut += 1;
            }
            bytes[length..].fill(0);
        });

        let (_, recovery, numbers) = reopen(&disk, &known(1_024)).unwrap();

        assert_eq!(numbers.len(), whole_before(cut), "{length}");
        assert_eq!(
            recovery.torn.is_some(),
            !ends().iter().any(|(end, _)| (length..=cut).contains(end))
        );
        let (_, again, _) = reopen(&disk, &known(1_024)).unwrap();
        assert_eq!(again.torn, None, "what was torn has been wiped");
    }
}

#[test]
fn a_torn_group_does_not_come_back_behind_a_shorter_one() {
    let disk = small_log();
    // The first frame of the last group is torn; its others are whole, and wait.
    disk.corrupt(SEGMENT, |bytes| bytes[ends()[2].0] = 0);
    let (mut writer, ..) = reopen(&disk, &known(1_024)).unwrap();
    write(&mut writer, &[40]).unwrap();

    let (_, _, numbers) = reopen(&disk, &known(1_024)).unwrap();

    assert_eq!(numbers, [1, 2, 3, 40]);
}
