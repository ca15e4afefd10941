//! Streams on a disk that loses power, dies, fails and fills up: offsets are dense, no row that was
//! seen is gone or different, none is there twice, and files and memory together hold exactly what
//! was committed.
//!
//! `MQTTCORE_CYCLES` and `MQTTCORE_SEED` choose how many and which; see `make powercut`.
#![cfg(feature = "columnar")]
#![allow(clippy::unwrap_used, reason = "a test fails with it")]
#![allow(clippy::print_stdout, reason = "the line is what the run is for")]

mod stream_support;

use std::collections::BTreeMap;
use std::env;
use std::sync::Arc;

use mqttcore_store::faults::{Disk, Faults, Random};
use mqttcore_store::files::Files;
use mqttcore_store::stream::StreamOptions;
use mqttcore_store::{Durability, SimulatedStore, Store, StoreError, Ticket};
use stream_support::{Row, STORE, append, definition, options, payload, read};

const PLACES: [(&str, u16); 4] = [("plant", 0), ("plant", 1), ("plant", 2), ("yard", 0)];

/// Seconds between two messages, so that files have times of their own.
const STEP_US: u64 = 1_000_000;

/// What the outside knows.
#[derive(Default)]
struct Book {
    /// What was handed over, by text: its place in time, its rows, whether it was acknowledged.
    messages: BTreeMap<u64, (Vec<usize>, bool)>,
    /// The rows of each place that somebody has seen, from the first one on.
    seen: Vec<BTreeMap<i64, Row>>,
    earliest: Vec<u64>,
    epoch: Option<String>,
}

struct Trial {
    seed: u64,
    random: Random,
    disk: Disk,
    options: StreamOptions,
    book: Book,
    next: u64,
}

fn from_environment(name: &str, default: u64) -> u64 {
    env::var(name).map_or(default, |text| text.parse().unwrap())
}

#[test]
fn no_row_is_lost_doubled_or_changed() {
    let cycles = from_environment("MQTTCORE_CYCLES", 60);
    let seed = from_environment("MQTTCORE_SEED", 1);

    let (mut runs, mut rows, mut trials) = (0, 0, 0);
    while runs < cycles {
        let mut trial = Trial::new(seed.wrapping_mul(1_000_003).wrapping_add(trials));
        for _ in 0..6.min(cycles - runs) {
            trial.live();
            runs += 1;
        }
        rows += trial.check();
        trials += 1;
    }

    println!("{runs} runs of streams: {rows} rows, 0 lost, 0 doubled, 0 changed");
}

impl Trial {
    fn new(seed: u64) -> Self {
        let mut random = Random(seed);
        let mut plant = definition("plant", 3);
        // Some give up rows; what is above the first offset that may be read has to be whole.
        plant.retention_bytes = (random.below(3) == 0).then_some(20_000);
        let mut options = options(&[plant, definition("yard", 1)]);
        options.limits.file_bytes = 1_000;
        Self {
            seed,
            disk: Disk::new(random.draw(), Faults::default()),
            options,
            book: Book {
                seen: vec![BTreeMap::new(); PLACES.len()],
                earliest: vec![0; PLACES.len()],
                ..Book::default()
            },
            random,
            next: 0,
        }
    }

    /// From one start to the next crash.
    fn live(&mut self) {
        self.check();
        let faults = Faults {
            short_write_one_in: [0, 20][usize::from(self.one_in(2))],
            write_error_one_in: [0, 300][usize::from(self.one_in(4))],
            sync_error_one_in: [0, 60][usize::from(self.one_in(4))],
            capacity_bytes: [0, self.disk.used_bytes() + 30_000][usize::from(self.one_in(4))],
        };
        self.disk.set_faults(faults);
        let fuse = 1 + self.random.below(600);
        self.disk.cut_after(fuse);
        if let Ok(store) = self.open() {
            // It ends with the power, with a fault, or because it has lived long enough.
            let _ = self.work(&store);
        }
        self.crash();
    }

    fn one_in(&mut self, odds: u64) -> bool {
        self.random.below(odds) == 0
    }

    fn crash(&mut self) {
        self.disk = if self.one_in(3) {
            self.disk.after_kill()
        } else {
            self.disk.after_power_cut()
        };
        self.disk.set_faults(Faults::default());
    }

    fn open(&self) -> Result<SimulatedStore, StoreError> {
        let files: Arc<dyn Files> = Arc::new(self.disk.clone());
        SimulatedStore::open_with(&files, &STORE, &self.options).map(|(store, _)| store)
    }

    fn work(&mut self, store: &SimulatedStore) -> Result<(), StoreError> {
        let mut waiting: Vec<(Ticket, u64)> = Vec::new();
        for _ in 0..80 {
            match self.random.below(12) {
                0..=4 => waiting.push(self.publish(store)?),
                5..=7 => drop(store.step()?),
                8 => goes_on(store.seal())?,
                9 => goes_on(store.maintain(self.next * STEP_US))?,
                10 => store.checkpoint()?,
                _ => self.look(store),
            }
            for (ticket, text) in &waiting {
                if ticket.durability == Durability::Fsync && store.is_kept(*ticket) {
                    self.book.messages.get_mut(text).unwrap().1 = true;
                }
            }
        }
        Ok(())
    }

    fn publish(&mut self, store: &SimulatedStore) -> Result<(Ticket, u64), StoreError> {
        let mut places: Vec<usize> = (0..PLACES.len()).collect();
        places.retain(|_| self.random.below(2) == 0);
        let durability = [Durability::Os, Durability::Fsync][usize::from(self.one_in(2))];
        let text = self.next;
        self.next += 1;
        // A clock that is set back now and then.
        let at_us = (text * STEP_US).saturating_sub(self.random.below(3) * 5 * STEP_US);
        let rows: Vec<_> = places.iter().map(|place| PLACES[*place]).collect();
        self.book.messages.insert(text, (places, false));
        Ok((append(store, durability, text, at_us, &rows)?, text))
    }

    /// Somebody reads what is to be seen.
    fn look(&mut self, store: &SimulatedStore) {
        if self.disk.is_off() {
            return;
        }
        let streams = store.streams().unwrap();
        for (place, (name, partition)) in PLACES.iter().enumerate() {
            let bounds = streams.bounds(name).unwrap()[usize::from(*partition)];
            let tail = streams.tail(name, *partition, bounds.sealed_end, bounds.end);
            for row in tail.unwrap().iter().flat_map(stream_support::rows_of) {
                let seen = self.book.seen[place]
                    .entry(row.0)
                    .or_insert_with(|| row.clone());
                assert_eq!(*seen, row, "seed {}: {name}/{partition}", self.seed);
            }
        }
    }

    /// Starts on a disk that works, and compares everything with the book.
    fn check(&mut self) -> usize {
        let store = match self.open() {
            Ok(store) => store,
            Err(error) => panic!("seed {}: {error}", self.seed),
        };
        let streams = store.streams().unwrap();
        let epoch = streams.describe("plant").unwrap().epoch;
        if let Some(known) = &self.book.epoch {
            assert_eq!(
                *known, epoch,
                "seed {}: rule 4: a crash begins no epoch",
                self.seed
            );
        }
        self.book.epoch = Some(epoch);
        let mut found: BTreeMap<u64, Vec<usize>> = BTreeMap::new();
        let mut count = 0;
        for (place, (name, partition)) in PLACES.iter().enumerate() {
            let bounds = streams.bounds(name).unwrap()[usize::from(*partition)];
            let rows = read(&self.disk, &streams, name, *partition);
            let what = format!("seed {}: {name}/{partition} {bounds:?}", self.seed);
            self.compare(place, &rows, bounds.earliest, bounds.end, &what);
            for text in rows.iter().map(text_of) {
                found.entry(text).or_default().push(place);
            }
            count += rows.len();
        }
        self.compare_messages(&found);
        count
    }

    fn compare(&mut self, place: usize, rows: &[Row], earliest: u64, end: u64, what: &str) {
        let offsets: Vec<i64> = rows.iter().map(|row| row.0).collect();
        let dense: Vec<i64> = (earliest.cast_signed()..end.cast_signed()).collect();
        assert_eq!(offsets, dense, "{what}: offsets are dense");
        assert!(
            rows.is_sorted_by_key(|row| row.1),
            "{what}: rule 12: times never fall"
        );
        let texts: Vec<u64> = rows.iter().map(text_of).collect();
        let is_ordered = texts.windows(2).all(|pair| pair[0] < pair[1]);
        assert!(is_ordered, "{what}: {texts:?} once each, as they came");
        assert!(
            earliest >= self.book.earliest[place],
            "{what}: what is gone stays gone"
        );
        self.book.earliest[place] = earliest;
        let seen = &mut self.book.seen[place];
        *seen = seen.split_off(&earliest.cast_signed());
        let now: BTreeMap<i64, Row> = rows.iter().map(|row| (row.0, row.clone())).collect();
        for (offset, row) in &*seen {
            assert_eq!(now.get(offset), Some(row), "{what}: what was seen is there");
        }
        *seen = now;
    }

    /// A message is there with all of its rows or not at all; one that was acknowledged is there.
    fn compare_messages(&self, found: &BTreeMap<u64, Vec<usize>>) {
        let has_all = self.options.definitions[0].retention_bytes.is_none();
        for (text, (places, is_acknowledged)) in &self.book.messages {
            match found.get(text) {
                Some(rows) if has_all => {
                    assert_eq!(rows, places, "seed {}: message {text} is whole", self.seed);
                }
                None if has_all && !places.is_empty() => {
                    assert!(
                        !is_acknowledged,
                        "seed {}: message {text} is lost",
                        self.seed
                    );
                }
                _ => {}
            }
        }
        for text in found.keys() {
            assert!(
                self.book.messages.contains_key(text),
                "seed {}: {text}?",
                self.seed
            );
        }
    }
}

/// A disk that is full leaves rows where they are.
fn goes_on(done: Result<(), StoreError>) -> Result<(), StoreError> {
    match done {
        Err(StoreError::NoSpace) => Ok(()),
        done => done,
    }
}

fn text_of(row: &Row) -> u64 {
    let text: u64 = String::from_utf8(row.2.clone()).unwrap().parse().unwrap();
    assert_eq!(row.2, payload(text));
    text
}
