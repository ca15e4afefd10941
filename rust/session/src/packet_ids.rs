//! Allocates packet identifiers for outgoing PUBLISH packets.

use mqttcore_codec::PacketId;

/// Identifiers on the ring: 1 to 65,535.
const RING: u32 = 65_535;

/// Allocates unused packet identifiers in ascending order; after 65,535 it starts again at 1 [MQTT-2.2.1-4].
///
/// Allocating in a circle, instead of always taking the lowest free identifier, prevents a late acknowledgement from
/// matching a newer message.
#[derive(Debug)]
pub(crate) struct PacketIdAllocator {
    /// The next candidate.
    next: u16,
    /// How many identifiers from `next` on are known to be free.
    free_run: u16,
}

impl PacketIdAllocator {
    /// All identifiers are free.
    pub(crate) const ALL: Self = Self {
        next: 1,
        free_run: u16::MAX,
    };

    /// Takes a free identifier; returns `None` if all 65,535 are in use.
    ///
    /// `used` is iterated only after the known free identifiers are used up: once around the ring, or if an old
    /// identifier is in the way.
    pub(crate) fn take<I>(&mut self, used: impl FnOnce() -> I) -> Option<PacketId>
    where
        I: Iterator<Item = PacketId>,
    {
        if self.free_run == 0 {
            self.find_run(used())?;
        }
        let id = PacketId::new(self.next)?;
        self.free_run -= 1;
        self.next = step(self.next, 1);
        Some(id)
    }

    /// Forgets which identifiers are known to be free, because some are used that were not allocated here.
    pub(crate) fn use_up(&mut self) {
        self.free_run = 0;
    }

    /// Moves `next` to the first free identifier and counts the free identifiers from there.
    fn find_run(&mut self, used: impl Iterator<Item = PacketId>) -> Option<()> {
        let mut distances: Vec<u16> = used.map(|id| distance(self.next, id.get())).collect();
        distances.sort_unstable();
        distances.dedup();
        let mut first_free = 0;
        let mut rest = distances.iter().copied();
        let next_used = loop {
            match rest.next() {
                Some(used) if used == first_free => first_free += 1,
                Some(used) => break used,
                None => break u16::MAX,
            }
        };
        self.next = step(self.next, first_free);
        self.free_run = next_used - first_free;
        (self.free_run > 0).then_some(())
    }
}

fn step(id: u16, by: u16) -> u16 {
    let stepped = (u32::from(id) - 1 + u32::from(by)) % RING + 1;
    // INVARIANT: the remainder is below 65,535.
    u16::try_from(stepped).expect("the ring fits in 16 bits")
}

fn distance(from: u16, to: u16) -> u16 {
    let distance = (u32::from(to) + RING - u32::from(from)) % RING;
    // INVARIANT: the remainder is below 65,535.
    u16::try_from(distance).expect("the ring fits in 16 bits")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(value: u16) -> PacketId {
        PacketId::new(value).unwrap()
    }

    #[test]
    fn ids_count_up_and_wrap_past_zero() {
        let mut ids = PacketIdAllocator::ALL;

        let taken: Vec<u16> = (0..65_536_u32)
            .map(|_| ids.take(std::iter::empty).unwrap().get())
            .collect();

        assert_eq!(taken[..3], [1, 2, 3]);
        assert_eq!(taken[65_534..], [65_535, 1]);
    }

    #[test]
    fn ids_in_use_are_stepped_over() {
        let mut ids = PacketIdAllocator {
            next: 1,
            free_run: 0,
        };
        let used = [id(2), id(1), id(4)];

        let taken = [(); 3].map(|()| ids.take(|| used.into_iter()).unwrap().get());

        assert_eq!(taken, [3, 5, 6]);
    }

    #[test]
    fn no_id_is_given_when_all_are_in_use() {
        let mut ids = PacketIdAllocator {
            next: 1,
            free_run: 0,
        };

        assert_eq!(ids.take(|| (1..=u16::MAX).map(id)), None);
        assert_eq!(ids.take(|| (1..u16::MAX).map(id)), Some(id(u16::MAX)));
    }
}
