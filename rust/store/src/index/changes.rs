//! Changes since the checkpoint: sessions and queues.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use crate::index::chunk::DeliveryChunk;
use crate::index::messages::ChangedMessages;
use crate::index::paged::Paged;
use crate::index::rows::{SessionRow, StoredDelivery};
use crate::index::weight::tree_bytes;
use crate::wire::BodyError;

/// The current state of a row: changed since the checkpoint, or cached from it.
#[derive(Debug)]
pub(crate) struct Cached<R> {
    pub(crate) row: Option<R>,
    pub(crate) is_changed: bool,
    /// The checkpoint has a row with this key, this version or an older one.
    is_stored: bool,
}

/// The row of a session. `Packed` is the encoding of the checkpoint and takes a fifth of the memory; a session that
/// changes often is `Open`.
#[derive(Clone, Debug)]
pub(crate) enum CachedSession {
    Packed(Box<[u8]>),
    Open(Box<SessionRow>),
}

impl Default for CachedSession {
    fn default() -> Self {
        Self::Open(Box::default())
    }
}

impl CachedSession {
    /// The row, for reading.
    pub(crate) fn row(&self) -> Result<Cow<'_, SessionRow>, BodyError> {
        match self {
            Self::Packed(bytes) => SessionRow::decode(bytes).map(Cow::Owned),
            Self::Open(row) => Ok(Cow::Borrowed(row)),
        }
    }

    pub(crate) fn client_id(&self) -> Result<&str, BodyError> {
        match self {
            Self::Packed(bytes) => SessionRow::client_id_of(bytes),
            Self::Open(row) => Ok(&row.client_id),
        }
    }

    fn heap_bytes(&self) -> usize {
        match self {
            Self::Packed(bytes) => bytes.len(),
            Self::Open(row) => size_of::<SessionRow>() + row.heap_bytes(),
        }
    }

    /// The row, for changing.
    pub(crate) fn open(&mut self) -> Result<&mut SessionRow, BodyError> {
        if let Self::Packed(bytes) = self {
            *self = Self::Open(Box::new(SessionRow::decode(bytes)?));
        }
        match self {
            Self::Open(row) => Ok(row),
            Self::Packed(_) => unreachable!("it was opened"),
        }
    }

    /// Encodes the row, if no change is expected soon.
    pub(crate) fn pack(&mut self) {
        if let Self::Open(row) = self {
            let mut bytes = Vec::new();
            row.encode(&mut bytes);
            *self = Self::Packed(bytes.into());
        }
    }
}

impl<R> Cached<R> {
    pub(crate) fn stored(row: Option<R>) -> Self {
        Self {
            is_stored: row.is_some(),
            row,
            is_changed: false,
        }
    }

    /// Whether the next checkpoint must write or remove the row.
    pub(crate) fn is_due(&self) -> bool {
        self.is_changed && (self.is_stored || self.row.is_some())
    }
}

/// All changes since the checkpoint, by row.
#[derive(Debug, Default)]
pub(crate) struct Changes {
    pub(crate) sessions: Paged<Cached<CachedSession>>,
    /// Encoded by [`encode_subscriptions`](crate::index::rows::encode_subscriptions): most sessions have few.
    pub(crate) subscriptions: Paged<Cached<Box<[u8]>>>,
    queues: Paged<QueueChange>,
    /// Number of deliveries in `queues`.
    deliveries: usize,
    pub(crate) messages: ChangedMessages,
    pub(crate) retained: BTreeMap<String, Option<u64>>,
}

impl Changes {
    pub(crate) fn rows(&self) -> usize {
        let rows = self.sessions.len() + self.subscriptions.len() + self.retained.len();
        rows + self.deliveries + self.messages.len()
    }

    /// Size on the heap, in bytes.
    pub(crate) fn heap_bytes(&self) -> usize {
        let sessions = |session: &Cached<CachedSession>| {
            let row = session.row.as_ref();
            row.map_or(0, CachedSession::heap_bytes)
        };
        let subscriptions = |held: &Cached<Box<[u8]>>| held.row.as_ref().map_or(0, |row| row.len());
        let retained = self.retained.keys().map(String::capacity);
        self.sessions.heap_bytes(sessions)
            + self.subscriptions.heap_bytes(subscriptions)
            + self.queues.heap_bytes(QueueChange::heap_bytes)
            + self.messages.heap_bytes()
            + self.retained.len() * tree_bytes::<(String, Option<u64>)>()
            + retained.sum::<usize>()
    }

    pub(crate) fn queue(&self, session: u64) -> Option<&QueueChange> {
        self.queues.get(session)
    }

    pub(crate) fn queues(&self) -> impl Iterator<Item = (u64, &QueueChange)> {
        self.queues.iter()
    }

    pub(crate) fn enqueue(
        &mut self,
        session: u64,
        delivery: &StoredDelivery,
    ) -> Result<(), BodyError> {
        self.deliveries += 1;
        self.queue_mut(session).insert(delivery)
    }

    /// Removes a delivery that was queued since the checkpoint.
    pub(crate) fn dequeue(
        &mut self,
        session: u64,
        number: u64,
    ) -> Result<Option<StoredDelivery>, BodyError> {
        let Some(queue) = self.queues.get_mut(session) else {
            return Ok(None);
        };
        let taken = queue.take(number)?;
        if taken.is_some() {
            self.deliveries -= 1;
            if queue.is_empty() {
                self.queues.remove(session);
            }
        }
        Ok(taken)
    }

    /// Marks a delivery of the checkpoint as removed from its queue.
    pub(crate) fn remove(&mut self, session: u64, number: u64) {
        let queue = self.queue_mut(session);
        let is_new = queue.removed.insert(number);
        self.deliveries += usize::from(is_new);
    }

    fn queue_mut(&mut self, session: u64) -> &mut QueueChange {
        self.queues
            .get_or_insert_with(session, QueueChange::default)
    }
}

/// Changes of one queue.
#[derive(Debug, Default)]
pub(crate) struct QueueChange {
    /// Deliveries that were queued since the checkpoint and are still queued; chunks do not overlap.
    pub(crate) added: Vec<DeliveryChunk>,
    /// Deliveries that the checkpoint has but that are no longer queued.
    removed: BTreeSet<u64>,
}

impl QueueChange {
    fn is_empty(&self) -> bool {
        self.added.is_empty() && self.removed.is_empty()
    }

    fn heap_bytes(&self) -> usize {
        let added = self.added.iter().map(DeliveryChunk::heap_bytes);
        self.added.capacity() * size_of::<DeliveryChunk>()
            + added.sum::<usize>()
            + self.removed.len() * tree_bytes::<u64>()
    }

    /// Whether this delivery is in the checkpoint but no longer queued.
    pub(crate) fn has_removed(&self, number: u64) -> bool {
        self.removed.contains(&number)
    }

    /// Deliveries that the checkpoint has but that are no longer queued; ascending.
    pub(crate) fn removed(&self) -> impl Iterator<Item = u64> {
        self.removed.iter().copied()
    }

    pub(crate) fn find(&self, number: u64) -> Result<Option<StoredDelivery>, BodyError> {
        match self.place(number) {
            Some(place) => self.added[place].find(number),
            None => Ok(None),
        }
    }

    /// Added deliveries from number `from` on.
    pub(crate) fn added_from(
        &self,
        from: u64,
    ) -> impl Iterator<Item = Result<StoredDelivery, BodyError>> + '_ {
        let chunks = &self.added[self.place(from).unwrap_or(0)..];
        let all = chunks.iter().flat_map(DeliveryChunk::deliveries);
        all.filter(move |delivery| {
            let is_before = delivery.as_ref().map(|delivery| delivery.number < from);
            !is_before.unwrap_or(false)
        })
    }

    /// The only chunk that can have `number`.
    fn place(&self, number: u64) -> Option<usize> {
        let behind = self.added.partition_point(|chunk| chunk.first <= number);
        behind.checked_sub(1)
    }

    fn insert(&mut self, delivery: &StoredDelivery) -> Result<(), BodyError> {
        let is_in = match self.added.last_mut() {
            Some(last) if delivery.number <= last.last => return self.insert_between(delivery),
            Some(last) => last.push(delivery),
            None => false,
        };
        if !is_in {
            // Most queues have one chunk.
            self.added.reserve_exact(self.added.len().max(1));
            self.added.push(DeliveryChunk::of(delivery));
        }
        Ok(())
    }

    /// Inserts in the middle: two shards may write their records in another order than that of their numbers.
    fn insert_between(&mut self, delivery: &StoredDelivery) -> Result<(), BodyError> {
        let place = self.place(delivery.number).unwrap_or(0);
        let mut all: Vec<StoredDelivery> =
            self.added[place].deliveries().collect::<Result<_, _>>()?;
        match all.binary_search_by_key(&delivery.number, |other| other.number) {
            // Only a record that nobody of ours wrote repeats a number.
            Ok(at) => all[at] = delivery.clone(),
            Err(at) => all.insert(at, delivery.clone()),
        }
        self.added.splice(place..=place, DeliveryChunk::all(&all));
        Ok(())
    }

    fn take(&mut self, number: u64) -> Result<Option<StoredDelivery>, BodyError> {
        let Some(place) = self.place(number) else {
            return Ok(None);
        };
        let chunk = &mut self.added[place];
        let taken = chunk.take(number)?;
        if chunk.count == 0 {
            self.added.remove(place);
        }
        Ok(taken)
    }
}
