//! The subscribers of one filter, for contenders that change them in place.

use super::Map;

/// Up to here a list is searched from end to end.
const FEW: usize = 16;

/// One subscriber of one filter.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Entry {
    pub(super) client: u32,
    pub(super) qos: u8,
}

/// A list that is quick to visit, with an index once it is long: no originals search a list of thousands this quickly.
#[derive(Default)]
pub(super) struct Subscribers {
    list: Vec<Entry>,
    places: Option<Box<Map<u32, usize>>>,
}

impl Subscribers {
    pub(super) fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    pub(super) fn list(&self) -> &[Entry] {
        &self.list
    }

    fn place(&self, client: u32) -> Option<usize> {
        match &self.places {
            Some(places) => places.get(&client).copied(),
            None => self.list.iter().position(|entry| entry.client == client),
        }
    }

    /// Adds or replaces; answers whether the client is new.
    pub(super) fn insert(&mut self, client: u32, qos: u8) -> bool {
        if let Some(place) = self.place(client) {
            self.list[place].qos = qos;
            return false;
        }
        if let Some(places) = &mut self.places {
            places.insert(client, self.list.len());
        }
        self.list.push(Entry { client, qos });
        if self.places.is_none() && self.list.len() > FEW {
            let numbered = self.list.iter().enumerate();
            let places = numbered.map(|(place, entry)| (entry.client, place));
            self.places = Some(Box::new(places.collect()));
        }
        true
    }

    /// Removes; answers whether the client was there.
    pub(super) fn remove(&mut self, client: u32) -> bool {
        let Some(place) = self.place(client) else {
            return false;
        };
        self.list.swap_remove(place);
        if let Some(places) = &mut self.places {
            places.remove(&client);
            if let Some(moved) = self.list.get(place) {
                places.insert(moved.client, place);
            }
        }
        true
    }
}
