//! Messages that are wanted: how often, and where they are in the log.
//!
//! They are kept in pages of 256 numbers. A page is a row of the table `message` under the number
//! over 256; for each message that is wanted it has the low byte of the number, then references,
//! size, segment, offset and bytes of the frame as varints.

use crate::index::numbered::Numbered;
use crate::journal::Place;
use crate::wire::{BodyError, Reader, put_varint};

/// A message that is still referred to.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct MessageRow {
    pub(crate) references: u32,
    /// Bytes of topic, properties and payload.
    pub(crate) size: u32,
    segment: u32,
    offset: u32,
    bytes: u32,
}

impl MessageRow {
    pub(crate) fn new(size: u32, place: Place) -> Self {
        // INVARIANT: a segment is a few MiB, or has one group, which has one message beyond that.
        let narrow = |figure: u64| u32::try_from(figure).expect("segments are below 4 GiB");
        Self {
            references: 0,
            size,
            segment: narrow(place.segment),
            offset: narrow(place.offset),
            bytes: narrow(place.bytes),
        }
    }

    /// Where its record was written.
    pub(crate) fn place(&self) -> Place {
        Place {
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

    fn decode(from: &mut Reader<'_>) -> Result<Self, BodyError> {
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
pub(crate) struct Changed {
    low: u8,
    /// The checkpoint has it, or will have it: that it is gone must be written.
    pub(crate) is_stored: bool,
    /// `None` is gone.
    pub(crate) row: Option<MessageRow>,
}

/// Messages that differ from the checkpoint.
#[derive(Debug, Default)]
pub(crate) struct ChangedMessages {
    pages: Numbered<Vec<Changed>>,
    count: usize,
}

impl ChangedMessages {
    pub(crate) fn len(&self) -> usize {
        self.count
    }

    pub(crate) fn get(&self, number: u64) -> Option<&Changed> {
        let page = self.pages.get(&page_of(number))?;
        place(page, low(number)).ok().map(|place| &page[place])
    }

    pub(crate) fn get_mut(&mut self, number: u64) -> Option<&mut Changed> {
        let page = self.pages.get_mut(&page_of(number))?;
        place(page, low(number)).ok().map(|place| &mut page[place])
    }

    pub(crate) fn set(&mut self, number: u64, row: Option<MessageRow>, is_stored: bool) {
        let low = low(number);
        let page = self.pages.entry(page_of(number)).or_default();
        let changed = Changed {
            low,
            is_stored,
            row,
        };
        match place(page, low) {
            Ok(place) => page[place] = changed,
            Err(place) => {
                page.insert(place, changed);
                self.count += 1;
            }
        }
    }

    /// Forgets that it ever was.
    pub(crate) fn remove(&mut self, number: u64) {
        let Some(page) = self.pages.get_mut(&page_of(number)) else {
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

    /// The pages with changes, in their order.
    pub(crate) fn pages(&self) -> Vec<(u64, &[Changed])> {
        let mut pages: Vec<_> = self
            .pages
            .iter()
            .map(|(page, all)| (*page, &all[..]))
            .collect();
        pages.sort_unstable_by_key(|(page, _)| *page);
        pages
    }
}

/// The number of a message of a page.
pub(crate) fn number_of(page: u64, changed: &Changed) -> u64 {
    page << 8 | u64::from(changed.low)
}

pub(crate) fn page_of(number: u64) -> u64 {
    number >> 8
}

fn low(number: u64) -> u8 {
    number.to_le_bytes()[0]
}

fn place(page: &[Changed], low: u8) -> Result<usize, usize> {
    // Numbers grow: the last one is asked for most.
    match page.last() {
        Some(last) if last.low < low => Err(page.len()),
        Some(last) if last.low == low => Ok(page.len() - 1),
        _ => page.binary_search_by_key(&low, |changed| changed.low),
    }
}

/// What a page becomes with these changes; empty if nothing is left of it.
pub(crate) fn changed_page(stored: &[u8], changes: &[Changed]) -> Result<Vec<u8>, BodyError> {
    let (mut page, mut rest) = (Vec::new(), changes.iter().peekable());
    let mut put = |low: u8, row: Option<MessageRow>| {
        if let Some(row) = row {
            page.push(low);
            row.encode(&mut page);
        }
    };
    let mut reader = Reader(stored);
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

/// A message of a stored page.
pub(crate) fn find(stored: &[u8], number: u64) -> Result<Option<MessageRow>, BodyError> {
    let mut reader = Reader(stored);
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
        let place = Place {
            segment,
            offset: 1 << 20,
            bytes: 300,
        };
        MessageRow::new(200, place)
    }

    fn page(messages: &ChangedMessages, stored: &[u8]) -> Vec<u8> {
        let pages = messages.pages();
        assert_eq!(pages.len(), 1);
        changed_page(stored, pages[0].1).unwrap()
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
        assert_eq!((messages.len(), messages.pages().len()), (0, 0));
    }

    #[test]
    fn what_is_known_of_a_message_is_small() {
        assert!(size_of::<Changed>() <= 28);
    }
}
