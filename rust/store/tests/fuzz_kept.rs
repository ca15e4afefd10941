//! The bodies of the fuzz targets of the store, with the inputs that fuzz runs have kept and with changes of them.
//!
//! Abuse row J10: files of somebody else are read or refused, without a panic and within a bound of memory.

#[path = "../../../fuzz/bounded.rs"]
mod bounded;
#[path = "../../../fuzz/kept.rs"]
mod kept;

use mqttcore_store::fuzzing;

const ROW: &str = include_str!("../../../fuzz/kept/store_row.hex");
const LOG: &str = include_str!("../../../fuzz/kept/store_log.hex");
const FOLDER: &str = include_str!("../../../fuzz/kept/store_folder.hex");

fn row(input: &[u8]) {
    bounded::within(64 * 1024 + 128 * input.len(), || fuzzing::row(input));
}

#[test]
fn j10_rows_and_records_of_somebody_else_are_read_or_refused() {
    assert!(kept::each_input(ROW, row) > 30);
    kept::each_changed_input(ROW, 10_000, row);
}

#[test]
fn j10_a_log_of_somebody_else_is_read_or_refused_and_repaired() {
    let log = |input: &[u8]| bounded::within(64 << 20, || fuzzing::log(input));

    assert!(kept::each_input(LOG, log) > 3);
}

#[test]
fn j10_a_changed_store_is_read_or_refused_and_repaired() {
    let folder = |input: &[u8]| bounded::within(64 << 20, || fuzzing::folder(input));

    assert!(kept::each_input(FOLDER, folder) > 3);
}
