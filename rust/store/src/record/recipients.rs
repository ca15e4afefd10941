//! Recipients of a message: an encoded list.

use std::fmt;

use crate::record::qos;
use crate::wire::{BodyError, RecordReader, put_varint};

/// One durable session that gets a message.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Recipient {
    /// The session.
    pub session: u64,
    /// QoS of the delivery: 0 to 2.
    pub qos: u8,
    /// RETAIN of the delivery.
    pub retain: bool,
    /// Subscription Identifiers of the delivery.
    pub subscription_ids: Vec<u32>,
}

/// An encoded list of recipients.
#[derive(Clone, Copy, Default, Eq, PartialEq)]
pub struct Recipients<'a> {
    count: u64,
    bytes: &'a [u8],
}

/// A builder for a list of recipients; reuse it.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct RecipientsBuf {
    count: u64,
    bytes: Vec<u8>,
}

const RETAIN: u8 = 1 << 2;
const IDS: u8 = 1 << 3;

impl RecipientsBuf {
    /// Adds a session that gets the message at `qos` (0 to 2).
    pub fn push(&mut self, session: u64, qos: u8, retain: bool, subscription_ids: &[u32]) {
        debug_assert!(qos <= 2, "QoS is 0 to 2");
        self.count += 1;
        put_varint(session, &mut self.bytes);
        let retain = if retain { RETAIN } else { 0 };
        let ids = if subscription_ids.is_empty() { 0 } else { IDS };
        self.bytes.push(qos & 0b11 | retain | ids);
        if ids != 0 {
            put_varint(subscription_ids.len() as u64, &mut self.bytes);
        }
        for &id in subscription_ids {
            put_varint(u64::from(id), &mut self.bytes);
        }
    }

    /// Removes all recipients and keeps the memory.
    pub fn clear(&mut self) {
        self.count = 0;
        self.bytes.clear();
    }

    /// Number of recipients.
    pub fn len(&self) -> u64 {
        self.count
    }

    /// Whether the list is empty.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The encoded list.
    pub fn as_recipients(&self) -> Recipients<'_> {
        Recipients {
            count: self.count,
            bytes: &self.bytes,
        }
    }
}

impl<'a> Recipients<'a> {
    /// Number of recipients.
    pub fn len(&self) -> u64 {
        self.count
    }

    /// Whether the list is empty.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Recipients in the order of the list.
    pub fn iter(&self) -> impl Iterator<Item = Recipient> + 'a {
        let mut reader = RecordReader(self.bytes);
        std::iter::from_fn(move || {
            // INVARIANT: `decode` checked the bytes, or `push` wrote them.
            (!reader.0.is_empty()).then(|| one(&mut reader).expect("checked recipients"))
        })
    }

    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        put_varint(self.count, out);
        out.extend_from_slice(self.bytes);
    }

    pub(crate) fn decode(from: &mut RecordReader<'a>) -> Result<Self, BodyError> {
        let count = from.length()? as u64;
        let before = from.0;
        for _ in 0..count {
            one(from)?;
        }
        let bytes = &before[..before.len() - from.0.len()];
        Ok(Self { count, bytes })
    }
}

impl fmt::Debug for Recipients<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_list().entries(self.iter()).finish()
    }
}

fn one(from: &mut RecordReader<'_>) -> Result<Recipient, BodyError> {
    let session = from.varint()?;
    let options = from.byte()?;
    if options & !(0b11 | RETAIN | IDS) != 0 {
        return Err(BodyError::Flags);
    }
    let count = if options & IDS == 0 {
        0
    } else {
        from.length()?
    };
    let mut subscription_ids = Vec::with_capacity(count);
    for _ in 0..count {
        subscription_ids.push(u32::try_from(from.varint()?).map_err(|_| BodyError::Number)?);
    }
    let is_padded = options & IDS != 0 && count == 0;
    if is_padded {
        return Err(BodyError::Number);
    }
    Ok(Recipient {
        session,
        qos: qos(options)?,
        retain: options & RETAIN != 0,
        subscription_ids,
    })
}
