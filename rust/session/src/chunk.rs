//! Shared message bytes, counted from the read that brought them until the last holder drops them.

use std::fmt::Debug;
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use triomphe::ThinArc;

/// Takes the buffers of large chunks that nobody holds any more, from any thread.
pub trait BufferKeeper: Debug + Send + Sync {
    /// Keeps `buffer` for a later chunk, or frees it.
    fn keep(&self, buffer: Vec<u8>);
}

/// Bytes of the chunks that one engine thread has allocated, including chunks that other threads hold.
///
/// Aligned to cache lines of its own, since every thread has its own total.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct ChunkTotal {
    held: AtomicUsize,
    keeper: Option<Arc<dyn BufferKeeper>>,
}

impl ChunkTotal {
    /// A total whose large chunks leave their buffers to `keeper`.
    pub fn with_keeper(keeper: Arc<dyn BufferKeeper>) -> Self {
        Self {
            held: AtomicUsize::default(),
            keeper: Some(keeper),
        }
    }

    /// Bytes held now.
    pub fn bytes(&self) -> usize {
        // ORDERING: statistics only; no other memory access depends on the value.
        self.held.load(Ordering::Relaxed)
    }
}

/// Bytes of chunks that are held on behalf of one sender.
#[derive(Debug)]
pub struct ChunkAccount {
    held: AtomicUsize,
    total: Arc<ChunkTotal>,
}

impl ChunkAccount {
    /// Creates an account whose bytes are also counted in `total`.
    pub fn new(total: Arc<ChunkTotal>) -> Arc<Self> {
        let held = AtomicUsize::default();
        Arc::new(Self { held, total })
    }

    /// Bytes held now.
    pub fn bytes(&self) -> usize {
        // ORDERING: as in `ChunkTotal::bytes`.
        self.held.load(Ordering::Relaxed)
    }

    fn add(&self, bytes: usize) {
        // ORDERING: statistics only; the chunk's reference count decides when the bytes are freed.
        self.held.fetch_add(bytes, Ordering::Relaxed);
        self.total.held.fetch_add(bytes, Ordering::Relaxed);
    }

    fn sub(&self, bytes: usize) {
        // ORDERING: as in `add`.
        self.held.fetch_sub(bytes, Ordering::Relaxed);
        self.total.held.fetch_sub(bytes, Ordering::Relaxed);
    }
}

/// Bytes behind one pointer and one reference count; a clone allocates nothing.
#[derive(Clone)]
pub struct Chunk(ThinArc<Charge, u8>);

/// The bytes to subtract from an account when the chunk is freed, that account, and a buffer that became a chunk.
#[derive(Default)]
struct Charge {
    account: Option<Arc<ChunkAccount>>,
    /// A message has less than 2^28 bytes.
    bytes: u32,
    /// The engine's mark of the read; 0: none.
    stamp: u32,
    #[expect(
        clippy::box_collection,
        reason = "other chunks have one word, not three"
    )]
    buffer: Option<Box<Vec<u8>>>,
}

impl Charge {
    fn new(account: Option<Arc<ChunkAccount>>, len: usize) -> Self {
        let bytes = u32::try_from(allocated_bytes(len)).unwrap_or(u32::MAX);
        if let Some(account) = &account {
            account.add(bytes as usize);
        }
        Self {
            account,
            bytes,
            stamp: 0,
            buffer: None,
        }
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        if let Some(account) = &self.account {
            account.sub(self.bytes as usize);
            if let Some(keeper) = &account.total.keeper
                && let Some(buffer) = self.buffer.take()
            {
                keeper.keep(*buffer);
            }
        }
    }
}

impl Chunk {
    /// Copies `bytes`; `account` counts them until the last holder has dropped them.
    pub fn new(bytes: &[u8], account: Option<&Arc<ChunkAccount>>) -> Self {
        let charge = Charge::new(account.cloned(), bytes.len());
        Self(ThinArc::from_header_and_slice(charge, bytes))
    }

    /// Takes `buffer` over without a copy: for large messages, since it costs two more allocations.
    pub fn from_buffer(buffer: Vec<u8>, account: &Arc<ChunkAccount>) -> Self {
        let mut charge = Charge::new(Some(Arc::clone(account)), buffer.capacity() + BUFFER_BYTES);
        charge.buffer = Some(Box::new(buffer));
        Self(ThinArc::from_header_and_slice(charge, &[]))
    }

    /// The account that counts this chunk.
    pub fn account(&self) -> Option<&Arc<ChunkAccount>> {
        self.0.header.header.account.as_ref()
    }

    /// Counts the chunk in `account`, unless another account counts it or the chunk has other holders.
    pub fn charge(&mut self, account: &Arc<ChunkAccount>) {
        let len = self.len();
        self.0.with_arc_mut(|shared| {
            let own = triomphe::Arc::get_mut(shared);
            if let Some(own) = own.filter(|own| own.header().account.is_none()) {
                let stamp = own.header().stamp;
                *own.header_mut() = Charge::new(Some(Arc::clone(account)), len);
                own.header_mut().stamp = stamp;
            }
        });
    }

    /// Whether both are the same bytes in memory.
    pub fn is_same(&self, other: &Self) -> bool {
        self.0.ptr() == other.0.ptr()
    }

    /// Number of holders.
    pub fn holders(&self) -> usize {
        ThinArc::strong_count(&self.0)
    }

    /// Heap bytes of the chunk.
    pub fn heap_bytes(&self) -> usize {
        self.0.header.header.bytes as usize
    }

    /// Marks the read, so that the engine recognises its messages; does nothing if the chunk has other holders.
    #[must_use]
    pub fn with_stamp(mut self, stamp: u32) -> Self {
        self.0.with_arc_mut(|shared| {
            if let Some(own) = triomphe::Arc::get_mut(shared) {
                own.header_mut().stamp = stamp;
            }
        });
        self
    }

    /// The mark of the read; 0: none.
    pub fn stamp(&self) -> u32 {
        self.0.header.header.stamp
    }
}

impl Deref for Chunk {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match &self.0.header.header.buffer {
            None => &self.0.slice,
            Some(buffer) => buffer,
        }
    }
}

impl From<&[u8]> for Chunk {
    /// Makes a chunk that no account counts.
    fn from(bytes: &[u8]) -> Self {
        Self::new(bytes, None)
    }
}

impl From<Vec<u8>> for Chunk {
    fn from(bytes: Vec<u8>) -> Self {
        Self::from(&bytes[..])
    }
}

/// The allocation size of a chunk of `len` bytes: with its header, rounded up to 16 bytes.
fn allocated_bytes(len: usize) -> usize {
    (HEAD_BYTES + len).next_multiple_of(STEP_BYTES)
}

/// Reference count, charge and length of the chunk, and the word in which allocators keep the block size.
const HEAD_BYTES: usize = size_of::<usize>() + size_of::<Charge>() + 2 * size_of::<usize>();
const STEP_BYTES: usize = 16;
/// Bytes that a chunk of a buffer allocates in addition to its content: the `Vec`, and one word for each of the two
/// additional allocations.
const BUFFER_BYTES: usize = size_of::<Vec<u8>>() + 2 * size_of::<usize>();

#[cfg(test)]
mod tests {
    use std::sync::OnceLock;

    use super::*;

    fn accounts() -> (Arc<ChunkTotal>, Arc<ChunkAccount>) {
        let total = Arc::new(ChunkTotal::default());
        (Arc::clone(&total), ChunkAccount::new(total))
    }

    #[test]
    fn a_chunk_counts_once_until_its_last_holder_drops_it() {
        let (total, account) = accounts();
        let chunk = Chunk::new(&[7; 1_000], Some(&account));
        let held = [chunk.clone(), chunk.clone()];

        assert_eq!((account.bytes(), total.bytes()), (1_056, 1_056));
        drop(chunk);
        let [first, second] = held;
        drop(first);
        assert_eq!(total.bytes(), 1_056);
        std::thread::scope(|scope| scope.spawn(|| drop(second)).join().unwrap());
        assert_eq!((account.bytes(), total.bytes()), (0, 0));
    }

    #[test]
    fn accounts_add_up_to_their_total() {
        let (total, first) = accounts();
        let second = ChunkAccount::new(Arc::clone(&total));
        let chunks = [&first, &second].map(|account| Chunk::new(b"0123456789", Some(account)));

        assert_eq!(first.bytes() + second.bytes(), total.bytes());
        assert_eq!(chunks[0].heap_bytes(), first.bytes());
    }

    #[test]
    fn a_stamp_stays_when_an_account_counts_the_chunk() {
        let (_, account) = accounts();
        let mut chunk = Chunk::from(&b"a"[..]).with_stamp(7);
        assert_eq!(Chunk::from(&b"a"[..]).stamp(), 0);

        chunk.charge(&account);

        assert_eq!((chunk.stamp(), chunk.clone().stamp()), (7, 7));
        let held = chunk.clone();
        assert_eq!(chunk.with_stamp(8).stamp(), 7, "others hold it, too");
        drop(held);
    }

    #[test]
    fn a_buffer_becomes_a_chunk_in_place_and_is_counted_until_it_is_freed() {
        let (total, account) = accounts();
        let buffer = vec![7; 100_000];
        let place = buffer.as_ptr();

        let chunk = Chunk::from_buffer(buffer, &account);

        assert_eq!((chunk.as_ptr(), chunk.len()), (place, 100_000));
        assert!(
            (100_000..100_200).contains(&total.bytes()),
            "{}",
            total.bytes()
        );
        drop(chunk);
        assert_eq!((account.bytes(), total.bytes()), (0, 0));
    }

    #[derive(Debug, Default)]
    struct Kept(OnceLock<Vec<u8>>);

    impl BufferKeeper for Kept {
        fn keep(&self, buffer: Vec<u8>) {
            self.0.set(buffer).expect("one buffer");
        }
    }

    #[test]
    fn the_last_holder_leaves_the_buffer_to_the_keeper() {
        let kept = Arc::<Kept>::default();
        let total = ChunkTotal::with_keeper(Arc::<Kept>::clone(&kept));
        let account = ChunkAccount::new(Arc::new(total));
        let buffer = vec![7; 200_000];
        let place = buffer.as_ptr();
        let chunk = Chunk::from_buffer(buffer, &account);
        let other = chunk.clone();
        drop(chunk);
        assert!(kept.0.get().is_none());

        std::thread::scope(|scope| scope.spawn(|| drop(other)).join().unwrap());

        assert_eq!(account.bytes(), 0);
        assert_eq!(kept.0.get().map(Vec::as_ptr), Some(place));
    }

    #[test]
    fn bytes_that_nobody_counts_are_charged_once_and_only_by_their_sole_holder() {
        let (total, account) = accounts();
        let mut shared = Chunk::from(&b"shared"[..]);
        let other = shared.clone();
        let mut own = Chunk::from(&b"own"[..]);

        shared.charge(&account);
        own.charge(&account);
        own.charge(&account);

        assert!(shared.account().is_none() && other.is_same(&shared));
        assert_eq!(total.bytes(), own.heap_bytes());
        drop(own);
        assert_eq!(total.bytes(), 0);
    }
}
