//! A redb storage backend over the files of the store.

use std::io;
use std::sync::Arc;

use crate::files::{File, read_full, write_all};

/// A file of the store as a storage backend of redb.
#[derive(Debug)]
pub(super) struct Backend(pub(super) Arc<dyn File>);

impl redb::StorageBackend for Backend {
    fn len(&self) -> io::Result<u64> {
        self.0.bytes()
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        if read_full(&*self.0, out, offset)? < out.len() {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        Ok(())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.0.set_len(len)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.0.sync()
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        write_all(&*self.0, data, offset)
    }
}
