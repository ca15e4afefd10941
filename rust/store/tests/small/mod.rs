//! Options of stores whose segments are full soon, and that make a checkpoint only when they are asked to.

use mqttcore_store::{StoreOptions, WalOptions};

pub(crate) const OPTIONS: StoreOptions = StoreOptions {
    wal: WalOptions {
        segment_bytes: 16 * 1_024,
        ballast_bytes: 0,
        soft_bytes: 0,
        queue_bytes: 1 << 20,
    },
    cache_bytes: 1 << 20,
    checkpoint_bytes: u64::MAX,
    checkpoint_rows: usize::MAX,
    checkpoint_row_bytes: usize::MAX,
    segments_kept: 2,
};
