//! Histories of a directory, and the search for an order of steps that explains one (C1, C2).
//!
//! All filters match one topic, and subscriptions carry identifiers, so a match shows what each client was subscribed
//! to at one moment. A client writes alone: its batches are in order, and after each of them it has one known state.
//! So a history is explained when every match can be placed between two batches of each client such that
//!
//! * it sees the state there, whole: the batch before is in, the batch behind is not;
//! * what had returned before it began is in, what began after it returned is not (real time);
//! * a match behind another one, in real time, is not placed before it;
//! * in histories without leaving: one order of versions explains all clients together. A match that sees a batch sees
//!   every batch that had returned before that one began, and two matches never see two batches in opposite orders.
#![allow(
    dead_code,
    clippy::unwrap_used,
    reason = "shared by several tests; helpers are tests"
)]

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};

use mqttcore_codec::QoS;
use mqttcore_topics::{
    Change, Directory, Match, Options, SubscriptionFilter, TopicLimits, TopicName, Visitor,
};

/// Numbers that order what happens on all threads.
#[derive(Default)]
pub(crate) struct Clock(AtomicU64);

impl Clock {
    fn now(&self) -> u64 {
        self.0.fetch_add(1, Ordering::SeqCst)
    }
}

/// The identifiers of a client's subscriptions.
pub(crate) type State = BTreeSet<u32>;

/// One batch of one client, or its leaving.
#[derive(Clone, Debug)]
pub(crate) struct Write {
    pub(crate) start: u64,
    pub(crate) end: u64,
    /// What the client is subscribed to afterwards.
    pub(crate) state: State,
}

/// One match: what it saw of each client.
#[derive(Clone, Debug)]
pub(crate) struct Read {
    pub(crate) start: u64,
    pub(crate) end: u64,
    pub(crate) seen: Vec<State>,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct History {
    /// The batches of each client, in order.
    pub(crate) writes: Vec<Vec<Write>>,
    pub(crate) reads: Vec<Read>,
    /// Clients leave: what a match sees of them is of the moment of the visit, not of its version.
    pub(crate) has_leaving: bool,
}

impl History {
    /// Looks for an order that explains every read.
    pub(crate) fn check(&self) -> Result<(), String> {
        let mut reads: Vec<&Read> = self.reads.iter().collect();
        reads.sort_by_key(|read| read.start);
        let mut by_end = Vec::new();
        let mut floor = vec![0; self.writes.len()];
        let mut placed: Vec<Vec<usize>> = Vec::new();
        for read in &reads {
            // What every read that ended before this one began has to be placed in front of.
            by_end.retain(|(end, place): &(u64, Vec<usize>)| {
                let is_before = *end < read.start;
                if is_before {
                    raise(&mut floor, place);
                }
                !is_before
            });
            let place = self.place(read, floor.clone())?;
            by_end.push((read.end, place.clone()));
            if self.is_certain(read, &place) {
                placed.push(place);
            }
        }
        if self.has_leaving {
            Ok(())
        } else {
            is_chain(placed)
        }
    }

    /// The earliest place of a read among the batches of each client that is not before `place`.
    fn place(&self, read: &Read, mut place: Vec<usize>) -> Result<Vec<usize>, String> {
        for (floor, writes) in place.iter_mut().zip(&self.writes) {
            *floor = (*floor).max(returned(writes, read.start));
        }
        loop {
            let before = place.clone();
            for client in 0..place.len() {
                place[client] = self.first_fit(read, client, place[client])?;
                if let (false, Some(last)) = (self.has_leaving, place[client].checked_sub(1)) {
                    // Seeing a batch means seeing what had returned before it began.
                    let start = self.writes[client][last].start;
                    for (floor, writes) in place.iter_mut().zip(&self.writes) {
                        *floor = (*floor).max(returned(writes, start));
                    }
                }
            }
            if place == before {
                return Ok(place);
            }
        }
    }

    fn first_fit(&self, read: &Read, client: usize, floor: usize) -> Result<usize, String> {
        let writes = &self.writes[client];
        let begun = writes.partition_point(|write| write.start < read.end);
        (floor..=begun)
            .find(|place| self.state(client, *place) == &read.seen[client])
            .ok_or_else(|| {
                let states: Vec<_> = (floor..=begun)
                    .map(|place| self.state(client, place))
                    .collect();
                format!("{read:?} of client {client} is none of {states:?}")
            })
    }

    fn state(&self, client: usize, place: usize) -> &State {
        static NOTHING: State = State::new();
        place
            .checked_sub(1)
            .map_or(&NOTHING, |last| &self.writes[client][last].state)
    }

    /// Whether no other place would do.
    fn is_certain(&self, read: &Read, place: &[usize]) -> bool {
        (0..place.len()).all(|client| self.first_fit(read, client, place[client] + 1).is_err())
    }
}

/// How many batches of a client had returned at a moment.
fn returned(writes: &[Write], moment: u64) -> usize {
    writes.partition_point(|write| write.end < moment)
}

fn raise(floor: &mut [usize], to: &[usize]) {
    for (floor, to) in floor.iter_mut().zip(to) {
        *floor = (*floor).max(*to);
    }
}

/// Of two places in one order of versions, one is nowhere behind the other.
fn is_chain(mut places: Vec<Vec<usize>>) -> Result<(), String> {
    places.sort();
    places.sort_by_key(|place| place.iter().sum::<usize>());
    for pair in places.windows(2) {
        if pair[0].iter().zip(&pair[1]).any(|(one, two)| one > two) {
            return Err(format!(
                "{:?} and {:?} are of no one order",
                pair[0], pair[1]
            ));
        }
    }
    Ok(())
}

const FILTERS: [&str; 6] = ["t/x", "t/+", "t/#", "+/x", "#", "+/+"];

/// Handles of one client: it gets a new one with each joining.
const JOININGS: u64 = 1_000_000;

fn filter(text: &str) -> SubscriptionFilter {
    SubscriptionFilter::parse(text, &TopicLimits::default()).unwrap()
}

/// Small numbers that look random.
pub(crate) struct Dice(pub(crate) u64);

impl Dice {
    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % limit
    }
}

/// Commits batches of 1 to 4 changes as one client, and notes them. Leaves and joins again if `leaves`.
pub(crate) fn write(
    directory: &Directory,
    clock: &Clock,
    client: u64,
    rounds: u64,
    leaves: bool,
) -> Vec<Write> {
    let filters = FILTERS.map(filter);
    let mut dice = Dice(client * 7_919 + 0x9E37_79B9);
    let mut held = [None; FILTERS.len()];
    let mut id = directory.join(client * JOININGS);
    let mut writes = Vec::new();
    for round in 1..=rounds {
        let start = clock.now();
        let is_last = leaves && dice.below(4) == 0;
        if is_last {
            directory.leave(id);
            held = [None; FILTERS.len()];
        } else {
            let mut changes = Vec::new();
            for _ in 0..=dice.below(4) {
                let which = usize::try_from(dice.below(FILTERS.len() as u64)).unwrap();
                let number = u32::try_from(round * FILTERS.len() as u64).unwrap()
                    + u32::try_from(which).unwrap();
                held[which] = (dice.below(3) > 0).then_some(number);
                let filter = &filters[which];
                changes.push(match held[which] {
                    None => Change::Unsubscribe { filter },
                    Some(number) => Change::Subscribe {
                        filter,
                        options: Options {
                            id: number.try_into().ok(),
                            ..Options::at(QoS::AtMostOnce)
                        },
                    },
                });
            }
            directory.commit(id, &changes);
        }
        let end = clock.now();
        let state: State = held.into_iter().flatten().collect();
        if is_last {
            directory.clean(3);
            id = directory.join(client * JOININGS + round);
        }
        writes.push(Write { start, end, state });
    }
    writes
}

/// What one match saw, by client.
struct Seen(Vec<State>);

impl Visitor for Seen {
    fn plain(&mut self, found: Match<'_>) {
        let client = usize::try_from(found.handle / JOININGS).unwrap();
        for id in found.ids {
            assert!(self.0[client].insert(id.get()), "{found:?} came twice");
        }
    }

    fn shared(&mut self, _: Match<'_>) -> bool {
        true
    }

    fn shared_offline(&mut self, _: Match<'_>) {}
}

/// Matches the topic once, and notes what was seen of `clients`.
pub(crate) fn read(directory: &Directory, clock: &Clock, clients: usize) -> Read {
    let topic = TopicName::parse("t/x", &TopicLimits::default()).unwrap();
    let mut seen = Seen(vec![State::new(); clients]);
    let start = clock.now();
    directory.snapshot().match_one(topic, None, 0, &mut seen);
    Read {
        start,
        end: clock.now(),
        seen: seen.0,
    }
}
