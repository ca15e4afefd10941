//! The part of a sorted list that one page shows, collected from values in any order.

use std::collections::BTreeMap;

/// The first keys after a position; one more than a page holds.
pub(super) struct FirstKeys<T> {
    after: Option<String>,
    limit: usize,
    found: BTreeMap<String, T>,
}

impl<T> FirstKeys<T> {
    pub(super) fn new(after: Option<String>, limit: usize) -> Self {
        Self {
            after,
            limit,
            found: BTreeMap::new(),
        }
    }

    /// The value of `key`, made by `new` if the key was not offered before; `None`: the key is not among the first ones. The
    /// cost does not depend on the page size.
    ///
    /// A dropped key does not come back, since the last one of a full page only moves forward: a value sees each offer
    /// of its key.
    pub(super) fn offer(&mut self, key: &str, new: impl FnOnce() -> T) -> Option<&mut T> {
        if self.after.as_deref().is_some_and(|after| key <= after) {
            return None;
        }
        if !self.found.contains_key(key) {
            let is_full = self.found.len() > self.limit;
            let last = is_full.then(|| self.found.last_key_value()).flatten();
            if last.is_some_and(|(last, _)| key > last.as_str()) {
                return None;
            }
            self.found.insert(key.to_owned(), new());
            if is_full {
                self.found.pop_last();
            }
        }
        self.found.get_mut(key)
    }

    /// The keys of the page with their values, in their order, and whether more follow.
    pub(super) fn into_page(self) -> (impl Iterator<Item = (String, T)>, bool) {
        let has_more = self.found.len() > self.limit;
        (self.found.into_iter().take(self.limit), has_more)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_keys_behind_a_position_are_found_in_any_order() {
        let mut keys: Vec<_> = (0..50_u32).map(|number| number * 37 % 50).collect();
        for _ in 0..2 {
            let mut first = FirstKeys::new(Some("09".into()), 3);
            for key in &keys {
                first.offer(&format!("{key:02}"), || *key);
            }
            assert!(first.found.values().eq(&[10, 11, 12, 13]));
            keys.sort_unstable();
        }
        let mut first = FirstKeys::new(None, 0);
        let mut taken = 0;
        for key in keys {
            first.offer(&format!("{key:02}"), || taken += 1);
        }
        assert_eq!(
            (taken, first.found.len()),
            (1, 1),
            "one shows that more follow"
        );
    }
}
