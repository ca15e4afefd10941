//! Lives of a store, each ended by a cut, a death or a failing disk.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use mqttcore_store::faults::{Disk, Faults, Random};
use mqttcore_store::files::Files;
use mqttcore_store::{
    Batch, Durability, SimulatedStore, SpacePolicy, Store, StoreError, StoreOptions, Ticket,
};

use crate::model::{Model, Session, Step, Waiting};

/// Small, so that everything happens often.
const OPTIONS: StoreOptions = StoreOptions::small(4_096, 1);

/// The filter whose Subscription Identifier counts the batches; of a session that never ends.
const COUNTER: &str = "counter";
const CLERK: u64 = 0;

/// What a number of cycles came to.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Verdict {
    pub(crate) cycles: u64,
    pub(crate) lost: u64,
    pub(crate) doubled: u64,
    pub(crate) reordered: u64,
    pub(crate) sessions_lost: u64,
    pub(crate) unexplained: u64,
}

impl Verdict {
    pub(crate) fn is_clean(&self) -> bool {
        self.lost + self.doubled + self.reordered + self.sessions_lost + self.unexplained == 0
    }

    pub(crate) fn add(&mut self, other: &Self) {
        self.cycles += other.cycles;
        self.lost += other.lost;
        self.doubled += other.doubled;
        self.reordered += other.reordered;
        self.sessions_lost += other.sessions_lost;
        self.unexplained += other.unexplained;
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            cycles,
            lost,
            doubled,
            reordered,
            sessions_lost,
            unexplained,
        } = self;
        write!(
            formatter,
            "{cycles} cycles: {lost} lost, {doubled} doubled, {reordered} reordered, \
             {sessions_lost} sessions lost, {unexplained} unexplained"
        )
    }
}

/// Compares what should be there with what is.
pub(crate) fn compare(right: &Model, found: &Model) -> Verdict {
    let mut verdict = Verdict::default();
    for (number, session) in &right.sessions {
        let Some(held) = found.sessions.get(number) else {
            verdict.sessions_lost += 1;
            continue;
        };
        let (expected, there) = (everything(session), everything(held));
        let (wanted, present): (BTreeSet<_>, BTreeSet<_>) =
            (expected.iter().collect(), there.iter().collect());
        verdict.lost += wanted.difference(&present).count() as u64;
        verdict.doubled += present.difference(&wanted).count() as u64;
        verdict.doubled += (there.len() - present.len()) as u64;
        verdict.reordered += u64::from(wanted == present && expected != there);
        let is_odd = expected == there && session != held;
        verdict.unexplained += u64::from(is_odd);
    }
    let strangers = found
        .sessions
        .keys()
        .filter(|number| !right.sessions.contains_key(number));
    verdict.unexplained += strangers.count() as u64;
    verdict.unexplained += u64::from(right.retained != found.retained);
    verdict
}

/// What is on its way to a session, in order: under way first.
fn everything(session: &Session) -> Vec<Waiting> {
    let publishes = session.publishes.iter().map(|(_, waiting)| *waiting);
    publishes.chain(session.queue.iter().copied()).collect()
}

/// A model with something in it.
pub(crate) fn sample() -> Model {
    let mut model = Model::default();
    for step in [
        Step::Open {
            session: 1,
            expiry_s: 1,
        },
        Step::Publish {
            message: 4,
            topic: "t".into(),
            recipients: vec![(1, 1)],
            kept: true,
            exactly_once: None,
        },
        Step::Publish {
            message: 5,
            topic: "t".into(),
            recipients: vec![(1, 1)],
            kept: false,
            exactly_once: None,
        },
    ] {
        model.apply(&step);
    }
    model
}

/// One disk and what was put on it.
pub(crate) struct Trial {
    random: Random,
    disk: Disk,
    /// Batches that are or may be there, in order.
    batches: Vec<Vec<Step>>,
    /// Number of acknowledged batches.
    acknowledged: usize,
    /// The disk has an end in this run.
    is_small: bool,
    /// What happened, for who has to find out why.
    pub(crate) story: Vec<String>,
    /// How often something else was read than was there.
    surprises: u64,
}

/// How a run ended.
enum End {
    /// What was written is there.
    Kill,
    /// What was synced is there.
    Cut,
}

impl Trial {
    pub(crate) fn new(seed: u64) -> Self {
        let mut random = Random(seed);
        let disk = Disk::new(random.draw(), Faults::default());
        Self {
            random,
            disk,
            batches: Vec::new(),
            acknowledged: 0,
            is_small: false,
            story: Vec::new(),
            surprises: 0,
        }
    }

    pub(crate) fn run(&mut self, cycles: u64) -> Verdict {
        let mut total = Verdict::default();
        for _ in 0..cycles {
            let end = if self.random.below(3) == 0 {
                End::Kill
            } else {
                End::Cut
            };
            let (faults, calls) = (self.faults(), self.random.below(700) + 1);
            self.is_small = faults.capacity_bytes > 0;
            self.disk.set_faults(faults);
            self.disk.cut_after(calls);
            let lived = self.live(&end);
            self.story
                .push(format!("run of {} batches: {lived:?}", self.batches.len()));
            self.disk = match end {
                End::Kill => self.disk.after_kill(),
                End::Cut => self.disk.after_power_cut(),
            };
            self.disk.set_faults(Faults::default());
            total.add(&self.judge());
            if !total.is_clean() {
                break;
            }
        }
        total
    }

    fn faults(&mut self) -> Faults {
        let one_in = |odds: u64, chance: bool| if chance { odds } else { 0 };
        Faults {
            short_write_one_in: one_in(5, self.random.below(3) == 0),
            write_error_one_in: one_in(60, self.random.below(6) == 0),
            sync_error_one_in: one_in(15, self.random.below(6) == 0),
            capacity_bytes: match self.random.below(6) {
                0 => self.disk.used_bytes() + self.random.below(40_000),
                _ => 0,
            },
        }
    }

    fn live(&mut self, end: &End) -> Result<(), StoreError> {
        let files: Arc<dyn Files> = Arc::new(self.disk.clone());
        let (store, _) = SimulatedStore::open(&files, &OPTIONS)?;
        let mut model = self.model(self.batches.len());
        let mut tickets = Vec::new();
        let base = self.batches.len();
        let outcome = self.work(&store, &mut model, &mut tickets);
        let kept = |ticket: &Ticket| match end {
            // A process that dies takes nothing along that the system has.
            End::Kill => ticket.durability > Durability::Memory && store.is_kept(*ticket),
            End::Cut => ticket.durability == Durability::Fsync && store.is_kept(*ticket),
        };
        if let Some(last) = tickets.iter().rposition(kept) {
            self.acknowledged = base + last + 1;
        }
        outcome
    }

    fn work(
        &mut self,
        store: &SimulatedStore,
        model: &mut Model,
        tickets: &mut Vec<Ticket>,
    ) -> Result<(), StoreError> {
        let mut batch = Batch::default();
        let is_small = self.is_small;
        for _ in 0..self.random.below(60) {
            let before = model.clone();
            let steps = self.steps(store, model);
            for step in &steps {
                step.record(&mut batch);
            }
            self.batches.push(steps);
            let durability = [
                Durability::Memory,
                Durability::Os,
                Durability::Fsync,
                Durability::Fsync,
            ];
            let durability = durability[usize::try_from(self.random.below(4)).unwrap()];
            // Who has to know whether it was refused asks for more than nothing.
            let durability = if is_small {
                durability.max(Durability::Os)
            } else {
                durability
            };
            tickets.push(store.append(&mut batch, durability, SpacePolicy::Ordinary)?);
            let ticket = tickets[tickets.len() - 1];
            if is_small {
                // What is refused has left no trace: what comes next builds on what was before.
                match store.wait(ticket) {
                    Err(StoreError::NoSpace) => {
                        (*model, _) = (before, self.batches.pop());
                        tickets.pop();
                    }
                    other => other?,
                }
            } else if self.random.below(2) == 0 {
                store.step()?;
            }
            match self.random.below(25) {
                0 => store.checkpoint()?,
                1 | 2 => {
                    store.begin_checkpoint()?;
                    self.look(store, model)?;
                }
                3 => {
                    store.end_checkpoint()?;
                    self.look(store, model)?;
                }
                4 => self.look(store, model)?,
                _ => {}
            }
        }
        if self.random.below(8) == 0 {
            store.close()?;
        }
        Ok(())
    }

    /// Compares what can be read now with what it should be.
    fn look(&mut self, store: &SimulatedStore, model: &Model) -> Result<(), StoreError> {
        while store.step()? {}
        let (found, wrong) = Model::read(store)?;
        let verdict = compare(model, &found);
        if !verdict.is_clean() || !wrong.is_empty() {
            self.story
                .push(format!("read otherwise: {found:?} for {model:?}"));
            self.surprises += 1;
        }
        Ok(())
    }

    /// A batch that makes sense after `model`, and its counter.
    fn steps(&mut self, store: &SimulatedStore, model: &mut Model) -> Vec<Step> {
        let mut steps = Vec::new();
        if !model.sessions.contains_key(&CLERK) {
            steps.push(Step::Open {
                session: CLERK,
                expiry_s: 0,
            });
        }
        for _ in 0..=self.random.below(4) {
            let step = self.step(store, model);
            model.apply(&step);
            steps.push(step);
        }
        let id = u32::try_from(self.batches.len() + 1).unwrap();
        steps.push(Step::Subscribe {
            session: CLERK,
            filter: COUNTER.into(),
            id,
        });
        for step in [&steps[0], &steps[steps.len() - 1]] {
            if matches!(
                step,
                Step::Open { session: CLERK, .. } | Step::Subscribe { session: CLERK, .. }
            ) {
                model.apply(step);
            }
        }
        steps
    }

    fn pick<T: Clone>(&mut self, from: &[T]) -> Option<T> {
        let place = self.random.below(from.len() as u64);
        from.get(usize::try_from(place).unwrap()).cloned()
    }

    fn step(&mut self, store: &SimulatedStore, model: &Model) -> Step {
        let sessions: Vec<u64> = model
            .sessions
            .keys()
            .copied()
            .filter(|&number| number != CLERK)
            .collect();
        let open = Step::Open {
            session: store.numbers(1),
            expiry_s: 300,
        };
        let Some(session) = self.pick(&sessions).filter(|_| sessions.len() > 2) else {
            return open;
        };
        let row = &model.sessions[&session];
        let topic = format!("t/{}", self.random.below(4));
        let filter = format!("f/{}", self.random.below(5));
        let packet_id = u16::try_from(self.random.below(2_000) + 1).unwrap();
        let open_ids: Vec<u16> = row
            .publishes
            .iter()
            .map(|(id, _)| *id)
            .chain(row.releases.iter().copied())
            .collect();
        match self.random.below(24) {
            0 => open,
            1 => Step::Away {
                session,
                at_ms: self.random.below(1_000),
                maybe_sent_below: self.random.below(3) * self.random.below(1_000),
            },
            2 if sessions.len() > 4 => Step::End { session },
            3 => Step::Open {
                session,
                expiry_s: 30,
            },
            4 | 5 => Step::Subscribe {
                session,
                filter,
                id: u32::try_from(self.random.below(9)).unwrap(),
            },
            6 => Step::Unsubscribe { session, filter },
            7 => Step::Clear { topic },
            8 => Step::Will {
                session,
                payload: self.random.draw(),
            },
            9 => Step::WillEnd { session },
            10 => match self.pick(&row.exactly_once.iter().copied().collect::<Vec<_>>()) {
                Some(packet_id) => Step::Released { session, packet_id },
                None => Step::WillEnd { session },
            },
            11 => match model.retained.values().next() {
                Some(&message) => Step::Route {
                    message,
                    first: store.numbers(1),
                    session,
                },
                None => open,
            },
            12 => match self.pick(&row.queue) {
                Some((delivery, ..)) => Step::Drop { session, delivery },
                None => open,
            },
            13..=15 => match row.queue.first() {
                Some(&(delivery, ..)) if !open_ids.contains(&packet_id) => Step::Send {
                    session,
                    delivery,
                    packet_id,
                },
                _ => Step::Unsubscribe { session, filter },
            },
            16 => match row.publishes.first() {
                Some(&(packet_id, _)) => Step::Receive { session, packet_id },
                None => Step::WillEnd { session },
            },
            17 => {
                let count = usize::try_from(self.random.below(3)).unwrap();
                let packet_ids = open_ids.into_iter().take(count).collect();
                Step::Complete {
                    session,
                    packet_ids,
                }
            }
            _ => {
                let mut recipients = Vec::new();
                for session in &sessions {
                    if self.random.below(2) == 0 {
                        recipients
                            .push((*session, u8::try_from(self.random.below(2) + 1).unwrap()));
                    }
                }
                // Retained ones to two topics only: others are delivered and gone.
                let kept = self.random.below(5) == 0;
                let exactly_once = (self.random.below(3) == 0).then_some((session, packet_id));
                let message = store.numbers(recipients.len().max(1) as u64);
                Step::Publish {
                    message,
                    topic,
                    recipients,
                    kept,
                    exactly_once,
                }
            }
        }
    }

    /// What the first `count` batches amount to.
    fn model(&self, count: usize) -> Model {
        let mut model = Model::default();
        for step in self.batches[..count].iter().flatten() {
            model.apply(step);
        }
        model
    }

    /// Opens the store and compares it with the acknowledged batches.
    fn judge(&mut self) -> Verdict {
        let files: Arc<dyn Files> = Arc::new(self.disk.clone());
        let mut verdict = Verdict {
            cycles: 1,
            unexplained: std::mem::take(&mut self.surprises),
            ..Verdict::default()
        };
        let opened = SimulatedStore::open(&files, &OPTIONS)
            .and_then(|(store, _)| Ok((Model::read(&store)?, store.numbers(1))));
        let ((found, wrong), next) = match opened {
            Ok(opened) => opened,
            Err(error) => {
                self.story.push(format!("not opened: {error}"));
                verdict.unexplained += 1;
                return verdict;
            }
        };
        let counter = found
            .sessions
            .get(&CLERK)
            .and_then(|row| row.subscriptions.get(COUNTER));
        let count = counter.map_or(0, |&count| count as usize);
        self.story.push(format!(
            "{count} batches are there, {} acknowledged",
            self.acknowledged
        ));
        verdict.lost += self.acknowledged.saturating_sub(count) as u64;
        verdict.unexplained += wrong.len() as u64 + u64::from(next <= found.highest_number());
        self.batches.truncate(count);
        // What has been read back is acknowledged from now on.
        self.acknowledged = self.batches.len();
        verdict.add(&compare(&self.model(count.min(self.batches.len())), &found));
        verdict
    }
}
