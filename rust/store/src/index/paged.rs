//! A map by consecutive numbers: 256 of them share an entry of a hash table, and a full page wastes no memory.

use crate::index::numbered::{Numbered, slot_bytes};

/// A map by session number.
#[derive(Debug)]
pub(crate) struct Paged<T> {
    pages: Numbered<TablePage<T>>,
    count: usize,
}

#[derive(Debug)]
struct TablePage<T> {
    /// Low bytes of the numbers, ascending.
    lows: Vec<u8>,
    values: Vec<T>,
}

impl<T> Default for Paged<T> {
    fn default() -> Self {
        Self {
            pages: Numbered::default(),
            count: 0,
        }
    }
}

impl<T> Paged<T> {
    pub(crate) fn len(&self) -> usize {
        self.count
    }

    pub(crate) fn contains(&self, number: u64) -> bool {
        self.get(number).is_some()
    }

    pub(crate) fn get(&self, number: u64) -> Option<&T> {
        let page = self.pages.get(&page_of(number))?;
        let place = place(&page.lows, low(number)).ok()?;
        Some(&page.values[place])
    }

    pub(crate) fn get_mut(&mut self, number: u64) -> Option<&mut T> {
        let page = self.pages.get_mut(&page_of(number))?;
        let place = place(&page.lows, low(number)).ok()?;
        Some(&mut page.values[place])
    }

    /// The value under `number`; `make` creates it if there is none.
    pub(crate) fn get_or_insert_with(&mut self, number: u64, make: impl FnOnce() -> T) -> &mut T {
        let page = self
            .pages
            .entry(page_of(number))
            .or_insert_with(|| TablePage {
                lows: Vec::new(),
                values: Vec::new(),
            });
        let place = match place(&page.lows, low(number)) {
            Ok(place) => place,
            Err(place) => {
                page.lows.insert(place, low(number));
                page.values.insert(place, make());
                self.count += 1;
                place
            }
        };
        &mut page.values[place]
    }

    pub(crate) fn remove(&mut self, number: u64) {
        let Some(page) = self.pages.get_mut(&page_of(number)) else {
            return;
        };
        if let Ok(place) = place(&page.lows, low(number)) {
            page.lows.remove(place);
            page.values.remove(place);
            self.count -= 1;
            if page.lows.is_empty() {
                self.pages.remove(&page_of(number));
            }
        }
    }

    /// Size on the heap, in bytes; `bytes_of` returns the heap bytes of one value.
    pub(crate) fn heap_bytes(&self, bytes_of: impl Fn(&T) -> usize) -> usize {
        let pages = self.pages.values().map(|page| {
            let values: usize = page.values.iter().map(&bytes_of).sum();
            page.lows.capacity() + page.values.capacity() * size_of::<T>() + values
        });
        slot_bytes(&self.pages) + pages.sum::<usize>()
    }

    /// All entries; those of a page are together and ascending.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u64, &T)> {
        self.pages.iter().flat_map(|(number, page)| {
            let numbers = page
                .lows
                .iter()
                .map(move |low| number << 8 | u64::from(*low));
            numbers.zip(&page.values)
        })
    }
}

/// The page of a number.
pub(crate) fn page_of(number: u64) -> u64 {
    number >> 8
}

/// The position of a number in its page.
pub(crate) fn low(number: u64) -> u8 {
    number.to_le_bytes()[0]
}

fn place(lows: &[u8], low: u8) -> Result<usize, usize> {
    // Numbers grow: most lookups are for the last one.
    match lows.last() {
        Some(last) if *last < low => Err(lows.len()),
        // A full page has no gaps.
        _ if lows.len() == 256 => Ok(usize::from(low)),
        _ => lows.binary_search(&low),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn it_has_what_a_map_has() {
        let (mut paged, mut map) = (Paged::default(), BTreeMap::new());
        let mut word = 1_u64;
        for step in 0..20_000_u64 {
            word = word.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let number = (word >> 33) % 1_500;
            if step < 8_000 || word >> 63 == 0 {
                paged.get_or_insert_with(number, || step);
                map.entry(number).or_insert(step);
            } else {
                paged.remove(number);
                map.remove(&number);
            }
            assert_eq!(paged.get(number), map.get(&number));
        }

        let mut all: Vec<_> = paged.iter().map(|(number, step)| (number, *step)).collect();
        all.sort_unstable();
        assert_eq!(paged.len(), map.len());
        assert_eq!(all, map.into_iter().collect::<Vec<_>>());
    }
}
