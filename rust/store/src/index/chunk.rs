//! Up to 256 deliveries of one queue, each encoded relative to the one before it.
//!
//! A chunk is a row of the table `queue` under (session, a number not above its first). Its fields: count and total
//! size of the messages: varints; first number, last minus first number: varints; then for each delivery: its number
//! minus the number before it, its number minus that of its message: varints; a byte with QoS, RETAIN in bit 2, and
//! in bit 3 whether subscription identifiers follow; size of the message: varint; a count and identifiers: varints.

use crate::index::rows::StoredDelivery;
use crate::record::qos;
use crate::wire::{BodyError, RecordReader, put_varint};

/// The largest number of deliveries in a row.
const DELIVERIES: u32 = 256;
const RETAIN: u8 = 1 << 2;
const IDENTIFIERS: u8 = 1 << 3;

/// Deliveries of one queue in number order; at least one.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct DeliveryChunk {
    pub(crate) first: u64,
    pub(crate) last: u64,
    pub(crate) count: u32,
    /// Total size of their messages.
    pub(crate) bytes: u64,
    refs: Vec<u8>,
}

impl DeliveryChunk {
    pub(crate) fn of(delivery: &StoredDelivery) -> Self {
        let mut chunk = Self {
            first: delivery.number,
            last: delivery.number,
            count: 0,
            bytes: 0,
            refs: Vec::new(),
        };
        chunk.put(delivery);
        chunk
    }

    /// Packs deliveries, in number order, into as few chunks as possible.
    pub(crate) fn all<'d>(deliveries: impl IntoIterator<Item = &'d StoredDelivery>) -> Vec<Self> {
        let mut chunks: Vec<Self> = Vec::new();
        for delivery in deliveries {
            let is_in = chunks.last_mut().is_some_and(|last| last.push(delivery));
            if !is_in {
                chunks.push(Self::of(delivery));
            }
        }
        chunks
    }

    /// Appends a delivery with a higher number than all others; returns false if the chunk is full.
    pub(crate) fn push(&mut self, delivery: &StoredDelivery) -> bool {
        debug_assert!(delivery.number > self.last, "in order");
        let has_room = self.count < DELIVERIES;
        if has_room {
            self.put(delivery);
        }
        has_room
    }

    /// Appends all deliveries of a later chunk; returns false if they do not fit, or if one of the two is damaged.
    pub(crate) fn append(&mut self, behind: &Self) -> bool {
        let count = self.count.checked_add(behind.count);
        let bytes = self.bytes.checked_add(behind.bytes);
        // The first delivery of a chunk has the difference 0, in one byte.
        let (Some(step), Some(refs)) = (
            behind.first.checked_sub(self.last),
            behind.refs.strip_prefix(&[0]),
        ) else {
            return false;
        };
        let (Some(count @ ..=DELIVERIES), Some(bytes)) = (count, bytes) else {
            return false;
        };
        put_varint(step, &mut self.refs);
        self.refs.extend_from_slice(refs);
        (self.last, self.count, self.bytes) = (behind.last, count, bytes);
        true
    }

    /// Size on the heap, in bytes, without the chunk itself.
    pub(crate) fn heap_bytes(&self) -> usize {
        self.refs.capacity()
    }

    pub(crate) fn deliveries(&self) -> Deliveries<'_> {
        Deliveries {
            reader: RecordReader(&self.refs),
            number: self.first,
        }
    }

    pub(crate) fn find(&self, number: u64) -> Result<Option<StoredDelivery>, BodyError> {
        let mut deliveries = self.deliveries();
        let found = deliveries.find(|delivery| {
            let passed = delivery.as_ref().map(|delivery| delivery.number >= number);
            passed.unwrap_or(true)
        });
        let found = found.transpose()?;
        Ok(found.filter(|delivery| delivery.number == number))
    }

    /// Removes a delivery. The chunk may be empty afterwards; an empty chunk must be dropped.
    pub(crate) fn take(&mut self, number: u64) -> Result<Option<StoredDelivery>, BodyError> {
        let Some(delivery) = self.find(number)? else {
            return Ok(None);
        };
        if number == self.first && self.count > 1 {
            self.cut_first(&delivery)?;
        } else {
            let mut rest: Vec<StoredDelivery> = self.deliveries().collect::<Result<_, _>>()?;
            rest.retain(|delivery| delivery.number != number);
            self.become_all(&rest);
        }
        Ok(Some(delivery))
    }

    /// Replaces the content with `deliveries`, which are not more than before.
    fn become_all(&mut self, deliveries: &[StoredDelivery]) {
        self.refs.clear();
        (self.count, self.bytes) = (0, 0);
        if let Some(first) = deliveries.first() {
            (self.first, self.last) = (first.number, first.number);
        }
        for delivery in deliveries {
            self.put(delivery);
        }
    }

    /// Removes the first delivery: the usual case.
    fn cut_first(&mut self, first: &StoredDelivery) -> Result<(), BodyError> {
        let mut deliveries = self.deliveries();
        deliveries.next().transpose()?;
        let mut reader = deliveries.reader;
        let step = reader.varint()?;
        let cut = self.refs.len() - reader.0.len();
        let next = self.first.checked_add(step);
        let bytes = self.bytes.checked_sub(u64::from(first.bytes));
        let (Some(next), Some(bytes)) = (next.filter(|next| *next <= self.last), bytes) else {
            return Err(BodyError::Number);
        };
        (self.first, self.bytes) = (next, bytes);
        self.refs.splice(..cut, [0]);
        self.count -= 1;
        Ok(())
    }

    fn put(&mut self, delivery: &StoredDelivery) {
        let refs = &mut self.refs;
        put_varint(delivery.number - self.last, refs);
        put_varint(delivery.number.wrapping_sub(delivery.message), refs);
        let has_ids = !delivery.subscription_ids.is_empty();
        let bit = |is_set: bool, flag: u8| if is_set { flag } else { 0 };
        refs.push(delivery.qos | bit(delivery.retain, RETAIN) | bit(has_ids, IDENTIFIERS));
        put_varint(u64::from(delivery.bytes), refs);
        if has_ids {
            put_varint(delivery.subscription_ids.len() as u64, refs);
            for &id in &delivery.subscription_ids {
                put_varint(u64::from(id), refs);
            }
        }
        self.last = delivery.number;
        self.count += 1;
        self.bytes += u64::from(delivery.bytes);
    }

    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        put_varint(u64::from(self.count), out);
        put_varint(self.bytes, out);
        put_varint(self.first, out);
        put_varint(self.last - self.first, out);
        out.extend_from_slice(&self.refs);
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, BodyError> {
        let mut reader = RecordReader(bytes);
        let from = &mut reader;
        let count = u32::try_from(from.varint()?).map_err(|_| BodyError::Number)?;
        let (bytes, first) = (from.varint()?, from.varint()?);
        let last = first.checked_add(from.varint()?);
        Ok(Self {
            first,
            last: last.ok_or(BodyError::Number)?,
            count,
            bytes,
            refs: from.rest().to_owned(),
        })
    }

    /// Count and total size of an encoded chunk, without decoding the rest.
    pub(crate) fn figures(bytes: &[u8]) -> Result<(u64, u64), BodyError> {
        let mut reader = RecordReader(bytes);
        Ok((reader.varint()?, reader.varint()?))
    }
}

/// Iterates over the deliveries of a chunk.
pub(crate) struct Deliveries<'c> {
    reader: RecordReader<'c>,
    number: u64,
}

impl Deliveries<'_> {
    fn read(&mut self) -> Result<StoredDelivery, BodyError> {
        let from = &mut self.reader;
        let number = self.number.checked_add(from.varint()?);
        self.number = number.ok_or(BodyError::Number)?;
        let message = self.number.wrapping_sub(from.varint()?);
        let options = from.byte()?;
        let narrow = |number: u64| u32::try_from(number).map_err(|_| BodyError::Number);
        let bytes = narrow(from.varint()?)?;
        let mut subscription_ids = Vec::new();
        if options & IDENTIFIERS != 0 {
            for _ in 0..from.length()? {
                subscription_ids.push(narrow(from.varint()?)?);
            }
        }
        Ok(StoredDelivery {
            number: self.number,
            message,
            qos: qos(options)?,
            retain: options & RETAIN != 0,
            bytes,
            subscription_ids,
        })
    }
}

impl Iterator for Deliveries<'_> {
    type Item = Result<StoredDelivery, BodyError>;

    fn next(&mut self) -> Option<Self::Item> {
        (!self.reader.0.is_empty()).then(|| self.read())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn delivery(number: u64) -> StoredDelivery {
        StoredDelivery {
            number,
            message: number - number % 3,
            qos: u8::try_from(number % 3).unwrap(),
            retain: number.is_multiple_of(2),
            bytes: u32::try_from(number * 7).unwrap(),
            subscription_ids: (0..u32::try_from(number % 3).unwrap()).collect(),
        }
    }

    fn read(chunk: &DeliveryChunk) -> Vec<StoredDelivery> {
        chunk.deliveries().collect::<Result<_, _>>().unwrap()
    }

    #[test]
    fn what_is_put_in_comes_out_in_its_order() {
        let all: Vec<_> = [3, 4, 900, 70_000, 70_001].map(delivery).into();

        let chunks = DeliveryChunk::all(&all);
        let mut bytes = Vec::new();
        chunks[0].encode(&mut bytes);

        assert_eq!(chunks.len(), 1);
        let chunk = DeliveryChunk::decode(&bytes).unwrap();
        assert_eq!(chunk, chunks[0]);
        assert_eq!(read(&chunk), all);
        let sizes = all.iter().map(|delivery| u64::from(delivery.bytes)).sum();
        assert_eq!(DeliveryChunk::figures(&bytes).unwrap(), (5, sizes));
    }

    #[test]
    fn taking_any_of_them_leaves_the_others() {
        for taken in 0..5 {
            let mut all: Vec<_> = (0..5_u64).map(|step| delivery(10 + step * 300)).collect();
            let mut chunk = DeliveryChunk::all(&all).remove(0);

            let number = all[taken].number;
            assert_eq!(chunk.take(number).unwrap(), Some(all.remove(taken)));
            assert_eq!(chunk.take(number).unwrap(), None);

            assert_eq!(
                chunk,
                DeliveryChunk::all(&all).remove(0),
                "without {number}"
            );
        }
    }

    #[test]
    fn a_chunk_takes_256_and_one_behind_it_while_both_fit() {
        let all: Vec<_> = (1..=600).map(delivery).collect();

        let chunks = DeliveryChunk::all(&all);

        let counts: Vec<_> = chunks.iter().map(|chunk| chunk.count).collect();
        assert_eq!(counts, [256, 256, 88]);
        let mut first = DeliveryChunk::all(&all[..100]).remove(0);
        assert!(first.append(&DeliveryChunk::all(&all[100..256]).remove(0)));
        assert_eq!(first, chunks[0]);
        assert!(!first.append(&DeliveryChunk::of(&all[256])));
    }
}
