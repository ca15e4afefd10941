//! The hash ring of a shared group. It orders members by hashes of their keys, so that a publisher or a topic gets
//! the same member, whatever their numbers are.
//!
//! A ring is a set like that of the members, with one seat for each member: the seat has its place in the bits where
//! a subscription has its subscriber. A choice reads a few places and takes the member whose seat follows one of them
//! most closely (multi-probe consistent hashing, Appleton and O'Reilly 2015). A new member takes its share from all
//! others, and a member that leaves returns its share to all others; nothing else changes.

use super::{PackedSubscription, set};
use crate::SubscriberId;
use crate::tree::hash::Hasher;
use crate::tree::node::Edit;
use crate::tree::word::Word;

/// Number of places that a member may have; it uses a later one if the earlier ones are taken.
const SEATS: u64 = 4;
/// Number of places that a choice reads.
pub(crate) const PROBES: usize = 8;
/// Distinguishes the places of choices from those of members.
const CHOICE: u64 = 1 << 63;
/// Places have 31 bits, like the numbers of subscribers.
const PLACE_BITS: u32 = 31;

/// Gives a member a seat, unless it has one.
pub(crate) fn sit<'g>(
    edit: &mut Edit<'g>,
    hasher: &Hasher,
    ring: Word<'g>,
    (member, key): (SubscriberId, u64),
) -> Word<'g> {
    let mut free = None;
    for place in places_of(hasher, key) {
        match set::of(ring, place) {
            Some(seat) if seat.seated() == member => return ring,
            Some(_) => {}
            None => free = free.or(Some(place)),
        }
    }
    match free {
        Some(place) => set::insert(edit, ring, PackedSubscription::seat(place, member), None).set,
        // It gets the messages that others do not take.
        None => ring,
    }
}

/// Frees the seat of a member.
pub(crate) fn stand_up<'g>(
    edit: &mut Edit<'g>,
    hasher: &Hasher,
    ring: Word<'g>,
    (member, key): (SubscriberId, u64),
) -> Word<'g> {
    let is_own =
        |place: &SubscriberId| set::of(ring, *place).is_some_and(|seat| seat.seated() == member);
    match places_of(hasher, key).find(is_own) {
        Some(place) => set::remove(edit, ring, place, None).set,
        None => ring,
    }
}

/// The member that `word` chooses: the closest wanted one at its places; if none is wanted, the closest one.
pub(crate) fn choose(
    ring: Word<'_>,
    hasher: &Hasher,
    word: u64,
    is_wanted: impl Fn(SubscriberId) -> bool,
) -> Option<SubscriberId> {
    let len = set::len(ring).max(1);
    let seats = (CHOICE..).take(PROBES).filter_map(|probe| {
        let place = place(hasher, hasher.scramble(word) ^ probe);
        let seat = set::nth(ring, set::rank(ring, place) % len)?;
        let distance = seat.subscriber().0.wrapping_sub(place.0) << 1;
        let member = seat.seated();
        Some((!is_wanted(member), distance, member))
    });
    seats
        .min_by_key(|(is_unwanted, distance, _)| (*is_unwanted, *distance))
        .map(|(.., member)| member)
}

fn places_of(hasher: &Hasher, key: u64) -> impl Iterator<Item = SubscriberId> {
    (0..SEATS).map(move |seat| place(hasher, hasher.scramble(key) ^ seat))
}

/// A place on the ring by a word.
fn place(hasher: &Hasher, word: u64) -> SubscriberId {
    // INVARIANT: 31 bits are left.
    SubscriberId((hasher.scramble(hasher.scramble(word)) >> (u64::BITS - PLACE_BITS)) as u32)
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;
    use crate::sync::{GarbageCounter, pin};
    use crate::tree::node::Size;

    /// Rings by way of the slowest: every seat is looked at for every probe.
    fn choose_slowly(
        seats: &[PackedSubscription],
        hasher: &Hasher,
        word: u64,
        is_wanted: impl Fn(SubscriberId) -> bool,
    ) -> Option<SubscriberId> {
        let met = (CHOICE..).take(PROBES).filter_map(|probe| {
            let place = place(hasher, hasher.scramble(word) ^ probe).0;
            let distance = |seat: &&PackedSubscription| {
                (seat.subscriber().0 + (1 << PLACE_BITS) - place) % (1 << PLACE_BITS)
            };
            let seat = seats.iter().min_by_key(distance)?;
            Some((!is_wanted(seat.seated()), distance(&seat), seat.seated()))
        });
        met.min_by_key(|(is_unwanted, distance, _)| (*is_unwanted, *distance))
            .map(|(.., member)| member)
    }

    #[test]
    fn a_choice_is_that_of_a_slow_search_whoever_comes_and_goes() {
        let (guard, garbage, hasher) = (pin(), GarbageCounter::new(), Hasher::new(3));
        let mut edit = Edit::new(&guard, &garbage, Size::default());
        let (mut ring, mut state) = (Word::EMPTY, 1_u64);
        let mut draw = |below: u64| {
            state = hasher.scramble(state ^ 0x9E37);
            state % below
        };
        let mut members = std::collections::BTreeSet::new();
        for step in 0..2_000 {
            let number = u32::try_from(draw(700)).unwrap();
            let member = (SubscriberId(number), u64::from(number) * 3);
            if step < 900 || draw(2) == 0 {
                ring = sit(&mut edit, &hasher, ring, member);
                members.insert(number);
            } else {
                ring = stand_up(&mut edit, &hasher, ring, member);
                members.remove(&number);
            }
            let seats: Vec<PackedSubscription> = set::Iter::new(ring).collect();
            let word = draw(u64::MAX);
            let is_wanted = |member: SubscriberId| member.0.is_multiple_of(3);

            assert_eq!(
                choose(ring, &hasher, word, is_wanted),
                choose_slowly(&seats, &hasher, word, is_wanted)
            );
            let mut seated: Vec<u32> = seats.iter().map(|seat| seat.seated().0).collect();
            seated.sort_unstable();
            assert_eq!(seated, members.iter().copied().collect::<Vec<_>>());
        }
    }

    /// All places are one: whoever finds none has no seat, and nobody loses his by that.
    #[test]
    fn members_whose_places_are_taken_do_not_take_those_of_others() {
        let (guard, garbage, hasher) = (pin(), GarbageCounter::new(), Hasher::new(3));
        let mut edit = Edit::new(&guard, &garbage, Size::default());
        let mut ring = Word::EMPTY;
        for number in 0..6 {
            ring = sit(&mut edit, &hasher, ring, (SubscriberId(number), 5));
        }
        assert_eq!(set::len(ring), 4);

        for number in [5, 2] {
            ring = stand_up(&mut edit, &hasher, ring, (SubscriberId(number), 5));
        }

        let mut seated: Vec<u32> = set::Iter::new(ring).map(|seat| seat.seated().0).collect();
        seated.sort_unstable();
        assert_eq!(seated, [0, 1, 3]);
    }

    #[test]
    fn a_choice_among_5_000_members_asks_for_no_more_than_one_among_64() {
        let (guard, garbage, hasher) = (pin(), GarbageCounter::new(), Hasher::new(3));
        let mut edit = Edit::new(&guard, &garbage, Size::default());
        let mut asked_of = |members: u32| {
            let mut ring = Word::EMPTY;
            for number in 0..members {
                let member = (SubscriberId(number), number.into());
                ring = sit(&mut edit, &hasher, ring, member);
            }
            let asked = Cell::new(0);
            let is_wanted = |_| {
                asked.set(asked.get() + 1);
                false
            };
            choose(ring, &hasher, 9, is_wanted);
            asked.get()
        };

        assert_eq!((asked_of(5_000), asked_of(64)), (PROBES, PROBES));
    }
}
