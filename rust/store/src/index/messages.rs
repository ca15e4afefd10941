//! Live messages: their reference counts and their positions in the log.
//!
//! They are stored in pages of 256 numbers. A page is a row of the table `message` under the number divided by 256.
//! For each live message the page has the low byte of its number, then references, size, segment, offset and bytes of
//! the frame as varints.

use std::borrow::Cow;

use crate::index::numbered::{Numbered, slot_bytes};
use crate::index::paged::low;
pub(crate) use crate::index::paged::page_of;
use crate::wal::LogPosition;
use crate::wire::{BodyError, RecordReader, put_varint};

/// Messages in a page.
const PAGE: usize = 256;

/// A message that has references.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct MessageRow {
    pub(crate) references: u32,
    /// Size of topic, properties and payload in bytes.
    pub(crate) size: u32,
    segment: u32,
    offset: u32,
    bytes: u32,
}

impl MessageRow {
    /// A message without references.
    ///
    /// # Errors
    ///
    /// [`BodyError::Number`]: our segments have a few MiB, or one group, but a file of somebody else may be larger.
    pub(crate) fn new(size: u32, place: LogPosition) -> Result<Self, BodyError> {
        let narrow = |figure: u64| u32::try_from(figure).map_err(|_| BodyError::Number);
        Ok(Self {
            references: 0,
            size,
            segment: narrow(place.segment)?,
            offset: narrow(place.offset)?,
            bytes: narrow(place.bytes)?,
        })
    }

    /// The position of its record.
    pub(crate) fn place(&self) -> LogPosition {
        LogPosition {
            segment: self.segment.into(),
            offset: self.offset.into(),
            bytes: self.bytes.into(),
        }
    }

    fn encode(&self, out: &mut Vec<u8>) {
        let figures = [
            self.references,
            self.size,
            self.segment,
            self.offset,
            self.bytes,
        ];
        for figure in figures {
            put_varint(u64::from(figure), out);
        }
    }

    fn decode(from: &mut RecordReader<'_>) -> Result<Self, BodyError> {
        let mut figures = [0; 5];
        for figure in &mut figures {
            *figure = u32::try_from(from.varint()?).map_err(|_| BodyError::Number)?;
        }
        let [references, size, segment, offset, bytes] = figures;
        Ok(Self {
            references,
            size,
            segment,
            offset,
            bytes,
        })
    }
}

/// A message that differs from the checkpoint.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ChangedMessage {
    low: u8,
    /// The checkpoint has it, or will have it: its removal must be written.
    pub(crate) is_stored: bool,
    /// `None`: removed.
    pub(crate) row: Option<MessageRow>,
}

/// Messages that differ from the checkpoint.
#[derive(Debug, Default)]
pub(crate) struct ChangedMessages {
    pages: Numbered<Page>,
    count: usize,
    /// Pages that became full since the last [`pack`](Self::pack).
    filled: Vec<u64>,
}

/// Up to 256 messages.
#[derive(Debug)]
enum Page {
    Open(Vec<ChangedMessage>),
    /// 256 new, live messages, encoded as in the checkpoint: half the memory. Decoded when one of them changes.
    Packed(Box<[u8]>),
}

impl Page {
    fn open(&mut self) -> &mut Vec<ChangedMessage> {
        if let Self::Packed(bytes) = self {
            *self = Self::Open(unpacked(bytes));
        }
        match self {
            Self::Open(changed) => changed,
            Self::Packed(_) => unreachable!("it was opened"),
        }
    }

    fn changed(&self) -> Cow<'_, [ChangedMessage]> {
        match self {
            Self::Open(changed) => Cow::Borrowed(changed),
            Self::Packed(bytes) => Cow::Owned(unpacked(bytes)),
        }
    }
}

fn unpacked(bytes: &[u8]) -> Vec<ChangedMessage> {
    let (mut reader, mut changed) = (RecordReader(bytes), Vec::with_capacity(PAGE));
    while !reader.0.is_empty() {
        // INVARIANT: `pack` encoded it.
        let low = reader.byte().expect("a page of our own");
        let row = MessageRow::decode(&mut reader).expect("a page of our own");
        changed.push(ChangedMessage {
            low,
            is_stored: false,
            row: Some(row),
        });
    }
    changed
}

impl ChangedMessages {
    pub(crate) fn len(&self) -> usize {
        self.count
    }

    pub(crate) fn get(&self, number: u64) -> Option<ChangedMessage> {
        match self.pages.get(&page_of(number))? {
            Page::Open(page) => place(page, low(number)).ok().map(|place| page[place]),
            Page::Packed(bytes) => {
                // INVARIANT: `pack` encoded it.
                let row = find(bytes, number).expect("a page of our own");
                row.map(|row| ChangedMessage {
                    low: low(number),
                    is_stored: false,
                    row: Some(row),
                })
            }
        }
    }

    pub(crate) fn get_mut(&mut self, number: u64) -> Option<&mut ChangedMessage> {
        let page = self.pages.get_mut(&page_of(number))?.open();
        place(page, low(number)).ok().map(|place| &mut page[place])
    }

    pub(crate) fn set(&mut self, number: u64, row: Option<MessageRow>, is_stored: bool) {
        let low = low(number);
        let page = self.pages.entry(page_of(number));
        let page = page.or_insert(Page::Open(Vec::new())).open();
        let changed = ChangedMessage {
            low,
            is_stored,
            row,
        };
        match place(page, low) {
            Ok(place) => page[place] = changed,
            Err(place) => {
                page.insert(place, changed);
                self.count += 1;
                if page.len() == PAGE {
                    self.filled.push(page_of(number));
                }
            }
        }
    }

    /// Removes the change, as if the message had never existed.
    pub(crate) fn remove(&mut self, number: u64) {
        let Some(page) = self.pages.get_mut(&page_of(number)).map(Page::open) else {
            return;
        };
        if let Ok(place) = place(page, low(number)) {
            page.remove(place);
            self.count -= 1;
            if page.is_empty() {
                self.pages.remove(&page_of(number));
            }
        }
    }

    /// Encodes the pages that are full of new, live messages, as a growing backlog has them.
    pub(crate) fn pack(&mut self) {
        for number in self.filled.drain(..) {
            let Some(Page::Open(changed)) = self.pages.get(&number) else {
                continue;
            };
            let is_new = |changed: &ChangedMessage| changed.row.is_some() && !changed.is_stored;
            if changed.len() == PAGE && changed.iter().all(is_new) {
                // INVARIANT: there is no stored page that could be damaged.
                let bytes = changed_page(&[], changed).expect("no stored page");
                self.pages.insert(number, Page::Packed(bytes.into()));
            }
        }
    }

    /// Size on the heap, in bytes.
    pub(crate) fn heap_bytes(&self) -> usize {
        let pages = self.pages.values().map(|page| match page {
            Page::Open(changed) => changed.capacity() * size_of::<ChangedMessage>(),
            Page::Packed(bytes) => bytes.len(),
        });
        slot_bytes(&self.pages) + pages.sum::<usize>()
    }

    /// Pages with changes, ascending.
    pub(crate) fn pages(&self) -> impl Iterator<Item = (u64, Cow<'_, [ChangedMessage]>)> {
        let mut pages: Vec<_> = self.pages.iter().collect();
        pages.sort_unstable_by_key(|(page, _)| **page);
        pages.into_iter().map(|(page, all)| (*page, all.changed()))
    }
}

/// The number of a message in a page.
pub(crate) fn number_of(page: u64, changed: &ChangedMessage) -> u64 {
    page << 8 | u64::from(changed.low)
}

fn place(page: &[ChangedMessage], low: u8) -> Result<usize, usize> {
    // Numbers grow: most lookups are for the last one.
    match page.last() {
        Some(last) if last.low < low => Err(page.len()),
        Some(last) if last.low == low => Ok(page.len() - 1),
        _ => page.binary_search_by_key(&low, |changed| changed.low),
    }
}

/// Applies changes to a stored page; the result is empty if no message is left.
pub(crate) fn changed_page(
    stored: &[u8],
    changes: &[ChangedMessage],
) -> Result<Vec<u8>, BodyError> {
    let (mut page, mut rest) = (Vec::new(), changes.iter().peekable());
    let mut put = |low: u8, row: Option<MessageRow>| {
        if let Some(row) = row {
            page.push(low);
            row.encode(&mut page);
        }
    };
    let mut reader = RecordReader(stored);
    while !reader.0.is_empty() {
        let (low, row) = (reader.byte()?, MessageRow::decode(&mut reader)?);
        while let Some(before) = rest.next_if(|next| next.low < low) {
            put(before.low, before.row);
        }
        match rest.next_if(|next| next.low == low) {
            Some(next) => put(low, next.row),
            None => put(low, Some(row)),
        }
    }
    for next in rest {
        put(next.low, next.row);
    }
    Ok(page)
}

/// All messages of a stored page.
pub(crate) fn decode_page(page: u64, stored: &[u8]) -> Result<Vec<(u64, MessageRow)>, BodyError> {
    let (mut reader, mut rows) = (RecordReader(stored), Vec::new());
    while !reader.0.is_empty() {
        let (low, row) = (reader.byte()?, MessageRow::decode(&mut reader)?);
        rows.push((page << 8 | u64::from(low), row));
    }
    Ok(rows)
}

/// Encodes a page of `rows`, which are ascending.
pub(crate) fn encode_page(rows: &[(u64, MessageRow)]) -> Vec<u8> {
    let mut page = Vec::new();
    for (number, row) in rows {
        page.push(low(*number));
        row.encode(&mut page);
    }
    page
}

/// Finds a message in a stored page.
pub(crate) fn find(stored: &[u8], number: u64) -> Result<Option<MessageRow>, BodyError> {
    let mut reader = RecordReader(stored);
    while !reader.0.is_empty() {
        let (found, row) = (reader.byte()?, MessageRow::decode(&mut reader)?);
        if found >= low(number) {
            return Ok((found == low(number)).then_some(row));
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(segment: u64) -> MessageRow {
        let place = LogPosition {
            segment,
            offset: 1 << 20,
            bytes: 300,
        };
        MessageRow::new(200, place).unwrap()
    }

    fn page(messages: &ChangedMessages, stored: &[u8]) -> Vec<u8> {
        let pages: Vec<_> = messages.pages().collect();
        assert_eq!(pages.len(), 1);
        changed_page(stored, &pages[0].1).unwrap()
    }

    #[test]
    fn a_page_takes_changes_in_any_order() {
        let mut first = ChangedMessages::default();
        for number in [0x305, 0x301, 0x3ff] {
            first.set(number, Some(row(number)), false);
        }
        let stored = page(&first, &[]);
        let mut second = ChangedMessages::default();
        second.set(0x301, None, true);
        second.set(0x300, Some(row(1)), false);
        second.set(0x305, Some(row(2)), true);

        let stored = page(&second, &stored);

        let found = |number| find(&stored, number).unwrap();
        assert_eq!(found(0x300), Some(row(1)));
        assert_eq!(found(0x301), None);
        assert_eq!(found(0x305), Some(row(2)));
        assert_eq!(found(0x3ff), Some(row(0x3ff)));
        assert_eq!(found(0x3fe), None);
    }

    #[test]
    fn a_page_without_messages_is_no_page() {
        let mut messages = ChangedMessages::default();
        messages.set(7, Some(row(1)), false);
        let stored = page(&messages, &[]);
        messages.set(7, None, true);

        assert!(page(&messages, &stored).is_empty());
        messages.remove(7);
        assert_eq!((messages.len(), messages.pages().count()), (0, 0));
    }

    #[test]
    fn a_full_page_is_packed_until_one_of_its_messages_changes() {
        let mut messages = ChangedMessages::default();
        for number in 0x100..0x200 {
            messages.set(number, Some(row(number)), false);
        }
        let open = page(&messages, &[]);

        messages.pack();

        assert!(matches!(messages.pages[&1], Page::Packed(_)));
        assert_eq!(messages.get(0x142).unwrap().row, Some(row(0x142)));
        assert_eq!(page(&messages, &[]), open);
        messages.get_mut(0x142).unwrap().row = None;
        assert!(matches!(messages.pages[&1], Page::Open(_)));
        assert_eq!(messages.get(0x142).unwrap().row, None);
        assert_eq!(messages.get(0x1ff).unwrap().row, Some(row(0x1ff)));
        assert_eq!(messages.len(), 256);
    }

    #[test]
    fn a_page_that_is_only_changed_is_not_packed() {
        let mut messages = ChangedMessages::default();
        for number in 0x100..0x200 {
            messages.set(number, Some(row(number)), number == 0x180);
        }

        messages.pack();

        assert!(matches!(messages.pages[&1], Page::Open(_)));
    }

    #[test]
    fn what_is_known_of_a_message_is_small() {
        assert!(size_of::<ChangedMessage>() <= 28);
    }
}
